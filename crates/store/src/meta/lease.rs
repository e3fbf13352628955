//! Leases: who of several servers has a job, for how long.
use mycroft_record::HostTime;

/// Who has a job, and until when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The job.
    pub job: String,
    /// Who has it.
    pub holder: String,
    /// Until when, by the database's clock.
    pub until: HostTime,
}

/// What became of a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Leased {
    /// Whoever asked has it.
    Ours(Lease),
    /// Another has it.
    Held(Lease),
    /// Nobody has it: it was over before it was renewed.
    Over,
}
