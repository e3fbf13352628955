//! What is kept from look to look equals what is worked out from nothing, and what is kept in few bytes is still true.
use super::*;
use crate::blame::hang::Walk;
use mycroft_record::*;
use proptest::prelude::*;
use std::sync::Arc;

mod iterations;

const MS: u64 = NANOS_PER_MS;
const T0: u64 = 1_700_000_000 * NANOS_PER_SEC;
/// Communicators of the small job: everybody, two halves, and pairs.
const COMMS: [(u64, &[u32]); 5] =
    [(1, &[0, 1, 2, 3, 4, 5]), (2, &[0, 1, 2]), (3, &[3, 4, 5]), (4, &[0, 3]), (5, &[2, 5])];

/// Something that a rank of the small job may tell.
#[derive(Clone, Copy, Debug)]
enum Told {
    Issued,
    Entered,
    Left,
    FlowMoves,
    FlowEnds,
    Idle,
    Joins,
    KernelEvents(bool),
    Gone(bool),
    Restarts,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    rank: u32,
    comm: usize,
    back: u64,
    told: Told,
    look: bool,
}

fn told() -> impl Strategy<Value = Told> {
    prop_oneof![
        6 => Just(Told::Issued),
        8 => Just(Told::Entered),
        12 => Just(Told::Left),
        3 => Just(Told::FlowMoves),
        3 => Just(Told::FlowEnds),
        2 => Just(Told::Idle),
        2 => Just(Told::Joins),
        1 => any::<bool>().prop_map(Told::KernelEvents),
        1 => any::<bool>().prop_map(Told::Gone),
        1 => Just(Told::Restarts),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let back = prop_oneof![5 => Just(0u64), 1 => 1u64..3];
    (0u32..6, 0usize..5, back, told(), proptest::bool::weighted(0.3)).prop_map(|(rank, comm, back, told, look)| Step {
        rank,
        comm,
        back,
        told,
        look,
    })
}

/// Tells a timeline of a job whose ranks do what the steps say.
struct Teller {
    nonces: [u32; 6],
    seqs: BTreeMap<(u32, usize), u64>,
    now: u64,
}

impl Teller {
    fn new() -> Teller {
        Teller { nonces: [1; 6], seqs: BTreeMap::new(), now: T0 }
    }

    fn source(&self, rank: u32) -> Source {
        let process = ProcessKey { rank: Rank(rank), pid: rank, nonce: self.nonces[rank as usize] };
        Source { job: "job".into(), host: format!("host{}", rank / 3).into(), process: Some(process) }
    }

    fn init(&self, rank: u32, comm: usize) -> Record {
        let (id, members) = COMMS[comm];
        let me = members.iter().position(|member| *member == rank).unwrap_or(0) as u32;
        let name: Arc<str> = format!("G_{id}").into();
        let (n_ranks, comm_rank) = (members.len() as u32, CommRank(me));
        Record::CommInit(CommInit { at: HostTime(self.now), comm: CommId(id), n_ranks, n_nodes: 0, comm_rank, name })
    }

    fn meta(&self, step: &Step, entered: bool) -> OpMeta {
        let (id, members) = COMMS[step.comm];
        let me = members.iter().position(|member| *member == step.rank).unwrap_or(0) as u32;
        let next = self.seqs.get(&(step.rank, step.comm)).copied().unwrap_or(0);
        let pair = members.len() == 2;
        let (class, kind) = match (pair, me) {
            (false, _) => (OpClass::Collective, OpKind::AllReduce),
            (true, 0) => (OpClass::Send, OpKind::Send),
            (true, _) => (OpClass::Recv, OpKind::Recv),
        };
        let peer = CommRank(if pair { 1 - me } else { 0 });
        OpMeta {
            id: OpId { comm: CommId(id), class, peer, seq: OpSeq(next.saturating_sub(step.back)) },
            kind,
            nccl_seq: 0,
            comm_rank: CommRank(me),
            count: 1 << 20,
            datatype: Datatype::Float32,
            root: u32::MAX,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            n_channels: 1,
            enqueued_at: HostTime(self.now - 20 * MS),
            started_at: if entered { HostTime(self.now - 10 * MS) } else { HostTime::NONE },
            started_last_at: HostTime::NONE,
        }
    }

    fn records(&mut self, step: &Step) -> Vec<Record> {
        let at = HostTime(self.now);
        let state = |op: OpMeta| {
            let kernels_started = u8::from(op.started_at.is_some());
            Record::OpState(OpState {
                sampled_at: at,
                op,
                kernels_started,
                kernels_stopped: 0,
                flows_started: 0,
                flows_done: 0,
            })
        };
        let sampled = |ops_in_flight, alive| {
            Record::Sampled(Sampled { at, ops_in_flight, flows_in_flight: 0, alive, stopped: false })
        };
        match step.told {
            Told::Issued => vec![state(self.meta(step, false)), sampled(1, true)],
            Told::Entered => vec![state(self.meta(step, true)), sampled(1, true)],
            Told::Left => {
                let op = self.meta(step, true);
                *self.seqs.entry((step.rank, step.comm)).or_default() += 1;
                vec![Record::OpDone(OpDone { op, ended_first_at: at, ended_at: at, flows: 1, observed: true })]
            }
            Told::FlowMoves => {
                let done = flow(self.meta(step, true), at);
                let (flow, counters, bytes, times) = (done.flow, done.counters, done.bytes, done.times);
                vec![Record::FlowState(FlowState {
                    sampled_at: at,
                    flow,
                    counters,
                    bytes,
                    times,
                    peer_wait_polls: 0,
                    proxied_for_pid: 0,
                })]
            }
            Told::FlowEnds => vec![Record::FlowDone(flow(self.meta(step, true), at))],
            Told::Idle => vec![sampled(0, true)],
            Told::Joins => vec![self.init(step.rank, step.comm)],
            Told::KernelEvents(kernel_events) => vec![Record::Process(ProcessInfo {
                attached_at: at,
                world_size: 6,
                local_rank: 0,
                gpu: 0,
                profiler_abi: 5,
                nccl_version: 22703,
                kernel_events,
            })],
            Told::Gone(clean) => vec![sampled(0, false), Record::ProcessExit(ProcessExit::unread(at, clean))],
            Told::Restarts => {
                self.nonces[step.rank as usize] += 1;
                vec![self.init(step.rank, step.comm)]
            }
        }
    }
}

fn flow(op: OpMeta, at: HostTime) -> FlowDone {
    let direction = if op.id.class == OpClass::Recv { Direction::Recv } else { Direction::Send };
    let peer = if op.id.class == OpClass::Collective { CommRank((op.comm_rank.0 + 1) % 3) } else { op.id.peer };
    FlowDone {
        flow: FlowKey { op: op.id, channel: ChannelId(0), peer, direction },
        counters: FlowCounters { total_chunks: 4, posted: 4, ready: 3, transmitted: 3, done: 3 },
        bytes: 1 << 20,
        times: FlowTimes { stage_us: [100, 200, 300], stage_max_us: [100, 200, 300], ..FlowTimes::default() },
        ended_at: at,
        peer_wait_polls: 0,
        proxied_for_pid: 0,
    }
}

/// Works everything out, whether it changed or not.
fn settle_all(timeline: &mut Timeline) {
    let slots: Vec<Slot> = timeline.ranks.slots().collect();
    for slot in slots {
        timeline.ranks.at_mut(slot).unsettled = true;
        timeline.touch_all(slot);
    }
    timeline.settle();
}

fn same(one: &Timeline, other: &Timeline) -> Result<(), TestCaseError> {
    prop_assert_eq!(one.graph(), other.graph());
    prop_assert_eq!(one.stillness(NANOS_PER_SEC, &BTreeMap::new()), other.stillness(NANOS_PER_SEC, &BTreeMap::new()));
    for (a, b) in one.ranks.values().zip(other.ranks.values()) {
        prop_assert_eq!(a.iterations.list(), b.iterations.list());
        prop_assert_eq!(a.iterations.total(), b.iterations.total());
        prop_assert_eq!(a.iterations.generation(), b.iterations.generation());
        prop_assert_eq!(a.dead_for_sure, b.dead_for_sure);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    /// Looking only at what changed gives what looking at everything gives, and the graph that is kept is the one that
    /// would be made from nothing.
    #[test]
    fn what_changed_is_enough(steps in proptest::collection::vec(step(), 1..400)) {
        let (mut kept, mut whole, mut teller) = (Timeline::default(), Timeline::default(), Teller::new());
        for step in steps {
            teller.now += 20 * MS;
            let records = teller.records(&step);
            let batch = Batch { source: teller.source(step.rank), collected_at: HostTime(teller.now), records };
            kept.live_on(&batch);
            whole.live_on(&batch);
            if step.look {
                kept.settle();
                settle_all(&mut whole);
                prop_assert_eq!(kept.graph(), &Graph::of(&kept.scene(NANOS_PER_SEC)));
                same(&kept, &whole)?;
            }
        }
    }
}

/// Completes a collective of one of five sizes; one of them is small, some come rarely.
fn complete(timeline: &mut Timeline, size: u32, seq: u64, now: u64) {
    let step = Step { rank: 0, comm: 0, back: 0, told: Told::Left, look: false };
    let mut op = Teller { now, ..Teller::new() }.meta(&step, true);
    (op.id.seq, op.count) = (OpSeq(seq), [16, 1 << 10, 1 << 12, 1 << 14, 1 << 20][size as usize]);
    let at = HostTime(now);
    let record = Record::OpDone(OpDone { op, ended_first_at: at, ended_at: at, flows: 0, observed: true });
    let process = ProcessKey { rank: Rank(0), pid: 1, nonce: 1 };
    let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
    timeline.observe(&Batch { source, collected_at: at, records: vec![record] }, 500_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    /// Iterations of ranks that completed nothing need not be looked at, unless the last look changed something.
    #[test]
    fn iterations_are_settled_when_needed(
        steps in proptest::collection::vec((0u32..5, 0u32..8, 20u64..900, 0u32..4), 20..400),
    ) {
        let (mut kept, mut whole) = (Timeline::default(), Timeline::default());
        let (mut now, mut seq) = (T0, 0);
        for (size, rare, gap_ms, looks) in steps {
            now += gap_ms * MS;
            seq += 1;
            let size = if rare == 0 { size } else { 4 - (seq % 3) as u32 };
            complete(&mut kept, size, seq, now);
            complete(&mut whole, size, seq, now);
            for _ in 0..looks {
                kept.settle();
                settle_all(&mut whole);
                same(&kept, &whole)?;
            }
        }
    }
}

/// Ranks `0..n` in communicators of `width`, each rank in one.
fn disjoint(n: u32, width: u32, rank_is_in: impl Fn(u32) -> bool) -> Timeline {
    let mut timeline = Timeline::default();
    for rank in 0..n {
        tell(&mut timeline, rank, width, T0 + 100 * MS, rank_is_in(rank));
    }
    timeline.settle();
    timeline
}

fn tell(timeline: &mut Timeline, rank: u32, width: u32, now: u64, is_in: bool) {
    let (at, comm) = (HostTime(now), CommId(u64::from(rank / width)));
    let comm_rank = CommRank(rank % width);
    let mut records = vec![Record::CommInit(CommInit {
        at: HostTime(T0),
        comm,
        n_ranks: width,
        n_nodes: 0,
        comm_rank,
        name: "TP".into(),
    })];
    if is_in {
        let mut op = Teller { now, ..Teller::new() }
            .meta(&Step { rank: 0, comm: 0, back: 0, told: Told::Entered, look: false }, true);
        (op.id.comm, op.comm_rank) = (comm, comm_rank);
        let state =
            OpState { sampled_at: at, op, kernels_started: 1, kernels_stopped: 0, flows_started: 0, flows_done: 0 };
        records.push(Record::OpState(state));
    }
    let ops_in_flight = u32::from(is_in);
    records.push(Record::Sampled(Sampled { at, ops_in_flight, flows_in_flight: 0, alive: true, stopped: false }));
    let process = ProcessKey { rank: Rank(rank), pid: rank, nonce: 1 };
    let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
    timeline.observe(&Batch { source, collected_at: at, records }, 500_000);
}

/// A job of two halves that never talk to each other: the analysis of a stall in one visits nothing of the other.
#[test]
fn root_cause_analysis_visits_only_what_the_case_can_reach() {
    let (n, width) = (1024, 512);
    let timeline = disjoint(n, width, |rank| rank != 7);
    let scene = timeline.scene(NANOS_PER_SEC);
    let stalled: Vec<Rank> = (0..width).filter(|rank| *rank != 7).map(Rank).collect();
    let walk = Walk::along(&scene, timeline.graph(), &stalled);
    assert_eq!(walk.ranks_seen.len(), width as usize, "the half with the stall, its sink included");
    assert!(walk.ranks_seen.iter().all(|rank| rank.0 < width));
    assert_eq!(walk.nodes_seen.iter().map(OpNode::comm).collect::<Vec<_>>(), [CommId(0)]);
    assert_eq!(walk.sinks.keys().copied().collect::<Vec<_>>(), [Rank(7)]);
}

/// Of two that were in an operation for three seconds one has left it, and nobody has looked at the other since.
#[test]
fn what_others_have_left_since_the_last_look_has_not_stood_still() {
    let mut timeline = disjoint(2, 2, |_| true);
    let observe = |timeline: &mut Timeline, rank: u32, at: u64, done: Option<OpMeta>| {
        let over = |op: OpMeta| {
            let ended_at = HostTime(at);
            Record::OpDone(OpDone { op, ended_first_at: ended_at, ended_at, flows: 0, observed: true })
        };
        let ops_in_flight = u32::from(done.is_none());
        let look = Sampled { at: HostTime(at), ops_in_flight, flows_in_flight: 0, alive: true, stopped: false };
        let records = done.map(over).into_iter().chain([Record::Sampled(look)]).collect();
        let process = ProcessKey { rank: Rank(rank), pid: rank, nonce: 1 };
        let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
        timeline.observe(&Batch { source, collected_at: HostTime(at), records }, 500_000);
        timeline.settle();
    };
    let still_ms = |timeline: &Timeline, later: &BTreeMap<Rank, HostTime>| {
        let still = timeline.graph().stillness(timeline, NANOS_PER_SEC, later);
        still.iter().find(|(rank, _)| *rank == Rank(0)).map(|(_, still)| still.ns() / MS)
    };
    let none = BTreeMap::new();
    // Looked at often enough for what is in flight not to be forgotten.
    for ms in [1_100, 1_600] {
        (0..2).for_each(|rank| observe(&mut timeline, rank, T0 + ms * MS, None));
    }
    assert_eq!(still_ms(&timeline, &none), Some(1_510), "since the kernel was started");
    assert_eq!(timeline.graph().left_behind(&timeline), none);
    let op = timeline.ranks.get(&Rank(1)).unwrap().live.values().next().unwrap().meta;
    observe(&mut timeline, 1, T0 + 1_650 * MS, Some(op));
    let later = timeline.graph().left_behind(&timeline);
    assert_eq!(later, BTreeMap::from([(Rank(0), HostTime(T0 + 1_650 * MS))]));
    assert_eq!(still_ms(&timeline, &later), Some(0));
    observe(&mut timeline, 0, T0 + 1_700 * MS, None);
    assert_eq!(timeline.graph().left_behind(&timeline), none, "it is in it still");
    assert_eq!(still_ms(&timeline, &none), Some(1_610));
}

/// Records of one rank of many make one rank and its communicators be looked at again.
#[test]
fn a_look_costs_what_changed() {
    let mut timeline = disjoint(4096, 8, |_| true);
    assert!(timeline.changed.is_empty() && timeline.comms.take_changed().is_empty(), "all was looked at");
    let look = |timeline: &mut Timeline, rank: u32, ops_in_flight: u32| {
        let at = HostTime(T0 + 200 * MS);
        let sampled = Sampled { at, ops_in_flight, flows_in_flight: 0, alive: true, stopped: false };
        let process = ProcessKey { rank: Rank(rank), pid: rank, nonce: 1 };
        let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
        timeline.observe(&Batch { source, collected_at: at, records: vec![Record::Sampled(sampled)] }, 500_000);
    };
    look(&mut timeline, 100, 1);
    look(&mut timeline, 901, 0);
    let ranks: Vec<Rank> = timeline.changed.iter().map(|slot| timeline.ranks.at(*slot).rank).collect();
    assert_eq!(ranks, [Rank(901)], "rank 100 is where it was, 901 is in nothing any more");
    assert_eq!(timeline.comms.take_changed(), [CommId(901 / 8)]);
}

/// However many flows are half known at once, all meet: the limit grows with the job.
#[test]
fn halves_of_a_large_job_meet() {
    let mut timeline = Timeline::default();
    let members = 20_000u32;
    let join = |timeline: &mut Timeline, rank: u32, direction: Direction| {
        let comm_rank = CommRank(rank);
        let (at, comm) = (HostTime(T0), CommId(9));
        let init = CommInit { at, comm, n_ranks: members, n_nodes: 0, comm_rank, name: "DP".into() };
        let peer =
            CommRank(if direction == Direction::Send { (rank + 1) % members } else { (rank + members - 1) % members });
        let mut records = vec![Record::CommInit(init)];
        for channel in 0..4 {
            let mut done = flow(
                Teller::new().meta(&Step { rank: 0, comm: 0, back: 0, told: Told::Left, look: false }, true),
                HostTime(T0 + MS),
            );
            done.flow = FlowKey { channel: ChannelId(channel), peer, direction, ..done.flow };
            done.flow.op = OpId { comm, seq: OpSeq(1), ..done.flow.op };
            records.push(Record::FlowDone(done));
        }
        let process = ProcessKey { rank: Rank(rank), pid: rank, nonce: 1 };
        let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
        timeline.observe(&Batch { source, collected_at: HostTime(T0 + 2 * MS), records }, 500_000);
    };
    (0..members).for_each(|rank| join(&mut timeline, rank, Direction::Send));
    (0..members).for_each(|rank| join(&mut timeline, rank, Direction::Recv));
    let links: Vec<usize> = timeline.links.all(&timeline.ranks).map(|link| link.samples().count()).collect();
    assert_eq!(links.len(), members as usize);
    assert!(links.iter().all(|samples| *samples == 4));
}

/// The host runs ahead: while the collective that ends the first iteration is issued and has never ended, whatever recurs
/// is a layer of that iteration.
#[test]
fn layers_of_a_first_iteration_are_no_iterations() {
    let mut teller = Teller::new();
    let mut timeline = Timeline::default();
    let step = |comm, told| Step { rank: 0, comm, back: 0, told, look: false };
    let tell = |teller: &mut Teller, timeline: &mut Timeline, step: Step| {
        let records = teller.records(&step);
        timeline.observe(&Batch { source: teller.source(0), collected_at: HostTime(teller.now), records }, u32::MAX);
        timeline.settle();
    };
    for comm in [0, 1] {
        tell(&mut teller, &mut timeline, step(comm, Told::Joins));
    }
    let count = |timeline: &Timeline| timeline.ranks.get(&Rank(0)).map(|state| state.iterations.total());
    for end in [false, true, true, true, true, true] {
        for _ in 0..8 {
            teller.now += 100 * MS;
            tell(&mut teller, &mut timeline, step(0, Told::Issued));
            tell(&mut teller, &mut timeline, step(1, Told::Left));
        }
        if !end {
            assert_eq!(count(&timeline), Some(0), "layers only");
        }
        teller.now += 100 * MS;
        tell(&mut teller, &mut timeline, step(0, Told::Left));
    }
    teller.now += 500 * MS;
    tell(&mut teller, &mut timeline, step(1, Told::Left));
    assert_eq!(count(&timeline), Some(5));
}
