//! The book of cases: every case this server knows, under its own number, for readers, alerts and the disk.
use crate::api::{CaseDumpJson, CaseJson, CasesJson, TimeJson};
use crate::sync::lock;
use mycroft_record::HostTime;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Cases kept in memory; older ones that are not open stay on disk only. At 20 KB a case (a hang of 1,000 ranks names
/// them all in its blast radius) 20 MB.
pub(crate) const CASES_KEPT: usize = 1_000;

/// Captures that a case gains from: one automatic, and those of people who look at it.
const CASE_DUMPS_MAX: usize = 8;

/// State word of a case that holds.
pub(crate) const OPEN: &str = "open";
/// State word of a case nobody watches any more.
pub(crate) const STALE: &str = "stale";
/// State word of a case that was one pause and went away.
pub(crate) const WITHDRAWN: &str = "withdrawn";

/// What a change of a case means to somebody who is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It is new.
    Opened,
    /// Suspect and category are settled now.
    Settled,
    /// It is not open any more.
    Closed,
    /// Anything else.
    Updated,
}

impl Change {
    /// The stable word, as alerts carry it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Change::Opened => "opened",
            Change::Settled => "settled",
            Change::Closed => "closed",
            Change::Updated => "updated",
        }
    }
}

/// Which cases a reader wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only of this job.
    pub(crate) job: Option<String>,
    /// Only in this state; `None`: all but withdrawn ones.
    pub(crate) state: Option<String>,
}

/// The book.
pub(crate) struct CaseBook {
    inner: Mutex<Inner>,
    changed: Condvar,
}

struct Inner {
    cases: BTreeMap<u64, CaseJson>,
    unwritten: BTreeSet<u64>,
    next: u64,
    closed: bool,
}

impl CaseBook {
    /// A book with the cases of an earlier run as they were left, and the highest number ever given.
    pub(crate) fn reopen(old: Vec<CaseJson>, highest: u64) -> CaseBook {
        let next = old.iter().map(|case| case.id).max().unwrap_or(0).max(highest).saturating_add(1);
        let cases = old.into_iter().map(|case| (case.id, case)).collect();
        let inner = Inner { cases, unwritten: BTreeSet::new(), next, closed: false };
        CaseBook { inner: Mutex::new(inner), changed: Condvar::new() }
    }

    /// Every case, oldest first.
    pub(crate) fn all(&self) -> Vec<CaseJson> {
        lock(&self.inner).cases.values().cloned().collect()
    }

    /// A fresh number.
    pub(crate) fn number(&self) -> u64 {
        let mut inner = lock(&self.inner);
        inner.next += 1;
        inner.next - 1
    }

    /// Enters or replaces a case.
    pub(crate) fn put(&self, case: CaseJson) -> Change {
        let (mut case, mut inner) = (case, lock(&self.inner));
        // An engine knows nothing of captures: each of its versions of a case gains them again.
        if case.dumps.is_empty()
            && let Some(old) = inner.cases.get(&case.id)
        {
            old.dumps.iter().for_each(|dump| case.gain(dump.clone()));
        }
        let change = match inner.cases.get(&case.id) {
            None if case.state == OPEN => Change::Opened,
            None => Change::Closed,
            Some(old) if old.state == OPEN && case.state != OPEN => Change::Closed,
            Some(old) if !old.settled && case.settled => Change::Settled,
            Some(_) => Change::Updated,
        };
        inner.unwritten.insert(case.id);
        inner.cases.insert(case.id, case);
        inner.forget_oldest();
        drop(inner);
        self.changed.notify_all();
        change
    }

    /// Adds what a capture brought to a case. False: it is not known, or has gained enough.
    pub(crate) fn attach(&self, id: u64, dump: CaseDumpJson, now: HostTime) -> bool {
        let mut inner = lock(&self.inner);
        let Some(case) = inner.cases.get_mut(&id).filter(|case| case.dumps.len() < CASE_DUMPS_MAX) else {
            return false;
        };
        case.gain(dump);
        case.updated_at = TimeJson::of(now);
        inner.unwritten.insert(id);
        drop(inner);
        self.changed.notify_all();
        true
    }

    /// Ends an open case without its engine; `None` if it is not open.
    pub(crate) fn end(&self, id: u64, state: &str, why: &str, now: HostTime) -> Option<CaseJson> {
        let mut case = self.get(id).filter(|case| case.state == OPEN)?;
        retire(&mut case, state, why, now);
        self.put(case.clone());
        Some(case)
    }

    /// One case.
    pub(crate) fn get(&self, id: u64) -> Option<CaseJson> {
        lock(&self.inner).cases.get(&id).cloned()
    }

    /// Cases that match, newest first.
    pub(crate) fn list(&self, filter: &Filter, limit: usize) -> CasesJson {
        let inner = lock(&self.inner);
        let matches = |case: &&CaseJson| {
            filter.job.as_ref().is_none_or(|job| *job == case.job)
                && match &filter.state {
                    Some(state) => *state == case.state,
                    None => case.state != WITHDRAWN,
                }
        };
        let mut found = inner.cases.values().rev().filter(matches);
        let cases: Vec<CaseJson> = found.by_ref().take(limit).cloned().collect();
        CasesJson { cases, more: found.count() as u64 }
    }

    /// Open cases, of one job or of all.
    pub(crate) fn open_count(&self, job: Option<&str>) -> u64 {
        let inner = lock(&self.inner);
        inner.cases.values().filter(|c| c.state == OPEN && job.is_none_or(|job| job == c.job)).count() as u64
    }

    /// Cases that the disk does not have yet in their newest form.
    pub(crate) fn take_unwritten(&self) -> Vec<CaseJson> {
        let mut inner = lock(&self.inner);
        let ids = std::mem::take(&mut inner.unwritten);
        ids.iter().filter_map(|id| inner.cases.get(id).cloned()).collect()
    }

    /// Gives back a case that could not be written.
    pub(crate) fn unwritten_again(&self, id: u64) {
        lock(&self.inner).unwritten.insert(id);
    }

    /// Waits until a case satisfies `wanted` (checked at every change), at most `timeout` or until the server stops.
    pub(crate) fn wait_for(&self, timeout: Duration, wanted: &dyn Fn(&CaseJson) -> bool) -> Option<CaseJson> {
        let absent = |inner: &mut Inner| !inner.closed && !inner.cases.values().any(wanted);
        let guard = lock(&self.inner);
        let (inner, _) =
            self.changed.wait_timeout_while(guard, timeout, absent).unwrap_or_else(PoisonError::into_inner);
        inner.cases.values().find(|case| wanted(case)).cloned()
    }

    /// Wakes everybody who waits: nothing changes any more.
    pub(crate) fn close(&self) {
        lock(&self.inner).closed = true;
        self.changed.notify_all();
    }
}

impl Inner {
    /// Drops the oldest written case that is not open while there are too many.
    fn forget_oldest(&mut self) {
        while self.cases.len() > CASES_KEPT {
            let oldest = self.cases.values().find(|c| c.state != OPEN && !self.unwritten.contains(&c.id));
            let Some(id) = oldest.or_else(|| self.cases.values().find(|c| c.state != OPEN)).map(|c| c.id) else {
                return; // All are open: they are real, and engines limit how many they open.
            };
            self.cases.remove(&id);
        }
    }
}

fn retire(case: &mut CaseJson, state: &str, why: &str, now: HostTime) {
    case.state = state.to_owned();
    case.closed_because = why.to_owned();
    case.updated_at = TimeJson::of(now);
    case.closed_at = TimeJson::of(now);
}
