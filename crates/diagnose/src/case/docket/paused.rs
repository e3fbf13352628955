//! Pauses of a proxy thread, that recur and are nobody else's.
use super::{Bench, Docket, PAUSE_MARGIN_NS, PauseSeen, STEP_SURE, is_sure, meets, names};
use crate::blame::slow;
use crate::case::network::{host_place, is_of_network};
use crate::case::weigh::{self, Verdict};
use crate::fact::Fact;
use mycroft_record::{Category, HostName, HostTime, Place, Rank};

/// What makes an iteration longer by so many usual ones accounts for a pause.
const FAR: f64 = 2.0;
/// A way so many times slower than before waits for nobody.
const TIMES_SLOWER: f64 = 10.0;

impl Docket {
    /// Pauses that recur and name the same rank. Several in iterations that follow each other are seen as one long stretch.
    pub(super) fn paused(&self, bench: &Bench<'_>) -> Option<(Verdict, Vec<Fact>)> {
        let oldest = bench.timeline.newest_sample - bench.config.pause_window_ns;
        let recent: Vec<&PauseSeen> = self.pauses.iter().filter(|pause| pause.until >= oldest).collect();
        let first = recent.first()?.from;
        let mut facts = Vec::new();
        let mut last = HostTime::NONE;
        for pause in &recent {
            let from = (pause.from - PAUSE_MARGIN_NS).max(last);
            let until = pause.until + PAUSE_MARGIN_NS;
            facts.extend(slow::pauses(bench.timeline, bench.config, from, until));
            last = until + 1;
        }
        let mean_ms = bench.config.pause_ns as f64 / 1e6;
        let verdict = weigh::slowdown(bench.timeline, &facts, bench.config, first, mean_ms);
        let is_it = verdict.category == Category::HostThread && !self.is_behind_a_sender(bench, &recent, &verdict);
        is_it.then_some((verdict, facts))
    }

    /// Whether the long iterations of these pauses are those of a rank, or of its host, that sends many times more slowly to the
    /// one that seems to pause: that one takes nothing because nothing comes.
    fn is_behind_a_sender(&self, bench: &Bench<'_>, pauses: &[&PauseSeen], paused: &Verdict) -> bool {
        let (Some(first), Some(usual_ms)) = (pauses.first(), bench.watch.iteration_ms()) else { return false };
        let iteration_ms = FAR * usual_ms;
        let onset = first.from - (usual_ms * 1e6) as u64;
        let windows = slow::Windows {
            base_from: HostTime::NONE,
            base_until: onset,
            base_ns_max: u64::MAX,
            onset,
            until: bench.timeline.newest_sample,
            iteration_ms,
        };
        let facts = slow::blame(bench.timeline, bench.config, &windows);
        let verdict = weigh::slowdown(bench.timeline, &facts, bench.config, onset, iteration_ms);
        let is_paused = |rank: Rank| paused.leads().any(|place| names(place, rank));
        let is_there = |host: &HostName| paused.leads().any(|place| meets(place, &host_place(host)));
        let sends_slowly = |place: &Place| {
            facts.iter().any(|fact| match fact {
                Fact::RankLink { from, to, .. } => names(place, from.0) && is_paused(to.0),
                Fact::WireExcess { from, to, now_ms, base_ms, .. } => {
                    *place == host_place(from) && is_there(to) && *now_ms > TIMES_SLOWER * base_ms
                }
                _ => false,
            })
        };
        is_of_network(verdict.category) && is_sure(&verdict, STEP_SURE) && verdict.leads().all(sends_slowly)
    }
}
