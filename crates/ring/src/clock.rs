//! Ticks: a counter that costs no system call, and what turns it into host time.
use mycroft_record::{HostTime, NANOS_PER_SEC};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// What a tick is. The number is kept in the segment header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ClockKind {
    /// The x86 time stamp counter, where it is invariant and the kernel itself keeps time by it.
    Tsc = 1,
    /// CLOCK_MONOTONIC nanoseconds, read in the vDSO.
    Monotonic = 2,
}

impl ClockKind {
    /// The kind with this number.
    pub fn from_code(code: u64) -> Option<ClockKind> {
        match code {
            1 => Some(ClockKind::Tsc),
            2 => Some(ClockKind::Monotonic),
            _ => None,
        }
    }
}

const KIND_UNKNOWN: u8 = 0;
static KIND: AtomicU8 = AtomicU8::new(KIND_UNKNOWN);

/// The kind of clock this process writes.
#[inline]
pub fn kind() -> ClockKind {
    match KIND.load(Ordering::Relaxed) {
        1 => ClockKind::Tsc,
        2 => ClockKind::Monotonic,
        _ => detect(),
    }
}

/// Where the kernel says what it keeps time by; it drops the TSC when cores disagree.
const CLOCK_SOURCE: &std::ffi::CStr = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";

#[cold]
fn detect() -> ClockKind {
    let mut buffer = [0; 64];
    let mut trusted = || crate::sys::read_text(CLOCK_SOURCE, &mut buffer).is_ok_and(|s| s.trim() == "tsc");
    let kind = if tsc_is_invariant() && trusted() { ClockKind::Tsc } else { ClockKind::Monotonic };
    KIND.store(kind as u8, Ordering::Relaxed);
    kind
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn tsc_is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    const EXTENDED_MAX: u32 = 0x8000_0000;
    const POWER_MANAGEMENT: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    __cpuid(EXTENDED_MAX).eax >= POWER_MANAGEMENT && __cpuid(POWER_MANAGEMENT).edx & INVARIANT_TSC != 0
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn tsc_is_invariant() -> bool {
    false
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC; it reads a counter and has no other effect. Where the operating system
    // forbids it to programs (prctl PR_SET_TSC) the kernel would not offer "tsc" through the vDSO either.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn tsc() -> u64 {
    monotonic_ns()
}

/// The tick counter of this process's clock. Never 0, so that 0 can mean "not yet".
#[inline]
pub fn now_ticks() -> u64 {
    ticks_of(kind())
}

#[inline]
fn ticks_of(kind: ClockKind) -> u64 {
    match kind {
        ClockKind::Tsc => tsc() | 1,
        ClockKind::Monotonic => monotonic_ns() | 1,
    }
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `t` is a valid timespec to write to; CLOCK_MONOTONIC and CLOCK_REALTIME exist on every Linux, so the call
    // cannot fail.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    t.tv_sec.cast_unsigned().wrapping_mul(NANOS_PER_SEC).wrapping_add(t.tv_nsec.cast_unsigned())
}

/// CLOCK_MONOTONIC, nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME, nanoseconds since the epoch.
pub fn realtime_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

/// A point where ticks, monotonic and real time were read together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Point {
    ticks: u64,
    monotonic_ns: u64,
    realtime_ns: u64,
}

/// Attempts at a point; the tightest is kept, so that one preemption does not spoil it.
const POINT_TRIES: u32 = 8;

impl Point {
    fn take(kind: ClockKind) -> Point {
        let mut best: Option<(u64, Point)> = None;
        for _ in 0..POINT_TRIES {
            let before = ticks_of(kind);
            let (monotonic_ns, realtime_ns) = (monotonic_ns(), realtime_ns());
            let width = ticks_of(kind).wrapping_sub(before);
            let point = Point { ticks: before.wrapping_add(width / 2), monotonic_ns, realtime_ns };
            if best.is_none_or(|(narrowest, _)| width < narrowest) {
                best = Some((width, point));
            }
        }
        best.map_or(Point { ticks: ticks_of(kind), monotonic_ns: monotonic_ns(), realtime_ns: realtime_ns() }, |b| b.1)
    }
}

/// How ticks become host time: a point and a rate.
///
/// A writer measures one at attach and leaves it in the header. A reader on the same host measures its own for the
/// header's clock kind, refreshes it from time to time (real time is slewed, and a longer baseline makes the rate
/// better), and never needs to believe the header's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Calibration {
    /// What a tick is.
    pub kind: ClockKind,
    /// Ticks at the calibration point.
    pub tick0: u64,
    /// CLOCK_MONOTONIC nanoseconds at the point.
    pub monotonic0_ns: u64,
    /// CLOCK_REALTIME nanoseconds at the point.
    pub realtime0_ns: u64,
    /// Ticks in a second.
    pub ticks_per_sec: u64,
    base: Point,
    ns_mult: u64,
}

/// Fixed-point bits of the tick-to-nanosecond factor: 2.5 GHz gives 0.4 x 2^40, precise to 3e-12, that is 10 us a month.
const NS_SHIFT: u32 = 40;
/// How long the first measurement looks: two points good to about 50 ns over 5 ms give the rate to 20 ppm at once.
const FIRST_LOOK: Duration = Duration::from_millis(5);
/// Baseline from which a refresh takes the rate anew: 50 ns over 100 ms is 1 ppm.
const REFRESH_BASELINE_NS: u64 = 100_000_000;
/// Rates outside are no clock: 1 MHz to 1 THz.
const RATE_RANGE: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000;

