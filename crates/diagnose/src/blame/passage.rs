//! What a ring's way through a host costs: from the rank that receives from another host over those that hand on inside the
//! host, unseen, to the rank that sends to the next one. A copy in between is slow when both ends wait for it at the same
//! time: data lies before the entry, and slots at the exit stay empty. Upstream of it slots are full, downstream no data
//! comes. Whether the exit itself is slow its own data tells, which waits for nobody: of few slices none lies anywhere else.
use crate::blame::slow::{LEAST_SHARE, Windows, at, compared, grown, middle};
use crate::config::Config;
use crate::fact::Fact;
use crate::median::median;
use crate::timeline::{Iteration, RankState, Timeline};
use mycroft_record::{CommId, HostName};
use std::collections::BTreeMap;

/// Share of a passage's growth that the exit's first slices must show to be its own: the first slice of an operation is the
/// rank's own data and waits for nobody.
const OWN_SHARE: f64 = 0.5;

/// Both ends of a communicator's passages through a host.
#[derive(Default)]
struct Ends<'a> {
    entries: Vec<&'a RankState>,
    exits: Vec<&'a RankState>,
}

/// Passages that cost more than before.
pub(super) fn facts(timeline: &Timeline, config: &Config, windows: &Windows) -> Vec<Fact> {
    let mut all: BTreeMap<(&HostName, CommId), Ends<'_>> = BTreeMap::new();
    for state in timeline.ranks.values() {
        let (_, now) = compared(state.iterations.list(), windows);
        let Some(last) = now.last() else { continue };
        let comm = |counter: u16| state.past.counter(counter).0;
        if last.out.us > 0.0 {
            all.entry((&state.host, comm(last.out.counter))).or_default().exits.push(state);
        }
        if last.into.us > 0.0 {
            all.entry((&state.host, comm(last.into.counter))).or_default().entries.push(state);
        }
    }
    let of_exits = |ends: &Ends<'_>| -> Vec<Fact> {
        ends.exits.iter().filter_map(|exit| of_exit(exit, config, windows)).collect()
    };
    all.values().flat_map(|ends| worst(ends, config, windows).into_iter().chain(of_exits(ends))).collect()
}

/// An exit whose slots wait for its own data as long as they wait for all.
fn of_exit(exit: &RankState, config: &Config, windows: &Windows) -> Option<Fact> {
    let (base, now) = compared(exit.iterations.list(), windows);
    let own = |list: &[&Iteration]| list.iter().map(|it| f64::from(it.out.us.min(it.out.first_us)) / 1e3).collect();
    let (now_ms, base_ms) = grown(own(&now), own(&base), config, LEAST_SHARE * windows.iteration_ms)?;
    let (rank, host, iteration_ms) = (exit.rank, exit.host.clone(), windows.iteration_ms);
    Some(Fact::CopyExcess { rank, host, now_ms, base_ms, iteration_ms, unseen: false })
}

fn worst(ends: &Ends<'_>, config: &Config, windows: &Windows) -> Option<Fact> {
    let pairs = ends.exits.iter().flat_map(|exit| ends.entries.iter().map(move |entry| (*entry, *exit)));
    let costs = pairs.filter_map(|(entry, exit)| {
        let (now_ms, base_ms) = cost(entry, exit, config, windows)?;
        Some((entry, exit, now_ms, base_ms))
    });
    let (entry, exit, now_ms, base_ms) = costs.max_by(|a, b| (a.2 - a.3).total_cmp(&(b.2 - b.3)))?;
    let (host, iteration_ms) = (exit.host.clone(), windows.iteration_ms);
    let (base, now) = compared(exit.iterations.list(), windows);
    let first = |list: &[&Iteration]| median(list.iter().map(|it| f64::from(it.out.first_us) / 1e3).collect());
    let own_ms = first(&now)? - first(&base)?;
    Some(if own_ms >= OWN_SHARE * (now_ms - base_ms) {
        Fact::CopyExcess { rank: exit.rank, host, now_ms, base_ms, iteration_ms, unseen: false }
    } else {
        Fact::PassageExcess { host, entry: entry.rank, exit: exit.rank, now_ms, base_ms, iteration_ms }
    })
}

/// Milliseconds per iteration now and before, if it grew.
fn cost(entry: &RankState, exit: &RankState, config: &Config, windows: &Windows) -> Option<(f64, f64)> {
    let (base, now) = compared(exit.iterations.list(), windows);
    let both = |it: &&Iteration| {
        let other = at(entry.iterations.list(), middle(it))?;
        Some(f64::from(it.out.us.min(other.into.us)) / 1e3)
    };
    let of = |list: &[&Iteration]| -> Vec<f64> { list.iter().filter_map(both).collect() };
    grown(of(&now), of(&base), config, LEAST_SHARE * windows.iteration_ms)
}
