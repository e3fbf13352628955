//! Cases and the end of a job: what ends with it, when it is clear who is gone, and what its next life leaves behind.
use super::{Bench, Docket};
use crate::blame::hang;
use crate::case::stop::{blast_radius, crash};
use crate::case::{BlastEntry, CaseEvent, CaseId};
use crate::life::{Ending, How};
use crate::timeline::Timeline;
use crate::timeline::ending::{Exits, PATIENCE_NS};
use mycroft_record::{HostTime, NANOS_PER_MS, NANOS_PER_SEC, Rank, What};

/// So long after a crash case was opened it is asked who went with the first: two looks.
const FIRST_DEATH_LOOKS_NS: u64 = 2 * NANOS_PER_SEC;
/// While it is not clear who of a job is gone, it is looked again after this: an agent's look brings news no sooner.
const EXITS_RECHECK_NS: u64 = 100 * NANOS_PER_MS;

/// Why open cases close now, if the job is over and none of them is about what ended it.
pub(super) fn job_ended(bench: &Bench<'_>) -> Option<&'static str> {
    match bench.exits {
        Exits::Over(Ending { how: How::Finished, .. }) => Some("the job ended in good order"),
        Exits::Over(Ending { how: How::Outside, .. }) => Some("the job was ended from outside"),
        _ => None,
    }
}

impl Docket {
    /// Whether an open case is about a process that is gone.
    pub(crate) fn has_crash(&self) -> bool {
        self.open.iter().any(|open| self.case(open.id).finding.what == What::Crash)
    }

    /// The job was started again: what is open is over with the next look, and no pause or onset of before counts.
    pub(crate) fn begin_anew(&mut self) {
        let (cases, transients) = (std::mem::take(&mut self.cases), std::mem::take(&mut self.transients));
        let (open, told) = (std::mem::take(&mut self.open), std::mem::take(&mut self.told));
        *self = Docket { cases, transients, open, told, next_id: self.next_id, is_anew: true, ..Docket::default() };
    }

    /// What those that are gone say at `now`.
    pub(crate) fn exits(&mut self, timeline: &Timeline, now: HostTime) -> Exits {
        self.leaving_seen = timeline.leaving().count();
        let crashed = self.has_crash();
        let exits = timeline.exits(crashed, false);
        if exits != Exits::Unclear {
            self.waits_since = HostTime::NONE;
            return exits;
        }
        if !self.waits_since.is_some() {
            self.waits_since = now;
        }
        let is_over = now.since_ns(self.waits_since) >= PATIENCE_NS;
        if is_over { timeline.exits(crashed, true) } else { exits }
    }

    /// When it is to be asked again what those that are gone say; `None`: nobody is, or it is known.
    pub(crate) fn next_check(&self, timeline: &Timeline, now: HostTime) -> Option<HostTime> {
        let waits = self.waits_since.is_some() && now.since_ns(self.waits_since) <= PATIENCE_NS;
        (waits || timeline.leaving().count() > self.leaving_seen).then(|| now + EXITS_RECHECK_NS)
    }

    /// Ends every open case that is not about what ended the job.
    pub(super) fn finish_all(&mut self, bench: &Bench<'_>, why: &str) -> Vec<CaseEvent> {
        let all: Vec<CaseId> = self.open.iter().map(|open| open.id).collect();
        let told = self.end_told(why, bench.now);
        all.into_iter().map(|id| self.finish(bench, id, why)).chain(told).collect()
    }

    /// Follows the case of a process that is gone.
    pub(super) fn follow_crash(&mut self, bench: &Bench<'_>, id: CaseId) -> Option<CaseEvent> {
        if bench.now.since_ns(self.case(id).opened_at) <= FIRST_DEATH_LOOKS_NS {
            let (verdict, facts, blast) = crash(bench)?;
            return self.write(bench, id, verdict, &facts, blast).then_some(CaseEvent::Strengthened(id));
        }
        self.widen(bench, id);
        let anybody_dead = bench.timeline.leaving().any(|state| state.dead());
        if !anybody_dead && bench.seen.healthy_streak >= bench.config.recover_iterations {
            return Some(self.finish(bench, id, "the job runs again"));
        }
        None
    }

    /// Whoever waits for a dead rank comes to its wait when its own work is done: the radius grows until all stand still,
    /// and does not shrink when a launcher ends those who wait.
    fn widen(&mut self, bench: &Bench<'_>, id: CaseId) {
        let gone: Vec<Rank> = bench.timeline.leaving().filter(|state| state.dead()).map(|state| state.rank).collect();
        let blast = blast_radius(hang::behind(bench.timeline, &gone));
        let waiting = |blast: &[BlastEntry]| blast.iter().map(|entry| entry.waiting.len()).sum::<usize>();
        let at = self.place_of(id);
        let case = &mut self.cases[at];
        if waiting(&blast) > waiting(&case.blast_radius) {
            case.blast_radius = blast;
        }
    }
}
