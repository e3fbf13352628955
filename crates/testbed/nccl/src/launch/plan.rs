//! What one communicator does for one group: work on channels, connections, and what the proxy carries.

use super::order::{alike, traffic};
use super::task::{Call, CollTask, P2pTask, Task};
use crate::abi::{Algo, Code, DType, Fault, Func, Proto, RedOp, Res};
use crate::comm::Comm;
use crate::kernel::{DevConn, Fiber, Operands, Operands3, Program, Work, p2p, ring, tree};
use crate::profiler::kind;
use crate::schedule::{Cut, Load, P2pGround, Part, Spreader, cut, step_bytes, traffic_per_byte};
use crate::transport::{ConnKey, Dir, Lane};
use crate::tuner::{Choice, choose};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Steps of a chunk and of a slice in ring AllReduce, AllGather and ReduceScatter.
const RING_STEPS: (u64, u64) = (4, 2);
/// The same everywhere else.
const PLAIN_STEPS: (u64, u64) = (1, 1);
/// Without a personality a collective gets one more channel for every so many bytes.
const CHANNEL_BYTES_MIN: usize = 4096;
/// Without a personality a point-to-point message uses all channels from so many slots on.
const P2P_SPREAD_SLOTS: usize = 4;

/// A network part of the plan, still without the plugin's handle of its task.
pub(super) struct NetPart {
    pub(super) task: usize,
    pub(super) key: ConnKey,
    pub(super) nsteps: usize,
    pub(super) steps: (u64, u64),
    /// Data of a full chunk.
    pub(super) chunk_bytes: usize,
    /// Place among the transfers of the kernel, as NCCL posts them: channel by channel, pair by pair, receives before sends.
    place: (usize, usize, bool),
}

/// Buffers as address and bytes, in the order of the calls.
type Spans = VecDeque<(usize, usize)>;

/// Everything one communicator does for one group.
pub(super) struct Plan<'a> {
    comm: &'a Arc<Comm>,
    pub(super) channels: BTreeMap<usize, VecDeque<Work>>,
    pub(super) conns: Vec<(ConnKey, DevConn)>,
    pub(super) copies: Vec<Operands3>,
    pub(super) net: Vec<NetPart>,
    pub(super) watches: Vec<(usize, usize, u64)>,
}

/// How one collective runs on one channel.
struct Lot<'a> {
    task: usize,
    call: &'a CollTask,
    operands: Operands,
    choice: Choice,
    channel: usize,
    /// First element and elements.
    part: (usize, usize),
}

impl Lot<'_> {
    /// Steps of a chunk and of a slice.
    fn steps(&self) -> (u64, u64) {
        let pipelined = matches!(self.call.func, Func::Broadcast | Func::Reduce);
        match (self.choice.algo, self.choice.proto) {
            (Algo::Ring, Proto::Simple) if !pipelined => RING_STEPS,
            _ => PLAIN_STEPS,
        }
    }
}

/// The choice without a personality: AllGather and ReduceScatter have no tree.
pub(super) fn plain_choice(comm: &Comm, func: Func, channels: usize) -> Choice {
    let algo = match func {
        Func::AllReduce | Func::Broadcast | Func::Reduce => comm.algo,
        _ => Algo::Ring,
    };
    Choice { algo, proto: Proto::Simple, channels, warps: crate::profiler::WARPS }
}

