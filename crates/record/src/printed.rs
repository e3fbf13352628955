//! What a job printed: the lines of its logs that tell something about its end, taken apart, each with file and line.
//!
//! A line is evidence of one kind ([`Kind`]) or says where a rank stands in a process group ([`Stands`]). What follows
//! from several lines together is for the reader of these records to say.
use crate::code::{Frame, OpName};
use crate::ids::{HostName, Rank};
use crate::pace::Meter;
use std::sync::Arc;

/// The lines of one file.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LogFile {
    /// File name relative to the folder.
    pub source: Arc<str>,
    /// The rank whose file it is, where its name tells one.
    pub rank: Option<Rank>,
    /// The host whose file it is, where its name tells one.
    pub host: HostName,
    /// Lines that tell something, in their order.
    pub lines: Vec<LogLine>,
    /// Iterations that lines tell, by loop and rank.
    pub meters: Vec<Meter>,
    /// Lines of the file.
    pub total: u64,
    /// Lines that contradict themselves (completed more than was issued): left out.
    pub nonsense: u64,
    /// Lines beyond what is kept.
    pub beyond: u64,
}

/// One line that tells something.
#[derive(Clone, PartialEq, Debug)]
pub struct LogLine {
    /// Line number in the file, from 1.
    pub number: u64,
    /// Global rank, from a prefix; `None` where none tells it.
    pub rank: Option<Rank>,
    /// Host, from a prefix; empty where none tells it.
    pub host: HostName,
    /// Nanoseconds since the beginning of the year: most lines do not tell which year. Clock of the host that printed.
    pub at: Option<u64>,
    /// What it says.
    pub says: Says,
}

/// What a line says.
#[derive(Clone, PartialEq, Debug)]
pub enum Says {
    /// Where a rank stands in a process group.
    Stands(Box<Stands>),
    /// A rank's own description of the collective that it is in (torch's DETAIL mode).
    Fingerprint(Box<Fingerprint>),
    /// Ranks that did not come, as one that waited tells: what they did not come to, and who.
    NotThere(Arc<str>, Vec<Rank>),
    /// An event of this kind, in the line's own words.
    Event(Kind, Arc<str>),
    /// Something failed on the way to a peer.
    Path(Box<Path>),
    /// An exception with its frames, innermost first.
    Raised(Kind, Arc<str>, Vec<Frame>),
    /// How far ranks of a communicator have come (NCCL RAS).
    Counts(Box<Counts>),
    /// A communicator is being made: its id, the rank's number in it, how many there are, whether it is done.
    Init(Arc<str>, u32, u32, bool),
}

/// Where a rank stands in a process group, as its own watchdog prints it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stands {
    /// Name of the group, equal on all ranks (`PG GUID`); empty where not told.
    pub group: Arc<str>,
    /// Its description; empty where not told.
    pub desc: Arc<str>,
    /// `PG ID`: 0 is the first group of the process.
    pub pg_id: Option<u64>,
    /// `[Rank N]`: the rank's number in the group, or a number that is out of date; a prefix of the line knows better.
    pub member: Option<u32>,
    /// The collective that timed out.
    pub seq: Option<u64>,
    /// Its operation.
    pub op: Option<OpName>,
    /// Its elements: input, output.
    pub sizes: Option<(i64, i64)>,
    /// The limit, milliseconds.
    pub timeout_ms: Option<u64>,
    /// How long it ran, milliseconds.
    pub ran_ms: Option<u64>,
    /// Last operation issued and last completed; -1: none.
    pub status: Option<(i64, i64)>,
    /// The rank was told of another rank's timeout.
    pub is_told: bool,
}

/// A collective as a rank describes it to its peers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fingerprint {
    /// The rank.
    pub rank: Rank,
    /// Sequence number.
    pub seq: u64,
    /// The operation.
    pub op: OpName,
    /// Sizes of its tensor.
    pub shape: Box<[i64]>,
    /// Element type.
    pub dtype: Arc<str>,
}

/// A way between two ports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Path {
    /// Status of the completion (`ibv_wc_status`).
    pub status: u32,
    /// Device of this host, e.g. `mlx5_10`; empty where not told.
    pub nic: Arc<str>,
    /// Address of the peer; empty where not told.
    pub peer: Arc<str>,
    /// Address of this end's port.
    pub local: Arc<str>,
    /// Address of the other end's port.
    pub remote: Arc<str>,
    /// The line's own words.
    pub text: Arc<str>,
}

/// How far the ranks of a communicator have come in one kind of operation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// The communicator.
    pub comm: Arc<str>,
    /// The operation as RAS names it; empty where all agree.
    pub op: OpName,
    /// Number of the last operation launched, how many ranks, and which where they are listed.
    pub camps: Vec<(u64, u32, Vec<Rank>)>,
    /// Ranks of the communicator; 0 where not told.
    pub size: u32,
    /// Ranks of which RAS heard nothing.
    pub silent: Vec<Rank>,
}

/// What a line is evidence for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A device's memory ran out.
    DeviceMemory,
    /// A host's memory ran out and the kernel killed a process.
    HostMemory,
    /// A device reported an error of its own (Xid, uncorrectable memory error).
    Device,
    /// An exception of the program.
    Exception,
    /// Somebody sent an interrupt (Ctrl-C).
    Interrupt,
    /// A port or device of a network failed.
    Port,
    /// A process was in the middle of a device's program fault (Xid of the program).
    DeviceProgram,
    /// The watchdog itself did not run: the interpreter's lock or a call into the driver.
    Watchdog,
    /// The group's limit was reached by somebody; no numbers.
    TimedOut,
    /// The rank writes a dump or was asked to: it lived, and more does not follow.
    Spoke,
    /// The library or a connection reports that a peer is gone: follows from something else.
    PeerGone,
    /// The process is being ended: follows from something else.
    Teardown,
    /// A launcher's or scheduler's note of an end: which processes, not why.
    Ended,
    /// The scheduler ended the job: time limit, preemption, somebody cancelled it.
    Cancelled,
    /// The library says that sizes or kinds of a collective differ.
    Mismatch,
    /// RAS: every rank of every communicator has launched as many operations.
    CountsAgree,
}

impl Kind {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::DeviceMemory => "device-memory",
            Kind::HostMemory => "host-memory",
            Kind::Device => "device-error",
            Kind::Exception => "exception",
            Kind::Interrupt => "interrupt",
            Kind::Port => "port",
            Kind::DeviceProgram => "device-program",
            Kind::Watchdog => "watchdog",
            Kind::TimedOut => "timed-out",
            Kind::Spoke => "spoke",
            Kind::PeerGone => "peer-gone",
            Kind::Teardown => "teardown",
            Kind::Ended => "ended",
            Kind::Cancelled => "cancelled",
            Kind::Mismatch => "mismatch",
            Kind::CountsAgree => "counts-agree",
        }
    }

    /// Whether such an event may be what the rest follows from. The others follow from something, or say only that
    /// something ended.
    pub fn may_begin(self) -> bool {
        matches!(
            self,
            Kind::DeviceMemory | Kind::HostMemory | Kind::Device | Kind::Exception | Kind::Interrupt | Kind::Port
        )
    }
}

/// `completed` of a status as a number: `None` where nothing ever was.
pub fn some(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}
