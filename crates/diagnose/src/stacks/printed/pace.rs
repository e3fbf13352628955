//! When iterations became slower, and when they were as fast again, by the same change points as live.
//!
//! Ranks of a job go in lock step: where each prints its own times, a change counts when half of them or more show it at the
//! same iteration. Rows of a table without a rank are series of their own. Nobody is named for an iteration's time: the line
//! of a rank does not tell for whom it waited. Only what a rank needed itself does.
use crate::change::{Change, Changes, Shape};
use crate::stacks::pace::PaceChange;
use mycroft_record::dump::Bundle;
use mycroft_record::pace::{Meter, Step};
use mycroft_record::{HostTime, Rank};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Steps of all series that are looked at one by one; of more, medians are. Some 5 us each.
const STEPS_MAX: usize = 1 << 17;
/// tqdm takes 0.3 of the new value and 0.7 of the old average, by its own default: after ten values 3 % are left of a value.
const SMOOTHED: usize = 10;
/// Series that are told of: rows of a table.
const SERIES_MAX: usize = 8;
/// Changes of one series that are told of.
const CHANGES_MAX: usize = 6;
/// Series of ranks that are tried for the one that most agree with.
const TRIED_MAX: usize = 32;
/// Iterations by which ranks may differ in when a change shows.
const APART_MAX: u64 = 5;
/// Fewest ranks whose own times can be compared: two do not tell which of them differs.
const OWN_MIN: usize = 3;
/// Share of the growth of an iteration that a rank's own time must explain, and that of none of its peers may.
const OWN_SHARE: f64 = 0.5;
/// The most that the own time of a peer may have grown, as a share of the growth of an iteration.
const PEER_SHARE: f64 = 0.2;

/// What progress lines tell.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Pace {
    pub(crate) changes: Vec<PaceChange>,
    /// The rank whose own time grew with an iteration's and its peers' did not: own time before and after, milliseconds.
    pub(crate) own: Option<(Rank, f64, f64)>,
    /// How many ranks print what they needed themselves.
    pub(crate) compared: usize,
}

/// A series with the file that it is of.
struct Series<'a> {
    source: &'a Arc<str>,
    rank: Option<Rank>,
    meter: &'a Meter,
    found: Vec<(usize, Change)>,
}

/// A loop: its name, and the file where no rank printed it.
type Loop<'a> = (Arc<str>, Option<&'a Arc<str>>);

