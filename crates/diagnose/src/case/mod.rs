//! Cases: the only place where facts of several rooms are weighed into one verdict (invariant 6).
pub(crate) mod advice;
mod crowd;
pub(crate) mod docket;
mod gain;
mod inside;
mod stop;
pub(crate) mod stuck;
pub(crate) mod weigh;

pub use gain::Gain;

use mycroft_record::{
    Category, ChannelId, CommId, CommRank, Direction, Finding, HostName, HostTime, OpId, OpKind, Place, Rank, Suspect,
    What,
};
use std::borrow::Cow;
use std::fmt;

pub(crate) fn host_place(host: &HostName) -> Place {
    Place::Host { host: host.clone() }
}

/// Number of a case; unique within a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CaseId(pub u64);

impl fmt::Display for CaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Whether a case still holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CaseState {
    /// The fault is still there.
    Open,
    /// The job recovered, or ended.
    Closed,
}

impl CaseState {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            CaseState::Open => "open",
            CaseState::Closed => "closed",
        }
    }
}

/// The record that shows what a reason says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Evidence {
    /// Whose record.
    pub rank: Option<Rank>,
    /// The operation it is about.
    pub op: Option<OpId>,
    /// The flow it is about: channel, peer, direction.
    pub flow: Option<(ChannelId, CommRank, Direction)>,
    /// The time in the record, host clock of that rank.
    pub at: HostTime,
}

/// A rule that fired, with the numbers it saw.
#[derive(Clone, PartialEq, Debug)]
pub struct Reason {
    /// Stable name of the rule, e.g. `hang.not-entered`; a case of an earlier run may name one that is no more.
    pub rule: Cow<'static, str>,
    /// One sentence with the numbers.
    pub text: String,
    /// The records that show it.
    pub evidence: Vec<Evidence>,
}

/// One arrow of the blast radius: who waits for whom.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BlastEntry {
    /// The ranks that wait.
    pub waiting: Vec<Rank>,
    /// The ranks they wait for.
    pub waits_for: Vec<Rank>,
    /// The operation they wait in.
    pub op: Option<OpId>,
    /// What it does.
    pub kind: Option<OpKind>,
    /// One phrase for people, e.g. `AllReduce DP_0 #17`.
    pub text: String,
}

/// One fault, from its first sign to its end.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// Its number.
    pub id: CaseId,
    /// Whether it still holds.
    pub state: CaseState,
    /// The verdict in one line.
    pub finding: Finding,
    /// The communicator in which the fault shows, if it shows in one.
    pub group: Option<CommId>,
    /// The operation in which it shows.
    pub op: Option<OpId>,
    /// The rules that fired.
    pub because: Vec<Reason>,
    /// Who waits for whom.
    pub blast_radius: Vec<BlastEntry>,
    /// Concrete next steps.
    pub do_next: Vec<String>,
    /// When it was opened (server's clock).
    pub opened_at: HostTime,
    /// When anything of it changed last.
    pub updated_at: HostTime,
    /// When it was closed; `NONE` while open.
    pub closed_at: HostTime,
    /// Why it was closed, empty while open.
    pub closed_because: String,
    /// How often it said something else after it had settled.
    pub revisions: u32,
    /// What it said before each revision, oldest first; the newest [`REVISIONS_KEPT`].
    pub said_before: Vec<Said>,
}

/// Revisions kept of a case. One is rare, and whoever reads about more than these wants the newest.
pub const REVISIONS_KEPT: usize = 8;

/// What a settled case said until it was revised.
#[derive(Clone, PartialEq, Debug)]
pub struct Said {
    /// When it was revised (server's clock).
    pub until: HostTime,
    /// What it said was wrong.
    pub what: What,
    /// The kind of fault that it gave.
    pub category: Category,
    /// Whom it named, most likely first.
    pub suspects: Vec<Suspect>,
}

impl Said {
    /// What a finding says, until `until`.
    pub fn of(finding: &Finding, until: HostTime) -> Said {
        let Finding { what, category, suspects, .. } = finding;
        Said { until, what: *what, category: *category, suspects: suspects.clone() }
    }

    /// Whether it is what a finding says: the same is wrong, of the same kind, and the same suspect is named first.
    pub fn is_said_by(&self, finding: &Finding) -> bool {
        let first = |suspects: &[Suspect]| suspects.first().map(|suspect| suspect.place.clone());
        self.what == finding.what
            && self.category == finding.category
            && first(&self.suspects) == first(&finding.suspects)
    }
}

impl Case {
    /// A new case of a finding, without a number, reasons and advice yet.
    pub(crate) fn of(finding: Finding) -> Case {
        let opened_at = finding.detected_at;
        Case {
            id: CaseId(0),
            state: CaseState::Open,
            finding,
            group: None,
            op: None,
            because: Vec::new(),
            blast_radius: Vec::new(),
            do_next: Vec::new(),
            opened_at,
            updated_at: opened_at,
            closed_at: HostTime::NONE,
            closed_because: String::new(),
            revisions: 0,
            said_before: Vec::new(),
        }
    }

    /// Notes that until now it said `said`, as settled, and does not any more.
    pub fn revised_from(&mut self, said: Said) {
        self.revisions += 1;
        self.said_before.push(said);
        if self.said_before.len() > REVISIONS_KEPT {
            self.said_before.remove(0);
        }
    }

    /// When it was revised last; `NONE`: never.
    pub fn revised_at(&self) -> HostTime {
        self.said_before.last().map_or(HostTime::NONE, |said| said.until)
    }
}

/// What a tick changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum CaseEvent {
    /// A case was opened.
    Opened(CaseId),
    /// Its suspect, category, confidence or reasons changed.
    Strengthened(CaseId),
    /// What is wrong, its category or its first suspect changed after they had settled.
    Revised(CaseId),
    /// The job recovered or ended.
    Closed(CaseId),
    /// It was a single pause that went away by itself: no longer in `cases()`, kept in `Report::transients`.
    Withdrawn(CaseId),
}
