//! The docket: one fault, one case, from its first sign to its end.
mod again;
mod ends;
mod explained;
mod revised;
mod same;
mod stops;

use crate::case::advice;
use crate::case::stop::{crash, left_out, stalled};
use crate::case::weigh::{DECISIVE, STARVED_NS, SURER, Verdict};
use crate::case::{BlastEntry, Case, CaseEvent, CaseId, CaseState, Said};
use crate::config::Config;
use crate::explain::Key;
use crate::fact::{Fact, LATE_AGAIN};
use crate::timeline::Timeline;
use crate::timeline::ending::Exits;
use crate::watch::{Seen, Watch};
use mycroft_record::{Category, Finding, HostTime, What};
use same::{is_absence, is_inside_only, is_of_whole_host, is_slow_device, is_starved, meets, naps};
use stops::Stops;

/// Cases kept; the oldest closed ones go first.
const CASES_MAX: usize = 256;
/// Reasons kept in a case.
const REASONS_MAX: usize = 24;
/// Of a stall that may be a row of pauses, or of waits in a job that crawls, so many transients must have passed.
const NAPS_MAX: u64 = 5;
/// What is known of a case while it is open.
#[derive(Clone, Debug, Default)]
struct Open {
    id: CaseId,
    /// Progress stopped at this time, in the records' clock; `NONE` where it did not.
    stalled_since: HostTime,
    /// The longest time for which the job stood because of it before it went on, nanoseconds.
    stood_ns: u64,
    onset: HostTime,
    /// The cause that slowed the job before it stopped: the case was about that, and is again once the job goes on.
    cause: Option<Key>,
    /// How often the last checks gave the same answer.
    stable: usize,
    /// What it says since it settled.
    said: Option<Said>,
}

/// The case of a cause.
#[derive(Clone, Debug)]
struct Told {
    id: CaseId,
    key: Key,
}

/// All cases of a job.
#[derive(Debug, Default)]
pub(crate) struct Docket {
    pub(crate) cases: Vec<Case>,
    pub(crate) transients: Vec<Case>,
    next_id: u64,
    /// Open cases, oldest first; one at most is about a job that stopped.
    open: Vec<Open>,
    /// Open cases of what `explain` says.
    told: Vec<Told>,
    /// Iterations from here on show what the open slowdowns account for.
    raised_at: Option<HostTime>,
    /// When the last pause was over: a stall that resolved itself, or a single long iteration.
    paused_until: HostTime,
    stops: Stops,
    /// Cases that this look revised.
    revised: Vec<CaseId>,
    /// Somebody is gone, and since then (server's clock) it is waited for a sign of the others.
    waits_since: HostTime,
    /// How many were gone at the last look.
    leaving_seen: usize,
    /// The job was started again since the last look.
    is_anew: bool,
}

/// What a step may look at.
pub(crate) struct Bench<'a> {
    pub timeline: &'a Timeline,
    pub config: &'a Config,
    pub watch: &'a Watch,
    pub seen: &'a Seen,
    pub exits: &'a Exits,
    pub now: HostTime,
}

