//! Iterations of one rank without user code, and what it did itself in each.
//!
//! The marker is the collective that recurs least often but regularly; the time between its ends is the iteration time.
//! The self times are free of waiting for others, so that they compare a rank with its own past and with its peers.
use mycroft_record::{
    CommId, CommRank, Datatype, Direction, FlowDone, HostTime, NANOS_PER_MS, NANOS_PER_SEC, OpClass, OpDone, OpId,
    OpKind, OpSeq,
};
use std::collections::{BTreeMap, VecDeque};

/// Completed operations kept for self times: 1,536 x 72 B = 108 KiB a rank; 10 to 30 iterations of a Megatron rank.
const RAW_KEPT: usize = 1536;
/// Flow sums kept for operations whose completion has not been seen yet.
const FLOW_SUMS_KEPT: usize = 512;
/// Signatures kept: distinct collectives of a program.
const SIGNATURES_KEPT: usize = 256;
/// Ends kept of each signature: 256 x 16 B = 4 KiB.
const ENDS_KEPT: usize = 256;
/// A marker with fewer ends may still turn out to be a layer.
const YOUNG_ENDS: usize = 64;
/// A collective that comes more often than this is a layer, unless it is known how many of it make an iteration.
const LAYER_NS_MAX: u64 = 30 * NANOS_PER_MS;
/// Operations in which a period is looked for: at least three periods of up to 200 operations.
const SEQUENCE_KEPT: usize = 600;
/// Pairs of operations that must be comparable, and how many in a hundred must be the same.
const SEQUENCE_PAIRS_MIN: usize = 4;
const SEQUENCE_SAME_PERCENT: usize = 85;
/// Of periods whose likeness differs by no more than this, the shortest is the period.
const SEQUENCE_AS_GOOD: usize = 1;
/// Iterations kept with their self times: 128 x 80 B = 10 KiB.
const ITERATIONS_KEPT: usize = 128;
/// Recurrences that make a signature a candidate marker.
const MARKER_MIN: u64 = 3;
/// A collective that comes this many times as often as a small one is a layer of the iteration that the small one ends.
const LAYERS_MIN: u64 = 16;
/// Least payload of a marker: less than any gradient bucket, more than a loss, a norm or a barrier.
const MARKER_BYTES_MIN: u64 = 1024;
/// A collective that recurs less often than this marks no iterations (checkpoints, evaluation).
const ITERATION_MAX_NS: u64 = 60 * NANOS_PER_SEC;
/// Completion records of one rank may come out of order by this.
const GRACE_NS: u64 = 120 * NANOS_PER_MS;
/// Point-to-point operations that start within this are one group.
const GROUP_NS: u64 = NANOS_PER_MS;
/// FIFO slots of a connection: how many steps wait side by side in a stage (NCCL_STEPS).
const FIFO_SLOTS: f64 = 8.0;

/// What makes two operations the same line of the program: communicator, kind, size (point-to-point: peer), type.
pub(crate) type Signature = (CommId, OpKind, u64, Datatype);

/// One iteration of one rank.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Iteration {
    pub start: HostTime,
    pub end: HostTime,
    /// Device busy with something else than communication: start of an operation minus the later of the previous
    /// operation's end and its own issue.
    pub compute_us: f64,
    /// Longest single piece of `compute_us`.
    pub compute_max_us: f64,
    /// Device idle because the host issued late.
    pub host_us: f64,
    /// Time the device took for copies into and out of the transport's slots.
    pub copy_us: f64,
}

impl Iteration {
    pub(crate) fn ns(&self) -> u64 {
        self.end.since_ns(self.start)
    }
}

#[derive(Clone, Copy, Debug)]
struct Raw {
    id: OpId,
    enqueued_at: HostTime,
    started_at: HostTime,
    /// When the device left it; the wire may be busy longer.
    left_at: HostTime,
    ended_at: HostTime,
    /// Its signature's index; `NO_MARK` when there are too many.
    mark: u16,
    /// See `Weight::Small`.
    small: bool,
}

/// No signature.
const NO_MARK: u16 = u16::MAX;

