//! What the hosts' own NIC counters say: links down, traffic that is not the job's.
use crate::config::Config;
use crate::fact::Fact;
use crate::timeline::{NicSample, Timeline};
use mycroft_record::{HostName, HostTime, NANOS_PER_SEC};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Traffic below this is nobody's fault: 1 MB/s.
const TRAFFIC_FLOOR_MB_S: f64 = 1.0;
/// The hosts whose interfaces carry far more than the job sends over them since then, and did not before; or more than before by this
/// `share` of their speed, and those of others do not: what the job sends is about as much of all.
pub(crate) fn busy_since(timeline: &Timeline, config: &Config, since: HostTime, share: f64) -> BTreeSet<HostName> {
    let (now, before) =
        (foreign(timeline, config, since, timeline.newest_sample), foreign(timeline, config, HostTime::NONE, since));
    now.difference(&before).cloned().chain(busier(timeline, since, share)).collect()
}

/// The hosts of which an interface carries far more in `from..=to` than the job sends over all of them.
fn foreign(timeline: &Timeline, config: &Config, from: HostTime, to: HostTime) -> BTreeSet<HostName> {
    let from = remembered(timeline, from);
    let job = job_bytes(timeline, from, to);
    let is_foreign = |(host, _, seen): &(&HostName, &Arc<str>, &VecDeque<NicSample>)| {
        rate(seen, from, to).is_some_and(|(nic_mb_s, seconds)| {
            let job_mb_s = job.get(*host).copied().unwrap_or(0) as f64 / 1e6 / seconds;
            nic_mb_s > TRAFFIC_FLOOR_MB_S && nic_mb_s > job_mb_s * config.foreign_traffic_factor
        })
    };
    timeline.links.nics().filter(is_foreign).map(|(host, ..)| host.clone()).collect()
}

/// See [`busy_since`].
fn busier(timeline: &Timeline, since: HostTime, share: f64) -> Vec<HostName> {
    let mut hosts: BTreeMap<&HostName, (f64, f64)> = BTreeMap::new();
    for (host, _, seen) in timeline.links.nics() {
        let speed_mb_s = seen.back().map_or(0.0, |nic| nic.speed_bytes_per_sec as f64 / 1e6);
        let now = rate(seen, since, timeline.newest_sample);
        if let (Some((now_mb_s, _)), Some((before_mb_s, _))) = (now, rate(seen, HostTime::NONE, since)) {
            let (more, speed) = hosts.entry(host).or_default();
            *more += now_mb_s - before_mb_s;
            *speed += speed_mb_s;
        }
    }
    let of_all = hosts.values().map(|(more, _)| *more).reduce(f64::min).unwrap_or(0.0).max(0.0);
    let is_busier = |(more, speed): &(f64, f64)| *speed > 0.0 && more - of_all >= share * speed;
    hosts.into_iter().filter(|(_, rates)| is_busier(rates)).map(|(host, _)| host.clone()).collect()
}

/// Not before the oldest that all interfaces remember: what the job sent earlier is not in what they counted.
fn remembered(timeline: &Timeline, from: HostTime) -> HostTime {
    timeline.links.nics().filter_map(|(_, _, seen)| Some(seen.front()?.at)).fold(from, HostTime::max)
}

/// Facts about interfaces that are down now.
pub(crate) fn down(timeline: &Timeline) -> Vec<Fact> {
    timeline.links.nics().filter_map(|(host, name, seen)| is_down(host, name, seen)).collect()
}

fn is_down(host: &HostName, name: &Arc<str>, seen: &VecDeque<NicSample>) -> Option<Fact> {
    let last = seen.back().filter(|last| !last.up && seen.iter().any(|nic| nic.up))?;
    let at = seen.iter().rev().take_while(|nic| !nic.up).last().map_or(last.at, |nic| nic.at);
    Some(Fact::NicDown { host: host.clone(), nic: name.clone(), at })
}

