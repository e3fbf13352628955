//! What a process was doing, from its stacks: the main thread's innermost frames tell data loading from waiting for peers
//! from compiling. A stack is joined to a dump by thread id, else by the main thread.
use super::frames;
use mycroft_record::Rank;
use mycroft_record::dump::{Activity, Bundle, Frame, ProcessStacks, ThreadStack};
use std::collections::BTreeMap;

/// What a thread is doing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Activities {
    /// Inside a collective or a transfer, waiting for its peers.
    WaitsForPeers,
    /// Waiting for input data.
    DataLoading,
    /// Compiling a model.
    Compiling,
    /// Writing or reading a checkpoint.
    Checkpoint,
    /// Handling an exception.
    ErrorHandling,
    /// Giving up its communicators.
    TearsDown,
    /// Waiting for its own device.
    WaitsForDevice,
    /// Busy in native code with the interpreter's lock held.
    HoldsGil,
    /// Running the program's own code.
    Busy,
    /// Asleep in the program's own code.
    Asleep,
}

/// What one rank was doing.
#[derive(Clone, Debug)]
pub(super) struct Doing<'a> {
    pub(super) activity: Activities,
    /// One phrase.
    pub(super) text: String,
    /// The user's frame it is in.
    pub(super) at: Option<&'a Frame>,
    /// The main thread's frames, innermost first.
    pub(super) frames: Vec<&'a Frame>,
    /// The function of `torch.distributed` that it waits in.
    pub(super) waits_in: Option<&'a str>,
    /// File that shows it.
    pub(super) source: &'a str,
}

/// What every rank with stacks was doing.
#[derive(Debug, Default)]
pub(super) struct Doings<'a> {
    pub(super) of: BTreeMap<Rank, Doing<'a>>,
}

impl<'a> Doings<'a> {
    pub(super) fn of(bundle: &'a Bundle) -> Doings<'a> {
        let mut by_rank: BTreeMap<Rank, Vec<&'a ProcessStacks>> = BTreeMap::new();
        for stacks in &bundle.stacks {
            if let Some(rank) = stacks.rank {
                by_rank.entry(rank).or_default().push(stacks);
            }
        }
        let mut of = BTreeMap::new();
        for (rank, all) in by_rank {
            let issuers: Vec<u64> = bundle
                .dumps
                .iter()
                .filter(|dump| dump.rank == rank)
                .flat_map(|dump| {
                    // The thread of the newest entry first: it is where the rank stands.
                    let newest = dump.entries.last().and_then(|entry| dump.threads.get(entry.thread as usize));
                    newest.into_iter().chain(&dump.threads).filter_map(|thread| thread.id)
                })
                .collect();
            if let Some(doing) = of_rank(&all, &issuers) {
                of.insert(rank, doing);
            }
        }
        Doings { of }
    }

    /// The rank's stacks show it waiting for its peers.
    pub(super) fn waits_for_peers(&self, rank: Rank) -> bool {
        self.of.get(&rank).is_some_and(|doing| doing.activity == Activities::WaitsForPeers)
    }
}

/// The thread that issues operations: by thread id, by name, else the one with the deepest stack that starts the program.
fn main_thread<'a>(process: &'a ProcessStacks, issuers: &[u64]) -> Option<&'a ThreadStack> {
    let named = || process.threads.iter().find(|thread| &*thread.name == "MainThread" && !thread.frames.is_empty());
    let by_id =
        issuers.iter().find_map(|id| process.threads.iter().find(|t| t.thread_id == Some(*id) && !t.frames.is_empty()));
    let starts = || {
        let module = |thread: &&ThreadStack| thread.frames.iter().any(|frame| &*frame.frame.name == "<module>");
        process.threads.iter().find(module)
    };
    by_id.or_else(named).or_else(starts).or_else(|| process.threads.iter().find(|thread| !thread.frames.is_empty()))
}

fn of_rank<'a>(all: &[&'a ProcessStacks], issuers: &[u64]) -> Option<Doing<'a>> {
    let (children, parents): (Vec<&'a ProcessStacks>, Vec<&'a ProcessStacks>) =
        all.iter().partition(|process| process.is_child_of(all.iter().copied()));
    // Of several looks at one process the one that tells most: lock and activity, then native frames last.
    let told = |thread: &ThreadStack| {
        let native = thread.frames.iter().any(|frame| frame.native);
        (thread.owns_gil.is_some(), thread.activity != Activity::Unknown, !native)
    };
    let mut looks: Vec<(&ProcessStacks, &ThreadStack)> =
        parents.iter().filter_map(|process| Some((*process, main_thread(process, issuers)?))).collect();
    looks.sort_by(|a, b| told(b.1).cmp(&told(a.1)).then_with(|| a.0.source.cmp(&b.0.source)));
    let (process, thread) = looks.first()?;
    Some(describe(process, thread, &children))
}

