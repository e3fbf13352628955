//! Operations as the tracer of a rank knows them, with kernel events and without.
use super::rank::{OpFlow, OpTrace};
use super::sizes::told_protocol;
use super::world::World;
use crate::profile::NEVER;
use mycroft_record::*;

/// What the live table counts of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) stopped: u8,
    pub(super) begun: u16,
    pub(super) done: u16,
}

pub(super) fn id(world: &World, op: &OpTrace) -> OpId {
    let comm = world.groups[op.group as usize].id;
    OpId { comm, class: op.class, peer: CommRank(op.peer), seq: OpSeq(op.seq) }
}

/// What is known of an operation at `at`.
fn meta(world: &World, host: u32, op: &OpTrace, at: u64) -> OpMeta {
    let started = if op.started <= at && world.scenario.cluster.kernel_events {
        world.host_time(host, op.started)
    } else {
        HostTime::NONE
    };
    OpMeta {
        id: id(world, op),
        kind: op.kind,
        nccl_seq: op.nccl_seq,
        comm_rank: CommRank(op.position),
        count: op.count,
        datatype: Datatype::Float32,
        root: u32::MAX,
        algorithm: op.algorithm,
        protocol: told_protocol(world, op),
        n_channels: op.channels,
        enqueued_at: world.host_time(host, op.issued),
        started_at: started,
        started_last_at: started,
    }
}

pub(super) fn op_state(world: &World, host: u32, op: &OpTrace, counts: Counts, at: u64) -> OpState {
    let kernels = |channels: u8| if world.scenario.cluster.kernel_events { channels } else { 0 };
    OpState {
        sampled_at: world.host_time(host, at),
        op: meta(world, host, op, at),
        kernels_started: if op.started <= at { kernels(op.channels) } else { 0 },
        kernels_stopped: kernels(counts.stopped),
        flows_started: counts.begun,
        flows_done: counts.done,
    }
}

/// The end of an operation. Without kernel events it is its last flow's, and where it has none it was not observed.
pub(super) fn op_done(world: &World, host: u32, op: &OpTrace) -> Record {
    let flows = op.flows.iter().filter(|flow| flow.trace.is_some()).count() as u16;
    let has_kernels = world.scenario.cluster.kernel_events;
    let last_flow = op.flows.iter().map(OpFlow::ended).filter(|at| *at != NEVER).max().unwrap_or(op.issued);
    let (first, ended) = if has_kernels { (op.left_first, op.ended) } else { (NEVER, last_flow) };
    Record::OpDone(OpDone {
        op: meta(world, host, op, op.ended),
        ended_first_at: if first == NEVER { HostTime::NONE } else { world.host_time(host, first) },
        ended_at: world.host_time(host, ended),
        flows,
        observed: has_kernels || flows > 0,
    })
}
