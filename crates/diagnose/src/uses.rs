//! What communicators are for, from what their members do with them (Pulse, section 5.2 and Figure 5). Pulse tells by volume
//! and by how often; here what groups have in common counts first, since it holds for all sizes:
//!
//! - members of a pipeline hold different weights, so no group that sums gradients has two of them; the members of an expert
//!   or context group hold the same ones besides their experts or sequences, so they lie in one such group together;
//! - who sends to all others exchanges tokens, who sends to neighbours only passes activations on (Pulse: full mesh or line);
//! - tensor parallelism reduces several times an iteration, in the same size, between ranks that lie next to each other.
//!
//! Where two of these contradict each other, or none holds, nothing is told.
use crate::timeline::{Parallelism, Timeline};
use mycroft_record::{CommId, OpKind, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// An operation must have come so often to be a part of the program.
const RECURS: u64 = 3;
/// Iterations before anything is told: what came three times in two of them came once in each.
const ITERATIONS_MIN: f64 = 8.0;
/// What comes once an iteration was counted so often in each: one more or less in [`ITERATIONS_MIN`] is an eighth.
const ONCE: std::ops::RangeInclusive<f64> = 0.8..=1.2;
/// What comes with each layer, there and back, comes at least twice, counted so often: sizes that change share them.
const OFTEN: f64 = 1.5;
/// Whoever moves less than this share of what the group with most moves agrees on numbers, not on weights: 1/1000, of GB and
/// what is left of a loss or a norm.
const SMALL: f64 = 1e-3;
/// Messages of at least this share of its largest say what a group is for: losses and norms are far smaller.
const HEAVY: f64 = 0.1;

/// One size of one kind of collective.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Size {
    kind: OpKind,
    /// Elements as NCCL counts them: of a shard, or of all.
    count: u64,
    /// Of the whole message.
    bytes: u64,
    /// How often in an iteration.
    often: f64,
}

/// What a communicator's members do with it.
#[derive(Clone, PartialEq, Debug, Default)]
struct Traffic {
    members: Vec<Rank>,
    /// Of the member that has done most sizes.
    sizes: Vec<Size>,
    /// Most members that one of them sends to.
    peers: usize,
    /// Messages that each member sends in an iteration, within any group.
    messages: Vec<f64>,
    exchanges: bool,
}

impl Traffic {
    /// Bytes of an iteration in collectives.
    fn bytes(&self) -> f64 {
        self.sizes.iter().map(|size| size.bytes as f64 * size.often).sum()
    }

    /// Its large messages.
    fn heavy(&self) -> impl Iterator<Item = &Size> {
        let largest = self.sizes.iter().map(|size| size.bytes).max().unwrap_or(0) as f64;
        self.sizes.iter().filter(move |size| size.bytes as f64 >= HEAVY * largest)
    }

    fn has(&self, kinds: &[OpKind]) -> bool {
        self.heavy().any(|size| kinds.contains(&size.kind))
    }

    fn reduces(&self) -> bool {
        self.has(&[OpKind::AllReduce, OpKind::ReduceScatter, OpKind::Reduce])
    }

    /// It only reduces, and each size comes several times an iteration: with each layer, there and back.
    fn is_of_layers(&self) -> bool {
        self.heavy().all(|size| size.kind == OpKind::AllReduce && size.often > OFTEN)
    }

    /// It scatters and gathers, or each size is reduced once an iteration, and not about as often as members send messages: a
    /// reduction for each micro-batch looks like one for each iteration where that of a micro-batch was taken for one.
    fn is_of_gradients(&self) -> bool {
        let is_once = |often: f64| ONCE.contains(&often) && self.messages.iter().all(|sent| *sent >= OFTEN * often);
        self.heavy().all(|size| size.kind != OpKind::AllReduce || is_once(size.often))
    }

    /// It adds up what the other scatters.
    fn adds_up(&self, other: &Traffic) -> bool {
        let scatters = |count: u64| other.heavy().any(|size| size.kind == OpKind::ReduceScatter && size.count == count);
        self.heavy().any(|size| size.kind == OpKind::AllReduce && scatters(size.count))
    }

    /// How far members lie apart, and how many they are: groups of one kind are alike.
    fn shape(&self) -> (u32, usize) {
        let apart = self.members.windows(2).map(|pair| pair[1].0.abs_diff(pair[0].0)).min();
        (apart.unwrap_or(0), self.members.len())
    }

    fn lies_in(&self, groups: &[BTreeSet<Rank>]) -> bool {
        groups.iter().any(|group| self.members.iter().all(|member| group.contains(member)))
    }
}

