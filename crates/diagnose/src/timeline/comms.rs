//! The communicators of a job: who is in each, and what of it changed since the last look.
use mycroft_record::{CommId, CommRank, Rank};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::halves::Halves;

/// Communicators kept per job.
const COMMS_KEPT: usize = 256 * 1024;

/// A map of few or many entries that mostly come in ascending order: sorted keys, and values beside them, so that
/// looking for one passes over keys only.
#[derive(Clone, Debug)]
pub(crate) struct Sorted<K, V> {
    keys: Vec<K>,
    values: Vec<V>,
}

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Sorted<K, V> {
        Sorted { keys: Vec::new(), values: Vec::new() }
    }
}

impl<K: Ord + Copy, V> Sorted<K, V> {
    fn find(&self, key: &K) -> Result<usize, usize> {
        match self.keys.last() {
            Some(last) if last < key => Err(self.keys.len()),
            None => Err(0),
            Some(_) => self.keys.binary_search(key),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.find(key).ok().map(|at| &self.values[at])
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.find(key).is_ok()
    }

    /// Gives the value that was there.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => Some(std::mem::replace(&mut self.values[at], value)),
            Err(at) => {
                self.keys.insert(at, key);
                self.values.insert(at, value);
                None
            }
        }
    }

    pub(crate) fn entry_or_insert_with(&mut self, key: K, fresh: impl FnOnce() -> V) -> &mut V {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.keys.insert(at, key);
            self.values.insert(at, fresh());
            at
        });
        &mut self.values[at]
    }

    /// Forgets everything, and keeps the room if that is for `most` entries at most.
    pub(crate) fn clear(&mut self, most: usize) {
        if self.values.capacity() > most {
            *self = Sorted::default();
        }
        self.keys.clear();
        self.values.clear();
    }

    pub(crate) fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.keys.iter()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.values.iter()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.keys.iter().zip(&self.values)
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// What the members of a communicator have split among them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Parallelism {
    /// The batch: they hold the same weights, whole or sharded.
    Data,
    /// The tensors of a layer.
    Tensor,
    /// The layers.
    Pipeline,
    /// The experts of a layer.
    Expert,
    /// The sequence.
    Context,
}

impl Parallelism {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Parallelism::Data => "data parallel",
            Parallelism::Tensor => "tensor parallel",
            Parallelism::Pipeline => "pipeline parallel",
            Parallelism::Expert => "expert parallel",
            Parallelism::Context => "context parallel",
        }
    }
}

/// A communicator.
#[derive(Debug, Default)]
pub(crate) struct Comm {
    pub id: CommId,
    pub name: Arc<str>,
    /// Its name says that its members hold the same part of the model.
    pub data_parallel: bool,
    /// What its members do with it, as far as that shows.
    pub used_for: Option<Parallelism>,
    pub n_ranks: u32,
    pub members: Sorted<CommRank, Rank>,
    pub ranks: Sorted<Rank, CommRank>,
    pub(super) halves: Halves,
}

impl Comm {
    /// Gives it its name.
    pub(super) fn call(&mut self, name: &Arc<str>) {
        self.name = name.clone();
        let name = name.to_ascii_lowercase();
        self.data_parallel = name.starts_with("dp") || name.contains("data_parallel") || name.contains("data-parallel");
    }

    /// The name people know it by: what it does where it has none.
    pub(crate) fn said(&self) -> String {
        match self.used_for {
            _ if !self.name.is_empty() => self.name.to_string(),
            Some(used_for) => format!("comm {} ({})", self.id, used_for.as_str()),
            None => format!("comm {}", self.id),
        }
    }
}

/// Where a communicator lies; stays the same as long as the job is known.
pub(crate) type CommSlot = u32;

/// The communicators of a job.
#[derive(Debug, Default)]
pub(crate) struct Comms {
    slots: Vec<Comm>,
    index: BTreeMap<CommId, CommSlot>,
    /// By slot: what members are in, or have left, changed since the last look. Apart from the communicators, which are
    /// large and seldom at hand.
    is_changed: Vec<bool>,
    /// Those of which that is set.
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
        self.is_changed.push(false);
        self.index.insert(id, slot);
        Some(slot)
    }

    pub(crate) fn get(&self, id: &CommId) -> Option<&Comm> {
        self.slot(*id).map(|slot| &self.slots[slot as usize])
    }

    pub(super) fn at_mut(&mut self, slot: CommSlot) -> &mut Comm {
        &mut self.slots[slot as usize]
    }

    /// Notes what communicators are for.
    pub(crate) fn learn(&mut self, uses: &BTreeMap<CommId, Parallelism>) {
        for comm in &mut self.slots {
            comm.used_for = uses.get(&comm.id).copied();
        }
    }

    /// In ascending order of their ids.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Comm> {
        self.index.values().map(|slot| &self.slots[*slot as usize])
    }

    /// Notes that members of a communicator are not where they were.
    pub(super) fn touch(&mut self, slot: CommSlot) {
        if !std::mem::replace(&mut self.is_changed[slot as usize], true) {
            self.changed.push(slot);
        }
    }

    /// The communicators that changed since the last call, in no particular order.
    pub(super) fn take_changed(&mut self) -> Vec<CommId> {
        let slots = std::mem::take(&mut self.changed);
        let mut out = Vec::with_capacity(slots.len());
        for slot in slots {
            self.is_changed[slot as usize] = false;
            out.push(self.slots[slot as usize].id);
        }
        out
    }
}
