//! Records for tests: random ones of every kind, and the plausible traffic of a training job.
#![allow(dead_code)] // Each test binary uses its own part.
use mycroft_record::*;
use mycroft_wire::cells::{self, CellType, Kind};
use proptest::prelude::*;
use std::sync::Arc;

/// A fixed-seed generator (splitmix64): the same data on every machine.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

pub(crate) fn source(job: &str, host: &str, rank: u32) -> Source {
    let process = Some(ProcessKey { rank: Rank(rank), pid: 1000 + rank, nonce: 7 * rank + 1 });
    Source { job: Arc::from(job), host: Arc::from(host), process }
}

/// The batches of a frame as its agent sent them, without what the server tells of the agent's clock.
pub(crate) fn sent(frame: Vec<Batch>) -> Vec<Batch> {
    let tells = |batch: &Batch| batch.records.iter().any(|record| matches!(record, Record::ClockOffset(_)));
    frame.into_iter().filter(|batch| !tells(batch)).collect()
}

pub(crate) fn step_batch(job: &str, rank: u32, step: u64) -> Batch {
    let at = HostTime(1_700_000_000 * NANOS_PER_SEC + step * NANOS_PER_MS);
    let records = vec![
        Record::StepMark(StepMark { at, step }),
        Record::Sampled(Sampled { at, ops_in_flight: 1, flows_in_flight: 2, alive: true, stopped: false }),
    ];
    Batch { source: source(job, "host0", rank), collected_at: at, records }
}

/// One iteration of one rank: 40 operations, 100 flow records, 20 of them from a second of samples (ten looks, one
/// operation and two flows in
/// flight at each). Spreads are those of a CPU testbed, and uniform, which no code can shorten: the worst case.
pub(crate) fn iteration(rank: u32, number: u64, random: &mut Random) -> Batch {
    let begin = 1_700_000_000 * NANOS_PER_SEC + number * NANOS_PER_SEC;
    let mut records = Vec::new();
    let mut at = begin + random.below(2_000_000);
    for n in 0..40u64 {
        let comm = 0xfeed_0000_1234_0000 + (n % 4) * 0x0101_0101_0101 + u64::from(rank / 8);
        let id =
            OpId { comm: CommId(comm), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(number * 10 + n / 4) };
        let enqueued = at + random.below(300_000);
        let started = enqueued + 50_000 + random.below(1_000_000);
        let ended = started + 8_000_000 + random.below(4_000_000);
        at = ended;
        let op = OpMeta {
            id,
            kind: if n % 4 == 0 { OpKind::AllReduce } else { OpKind::ReduceScatter },
            nccl_seq: number * 10 + n / 4,
            comm_rank: CommRank(rank % 8),
            count: 1 << (14 + n % 4),
            datatype: Datatype::Bfloat16,
            root: u32::MAX,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            n_channels: 2,
            enqueued_at: HostTime(enqueued),
            started_at: HostTime(started),
            started_last_at: HostTime(started + random.below(60_000)),
        };
        for f in 0..2 {
            records.push(Record::FlowDone(flow_done(id, f, started, ended, random)));
        }
        if n % 4 == 0 {
            samples(&mut records, op, started + 5_000_000, random);
        }
        records.push(Record::OpDone(OpDone {
            op,
            ended_first_at: HostTime(ended - random.below(100_000)),
            ended_at: HostTime(ended),
            flows: 4,
            observed: true,
        }));
    }
    let (host, collected_at) = (format!("host{}", rank / 8), HostTime(begin + NANOS_PER_SEC));
    Batch { source: source("train", &host, rank), collected_at, records }
}

