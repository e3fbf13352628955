//! The communicators of a job: who is in each, and what of it changed since the last look.
use mycroft_record::{CommId, CommRank, Rank};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::halves::Halves;

/// Communicators kept per job.
const COMMS_KEPT: usize = 256 * 1024;

/// A map of few or many small entries that mostly come in ascending order: a sorted list.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<K, V>(Vec<(K, V)>);

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Sorted<K, V> {
        Sorted(Vec::new())
    }
}

impl<K: Ord + Copy, V> Sorted<K, V> {
    fn find(&self, key: &K) -> Result<usize, usize> {
        match self.0.last() {
            Some((last, _)) if last < key => Err(self.0.len()),
            None => Err(0),
            Some(_) => self.0.binary_search_by(|(known, _)| known.cmp(key)),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.find(key).ok().map(|at| &mut self.0[at].1)
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    /// Gives the value that was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.0.insert(at, (key, value));
                None
            }
        }
    }

    pub(crate) fn entry_or_insert_with(&mut self, key: K, fresh: impl FnOnce() -> V) -> &mut V {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.0.insert(at, (key, fresh()));
            at
        });
        &mut self.0[at].1
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        self.find(key).ok().map(|at| self.0.remove(at).1)
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        self.0.retain(|(key, value)| keep(key, value));
    }

    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A communicator.
#[derive(Debug, Default)]
pub(crate) struct Comm {
    pub id: CommId,
    pub name: Arc<str>,
    /// Its name says that its members hold the same part of the model.
    pub data_parallel: bool,
    pub n_ranks: u32,
    pub members: Sorted<CommRank, Rank>,
    pub ranks: Sorted<Rank, CommRank>,
    pub(super) halves: Halves,
    /// What members are in, or have left, changed since the last look.
    pub(super) changed: bool,
}

impl Comm {
    /// Gives it its name.
    pub(super) fn call(&mut self, name: &Arc<str>) {
        self.name = name.clone();
        let name = name.to_ascii_lowercase();
        self.data_parallel = name.starts_with("dp") || name.contains("data_parallel") || name.contains("data-parallel");
    }
}

/// Where a communicator lies; stays the same as long as the job is known.
pub(crate) type CommSlot = u32;

/// The communicators of a job.
#[derive(Debug, Default)]
pub(crate) struct Comms {
    slots: Vec<Comm>,
    index: BTreeMap<CommId, CommSlot>,
    /// Those with `changed` set.
    changed: Vec<CommSlot>,
}

impl Comms {
    pub(crate) fn slot(&self, id: CommId) -> Option<CommSlot> {
        self.index.get(&id).copied()
    }

    /// The slot of a communicator, a new one when it has none; `None` when there are too many.
    pub(super) fn slot_or_insert(&mut self, id: CommId) -> Option<CommSlot> {
        if let Some(slot) = self.slot(id) {
            return Some(slot);
        }
        if self.slots.len() >= COMMS_KEPT {
            return None;
        }
        let slot = self.slots.len() as CommSlot;
        self.slots.push(Comm { id, ..Comm::default() });
        self.index.insert(id, slot);
        Some(slot)
    }

    pub(crate) fn get(&self, id: &CommId) -> Option<&Comm> {
        self.slot(*id).map(|slot| &self.slots[slot as usize])
    }

    pub(super) fn at_mut(&mut self, slot: CommSlot) -> &mut Comm {
        &mut self.slots[slot as usize]
    }

    /// In ascending order of their ids.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Comm> {
        self.index.values().map(|slot| &self.slots[*slot as usize])
    }

    /// Notes that members of a communicator are not where they were.
    pub(super) fn touch(&mut self, slot: CommSlot) {
        let comm = &mut self.slots[slot as usize];
        if !comm.changed {
            comm.changed = true;
            self.changed.push(slot);
        }
    }

    /// The communicators that changed since the last call, in no particular order.
    pub(super) fn take_changed(&mut self) -> Vec<CommId> {
        let slots = std::mem::take(&mut self.changed);
        let mut out = Vec::with_capacity(slots.len());
        for slot in slots {
            let comm = &mut self.slots[slot as usize];
            comm.changed = false;
            out.push(comm.id);
        }
        out
    }
}
