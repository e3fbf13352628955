//! Who comes late to collectives, from profilers' traces of several ranks.
//!
//! A collective ends on all ranks at once and begins on each when it comes, so the rank that is in it for the shortest time came
//! last and waited for nobody. Clocks of hosts need not agree for that. What the others wait for it alone is how much
//! shorter its time is than that of the next. Operations are matched by process group and place in it, or by their numbers where
//! there are some.
use mycroft_record::Rank;
use mycroft_record::dump::Bundle;
use mycroft_record::trace::{Trace, TraceLane, TraceOp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fewest ranks: of two, one is always last.
const RANKS_MIN: usize = 3;
/// Fewest iterations: a single one is no habit.
const STEPS_MIN: usize = 3;
/// Parts of what happened that stand for iterations where nothing tells these.
const PARTS: u64 = 20;
/// Share of the iterations in which the same rank must cost most.
const STEADY: f64 = 0.7;
/// Chance at which some rank may cost most so often among ranks that are alike: five of five iterations among eight ranks, eight
/// of eight among three.
const CHANCE: f64 = 1e-3;
/// Share of an iteration that counts: what half of the live side's 10 % is.
const SHARE: f64 = 0.05;
/// How many times as much as the next rank: FALCON's factor for a link beyond its peers.
const BEYOND: f64 = 3.0;
/// Sizes that differ by more than this are other work.
const SIZE_SHARE: f64 = 0.02;
/// Share of the matched operations of a lane that may be uneven.
const UNEVEN_SHARE: f64 = 0.05;

/// Ends of a collective on different ranks are apart by this share of the time since the one before, at most.
const APART_SHARE: f64 = 0.1;
/// And by this, nanoseconds: what a kernel takes to end.
const APART_NS: f64 = 200e3;

/// What the traces tell.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Late {
    /// Ranks whose traces were compared.
    pub(super) ranks: Vec<Rank>,
    /// Their files, in the same order.
    pub(super) sources: Vec<Arc<str>>,
    /// Median iteration, milliseconds; of parts, what a rank was in collectives.
    pub(super) step_ms: f64,
    /// There are no iterations: parts of all operations stand for them.
    pub(super) is_parts: bool,
    /// Iterations that were compared.
    pub(super) steps: usize,
    /// What is waited for each rank alone: median over iterations, milliseconds. Most first.
    pub(super) costs: Vec<(Rank, f64)>,
    /// In how many iterations the first of them cost most.
    pub(super) times: usize,
    /// What all wait for whoever is last, median over iterations, milliseconds.
    pub(super) whole_ms: f64,
    /// Operations whose sizes differ between ranks.
    pub(super) uneven: usize,
    /// All that were compared.
    pub(super) matched: usize,
    /// Those that did not end together: other operations, or ends that only one rank saw.
    apart: usize,
}

impl Late {
    /// The rank that costs its peers time in most iterations.
    pub(super) fn rank(&self) -> Option<(Rank, f64)> {
        let (&(rank, ms), next) = (self.costs.first()?, self.costs.get(1).map_or(0.0, |next| next.1));
        let steady = self.times as f64 >= STEADY * self.steps as f64
            && chance(self.steps, self.times, self.costs.len()) <= CHANCE;
        (steady && ms >= SHARE * self.step_ms && ms >= BEYOND * next && !self.is_uneven()).then_some((rank, ms))
    }

    /// Sizes differ between ranks: other work and no slower rank.
    pub(super) fn is_uneven(&self) -> bool {
        self.uneven as f64 > UNEVEN_SHARE * self.matched as f64
    }

    /// Whether waiting is worth a word at all.
    pub(super) fn is_much(&self) -> bool {
        self.whole_ms >= SHARE * self.step_ms
    }
}

/// One operation of a group: what each rank has there, by number of its trace.
type Row<'a> = Vec<(usize, &'a TraceLane, TraceOp)>;

/// Compares the traces; `None` where they are too few or too short, or do not match.
pub(super) fn read(bundle: &Bundle) -> Option<Late> {
    timed(bundle).or_else(|| numbered(bundle))
}