impl Docket {
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty() || !self.told.is_empty()
    }

    /// From when on iterations show what the open slowdowns account for.
    pub(crate) fn raised_at(&self) -> Option<HostTime> {
        self.raised_at
    }

    pub(crate) fn step(&mut self, bench: &Bench<'_>) -> Vec<CaseEvent> {
        if std::mem::take(&mut self.is_anew) {
            return self.finish_all(bench, "the job was started again");
        }
        let long = bench.seen.long.iter().map(|(_, until, _)| *until);
        self.paused_until = long.fold(self.paused_until, HostTime::max);
        let mut events = self.react(bench);
        // The iteration that a pause ends is seen in the same look: nothing else may say again that it was slow.
        if let Some(CaseEvent::Withdrawn(_)) = events.last() {
            events.extend(self.react(bench));
        }
        if !self.has_open() {
            self.raised_at = None;
        }
        events
    }

    fn react(&mut self, bench: &Bench<'_>) -> Vec<CaseEvent> {
        if let Some(why) = ends::job_ended(bench) {
            return self.finish_all(bench, why);
        }
        match self.open.iter().find(|open| self.case(open.id).finding.what != What::Slowdown) {
            Some(stop) => self.follow_stop(bench, &stop.clone()).into_iter().collect(),
            None => match self.stopped(bench) {
                Some(event) => vec![event],
                None if *bench.exits == Exits::Unclear => Vec::new(),
                None if !bench.seen.fresh => Vec::new(),
                None if self.has_open() => self.recovered(bench),
                None => self.apart(bench).into_iter().collect(),
            },
        }
    }

    fn case(&self, id: CaseId) -> &Case {
        &self.cases[self.place_of(id)]
    }

    /// Cases are in the order of their numbers.
    fn place_of(&self, id: CaseId) -> usize {
        self.cases.partition_point(|case| case.id < id)
    }

    /// A process that is gone, or a stall.
    fn stopped(&mut self, bench: &Bench<'_>) -> Option<CaseEvent> {
        if let Some((verdict, facts, blast)) = crash(bench) {
            let since = verdict.since;
            return Some(self.open_case(bench, verdict, &facts, blast, since));
        }
        if *bench.exits == Exits::Unclear {
            return None;
        }
        let stall = bench.seen.stall.as_ref()?;
        if self.has_open() && stall.waited_ns < bench.config.transient_ns {
            return None;
        }
        let (verdict, facts, blast) = stalled(bench, stall, self.usual_until());
        let told = || self.told.iter().map(|told| &self.case(told.id).finding);
        let findings = || self.open.iter().map(|open| &self.case(open.id).finding).chain(told());
        let is_starved = findings().any(|finding| is_starved(finding, &verdict));
        let is_nap = is_inside_only(&verdict, &facts) && findings().any(naps);
        let waited = stall.waited_ns;
        if is_absence(verdict.category) && bench.watch.may_be_start(bench.config, stall) {
            return None;
        }
        let is_slot = |open: &Open| is_slow_device(&self.case(open.id).finding, open.stood_ns, &verdict, waited);
        if self.open.iter().any(is_slot)
            || (is_starved && waited < STARVED_NS)
            || (is_nap && waited < NAPS_MAX * bench.config.transient_ns)
        {
            return None;
        }
        self.stops(&verdict);
        if let Some(id) = self.same_place(&verdict) {
            let open = self.open.iter_mut().find(|open| open.id == id)?;
            open.stalled_since = stall.since;
            return self.write(bench, id, verdict, &facts, blast).then_some(CaseEvent::Strengthened(id));
        }
        if verdict.what == What::Slowdown {
            self.raised_at.get_or_insert(stall.since);
        }
        Some(self.open_case(bench, verdict, &facts, blast, stall.since))
    }

    /// Until when the job was as usual; `None`: it is.
    pub(crate) fn usual_until(&self) -> Option<HostTime> {
        let told = self.told.iter().map(|told| self.case(told.id).finding.since);
        self.open.iter().map(|open| open.onset).chain(told).min()
    }

    /// What cases that are open are about; `None` of a stop.
    pub(crate) fn slowed_by(&self) -> Vec<Option<Key>> {
        self.open.iter().map(|_| None).chain(self.told.iter().map(|told| Some(told.key.clone()))).collect()
    }

    /// A job that goes on, slowly, with ranks apart by an operation.
    fn apart(&mut self, bench: &Bench<'_>) -> Option<CaseEvent> {
        let (verdict, facts) = left_out(bench, bench.seen.slow.as_ref()?)?;
        Some(self.open_case(bench, verdict, &facts, Vec::new(), HostTime::NONE))
    }

    fn open_case(
        &mut self,
        bench: &Bench<'_>,
        verdict: Verdict,
        facts: &[Fact],
        blast: Vec<BlastEntry>,
        stalled_since: HostTime,
    ) -> CaseEvent {
        let finding = Finding {
            what: verdict.what,
            category: verdict.category,
            suspects: verdict.suspects.clone(),
            since: verdict.since,
            detected_at: bench.now,
            diagnosed_at: HostTime::NONE,
        };
        let id = self.file(Case { group: verdict.group, op: verdict.op, ..Case::of(finding) });
        let onset = verdict.since;
        self.open.push(Open { id, stalled_since, onset, ..Open::default() });
        self.write(bench, id, verdict, facts, blast);
        CaseEvent::Opened(id)
    }

    /// Writes a verdict into an open case; `true` if it changed.
    fn write(
        &mut self,
        bench: &Bench<'_>,
        id: CaseId,
        verdict: Verdict,
        facts: &[Fact],
        blast: Vec<BlastEntry>,
    ) -> bool {
        let at = self.place_of(id);
        let Some(open) = self.open.iter_mut().find(|open| open.id == id) else { return false };
        let case = &mut self.cases[at];
        // Two suspects that are as likely may take turns at the front of the list: that is no other verdict.
        let still = match case.finding.suspects.first() {
            Some(before) => verdict.leads().any(|place| *place == before.place),
            None => verdict.suspects.is_empty(),
        };
        let same = case.finding.what == verdict.what && case.finding.category == verdict.category && still;
        open.stable = if same { open.stable + 1 } else { 1 };
        let known = verdict.category != Category::Unknown && !verdict.suspects.is_empty();
        let settled = known && (open.stable >= 2 || verdict.confidence() >= DECISIVE);
        if !same {
            case.finding.diagnosed_at = HostTime::NONE;
        }
        if settled && !case.finding.diagnosed_at.is_some() {
            case.finding.diagnosed_at = bench.now;
        }
        let surer =
            verdict.confidence() > case.finding.suspects.first().map_or(0.0, |suspect| suspect.confidence) + SURER;
        case.finding.what = verdict.what;
        case.finding.category = verdict.category;
        let mut suspects = verdict.suspects;
        // Of suspects that are as likely the one that was told first stays first.
        let told = case.finding.suspects.first().filter(|_| same && case.finding.diagnosed_at.is_some());
        if let Some(at) = told.and_then(|told| suspects.iter().position(|suspect| suspect.place == told.place)) {
            suspects[..=at].rotate_right(1);
        }
        case.finding.suspects = suspects;
        case.group = verdict.group.or(case.group);
        case.op = verdict.op.or(case.op);
        let mut because: Vec<_> = facts.iter().map(Fact::reason).collect();
        because.truncate(REASONS_MAX);
        case.because = because;
        if !blast.is_empty() {
            case.blast_radius = blast;
        }
        case.do_next = advice::steps(case.finding.what, case.finding.category, &case.finding.suspects);
        if facts.iter().any(|fact| matches!(fact, Fact::LeftOut { own: false, .. })) {
            advice::goes_on(&mut case.do_next);
        }
        if !same || surer {
            case.updated_at = bench.now;
        }
        !same || surer
    }

    /// Follows the case of a job that stopped.
    fn follow_stop(&mut self, bench: &Bench<'_>, open: &Open) -> Option<CaseEvent> {
        let (id, case) = (open.id, self.case(open.id));
        if case.finding.what == What::Crash {
            return self.follow_crash(bench, id);
        }
        if let Some((verdict, facts, blast)) = crash(bench)
            && !case.finding.diagnosed_at.is_some()
        {
            return self.write(bench, id, verdict, &facts, blast).then_some(CaseEvent::Strengthened(id));
        }
        self.follow_stall(bench, open)
    }

    fn follow_stall(&mut self, bench: &Bench<'_>, open: &Open) -> Option<CaseEvent> {
        let anybody_dying = bench.timeline.leaving().any(|state| state.dead_since.is_some());
        if anybody_dying || (bench.seen.stall.is_none() && !open.stalled_since.is_some()) {
            return None; // whoever ends the job now is not what stopped it; what did not stop it does not end when it goes on
        }
        if let Some(stall) = &bench.seen.stall {
            let (verdict, facts, blast) = stalled(bench, stall, self.usual_until());
            let finding = &self.case(open.id).finding;
            let weaker = verdict.confidence() < finding.suspects.first().map_or(0.0, |s| s.confidence);
            if finding.diagnosed_at.is_some() && weaker && !is_of_whole_host(finding, &verdict) {
                return None;
            }
            if verdict.what == What::Slowdown {
                self.raised_at.get_or_insert(stall.since);
            }
            return self.write(bench, open.id, verdict, &facts, blast).then_some(CaseEvent::Strengthened(open.id));
        }
        let moved = bench.timeline.ranks.by_slot().iter().map(|state| state.progress_at).max().unwrap_or_default();
        if moved <= open.stalled_since {
            return None; // no samples at the moment: unknown, neither better nor worse
        }
        Some(self.resumed(bench, open, moved))
    }

    fn withdraw(&mut self, bench: &Bench<'_>, id: CaseId) -> CaseEvent {
        let mut case = self.cases.remove(self.place_of(id));
        case.state = CaseState::Closed;
        case.closed_at = bench.now;
        case.updated_at = bench.now;
        case.closed_because = "a single pause that went away by itself".to_string();
        self.transients.push(case);
        if self.transients.len() > CASES_MAX {
            self.transients.remove(0);
        }
        self.open.retain(|open| open.id != id);
        CaseEvent::Withdrawn(id)
    }

    fn finish(&mut self, bench: &Bench<'_>, id: CaseId, why: &str) -> CaseEvent {
        self.compare(bench.now, Some(id));
        self.open.retain(|open| open.id != id);
        let at = self.place_of(id);
        let case = &mut self.cases[at];
        case.state = CaseState::Closed;
        case.closed_at = bench.now;
        case.updated_at = bench.now;
        case.closed_because = why.to_string();
        CaseEvent::Closed(id)
    }

    /// Closes the cases of stops that the job has got over: it is as fast as before.
    fn recovered(&mut self, bench: &Bench<'_>) -> Vec<CaseEvent> {
        let mut events = Vec::new();
        for open in self.open.clone() {
            let pauses = self.case(open.id).finding.category == Category::HostThread || self.shows(open.id, LATE_AGAIN);
            let since_ns = bench.timeline.newest_sample.since_ns(self.paused_until);
            let pausing = pauses && since_ns < bench.config.pause_window_ns / 2;
            let needed = bench.config.recover_iterations;
            if bench.seen.healthy_streak >= needed && !pausing && bench.watch.has_lasted(open.onset, needed) {
                events.push(self.finish(bench, open.id, "iterations are as fast as before"));
            } else if self.is_one_of_many(&open) {
                events.push(self.finish(bench, open.id, "its pause is one of many that wander over ranks"));
            }
        }
        events
    }

    /// The first open case whose surest suspects are some of a verdict's.
    fn same_place(&self, verdict: &Verdict) -> Option<CaseId> {
        let about = |id: &CaseId| self.surest(*id).any(|suspect| verdict.leads().any(|place| meets(place, suspect)));
        self.open.iter().map(|open| open.id).find(about)
    }
}
