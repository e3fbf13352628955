//! How an action ends: taken back, or replaced by another division.
use super::words::{Declined, KEPT, REPLACED, TAKEN_BACK, conflict};
use super::{Acts, State, files};
use crate::api::{ActionJson, TimeJson};
use mycroft_diagnose::mitigate::split::evenly;
use mycroft_wire::sync::lock;
use std::path::PathBuf;
use tracing::info;

impl Acts {
    /// Ends an action that another one follows. Its row may fail to be written: the other's is there, and says the same.
    pub(super) fn end(&self, state: &mut State, mut action: ActionJson, how: &str, because: &str) {
        how.clone_into(&mut action.state);
        action.ended_at = Some(TimeJson::exact((self.clock)()));
        because.clone_into(&mut action.ended_because);
        let _ = self.keep(&action);
        state.seen.remove(&action.number);
        state.enter(action);
    }

    /// Writes the even division, or, where an action made the job slower, the one of before: whoever made that is in force again.
    pub(super) fn take_back(&self, number: u64, because: &str, after_ms: Option<f64>) -> Result<ActionJson, Declined> {
        let mut state = lock(&self.state);
        let known = state.actions.iter().find(|action| action.number == number).cloned();
        let mut action = known.ok_or_else(|| conflict(format!("no action {number}")))?;
        let reason = format!("action {number} is taken back: {because}");
        let file = PathBuf::from(&action.file);
        let total = action.micro_batches.iter().sum();
        let even = evenly(total, u32::try_from(action.micro_batches.len()).unwrap_or(u32::MAX));
        let to = if after_ms.is_some() { &action.micro_batches_before } else { &even };
        files::division(&file, to, &reason).map_err(|error| conflict(error.to_string()))?;
        if *to != even {
            self.in_force_again(&mut state, &action);
        }
        TAKEN_BACK.clone_into(&mut action.state);
        action.ended_at = Some(TimeJson::exact((self.clock)()));
        because.clone_into(&mut action.ended_because);
        if let Some(after_ms) = after_ms {
            action.after_ms = Some(after_ms);
            "worse".clone_into(&mut action.effect);
        }
        info!(action = number, job = action.job, "{reason}");
        let kept = self.keep(&action);
        state.seen.remove(&number);
        state.enter(action.clone());
        kept.map(|()| action)
    }

    /// The action that this one took the place of.
    fn in_force_again(&self, state: &mut State, after: &ActionJson) {
        let is_it = |action: &&mut ActionJson| action.job == after.job && action.state == REPLACED;
        let Some(before) = state.actions.iter_mut().rev().find(is_it) else { return };
        KEPT.clone_into(&mut before.state);
        before.ended_at = None;
        before.ended_because.clear();
        // Said in the log if it fails; the file says what holds.
        let _ = self.keep(before);
    }
}
