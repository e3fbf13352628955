//! The thread that looks at what is in force, and does what policies allow.
use super::decide::forbids;
use super::step::{Seen, Step, step};
use super::words::{BY_POLICY, Declined, KEPT};
use super::{Acts, in_force, is_in_force};
use crate::command::Command;
use crate::error::ServeError;
use crate::inbox::Inbox;
use crate::thread::spawn;
use mycroft_diagnose::Report;
use mycroft_record::JobName;
use mycroft_wire::sync::lock;
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::warn;

/// How often the thread looks: a report of 10,240 ranks costs some milliseconds, an action seconds of the job.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Starts the thread.
pub(crate) fn start(acts: Arc<Acts>, inbox: Arc<Inbox>) -> Result<JoinHandle<()>, ServeError> {
    spawn("mycroft-acts", move || {
        while acts.sleep() {
            for job in acts.jobs() {
                let (reply, answer) = oneshot::channel();
                if inbox.ask(Command::Report { job: job.as_str().into(), reply })
                    && let Ok(Some(report)) = answer.blocking_recv()
                {
                    acts.look(&report);
                }
            }
        }
    })
}

impl Acts {
    /// Ends the thread.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.stop.notify_all();
    }

    /// Waits until the next look; false: the thread ends.
    fn sleep(&self) -> bool {
        let waited = self.stop.wait_timeout_while(lock(&self.state), LOOK_EVERY, |state| !state.is_closed);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_closed
    }

    /// Jobs that have something in force, or a policy.
    fn jobs(&self) -> BTreeSet<String> {
        let state = lock(&self.state);
        let acted = state.actions.iter().filter(|action| is_in_force(action)).map(|action| action.job.clone());
        let allowed = state.policies.values().filter(|policy| !policy.asked.allow.is_empty());
        acted.chain(allowed.map(|policy| policy.job.clone())).collect()
    }

    /// Looks at one job.
    pub(crate) fn look(&self, report: &Report) {
        match self.next_of(report) {
            Some((number, Step::TakeBack { because, after_ms })) => {
                if let Err((_, text)) = self.take_back(number, &because, after_ms) {
                    self.complain(number, text);
                }
            }
            Some((number, Step::Measured { after_ms, cost_ms, effect })) => {
                let mut state = lock(&self.state);
                if let Some(action) = state.actions.iter_mut().find(|action| action.number == number) {
                    (action.after_ms, action.cost_ms) = (Some(after_ms), Some(cost_ms));
                    effect.as_str().clone_into(&mut action.effect);
                    KEPT.clone_into(&mut action.state);
                    // Said in the log if it fails; the action itself is written down.
                    let _ = self.keep(action);
                }
            }
            Some((_, Step::Wait)) => {}
            // Another fault may ask for more.
            Some((_, Step::Stands)) | None => self.by_policy(report),
        }
    }

    /// Says in the log why an action cannot be taken back: once, not at every look.
    fn complain(&self, number: u64, text: String) {
        if let Some(seen) = lock(&self.state).seen.get_mut(&number).filter(|seen| seen.complaint != text) {
            warn!(action = number, "action {number} cannot be taken back, and is tried again: {text}");
            seen.complaint = text;
        }
    }

    /// What comes next of the action that is in force.
    fn next_of(&self, report: &Report) -> Option<(u64, Step)> {
        let mut state = lock(&self.state);
        let action = in_force(&state.actions, &report.job)?.clone();
        let seen = state.seen.entry(action.number).or_insert_with(|| Seen::from(report));
        Some((action.number, step(&action, seen, report)))
    }

    /// Does what is due, where it is allowed.
    fn by_policy(&self, report: &Report) {
        let report = &*self.tested(report);
        let job: &JobName = &report.job;
        let (policy, done) = {
            let state = lock(&self.state);
            let Some(policy) = state.policies.get(&**job).filter(|policy| !policy.asked.allow.is_empty()) else {
                return;
            };
            (policy.clone(), state.actions.clone())
        };
        let Some(asked) = &policy.asked.plan else { return };
        let outcome = self.plan(report, asked).and_then(|plan| {
            if plan.strategy == "ignore" {
                return Ok(String::new());
            }
            if let Some(why) = forbids(&policy, &done, &plan, report) {
                return Ok(why);
            }
            let by = (BY_POLICY, policy.asked.who.as_str());
            self.carry_out(report, asked, &plan, by, false).map(|_| String::new())
        });
        let waits_for = outcome.unwrap_or_else(|(_, text): Declined| text);
        if let Some(policy) = lock(&self.state).policies.get_mut(&**job) {
            policy.waits_for = waits_for;
        }
    }
}
