//! The clocks of hosts as the wire measured them last, for health, metrics and the age of batches. The brain has its own:
//! it corrects times by them.
use crate::api::{ClockJson, ClocksJson};
use mycroft_record::{Batch, ClockOffset, HostName, HostTime, NANOS_PER_MS, NANOS_PER_SEC, Record};
use mycroft_wire::sync::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Hosts remembered: 100,000 ranks at 8 a host, eight times over; at 100 bytes 10 MB.
const HOSTS_MAX: usize = 100_000;
/// Hosts told one by one in health and metrics, those whose clocks are furthest off: a cluster whose time service fails
/// needs no list.
const TOLD_MAX: usize = 64;
/// A clock that is off by more is told of, as in reports.
const OFF_NS: u64 = 100 * NANOS_PER_MS;
/// Fewer hosts say nothing of the server's own clock.
const HOSTS_MIN: usize = 3;

/// The newest measurement of each host.
#[derive(Debug, Default)]
pub(crate) struct ClockBoard {
    hosts: Mutex<BTreeMap<HostName, ClockOffset>>,
}

impl ClockBoard {
    /// Takes in what a batch says of its host's clock, if it says anything.
    pub(crate) fn take(&self, batch: &Batch) {
        for record in batch.records.iter().take(1) {
            let Record::ClockOffset(offset) = record else { continue };
            let mut hosts = lock(&self.hosts);
            if hosts.len() < HOSTS_MAX || hosts.contains_key(&batch.source.host) {
                hosts.insert(batch.source.host.clone(), *offset);
            }
        }
    }

    /// The server's time at which a host's clock shows this.
    pub(crate) fn server_time(&self, host: &HostName, shown: HostTime) -> HostTime {
        lock(&self.hosts).get(host).map_or(shown, |offset| offset.server_time(shown))
    }

    /// Forgets hosts that are not heard any more.
    pub(crate) fn keep(&self, is_heard: impl Fn(&HostName) -> bool) {
        lock(&self.hosts).retain(|host, _| is_heard(host));
    }

    /// All of it in numbers, and the worst hosts by name.
    pub(crate) fn json(&self) -> ClocksJson {
        let hosts = lock(&self.hosts);
        let unknown = hosts.values().filter(|offset| !offset.is_known()).count();
        let is_told = |offset: &ClockOffset| !offset.is_known() || offset.offset_ns.unsigned_abs() > OFF_NS;
        let mut told: Vec<_> = hosts.iter().filter(|(_, offset)| is_told(offset)).collect();
        let off = told.len() - unknown;
        told.sort_by_key(|(host, offset)| {
            (offset.is_known(), std::cmp::Reverse(offset.offset_ns.unsigned_abs()), *host)
        });
        let told = told.into_iter().take(TOLD_MAX).map(|(host, offset)| clock_json(host, offset));
        ClocksJson { hosts: hosts.len() as u64, off: off as u64, unknown: unknown as u64, told: told.collect() }
    }

    /// The sentence about the server's own clock, where nearly all hosts agree that it is off.
    pub(crate) fn problem(&self) -> Option<String> {
        let hosts = lock(&self.hosts);
        let mut known: Vec<i64> = hosts.values().filter(|offset| offset.is_known()).map(|o| o.offset_ns).collect();
        known.sort_unstable();
        let middle = *known.get(known.len() / 2).filter(|_| known.len() >= HOSTS_MIN)?;
        let agree = known.iter().filter(|ns| ns.abs_diff(middle) <= OFF_NS).count();
        if middle.unsigned_abs() <= OFF_NS || agree * 4 < known.len() * 3 {
            return None;
        }
        let (seconds, word) = (seconds(middle).abs(), if middle > 0 { "behind" } else { "ahead of" });
        Some(format!(
            "the clock of this server is {seconds:.3} s {word} those of {agree} of {} hosts: set it (chronyc makestep); \
             reports have its time",
            known.len()
        ))
    }
}

fn seconds(ns: i64) -> f64 {
    ns as f64 / NANOS_PER_SEC as f64
}

fn clock_json(host: &HostName, offset: &ClockOffset) -> ClockJson {
    let bound_s = offset.is_known().then(|| offset.bound_ns as f64 / NANOS_PER_SEC as f64);
    ClockJson { host: host.to_string(), offset_s: seconds(offset.offset_ns), bound_s }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::Source;

    fn told(board: &ClockBoard, host: &str, offset_ns: i64, bound_ns: u64) {
        let at = HostTime(1_700_000_000 * NANOS_PER_SEC);
        let offset = ClockOffset { at, offset_ns, drift_ppb: 0, bound_ns, since: HostTime::NONE };
        let source = Source { job: "j".into(), host: host.into(), process: None };
        board.take(&Batch { source, collected_at: at, records: vec![Record::ClockOffset(offset)] });
    }

    const S: i64 = NANOS_PER_SEC as i64;

    #[test]
    fn hosts_whose_clocks_are_off_or_unknown_are_told_worst_first() {
        let board = ClockBoard::default();
        for host in 0..200 {
            told(&board, &format!("host{host:03}"), 1_000_000, 500_000);
        }
        told(&board, "behind", -3 * S, 500_000);
        told(&board, "ahead", 2 * S, 500_000);
        told(&board, "jumping", 0, ClockOffset::UNKNOWN);
        let json = board.json();
        assert_eq!((json.hosts, json.off, json.unknown), (203, 2, 1));
        let names: Vec<&str> = json.told.iter().map(|clock| &*clock.host).collect();
        assert_eq!(names, ["jumping", "behind", "ahead"]);
        assert_eq!((json.told[1].offset_s, json.told[1].bound_s, json.told[0].bound_s), (-3.0, Some(0.0005), None));
        assert_eq!(board.problem(), None);
        let shown = HostTime(1_700_000_000 * NANOS_PER_SEC);
        assert_eq!(board.server_time(&"ahead".into(), shown), shown - 2 * NANOS_PER_SEC);
        board.keep(|host| &**host == "ahead");
        assert_eq!(board.json().hosts, 1);
        (0..500).for_each(|host| told(&board, &host.to_string(), 2 * S, 1));
        assert_eq!(board.json().told.len(), TOLD_MAX);
    }

    #[test]
    fn a_server_whose_own_clock_is_off_says_so() {
        let board = ClockBoard::default();
        (0..8).for_each(|host| told(&board, &host.to_string(), 2 * S + i64::from(host) * 1_000_000, 500_000));
        told(&board, "other", -S, 500_000);
        let problem = board.problem().expect("it is the server");
        assert!(problem.starts_with("the clock of this server is 2.00") && problem.contains("8 of 9"), "{problem}");
    }
}
