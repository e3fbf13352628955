//! What one rank does in one iteration, in the order of its single stream: the testbed's training loop
//! (`crates/testbed/src/workload/step.rs`) and what only the simulator plays: context parallelism, interleaved stages,
//! fully sharded parameters, evaluation.
use crate::collective::{mix, unit};
use crate::layout::GroupKind;
use crate::scenario::{DpMode, Scenario, Schedule};
use crate::schedule::{Action, Exchange, one_f_one_b};
use mycroft_record::OpKind;

/// Elements of the averaged loss.
pub(crate) const LOSS_COUNT: u64 = 4;
/// Bytes of an element: everything travels as 32-bit floats, as in the testbed.
pub(crate) const ELEMENT_BYTES: u64 = 4;

/// Which part of the model computes, so that healthy variation can tell them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A forward or backward pass of this micro-batch.
    Layers(u32),
    /// The optimizer.
    Optimizer,
}

/// One thing in a rank's stream.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Item {
    /// The device computes for so many nanoseconds when healthy.
    Compute { part: Part, ns: u64 },
    /// A collective of the rank's group of this kind; elements as `ncclAllReduce` and its like count them.
    Collective { group: GroupKind, kind: OpKind, count: u64 },
    /// One group of sends and receives with the neighbour stages, so many elements each.
    Exchange { exchange: Exchange, count: u64 },
    /// Grouped sends and receives with every other member of the expert group, uneven; its number in the iteration.
    AllToAll { number: u32 },
}

/// The stream of pipeline stage `stage` in iteration `number`, of a replica with so many micro-batches.
pub(crate) fn iteration(scenario: &Scenario, stage: u32, micro_batches: u32, number: u64) -> Vec<Item> {
    let mut plan = Plan { scenario, stage, micro_batches, scale: size_scale(scenario, number), items: Vec::new() };
    let every = u64::from(scenario.life.eval_every);
    if every > 0 && number > 0 && number.is_multiple_of(every) {
        plan.evaluation();
        return plan.items;
    }
    match scenario.schedule {
        Schedule::OneFOneB => plan.one_f_one_b(),
        Schedule::Interleaved => plan.interleaved(),
    }
    plan.gradient_step();
    let loss = u64::from(scenario.loss_every);
    if loss > 0 && number.is_multiple_of(loss) && stage + 1 == scenario.pp && replicas(scenario) > 1 {
        plan.items.push(Item::Collective { group: GroupKind::Data, kind: OpKind::AllReduce, count: LOSS_COUNT });
    }
    plan.items
}

struct Plan<'a> {
    scenario: &'a Scenario,
    stage: u32,
    micro_batches: u32,
    /// How long this iteration's sequences are, as a multiple of the usual.
    scale: f64,
    items: Vec<Item>,
}

/// The class of size of an iteration's sequences.
pub(crate) fn size_class(scenario: &Scenario, number: u64) -> u64 {
    match u64::from(scenario.life.size_classes) {
        0 | 1 => 0,
        classes => mix(mix(scenario.seed, 0x512E), number) % classes,
    }
}

/// How long an iteration's sequences are, as a multiple of the usual: the classes lie evenly.
fn size_scale(scenario: &Scenario, number: u64) -> f64 {
    let life = &scenario.life;
    if life.size_classes < 2 {
        return 1.0;
    }
    let place = size_class(scenario, number) as f64 / f64::from(life.size_classes - 1);
    1.0 + life.size_spread * (2.0 * place - 1.0)
}

/// Ranks that hold the same weights and agree on their gradients: data parallel, and context parallel too.
fn replicas(scenario: &Scenario) -> u64 {
    u64::from(scenario.layout().size(GroupKind::Data))
}

/// Elements in `bytes`, at least one.
fn elements(bytes: u64) -> u64 {
    (bytes / ELEMENT_BYTES).max(1)
}

