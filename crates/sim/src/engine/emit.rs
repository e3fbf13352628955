//! What the agent of each host tells: it looks every 100 ms and ships what is news (`crates/agent/src/segment.rs` is the
//! original: what is repeated when, and in which order).
use super::load;
use super::ops::{Counts, id, op_done, op_state};
use super::rank::{Conn, OpFlow, OpTrace, Quiet, RankRun};
use super::world::{EPOCH, World};
use super::{Delivery, Looks, Simulation};
use crate::collective::trace::Point;
use crate::collective::{mix, unit};
use crate::effects::HostEffects;
use crate::profile::NEVER;
use mycroft_record::*;
use std::sync::Arc;

/// The state of something in flight is told again after this (`agent::config::REPEAT_EVERY`).
const REPEAT_NS: u64 = NANOS_PER_SEC;
/// That a process was looked at is told this often, and at once when that is a turn (docs/formats/record.md).
const SAMPLED_NS: u64 = NANOS_PER_SEC / 2;
/// Interfaces are read this often.
const NIC_NS: u64 = NANOS_PER_SEC / 2;
/// The host's load is told this often.
const VITALS_NS: u64 = NANOS_PER_SEC;
/// From an agent's look to its batch at the server.
const SHIP_NS: u64 = 3 * NANOS_PER_MS;
/// Completions that a ring holds while the agent is out: 64 KiB of 128 bytes.
const RING_KEEPS: usize = 512;
/// Threads that tell side by side.
const TELLERS_MAX: usize = 8;
/// Hosts for which a thread of their own is worth its start.
const HOSTS_PER_TELLER: usize = 16;
/// What an idle host's memory looks like.
const MEMORY_BYTES: u64 = 512 << 30;
/// Version that the tracer tells (`ncclGetVersion`).
const NCCL_VERSION: u32 = 23_007;
const PROFILER_ABI: u32 = 6;

/// What the agent of one host remembers.
#[derive(Debug)]
pub(super) struct Agent {
    host: u32,
    pub(super) looks: Looks,
    /// Next look that was not made.
    next: u64,
    nics: Vec<Nic>,
    nics_at: u64,
    vitals_at: u64,
    dropped: u64,
    ranks: Vec<ToldRank>,
}

/// What was told of one rank's process.
#[derive(Clone, Copy, Debug, Default)]
struct ToldRank {
    attached: bool,
    sampled: Option<Sampled>,
    sampled_at: u64,
    /// The last look, told or not.
    looked_at: u64,
    gone: bool,
}

/// A look at a rank, the one before, and what is wrong with its host.
#[derive(Clone, Copy)]
struct Look<'a> {
    at: u64,
    before: u64,
    effects: Option<&'a HostEffects>,
}

/// Counters of an interface.
#[derive(Debug, Default)]
struct Nic {
    name: Arc<str>,
    /// Flows' ends that the counters do not contain yet: (when, sent, bytes).
    coming: Vec<(u64, bool, u64)>,
    sent: u64,
    received: u64,
    other: u64,
}

impl Agent {
    pub(super) fn new(host: u32, looks: Looks, nics: u32) -> Agent {
        let name = |nic: u32| if nics <= 1 { "eth0".into() } else { format!("mlx5_{nic}").into() };
        Agent {
            host,
            looks,
            next: looks.next(0),
            nics: (0..nics.max(1)).map(|nic| Nic { name: name(nic), ..Nic::default() }).collect(),
            nics_at: 0,
            vitals_at: 0,
            dropped: 0,
            ranks: Vec::new(),
        }
    }

    /// Nobody will read the interfaces.
    pub(super) fn forget_flows(&mut self) {
        self.nics.iter_mut().for_each(|nic| nic.coming.clear());
    }

    /// A flow of this host ends at `at`, having moved `bytes`; `nic` counts over all hosts.
    pub(super) fn count(&mut self, nic: usize, sent: bool, at: u64, bytes: u64) {
        let nics = self.nics.len();
        if at != NEVER {
            self.nics[nic % nics].coming.push((at, sent, bytes));
        }
    }
}

