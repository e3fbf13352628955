//! Kernel-channel events: when an operation really runs on the device.
use crate::comms::MAX_CHANNELS;
use crate::handle::{CHANNEL_BITS, DROP_HANDLE, Handle, HandleKind};
use crate::ops::Op;
use crate::runtime::Runtime;
use mycroft_record::NANOS_PER_SEC;
use mycroft_ring::{Calibration, clock, now_ticks};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU64, Ordering};

/// How far the GPU's timer may be from the host's clock to be seen to follow it: the profiler looks every few
/// microseconds, so most events are younger than 1 ms, and a timer that is off by more than that shows.
const NEAR_NS: u64 = 1_000_000;
/// How long such a sight counts: a timer that is off by 50 ppm runs away by 0.5 ms in 10 s.
const NEAR_FADES_NS: u64 = 10 * NANOS_PER_SEC;
/// How late an event may be heard of and still tell its own time, from a timer that follows the host's clock: a proxy
/// thread that is busy, asleep or starved looks late, and then its callback's own time would be wrong.
const LATE_NS: u64 = 5 * NANOS_PER_SEC;
/// How often the host's clock is looked at: once a second, so that 20 ppm of rate error make 20 us.
const LOOK_EVERY_NS: u64 = NANOS_PER_SEC;
/// How long a look may take: longer means that the thread was interrupted between the two clocks.
const LOOK_WIDTH_NS: u64 = 2_000;
/// Pause after a look that failed: 1 ms, so that a slow clock is not asked by every event.
const LOOK_AGAIN_NS: u64 = 1_000_000;
/// Tries of one look.
const LOOK_TRIES: u32 = 3;

/// Real time from ticks, re-anchored once a second.
pub(crate) struct WallClock {
    calibration: Calibration,
    /// Real time minus the nanoseconds of the tick count, at the last look.
    offset_ns: AtomicU64,
    next_look_ticks: AtomicU64,
    /// When the GPU's timer was last seen near the host's clock, in ticks; 0 never.
    near_ticks: AtomicU64,
}

impl WallClock {
    pub(crate) fn new(calibration: &Calibration) -> WallClock {
        WallClock {
            calibration: *calibration,
            offset_ns: AtomicU64::new(0),
            next_look_ticks: AtomicU64::new(0),
            near_ticks: AtomicU64::new(0),
        }
    }

    fn realtime_ns(&self, now: u64) -> u64 {
        if now >= self.next_look_ticks.load(Ordering::Acquire) {
            self.look(now);
        }
        self.calibration.ticks_to_ns(now).wrapping_add(self.offset_ns.load(Ordering::Relaxed))
    }

    /// Reads ticks and the host's clock together. Whoever looks at the same time finds the same offset. A look that was
    /// interrupted is not believed, and the next event looks again.
    #[cold]
    fn look(&self, now: u64) {
        for _ in 0..LOOK_TRIES {
            let before = now_ticks();
            let real = clock::realtime_ns();
            let width = now_ticks().saturating_sub(before);
            if self.calibration.ticks_to_ns(width) <= LOOK_WIDTH_NS {
                let middle = self.calibration.ticks_to_ns(before + width / 2);
                self.offset_ns.store(real.wrapping_sub(middle), Ordering::Relaxed);
                let every = self.calibration.ticks_per_sec / NANOS_PER_SEC.div_ceil(LOOK_EVERY_NS);
                self.next_look_ticks.store(now.wrapping_add(every), Ordering::Release);
                return;
            }
        }
        let later = self.calibration.ticks_per_sec / NANOS_PER_SEC.div_ceil(LOOK_AGAIN_NS);
        self.next_look_ticks.store(now.wrapping_add(later), Ordering::Release);
    }

    /// The tick of a GPU timer value: the callback's own unless the timer evidently follows the host's clock.
    pub(crate) fn ticks_of_timer(&self, now: u64, timer_ns: u64) -> u64 {
        if timer_ns == 0 {
            return now;
        }
        let real = self.realtime_ns(now);
        let Some(age) = real.checked_sub(timer_ns).filter(|age| *age < LATE_NS) else { return now };
        if age <= NEAR_NS {
            self.near_ticks.store(now, Ordering::Relaxed);
        } else if !self.follows_the_host(now) {
            return now;
        }
        now - (age * self.calibration.ticks_per_sec / NANOS_PER_SEC).min(now - 1)
    }

    fn follows_the_host(&self, now: u64) -> bool {
        let near = self.near_ticks.load(Ordering::Relaxed);
        near != 0 && self.calibration.ticks_to_ns(now.saturating_sub(near)) <= NEAR_FADES_NS
    }
}

