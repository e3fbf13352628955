//! The event path allocates nothing: an allocator that counts while a thread says so.
use mycroft_record::{
    Algorithm, ChannelId, CommId, CommRank, Datatype, Direction, OpClass, OpId, OpKind, OpSeq, Protocol,
};
use mycroft_ring::clock::{Calibration, ClockKind};
use mycroft_ring::layout::{Geometry, MIN_SEGMENT_BYTES};
use mycroft_ring::{
    CommBegin, DropKind, FlowBegin, FlowOwner, OpBegin, OpEnd, RawRecord, RawStepMark, SegmentWriter, now_ticks,
};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands everything to the system allocator; the counter is a plain thread-local cell that allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise, passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

#[test]
fn the_event_path_allocates_nothing() {
    let clock = Calibration::from_parts(ClockKind::Monotonic, 1, 1, 1, 1_000_000_000).expect("a clock");
    let writer = SegmentWriter::on_heap(Geometry::for_bytes(MIN_SEGMENT_BYTES), clock).expect("memory");
    let mut ring = writer.claim_ring().expect("a ring");
    now_ticks();
    let before = allocations();
    for n in 0..5000 {
        let begin = CommBegin { at_ticks: 1, comm: n, n_ranks: 2, n_nodes: 1, comm_rank: 0, name: "TP_0" };
        let comm = writer.comm_begin(&begin).expect("a cell");
        let op = writer.op_begin(&OpBegin {
            comm_slot: Some(comm),
            id: OpId { comm: CommId(n), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(n) },
            kind: OpKind::AllReduce,
            nccl_seq: n,
            comm_rank: CommRank(0),
            count: 4,
            datatype: Datatype::Int8,
            root: 0,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            n_channels: 1,
            enqueued_ticks: now_ticks(),
        });
        let op = op.expect("a cell");
        let flow = writer.flow_begin(&FlowBegin {
            op: FlowOwner::Op(op),
            channel: ChannelId(0),
            peer: CommRank(1),
            direction: Direction::Send,
            total_chunks: 1,
            at_ticks: now_ticks(),
            proxied_for_pid: 0,
        });
        let flow = flow.expect("a cell");
        writer.flow(flow).expect("live").done(now_ticks());
        ring.push(&RawRecord::FlowDone(writer.flow_end(flow, now_ticks()).expect("live")));
        let end = OpEnd { ended_ticks: now_ticks(), observed: true };
        ring.push(&RawRecord::OpDone(writer.op_end(op, end).expect("live")));
        ring.push(&RawRecord::StepMark(RawStepMark { at_ticks: 1, step: n }));
        writer.comm_end(comm, 2);
        writer.count_drop(DropKind::Other);
        assert!(writer.op_end(op, end).is_none());
    }
    assert_eq!(allocations(), before);
    let control = Box::new(before);
    assert!(allocations() > *control, "the counter counts");
}