impl Simulation {
    /// Everything that agents tell up to `until`. Agents know nothing of each other, so they may work side by side.
    pub(super) fn tell(&mut self, until: u64) -> Vec<Delivery> {
        let per_host = self.world.scenario.ranks_per_host as usize;
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(TELLERS_MAX);
        let share = self.agents.len().div_ceil(threads).max(HOSTS_PER_TELLER);
        let world = &self.world;
        let mut parts = self.agents.chunks_mut(share).zip(self.ranks.chunks_mut(share * per_host));
        let mut out: Vec<Delivery> = std::thread::scope(|scope| {
            let own = parts.next();
            let others: Vec<_> =
                parts.map(|(agents, ranks)| scope.spawn(move || tell_all(world, agents, ranks, until))).collect();
            let mut out = own.map_or_else(Vec::new, |(agents, ranks)| tell_all(world, agents, ranks, until));
            for other in others {
                out.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            out
        });
        out.sort_by(|a, b| (a.arrives_at, &a.batch.source).cmp(&(b.arrives_at, &b.batch.source)));
        out
    }
}

/// What the agents of some hosts, with their ranks, tell up to `until`.
fn tell_all(world: &World, agents: &mut [Agent], ranks: &mut [RankRun], until: u64) -> Vec<Delivery> {
    let mut out = Vec::new();
    let mut records = Vec::new();
    for (agent, ranks) in agents.iter_mut().zip(ranks.chunks_mut(world.scenario.ranks_per_host as usize)) {
        ranks.iter_mut().for_each(RankRun::learn);
        let mut teller = Teller { world, ranks, records: &mut records, out: &mut out };
        while agent.next <= until {
            let at = agent.next;
            agent.next += agent.looks.every;
            teller.look(agent, at);
        }
    }
    out
}

/// One host, its ranks, and where its batches go.
struct Teller<'a> {
    world: &'a World,
    ranks: &'a mut [RankRun],
    /// Of the batch that is being made.
    records: &'a mut Vec<Record>,
    out: &'a mut Vec<Delivery>,
}

impl Teller<'_> {
    fn look(&mut self, agent: &mut Agent, at: u64) {
        let effects = self.world.host_effects(agent.host);
        if effects.is_some_and(|host| host.agent_out.iter().any(|(from, until)| at >= *from && at < *until)) {
            return;
        }
        let per_host = self.world.scenario.ranks_per_host;
        agent.ranks.resize(per_host as usize, ToldRank::default());
        self.look_at_host(agent, effects, at);
        for local in 0..per_host {
            let rank = agent.host * per_host + local;
            self.look_at_rank(agent, effects, (rank, local), at);
            if !self.records.is_empty() {
                let nonce = mix(self.world.scenario.seed, 0x9001 + u64::from(rank)) as u32 | 1;
                self.ship(agent.host, Some(ProcessKey { rank: Rank(rank), pid: 1000 + rank, nonce }), at);
            }
        }
    }

    /// Ships the records that were made.
    fn ship(&mut self, host: u32, process: Option<ProcessKey>, at: u64) {
        let records = self.records.drain(..).collect();
        let source = Source { job: self.world.job.clone(), host: self.world.host_name(host).clone(), process };
        let collected_at = self.world.host_time(host, at + NANOS_PER_MS);
        let out = &self.world.effects.store_out;
        let arrival = at + SHIP_NS;
        let held =
            out.iter().find(|(from, until)| arrival >= *from && arrival < *until).map_or(arrival, |(_, until)| *until);
        self.out.push(Delivery { arrives_at: EPOCH + held, batch: Batch { source, collected_at, records } });
    }

    fn look_at_host(&mut self, agent: &mut Agent, effects: Option<&HostEffects>, at: u64) {
        if at >= agent.nics_at {
            agent.nics_at = at + NIC_NS;
            self.read_nics(agent, effects, at);
        }
        if at >= agent.vitals_at {
            agent.vitals_at = at + VITALS_NS;
            let load = load::at(&self.world.scenario, agent.host, effects, at);
            self.records.push(Record::HostVitals(HostVitals {
                at: self.world.host_time(agent.host, at),
                cpu_busy_milli: load.busy_milli,
                memory_available_bytes: MEMORY_BYTES,
                agent_dropped: agent.dropped,
                cpu_wait_milli: load.wait_milli,
            }));
        }
        if !self.records.is_empty() {
            self.ship(agent.host, None, at);
        }
    }

    fn read_nics(&mut self, agent: &mut Agent, effects: Option<&HostEffects>, at: u64) {
        for nic in &mut agent.nics {
            nic.coming.retain(|(when, sent, bytes)| {
                if *when > at {
                    return true;
                }
                *(if *sent { &mut nic.sent } else { &mut nic.received }) += bytes;
                false
            });
            let other = effects.map_or(0, |host| other_bytes(host, at));
            nic.other = nic.other.max(other);
            let down = effects.map_or(&[][..], |host| &host.link_down);
            let up = !down.iter().any(|(from, until)| at >= *from && at < *until);
            let changes = down.iter().flat_map(|(from, until)| [*from, *until]).filter(|change| *change <= at).count();
            self.records.push(Record::NicState(NicState {
                at: self.world.host_time(agent.host, at),
                nic: nic.name.clone(),
                up,
                link_changes: 1 + changes as u64,
                speed_bytes_per_sec: self.world.scenario.nic_bytes_per_sec,
                tx_bytes: nic.sent + nic.other,
                rx_bytes: nic.received + nic.other,
                errors: 0,
            }));
        }
    }

    fn look_at_rank(&mut self, agent: &mut Agent, effects: Option<&HostEffects>, (rank, local): (u32, u32), at: u64) {
        let (world, records) = (self.world, &mut *self.records);
        let run = &mut self.ranks[local as usize];
        let told = &mut agent.ranks[local as usize];
        if told.gone || at < super::START_NS {
            return;
        }
        let parts = world.effects.ranks.get(&rank);
        let dead = parts.and_then(|parts| parts.killed_at).is_some_and(|killed| killed <= at);
        let stopped = parts.and_then(|parts| parts.frozen).is_some_and(|(from, until)| at >= from && at < until);
        let stamp = |moment: u64| world.host_time(agent.host, moment);
        if !told.attached {
            told.attached = true;
            attach(world, run, local, at, records);
        }
        let look = Look { at, before: std::mem::replace(&mut told.looked_at, at), effects };
        let (Quiet { ops, flows, .. }, lost) = tell_ops(world, run, look, dead, records);
        if lost > 0 {
            agent.dropped += lost;
            records.push(Record::Gap(Gap { noticed_at: stamp(at), lost, cause: GapCause::RingLapped }));
        }
        let now = Sampled { at: stamp(at), ops_in_flight: ops, flows_in_flight: flows, alive: !dead, stopped };
        let what = |s: &Sampled| (s.alive, s.stopped, s.ops_in_flight == 0, s.flows_in_flight == 0);
        let turns = told.sampled.is_none_or(|before| what(&before) != what(&now));
        if turns || at >= told.sampled_at + SAMPLED_NS {
            told.sampled = Some(now);
            told.sampled_at = at;
            records.push(Record::Sampled(now));
        }
        if dead {
            told.gone = true;
            records.push(Record::ProcessExit(ProcessExit::unread(stamp(at), false)));
        }
        run.forget_told();
    }
}

