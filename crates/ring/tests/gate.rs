//! The gate of a real segment: what ends a wait, what hostile words do, and what a requester refuses.
use mycroft_ring::clock::monotonic_ns;
use mycroft_ring::gate::hold::{Gates, HoldError, Terms};
use mycroft_ring::gate::words::{GATE_WORDS, gate};
use mycroft_ring::gate::{Gate, HELD_NS_MAX, LaneKey, LaneKind, Look, page};
use mycroft_ring::sync::AtomicU64;
use mycroft_ring::{SegmentConfig, SegmentWriter};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const TERMS: Terms = Terms { agree_within: Duration::from_secs(30), at_most: Duration::from_secs(20) };

fn words() -> Vec<AtomicU64> {
    (0..GATE_WORDS).map(|_| AtomicU64::new(0)).collect()
}

/// Asked at 1,000 with a deadline at 2,000 and a lease of 300.
fn asked(words: &[AtomicU64], epoch: u64) {
    for (at, value) in [(gate::DEADLINE, 2_000), (gate::LEASE, 300), (gate::PULSE, 1_000), (gate::GRANT, epoch << 32)] {
        words[at - gate::GRANT].store(value, Relaxed);
    }
}

fn left(words: &[AtomicU64]) -> u64 {
    words[gate::LEFT - gate::GRANT].load(Relaxed)
}

#[test]
fn a_wait_ends_at_the_deadline_and_when_the_requester_is_silent() {
    for (pulse, ends_at, why) in [(1_900, 2_000, 1), (1_000, 1_301, 2), (0, 1_000, 2)] {
        let words = words();
        let rank = Gate::over(&words).expect("enough");
        asked(&words, 7);
        words[gate::PULSE - gate::GRANT].store(pulse, Relaxed);
        let ticket = rank.arrive().expect("asked");
        assert!(ends_at == 1_000 || rank.look(ticket, ends_at - 1, 1_000) == Look::Wait);
        assert_eq!(rank.look(ticket, ends_at, 1_000), Look::Go);
        assert_eq!(left(&words), 7 << 32 | why);
        assert_eq!(rank.arrive(), None, "it left, and does not come back to the same request");
        asked(&words, 8);
        assert!(rank.arrive().is_some(), "but to the next");
    }
}

#[test]
fn whatever_the_words_say_a_wait_ends() {
    let mut state = 1u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        [state, u64::MAX, 0, 1 << 32, u64::MAX << 32, state % 1_000][(state >> 60) as usize % 6]
    };
    for _ in 0..2_000 {
        let words = words();
        words.iter().for_each(|word| word.store(draw(), Relaxed));
        let rank = Gate::over(&words).expect("enough");
        let mut now_ns = 1_000u64;
        let clock = || {
            now_ns += 1_000_000_000;
            now_ns
        };
        // Somebody who begins a request with each look, too.
        rank.pass(clock, || words[gate::GRANT - gate::GRANT].store(draw(), Relaxed));
        assert!(now_ns <= 2 * HELD_NS_MAX, "held for {now_ns} ns");
    }
}

fn segment(dir: &std::path::Path, rank: u32) -> SegmentWriter {
    let config = SegmentConfig {
        dir,
        size_bytes: 1 << 18,
        job: "job",
        host: "host",
        rank,
        world_size: 2,
        local_rank: rank,
        gpu: -1,
    };
    SegmentWriter::create(&config).expect("a segment")
}

fn open<'a>(writer: &'a SegmentWriter, own: u32, other: u32) -> Gate<'a, AtomicU64> {
    let rank = Gate::over(page::of_words(writer.words()).expect("whole")).expect("enough");
    rank.open();
    rank.lane_open(0, &LaneKey { comm: 5, kind: LaneKind::Collective, own, other });
    rank
}

#[test]
fn a_requester_refuses_what_it_cannot_hold() {
    let dir = tempfile::tempdir().expect("a folder");
    assert!(matches!(Gates::open(dir.path(), "job"), Err(HoldError::Nobody { .. })));
    let writer = segment(dir.path(), 0);
    assert!(matches!(Gates::open(dir.path(), "job"), Err(HoldError::NoGate(who)) if who.rank == 0));
    let rank = open(&writer, 0, 2);
    assert!(matches!(Gates::open(dir.path(), "another"), Err(HoldError::Nobody { .. })));
    let mut gates = Gates::open(dir.path(), "job").expect("a gate");
    assert!(matches!(Gates::open(dir.path(), "job"), Err(HoldError::Busy(_))), "one at a time");
    let refused = gates.hold(TERMS).err().expect("its peer is not here");
    assert!(matches!(refused, HoldError::Elsewhere { members: 2, here: 1, .. }), "{refused}");
    assert!(!rank.is_asked(), "nobody was asked");
    rank.untracked();
    assert!(matches!(gates.hold(TERMS), Err(HoldError::Untracked(_))));
    drop(gates);
    assert!(Gates::open(dir.path(), "job").is_ok());
}

#[test]
fn ranks_are_held_at_one_operation_and_let_go() {
    let dir = tempfile::tempdir().expect("a folder");
    let writers = [segment(dir.path(), 0), segment(dir.path(), 1)];
    let ranks: Vec<_> = writers.iter().enumerate().map(|(i, writer)| open(writer, i as u32, 2)).collect();
    let stop = AtomicBool::new(false);
    let made = [const { AtomicU64::new(0) }; 2];
    std::thread::scope(|scope| {
        for (i, rank) in ranks.iter().enumerate() {
            let (stop, own, other) = (&stop, &made[i], &made[1 - i]);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    if rank.is_asked() {
                        rank.pass(monotonic_ns, std::thread::yield_now);
                    }
                    rank.count(0);
                    own.fetch_add(1, Relaxed);
                    // A host runs ahead of its peer, but not for ever.
                    while own.load(Relaxed) > other.load(Relaxed) + 50 && !stop.load(Relaxed) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut gates = Gates::open(dir.path(), "job").expect("gates");
        for _ in 0..20 {
            let mut held = gates.hold(TERMS).expect("both come");
            let counts: Vec<u64> = held.places().iter().map(|place| place.next[0].count).collect();
            assert_eq!(counts[0], counts[1]);
            held.keep(Duration::from_millis(2)).expect("nobody moves");
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn a_second_library_finds_the_segment_of_its_process() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = mycroft_ring::FixedPath::new(dir.path().as_os_str().as_encoded_bytes()).expect("short");
    assert!(page::of_this_process(&path).is_none());
    let writer = segment(dir.path(), 0);
    let found = page::of_this_process(&path).expect("its own");
    let rank = Gate::over(found).expect("enough");
    rank.open();
    assert_eq!(writer.words()[gate::READY].load(Relaxed), 1, "the same memory");
}