/// What each communicator is for, as far as it shows.
pub(crate) fn told(timeline: &Timeline) -> BTreeMap<CommId, Parallelism> {
    let all: Vec<(CommId, Traffic)> = traffic(timeline);
    let most = all.iter().map(|(_, traffic)| traffic.bytes()).fold(0.0, f64::max);
    let works = |traffic: &Traffic| traffic.exchanges || traffic.bytes() > SMALL * most;
    let all: Vec<(CommId, Traffic)> = all.into_iter().filter(|(_, traffic)| works(traffic)).collect();
    let Some(data) = data_shapes(&all) else { return BTreeMap::new() };
    let of_data = |traffic: &Traffic| traffic.bytes() > 0.0 && data.contains(&traffic.shape());
    let gradients: Vec<BTreeSet<Rank>> = all
        .iter()
        .filter(|(_, traffic)| of_data(traffic) && traffic.reduces())
        .map(|(_, traffic)| traffic.members.iter().copied().collect())
        .collect();
    let use_of = |traffic: &Traffic| use_of(traffic, of_data(traffic), &gradients);
    all.iter().filter_map(|(id, traffic)| Some((*id, use_of(traffic)?))).collect()
}

fn use_of(traffic: &Traffic, of_data: bool, gradients: &[BTreeSet<Rank>]) -> Option<Parallelism> {
    let others = traffic.members.len() - 1;
    let same_weights = traffic.lies_in(gradients);
    if traffic.has(&[OpKind::AllToAll]) {
        return Some(Parallelism::Expert);
    }
    if traffic.exchanges {
        let is_mesh = traffic.peers == others;
        return match (same_weights, is_mesh) {
            (true, true) => Some(Parallelism::Expert),
            (true, false) => (traffic.peers == 1).then_some(Parallelism::Context),
            (false, true) if others > 2 => Some(Parallelism::Expert),
            (false, _) => (traffic.peers <= 2).then_some(Parallelism::Pipeline),
        };
    }
    if of_data && traffic.reduces() {
        return Some(Parallelism::Data);
    }
    if same_weights {
        return Some(Parallelism::Context);
    }
    traffic.reduces().then_some(Parallelism::Tensor)
}

/// The shapes of groups that sum gradients: of those that reduce the one whose members lie farthest apart, since tensor
/// parallelism is innermost everywhere. Where it adds up what another has scattered, both do (hybrid sharding). None do where the
/// only shape that reduces does so with each layer; `None` where that is not clear, for then nothing else is.
fn data_shapes(all: &[(CommId, Traffic)]) -> Option<BTreeSet<(u32, usize)>> {
    let mut shapes: BTreeMap<(u32, usize), Vec<&Traffic>> = BTreeMap::new();
    for (_, traffic) in all.iter().filter(|(_, traffic)| !traffic.exchanges && traffic.reduces()) {
        shapes.entry(traffic.shape()).or_default().push(traffic);
    }
    let Some((outer, outermost)) = shapes.pop_last() else { return Some(BTreeSet::new()) };
    let is_added_up = |inner: &Vec<&Traffic>| outermost.iter().all(|of| inner.iter().any(|other| of.adds_up(other)));
    let mut data: BTreeSet<(u32, usize)> =
        shapes.iter().filter(|(_, inner)| is_added_up(inner)).map(|(shape, _)| *shape).collect();
    if data.is_empty() && shapes.is_empty() && outermost.iter().all(|of| of.is_of_layers()) {
        return Some(data);
    }
    let is_clear = !data.is_empty() || outermost.iter().all(|of| of.is_of_gradients());
    data.insert(outer);
    is_clear.then_some(data)
}

/// What the members of each communicator that all are known of have done so far.
fn traffic(timeline: &Timeline) -> Vec<(CommId, Traffic)> {
    let mut all: BTreeMap<CommId, Traffic> = BTreeMap::new();
    for comm in timeline.comms.values().filter(|comm| comm.n_ranks >= 2 && comm.members.len() == comm.n_ranks as usize)
    {
        let members = comm.members.iter().map(|(_, rank)| *rank).collect();
        all.insert(comm.id, Traffic { members, ..Traffic::default() });
    }
    for state in timeline.ranks.by_slot() {
        let Some(iterations) = state.iterations.so_far().filter(|count| *count >= ITERATIONS_MIN) else { continue };
        let mut own: BTreeMap<CommId, (Vec<Size>, BTreeSet<u64>)> = BTreeMap::new();
        let mut sent = 0;
        for ((comm, kind, count, datatype), times) in state.iterations.lines().filter(|(_, count)| *count >= RECURS) {
            let Some(traffic) = all.get_mut(&comm) else { continue };
            let (sizes, peers) = own.entry(comm).or_default();
            let shards = match kind {
                OpKind::Send | OpKind::Recv => {
                    traffic.exchanges = true;
                    if kind == OpKind::Send {
                        peers.insert(count);
                        sent += times;
                    }
                    continue;
                }
                OpKind::AllGather | OpKind::ReduceScatter => traffic.members.len() as u64,
                _ => 1,
            };
            let bytes = count.saturating_mul(datatype.size_bytes()).saturating_mul(shards);
            sizes.push(Size { kind, count, bytes, often: times as f64 / iterations });
        }
        for (comm, (sizes, peers)) in own {
            let Some(traffic) = all.get_mut(&comm) else { continue };
            traffic.messages.extend((sent > 0).then_some(sent as f64 / iterations));
            traffic.peers = traffic.peers.max(peers.len());
            if sizes.len() > traffic.sizes.len() {
                traffic.sizes = sizes;
            }
        }
    }
    all.into_iter().collect()
}