/// Bytes of other traffic that a host's interfaces have counted at `at`.
fn other_bytes(host: &HostEffects, at: u64) -> u64 {
    let of = |(from, until, rate): &(u64, u64, u64)| {
        let ns = at.min(*until).saturating_sub(*from);
        (u128::from(*rate) * u128::from(ns) / u128::from(NANOS_PER_SEC)) as u64
    };
    host.other_traffic.iter().map(of).sum()
}

fn attach(world: &World, run: &RankRun, local: u32, at: u64, records: &mut Vec<Record>) {
    let stamp = |moment: u64| world.host_time(run.host, moment);
    records.push(Record::Process(ProcessInfo {
        attached_at: stamp(at - at % NANOS_PER_MS),
        world_size: world.scenario.world(),
        local_rank: local,
        gpu: local as i32,
        profiler_abi: PROFILER_ABI,
        nccl_version: NCCL_VERSION,
        kernel_events: world.scenario.cluster.kernel_events,
    }));
    for (group, position) in world.seats(run.rank) {
        let group = &world.groups[group as usize];
        records.push(Record::CommInit(CommInit {
            at: stamp(at),
            comm: group.id,
            n_ranks: group.members.len() as u32,
            n_nodes: group.hosts,
            comm_rank: CommRank(position),
            name: group.name.clone(),
        }));
    }
}

