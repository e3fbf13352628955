//! Where ranks meet: an operation whose members have all come, or cannot come any more, is worked out at once.
use super::rank::{OpFlow, OpTrace};
use super::sizes::{STEPS, message_cut, sizes};
use super::world::World;
use super::{Simulation, step::Call};
use crate::collective::healthy::{Member, Rows};
use crate::collective::tree::{Branch, Shape};
use crate::collective::{Cut, Hop, Seat, Wire, mix, pair, ring, spread, tree};
use crate::profile::NEVER;
use crate::program::ELEMENT_BYTES;
use mycroft_record::{OpClass, OpKind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a collective inside a host takes at least.
const LOCAL_OP_NS: u64 = 15_000;

/// A member that has come: its operation's number and when its kernel starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) number: u64,
    pub(super) start: u64,
}

/// A collective that not all members have entered.
#[derive(Debug)]
struct Meeting {
    entries: Vec<Option<Entry>>,
    /// Members that have come or cannot come.
    counted: usize,
    /// The first kernel's start.
    first: u64,
    /// What the first member calls it, and whether another one calls it something else.
    call: (OpKind, u64),
    differs: bool,
}

/// One side of a message that has come.
#[derive(Clone, Copy, Debug)]
struct Half {
    rank: u32,
    entry: Entry,
    /// The rank went on without waiting for the other side.
    gone: bool,
}

/// The messages from one member of a group to another that are not worked out, in order.
#[derive(Debug, Default)]
struct Line {
    sends: VecDeque<Half>,
    recvs: VecDeque<Half>,
}

/// Sender's and receiver's position in their group.
type PairKey = (u32, u32);

/// All operations that somebody waits in.
#[derive(Debug)]
pub(super) struct Meetings {
    /// Of each group: the number of the first open collective, and the open ones.
    open: Vec<(u64, VecDeque<Meeting>)>,
    /// Groups with an open collective.
    busy: BTreeSet<u32>,
    /// Of each group: its connections that carried messages, ascending.
    lines: Vec<Vec<(PairKey, Line)>>,
    /// Positions of members that will not come to anything more, by group.
    absent: BTreeMap<u32, Vec<u32>>,
}

impl Meetings {
    pub(super) fn new(groups: usize) -> Meetings {
        Meetings {
            open: (0..groups).map(|_| (0, VecDeque::new())).collect(),
            busy: BTreeSet::new(),
            lines: (0..groups).map(|_| Vec::new()).collect(),
            absent: BTreeMap::new(),
        }
    }

    /// The earliest kernel of an operation that is not worked out.
    pub(super) fn first_entry(&self) -> u64 {
        let collectives = self.busy.iter().flat_map(|group| &self.open[*group as usize].1).map(|open| open.first);
        let lines = self.lines.iter().flatten();
        let halves = lines.flat_map(|(_, line)| line.sends.front().into_iter().chain(line.recvs.front()));
        collectives.chain(halves.map(|half| half.entry.start)).min().unwrap_or(NEVER)
    }

    /// A connection's messages, made when first asked for.
    fn line(&mut self, group: u32, key: PairKey) -> &mut Line {
        let lines = &mut self.lines[group as usize];
        let at = lines.binary_search_by(|(known, _)| known.cmp(&key)).unwrap_or_else(|at| {
            lines.insert(at, (key, Line::default()));
            at
        });
        &mut lines[at].1
    }
}

/// One channel of a collective in a ring.
struct Ring<'a> {
    members: &'a [u32],
    numbers: &'a [Option<u64>],
    meeting: &'a Meeting,
    channel: u64,
}

impl Ring<'_> {
    /// The members, who have all come; `posted` is of each its sends and its receives.
    fn all(&self, posted: &[u64], factors: &[f64]) -> Vec<Member> {
        let n = self.members.len();
        let member = |m: usize| Member {
            start: self.meeting.entries[m].map_or(NEVER, |entry| entry.start),
            posted: [posted[ring::send_lane(m)], posted[ring::send_lane((m + 1) % n) + 1]],
            factor: factors[m],
        };
        (0..n).map(member).collect()
    }
}

