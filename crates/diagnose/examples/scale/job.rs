//! The records of a large job, made on the fly in a few hundred nanoseconds each: TP 8 inside a host, eight pipeline
//! stages, the rest data parallel; GPipe schedule of eight micro-batches, one reduce-scatter and one all-gather an
//! iteration. Ranks of one stage do the same at the same time, so that each window of 100 ms is worked out once a stage.
use mycroft_record::*;
use std::sync::Arc;

const MS: u64 = NANOS_PER_MS;
/// Time of the job's start.
pub(crate) const T0: u64 = 1_700_000_000 * NANOS_PER_SEC;
/// How often agents look.
pub(crate) const WINDOW: u64 = 100 * MS;
/// Ranks of a tensor group, and of a host.
pub(crate) const TENSOR: u32 = 8;
/// Stages of the pipeline.
pub(crate) const STAGES: u32 = 8;
const MICRO: u64 = 8;
/// Slots of a pipeline's iteration: forward and backward.
const SLOTS: u64 = 2 * (MICRO + STAGES as u64);
/// A micro-batch on one stage.
const SLOT: u64 = 55 * MS;
/// Healthy iteration.
const PERIOD: u64 = 2_000 * MS;
/// How far the host runs ahead of its device.
const AHEAD: u64 = 80 * MS;
/// What a slow rank takes longer in each slot.
const DELAY: u64 = 25 * MS;
/// The iteration with which the fault begins.
pub(crate) const FAULT_ITERATION: u64 = 6;
const NEVER: u64 = u64::MAX;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Fault {
    None,
    /// The rank does not issue its next collective.
    Stall(u32),
    /// The rank computes longer.
    Slow(u32),
}

#[derive(Clone, Copy, PartialEq)]
enum Group {
    Tensor,
    Data,
    Pipe,
}

#[derive(Clone, Copy)]
struct Op {
    group: Group,
    kind: OpKind,
    /// Neighbour in the pipeline: 1 or -1; 0 for collectives.
    peer: i32,
    seq: u64,
    start: u64,
    end: u64,
}

/// Who a rank is in this fault.
#[derive(Clone, Copy, PartialEq)]
enum Role {
    Bystander,
    /// In the culprit's pipeline.
    Pipeline,
    /// In the culprit's tensor group.
    Mate,
    Culprit,
}

/// One record of a stage, to be made a rank's own.
struct Proto {
    op: Option<Op>,
    record: Record,
}

/// The job.
pub(crate) struct Job {
    pub(crate) ranks: u32,
    fault: Fault,
    replicas: u32,
    hosts: Vec<HostName>,
    name: JobName,
    window: u64,
}

impl Job {
    pub(crate) fn new(ranks: u32, fault: Fault) -> Job {
        assert!(ranks.is_multiple_of(TENSOR * STAGES), "ranks must be a multiple of {}", TENSOR * STAGES);
        let hosts = (0..ranks / TENSOR).map(|host| format!("host{host:05}").into()).collect();
        Job { ranks, fault, replicas: ranks / TENSOR / STAGES, hosts, name: "scale".into(), window: 0 }
    }

    fn culprit(&self) -> Option<u32> {
        match self.fault {
            Fault::None => None,
            Fault::Stall(rank) | Fault::Slow(rank) => Some(rank),
        }
    }

    /// Stage, replica, place in the tensor group.
    fn place(&self, rank: u32) -> (u32, u32, u32) {
        (rank / TENSOR / self.replicas, rank / TENSOR % self.replicas, rank % TENSOR)
    }

    fn role(&self, rank: u32) -> Role {
        let Some(culprit) = self.culprit() else { return Role::Bystander };
        let (own, its) = (self.place(rank), self.place(culprit));
        if rank == culprit {
            Role::Culprit
        } else if (own.0, own.1) == (its.0, its.1) {
            Role::Mate
        } else if own.1 == its.1 {
            Role::Pipeline
        } else {
            Role::Bystander
        }
    }

    /// The time up to which batches were made.
    pub(crate) fn now(&self) -> HostTime {
        HostTime(T0 + self.window * WINDOW)
    }

    /// The batches that the agents ship of the next 100 ms, host by host.
    pub(crate) fn next_window(&mut self) -> Vec<Batch> {
        let (from, to) = (self.window * WINDOW, (self.window + 1) * WINDOW);
        self.window += 1;
        let roles = [Role::Bystander, Role::Pipeline, Role::Mate, Role::Culprit];
        let protos: Vec<Vec<Vec<Proto>>> =
            (0..STAGES).map(|stage| roles.iter().map(|role| self.protos(stage, *role, from, to)).collect()).collect();
        let batch = |rank: u32| {
            let (stage, _, _) = self.place(rank);
            let role = roles.iter().position(|role| *role == self.role(rank)).unwrap_or(0);
            self.batch(rank, from, to, &protos[stage as usize][role])
        };
        (0..self.ranks).map(batch).collect()
    }