/// Tells the state of everything in flight that is news, and what has ended; gives what is in flight, and how many
/// completions were lost. `all`: whether it is news or not.
fn tell_ops(world: &World, run: &mut RankRun, look: Look<'_>, all: bool, records: &mut Vec<Record>) -> (Quiet, u64) {
    if look.at < run.all_quiet.until && !all {
        return (run.all_quiet, 0);
    }
    let mut sum = Quiet { until: NEVER, ..Quiet::default() };
    let mut has_ended = false;
    for index in 0..run.ops.len() {
        let quiet = run.quiet[index];
        let quiet = if look.at < quiet.until && !all {
            quiet
        } else {
            let op = &run.ops[index];
            if op.issued > look.at {
                sum.until = sum.until.min(op.issued);
                break;
            }
            has_ended |= op.ended <= look.at || op.flows.iter().any(|flow| flow.ended() <= look.at);
            if op.ended > look.at {
                tell_state(world, run, index, look.at, all, records);
            }
            run.quiet[index] = quiet_after(run, &run.ops[index], look.at);
            run.quiet[index]
        };
        sum = Quiet { until: sum.until.min(quiet.until), ops: sum.ops + quiet.ops, flows: sum.flows + quiet.flows };
    }
    run.all_quiet = sum;
    (sum, if has_ended { tell_ends(world, run, look, records) } else { 0 })
}

/// When something of an operation next moves or is due to be told again, and what of it is in flight until then.
fn quiet_after(run: &RankRun, op: &OpTrace, at: u64) -> Quiet {
    let mut out = Quiet { until: NEVER, ..Quiet::default() };
    if op.ended <= at {
        return out;
    }
    let mut next = |moment: u64| out.until = if moment > at { out.until.min(moment) } else { out.until };
    [op.started, op.left_first, op.left, op.ended, op.told.op.1 + REPEAT_NS].into_iter().for_each(&mut next);
    let mut flows = 0;
    for flow in &op.flows {
        let from = op.posts_at(&run.conns, flow);
        if from > at {
            next(from);
            continue;
        }
        if let Some(trace) = &flow.trace {
            if trace.ended <= at {
                continue;
            }
            next(trace.ended);
            next(trace.last.at);
            let before = trace.points.partition_point(|point| point.at <= at);
            trace.points.get(before).into_iter().for_each(|point| next(point.at));
        }
        next(flow.told.1 + REPEAT_NS);
        flows += 1;
    }
    (out.ops, out.flows) = (1, flows);
    out
}

/// Tells the state of an operation in flight and of its flows, where that is news.
fn tell_state(world: &World, run: &mut RankRun, index: usize, at: u64, all: bool, records: &mut Vec<Record>) {
    let (host, conns) = (run.host, &run.conns);
    let op = &mut run.ops[index];
    let is_news = |told: (u64, u64), print: u64| told.0 != print || at - told.1 >= REPEAT_NS || all;
    let (counts, print) = op_print(conns, op, at);
    if is_news(op.told.op, print) {
        records.push(Record::OpState(op_state(world, host, op, counts, at)));
        op.told.op = (print, at);
    }
    for flow in 0..op.flows.len() {
        let from = op.posts_at(conns, &op.flows[flow]);
        if from > at {
            continue;
        }
        let Some(point) = seen(&op.flows[flow], from, at) else { continue };
        let print = flow_print(&point);
        if is_news(op.flows[flow].told, print) {
            records.push(Record::FlowState(flow_state(world, host, op, &op.flows[flow], &point, at)));
            op.flows[flow].told = (print, at);
        }
    }
}

/// An operation as the live table shows it, and what makes that news.
fn op_print(conns: &[Conn], op: &OpTrace, at: u64) -> (Counts, u64) {
    let done = op.flows.iter().filter(|flow| flow.ended() <= at).count() as u16;
    let begun = op.flows.iter().filter(|flow| op.posts_at(conns, flow) <= at).count() as u16;
    let first_left = u8::from(op.left_first <= at && op.channels > 1);
    let stopped = if op.left <= at { op.channels } else { first_left };
    let counts = u64::from(stopped) << 8 | u64::from(begun) << 16 | u64::from(done) << 32;
    (Counts { stopped, begun, done }, 1 | u64::from(op.started <= at) << 1 | counts)
}

/// What makes the state of a flow news.
fn flow_print(point: &Point) -> u64 {
    let moved = u64::from(point.counters.done) << 40 ^ u64::from(point.counters.posted) << 50;
    (1 + point.last_progress) ^ moved
}

/// A flow as it stands at `at`, which the proxy began with at `from`; `None`: it has ended.
fn seen(flow: &OpFlow, from: u64, at: u64) -> Option<Point> {
    let Some(trace) = &flow.trace else { return Some(first_point(flow, from)) };
    if trace.ended <= at {
        return None;
    }
    if trace.last.at <= at {
        return Some(trace.last);
    }
    let before = trace.points.partition_point(|point| point.at <= at);
    Some(before.checked_sub(1).map_or_else(|| first_point(flow, from), |last| trace.points[last]))
}

