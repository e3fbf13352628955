//! Cases and jobs in SQLite: the small data that changes in place.
use mycroft_record::HostTime;

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
