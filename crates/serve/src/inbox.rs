//! The bounded queue between the wire and the brain.
//!
//! Ingestion never waits long: a producer waits at most [`PUSH_WAIT`] for room, then the batch is dropped, counted, and
//! told to the engine as a gap of its source (invariant 4: loss is data), so that silence is not read as a stall.
use crate::clock::Clock;
use crate::command::Command;
use mycroft_record::{Batch, HostTime, Record, Source};
use mycroft_wire::sync::lock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Records that may wait. 10,000 GPUs send about 35 MB/s of 128-byte records, 270,000 records/s: two seconds of slack,
/// and at about 200 bytes a decoded record 105 MB.
pub(crate) const QUEUE_RECORDS: usize = 1 << 19;
/// Longest a wire thread is held when the queue is full: the length of one sampling period of the agent, so that the
/// wire's credits slow the sender down before anything is lost.
pub(crate) const PUSH_WAIT: Duration = Duration::from_millis(100);
/// Sources whose losses are told apart while they wait to be reported: 10,000 hosts x 8 processes would be 80,000; past
/// the limit losses are still counted, only not attributed.
const LOST_SOURCES: usize = 1 << 17;
/// Commands that may wait: each is one HTTP request, and those are limited too (`wire::descriptors`).
const COMMANDS: usize = 256;

/// What the brain's loop may meet: one `match` there sees all of it.
#[derive(Debug)]
pub(crate) enum Event {
    /// A batch, and when this server had it.
    Batch(HostTime, Arc<Batch>),
    /// So many records of this source were dropped here.
    Lost(Source, u64),
    /// Somebody asks something.
    Command(Command),
    /// The deadline passed, and everything that arrived before this time was handed out.
    Due(HostTime),
    /// The queue was closed and is drained.
    Closed,
}

/// The queue. Many producers, one consumer.
pub(crate) struct Inbox {
    state: Mutex<State>,
    filled: Condvar,
    drained: Condvar,
    limit: usize,
}

struct State {
    batches: VecDeque<(HostTime, Arc<Batch>)>,
    commands: VecDeque<Command>,
    lost: BTreeMap<Source, u64>,
    records: usize,
    dropped: u64,
    open: bool,
    /// The consumer sleeps. Waking costs a system call and, where cores are few, a switch of threads.
    is_idle: bool,
    /// Producers that wait for room.
    waiting: usize,
    /// Somebody who has a time of arrival is on the way with its batches.
    is_entering: bool,
}

/// How much waits and how much was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    /// Batches waiting.
    pub(crate) batches: usize,
    /// Records waiting (an empty batch counts as one).
    pub(crate) records: usize,
    /// Records dropped since the start.
    pub(crate) dropped: u64,
}

/// Space a batch takes: an empty one must not be free, or a hostile peer could queue any number.
/// Long names count as records of 128 bytes.
fn weight(batch: &Batch) -> usize {
    let name = |record: &Record| match record {
        Record::CommInit(init) => init.name.len(),
        Record::NicState(nic) => nic.nic.len(),
        _ => 0,
    };
    let names: usize = batch.records.iter().map(name).sum();
    (batch.records.len() + names / 128).max(1)
}

fn micros(at: HostTime) -> HostTime {
    HostTime(at.0 / 1000 * 1000)
}

/// Counts a batch that found no room.
fn lose(state: &mut State, batch: &Batch) {
    let lost = batch.records.len() as u64;
    state.dropped += lost;
    if state.lost.len() < LOST_SOURCES || state.lost.contains_key(&batch.source) {
        *state.lost.entry(batch.source.clone()).or_insert(0) += lost;
    }
}

impl Inbox {
    /// An empty queue that holds `limit` records.
    pub(crate) fn new(limit: usize) -> Inbox {
        let state = State {
            batches: VecDeque::new(),
            commands: VecDeque::new(),
            lost: BTreeMap::new(),
            records: 0,
            dropped: 0,
            open: true,
            is_idle: false,
            waiting: 0,
            is_entering: false,
        };
        Inbox { state: Mutex::new(state), filled: Condvar::new(), drained: Condvar::new(), limit }
    }

    /// The time of arrival of batches that are pushed next (one producer at a time): this clock's in whole microseconds, as
    /// segments keep it. `Due` is not said before they are here.
    pub(crate) fn enter(&self, clock: &Clock) -> HostTime {
        let mut state = lock(&self.state);
        state.is_entering = true;
        micros(clock())
    }

    /// Queues batches that arrived at `at`, waiting up to `wait` for room for each. Gives how many records were dropped: of batches that
    /// found no room (counted), or all of them of a closed queue; an empty batch counts as one.
    pub(crate) fn push_all(
        &self,
        at: HostTime,
        batches: impl IntoIterator<Item = Arc<Batch>>,
        wait: Duration,
    ) -> usize {
        let mut refused = 0;
        let mut state = lock(&self.state);
        for batch in batches {
            let need = weight(&batch);
            let full = |state: &mut State| state.open && state.records > 0 && state.records + need > self.limit;
            if full(&mut state) && !wait.is_zero() {
                self.wake(&mut state);
                state.waiting += 1;
                let waited = self.drained.wait_timeout_while(state, wait, full);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.waiting -= 1;
            }
            if full(&mut state) || !state.open {
                refused += need;
                lose(&mut state, &batch);
                continue;
            }
            state.records += need;
            state.batches.push_back((at, batch));
        }
        state.is_entering = false;
        self.wake(&mut state);
        refused
    }