/// Slots are offered or receives posted, and nothing has moved.
fn first_point(flow: &OpFlow, from: u64) -> Point {
    let counters =
        FlowCounters { total_chunks: flow.steps, posted: flow.steps.min(flow.window), ..FlowCounters::default() };
    Point { at: from, counters, last_progress: from, ..Point::default() }
}

fn key(world: &World, op: &OpTrace, flow: &OpFlow) -> FlowKey {
    FlowKey {
        op: id(world, op),
        channel: ChannelId(flow.channel),
        peer: CommRank(flow.peer),
        direction: if flow.sends { Direction::Send } else { Direction::Recv },
    }
}

/// A flow was appended when its operation was issued, however late the proxy gets to it.
fn times(world: &World, host: u32, op: &OpTrace, point: &Point) -> FlowTimes {
    let stamp = |moment: u64| if moment == 0 { HostTime::NONE } else { world.host_time(host, moment) };
    FlowTimes {
        started_at: stamp(op.issued),
        first_ready_at: stamp(point.first_ready),
        last_progress_at: stamp(point.last_progress),
        stage_us: point.stage_us,
        stage_max_us: point.stage_max_us,
    }
}

fn flow_state(world: &World, host: u32, op: &OpTrace, flow: &OpFlow, point: &Point, at: u64) -> FlowState {
    FlowState {
        sampled_at: world.host_time(host, at),
        flow: key(world, op, flow),
        counters: point.counters,
        bytes: point.bytes,
        times: times(world, host, op, point),
        peer_wait_polls: 0,
        proxied_for_pid: 0,
    }
}

/// Tells what has ended since the last look, in the order of the ends; gives how many completions were lost.
fn tell_ends(world: &World, run: &mut RankRun, look: Look<'_>, records: &mut Vec<Record>) -> u64 {
    let at = look.at;
    let mut ends: Vec<(u64, bool, usize, usize)> = Vec::new();
    for (index, op) in run.ops.iter().enumerate() {
        if op.issued > at {
            break;
        }
        if op.told.done {
            continue;
        }
        for (flow, of) in op.flows.iter().enumerate().filter(|(_, flow)| flow.ended() <= at && flow.told.0 != TOLD_END)
        {
            ends.push((of.ended(), false, index, flow));
        }
        if op.resolved && op.ended <= at {
            ends.push((op.ended, true, index, 0));
        }
    }
    ends.sort_unstable();
    // While nobody looks the ring keeps what it can.
    let lapped = if at > look.before + REPEAT_NS { ends.len().saturating_sub(RING_KEEPS) } else { 0 };
    let share = |moment: u64| {
        let lost = look.effects.map_or(&[][..], |host| &host.lost);
        lost.iter().find(|(from, until, _)| moment >= *from && moment < *until).map_or(0.0, |(_, _, share)| *share)
    };
    let mut lost = 0;
    for (place, (ended, is_op, index, flow)) in ends.into_iter().enumerate() {
        let chance = || unit(mix(mix(world.scenario.seed ^ 0x1057, u64::from(run.rank)), ended ^ (flow as u64) << 56));
        let share = share(ended);
        let keep = place >= lapped && (share <= 0.0 || chance() >= share);
        lost += u64::from(!keep);
        let op = &mut run.ops[index];
        if keep && is_op {
            records.push(op_done(world, run.host, op));
        } else if keep {
            records.extend(flow_done(world, run.host, op, &op.flows[flow]));
        }
        if is_op {
            op.told.done = true;
        } else {
            op.flows[flow].told.0 = TOLD_END;
        }
    }
    lost
}

/// In place of a fingerprint: the flow's end was told.
const TOLD_END: u64 = u64::MAX;

fn flow_done(world: &World, host: u32, op: &OpTrace, flow: &OpFlow) -> Option<Record> {
    let trace = flow.trace.as_ref()?;
    Some(Record::FlowDone(FlowDone {
        flow: key(world, op, flow),
        counters: trace.last.counters,
        bytes: trace.last.bytes,
        times: times(world, host, op, &trace.last),
        ended_at: world.host_time(host, trace.ended),
        peer_wait_polls: 0,
        proxied_for_pid: 0,
    }))
}
