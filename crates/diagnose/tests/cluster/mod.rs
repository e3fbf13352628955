//! A synthetic cluster: the records of a TP x PP x DP job on several hosts, with jitter from a seed, host clocks that
//! differ, samples every 100 ms and faults. It knows the truth; the engine under test sees the batches only.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test file uses its part of the cluster")]
use mycroft_record::*;
use std::collections::BTreeMap;
use std::sync::Arc;

mod drive;
mod plan;
mod records;

pub use drive::{Outcome, drive, run};
pub use plan::{Fault, Plan};

pub const MS: u64 = NANOS_PER_MS;
pub const T0: u64 = 1_700_000_000 * NANOS_PER_SEC;

/// xorshift64*: small and the same everywhere.
#[derive(Clone)]
pub struct Prng(u64);

impl Prng {
    pub fn new(seed: u64) -> Prng {
        Prng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Compute(u64),
    Idle(u64),
    Tp,
    Dp,
    Send(u32),
    Recv(u32),
}

#[derive(Clone)]
struct Group {
    id: CommId,
    name: Arc<str>,
    ranks: Vec<u32>,
}

#[derive(Clone)]
struct FlowRun {
    peer: u32,
    direction: Direction,
    stage: [u32; 3],
    max: [u32; 3],
    counters: FlowCounters,
}

#[derive(Clone)]
struct OpRun {
    meta: OpMeta,
    start: Option<u64>,
    end: Option<u64>,
    flows: Vec<FlowRun>,
}

struct RankRun {
    ops: Vec<OpRun>,
    clock: u64,
    host_clock: u64,
    iteration: u64,
    at: usize,
    program: Vec<Kind>,
    seqs: BTreeMap<(CommId, OpClass, CommRank), u64>,
    /// Stops for good: no further step.
    halted: bool,
    dead_at: Option<u64>,
    sleeps: u64,
}

pub struct Cluster {
    plan: Plan,
    groups: Vec<Group>,
    runs: Vec<RankRun>,
    waiting: BTreeMap<Instance, Vec<Member>>,
    prng: Prng,
    end_of_world: u64,
}

/// Communicator, order number, sender and receiver (`u32::MAX` for collectives).
type Instance = (CommId, u64, u32, u32);
/// Rank, and the index of its operation.
type Member = (u32, usize);

const STEPS: u32 = 16;

impl Cluster {
    pub fn new(plan: Plan) -> Cluster {
        let mut groups = Vec::new();
        let at = |t: u32, p: u32, d: u32| (p * plan.dp + d) * plan.tp + t;
        for p in 0..plan.pp {
            for d in 0..plan.dp {
                groups.push(("TP", (0..plan.tp).map(|t| at(t, p, d)).collect::<Vec<u32>>()));
            }
            for t in 0..plan.tp {
                groups.push(("DP", (0..plan.dp).map(|d| at(t, p, d)).collect()));
            }
        }
        for d in 0..plan.dp {
            for t in 0..plan.tp {
                groups.push(("PP", (0..plan.pp).map(|p| at(t, p, d)).collect()));
            }
        }
        let groups = groups
            .into_iter()
            .enumerate()
            .map(|(i, (name, ranks))| Group {
                id: CommId(0x1000 + i as u64 + (u64::from(plan.life) << 32)),
                name: format!("{name}_{i}").into(),
                ranks,
            })
            .collect();
        let runs = (0..plan.world())
            .map(|_| RankRun {
                ops: Vec::new(),
                clock: 0,
                host_clock: 0,
                iteration: 0,
                at: 0,
                program: Vec::new(),
                seqs: BTreeMap::new(),
                halted: false,
                dead_at: None,
                sleeps: 0,
            })
            .collect();
        let prng = Prng::new(plan.seed);
        let end_of_world = plan.until;
        Cluster { plan, groups, runs, waiting: BTreeMap::new(), prng, end_of_world }
    }

    fn group(&self, kind: &str, rank: u32) -> &Group {
        self.groups.iter().find(|g| g.name.starts_with(kind) && g.ranks.contains(&rank)).unwrap()
    }