    fn begin(&self, iteration: u64) -> u64 {
        let slow = matches!(self.fault, Fault::Slow(_)) && iteration > FAULT_ITERATION;
        let late = if slow { (iteration - FAULT_ITERATION) * SLOTS * DELAY } else { 0 };
        500 * MS + iteration * PERIOD + late
    }

    /// What a stage does in an iteration.
    fn ops(&self, stage: u32, role: Role, iteration: u64) -> Vec<Op> {
        let faulty = iteration >= FAULT_ITERATION;
        let is_slow = faulty && matches!(self.fault, Fault::Slow(_));
        let own_delay = if is_slow && role != Role::Bystander { DELAY } else { 0 };
        let slowest = if is_slow { DELAY } else { 0 };
        let width = SLOT + own_delay;
        let base = self.begin(iteration);
        let mut out = Vec::new();
        let mut free = base + 2 * MS;
        for half in 0..2u64 {
            let place = if half == 0 { u64::from(stage) } else { MICRO + 2 * u64::from(STAGES) - 1 - u64::from(stage) };
            let (before, after) = if half == 0 { (-1, 1) } else { (1, -1) };
            let exists = |step: i32| (0..STAGES as i32).contains(&(stage as i32 + step));
            for micro in 0..MICRO {
                let slot = base + 5 * MS + (place + micro) * width;
                let seq = iteration * MICRO + micro;
                let p2p = |kind, peer, start: u64, end: u64| Op { group: Group::Pipe, kind, peer, seq, start, end };
                if exists(before) {
                    out.push(p2p(OpKind::Recv, before, free.min(slot), slot + 3 * MS));
                }
                let late = matches!(role, Role::Mate | Role::Culprit);
                let waited = if is_slow && late { DELAY } else { 0 };
                let start = slot + 3 * MS + SLOT / 2 + if role == Role::Culprit { waited } else { 0 };
                let end = slot + 5 * MS + SLOT / 2 + waited;
                let seq = 2 * iteration * MICRO + half * MICRO + micro;
                out.push(Op { group: Group::Tensor, kind: OpKind::AllReduce, peer: 0, seq, start, end });
                free = slot + SLOT + waited;
                if exists(after) {
                    out.push(p2p(OpKind::Send, after, free, slot + width + 3 * MS));
                }
            }
        }
        let all = base + 5 * MS + SLOTS * (SLOT + slowest) + 20 * MS;
        let data =
            |kind, order, start, end| Op { group: Group::Data, kind, peer: 0, seq: 2 * iteration + order, start, end };
        out.push(data(OpKind::ReduceScatter, 0, free + MS, all + 40 * MS));
        out.push(data(OpKind::AllGather, 1, all + 41 * MS, all + 80 * MS));
        if let Fault::Stall(culprit) = self.fault {
            if iteration == FAULT_ITERATION {
                stop(&mut out, stage, role, self.place(culprit).0);
            } else if iteration > FAULT_ITERATION {
                out.clear();
            }
        }
        out
    }

    fn protos(&self, stage: u32, role: Role, from: u64, to: u64) -> Vec<Proto> {
        let newest = (0..).take_while(|k| self.begin(*k) <= to + PERIOD).last().unwrap_or(0);
        let oldest = match self.fault {
            Fault::Stall(_) => newest.saturating_sub(2).min(FAULT_ITERATION),
            _ => newest.saturating_sub(2),
        };
        let mut out = Vec::new();
        let (mut now, mut before) = (0u32, 0u32);
        for op in (oldest..=newest).flat_map(|iteration| self.ops(stage, role, iteration)) {
            let enqueued = op.start - AHEAD;
            before += u32::from(enqueued <= from && op.end > from);
            if enqueued > to || op.end <= from {
                continue;
            }
            let meta = meta(&op, op.start <= to);
            if op.end <= to {
                out.extend(
                    flows(&op)
                        .into_iter()
                        .map(|flow| Proto { op: Some(op), record: Record::FlowDone(flow_done(&meta, flow, op.end)) }),
                );
                let (ended_first_at, ended_at) = (HostTime(T0 + op.end), HostTime(T0 + op.end));
                let flows = flows(&op).len() as u16;
                let done = OpDone { op: meta, ended_first_at, ended_at, flows, observed: true };
                out.push(Proto { op: Some(op), record: Record::OpDone(done) });
                continue;
            }
            now += 1;
            let repeat = (to - enqueued) / NANOS_PER_SEC != from.saturating_sub(enqueued) / NANOS_PER_SEC;
            let entered = op.start > from && op.start <= to;
            if enqueued > from || entered || repeat {
                out.extend(in_flight(op, meta, to));
            }
        }
        if now != before || to.is_multiple_of(500 * MS) {
            let sampled = Sampled {
                at: HostTime(T0 + to),
                ops_in_flight: now,
                flows_in_flight: now,
                alive: true,
                stopped: false,
            };
            out.push(Proto { op: None, record: Record::Sampled(sampled) });
        }
        out
    }

