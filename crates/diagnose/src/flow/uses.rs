//! What communicators are for, from flows alone (Pulse, section 5.2 and Figure 5): who sends to whom, when and how much.
//!
//! - Whoever exchanges with all others of its group is in an exchange of experts; messages there and back are a pipeline.
//! - Rings that lie in others hold the same weights as those: they are of the sequence, and the others sum gradients.
//! - Of rings that cross each other those with fewer, or larger, operations sum gradients; the others are of tensors.
//!
//! What stays inside a host shows no flow: of a group that lies partly in hosts its members are not all known, and of one that lies in
//! one host nothing is.
mod lane;
mod shape;

use super::Sent;
use crate::timeline::Parallelism;
use lane::Lane;
use shape::{Group, Shape, groups};
use std::collections::{BTreeMap, BTreeSet};

/// Whoever moves less than this share of what the busiest sender moves agrees on numbers, not on weights.
const SMALL: f64 = 1e-3;
/// Groups of one kind differ by no more than this factor in bytes of an operation, and in operations.
const LIKE: f64 = 1.25;
/// What comes with each layer comes at least so often for each message of a pipeline,
const OF_LAYERS: f64 = 1.5;
/// and its operations differ by no more than this factor: sequences of different lengths.
const STEADY: f64 = 1.3;
/// Who sums gradients does it so much more seldom than what crosses it, or in larger operations.
const SELDOM: f64 = 0.6;

/// What a group is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Use {
    /// A dimension in which the job is split.
    Of(Parallelism),
    /// It agrees on numbers such as losses.
    Numbers,
}

/// Ranks of a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Members {
    /// So many.
    Exactly(u32),
    /// So many are seen; others may be inside of hosts.
    AtLeast(u32),
}

/// What tells the use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Basis {
    /// Who sends to whom and when: nothing else looks so.
    Shape,
    /// How much and how often, as usual in training.
    Volume,
    /// Nothing else is there to compare with, and this is what usually crosses hosts.
    Usual,
}

/// Groups of one use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Used {
    /// What for.
    pub of: Use,
    /// Ranks of each.
    pub members: Members,
    /// Senders and receivers of each group, or of each part of one that is seen.
    pub groups: Vec<Vec<u32>>,
    /// What tells it: the weakest of what was needed.
    pub basis: Basis,
}

/// What the communicators among flows are for. Flows are of NICs that one rank has each; epochs of `epoch_ns`, and operations lie
/// `gap_ns` apart.
pub fn uses(sent: &[Sent<'_>], epoch_ns: u64, gap_ns: u64) -> Vec<Used> {
    let lanes: Vec<Lane<'_>> = sent.iter().filter_map(|flow| Lane::of(flow, epoch_ns, gap_ns)).collect();
    let families = families(groups(&lanes));
    let told = told(&families);
    let mut by_use: BTreeMap<Use, Vec<(&Family, Basis)>> = BTreeMap::new();
    families.iter().zip(told).for_each(|(family, (of, basis))| by_use.entry(of).or_default().push((family, basis)));
    by_use.into_iter().map(|(of, families)| used(of, &families)).collect()
}

fn used(of: Use, families: &[(&Family, Basis)]) -> Used {
    let groups = || families.iter().flat_map(|(family, _)| &family.groups);
    let members: BTreeSet<Members> = groups().map(members).collect();
    let most = members.iter().map(|(Members::Exactly(count) | Members::AtLeast(count))| *count).max().unwrap_or(0);
    let is_exact = members.len() == 1 && members.first() == Some(&Members::Exactly(most));
    let mut seen: Vec<Vec<u32>> = groups().map(|group| group.members.iter().copied().collect()).collect();
    seen.sort_unstable();
    seen.dedup();
    Used {
        of,
        members: if is_exact { Members::Exactly(most) } else { Members::AtLeast(most) },
        groups: seen,
        basis: families.iter().map(|(_, basis)| *basis).max().unwrap_or(Basis::Shape),
    }
}

fn members(group: &Group) -> Members {
    let seen = group.members.len();
    match group.shape {
        Shape::Ring | Shape::Mesh => Members::Exactly(seen as u32),
        Shape::Part => Members::AtLeast(seen as u32),
        // As many messages are on their way as there are stages, from the first one on.
        Shape::Chain if group.ahead == seen => Members::Exactly(seen as u32),
        Shape::Chain => Members::AtLeast(seen.max(group.ahead) as u32),
    }
}

/// Groups that look alike and do the same.
struct Family {
    shape: Shape,
    groups: Vec<Group>,
}

impl Family {
    fn first(&self) -> &Group {
        &self.groups[0]
    }

    fn is_ring(&self) -> bool {
        matches!(self.shape, Shape::Ring | Shape::Part)
    }

    /// Each of its groups has all its members, or a way, in common with one of the other's.
    fn lies_in(&self, other: &Family) -> bool {
        let within = |own: &Group| match other.shape {
            Shape::Ring => other.groups.iter().any(|group| own.members.is_subset(&group.members)),
            _ => other.groups.iter().any(|group| !own.ways.is_disjoint(&group.ways)),
        };
        match other.shape {
            Shape::Ring => self.groups.iter().all(within),
            _ => self.groups.iter().any(within),
        }
    }

    /// Its groups have at most one member in common with each of the other's.
    fn crosses(&self, other: &Family) -> bool {
        let common = |own: &Group, group: &Group| own.members.intersection(&group.members).count();
        let all = || self.groups.iter().flat_map(|own| other.groups.iter().map(|group| common(own, group)));
        all().all(|count| count < 2) && all().any(|count| count > 0)
    }

    /// It sums gradients rather than the other: it does so more seldom, or, where both come with each layer, in larger operations.
    fn is_above(&self, other: &Family) -> bool {
        let (own, of_other) = (self.first(), other.first());
        let is_rare = |one: &Group, than: &Group| (one.operations as f64) <= SELDOM * than.operations as f64;
        is_rare(own, of_other) || !is_rare(of_other, own) && own.range.0 > of_other.range.0
    }
}

fn families(groups: Vec<Group>) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    let are_like = |one: f64, other: f64| one.max(other) <= LIKE * one.min(other);
    for group in groups {
        let like = |family: &&mut Family| {
            let first = family.first();
            let is_size = group.shape == Shape::Part || first.members.len() == group.members.len();
            let is_same = family.shape == group.shape && (group.shape == Shape::Chain || is_size);
            is_same
                && (group.shape == Shape::Mesh || are_like(first.range.0 as f64, group.range.0 as f64))
                && are_like(first.operations as f64, group.operations as f64)
        };
        match families.iter_mut().find(like) {
            Some(family) => family.groups.push(group),
            None => families.push(Family { shape: group.shape, groups: vec![group] }),
        }
    }
    families
}

