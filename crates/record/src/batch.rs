//! Batches: what an agent ships and a store keeps, and where each comes from.
use crate::ids::{HostName, JobName, Rank};
use crate::record::Record;
use crate::time::HostTime;
use std::borrow::Borrow;

/// One traced process: unique within a host for ever (the nonce is random per attach).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ProcessKey {
    /// Global rank in the job, `Rank::UNKNOWN` where nobody told.
    pub rank: Rank,
    /// Process id on its host.
    pub pid: u32,
    /// Random number the probe drew when it attached; tells a restarted rank from its predecessor.
    pub nonce: u32,
}

/// Where the records of a batch come from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Source {
    /// The job.
    pub job: JobName,
    /// The host.
    pub host: HostName,
    /// The process; `None` for records about the host itself (`NicState`, `HostVitals`).
    pub process: Option<ProcessKey>,
}

/// Records of one source in the order the agent read them. Completions come in ring order of each writing thread;
/// across threads and between samples and completions the order is approximate, so consumers go by the times inside.
#[derive(Clone, PartialEq, Debug)]
pub struct Batch {
    /// Whose records.
    pub source: Source,
    /// When the agent closed the batch.
    pub collected_at: HostTime,
    /// The records.
    pub records: Vec<Record>,
}

/// Sorts batches of several sources by when they were collected, those of one time by their source: the one order in
/// which collected batches are taken in. Batches of one time and source keep the order that they have.
pub fn sort_as_collected<B: Borrow<Batch>>(batches: &mut [B]) {
    batches.sort_by(|a, b| {
        let (a, b): (&Batch, &Batch) = (a.borrow(), b.borrow());
        (a.collected_at, &a.source).cmp(&(b.collected_at, &b.source))
    });
}