fn nanos(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

impl Plan<'_> {
    fn one_f_one_b(&mut self) {
        for action in one_f_one_b(self.stage, self.scenario.pp, self.micro_batches) {
            self.action(action, self.scenario.layers);
        }
    }

    fn action(&mut self, action: Action, layers: u32) {
        match action {
            Action::Forward(micro_batch) => self.layers(micro_batch, layers, true),
            Action::Backward(micro_batch) => self.layers(micro_batch, layers, false),
            Action::Exchange(exchange) => self.exchange(exchange),
        }
    }

    /// Elements of a message that grows with the sequences.
    fn sized(&self, bytes: u64) -> u64 {
        elements((bytes as f64 * self.scale) as u64)
    }

    fn exchange(&mut self, exchange: Exchange) {
        self.items.push(Item::Exchange { exchange, count: self.sized(self.scenario.pp_bytes) });
    }

    /// Each chunk of layers goes through the whole pipeline like a micro-batch of its own: chunk by chunk in the warm-up
    /// and cool-down order of 1F1B over `micro_batches x virtual_stages` units, with the layers of a stage dealt out to
    /// the chunks. The wrap-around from the last stage to the first is part of the first stage's computation.
    fn interleaved(&mut self) {
        let chunks = self.scenario.virtual_stages.max(1);
        let layers = (self.scenario.layers / chunks).max(1);
        for action in one_f_one_b(self.stage, self.scenario.pp, self.micro_batches * chunks) {
            self.action(action, layers);
        }
    }

    /// All layers of this stage in one direction: compute, expert exchange there and back, AllReduce.
    fn layers(&mut self, micro_batch: u32, layers: u32, forward: bool) {
        let scenario = self.scenario;
        let usual_ms = if forward { scenario.forward_ms } else { scenario.backward_ms };
        let is_last = scenario.pp > 1 && self.stage + 1 == scenario.pp;
        let ms = usual_ms * self.scale * if is_last { 1.0 + scenario.life.last_stage } else { 1.0 };
        let layout = scenario.layout();
        let shard = elements(scenario.dp_bytes / u64::from(scenario.layers)).div_ceil(replicas(scenario)).max(2);
        for _ in 0..layers {
            if scenario.dp_mode == DpMode::Fsdp && replicas(scenario) > 1 {
                self.items.push(Item::Collective { group: GroupKind::Data, kind: OpKind::AllGather, count: shard });
            }
            if scenario.cp > 1 {
                let count = self.sized(scenario.tp_bytes).div_ceil(u64::from(scenario.cp));
                self.items.push(Item::Collective { group: GroupKind::Context, kind: OpKind::AllGather, count });
            }
            self.items.push(Item::Compute { part: Part::Layers(micro_batch), ns: nanos(ms) });
            if layout.ep > 1 {
                self.items.push(Item::AllToAll { number: self.items.len() as u32 });
            }
            if scenario.tp > 1 {
                let count = self.sized(scenario.tp_bytes);
                self.items.push(Item::Collective { group: GroupKind::Tensor, kind: OpKind::AllReduce, count });
            }
            if scenario.dp_mode == DpMode::Fsdp && replicas(scenario) > 1 && !forward {
                let kind = OpKind::ReduceScatter;
                self.items.push(Item::Collective { group: GroupKind::Data, kind, count: shard });
            }
        }
    }

    /// Gradients over the data-parallel group, the optimizer, and (sharded) parameters back.
    fn gradient_step(&mut self) {
        let scenario = self.scenario;
        let shard = elements(scenario.dp_bytes).div_ceil(replicas(scenario)).max(2);
        let whole = shard * replicas(scenario);
        let optimizer = Item::Compute { part: Part::Optimizer, ns: nanos(scenario.optimizer_ms) };
        let data = |kind, count| Item::Collective { group: GroupKind::Data, kind, count };
        match scenario.dp_mode {
            _ if replicas(scenario) < 2 => self.items.push(optimizer),
            DpMode::AllReduce => self.items.extend([data(OpKind::AllReduce, whole), optimizer]),
            DpMode::ReduceScatter => {
                self.items.extend([data(OpKind::ReduceScatter, shard), optimizer, data(OpKind::AllGather, shard)]);
            }
            // The shards are where they belong; what is left to agree on is the gradient's norm.
            DpMode::Fsdp => self.items.extend([data(OpKind::AllReduce, LOSS_COUNT * 256), optimizer]),
        }
    }

    /// Forward passes only, and their loss.
    fn evaluation(&mut self) {
        let (first, last) = (self.stage == 0, self.stage + 1 == self.scenario.pp);
        for micro_batch in 0..self.scenario.life.eval_micro_batches {
            if !first {
                self.exchange(Exchange { recv_prev: true, ..Exchange::default() });
            }
            self.layers(micro_batch, self.scenario.layers, true);
            if !last {
                self.exchange(Exchange { send_next: true, ..Exchange::default() });
            }
        }
        if last && replicas(self.scenario) > 1 {
            let kind = OpKind::AllReduce;
            self.items.push(Item::Collective { group: GroupKind::Data, kind, count: LOSS_COUNT });
        }
    }
}

/// How tokens are routed in one exchange, where that changes: chance decides, and experts differ by a share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing {
    /// Seed of the exchange.
    pub(crate) chance: u64,
    /// [`crate::Life::routing_imbalance`].
    pub(crate) share: f64,
}

/// Elements that member `from` of an expert group gives to member `to`, at least one: the testbed's, uneven on purpose, or as
/// many as are routed to that member.
pub(crate) fn tokens(bytes: u64, size: u32, (from, to): (u32, u32), routing: Option<Routing>) -> u64 {
    let even = elements(bytes) / u64::from(size);
    match routing {
        None => even * (2 + u64::from(from * 7 + to * 3) % 3) / 3 + 1,
        Some(Routing { chance, share }) => {
            let around = 1.0 + share * (2.0 * unit(mix(chance, u64::from(to))) - 1.0);
            (even as f64 * around) as u64 + 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_job_has_the_testbeds_operations() {
        let scenario = Scenario::default();
        let items = iteration(&scenario, 0, 4, 1);
        let tensor = items.iter().filter(|i| matches!(i, Item::Collective { group: GroupKind::Tensor, .. })).count();
        assert_eq!(tensor, 4 * 2 * 2);
        let data: Vec<OpKind> = items
            .iter()
            .filter_map(|i| match i {
                Item::Collective { group: GroupKind::Data, kind, .. } => Some(*kind),
                _ => None,
            })
            .collect();
        assert_eq!(data, [OpKind::ReduceScatter, OpKind::AllGather]);
        // The last stage averages the loss in every fourth iteration.
        assert_eq!(iteration(&scenario, 1, 4, 4).len(), iteration(&scenario, 1, 4, 5).len() + 1);
    }

    #[test]
    fn tokens_are_uneven_and_never_none() {
        let counts: Vec<u64> = (0..4).flat_map(|a| (0..4).map(move |b| tokens(65536, 4, (a, b), None))).collect();
        assert!(counts.iter().all(|&count| count > 0));
        assert!(counts.iter().max() > counts.iter().min());
    }

    #[test]
    fn routed_tokens_differ_from_exchange_to_exchange_by_their_share() {
        let of = |chance, to| tokens(65536, 4, (0, to), Some(Routing { chance, share: 0.3 }));
        let counts: Vec<u64> = (0..100).flat_map(|chance| (1..4).map(move |to| of(chance, to))).collect();
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(*least >= 2867 && *least < 2950 && *most > 5240 && *most <= 5325, "{least} to {most} around 4096");
        assert_ne!(of(1, 1), of(2, 1));
    }
}
