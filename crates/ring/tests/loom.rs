//! Every interleaving and every value that the C++ memory model allows, for the protocols of `lane` and `table`, at sizes
//! where exploring all of them takes seconds. The broken variants at the end show that the models can fail.
mod loom_word;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use loom_word::LoomWord;
use mycroft_ring::lane::{self, LaneAt};
use mycroft_ring::layout::{dir, ring};
use mycroft_ring::source::WordSource;
use mycroft_ring::sync::{Ordering, Word};
use mycroft_ring::table::{self, TableAt};

/// Words of a ring header as far as the protocol uses them.
const HEADER: usize = ring::CLAIMS + 1;
/// Payload words: two, so that a torn record can be told from a whole one.
const PAYLOAD: usize = 2;
const SLOT: usize = PAYLOAD + 1;
const SLOTS: usize = 2;

fn words(n: usize) -> Arc<Vec<LoomWord>> {
    Arc::new((0..n).map(|_| LoomWord(AtomicU64::new(0))).collect())
}

/// Runs a model in every way there is.
///
/// Readers are the spawned thread: loom remembers one access per object when it looks for conflicts, so a writer that
/// loads before it stores hides the conflict with a reader that came before, and only the order "writer first, reader
/// moved before its last store" is explored completely.
fn explore(model: impl Fn() + Sync + Send + 'static) {
    loom::model(model);
}

fn payload(n: u64) -> [u64; PAYLOAD] {
    [n + 100, n + 100]
}

type Store = fn(&[LoomWord], &[LoomWord], u64, &[u64; PAYLOAD]);

