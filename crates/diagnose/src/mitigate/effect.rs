//! What came of a plan that was carried out: whether it helped, and whether the reason for it is gone.
use super::seen::middle;
use crate::median::median;
use crate::report::{RankSummary, Report};
use mycroft_record::HostName;
use std::collections::{BTreeMap, BTreeSet};

/// A device that takes less than so many times what its peers take for the same work is no slower than they (FALCON 4.3: a group
/// is suspicious from 1.1 times the median on).
pub(super) const SLOW_FROM: f64 = 1.1;
/// Where nobody knows how much iterations vary, they do by this share: the least change that counts (FALCON 9.1).
const SPREAD_UNKNOWN: f64 = 0.05;

/// What a plan changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Iterations are shorter.
    Better,
    /// They are as long as before: it did not help, or was not carried out.
    Same,
    /// They are longer by more than they vary.
    Worse,
}

impl Effect {
    /// Iterations of `before_ms` are `after_ms` long now; by themselves they vary by `spread_ms`.
    pub fn of(before_ms: f64, after_ms: f64, spread_ms: Option<f64>) -> Effect {
        let spread_ms = spread_ms.unwrap_or(SPREAD_UNKNOWN * before_ms);
        match after_ms - before_ms {
            more if more > spread_ms => Effect::Worse,
            more if more < -spread_ms => Effect::Better,
            _ => Effect::Same,
        }
    }

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::Better => "better",
            Effect::Same => "same",
            Effect::Worse => "worse",
        }
    }
}

/// How long an iteration takes now, milliseconds: the median of the last of the slowest rank.
pub fn now_ms(report: &Report) -> Option<f64> {
    report.ranks.iter().filter_map(|rank| rank.iteration_ms).max_by(f64::total_cmp)
}

/// Whether the hosts that got fewer micro-batches are as fast as the others again: for one micro-batch each of their ranks computes
/// less than 1.1 times what the others of its pipeline stage do in the median. An iteration does not show it: whoever has most
/// micro-batches sets its pace then. `None`: not seen, or the division is of another job. Ranks are in Megatron's order. What a
/// device does once an iteration (the optimizer) counts as if it were part of the micro-batches, so a host with few of them looks
/// a little slower than it is.
pub fn is_healthy_again(
    report: &Report,
    (tensor, pipeline): (u32, u32),
    micro_batches: &[u32],
    hosts: &BTreeSet<HostName>,
) -> Option<bool> {
    let mut seen = false;
    for stage in each_ms(report, (tensor, pipeline), micro_batches)? {
        let of = |wanted: bool| {
            let theirs = stage.iter().filter(move |(host, _)| hosts.contains(*host) == wanted);
            theirs.filter_map(|(_, ms)| *ms)
        };
        let Some(usual_ms) = median(of(false).collect()) else { continue };
        if of(true).any(|ms| ms >= SLOW_FROM * usual_ms) {
            return Some(false);
        }
        seen |= of(true).next().is_some();
    }
    seen.then_some(true)
}

/// How many times longer than its peers each host computes.
pub(super) type Paces = BTreeMap<HostName, f64>;

/// How many times longer than the middle of its pipeline stage each host computes for a micro-batch: its slowest rank (FALCON 4.3).
/// `None`: the division is of another job, or somebody's computation is not seen.
pub(super) fn paces(report: &Report, layout: (u32, u32), micro_batches: &[u32]) -> Option<Paces> {
    let mut paces = Paces::new();
    for stage in each_ms(report, layout, micro_batches)? {
        let all: Vec<(&HostName, f64)> =
            stage.into_iter().map(|(host, ms)| Some((host, ms?))).collect::<Option<_>>()?;
        let usual_ms = middle(all.iter().map(|(_, ms)| *ms)).filter(|ms| *ms > 0.0)?;
        for (host, ms) in all {
            let pace = paces.entry(host.clone()).or_default();
            *pace = pace.max(ms / usual_ms);
        }
    }
    Some(paces)
}

/// Milliseconds that each rank of a pipeline stage computes for a micro-batch, where that is seen.
type Stage<'a> = Vec<(&'a HostName, Option<f64>)>;

