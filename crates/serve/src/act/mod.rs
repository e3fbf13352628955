//! Actions against slowness: off unless asked for, written down before they are done, looked at afterwards, taken back where they
//! made things worse or where their reason is gone.
//!
//! ```text
//! request, policy -> plan (diagnose) -> audit log -> file -> effect -> kept | taken back
//! ```
//!
//! An action is a file: a division of micro-batches that ranks read, or a list of hosts that whoever starts the job reads
//! (`docs/formats/plan.md`). The server never touches the job itself.
mod back;
mod decide;
pub mod files;
mod make;
pub(crate) mod plan;
pub(crate) mod run;
mod step;
mod words;

use crate::api::{ActRequest, ActionJson, ActionsJson, AutoRequest, PlanJson, PlanRequest, PolicyJson, TimeJson};
use crate::book::CaseBook;
use crate::clock::Clock;
use axum::http::StatusCode;
use files::Written;
use make::{action, strikes};
use mycroft_diagnose::Report;
use mycroft_diagnose::mitigate::known::Asked;
use mycroft_diagnose::mitigate::rent::Strategy;
use mycroft_record::{HostTime, JobName, NANOS_PER_SEC};
use mycroft_store::meta::{ActionRow, PolicyRow};
use mycroft_store::{Store, StoreError};
use mycroft_wire::sync::lock;
use plan::{planned, told};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};
use step::Seen;
use tracing::{info, warn};
pub(crate) use words::Declined;
use words::{APPLIED, FAILED, KEPT, REPLACED, RESTART, SPLIT, conflict};

/// Actions kept in memory, the newest; all are in the store.
const ACTIONS_KEPT: usize = 1_000;
/// Jobs with a policy: as many as are diagnosed at once.
const POLICIES_MAX: usize = crate::core::JOBS_MAX;
/// Longest name of a job's folder: what a file system takes.
const FOLDER_BYTES_MAX: usize = 255;
fn not_said() -> Declined {
    (StatusCode::BAD_REQUEST, "plan: say at least how many micro-batches there are".to_owned())
}

/// Everything about actions that threads share.
pub(crate) struct Acts {
    /// Where files are written; `None`: nothing is ever done.
    dir: Option<PathBuf>,
    store: Option<Arc<Store>>,
    book: Arc<CaseBook>,
    clock: Clock,
    state: Mutex<State>,
    /// Rung when the thread has to stop.
    stop: Condvar,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    actions: Vec<ActionJson>,
    policies: BTreeMap<String, PolicyJson>,
    /// By number of the action.
    seen: BTreeMap<u64, Seen>,
    next: u64,
    is_closed: bool,
}

impl Acts {
    /// Reads what was done before.
    pub(crate) fn open(
        dir: Option<PathBuf>,
        store: Option<Arc<Store>>,
        book: &Arc<CaseBook>,
        clock: &Clock,
    ) -> Result<Acts, StoreError> {
        let mut state = State { next: 1, ..State::default() };
        if let Some(store) = &store {
            let rows = store.list_actions(ACTIONS_KEPT)?;
            state.next = rows.first().map_or(0, |row| row.id) + 1;
            state.actions = rows.iter().rev().filter_map(|row| serde_json::from_str(&row.json).ok()).collect();
            let policies = store.list_policies()?;
            let policies = policies.iter().filter_map(|row| serde_json::from_str::<PolicyJson>(&row.json).ok());
            state.policies = policies.map(|policy| (policy.job.clone(), policy)).collect();
        }
        let (book, clock) = (Arc::clone(book), Arc::clone(clock));
        Ok(Acts { dir, store, book, clock, state: Mutex::new(state), stop: Condvar::new() })
    }

