//! Values of senders in rounds, and what is usual among them.
use super::round::{Round, Share};
use super::suspect::{ROUNDS, SAME, SENDERS_MIN, Sign, Suspect};
use crate::median::median;
use std::collections::{BTreeMap, BTreeSet};

/// A sender is compared where it took part in so many rounds: what was once may be chance.
pub(super) const ROUNDS_MIN: usize = 3;
/// Standard deviation of normal values over the median of their distance from the middle one.
const SIGMA_OF_MAD: f64 = 1.4826;

/// A value of each sender in each round.
#[derive(Default)]
pub(super) struct Table {
    /// By sender: its values, and its receivers.
    pub(super) rows: BTreeMap<u32, (Vec<f64>, BTreeSet<u32>)>,
}

impl Table {
    pub(super) fn add(&mut self, share: &Share, value: f64) {
        let (values, to) = self.rows.entry(share.from).or_default();
        values.push(value);
        to.extend(&share.to);
    }

    /// Of each sender with enough rounds its mean or median.
    pub(super) fn of_each(&self, of: fn(&[f64]) -> f64) -> BTreeMap<u32, f64> {
        let enough = self.rows.iter().filter(|(_, (values, _))| values.len() >= ROUNDS_MIN);
        enough.map(|(from, (values, _))| (*from, of(values))).collect()
    }

    pub(super) fn suspect(&self, from: u32, sign: Sign, of: usize) -> Suspect {
        let (values, to) = &self.rows[&from];
        let to = to.iter().copied().collect();
        Suspect { from, to, sign, rounds: values.len() as u32, peers: of as u32 - 1 }
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

pub(super) fn middle(values: &[f64]) -> f64 {
    median(values.to_vec()).unwrap_or(0.0)
}

/// Standard deviation of values of which few are others, from the median of their distance from the middle one.
pub(super) fn scatter(values: &[f64]) -> f64 {
    let center = middle(values);
    SIGMA_OF_MAD * middle(&values.iter().map(|value| (value - center).abs()).collect::<Vec<_>>())
}

pub(super) fn deviation(values: &[f64]) -> f64 {
    let center = mean(values);
    (values.iter().map(|value| (value - center).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0).max(1.0)).sqrt()
}

/// It has enough senders, and each sent all.
fn is_whole(round: &&Round) -> bool {
    let is_whole = |share: &Share| share.bytes as f64 >= share.whole_bytes as f64 * (1.0 - SAME);
    round.shares.len() >= SENDERS_MIN && round.shares.iter().all(is_whole)
}

/// The last whole rounds of a class.
pub(super) fn recent(of_class: &[Round]) -> Vec<&Round> {
    let mut rounds: Vec<&Round> = of_class.iter().rev().filter(is_whole).take(ROUNDS).collect();
    rounds.reverse();
    rounds
}