/// The device's part in the flows of one operation: the least of its flows, since a device that is slow itself is slow
/// for all of them, while one that waits for one peer (the other child in a tree) lets the data of the others lie.
#[derive(Clone, Copy, Debug, Default)]
struct FlowSum {
    send_gpu_us: f64,
    recv_gpu_us: f64,
    sends: u32,
    recvs: u32,
}

/// How well a signature marks iterations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Weight {
    /// A collective that carries something.
    #[default]
    Large,
    /// A loss, a norm or a barrier: it comes when it comes, often enough every fourth iteration only.
    Small,
    /// Sends to, or receives from, one peer: several in each iteration, the last resort.
    PointToPoint,
}

#[derive(Clone, Debug, Default)]
struct Recurrence {
    count: u64,
    weight: Weight,
    index: u16,
    last_seq: OpSeq,
    /// How many there had been, and when each ended.
    ends: VecDeque<(u64, HostTime)>,
}

/// What ends an iteration: every so many-th operation of a signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Marker {
    signature: Signature,
    every: u64,
}

/// Iterations of one rank.
#[derive(Debug, Default)]
pub(crate) struct Iterations {
    raw: VecDeque<Raw>,
    sums: BTreeMap<OpId, FlowSum>,
    sums_order: VecDeque<OpId>,
    signatures: BTreeMap<Signature, Recurrence>,
    marker: Option<Marker>,
    /// Operations of a signature in one period of the program, once known.
    every: Option<(Signature, u64)>,
    /// How often the marker changed.
    generation: u64,
    oldest: HostTime,
    newest: HostTime,
    settled: HostTime,
    list: VecDeque<Iteration>,
    total: u64,
}

/// Sum over steps of a stage -> wall time: up to eight steps wait side by side, the first eight ramp up.
/// For n <= 8 posted at once and served in turn the sum is t(1 + .. + n) for a wall time of nt.
pub(crate) fn wall_us(sum_us: f64, steps: u32) -> f64 {
    let n = f64::from(steps.max(1));
    let side_by_side =
        if n <= FIFO_SLOTS { (n + 1.0) / 2.0 } else { FIFO_SLOTS - FIFO_SLOTS * (FIFO_SLOTS - 1.0) / 2.0 / n };
    sum_us / side_by_side
}

impl Iterations {
    pub(crate) fn on_op(&mut self, done: &OpDone) {
        if !done.observed {
            return;
        }
        self.newest = self.newest.max(done.ended_at);
        if !self.oldest.is_some() {
            self.oldest = done.op.enqueued_at;
        }
        let weight = match done.op.id.class {
            OpClass::Collective if done.op.bytes() < MARKER_BYTES_MIN => Weight::Small,
            OpClass::Collective => Weight::Large,
            OpClass::Send | OpClass::Recv => Weight::PointToPoint,
        };
        let mark = self.recur(done, weight);
        self.raw.push_back(Raw {
            id: done.op.id,
            enqueued_at: done.op.enqueued_at,
            started_at: done.op.started_at,
            left_at: left_at(done),
            ended_at: done.ended_at,
            mark,
            small: weight == Weight::Small,
        });
        if self.raw.len() > RAW_KEPT {
            self.raw.pop_front();
        }
    }

    /// Counts an operation and gives its signature's index. Sizes of sends may vary, their peers do not.
    fn recur(&mut self, done: &OpDone, weight: Weight) -> u16 {
        let point_to_point = weight == Weight::PointToPoint;
        let size_or_peer = if point_to_point { u64::from(done.op.id.peer.0) } else { done.op.count };
        let signature = (done.op.id.comm, done.op.kind, size_or_peer, done.op.datatype);
        let known = self.signatures.len();
        if !self.signatures.contains_key(&signature) && known >= SIGNATURES_KEPT {
            return NO_MARK;
        }
        let fresh = || Recurrence { weight, index: u16::try_from(known).unwrap_or(NO_MARK), ..Recurrence::default() };
        let seen = self.signatures.entry(signature).or_insert_with(fresh);
        if seen.count == 0 || done.op.id.seq > seen.last_seq {
            seen.count += 1;
            seen.last_seq = done.op.id.seq;
            seen.ends.push_back((seen.count, done.ended_at));
            if seen.ends.len() > ENDS_KEPT {
                seen.ends.pop_front();
            }
        }
        seen.index
    }

