//! What agents tell is complete, in order, and consistent: across ranks, across the kinds of record, and with the
//! volumes that the algorithms move.
use mycroft_record::{
    Algorithm, Batch, CommId, CommInit, Direction, FlowDone, FlowKey, HostTime, NANOS_PER_MS, NANOS_PER_SEC, OpClass,
    OpDone, OpId, OpKind, OpMeta, Record, Sampled,
};
use mycroft_sim::{Algo, Cluster, Delivery, DpMode, EPOCH, Scenario, Schedule, Simulation};
use std::collections::{BTreeMap, BTreeSet};

/// Ends that agents may not have told when the time is over: one look, and what ranks are apart.
const UNTOLD_NS: u64 = 300 * NANOS_PER_MS;

/// Jobs that differ in everything that has operations of its own.
fn jobs() -> Vec<Scenario> {
    let base = |name: &str| Scenario { name: name.to_owned(), duration_s: 5.0, ..Scenario::default() };
    vec![
        base("ring"),
        Scenario { algo: Algo::Tree, tp: 1, pp: 1, dp: 16, dp_mode: DpMode::AllReduce, ..base("tree") },
        Scenario { moe: true, tp: 1, pp: 2, dp: 8, ep: 4, channels: 1, ..base("experts") },
        Scenario { dp_mode: DpMode::Fsdp, tp: 1, pp: 1, dp: 8, cp: 2, channels: 4, ..base("sharded") },
        Scenario { schedule: Schedule::Interleaved, virtual_stages: 2, ..base("interleaved") },
    ]
}

fn deliveries(scenario: &Scenario) -> Vec<Delivery> {
    scenario.check().unwrap();
    let mut simulation = Simulation::new(scenario);
    let mut all = Vec::new();
    while let Some(stretch) = simulation.next_stretch() {
        all.extend(stretch);
    }
    all
}

/// Everything told of one rank.
#[derive(Default)]
struct Told {
    done: BTreeMap<OpId, OpDone>,
    flows: BTreeMap<FlowKey, FlowDone>,
    sampled: Vec<Sampled>,
    comms: BTreeMap<CommId, CommInit>,
}

fn told(deliveries: &[Delivery]) -> BTreeMap<u32, Told> {
    let mut all: BTreeMap<u32, Told> = BTreeMap::new();
    for Batch { source, records, .. } in deliveries.iter().map(|delivery| &delivery.batch) {
        let Some(process) = source.process else { continue };
        let told = all.entry(process.rank.0).or_default();
        for record in records {
            match record {
                Record::OpDone(done) => assert!(told.done.insert(done.op.id, *done).is_none(), "told twice: {done:?}"),
                Record::FlowDone(done) => assert!(told.flows.insert(done.flow, *done).is_none(), "twice: {done:?}"),
                Record::Sampled(sampled) => told.sampled.push(*sampled),
                Record::CommInit(comm) => drop(told.comms.insert(comm.comm, comm.clone())),
                _ => {}
            }
        }
    }
    all
}

/// Every moment that a record speaks of.
fn moments(record: &Record) -> Vec<HostTime> {
    let op = |op: &OpMeta| vec![op.enqueued_at, op.started_at, op.started_last_at];
    match record {
        Record::Process(process) => vec![process.attached_at],
        Record::CommInit(comm) => vec![comm.at],
        Record::OpState(state) => [op(&state.op), vec![state.sampled_at]].concat(),
        Record::OpDone(done) => [op(&done.op), vec![done.ended_first_at, done.ended_at]].concat(),
        Record::FlowState(flow) => {
            vec![flow.sampled_at, flow.times.started_at, flow.times.first_ready_at, flow.times.last_progress_at]
        }
        Record::FlowDone(flow) => {
            vec![flow.ended_at, flow.times.started_at, flow.times.first_ready_at, flow.times.last_progress_at]
        }
        Record::Sampled(sampled) => vec![sampled.at],
        Record::NicState(nic) => vec![nic.at],
        Record::HostVitals(vitals) => vec![vitals.at],
        Record::ProcessExit(exit) => vec![exit.noticed_at],
        Record::Gap(gap) => vec![gap.noticed_at],
        Record::CommEnd(_) | Record::StepMark(_) | Record::ClockOffset(_) | Record::ProxyHeld(_) => {
            panic!("the simulator tells of no {record:?}")
        }
    }
}