    /// The audit log, newest first, of one job or of all.
    pub(crate) fn list(&self, job: Option<&str>, limit: usize) -> ActionsJson {
        let state = lock(&self.state);
        let is_wanted = |name: &str| job.is_none_or(|job| job == name);
        let mut found = state.actions.iter().rev().filter(|action| is_wanted(&action.job));
        let actions = found.by_ref().take(limit).cloned().collect();
        let policies = state.policies.values().filter(|policy| is_wanted(&policy.job)).cloned().collect();
        ActionsJson { actions, more: found.count() as u64, policies }
    }

    /// What the parameters say, with what the server itself knows where they say nothing; and what it knew, one sentence each.
    pub(crate) fn asked(&self, report: &Report, query: &PlanRequest) -> Result<(Asked, Vec<String>), String> {
        let mut asked = told(query)?;
        let mut sentences = Vec::new();
        let state = lock(&self.state);
        if let Some(action) = in_force(&state.actions, &report.job) {
            sentences.extend(goes_on_from(action, query, &mut asked));
        }
        if query.split_cost_s.is_none()
            && let Some((cost_ns, count)) = decide::learned_split_ns(&state.actions)
        {
            asked.costs.split_ns = cost_ns;
            let seconds = cost_ns as f64 / NANOS_PER_SEC as f64;
            sentences.push(format!("a division costs {seconds:.1} s, there and back: {count} were measured"));
        }
        if query.restart_cost_s.is_none()
            && let Some(cost_ns) = decide::learned_restart_ns(report)
        {
            asked.costs.restart_ns = cost_ns;
            let seconds = cost_ns / NANOS_PER_SEC;
            sentences.push(format!(
                "a restart costs {seconds} s, as one did before; iterations since the checkpoint are not in it"
            ));
        }
        asked.history = strikes(&self.book.all(), report);
        Ok((asked, sentences))
    }

