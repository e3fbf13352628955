//! The book of cases: every case this server knows, under its own number, for readers, alerts and the disk.
use crate::case::{BookState, BookedCase, Capture, Note, Validation};
pub(crate) use crate::feed::Change;
use crate::feed::Feed;
use mycroft_record::{HostTime, JobName};
use mycroft_store::meta::SHARED_FROM;
use mycroft_wire::sync::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Cases kept in memory; older ones that are not open stay on disk only. At 20 KB a case (a hang of 1,000 ranks names
/// them all in its blast radius) 20 MB.
pub(crate) const CASES_KEPT: usize = 1_000;

/// Captures that a case gains from: one automatic, and those of people who look at it.
const CASE_CAPTURES_MAX: usize = 8;

/// What people say of a case at most: of more nobody reads.
const CASE_NOTES_MAX: usize = 100;

/// Why a note is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotTaken {
    /// No case of that number is in memory.
    NoCase,
    /// It is not open any more: only a text can be added.
    NotOpen,
    /// It has as many as are kept.
    TooMany,
}

/// Which cases a reader wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    /// Only of this job.
    pub(crate) job: Option<JobName>,
    /// Only in this state; `None`: all but withdrawn ones.
    pub(crate) state: Option<BookState>,
}

/// The book.
pub(crate) struct CaseBook {
    inner: Mutex<Inner>,
    feed: Feed,
    changed: Condvar,
}

struct Inner {
    cases: BTreeMap<u64, BookedCase>,
    unwritten: BTreeSet<u64>,
    next: u64,
    closed: bool,
}

impl CaseBook {
    /// A book with the cases of an earlier run as they were left, and the highest number ever given.
    pub(crate) fn reopen(old: Vec<BookedCase>, highest: u64) -> CaseBook {
        let next = old.iter().map(|case| case.number).max().unwrap_or(0).max(highest).saturating_add(1);
        let cases = old.into_iter().map(|case| (case.number, case)).collect();
        let inner = Inner { cases, unwritten: BTreeSet::new(), next, closed: false };
        CaseBook { inner: Mutex::new(inner), feed: Feed::new(), changed: Condvar::new() }
    }

    /// Fresh numbers come from `next` on, or further where more were given.
    pub(crate) fn go_on_at(&self, next: u64) {
        let mut inner = lock(&self.inner);
        inner.next = inner.next.max(next);
    }

    /// The number that the next case gets.
    pub(crate) fn next_number(&self) -> u64 {
        lock(&self.inner).next
    }

    /// Changes of cases, for readers that stay connected.
    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Every case, oldest first.
    pub(crate) fn all(&self) -> Vec<BookedCase> {
        lock(&self.inner).cases.values().cloned().collect()
    }

    /// A fresh number.
    pub(crate) fn number(&self) -> u64 {
        let mut inner = lock(&self.inner);
        inner.next += 1;
        inner.next - 1
    }

    /// Enters or replaces a case.
    pub(crate) fn put(&self, case: BookedCase) -> Change {
        let (mut case, mut inner) = (case, lock(&self.inner));
        if let Some(old) = inner.cases.get(&case.number) {
            case.take_over(old);
        }
        let change = match inner.cases.get(&case.number) {
            None if case.is_open() => Change::Opened,
            None => Change::Closed,
            Some(old) if old.is_open() && !case.is_open() => Change::Closed,
            Some(old) if case.case.revisions > old.case.revisions => Change::Revised,
            Some(old) if !old.is_settled() && case.is_settled() => Change::Settled,
            Some(_) => Change::Updated,
        };
        if change != Change::Updated {
            self.feed.add(change, &case);
        }
        inner.unwritten.insert(case.number);
        inner.cases.insert(case.number, case);
        inner.forget_oldest();
        drop(inner);
        self.changed.notify_all();
        change
    }

    /// Takes cases that another server had, as it left them.
    pub(crate) fn admit(&self, cases: Vec<BookedCase>) {
        let mut inner = lock(&self.inner);
        for case in cases {
            inner.cases.entry(case.number).or_insert(case);
        }
        inner.forget_oldest();
        drop(inner);
        self.changed.notify_all();
    }

    /// Lets the cases of jobs go that move from server to server with them: another writes them from now on.
    pub(crate) fn let_go(&self, jobs: &BTreeSet<JobName>) {
        if jobs.is_empty() {
            return;
        }
        let Inner { cases, unwritten, .. } = &mut *lock(&self.inner);
        cases.retain(|number, case| *number < SHARED_FROM || !jobs.contains(&case.job));
        unwritten.retain(|number| cases.contains_key(number));
    }

    /// Adds what a capture brought to a case. False: it is not known, or has gained enough.
    pub(crate) fn attach(&self, number: u64, capture: Capture, now: HostTime) -> bool {
        let mut inner = lock(&self.inner);
        let Some(case) = inner.cases.get_mut(&number).filter(|case| case.captures.len() < CASE_CAPTURES_MAX) else {
            return false;
        };
        case.gain(capture);
        case.case.updated_at = now;
        inner.unwritten.insert(number);
        drop(inner);
        self.changed.notify_all();
        true
    }

    /// Takes what a test of an open case's suspects said; `None` if it is not open.
    pub(crate) fn validate(&self, number: u64, told: impl FnOnce(&BookedCase) -> Validation) -> Option<BookedCase> {
        let mut inner = lock(&self.inner);
        let case = inner.cases.get_mut(&number).filter(|case| case.is_open())?;
        let validation = told(case);
        case.case.updated_at = validation.at;
        case.take_validation(validation);
        self.feed.add(Change::Validated, case);
        let case = case.clone();
        inner.unwritten.insert(number);
        drop(inner);
        self.changed.notify_all();
        Some(case)
    }

