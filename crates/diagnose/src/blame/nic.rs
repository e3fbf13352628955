//! What the hosts' own NIC counters say: links down, rates fallen, traffic that is not the job's.
use crate::config::Config;
use crate::fact::Fact;
use crate::timeline::{NicSample, Timeline};
use mycroft_record::{HostName, HostTime, NANOS_PER_SEC};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Traffic below this is nobody's fault: 1 MB/s.
const TRAFFIC_FLOOR_MB_S: f64 = 1.0;
/// A rated speed this far under what it was, or under the fastest of the job, is slow.
const SPEED_SHARE: f64 = 0.75;

/// Facts about interfaces in `from..=to`.
pub(crate) fn facts(timeline: &Timeline, config: &Config, from: HostTime, to: HostTime) -> Vec<Fact> {
    let mut out = Vec::new();
    let speeds = timeline.links.nics().filter_map(|(_, _, seen)| seen.back().map(|nic| nic.speed_bytes_per_sec));
    let fastest = speeds.max().unwrap_or(0);
    let from = remembered(timeline, from);
    let job = job_bytes(timeline, from, to);
    for (host, name, seen) in timeline.links.nics() {
        let Some(last) = seen.back() else { continue };
        out.extend(is_down(host, name, seen));
        let before = seen.front().map_or(0, |nic| nic.speed_bytes_per_sec).max(fastest);
        if last.speed_bytes_per_sec > 0 && (last.speed_bytes_per_sec as f64) < before as f64 * SPEED_SHARE {
            out.push(Fact::NicSlow {
                host: host.clone(),
                nic: name.clone(),
                now_mb_s: last.speed_bytes_per_sec as f64 / 1e6,
                other_mb_s: before as f64 / 1e6,
            });
        }
        let Some((nic_mb_s, seconds)) = rate(seen, from, to) else { continue };
        let job_mb_s = job.get(host).copied().unwrap_or(0) as f64 / 1e6 / seconds;
        if nic_mb_s > TRAFFIC_FLOOR_MB_S && nic_mb_s > job_mb_s * config.foreign_traffic_factor {
            out.push(Fact::ForeignTraffic { host: host.clone(), nic: name.clone(), nic_mb_s, job_mb_s });
        }
    }
    out
}

/// The hosts whose interfaces carry far more than the job sends over them since then, and did not before.
pub(crate) fn busy_since(timeline: &Timeline, config: &Config, since: HostTime) -> BTreeSet<HostName> {
    let busy = |from, to| -> BTreeSet<HostName> {
        let of = |fact| if let Fact::ForeignTraffic { host, .. } = fact { Some(host) } else { None };
        facts(timeline, config, from, to).into_iter().filter_map(of).collect()
    };
    let (now, before) = (busy(since, timeline.newest_sample), busy(HostTime::NONE, since));
    now.difference(&before).cloned().collect()
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
