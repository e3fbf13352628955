//! A rank goes on: iterations begin, the host issues them whole, the device works them off one by one.
use super::Simulation;
use super::rank::{OpFlow, OpTrace, Told};
use super::sizes::sizes;
use crate::collective::{LAUNCH_NS, Parts, mix, unit};
use crate::effects::WrongCall;
use crate::layout::GroupKind;
use crate::profile::NEVER;
use crate::program::{self, Item, Part};
use crate::scenario::Algo;
use crate::schedule::Exchange;
use mycroft_record::{Algorithm, NANOS_PER_MS, OpClass, OpKind};
use std::sync::Arc;

/// What the main thread takes to issue one call.
const ISSUE_NS: u64 = 4_000;
/// Between the end of an iteration and the first call of the next.
const TURN_NS: u64 = 100_000;
impl Simulation {
    /// Lets a rank go on until it must wait for others, for time to pass, or for ever.
    pub(super) fn advance(&mut self, rank: u32) {
        loop {
            let run = &self.ranks[rank as usize];
            if run.blocked || run.waiting > 0 {
                return;
            }
            if run.device == NEVER {
                return self.block(rank);
            }
            if run.device > self.horizon {
                self.parked.push(rank);
                return;
            }
            if run.at == run.items.len() {
                self.next_iteration(rank);
                continue;
            }
            let (item, issued) = (run.items[run.at], run.issued[run.at]);
            if issued == NEVER {
                return self.block(rank);
            }
            match item {
                Item::Compute { part, ns } => self.compute(rank, part, ns, issued),
                _ => self.enter(rank, item, issued),
            }
        }
    }

    fn compute(&mut self, rank: u32, part: Part, ns: u64, issued: u64) {
        let ns = (ns as f64 * self.pace(rank, part)) as u64;
        let parts = self.world.parts(rank);
        let run = &mut self.ranks[rank as usize];
        run.device = parts.compute.finish(run.device.max(issued), ns);
        run.at += 1;
    }

    /// How much longer than usual this piece of computation takes, for healthy reasons.
    fn pace(&self, rank: u32, part: Part) -> f64 {
        let scenario = &self.world.scenario;
        let run = &self.ranks[rank as usize];
        let iteration = run.iteration - 1;
        let seed = mix(scenario.seed, 0xF00D);
        let of_rank = mix(mix(seed, u64::from(rank)), iteration);
        let around = |bits: u64, spread: f64| 1.0 + spread * (2.0 * unit(bits) - 1.0);
        let mut pace = around(of_rank, scenario.jitter);
        if iteration < u64::from(scenario.warm_up_iterations) {
            pace *= scenario.warm_up_factor;
        }
        let life = &scenario.life;
        if life.straggle_share > 0.0 && unit(mix(of_rank, run.at as u64)) < life.straggle_share {
            pace *= life.straggle_factor.max(1.0);
        }
        let micro_batch = match part {
            Part::Layers(n) => n,
            Part::Optimizer => return pace,
        };
        if life.sequence_imbalance > 0.0 {
            // All ranks of a replica work on the same sequences.
            let replica = u64::from(self.world.coordinates(rank).dp);
            let bits = mix(mix(mix(seed, 0x5EC0 + iteration), replica), u64::from(micro_batch));
            pace *= around(bits, life.sequence_imbalance);
        }
        if life.routing_imbalance > 0.0 && self.world.layout.ep > 1 {
            pace *= around(mix(of_rank, 0xE000 + u64::from(micro_batch)), life.routing_imbalance);
        }
        pace
    }

    /// The host has seen the end of an iteration and issues the next one whole.
    fn next_iteration(&mut self, rank: u32) {
        let scenario = &self.world.scenario;
        let run = &self.ranks[rank as usize];
        let (number, stage, ended) = (run.iteration, run.stage, run.device);
        let parts = self.world.parts(rank);
        let mut host = parts.host.finish(ended.max(run.host_clock), if number > 0 { TURN_NS } else { 0 });
        host = parts.host.finish(host, self.pauses(rank, number, host));
        let due = |every: u32| every > 0 && number.is_multiple_of(u64::from(every));
        let plan = u64::from(number > 0 && due(scenario.life.eval_every)) << 1 | u64::from(due(scenario.loss_every));
        let replica = self.world.coordinates(rank).dp;
        let micro_batches = scenario.life.micro_batches_of(replica, scenario.micro_batches);
        let key = (stage, micro_batches, program::size_class(scenario, number) << 2 | plan);
        let items = match self.programs.get(&key) {
            Some(items) => Arc::clone(items),
            None => {
                let items: Arc<[Item]> = program::iteration(scenario, stage, micro_batches, number).into();
                self.programs.insert(key, Arc::clone(&items));
                items
            }
        };
        let items = self.stray(rank, host, items);
        if rank == 0 && number > 0 {
            self.iterations.push((self.ranks[0].began, ended));
        }
        let run = &mut self.ranks[rank as usize];
        run.began = ended;
        run.iteration += 1;
        run.at = 0;
        self.issue(rank, host, items);
    }

