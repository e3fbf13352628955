//! Every interleaving of the gate's words that the C++ memory model allows: what a requester takes for a rank that waits is
//! one, at the counts that it shows. The broken variant at the end shows that the models can fail.
mod loom_word;

use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use loom_word::LoomWord;
use mycroft_ring::error::ReadError;
use mycroft_ring::gate::ask::{Asker, Sink, Until};
use mycroft_ring::gate::meeting::{Meeting, Met, Side};
use mycroft_ring::gate::words::{LANE_WORDS, gate, gate_lane};
use mycroft_ring::gate::{Gate, LaneKey, LaneKind, Look};
use mycroft_ring::source::{Source, WordSource};
use mycroft_ring::sync::{Ordering, Word};
use std::sync::atomic::AtomicU64 as Plain;

/// The gate's words with one lane.
const WORDS: usize = gate::LANES + LANE_WORDS - gate::GRANT;
const COUNT: usize = gate::LANES + gate_lane::COUNT - gate::GRANT;
const ARRIVED: usize = gate::ARRIVED - gate::GRANT;
const NOW_NS: u64 = 5;
const OPERATIONS: usize = 2;
const UNTIL: Until = Until { deadline_ns: 100, lease_ns: 100 };
const KEY: LaneKey = LaneKey { comm: 9, kind: LaneKind::Collective, own: 0, other: 1 };

fn words() -> Arc<Vec<LoomWord>> {
    let words: Arc<Vec<LoomWord>> = Arc::new((0..WORDS).map(|_| LoomWord(AtomicU64::new(0))).collect());
    let rank = Gate::over(&words).expect("enough");
    rank.open();
    rank.lane_open(0, &KEY);
    words
}

/// The words as a requester has them.
struct Shared(Arc<Vec<LoomWord>>);

impl Source for Shared {
    fn read(&self, at: u64, into: &mut [u64]) -> Result<(), ReadError> {
        WordSource(&self.0[..]).read(at, into)
    }
    fn acquire_fence(&self) {
        LoomWord::fence(Ordering::Acquire);
    }
}

impl Sink for Shared {
    fn write(&self, at: u64, value: u64) -> Result<(), ReadError> {
        WordSource(&self.0[..]).write(at, value)
    }
    fn release_fence(&self) {
        LoomWord::fence(Ordering::Release);
    }
}

fn asker(words: &Arc<Vec<LoomWord>>) -> Asker<Shared> {
    Asker::new(Shared(Arc::clone(words)), 0, WORDS)
}

/// A rank issues so many operations, as `probe/preload` does.
fn issue(words: &[LoomWord], operations: usize) {
    let rank = Gate::over(words).expect("enough");
    for _ in 0..operations {
        if rank.is_asked() {
            rank.pass(|| NOW_NS, thread::yield_now);
        }
        rank.count(0);
    }
}

/// Times that some execution saw a rank wait: a model in which none does proves nothing.
static HELD: [Plain; 3] = [const { Plain::new(0) }; 3];

type Waits = fn(&[LoomWord], &Asker<Shared>) -> Option<u64>;

/// What the requester calls waiting stays at its count until the release.
fn look_and_release(model: usize, memory: &[LoomWord], asker: &mut Asker<Shared>, waits: Waits) {
    if let Some(count) = waits(memory, asker) {
        assert_eq!(memory[COUNT].load(Ordering::Relaxed), count, "it went on");
        HELD[model].fetch_add(1, Ordering::Relaxed);
    }
    asker.release().expect("inside");
}

/// Asked before: a rank comes while a requester looks. Who reads is the spawned thread: see `loom.rs`.
fn asked_before(model: usize, waits: Waits) {
    let memory = words();
    let mut asker = asker(&memory);
    asker.ask(UNTIL, NOW_NS).expect("inside");
    let shared = Arc::clone(&memory);
    let requester = thread::spawn(move || look_and_release(model, &shared, &mut asker, waits));
    issue(&memory, OPERATIONS);
    requester.join().expect("the requester");
    assert_eq!(memory[COUNT].load(Ordering::Relaxed), OPERATIONS as u64, "nothing is lost");
}

/// Asked, released and asked again while a rank runs.
fn asked_again(model: usize, waits: Waits) {
    let memory = words();
    let shared = Arc::clone(&memory);
    let rank = thread::spawn(move || issue(&shared, OPERATIONS));
    let mut asker = asker(&memory);
    asker.ask(UNTIL, NOW_NS).expect("inside");
    asker.release().expect("inside");
    asker.ask(UNTIL, NOW_NS).expect("inside");
    look_and_release(model, &memory, &mut asker, waits);
    rank.join().expect("it goes on");
    assert_eq!(memory[COUNT].load(Ordering::Relaxed), OPERATIONS as u64, "nothing is lost");
}

fn shown(_: &[LoomWord], asker: &Asker<Shared>) -> Option<u64> {
    let view = asker.view().expect("inside");
    view.waiting.then(|| view.lanes[0].count)
}

fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn a_rank_that_is_shown_to_wait_waits_at_the_counts_shown() {
    explore(|| asked_before(0, shown));
    assert!(HELD[0].load(Ordering::Relaxed) > 0);
}

#[test]
fn a_ticket_of_an_older_request_is_none_of_a_newer() {
    explore(|| asked_again(1, shown));
    assert!(HELD[1].load(Ordering::Relaxed) > 0);
}

/// Reads the counts before it looks whether the rank waits.
fn counts_first(words: &[LoomWord], _: &Asker<Shared>) -> Option<u64> {
    let count = words[COUNT].load(Ordering::Relaxed);
    (words[ARRIVED].load(Ordering::Acquire) != 0).then_some(count)
}

#[test]
fn the_model_catches_a_requester_that_reads_counts_first() {
    let broken = || explore(|| asked_again(2, counts_first));
    assert!(std::panic::catch_unwind(broken).is_err());
}

#[test]
fn of_two_threads_the_one_that_came_first_is_let_through() {
    explore(|| {
        let memory = words();
        let mut asker = asker(&memory);
        asker.ask(UNTIL, NOW_NS).expect("inside");
        let shared = Arc::clone(&memory);
        let other = thread::spawn(move || Gate::over(&shared[..]).expect("enough").arrive().expect("asked"));
        let rank = Gate::over(&memory[..]).expect("enough");
        let mine = rank.arrive().expect("asked");
        let tickets = [mine, other.join().expect("joins")];
        asker.grant().expect("inside");
        let looks = tickets.map(|ticket| rank.look(ticket, NOW_NS, NOW_NS));
        assert!(looks == [Look::Go, Look::Wait] || looks == [Look::Wait, Look::Go], "{looks:?}");
        asker.grant().expect("inside");
        assert_eq!(tickets.map(|ticket| rank.look(ticket, NOW_NS, NOW_NS)), [Look::Go; 2]);
    });
}

/// Comes for two rounds and goes away at once where the other is not there; how many take place.
fn meets(word: &LoomWord, side: Side) -> u32 {
    let meeting = Meeting::at(word, 1, side);
    for round in 0..2 {
        let met = match meeting.come(round) {
            Met::Alone => meeting.leave(round),
            met => met,
        };
        if met != Met::Both {
            return round;
        }
    }
    2
}

#[test]
fn a_pair_meets_on_both_sides_or_on_neither() {
    explore(|| {
        let word = Arc::new(LoomWord(AtomicU64::new(0)));
        let shared = Arc::clone(&word);
        let guest = thread::spawn(move || meets(&shared, Side::Guest));
        let keeper = meets(&word, Side::Keeper);
        assert_eq!(keeper, guest.join().expect("joins"));
    });
}
