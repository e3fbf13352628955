//! A crowded host, where its counters tell sooner than iterations: before enough of them are slow, or while a case is about
//! another that is.
use super::{Bench, Docket};
use crate::blame::{load, own};
use crate::case::CaseEvent;
use crate::case::network::host_place;
use crate::case::weigh::Verdict;
use crate::fact::Fact;
use mycroft_record::{Category, HostTime, Place, Suspect, What};

/// Threads that wait for this share of the time that those of a host wait which a case is about slow the job as well.
const ALIKE: f64 = 0.8;
/// How sure that is: nothing else is looked at.
const SURE: f64 = 0.9;

impl Docket {
    //= falcon 3.2
    /// Where the threads of one host wait iterations take seconds, and in a ring they take hardly longer when those of a second
    /// host wait too, or instead: no iteration shows it. The same counters of as many waits mean the same of it, so it has
    /// its own case as soon as they say so in most looks of some seconds, whether or not an iteration ends.
    pub(super) fn crowded_too(&mut self, bench: &Bench<'_>) -> Option<CaseEvent> {
        let known = self.open.iter().filter_map(|open| own::counted_milli(&open.own));
        let least_milli = ALIKE * known.min_by(f64::total_cmp)?;
        let waits = load::lately(bench.timeline, self.usual_until()?).into_iter().filter(|(fact, _)| {
            matches!(fact, Fact::CpuWait { host, now_milli, .. } if *now_milli >= least_milli && !self.is_known(host))
        });
        let (fact, since) = waits.min_by_key(|(_, since)| *since)?;
        let verdict = about(host_place(fact.crowded()?), since);
        let event = self.open_slowdown(bench, verdict, &[fact], None)?;
        if let Some(open) = self.open.last_mut() {
            open.joined = true; // iterations say nothing of it beside the other
        }
        Some(event)
    }

    //= falcon 3.2
    /// Where the threads of one host wait longer than they run iterations take seconds, and a third slow one may be long in
    /// coming: two in a row are enough beside its counters.
    pub(super) fn starved(&mut self, bench: &Bench<'_>) -> Option<CaseEvent> {
        let slow = bench.watch.twice(bench.timeline, bench.config)?;
        let mut waits =
            load::facts(bench.timeline, &slow.windows()).into_iter().filter(|fact| fact.starved().is_some());
        let (Some(fact), None) = (waits.next(), waits.next()) else { return None };
        let verdict = about(host_place(fact.crowded()?), slow.onset);
        self.open_slowdown(bench, verdict, &[slow.fact(), fact], None)
    }
}

/// That the threads of a host wait.
fn about(place: Place, since: HostTime) -> Verdict {
    Verdict {
        category: Category::HostThread,
        suspects: vec![Suspect { place, confidence: SURE }],
        share: 1.0,
        ..Verdict::unknown(What::Slowdown, since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Case, CaseId};
    use crate::config::Config;
    use crate::evidence::Evidence;
    use crate::timeline::Timeline;
    use crate::timeline::ending::Exits;
    use crate::watch::{Seen, Watch};
    use mycroft_record::*;

    const S: u64 = NANOS_PER_SEC;

    /// A case about host0, whose threads have waited a quarter of the time since second 30; two other hosts are
    /// quiet. Whom the case besides is about, and since when.
    fn besides(category: Category, host1_milli: &dyn Fn(u64) -> u32) -> Option<(Place, u64)> {
        let mut timeline = Timeline::default();
        let host0_milli = |second: u64| if second >= 30 { 250 } else { 20 };
        for second in 0..60 {
            let waits = [("host0", host0_milli(second)), ("host1", host1_milli(second)), ("host2", 20), ("host3", 20)];
            for (host, cpu_wait_milli) in waits {
                let at = HostTime((1000 + second) * S);
                let (cpu_busy_milli, memory_available_bytes, agent_dropped) = (1000, 0, 0);
                let vitals = HostVitals { at, cpu_busy_milli, memory_available_bytes, agent_dropped, cpu_wait_milli };
                let source = Source { job: "job".into(), host: host.into(), process: None };
                timeline.observe(&Batch { source, collected_at: at, records: vec![Record::HostVitals(vitals)] }, 0);
            }
        }
        timeline.newest_sample = HostTime(1060 * S);
        let (config, watch, seen) = (Config::default(), Watch::default(), Seen::default());
        let bench = Bench {
            timeline: &timeline,
            config: &config,
            watch: &watch,
            seen: &seen,
            exits: &Exits::Nobody,
            evidence: &Evidence::default(),
            now: timeline.newest_sample,
        };
        let mut docket = Docket::default();
        let known = Fact::CpuWait { host: "host0".into(), now_milli: 250.0, base_milli: 20.0, busy_milli: 1000.0 };
        let suspects = vec![Suspect { place: host_place(&"host0".into()), confidence: 0.9 }];
        let verdict = Verdict { category, suspects, ..Verdict::unknown(What::Slowdown, HostTime(1030 * S)) };
        docket.open_slowdown(&bench, verdict, &[known], None);
        let opened = docket.crowded_too(&bench);
        let again = docket.crowded_too(&bench);
        assert_eq!(again, None, "once");
        let of = |case: &Case| (case.finding.suspects[0].place.clone(), case.finding.since.0 / S - 1000);
        (opened == Some(CaseEvent::Opened(CaseId(2)))).then(|| of(&docket.cases[1]))
    }

    #[test]
    fn a_second_host_whose_threads_wait_as_much_has_its_own_case() {
        let from = |begin: u64, milli: u32| move |second: u64| if second >= begin { milli } else { 20 };
        let host1 = Some((host_place(&"host1".into()), 44));
        assert_eq!(besides(Category::HostThread, &from(45, 250)), host1, "a look tells of the second before");
        assert_eq!(besides(Category::HostThread, &from(45, 210)), host1);
        let since_onset = besides(Category::HostThread, &from(28, 250)).map(|(_, since)| since);
        assert_eq!(since_onset, Some(30), "not before the job became slow");
        assert_eq!(besides(Category::HostThread, &from(45, 180)), None, "less than the host that is known");
        assert_eq!(besides(Category::HostThread, &from(58, 250)), None, "for two seconds");
        assert_eq!(besides(Category::Gpu, &from(45, 250)), None, "the case is about something else");
    }
}