    fn program(&mut self, rank: u32, iteration: u64) -> Vec<Kind> {
        let plan = self.plan.clone();
        let stage = rank / (plan.tp * plan.dp);
        let slow = if iteration < plan.slow_first { 5 } else { 1 };
        let mut out = Vec::new();
        out.extend(plan.pause_ms(rank, iteration).map(|ms| Kind::Idle(ms * MS)));
        let waits = plan.fault == Fault::DataWait(rank) && self.active(self.runs[rank as usize].clock);
        out.push(Kind::Idle(if waits { 1_100 * MS } else { MS }));
        let stride = plan.tp * plan.dp;
        let micro = 3;
        for _ in 0..micro {
            if stage > 0 {
                out.push(Kind::Recv(rank - stride));
            }
            for _ in 0..2 {
                let skew = if plan.moe { self.prng.below(30) } else { 0 };
                out.push(Kind::Compute((20 + skew) * MS * slow));
                if plan.tp > 1 {
                    out.push(Kind::Tp);
                }
            }
            if stage + 1 < plan.pp {
                out.push(Kind::Send(rank + stride));
            }
        }
        for _ in 0..micro {
            if stage + 1 < plan.pp {
                out.push(Kind::Recv(rank + stride));
            }
            out.push(Kind::Compute(40 * MS * slow));
            if plan.tp > 1 {
                out.push(Kind::Tp);
            }
            if stage > 0 {
                out.push(Kind::Send(rank - stride));
            }
        }
        if plan.dp > 1 {
            out.push(Kind::Dp);
        }
        out
    }

    fn active(&self, clock: u64) -> bool {
        clock >= self.plan.fault_at && clock < self.plan.fault_ends
    }

    /// The faults that are there now.
    fn faults(&self, clock: u64) -> Vec<Fault> {
        let more = self.plan.more.iter().filter(|(_, from, until)| clock >= *from && clock < *until);
        let first = self.active(clock).then_some(self.plan.fault);
        first.into_iter().chain(more.map(|(fault, _, _)| *fault)).collect()
    }

    fn compute_scale(&self, rank: u32, clock: u64) -> u64 {
        let slow = |fault: &Fault| match fault {
            Fault::GpuPower(r) => *r == rank,
            Fault::BackgroundCompute(h) => *h == self.plan.host_of(rank),
            _ => false,
        };
        if self.faults(clock).iter().any(slow) { 4 } else { 1 }
    }