    /// The report with what tests of suspects said, as the book has it.
    fn tested<'a>(&self, report: &'a Report) -> Cow<'a, Report> {
        let mut report = Cow::Borrowed(report);
        for at in 0..report.cases.len() {
            let booked = self.book.get(report.cases[at].id.0).filter(|booked| booked.validation.is_some());
            if let Some(booked) = booked {
                report.to_mut().cases[at].finding = booked.case.finding;
            }
        }
        report
    }

    /// The plan that is due.
    pub(crate) fn plan(&self, report: &Report, query: &PlanRequest) -> Result<PlanJson, Declined> {
        let report = &*self.tested(report);
        let (asked, sentences) = self.asked(report, query).map_err(|text| (StatusCode::BAD_REQUEST, text))?;
        let mut plan = planned(report, &asked)?;
        for sentence in sentences {
            plan.text.push_str(&format!("  known      {sentence}\n"));
            plan.assumed.push(sentence);
        }
        Ok(plan)
    }

    /// Does what was asked for.
    pub(crate) fn act(&self, report: &Report, request: &ActRequest) -> Result<ActionJson, Declined> {
        let report = &*self.tested(report);
        if request.take_back {
            let number = in_force(&lock(&self.state).actions, &report.job).map(|action| action.number);
            let number = number.ok_or_else(|| conflict("nothing is in force that could be taken back"))?;
            return self.take_back(number, &format!("asked for by {}", request.who), None);
        }
        let asked = request.plan.as_ref().ok_or_else(not_said)?;
        let plan = self.plan(report, asked)?;
        self.carry_out(report, asked, &plan, ("request", &request.who), request.again)
    }

    /// Says what may be done to a job without asking.
    pub(crate) fn allow(&self, job: &str, request: AutoRequest) -> Result<PolicyJson, Declined> {
        let bad = |text: String| Err((StatusCode::BAD_REQUEST, text));
        self.dir()?;
        match &request.plan {
            Some(plan) => told(plan).map(|_| ()).map_err(|text| (StatusCode::BAD_REQUEST, text))?,
            None if request.allow.is_empty() => {}
            None => return Err(not_said()),
        }
        if let Some(word) = request.allow.iter().find(|word| ![SPLIT, RESTART].contains(&word.as_str())) {
            return bad(format!("allow={word:?}: split and restart can be carried out by the server, nothing else"));
        }
        if !(0.0..=1.0).contains(&request.confidence) {
            return bad(format!("confidence={}: expected 0 to 1", request.confidence));
        }
        let at = TimeJson::exact((self.clock)());
        let policy = PolicyJson { job: job.to_owned(), at, asked: request, waits_for: String::new() };
        let mut state = lock(&self.state);
        if !state.policies.contains_key(job) && state.policies.len() >= POLICIES_MAX {
            return Err(conflict(format!("{POLICIES_MAX} jobs have a policy already")));
        }
        self.keep_policy(&policy)?;
        info!(job, allow = ?policy.asked.allow, "job {job:?}: {:?} may be done without asking, said {}", policy.asked.allow, policy.asked.who);
        state.policies.insert(job.to_owned(), policy.clone());
        Ok(policy)
    }

    /// Writes an action down, then does it, then writes down what came of it.
    fn carry_out(
        &self,
        report: &Report,
        request: &PlanRequest,
        plan: &PlanJson,
        (by, who): (&str, &str),
        again: bool,
    ) -> Result<ActionJson, Declined> {
        let folder = self.folder(&plan.job)?;
        let mut state = lock(&self.state);
        let action = action(report, request, plan, (by, who), (self.clock)())?;
        may_be_done(&state.actions, report, plan, &action, again)?;
        let file = if plan.strategy == SPLIT { folder.join("plan.json") } else { self.dir()?.join("exclusions.json") };
        let mut action = ActionJson { number: state.next, file: file.display().to_string(), ..action };
        let before = in_force(&state.actions, &report.job).filter(|_| plan.strategy == SPLIT).cloned();
        if let Some(before) = &before {
            // It ends when all of them are healthy again.
            let all: BTreeSet<&String> = action.hosts.iter().chain(&before.hosts).collect();
            action.hosts = all.into_iter().cloned().collect();
        }
        self.keep(&action)?;
        state.next += 1;
        let (reason, number) = (format!("action {}: {}", action.number, action.because), action.number);
        let made =
            std::fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()));
        let outcome = made.and_then(|()| {
            let written = match plan.strategy.as_str() {
                SPLIT => files::division(&file, &action.micro_batches, &reason),
                _ => files::exclusions(&file, &action.left_out),
            };
            written.map_err(|error| error.to_string())
        });
        let outcome = match outcome {
            Ok(Written::Already) if plan.strategy == RESTART => Err(format!("{} says so already", file.display())),
            Ok(_) => Ok(()),
            Err(text) => Err(text),
        };
        if let Err(text) = &outcome {
            FAILED.clone_into(&mut action.state);
            action.ended_at = Some(TimeJson::exact((self.clock)()));
            action.ended_because.clone_from(text);
            self.keep(&action)?;
        } else {
            info!(
                action = number,
                job = plan.job,
                "action {number} ({}, by {by} of {who}): {}",
                plan.strategy,
                action.because
            );
            state.seen.insert(number, Seen::from(report));
            if let Some(before) = before {
                self.end(&mut state, before, REPLACED, &format!("action {number} divides anew"));
            }
        }
        state.enter(action.clone());
        outcome.map(|()| action).map_err(conflict)
    }

    /// Writes an action into the audit log.
    fn keep(&self, action: &ActionJson) -> Result<(), Declined> {
        let Some(store) = &self.store else { return Ok(()) };
        let row = ActionRow {
            id: action.number,
            job: action.job.clone(),
            state: action.state.clone(),
            at: HostTime(action.at.ns),
            json: serde_json::to_string(action).unwrap_or_default(),
        };
        store.put_action(&row).map_err(|error| {
            let text = format!("the audit log cannot be written, and what is not in it is not done: {error}");
            warn!(action = action.number, "{text}");
            (StatusCode::SERVICE_UNAVAILABLE, text)
        })
    }

    fn keep_policy(&self, policy: &PolicyJson) -> Result<(), Declined> {
        let Some(store) = &self.store else { return Ok(()) };
        let row = PolicyRow { job: policy.job.clone(), json: serde_json::to_string(policy).unwrap_or_default() };
        let told = |error| (StatusCode::SERVICE_UNAVAILABLE, format!("the policy cannot be written down: {error}"));
        store.put_policy(&row).map_err(told)
    }

    fn dir(&self) -> Result<&PathBuf, Declined> {
        self.dir.as_ref().ok_or_else(|| conflict("this server only plans: start it with --act-dir to let it act"))
    }

    /// The folder of a job's files.
    fn folder(&self, job: &str) -> Result<PathBuf, Declined> {
        let name = folder_name(job);
        if name.len() > FOLDER_BYTES_MAX {
            return Err(conflict("the job's name is too long for a folder"));
        }
        Ok(self.dir()?.join(name))
    }
}