/// The busier direction in MB/s and the seconds it was measured over.
fn rate(seen: &VecDeque<NicSample>, from: HostTime, to: HostTime) -> Option<(f64, f64)> {
    let inside: Vec<&NicSample> = seen.iter().filter(|nic| nic.at >= from && nic.at <= to).collect();
    let (first, last) = (inside.first()?, inside.last()?);
    let ns = last.at.since_ns(first.at);
    if ns < NANOS_PER_SEC / 2 {
        return None;
    }
    let seconds = ns as f64 / NANOS_PER_SEC as f64;
    let bytes = last.tx_bytes.saturating_sub(first.tx_bytes).max(last.rx_bytes.saturating_sub(first.rx_bytes));
    Some((bytes as f64 / 1e6 / seconds, seconds))
}

/// Bytes the job's flows moved, per host, the busier direction.
fn job_bytes(timeline: &Timeline, from: HostTime, to: HostTime) -> BTreeMap<HostName, u64> {
    let (mut sent, mut received): (BTreeMap<HostName, u64>, BTreeMap<HostName, u64>) = Default::default();
    for link in timeline.links.all(&timeline.ranks) {
        let bytes: u64 =
            link.samples().filter(|sample| sample.at >= from && sample.at <= to).map(|sample| sample.bytes).sum();
        *sent.entry(timeline.host(link.from)).or_default() += bytes;
        *received.entry(timeline.host(link.to)).or_default() += bytes;
    }
    for (host, bytes) in received {
        let best = sent.entry(host).or_default();
        *best = (*best).max(bytes);
    }
    sent
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{Batch, NicState, Record, Source};

    /// Hosts `a` to `d` with so many interfaces of 100 MB/s, which carry so much together, MB/s: until second 20, and from there to 40.
    fn seen(interfaces: u64, before: [u64; 4], after: [u64; 4]) -> Timeline {
        let mut timeline = Timeline::default();
        for second in 0..=40 {
            for (at_host, host) in ["a", "b", "c", "d"].iter().enumerate() {
                let carried = before[at_host] * second.min(20) + after[at_host] * second.saturating_sub(20);
                let at = HostTime((1_000 + second) * NANOS_PER_SEC);
                let nic = |nth: u64| {
                    Record::NicState(NicState {
                        at,
                        nic: format!("mlx5_{nth}").as_str().into(),
                        up: true,
                        link_changes: 1,
                        speed_bytes_per_sec: 100_000_000,
                        tx_bytes: carried * 1_000_000 / interfaces,
                        rx_bytes: 0,
                        errors: 0,
                    })
                };
                let source = Source { job: "job".into(), host: (*host).into(), process: None };
                let records = (0..interfaces).map(nic).collect();
                timeline.observe(&Batch { source, collected_at: at, records }, 0);
            }
        }
        timeline.newest_sample = HostTime(1_040 * NANOS_PER_SEC);
        timeline
    }

    fn busy(timeline: &Timeline, share: f64) -> Vec<String> {
        let config = Config { foreign_traffic_factor: f64::MAX, ..Config::default() };
        let since = HostTime(1_020 * NANOS_PER_SEC);
        busy_since(timeline, &config, since, share).iter().map(ToString::to_string).collect()
    }

    /// What the job sends is about as much of all hosts, whatever of it their flows tell.
    #[test]
    fn hosts_that_carry_more_than_before_are_busy_where_others_do_not() {
        let two = seen(1, [40, 40, 40, 40], [70, 75, 30, 30]);
        assert_eq!(busy(&two, 0.25), ["a", "b"]);
        assert!(busy(&two, 0.5).is_empty(), "too little to be why ways are so slow");
        assert!(busy(&seen(1, [40; 4], [80; 4]), 0.25).is_empty(), "the job sends more");
        assert_eq!(busy(&seen(4, [40; 4], [180, 180, 30, 30]), 0.25), ["a", "b"], "on four interfaces together");
        assert!(busy(&seen(4, [40; 4], [120, 120, 30, 30]), 0.25).is_empty(), "a fifth of four interfaces");
    }
}
