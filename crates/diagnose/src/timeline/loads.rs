//! What was told of the processors of each host lately.
use crate::median::median;
use mycroft_record::{HostName, HostTime, HostVitals};
use std::collections::{BTreeMap, VecDeque};

/// Looks kept per host: at one a second, four minutes.
const KEPT: usize = 256;

/// Where at most so many thousandths of the cores are busy, nobody is kept from one for long, and that they are full is news
/// where no more were before.
pub(crate) const ROOM_MILLI: f64 = 600.0;

/// One look at a host's processors, thousandths as in [`HostVitals`].
#[derive(Clone, Copy, Debug)]
struct Load {
    at: HostTime,
    busy_milli: u32,
    wait_milli: u32,
}

/// The medians of several looks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Usual {
    /// Thousandths of all cores that were busy.
    pub busy_milli: f64,
    /// Thousandths of the time in which the job's threads were ready to run that they waited for a processor.
    pub wait_milli: f64,
    /// How many looks.
    pub looks: usize,
}

/// What agents told of the processors of their hosts.
#[derive(Debug, Default)]
pub(crate) struct Loads(BTreeMap<HostName, VecDeque<Load>>);

impl Loads {
    pub(super) fn take(&mut self, host: &HostName, vitals: &HostVitals) {
        let seen = self.0.entry(host.clone()).or_default();
        if seen.back().is_some_and(|last| last.at >= vitals.at) {
            return; // told twice
        }
        if seen.len() >= KEPT {
            seen.pop_front();
        }
        let (busy_milli, wait_milli) = (vitals.cpu_busy_milli, vitals.cpu_wait_milli);
        seen.push_back(Load { at: vitals.at, busy_milli, wait_milli });
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = &HostName> {
        self.0.keys()
    }

    /// What was told of a host from `from` to `until`.
    pub(crate) fn usual(&self, host: &HostName, from: HostTime, until: HostTime) -> Option<Usual> {
        let inside: Vec<&Load> = self.0.get(host)?.iter().filter(|load| load.at >= from && load.at <= until).collect();
        let of = |value: &dyn Fn(&Load) -> u32| median(inside.iter().map(|load| f64::from(value(load))).collect());
        let (busy_milli, wait_milli) = (of(&|load| load.busy_milli)?, of(&|load| load.wait_milli)?);
        Some(Usual { busy_milli, wait_milli, looks: inside.len() })
    }

    /// By host: for which share of the time threads waited for a processor from `from` to `until`. Where many processors idle
    /// nobody is kept from one for long.
    pub(crate) fn waits(&self, from: HostTime, until: HostTime) -> BTreeMap<HostName, f64> {
        let of = |host: &HostName| {
            let usual = self.usual(host, from, until)?;
            let wait_milli = if usual.busy_milli > ROOM_MILLI { usual.wait_milli } else { 0.0 };
            Some((host.clone(), wait_milli / 1000.0))
        };
        self.hosts().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_kept_and_none_twice() {
        let mut loads = Loads::default();
        let host = HostName::from("a");
        let look = |at: u64| HostVitals {
            at: HostTime(at),
            cpu_busy_milli: at as u32,
            memory_available_bytes: 0,
            agent_dropped: 0,
            cpu_wait_milli: 7,
        };
        (1..=300).chain([300, 299]).for_each(|at| loads.take(&host, &look(at)));
        let usual = loads.usual(&host, HostTime(1), HostTime(400)).unwrap();
        assert_eq!(usual, Usual { busy_milli: 172.5, wait_milli: 7.0, looks: KEPT }, "45 to 300");
        assert_eq!(loads.usual(&host, HostTime(1), HostTime(44)), None);
        assert_eq!(loads.hosts().count(), 1);
    }
}
