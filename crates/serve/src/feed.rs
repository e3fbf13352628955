//! What changed of cases, in order, for readers that stay connected: numbered, and kept for a while, so that whoever comes back misses
//! nothing.
use crate::case::BookedCase;
use mycroft_wire::sync::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// Changes kept: at 20 KB a case 10 MB; more than that in the time that a reader is away is an outage after which all is read anew.
const KEPT: usize = 500;

/// What a change of a case means to somebody who is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// It is new.
    Opened,
    /// Suspect and category are settled now.
    Settled,
    /// What it says changed after it had settled.
    Revised,
    /// It is not open any more.
    Closed,
    /// Somebody looks after it.
    Acknowledged,
    /// Somebody said something of it.
    Noted,
    /// Its suspects were tested.
    Validated,
    /// It is open, and alerts of it are not withheld any more.
    Unsilenced,
    /// Anything else.
    Updated,
}

impl Change {
    /// The stable word, as alerts carry it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Change::Opened => "opened",
            Change::Settled => "settled",
            Change::Revised => "revised",
            Change::Closed => "closed",
            Change::Acknowledged => "acknowledged",
            Change::Noted => "noted",
            Change::Validated => "validated",
            Change::Unsilenced => "unsilenced",
            Change::Updated => "updated",
        }
    }
}

/// A change, as readers are told.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) number: u64,
    pub(crate) change: Change,
    pub(crate) case: Arc<BookedCase>,
}

/// The changes.
pub(crate) struct Feed {
    inner: Mutex<VecDeque<Told>>,
    /// The number of the newest change; [`Feed::OVER`]: there are no more.
    newest: watch::Sender<u64>,
}

impl Feed {
    /// No change has this number: the server stops.
    pub(crate) const OVER: u64 = u64::MAX;

    /// Nothing yet.
    pub(crate) fn new() -> Feed {
        Feed { inner: Mutex::default(), newest: watch::channel(0).0 }
    }

    /// Adds a change.
    pub(crate) fn add(&self, change: Change, case: &BookedCase) {
        let mut inner = lock(&self.inner);
        let number = inner.back().map_or(1, |last| last.number + 1);
        inner.push_back(Told { number, change, case: Arc::new(case.clone()) });
        if inner.len() > KEPT {
            inner.pop_front();
        }
        drop(inner);
        self.newest.send_if_modified(|newest| *newest != Feed::OVER && std::mem::replace(newest, number) < number);
    }

    /// What came after a number, oldest first; `None`: some of it is not kept any more, or the number was never given.
    pub(crate) fn after(&self, number: u64) -> Option<Vec<Told>> {
        let inner = lock(&self.inner);
        let newest = inner.back().map_or(0, |last| last.number);
        let oldest = inner.front().map_or(1, |first| first.number);
        let is_kept = number <= newest && number + 1 >= oldest;
        is_kept.then(|| inner.iter().filter(|told| told.number > number).cloned().collect())
    }

    /// What came after a number and is kept, oldest first and at most so many, behind the count of those that are not kept any more.
    pub(crate) fn kept_after(&self, number: u64, max: usize) -> (u64, Vec<Told>) {
        let inner = lock(&self.inner);
        let lost = inner.front().map_or(0, |first| first.number.saturating_sub(number + 1));
        (lost, inner.iter().filter(|told| told.number > number).take(max).cloned().collect())
    }

    /// The number of the newest change, 0 before the first.
    pub(crate) fn newest(&self) -> u64 {
        lock(&self.inner).back().map_or(0, |last| last.number)
    }

    /// Tells of each newer number.
    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Sends all readers away.
    pub(crate) fn close(&self) {
        self.newest.send_replace(Feed::OVER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{NEW_YEAR, example_case};
    use mycroft_diagnose::CaseId;
    use mycroft_record::HostTime;

    #[test]
    fn whoever_comes_back_gets_what_he_missed_or_is_told_that_he_cannot() {
        let feed = Feed::new();
        let case = BookedCase::of(1, &"train".into(), &example_case(CaseId(1), HostTime(NEW_YEAR)));
        assert_eq!(feed.after(0).map(|told| told.len()), Some(0));
        assert!(feed.after(1).is_none(), "never given");
        for _ in 0..KEPT + 10 {
            feed.add(Change::Updated, &case);
        }
        let newest = feed.newest();
        assert_eq!(newest, KEPT as u64 + 10);
        let numbers = |after| feed.after(after).map(|told| told.iter().map(|told| told.number).collect::<Vec<u64>>());
        assert_eq!(numbers(newest - 2), Some(vec![newest - 1, newest]));
        assert_eq!(numbers(10).map(|told| told.len()), Some(KEPT));
        assert_eq!((numbers(9), numbers(newest + 1)), (None, None));
        let kept = |after, max| {
            let (lost, told) = feed.kept_after(after, max);
            (lost, told.iter().map(|told| told.number).collect::<Vec<u64>>())
        };
        assert_eq!(kept(4, 2), (6, vec![11, 12]), "5 to 10 are gone");
        assert_eq!(kept(10, 1), (0, vec![11]));
        assert_eq!(kept(newest, 1), (0, vec![]));
        let listener = feed.listen();
        feed.close();
        feed.add(Change::Updated, &case);
        assert_eq!(*listener.borrow(), Feed::OVER, "it stays closed");
    }
}
