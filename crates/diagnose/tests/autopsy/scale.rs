//! Cost: linear in ranks and entries.
use crate::build::{Job, REDUCE};
use mycroft_diagnose::stacks::{Question, autopsy};
use mycroft_record::Rank;
use mycroft_record::dump::{Bundle, EntryState};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// A three-dimensional job: tensor groups of 8, data groups across, the world; one rank misses the last of the world.
fn job(ranks: u32, entries: u32) -> Bundle {
    let world: Vec<u32> = (0..ranks).collect();
    let tensor: Vec<Vec<u32>> = world.chunks(8).map(<[u32]>::to_vec).collect();
    let data: Vec<Vec<u32>> = (0..8).map(|first| (first..ranks).step_by(8).collect()).collect();
    // Groups by rank, so that each dump knows its own only.
    let small = Job::new(1, &[("world", &[0])]);
    let mut like = small.bundle();
    let mut one = Job::new(1, &[("world", &[0]), ("tp", &[0]), ("dp", &[0])]);
    one.train(entries / 3);
    one.all(&[0], 0, crate::build::Call { state: EntryState::Scheduled, ..REDUCE });
    let pattern = one.bundle().dumps.remove(0);
    like.dumps.clear();
    for rank in 0..ranks {
        let mut dump = pattern.clone();
        dump.rank = Rank(rank);
        let of = |groups: &[Vec<u32>]| {
            let group = groups.iter().find(|group| group.contains(&rank)).expect("every rank has one");
            group.iter().map(|rank| Rank(*rank)).collect::<Vec<_>>()
        };
        dump.groups[0].ranks = world.iter().map(|rank| Rank(*rank)).collect();
        dump.groups[1].ranks = of(&tensor);
        dump.groups[2].ranks = of(&data);
        if rank == ranks / 2 + 1 {
            dump.entries.pop();
        }
        like.dumps.push(dump);
    }
    like
}

/// Memory asked for by this thread, bytes in all: what an autopsy does once per entry, or once per pair of ranks, asks for
/// memory as often. `cargo xtask bench autopsy` measures the time.
struct Counting;

thread_local! {
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands everything to the system's allocator; counting is a plain thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.with(|asked| asked.set(asked.get() + layout.size() as u64));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn asked(bundle: &Bundle) -> (u64, Vec<Rank>) {
    let before = ASKED.with(Cell::get);
    let answer = autopsy(bundle, &Question::default());
    let asked = ASKED.with(Cell::get) - before;
    (asked, answer.blamed().map(|(rank, ..)| rank).collect())
}

#[test]
fn cost_grows_with_the_entries_and_no_faster() {
    let (small, culprits) = asked(&job(128, 2000));
    assert_eq!(culprits, [Rank(65)]);
    let (large, culprits) = asked(&job(1024, 2000));
    assert_eq!(culprits, [Rank(513)]);
    // 8 times the ranks. Quadratic would be 64.
    assert!(large < 10 * small, "128 x 2000 asked for {small} bytes, 1024 x 2000 for {large}");
    assert!(small > 0);
}
