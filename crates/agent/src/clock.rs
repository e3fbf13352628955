//! Ticks to host time, by one scale for all segments of a host.
//!
//! A tick maps to the same host time however often it is asked for and whenever the scale was measured anew: an
//! operation's start must not move from sample to sample. So the scale is a chain of straight pieces. A new measurement
//! changes the future only: its piece begins where the present one is now and leans towards the agent's clock.
//!
//! The agent's clock is the host's as it was when the agent started, and goes on with CLOCK_MONOTONIC: the kernel slews
//! both alike, and a step of the host's clock moves no time of a record. That it is off then the server measures, and
//! corrects what it compares.
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_ring::clock::{Calibration, ClockKind, monotonic_ns, realtime_ns};
use mycroft_wire::WireClock;
use std::collections::VecDeque;

/// Pieces remembered: at one in 30 s they reach an hour back, longer than any operation is in flight. Older ticks are
/// mapped by the oldest piece.
const PIECES_MAX: usize = 120;
/// A billion, to count a slew in parts of.
const BILLION: i128 = 1_000_000_000;
/// How much faster or slower than the agent's clock a piece may run while it catches up: 400 ppm, in parts per billion, which
/// is less than the kernel slews its clock by. What is to be made good is the error of a counter's first rate, 20 ppm of a
/// fraction of a second.
const SLEW_PPB_MAX: i128 = 400_000;
/// Time over which a difference is made good.
const CATCH_UP_NS: i128 = 30 * NANOS_PER_SEC as i128;
/// A time further ahead than this is not from this host's clock (a hostile segment) and is cut.
const AHEAD_NS_MAX: u64 = NANOS_PER_SEC;

/// The clock of all times that one agent tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AgentClock {
    /// By how much it is ahead of CLOCK_MONOTONIC.
    ahead_ns: u64,
}

impl AgentClock {
    /// The host's clock as it is now, ahead by `shift_ns`, which is 0 outside tests.
    pub(crate) fn start(shift_ns: i64) -> AgentClock {
        AgentClock { ahead_ns: realtime_ns().saturating_add_signed(shift_ns).saturating_sub(monotonic_ns()) }
    }

    /// Now.
    pub(crate) fn now(self) -> HostTime {
        self.at(monotonic_ns())
    }

    /// When CLOCK_MONOTONIC showed so much.
    fn at(self, monotonic_ns: u64) -> HostTime {
        HostTime(self.ahead_ns.saturating_add(monotonic_ns).max(1))
    }

    /// The same for the wire, which exchanges it with the server's.
    pub(crate) fn for_wire(self) -> WireClock {
        WireClock::new(move || self.now())
    }

    /// A measurement of a counter against the host's clock, as one against this clock.
    fn on(self, measured: Calibration) -> Calibration {
        let Calibration { kind, tick0, monotonic0_ns, ticks_per_sec, .. } = measured;
        let real = self.at(monotonic0_ns).0;
        Calibration::from_parts(kind, tick0, monotonic0_ns, real, ticks_per_sec).unwrap_or(measured)
    }
}

/// Host time now by the system's clock, for what is compared with nothing of another host.
pub(crate) fn wall_now() -> HostTime {
    HostTime(realtime_ns().max(1))
}

/// The scale of one kind of counter.
#[derive(Debug)]
pub(crate) struct HostClock {
    clock: AgentClock,
    /// Against the host's clock, with the rate of its whole past.
    measured: Calibration,
    /// Oldest first, never empty.
    pieces: VecDeque<Calibration>,
    latest: Calibration,
}

impl HostClock {
    /// Measures the counter: some milliseconds for a TSC.
    pub(crate) fn measure(kind: ClockKind, clock: AgentClock) -> HostClock {
        HostClock::from(Calibration::measure_kind(kind), clock)
    }

    fn from(measured: Calibration, clock: AgentClock) -> HostClock {
        let first = clock.on(measured);
        HostClock { clock, measured, pieces: VecDeque::from([first]), latest: first }
    }

    /// Measures again; see the top of this file. Costs about a microsecond.
    pub(crate) fn refresh(&mut self) {
        self.measured = self.measured.refresh();
        self.follow(self.clock.on(self.measured));
    }

    fn follow(&mut self, measured: Calibration) {
        let here = self.latest.host_time(measured.tick0).0;
        let ahead_ns = i128::from(measured.realtime0_ns) - i128::from(here);
        let slew_ppb = (ahead_ns * BILLION / CATCH_UP_NS).clamp(-SLEW_PPB_MAX, SLEW_PPB_MAX);
        // Fewer ticks in a second make the host time run faster.
        let rate = i128::from(measured.ticks_per_sec) * BILLION / (BILLION + slew_ppb);
        let rate = u64::try_from(rate).unwrap_or(measured.ticks_per_sec);
        let piece = Calibration::from_parts(measured.kind, measured.tick0, measured.monotonic0_ns, here, rate);
        if let Some(piece) = piece {
            self.pieces.push_back(piece);
            self.latest = piece;
        }
        if self.pieces.len() > PIECES_MAX {
            self.pieces.pop_front();
        }
    }

    /// Host time of a tick; `NONE` for 0 ("not yet"). `now` bounds what a hostile segment can claim.
    pub(crate) fn host_time(&self, ticks: u64, now: HostTime) -> HostTime {
        if ticks == 0 {
            return HostTime::NONE;
        }
        self.piece(ticks).host_time(ticks).min(now + AHEAD_NS_MAX)
    }

    /// The piece of now, for lengths of time.
    pub(crate) fn latest(&self) -> &Calibration {
        &self.latest
    }

    /// Now, by the same scale.
    pub(crate) fn now(&self) -> HostTime {
        self.latest.now()
    }

