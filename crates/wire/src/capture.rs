//! The one arrow back from server to agent, and what comes of it: take stacks and dumps now, here they are.
//!
//! Part of protocol version 2. An order is a few numbers and a job name; the answer is files in pieces, a line for each
//! process that was tried, and an end.
use crate::bytes::Reader;
use crate::proto::put_text;
use mycroft_record::{HostTime, Rank};

/// The protocol version from which an agent understands orders.
pub const VERSION_CAPTURE: u16 = 2;
/// Bytes of a file in one message: small enough that batches get their turn, 16 of them in a second are 4 MB.
pub const PIECE_BYTES_MAX: usize = 256 * 1024;
/// Longest text in an answer; longer ones are cut by the sender.
pub const CAPTURE_TEXT_BYTES_MAX: usize = 1024;
/// A piece with its numbers and name.
pub(super) const MAX_CAPTURED_BYTES: usize = PIECE_BYTES_MAX + 2 * CAPTURE_TEXT_BYTES_MAX;

/// Server to agent: take stacks and dumps of a job's ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureOrder {
    /// Number of the capture, the server's own; every answer carries it.
    pub id: u64,
    /// The job whose ranks are meant.
    pub job: String,
    /// When all agents begin, host time: a little ahead of when the order is sent.
    pub at: HostTime,
    /// How far ahead that is, milliseconds: an agent whose clock says something much different goes by this.
    pub in_ms: u32,
    /// How long the agent may take from then, milliseconds.
    pub limit_ms: u32,
    /// Take the stacks of Python processes.
    pub stacks: bool,
    /// Trigger and collect Flight Recorder dumps.
    pub flight_recorder: bool,
}

/// What an agent tried on a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum CaptureKind {
    /// Stacks of a rank's own process.
    Stacks,
    /// Stacks of a child of a rank, e.g. a data loader's worker.
    ChildStacks,
    /// A Flight Recorder dump.
    FlightRecorder,
    /// A kind of a newer agent.
    Other(u8),
}

impl CaptureKind {
    fn code(self) -> u8 {
        match self {
            CaptureKind::Stacks => 1,
            CaptureKind::ChildStacks => 2,
            CaptureKind::FlightRecorder => 3,
            CaptureKind::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> CaptureKind {
        match code {
            1 => CaptureKind::Stacks,
            2 => CaptureKind::ChildStacks,
            3 => CaptureKind::FlightRecorder,
            other => CaptureKind::Other(other),
        }
    }
}

/// Agent to server: a part of what a capture brought.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Captured {
    /// Bytes of a file, in order.
    Piece {
        /// The capture.
        capture: u64,
        /// File name, without folder. Nobody vouches for it.
        file: String,
        /// Position of the bytes in the file.
        offset: u64,
        /// At most [`PIECE_BYTES_MAX`].
        bytes: Vec<u8>,
    },
    /// What became of one process.
    Tried {
        /// The capture.
        capture: u64,
        /// What was tried.
        kind: CaptureKind,
        /// Its rank; of a child its parent's.
        rank: Rank,
        /// Process.
        pid: u32,
        /// The file it gave; empty: none.
        file: String,
        /// Why there is none and what to do, or what to know of the one there is; may be empty.
        text: String,
    },
    /// Nothing more will come.
    End {
        /// The capture.
        capture: u64,
        /// Ranks of the job on this host.
        ranks: u32,
        /// Why the agent did nothing, or what to know; may be empty.
        text: String,
    },
}

impl Captured {
    /// The capture it belongs to.
    pub fn capture(&self) -> u64 {
        match self {
            Captured::Piece { capture, .. } | Captured::Tried { capture, .. } | Captured::End { capture, .. } => {
                *capture
            }
        }
    }
}

const PIECE: u8 = 1;
const TRIED: u8 = 2;
const END: u8 = 3;

pub(super) fn put_order(out: &mut Vec<u8>, order: &CaptureOrder) {
    out.extend_from_slice(&order.id.to_le_bytes());
    out.extend_from_slice(&order.at.0.to_le_bytes());
    out.extend_from_slice(&order.in_ms.to_le_bytes());
    out.extend_from_slice(&order.limit_ms.to_le_bytes());
    out.push(u8::from(order.stacks) | u8::from(order.flight_recorder) << 1);
    put_text(out, &order.job);
}

/// `None`: it ends too early. What follows is a newer version's.
pub(super) fn order(r: &mut Reader<'_>) -> Option<CaptureOrder> {
    let (id, at, in_ms, limit_ms, what) = (r.u64()?, HostTime(r.u64()?), r.u32()?, r.u32()?, r.u8()?);
    let job = r.text16()?.to_owned();
    Some(CaptureOrder { id, job, at, in_ms, limit_ms, stacks: what & 1 != 0, flight_recorder: what & 2 != 0 })
}

pub(super) fn put_captured(out: &mut Vec<u8>, captured: &Captured) {
    out.extend_from_slice(&captured.capture().to_le_bytes());
    match captured {
        Captured::Piece { file, offset, bytes, .. } => {
            out.push(PIECE);
            put_text(out, file);
            out.extend_from_slice(&offset.to_le_bytes());
            out.extend_from_slice(bytes);
        }
        Captured::Tried { kind, rank, pid, file, text, .. } => {
            out.push(TRIED);
            out.push(kind.code());
            out.extend_from_slice(&rank.0.to_le_bytes());
            out.extend_from_slice(&pid.to_le_bytes());
            put_text(out, file);
            put_text(out, text);
        }
        Captured::End { ranks, text, .. } => {
            out.push(END);
            out.extend_from_slice(&ranks.to_le_bytes());
            put_text(out, text);
        }
    }
}

/// `None`: it ends too early. `Some(None)`: a part of a newer agent.
pub(super) fn captured(r: &mut Reader<'_>) -> Option<Option<Captured>> {
    let (capture, part) = (r.u64()?, r.u8()?);
    Some(Some(match part {
        PIECE => {
            let (file, offset) = (r.text16()?.to_owned(), r.u64()?);
            Captured::Piece { capture, file, offset, bytes: r.rest().to_vec() }
        }
        TRIED => {
            let kind = CaptureKind::from_code(r.u8()?);
            let (rank, pid) = (Rank(r.u32()?), r.u32()?);
            Captured::Tried { capture, kind, rank, pid, file: r.text16()?.to_owned(), text: r.text16()?.to_owned() }
        }
        END => Captured::End { capture, ranks: r.u32()?, text: r.text16()?.to_owned() },
        _ => return Some(None),
    }))
}