    pub(crate) fn on_flow(&mut self, done: &FlowDone) {
        let id = done.flow.op;
        if !self.sums.contains_key(&id) {
            self.sums_order.push_back(id);
            if self.sums_order.len() > FLOW_SUMS_KEPT
                && let Some(oldest) = self.sums_order.pop_front()
            {
                self.sums.remove(&oldest);
            }
        }
        let sum = self.sums.entry(id).or_default();
        let steps = done.counters.total_chunks;
        match done.flow.direction {
            Direction::Send => {
                let us = wall_us(f64::from(done.times.stage_us[0]), steps);
                sum.send_gpu_us = if sum.sends == 0 { us } else { sum.send_gpu_us.min(us) };
                sum.sends += 1;
            }
            Direction::Recv => {
                let us = wall_us(f64::from(done.times.stage_us[2]), steps);
                sum.recv_gpu_us = if sum.recvs == 0 { us } else { sum.recv_gpu_us.min(us) };
                sum.recvs += 1;
            }
        }
    }

    /// Closes the iterations whose records have all come; `true` if there is a new one.
    pub(crate) fn settle(&mut self) -> bool {
        self.choose_marker();
        let Some(marker) = self.marker else { return false };
        let Some(seen) = self.signatures.get(&marker.signature) else { return false };
        let ends = seen.ends.iter().filter(|(number, _)| number % marker.every == 0);
        let ends: Vec<HostTime> = ends.map(|(_, at)| *at).collect();
        let mut new = false;
        for pair in ends.windows(2) {
            if pair[1] <= self.settled || self.newest < pair[1] + GRACE_NS {
                continue;
            }
            let iteration = self.measure(pair[0], pair[1]);
            self.list.push_back(iteration);
            if self.list.len() > ITERATIONS_KEPT {
                self.list.pop_front();
            }
            self.settled = pair[1];
            self.total += 1;
            new = true;
        }
        new
    }

    /// The rarest collective that still recurs (`MARKER_MIN` times, less than `ITERATION_MAX_NS` apart). None as long as
    /// a rarer one may still come again: the first iteration must not be cut into its layers.
    fn choose_marker(&mut self) {
        let (oldest, newest) = (self.oldest, self.newest);
        let large = |seen: &&Recurrence| seen.weight == Weight::Large;
        let unsettled = self.signatures.values().filter(large).any(|seen| may_recur(seen, oldest, newest));
        let best = self.rarest(Weight::Large);
        let small = self.rarest(Weight::Small);
        // Small ones mark iterations where the others are only layers, or where there are no others.
        let best = match (best, small) {
            (Some(best), Some(small)) if best.1 > LAYERS_MIN * small.1 => Some(small),
            (best, small) => best.or(small).or_else(|| self.rarest(Weight::PointToPoint)),
        };
        let Some((best, count)) = best else { return };
        let current = self.marker.and_then(|marker| self.signatures.get(&marker.signature));
        // Signatures of one iteration differ by one in count while it runs: keep the marker unless clearly rarer.
        let keep = current.is_some_and(|seen| recurs(seen, newest) && seen.count <= count * 2 + 1);
        let young = current.is_none_or(|seen| seen.ends.len() < YOUNG_ENDS);
        let signature = match (self.marker, keep) {
            (Some(marker), true) => marker.signature,
            _ => best,
        };
        let next = match self.marker {
            _ if unsettled && young => None,
            // A fault makes every rhythm uneven: what was good when all was well stays.
            Some(marker) if marker.signature == signature => Some(marker),
            _ => self.with_period(signature),
        };
        if self.marker == next {
            return;
        }
        self.marker = next;
        self.generation += 1;
        self.list.clear();
        self.total = 0;
        self.settled = HostTime::NONE;
    }

