//! Warm start: the newest stored batches through the engines before the first live one, as they arrived, so that what was
//! known when the server stopped is known again; and the cases of the earlier run are recognized.
use crate::case::BookedCase;
use mycroft_diagnose::{Case, CaseState, Said};
use mycroft_record::{HostTime, JobName, NANOS_PER_SEC};
use mycroft_store::{Delivery, StoreError};
use std::collections::{BTreeSet, VecDeque};

/// How far back the engines are fed: three hundred iterations of two seconds, many times what a baseline needs, and
/// less than the time after which a silent job is retired.
pub const WARM_NS: u64 = 10 * 60 * NANOS_PER_SEC;
/// Records fed at most, the newest: 2 Mi x about 200 bytes = 420 MB for a moment, and some seconds of one core.
const WARM_RECORDS: usize = 2 << 20;
/// What arrived further ahead of this server's clock is left out: each tenth of a second costs a look, and a clock that was
/// a year wrong would cost the whole start.
const AHEAD_NS: u64 = 60 * NANOS_PER_SEC;
/// How long a case that was open when the server stopped waits for its fault to show again: agents come back within
/// their longest pause of 2 s, tell their processes anew, and a stall is declared within two more; the rest is for
/// those that have a backlog to send first.
pub(crate) const ORPHAN_NS: u64 = 30 * NANOS_PER_SEC;
/// Onsets this close are the same fault: ticks of two runs need not fall on the same instants.
const SAME_ONSET_NS: u64 = 2 * NANOS_PER_SEC;

/// Those of `deliveries` that arrived within the last [`WARM_NS`] before `now`, in their order, and how many pieces could
/// not be read.
pub(crate) fn recent(
    deliveries: impl Iterator<Item = Result<Delivery, StoreError>>,
    now: HostTime,
) -> (Vec<Delivery>, usize) {
    let (mut kept, mut records, mut unreadable) = (VecDeque::new(), 0, 0);
    for delivery in deliveries {
        let Ok(delivery) = delivery else {
            unreadable += 1;
            continue;
        };
        if delivery.arrives_at < now - WARM_NS || delivery.arrives_at > now + AHEAD_NS {
            continue;
        }
        records += delivery.batch.records.len();
        kept.push_back(delivery);
        while records > WARM_RECORDS {
            let Some(oldest) = kept.pop_front() else { break };
            records -= oldest.batch.records.len();
        }
    }
    (Vec::from(kept), unreadable)
}

/// Cases of an earlier run, or of another server, that wait to be recognized.
pub(crate) struct Orphans {
    /// Each with the time by which the open ones that nobody recognized have ended.
    cases: Vec<(BookedCase, HostTime)>,
    /// Those whose number an engine of this run goes on with.
    adopted: BTreeSet<u64>,
}

impl Orphans {
    /// The cases of the earlier run, from `now` on.
    pub(crate) fn new(cases: Vec<BookedCase>, now: HostTime) -> Orphans {
        Orphans { cases: cases.into_iter().map(|case| (case, now + ORPHAN_NS)).collect(), adopted: BTreeSet::new() }
    }

    /// Those of another server wait beside.
    pub(crate) fn join(&mut self, other: Orphans) {
        self.cases.extend(other.cases);
        self.adopted.extend(other.adopted);
    }

    /// Those of these jobs are somebody else's.
    pub(crate) fn forget(&mut self, jobs: &BTreeSet<JobName>) {
        self.cases.retain(|(case, _)| !jobs.contains(&case.job));
    }

    /// The number under which this case is known already. An open case goes on under the number of an open one only; a
    /// closed one is looked for among the closed ones first.
    pub(crate) fn adopt(&mut self, job: &JobName, case: &Case) -> Option<u64> {
        let find = |open: bool, is_same: fn(&Case, &Case) -> bool| {
            let fits =
                |(old, _): &(BookedCase, _)| old.job == *job && old.is_open() == open && is_same(&old.case, case);
            self.cases.iter().rposition(fits)
        };
        // A closed one ended in records that the earlier run had taken but not weighed yet, or ended before it stopped.
        let index = match case.state == CaseState::Open {
            true => find(true, began_together).or_else(|| find(true, say_the_same)),
            false => find(false, began_together).or_else(|| find(true, began_together)),
        }?;
        let number = self.cases.remove(index).0.number;
        self.adopted.insert(number);
        Some(number)
    }

    /// Whether this number was given by an earlier run.
    pub(crate) fn is_adopted(&self, number: u64) -> bool {
        self.adopted.contains(&number)
    }

    /// Whether a case waits that has to be ended when nobody recognizes it.
    pub(crate) fn are_waiting(&self) -> bool {
        self.cases.iter().any(|(case, _)| case.is_open())
    }

    /// The open cases that nobody recognized, once their time is over.
    pub(crate) fn overdue(&mut self, now: HostTime) -> Vec<u64> {
        let over = self.cases.extract_if(.., |(_, until)| now >= *until);
        over.filter(|(case, _)| case.is_open()).map(|(case, _)| case.number).collect()
    }
}

/// Whether `old`, of an earlier run, and `new` are about the same fault because they began at the same time: of several
/// open cases of a job each has its own onset.
fn began_together(old: &Case, new: &Case) -> bool {
    old.finding.since.0.abs_diff(new.finding.since.0) <= SAME_ONSET_NS
}

/// The same because nothing that they say speaks against it.
fn say_the_same(old: &Case, new: &Case) -> bool {
    let (old, new) = (&old.finding, &new.finding);
    let who = (old.suspects.first(), new.suspects.first());
    let agree = if let (Some(old), Some(new)) = who { old.place == new.place } else { true };
    old.what == new.what && agree
}

/// Keeps of an adopted case what its first run knew better: when it was found, when it began, and what it was told to say: if
/// that had settled and is something else now, it is revised.
pub(crate) fn keep_beginning(new: &mut Case, old: &Case) {
    (new.revisions, new.said_before) = (old.revisions, old.said_before.clone());
    let said = Said::of(&old.finding, new.updated_at);
    if old.finding.diagnosed_at.is_some() && !said.is_said_by(&new.finding) {
        new.revised_from(said);
    }
    new.opened_at = old.opened_at;
    new.finding.detected_at = old.finding.detected_at;
    let (began, since) = (old.finding.since, &mut new.finding.since);
    if began.is_some() && (!since.is_some() || began < *since) {
        *since = began;
    }
}
