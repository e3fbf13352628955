//! The docket: one fault, one case, from its first sign to its end.
mod again;
mod began;
mod crawl;
mod ends;
mod explained;
mod pause;
mod paused;
mod revised;
mod same;
mod stops;

use crate::blame::own::{self, Own};
use crate::blame::slow;
use crate::case::advice;
use crate::case::network::{self, host_place, is_of_network};
use crate::case::stop::{crash, left_out, stalled};
use crate::case::weigh::{self, DECISIVE, STARVED_NS, SURER, Verdict};
use crate::case::{BlastEntry, Case, CaseEvent, CaseId, CaseState, Said};
use crate::config::Config;
use crate::evidence::Evidence;
use crate::explain::Key;
use crate::fact::{Fact, LATE_AGAIN};
use crate::timeline::Timeline;
use crate::timeline::ending::Exits;
use crate::watch::{Seen, Slow, Watch};
use began::{began, has_lasted};
use mycroft_record::{Category, Finding, HostName, HostTime, NANOS_PER_SEC, Place, What};
use pause::PauseSeen;
use same::{
    STEP_SURE, hangs_together, is_about_crowd, is_absence, is_denied, is_explained, is_inside_only, is_of_whole_host,
    is_slow_device, is_starved, is_sure, meets, names, naps, stands_out,
};
use std::collections::{BTreeSet, VecDeque};
use stops::Stops;

/// Cases kept; the oldest closed ones go first.
const CASES_MAX: usize = 256;
/// Reasons kept in a case.
const REASONS_MAX: usize = 24;
/// Pauses remembered.
const PAUSES_MAX: usize = 64;
/// Of a stall that may be a row of pauses, or of waits in a job that crawls, so many transients must have passed.
const NAPS_MAX: u64 = 5;
/// A pause leaves its marks in records that end this much around it.
const PAUSE_MARGIN_NS: u64 = NANOS_PER_SEC;

/// What is known of a case while it is open.
#[derive(Clone, Debug, Default)]
struct Open {
    id: CaseId,
    /// Progress stopped at this time, in the records' clock; `NONE` where it did not.
    stalled_since: HostTime,
    /// The longest time for which the job stood because of it before it went on, nanoseconds.
    stood_ns: u64,
    onset: HostTime,
    /// The growth of iterations that it accounts for, where others had slowed the job before: they are in what it is
    /// compared with. `None`: it is compared with a healthy job.
    step: Option<Slow>,
    /// It was opened because an iteration did not end.
    crawls: bool,
    /// Another fault has slowed the job since, so what is seen now is not this one's alone.
    joined: bool,
    /// The parts that carry it.
    own: Vec<Own>,
    /// How often the last checks gave the same answer.
    stable: usize,
    /// How often they named another, whom this case does not.
    others: usize,
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
    /// Whom the last look would have given a case besides the open ones: it takes two looks that agree.
    rumour: Option<(Category, Place)>,
    pauses: VecDeque<PauseSeen>,
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

/// Who made a slow job slower.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Joined {
    /// Nobody, or the suspect of an open case.
    Nobody,
    /// Nothing shows who.
    Somebody,
    /// A fault that has its case now.
    Another(CaseEvent),
}

