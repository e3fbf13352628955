//! The clocks of agents: what exchanged times tell of them, and what a server writes into the stream about it.
mod common;

use common::step_batch;
use mycroft_record::{Batch, ClockOffset, HostTime, NANOS_PER_MS, NANOS_PER_SEC, Record};
use mycroft_wire::clock::{PeerClock, Stamps, Times};
use mycroft_wire::offset::OffsetEstimator;
use mycroft_wire::{Client, ClientConfig, Endpoint, Listener, ServerConfig, WireClock};
use proptest::prelude::*;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MS: u64 = NANOS_PER_MS;
const S: u64 = NANOS_PER_SEC;
const BEGIN: u64 = 1_700_000_000 * S;

/// A host's clock: ahead by so much at the beginning, drifting by so many billionths, set by so much at some time.
#[derive(Clone, Copy)]
struct HostClock {
    offset_ns: i64,
    drift_ppb: i64,
    step: Option<(u64, i64)>,
}

impl HostClock {
    fn ahead(&self, at: u64) -> i64 {
        let drifted = (i128::from(at - BEGIN) * i128::from(self.drift_ppb) / i128::from(S)) as i64;
        let step = self.step.filter(|(when, _)| at >= *when).map_or(0, |(_, ns)| ns);
        self.offset_ns + drifted + step
    }

    fn read(&self, at: u64) -> HostTime {
        HostTime(at.saturating_add_signed(self.ahead(at)))
    }
}

/// An agent and its server that exchange times in this order; each delay is of one way.
struct Line {
    clock: HostClock,
    stamps: Stamps,
    peer: PeerClock,
    now: u64,
}

impl Line {
    fn new(clock: HostClock) -> Line {
        Line { clock, stamps: Stamps::default(), peer: PeerClock::default(), now: BEGIN }
    }

    /// The agent sends times, with batches if there are any, and reads the answer some time after it has come.
    fn exchange(&mut self, there: u64, back: u64, frame: bool) -> Vec<ClockOffset> {
        let times = self.stamps.stamp(self.clock.read(self.now));
        let collected_at = self.clock.read(self.now);
        self.now += there;
        self.peer.take(times, HostTime(self.now));
        let batch = Batch { collected_at, ..step_batch("job", 0, 1) };
        let told = if frame { self.peer.tell(&[batch], HostTime(self.now)) } else { Vec::new() };
        let answer = self.peer.stamp(HostTime(self.now));
        self.now += back;
        self.stamps.take(answer, self.clock.read(self.now));
        told.iter().flat_map(|batch| &batch.records).map(offset_of).collect()
    }
}

fn offset_of(record: &Record) -> ClockOffset {
    let Record::ClockOffset(offset) = record else { panic!("{record:?}") };
    *offset
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn the_true_offset_lies_within_the_bound(
        offset_ns in -3_600_000_000_000i64..3_600_000_000_000,
        drift_ppb in -500_000i64..500_000,
        ways in prop::collection::vec((0u64..300_000_000, 0u64..300_000_000, 0u64..2_000_000_000), 2..80),
    ) {
        let clock = HostClock { offset_ns, drift_ppb, step: None };
        let (mut estimator, mut now) = (OffsetEstimator::default(), BEGIN);
        for (there, back, pause) in ways {
            let sent = clock.read(now);
            now += there;
            estimator.came(sent, HostTime(now));
            let answered = now;
            now += back;
            estimator.went(HostTime(answered), clock.read(now));
            now += pause;
            let estimate = estimator.estimate(HostTime(now)).expect("both directions were read");
            let bound = estimate.bound_ns.expect("the clock was never set");
            let off = estimate.offset_ns.abs_diff(clock.ahead(now));
            prop_assert!(off <= bound, "{estimate:?} is {off} ns off");
            prop_assert_eq!(estimate.since, HostTime::NONE);
        }
    }

    #[test]
    fn what_is_told_stays_true_until_it_is_told_again(
        offset_ns in -3_600_000_000_000i64..3_600_000_000_000,
        drift_ppb in -200_000i64..200_000,
        ways in prop::collection::vec((100_000u64..5_000_000, 100_000u64..5_000_000), 150..160),
    ) {
        let clock = HostClock { offset_ns, drift_ppb, step: None };
        let mut line = Line::new(clock);
        let mut last: Option<ClockOffset> = None;
        line.exchange(MS, MS, false);
        for (there, back) in ways {
            last = line.exchange(there, back, true).pop().or(last);
            let told = last.expect("told with the first frame");
            prop_assert!(told.is_known());
            let off = told.offset_at(HostTime(line.now)).abs_diff(clock.ahead(line.now));
            prop_assert!(off <= 20 * MS, "{told:?} is {off} ns off");
            line.now += 500 * MS;
        }
        let told = last.expect("told");
        let drift_off = (i64::from(told.drift_ppb) - drift_ppb).abs();
        prop_assert!(told.drift_ppb == 0 || drift_off < 150_000, "{told:?}");
    }
}

