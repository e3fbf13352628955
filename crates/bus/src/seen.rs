//! Which records of an agent have been seen: one that was sent again after a lost acknowledgement counts once.
use std::collections::{BTreeMap, BTreeSet};

/// Agents remembered, as by the wire: of more the one whose newest record is oldest is forgotten.
const AGENTS_MAX: usize = 16_384;
/// How far behind an agent's newest record another may come: it holds 64 frames unacknowledged, and this is eight jobs of each. At
/// 12 bytes 100 MB of all agents together, of 1,250 hosts 8 MB.
const BEHIND_MAX: u64 = 512;

/// Sequences of one agent.
#[derive(Debug, Default)]
struct Of {
    /// Everything up to here counts as seen.
    below: u64,
    /// Seen beyond.
    beyond: BTreeSet<u64>,
    /// When its newest came, in records of all agents.
    at: u64,
}

/// What was seen of all agents, in one partition.
#[derive(Debug, Default)]
pub struct Seen {
    agents: BTreeMap<u64, Of>,
    count: u64,
}

impl Seen {
    /// Notes a record; false: it was seen before, or comes so late that nobody knows.
    pub fn is_new(&mut self, agent: u64, sequence: u64) -> bool {
        self.count += 1;
        if !self.agents.contains_key(&agent) && self.agents.len() >= AGENTS_MAX {
            let oldest = self.agents.iter().min_by_key(|(_, of)| of.at).map(|(agent, _)| *agent);
            oldest.map(|oldest| self.agents.remove(&oldest));
        }
        let below = sequence.saturating_sub(BEHIND_MAX + 1);
        let of = self.agents.entry(agent).or_insert_with(|| Of { below, ..Of::default() });
        of.at = self.count;
        if sequence <= of.below || !of.beyond.insert(sequence) {
            return false;
        }
        let newest = of.beyond.last().copied().unwrap_or(0);
        of.below = of.below.max(newest.saturating_sub(BEHIND_MAX));
        while of.beyond.remove(&(of.below + 1)) {
            of.below += 1;
        }
        while of.beyond.first().is_some_and(|first| *first <= of.below) {
            of.beyond.pop_first();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_once_in_whatever_order_it_comes() {
        let mut seen = Seen::default();
        let told: Vec<bool> = [1, 2, 4, 3, 2, 4, 9, 9, 5].map(|sequence| seen.is_new(7, sequence)).into();
        assert_eq!(told, [true, true, true, true, false, false, true, false, true]);
        assert!(seen.is_new(8, 1), "another agent");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut seen = Seen::default();
        // Every other record of the agent is in another partition.
        assert!((1..100_000).step_by(2).all(|sequence| seen.is_new(7, sequence)));
        assert!(seen.agents[&7].beyond.len() as u64 <= BEHIND_MAX);
        assert!(!seen.is_new(7, 2), "too late to be known");
        assert!(seen.is_new(7, 99_900));
        assert!(
            seen.is_new(9, 5_000) && seen.is_new(9, 4_990) && !seen.is_new(9, 4_000),
            "one that is met in the middle"
        );
        (0..2 * AGENTS_MAX as u64).for_each(|agent| assert!(seen.is_new(100 + agent, 1)));
        assert_eq!(seen.agents.len(), AGENTS_MAX);
        assert!(!seen.is_new(100 + 2 * AGENTS_MAX as u64 - 1, 1));
    }
}