impl World {
    /// The connections over the network that a call uses on its rank.
    pub(super) fn flows(&self, call: &Call, is_tree: bool) -> Vec<OpFlow> {
        let group = &self.groups[call.group as usize];
        let n = group.members.len();
        let me = call.position as usize;
        let far = |peer: usize| self.scenario.host_of(group.members[me]) != self.scenario.host_of(group.members[peer]);
        if call.class != OpClass::Collective {
            if !far(call.peer as usize) {
                return Vec::new();
            }
            let (steps, _) = message_cut(call.count, &self.scenario);
            let (from, to) = match call.class {
                OpClass::Send => (call.position, call.peer),
                _ => (call.peer, call.position),
            };
            let channel = pair_channel(from, to, n as u32, self.scenario.channels);
            let sends = call.class == OpClass::Send;
            return vec![OpFlow::new(channel, call.peer, sends, steps as u32, STEPS as u32)];
        }
        let mut flows = Vec::new();
        let sizes = sizes(call.kind, call.count, n, &self.scenario, is_tree);
        for channel in 0..sizes.channels {
            let mut add = |peer: usize, sends: bool| {
                let (steps, window) = (sizes.steps as u32, sizes.window as u32);
                if far(peer) {
                    flows.push(OpFlow::new(channel as u8, peer as u32, sends, steps, window));
                }
            };
            if is_tree {
                let shape = Shape::new(n, channel as usize);
                for end in tree::ends(shape, shape.member(me)) {
                    add(end.peer, end.sends);
                }
            } else {
                add((me + 1) % n, true);
                add((me + n - 1) % n, false);
            }
        }
        flows
    }
}

/// The channel of a message depends on how far apart the two are, as in NCCL.
fn pair_channel(from: u32, to: u32, n: u32, channels: u32) -> u8 {
    ((to + n - from) % n % channels.max(1)) as u8
}

impl Simulation {
    /// A rank enters a collective.
    pub(super) fn join(&mut self, rank: u32, number: u64, start: u64) {
        let op = self.ranks[rank as usize].op(number);
        let (group, position, seq, call) = (op.group, op.position as usize, op.seq, (op.kind, op.count));
        self.ranks[rank as usize].post(number);
        let members = self.world.groups[group as usize].members.len();
        let absent = self.meetings.absent.get(&group).map_or(0, Vec::len);
        let (first_open, open) = &mut self.meetings.open[group as usize];
        let at = (seq - *first_open) as usize;
        while open.len() <= at {
            let entries = vec![None; members];
            open.push_back(Meeting { entries, counted: absent, first: NEVER, call, differs: false });
        }
        let meeting = &mut open[at];
        if meeting.first == NEVER {
            meeting.call = call;
        }
        meeting.differs |= meeting.call != call;
        meeting.first = meeting.first.min(start);
        meeting.entries[position] = Some(Entry { number, start });
        meeting.counted += 1;
        let full = meeting.counted == members;
        self.meetings.busy.insert(group);
        if full {
            self.resolve_open(group);
        }
    }

    /// Works out every open collective of a group that nobody can still come to.
    fn resolve_open(&mut self, group: u32) {
        let members = self.world.groups[group as usize].members.len();
        let mut at = 0;
        loop {
            let (first_open, open) = &mut self.meetings.open[group as usize];
            match open.get(at) {
                None => break,
                Some(meeting) if meeting.counted < members || meeting.first == NEVER => at += 1,
                Some(_) if at == 0 => {
                    if let Some(meeting) = open.pop_front() {
                        *first_open += 1;
                        let seq = *first_open - 1;
                        self.resolve(group, seq, &meeting);
                    }
                }
                // Only the front can be full: members come in order, so a later one is full only when all are blocked.
                Some(_) => at += 1,
            }
        }
        if self.meetings.open[group as usize].1.is_empty() {
            self.meetings.busy.remove(&group);
        }
    }

    fn resolve(&mut self, group: u32, seq: u64, meeting: &Meeting) {
        if meeting.differs {
            self.never(group, meeting);
        } else if self.world.groups[group as usize].hosts < 2 {
            self.resolve_local(group, seq, meeting);
        } else {
            let (kind, count) = meeting.call;
            let call = Call { group, position: 0, class: OpClass::Collective, peer: 0, kind, count };
            if self.is_tree(&call) {
                self.resolve_tree(&call, seq, meeting);
            } else {
                self.resolve_ring(&call, seq, meeting);
            }
        }
        for (position, entry) in meeting.entries.iter().enumerate() {
            if let Some(entry) = entry {
                let rank = self.world.groups[group as usize].members[position];
                self.leave(rank, entry.number);
            }
        }
    }