#[test]
fn nothing_is_told_before_its_time_and_deliveries_are_in_order() {
    for scenario in jobs() {
        let all = deliveries(&scenario);
        let order = |delivery: &Delivery| (delivery.arrives_at, delivery.batch.source.clone());
        assert!(all.is_sorted_by_key(order), "{}", scenario.name);
        for delivery in &all {
            let batch = &delivery.batch;
            assert!(batch.collected_at.0 <= delivery.arrives_at, "{}", scenario.name);
            for record in &batch.records {
                let latest = moments(record).into_iter().max().unwrap();
                assert!(latest <= batch.collected_at, "{}: told at {}: {record:?}", scenario.name, batch.collected_at);
            }
        }
    }
}

#[test]
fn ends_have_beginnings_and_none_is_missing() {
    for scenario in jobs() {
        let name = &scenario.name;
        for (rank, told) in told(&deliveries(&scenario)) {
            let mut seqs: BTreeMap<_, Vec<u64>> = BTreeMap::new();
            for (id, done) in &told.done {
                let OpMeta { enqueued_at, started_at, .. } = done.op;
                let times = [enqueued_at, started_at, done.ended_first_at, done.ended_at];
                assert!(enqueued_at != HostTime::NONE && times.is_sorted(), "{name} rank {rank}: {done:?}");
                let flows: Vec<&FlowDone> = told.flows.values().filter(|flow| flow.flow.op == *id).collect();
                assert_eq!(flows.len(), usize::from(done.flows), "{name} rank {rank}: {done:?}");
                assert!(flows.iter().all(|flow| flow.ended_at <= done.ended_at));
                seqs.entry((id.comm, id.class, id.peer)).or_default().push(id.seq.0);
            }
            for (counter, seqs) in seqs {
                assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>(), "{name} rank {rank}: {counter:?}");
            }
            for flow in told.flows.values() {
                let counters = flow.counters;
                let all = [counters.posted, counters.ready, counters.transmitted, counters.done];
                assert_eq!(all, [counters.total_chunks; 4], "{name} rank {rank}: {flow:?}");
                let times = flow.times;
                let order = [times.started_at, times.first_ready_at, times.last_progress_at, flow.ended_at];
                assert!(order.is_sorted(), "{name} rank {rank}: {flow:?}");
            }
        }
    }
}

#[test]
fn members_did_the_same_operations_and_messages_were_sent_and_received() {
    for scenario in jobs() {
        let ends = EPOCH + (scenario.duration_s * 1e9) as u64 - UNTOLD_NS;
        let all = told(&deliveries(&scenario));
        let mut members: BTreeMap<CommId, BTreeMap<u32, &Told>> = BTreeMap::new();
        for told in all.values() {
            for comm in told.comms.values() {
                members.entry(comm.comm).or_default().insert(comm.comm_rank.0, told);
            }
        }
        for (comm, members) in &members {
            assert_eq!(members.len() as u32, members[&0].comms[comm].n_ranks);
            for (me, told) in members {
                let due = told.done.values().filter(|done| done.op.id.comm == *comm && done.ended_at.0 < ends);
                for OpDone { op, .. } in due {
                    let others: Vec<(u32, OpId)> = match op.id.class {
                        OpClass::Collective => members.keys().map(|other| (*other, op.id)).collect(),
                        class => {
                            let class = if class == OpClass::Send { OpClass::Recv } else { OpClass::Send };
                            vec![(op.id.peer.0, OpId { class, peer: op.comm_rank, ..op.id })]
                        }
                    };
                    for (other, id) in others {
                        let theirs = members[&other].done.get(&id);
                        let theirs =
                            theirs.unwrap_or_else(|| panic!("{}: {me} did {op:?}, {other} not", scenario.name));
                        assert_eq!(theirs.op.count, op.count, "{}: {op:?}", scenario.name);
                        assert!(op.id.class != OpClass::Collective || theirs.op.kind == op.kind);
                    }
                }
            }
        }
    }
}

#[test]
fn samples_count_what_is_in_flight() {
    let scenario = Scenario { name: "counted".to_owned(), duration_s: 4.0, ..Scenario::default() };
    for (rank, told) in told(&deliveries(&scenario)) {
        for sampled in told.sampled.iter().filter(|s| s.at.0 + NANOS_PER_SEC < EPOCH + 4 * NANOS_PER_SEC) {
            let inside = |from: HostTime, until: HostTime| from <= sampled.at && sampled.at < until;
            let ops = told.done.values().filter(|done| inside(done.op.enqueued_at, done.ended_at)).count();
            // Times are whole microseconds: what ends in the same one may be counted or not.
            assert!(sampled.ops_in_flight.abs_diff(ops as u32) <= 1, "rank {rank} at {}: {ops}", sampled.at);
        }
    }
}

