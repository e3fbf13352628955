//! What an autopsy says.
use super::lines::PrintedLine;
use super::pace::PaceChange;
use crate::case::{BlastEntry, Reason};
use crate::report::Caveat;
use mycroft_record::dump::{Frame, Unusable};
use mycroft_record::{Category, HostName, HostTime, Rank, Suspect, What};
use std::collections::{BTreeMap, BTreeSet};

/// What became of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Something is wrong.
    Fault(What),
    /// Nothing is wrong.
    Healthy,
    /// Nothing is wrong as far as the files tell that could be read; others could not.
    HealthyAsFar,
    /// The evidence does not tell.
    Unknown,
}

impl Outcome {
    /// The stable word: `hang`, `desync`, `deadlock`, `crash`, `slow`, `healthy`, `healthy-as-far`, `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Fault(What::Slowdown) => "slow",
            Outcome::Fault(what) => what.as_str(),
            Outcome::Healthy => "healthy",
            Outcome::HealthyAsFar => "healthy-as-far",
            Outcome::Unknown => "unknown",
        }
    }
}

/// The four categories of the Flight Recorder paper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// 1: the host side.
    CpuSide,
    /// 2: a device kernel hangs.
    GpuHang,
    /// 3: wrong arguments of a collective.
    WrongArguments,
    /// 4: network or hardware.
    NetworkHardware,
}

impl Family {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Family::CpuSide => "cpu-side",
            Family::GpuHang => "gpu-kernel-hang",
            Family::WrongArguments => "wrong-arguments",
            Family::NetworkHardware => "network-or-hardware",
        }
    }
}

/// The sub-cause within a family.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// CPU side: stuck outside the collective.
    Stuck,
    /// CPU side: late, but going on.
    Slow,
    /// CPU side: another branch of the code.
    Divergence,
    /// CPU side: input data runs out or is uneven.
    DataImbalance,
    /// CPU side: an exception was raised or handled on some ranks only.
    ErrorHandling,
    /// CPU side: operations of several groups in another order.
    CrossGroupOrder,
    /// CPU side: the process is gone.
    ProcessGone,
    /// Device: a kernel does not end.
    KernelHang,
    /// Arguments: sizes differ.
    Size,
    /// Arguments: types differ.
    Dtype,
    /// Arguments: splits of an uneven operation do not add up.
    Splits,
    /// All started, none completed.
    NoneCompleted,
    /// CPU side: memory ran out, of a device or of the host.
    OutOfMemory,
    /// CPU side: inside the communication library's call.
    InLibrary,
    /// CPU side: communicators are being made.
    Initialisation,
    /// Hardware: a device reported an error of its own.
    DeviceError,
    /// Network: a way between two ports does not carry anything.
    Link,
    /// Hardware: memory that was registered for the network cannot be used.
    Registration,
}

impl Cause {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Cause::Stuck => "stuck",
            Cause::Slow => "slow",
            Cause::Divergence => "divergence",
            Cause::DataImbalance => "data-imbalance",
            Cause::ErrorHandling => "error-handling",
            Cause::CrossGroupOrder => "cross-group-order",
            Cause::ProcessGone => "process-gone",
            Cause::KernelHang => "kernel-hang",
            Cause::Size => "size",
            Cause::Dtype => "dtype",
            Cause::Splits => "splits",
            Cause::NoneCompleted => "none-completed",
            Cause::OutOfMemory => "out-of-memory",
            Cause::InLibrary => "in-library",
            Cause::Initialisation => "initialisation",
            Cause::DeviceError => "device-error",
            Cause::Link => "link",
            Cause::Registration => "registration",
        }
    }

    /// The family it belongs to.
    pub fn family(self) -> Family {
        match self {
            Cause::Stuck
            | Cause::Slow
            | Cause::Divergence
            | Cause::DataImbalance
            | Cause::ErrorHandling
            | Cause::CrossGroupOrder
            | Cause::ProcessGone
            | Cause::OutOfMemory
            | Cause::InLibrary
            | Cause::Initialisation => Family::CpuSide,
            Cause::KernelHang => Family::GpuHang,
            Cause::Size | Cause::Dtype | Cause::Splits => Family::WrongArguments,
            Cause::NoneCompleted | Cause::DeviceError | Cause::Link | Cause::Registration => Family::NetworkHardware,
        }
    }
}

/// What a blamed rank did.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Role {
    /// Never issued what its peers wait in.
    Absent,
    /// Issued something else, or with other arguments.
    Odd,
    /// Entered and never finished while its peers went on.
    Stuck,
    /// One of a cycle.
    InCycle,
    /// Its process is gone, or left no dump.
    Gone,
    /// Needed more time of its own than its peers, and went on.
    Slow,
}

impl Role {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Absent => "absent",
            Role::Odd => "odd-one-out",
            Role::Stuck => "stuck-inside",
            Role::InCycle => "in-cycle",
            Role::Gone => "gone",
            Role::Slow => "slow",
        }
    }
}

/// What a suspect did, as its dump and its stacks tell.
#[derive(Clone, PartialEq, Debug)]
pub struct Conduct {
    /// What it did.
    pub role: Role,
    /// What its stacks say it was doing, one phrase; empty where nothing tells.
    pub doing: String,
    /// The frame of the user's code that matters: where it is, or where its path parts from its peers'.
    pub at: Option<Frame>,
}

/// What is peculiar about a cell of the grid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum CellMark {
    /// Nothing.
    #[default]
    Plain,
    /// This rank differs from its peers here.
    Odd,
    /// This rank is waited for here.
    Missing,
    /// First wrong point of the group: the column where it starts.
    First,
}