    /// What keeps the main thread between two iterations.
    fn pauses(&self, rank: u32, number: u64, at: u64) -> u64 {
        let scenario = &self.world.scenario;
        let due = |every: u32, shift: u64| every > 0 && number > 0 && (number + shift).is_multiple_of(u64::from(every));
        let mut pause = 0;
        if due(scenario.checkpoint_every, 0) {
            pause += scenario.checkpoint_ms * NANOS_PER_MS;
        }
        // Garbage is collected when there is enough of it, at another time on each rank.
        if due(scenario.life.gc_every, mix(scenario.seed, u64::from(rank)) % 64) {
            pause += (scenario.life.gc_ms * 1e6) as u64;
        }
        pause += self.wandering(rank, number, at);
        if let Some(effects) = self.world.effects.ranks.get(&rank) {
            let waits = effects.data_waits.iter().filter(|(from, until, _)| at >= *from && at < *until);
            pause += waits.map(|(_, _, ns)| ns).sum::<u64>();
        }
        pause
    }

    /// How long this rank stands still before this iteration, if it is the one whose turn it is.
    fn wandering(&self, rank: u32, number: u64, at: u64) -> u64 {
        let scenario = &self.world.scenario;
        let bits = mix(mix(scenario.seed, 0x3A9D), number);
        if self.world.effects.wandering.is_empty() || bits % u64::from(scenario.world()) != u64::from(rank) {
            return 0;
        }
        let now = self.world.effects.wandering.iter().filter(|(from, until, _)| at >= *from && at < *until);
        now.map(|(_, _, ns)| (*ns as f64 * (0.5 + unit(mix(bits, 1)))) as u64).sum()
    }

    /// What the main thread takes longer for each piece of work, at `at`.
    fn issue_wait(&self, rank: u32, at: u64) -> u64 {
        let Some(effects) = self.world.effects.ranks.get(&rank) else { return 0 };
        let now = effects.issue_waits.iter().filter(|(from, until, _)| at >= *from && at < *until);
        now.map(|(_, _, ns)| ns).sum()
    }

    /// The stream with the wrong call in it, once its time has come.
    fn stray(&mut self, rank: u32, now: u64, items: Arc<[Item]>) -> Arc<[Item]> {
        let Some((from, call)) = self.world.effects.ranks.get(&rank).and_then(|effects| effects.wrong_call) else {
            return items;
        };
        if now < from || self.ranks[rank as usize].strayed {
            return items;
        }
        let of = |item: &Item, wanted: GroupKind| matches!(item, Item::Collective { group, .. } if *group == wanted);
        let place = [GroupKind::Data, GroupKind::Tensor]
            .into_iter()
            .filter(|kind| self.world.seat(rank, *kind).is_some())
            .find_map(|kind| items.iter().position(|item| of(item, kind)));
        let Some(place) = place else { return items };
        self.ranks[rank as usize].strayed = true;
        let mut items = items.to_vec();
        match (call, &mut items[place]) {
            (WrongCall::OtherKind, Item::Collective { kind, .. }) => {
                *kind = if *kind == OpKind::AllReduce { OpKind::AllGather } else { OpKind::AllReduce };
            }
            (WrongCall::OtherCount, Item::Collective { count, .. }) => *count += 77,
            (WrongCall::Skipped, _) => drop(items.remove(place)),
            (WrongCall::OtherOrder, _) => {
                let other =
                    (0..place).rev().find(|at| matches!(items[*at], Item::Collective { .. } | Item::Exchange { .. }));
                if let Some(other) = other {
                    items.swap(other, place);
                }
            }
            _ => {}
        }
        items.into()
    }

    /// Puts an iteration's calls in the stream, from `host` on.
    fn issue(&mut self, rank: u32, host: u64, items: Arc<[Item]>) {
        let mut clock = host;
        let (mut issued, mut op_of) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
        let wait = self.issue_wait(rank, host);
        for item in items.iter() {
            clock = self.world.parts(rank).host.finish(clock, ISSUE_NS + wait);
            issued.push(clock);
            op_of.push(self.ranks[rank as usize].next_op());
            if clock != NEVER {
                for call in self.calls(rank, item) {
                    self.push_op(rank, call, clock);
                }
            }
        }
        let run = &mut self.ranks[rank as usize];
        (run.items, run.issued, run.op_of, run.host_clock) = (items, issued, op_of, clock);
    }

    /// The operations of an item.
    pub(super) fn calls(&self, rank: u32, item: &Item) -> Vec<Call> {
        match item {
            Item::Compute { .. } => Vec::new(),
            Item::Collective { group, kind, count } => match self.world.seat(rank, *group) {
                Some((group, position)) => {
                    vec![Call { group, position, class: OpClass::Collective, peer: 0, kind: *kind, count: *count }]
                }
                None => Vec::new(),
            },
            Item::Exchange { exchange, count } => self.exchange_calls(rank, *exchange, *count),
            Item::AllToAll { number } => self.all_to_all_calls(rank, *number),
        }
    }

