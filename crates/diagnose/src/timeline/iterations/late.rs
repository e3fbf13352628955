//! What a device took for the steps of a flow when they waited for somebody else, too: for whoever comes late all of them
//! wait, and for a slow device one after the other.
use super::{FlowSum, Iterations, MAX_UNIT_US, Signature};

impl Iterations {
    /// The lines of the rank's program, and how often each came.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (Signature, u64)> {
        self.signatures.keys().iter().zip(&self.seen).map(|(signature, seen)| (*signature, seen.count))
    }

    /// Iterations in which those came, the one that runs and those before iterations were known with it; `None`: not known.
    pub(crate) fn so_far(&self) -> Option<f64> {
        let marker = self.marker?;
        Some(self.known(&marker.signature)?.count as f64 / marker.every as f64)
    }
}

impl FlowSum {
    /// What a device took that served the steps in turn, when all slots have waited once for somebody who came late: no
    /// longer than the longest step each. Of n steps served in t each the slots wait t(1 + .. + slots) at first and then
    /// slots x t; nothing is left to tell of fewer steps than that and the wait together.
    pub(in crate::timeline) fn punctual_us(self, slots: u32) -> f64 {
        let sum_us = self.sum_us(slots);
        let (n, slots) = (f64::from(self.steps), f64::from(slots));
        let late_us = slots * f64::from(self.max_64us) * f64::from(MAX_UNIT_US);
        let waits = slots * n - slots * (slots - 1.0) / 2.0 - slots * slots;
        if waits < 1.0 { 0.0 } else { n * (sum_us - late_us).max(0.0) / waits }
    }

    /// The same in an operation that lasted so long, where enough is left to tell, else all of it.
    pub(super) fn unless_late_us(self, slots: u32, lasted_us: f64) -> f64 {
        let us = self.us(slots);
        match u32::from(self.steps) {
            steps if steps >= 2 * slots => us.min(self.punctual_us(slots)),
            steps if (2..=slots).contains(&steps) && self.one_by_one_us(slots) > lasted_us => {
                us.min(self.side_by_side_us(slots))
            }
            _ => us,
        }
    }

    /// The same of what a device takes. What comes down a tree comes at the pace of the slowest device in it: there, and only
    /// there, each slice is taken before the next one comes, and none waits beside it.
    pub(super) fn taken_us(self, slots: u32, lasted_us: f64) -> f64 {
        let sum_us = self.sum_us(slots);
        if self.is_one_by_one(slots) && sum_us <= lasted_us { sum_us } else { self.unless_late_us(slots, lasted_us) }
    }

    /// Whether all steps waited equally long, more of them than can have waited for one moment. In a queue that fills up the
    /// first waits for itself only and the last for all slots: together (slots - 1) / 2 times the longest wait less.
    fn is_one_by_one(self, slots: u32) -> bool {
        let (n, max_us) = (f64::from(self.steps), f64::from(self.max_64us) * f64::from(MAX_UNIT_US));
        let least_us = (n - 1.0) * max_us;
        u32::from(self.steps) >= 2 * slots && max_us > 0.0 && self.sum_us(slots) >= least_us
    }

    /// What a device took for no more steps than there are slots that all were there when it began: one waits longer than the
    /// next. Of n steps served in t each the waits are t .. nt, and whatever all of them have waited for a late rank besides.
    fn side_by_side_us(self, slots: u32) -> f64 {
        let (n, max_us) = (f64::from(self.steps), f64::from(self.max_64us) * f64::from(MAX_UNIT_US));
        2.0 * (n * max_us - self.sum_us(slots)).max(0.0) / (n - 1.0)
    }

    /// The same of steps that came at intervals, and waited for the device only: the less they differ, the more of each wait
    /// is its own time. That cannot be longer than the operation lasted.
    fn one_by_one_us(self, slots: u32) -> f64 {
        2.0 * self.sum_us(slots)
            - f64::from(self.steps) * f64::from(u32::from(self.max_64us) + 1) * f64::from(MAX_UNIT_US)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FIFO_SLOTS, RING_SLOTS};
    use super::*;
    use proptest::prelude::*;