impl Calibration {
    /// Calibrates this process's clock. Looks at it for 5 ms.
    pub fn measure() -> Calibration {
        Calibration::measure_kind(kind())
    }

    /// Calibrates a clock of the kind a segment header names; the segment must be of this host.
    pub fn measure_kind(kind: ClockKind) -> Calibration {
        let base = Point::take(kind);
        if kind == ClockKind::Monotonic {
            return Calibration::new(kind, base, base, NANOS_PER_SEC);
        }
        let begin = Instant::now();
        while begin.elapsed() < FIRST_LOOK {
            std::hint::spin_loop();
        }
        let point = Point::take(kind);
        Calibration::new(kind, base, point, rate(&base, &point).unwrap_or(NANOS_PER_SEC))
    }

    /// As kept in a header; `None` if the numbers are no clock.
    pub fn from_parts(
        kind: ClockKind,
        tick0: u64,
        monotonic0_ns: u64,
        realtime0_ns: u64,
        ticks_per_sec: u64,
    ) -> Option<Calibration> {
        let point = Point { ticks: tick0, monotonic_ns: monotonic0_ns, realtime_ns: realtime0_ns };
        RATE_RANGE.contains(&ticks_per_sec).then(|| Calibration::new(kind, point, point, ticks_per_sec))
    }

    fn new(kind: ClockKind, base: Point, point: Point, ticks_per_sec: u64) -> Calibration {
        let mult = (u128::from(NANOS_PER_SEC) << NS_SHIFT) / u128::from(ticks_per_sec.max(1));
        Calibration {
            kind,
            tick0: point.ticks,
            monotonic0_ns: point.monotonic_ns,
            realtime0_ns: point.realtime_ns,
            ticks_per_sec,
            base,
            ns_mult: u64::try_from(mult).unwrap_or(u64::MAX),
        }
    }

    /// A new calibration with the present point, and a better rate once the baseline is 100 ms long. Costs about a
    /// microsecond; once a second is plenty.
    #[must_use]
    pub fn refresh(&self) -> Calibration {
        let point = Point::take(self.kind);
        let long_enough = point.monotonic_ns.saturating_sub(self.base.monotonic_ns) >= REFRESH_BASELINE_NS;
        let ticks_per_sec = match self.kind {
            ClockKind::Tsc if long_enough => rate(&self.base, &point).unwrap_or(self.ticks_per_sec),
            _ => self.ticks_per_sec,
        };
        Calibration::new(self.kind, self.base, point, ticks_per_sec)
    }

    /// Nanoseconds of a number of ticks.
    #[inline]
    pub fn ticks_to_ns(&self, ticks: u64) -> u64 {
        u64::try_from((u128::from(ticks) * u128::from(self.ns_mult)) >> NS_SHIFT).unwrap_or(u64::MAX)
    }

    /// Microseconds of a number of ticks, saturating at `u32::MAX` (71 minutes).
    #[inline]
    pub fn ticks_to_us(&self, ticks: u64) -> u32 {
        u32::try_from(self.ticks_to_ns(ticks) / 1000).unwrap_or(u32::MAX)
    }

    /// Host time of a tick count; 0 ticks ("not yet") is `HostTime::NONE`. Saturates on nonsense.
    pub fn host_time(&self, ticks: u64) -> HostTime {
        if ticks == 0 {
            return HostTime::NONE;
        }
        let at = if ticks >= self.tick0 {
            self.realtime0_ns.saturating_add(self.ticks_to_ns(ticks - self.tick0))
        } else {
            self.realtime0_ns.saturating_sub(self.ticks_to_ns(self.tick0 - ticks))
        };
        HostTime(at.max(1))
    }

    /// Host time now, by the same scale as `host_time`.
    pub fn now(&self) -> HostTime {
        self.host_time(ticks_of(self.kind))
    }
}

fn rate(from: &Point, to: &Point) -> Option<u64> {
    let ns = to.monotonic_ns.checked_sub(from.monotonic_ns).filter(|&ns| ns > 0)?;
    let ticks = to.ticks.checked_sub(from.ticks)?;
    let rate = u64::try_from(u128::from(ticks) * u128::from(NANOS_PER_SEC) / u128::from(ns)).ok()?;
    RATE_RANGE.contains(&rate).then_some(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_follow_the_host_clock() {
        let calibration = Calibration::measure();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(120) {
            std::hint::spin_loop();
        }
        let refreshed = calibration.refresh();
        let error = refreshed.now().0.abs_diff(realtime_ns());
        assert!(error < 10_000_000, "ticks are {error} ns off the host clock");
        let drift = refreshed.ticks_per_sec.abs_diff(calibration.ticks_per_sec);
        assert!(drift < calibration.ticks_per_sec / 100, "the rate moved by {drift} of {}", calibration.ticks_per_sec);
    }

    #[test]
    fn nonsense_saturates() {
        let c = Calibration::from_parts(ClockKind::Tsc, 1 << 40, 0, 5, 2_500_000_000).expect("a clock");
        assert_eq!(c.host_time(0), HostTime::NONE);
        assert_eq!(c.host_time(1), HostTime(1));
        assert_eq!(c.host_time((1 << 40) + 2_500_000_000).0, 5 + NANOS_PER_SEC - 1);
        c.host_time(u64::MAX);
        assert_eq!(c.ticks_to_us(u64::MAX), u32::MAX);
        assert!(Calibration::from_parts(ClockKind::Tsc, 0, 0, 0, 0).is_none());
    }
}
