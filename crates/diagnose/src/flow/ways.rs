//! Where each sends to all others, the rate of each way from one to another. A slow path is slower than what its sender sends to
//! others, and slower than what its receiver gets from others: both of its ends are half of four, and neither is slow otherwise.
use super::round::Round;
use super::suspect::{DEVIATIONS, EPOCHS_MIN, SENDERS_MIN, SLOWER, Sign, Suspect};
use super::table::{ROUNDS_MIN, deviation, mean, middle};
use std::collections::BTreeMap;

/// Rates of ways in meshes, as shares of the middle one of a round.
pub(super) struct Ways {
    /// By sender and receiver.
    values: BTreeMap<(u32, u32), Vec<f64>>,
    /// The middle rate of each round, bytes of a full epoch.
    usual: Vec<f64>,
}

impl Ways {
    /// Those of the last whole rounds of a class.
    pub(super) fn of(recent: &[&Round]) -> Ways {
        let mut ways = Ways { values: BTreeMap::new(), usual: Vec::new() };
        for round in recent {
            for group in round.groups() {
                let shares = group.iter().filter_map(|from| round.of(*from));
                let measured: Vec<((u32, u32), f64)> = shares
                    .flat_map(|share| share.ways.iter().map(|(to, active)| ((share.from, *to), *active)))
                    .filter(|(_, active)| active.epochs >= EPOCHS_MIN)
                    .map(|(way, active)| (way, active.full_bytes as f64))
                    .collect();
                if measured.len() < SENDERS_MIN {
                    continue;
                }
                let usual = middle(&measured.iter().map(|(_, rate)| *rate).collect::<Vec<_>>());
                ways.usual.push(usual);
                measured.iter().for_each(|(way, rate)| ways.values.entry(*way).or_default().push(rate / usual));
            }
        }
        ways.values.retain(|_, values| values.len() >= ROUNDS_MIN);
        ways
    }

    /// Whether a sender is slow on the middle one of its ways. Who sends to several at once sends more than who sends to one after the
    /// other, and is not faster. Nothing where it is in no mesh.
    pub(super) fn is_slow(&self, from: u32) -> Option<bool> {
        let mut senders: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for ((from, _), values) in &self.values {
            senders.entry(*from).or_default().push(mean(values));
        }
        let of_each: BTreeMap<u32, f64> = senders.into_iter().map(|(from, means)| (from, middle(&means))).collect();
        let usual = middle(&of_each.values().copied().collect::<Vec<_>>());
        of_each.get(&from).map(|own| *own < (1.0 - SLOWER) * usual)
    }

    /// Senders with a slow path to one receiver.
    pub(super) fn suspects(&self, epoch_ns: u64) -> Vec<Suspect> {
        let usual = middle(&self.usual) * 1e9 / epoch_ns as f64;
        let slow = |((from, to), values): (&(u32, u32), &Vec<f64>)| {
            let others = |is_beside: &dyn Fn(&(u32, u32)) -> bool| {
                let beside = self.values.iter().filter(|(way, _)| **way != (*from, *to) && is_beside(way));
                let means: Vec<f64> = beside.map(|(_, values)| mean(values)).collect();
                (means.len() > 1).then(|| middle(&means))
            };
            let of_ends = others(&|way| way.0 == *from)?.min(others(&|way| way.1 == *to)?);
            let own = DEVIATIONS * deviation(values) / (values.len() as f64).sqrt();
            let share = mean(values);
            let sign = Sign::Slow { rate: share * usual, usual: of_ends * usual };
            let (rounds, peers) = (values.len() as u32, self.values.len() as u32 - 1);
            let suspect = Suspect { from: *from, to: vec![*to], sign, rounds, peers };
            (of_ends - share > (SLOWER * of_ends).max(own)).then_some(suspect)
        };
        self.values.iter().filter_map(slow).collect()
    }
}