    /// The marker that a signature makes: one that comes several times in each period of the program ends an iteration
    /// only as many times later. None for what comes too often to be more than a layer and has no known period.
    fn with_period(&mut self, signature: Signature) -> Option<Marker> {
        let seen = self.signatures.get(&signature)?;
        let known = self.every.is_some_and(|(known, _)| known == signature);
        if seen.weight == Weight::Small || (seen.weight == Weight::Large && !known && is_even(seen)) {
            return Some(Marker { signature, every: 1 });
        }
        if self.every.is_none_or(|(known, _)| known != signature) {
            let index = seen.index;
            self.every = self.period(index).map(|every| (signature, every));
        }
        let seen = self.signatures.get(&signature)?;
        let alone = seen.weight == Weight::Large && mean_period(seen) >= LAYER_NS_MAX;
        match self.every {
            Some((_, every)) => Some(Marker { signature, every }),
            None => alone.then_some(Marker { signature, every: 1 }),
        }
    }

    /// How often a signature comes in one period of the program: the shortest after which the sequence of this rank's
    /// operations repeats itself. Runs of the most common operation say nothing, so only the others are compared.
    fn period(&self, index: u16) -> Option<u64> {
        type Symbol = (CommId, OpClass, CommRank, u16);
        let mut ops: Vec<&Raw> =
            self.raw.iter().rev().filter(|op| !op.small && op.started_at.is_some()).take(SEQUENCE_KEPT).collect();
        // Sends and receives of one group start together, in either order.
        ops.sort_by_key(|op| (op.started_at.0 / NANOS_PER_MS, op.id));
        let symbols: Vec<Symbol> = ops.iter().map(|op| (op.id.comm, op.id.class, op.id.peer, op.mark)).collect();
        let mut counts: BTreeMap<Symbol, usize> = BTreeMap::new();
        symbols.iter().for_each(|symbol| *counts.entry(*symbol).or_default() += 1);
        let (common, _) = counts.iter().max_by_key(|(symbol, count)| (**count, **symbol))?;
        let same_percent = |period: usize| -> usize {
            let pairs = symbols.iter().zip(&symbols[period..]).filter(|(a, b)| *a != common || *b != common);
            let (mut same, mut all) = (0, 0);
            for (a, b) in pairs {
                all += 1;
                same += usize::from(a == b);
            }
            if all >= SEQUENCE_PAIRS_MIN { 100 * same / all } else { 0 }
        };
        let likeness: Vec<(usize, usize)> =
            (2..=symbols.len() / 3).map(|period| (period, same_percent(period))).collect();
        // Micro-batches are alike as well, but iterations are more so.
        let most = likeness.iter().map(|(_, percent)| *percent).max().filter(|most| *most >= SEQUENCE_SAME_PERCENT)?;
        let times = |least: usize| -> Option<u64> {
            let (period, _) = likeness.iter().find(|(_, percent)| *percent >= least)?;
            let times = symbols[symbols.len() - period..].iter().filter(|symbol| symbol.3 == index).count();
            Some(times.max(1) as u64)
        };
        // What comes once in whatever repeats itself needs no better period.
        times(SEQUENCE_SAME_PERCENT).filter(|times| *times == 1).or_else(|| times(most - SEQUENCE_AS_GOOD))
    }

    /// The rarest signature of a weight that recurs.
    fn rarest(&self, weight: Weight) -> Option<(Signature, u64)> {
        self.signatures
            .iter()
            .filter(|(_, seen)| seen.weight == weight && seen.count >= MARKER_MIN && recurs(seen, self.newest))
            .min_by_key(|(signature, seen)| (seen.count, **signature))
            .map(|(signature, seen)| (*signature, seen.count))
    }

    fn measure(&self, start: HostTime, end: HostTime) -> Iteration {
        let mut out = Iteration { start, end, ..Iteration::default() };
        let mut ops: Vec<&Raw> =
            self.raw.iter().filter(|op| op.ended_at > start && op.ended_at <= end && op.started_at.is_some()).collect();
        ops.sort_by_key(|op| (op.started_at, op.ended_at, op.id));
        let mut device_free = start;
        // Sends and receives of one group are served one after the other: all but the first wait for their turn.
        let mut group: Option<(HostTime, f64)> = None;
        for op in ops {
            let ready = device_free.max(op.enqueued_at);
            let compute = us(op.started_at.since_ns(ready));
            out.compute_us += compute;
            out.compute_max_us = out.compute_max_us.max(compute);
            out.host_us += us(op.enqueued_at.since_ns(device_free));
            device_free = device_free.max(op.left_at);
            let Some(sum) = self.sums.get(&op.id) else { continue };
            let own_us = copy_us(op.id, sum);
            if op.id.class == OpClass::Collective {
                out.copy_us += own_us;
                continue;
            }
            match &mut group {
                Some((start, least)) if op.started_at.since_ns(*start) < GROUP_NS => *least = least.min(own_us),
                _ => out.copy_us += group.replace((op.started_at, own_us)).map_or(0.0, |(_, least)| least),
            }
        }
        out.copy_us += group.map_or(0.0, |(_, least)| least);
        out
    }

