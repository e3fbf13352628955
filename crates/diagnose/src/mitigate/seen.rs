//! How slow each host and each path is, by what a running job's own records say: for the same work against peers in the same
//! second (FALCON 4.3), however the batch is divided and wherever hosts are.
use super::plan::Assignment;
use crate::measured::{Carried, Measured, Stretch};
use mycroft_record::HostName;
use std::collections::BTreeMap;

/// Ways that carry less than this share of what the busiest does say nothing (`measure::ways` has the same limit for links).
const CARRIES_ENOUGH: f32 = 0.25;

/// How a job is laid out. Ranks are in Megatron's order: tensor, data, pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Ranks of a tensor-parallel group; all on one host.
    pub tensor: usize,
    /// Pipeline stages.
    pub stages: usize,
}

/// From place to place, as numbers of [`Assignment::hosts`].
pub type Way = (usize, usize);

/// What was seen in about a second.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Seen {
    /// Of each host that was seen, how many times longer its slowest rank computes than the middle of its stage.
    pub hosts: BTreeMap<HostName, f64>,
    /// Of each way that carries enough, milliseconds for a megabyte. A way's place in its ring has a share in that.
    pub ways: BTreeMap<Way, f64>,
    /// Milliseconds that the middle of each stage computes for a micro-batch.
    pub stages_ms: Vec<f64>,
    /// Mean iteration, milliseconds.
    pub iteration_ms: f64,
    /// How many iterations that is the mean of.
    pub iterations: usize,
}

impl Seen {
    /// What a stretch says of a job that is arranged like this. `None`: the arrangement is of another job, or iterations or a stage
    /// were not seen.
    pub fn of(measured: &Measured, stretch: &Stretch, present: &Assignment, shape: Shape) -> Option<Seen> {
        let each = each_ms(measured, stretch, present, shape)?;
        let stages_ms: Vec<f64> =
            each.iter().map(|stage| middle(stage.iter().map(|(_, ms)| *ms))).collect::<Option<_>>()?;
        let mut hosts: BTreeMap<HostName, f64> = BTreeMap::new();
        for (stage, usual_ms) in each.iter().zip(&stages_ms) {
            for (host, ms) in stage {
                let pace = hosts.entry((*host).clone()).or_default();
                *pace = pace.max(ms / usual_ms.max(f64::MIN_POSITIVE));
            }
        }
        let iterations = stretch.iterations.len();
        let sum_ms: f64 = stretch.iterations.iter().map(|(_, ms)| ms).sum();
        let iteration_ms = if iterations > 0 { sum_ms / iterations as f64 } else { return None };
        Some(Seen { hosts, ways: ways(stretch, present), stages_ms, iteration_ms, iterations })
    }

    /// The mean of several, as far as each part was seen in all of them. `None` of nothing.
    pub fn mean(all: &[&Seen]) -> Option<Seen> {
        let (first, count) = (all.first()?, all.len() as f64);
        let host = |name: &HostName| all.iter().map(|seen| seen.hosts.get(name)).sum::<Option<f64>>();
        let way = |way: &Way| all.iter().map(|seen| seen.ways.get(way)).sum::<Option<f64>>();
        let stage = |at: usize| all.iter().filter_map(|seen| seen.stages_ms.get(at)).sum::<f64>() / count;
        Some(Seen {
            hosts: first.hosts.keys().filter_map(|name| Some((name.clone(), host(name)? / count))).collect(),
            ways: first.ways.keys().filter_map(|at| Some((*at, way(at)? / count))).collect(),
            stages_ms: (0..first.stages_ms.len()).map(stage).collect(),
            iteration_ms: all.iter().map(|seen| seen.iteration_ms).sum::<f64>() / count,
            iterations: all.iter().map(|seen| seen.iterations).sum(),
        })
    }
}

/// Milliseconds for a micro-batch of each rank that was seen, by stage.
fn each_ms<'a>(
    measured: &'a Measured,
    stretch: &Stretch,
    present: &Assignment,
    shape: Shape,
) -> Option<Vec<Vec<(&'a HostName, f64)>>> {
    let (places, ranks) = (present.hosts.len(), measured.ranks.len());
    let (tensor, stages) = (shape.tensor.max(1), shape.stages.max(1));
    if places == 0 || ranks % places != 0 || places % stages != 0 || (ranks / places) % tensor != 0 {
        return None;
    }
    let (columns, replicas) = (places / stages, ranks / places / tensor);
    if present.micro_batches.len() != columns * replicas {
        return None;
    }
    let place: BTreeMap<&HostName, usize> = present.hosts.iter().zip(0..).collect();
    let mut seats: Vec<usize> = (0..ranks).collect();
    seats.sort_by_key(|seat| measured.ranks[*seat].rank);
    let mut met: BTreeMap<&HostName, usize> = BTreeMap::new();
    let mut each = vec![Vec::new(); stages];
    for seat in seats {
        let host = &measured.ranks[seat].host;
        let local = met.entry(host).or_default();
        let (at, replica) = (*place.get(host)?, *local / tensor);
        *local += 1;
        let Some(spent) = stretch.ranks.get(seat).copied().flatten() else { continue };
        let micro_batches = *present.micro_batches.get(at % columns * replicas + replica)?;
        each[at / columns].push((host, f64::from(spent.took_ms[0]) / f64::from(micro_batches.max(1))));
    }
    Some(each)
}

/// The lower middle: of few values most are healthy.
pub(super) fn middle(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// Milliseconds for a megabyte from place to place, of ways that carry enough.
fn ways(stretch: &Stretch, present: &Assignment) -> BTreeMap<Way, f64> {
    let place: BTreeMap<&HostName, usize> = present.hosts.iter().zip(0..).collect();
    let most = stretch.ways.iter().map(|way| way.mb).fold(0.0, f32::max);
    let enough = stretch.ways.iter().filter(|way| way.mb > 0.0 && way.mb >= CARRIES_ENOUGH * most);
    let of = |way: &Carried| {
        let places = (*place.get(&way.from)?, *place.get(&way.to)?);
        Some((places, f64::from(way.sent_ms) / f64::from(way.mb)))
    };
    enough.filter_map(of).collect()
}