/// What each family is for.
fn told(families: &[Family]) -> Vec<(Use, Basis)> {
    let most = families.iter().map(|family| family.first().bytes).max().unwrap_or(0) as f64;
    let is_small = |family: &Family| (family.first().bytes as f64) < SMALL * most;
    let rings: Vec<&Family> = families.iter().filter(|family| family.is_ring() && !is_small(family)).collect();
    let is_same = |one: &Family, other: &Family| std::ptr::eq(one, other);
    let is_inside = |family: &Family| {
        let outer = |other: &&&Family| {
            let other = **other;
            !is_same(family, other) && family.lies_in(other) && (!other.lies_in(family) || other.is_above(family))
        };
        rings.iter().any(|other| outer(&other))
    };
    let outer: Vec<&Family> = rings.iter().copied().filter(|family| !is_inside(family)).collect();
    let holds = |family: &Family| {
        let within = families.iter().filter(|other| !is_same(family, other) && !is_small(other));
        let within = within.filter(|other| other.shape == Shape::Mesh || rings.iter().any(|ring| is_same(ring, other)));
        within.filter(|other| other.shape == Shape::Mesh || is_inside(other)).any(|other| other.lies_in(family))
    };
    let of_outer = |family: &Family| {
        if holds(family) {
            return (Use::Of(Parallelism::Data), Basis::Shape);
        }
        let across: Vec<&&Family> = outer.iter().filter(|other| other.crosses(family)).collect();
        if across.is_empty() {
            // Those of other stages of a pipeline are for the same, though they do not all look so.
            let beside = || outer.iter().filter(|other| outer.iter().all(|another| !another.crosses(other)));
            let chain = families.iter().find(|other| other.shape == Shape::Chain);
            let is_tensor = chain.is_some_and(|chain| beside().all(|other| is_of_layers(other.first(), chain.first())));
            let of = if is_tensor { Parallelism::Tensor } else { Parallelism::Data };
            return (Use::Of(of), if is_tensor { Basis::Volume } else { Basis::Usual });
        }
        let is_data = across.iter().all(|other| !holds(other) && family.is_above(other));
        let of = if is_data { Parallelism::Data } else { Parallelism::Tensor };
        (Use::Of(of), Basis::Volume)
    };
    let of = |family: &Family| match family.shape {
        _ if is_small(family) => (Use::Numbers, Basis::Volume),
        Shape::Mesh => (Use::Of(Parallelism::Expert), Basis::Shape),
        Shape::Chain => (Use::Of(Parallelism::Pipeline), Basis::Shape),
        _ if is_inside(family) => (Use::Of(Parallelism::Context), Basis::Volume),
        _ => of_outer(family),
    };
    families.iter().map(of).collect()
}

/// It comes several times for each message of a pipeline, each time alike.
fn is_of_layers(ring: &Group, chain: &Group) -> bool {
    let often = ring.operations as f64 >= OF_LAYERS * chain.operations as f64;
    often && ring.range.0 as f64 <= STEADY * ring.range.1 as f64
}