/// One writer stores `records` records over `SLOTS` slots; a reader drains meanwhile, as `Reader` does.
fn ring_model(records: u64, store: Store) {
    let memory = words(HEADER + SLOTS * SLOT);
    let shared = Arc::clone(&memory);
    let reader = thread::spawn(move || {
        let at = LaneAt { header: 0, slots_at: HEADER as u64, slots: SLOTS as u64, slot_words: SLOT as u64 };
        let source = WordSource(&shared[..]);
        let head = lane::load_head(&source, &at).expect("inside");
        for position in lane::oldest_whole(head, SLOTS as u64)..head {
            let mut chunk = [0; SLOT];
            let oldest = lane::copy(&source, &at, position, head, &mut chunk).expect("inside");
            if position >= oldest {
                // What the protocol calls whole must be whole, and it must be this record.
                assert_eq!(chunk[0], lane::mark_whole(position), "mark of record {position}");
                assert_eq!(chunk[1..], payload(position), "payload of record {position}");
                WHOLE.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    for n in 0..records {
        let slot = HEADER + n as usize % SLOTS * SLOT;
        store(&memory[..HEADER], &memory[slot..slot + SLOT], n, &payload(n));
    }
    reader.join().expect("reader");
}

/// Records that some execution of some model called whole: a model in which none is proves nothing.
static WHOLE: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

#[test]
fn a_record_called_whole_is_whole() {
    explore(|| ring_model(3, lane::store));
}

#[test]
fn a_lapped_slot_is_never_called_whole() {
    explore(|| ring_model(4, lane::store));
    assert!(WHOLE.load(Ordering::Relaxed) > 0);
}

/// Without the release fence payload words may overtake the head of the record before.
fn store_without_fence(header: &[LoomWord], slot: &[LoomWord], n: u64, payload: &[u64; PAYLOAD]) {
    slot[0].store(lane::mark_busy(n), Ordering::Relaxed);
    for i in 0..PAYLOAD {
        slot[i + 1].store(payload[i], Ordering::Relaxed);
    }
    slot[0].store(lane::mark_whole(n), Ordering::Release);
    header[ring::HEAD].store(n + 1, Ordering::Release);
}

/// With the mark before the fence a reader may see the next owner's mark without its head.
fn store_mark_before_fence(header: &[LoomWord], slot: &[LoomWord], n: u64, payload: &[u64; PAYLOAD]) {
    slot[0].store(lane::mark_busy(n), Ordering::Relaxed);
    LoomWord::fence(Ordering::Release);
    for i in 0..PAYLOAD {
        slot[i + 1].store(payload[i], Ordering::Relaxed);
    }
    slot[0].store(lane::mark_whole(n), Ordering::Release);
    header[ring::HEAD].store(n + 1, Ordering::Release);
}

/// Publishes first and writes then.
fn store_head_first(header: &[LoomWord], slot: &[LoomWord], n: u64, payload: &[u64; PAYLOAD]) {
    header[ring::HEAD].store(n + 1, Ordering::Release);
    lane::store(header, slot, n, payload);
}

fn breaks(model: impl Fn() + Sync + Send + 'static) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(model))).is_err()
}

#[test]
fn the_model_catches_a_writer_without_the_fence() {
    assert!(breaks(|| ring_model(4, store_without_fence)));
}

#[test]
fn the_model_catches_a_mark_before_the_fence() {
    assert!(breaks(|| ring_model(4, store_mark_before_fence)));
}

#[test]
fn the_model_catches_a_writer_that_publishes_first() {
    assert!(breaks(|| ring_model(2, store_head_first)));
}

#[test]
fn a_ring_has_one_owner_and_its_sequence_goes_on() {
    explore(|| {
        let memory = words(HEADER + SLOTS * SLOT);
        let work = |owner: u64, memory: &[LoomWord]| {
            let (header, slots) = memory.split_at(HEADER);
            let Some(n) = lane::claim(header, owner) else { return 0 };
            lane::store(header, &slots[n as usize % SLOTS * SLOT..][..SLOT], n, &payload(n));
            lane::release(header);
            1
        };
        let shared = Arc::clone(&memory);
        let other = thread::spawn(move || work(2, &shared));
        let written = work(1, &memory) + other.join().expect("other");
        assert!(written >= 1);
        assert_eq!(memory[ring::HEAD].load(Ordering::Relaxed), written, "every record has its own number");
        assert_eq!(memory[ring::CLAIMS].load(Ordering::Relaxed), written);
        assert_eq!(memory[ring::OWNER].load(Ordering::Relaxed), 0);
    });
}

const CELL: usize = 2;

fn fill(cell: &[LoomWord], value: u64) {
    for word in cell {
        word.store(value, Ordering::Relaxed);
    }
}

/// One cell, owned first by 1, then by 2; the reader may see either, or none, never a mixture.
fn table_model(claim: fn(&[LoomWord]) -> Option<(u64, u64)>) {
    let memory = words(1 + CELL);
    let shared = Arc::clone(&memory);
    let reader = thread::spawn(move || {
        let at = TableAt { directory: 0, cells: 1, count: 1, cell_words: CELL };
        let active = |state| state == dir::ACTIVE;
        let make = |_, generation: u32, words: &[u64]| (u64::from(generation), words.to_vec());
        let seen = table::snapshot(&WordSource(&shared[..]), &at, active, make).expect("inside");
        for (owner, words) in seen.items {
            assert_eq!(words, vec![owner; CELL], "a cell of generation {owner}");
            OWNERS_SEEN.fetch_or(1 << owner, Ordering::Relaxed);
        }
    });
    let (directory, cell) = memory.split_at(1);
    for owner in 1..=2 {
        let (index, generation) = claim(directory).expect("a free cell");
        fill(cell, owner);
        table::publish(directory, index, generation);
        if owner == 1 {
            assert!(table::take(directory, index, generation));
            table::retire(directory, index, generation, dir::FREE);
        }
    }
    reader.join().expect("reader");
}

/// Owners that some execution saw, one bit each: a model in which none is seen proves nothing.
static OWNERS_SEEN: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

#[test]
fn a_snapshot_never_mixes_two_owners() {
    explore(|| table_model(|directory| table::claim(directory, 0)));
    assert_eq!(OWNERS_SEEN.load(Ordering::Relaxed), 0b110);
}

#[test]
fn the_model_catches_a_claim_without_the_fence() {
    let claim = |directory: &[LoomWord]| {
        let seen = directory[0].load(Ordering::Relaxed);
        let generation = dir::generation(seen) + 1;
        directory[0].store(dir::word(generation, dir::BUSY), Ordering::Relaxed);
        Some((0, generation))
    };
    assert!(breaks(move || table_model(claim)));
}

#[test]
fn two_claims_get_two_cells_and_one_of_two_ends_wins() {
    explore(|| {
        let memory = words(2);
        let shared = Arc::clone(&memory);
        let other = thread::spawn(move || table::claim(&shared, 0));
        let mine = table::claim(&memory, 0).expect("two cells for two");
        let theirs = other.join().expect("other").expect("two cells for two");
        assert_ne!(mine.0, theirs.0);
        table::publish(&memory, mine.0, mine.1);
        let shared = Arc::clone(&memory);
        let other = thread::spawn(move || table::take(&shared, mine.0, mine.1));
        let won = table::take(&memory, mine.0, mine.1);
        assert!(won ^ other.join().expect("other"), "exactly one may end it");
    });
}