/// One operation of one rank in the grid. Indices point into the tables of [`Autopsy`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cell {
    /// Column: sequence number in the group (collectives), or position between them (point-to-point).
    pub column: u32,
    /// Index into [`Autopsy::op_names`].
    pub op: u32,
    /// Index into [`Autopsy::call_stacks`]; `u32::MAX` without.
    pub stack: u32,
    /// 0 scheduled, 1 started, 2 done.
    pub state: u8,
    /// What is peculiar.
    pub mark: CellMark,
}

/// The row of one rank in one group.
#[derive(Clone, PartialEq, Debug)]
pub struct RankRow {
    /// Global rank.
    pub rank: Rank,
    /// Its operations in column order.
    pub cells: Vec<Cell>,
}

/// One process group of the grid, columns aligned by sequence number.
#[derive(Clone, PartialEq, Debug)]
pub struct GroupGrid {
    /// Name for people, e.g. `default_pg` or `tp_01`.
    pub label: String,
    /// Members, by rank.
    pub rows: Vec<RankRow>,
    /// Label of each column, e.g. `#17` or `17 send 0->1`; columns are numbered from 0.
    pub columns: Vec<String>,
    /// Column of the first wrong point.
    pub first_wrong: Option<u32>,
}

/// Ranks whose main threads have the same stack.
#[derive(Clone, PartialEq, Debug)]
pub struct StackGroup {
    /// The ranks.
    pub ranks: Vec<Rank>,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// Whether it stands out from the majority.
    pub odd: bool,
    /// What the thread is doing, one phrase.
    pub doing: String,
}

/// The whole answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Autopsy {
    /// What became of the job.
    pub outcome: Outcome,
    /// What kind of fault, in the words of the live side; `None` when nothing is wrong.
    pub category: Option<Category>,
    /// The sub-cause, with its family; `None` when nothing is wrong or not told apart.
    pub cause: Option<Cause>,
    /// Only ranks that are blamed, most likely first.
    pub suspects: Vec<Suspect>,
    /// What each suspect did.
    pub conduct: BTreeMap<Rank, Conduct>,
    /// What each suspect did that is a host as a whole.
    pub hosts: BTreeMap<HostName, Conduct>,
    /// The group in which it shows, e.g. `default_pg`; empty where it shows in none.
    pub group: String,
    /// The sequence number at which it shows.
    pub seq: Option<u64>,
    /// The operation in which it shows, e.g. `all_reduce`; empty where none.
    pub collective: String,
    /// When iterations became slower and faster again, as progress lines tell it; in their order.
    pub pace: Vec<PaceChange>,
    /// The rules that fired, with their numbers and records.
    pub because: Vec<Reason>,
    /// Concrete next steps.
    pub do_next: Vec<String>,
    /// Ranks looked at, with or without a dump.
    pub ranks: Vec<Rank>,
    /// Of how many of them there is no dump, but lines that say where they stand.
    pub printed: usize,
    /// Of how many of them there is a profiler's trace.
    pub traced: usize,
    /// Lines of logs that tell something of the end, in the order of files and lines.
    pub lines: Vec<PrintedLine>,
    /// How many more of them there are.
    pub lines_left_out: usize,
    /// Ranks of which there is no usable dump, and why.
    pub missing_dumps: Vec<(Rank, String)>,
    /// Files that could not be read, for a reason that lies with the reader: no evidence about their rank.
    pub unread: Vec<Unusable>,
    /// What is missing.
    pub caveats: Vec<Caveat>,
    /// Who waits for whom.
    pub blast_radius: Vec<BlastEntry>,
    /// Operation names of the grid.
    pub op_names: Vec<String>,
    /// Frames of the grid's call stacks.
    pub frames: Vec<Frame>,
    /// Call stacks of the grid: indices into `frames`, innermost first.
    pub call_stacks: Vec<Vec<u32>>,
    /// The grid; empty unless asked for.
    pub grid: Vec<GroupGrid>,
    /// Main-thread stacks, largest group first.
    pub stack_groups: Vec<StackGroup>,
}

impl Autopsy {
    /// The ranks that are blamed, each with how sure we are and what it did, most likely first.
    pub fn blamed(&self) -> impl Iterator<Item = (Rank, &Suspect, &Conduct)> {
        self.suspects.iter().filter_map(|suspect| {
            let rank = suspect.place.rank()?;
            Some((rank, suspect, self.conduct.get(&rank)?))
        })
    }

    /// Suspects that are no ranks: hosts and ways between hosts, with what each host did.
    pub fn others(&self) -> impl Iterator<Item = (&Suspect, Option<&Conduct>)> {
        let others = self.suspects.iter().filter(|suspect| suspect.place.rank().is_none());
        others.map(|suspect| (suspect, suspect.place.host().and_then(|host| self.hosts.get(host))))
    }

    /// The ranks without a usable dump that are not among [`Autopsy::unread`], and why there is none.
    pub fn lost(&self) -> impl Iterator<Item = (Rank, &str)> {
        let unread: BTreeSet<Rank> = self.unread.iter().filter_map(|file| file.rank).collect();
        let missing = self.missing_dumps.iter().map(|(rank, why)| (*rank, why.as_str()));
        missing.filter(move |(rank, _)| !unread.contains(rank))
    }

    /// How many of the ranks tell something: those of which there is a usable dump.
    pub fn told(&self) -> usize {
        self.ranks.len().saturating_sub(self.missing_dumps.len())
    }

    /// When it began: the earliest record that shows it, clock of its host. `None` where nothing is wrong and where no
    /// record tells a time.
    pub fn since(&self) -> Option<HostTime> {
        let Outcome::Fault(_) = self.outcome else { return None };
        self.because.iter().flat_map(|reason| &reason.evidence).filter_map(|evidence| evidence.at.some()).min()
    }
}
