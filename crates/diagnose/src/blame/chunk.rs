//! Inside an operation that all members have entered: the chunk state of each flow (Table 4), compared between its two
//! ends (section 5.3, spatial comparison).
use crate::case::Evidence;
use crate::fact::{CRAWLS_NS, Fact, OpRef};
use crate::timeline::{FlowSlot, LiveFlow, OpNode, Timeline};
use mycroft_record::{Algorithm, ChannelId, CommRank, Direction, HostTime, NANOS_PER_MS, OpClass, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// Data that passes a link this long after a flow on it stopped shows that the wire works.
const SERVED_AFTER_NS: u64 = 300 * NANOS_PER_MS;
/// Neighbours in a tree whose data a device has that lacks one other's: two are its children, so that one is its parent.
const CHILDREN: usize = 2;
/// Neighbours of a device in a tree, where none more is inside its host: two children and a parent.
const NEIGHBOURS: usize = 3;

/// Both ends of a flow, as far as known.
#[derive(Clone, Copy, Debug, Default)]
struct Wire {
    send: Option<LiveFlow>,
    recv: Option<LiveFlow>,
}

type WireKey = (ChannelId, CommRank, CommRank);
type Flow<'a> = (&'a WireKey, &'a Wire);

/// Whether a device that does nothing has all it needs, the clearest last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Fed {
    /// No reason to wait is seen.
    Perhaps,
    /// By all flows that it has; it may have a neighbour inside its host besides, to whom no flow leads.
    Seen,
    /// By all connections that it has.
    Surely,
}

struct View<'a> {
    timeline: &'a Timeline,
    node: &'a OpNode,
    wires: BTreeMap<WireKey, Wire>,
    /// Who exchanges data with whom on a channel, both ways.
    peers: BTreeSet<WireKey>,
    inside: Vec<(CommRank, Rank)>,
    op: OpRef,
}

fn unfinished(flow: &LiveFlow) -> bool {
    !flow.done && flow.counters.done < flow.counters.total_chunks
}

/// The receiver has offered room and waits for data.
fn wants(recv: Option<LiveFlow>) -> bool {
    recv.is_some_and(|flow| unfinished(&flow) && flow.counters.posted > flow.counters.ready)
}

/// Data has come that the receiver's device has not taken.
fn untaken(recv: Option<LiveFlow>) -> bool {
    recv.is_some_and(|flow| unfinished(&flow) && flow.counters.transmitted > flow.counters.done)
}

/// The sender's device has room offered and has filled nothing that is not delivered.
fn unfilled(send: Option<LiveFlow>) -> bool {
    send.is_some_and(|flow| {
        let c = flow.counters;
        unfinished(&flow) && c.ready < c.total_chunks && c.ready <= c.done && c.posted > c.ready
    })
}

/// The sender's data is ready and not delivered.
fn held(send: Option<LiveFlow>) -> bool {
    send.is_some_and(|flow| unfinished(&flow) && flow.counters.ready > flow.counters.done)
}

/// The longest that a slice which did arrive was in the hands of the sender's proxy, or on its way.
fn longest_ns(send: &LiveFlow) -> u64 {
    let [_, held_us, sent_us] = send.times.stage_max_us;
    1000 * u64::from(held_us.max(sent_us))
}

/// Facts about data that does not arrive in `node`: all that can be said where nothing is known of one of its members.
pub(crate) fn undelivered(timeline: &Timeline, node: &OpNode) -> Vec<Fact> {
    View::of(timeline, node).map_or_else(Vec::new, |view| view.undelivered())
}

/// Facts about the flows of `node`.
pub(crate) fn blame(timeline: &Timeline, node: &OpNode) -> Vec<Fact> {
    let Some(view) = View::of(timeline, node) else { return Vec::new() };
    if view.wires.is_empty() {
        let members = view.members();
        return vec![Fact::StuckInside { op: view.op, members }];
    }
    let mut facts = view.undelivered();
    // A device that may wait for a neighbour whom no flow shows may wait for data that does not arrive.
    let least = if facts.is_empty() { Fed::Seen } else { Fed::Surely };
    let strong = view.gpu(least);
    if !strong.is_empty() {
        facts.extend(strong);
    } else if facts.is_empty() {
        facts.extend(view.gpu(Fed::Perhaps));
    }
    if facts.is_empty() {
        let members = view.members();
        facts.push(Fact::StuckInside { op: view.op, members });
    }
    facts
}