    /// Takes what somebody said of a case.
    pub(crate) fn note(&self, number: u64, note: Note) -> Result<BookedCase, NotTaken> {
        let mut inner = lock(&self.inner);
        let case = inner.cases.get_mut(&number).ok_or(NotTaken::NoCase)?;
        if !case.is_open() && (note.acknowledges || note.silent_until.is_some()) {
            return Err(NotTaken::NotOpen);
        }
        if case.notes.len() >= CASE_NOTES_MAX {
            return Err(NotTaken::TooMany);
        }
        case.case.updated_at = note.at;
        let change = if note.acknowledges { Change::Acknowledged } else { Change::Noted };
        case.notes.push(note);
        self.feed.add(change, case);
        let case = case.clone();
        inner.unwritten.insert(number);
        drop(inner);
        self.changed.notify_all();
        Ok(case)
    }

    /// Open cases of which alerts are withheld.
    pub(crate) fn silent(&self, now: HostTime) -> BTreeSet<u64> {
        lock(&self.inner).cases.values().filter(|case| case.is_silent(now)).map(|case| case.number).collect()
    }

    /// Ends an open case without its engine; `None` if it is not open.
    pub(crate) fn end(&self, number: u64, state: BookState, why: &str, now: HostTime) -> Option<BookedCase> {
        let mut case = self.get(number).filter(BookedCase::is_open)?;
        case.end(state, why, now);
        self.put(case.clone());
        Some(case)
    }

    /// One case.
    pub(crate) fn get(&self, number: u64) -> Option<BookedCase> {
        lock(&self.inner).cases.get(&number).cloned()
    }

    /// Cases that match, newest first, and how many were cut off by `limit`.
    pub(crate) fn list(&self, filter: &Filter, limit: usize) -> (Vec<BookedCase>, u64) {
        let inner = lock(&self.inner);
        let matches = |case: &&BookedCase| {
            filter.job.as_ref().is_none_or(|job| *job == case.job)
                && match filter.state {
                    Some(state) => state == case.state,
                    None => case.state != BookState::Withdrawn,
                }
        };
        let mut found = inner.cases.values().rev().filter(matches);
        let cases = found.by_ref().take(limit).cloned().collect();
        (cases, found.count() as u64)
    }

    /// Open cases, of one job or of all.
    pub(crate) fn open_count(&self, job: Option<&str>) -> u64 {
        let inner = lock(&self.inner);
        inner.cases.values().filter(|c| c.is_open() && job.is_none_or(|job| job == &*c.job)).count() as u64
    }

    /// Whether the disk has all cases in their newest form.
    pub(crate) fn is_written(&self) -> bool {
        lock(&self.inner).unwritten.is_empty()
    }

    /// Hands each case to `put` of which the disk does not have the newest form. From the first on that cannot be written all
    /// wait: a disk is not asked for each in turn.
    ///
    /// # Errors
    /// What `put` said.
    pub(crate) fn write_out<E>(&self, mut put: impl FnMut(&BookedCase) -> Result<(), E>) -> Result<(), E> {
        let unwritten = self.take_unwritten();
        for (at, case) in unwritten.iter().enumerate() {
            if let Err(error) = put(case) {
                unwritten[at..].iter().for_each(|case| self.unwritten_again(case.number));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Cases that the disk does not have yet in their newest form.
    pub(crate) fn take_unwritten(&self) -> Vec<BookedCase> {
        let mut inner = lock(&self.inner);
        let numbers = std::mem::take(&mut inner.unwritten);
        numbers.iter().filter_map(|number| inner.cases.get(number).cloned()).collect()
    }

    /// Gives back a case that could not be written.
    pub(crate) fn unwritten_again(&self, number: u64) {
        lock(&self.inner).unwritten.insert(number);
    }

    /// Waits until a case satisfies `wanted` (checked at every change), at most `timeout` or until the server stops.
    pub(crate) fn wait_for(&self, timeout: Duration, wanted: &dyn Fn(&BookedCase) -> bool) -> Option<BookedCase> {
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
            let oldest = self.cases.values().find(|c| !c.is_open() && !self.unwritten.contains(&c.number));
            let Some(case) = oldest.or_else(|| self.cases.values().find(|c| !c.is_open())) else {
                return; // All are open: they are real, and engines limit how many they open.
            };
            let number = case.number;
            self.cases.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{NEW_YEAR, example_case};
    use mycroft_diagnose::CaseId;

    /// One that cannot be written takes no others with it, which nothing may change again.
    #[test]
    fn cases_behind_one_that_cannot_be_written_wait_with_it() {
        let cases = (1..=3)
            .map(|number| BookedCase::of(number, &"train".into(), &example_case(CaseId(number), HostTime(NEW_YEAR))));
        let book = CaseBook::reopen(cases.collect(), 3);
        (1..=3).for_each(|number| book.unwritten_again(number));
        let write = |fails: u64| {
            let mut written = Vec::new();
            let outcome = book.write_out(|case| {
                if case.number == fails {
                    return Err("no room");
                }
                written.push(case.number);
                Ok(())
            });
            (outcome, written, book.is_written())
        };
        assert_eq!(write(2), (Err("no room"), vec![1], false));
        assert_eq!(write(0), (Ok(()), vec![2, 3], true));
    }
}
