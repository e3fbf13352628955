//! The part of a flow's curve that was not collected yet: chunks of epochs, by number, where bytes fell.
use crate::limits::CHUNK_EPOCHS;
use crate::pool::{ChunkId, Pool};
use alloc::boxed::Box;
use alloc::vec;

/// A place without a chunk.
const NONE: ChunkId = ChunkId::MAX;

/// Chunk `n` is at place `n` modulo the length. The caller keeps all numbers within one length.
pub(crate) struct Window(Box<[ChunkId]>);

impl Window {
    /// A window of so many chunks, none of which has memory.
    pub(crate) fn new(chunks: usize) -> Window {
        Window(vec![NONE; chunks.max(1)].into_boxed_slice())
    }

    /// The chunk of a number, with memory from the pool if it has none; nothing where the pool has none either.
    pub(crate) fn chunk(&mut self, number: u64, pool: &mut Pool) -> Option<ChunkId> {
        let place = self.place(number);
        let held = self.0.get_mut(place)?;
        if *held == NONE {
            *held = pool.take()?;
        }
        Some(*held)
    }

    /// Epochs with bytes in the chunks of a range of numbers: epoch and units, in order of time.
    pub(crate) fn epochs<'a>(&'a self, from: u64, to: u64, pool: &'a Pool) -> impl Iterator<Item = (u64, u16)> + 'a {
        let held = move |number| Some((number, *self.0.get(self.place(number))?)).filter(|(_, id)| *id != NONE);
        let chunks = (from..to.min(from.saturating_add(self.0.len() as u64))).filter_map(held);
        chunks.flat_map(move |(number, id)| {
            let epochs = (number * CHUNK_EPOCHS as u64..).zip(pool.epochs(id).iter().copied());
            epochs.filter(|(_, units)| *units != 0)
        })
    }

    /// Gives the chunks of a range of numbers back.
    pub(crate) fn clear(&mut self, from: u64, to: u64, pool: &mut Pool) {
        for number in from..to.min(from.saturating_add(self.0.len() as u64)) {
            let place = self.place(number);
            let held = self.0.get_mut(place).map(|held| core::mem::replace(held, NONE));
            if let Some(id) = held.filter(|id| *id != NONE) {
                pool.give(id);
            }
        }
    }

    /// Whether no chunk has memory.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|id| *id == NONE)
    }

    fn place(&self, number: u64) -> usize {
        usize::try_from(number % self.0.len() as u64).unwrap_or(0)
    }
}