    fn batch(&self, rank: u32, from: u64, to: u64, protos: &[Proto]) -> Batch {
        let (stage, replica, tensor) = self.place(rank);
        let host = &self.hosts[(rank / TENSOR) as usize];
        // Clocks of hosts differ by up to 4 ms.
        let shift = u64::from(rank / TENSOR).wrapping_mul(2_654_435_761) % (4 * MS);
        let mut records = Vec::with_capacity(protos.len() + 4);
        if from == 0 {
            self.first(rank, &mut records);
        }
        for proto in protos {
            let mut record = proto.record.clone();
            let (comm, me) = match proto.op.map(|op| op.group) {
                Some(Group::Tensor) => (1 << 32 | u64::from(stage * self.replicas + replica), tensor),
                Some(Group::Data) => (2 << 32 | u64::from(stage * TENSOR + tensor), replica),
                _ => (3 << 32 | u64::from(replica * TENSOR + tensor), stage),
            };
            let peer = proto.op.map_or(0, |op| (stage as i32 + op.peer) as u32);
            let own = Own { comm: CommId(comm), me, peer, replicas: self.replicas, shift };
            own.claim(&mut record, proto.op);
            records.push(record);
        }
        let process = ProcessKey { rank: Rank(rank), pid: 1000 + rank % TENSOR, nonce: 7 };
        let source = Source { job: self.name.clone(), host: host.clone(), process: Some(process) };
        Batch { source, collected_at: HostTime(T0 + to + shift), records }
    }

    fn first(&self, rank: u32, records: &mut Vec<Record>) {
        let (stage, replica, tensor) = self.place(rank);
        records.push(Record::Process(ProcessInfo {
            attached_at: HostTime(T0 + 1),
            world_size: self.ranks,
            local_rank: rank % TENSOR,
            gpu: (rank % TENSOR) as i32,
            profiler_abi: 5,
            nccl_version: 22703,
            kernel_events: true,
        }));
        let mut init = |kind: u64, name: &str, number: u32, n_ranks: u32, me: u32| {
            let name: Arc<str> = format!("{name}_{number}").into();
            let comm = CommId(kind << 32 | u64::from(number));
            let (at, comm_rank) = (HostTime(T0 + MS), CommRank(me));
            records.push(Record::CommInit(CommInit { at, comm, n_ranks, n_nodes: 0, comm_rank, name }));
        };
        init(1, "TP", stage * self.replicas + replica, TENSOR, tensor);
        init(2, "DP", stage * TENSOR + tensor, self.replicas, replica);
        init(3, "PP", replica * TENSOR + tensor, STAGES, stage);
    }
}

/// The ids of one rank.
struct Own {
    comm: CommId,
    me: u32,
    peer: u32,
    replicas: u32,
    shift: u64,
}

impl Own {
    fn late(&self, at: &mut HostTime) {
        if at.is_some() {
            *at = *at + self.shift;
        }
    }

    fn claim(&self, record: &mut Record, op: Option<Op>) {
        let peer = if op.is_some_and(|op| op.peer != 0) { self.peer } else { 0 };
        let meta = |meta: &mut OpMeta| {
            (meta.id.comm, meta.id.peer, meta.comm_rank) = (self.comm, CommRank(peer), CommRank(self.me));
            self.late(&mut meta.enqueued_at);
            self.late(&mut meta.started_at);
            self.late(&mut meta.started_last_at);
        };
        let flow = |flow: &mut FlowKey, times: &mut FlowTimes| {
            (flow.op.comm, flow.op.peer) = (self.comm, CommRank(peer));
            let ring = match flow.direction {
                Direction::Send => (self.me + 1) % self.replicas,
                Direction::Recv => (self.me + self.replicas - 1) % self.replicas,
            };
            flow.peer = CommRank(if flow.op.class == OpClass::Collective { ring } else { peer });
            [&mut times.started_at, &mut times.first_ready_at, &mut times.last_progress_at]
                .into_iter()
                .for_each(|at| self.late(at));
        };
        match record {
            Record::OpDone(done) => {
                meta(&mut done.op);
                self.late(&mut done.ended_first_at);
                self.late(&mut done.ended_at);
            }
            Record::OpState(state) => {
                meta(&mut state.op);
                self.late(&mut state.sampled_at);
            }
            Record::FlowDone(done) => {
                flow(&mut done.flow, &mut done.times);
                self.late(&mut done.ended_at);
            }
            Record::FlowState(state) => {
                flow(&mut state.flow, &mut state.times);
                self.late(&mut state.sampled_at);
            }
            Record::Sampled(sampled) => self.late(&mut sampled.at),
            _ => {}
        }
    }
}