    /// What a device that takes `us` for each of n slices leaves in a flow, when all slots wait for it in turn.
    fn served(n: u32, us: u32) -> FlowSum {
        let slots = RING_SLOTS;
        let stage_us = us * (slots * n - slots * (slots - 1) / 2);
        FlowSum { stage_us, behind_us: 0, steps: n as u16, max_64us: (slots * us / MAX_UNIT_US) as u16 }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// What comes at the pace at which it is taken waits for itself only, and is not divided by the slots.
        #[test]
        fn slices_taken_as_they_come_are_taken_one_by_one(n in 16u32..200, us in 640u32..50_000) {
            let flow = |stage_us, max_us| {
                FlowSum { stage_us, behind_us: 0, steps: n as u16, max_64us: (max_us / MAX_UNIT_US) as u16 }
            };
            let (one_by_one, lasted_us) = (flow(us * n, us), f64::from(us * (n + 1)));
            prop_assert_eq!(one_by_one.taken_us(FIFO_SLOTS, lasted_us), f64::from(us * n));
            prop_assert!(one_by_one.taken_us(FIFO_SLOTS, lasted_us / 2.0) < lasted_us / 4.0, "longer than it lasted");
            // In a queue, and where the slots waited once for somebody who came late.
            let queue = flow(us * (8 * n - 28), 8 * us);
            let late = flow(8 * us, us);
            for other in [queue, late] {
                prop_assert_eq!(other.taken_us(FIFO_SLOTS, 1e12), other.unless_late_us(FIFO_SLOTS, 1e12));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Slots that wait for the device show what it takes, however many slices there are, and whoever was late.
        #[test]
        fn a_slow_device_takes_what_its_slots_wait(n in 6u32..200, us in 64u32..5_000, late_us in 0u32..100_000) {
            let (us, late_us) = (us / 64 * 64, late_us / 64 * 64);
            let (flow, taken) = (served(n, us), f64::from(n * us));
            prop_assert!((flow.us(RING_SLOTS) - taken).abs() < 1e-6 * taken);
            prop_assert!((flow.punctual_us(RING_SLOTS) - taken).abs() < 1e-6 * taken);
            let late = FlowSum { stage_us: RING_SLOTS * late_us, max_64us: (late_us / 64) as u16, ..served(n, 0) };
            prop_assert_eq!(late.punctual_us(RING_SLOTS), 0.0);
            let told = n >= 2 * RING_SLOTS;
            let unless_late_us = late.unless_late_us(RING_SLOTS, f64::from(RING_SLOTS * late_us));
            prop_assert_eq!(unless_late_us, if told { 0.0 } else { late.us(RING_SLOTS) });
        }

        /// The same of so few that all lie in the slots of a tree side by side.
        #[test]
        fn of_few_slices_one_waits_longer_than_the_next(n in 2u32..=8, us in 64u32..200_000, late_us in 0u32..2_000_000) {
            let (us, late_us) = (us / 64 * 64, late_us / 64 * 64);
            let of = |us: u32, late_us: u32| {
                let (stage_us, max_64us) = (n * late_us + us * n * (n + 1) / 2, (late_us + n * us) / MAX_UNIT_US);
                FlowSum { stage_us, behind_us: 0, steps: n as u16, max_64us: max_64us as u16 }
            };
            let (taken, lasted) = (f64::from(n * us), f64::from(late_us + n * us));
            let told = of(us, late_us).unless_late_us(FIFO_SLOTS, lasted);
            prop_assert!(told + 1e-6 >= taken && told <= lasted + 2.0 * f64::from(MAX_UNIT_US), "{told} of {taken}");
            let waited_us = of(0, late_us).unless_late_us(FIFO_SLOTS, f64::from(late_us));
            prop_assert!(waited_us == 0.0 || late_us <= 2 * MAX_UNIT_US, "{waited_us} of {late_us}, more than units hide");
            // They came as slowly as they were served: each waits for its own time only.
            let served = FlowSum { stage_us: n * us, max_64us: (us / MAX_UNIT_US) as u16, ..of(us, 0) };
            prop_assert_eq!(served.unless_late_us(FIFO_SLOTS, taken), served.us(FIFO_SLOTS));
        }
    }
}