    /// Runs every rank to the end.
    fn simulate(&mut self) {
        let world = self.plan.world();
        for rank in 0..world {
            let skew =
                if self.plan.start_skew > 0 { self.prng.below(self.plan.start_skew) } else { self.prng.below(20 * MS) };
            self.runs[rank as usize].clock = 500 * MS + skew;
            self.runs[rank as usize].host_clock = 500 * MS + skew;
        }
        loop {
            let mut moved = false;
            for rank in 0..world {
                while self.step(rank) {
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn culprit_halts(&mut self, rank: u32, kind: Kind) -> bool {
        let clock = self.runs[rank as usize].clock;
        if clock < self.plan.fault_at {
            return false;
        }
        match self.plan.fault {
            Fault::Stuck(r) if r == rank => true,
            Fault::Crash(r) if r == rank => {
                self.runs[rank as usize].dead_at.get_or_insert(clock);
                true
            }
            Fault::Frozen(r) | Fault::GpuHang(r) if r == rank => {
                // Issued, never run: the host runs ahead.
                if !matches!(kind, Kind::Compute(_) | Kind::Idle(_)) {
                    self.issue(rank, kind, false);
                    return true;
                }
                false
            }
            _ => false,
        }
    }

    /// One step of one rank; false when it cannot go on.
    fn step(&mut self, rank: u32) -> bool {
        let r = rank as usize;
        if self.runs[r].halted || self.runs[r].clock > self.end_of_world {
            return false;
        }
        if self.runs[r].at == self.runs[r].program.len() {
            let iteration = self.runs[r].iteration;
            self.runs[r].program = self.program(rank, iteration);
            self.runs[r].at = 0;
            self.runs[r].iteration += 1;
            self.runs[r].host_clock = self.runs[r].clock;
        }
        let kind = self.runs[r].program[self.runs[r].at];
        if self.runs[r].iteration > self.plan.iterations {
            self.runs[r].halted = true;
            return false;
        }
        // Waiting for the peers of an operation it has entered?
        if self.runs[r].ops.last().is_some_and(|op| op.start.is_some() && op.end.is_none()) {
            return false;
        }
        if self.culprit_halts(rank, kind) {
            self.runs[r].halted = true;
            return false;
        }
        match kind {
            Kind::Idle(ns) => {
                self.runs[r].clock += ns;
                self.runs[r].host_clock = self.runs[r].clock;
                self.runs[r].at += 1;
            }
            Kind::Compute(ns) => {
                let noise = self.plan.noise;
                let rare = if self.prng.below(100) == 0 { 10 } else { 1 };
                let jitter = self.prng.below(noise * rare);
                let scale = self.compute_scale(rank, self.runs[r].clock);
                self.runs[r].clock += ns * scale + jitter;
                self.runs[r].at += 1;
            }
            _ => {
                self.issue(rank, kind, true);
                self.runs[r].at += 1;
            }
        }
        true
    }

    fn issue(&mut self, rank: u32, kind: Kind, enter: bool) {
        let (name, class, peer) = match kind {
            Kind::Tp => ("TP", OpClass::Collective, None),
            Kind::Dp => ("DP", OpClass::Collective, None),
            Kind::Send(to) => ("PP", OpClass::Send, Some(to)),
            Kind::Recv(from) => ("PP", OpClass::Recv, Some(from)),
            _ => unreachable!("only operations are issued"),
        };
        let group = self.group(name, rank).clone();
        let position = |r: u32| group.ranks.iter().position(|x| *x == r).unwrap() as u32;
        let peer_rank = CommRank(peer.map_or(0, position));
        let run = &mut self.runs[rank as usize];
        let seq = run.seqs.entry((group.id, class, peer_rank)).or_insert(0);
        let id = OpId { comm: group.id, class, peer: peer_rank, seq: OpSeq(*seq) };
        *seq += 1;
        let strange = self.active_for(rank, kind);
        let op_kind = match (class, strange) {
            (OpClass::Send, _) => OpKind::Send,
            (OpClass::Recv, _) => OpKind::Recv,
            (_, Some(Fault::Desync(_))) => OpKind::AllGather,
            _ => OpKind::AllReduce,
        };
        let count = if let Some(Fault::OtherCount(_)) = strange { 77 } else { 1 << 18 };
        let run = &mut self.runs[rank as usize];
        run.host_clock += 200_000;
        let meta = OpMeta {
            id,
            kind: op_kind,
            nccl_seq: id.seq.0,
            comm_rank: CommRank(position(rank)),
            count,
            datatype: Datatype::Float32,
            root: u32::MAX,
            algorithm: if self.plan.tree { Algorithm::Tree } else { Algorithm::Ring },
            protocol: Protocol::Simple,
            n_channels: 1,
            enqueued_at: HostTime(run.host_clock.min(run.clock)),
            started_at: HostTime::NONE,
            started_last_at: HostTime::NONE,
        };
        let start = enter.then_some(run.clock);
        run.ops.push(OpRun { meta, start, end: None, flows: Vec::new() });
        if !enter {
            return;
        }
        let at = run.ops.len() - 1;
        let key = match class {
            OpClass::Collective => (group.id, id.seq.0, u32::MAX, u32::MAX),
            OpClass::Send => (group.id, id.seq.0, rank, peer.unwrap()),
            OpClass::Recv => (group.id, id.seq.0, peer.unwrap(), rank),
        };
        let need = if class == OpClass::Collective { group.ranks.len() } else { 2 };
        let inside = self.waiting.entry(key).or_default();
        inside.push((rank, at));
        if inside.len() == need {
            let members = self.waiting.remove(&key).unwrap();
            self.complete(&members, kind);
        }
    }

    fn active_for(&self, rank: u32, kind: Kind) -> Option<Fault> {
        match self.plan.fault {
            fault @ (Fault::Desync(r) | Fault::OtherCount(r))
                if r == rank && kind == Kind::Dp && self.active(self.runs[r as usize].clock) =>
            {
                Some(fault)
            }
            _ => None,
        }
    }

    /// Directed edges of an operation with the members' indices: ring order, or sender to receiver.
    fn edges(members: &[(u32, usize)], kind: Kind) -> Vec<(usize, usize)> {
        match kind {
            Kind::Send(to) => {
                let receiver = members.iter().position(|(rank, _)| *rank == to).unwrap();
                vec![(1 - receiver, receiver)]
            }
            Kind::Recv(from) => {
                let sender = members.iter().position(|(rank, _)| *rank == from).unwrap();
                vec![(sender, 1 - sender)]
            }
            _ => (0..members.len()).map(|i| (i, (i + 1) % members.len())).collect(),
        }
    }

    fn complete(&mut self, members: &[(u32, usize)], kind: Kind) {
        let mut members = members.to_vec();
        members.sort_unstable();
        let starts: Vec<u64> = members.iter().map(|(r, at)| self.runs[*r as usize].ops[*at].start.unwrap()).collect();
        let last = *starts.iter().max().unwrap();
        let host = |i: usize| self.plan.host_of(members[i].0);
        let edges: Vec<(usize, usize)> =
            Self::edges(&members, kind).into_iter().filter(|(a, b)| host(*a) != host(*b)).collect();
        let mut wire: Vec<u64> = edges.iter().map(|_| 3_000 + self.prng.below(1_000)).collect();
        let (mut copy, mut sleep, mut hung) = (None, None, None);
        for fault in self.faults(last) {
            for (slot, (a, b)) in wire.iter_mut().zip(&edges) {
                let touch = |h: u32| host(*a) == h || host(*b) == h;
                match fault {
                    Fault::NicBandwidth(h) if touch(h) => *slot *= 50,
                    Fault::BackgroundTraffic(x, y) if touch(x) || touch(y) => *slot *= 50,
                    Fault::NicDown(h) if touch(h) => hung = Some(h),
                    _ => {}
                }
            }
        }
        if self.active(last) {
            let among = |r: u32| members.iter().position(|(rank, _)| *rank == r).filter(|_| !edges.is_empty());
            match self.plan.fault {
                Fault::Pcie(r) => copy = among(r),
                Fault::ProxyDelay(r) if kind == Kind::Dp => {
                    let run = &mut self.runs[r as usize];
                    if members.iter().any(|(rank, _)| *rank == r) {
                        run.sleeps += 1;
                        if run.sleeps.is_multiple_of(3) {
                            sleep = among(r);
                        }
                    }
                }
                Fault::OnePause(r) if kind == Kind::Dp && self.runs[r as usize].sleeps == 0 => {
                    sleep = among(r);
                    if sleep.is_some() {
                        self.runs[r as usize].sleeps = 1;
                    }
                }
                Fault::GpuHangInside(r) if kind == Kind::Dp => {
                    if let Some(i) = among(r) {
                        self.hang_inside(&members, &edges, None, Some(i));
                        return;
                    }
                }
                Fault::Desync(r) | Fault::OtherCount(r) if kind == Kind::Dp && among(r).is_some() => {
                    self.hang_inside(&members, &edges, None, None);
                    return;
                }
                _ => {}
            }
        }
        if let Some(h) = hung {
            self.hang_inside(&members, &edges, Some(h), None);
            return;
        }
        let pcie_all =
            matches!(self.plan.fault, Fault::Pcie(r) if self.active(last) && members.iter().any(|m| m.0 == r));
        let slowest = wire.iter().copied().max().unwrap_or(500);
        let copy_us: u64 = if pcie_all { 60_000 } else { 0 };
        let sleep_us: u64 = if sleep.is_some() { 1_000_000 } else { 0 };
        let dur = (slowest + copy_us + sleep_us + 500) * 1_000;
        for (i, (rank, at)) in members.iter().enumerate() {
            let flows =
                flows_of(i, &edges, &wire, &starts, copy.map(|c| (c, copy_us)), sleep.map(|s| (s, sleep_us)), &members);
            let run = &mut self.runs[*rank as usize];
            let end = last + dur + self.prng.below(500_000);
            run.ops[*at].end = Some(end);
            run.ops[*at].flows = flows;
            run.clock = end;
        }
    }

    /// Everybody is in and it never ends.
    fn hang_inside(
        &mut self,
        members: &[(u32, usize)],
        edges: &[(usize, usize)],
        down: Option<u32>,
        gpu: Option<usize>,
    ) {
        for (i, (rank, at)) in members.iter().enumerate() {
            let mut flows = Vec::new();
            for (a, b) in edges {
                let cut = down
                    .is_some_and(|h| self.plan.host_of(members[*a].0) == h || self.plan.host_of(members[*b].0) == h);
                let counters = |posted, ready, transmitted, done| FlowCounters {
                    total_chunks: STEPS,
                    posted,
                    ready,
                    transmitted,
                    done,
                };
                if *a == i {
                    let c = if cut {
                        counters(10, 5, 4, 2)
                    } else if gpu == Some(i) {
                        counters(10, 2, 2, 2)
                    } else {
                        counters(11, 3, 3, 3)
                    };
                    flows.push(FlowRun {
                        peer: *b as u32,
                        direction: Direction::Send,
                        stage: [0; 3],
                        max: [0; 3],
                        counters: c,
                    });
                }
                if *b == i {
                    let c = if gpu == Some(i) { counters(10, 6, 6, 2) } else { counters(11, 3, 3, 3) };
                    flows.push(FlowRun {
                        peer: *a as u32,
                        direction: Direction::Recv,
                        stage: [0; 3],
                        max: [0; 3],
                        counters: c,
                    });
                }
            }
            self.runs[*rank as usize].ops[*at].flows = flows;
        }
    }
}

fn flows_of(
    i: usize,
    edges: &[(usize, usize)],
    wire: &[u64],
    starts: &[u64],
    copy: Option<(usize, u64)>,
    sleep: Option<(usize, u64)>,
    members: &[(u32, usize)],
) -> Vec<FlowRun> {
    let slowest = wire.iter().copied().max().unwrap_or(0);
    let copy_us = copy.map_or(0, |c| c.1);
    let sleep_us = sleep.map_or(0, |s| s.1);
    let late = |mine: usize, theirs: usize| starts[theirs].saturating_sub(starts[mine]) / 1_000;
    let mut out = Vec::new();
    let side_by_side = |us: u64| (us as f64 * (8.0 - 28.0 / f64::from(STEPS))) as u32;
    let counters = FlowCounters { total_chunks: STEPS, posted: STEPS, ready: STEPS, transmitted: STEPS, done: STEPS };
    let _ = members;
    for ((a, b), own) in edges.iter().zip(wire) {
        let other = slowest - own; // time this link waits for the slowest one
        if *a == i {
            let own_copy = if copy.is_some_and(|c| c.0 == i) { copy_us } else { 0 };
            let asleep = if sleep.is_some_and(|s| s.0 == i) { sleep_us } else { 0 };
            let wait = other + (copy_us - own_copy) + (sleep_us - asleep);
            let receiver_asleep = if sleep.is_some_and(|s| s.0 == *b) { sleep_us } else { 0 };
            let wait = wait - receiver_asleep.min(wait);
            // A slow receiver of a single message gives no credit; in a ring its data comes late.
            let pressed = if edges.len() == 1 && copy.is_some_and(|c| c.0 == *b) { copy_us } else { 0 };
            let s0 = 300 + wait - pressed + own_copy;
            let s1 = own / 2 + late(i, *b) + asleep + pressed;
            let s2 = own / 2 + receiver_asleep;
            let stage = [side_by_side(s0), side_by_side(s1), side_by_side(s2)];
            let max = [s0 as u32, s1 as u32, s2 as u32];
            out.push(FlowRun { peer: *b as u32, direction: Direction::Send, stage, max, counters });
        }
        if *b == i {
            let own_copy = if copy.is_some_and(|c| c.0 == i) { copy_us } else { 0 };
            let s0 = own + other + (copy_us - own_copy) + late(i, *a) + sleep_us;
            let s2 = 200 + own_copy;
            let stage = [side_by_side(s0), 10, side_by_side(s2)];
            let max = [s0 as u32, 10, s2 as u32];
            out.push(FlowRun { peer: *a as u32, direction: Direction::Recv, stage, max, counters });
        }
    }
    out
}
