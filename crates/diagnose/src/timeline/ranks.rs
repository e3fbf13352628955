//! All ranks of a job in one place: found by number in one step, walked in ascending order.
use super::rank::RankState;
use mycroft_record::Rank;
use std::collections::BTreeMap;

/// Ranks below this are found through a table of 4 bytes each: 4 MiB at most; others through a tree.
const TABLED_MAX: u32 = 1 << 20;
/// Nothing here.
const NOBODY: u32 = u32::MAX;

/// Where a rank lies; stays the same as long as the job is known.
pub(crate) type Slot = u32;

/// The ranks of a job.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    slots: Vec<RankState>,
    table: Vec<Slot>,
    order: BTreeMap<Rank, Slot>,
}

impl Ranks {
    /// Where `rank` lies.
    pub(crate) fn slot(&self, rank: Rank) -> Option<Slot> {
        if rank.0 < TABLED_MAX {
            return self.table.get(rank.0 as usize).copied().filter(|slot| *slot != NOBODY);
        }
        self.order.get(&rank).copied()
    }

    pub(crate) fn get(&self, rank: &Rank) -> Option<&RankState> {
        self.slots.get(self.slot(*rank)? as usize)
    }

    pub(crate) fn at(&self, slot: Slot) -> &RankState {
        &self.slots[slot as usize]
    }

    pub(crate) fn at_mut(&mut self, slot: Slot) -> &mut RankState {
        &mut self.slots[slot as usize]
    }

    /// The slot of a rank, which `fresh` fills when it has none.
    pub(crate) fn slot_or_insert(&mut self, rank: Rank, fresh: impl FnOnce() -> RankState) -> Slot {
        if let Some(slot) = self.slot(rank) {
            return slot;
        }
        let slot = self.slots.len() as Slot;
        self.slots.push(fresh());
        self.order.insert(rank, slot);
        if rank.0 < TABLED_MAX {
            let needed = rank.0 as usize + 1;
            self.table.resize(self.table.len().max(needed), NOBODY);
            self.table[rank.0 as usize] = slot;
        }
        slot
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// In ascending order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Rank> {
        self.order.keys().copied()
    }

    /// In ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Rank, &RankState)> {
        self.order.iter().map(|(rank, slot)| (*rank, &self.slots[*slot as usize]))
    }

    /// Slots in ascending order of their ranks.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.order.values().copied()
    }

    /// In ascending order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &RankState> {
        self.order.values().map(|slot| &self.slots[*slot as usize])
    }

    /// In the order in which they were first seen, which is the fastest.
    pub(crate) fn by_slot(&self) -> &[RankState] {
        &self.slots
    }
}
