//! On whose host the job's threads wait for a processor since the job stands still: other processes ask for the cores, and the
//! job is satisfied with what is left (FALCON 3.2, Figure 2). It accuses nobody alone.
use crate::fact::{FULL_MILLI, Fact};
use crate::median::median;
use crate::timeline::{ROOM_MILLI, Timeline, Usual};
use mycroft_record::{HostName, HostTime, NANOS_PER_SEC};

/// A host is compared with what was told of it for so long before.
const BASE_NS: u64 = 60 * NANOS_PER_SEC;
/// Looks at a host before without which nothing is said.
const LOOKS_MIN: usize = 2;
/// Waiting for so many thousandths longer than before, and than on most hosts, is much: where a core is free it is some
/// 40 at most, and 125 where others ask for 85 % of them.
const MUCH_MILLI: f64 = 75.0;
/// And so many times as long as before: on a host that is always crowded it goes up and down.
const TIMES: f64 = 2.0;

//= falcon 3.2
/// Hosts on which threads wait longer since the job stands still, `since`, than while it was as usual, until `usual_until` or then; and
/// hosts whose cores have been full since it stopped.
pub(crate) fn at_stall(timeline: &Timeline, usual_until: HostTime, since: HostTime) -> Vec<Fact> {
    let usual_until = usual_until.min(since);
    let (base, now) = ((usual_until - BASE_NS, usual_until), (since, HostTime(u64::MAX)));
    let mut facts = longer(timeline, base, now);
    facts.extend(timeline.loads.hosts().filter_map(|host| {
        let before = timeline.loads.usual(host, base.0, base.1).filter(|usual| usual.looks >= LOOKS_MIN)?;
        let (now_milli, base_milli) = (timeline.loads.usual(host, now.0, now.1)?.busy_milli, before.busy_milli);
        let is_full = now_milli >= FULL_MILLI && base_milli <= ROOM_MILLI;
        is_full.then(|| Fact::CpuFull { host: host.clone(), now_milli, base_milli })
    }));
    facts
}

