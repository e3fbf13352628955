//! Segments that earlier releases wrote must stay readable: an agent meets probes of older images. One frozen segment per
//! layout version in `testdata/vN`; `MYCROFT_WRITE_SAMPLES=1 cargo test -p mycroft-ring --test samples` adds that of a new
//! version and leaves the others alone.
#![cfg(target_endian = "little")]
use mycroft_record::{
    Algorithm, ChannelId, CommId, CommRank, Datatype, Direction, FlowCounters, OpClass, OpId, OpKind, OpSeq, Protocol,
};
use mycroft_ring::layout::{MIN_SEGMENT_BYTES, VERSION};
use mycroft_ring::{
    CommBegin, FlowBegin, FlowOwner, OpBegin, RawRecord, RawStepMark, SegmentConfig, SegmentReader, SegmentWriter,
};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const STEPS: u64 = 100;
const OP: OpId = OpId { comm: CommId(0xfeed), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(7) };

fn sample(version: u64) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("testdata/v{version}/segment.bin"))
}

/// A running job's segment: a communicator, an operation with one flow half way, step marks in a ring.
fn write(to: &Path) {
    let dir = tempfile::tempdir().expect("a directory");
    let config = SegmentConfig {
        dir: dir.path(),
        size_bytes: MIN_SEGMENT_BYTES,
        job: "train",
        host: "host3",
        rank: 25,
        world_size: 32,
        local_rank: 1,
        gpu: 1,
    };
    let writer = SegmentWriter::create(&config).expect("a segment");
    writer.set_profiler(6, 22_904, true);
    let comm = CommBegin { at_ticks: 1, comm: OP.comm.0, n_ranks: 32, n_nodes: 4, comm_rank: 25, name: "DP" };
    let comm_slot = writer.comm_begin(&comm);
    let op = writer.op_begin(&OpBegin {
        comm_slot,
        id: OP,
        kind: OpKind::AllReduce,
        nccl_seq: 9,
        comm_rank: CommRank(25),
        count: 1 << 20,
        datatype: Datatype::Bfloat16,
        root: u32::MAX,
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        n_channels: 2,
        enqueued_ticks: 11,
    });
    let flow = writer.flow_begin(&FlowBegin {
        op: FlowOwner::Op(op.expect("a cell")),
        channel: ChannelId(1),
        peer: CommRank(26),
        direction: Direction::Send,
        total_chunks: 8,
        at_ticks: 12,
        proxied_for_pid: 0,
    });
    let cell = writer.flow(flow.expect("a cell")).expect("in flight");
    for at_ticks in 13..17 {
        cell.posted(at_ticks);
    }
    for at_ticks in 17..20 {
        cell.ready(at_ticks);
    }
    let mut ring = writer.claim_ring().expect("a ring");
    for step in 0..STEPS {
        ring.push(&RawRecord::StepMark(RawStepMark { at_ticks: step + 1, step }));
    }
    std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
    std::fs::copy(writer.path().expect("a file"), to).expect("a copy");
}

fn reads(version: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("1-1-00000001.mycroft");
    std::fs::copy(sample(version), &path).expect("the sample");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("mine");
    let mut reader = SegmentReader::open(&path).expect("readable");
    let header = reader.header();
    assert_eq!((header.job.as_str(), header.host.as_str()), ("train", "host3"));
    assert_eq!(reader.state().expect("a state").nccl_version, 22_904);
    let comms = reader.comms().expect("communicators").items;
    assert_eq!(comms.iter().map(|comm| (comm.comm, comm.n_ranks)).collect::<Vec<_>>(), [(OP.comm, 32)]);
    let ops = reader.ops().expect("operations").items;
    assert_eq!(ops.iter().map(|op| (op.op.id, op.op.count)).collect::<Vec<_>>(), [(OP, 1 << 20)]);
    let flows = reader.flows().expect("flows").items;
    let counters = FlowCounters { total_chunks: 8, posted: 4, ready: 3, transmitted: 0, done: 0 };
    assert_eq!(flows.iter().map(|flow| (flow.flow.op, flow.counters)).collect::<Vec<_>>(), [(OP, counters)]);
    let mut records = Vec::new();
    let stats = reader.drain(1000, &mut records).expect("records");
    assert_eq!((stats.lost, stats.damaged, records.len() as u64), (0, 0, STEPS));
    let last = RawRecord::StepMark(RawStepMark { at_ticks: STEPS, step: STEPS - 1 });
    assert_eq!(format!("{:?}", records.last()), format!("{:?}", Some(last)));
}

#[test]
fn segments_of_every_version_are_read() {
    if std::env::var_os("MYCROFT_WRITE_SAMPLES").is_some() && !sample(VERSION).exists() {
        write(&sample(VERSION));
    }
    (1..=VERSION).for_each(reads);
}