#[test]
fn a_clock_that_is_set_is_seen_with_the_first_frame_after_it() {
    for step_ns in [10 * S as i64, -10 * S as i64, 2 * S as i64, -(S as i64) / 2] {
        let when = BEGIN + 5 * S + 30 * MS;
        let mut line = Line::new(HostClock { offset_ns: 0, drift_ppb: 0, step: Some((when, step_ns)) });
        line.exchange(MS, MS, false);
        let mut all = Vec::new();
        while line.now < when {
            all.extend(line.exchange(MS, 100 * MS, true));
        }
        assert!(all.iter().all(|told| told.is_known() && told.since == HostTime::NONE), "{all:?}");
        let first = line.exchange(MS, 10 * MS, true).pop().expect("told with the first frame");
        assert!(!first.is_known() && first.since.is_some(), "{first:?}");
        assert!(first.since.0 <= when && when - first.since.0 <= 200 * MS, "{first:?}");
        assert!(first.offset_ns.abs_diff(step_ns) < 20 * MS, "{first:?}");
        let known = line.exchange(MS, 10 * MS, true).pop().expect("told when it is known again");
        assert!(known.is_known() && known.offset_ns.abs_diff(step_ns) <= known.bound_ns, "{known:?}");
        assert_eq!(known.since, first.since, "the same step");
    }
}

#[test]
fn a_clock_that_is_set_again_and_again_is_not_known() {
    let mut line = Line::new(HostClock { offset_ns: 0, drift_ppb: 0, step: None });
    line.exchange(MS, MS, true);
    for n in 1..10 {
        line.clock.offset_ns = n * 3 * S as i64;
        let told: Vec<ClockOffset> = (0..4).flat_map(|_| line.exchange(MS, MS, true)).collect();
        assert!(n < 2 || told.iter().all(|told| !told.is_known()), "{n}: {told:?}");
    }
    line.now += 61 * S;
    let told: Vec<ClockOffset> = (0..4).flat_map(|_| line.exchange(MS, MS, true)).collect();
    assert!(told.last().is_some_and(ClockOffset::is_known), "it has been quiet since: {told:?}");
}

#[test]
fn times_that_nobody_sent_say_nothing() {
    let mut peer = PeerClock::default();
    let at = HostTime(BEGIN);
    peer.take(Times { sent: at, echo: at, received: HostTime(BEGIN - 1) }, at);
    let told = peer.tell(&[step_batch("job", 0, 1)], at);
    assert!(!offset_of(&told[0].records[0]).is_known(), "one direction only: {told:?}");
    for (sent, received) in [(0, 0), (u64::MAX, 0), (0, u64::MAX), (u64::MAX, u64::MAX), (1, u64::MAX)] {
        peer.take(Times { sent: HostTime(sent), echo: HostTime(u64::MAX), received: HostTime(received) }, at);
        peer.tell(&[step_batch("job", 0, 1)], HostTime(u64::MAX));
    }
}

