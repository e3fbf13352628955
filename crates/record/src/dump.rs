//! What a job left behind: Flight Recorder dumps, thread stacks, and what could not be read.
//!
//! A dump is one recorder instance of one process. Texts, shapes and call stacks repeat thousands of times in a dump, so
//! entries point into per-dump tables; tables of different dumps number the same thing differently. 1,024 ranks x 2,000
//! entries are 2 M entries: an [`Entry`] is a plain value of about 100 bytes, 200 MB in all.
use crate::ids::{HostName, Rank};
use crate::printed::LogFile;
use crate::time::HostTime;
use crate::trace::Trace;
use std::sync::Arc;

pub use crate::code::{Frame, OpName};

/// Everything that was found for one job.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Bundle {
    /// Usable dumps, by rank, then by recorder (from torch 2.15 each backend has a recorder of its own).
    pub dumps: Vec<Dump>,
    /// Thread stacks, by rank, then by process.
    pub stacks: Vec<ProcessStacks>,
    /// Files that should have told something and did not.
    pub unusable: Vec<Unusable>,
    /// Files that nobody could look into, for a reason that lies with the reader (no permission, a failing disk, a limit
    /// of ours): they may hold anything, and are no evidence about their rank.
    pub unread: Vec<Unusable>,
    /// What logs beside the dumps say of a rank's end, e.g. that memory ran out: told, and not weighed.
    pub remarks: Vec<Unusable>,
    /// Dumps whose files named another rank than they themselves: file, the rank it named, the rank it is of.
    pub relabelled: Vec<(Arc<str>, Rank, Rank)>,
    /// What the job printed, by file.
    pub logs: Vec<LogFile>,
    /// Profilers' traces, by rank.
    pub traces: Vec<Trace>,
    /// What could still be read of dumps that were cut short, which are among `unusable`: process groups and `pg_status`,
    /// which stand at the beginning, and no entries, of which the newest are missing. By rank.
    pub heads: Vec<Dump>,
    /// What a reader should know of how the files were read, e.g. files that are no dumps.
    pub notes: Vec<String>,
}

/// A file without use, and why: "no usable dump from rank N, because ...".
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Unusable {
    /// The rank its name tells, where it tells one.
    pub rank: Option<Rank>,
    /// File name relative to the folder.
    pub source: Arc<str>,
    /// What was wrong and where (byte offset, field).
    pub why: String,
}

/// A dump's format version; compare as numbers ("2.10" is newer than "2.7").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DumpVersion {
    /// Before the dot.
    pub major: u32,
    /// After the dot.
    pub minor: u32,
}

/// One recorder instance of one process.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Dump {
    /// Global rank, from the file name: a dump does not say.
    pub rank: Rank,
    /// Host, from the file name or folder; empty where they do not tell.
    pub host: HostName,
    /// File name relative to the folder.
    pub source: Arc<str>,
    /// Format version.
    pub version: DumpVersion,
    /// `comm_lib_version` or `nccl_version`; empty where not told.
    pub comm_lib_version: Arc<str>,
    /// Whether the dump is known to hold operations in flight only (NVRx): absence of history is no evidence then.
    pub active_only: bool,
    /// Made from lines that the rank printed, not from its recorder: it holds what those lines tell and no more.
    pub printed: bool,
    /// Process groups: those of `pg_config` and those that entries name, in order of appearance.
    pub groups: Vec<DumpGroup>,
    /// `pg_status`, by `pg_id`.
    pub statuses: Vec<GroupStatus>,
    /// Entries, oldest first.
    pub entries: Vec<Entry>,
    /// Operation names that entries point to.
    pub ops: Vec<OpName>,
    /// Arguments that entries point to.
    pub shapes: Vec<Shape>,
    /// Frames that stacks point to.
    pub frames: Vec<Frame>,
    /// Call stacks that entries point to: indices into `frames`, innermost first.
    pub stacks: Vec<Box<[u32]>>,
    /// Threads that entries point to.
    pub threads: Vec<DumpThread>,
    /// Findings of other tools that travel in the dump (NVRx `health_check_results`): name, text.
    pub health: Vec<(Arc<str>, Arc<str>)>,
    /// Names of fields this version does not know, once each; their values are not used.
    pub unknown_fields: Vec<Arc<str>>,
    /// What was peculiar in the file, e.g. values of an unexpected type.
    pub notes: Vec<String>,
}

/// A process group as one dump knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DumpGroup {
    /// `pg_name`; not unique within a job (`split_group`).
    pub name: Arc<str>,
    /// `pg_desc`.
    pub desc: Arc<str>,
    /// Members as `pg_config` tells them, in group-rank order; empty where it does not (native Gloo).
    pub ranks: Vec<Rank>,
    /// The members are told as `0..n` of the group, not as global ranks (torchcomms).
    pub local_ranks: bool,
}

/// What a rank last did in a process group; survives a wrap of the entry ring. `None` = never or not recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupStatus {
    /// Index of the group within the process; means nothing in another rank's dump.
    pub pg_id: u64,
    /// Index into [`Dump::groups`], where an entry joins the two.
    pub group: Option<u32>,
    /// Highest sequence number issued.
    pub last_enqueued: Option<u64>,
    /// Highest sequence number seen running; never told by Gloo and by the hook.
    pub last_started: Option<u64>,
    /// Highest sequence number finished.
    pub last_completed: Option<u64>,
}