impl View<'_> {
    fn of<'a>(timeline: &'a Timeline, node: &'a OpNode) -> Option<View<'a>> {
        let mut wires: BTreeMap<WireKey, Wire> = BTreeMap::new();
        let mut inside = Vec::new();
        let mut op = None;
        for rank in timeline.members(node) {
            let Some(live) = timeline.live(rank, node) else { continue };
            let me = live.meta.comm_rank;
            inside.push((me, rank));
            op.get_or_insert_with(|| OpRef { meta: live.meta, label: timeline.label(&live.meta) });
            for (slot, flow) in live.flows.iter() {
                let (channel, peer, direction): FlowSlot = *slot;
                match direction {
                    Direction::Send => wires.entry((channel, me, peer)).or_default().send = Some(*flow),
                    Direction::Recv => wires.entry((channel, peer, me)).or_default().recv = Some(*flow),
                }
            }
        }
        let peers = wires.keys().flat_map(|(channel, a, b)| [(*channel, *a, *b), (*channel, *b, *a)]).collect();
        Some(View { timeline, node, wires, peers, inside, op: op? })
    }

    fn members(&self) -> Vec<(Rank, mycroft_record::HostName, HostTime)> {
        let started = |rank: Rank| self.timeline.live(rank, self.node).map_or(HostTime::NONE, |op| op.meta.started_at);
        self.inside.iter().map(|(_, rank)| (*rank, self.timeline.host(*rank), started(*rank))).collect()
    }

    fn place(&self, member: CommRank) -> Option<(Rank, mycroft_record::HostName)> {
        let rank = self.timeline.rank_in(self.node.comm(), member)?;
        Some((rank, self.timeline.host(rank)))
    }

    fn evidence(&self, key: &WireKey, direction: Direction, at: HostTime) -> Option<Evidence> {
        let (me, peer) = if direction == Direction::Send { (key.1, key.2) } else { (key.2, key.1) };
        let id = self.node.id_for(me)?;
        Some(Evidence { rank: Some(self.place(me)?.0), op: Some(id), flow: Some((key.0, peer, direction)), at })
    }

    //= mycroft 5.3
    /// Wires with ready data at one end and a waiting receiver at the other.
    fn undelivered(&self) -> Vec<Fact> {
        let mut out = Vec::new();
        let mut seen: BTreeSet<(CommRank, CommRank)> = BTreeSet::new();
        for (key, wire) in &self.wires {
            let receiver_ready = wants(wire.recv) || (wire.recv.is_none() && !self.has_live(key.2));
            if !held(wire.send) || !receiver_ready || !seen.insert((key.1, key.2)) {
                continue;
            }
            let (Some(from), Some(to), Some(send)) = (self.place(key.1), self.place(key.2), wire.send) else {
                continue;
            };
            let since = send.times.last_progress_at;
            let Some(evidence) = self.evidence(key, Direction::Send, since) else { continue };
            let longest_ns = longest_ns(&send);
            // What follows a slice that crawled was handed over with it.
            let handed_over = if longest_ns >= CRAWLS_NS { since - longest_ns } else { since };
            let served_meanwhile = self.served(&from, &to, handed_over);
            let (op, send) = (self.op.clone(), send.counters);
            out.push(Fact::NotDelivered { from, to, op, evidence, send, since, longest_ns, served_meanwhile });
        }
        out
    }

    fn has_live(&self, member: CommRank) -> bool {
        self.inside.iter().any(|(me, _)| *me == member)
    }

    /// Whether data of other ranks passed from the one host to the other after `since`.
    fn served(
        &self,
        from: &(Rank, mycroft_record::HostName),
        to: &(Rank, mycroft_record::HostName),
        since: HostTime,
    ) -> bool {
        let after = since + SERVED_AFTER_NS;
        self.timeline.links.all(&self.timeline.ranks).any(|link| {
            (link.from != from.0 && link.to != to.0)
                && self.timeline.host(link.from) == from.1
                && self.timeline.host(link.to) == to.1
                && link.newest().is_some_and(|sample| sample.at > after)
        })
    }

    //= mycroft 5.3
    /// Devices that do nothing although they have room and data, at least as clearly as that (strong); or room and no visible
    /// reason to wait (`Perhaps`, weak).
    fn gpu(&self, least: Fed) -> Vec<Fact> {
        let mut found: Vec<(Fed, u32, bool, Fact)> = Vec::new();
        let mut weak: Vec<(u64, usize, Fact)> = Vec::new();
        for (member, rank) in &self.inside {
            let Some((key, flow, fed)) = self.idle_device(*member) else { continue };
            let takes = fed > Fed::Perhaps;
            let direction = if key.1 == *member { Direction::Send } else { Direction::Recv };
            let Some(evidence) = self.evidence(&key, direction, flow.times.last_progress_at) else { continue };
            let fact = Fact::GpuNotReady {
                rank: *rank,
                host: self.timeline.host(*rank),
                op: self.op.clone(),
                evidence,
                counters: flow.counters,
                strong: takes,
            };
            if takes && least > Fed::Perhaps && fed >= least {
                found.push((fed, self.taken_least(*member), self.degree(key.0, *member) >= NEIGHBOURS, fact));
            } else if !takes && least == Fed::Perhaps {
                let degree = self.wires.keys().filter(|wire| wire.1 == *member || wire.2 == *member).count();
                weak.push((self.made(*member, direction), degree, fact));
            }
        }
        // The least progress (Algorithm 2, CheckMinData), then the fewest connections.
        weak.sort_by_key(|(made, degree, _)| (*made, *degree));
        // One that may wait for a neighbour whom no flow shows is nobody where another has all it needs. Of several such the one
        // that stopped is not ahead of those that wait for it, and one of which flows show all that a tree joins it to hardly
        // has another.
        let clearest = found.iter().map(|(fed, ..)| *fed).max();
        found.retain(|(fed, ..)| Some(*fed) == clearest);
        if clearest == Some(Fed::Seen) {
            let least = found.iter().map(|(_, taken, ..)| *taken).min();
            found.retain(|(_, taken, ..)| Some(*taken) == least);
            let any_whole = found.iter().any(|(.., whole, _)| *whole);
            found.retain(|(.., whole, _)| *whole == any_whole);
        }
        let mut out: Vec<Fact> = found.into_iter().map(|(.., fact)| fact).collect();
        out.extend(weak.into_iter().take(1).map(|(_, _, fact)| fact));
        out
    }

    /// Thousandths of its sends that a member has filled, or of its receives that it has taken.
    fn made(&self, member: CommRank, direction: Direction) -> u64 {
        let (mut made, mut total) = (0u64, 0u64);
        for (key, wire) in &self.wires {
            let flow = match direction {
                Direction::Send if key.1 == member => wire.send.map(|flow| (flow.counters.ready, flow)),
                Direction::Recv if key.2 == member => wire.recv.map(|flow| (flow.counters.done, flow)),
                _ => None,
            };
            if let Some((steps, flow)) = flow {
                made += u64::from(steps);
                total += u64::from(flow.counters.total_chunks);
            }
        }
        (made * 1000).checked_div(total).unwrap_or(1000)
    }

    /// Chunks that a member has taken from the neighbour of whose data that has come it has taken least.
    fn taken_least(&self, member: CommRank) -> u32 {
        let untaken = self.wires.iter().filter(|(key, wire)| key.2 == member && untaken(wire.recv));
        untaken.filter_map(|(_, wire)| Some(wire.recv?.counters.done)).min().unwrap_or(u32::MAX)
    }

    /// A flow that shows the member's device idle: (flow, state, whether all it needs is there).
    fn idle_device(&self, member: CommRank) -> Option<(WireKey, LiveFlow, Fed)> {
        let sends: Vec<Flow<'_>> = self.wires.iter().filter(|(key, _)| key.1 == member).collect();
        let recvs: Vec<Flow<'_>> = self.wires.iter().filter(|(key, _)| key.2 == member).collect();
        let open: Vec<&Flow<'_>> = sends.iter().filter(|(_, wire)| unfilled(wire.send)).collect();
        let any_held = sends.iter().any(|(_, wire)| held(wire.send));
        let class = self.node.id_for(member)?.class;
        let tree = self.op.meta.algorithm == Algorithm::Tree;
        let taken_next = recvs.iter().find(|(_, wire)| untaken(wire.recv));
        if let Some((key, wire)) = taken_next
            && !any_held
            && (!open.is_empty() || sends.iter().all(|(_, wire)| wire.send.is_none_or(|flow| !unfinished(&flow))))
        {
            // Whom it passes data on to inside its host has no flow that shows whether there is room.
            let sees_room = class != OpClass::Collective || !sends.is_empty();
            let fed = match sees_room {
                true if tree => self.fed_in_tree(member, key.0, &sends, &recvs),
                true => Fed::Surely,
                false => Fed::Perhaps,
            };
            return Some((**key, wire.recv?, fed));
        }
        let (key, wire) = open.first()?;
        if class == OpClass::Send {
            return Some((**key, wire.send?, Fed::Surely));
        }
        let needs = recvs.iter().filter(|(wire, _)| !tree || wire.1 != key.2).any(|(_, wire)| wants(wire.recv));
        if needs || self.fed_inside_host(member) { None } else { Some((**key, wire.send?, Fed::Perhaps)) }
    }

    /// Whether a device in a tree has the data of all neighbours on a channel: of its children, whose data it adds up, all; its
    /// parent has none for it before it gives that. Who the parent is no flow shows, but one of three neighbours is.
    fn fed_in_tree(&self, member: CommRank, channel: ChannelId, sends: &[Flow<'_>], recvs: &[Flow<'_>]) -> Fed {
        let here = recvs.iter().filter(|(key, _)| key.0 == channel);
        let has = here.clone().filter(|(_, wire)| untaken(wire.recv)).count();
        let mut lacks = here.filter(|(_, wire)| wants(wire.recv) && !untaken(wire.recv)).map(|(key, _)| key.1);
        if let Some(peer) = lacks.next() {
            let has_room = sends.iter().any(|(key, wire)| key.0 == channel && key.2 == peer && unfilled(wire.send));
            if has < CHILDREN || !has_room || lacks.next().is_some() {
                return Fed::Perhaps;
            }
        }
        if self.has_hidden_neighbour(member, channel) { Fed::Seen } else { Fed::Surely }
    }

    /// How many neighbours flows of a member show on a channel.
    fn degree(&self, channel: ChannelId, member: CommRank) -> usize {
        self.peers.range((channel, member, CommRank(0))..=(channel, member, CommRank(u32::MAX))).count()
    }

    /// Whether a member of a tree may have a neighbour inside its host, to whom no flow leads: one to whom no other way leads
    /// either, since a tree has one way between any two.
    fn has_hidden_neighbour(&self, member: CommRank, channel: ChannelId) -> bool {
        let mut reached = BTreeSet::from([member]);
        let mut open = vec![member];
        while let Some(from) = open.pop() {
            let next = self.peers.range((channel, from, CommRank(0))..=(channel, from, CommRank(u32::MAX)));
            open.extend(next.map(|(_, _, to)| *to).filter(|to| reached.insert(*to)));
        }
        let host = self.place(member).map(|(_, host)| host);
        let at_home =
            |rank: Rank| self.timeline.ranks.get(&rank).is_some_and(|state| Some(&state.host) == host.as_ref());
        self.inside.iter().any(|(other, rank)| !reached.contains(other) && at_home(*rank))
    }

    /// The member gets its data from a neighbour on its own host, which itself waits for the wire or passes nothing on.
    fn fed_inside_host(&self, member: CommRank) -> bool {
        let Some((_, host)) = self.place(member) else { return false };
        let own_recv = self.wires.iter().any(|(key, wire)| key.2 == member && wire.recv.is_some());
        let waits =
            |(key, wire): Flow<'_>| (wants(wire.recv) && !self.is_ahead(key.0, wire, member)) || untaken(wire.recv);
        !own_recv
            && self.inside.iter().any(|(other, rank)| {
                *other != member
                    && self.timeline.host(*rank) == host
                    && self.wires.iter().any(|(key, wire)| key.2 == *other && waits((key, wire)))
            })
    }

    /// Whether more has come into a host on a ring's way than a member of it has sent on: what it waits for was taken by a
    /// neighbour. Each sends its own data first, so it is ahead of what has come wherever all is passed on.
    fn is_ahead(&self, channel: ChannelId, came: &Wire, member: CommRank) -> bool {
        let taken = came.recv.map_or(0, |flow| flow.counters.done);
        let sends = self.wires.iter().filter(|(key, _)| key.0 == channel && key.1 == member);
        let mut sent = sends.filter_map(|(_, wire)| Some(wire.send?.counters.ready));
        self.op.meta.algorithm == Algorithm::Ring && sent.any(|sent| sent < taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::*;

    const AT: HostTime = HostTime(1_700_000_000_000_000_000);

    /// What a flow has posted, made ready, transmitted and done, of 16.
    type Counts = [u32; 4];

    /// A connection: sender, receiver, and what each of the two ends shows.
    type Connection = (u32, u32, Counts, Counts);

    /// The operation that all are in.
    const ID: OpId = OpId { comm: CommId(1), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(1) };

    /// Which devices are said to be idle in an AllReduce in which all of `ranks` ranks are, two on each host.
    fn said(algorithm: Algorithm, ranks: u32, wires: &[Connection]) -> Vec<(u32, bool)> {
        let of = |fact: &Fact| match fact {
            Fact::GpuNotReady { rank, strong, .. } => Some((rank.0, *strong)),
            _ => None,
        };
        said_with(algorithm, ranks, wires, [0; 3], &[]).iter().filter_map(of).collect()
    }

    /// All that is said of it; the longest stages that slices have left, microseconds, and flows that have ended: sender,
    /// receiver, when.
    fn said_with(
        algorithm: Algorithm,
        ranks: u32,
        wires: &[Connection],
        stage_max_us: [u32; 3],
        ended: &[(u32, u32, HostTime)],
    ) -> Vec<Fact> {
        let mut timeline = Timeline::default();
        for rank in 0..ranks {
            let comm_rank = CommRank(rank);
            let init = CommInit { at: AT, comm: ID.comm, n_ranks: ranks, n_nodes: 1, comm_rank, name: "A".into() };
            let op = OpMeta {
                id: ID,
                kind: OpKind::AllReduce,
                comm_rank,
                algorithm,
                n_channels: 1,
                enqueued_at: AT,
                started_at: AT,
                ..crate::blame::hang::NO_META
            };
            let mut records = vec![
                Record::CommInit(init),
                Record::OpState(OpState {
                    sampled_at: AT,
                    op,
                    kernels_started: 1,
                    kernels_stopped: 0,
                    flows_started: 0,
                    flows_done: 0,
                }),
            ];
            let key = |peer: u32, direction| FlowKey { op: ID, channel: ChannelId(0), peer: CommRank(peer), direction };
            let mut flow = |peer: u32, direction, [posted, ready, transmitted, done]: Counts| {
                records.push(Record::FlowState(FlowState {
                    sampled_at: AT,
                    flow: key(peer, direction),
                    counters: FlowCounters { total_chunks: 16, posted, ready, transmitted, done },
                    bytes: 0,
                    times: FlowTimes { started_at: AT, last_progress_at: AT, stage_max_us, ..FlowTimes::default() },
                    peer_wait_polls: 0,
                    proxied_for_pid: 0,
                }));
            };
            for (from, to, send, recv) in wires {
                if *from == rank {
                    flow(*to, Direction::Send, *send);
                }
                if *to == rank {
                    flow(*from, Direction::Recv, *recv);
                }
            }
            for (from, to, ended_at) in ended.iter().filter(|(from, to, _)| [*from, *to].contains(&rank)) {
                let is_sender = *from == rank;
                records.push(Record::FlowDone(FlowDone {
                    flow: if is_sender { key(*to, Direction::Send) } else { key(*from, Direction::Recv) },
                    counters: FlowCounters { total_chunks: 16, posted: 16, ready: 16, transmitted: 16, done: 16 },
                    bytes: 0,
                    times: FlowTimes::default(),
                    ended_at: *ended_at,
                    peer_wait_polls: 0,
                    proxied_for_pid: 0,
                }));
            }
            let process = ProcessKey { rank: Rank(rank), pid: rank + 1, nonce: 1 };
            let host = format!("host{}", rank / 2).as_str().into();
            let source = Source { job: "job".into(), host, process: Some(process) };
            timeline.observe(&Batch { source, collected_at: AT, records }, u32::MAX);
        }
        timeline.settle();
        blame(&timeline, &OpNode::Collective { comm: ID.comm, seq: ID.seq.0 })
    }

    /// Room is offered and nothing is filled; data has come and is not taken; room is offered and nothing comes.
    const UNFILLED: Counts = [8, 2, 2, 2];
    const UNTAKEN: Counts = [10, 6, 6, 2];
    /// Data has come in all slots, and none is taken.
    const FULL: Counts = [10, 10, 10, 2];
    const WANTING: Counts = [10, 2, 2, 2];

    /// A device that sends and receives over the wire has all it needs.
    #[test]
    fn a_device_with_data_and_room_is_the_one() {
        let wires = [(0, 2, UNFILLED, UNTAKEN), (2, 4, UNFILLED, WANTING), (4, 0, UNFILLED, WANTING)];
        assert_eq!(said(Algorithm::Ring, 6, &wires), [(2, true)]);
    }

    /// Rank 2 passes data on to rank 3 inside their host, where no flow shows whether there is room: perhaps rank 3 does
    /// not take it. Rank 3, a chunk behind, gets nothing but through rank 2, and is not blamed for having nothing to send.
    #[test]
    fn a_device_that_passes_on_inside_its_host_may_wait_for_room() {
        let wires =
            [(1, 2, [10, 10, 10, 10], FULL), (3, 4, [7, 1, 1, 1], [10, 1, 1, 1]), (5, 0, [7, 1, 1, 1], [10, 1, 1, 1])];
        assert_eq!(said(Algorithm::Ring, 6, &wires), [(2, false)]);
    }

    /// All that was sent has been taken. Into the host of ranks 2 and 3 more has come than has left it: one of the two has it.
    #[test]
    fn a_host_that_has_taken_more_than_it_sent_on_has_the_device() {
        let waits = |from, to, made: u32| (from, to, [made + 4, made, made, made], [made + 4, made, made, made]);
        let said_after = |into: u32, out_of: u32, later: u32| {
            said(Algorithm::Ring, 6, &[waits(1, 2, into), waits(3, 4, out_of), waits(5, 0, later)])
        };
        assert_eq!(said_after(6, 2, 4), [(3, false)]);
        assert_eq!(said_after(2, 4, 6), [(1, false)]);
        assert_eq!(said_after(4, 4, 4), [], "as much");
    }

    /// In a tree a device adds up what two children send: with one child's data it can do nothing.
    #[test]
    fn a_device_in_a_tree_may_wait_for_its_other_child() {
        let wires = [(2, 0, UNFILLED, UNTAKEN), (4, 0, UNFILLED, WANTING), (0, 6, UNFILLED, WANTING)];
        let found = said(Algorithm::Tree, 8, &wires);
        assert!(!found.contains(&(0, true)), "{found:?}");
        let both = [(2, 0, UNFILLED, FULL), (4, 0, UNFILLED, FULL), (0, 6, UNFILLED, WANTING)];
        assert_eq!(said(Algorithm::Tree, 8, &both), [(0, true)]);
    }

    /// Rank 4 has what ranks 8 and 10 send and nothing goes up to rank 2, from whom nothing comes down. Rank 2 has what rank 6
    /// sends and lacks that of rank 4.
    #[test]
    fn a_device_in_a_tree_does_not_wait_for_its_parent() {
        let children = [(8, 4, UNFILLED, FULL), (10, 4, UNFILLED, FULL), (6, 2, UNFILLED, FULL)];
        let idle = [(4, 2), (2, 4), (2, 6), (4, 8), (4, 10), (2, 0), (0, 2)].map(|(a, b)| (a, b, UNFILLED, WANTING));
        let wires = [&children[..], &idle].concat();
        assert_eq!(said(Algorithm::Tree, 12, &wires), [(4, true)]);
    }

    /// Rank 2 has what rank 6 sends, but lies on the same host as rank 3, that no flow joins to it: it may wait for that.
    /// Rank 4 lies beside rank 5, but the way between them leads over rank 10.
    #[test]
    fn a_device_in_a_tree_may_wait_for_a_neighbour_inside_its_host() {
        let children = [(6, 2, UNFILLED, FULL), (8, 4, UNFILLED, FULL), (10, 4, UNFILLED, FULL)];
        let idle = [(2, 6), (4, 0), (0, 4), (4, 8), (4, 10), (10, 5)].map(|(a, b)| (a, b, UNFILLED, WANTING));
        let wires = [&children[..], &idle].concat();
        assert_eq!(said(Algorithm::Tree, 12, &wires), [(4, true)]);
        assert_eq!(said(Algorithm::Tree, 12, &[children[0], idle[0]]), [(2, true)], "nobody else is idle");
        let ahead = [(7, 3, UNFILLED, [16, 16, 16, 3]), (3, 7, UNFILLED, WANTING)];
        let both = [&[children[0], idle[0]][..], &ahead].concat();
        assert_eq!(said(Algorithm::Tree, 12, &both), [(2, true)], "what rank 3 has not taken rank 2 may have held up");
    }

    /// Rank 2 has what rank 6 sends, and may wait for rank 3 on its host, to which what rank 9 sends does not come.
    #[test]
    fn a_device_in_a_tree_may_wait_for_data_that_does_not_arrive() {
        let wires = |held: Counts| [(6, 2, UNFILLED, FULL), (2, 6, UNFILLED, WANTING), (9, 3, held, WANTING)];
        let idle = |fact: &Fact| matches!(fact, Fact::GpuNotReady { strong: true, .. });
        let said = |held: Counts| said_with(Algorithm::Tree, 10, &wires(held), [0; 3], &[]);
        assert_eq!(said([16, 16, 16, 0]).iter().map(Fact::rule).collect::<Vec<_>>(), ["chunk.not-delivered"]);
        assert!(said(UNFILLED).iter().any(idle), "nothing is on its way");
    }

    /// Ranks 2 and 4 have what their children send, and on the host of each is a rank that no flow joins to it. Rank 4 has two
    /// children and a parent whom flows show, rank 2 one of three neighbours.
    #[test]
    fn a_device_in_a_tree_all_of_whose_neighbours_are_seen_waits_for_no_other() {
        let children = [(6, 2, UNFILLED, FULL), (8, 4, UNFILLED, FULL), (10, 4, UNFILLED, FULL)];
        let idle = [(2, 6), (4, 0), (0, 4), (4, 8), (4, 10)].map(|(a, b)| (a, b, UNFILLED, WANTING));
        let seen = |wires: &[Connection]| said(Algorithm::Tree, 12, wires);
        assert_eq!(seen(&[&children[..], &idle].concat()), [(4, true)]);
        let three = [&children[..2], &idle[..1], &idle[3..4]].concat();
        assert_eq!(seen(&three), [(2, true), (4, true)], "neither shows all of its neighbours");
    }

    /// Rank 0 has data for rank 2 that does not arrive; of its slices that did one took so long. Another flow between their
    /// hosts ended so long before rank 0 last got on, mostly from rank 1 to rank 3.
    #[test]
    fn the_wire_serves_others_since_a_slice_that_crawled_was_handed_over() {
        let is_served_by = |from: u32, to: u32, longest_ms: u32, ended_ms: u64| {
            let sent = [(0, 2, [10, 8, 6, 2], WANTING)];
            let ended = [(from, to, AT - NANOS_PER_MS * ended_ms)];
            match &said_with(Algorithm::Ring, 4, &sent, [0, 0, 1_000 * longest_ms], &ended)[..] {
                [Fact::NotDelivered { served_meanwhile, .. }] => *served_meanwhile,
                other => panic!("{other:?}"),
            }
        };
        let is_served = |longest_ms: u32, ended_ms: u64| is_served_by(1, 3, longest_ms, ended_ms);
        assert!(is_served(9_000, 5_000));
        assert!(!is_served(9_000, 9_000), "it had not been handed over by then");
        assert!(!is_served(900, 500), "none has crawled");
        assert!(!is_served_by(1, 2, 9_000, 5_000), "it is rank 2 that takes");
        assert!(!is_served_by(0, 3, 9_000, 5_000), "it is rank 0 that sends");
    }
}
