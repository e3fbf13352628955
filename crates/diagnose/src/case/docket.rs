//! The docket: one fault, one case, from its first sign to its end.
use crate::blame::hang::{self, Held};
use crate::blame::{nic, slow};
use crate::case::advice;
use crate::case::weigh::{self, DECISIVE, Verdict};
use crate::case::{BlastEntry, Case, CaseEvent, CaseId, CaseState};
use crate::config::Config;
use crate::fact::{Fact, these, these_do};
use crate::timeline::{RankState, Timeline};
use crate::watch::{Seen, Slow, Stall, Watch};
use mycroft_record::{Category, Finding, HostName, HostTime, NANOS_PER_MS, NANOS_PER_SEC, Place, Rank, What};
use std::collections::VecDeque;

/// How much surer of one suspect than of another means anything.
const SURER: f64 = 0.05;
/// Cases kept; the oldest closed ones go first.
const CASES_MAX: usize = 256;
/// Reasons kept in a case.
const REASONS_MAX: usize = 24;
/// Arrows of the blast radius kept.
const BLAST_MAX: usize = 32;
/// Pauses remembered.
const PAUSES_MAX: usize = 64;
/// Deaths noticed this much later may still be the first: agents look every 100 ms and ship every 100 ms.
const FIRST_DEATH_NS: u64 = 500 * NANOS_PER_MS;
/// Confidence left in a stall's suspects once the stall has resolved itself.
const RESUMED_DOUBT: f64 = 0.5;
/// A rank that is gone this long while most others stay did not end with them.
const ALONE_NS: u64 = NANOS_PER_SEC;
/// A main thread that gets a tenth of a processor takes so long for a checkpoint of three seconds: no hang yet.
const STARVED_NS: u64 = 30 * NANOS_PER_SEC;
/// A pause leaves its marks in records that end this much around it.
const PAUSE_MARGIN_NS: u64 = NANOS_PER_SEC;

/// A stall that resolved itself, or a single long iteration.
#[derive(Clone, Debug)]
struct PauseSeen {
    from: HostTime,
    until: HostTime,
}

#[derive(Clone, Debug)]
struct Open {
    at: usize,
    /// Progress stopped at this time, in the records' clock; `NONE` for slowdowns.
    stalled_since: HostTime,
    onset: HostTime,
    /// Answer of the last check and how often it was the same.
    stable: usize,
    /// The usual iteration, for the growth of pauses.
    base_ms: f64,
}

/// All cases of a job.
#[derive(Debug, Default)]
pub(crate) struct Docket {
    pub(crate) cases: Vec<Case>,
    pub(crate) transients: Vec<Case>,
    next_id: u64,
    open: Option<Open>,
    pauses: VecDeque<PauseSeen>,
}

/// What a step may look at.
pub(crate) struct Bench<'a> {
    pub timeline: &'a Timeline,
    pub config: &'a Config,
    pub watch: &'a Watch,
    pub seen: &'a Seen,
    pub now: HostTime,
}

impl Docket {
    pub(crate) fn has_open(&self) -> bool {
        self.open.is_some()
    }