/// Traces that know operations by their numbers, and neither times nor iterations.
fn numbered(bundle: &Bundle) -> Option<Late> {
    let traces: Vec<&Trace> = bundle.traces.iter().filter(|trace| trace.is_numbered).collect();
    if traces.len() < RANKS_MIN {
        return None;
    }
    let mut out = Late { is_parts: true, ..Late::of(&traces) };
    let (mut costs, mut times) = (BTreeMap::new(), BTreeMap::new());
    let lanes = numbers(&traces);
    for rows in lanes.values() {
        for (nth, row) in (0_u64..).zip(rows.values()) {
            let Some((last, ms)) = last(row) else { continue };
            let part = nth * PARTS / rows.len() as u64;
            let of_part: &mut Vec<f64> = costs.entry(part).or_insert_with(|| vec![0.0; traces.len()]);
            of_part[last] += ms;
            let mean = row.iter().map(|(_, _, op)| op.dur_ns as f64).sum::<f64>() / row.len() as f64;
            *times.entry(part).or_insert(0.0) += mean / 1e6;
            out.count(row);
        }
    }
    if costs.len() < STEPS_MIN {
        return None;
    }
    out.step_ms = median(times.into_values().collect());
    out.weigh(&traces, &costs);
    Some(out)
}

/// The operations of each communicator and kind, by their numbers, with what each rank has there.
fn numbers<'a>(traces: &[&'a Trace]) -> BTreeMap<(&'a str, &'a str), BTreeMap<u32, Row<'a>>> {
    let mut lanes: BTreeMap<(&str, &str), BTreeMap<u32, Row<'a>>> = BTreeMap::new();
    for (at, trace) in traces.iter().enumerate() {
        for op in &trace.ops {
            let Some(lane) = trace.lanes.get(op.lane as usize) else { continue };
            lanes.entry((&*lane.group, &*lane.op)).or_default().entry(op.seq).or_default().push((at, lane, *op));
        }
    }
    // What a rank has lost is told of nobody.
    lanes.values_mut().for_each(|rows| rows.retain(|_, row| last(row).is_some()));
    lanes
}

fn timed(bundle: &Bundle) -> Option<Late> {
    let traces: Vec<&Trace> = bundle.traces.iter().filter(|trace| trace.steps.len() >= STEPS_MIN).collect();
    if traces.len() < RANKS_MIN {
        return None;
    }
    let mut out = Late::of(&traces);
    let mut costs: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (row, before) in rows(&traces) {
        let Some((last, ms)) = last(&row) else { continue };
        if !ends_together(&row, &before) {
            out.apart += 1;
            continue;
        }
        let (at, _, op) = row[0];
        let Some(step) = step_of(traces[at], &op) else { continue };
        out.count(&row);
        costs.entry(step).or_insert_with(|| vec![0.0; traces.len()])[last] += ms;
    }
    if costs.len() < STEPS_MIN || out.apart > out.matched {
        return None;
    }
    let lengths = traces.iter().flat_map(|trace| &trace.steps).filter(|step| costs.contains_key(&step.number));
    out.step_ms = median(lengths.map(|step| step.dur_ns as f64 / 1e6).collect());
    out.weigh(&traces, &costs);
    Some(out)
}

impl Late {
    fn of(traces: &[&Trace]) -> Late {
        Late {
            ranks: traces.iter().map(|trace| trace.rank).collect(),
            sources: traces.iter().map(|trace| trace.source.clone()).collect(),
            ..Late::default()
        }
    }

    /// One more operation is compared.
    fn count(&mut self, row: &Row<'_>) {
        self.matched += 1;
        let sizes = row.iter().map(|(_, _, op)| op.elements);
        let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.max().unwrap_or(0));
        self.uneven += usize::from((most - least) as f64 > SIZE_SHARE * most as f64);
    }

    /// What each rank cost, from its costs in each iteration.
    fn weigh(&mut self, traces: &[&Trace], costs: &BTreeMap<u64, Vec<f64>>) {
        self.steps = costs.len();
        self.whole_ms = median(costs.values().map(|all| all.iter().sum()).collect());
        let of = |at: usize| median(costs.values().map(|all| all[at]).collect());
        let mut order: Vec<(usize, f64)> = (0..traces.len()).map(|at| (at, of(at))).collect();
        order.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let first = order.first().map_or(0, |cost| cost.0);
        let is_most = |all: &&Vec<f64>| all[first] > 0.0 && all.iter().all(|ms| *ms <= all[first]);
        self.times = costs.values().filter(is_most).count();
        self.costs = order.into_iter().map(|(at, ms)| (traces[at].rank, ms)).collect();
    }
}