/// The operation and channel of a kernel handle.
fn split(handle: Handle) -> (u64, u8) {
    let op = Handle { kind: HandleKind::Op, generation: handle.generation, slot: handle.slot >> CHANNEL_BITS };
    (op.encode(), handle.slot as u8)
}

impl Runtime {
    /// A channel of an operation's kernel started; may come on any thread, before or after the operation's stop.
    pub fn kernel_start(&self, parent: u64, channel: u8, timer_ns: u64) -> u64 {
        let Some(op) = self.ops.get(parent) else {
            // Of an operation that is over by all that had shown: nothing is lost but this channel's time.
            return if self.ops.ended(parent).is_some() { DROP_HANDLE } else { self.stale() };
        };
        if usize::from(channel) >= MAX_CHANNELS {
            return DROP_HANDLE;
        }
        let now = now_ticks();
        // Nothing starts before it was enqueued, whatever two clocks say.
        let at = self.clock.ticks_of_timer(now, timer_ns).max(op.begun());
        let Some(handle) = Handle::decode(parent) else { return DROP_HANDLE };
        let slot = handle.slot << CHANNEL_BITS | u32::from(channel);
        let kernel = Handle { kind: HandleKind::Kernel, slot, ..handle }.encode();
        self.mark_started(op, channel, at);
        if !self.kernel_seen.load(Relaxed) {
            self.kernel_seen.store(true, Relaxed);
        }
        if op.is_collective() {
            // A communicator's collectives follow each other on a channel, so this start ends the one before, whose own
            // stop NCCL loses in storms of small operations (NVIDIA/nccl pull request 2221).
            if let Some(before) = self.comms.at(op.comm()).and_then(|comm| comm.swap_kernel(channel, kernel)) {
                self.kernel_stop(before, at);
            }
        }
        kernel
    }

    fn mark_started(&self, op: &Op, channel: u8, at: u64) {
        let bit = 1 << channel;
        let is_first = op.kernels_started.fetch_or(bit, SeqCst) & bit == 0;
        if let (true, Some(cell)) = (is_first, self.writer().op(op.slot())) {
            cell.kernel_started(at);
        }
    }

    /// State 22: the kernel's channel stopped, with the GPU's time.
    pub(crate) fn kernel_stop_state(&self, raw: u64, timer_ns: u64) {
        self.kernel_stop(raw, self.clock.ticks_of_timer(now_ticks(), timer_ns));
    }

    /// The kernel's channel stopped; the second time nothing happens.
    pub(crate) fn kernel_stop(&self, raw: u64, at: u64) {
        let Some(handle) = Handle::decode(raw) else { return };
        let (parent, channel) = split(handle);
        let Some(op) = self.ops.get(parent) else { return };
        let bit = 1u64 << (u32::from(channel) % u64::BITS);
        if op.kernels_stopped.load(SeqCst) & bit != 0 {
            return;
        }
        // Before the bit, which may make the operation complete on another thread.
        op.ended_at(at);
        if op.kernels_stopped.fetch_or(bit, SeqCst) & bit != 0 {
            return;
        }
        if let Some(cell) = self.writer().op(op.slot()) {
            cell.kernel_stopped(at);
        }
        self.op_check(parent, op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_near_the_wall_clock_is_believed_and_others_are_not() {
        let wall = WallClock::new(&Calibration::measure());
        let now = now_ticks();
        let real = clock::realtime_ns();
        let per_us = wall.calibration.ticks_per_sec / 1_000_000;
        assert_eq!(wall.ticks_of_timer(now, real - 40_000_000), now, "40 ms old, and never seen near");
        let back = now - wall.ticks_of_timer(now, real - 500_000);
        assert!((back / per_us).abs_diff(500) < 100, "{} us back instead of 500", back / per_us);
        // Heard of 40 ms late, from a timer that was just seen to follow the host's clock.
        let back = now - wall.ticks_of_timer(now, real - 40_000_000);
        assert!((back / per_us).abs_diff(40_000) < 100, "{} us back instead of 40000", back / per_us);
        let later = now + 11 * wall.calibration.ticks_per_sec;
        assert_eq!(wall.ticks_of_timer(later, real + 10_960_000_000), later, "seen near 11 s ago");
        assert_eq!(wall.ticks_of_timer(now, real - 6_000_000_000), now, "six seconds old: another clock");
        assert_eq!(wall.ticks_of_timer(now, 12_345), now, "nanoseconds since the GPU's own start");
        assert_eq!(wall.ticks_of_timer(now, u64::MAX), now);
        assert_eq!(wall.ticks_of_timer(now, 0), now, "not told");
    }
}