/// Why a plan is not carried out: what it made of this life of the job before, what is in force, what is listed already.
fn may_be_done(
    done: &[ActionJson],
    report: &Report,
    plan: &PlanJson,
    action: &ActionJson,
    again: bool,
) -> Result<(), Declined> {
    if let Some(number) = decide::made_worse(done, plan, &action.hosts, action.life).filter(|_| !again) {
        return Err(conflict(format!(
            "action {number} did the same and made this job slower: not done again unless asked to"
        )));
    }
    if let Some(number) = decide::lists_already(done, plan, report.as_of).filter(|_| plan.strategy == RESTART && !again)
    {
        return Err(conflict(format!("action {number} lists these hosts already: restart the job without them")));
    }
    if plan.strategy == SPLIT
        && let Some(other) = in_force(done, &report.job).filter(|other| other.state == APPLIED)
    {
        return Err(conflict(format!(
            "action {} is in force, and its effect is not known yet: wait, or take it back first",
            other.number
        )));
    }
    Ok(())
}

impl State {
    /// Enters or replaces an action.
    fn enter(&mut self, action: ActionJson) {
        match self.actions.iter_mut().find(|known| known.number == action.number) {
            Some(known) => *known = action,
            None => self.actions.push(action),
        }
        while self.actions.len() > ACTIONS_KEPT
            && let Some(oldest) = self.actions.iter().position(|action| !is_in_force(action))
        {
            self.actions.remove(oldest);
        }
    }
}

/// What a plan goes on from where a division is in force, in a sentence. Its effect has to be known first.
fn goes_on_from(action: &ActionJson, query: &PlanRequest, asked: &mut Asked) -> Option<String> {
    if action.state == APPLIED {
        asked.done = if query.done.is_none() { Strategy::Split } else { asked.done };
        return Some(format!("action {} is in force, and its effect is not known yet", action.number));
    }
    asked.divided.clone_from(&action.micro_batches);
    asked.answered = Some(HostTime(action.at.ns));
    asked.healthy_ms = asked.healthy_ms.or(action.healthy_ms);
    Some(format!(
        "action {} divides micro-batches as {:?}: plans go on from there",
        action.number, action.micro_batches
    ))
}

fn is_in_force(action: &ActionJson) -> bool {
    [APPLIED, KEPT].contains(&action.state.as_str())
}

fn in_force<'a>(actions: &'a [ActionJson], job: &JobName) -> Option<&'a ActionJson> {
    actions.iter().rev().find(|action| action.job == **job && is_in_force(action))
}

/// A job's name as the name of a folder: letters, digits, `-` and `_` stay, and dots but the first character.
fn folder_name(job: &str) -> String {
    let each = job.bytes().enumerate().map(|(at, byte)| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => char::from(byte).to_string(),
        b'.' if at > 0 => ".".to_owned(),
        other => format!("%{other:02X}"),
    });
    each.collect()
}
