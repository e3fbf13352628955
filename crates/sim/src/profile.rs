//! How fast a part works over time: rates that hold from one moment to the next, and when work that was begun at one
//! moment ends. Everything that breaks in the simulator breaks by changing such a rate; what follows from it (who
//! stalls, who waits for whom) is the mechanics' business.

/// A moment that does not come.
pub const NEVER: u64 = u64::MAX;

/// Rate of a part over time, as a share of its healthy rate: 1 healthy, 0.5 half as fast, 0 stopped.
///
/// Time is nanoseconds of the simulation. Before the first change the rate is 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Changes in time order: from this moment on, this rate.
    changes: Vec<(u64, f64)>,
}

impl Profile {
    /// A part that is always healthy.
    pub const HEALTHY: Profile = Profile { changes: Vec::new() };

    /// Whether the part never changes.
    pub fn is_healthy(&self) -> bool {
        self.changes.is_empty()
    }

    /// Multiplies the rate by `rate` from `from` until `until` (`NEVER`: for good). Effects of several faults on one
    /// part multiply.
    pub fn scale(&mut self, from: u64, until: u64, rate: f64) {
        if from >= until {
            return;
        }
        let at_until = self.rate_at(until);
        let at_from = self.rate_at(from);
        let mut changes: Vec<(u64, f64)> = self.changes.iter().copied().filter(|(at, _)| *at < from).collect();
        changes.push((from, at_from * rate));
        changes.extend(self.changes.iter().filter(|(at, _)| *at > from && *at < until).map(|(at, r)| (*at, r * rate)));
        if until != NEVER {
            changes.push((until, at_until));
            changes.extend(self.changes.iter().copied().filter(|(at, _)| *at > until));
        }
        self.changes = changes;
    }

    /// Both in one line: at every moment the slower of the two.
    pub fn slower(&self, other: &Profile) -> Profile {
        let mut moments: Vec<u64> = self.changes.iter().chain(&other.changes).map(|(at, _)| *at).collect();
        moments.sort_unstable();
        moments.dedup();
        let changes = moments.into_iter().map(|at| (at, self.rate_at(at).min(other.rate_at(at)))).collect();
        Profile { changes }
    }

    /// Stops the part for good at `at`.
    pub fn stop(&mut self, at: u64) {
        self.scale(at, NEVER, 0.0);
    }

    /// The rate at `at`.
    pub fn rate_at(&self, at: u64) -> f64 {
        self.changes.iter().rev().find(|(from, _)| *from <= at).map_or(1.0, |(_, rate)| *rate)
    }

    /// When `work` nanoseconds of healthy work end that begin at `start`; [`NEVER`] if they do not.
    pub fn finish(&self, start: u64, work: u64) -> u64 {
        if self.changes.is_empty() {
            return start.saturating_add(work);
        }
        self.finish_slowly(start, work)
    }

    fn finish_slowly(&self, start: u64, work: u64) -> u64 {
        if start == NEVER {
            return NEVER;
        }
        let mut at = start;
        let mut left = work as f64;
        let mut next = self.changes.partition_point(|(from, _)| *from <= start);
        loop {
            let rate = if next == 0 { 1.0 } else { self.changes[next - 1].1 };
            let until = self.changes.get(next).map_or(NEVER, |(from, _)| *from);
            if rate > 0.0 {
                let needs = left / rate;
                let room = (until - at) as f64;
                if until == NEVER || needs <= room {
                    return at.saturating_add(needs as u64);
                }
                left -= room * rate;
            }
            if until == NEVER {
                return NEVER;
            }
            at = until;
            next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn healthy_work_takes_its_time() {
        assert_eq!(Profile::HEALTHY.finish(5, 10), 15);
        assert_eq!(Profile::HEALTHY.finish(NEVER, 10), NEVER);
    }

    #[test]
    fn work_goes_on_where_a_stop_ends() {
        let mut profile = Profile::default();
        profile.scale(100, 200, 0.0);
        assert_eq!(profile.finish(50, 50), 100);
        assert_eq!(profile.finish(50, 60), 210);
        assert_eq!(profile.finish(150, 10), 210);
        assert_eq!(profile.finish(200, 10), 210);
        profile.stop(300);
        assert_eq!(profile.finish(250, 51), NEVER);
    }

    #[test]
    fn effects_multiply() {
        let mut profile = Profile::default();
        profile.scale(100, NEVER, 0.5);
        profile.scale(200, 300, 0.5);
        assert_eq!(profile.rate_at(99), 1.0);
        assert_eq!(profile.rate_at(150), 0.5);
        assert_eq!(profile.rate_at(250), 0.25);
        assert_eq!(profile.rate_at(300), 0.5);
        let mut other = Profile::default();
        other.stop(250);
        assert_eq!(profile.slower(&other).rate_at(150), 0.5);
        assert_eq!(profile.slower(&other).rate_at(260), 0.0);
        let mut third = Profile::default();
        third.scale(0, NEVER, 0.4);
        assert_eq!(profile.slower(&third).rate_at(150), 0.4);
        assert_eq!(profile.slower(&third).rate_at(250), 0.25);
        // 100 ns at a quarter do 25 ns of work, the rest is done at half the rate.
        assert_eq!(profile.finish(200, 50), 350);
    }
}
