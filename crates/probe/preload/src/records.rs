//! Records of NCCL's host calls, for processes whose NCCL tells no profiler anything (before 2.23; RCCL has the same names): what was
//! called, by whom, how large and when. Nothing tells when an operation ends, so none is ever in flight: each is recorded as issued and
//! not observed.
//!
//! `MYCROFT_CALLS`: `on`, `off`, else on where NCCL is older than 2.23. Where the tracer is in the process there are no such records.
use crate::table::{self, Made};
use mycroft_probe_core::config::call_records;
use mycroft_probe_core::{CollStart, CommInfo, CommTag, P2pStart, Runtime, ffi_guard};
use mycroft_record::{Algorithm, Datatype, OpKind, Protocol};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first NCCL with profiler plugins, as `ncclGetVersion` tells it.
const FIRST_WITH_PROFILER: u32 = 22_300;
/// No operation.
const NONE: u64 = 0;

/// Calls are recorded.
static ON: AtomicBool = AtomicBool::new(false);

/// A call, as NCCL's arguments say.
#[derive(Clone, Copy)]
pub(crate) struct Called {
    pub(crate) kind: OpKind,
    pub(crate) count: usize,
    pub(crate) datatype: c_int,
    /// Root of a collective that has one, the other rank of a send or receive.
    pub(crate) other: c_int,
}

/// Whether calls are to be recorded with this NCCL; 0 for one that does not tell its version.
pub(crate) fn are_wanted(nccl_version: u32) -> bool {
    call_records().unwrap_or(is_without_profiler(nccl_version))
}

fn is_without_profiler(nccl_version: u32) -> bool {
    (1..FIRST_WITH_PROFILER).contains(&nccl_version)
}

/// From now on.
pub(crate) fn begin() {
    ON.store(true, Ordering::Release);
}

fn runtime() -> Option<&'static Runtime> {
    if ON.load(Ordering::Relaxed) { Runtime::get() } else { None }
}

/// A communicator was made: what its operations are recorded with.
pub(crate) fn comm_begin(made: &Made) -> u64 {
    let info = CommInfo { id: Some(made.id), name: "", n_nodes: 0, n_ranks: made.ranks, rank: Some(made.rank) };
    runtime().map_or(NONE, |runtime| runtime.comm_begin(&info))
}

/// It goes.
pub(crate) fn comm_end(context: u64) {
    if let Some(runtime) = runtime().filter(|_| context != NONE) {
        runtime.comm_end(context);
    }
}

/// A call begins.
#[inline]
pub(crate) fn called(comm: usize, called: Called) {
    if ON.load(Ordering::Relaxed) {
        let ended = ffi_guard(false, || {
            record(comm, called);
            true
        });
        if !ended {
            ON.store(false, Ordering::Relaxed);
        }
    }
}

fn record(comm: usize, called: Called) {
    let (Some(runtime), Some((_, entry))) = (runtime(), table::find(comm)) else { return };
    let tag = CommTag::from_init(c_int::try_from(entry.rank()).unwrap_or(-1));
    // NCCL's codes begin at 0, and 0 is unknown here.
    let datatype = u8::try_from(called.datatype).map_or(0, |code| code.saturating_add(1));
    let (count, datatype) = (called.count as u64, Datatype::from_code(datatype));
    let handle = match called.kind {
        OpKind::Send | OpKind::Recv => {
            let start = P2pStart { kind: called.kind, count, datatype, peer: called.other, n_channels: 0 };
            runtime.p2p_start(entry.context(), &tag, &start)
        }
        kind => {
            let (algorithm, protocol, root) = (Algorithm::Unknown, Protocol::Unknown, called.other);
            let start = CollStart { nccl_seq: 0, kind, count, root, datatype, algorithm, protocol, n_channels: 0 };
            runtime.coll_start(entry.context(), 0, &tag, &start)
        }
    };
    runtime.end_unseen(handle);
}

#[cfg(test)]
mod tests {
    use super::is_without_profiler;

    #[test]
    fn calls_are_recorded_where_nccl_has_no_profiler() {
        // As `NCCL_VERSION` makes them: 2.4.8 in the old way, 2.22.3, 2.23.4; and one that is not told.
        assert!([2_408, 22_203].into_iter().all(is_without_profiler));
        assert!(![0, 22_304, 23_007].into_iter().any(is_without_profiler));
    }
}
