//! One job: its engine behind a guard, and what the server itself knows of it.
use crate::api::{CaveatJson, JobJson, LifeJson, TimeJson};
use crate::census::Census;
use crate::series::{JobSeries, stands_since, us};
use mycroft_diagnose::operations::{Operations, Wanted};
use mycroft_diagnose::{Case, CaseEvent, CaseId, CaseState, Caveat, Engine, Life, Measured, Report};
use mycroft_record::{Batch, HostName, HostTime, JobName, NANOS_PER_SEC, ProcessKey, Record};
use mycroft_store::series::SeriesRows;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Times an engine may fail before diagnosis of its job is switched off: a defect that comes back three times is in
/// the data, and each restart costs the job its baselines.
pub(crate) const ENGINE_PANICS_MAX: u32 = 3;
/// Processes counted per job: 100,000 ranks, each restarted twice.
const MEMBERS_MAX: usize = 300_000;
/// Iterations in the small picture beside a job.
const SPARK_MAX: usize = 60;
/// A job or agent that sent nothing for so long counts as silent: a hundred shipping periods of 100 ms.
pub(crate) const SILENT_NS: u64 = 10 * NANOS_PER_SEC;

/// What the loop needs of an engine; tests put a failing one behind it.
pub(crate) trait Brain: Send {
    /// See [`Engine::observe`].
    fn observe(&mut self, batch: &Batch);
    /// See [`Engine::tick`].
    fn tick(&mut self, now: HostTime) -> Vec<CaseEvent>;
    /// See [`Engine::next_check`].
    fn next_check(&self, now: HostTime) -> Option<HostTime>;
    /// See [`Engine::report`].
    fn report(&self, now: HostTime) -> Report;
    /// See [`Engine::cases`].
    fn cases(&self) -> &[Case];
    /// See [`Engine::lives`].
    fn lives(&self) -> &[Life];
    /// See [`Engine::take_measured`].
    fn take_measured(&mut self) -> Measured;
    /// See [`Engine::operations`].
    fn operations(&self, wanted: &Wanted) -> Operations;
}

impl Brain for Engine {
    fn observe(&mut self, batch: &Batch) {
        Engine::observe(self, batch);
    }
    fn tick(&mut self, now: HostTime) -> Vec<CaseEvent> {
        Engine::tick(self, now)
    }
    fn next_check(&self, now: HostTime) -> Option<HostTime> {
        Engine::next_check(self, now)
    }
    fn report(&self, now: HostTime) -> Report {
        Engine::report(self, now)
    }
    fn cases(&self) -> &[Case] {
        Engine::cases(self)
    }
    fn lives(&self) -> &[Life] {
        Engine::lives(self)
    }
    fn take_measured(&mut self) -> Measured {
        Engine::take_measured(self)
    }
    fn operations(&self, wanted: &Wanted) -> Operations {
        Engine::operations(self, wanted)
    }
}

/// Makes the engine of a job.
pub(crate) type BrainMaker = Arc<dyn Fn(&JobName) -> Box<dyn Brain> + Send + Sync>;

/// What a tick changed.
#[derive(Default)]
pub(crate) struct Changes {
    /// What the engine said, with its own numbers of cases.
    pub(crate) events: Vec<CaseEvent>,
    /// Cases that the engine took back.
    pub(crate) withdrawn: Vec<CaseId>,
    /// Cases that are new or different.
    pub(crate) changed: Vec<Case>,
}

/// What tells whether a case is different.
type Stamp = (CaseState, HostTime, HostTime);

fn stamp(case: &Case) -> Stamp {
    (case.state, case.updated_at, case.finding.diagnosed_at)
}

/// The engine failed: what it said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failed(pub(crate) String);

/// One job.
pub(crate) struct Job {
    name: JobName,
    brain: Option<Box<dyn Brain>>,
    panics: u32,
    first_seen: HostTime,
    /// When its last batch arrived, server clock.
    pub(crate) last_seen: HostTime,
    census: Census,
    /// By process first: numbers are compared faster than names.
    processes: BTreeSet<(ProcessKey, HostName)>,
    records: u64,
    lost: u64,
    queue_lost: u64,
    /// Server's number of each case of the present engine.
    numbers: BTreeMap<CaseId, u64>,
    /// What of each case was seen last.
    stamps: BTreeMap<CaseId, Stamp>,
    /// Its lives as of the last look.
    lives: Vec<Life>,
    series: JobSeries,
    /// When the engine wants to be asked before the regular tick, as of its last tick.
    pub(crate) check_at: Option<HostTime>,
    /// It has ended and no case is open, as of the last look: until something comes of it, another look finds nothing.
    pub(crate) rests: bool,
}

impl Job {
    /// A job whose first batch has just arrived, with what is known of its series.
    pub(crate) fn new(name: JobName, brain: Box<dyn Brain>, census: Census, series: JobSeries, now: HostTime) -> Job {
        Job {
            name,
            brain: Some(brain),
            panics: 0,
            first_seen: now,
            last_seen: now,
            census,
            processes: BTreeSet::new(),
            records: 0,
            lost: 0,
            queue_lost: 0,
            numbers: BTreeMap::new(),
            stamps: BTreeMap::new(),
            lives: Vec::new(),
            series,
            check_at: None,
            rests: false,
        }
    }