impl<'a> Plan<'a> {
    pub(super) fn new(comm: &'a Arc<Comm>) -> Plan<'a> {
        Plan {
            comm,
            channels: BTreeMap::new(),
            conns: Vec::new(),
            copies: Vec::new(),
            net: Vec::new(),
            watches: Vec::new(),
        }
    }

    /// A connection of the plan; the device hears of new ones, the proxy of those that cross the network.
    fn connect(&mut self, part: NetPart) -> Res<()> {
        if part.nsteps == 0 {
            return Ok(());
        }
        let (fifo, notify, new) = self.comm.fifo(part.key)?;
        if new {
            self.conns.push((part.key, DevConn { fifo, step: 0, notify }));
        }
        if !self.comm.is_local(part.key.peer) {
            self.net.push(part);
        }
        Ok(())
    }

    fn push_work(&mut self, channel: usize, fibers: Vec<Fiber>, watched: bool, counters: &mut [u64]) -> u64 {
        counters[channel] += 1;
        let counter = counters[channel];
        self.channels.entry(channel).or_default().push_back(Work { fibers, counter, watched });
        counter
    }

    /// Adds all collectives, and says in each task how it is done.
    pub(super) fn colls(&mut self, tasks: &mut [Task], counters: &mut [u64]) -> Res<()> {
        let cuts = if self.comm.personality.nccl_plan { nccl_cuts(self.comm, tasks) } else { Vec::new() };
        let mut cuts = cuts.into_iter();
        for (index, task) in tasks.iter_mut().enumerate() {
            let Call::Coll(c) = &task.call else { continue };
            let (choice, parts) = cuts.next().unwrap_or_else(|| plain_cut(self.comm, c));
            task.channels = self.coll(index, c, task.mask, (choice, &parts), counters)?;
            task.choice = Some(choice);
        }
        Ok(())
    }

    /// Adds a collective; says how many channels it uses.
    fn coll(
        &mut self,
        task: usize,
        call: &CollTask,
        mask: i32,
        (choice, parts): (Choice, &[Part]),
        counters: &mut [u64],
    ) -> Res<usize> {
        let comm = self.comm;
        let operands = Operands { send: call.send, recv: call.recv, dtype: call.dtype, op: call.op, ranks: comm.ranks };
        if comm.ranks == 1 {
            self.copies.push((operands, call.count));
            return Ok(0);
        }
        let watched = mask & kind::KERNEL_CH != 0 && comm.profiler.is_some();
        for (channel, from, count) in parts.iter().copied() {
            let lot = Lot { task, call, operands, choice, channel, part: (from, count) };
            let fibers = match choice.algo {
                Algo::Ring => vec![self.ring(&lot)?],
                Algo::Tree => self.tree(&lot)?,
            };
            let counter = self.push_work(channel, fibers, watched, counters);
            if watched {
                self.watches.push((task, channel, counter));
            }
        }
        Ok(parts.len())
    }

    fn ring(&mut self, lot: &Lot) -> Res<Fiber> {
        let (comm, steps, n) = (self.comm, lot.steps(), self.comm.ranks);
        let chunk_bytes = step_bytes(lot.choice.proto, comm.slot_bytes) * steps.0 as usize;
        let program = ring::Ring {
            func: lot.call.func,
            order: Arc::clone(&comm.order),
            pos: comm.pos,
            root_pos: comm.order.iter().position(|r| *r == lot.call.root).unwrap_or(0),
            count: lot.call.count,
            part_from: lot.part.0,
            part_count: lot.part.1,
            chunk: chunk_bytes / lot.call.dtype.size(),
        };
        let key = |dir, peer| ConnKey { dir, peer, channel: lot.channel, lane: Lane::Coll };
        let next = key(Dir::Send, comm.order[(comm.pos + 1) % n]);
        let prev = key(Dir::Recv, comm.order[(comm.pos + n - 1) % n]);
        let (sends, recvs) = (program.sends(), program.recvs());
        for (key, chunks) in [(prev, recvs), (next, sends)] {
            let nsteps = chunks * steps.0 as usize;
            self.connect(NetPart { task: lot.task, key, nsteps, steps, chunk_bytes, place: Default::default() })?;
        }
        let only = |n: usize, key| if n > 0 { vec![key] } else { Vec::new() };
        Ok(Fiber::new(Program::Ring(program), lot.operands, only(recvs, prev), only(sends, next), steps))
    }

    fn tree(&mut self, lot: &Lot) -> Res<Vec<Fiber>> {
        let (comm, func) = (self.comm, lot.call.func);
        let family = if comm.personality.nccl_plan {
            tree::over_hosts(&comm.hosts, comm.rank, lot.channel, comm.channels)
        } else {
            let all_reduce = func == Func::AllReduce;
            let root = if all_reduce { tree::all_reduce_root(comm.ranks, lot.channel) } else { lot.call.root };
            tree::family(comm.rank, comm.ranks, root, lot.channel)
        };
        let key = |dir, peer: &usize| ConnKey { dir, peer: *peer, channel: lot.channel, lane: Lane::Coll };
        let from_children: Vec<ConnKey> = family.children.iter().map(|p| key(Dir::Recv, p)).collect();
        let to_children: Vec<ConnKey> = family.children.iter().map(|p| key(Dir::Send, p)).collect();
        let to_parent: Vec<ConnKey> = family.parent.iter().map(|p| key(Dir::Send, p)).collect();
        let from_parent: Vec<ConnKey> = family.parent.iter().map(|p| key(Dir::Recv, p)).collect();
        let flows: Vec<(tree::Flow, &Vec<ConnKey>, &Vec<ConnKey>)> = match func {
            Func::Reduce => vec![(tree::Flow::Up, &from_children, &to_parent)],
            Func::Broadcast => vec![(tree::Flow::Down, &from_parent, &to_children)],
            _ if family.parent.is_none() => vec![(tree::Flow::Turn, &from_children, &to_children)],
            _ => vec![(tree::Flow::Up, &from_children, &to_parent), (tree::Flow::Down, &from_parent, &to_children)],
        };
        let chunk_bytes = step_bytes(lot.choice.proto, comm.slot_bytes);
        let mut fibers = Vec::new();
        for (flow, recvs, sends) in flows {
            let program = tree::Tree {
                func,
                flow,
                has_up: !recvs.is_empty(),
                has_down: !sends.is_empty(),
                part_from: lot.part.0,
                part_count: lot.part.1,
                chunk: chunk_bytes / lot.call.dtype.size(),
            };
            // NCCL posts what goes to the children before what comes from the parent.
            let (first, second) = if flow == tree::Flow::Down { (sends, recvs) } else { (recvs, sends) };
            for key in first.iter().chain(second).copied() {
                let (nsteps, steps) = (program.chunks(), PLAIN_STEPS);
                self.connect(NetPart { task: lot.task, key, nsteps, steps, chunk_bytes, place: Default::default() })?;
            }
            fibers.push(Fiber::new(Program::Tree(program), lot.operands, recvs.clone(), sends.clone(), PLAIN_STEPS));
        }
        Ok(fibers)
    }

    /// Adds all point-to-point calls: per channel one work, with one fiber per connection.
    pub(super) fn p2p(&mut self, tasks: &mut [Task], counters: &mut [u64]) -> Res<()> {
        let comm = self.comm;
        let mut fibers: BTreeMap<ConnKey, p2p::P2p> = BTreeMap::new();
        let mut users: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut to_self = (VecDeque::new(), VecDeque::new());
        let mut pair = (0, usize::MAX, false);
        for (index, task) in tasks.iter_mut().enumerate() {
            let Call::P2p(t) = task.call.clone() else { continue };
            let bytes = t.count * t.dtype.size();
            if t.peer == comm.rank {
                task.channels = usize::from(comm.personality.nccl_plan);
                let side = if t.is_send { &mut to_self.0 } else { &mut to_self.1 };
                side.push_back((t.buff, bytes));
                continue;
            }
            let cut = self.cut(&t, bytes);
            task.channels = cut.parts.len();
            let round = comm.rounds.of(t.peer, t.is_send);
            let new_pair = pair.1 != round || pair.2 == t.is_send;
            pair = (pair.0 + usize::from(new_pair), round, t.is_send);
            let dir = if t.is_send { Dir::Send } else { Dir::Recv };
            for (channel, at, len) in cut.parts {
                let place = (channel, pair.0, t.is_send);
                let key = ConnKey { dir, peer: t.peer, channel, lane: Lane::P2p };
                let (nsteps, steps, chunk) = (p2p::steps(len, cut.step), PLAIN_STEPS, cut.step);
                self.connect(NetPart { task: index, key, nsteps, steps, chunk_bytes: chunk, place })?;
                let fiber = fibers.entry(key).or_insert_with(|| p2p::P2p { is_send: t.is_send, pieces: Vec::new() });
                fiber.pieces.push(p2p::Piece { addr: t.buff + at, bytes: len, chunk });
                let list = users.entry(channel).or_default();
                if task.mask & kind::KERNEL_CH != 0 && comm.profiler.is_some() && !list.contains(&index) {
                    list.push(index);
                }
            }
        }
        if comm.personality.nccl_plan {
            self.net.sort_by_key(|part| part.place);
        }
        self.p2p_to_self(to_self)?;
        self.p2p_work(fibers, users, counters);
        Ok(())
    }

    fn cut(&self, t: &P2pTask, bytes: usize) -> Cut {
        let comm = self.comm;
        if comm.personality.nccl_plan {
            let ground = P2pGround {
                ranks: comm.ranks,
                nodes: comm.nodes,
                channels: comm.channels,
                slot: comm.slot_bytes,
                few: comm.personality.few_p2p_channels,
            };
            let round = comm.rounds.of(t.peer, t.is_send);
            return cut(bytes, round, !comm.is_local(t.peer), &comm.rounds, &ground);
        }
        let parts = if bytes > P2P_SPREAD_SLOTS * comm.slot_bytes { comm.channels } else { 1 };
        let (from, to) = if t.is_send { (comm.rank, t.peer) } else { (t.peer, comm.rank) };
        let base = (to + comm.ranks - from) % comm.ranks;
        let part = |i| {
            let (at, len) = p2p::part(bytes, parts, i);
            ((base + i) % comm.channels, at, len)
        };
        Cut { parts: (0..parts).map(part).collect(), step: comm.slot_bytes }
    }

    fn p2p_work(
        &mut self,
        fibers: BTreeMap<ConnKey, p2p::P2p>,
        mut users: BTreeMap<usize, Vec<usize>>,
        counters: &mut [u64],
    ) {
        let mut by_channel: BTreeMap<usize, Vec<Fiber>> = BTreeMap::new();
        for (key, program) in fibers {
            let operands = Operands { send: 0, recv: 0, dtype: DType::U8, op: RedOp::Sum, ranks: self.comm.ranks };
            let (recvs, sends) = if program.is_send { (vec![], vec![key]) } else { (vec![key], vec![]) };
            let fiber = Fiber::new(Program::P2p(program), operands, recvs, sends, PLAIN_STEPS);
            by_channel.entry(key.channel).or_default().push(fiber);
        }
        for (channel, list) in by_channel {
            let watchers = users.remove(&channel).unwrap_or_default();
            let counter = self.push_work(channel, list, !watchers.is_empty(), counters);
            self.watches.extend(watchers.into_iter().map(|task| (task, channel, counter)));
        }
    }

    fn p2p_to_self(&mut self, (sends, recvs): (Spans, Spans)) -> Res<()> {
        if sends.len() != recvs.len() {
            return Err(Fault::new(Code::InvalidUsage, "a rank sends to itself without receiving in the same group"));
        }
        for ((from, bytes), (to, room)) in sends.into_iter().zip(recvs) {
            if bytes > room {
                let text = format!("a rank sends {bytes} bytes to itself and receives {room}");
                return Err(Fault::new(Code::InvalidArgument, text));
            }
            let operands = Operands { send: from, recv: to, dtype: DType::U8, op: RedOp::Sum, ranks: 1 };
            self.copies.push((operands, bytes));
        }
        Ok(())
    }
}

/// Without a personality: equal parts on as many channels as the bytes fill.
fn plain_cut(comm: &Comm, c: &CollTask) -> (Choice, Vec<Part>) {
    let wanted = (c.count * c.dtype.size()).div_ceil(CHANNEL_BYTES_MIN).clamp(1, comm.channels);
    let each = c.count.div_ceil(wanted).next_multiple_of(16);
    let parts = (0..wanted).map(|i| (i, each * i, c.count.saturating_sub(each * i).min(each)));
    let parts: Vec<Part> = parts.filter(|part| part.2 > 0).collect();
    (plain_choice(comm, c.func, parts.len()), parts)
}

/// NCCL's cuts of all collectives of a kernel, in their order. Collectives of one kind whose sizes differ less than four
/// times are chosen for together.
fn nccl_cuts(comm: &Comm, tasks: &[Task]) -> Vec<(Choice, Vec<Part>)> {
    let calls: Vec<&CollTask> = tasks
        .iter()
        .filter_map(|task| match &task.call {
            Call::Coll(c) => Some(c),
            Call::P2p(_) => None,
        })
        .collect();
    let bytes = |c: &CollTask| c.count * c.dtype.size();
    let mut choices: Vec<Choice> = Vec::new();
    while choices.len() < calls.len() {
        let rest = &calls[choices.len()..];
        let limit = 4 * traffic(rest[0], comm.ranks).max(1);
        let together = rest.iter().take_while(|c| alike(c, rest[0]) && traffic(c, comm.ranks) < limit).count();
        let sum: usize = rest[..together].iter().map(|c| bytes(c)).sum();
        let whole = match rest[0].func {
            Func::AllGather | Func::ReduceScatter => sum * comm.ranks,
            _ => sum,
        };
        let choice = choose(rest[0].func, whole, &comm.ground);
        choices.extend(std::iter::repeat_n(choice, together));
    }
    let load = |(c, choice): (&&CollTask, &Choice)| Load {
        bytes: bytes(c),
        per_byte: traffic_per_byte(c.func, comm.ranks),
        channels: choice.channels,
        proto: choice.proto,
    };
    let loads: Vec<Load> = calls.iter().zip(&choices).map(load).collect();
    let mut spreader = Spreader::new(comm.channels, &loads);
    let in_elements = |es: usize| move |(channel, from, bytes): Part| (channel, from / es, bytes / es);
    loads
        .iter()
        .zip(choices)
        .zip(calls)
        .map(|((load, choice), c)| {
            (choice, spreader.next(*load).into_iter().map(in_elements(c.dtype.size())).collect())
        })
        .collect()
}