/// Pulse appendix B: bytes that a rank sends to its successor in a ring, to its parent or to a child in a tree, over all
/// channels.
fn expected(op: &OpMeta, members: u64) -> u64 {
    let bytes = op.bytes();
    match (op.kind, op.algorithm) {
        (OpKind::AllReduce, Algorithm::Tree) => bytes,
        (OpKind::AllReduce, _) => 2 * bytes * (members - 1) / members,
        (OpKind::AllGather | OpKind::ReduceScatter, _) => bytes * (members - 1),
        _ => bytes,
    }
}

#[test]
fn what_is_sent_is_received_and_is_what_the_algorithm_says() {
    let mut seen = BTreeSet::new();
    for scenario in jobs() {
        let all = told(&deliveries(&scenario));
        let mut kinds = BTreeSet::new();
        let (mut out, mut into) = (BTreeMap::new(), BTreeMap::new());
        for told in all.values() {
            for flow in told.flows.values().filter(|flow| flow.flow.direction == Direction::Send) {
                let Some(done) = told.done.get(&flow.flow.op) else { continue };
                let members = u64::from(told.comms[&flow.flow.op.comm].n_ranks);
                let wanted = expected(&done.op, members) / u64::from(done.op.n_channels);
                // Each channel's part, and each slice of it, is rounded up to whole bytes.
                let most = wanted + 2 * u64::from(flow.counters.total_chunks);
                assert!((wanted..=most).contains(&flow.bytes), "{}: {wanted}..={most}: {flow:?}", scenario.name);
                kinds.insert((done.op.kind, done.op.algorithm));
            }
            for flow in told.flows.values() {
                let OpId { comm, class, seq, .. } = flow.flow.op;
                let me = told.comms[&comm].comm_rank.0;
                let (peer, channel) = (flow.flow.peer.0, flow.flow.channel);
                let collective = class == OpClass::Collective;
                let (map, pair) = match flow.flow.direction {
                    Direction::Send => (&mut out, (me, peer)),
                    Direction::Recv => (&mut into, (peer, me)),
                };
                map.insert((comm, collective, seq, pair, channel), flow.bytes);
            }
        }
        let (mut both, mut missing) = (0, 0);
        for (key, bytes) in &out {
            match into.get(key) {
                Some(received) => {
                    both += 1;
                    assert_eq!(received, bytes, "{}: {key:?}", scenario.name);
                }
                None => missing += 1,
            }
        }
        assert!(both > 100 && missing * 20 < both, "{}: {both} met, {missing} not told yet", scenario.name);
        seen.append(&mut kinds);
    }
    for (kind, algorithm) in [
        (OpKind::AllReduce, Algorithm::Ring),
        (OpKind::AllReduce, Algorithm::Tree),
        (OpKind::AllGather, Algorithm::Ring),
        (OpKind::ReduceScatter, Algorithm::Ring),
        (OpKind::Send, Algorithm::Unknown),
    ] {
        assert!(seen.contains(&(kind, algorithm)), "no {kind} {algorithm} crossed hosts");
    }
}

/// Other traffic takes its share of each interface of a host, and each counts it.
#[test]
fn each_interface_counts_the_traffic_that_it_shares() {
    let cluster = Cluster { nics_per_host: 2, ..Scenario::default().cluster };
    let fault = "background-traffic@host0+host1,severity=0.5,after=2".parse().unwrap();
    let scenario = Scenario { duration_s: 6.0, cluster, fault: Some(fault), ..Scenario::default() };
    let mut first: BTreeMap<String, (HostTime, u64)> = BTreeMap::new();
    let mut rates: BTreeMap<String, f64> = BTreeMap::new();
    for Batch { source, records, .. } in deliveries(&scenario).iter().map(|delivery| &delivery.batch) {
        for record in records {
            let Record::NicState(nic) = record else { continue };
            if source.host == "host0".into() && nic.at >= HostTime(EPOCH + 3 * NANOS_PER_SEC) {
                let (at, bytes) = *first.entry(nic.nic.to_string()).or_insert((nic.at, nic.tx_bytes));
                let seconds = nic.at.since_ns(at) as f64 / NANOS_PER_SEC as f64;
                rates.insert(nic.nic.to_string(), (nic.tx_bytes - bytes) as f64 / seconds.max(1e-9));
            }
        }
    }
    let least = 0.45 * scenario.nic_bytes_per_sec as f64;
    assert!(rates.len() == 2 && rates.values().all(|rate| *rate >= least), "{rates:?}, {least}");
}
