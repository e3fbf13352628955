//! Records of NCCL's host calls, where NCCL tells no profiler anything: what real ranks called.
mod common;

use common::{Job, Shape};
use mycroft_record::{Datatype, OpClass, OpId, OpKind};
use mycroft_ring::RawRecord;
use mycroft_ring::raw::RawOpMeta;
use mycroft_ring::segment::{SegmentReader, list};
use std::collections::BTreeMap;

const RANKS: usize = 4;

fn shape() -> Shape {
    Shape { ranks: RANKS, job: "groups", env: vec![("MYCROFT_CALLS", "on".to_owned())], ..Shape::default() }
}

/// All operations that the segments of a job show, by rank.
fn operations(job: &Job) -> BTreeMap<u32, BTreeMap<OpId, RawOpMeta>> {
    let mut all = BTreeMap::new();
    for path in list(&job.segments()).expect("a folder") {
        let mut reader = SegmentReader::open(&path).expect("a segment");
        let mut records = Vec::new();
        while reader.drain(4_096, &mut records).expect("read").more {}
        let done = records.iter().filter_map(|record| match record {
            RawRecord::OpDone(done) => Some(done),
            _ => None,
        });
        let of: BTreeMap<OpId, RawOpMeta> = done.clone().map(|done| (done.op.id, done.op)).collect();
        assert!(done.clone().all(|done| !done.observed), "nothing tells when one ends");
        assert_eq!(of.len(), done.count(), "each once");
        assert!(reader.ops().expect("read").items.len() <= 1, "none stays in flight");
        all.insert(reader.header().rank, of);
    }
    all
}

#[test]
fn calls_are_recorded_with_kind_size_and_order() {
    let mut job = Job::start(&shape());
    job.progress(11);
    let all = operations(&job);
    assert_eq!(all.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3]);
    let count = |of: &BTreeMap<OpId, RawOpMeta>, kind: OpKind| of.values().filter(|op| op.kind == kind).count();
    for (rank, of) in &all {
        // A round: two all-reduces or three (the first three ranks have a third communicator), a broadcast, and messages to and from
        // the next one, everybody, and the neighbour.
        let rounds = count(of, OpKind::Broadcast);
        assert!(rounds >= 11, "rank {rank}: {rounds}");
        let per_round = [(OpKind::AllReduce, if *rank < 3 { 3 } else { 2 }), (OpKind::Send, 6), (OpKind::Recv, 6)];
        for (kind, times) in per_round {
            let found = count(of, kind);
            assert!(
                (rounds * times..=(rounds + 1) * times).contains(&found),
                "rank {rank}: {kind:?} {found} of {rounds}"
            );
        }
        let sizes_are_right = of.values().all(|op| match op.kind {
            OpKind::Broadcast => op.count == 1 && op.root == 0,
            _ => op.count == 3_000,
        });
        assert!(sizes_are_right && of.values().all(|op| op.datatype == Datatype::Float32), "rank {rank}");
        // Of each communicator, kind and peer without a gap.
        let mut last: BTreeMap<(u64, OpClass, u32), u64> = BTreeMap::new();
        for id in of.keys() {
            let before = last.insert((id.comm.0, id.class, id.peer.0), id.seq.0);
            assert!(before.is_none_or(|before| before + 1 == id.seq.0), "rank {rank}: {id:?} after {before:?}");
        }
    }
    // The communicator of all has one number.
    let world =
        |of: &BTreeMap<OpId, RawOpMeta>| of.values().find(|op| op.kind == OpKind::Broadcast).map(|op| op.id.comm);
    assert!(all.values().all(|of| world(of) == world(&all[&0])));
    let with = job.stop();
    let bare = Job::start(&Shape { bare: true, rounds: Some(with[0].0), ..shape() }).results();
    assert_eq!(with, bare, "not a bit differs");
}

#[test]
fn no_calls_are_recorded_where_nobody_asks_or_the_tracer_is() {
    for traced in [false, true] {
        // The stand-in says that it is a NCCL with profiler plugins.
        let asked = if traced { "on" } else { "" };
        let env = vec![("MYCROFT_CALLS", asked.to_owned())];
        let mut job = Job::start(&Shape { ranks: 2, job: "all-reduce", traced, env, ..Shape::default() });
        job.progress(1);
        for path in list(&job.segments()).expect("a folder") {
            let mut reader = SegmentReader::open(&path).expect("a segment");
            let mut records = Vec::new();
            reader.drain(4_096, &mut records).expect("read");
            let own = records.iter().filter(|record| matches!(record, RawRecord::CommBegin(_))).count();
            assert_eq!(own, usize::from(traced), "one communicator, told once: {path:?}");
        }
    }
}