/// Milliseconds that each rank computes for a micro-batch, by pipeline stage. Ranks are in Megatron's order. `None`: the division is
/// of another job.
fn each_ms<'a>(report: &'a Report, (tensor, pipeline): (u32, u32), micro_batches: &[u32]) -> Option<Vec<Stage<'a>>> {
    let (tensor, replicas) = (tensor.max(1) as usize, micro_batches.len());
    let stage_ranks = tensor * replicas;
    if stage_ranks == 0 || report.ranks.len() != stage_ranks * pipeline.max(1) as usize {
        return None;
    }
    let of = |(rank, number): (&'a RankSummary, usize)| {
        let ms = rank.computation_ms.map(|ms| ms / f64::from(micro_batches[number / tensor].max(1)));
        (&rank.host, ms)
    };
    Some(report.ranks.chunks(stage_ranks).map(|stage| stage.iter().zip(0..).map(of).collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{HostTime, Rank};

    #[test]
    fn only_what_is_beyond_the_spread_is_an_effect() {
        assert_eq!(Effect::of(100.0, 80.0, Some(5.0)), Effect::Better);
        assert_eq!(Effect::of(100.0, 96.0, Some(5.0)), Effect::Same);
        assert_eq!(Effect::of(100.0, 104.0, Some(5.0)), Effect::Same);
        assert_eq!(Effect::of(100.0, 106.0, Some(5.0)), Effect::Worse);
        assert_eq!(Effect::of(100.0, 104.0, None), Effect::Same);
        assert_eq!(Effect::of(100.0, 106.0, None), Effect::Worse);
    }

    fn report(computation_ms: &[Option<f64>]) -> Report {
        let rank = |(number, ms): (u32, &Option<f64>)| RankSummary {
            rank: Rank(number),
            host: format!("host{}", number / 2).as_str().into(),
            pid: 1,
            iterations: 9,
            iteration_ms: Some(100.0 + f64::from(number)),
            computation_ms: *ms,
            in_flight: 0,
            last_progress_at: HostTime(1),
            last_seen_at: HostTime(1),
            state: "running",
            doing: String::new(),
            lost: 0,
        };
        Report {
            job: "j".into(),
            as_of: HostTime(1),
            lives: Vec::new(),
            cases: Vec::new(),
            transients: Vec::new(),
            caveats: Vec::new(),
            ranks: (0..).zip(computation_ms).map(rank).collect(),
            layout: Vec::new(),
            iteration_ms_median: None,
            iteration_ms_spread: None,
            iterations: 9,
            thresholds: Vec::new(),
        }
    }

    /// Tensor 2, so a host is a replica; host1 has four of twelve micro-batches less than its share.
    #[test]
    fn a_host_is_compared_with_others_by_micro_batch() {
        let ill: BTreeSet<HostName> = ["host1".into()].into();
        let of = |own: f64| report(&[60.0, 60.0, own, own, 60.0, 61.0].map(Some));
        let asked = |report: &Report| is_healthy_again(report, (2, 1), &[5, 2, 5], &ill);
        assert_eq!(asked(&of(48.0)), Some(false), "24 ms a micro-batch against 12");
        assert_eq!(asked(&of(26.0)), Some(true), "13 ms");
        assert_eq!(asked(&of(26.5)), Some(false), "13.25 ms are 1.1 times as long");
        assert_eq!(asked(&report(&[None; 6])), None, "computation is not seen");
        assert_eq!(asked(&report(&[Some(60.0); 5])), None, "another job");
        assert_eq!(now_ms(&of(1.0)), Some(105.0));
        // Two stages of one rank a replica; the second stage of the last replica (rank 5, host2) is slow.
        let staged = report(&[60.0, 30.0, 60.0, 90.0, 45.0, 90.0].map(Some));
        let on_two: BTreeSet<HostName> = ["host2".into()].into();
        assert_eq!(is_healthy_again(&staged, (1, 2), &[6, 3, 6], &on_two), Some(true));
        assert_eq!(is_healthy_again(&staged, (1, 2), &[6, 3, 3], &on_two), Some(false));
    }
}