    /// Wakes the consumer if it sleeps.
    fn wake(&self, state: &mut State) {
        if std::mem::take(&mut state.is_idle) {
            self.filled.notify_one();
        }
    }

    /// Wakes producers that wait for room when there is some to speak of: each of them has many batches, and the consumer
    /// is not to be interrupted for one.
    fn make_way(&self, state: &State) {
        if state.waiting > 0 && state.records <= self.limit / 2 {
            self.drained.notify_all();
        }
    }

    /// Queues a question. False: too many wait, or the queue is closed.
    pub(crate) fn ask(&self, command: Command) -> bool {
        let mut state = lock(&self.state);
        if !state.open || state.commands.len() >= COMMANDS {
            return false;
        }
        state.commands.push_back(command);
        self.wake(&mut state);
        true
    }

    /// The next event: questions first (they are few and somebody waits), then losses, then batches in order of arrival;
    /// `Due` when there are none and `deadline` has passed. Batches bring the time along: a flood of them starves nothing.
    pub(crate) fn next(&self, deadline: Instant, clock: &Clock) -> Event {
        let mut state = lock(&self.state);
        loop {
            if let Some(command) = state.commands.pop_front() {
                return Event::Command(command);
            }
            if let Some((source, records)) = state.lost.pop_first() {
                return Event::Lost(source, records);
            }
            if let Some((at, batch)) = state.batches.pop_front() {
                state.records -= weight(&batch);
                self.make_way(&state);
                return Event::Batch(at, batch);
            }
            if !state.open {
                return Event::Closed;
            }
            let mut left = deadline.saturating_duration_since(Instant::now());
            if state.is_entering {
                left = left.max(PUSH_WAIT);
            } else if left.is_zero() {
                return Event::Due(micros(clock()));
            }
            state.is_idle = true;
            let (woken, _) = self.filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.is_idle = false;
        }
    }

    /// Batches that wait behind one that was just handed out, in order of arrival: at most so many, and no more than so
    /// many records.
    pub(crate) fn more(&self, mut batches: usize, mut records: usize) -> Vec<(HostTime, Arc<Batch>)> {
        let mut out = Vec::new();
        let mut state = lock(&self.state);
        while let Some(need) = state.batches.front().map(|(_, batch)| weight(batch)).filter(|need| *need <= records)
            && batches > 0
        {
            out.extend(state.batches.pop_front());
            (batches, records) = (batches - 1, records - need);
            state.records -= need;
        }
        self.make_way(&state);
        out
    }

    /// Takes no more; what waits is still handed out, then `Closed`.
    pub(crate) fn close(&self) {
        lock(&self.state).open = false;
        self.filled.notify_all();
        self.drained.notify_all();
    }