    /// The members call different things: kernels start and nothing fits.
    fn never(&mut self, group: u32, meeting: &Meeting) {
        for (position, entry) in meeting.entries.iter().enumerate() {
            if let Some(entry) = entry {
                let rank = self.world.groups[group as usize].members[position];
                let op = self.ranks[rank as usize].op(entry.number);
                op.started = entry.start;
                op.resolved = true;
            }
        }
    }

    /// Inside a host nothing but starts and ends can be seen: it ends for all together.
    fn resolve_local(&mut self, group: u32, seq: u64, meeting: &Meeting) {
        let (kind, count) = meeting.call;
        let of = &self.world.groups[group as usize];
        let n = of.members.len() as u64;
        let bytes = count * ELEMENT_BYTES;
        let around = if kind == OpKind::AllReduce { 2 * bytes * (n - 1) / n } else { bytes * (n - 1) };
        let wire = self.world.wire(of.members[0], of.members[0], of.kind);
        let chance = mix(mix(self.world.scenario.seed, of.id.0), seq);
        let factor = spread(chance, self.world.scenario.cluster.nvlink_spread);
        let ns = LOCAL_OP_NS + (around as f64 * wire.ns_per_byte * factor) as u64;
        let all_there = meeting.entries.iter().all(Option::is_some);
        let last = meeting.entries.iter().flatten().map(|entry| entry.start).max().unwrap_or(NEVER);
        let end = if all_there && last != NEVER { last + ns } else { NEVER };
        // A device that stops goes on to the end of such a kernel, as the testbed's; a process that is killed does not.
        let killed = |rank: &u32| self.world.effects.ranks.get(rank).and_then(|effects| effects.killed_at);
        let killed = of.members.iter().filter_map(killed).min().unwrap_or(NEVER);
        let end = if end >= killed { NEVER } else { end };
        for (position, entry) in meeting.entries.iter().enumerate() {
            let Some(entry) = entry else { continue };
            let rank = self.world.groups[group as usize].members[position];
            let op = self.ranks[rank as usize].op(entry.number);
            op.started = entry.start;
            // Members are done in the order of the ring, one hand-over after the other.
            let own_end = if end == NEVER { NEVER } else { end + 1_000 * (position as u64 % 8) };
            (op.left_first, op.left, op.ended, op.resolved) = (own_end, own_end, own_end, true);
        }
    }

    /// Numbers of the members' operations, entered or only issued: what their proxies know of.
    fn numbers(&self, group: u32, seq: u64, meeting: &Meeting) -> Vec<Option<u64>> {
        let of = &self.world.groups[group as usize];
        let find = |position: usize| {
            let rank = &self.ranks[of.members[position] as usize];
            rank.find(group, OpClass::Collective, 0, seq)
        };
        meeting.entries.iter().enumerate().map(|(at, entry)| entry.map(|e| e.number).or_else(|| find(at))).collect()
    }