fn flow_done(op: OpId, f: u64, started: u64, ended: u64, random: &mut Random) -> FlowDone {
    let steps = 8;
    let first = started + 30_000 + random.below(500_000);
    let end = ended - random.below(800_000);
    let mut stage_us = [0u32; 3];
    let mut stage_max_us = [0u32; 3];
    for stage in 0..3 {
        stage_us[stage] = 200 + random.below(1500) as u32;
        stage_max_us[stage] = stage_us[stage] / 4 + random.below(100) as u32;
    }
    FlowDone {
        flow: FlowKey {
            op,
            channel: ChannelId((f / 2) as u8),
            peer: CommRank((f % 2) as u32),
            direction: if f.is_multiple_of(2) { Direction::Send } else { Direction::Recv },
        },
        counters: FlowCounters { total_chunks: steps, posted: steps, ready: steps, transmitted: steps, done: steps },
        bytes: 65536,
        times: FlowTimes {
            started_at: HostTime(started - random.below(200_000)),
            first_ready_at: HostTime(first),
            last_progress_at: HostTime(end - random.below(20_000)),
            stage_us,
            stage_max_us,
        },
        ended_at: HostTime(end),
        peer_wait_polls: random.below(40) as u32,
        proxied_for_pid: 0,
    }
}

fn samples(records: &mut Vec<Record>, op: OpMeta, at: u64, random: &mut Random) {
    let sampled_at = HostTime(at);
    records.push(Record::OpState(OpState {
        sampled_at,
        op,
        kernels_started: 2,
        kernels_stopped: 0,
        flows_started: 4,
        flows_done: 1,
    }));
    for f in 0..2 {
        let d = flow_done(op.id, f, op.started_at.0, at + 2_000_000, random);
        records.push(Record::FlowState(FlowState {
            sampled_at,
            flow: d.flow,
            counters: FlowCounters { done: 3, transmitted: 4, ..d.counters },
            bytes: 65536 / 2,
            times: d.times,
            peer_wait_polls: d.peer_wait_polls,
            proxied_for_pid: 0,
        }));
    }
    records.push(Record::Sampled(Sampled {
        at: sampled_at,
        ops_in_flight: 1,
        flows_in_flight: 2,
        alive: true,
        stopped: false,
    }));
}

/// Any record at all, by way of its cells.
pub(crate) fn any_record() -> impl Strategy<Value = Record> {
    let wild = prop_oneof![
        Just(0u64),
        0..300u64,
        Just(u64::MAX),
        Just(1u64 << 63),
        any::<u64>(),
        (0..9u64).prop_map(|n| n * 1000)
    ];
    let texts = prop_oneof![Just(""), Just("eth0"), Just("DP_3"), Just("a name with \u{fc}")];
    (proptest::sample::select(Kind::ALL), proptest::collection::vec(wild, cells::MAX_COLUMNS), texts).prop_map(
        |(kind, values, text)| {
            let strings = [Arc::from(""), Arc::from(text)];
            let columns = cells::columns(kind);
            // Narrow fields refuse wide values; shrink each cell until the record takes it.
            let mut cells_of: Vec<u64> =
                columns.iter().zip(values).map(|(c, v)| if c.cell == CellType::Text { 1 } else { v }).collect();
            loop {
                match cells::take(kind, &strings, cells_of.clone()) {
                    Ok(record) => return record,
                    Err(name) => {
                        let index = columns.iter().position(|c| c.name == name).expect("the error names a column");
                        cells_of[index] = if cells_of[index] > u64::from(u32::MAX) {
                            cells_of[index] >> 32
                        } else {
                            cells_of[index] >> 1
                        };
                    }
                }
            }
        },
    )
}

pub(crate) fn any_batch() -> impl Strategy<Value = Batch> {
    let process = proptest::option::of((0..40u32, any::<u32>(), any::<u32>()));
    let names =
        (proptest::sample::select(&["job", "train-7", ""][..]), proptest::sample::select(&["h0", "host-1"][..]));
    (names, process, any::<u64>(), proptest::collection::vec(any_record(), 0..40)).prop_map(
        |((job, host), process, at, records)| {
            let process = process.map(|(rank, pid, nonce)| ProcessKey { rank: Rank(rank), pid, nonce });
            Batch {
                source: Source { job: Arc::from(job), host: Arc::from(host), process },
                collected_at: HostTime(at),
                records,
            }
        },
    )
}