    /// How full it is.
    pub(crate) fn fill(&self) -> Fill {
        let state = lock(&self.state);
        Fill { batches: state.batches.len(), records: state.records, dropped: state.dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::StepMark;

    fn batch(host: &str, records: usize) -> Arc<Batch> {
        let mark = Record::StepMark(StepMark { at: HostTime(1), step: 1 });
        let source = Source { job: "j".into(), host: host.into(), process: None };
        Arc::new(Batch { source, collected_at: HostTime(1), records: vec![mark; records] })
    }

    fn push(inbox: &Inbox, batch: Arc<Batch>, wait: Duration) -> bool {
        inbox.push_all(HostTime(1), [batch], wait) == 0
    }

    fn clock() -> Clock {
        Arc::new(|| HostTime(7_999))
    }

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    #[test]
    fn what_does_not_fit_is_dropped_counted_and_told_of_its_source() {
        let inbox = Inbox::new(10);
        assert!(push(&inbox, batch("a", 8), Duration::ZERO));
        assert!(!push(&inbox, batch("b", 3), Duration::ZERO));
        assert!(!push(&inbox, batch("b", 4), Duration::ZERO));
        assert!(push(&inbox, batch("c", 2), Duration::ZERO));
        assert_eq!(inbox.fill(), Fill { batches: 2, records: 10, dropped: 7 });
        assert!(matches!(inbox.next(far(), &clock()), Event::Lost(s, 7) if &*s.host == "b"));
        assert!(matches!(inbox.next(far(), &clock()), Event::Batch(_, b) if &*b.source.host == "a"));
        assert!(matches!(inbox.next(far(), &clock()), Event::Batch(_, b) if &*b.source.host == "c"));
        assert_eq!(inbox.fill(), Fill { batches: 0, records: 0, dropped: 7 });
    }

    #[test]
    fn a_batch_larger_than_the_queue_passes_when_it_is_alone() {
        let inbox = Inbox::new(10);
        assert!(push(&inbox, batch("a", 50), Duration::ZERO), "else it could never pass");
        assert!(!push(&inbox, batch("b", 1), Duration::ZERO));
    }

    #[test]
    fn empty_batches_take_room_too() {
        let inbox = Inbox::new(3);
        assert_eq!((0..5).filter(|_| push(&inbox, batch("a", 0), Duration::ZERO)).count(), 3);
    }

    #[test]
    fn of_a_frame_what_fits_is_queued_in_order_and_the_rest_counted() {
        let inbox = Inbox::new(10);
        let frame = [batch("a", 4), batch("b", 4), batch("c", 4), batch("d", 2), batch("e", 0)];
        assert_eq!(inbox.push_all(HostTime(1), frame, Duration::ZERO), 5, "four records, and an empty batch");
        assert_eq!(inbox.fill(), Fill { batches: 3, records: 10, dropped: 4 });
        assert!(matches!(inbox.next(far(), &clock()), Event::Lost(s, 4) if &*s.host == "c"));
        assert!(matches!(inbox.next(far(), &clock()), Event::Lost(s, 0) if &*s.host == "e"));
        for host in ["a", "b", "d"] {
            assert!(matches!(inbox.next(far(), &clock()), Event::Batch(_, b) if &*b.source.host == host));
        }
    }

    #[test]
    fn many_producers_get_through_a_small_queue_and_nothing_is_lost() {
        let inbox = Arc::new(Inbox::new(8));
        let produce = |host: &'static str| {
            let inbox = Arc::clone(&inbox);
            let frame = move |n: usize| (0..5).map(move |at| batch(host, 1 + (n + at) % 7));
            std::thread::spawn(move || {
                (0..200).map(|n| inbox.push_all(HostTime(1), frame(n), Duration::from_secs(60))).sum::<usize>()
            })
        };
        let producers: Vec<_> = ["a", "b", "c"].into_iter().map(produce).collect();
        let taken = (0..3 * 200 * 5).map(|_| match inbox.next(far(), &clock()) {
            Event::Batch(_, batch) => batch.records.len(),
            other => panic!("{other:?}"),
        });
        let wanted: usize = (0..200).flat_map(|n| (0..5).map(move |at| 1 + (n + at) % 7)).sum();
        assert_eq!(taken.sum::<usize>(), 3 * wanted);
        producers.into_iter().for_each(|producer| assert_eq!(producer.join().expect("it does not panic"), 0));
    }

    #[test]
    fn a_waiting_producer_goes_on_when_room_appears() {
        let inbox = Arc::new(Inbox::new(4));
        assert!(push(&inbox, batch("a", 4), Duration::ZERO));
        let other = Arc::clone(&inbox);
        let producer = std::thread::spawn(move || push(&other, batch("b", 4), Duration::from_secs(60)));
        assert!(matches!(inbox.next(far(), &clock()), Event::Batch(..)));
        assert!(producer.join().expect("the producer does not panic"));
        assert!(matches!(inbox.next(far(), &clock()), Event::Batch(_, b) if &*b.source.host == "b"));
    }

    #[test]
    fn what_has_arrived_is_handed_out_before_a_passed_deadline_is_told() {
        let inbox = Inbox::new(10);
        push(&inbox, batch("a", 1), Duration::ZERO);
        assert_eq!(inbox.enter(&clock()), HostTime(7_000));
        assert!(matches!(inbox.next(Instant::now(), &clock()), Event::Batch(..)));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| inbox.next(Instant::now(), &clock()));
            push(&inbox, batch("b", 1), Duration::ZERO);
            let next = next.join().expect("no panic");
            assert!(matches!(next, Event::Batch(_, b) if &*b.source.host == "b"), "it is on its way");
        });
        assert!(matches!(inbox.next(Instant::now(), &clock()), Event::Due(HostTime(7_000))));
    }

    #[test]
    fn what_waits_is_handed_out_together_within_a_limit() {
        let inbox = Inbox::new(100);
        ["a", "b", "c", "d", "e"].into_iter().for_each(|host| assert!(push(&inbox, batch(host, 3), Duration::ZERO)));
        let hosts = |batches: Vec<(HostTime, Arc<Batch>)>| {
            batches.iter().map(|(_, b)| b.source.host.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(hosts(inbox.more(2, 100)), ["a", "b"]);
        assert_eq!(hosts(inbox.more(10, 7)), ["c", "d"], "a third does not fit");
        assert_eq!(inbox.fill(), Fill { batches: 1, records: 3, dropped: 0 });
        assert_eq!(hosts(inbox.more(10, 7)), ["e"]);
        assert!(inbox.more(10, 7).is_empty());
    }

    #[test]
    fn a_closed_queue_drains_and_then_says_so() {
        let inbox = Inbox::new(10);
        push(&inbox, batch("a", 1), Duration::ZERO);
        inbox.close();
        assert!(!push(&inbox, batch("b", 1), Duration::from_secs(60)), "closed: no wait, no room");
        let events: Vec<Event> = (0..3).map(|_| inbox.next(Instant::now(), &clock())).collect();
        assert!(matches!(&events[..], [Event::Lost(_, 1), Event::Batch(..), Event::Closed]));
    }
}