    pub(crate) fn list(&self) -> &VecDeque<Iteration> {
        &self.list
    }

    /// Median of the last iterations, milliseconds; `None` before three.
    pub(crate) fn recent_ms(&self) -> Option<f64> {
        let mut ns: Vec<u64> = self.list.iter().rev().take(9).map(Iteration::ns).collect();
        ns.sort_unstable();
        if ns.len() < 3 { None } else { Some(ns[ns.len() / 2] as f64 / 1e6) }
    }

    /// Changes when iterations before are no longer comparable.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

/// The device's own part of a copy: a send slot waits for data that has not come, a received one for a free send slot;
/// the smaller of the two is free of both. Point-to-point needs no second condition.
fn copy_us(id: OpId, sum: &FlowSum) -> f64 {
    match id.class {
        OpClass::Send => sum.send_gpu_us,
        OpClass::Recv => sum.recv_gpu_us,
        OpClass::Collective if sum.sends > 0 && sum.recvs > 0 => sum.send_gpu_us.min(sum.recv_gpu_us),
        OpClass::Collective => 0.0,
    }
}

/// When the device was free again. A collective's channels may end far apart (one of them may have had nothing to do), so
/// the first end says something of the whole only where there is one channel.
fn left_at(done: &OpDone) -> HostTime {
    if done.op.n_channels == 1 && done.ended_first_at.is_some() { done.ended_first_at } else { done.ended_at }
}

/// Seen once or twice, and not so long ago that it should have come again.
fn may_recur(seen: &Recurrence, oldest: HostTime, newest: HostTime) -> bool {
    let (Some((_, first)), Some((_, last))) = (seen.ends.front(), seen.ends.back()) else { return false };
    let period = last.since_ns(*first).max(first.since_ns(oldest));
    period <= ITERATION_MAX_NS && seen.count < MARKER_MIN && newest.since_ns(*last) <= 2 * period + NANOS_PER_SEC
}

/// Recurs at even intervals: three quarters of them within 0.67 and 1.5 of the median. Layers do not: those of a
/// backward pass take twice as long, and between two iterations there is more than a layer.
fn is_even(seen: &Recurrence) -> bool {
    let ends = seen.ends.iter().map(|(_, at)| *at);
    let mut ns: Vec<u64> = ends.clone().zip(ends.skip(1)).map(|(a, b)| b.since_ns(a)).collect();
    ns.sort_unstable();
    let Some(&median) = ns.get(ns.len() / 2) else { return false };
    let even = ns.iter().filter(|&&ns| 3 * ns >= 2 * median && 2 * ns <= 3 * median).count();
    median >= LAYER_NS_MAX && 4 * even >= 3 * ns.len()
}

fn mean_period(seen: &Recurrence) -> u64 {
    match (seen.ends.front(), seen.ends.back(), seen.ends.len() as u64) {
        (Some((_, first)), Some((_, last)), n) if n >= 2 => last.since_ns(*first) / (n - 1),
        _ => 0,
    }
}

fn recurs(seen: &Recurrence, newest: HostTime) -> bool {
    let n = seen.ends.len();
    if n < 2 {
        return false;
    }
    let mean = mean_period(seen);
    mean <= ITERATION_MAX_NS && newest.since_ns(seen.ends[n - 1].1) <= 4 * mean + 2 * NANOS_PER_SEC
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

/// The comm rank of `CommRank(0)` is used for collectives' peer.
pub(crate) const NO_PEER: CommRank = CommRank(0);