fn longer(timeline: &Timeline, base: (HostTime, HostTime), since: (HostTime, HostTime)) -> Vec<Fact> {
    let of = |host: &HostName| {
        let before = timeline.loads.usual(host, base.0, base.1).filter(|usual| usual.looks >= LOOKS_MIN)?;
        Some((host.clone(), timeline.loads.usual(host, since.0, since.1)?, before))
    };
    let all: Vec<(HostName, Usual, Usual)> = timeline.loads.hosts().filter_map(of).collect();
    let grew = |(_, now, before): &(HostName, Usual, Usual)| now.wait_milli - before.wait_milli;
    let usual = median(all.iter().map(grew).collect()).unwrap_or(0.0).max(0.0);
    let much = |entry: &(HostName, Usual, Usual)| {
        let is_crowd = entry.1.busy_milli > ROOM_MILLI;
        is_crowd && grew(entry) - usual >= MUCH_MILLI && entry.1.wait_milli >= TIMES * entry.2.wait_milli
    };
    let fact = |(host, now, before): (HostName, Usual, Usual)| Fact::CpuWait {
        host,
        now_milli: now.wait_milli,
        base_milli: before.wait_milli,
        busy_milli: now.busy_milli,
    };
    all.into_iter().filter(much).map(fact).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{Batch, HostVitals, Record, Source};

    const S: u64 = NANOS_PER_SEC;

    /// A minute of looks at each host whose cores are so busy.
    fn seen(cpu_busy_milli: u32, wait_milli: &[&dyn Fn(u64) -> u32]) -> Timeline {
        let mut timeline = Timeline::default();
        for second in 0..60 {
            for (host, wait_milli) in wait_milli.iter().enumerate() {
                let cpu_wait_milli = wait_milli(second);
                let at = HostTime((1000 + second) * S);
                let (memory_available_bytes, agent_dropped) = (0, 0);
                let vitals = HostVitals { at, cpu_busy_milli, memory_available_bytes, agent_dropped, cpu_wait_milli };
                let source = Source { job: "job".into(), host: format!("host{host}").as_str().into(), process: None };
                let records = vec![Record::HostVitals(vitals)];
                timeline.observe(&Batch { source, collected_at: at, records }, 0);
            }
        }
        timeline
    }

    /// Who waits longer since the job stands still, from second 30 on.
    fn found(wait_milli: &[&dyn Fn(u64) -> u32]) -> Vec<String> {
        found_at(1000, wait_milli)
    }

    /// The same on hosts whose cores are so busy.
    fn found_at(cpu_busy_milli: u32, wait_milli: &[&dyn Fn(u64) -> u32]) -> Vec<String> {
        let timeline = seen(cpu_busy_milli, wait_milli);
        let since = HostTime(1030 * S);
        let told = at_stall(&timeline, since, since).into_iter();
        let of = |fact| if let Fact::CpuWait { host, .. } = fact { Some(host.to_string()) } else { None };
        told.filter_map(of).collect()
    }

    #[test]
    fn threads_that_wait_since_the_job_stands_still_are_told() {
        let quiet = |second: u64| 10 + 20 * (second % 2) as u32;
        let from = |begin: u64, milli: u32| move |second: u64| if second >= begin { milli } else { quiet(second) };
        assert_eq!(found(&[&quiet, &from(30, 150), &quiet]), ["host1"]);
        assert_eq!(found(&[&quiet, &from(28, 900), &quiet]), ["host1"]);
        assert_eq!(found_at(500, &[&quiet, &from(30, 150), &quiet]), [""; 0], "half of the cores are free");
        assert_eq!(found(&[&quiet, &from(30, 80), &quiet]), [""; 0], "as long as where a core is free");
        assert_eq!(found(&[&quiet, &from(10, 500), &quiet]), [""; 0], "it waited as long when the job was well");
        let moment = |second: u64| if (31..33).contains(&second) { 700 } else { quiet(second) };
        assert_eq!(found(&[&quiet, &moment, &quiet]), [""; 0], "for two seconds");
        assert_eq!(found(&[&from(30, 500), &from(30, 520), &from(30, 480)]), [""; 0], "so does everybody");
    }

    #[test]
    fn cores_that_are_full_since_a_stall_are_told() {
        let told_from = |full_from: u64, usual_until: u64, before: u32, since: u32| {
            let mut timeline = Timeline::default();
            for second in 0..20 {
                let cpu_busy_milli = if second >= full_from { since } else { before };
                let (at, memory_available_bytes, agent_dropped, cpu_wait_milli) =
                    (HostTime((1000 + second) * S), 0, 0, 0);
                let vitals = HostVitals { at, cpu_busy_milli, memory_available_bytes, agent_dropped, cpu_wait_milli };
                let source = Source { job: "job".into(), host: "a".into(), process: None };
                let records = vec![Record::HostVitals(vitals)];
                timeline.observe(&Batch { source, collected_at: at, records }, 0);
            }
            let (usual_until, since) = (HostTime((1000 + usual_until) * S), HostTime(1009 * S + 1));
            at_stall(&timeline, usual_until, since).iter().any(|fact| matches!(fact, Fact::CpuFull { .. }))
        };
        let told = |before, since| told_from(10, 10, before, since);
        assert!(!told_from(3, 10, 200, 1000), "they were full for most of the time before");
        assert!(told_from(3, 3, 200, 1000), "but not before a case that is open");
        assert!(told(200, 1000));
        assert!(!told(200, 900), "there is room left");
        assert!(!told(700, 1000), "they were nearly full before");
    }

    #[test]
    fn a_host_that_is_always_crowded_is_not_news() {
        let quiet = |_: u64| 10;
        let crowded = |second: u64| if second >= 30 { 700 } else { 550 };
        assert_eq!(found(&[&quiet, &crowded, &quiet]), [""; 0]);
    }
}
