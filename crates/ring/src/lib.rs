//! The shared-memory segment between the probe in the job and the agent on the host (Mycroft section 4.2).
//!
//! One segment per traced process: a header, a table of communicators, tables of the operations and flows in flight with
//! their counters, and rings of completions with one writer each. `docs/formats/ring.md` is the byte map.
//!
//! - [`SegmentWriter`] is the job's side: no lock, no system call, no allocation; it overwrites the oldest.
//! - [`SegmentReader`] is the agent's: it never writes, takes every byte as written by an adversary, and reports loss.
//! - [`convert`] turns what was read into `mycroft_record` records.

#![warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

pub mod cells;
pub mod clock;
pub mod collect;
pub mod convert;
mod create;
pub mod error;
pub mod fixed;
pub mod gate;
pub mod lane;
pub mod layout;
pub mod limits;
mod memory;
mod names;
mod narrow;
pub mod pages;
pub mod pairs;
pub mod process;
pub mod raw;
pub mod reader;
mod region;
pub mod segment;
pub mod source;
pub mod sync;
mod sys;
pub mod table;
pub mod writer;

pub use cells::{CommSlot, FlowCell, FlowSlot, OpCell, OpSlot};
pub use clock::{Calibration, ClockKind, now_ticks};
pub use error::{CreateError, Errno, OpenError, ReadError};
pub use fixed::{FixedPath, FixedText};
pub use names::{AGENT_LOCK, PAIRS_SUFFIX, SUFFIX, TEMPORARY_SUFFIX};
pub use pairs::{PairsFile, PairsOf, QueuePair};
pub use process::{Identity, Liveness};
pub use raw::{RawCommBegin, RawCommEnd, RawFlowDone, RawOpDone, RawOpMeta, RawRecord, RawStepMark, Text};
pub use reader::{CommSnapshot, DrainStats, FlowSnapshot, OpSnapshot};
pub use segment::{SegmentHeader, SegmentReader, SegmentState};
pub use table::Snapshot;
pub use writer::{CommBegin, DropKind, FlowBegin, FlowOwner, OpBegin, OpEnd, RingWriter, SegmentConfig, SegmentWriter};