    /// Takes in a batch.
    pub(crate) fn observe(&mut self, batch: &Batch, now: HostTime) -> Result<(), Failed> {
        (self.last_seen, self.rests) = (now, false);
        self.records += batch.records.len() as u64;
        self.lost += batch.records.iter().map(|r| if let Record::Gap(gap) = r { gap.lost } else { 0 }).sum::<u64>();
        let Some(batch) = self.census.admit(batch) else { return Ok(()) };
        if let Some(process) = batch.source.process
            && self.processes.len() < MEMBERS_MAX
        {
            self.processes.insert((process, batch.source.host.clone()));
        }
        self.guarded(|brain| brain.observe(&batch)).map(|_| ())
    }

    /// Records that were not given to the engine because they name too much.
    pub(crate) fn not_kept(&self) -> u64 {
        self.census.not_kept()
    }

    /// The server itself dropped records of this job.
    pub(crate) fn note_queue_loss(&mut self, records: u64) {
        self.queue_lost += records;
    }

    /// Weighs everything and gives what changed. Asks also when to come back.
    pub(crate) fn tick(&mut self, now: HostTime) -> Result<Changes, Failed> {
        let mut stamps = std::mem::take(&mut self.stamps);
        let outcome = self.guarded(|brain| {
            let events = brain.tick(now);
            let told = |id: CaseId| events.iter().any(|event| id_of(*event) == id);
            // Also what no event tells, such as a case that settles without another change.
            let changed = brain
                .cases()
                .iter()
                .filter(|case| stamps.insert(case.id, stamp(case)) != Some(stamp(case)) || told(case.id));
            let changed = changed.cloned().collect();
            stamps.retain(|id, _| brain.cases().iter().any(|case| case.id == *id));
            let withdrawn = events.iter().filter_map(|event| match event {
                CaseEvent::Withdrawn(id) => Some(*id),
                _ => None,
            });
            let changes = Changes { withdrawn: withdrawn.collect(), changed, events };
            let stands = brain.cases().iter().filter_map(stands_since).min();
            let has_open = brain.cases().iter().any(|case| case.state == CaseState::Open);
            (changes, brain.next_check(now), brain.lives().to_vec(), (brain.take_measured(), stands, has_open))
        });
        self.stamps = stamps;
        let (changes, check_at, lives, (measured, stands_since, has_open)) = outcome?.unwrap_or_default();
        self.rests = !has_open && check_at.is_none() && lives.last().is_some_and(|life| life.ended.is_some());
        self.series.take(&measured);
        self.series.stand(stands_since, self.ranks(), now);
        (self.check_at, self.lives) = (check_at, lives);
        Ok(changes)
    }

    /// Its ranks: those that were measured last, or all that were seen.
    fn ranks(&self) -> u64 {
        Some(self.series.ranks.count()).filter(|count| *count > 0).unwrap_or(self.processes.len() as u64)
    }

    /// What its ranks have done lately; nothing without an engine.
    pub(crate) fn operations(&mut self, wanted: &Wanted) -> Result<Operations, Failed> {
        Ok(self.guarded(|brain| brain.operations(wanted))?.unwrap_or_default())
    }

    /// What of its series is over and was not asked for yet.
    pub(crate) fn unsaved(&mut self) -> Option<SeriesRows> {
        self.series.unsaved(&self.name)
    }

    /// The engine's cases, oldest first; none without an engine.
    pub(crate) fn cases(&mut self) -> Result<Vec<Case>, Failed> {
        Ok(self.guarded(|brain| brain.cases().to_vec())?.unwrap_or_default())
    }

    /// Its iterations, and where their time went.
    pub(crate) fn series(&self) -> &JobSeries {
        &self.series
    }

    /// What is known now, with the server's case numbers and its own caveats.
    pub(crate) fn report(&mut self, now: HostTime) -> Result<Report, Failed> {
        let report = self.guarded(|brain| brain.report(now))?;
        let mut report = report.unwrap_or_else(|| Report {
            job: self.name.clone(),
            as_of: now,
            lives: Vec::new(),
            cases: Vec::new(),
            transients: Vec::new(),
            caveats: Vec::new(),
            ranks: Vec::new(),
            iteration_ms_median: None,
            layout: Vec::new(),
            iteration_ms_spread: None,
            iterations: 0,
            thresholds: Vec::new(),
        });
        // One without a number ended before the server's last start, which did not know it: a relic of warming up.
        report.cases.retain_mut(|case| match self.numbers.get(&case.id) {
            Some(&number) => {
                case.id = CaseId(number);
                true
            }
            None => false,
        });
        report.caveats.extend(self.caveats());
        Ok(report)
    }

    /// The server's number of a case of the present engine, made by `fresh` when it has none.
    pub(crate) fn number(&mut self, id: CaseId, fresh: impl FnOnce() -> u64) -> u64 {
        *self.numbers.entry(id).or_insert_with(fresh)
    }

