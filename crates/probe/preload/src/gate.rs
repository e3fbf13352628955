//! This process's side of the gate: its words in the segment, what each call counts, and the wait.
use crate::group;
use crate::lanes::{self, Way};
use crate::records;
use crate::table::{self, Entry, Made};
use crate::tasks;
use crate::thread::this_thread;
use mycroft_probe_core::config::Config;
use mycroft_probe_core::{Attach, CommInfo, Runtime, ffi_guard};
use mycroft_ring::clock::monotonic_ns;
use mycroft_ring::gate::words::GATE_WORDS;
use mycroft_ring::gate::{Gate, LaneKey, LaneKind, page};
use mycroft_ring::sync::AtomicU64;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The gate's words; NULL before the first communicator, in a forked child, and after a panic.
static WORDS: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
/// Somebody attaches, or has.
static ATTACHED: AtomicBool = AtomicBool::new(false);
/// Bytes of a segment that is made for the gate alone, when nobody told: the smallest.
const SEGMENT_BYTES: u64 = mycroft_ring::layout::MIN_SEGMENT_BYTES;

/// What a call does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// A collective.
    Collective,
    /// A send to this rank of the communicator.
    Send(i32),
    /// A receive from it.
    Recv(i32),
}

#[inline]
fn gate() -> Option<Gate<'static, AtomicU64>> {
    let words = WORDS.load(Ordering::Acquire);
    if words.is_null() {
        return None;
    }
    // SAFETY: `attach` stored the first of so many words, which are never unmapped.
    Gate::over(unsafe { std::slice::from_raw_parts(words.cast_const(), GATE_WORDS) })
}

/// Runs bookkeeping: a panic in it ends the gate of this process, and the call goes on.
#[inline]
pub(crate) fn quietly(body: impl FnOnce()) {
    let ended = ffi_guard(false, || {
        body();
        true
    });
    if !ended {
        close();
    }
}

fn close() {
    WORDS.store(std::ptr::null_mut(), Ordering::Release);
}

extern "C" fn in_child() {
    close();
}

/// Before an operation of a communicator is issued.
#[inline]
pub(crate) fn before(comm: usize, op: Op) {
    quietly(|| {
        let Some(gate) = gate() else { return };
        if gate.is_asked() {
            pass(gate);
        }
        let found = table::find(comm);
        if let Some((_, entry)) = found {
            entry.used_by(this_thread());
        }
        let lane = match (found, op) {
            (Some((_, entry)), Op::Collective) => entry.lane(),
            (Some((place, entry)), Op::Send(peer)) => way(gate, place, entry, peer, true),
            (Some((place, entry)), Op::Recv(peer)) => way(gate, place, entry, peer, false),
            (None, _) => None,
        };
        match lane {
            Some(lane) => gate.count(lane),
            None => gate.untracked(),
        }
    });
}

/// Before the outermost group of a thread.
pub(crate) fn before_group() {
    quietly(|| {
        if let Some(gate) = gate().filter(Gate::is_asked) {
            pass(gate);
        }
    });
}

/// Waits as long as a requester demands; inside a group nothing waits.
#[cold]
fn pass(gate: Gate<'static, AtomicU64>) {
    if group::depth() == 0 {
        gate.pass_working(monotonic_ns, |waiting| tasks::work(gate, waiting));
    }
}

/// The lane of a way to or from a peer, made with its first use.
fn way(gate: Gate<'static, AtomicU64>, place: usize, entry: &Entry, peer: i32, is_send: bool) -> Option<usize> {
    let way = Way { comm: place, peer: u32::try_from(peer).ok()?, is_send };
    way.lane().or_else(|| new_way(gate, way, entry))
}

#[cold]
fn new_way(gate: Gate<'static, AtomicU64>, way: Way, entry: &Entry) -> Option<usize> {
    let lane = lanes::take()?;
    if !way.remember(lane) {
        lanes::give_back(lane);
        return None;
    }
    let kind = if way.is_send { LaneKind::Send } else { LaneKind::Recv };
    gate.lane_open(lane, &LaneKey { comm: entry.id(), kind, own: entry.rank(), other: way.peer });
    Some(lane)
}

/// A communicator was made. Attaches at the first.
pub(crate) fn made(handle: usize, made: Made, nccl_version: u32) {
    quietly(|| {
        attach(made, nccl_version);
        let Some(gate) = gate() else { return };
        // One of the same address that was not seen to go.
        forget(handle);
        let lane = lanes::take().filter(|_| made.id != 0);
        if table::keep(handle, made, lane) {
            if let Some((_, entry)) = table::find(handle) {
                entry.record_with(records::comm_begin(&made));
            }
            if let Some(lane) = lane {
                let (own, other) = (made.rank, made.ranks);
                gate.lane_open(lane, &LaneKey { comm: made.id, kind: LaneKind::Collective, own, other });
            }
        } else if let Some(lane) = lane {
            lanes::give_back(lane);
        }
    });
}

/// A communicator goes.
pub(crate) fn gone(handle: usize) {
    quietly(|| forget(handle));
}

fn forget(handle: usize) {
    let Some(gate) = gate() else { return };
    records::comm_end(table::find(handle).map_or(0, |(_, entry)| entry.context()));
    let Some((place, lane)) = table::forget(handle) else { return };
    let close = |lane| {
        gate.lane_close(lane);
        lanes::give_back(lane);
    };
    lanes::forget(place, close);
    lane.into_iter().for_each(close);
}

/// Finds the segment that the tracer made in this process, or makes one. Once.
fn attach(made: Made, nccl_version: u32) {
    if ATTACHED.load(Ordering::Relaxed) || ATTACHED.swap(true, Ordering::AcqRel) {
        return;
    }
    let config = Config::from_env();
    // SAFETY: a plain handler without arguments, in a library that is never unloaded (`-z nodelete`).
    if config.off || unsafe { libc::pthread_atfork(None, None, Some(in_child)) } != 0 {
        return;
    }
    let comm = CommInfo { id: None, name: "", n_nodes: 0, n_ranks: made.ranks, rank: Some(made.rank) };
    let words = page::of_this_process(&config.dir).or_else(|| {
        let are_recorded = records::are_wanted(nccl_version);
        // With records this rank's share of the host's.
        let segment_bytes = if are_recorded { 0 } else { SEGMENT_BYTES };
        let attach = Attach { abi: 0, nccl_version, kernel_events: false, hidden: &[], segment_bytes, comm };
        let runtime = Runtime::attach(&attach).ok()?;
        if are_recorded {
            records::begin();
        }
        page::of_words(runtime.writer().words())
    });
    let Some(words) = words.filter(|words| words.len() >= GATE_WORDS) else { return };
    if let Some(gate) = Gate::over(words) {
        gate.set_able(true);
        gate.open();
        WORDS.store(words.as_ptr().cast_mut(), Ordering::Release);
    }
}
