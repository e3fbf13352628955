//! The vocabulary of Mycroft: what every other room speaks.
//!
//! Ids, clock-tagged time, the record kinds that flow along the line (probe -> ring -> agent -> store -> diagnose),
//! batches, gaps and findings. No dependencies, no IO, no clock. `docs/formats/record.md` is the catalogue in prose.
#![forbid(unsafe_code)]

pub mod batch;
pub mod clock;
mod code;
pub mod dump;
mod exit;
pub mod finding;
pub mod ids;
pub mod kind;
pub mod nccl;
pub mod pace;
pub mod printed;
pub mod record;
pub mod text;
pub mod time;
mod times;
pub mod trace;

pub use batch::{Batch, ProcessKey, Source};
pub use clock::ClockOffset;
pub use exit::ExitStatus;
pub use finding::{Category, Finding, Place, Suspect, What};
pub use ids::{ChannelId, CommId, CommRank, HostName, JobName, OpId, OpSeq, Rank};
pub use kind::{Algorithm, Datatype, Direction, OpClass, OpKind, Protocol};
pub use nccl::NcclVersion;
pub use record::{
    CommEnd, CommInit, FlowCounters, FlowDone, FlowKey, FlowState, FlowTimes, Gap, GapCause, HostVitals, NicState,
    OpDone, OpMeta, OpState, ProcessExit, ProcessInfo, ProxyHeld, Record, Sampled, StepMark,
};
pub use time::{HostTime, NANOS_PER_MS, NANOS_PER_SEC};
