//! From suspicious groups to passes: devices of all groups at once, and the ways of each group in a constant number of
//! passes whatever its size (FALCON 4.3, Figure 9).
use super::tree::{self, Edge, Side};
use super::{Check, Costs, End, Group, PATIENCE, Pair, Pass, Plan, Shape, Work};
use mycroft_record::Rank;
use std::collections::BTreeSet;

/// The plan for these groups: each check of all their members at once, then their ways. A pair that is in several groups is
/// tested once; groups without a common member are tested at the same time.
//= falcon 4.3
pub fn plan(groups: &[Group], checks: &[Check], costs: Costs) -> Plan {
    let ranks: BTreeSet<Rank> = groups.iter().flat_map(|group| group.members.iter().copied()).collect();
    let checks: BTreeSet<Check> = checks.iter().copied().collect();
    let alone = checks.into_iter().map(|check| Work::Alone { check, ranks: ranks.iter().copied().collect() });
    let pass = |work: Work| {
        let usual_ns = if matches!(work, Work::Alone { .. }) { costs.check_ns } else { costs.pair_ns };
        Pass { work, usual_ns, at_most_ns: usual_ns.saturating_mul(PATIENCE) }
    };
    let pairs = together(groups).into_iter().map(Work::Pairs);
    let works = alone.filter(|_| !ranks.is_empty()).chain(pairs);
    Plan { passes: works.map(pass).collect() }
}

/// Matchings of all groups, those without a common rank at the same time.
fn together(groups: &[Group]) -> Vec<Vec<Pair>> {
    let mut seen: BTreeSet<(Rank, Rank)> = BTreeSet::new();
    let mut passes: Vec<(BTreeSet<Rank>, Vec<Pair>)> = Vec::new();
    for group in groups {
        for matching in matchings(group) {
            let new: Vec<Pair> = matching.into_iter().filter(|pair| seen.insert(pair.ranks())).collect();
            let busy: BTreeSet<Rank> = new.iter().flat_map(|pair| [pair.one.rank, pair.other.rank]).collect();
            match passes.iter_mut().find(|(ranks, _)| ranks.is_disjoint(&busy)) {
                _ if new.is_empty() => {}
                Some((ranks, pairs)) => {
                    ranks.extend(busy);
                    pairs.extend(new);
                }
                None => passes.push((busy, new)),
            }
        }
    }
    passes.into_iter().map(|(_, pairs)| pairs).collect()
}

/// The ways of one group in passes in which nobody is twice: 2 for a ring (3 where its number of members is odd), 4 for a
/// tree.
fn matchings(group: &Group) -> Vec<Vec<Pair>> {
    let n = group.members.len();
    let end = |place: usize| Some(End { rank: *group.members.get(place)?, place: u32::try_from(place).ok()? });
    let pair = |(one, other): (usize, usize)| Some(Pair { comm: group.comm, one: end(one)?, other: end(other)? });
    let ways = match group.shape {
        Shape::Ring => ring(n),
        Shape::Tree => in_tree(&tree::edges(n, false)),
        Shape::DoubleTree => [false, true].into_iter().flat_map(|second| in_tree(&tree::edges(n, second))).collect(),
    };
    ways.into_iter().map(|ways| ways.into_iter().filter_map(pair).collect()).collect()
}

/// Even members with the next, odd ones with the next, and where their number is odd the last with the first.
fn ring(n: usize) -> Vec<Vec<(usize, usize)>> {
    let from = |first: usize| (first..n.saturating_sub(1)).step_by(2).map(|i| (i, i + 1)).collect::<Vec<_>>();
    let (even, mut odd) = (from(0), from(1));
    match n {
        0..=2 => vec![even],
        _ if n.is_multiple_of(2) => {
            odd.push((n - 1, 0));
            vec![even, odd]
        }
        _ => vec![even, odd, vec![(n - 1, 0)]],
    }
}

/// Left children of even levels with their parents, right ones of even levels, then those of odd levels: a rank is the
/// parent of one of them, or a child, and its own level and that of its children are not in the same pass.
fn in_tree(edges: &[Edge]) -> Vec<Vec<(usize, usize)>> {
    let of = |level: usize, side: Side| {
        let is = |edge: &&Edge| edge.depth % 2 == level && edge.side == side;
        edges.iter().filter(is).map(|edge| (edge.child, edge.parent)).collect::<Vec<_>>()
    };
    [(0, Side::Left), (0, Side::Right), (1, Side::Left), (1, Side::Right)].into_iter().map(|(l, s)| of(l, s)).collect()
}