    fn resolve_ring(&mut self, call: &Call, seq: u64, meeting: &Meeting) {
        let n = meeting.entries.len();
        let sizes = sizes(call.kind, call.count, n, &self.world.scenario, false);
        let plan = ring::Plan {
            sends: (sizes.steps / sizes.loops / sizes.slices) as usize,
            loops: sizes.loops as usize,
            slices: sizes.slices as usize,
        };
        let cut = self.cut(sizes.window, sizes.slice_bytes);
        let numbers = self.numbers(call.group, seq, meeting);
        self.post_absent(call.group, meeting, &numbers);
        let members = self.world.groups[call.group as usize].members.clone();
        let kind = self.world.groups[call.group as usize].kind;
        let wires: Vec<Wire> = (0..n).map(|m| self.world.wire(members[m], members[(m + 1) % n], kind)).collect();
        let healthy = wires.iter().all(Wire::is_healthy)
            && meeting.entries.iter().all(Option::is_some)
            && members.iter().all(|rank| self.world.is_healthy(*rank));
        for channel in 0..sizes.channels {
            let factors: Vec<f64> = (0..n).map(|m| self.factor(call.group, seq, channel, m, &wires[m])).collect();
            let posted = |m: usize, peer: usize, sends: bool| {
                self.posted(members[m], numbers[m], (channel as u8, peer as u32, sends))
            };
            let ends = |m: usize| [posted(m, (m + 1) % n, true), posted(m, (m + n - 1) % n, false)];
            let posted: Vec<u64> = (0..n).flat_map(ends).collect();
            let ring = Ring { members: &members, numbers: &numbers, meeting, channel };
            let hops: Vec<Hop<'_>> =
                wires.iter().zip(&factors).map(|(wire, factor)| Hop::new(cut, wire, *factor)).collect();
            let mut rows = std::mem::take(&mut self.rows);
            let is_done = healthy && rows.run(plan, cut, &ring.all(&posted, &factors), &wires);
            if is_done {
                self.take_rows(&rows, &ring, &hops);
            }
            self.rows = rows;
            if is_done {
                continue;
            }
            let mut moments = std::mem::take(&mut self.moments);
            moments.post(posted.into_iter());
            let mut seats = self.seats(&members, meeting, (seq, channel));
            let ends = ring::run(&mut moments, plan, &mut seats, &hops);
            let asleep: Vec<(u64, u64)> = seats.iter().map(|seat| seat.asleep).collect();
            for m in 0..n {
                let lanes = [(ring::send_lane(m), (m + 1) % n, true), (ring::send_lane(m) + 1, (m + n - 1) % n, false)];
                self.take(members[m], numbers[m], &meeting.entries[m], channel as u8, ends[m], asleep[m]);
                for (lane, peer, sends) in lanes {
                    let flow = (channel as u8, peer as u32, sends);
                    self.trace(members[m], numbers[m], &moments.lane(lane), flow, &hops[m]);
                }
            }
            self.moments = moments;
        }
        self.close(&members, &numbers);
    }