/// Cuts a stage's operations where the fault leaves it: the culprit's stage waits in the tensor group's third operation,
/// its neighbours in the next message to or from it, all others for the culprit's pipeline in the reduce-scatter.
fn stop(ops: &mut Vec<Op>, stage: u32, role: Role, culprit: u32) {
    let last = match role {
        Role::Bystander => ops.iter().position(|op| op.kind == OpKind::ReduceScatter),
        Role::Mate | Role::Culprit => ops.iter().position(|op| op.group == Group::Tensor && op.seq % (2 * MICRO) == 2),
        Role::Pipeline => {
            // Messages that pass over the culprit stop with the third; those before it back up.
            let passed = if stage > culprit { 2 } else { 2 + u64::from(culprit - stage) };
            let stuck = |op: &&Op| {
                let forward = if stage > culprit {
                    op.kind == OpKind::Recv && op.peer < 0
                } else {
                    op.kind == OpKind::Send && op.peer > 0
                };
                forward && op.seq % MICRO >= passed.min(MICRO - 1)
            };
            ops.iter()
                .find(stuck)
                .and_then(|found| ops.iter().position(|op| op.start == found.start && op.kind == found.kind))
        }
    };
    let Some(last) = last else { return };
    ops.truncate(last + 1);
    if role == Role::Culprit {
        ops.pop();
    } else if let Some(op) = ops.last_mut() {
        op.end = NEVER;
    }
}

fn meta(op: &Op, started: bool) -> OpMeta {
    let class = match op.kind {
        OpKind::Send => OpClass::Send,
        OpKind::Recv => OpClass::Recv,
        _ => OpClass::Collective,
    };
    let start = if started { HostTime(T0 + op.start) } else { HostTime::NONE };
    OpMeta {
        id: OpId { comm: CommId(0), class, peer: CommRank(0), seq: OpSeq(op.seq) },
        kind: op.kind,
        nccl_seq: op.seq,
        comm_rank: CommRank(0),
        count: if op.group == Group::Data { 1 << 24 } else { 1 << 22 },
        datatype: Datatype::Bfloat16,
        root: u32::MAX,
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        n_channels: 1,
        enqueued_at: HostTime(T0 + op.start - AHEAD),
        started_at: start,
        started_last_at: start,
    }
}

fn flows(op: &Op) -> Vec<Direction> {
    match (op.group, op.kind) {
        (Group::Tensor, _) => Vec::new(),
        (Group::Data, _) => vec![Direction::Send, Direction::Recv],
        (_, OpKind::Send) => vec![Direction::Send],
        _ => vec![Direction::Recv],
    }
}

fn flow_done(meta: &OpMeta, direction: Direction, end: u64) -> FlowDone {
    let stage_us = match direction {
        Direction::Send => [300, 1_000, 1_500],
        Direction::Recv => [2_500, 10, 200],
    };
    let counters = FlowCounters { total_chunks: 16, posted: 16, ready: 16, transmitted: 16, done: 16 };
    let started_at = meta.started_at;
    FlowDone {
        flow: FlowKey { op: meta.id, channel: ChannelId(0), peer: CommRank(0), direction },
        counters,
        bytes: 8 << 20,
        times: FlowTimes {
            started_at,
            first_ready_at: started_at + MS,
            last_progress_at: if end == NEVER { started_at + MS } else { HostTime(T0 + end) },
            stage_us,
            stage_max_us: stage_us,
        },
        ended_at: if end == NEVER { HostTime::NONE } else { HostTime(T0 + end) },
        peer_wait_polls: 0,
        proxied_for_pid: 0,
    }
}

fn in_flight(op: Op, meta: OpMeta, to: u64) -> Vec<Proto> {
    let sampled_at = HostTime(T0 + to);
    let started = op.start <= to;
    let state = OpState {
        sampled_at,
        op: meta,
        kernels_started: u8::from(started),
        kernels_stopped: 0,
        flows_started: 0,
        flows_done: 0,
    };
    let mut out = vec![Proto { op: Some(op), record: Record::OpState(state) }];
    if started {
        for direction in flows(&op) {
            let done = flow_done(&meta, direction, NEVER);
            let counters = FlowCounters { total_chunks: 16, posted: 8, ready: 3, transmitted: 3, done: 3 };
            let state = FlowState {
                sampled_at,
                flow: done.flow,
                counters,
                bytes: 1 << 20,
                times: done.times,
                peer_wait_polls: 0,
                proxied_for_pid: 0,
            };
            out.push(Proto { op: Some(op), record: Record::FlowState(state) });
        }
    }
    out
}