    fn exchange_calls(&self, rank: u32, exchange: Exchange, count: u64) -> Vec<Call> {
        let Some((group, position)) = self.world.seat(rank, GroupKind::Pipeline) else { return Vec::new() };
        let call = |wanted: bool, class: OpClass, next: bool| {
            let kind = if class == OpClass::Send { OpKind::Send } else { OpKind::Recv };
            let peer = if next { position + 1 } else { position.wrapping_sub(1) };
            wanted.then_some(Call { group, position, class, peer, kind, count })
        };
        [
            call(exchange.send_next, OpClass::Send, true),
            call(exchange.recv_next, OpClass::Recv, true),
            call(exchange.send_prev, OpClass::Send, false),
            call(exchange.recv_prev, OpClass::Recv, false),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn all_to_all_calls(&self, rank: u32, number: u32) -> Vec<Call> {
        let Some((group, position)) = self.world.seat(rank, GroupKind::Expert) else { return Vec::new() };
        let scenario = &self.world.scenario;
        let size = self.world.groups[group as usize].members.len() as u32;
        let share = scenario.life.routing_imbalance;
        let chance = mix(mix(scenario.seed, self.ranks[rank as usize].iteration), u64::from(number));
        let routing = (share > 0.0).then_some(program::Routing { chance, share });
        let tokens = |from, to| program::tokens(scenario.ep_bytes, size, (from, to), routing);
        let mut calls = Vec::with_capacity(2 * size as usize);
        for peer in (0..size).filter(|peer| *peer != position) {
            let call = |class, kind, count| Call { group, position, class, peer, kind, count };
            calls.push(call(OpClass::Send, OpKind::Send, tokens(position, peer)));
            calls.push(call(OpClass::Recv, OpKind::Recv, tokens(peer, position)));
        }
        calls
    }

    fn push_op(&mut self, rank: u32, call: Call, issued: u64) {
        let flows = self.flows(&call);
        let tree = self.is_tree(&call);
        let run = &mut self.ranks[rank as usize];
        let next = run.seqs.entry((call.group, call.class, call.peer)).or_insert(0);
        let seq = *next;
        *next += 1;
        let nccl_seq = if call.class == OpClass::Collective {
            let calls = run.calls.entry((call.group, call.kind)).or_insert(0);
            *calls += 1;
            *calls - 1
        } else {
            0
        };
        let members = self.world.groups[call.group as usize].members.len();
        let channels = match call.class {
            OpClass::Collective => sizes(call.kind, call.count, members, &self.world.scenario, tree).channels,
            _ => 1,
        };
        run.push(OpTrace {
            group: call.group,
            position: call.position,
            class: call.class,
            peer: call.peer,
            seq,
            kind: call.kind,
            nccl_seq,
            count: call.count,
            algorithm: match (call.class, tree) {
                (OpClass::Collective, true) => Algorithm::Tree,
                (OpClass::Collective, false) => Algorithm::Ring,
                _ => Algorithm::Unknown,
            },
            channels: channels as u8,
            issued,
            started: NEVER,
            left_first: NEVER,
            left: NEVER,
            ended: NEVER,
            resolved: false,
            flows,
            told: Told::default(),
        });
    }

    /// Trees are for AllReduce only.
    pub(super) fn is_tree(&self, call: &Call) -> bool {
        call.class == OpClass::Collective && call.kind == OpKind::AllReduce && self.world.scenario.algo == Algo::Tree
    }

    /// The connections over the network that a call uses on its rank.
    fn flows(&self, call: &Call) -> Vec<OpFlow> {
        let group = &self.world.groups[call.group as usize];
        if group.hosts < 2 {
            return Vec::new();
        }
        self.world.flows(call, self.is_tree(call))
    }

    /// The device gets to an operation or a group of them.
    fn enter(&mut self, rank: u32, item: Item, issued: u64) {
        let run = &self.ranks[rank as usize];
        let ready = run.device.max(issued);
        let first = run.op_of[run.at];
        let end = run.op_of.get(run.at + 1).copied().unwrap_or_else(|| run.next_op());
        let start = launch(self.world.parts(rank), ready);
        let run = &mut self.ranks[rank as usize];
        run.at += 1;
        if first == end {
            return;
        }
        if start == NEVER {
            return self.block(rank);
        }
        run.waiting = (end - first) as u32;
        run.kernel = start;
        for number in first..end {
            match item {
                Item::Collective { .. } => self.join(rank, number, start),
                _ => self.meet(rank, number, start),
            }
        }
    }
}

/// One call of the library's interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) group: u32,
    pub(super) position: u32,
    pub(super) class: OpClass,
    pub(super) peer: u32,
    pub(super) kind: OpKind,
    pub(super) count: u64,
}

/// When a kernel starts that is next at `ready`.
fn launch(parts: &Parts, ready: u64) -> u64 {
    parts.compute.finish(ready, LAUNCH_NS)
}
