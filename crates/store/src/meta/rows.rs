//! Rows that the database keeps, whichever it is.
#[cfg(feature = "postgres")]
use crate::series::StoredSeries;
use mycroft_record::HostTime;

/// Most rows a listing gives: a page of a user interface has far fewer.
pub(super) const MAX_LIST: usize = 100_000;

/// Numbers of cases from here on are unique in a database that several stores use: such a case may become another store's.
pub const SHARED_FROM: u64 = 1_000_000;

/// One case as the store keeps it. The text is the server's own JSON; the store does not read it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaseRow {
    /// Case number, unique within a job.
    pub id: u64,
    /// The job.
    pub job: String,
    /// State word, e.g. `open` or `closed`.
    pub state: String,
    /// When the case was opened.
    pub opened_at: HostTime,
    /// When it last changed.
    pub updated_at: HostTime,
    /// The whole case.
    pub json: String,
}

/// One action of the audit log: what was done to a job, why, and what came of it. The text is the server's own JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ActionRow {
    /// Number of the action, unique within a store.
    pub id: u64,
    /// The job.
    pub job: String,
    /// State word, e.g. `applied` or `taken-back`.
    pub state: String,
    /// When it was decided.
    pub at: HostTime,
    /// The whole action.
    pub json: String,
}

/// What may be done to a job without asking. The text is the server's own JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyRow {
    /// The job.
    pub job: String,
    /// The whole policy.
    pub json: String,
}

/// All that a database holds, to be put into another.
#[cfg(feature = "postgres")]
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Rows {
    pub(crate) cases: Vec<CaseRow>,
    pub(crate) actions: Vec<ActionRow>,
    pub(crate) policies: Vec<PolicyRow>,
    /// By job.
    pub(crate) series: Vec<(String, StoredSeries)>,
}