/// What a step may look at.
pub(crate) struct Bench<'a> {
    pub timeline: &'a Timeline,
    pub config: &'a Config,
    pub watch: &'a Watch,
    pub seen: &'a Seen,
    pub exits: &'a Exits,
    pub evidence: &'a Evidence,
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
        for (from, until, _) in &bench.seen.long {
            self.note_pause(*from, *until);
        }
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
                None if self.has_open() => self.follow_slow(bench),
                None => self.open_slow(bench).into_iter().collect(),
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

    fn note_pause(&mut self, from: HostTime, until: HostTime) {
        if let Some(last) = self.pauses.iter_mut().rev().find(|last| from <= last.until && until >= last.from) {
            last.from = last.from.min(from);
            last.until = last.until.max(until);
            return;
        }
        self.pauses.push_back(PauseSeen { from, until });
        if self.pauses.len() > PAUSES_MAX {
            self.pauses.pop_front();
        }
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
        let findings = || self.open.iter().map(|open| &self.case(open.id).finding);
        let is_starved = findings().any(|finding| is_starved(finding, &verdict));
        let in_turns = findings().any(naps) || self.open.iter().any(|open| open.crawls);
        let is_nap = is_inside_only(&verdict, &facts) && in_turns;
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
        if let Some(id) = self.same_place(&verdict, |_| true) {
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

    fn open_slow(&mut self, bench: &Bench<'_>) -> Option<CaseEvent> {
        if let Some(slow) = &bench.seen.slow {
            let (verdict, facts) = self.slowed(bench, slow);
            let is_one = verdict.leads().count() == 1 && is_sure(&verdict, DECISIVE);
            if !is_one && let Some((verdict, facts)) = left_out(bench, slow) {
                return Some(self.open_case(bench, verdict, &facts, Vec::new(), HostTime::NONE));
            }
            let is_it = || !slow.is_early(bench.config) && !slow.is_older_than(began(bench.timeline, &verdict, &facts));
            if (is_one || is_it() || Watch::beyond_doubt(bench.config, slow))
                && let Some(event) = self.open_slowdown(bench, verdict, &facts, None)
            {
                return Some(event);
            }
        }
        let (verdict, facts) = self.paused(bench)?;
        self.open_slowdown(bench, verdict, &facts, None)
    }

    /// Opens a slowdown that began with the first iteration in which its suspects' own parts were slow.
    ///
    /// None where it is of a kind that `explain` tells, or of none.
    fn open_slowdown(
        &mut self,
        bench: &Bench<'_>,
        verdict: Verdict,
        facts: &[Fact],
        step: Option<Slow>,
    ) -> Option<CaseEvent> {
        if is_explained(verdict.category) || self.is_told(&verdict) || is_denied(bench.evidence, &verdict, facts) {
            return None;
        }
        let since = began(bench.timeline, &verdict, facts);
        if !has_lasted(since, bench.timeline.newest_sample) {
            return None;
        }
        let verdict = Verdict { since, ..verdict };
        let step = step.map(|step| if since > step.onset { step.since(since) } else { step });
        self.raised_at = Some(since);
        self.open.iter_mut().for_each(|open| open.joined = true);
        let event = self.open_case(bench, verdict, facts, Vec::new(), HostTime::NONE);
        if let Some(open) = self.open.last_mut() {
            open.step = step;
        }
        Some(event)
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
        let leads: Vec<Place> = verdict.leads().cloned().collect();
        let own = own::of(facts, &leads, verdict.category);
        if !own.is_empty() {
            open.own = own; // a stall says nothing of rates
        }
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
        let of_network = is_of_network(verdict.category);
        let suspects = &case.finding.suspects;
        let is_end = |host: &HostName| of_network && suspects.iter().any(|suspect| suspect.place == host_place(host));
        let said = |fact: &&Fact| match fact {
            // A pause leaves marks in the neighbours' flows too: they are not the suspect's.
            Fact::ProxyPause { rank, .. } => suspects.iter().any(|suspect| names(&suspect.place, *rank)),
            // What is as fast as before tells a suspect from those it exchanges data with.
            Fact::WireOther { from, to, .. } => is_end(from) || is_end(to),
            Fact::OnePeer { host, .. } => is_end(host),
            _ => true,
        };
        let mut because: Vec<_> = facts.iter().filter(said).map(Fact::reason).collect();
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

    /// Slowdowns are open: which of them are over, what the newest is, and whether there is another.
    fn follow_slow(&mut self, bench: &Bench<'_>) -> Vec<CaseEvent> {
        let mut events = Vec::new();
        for open in self.open.clone() {
            events.extend(self.recovered(bench, &open));
        }
        let step = bench.seen.step.as_ref().filter(|_| self.has_open());
        let joined = step.map_or(Joined::Nobody, |step| self.join(bench, step));
        if let Joined::Another(event) = joined {
            events.push(event);
        } else if let Some(newest) = self.open.last().cloned().filter(|open| !open.joined) {
            let until = step.filter(|_| joined == Joined::Somebody).map(|step| step.onset);
            events.extend(self.refresh(bench, &newest, until));
        }
        events
    }

    /// Closes a slowdown that is over: the job is as fast as before, or its own parts are and another fault keeps the job
    /// slow.
    fn recovered(&mut self, bench: &Bench<'_>, open: &Open) -> Vec<CaseEvent> {
        let last_pause = self.pauses.back().map_or(HostTime::NONE, |pause| pause.until);
        let pauses = self.case(open.id).finding.category == Category::HostThread || self.shows(open.id, LATE_AGAIN);
        let pausing = pauses && bench.timeline.newest_sample.since_ns(last_pause) < bench.config.pause_window_ns / 2;
        let needed = bench.config.recover_iterations;
        if bench.seen.healthy_streak >= needed && !pausing && bench.watch.has_lasted(open.onset, needed) {
            return vec![self.finish(bench, open.id, "iterations are as fast as before")];
        }
        if self.is_one_of_many(open) {
            return vec![self.finish(bench, open.id, "its pause is one of many that wander over ranks")];
        }
        if open.own.is_empty() || !self.case(open.id).finding.diagnosed_at.is_some() {
            return Vec::new();
        }
        let Some(since) = own::over_since(bench.timeline, &open.own, needed, open.onset) else { return Vec::new() };
        const OVER: &str = "its suspect is as fast as before; what keeps the job slow is another case";
        if self.open.len() > 1 {
            return vec![self.finish(bench, open.id, OVER)];
        }
        // Something else must be why the job is slow still: who shows now is compared with the job as it was before both.
        let Some(slow) = &bench.seen.slow else { return Vec::new() };
        let rest = Slow { base_from: HostTime::NONE, base_until: open.onset, ..slow.since(since) };
        let (verdict, facts) = self.slowed(bench, &rest);
        if !stands_out(&verdict) || self.same_fault(&verdict).is_some() {
            return Vec::new();
        }
        if !bench.watch.is_level(open.onset, since) && own::counted_milli(&open.own).is_none() {
            // Whoever was slow for so few iterations only did not begin this, unless the host's own counters said that threads
            // wait there: that is not by chance, and makes iterations so long that there are few of them.
            let verdict = Verdict { since: open.onset, ..verdict };
            return self.rewrite(bench, open, verdict, &facts).into_iter().collect();
        }
        let opened = self.open_slowdown(bench, verdict, &facts, Some(rest));
        opened.into_iter().chain([self.finish(bench, open.id, OVER)]).collect()
    }

    /// Looks again at a slowdown with what has come since, up to where it may be another's.
    fn refresh(&mut self, bench: &Bench<'_>, open: &Open, until: Option<HostTime>) -> Option<CaseEvent> {
        let until = |slow: &Slow| until.map_or(slow.until, |until| until.min(slow.until));
        let (verdict, facts) = match (&bench.seen.slow, &open.step) {
            (Some(slow), None) => {
                let onset = if self.began_behind(open) { open.onset } else { open.onset.min(slow.onset) };
                self.slowed(bench, &Slow { base_until: onset, onset, until: until(slow), ..slow.clone() })
            }
            (Some(slow), Some(step)) => self.slowed(bench, &Slow { until: until(slow), ..step.clone() }),
            (None, _) => self.paused(bench)?,
        };
        let finding = &self.case(open.id).finding;
        let weaker = verdict.confidence() < verdict.least_against(finding, &facts);
        let is_diagnosed = finding.diagnosed_at.is_some();
        let is_other = is_explained(verdict.category) && verdict.category != finding.category;
        let is_told = !self.is_outlived(bench, open, &verdict) && weaker && is_diagnosed;
        if is_other || is_told {
            return None;
        }
        let finding = &self.case(open.id).finding;
        let same = self.same_fault(&verdict);
        let is_another = match same {
            Some(other) => other != open.id,
            // Its suspect is as slow as it was, or was just now: who shows besides began later.
            None => {
                let (count, newest) = (bench.config.recover_iterations, bench.timeline.newest_sample);
                finding.diagnosed_at.is_some()
                    && bench.watch.has_lasted(open.onset, 2 * bench.config.slow_window)
                    && own::is_slow(bench.timeline, &open.own, count, open.onset, newest)
            }
        };
        if is_another {
            return None;
        }
        self.rewrite(bench, open, verdict, &facts)
    }

    /// Whether the job was slow because of another case when this one began: that it was slow before says nothing of this.
    fn began_behind(&self, open: &Open) -> bool {
        let was_there = |case: &Case| {
            case.finding.since < open.onset && (!case.closed_at.is_some() || case.closed_at >= open.onset)
        };
        let mut others = self.cases.iter().filter(|case| case.id != open.id && case.finding.what == What::Slowdown);
        others.any(was_there)
    }

    /// Whether what a case says was so for a few iterations only: look after look now names another, as sure as a case must
    /// be, and its own suspect not at all, whose parts are as before in most of the last iterations.
    fn is_outlived(&mut self, bench: &Bench<'_>, open: &Open, verdict: &Verdict) -> bool {
        let (count, newest) = (bench.config.recover_iterations, bench.timeline.newest_sample);
        let is_named = |place: &Place| verdict.suspects.iter().any(|suspect| meets(&suspect.place, place));
        let is_other = !open.own.is_empty()
            && is_sure(verdict, STEP_SURE)
            && !self.surest(open.id).any(is_named)
            && !own::is_slow(bench.timeline, &open.own, count, open.onset, newest);
        let Some(of) = self.open.iter_mut().find(|of| of.id == open.id) else { return false };
        of.others = if is_other { of.others + 1 } else { 0 };
        of.others >= count
    }

    /// Writes a verdict into the case of a slowdown; since when somebody else was slow says nothing of new suspects.
    fn rewrite(&mut self, bench: &Bench<'_>, open: &Open, verdict: Verdict, facts: &[Fact]) -> Option<CaseEvent> {
        let leads: Vec<Place> = verdict.leads().cloned().collect();
        if !self.names_any(open.id, &leads) {
            let since = own::first_slow(bench.timeline, facts, &leads, verdict.category, open.onset);
            let at = self.place_of(open.id);
            self.cases[at].finding.since = since;
        }
        self.write(bench, open.id, verdict, facts, Vec::new()).then_some(CaseEvent::Strengthened(open.id))
    }

    //= falcon 3.4
    /// Iterations became longer than the open cases account for: one of their faults got worse, or another has begun. Where few
    /// say so, a host's own counters must too. What the suspects of open cases make others wait was there before, so it is in
    /// what the others are compared with.
    fn join(&mut self, bench: &Bench<'_>, step: &Slow) -> Joined {
        let (verdict, facts) = self.slowed(bench, step);
        let is_counted = is_sure(&verdict, DECISIVE) && is_about_crowd(&verdict, &facts);
        let is_same = self.same_fault(&verdict).is_some();
        if step.is_early(bench.config) && (is_same || !is_counted) {
            return Joined::Nobody;
        }
        if !stands_out(&verdict) {
            return Joined::Somebody;
        }
        if is_same {
            self.raised_at = Some(step.onset);
            return Joined::Nobody;
        }
        if !self.is_told_again(&verdict) && !is_counted {
            return Joined::Somebody;
        }
        self.open_slowdown(bench, verdict, &facts, Some(step.clone())).map_or(Joined::Somebody, Joined::Another)
    }

    /// Whether the look before would have opened the same case.
    fn is_told_again(&mut self, verdict: &Verdict) -> bool {
        let now = verdict.suspects.first().map(|suspect| (verdict.category, suspect.place.clone()));
        let again = now == self.rumour;
        self.rumour = now;
        again
    }

    /// The open case that a verdict is about, if there is one: the same place, and parts of it that hang together.
    fn same_fault(&self, verdict: &Verdict) -> Option<CaseId> {
        self.same_place(verdict, |category| hangs_together(category, verdict.category))
    }

    /// The first open case of a category that `fits` whose surest suspects are some of a verdict's.
    fn same_place(&self, verdict: &Verdict, fits: impl Fn(Category) -> bool) -> Option<CaseId> {
        let about =
            |case: &&Case| self.surest(case.id).any(|suspect| verdict.leads().any(|place| meets(place, suspect)));
        let mut open = self.open.iter().map(|open| self.case(open.id));
        open.find(|case| fits(case.finding.category) && about(case)).map(|case| case.id)
    }

    /// Whether a rank that is known to come late explains a link: its peers wait with ready data until it comes, and what it
    /// waits for then is another's. Of both together the link makes one wait.
    fn explains(&self, bench: &Bench<'_>, fact: &Fact) -> bool {
        let to: Vec<HostName> = match fact {
            Fact::WireExcess { to, .. } | Fact::RankLink { to: (_, to), .. } => vec![to.clone()],
            Fact::HandoverExcess { rank, .. } => {
                let links = bench.timeline.links.all(&bench.timeline.ranks).filter(|link| link.from == *rank);
                links.map(|link| bench.timeline.host(link.to)).collect()
            }
            _ => return false,
        };
        let finding = |open: &Open| &self.case(open.id).finding;
        let told = self.told.iter().map(|told| &self.case(told.id).finding);
        let late = self.open.iter().map(finding).chain(told).filter(|finding| {
            finding.what == What::Slowdown && matches!(finding.category, Category::Gpu | Category::NotStarted)
        });
        let mut late = late.filter_map(|finding| finding.suspects.first());
        late.any(|suspect| to.iter().any(|host| meets(&suspect.place, &Place::Host { host: host.clone() })))
    }

    /// The hosts that are each the only one that an open case from before `onset` is surest of, about a slow NIC.
    fn slow_nics(&self, onset: HostTime) -> BTreeSet<HostName> {
        let is_of_network = |open: &&Open| open.onset < onset && is_of_network(self.case(open.id).finding.category);
        let of_network = self.open.iter().filter(is_of_network);
        let host = |open: &Open| match self.surest(open.id).collect::<Vec<_>>()[..] {
            [Place::Host { host }] => Some(host.clone()),
            _ => None,
        };
        of_network.filter_map(host).collect()
    }

    /// Who made iterations longer from `slow.onset` on.
    fn slowed(&self, bench: &Bench<'_>, slow: &Slow) -> (Verdict, Vec<Fact>) {
        let (onset, windows) = (slow.onset, slow.windows());
        let mut facts = vec![slow.fact()];
        let found = slow::blame(bench.timeline, bench.config, &windows);
        facts.extend(found.into_iter().filter(|fact| slow.base_from == HostTime::NONE || !self.explains(bench, fact)));
        if slow.base_from != HostTime::NONE {
            network::without_known(&mut facts, &self.slow_nics(onset));
        }
        let from = onset - PAUSE_MARGIN_NS;
        facts.extend(slow::pauses(bench.timeline, bench.config, from, bench.timeline.newest_sample));
        let verdict = weigh::slowdown(bench.timeline, &facts, bench.config, onset, windows.iteration_ms);
        (verdict, facts)
    }
}