/// The operations of each group, in their order, with those before them. A group of which the ranks have not as many is left
/// out: nothing tells which of them belong together.
fn rows<'a>(traces: &[&'a Trace]) -> Vec<(Row<'a>, Row<'a>)> {
    let mut groups: BTreeMap<&str, BTreeMap<usize, Row<'a>>> = BTreeMap::new();
    for (at, trace) in traces.iter().enumerate() {
        for op in &trace.ops {
            let Some(lane) = trace.lanes.get(op.lane as usize) else { continue };
            groups.entry(&*lane.group).or_default().entry(at).or_default().push((at, lane, *op));
        }
    }
    let mut out = Vec::new();
    for lists in groups.values() {
        let count = lists.values().map(Vec::len).min().unwrap_or(0);
        if lists.values().all(|list| list.len() == count) {
            let row = |at: usize| lists.values().map(|list| list[at]).collect::<Row<'a>>();
            out.extend((1..count).map(|at| (row(at), row(at - 1))));
        }
    }
    out
}

/// Whether as much time passed on every rank since the operation before ended: what ends on all at once does so, and what is
/// matched wrongly does not.
fn ends_together(row: &Row<'_>, before: &Row<'_>) -> bool {
    let end = |op: &TraceOp| op.start_ns.saturating_add(op.dur_ns);
    let passed = row.iter().zip(before).map(|((_, _, op), (_, _, before))| end(op).saturating_sub(end(before)));
    let (least, most) = (passed.clone().min().unwrap_or(0), passed.max().unwrap_or(0));
    (most.saturating_sub(least) as f64) <= APART_SHARE * most as f64 + APART_NS
}

/// The iteration in which an operation began; devices run somewhat behind.
fn step_of(trace: &Trace, op: &TraceOp) -> Option<u64> {
    let begun = trace.steps.partition_point(|step| step.start_ns <= op.start_ns);
    Some(trace.steps.get(begun.checked_sub(1)?)?.number)
}

/// Who came last, and how long the others waited for it alone, milliseconds. `None` where it is no collective of as many ranks,
/// or not the same one on all.
fn last(row: &Row<'_>) -> Option<(usize, f64)> {
    let (_, lane, _) = row.first()?;
    let word = lane.op.to_ascii_lowercase();
    let pairs = ["send", "recv", "coalesced"].iter().any(|word_of| word.contains(word_of));
    let same = row.iter().all(|(_, other, _)| other.op == lane.op);
    let whole = lane.size == 0 || lane.size as usize == row.len();
    if row.len() < RANKS_MIN || pairs || !same || !whole {
        return None;
    }
    let mut times: Vec<(i64, usize)> = row.iter().map(|(at, _, op)| (op.dur_ns, *at)).collect();
    times.sort_unstable();
    Some((times[0].1, (times[1].0 - times[0].0) as f64 / 1e6))
}

/// The chance that of `ranks` that are alike one is last in `times` of `steps` iterations or more: at most the binomial tail
/// for each of them.
fn chance(steps: usize, times: usize, ranks: usize) -> f64 {
    let share = 1.0 / ranks as f64;
    // The logarithm of `steps` over `k`, for k from 0 on.
    let mut ways = 0.0_f64;
    let mut tail = 0.0_f64;
    for k in 0..=steps {
        if k >= times {
            tail += (ways + k as f64 * share.ln() + (steps - k) as f64 * (1.0 - share).ln()).exp();
        }
        ways += ((steps - k) as f64 / (k + 1) as f64).ln();
    }
    tail * ranks as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_iterations_are_no_habit() {
        let near = |value: f64, want: f64| (value / want - 1.0).abs() < 1e-9;
        assert!(near(chance(5, 5, 3), 3.0 / 243.0) && near(chance(2, 1, 4), 4.0 * 7.0 / 16.0));
        assert!(chance(4, 4, 8) > CHANCE && chance(5, 5, 8) < CHANCE && chance(8, 8, 3) < CHANCE);
        assert!(chance(10_000, 7_000, 3) < CHANCE && chance(10_000, 3_400, 3) > CHANCE);
    }
}