fn describe<'a>(process: &'a ProcessStacks, thread: &'a ThreadStack, children: &[&'a ProcessStacks]) -> Doing<'a> {
    let frames: Vec<&'a Frame> = thread.frames.iter().filter(|frame| !frame.native).map(|frame| &frame.frame).collect();
    let at = frames::own(frames.iter().copied());
    let place = at.map_or_else(String::new, |frame| format!(" at {}", frames::text(frame)));
    let activity = activity(thread, &frames);
    let call = frames.iter().copied().find(|frame| is_collective_call(frame));
    let waits_in = call.filter(|_| activity == Activities::WaitsForPeers).map(|frame| &*frame.name);
    let text = match activity {
        Activities::WaitsForPeers => format!("waits in {}{place}", waits_in.unwrap_or("a collective")),
        Activities::DataLoading => {
            let worker = children.iter().find_map(|child| worker_text(child));
            format!("waits for its data loader{place}{}", worker.unwrap_or_default())
        }
        Activities::Compiling => format!("compiles{place}"),
        Activities::Checkpoint => format!("handles a checkpoint{place}"),
        Activities::ErrorHandling => format!("handles an exception{place}"),
        Activities::TearsDown => format!("gives up its communicators in destroy_process_group{place}"),
        Activities::WaitsForDevice => format!("waits for its device{place}"),
        Activities::HoldsGil => format!("holds the interpreter's lock in native code{place}"),
        Activities::Busy => format!("runs its own code{place}"),
        Activities::Asleep => format!("is asleep outside any collective{place}"),
    };
    Doing { activity, text, at, frames, waits_in, source: &process.source }
}

/// `; its worker process 2411 is in read_shard (data.py:104)`.
fn worker_text(child: &ProcessStacks) -> Option<String> {
    let worker = |thread: &&ThreadStack| thread.frames.iter().any(|frame| &*frame.frame.name == "_worker_loop");
    let thread = child.threads.iter().find(worker)?;
    let frame = frames::own(thread.frames.iter().map(|frame| &frame.frame))?;
    let pid = child.pid.map_or_else(String::new, |pid| format!(" {pid}"));
    Some(format!("; its worker process{pid} is in {}", frames::text(frame)))
}

/// A call into `torch.distributed` that returns when the peers have come.
pub(super) fn is_collective_call(frame: &Frame) -> bool {
    let file = &*frame.file;
    let c10d = file.contains("distributed_c10d") || file.contains("distributed/nn/functional");
    c10d && !matches!(&*frame.name, "init_process_group" | "new_group" | "_new_group_with_tag")
}

fn activity(thread: &ThreadStack, frames: &[&Frame]) -> Activities {
    // From the innermost frame outwards, until the user's code: what lies below is how it got there.
    let inner: Vec<&&Frame> = frames.iter().take_while(|frame| !frames::is_own(frame)).collect();
    let inner_has = |parts: &[&str]| inner.iter().any(|frame| parts.iter().any(|part| frame.file.contains(part)));
    let any_has = |parts: &[&str]| frames.iter().any(|frame| parts.iter().any(|part| frame.file.contains(part)));
    let calls = |parts: &[&str]| {
        let own = frames.iter().filter(|frame| frames::is_program(frame));
        own.take(USER_FRAMES).any(|frame| parts.iter().any(|part| frame.name.to_ascii_lowercase().contains(part)))
    };
    if frames.iter().any(|frame| TEARDOWN.contains(&&*frame.name)) {
        return Activities::TearsDown;
    }
    if inner.iter().any(|frame| is_collective_call(frame)) {
        return Activities::WaitsForPeers;
    }
    if inner_has(&["utils/data/"]) {
        return Activities::DataLoading;
    }
    if inner_has(&["traceback.py", "logging/"]) || calls(&["except", "traceback", "handle_error"]) {
        return Activities::ErrorHandling;
    }
    if any_has(&["torch/_dynamo", "torch/_inductor", "torch/_functorch", "/triton/"]) {
        return Activities::Compiling;
    }
    if inner_has(&["torch/serialization", "distributed/checkpoint"]) || calls(&["checkpoint"]) {
        return Activities::Checkpoint;
    }
    if inner_has(&["torch/cuda", "torch/accelerator"]) {
        return Activities::WaitsForDevice;
    }
    let native = thread.frames.first().is_some_and(|frame| frame.native);
    match (thread.activity, thread.owns_gil) {
        (Activity::Active, Some(true)) if native => Activities::HoldsGil,
        (Activity::Active, _) => Activities::Busy,
        (_, Some(true)) => Activities::Busy,
        _ => Activities::Asleep,
    }
}

/// Functions in which a rank gives up its communicators, which waits for what is in flight.
const TEARDOWN: &[&str] = &["destroy_process_group", "abort_process_group", "ncclCommDestroy", "ncclCommFinalize"];

/// Innermost frames of the program whose names are looked at: the function itself and two callers.
const USER_FRAMES: usize = 3;
