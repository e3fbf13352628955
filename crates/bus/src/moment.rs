//! Moments of a clock that nobody sets and that goes on while the machine is suspended: leases are measured by it.
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A moment of CLOCK_BOOTTIME.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Moment(Duration);

impl Moment {
    /// Now.
    pub fn now() -> Moment {
        let now = clock_gettime(ClockId::Boottime);
        // Neither is negative: the clock begins with the machine.
        Moment(Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    /// So much later.
    #[must_use]
    pub fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time))
    }

    /// Whether it is over.
    pub fn is_over(self) -> bool {
        Moment::now() >= self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_come_and_are_over() {
        let now = Moment::now();
        assert!(now.is_over() && !now.after(Duration::from_secs(3600)).is_over());
        assert!(now.after(Duration::MAX) > now);
    }
}
