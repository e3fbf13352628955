//! Partitions of the bus that this server has, and until when: the fence before everything that judges their jobs.
//!
//! A lease is over here before it is over in the database: it is counted from before it was asked for, by a clock that nobody sets and
//! that goes on while the machine is suspended, and a margin is left out. So a server that was stopped or cut off has stopped
//! judging when another begins.
use mycroft_bus::Moment;
use mycroft_record::JobName;
use mycroft_wire::sync::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Jobs of partitions that are told apart: four times what a server diagnoses. Records of further ones are kept only.
const JOBS_MAX: usize = 1024;

/// The partitions.
#[derive(Debug, Default)]
pub(crate) struct Held {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    parts: BTreeMap<u32, Holding>,
    /// Jobs that came by the bus.
    jobs: BTreeMap<JobName, Of>,
    /// Holdings that there ever were.
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Holding {
    /// Tells it from earlier ones of the same partition.
    number: u64,
    until: Moment,
}

#[derive(Clone, Copy, Debug)]
struct Of {
    part: u32,
    /// The brain has let it go.
    is_gone: bool,
}

impl Held {
    /// A partition is this server's from now on; gives the number of the holding.
    pub(super) fn take(&self, part: u32, until: Moment) -> u64 {
        let mut state = lock(&self.state);
        state.count += 1;
        let number = state.count;
        state.parts.insert(part, Holding { number, until });
        number
    }

    /// It is for longer, if it still is.
    pub(super) fn extend(&self, part: u32, until: Moment) {
        if let Some(holding) = lock(&self.state).parts.get_mut(&part).filter(|holding| !holding.until.is_over()) {
            holding.until = holding.until.max(until);
        }
    }

    /// It is not any more.
    pub(crate) fn lose(&self, part: u32) {
        lock(&self.state).parts.remove(&part);
    }

    /// The partitions that it has.
    pub(super) fn parts(&self) -> BTreeSet<u32> {
        let state = lock(&self.state);
        state.parts.iter().filter(|(_, holding)| !holding.until.is_over()).map(|(part, _)| *part).collect()
    }

    /// Whether this holding is not over.
    pub(super) fn is_ours(&self, part: u32, number: u64) -> bool {
        lock(&self.state).parts.get(&part).is_some_and(|holding| holding.number == number && !holding.until.is_over())
    }

    /// A job comes by this partition; false: there are too many.
    pub(super) fn note(&self, job: &JobName, part: u32) -> bool {
        let mut state = lock(&self.state);
        if !state.jobs.contains_key(job) && state.jobs.len() >= JOBS_MAX {
            state.jobs.retain(|_, of| !of.is_gone);
            if state.jobs.len() >= JOBS_MAX {
                return false;
            }
        }
        state.jobs.insert(job.clone(), Of { part, is_gone: false });
        true
    }

    /// Whether this server may judge a job: it did not come by the bus, or its partition is this server's.
    pub(crate) fn may_judge(&self, job: &JobName) -> bool {
        let state = lock(&self.state);
        let Some(of) = state.jobs.get(job) else { return true };
        state.parts.get(&of.part).is_some_and(|holding| !holding.until.is_over())
    }

    /// Jobs whose partition is this server's no longer, each once.
    pub(crate) fn take_lost(&self) -> BTreeSet<JobName> {
        let mut state = lock(&self.state);
        state.parts.retain(|_, holding| !holding.until.is_over());
        let State { parts, jobs, .. } = &mut *state;
        let lost = jobs.iter_mut().filter(|(_, of)| !of.is_gone && !parts.contains_key(&of.part));
        let lost = lost.map(|(job, of)| {
            of.is_gone = true;
            job.clone()
        });
        lost.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn later() -> Moment {
        Moment::now().after(Duration::from_secs(3600))
    }

    #[test]
    fn jobs_of_the_bus_are_judged_while_their_partition_is_held() {
        let held = Held::default();
        assert!(held.may_judge(&"wire".into()), "it did not come by the bus");
        let first = held.take(3, later());
        assert!(held.note(&"train".into(), 3) && held.may_judge(&"train".into()) && held.is_ours(3, first));
        assert!(held.take_lost().is_empty());
        held.lose(3);
        assert!(!held.may_judge(&"train".into()) && !held.is_ours(3, first));
        assert_eq!(held.take_lost(), BTreeSet::from(["train".into()]));
        assert!(held.take_lost().is_empty() && !held.may_judge(&"train".into()), "what still waits is not judged");
        let second = held.take(3, later());
        assert!(held.is_ours(3, second) && !held.is_ours(3, first), "who read for the first holding does not go on");
    }

    /// Nothing asks the database, and nobody ends it: the moment alone does.
    #[test]
    fn a_lease_that_is_over_by_the_clock_is_over_and_cannot_be_lengthened() {
        let held = Held::default();
        let number = held.take(0, Moment::now());
        held.note(&"train".into(), 0);
        held.extend(0, later());
        assert!(!held.is_ours(0, number) && !held.may_judge(&"train".into()) && held.parts().is_empty());
        assert_eq!(held.take_lost(), BTreeSet::from(["train".into()]));
    }
}
