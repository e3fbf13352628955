//! How often a device of this job takes so much longer by chance: stragglers come and go (FALCON 3.2), and of many devices
//! one has bad luck several times in a row now and then.
use super::slow::{Windows, compared};
use crate::fact::Fact;
use crate::median::median;
use crate::timeline::{Iteration, RankState, Timeline};
use mycroft_record::Rank;

/// An iteration is long from this share of the suspect's growth on.
const LONG: f64 = 0.5;
/// Iterations of the suspect's that are looked at.
const LAST: usize = 16;
/// A job is looked at after each iteration, day and night: what chance alone brings about more often than once in so many
/// looks is no sign.
pub(crate) const LOOKS: f64 = 1e6;
/// What is assumed before anything is seen.
const BEFORE: Luck = Luck { long: 1, of: 100 };

/// So many iterations were long, of so many.
#[derive(Clone, Copy, Debug)]
struct Luck {
    long: u32,
    of: u32,
}

impl Luck {
    fn of<'a>(list: impl Iterator<Item = &'a Iteration>, long_us: f64) -> Luck {
        list.fold(Luck { long: 0, of: 0 }, |Luck { long, of }, it| Luck {
            long: long + u32::from(it.compute_us > long_us),
            of: of + 1,
        })
    }

    fn and(self, other: Luck) -> Luck {
        Luck { long: self.long + other.long, of: self.of + other.of }
    }

    fn share(self) -> f64 {
        f64::from(self.long) / f64::from(self.of)
    }
}

/// Takes out devices that compute longer by more than `least_ms`, if chance would bring that about: so many of their last
/// iterations were long, and so many of all others in the job now and before.
pub(crate) fn without_chance(facts: &mut Vec<Fact>, timeline: &Timeline, windows: &Windows, least_ms: f64) {
    let slow: Vec<(Rank, f64)> = facts.iter().filter_map(|fact| computes_longer(fact, least_ms)).collect();
    let is_chance = |(rank, grew_ms): &(Rank, f64)| {
        let own = timeline.ranks.get(rank)?;
        // What slows a device may slow those beside it as well.
        let is_other = |of: &RankState| of.host != own.host || slow.iter().all(|(rank, _)| *rank != of.rank);
        let of = |state: &RankState| {
            let (base, now) = compared(state.iterations.list(), windows);
            Some(Luck::of(base.iter().chain(&now).copied(), long_us(&base, *grew_ms)?))
        };
        let others = timeline.ranks.values().filter(|state| is_other(state)).filter_map(of);
        let share = others.fold(BEFORE, Luck::and).share();
        let list = own.iterations.list();
        let (base, now) = compared(list, windows);
        let (usual_us, ranks) = (long_us(&base, *grew_ms)?, timeline.ranks.len() as f64);
        let last = (now.len()..=LAST.max(now.len())).map(|count| Luck::of(list.iter().rev().take(count), usual_us));
        let least = last.map(|luck| at_least(luck.long, luck.of, share)).fold(1.0, f64::min);
        Some(ranks * least * LOOKS >= 1.0)
    };
    let chance: Vec<Rank> =
        slow.iter().filter(|suspect| is_chance(suspect) == Some(true)).map(|(rank, _)| *rank).collect();
    facts.retain(|fact| computes_longer(fact, least_ms).is_none_or(|(rank, _)| !chance.contains(&rank)));
}

/// From so many microseconds of computing on an iteration is long, where a suspect's grew by so much.
fn long_us(base: &[&Iteration], grew_ms: f64) -> Option<f64> {
    Some(median(base.iter().map(|it| it.compute_us).collect())? + 1e3 * LONG * grew_ms)
}

/// A rank and by how much longer it computes, if that is more than `least_ms`.
fn computes_longer(fact: &Fact, least_ms: f64) -> Option<(Rank, f64)> {
    match fact {
        Fact::ComputeExcess { rank, now_ms, base_ms, .. } if now_ms - base_ms > least_ms => {
            Some((*rank, now_ms - base_ms))
        }
        _ => None,
    }
}

/// Probability that at least `long` of `of` are, each with probability `share`.
pub(crate) fn at_least(long: u32, of: u32, share: f64) -> f64 {
    let term = |k: u32| {
        let choose = (0..k).fold(1.0, |product, i| product * f64::from(of - i) / f64::from(i + 1));
        choose * share.powi(k as i32) * (1.0 - share).powi((of - k) as i32)
    };
    (long..=of).map(term).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_throws() {
        assert!((at_least(1, 1, 0.25) - 0.25).abs() < 1e-12);
        assert!((at_least(1, 2, 0.5) - 0.75).abs() < 1e-12);
        assert!((at_least(0, 5, 0.1) - 1.0).abs() < 1e-12);
        assert!((at_least(5, 5, 0.1) - 1e-5).abs() < 1e-15);
        assert!((at_least(4, 5, 0.0053) - 3.93e-9).abs() < 1e-11);
    }
}