    /// The piece a tick lies on, most often the latest.
    fn piece(&self, ticks: u64) -> &Calibration {
        if ticks >= self.latest.tick0 {
            return &self.latest;
        }
        let after = self.pieces.partition_point(|piece| piece.tick0 <= ticks);
        self.pieces.get(after.saturating_sub(1)).unwrap_or(&self.latest)
    }
}

/// The scales of all kinds of counters that segments use.
#[derive(Debug)]
pub(crate) struct Clocks {
    clock: AgentClock,
    tsc: Option<HostClock>,
    monotonic: Option<HostClock>,
}

impl Clocks {
    /// Scales that follow the agent's clock.
    pub(crate) fn new(clock: AgentClock) -> Clocks {
        Clocks { clock, tsc: None, monotonic: None }
    }

    /// The scale of a kind, measured at its first use.
    pub(crate) fn of(&mut self, kind: ClockKind) -> &HostClock {
        let clock = match kind {
            ClockKind::Tsc => &mut self.tsc,
            ClockKind::Monotonic => &mut self.monotonic,
        };
        clock.get_or_insert_with(|| HostClock::measure(kind, self.clock))
    }

    /// Measures all again.
    pub(crate) fn refresh(&mut self) {
        for clock in [&mut self.tsc, &mut self.monotonic].into_iter().flatten() {
            clock.refresh();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RATE: u64 = 2_500_000_000;
    const FAR: HostTime = HostTime(u64::MAX);

    fn at(ticks: u64, realtime_ns: u64, rate: u64) -> Calibration {
        Calibration::from_parts(ClockKind::Tsc, ticks, 0, realtime_ns, rate).expect("a clock")
    }

    fn clock() -> HostClock {
        // `on` puts the measurement on the agent's clock: here both are the made-up one's.
        HostClock::from(at(RATE, 0, RATE), AgentClock { ahead_ns: 1000 * NANOS_PER_SEC })
    }

    #[test]
    fn zero_is_not_yet_and_the_future_is_cut() {
        let clock = clock();
        assert_eq!(clock.host_time(0, FAR), HostTime::NONE);
        let now = HostTime(1000 * NANOS_PER_SEC);
        assert_eq!(clock.host_time(u64::MAX, now), now + AHEAD_NS_MAX);
        assert!(clock.host_time(1, now).is_some(), "a tick long ago is still a time");
    }

    #[test]
    fn a_small_error_is_made_good_without_a_step() {
        let mut clock = clock();
        let tick = 31 * RATE;
        let before = clock.host_time(tick, FAR);
        clock.follow(at(tick, 1030 * NANOS_PER_SEC + 3_000_000, RATE));
        assert_eq!(clock.host_time(tick, FAR), before, "no step");
        let later = clock.host_time(tick + 30 * RATE, FAR);
        let truth = 1060 * NANOS_PER_SEC + 3_000_000;
        assert!(later.0.abs_diff(truth) < 10_000, "made good in 30 s: {later} is not {truth}");
    }

    #[test]
    fn a_clock_that_is_set_moves_no_time() {
        for set_to in [10, 990, 1010, 5000] {
            let mut clock = clock();
            let before = clock.host_time(31 * RATE, FAR);
            // What `refresh` measures once the host's clock was set.
            clock.measured =
                Calibration::from_parts(ClockKind::Tsc, 31 * RATE, 30_000_000_000, set_to * NANOS_PER_SEC, RATE)
                    .expect("a clock");
            clock.follow(clock.clock.on(clock.measured));
            assert_eq!(clock.host_time(31 * RATE, FAR), before);
            let later = clock.host_time(61 * RATE, FAR).since_ns(before);
            assert!(later.abs_diff(30 * NANOS_PER_SEC) < 1_000, "{later} ns in 30 s");
        }
    }

    proptest! {
        #[test]
        fn past_ticks_stay_where_they_are_and_time_never_runs_backwards(
            steps in prop::collection::vec((1u64..100, -5_000_000_000i64..5_000_000_000, 0u64..1000), 1..300)
        ) {
            let mut clock = clock();
            let (mut tick, mut real) = (RATE, 1000 * NANOS_PER_SEC);
            let mut asked = vec![(tick, clock.host_time(tick, FAR))];
            for (i, (seconds, error_ns, rate)) in steps.into_iter().enumerate() {
                tick += seconds * RATE;
                real += seconds * NANOS_PER_SEC;
                let seen = clock.host_time(tick, FAR);
                prop_assert!(seen >= asked[asked.len() - 1].1);
                asked.push((tick, seen));
                clock.follow(at(tick, real.saturating_add_signed(error_ns), RATE + rate));
                let reach = asked.len().saturating_sub(PIECES_MAX - 2);
                for &(t, time) in &asked[reach..] {
                    prop_assert_eq!(clock.host_time(t, FAR), time, "tick {} after {} refreshes", t, i);
                }
                asked.push((tick, clock.host_time(tick, FAR)));
            }
        }
    }

    #[test]
    fn the_real_clock_is_followed() {
        for shift_ns in [0, -3_600_000_000_000, 5_000_000_000] {
            let agent = AgentClock::start(shift_ns);
            let mut clock = HostClock::measure(mycroft_ring::clock::kind(), agent);
            clock.refresh();
            let off = clock.now().0.abs_diff(realtime_ns().saturating_add_signed(shift_ns));
            assert!(off < NANOS_PER_SEC / 2, "{off} ns off");
            let apart = clock.now().0.abs_diff(agent.now().0);
            assert!(apart < NANOS_PER_SEC / 2, "{apart} ns between the scale and the clock");
        }
    }
}