    /// A channel of a healthy ring is worked out.
    fn take_rows(&mut self, rows: &Rows, ring: &Ring<'_>, hops: &[Hop<'_>]) {
        let n = ring.members.len();
        for (m, (rank, number)) in ring.members.iter().zip(ring.numbers).enumerate() {
            let (next, last) = ((m + 1) % n, (m + n - 1) % n);
            self.take(*rank, *number, &ring.meeting.entries[m], ring.channel as u8, rows.end(m), (0, 0));
            for (hop, peer, sends) in [(m, next, true), (last, last, false)] {
                let flow = (ring.channel as u8, peer as u32, sends);
                self.trace(*rank, *number, &rows.lane(hop, sends), flow, &hops[hop]);
            }
        }
    }

    fn resolve_tree(&mut self, call: &Call, seq: u64, meeting: &Meeting) {
        let n = meeting.entries.len();
        let sizes = sizes(call.kind, call.count, n, &self.world.scenario, true);
        let cut = self.cut(sizes.window, sizes.slice_bytes);
        let numbers = self.numbers(call.group, seq, meeting);
        self.post_absent(call.group, meeting, &numbers);
        let members = self.world.groups[call.group as usize].members.clone();
        let kind = self.world.groups[call.group as usize].kind;
        for channel in 0..sizes.channels {
            let shape = Shape::new(n, channel as usize);
            let branches: Vec<Branch> = (0..n)
                .map(|node| {
                    let (me, parent) = (shape.member(node), shape.member(node.saturating_sub(1) / 2));
                    let up = self.world.wire(members[me], members[parent], kind);
                    let down = self.world.wire(members[parent], members[me], kind);
                    let factor = self.factor(call.group, seq, channel, node, &up);
                    Branch { up, down, factor }
                })
                .collect();
            let mut posted = vec![NEVER; n * tree::LANES];
            for node in 0..n {
                let m = shape.member(node);
                for end in tree::ends(shape, node) {
                    posted[end.lane] = self.posted(members[m], numbers[m], (channel as u8, end.peer as u32, end.sends));
                }
            }
            let mut moments = std::mem::take(&mut self.moments);
            moments.post(posted.into_iter());
            let mut seats = self.seats(&members, meeting, (seq, channel));
            let ends = tree::run(&mut moments, shape, sizes.steps as usize, cut, &mut seats, &branches);
            let asleep: Vec<(u64, u64)> = seats.iter().map(|seat| seat.asleep).collect();
            for node in 0..n {
                let m = shape.member(node);
                self.take(members[m], numbers[m], &meeting.entries[m], channel as u8, ends[m], asleep[m]);
                for end in tree::ends(shape, node) {
                    let flow = (channel as u8, end.peer as u32, end.sends);
                    let hop = tree::hop(shape, node, &end, cut, &branches);
                    self.trace(members[m], numbers[m], &moments.lane(end.lane), flow, &hop);
                }
            }
            self.moments = moments;
        }
        self.close(&members, &numbers);
    }

    pub(super) fn cut(&self, window: u64, slice_bytes: u64) -> Cut {
        let copy = slice_bytes as f64 * 1e9 / self.world.scenario.cluster.copy_bytes_per_sec as f64;
        Cut { window: window as usize, slice_bytes, copy_ns: copy as u64 }
    }

    /// What chance makes of a wire in one operation.
    fn factor(&self, group: u32, seq: u64, channel: u64, member: usize, wire: &Wire) -> f64 {
        let cluster = &self.world.scenario.cluster;
        let variation = if wire.network { cluster.rdma_spread } else { cluster.nvlink_spread };
        let group = self.world.groups[group as usize].id.0;
        let bits = mix(mix(mix(self.world.scenario.seed ^ group, seq), channel), member as u64);
        spread(bits, variation)
    }

    /// Members that are blocked but have issued the operation: their proxies have begun with it.
    fn post_absent(&mut self, group: u32, meeting: &Meeting, numbers: &[Option<u64>]) {
        for (position, number) in numbers.iter().enumerate() {
            if let (None, Some(number)) = (&meeting.entries[position], number) {
                let rank = self.world.groups[group as usize].members[position];
                self.ranks[rank as usize].post(*number);
            }
        }
    }

    /// When a member's proxy begins with one end of a connection in an operation; inside a host nothing is waited for.
    fn posted(&self, rank: u32, number: Option<u64>, (channel, peer, sends): (u8, u32, bool)) -> u64 {
        let Some(number) = number else { return NEVER };
        let run = &self.ranks[rank as usize];
        let op = &run.ops[(number - run.first_op) as usize];
        op.flow(channel, peer, sends).map_or(op.issued, |flow| op.flows[flow].posted)
    }

    fn seats(&self, members: &[u32], meeting: &Meeting, (seq, channel): (u64, u64)) -> Vec<Seat<'_>> {
        members
            .iter()
            .enumerate()
            .map(|(m, rank)| {
                let run = &self.ranks[*rank as usize];
                Seat {
                    start: meeting.entries[m].map_or(NEVER, |entry| entry.start),
                    parts: self.world.parts(*rank),
                    chance: mix(
                        mix(self.world.scenario.seed, 0x51EE + u64::from(*rank)),
                        seq ^ u64::from(meeting.call.0.code()) << 32 ^ channel << 48,
                    ),
                    asleep: run.asleep,
                }
            })
            .collect()
    }

    /// All channels are worked out: the operation's ends, and the connections are free again.
    fn close(&mut self, members: &[u32], numbers: &[Option<u64>]) {
        for (rank, number) in members.iter().zip(numbers) {
            if let Some(number) = number {
                self.close_op(*rank, *number);
            }
        }
    }

    fn close_op(&mut self, rank: u32, number: u64) {
        let run = &mut self.ranks[rank as usize];
        let (host, nic) = (run.host, self.world.nic(rank));
        let op = run.op(number);
        op.resolved = true;
        let agent = &mut self.agents[host as usize];
        op.ended = op.left;
        for flow in &op.flows {
            let Some(trace) = &flow.trace else { continue };
            op.ended = op.ended.max(trace.ended);
            agent.count(nic, flow.sends, trace.ended, trace.last.bytes);
        }
        run.free(number);
    }

    /// The kernel that this operation is part of may be over.
    fn leave(&mut self, rank: u32, number: u64) {
        let run = &mut self.ranks[rank as usize];
        let left = run.op(number).left;
        self.leave_at(rank, left);
    }

    fn leave_at(&mut self, rank: u32, left: u64) {
        let run = &mut self.ranks[rank as usize];
        run.kernel = run.kernel.max(left);
        run.waiting -= 1;
        let (over, for_good) = (run.waiting == 0, run.kernel == NEVER);
        if over {
            run.device = run.kernel;
            self.leave_together(rank);
        }
        if for_good {
            self.doomed.push(rank);
        } else if over {
            self.runnable.push(rank);
        }
    }

    /// Messages of one kernel on one channel are one work of the device: whoever is done first waits for the others.
    fn leave_together(&mut self, rank: u32) {
        let channels = self.world.scenario.channels;
        let groups = &self.world.groups;
        let run = &mut self.ranks[rank as usize];
        let first = run.op_of[run.at - 1];
        let end = run.op_of.get(run.at).copied().unwrap_or_else(|| run.next_op());
        if end - first < 2 {
            return;
        }
        let channel = |op: &OpTrace| {
            let n = groups[op.group as usize].members.len() as u32;
            let sends = op.class == OpClass::Send;
            let (from, to) = if sends { (op.position, op.peer) } else { (op.peer, op.position) };
            usize::from(pair_channel(from, to, n, channels))
        };
        let mut left = vec![0; channels.max(1) as usize];
        for number in first..end {
            let op = run.op(number);
            let left = &mut left[channel(op)];
            *left = op.left.max(*left);
        }
        for number in first..end {
            let op = run.op(number);
            let left = left[channel(op)];
            (op.left_first, op.left) = (left, left);
            if op.resolved {
                op.ended = op.ended.max(left);
            }
        }
    }

    /// A rank will not come to anything more: who waits for it need not wait to know.
    pub(super) fn block(&mut self, rank: u32) {
        let run = &mut self.ranks[rank as usize];
        if run.blocked {
            return;
        }
        run.blocked = true;
        let seats: Vec<(u32, u32)> = self.world.seats(rank).collect();
        for (group, position) in seats {
            self.meetings.absent.entry(group).or_default().push(position);
            for meeting in &mut self.meetings.open[group as usize].1 {
                if meeting.entries[position as usize].is_none() {
                    meeting.counted += 1;
                }
            }
            self.resolve_open(group);
            let lines = self.meetings.lines[group as usize].iter().map(|(key, _)| *key);
            let own: Vec<PairKey> = lines.filter(|(from, to)| *from == position || *to == position).collect();
            own.into_iter().for_each(|key| self.resolve_line(group, key));
        }
    }

    /// A rank enters a send or a receive.
    pub(super) fn meet(&mut self, rank: u32, number: u64, start: u64) {
        let op = self.ranks[rank as usize].op(number);
        let (group, position, peer) = (op.group, op.position, op.peer);
        let sends = op.class == OpClass::Send;
        let key = if sends { (position, peer) } else { (peer, position) };
        let mut half = Half { rank, entry: Entry { number, start }, gone: false };
        let line = self.meetings.line(group, key);
        if !sends {
            line.recvs.push_back(half);
            return self.resolve_line(group, key);
        }
        let first = line.sends.is_empty();
        if first {
            self.go_on_alone(&mut half);
        }
        self.meetings.line(group, key).sends.push_back(half);
        self.resolve_line(group, key);
    }

    /// A sender whose message fits the FIFO goes on without the receiver. It must be the first on its connection that is not
    /// worked out: what comes before it holds the FIFO.
    fn go_on_alone(&mut self, half: &mut Half) {
        let (rank, Entry { number, start }) = (half.rank, half.entry);
        if let Some(left) = self.fills_alone(rank, number, start) {
            half.gone = true;
            let op = self.ranks[rank as usize].op(number);
            (op.started, op.left_first, op.left) = (start, left, left);
            self.leave_at(rank, left);
        }
    }

    /// When the sender's device is done with a message that fits the FIFO: it need not wait for the receiver.
    fn fills_alone(&mut self, rank: u32, number: u64, start: u64) -> Option<u64> {
        self.ranks[rank as usize].post(number);
        let run = &self.ranks[rank as usize];
        let op = &run.ops[(number - run.first_op) as usize];
        let (steps, slice_bytes) = message_cut(op.count, &self.world.scenario);
        let posted = op.flows.first().map_or(op.issued, |flow| flow.posted);
        let seat = Seat { start, parts: self.world.parts(rank), chance: 0, asleep: run.asleep };
        pair::fills_alone(steps as usize, self.cut(STEPS, slice_bytes), &seat, posted)
    }

    /// Works out the messages of a connection that both sides have come to, or one has and the other cannot.
    fn resolve_line(&mut self, group: u32, key: PairKey) {
        let (from, to) = key;
        let absent = |at: u32| self.meetings.absent.get(&group).is_some_and(|absent| absent.contains(&at));
        let (no_sender, no_receiver) = (absent(from), absent(to));
        loop {
            let line = self.meetings.line(group, key);
            let ready = match (line.sends.is_empty(), line.recvs.is_empty()) {
                (false, false) => true,
                (false, true) => no_receiver,
                (true, false) => no_sender,
                (true, true) => false,
            };
            if !ready {
                // Those before it are worked out now: it must not matter which of two ranks is played first.
                let next = line.sends.front().copied().filter(|send| !send.gone);
                if let Some(mut next) = next {
                    self.go_on_alone(&mut next);
                    self.meetings.line(group, key).sends[0] = next;
                }
                return;
            }
            let (send, recv) = (line.sends.pop_front(), line.recvs.pop_front());
            self.resolve_pair(group, key, send, recv);
        }
    }

    fn resolve_pair(&mut self, group: u32, (from, to): PairKey, send: Option<Half>, recv: Option<Half>) {
        let of = &self.world.groups[group as usize];
        let (sender, receiver) = (of.members[from as usize], of.members[to as usize]);
        let (kind, n, id) = (of.kind, of.members.len() as u32, of.id.0);
        let seq_of = |half: &Half| {
            let run = &self.ranks[half.rank as usize];
            let op = &run.ops[(half.entry.number - run.first_op) as usize];
            (op.seq, op.count)
        };
        let Some((seq, count)) = send.as_ref().or(recv.as_ref()).map(seq_of) else { return };
        let number = |half: &Option<Half>, rank: u32, class, peer| match half {
            Some(half) => Some(half.entry.number),
            None => self.ranks[rank as usize].find(group, class, peer, seq),
        };
        let numbers = [number(&send, sender, OpClass::Send, to), number(&recv, receiver, OpClass::Recv, from)];
        let starts = [&send, &recv].map(|half| half.map_or(NEVER, |half| half.entry.start));
        for (side, rank) in [sender, receiver].into_iter().enumerate() {
            if let Some(number) = numbers[side] {
                self.ranks[rank as usize].post(number);
            }
        }
        let channel = pair_channel(from, to, n, self.world.scenario.channels);
        let posted = [
            self.posted(sender, numbers[0], (channel, to, true)),
            self.posted(receiver, numbers[1], (channel, from, false)),
        ];
        let wire = self.world.wire(sender, receiver, kind);
        let (steps, slice_bytes) = message_cut(count, &self.world.scenario);
        let cut = self.cut(STEPS, slice_bytes);
        let chance = mix(mix(self.world.scenario.seed ^ id, seq), u64::from(from) << 32 | u64::from(to));
        let variation = if wire.network { self.world.scenario.cluster.rdma_spread } else { 0.0 };
        let mut moments = std::mem::take(&mut self.moments);
        moments.post(posted.into_iter());
        let seat = |side: usize, rank: u32| Seat {
            start: starts[side],
            parts: self.world.parts(rank),
            chance: mix(chance, 0x51EE),
            asleep: self.ranks[rank as usize].asleep,
        };
        let (mut out, mut into) = (seat(0, sender), seat(1, receiver));
        let hop = Hop::new(cut, &wire, spread(chance, variation));
        let ends = pair::run(&mut moments, steps as usize, &hop, (&mut out, &mut into));
        let asleep = [out.asleep, into.asleep];
        for (side, rank, half, end) in [(0, sender, &send, ends.0), (1, receiver, &recv, ends.1)] {
            // Who is gone has left already.
            let entry = half.filter(|half| !half.gone).map(|half| half.entry);
            self.take(rank, numbers[side], &entry, 0, end, asleep[side]);
            let flow = (channel, if side == 0 { to } else { from }, side == 0);
            self.trace(rank, numbers[side], &moments.lane(side), flow, &hop);
            if let Some(number) = numbers[side] {
                self.close_op(rank, number);
            }
        }
        self.moments = moments;
        for half in [send, recv].into_iter().flatten().filter(|half| !half.gone) {
            self.leave(half.rank, half.entry.number);
        }
    }
}
