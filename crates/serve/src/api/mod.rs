//! JSON mirrors of what the server tells (`docs/formats/api.md`): one file a shape, conversion in one place each.
//!
//! The brain's types are not serializable (invariant 7); these are. They also deserialize, so that the command
//! line and tests read what the server writes through the same definition. Fields are only ever added; a reader
//! ignores those it does not know.
pub mod act;
mod booked;
pub mod case;
pub mod compare;
pub mod dump;
pub mod fleet;
mod gate;
pub mod health;
pub mod job;
pub mod note;
pub mod operations;
pub mod plan;
pub mod report;
pub mod series;
pub mod time;

pub use act::{ActRequest, ActionJson, ActionsJson, AutoRequest, PolicyJson};
pub use case::{
    BlastJson, CaseJson, CasesJson, EvidenceJson, FlowJson, LinkJson, OpJson, ReasonJson, SaidJson, SuspectJson,
    ValidationJson,
};
pub use compare::{CompareJson, DifferenceJson, RankDifferenceJson, WindowJson};
pub use dump::{CaseDumpJson, DumpFileJson, DumpHostJson, DumpJson, DumpTriedJson, DumpsJson, untold};
pub use fleet::{
    AgentJson, CertificateJson, FleetJson, HostClockJson, HostJson, LastAgentJson, LostJson, RanksOfJobJson,
    RefusalJson, SpoolJson, TracedJson,
};
pub use gate::{GateAnswers, GateRequest, GateSaidJson, hex, unhex};
pub use health::{ClockJson, ClocksJson, DiskJson, DroppedJson, HealthJson, QueueJson};
pub use job::{JobJson, JobsJson, LifeJson};
pub use note::{NoteJson, NoteRequest};
pub use operations::{GroupOpsJson, InFlightJson, OperationsJson, RankOpsJson};
pub use plan::{AssignmentJson, ChoiceJson, LeftOutJson, NextJson, PlanJson, PlanRequest};
pub use report::{CaveatJson, RankJson, RanksJson, ReportJson, SplitJson, ThresholdJson};
pub use series::{
    BandJson, ChangeJson, HostExcessJson, IterationsJson, PathJson, PathsJson, PointJson, RankSeriesJson,
    RankSpentJson, SeriesJson,
};
pub use time::{TimeJson, rfc3339};

use mycroft_record::Rank;
use serde::{Deserialize, Serialize};

/// Every answer that is not a success.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErrorJson {
    /// What was wrong and what to do, one sentence or two.
    pub error: String,
}

/// A rank as JSON; `None` (null) where no launcher told it.
pub(crate) fn rank_number(rank: Rank) -> Option<u32> {
    if rank == Rank::UNKNOWN { None } else { Some(rank.0) }
}

/// Ranks as JSON, without unknown ones.
pub(crate) fn rank_numbers(ranks: &[Rank]) -> Vec<u32> {
    ranks.iter().copied().filter_map(rank_number).collect()
}
