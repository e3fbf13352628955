//! The runtime's side of calls of the API: operations that are known from their calls alone (`calls`).
use crate::calls::Told;
use crate::events::CallStart;
use crate::handle::DROP_HANDLE;
use crate::ops::is_rooted;
use crate::runtime::Runtime;
use mycroft_record::{Algorithm, CommRank, OpClass, OpId, OpSeq, Protocol};
use mycroft_ring::{DropKind, RawOpDone, RawOpMeta, RawRecord, now_ticks};

impl Runtime {
    /// Whether calls are of interest: this NCCL may show some operations by their calls only.
    #[inline]
    pub fn remembers_calls(&self) -> bool {
        self.calls.counts()
    }

    /// A group of calls begins: its handle.
    #[inline]
    pub fn group_call_start(&self) -> u64 {
        if self.calls.counts() { self.calls.begin_group() } else { DROP_HANDLE }
    }

    /// A collective was called inside `group`: the call's handle.
    #[inline]
    pub fn coll_call_start(&self, context: u64, group: u64, start: &CallStart) -> u64 {
        // What is captured in a graph is issued when the graph runs, perhaps often.
        if !self.calls.counts() || start.is_captured {
            return DROP_HANDLE;
        }
        // Interfaces that tell of calls told of the communicator at `init`.
        let Some(comm) = self.comm_told(context) else { return self.stale() };
        let call = Told { context, seq: comm.next_coll(), begun: now_ticks(), start: *start };
        self.calls.begin(group, &call).unwrap_or_else(|| self.stale())
    }

    /// A group of calls ended: those that no operation named are recorded.
    pub(crate) fn call_stop(&self, raw: u64) {
        if !self.calls.end_group(raw, |call| self.tell_call(call)) {
            self.writer().count_drop(DropKind::Op);
        }
    }

    fn tell_call(&self, call: &Told) {
        let Some(comm) = self.comm_told(call.context) else { return };
        let Told { seq, begun, start, .. } = call;
        let op = RawOpMeta {
            id: OpId { comm: comm.id(), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(*seq) },
            kind: start.kind,
            nccl_seq: 0,
            comm_rank: comm.rank(),
            count: start.count,
            datatype: start.datatype,
            root: if is_rooted(start.kind) { start.root as u32 } else { u32::MAX },
            algorithm: Algorithm::Unknown,
            protocol: Protocol::Unknown,
            n_channels: 0,
            enqueued_ticks: *begun,
            started_ticks: 0,
            started_last_ticks: 0,
        };
        let done = RawOpDone { op, ended_first_ticks: *begun, ended_ticks: *begun, flows: 0, observed: false };
        self.push(&RawRecord::OpDone(done));
    }
}
