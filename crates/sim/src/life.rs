//! What healthy jobs do besides training evenly: none of it is a fault, all of it has fooled detectors. Only the
//! simulator plays these; the testbed plays what the scenario's plain fields say.
use serde::{Deserialize, Serialize};

/// `[life]` of a scenario file. The defaults are a job without any of it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Life {
    /// Share of the pieces of computation that take `straggle_factor` times as long: stragglers that come and go.
    pub straggle_share: f64,
    /// See `straggle_share`.
    pub straggle_factor: f64,
    /// Every how many iterations a rank collects garbage, each at its own time; 0 = never.
    pub gc_every: u32,
    /// How long its main thread stands still then, milliseconds.
    pub gc_ms: f64,
    /// Every how many iterations the job evaluates instead of training; 0 = never.
    pub eval_every: u32,
    /// Forward passes of one evaluation.
    pub eval_micro_batches: u32,
    /// Micro-batches differ in sequence length: their computation takes 1 plus or minus this share.
    pub sequence_imbalance: f64,
    /// Experts differ in the tokens that they are given: exchange sizes and expert computation differ by this share from
    /// iteration to iteration (Pulse section 7.2.4).
    pub routing_imbalance: f64,
    /// The first iteration takes this much longer to make its communicators' connections, milliseconds.
    pub first_connect_ms: f64,
    /// In how many classes of size the sequences of an iteration come, the same on all ranks: computation and the messages of
    /// tensor, context and pipeline parallelism grow with them; 0 or 1 = one class.
    pub size_classes: u32,
    /// The classes lie between 1 minus and 1 plus this share.
    pub size_spread: f64,
    /// The layers of the last pipeline stage take this share longer, by design (the loss and its large matrix).
    pub last_stage: f64,
    /// Micro-batches of each data-parallel replica where they are not alike, as after a division that spares a slow one
    /// (FALCON 5.3); empty: all have the scenario's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub micro_batches: Vec<u32>,
    /// The host at each place, with all of its ranks, where hosts have changed places (FALCON 5.3); empty: each is at its own.
    /// Place 0 is where the lowest ranks usually are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<u32>,
}

impl Life {
    /// Micro-batches of a replica in a job where `usual` is what all have.
    pub(crate) fn micro_batches_of(&self, replica: u32, usual: u32) -> u32 {
        self.micro_batches.get(replica as usize).copied().unwrap_or(usual)
    }
}