/// What the recorder says of an operation. `Completed` is not the only way to be done: see [`Entry::is_done`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum EntryState {
    /// Issued by the host.
    #[default]
    Scheduled,
    /// Seen running on the device.
    Started,
    /// Seen finished.
    Completed,
    /// A word this version does not know.
    Other,
}

/// One operation in a dump.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Entry {
    /// Number within the recorder instance; not comparable between ranks.
    pub record_id: u64,
    /// `collective_seq_id`: order number of a collective in its group, from 1, equal on all ranks of a correct program.
    /// A point-to-point entry carries the last collective's.
    pub seq: u64,
    /// `p2p_seq_id`: order number of a point-to-point operation in its group.
    pub p2p_seq: u64,
    /// `op_id`: order number of any operation in its group; from 0 or 1 depending on the recorder.
    pub op_id: u64,
    /// When the host issued it.
    pub created_at: HostTime,
    /// When it was noticed running.
    pub started_at: HostTime,
    /// When it was noticed finished.
    pub completed_at: HostTime,
    /// Time on the device, microseconds; `f32::NAN` where not timed.
    pub duration_us: f32,
    /// Watchdog limit, milliseconds; 0 where not told.
    pub timeout_ms: u32,
    /// Index of the group within the process.
    pub pg_id: u32,
    /// Index into [`Dump::groups`].
    pub group: u32,
    /// Index into [`Dump::ops`].
    pub op: u32,
    /// Index into [`Dump::shapes`].
    pub shape: u32,
    /// Index into [`Dump::stacks`]; [`Entry::NONE`] where the dump has no stacks.
    pub stack: u32,
    /// Index into [`Dump::threads`]; [`Entry::NONE`] before version 2.10.
    pub thread: u32,
    /// What the recorder says.
    pub state: EntryState,
    /// Taken off the recorder's list of operations to watch.
    pub retired: bool,
    /// Point-to-point.
    pub is_p2p: bool,
}

impl Entry {
    /// No stack, no thread.
    pub const NONE: u32 = u32::MAX;

    /// Finished as far as the recorder can tell: native Gloo never says `completed` and retires instead, the watchdog of
    /// NCCL may complete before it retires.
    pub fn is_done(&self) -> bool {
        self.retired || self.state == EntryState::Completed
    }
}

/// Arguments of an operation: sizes per tensor and their types (`Float`, `BFloat16`, ... as c10 names them).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Shape {
    /// Sizes of each input tensor, elements.
    pub inputs: Vec<Box<[i64]>>,
    /// Types of the inputs.
    pub input_dtypes: Vec<Arc<str>>,
    /// Sizes of each output tensor, elements.
    pub outputs: Vec<Box<[i64]>>,
    /// Types of the outputs.
    pub output_dtypes: Vec<Arc<str>>,
}

/// A thread that issued operations.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct DumpThread {
    /// pthread id, equal to [`ThreadStack::thread_id`]; `None` where it is no number.
    pub id: Option<u64>,
    /// Its name; empty where not told.
    pub name: Arc<str>,
}

/// Who wrote the stacks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum StackTool {
    /// `py-spy dump`.
    #[default]
    PySpy,
    /// Python's `faulthandler`.
    Faulthandler,
}

/// The stacks of one process at one time.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProcessStacks {
    /// Global rank, from the file name or section; `None` where neither tells.
    pub rank: Option<Rank>,
    /// Host; empty where not told.
    pub host: HostName,
    /// File name relative to the folder.
    pub source: Arc<str>,
    /// Who wrote them.
    pub tool: StackTool,
    /// Process id, where told.
    pub pid: Option<u64>,
    /// Parent process: set for children of a rank (data loader workers).
    pub parent_pid: Option<u64>,
    /// Command line; empty where not told.
    pub command: Arc<str>,
    /// When they were taken; `NONE` where not told.
    pub taken_at: HostTime,
    /// Threads, main thread first where known.
    pub threads: Vec<ThreadStack>,
}

impl ProcessStacks {
    /// Whether one of `others` (processes of the same rank) started this one: a worker of the rank. That it has a parent
    /// says nothing, ranks have one too (torchrun).
    pub fn is_child_of<'a>(&self, others: impl IntoIterator<Item = &'a ProcessStacks>) -> bool {
        self.parent_pid.is_some() && others.into_iter().any(|other| other.pid == self.parent_pid)
    }
}

/// Whether the operating system had a thread running.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Activity {
    /// Not told.
    #[default]
    Unknown,
    /// Asleep, waiting.
    Idle,
    /// On a processor or ready to be.
    Active,
}

/// One thread's stack.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ThreadStack {
    /// pthread id, equal to [`DumpThread::id`].
    pub thread_id: Option<u64>,
    /// Kernel thread id.
    pub os_thread_id: Option<u64>,
    /// Name, e.g. `MainThread`; empty where not told.
    pub name: Arc<str>,
    /// Whether it was running.
    pub activity: Activity,
    /// Whether it held the interpreter's lock; `None` where not told.
    pub owns_gil: Option<bool>,
    /// Frames, innermost first.
    pub frames: Vec<StackFrame>,
}

/// One line of a thread's stack.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StackFrame {
    /// Function, file and line.
    pub frame: Frame,
    /// Shared library or module; empty where not told.
    pub module: Arc<str>,
    /// C or C++ code.
    pub native: bool,
    /// Local variables, where they were dumped.
    pub locals: Vec<Local>,
}

/// A local variable or argument.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Local {
    /// Its name.
    pub name: Arc<str>,
    /// Its printed value.
    pub repr: Arc<str>,
    /// Whether it is an argument.
    pub argument: bool,
}