    pub(crate) fn step(&mut self, bench: &Bench<'_>) -> Vec<CaseEvent> {
        let mut events = Vec::new();
        for (from, until, _) in &bench.seen.long {
            self.note_pause(*from, *until);
        }
        match self.open.clone() {
            None => events.extend(self.open_something(bench)),
            Some(open) => {
                events.extend(self.follow(bench, open));
                // The iteration that a pause ends is seen in the same look: nothing else may say again that it was slow.
                if let Some(CaseEvent::Withdrawn(_)) = events.last() {
                    events.extend(self.open_something(bench));
                }
            }
        }
        events
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

    fn open_something(&mut self, bench: &Bench<'_>) -> Option<CaseEvent> {
        if let Some((verdict, facts, blast)) = crash(bench) {
            let since = verdict.since;
            return Some(self.open_case(bench, verdict, &facts, blast, since));
        }
        if bench.timeline.ended_well() {
            return None;
        }
        if let Some(stall) = &bench.seen.stall {
            let (verdict, facts, blast) = stalled(bench, stall);
            return Some(self.open_case(bench, verdict, &facts, blast, stall.since));
        }
        if !bench.seen.fresh {
            return None;
        }
        if let Some(slow) = &bench.seen.slow {
            let (verdict, facts) = self.slowed(bench, slow, slow.onset);
            if verdict.category != Category::Unknown || Watch::beyond_doubt(bench.config, slow) {
                let event = self.open_case(bench, verdict, &facts, Vec::new(), HostTime::NONE);
                self.remember_base(slow.onset, slow.base_ms);
                return Some(event);
            }
        }
        let (verdict, facts) = self.paused(bench)?;
        let onset = verdict.since;
        let event = self.open_case(bench, verdict, &facts, Vec::new(), HostTime::NONE);
        self.remember_base(onset, bench.watch.iteration_ms().unwrap_or(0.0));
        Some(event)
    }

    fn remember_base(&mut self, onset: HostTime, base_ms: f64) {
        if let Some(open) = &mut self.open {
            open.onset = onset;
            open.base_ms = base_ms;
        }
    }

    fn open_case(
        &mut self,
        bench: &Bench<'_>,
        verdict: Verdict,
        facts: &[Fact],
        blast: Vec<BlastEntry>,
        stalled_since: HostTime,
    ) -> CaseEvent {
        self.next_id += 1;
        let id = CaseId(self.next_id);
        if self.cases.len() >= CASES_MAX {
            self.cases.remove(0);
        }
        let finding = Finding {
            what: verdict.what,
            category: verdict.category,
            suspects: verdict.suspects.clone(),
            since: verdict.since,
            detected_at: bench.now,
            diagnosed_at: HostTime::NONE,
        };
        self.cases.push(Case {
            id,
            state: CaseState::Open,
            finding,
            group: verdict.group,
            op: verdict.op,
            because: Vec::new(),
            blast_radius: Vec::new(),
            do_next: Vec::new(),
            opened_at: bench.now,
            updated_at: bench.now,
            closed_at: HostTime::NONE,
            closed_because: String::new(),
        });
        let at = self.cases.len() - 1;
        let onset = verdict.since;
        self.open = Some(Open { at, stalled_since, onset, stable: 0, base_ms: 0.0 });
        self.write(bench, verdict, facts, blast);
        CaseEvent::Opened(id)
    }

    /// Writes a verdict into the open case; `true` if it changed.
    fn write(&mut self, bench: &Bench<'_>, verdict: Verdict, facts: &[Fact], blast: Vec<BlastEntry>) -> bool {
        let Some(open) = &mut self.open else { return false };
        let case = &mut self.cases[open.at];
        // Two suspects that are as likely may take turns at the front of the list: that is no other verdict.
        let leads = |place: &Place| {
            let suspect = verdict.suspects.iter().find(|suspect| suspect.place == *place);
            suspect.is_some_and(|suspect| suspect.confidence + SURER >= verdict.confidence())
        };
        let still = match case.finding.suspects.first() {
            Some(before) => leads(&before.place),
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
        case.finding.suspects = verdict.suspects;
        case.group = verdict.group.or(case.group);
        case.op = verdict.op.or(case.op);
        let said = |fact: &&Fact| match fact {
            // A pause leaves marks in the neighbours' flows too: they are not the suspect's.
            Fact::ProxyPause { rank, .. } => case.finding.suspects.iter().any(|suspect| names(&suspect.place, *rank)),
            // What is as fast as before tells a suspect from those it exchanges data with.
            Fact::WireOther { from, to, .. } => case.finding.suspects.iter().any(|suspect| {
                matches!(&suspect.place, Place::Host { host } if host == from || host == to)
                    && matches!(
                        verdict.category,
                        Category::NetworkSend | Category::NetworkReceive | Category::NetworkCongestion
                    )
            }),
            _ => true,
        };
        let mut because: Vec<_> = facts.iter().filter(said).map(Fact::reason).collect();
        because.truncate(REASONS_MAX);
        case.because = because;
        if !blast.is_empty() {
            case.blast_radius = blast;
        }
        case.do_next = advice::steps(case.finding.what, case.finding.category, &case.finding.suspects);
        if !same || surer {
            case.updated_at = bench.now;
        }
        !same || surer
    }

    fn follow(&mut self, bench: &Bench<'_>, open: Open) -> Option<CaseEvent> {
        let case = &self.cases[open.at];
        let (id, what) = (case.id, case.finding.what);
        if bench.timeline.ended_well() {
            return Some(self.finish(bench, "the job ended in good order"));
        }
        if what == What::Crash {
            return self.follow_crash(bench, &open, id);
        }
        if let Some((verdict, facts, blast)) = crash(bench)
            && !case.finding.diagnosed_at.is_some()
        {
            return self.write(bench, verdict, &facts, blast).then_some(CaseEvent::Strengthened(id));
        }
        if what == What::Slowdown { self.follow_slow(bench, &open, id) } else { self.follow_stall(bench, &open, id) }
    }

    fn follow_crash(&mut self, bench: &Bench<'_>, open: &Open, id: CaseId) -> Option<CaseEvent> {
        let opened_at = self.cases[open.at].opened_at;
        if bench.now.since_ns(opened_at) <= FIRST_DEATH_NS {
            let (verdict, facts, blast) = crash(bench)?;
            return self.write(bench, verdict, &facts, blast).then_some(CaseEvent::Strengthened(id));
        }
        self.widen(bench, open);
        let anybody_dead = bench.timeline.leaving().any(|state| state.dead());
        if !anybody_dead && bench.seen.healthy_streak >= bench.config.recover_iterations {
            return Some(self.finish(bench, "the job runs again"));
        }
        None
    }

    /// Whoever waits for a dead rank comes to its wait when its own work is done: the radius grows until all stand still,
    /// and does not shrink when a launcher ends those who wait.
    fn widen(&mut self, bench: &Bench<'_>, open: &Open) {
        let gone: Vec<Rank> = bench.timeline.leaving().filter(|state| state.dead()).map(|state| state.rank).collect();
        let blast = blast_radius(hang::behind(bench.timeline, &gone));
        let waiting = |blast: &[BlastEntry]| blast.iter().map(|entry| entry.waiting.len()).sum::<usize>();
        let case = &mut self.cases[open.at];
        if waiting(&blast) > waiting(&case.blast_radius) {
            case.blast_radius = blast;
        }
    }

    fn follow_stall(&mut self, bench: &Bench<'_>, open: &Open, id: CaseId) -> Option<CaseEvent> {
        let anybody_dying = bench.timeline.leaving().any(|state| state.dead_since.is_some());
        if anybody_dying {
            return None; // whoever ends the job now is not what stopped it
        }
        if let Some(stall) = &bench.seen.stall {
            let (verdict, facts, blast) = stalled(bench, stall);
            let settled = self.cases[open.at].finding.diagnosed_at.is_some();
            let weaker =
                verdict.confidence() < self.cases[open.at].finding.suspects.first().map_or(0.0, |s| s.confidence);
            if settled && weaker {
                return None;
            }
            return self.write(bench, verdict, &facts, blast).then_some(CaseEvent::Strengthened(id));
        }
        let moved = bench.timeline.ranks.by_slot().iter().map(|state| state.progress_at).max().unwrap_or_default();
        if moved <= open.stalled_since {
            return None; // no samples at the moment: unknown, neither better nor worse
        }
        Some(self.resumed(bench, open, id, moved))
    }

    /// What looked like a stall went on.
    fn resumed(&mut self, bench: &Bench<'_>, open: &Open, id: CaseId, moved: HostTime) -> CaseEvent {
        let length = moved.since_ns(open.stalled_since);
        self.note_pause(open.stalled_since, moved);
        if let Some((verdict, facts)) = self.paused(bench) {
            self.write(bench, verdict, &facts, Vec::new());
        } else if length < bench.config.transient_ns {
            return self.withdraw(bench, open, id);
        } else {
            // What explained a stop may not explain why it goes on slowly: let better evidence take over.
            let finding = &mut self.cases[open.at].finding;
            finding.what = What::Slowdown;
            finding.suspects.iter_mut().for_each(|suspect| suspect.confidence *= RESUMED_DOUBT);
            self.cases[open.at].updated_at = bench.now;
        }
        let base_ms = bench.watch.iteration_ms().unwrap_or(0.0);
        self.remember_base(open.stalled_since, base_ms);
        CaseEvent::Strengthened(id)
    }

    fn withdraw(&mut self, bench: &Bench<'_>, open: &Open, id: CaseId) -> CaseEvent {
        let mut case = self.cases.remove(open.at);
        case.state = CaseState::Closed;
        case.closed_at = bench.now;
        case.updated_at = bench.now;
        case.closed_because = "a single pause that went away by itself".to_string();
        self.transients.push(case);
        if self.transients.len() > CASES_MAX {
            self.transients.remove(0);
        }
        self.open = None;
        CaseEvent::Withdrawn(id)
    }

    fn finish(&mut self, bench: &Bench<'_>, why: &str) -> CaseEvent {
        let at = self.open.take().map_or(self.cases.len() - 1, |open| open.at);
        let case = &mut self.cases[at];
        case.state = CaseState::Closed;
        case.closed_at = bench.now;
        case.updated_at = bench.now;
        case.closed_because = why.to_string();
        CaseEvent::Closed(case.id)
    }

    fn follow_slow(&mut self, bench: &Bench<'_>, open: &Open, id: CaseId) -> Option<CaseEvent> {
        if let Some(stall) = &bench.seen.stall
            && stall.waited_ns >= bench.config.transient_ns
        {
            let (verdict, facts, blast) = stalled(bench, stall);
            if stall.waited_ns < STARVED_NS && is_starved(&self.cases[open.at].finding, &verdict) {
                return None;
            }
            if let Some(open) = &mut self.open {
                open.stalled_since = stall.since;
            }
            return self.write(bench, verdict, &facts, blast).then_some(CaseEvent::Strengthened(id));
        }
        if !bench.seen.fresh {
            return None;
        }
        let last_pause = self.pauses.back().map_or(HostTime::NONE, |pause| pause.until);
        let pausing = self.cases[open.at].finding.category == Category::HostThread
            && bench.timeline.newest_sample.since_ns(last_pause) < bench.config.pause_window_ns / 2;
        if bench.seen.healthy_streak >= bench.config.recover_iterations && !pausing {
            return Some(self.finish(bench, "iterations are as fast as before"));
        }
        let (verdict, facts) = match &bench.seen.slow {
            Some(slow) => self.slowed(bench, slow, open.onset.min(slow.onset)),
            None => self.paused(bench)?,
        };
        let weaker =
            verdict.confidence() + 0.05 < self.cases[open.at].finding.suspects.first().map_or(0.0, |s| s.confidence);
        if verdict.category == Category::Unknown || (weaker && self.cases[open.at].finding.diagnosed_at.is_some()) {
            return None;
        }
        self.write(bench, verdict, &facts, Vec::new()).then_some(CaseEvent::Strengthened(id))
    }

    fn slowed(&self, bench: &Bench<'_>, slow: &Slow, onset: HostTime) -> (Verdict, Vec<Fact>) {
        let iteration_ms = slow.now_ms - slow.base_ms;
        let windows = slow::Windows { onset, until: slow.until, iteration_ms };
        let mut facts = vec![Fact::SlowIterations {
            base_ms: slow.base_ms,
            now_ms: slow.now_ms,
            factor: slow.factor,
            slow: slow.slow,
            of: slow.of,
            since: onset,
            why: slow.why.clone(),
        }];
        facts.extend(slow::blame(bench.timeline, bench.config, &windows));
        let from = onset - PAUSE_MARGIN_NS;
        facts.extend(slow::pauses(bench.timeline, bench.config, from, bench.timeline.newest_sample));
        let verdict = weigh::slowdown(bench.timeline, &facts, bench.config, onset, iteration_ms);
        (verdict, facts)
    }

    /// Pauses that recur and name the same rank.
    fn paused(&self, bench: &Bench<'_>) -> Option<(Verdict, Vec<Fact>)> {
        let oldest = bench.timeline.newest_sample - bench.config.pause_window_ns;
        let recent: Vec<&PauseSeen> = self.pauses.iter().filter(|pause| pause.until >= oldest).collect();
        if recent.len() < 2 {
            return None;
        }
        let mut facts = Vec::new();
        let mut last = HostTime::NONE;
        for pause in &recent {
            let from = (pause.from - PAUSE_MARGIN_NS).max(last);
            let until = pause.until + PAUSE_MARGIN_NS;
            facts.extend(slow::pauses(bench.timeline, bench.config, from, until));
            last = until + 1;
        }
        let first = recent[0].from;
        let mean_ms = bench.config.pause_ns as f64 / 1e6;
        let verdict = weigh::slowdown(bench.timeline, &facts, bench.config, first, mean_ms);
        (verdict.category == Category::HostThread).then_some((verdict, facts))
    }
}

/// A process is gone that had operations in flight, or that others wait for.
fn crash(bench: &Bench<'_>) -> Option<(Verdict, Vec<Fact>, Vec<BlastEntry>)> {
    let waited_for = |rank: Rank| {
        bench.timeline.graph().nodes.values().any(|waits| {
            let concerns = waits.inside.contains(&rank) || waits.missing.iter().any(|(missing, _)| *missing == rank);
            concerns
                && waits.inside.iter().any(|other| bench.timeline.ranks.get(other).is_some_and(|state| state.alive))
        })
    };
    bench.timeline.leaving().next()?;
    // Programs that end without finalizing leave together; one that leaves alone leaves the others in the lurch.
    let all = bench.timeline.ranks.by_slot();
    let others_stay = all.iter().filter(|state| state.alive).count() * 2 > all.len();
    let alone = |since: HostTime| others_stay && bench.timeline.newest_sample.since_ns(since) >= ALONE_NS;
    let gone: Vec<&RankState> = bench.timeline.leaving().filter(|state| state.dead()).collect();
    // Where one of them leaves others in the lurch, those that went with it did not end well either.
    let felt = |state: &&RankState| !state.live.is_empty() || waited_for(state.rank) || alone(state.dead_since);
    if !gone.iter().any(felt) {
        return None;
    }
    let facts: Vec<Fact> = gone
        .iter()
        .map(|state| Fact::Dead {
            rank: state.rank,
            host: state.host.clone(),
            at: state.dead_since,
            in_flight: state.live.len() as u32,
        })
        .collect();
    let since = gone.iter().map(|state| state.dead_since).min()?;
    let verdict = weigh::hang(bench.timeline, &facts, since);
    let gone: Vec<Rank> = gone.iter().map(|state| state.rank).collect();
    let blast = blast_radius(hang::behind(bench.timeline, &gone));
    Some((verdict, facts, blast))
}

//= mycroft 5.2
fn stalled(bench: &Bench<'_>, stall: &Stall) -> (Verdict, Vec<Fact>, Vec<BlastEntry>) {
    let found = hang::blame(bench.timeline, bench.timeline.graph(), bench.config, &stall.waiting);
    let mut facts = vec![bench.watch.stall_fact(bench.timeline, bench.config, stall)];
    facts.extend(found.facts);
    facts.extend(nic::down(bench.timeline));
    let verdict = weigh::hang(bench.timeline, &facts, stall.since);
    (verdict, facts, blast_radius(found.path))
}

/// Operations that are waited in, as entries of a case.
fn blast_radius(path: Vec<Held>) -> Vec<BlastEntry> {
    path.into_iter()
        .take(BLAST_MAX)
        .map(|Held { op, waiting, waits_for }| {
            let text = if waits_for.is_empty() {
                format!("{} in {}", these_do(&waiting, "is", "are"), op.label)
            } else {
                format!("{} in {} for {}", these_do(&waiting, "waits", "wait"), op.label, these(&waits_for))
            };
            BlastEntry { waiting, waits_for, op: Some(op.meta.id), kind: Some(op.meta.kind), text }
        })
        .collect()
}

/// Whether a stall is more of what the case says: the threads of a whole host get the processor seldom, and now its ranks
/// are late to issue as well.
fn is_starved(finding: &Finding, stall: &Verdict) -> bool {
    let is_named = |host: &HostName| {
        finding.suspects.iter().any(|named| matches!(&named.place, Place::Host { host: other } if other == host))
    };
    finding.category == Category::HostThread
        && stall.category == Category::NotStarted
        && stall.suspects.iter().all(|suspect| match &suspect.place {
            Place::Rank { host, .. } | Place::Host { host } => is_named(host),
            Place::Link { .. } => false,
        })
}

/// Whether a place is this rank.
fn names(place: &Place, wanted: Rank) -> bool {
    matches!(place, Place::Rank { rank, .. } if *rank == wanted)
}