/// Reads the progress lines of all logs.
pub(super) fn read(bundle: &Bundle) -> Pace {
    let mut by_name: BTreeMap<Loop<'_>, Vec<Series<'_>>> = BTreeMap::new();
    let total: usize = bundle.logs.iter().flat_map(|log| &log.meters).map(|meter| meter.steps.len()).sum();
    let stride = total.div_ceil(STEPS_MAX).max(1);
    for log in &bundle.logs {
        for meter in &log.meters {
            let found = changes(meter, stride);
            let rank = meter.rank.or(log.rank);
            // What no rank printed has no peers in other files.
            let key = (meter.name.clone(), rank.is_none().then_some(&log.source));
            by_name.entry(key).or_default().push(Series { source: &log.source, rank, meter, found });
        }
    }
    let groups: Vec<&Vec<Series<'_>>> = by_name.values().collect();
    // The training loop is the longest; a bar of an evaluation or of a download is not told of beside it. Rows of a table
    // that name what they are of are of several.
    let length = |group: &[Series<'_>]| group.iter().map(|series| series.meter.steps.len()).max().unwrap_or(0);
    let most = groups.iter().map(|group| length(group)).max().unwrap_or(0);
    let is_rows = |group: &[Series<'_>]| group.iter().all(|series| series.meter.is_row);
    let first = groups.iter().position(|group| length(group) == most).unwrap_or(0);
    let groups: Vec<_> = groups
        .into_iter()
        .enumerate()
        .filter(|(at, group)| *at == first || is_rows(group))
        .map(|(_, group)| group)
        .collect();
    let several = groups.len() > 1;
    let mut out = Pace::default();
    for group in groups.into_iter().filter(|group| group.iter().any(|series| !series.found.is_empty())) {
        if out.changes.len() < SERIES_MAX {
            told(group, several, &mut out);
        }
    }
    out
}

/// Changes of a series, each with the step at which it begins.
fn changes(meter: &Meter, stride: usize) -> Vec<(usize, Change)> {
    let stride = if meter.is_smoothed { stride * SMOOTHED } else { stride };
    let mut series = Changes::new();
    let mut out: Vec<(usize, Change)> = Vec::new();
    let mut block: Vec<f64> = Vec::with_capacity(stride);
    for (at, steps) in meter.steps.chunks(stride).enumerate() {
        block.clear();
        block.extend(steps.iter().map(|step| step.cost(meter.unit)));
        let last = block[block.len() - 1];
        block.sort_unstable_by(f64::total_cmp);
        // Of moving averages the middle ones are those of their neighbours.
        let value = if meter.is_smoothed { last } else { block[block.len() / 2] };
        // The time is the number of the block: numbers of iterations begin anew, and a line may tell no time.
        let Some(change) = series.push(HostTime(at as u64 + 1), value) else { continue };
        match out.last_mut() {
            // A ramp that goes on is told again.
            Some((_, last)) if goes_on(last, &change) => {
                (last.after, last.seen_at) = (change.after, change.seen_at);
            }
            _ => out.push((first(meter, (change.onset.0 as usize - 1) * stride, stride, &change), change)),
        }
    }
    out.truncate(CHANGES_MAX);
    out
}

/// The first step of a block, and of a block of moving averages the first that is nearer to the new level.
fn first(meter: &Meter, block: usize, stride: usize, change: &Change) -> usize {
    let middle = (change.before.centre * change.after.centre).sqrt();
    let is_new = |step: &Step| (step.cost(meter.unit) > middle) == (change.ratio() > 1.0);
    let end = (block + stride).min(meter.steps.len());
    let old = meter.steps[block..end].iter().rposition(|step| !is_new(step));
    match old.filter(|_| meter.is_smoothed && change.shape == Shape::Step) {
        Some(old) if block + old + 1 < end => block + old + 1,
        _ => block,
    }
}

fn goes_on(last: &Change, next: &Change) -> bool {
    last.shape == Shape::Ramp && next.shape == Shape::Ramp && (last.ratio() > 1.0) == (next.ratio() > 1.0)
}

/// Tells of the series that most of its peers agree with.
fn told(group: &[Series<'_>], several: bool, out: &mut Pace) {
    let shows = |series: &Series<'_>, step: &Step, slower: bool| {
        series.found.iter().any(|(at, change)| {
            let other = &series.meter.steps[*at];
            (change.ratio() > 1.0) == slower
                && match (step.iteration, other.iteration) {
                    (Some(one), Some(other)) => one.abs_diff(other) <= APART_MAX,
                    _ => group.len() == 1,
                }
        })
    };
    let support = |series: &Series<'_>| {
        let steps = series.found.iter().map(|(at, change)| (&series.meter.steps[*at], change.ratio() > 1.0));
        steps.map(|(step, slower)| group.iter().filter(|other| shows(other, step, slower)).count()).sum::<usize>()
    };
    let tried = group.iter().filter(|series| !series.found.is_empty()).take(TRIED_MAX);
    let Some(best) = tried.max_by_key(|series| (support(series), std::cmp::Reverse(series.rank))) else { return };
    let mut is_slow = false;
    for (at, change) in &best.found {
        let (step, is_slower) = (&best.meter.steps[*at], change.ratio() > 1.0);
        let (with, without): (Vec<_>, Vec<_>) = group.iter().partition(|series| shows(series, step, is_slower));
        // What is faster than at the start is no relief: only from something that was seen to begin.
        if with.len() * 2 < group.len() || !(is_slower || is_slow) {
            continue;
        }
        is_slow = is_slower;
        if is_slower && out.own.is_none() {
            own(group, step, change, out);
        }
        let ranks = |those: Vec<&Series<'_>>| those.iter().filter_map(|series| series.rank).collect::<Vec<Rank>>();
        let value = |cost: f64| Step { value: cost, ..Step::default() }.cost(best.meter.unit);
        out.changes.push(PaceChange {
            name: if several { best.meter.name.clone() } else { Arc::default() },
            is_slower,
            shape: change.shape,
            iteration: step.iteration,
            at: step.at,
            source: best.source.clone(),
            line: step.line,
            before: value(change.before.centre),
            after: value(change.after.centre),
            unit: best.meter.unit,
            ranks: ranks(with),
            others: ranks(without),
        });
    }
}

/// Finds the one rank whose own time grew as the iterations did, while those of its peers stayed.
fn own(group: &[Series<'_>], onset: &Step, change: &Change, out: &mut Pace) {
    let Some(onset) = onset.iteration else { return };
    let grown = |series: &Series<'_>| {
        let part = |is_after: bool| {
            let steps =
                series.meter.steps.iter().filter(|step| step.iteration.is_some_and(|at| (at >= onset) == is_after));
            let mut own: Vec<f64> = steps.filter_map(|step| step.own_ms).collect();
            own.sort_unstable_by(f64::total_cmp);
            own.get(own.len() / 2).copied()
        };
        Some((series.rank?, part(false)?, part(true)?))
    };
    let mut all: Vec<(Rank, f64, f64)> = group.iter().filter_map(grown).collect();
    out.compared = all.len();
    all.sort_unstable_by(|a, b| (b.2 - b.1).total_cmp(&(a.2 - a.1)));
    let needed = change.after.centre - change.before.centre;
    if let [first, second, ..] = all.as_slice()
        && all.len() >= OWN_MIN
        && first.2 - first.1 >= OWN_SHARE * needed
        && second.2 - second.1 <= PEER_SHARE * needed
    {
        out.own = Some(*first);
    }
}