#[test]
fn a_peer_without_times_is_only_known_to_be_ahead() {
    let (mut ahead, mut behind) = (PeerClock::default(), PeerClock::default());
    let at = |seconds: u64| HostTime(BEGIN + seconds * S);
    let batch = |collected_at| [Batch { collected_at, ..step_batch("job", 0, 1) }];
    assert!(behind.tell(&batch(at(0)), at(10)).is_empty(), "it may have been on its way");
    let told = ahead.tell(&batch(at(10)), at(8));
    let told = offset_of(&told[0].records[0]);
    assert!(!told.is_known() && told.offset_ns == 2 * S as i64, "{told:?}");
    assert!(ahead.tell(&batch(at(11)), at(9)).is_empty(), "told already");
}

fn listen(clock: WireClock) -> (mycroft_wire::ListenerHandle, std::sync::mpsc::Receiver<Vec<Batch>>) {
    let (to, from) = channel();
    let to = Mutex::new(to);
    let listener = Listener::bind(&Endpoint::Tcp("127.0.0.1:0".to_owned()), ServerConfig::default()).unwrap();
    let handle = listener.with_clock(clock).serve(Arc::new(move |batches| {
        to.lock().unwrap().send(batches).unwrap();
    }));
    (handle, from)
}

fn system_ahead_by(ahead: Arc<AtomicI64>) -> WireClock {
    WireClock::new(move || HostTime(WireClock::default().now().0.saturating_add_signed(ahead.load(Ordering::Relaxed))))
}

#[test]
fn an_agent_whose_clock_is_an_hour_off_is_told_with_its_first_frame_and_again_when_it_is_set() {
    let ahead = Arc::new(AtomicI64::new(3600 * S as i64));
    let (server, frames) = listen(WireClock::default());
    let config = ClientConfig { clock: system_ahead_by(Arc::clone(&ahead)), ..ClientConfig::default() };
    let mut client = Client::connect(&server.local_endpoint(), &config).unwrap();
    let mut send = |step| {
        client.send(&step_batch("job", 0, step)).unwrap();
        client.flush(Duration::from_secs(60)).unwrap();
        frames.recv().unwrap()
    };
    // The answer to the first times may take longer than they are waited for on a busy machine: then the second frame.
    let told = (1..3).find_map(|step| match &send(step)[..] {
        [told, _] if offset_of(&told.records[0]).is_known() => Some(told.clone()),
        _ => None,
    });
    let told = told.expect("told");
    assert_eq!((told.source.process, &*told.source.job, &*told.source.host), (None, "job", "host0"));
    let offset = offset_of(&told.records[0]);
    assert!(offset.offset_ns.abs_diff(3600 * S as i64) <= offset.bound_ns, "{offset:?}");
    // Once only: set twice within a minute a clock is jumping.
    let set_to = -5 * S as i64;
    ahead.store(set_to, Ordering::Relaxed);
    let told = (10..20).find_map(|step| {
        let batches = send(step);
        let offset = (batches.len() == 2).then(|| offset_of(&batches[0].records[0]))?;
        offset.is_known().then_some(offset)
    });
    let offset = told.expect("told again when the answer after the step came");
    assert!(offset.offset_ns.abs_diff(set_to) <= offset.bound_ns, "{offset:?}");
}

#[test]
fn what_an_agent_says_of_its_own_clock_is_left_out() {
    let (server, frames) = listen(WireClock::default());
    let mut client = Client::connect(&server.local_endpoint(), &ClientConfig::default()).unwrap();
    let at = HostTime(BEGIN);
    let lie = ClockOffset { at, offset_ns: 7, drift_ppb: 0, bound_ns: 0, since: at };
    let mut batch = step_batch("job", 0, 1);
    batch.records.push(Record::ClockOffset(lie));
    client.send(&batch).unwrap();
    let batches = frames.recv().unwrap();
    let said = batches.iter().flat_map(|batch| &batch.records).filter(|record| **record == Record::ClockOffset(lie));
    assert_eq!(said.count(), 0, "{batches:?}");
}