    /// The server's number of a case of the present engine, if it has one.
    pub(crate) fn known_number(&self, id: CaseId) -> Option<u64> {
        self.numbers.get(&id).copied()
    }

    /// Forgets the number of a case that its engine withdrew, and gives it.
    pub(crate) fn forget_number(&mut self, id: CaseId) -> Option<u64> {
        self.numbers.remove(&id)
    }

    /// Puts a new engine in place of a failed one, or none when it failed too often. Gives the numbers of the failed
    /// engine's cases, which nobody watches any more.
    pub(crate) fn replace_brain(&mut self, make: &BrainMaker) -> Vec<u64> {
        self.panics += 1;
        (self.check_at, self.rests) = (None, false);
        self.brain = None; // Before a new one is made: two engines of 100,000 ranks need not fit into memory.
        if self.panics <= ENGINE_PANICS_MAX {
            self.brain = Some(make(&self.name));
        }
        self.stamps.clear();
        std::mem::take(&mut self.numbers).into_values().collect()
    }

    /// Gives up the engine; the numbers of its cases.
    pub(crate) fn retire(self) -> Vec<u64> {
        self.numbers.into_values().collect()
    }

    /// What limits the diagnosis on the server's side.
    pub(crate) fn caveats(&self) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        if self.panics > 0 && self.brain.is_some() {
            let text = format!(
                "diagnosis of this job failed {} time(s) and was restarted: what was learned before is forgotten",
                self.panics
            );
            caveats.push(Caveat::new("server.engine-restarted", text));
        }
        if self.brain.is_none() {
            let text = format!(
                "diagnosis of this job is off: it failed {} times; records are still stored, restart the server to \
                 try again and send its log to the developers",
                self.panics
            );
            caveats.push(Caveat::new("server.engine-off", text));
        }
        if self.queue_lost > 0 {
            let text = format!(
                "the server dropped {} records of this job because it could not keep up: silence in that time means \
                 nothing",
                self.queue_lost
            );
            caveats.push(Caveat::new("server.queue-dropped", text));
        }
        if self.census.not_kept() > 0 {
            let text = format!(
                "{} records of this job were not diagnosed: they name more ranks, hosts, communicators or interfaces \
                 than this server keeps; check for agents that invent them",
                self.census.not_kept()
            );
            caveats.push(Caveat::new("server.limits", text));
        }
        caveats
    }

    /// The job as JSON.
    pub(crate) fn json(&self, now: HostTime, open_cases: u64) -> JobJson {
        let live = now.since_ns(self.last_seen) < SILENT_NS;
        let caveat = |c: Caveat| CaveatJson { rule: c.rule.to_owned(), text: c.text, ranks: Vec::new() };
        let lives: Vec<LifeJson> = self.lives.iter().map(LifeJson::of).collect();
        let ended = lives.last().filter(|life| !life.ended_how.is_empty()).cloned();
        let state = match (&ended, live) {
            (Some(_), _) => "ended",
            (None, true) => "live",
            (None, false) => "silent",
        };
        let (level_ms, healthy_ms) = self.series.iterations.levels();
        JobJson {
            name: self.name.to_string(),
            state: state.to_owned(),
            ended_at: ended.as_ref().and_then(|ended| ended.ended_at.clone()),
            ended_how: ended.as_ref().map(|ended| ended.ended_how.clone()).unwrap_or_default(),
            ended_because: ended.map(|ended| ended.ended_because).unwrap_or_default(),
            lives,
            first_seen_at: TimeJson::exact(self.first_seen),
            last_seen_at: TimeJson::exact(self.last_seen),
            hosts: self.census.hosts() as u64,
            processes: self.processes.len() as u64,
            records: self.records,
            lost: self.lost,
            open_cases,
            recent_iterations_us: self.series.iterations.newest(SPARK_MAX),
            iteration_us: level_ms.map(us),
            healthy_iteration_us: healthy_ms.map(us),
            lost_rank_s: self.series.lost_rank_s(self.ranks(), now) as u64,
            engine: if self.brain.is_some() { "running" } else { "off" }.to_owned(),
            caveats: self.caveats().into_iter().map(caveat).collect(),
        }
    }

    /// Runs the engine so that its panic ends here; `None` when there is no engine.
    ///
    /// Unwind safety: after a failure nobody looks at the engine again, `replace_brain` drops it whole.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut dyn Brain) -> T) -> Result<Option<T>, Failed> {
        let Some(brain) = &mut self.brain else { return Ok(None) };
        match catch_unwind(AssertUnwindSafe(|| work(brain.as_mut()))) {
            Ok(value) => Ok(Some(value)),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
                Err(Failed(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()))
            }
        }
    }
}

/// The case that an event is about.
pub(crate) fn id_of(event: CaseEvent) -> CaseId {
    match event {
        CaseEvent::Opened(id)
        | CaseEvent::Strengthened(id)
        | CaseEvent::Revised(id)
        | CaseEvent::Closed(id)
        | CaseEvent::Withdrawn(id) => id,
    }
}
