//! Whose host holds an operation up (Pulse, section 6.2: long duration with usual beginning and actual time). In a ring all are silent
//! then, and each goes on when its predecessor did: the first to go on is the one that all waited for.
use super::round::{Round, Sent, Share};
use super::suspect::{DEVIATIONS, SENDERS_MIN, Sign, Suspect};
use super::table::{Table, middle, recent, scatter};
use std::collections::{BTreeMap, BTreeSet};

/// A silence of all of a group that counts, nanoseconds: an eighth of a time slice of 4 ms, and longer than what a late slice makes.
const SILENCE_NS: u64 = 500_000;
/// Fewest silences that tell whose they are.
const SILENCES_MIN: usize = 10;
/// Share of the silences that one member ends before all others. Of four, each ends a quarter by chance.
const FIRST: f64 = 0.7;

/// Whose operations are held up, from all rounds by class.
pub(super) fn held(classes: &BTreeMap<usize, Vec<Round>>, sent: &[Sent<'_>], epoch_ns: u64) -> Vec<Suspect> {
    let mut found: Vec<Suspect> = Vec::new();
    for of_class in classes.values() {
        let recent = recent(of_class);
        let mut rings: BTreeMap<Vec<u32>, Silences> = BTreeMap::new();
        for round in &recent {
            for group in round.groups() {
                let shares: Vec<&Share> = group.iter().filter_map(|from| round.of(*from)).collect();
                if shares.iter().all(|share| share.to.len() == 1) {
                    rings.entry(group).or_default().add(&shares, sent, epoch_ns);
                }
            }
        }
        found.extend(rings.into_iter().filter_map(|(group, silences)| silences.suspect(&group)));
        found.extend(messages(&recent));
    }
    found.sort_by_key(|suspect| (suspect.from, std::cmp::Reverse(suspect.rounds)));
    found.dedup_by_key(|suspect| suspect.from);
    found
}

/// Silences of a ring in which each member has begun and none has ended.
#[derive(Default)]
struct Silences {
    rounds: u32,
    count: usize,
    sum_ns: u64,
    /// How many each member ended alone.
    ended_by: BTreeMap<u32, usize>,
    /// Receiver of each member.
    to: BTreeMap<u32, BTreeSet<u32>>,
}

impl Silences {
    fn add(&mut self, shares: &[&Share], sent: &[Sent<'_>], epoch_ns: u64) {
        let begin = shares.iter().map(|share| share.start_ns).max().unwrap_or(0) / epoch_ns;
        let end = shares.iter().map(|share| share.end_ns).min().unwrap_or(0) / epoch_ns;
        let mut active: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for share in shares {
            self.to.insert(share.from, share.to.clone());
            for flow in sent.iter().filter(|flow| flow.from == share.from && share.to.contains(&flow.to)) {
                let at = |epoch: u64| flow.epochs.partition_point(|(other, _)| *other < epoch);
                for (epoch, _) in &flow.epochs[at(begin)..at(end).max(at(begin))] {
                    active.entry(*epoch).or_default().insert(share.from);
                }
            }
        }
        self.rounds += 1;
        for ((before, _), (after, first)) in active.iter().zip(active.iter().skip(1)) {
            let silence_ns = (after - before - 1) * epoch_ns;
            if silence_ns < SILENCE_NS {
                continue;
            }
            self.count += 1;
            self.sum_ns += silence_ns;
            if let (Some(from), 1) = (first.first(), first.len()) {
                *self.ended_by.entry(*from).or_default() += 1;
            }
        }
    }

    fn suspect(&self, group: &[u32]) -> Option<Suspect> {
        let (from, times) = self.ended_by.iter().max_by_key(|(_, times)| **times)?;
        if self.count < SILENCES_MIN || (*times as f64) < FIRST * self.count as f64 {
            return None;
        }
        let sign = Sign::Held { by_ns: self.sum_ns / u64::from(self.rounds) };
        let to = self.to.get(from)?.iter().copied().collect();
        Some(Suspect { from: *from, to, sign, rounds: self.rounds, peers: group.len() as u32 - 1 })
    }
}

/// Messages between two that pause again and again, for longer than those of others take.
fn messages(recent: &[&Round]) -> Vec<Suspect> {
    let mut table = Table::default();
    let mut usual = Vec::new();
    let in_groups: BTreeSet<u32> = recent.iter().flat_map(|round| round.groups()).flatten().collect();
    for round in recent {
        let is_message = |share: &&Share| share.to.len() == 1 && !in_groups.contains(&share.from);
        let messages: Vec<&Share> = round.shares.iter().filter(is_message).collect();
        if messages.len() < SENDERS_MIN {
            continue;
        }
        usual.push(middle(&messages.iter().map(|share| (share.end_ns - share.start_ns) as f64).collect::<Vec<_>>()));
        messages.iter().for_each(|share| table.add(share, share.pauses_ns as f64));
    }
    let pauses = table.of_each(middle);
    let all: Vec<f64> = pauses.values().copied().collect();
    if all.len() < SENDERS_MIN {
        return Vec::new();
    }
    let least = middle(&usual).max(DEVIATIONS * scatter(&all));
    let sign = |pauses: f64| Sign::Held { by_ns: pauses as u64 };
    let held = pauses.iter().filter(|(_, pauses)| **pauses - middle(&all) > least);
    held.map(|(from, pauses)| table.suspect(*from, sign(*pauses), all.len())).collect()
}
