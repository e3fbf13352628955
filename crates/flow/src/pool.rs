//! The pool of epochs: memory in batches, given to flows in chunks and taken back (Pulse, section 4.2, "epoch pool").
use crate::limits::{BATCH_CHUNKS, CHUNK_EPOCHS};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// A chunk of the pool: batch times [`BATCH_CHUNKS`] and place in it.
pub(crate) type ChunkId = u32;

/// [`BATCH_CHUNKS`], as a place in a batch is a byte.
const BATCH: u32 = 1 << u8::BITS;
const _: () = assert!(BATCH_CHUNKS == BATCH as usize);

/// Units in each epoch of a chunk.
pub(crate) type Epochs = [u16];

/// One allocation.
struct Batch {
    /// Empty while nobody uses it.
    epochs: Box<[u16]>,
    /// Places that nobody has.
    free: Vec<u8>,
}

/// Chunks, in batches.
pub(crate) struct Pool {
    batches: Vec<Batch>,
    /// Batches that hold memory and have a free place: the lowest is used first, so that the others become empty.
    open: BTreeSet<u32>,
    /// Batches without memory.
    empty: BTreeSet<u32>,
    used: usize,
    chunks_max: usize,
}

impl Pool {
    /// A pool that gives out at most so many chunks.
    pub(crate) fn new(chunks_max: usize) -> Pool {
        let chunks_max = chunks_max.min(1 << 31);
        Pool { batches: Vec::new(), open: BTreeSet::new(), empty: BTreeSet::new(), used: 0, chunks_max }
    }

    /// A chunk of zeros, unless all are given out.
    pub(crate) fn take(&mut self) -> Option<ChunkId> {
        if self.used >= self.chunks_max {
            return None;
        }
        let number = match self.open.first() {
            Some(&number) => number,
            None => self.batch()?,
        };
        let batch = self.batches.get_mut(number as usize)?;
        let place = batch.free.pop()?;
        if batch.free.is_empty() {
            self.open.remove(&number);
        }
        self.used += 1;
        let id = number * BATCH + u32::from(place);
        self.epochs_mut(id).fill(0);
        Some(id)
    }

    /// Memory for one more batch.
    fn batch(&mut self) -> Option<u32> {
        let number = match self.empty.pop_first() {
            Some(number) => number,
            None => {
                self.batches.push(Batch { epochs: Box::default(), free: Vec::new() });
                u32::try_from(self.batches.len() - 1).ok()?
            }
        };
        let batch = self.batches.get_mut(number as usize)?;
        batch.epochs = vec![0; BATCH_CHUNKS * CHUNK_EPOCHS].into_boxed_slice();
        batch.free = (0..=u8::MAX).rev().collect();
        self.open.insert(number);
        Some(number)
    }

    /// Takes a chunk back.
    pub(crate) fn give(&mut self, id: ChunkId) {
        let number = id / BATCH;
        if let (Some(batch), Ok(place)) = (self.batches.get_mut(number as usize), u8::try_from(id % BATCH)) {
            debug_assert!(!batch.free.contains(&place), "a chunk is given back once");
            batch.free.push(place);
            self.open.insert(number);
            self.used -= 1;
        }
    }

    /// Gives the memory of batches that nobody uses back to the allocator.
    pub(crate) fn shrink(&mut self) {
        let idle = |number: &u32| self.batches.get(*number as usize).is_some_and(|b| b.free.len() == BATCH_CHUNKS);
        let idle: Vec<u32> = self.open.iter().copied().filter(idle).collect();
        for number in idle {
            self.open.remove(&number);
            self.empty.insert(number);
            if let Some(batch) = self.batches.get_mut(number as usize) {
                *batch = Batch { epochs: Box::default(), free: Vec::new() };
            }
        }
    }

    /// The epochs of a chunk.
    pub(crate) fn epochs(&self, id: ChunkId) -> &Epochs {
        let (batch, from) = Pool::place(id);
        self.batches.get(batch).and_then(|batch| batch.epochs.get(from..from + CHUNK_EPOCHS)).unwrap_or(&[])
    }

    /// The epochs of a chunk, to be written.
    pub(crate) fn epochs_mut(&mut self, id: ChunkId) -> &mut Epochs {
        let (batch, from) = Pool::place(id);
        let epochs = self.batches.get_mut(batch).map(|batch| &mut *batch.epochs);
        epochs.and_then(|epochs| epochs.get_mut(from..from + CHUNK_EPOCHS)).unwrap_or(&mut [])
    }

    fn place(id: ChunkId) -> (usize, usize) {
        (id as usize / BATCH_CHUNKS, id as usize % BATCH_CHUNKS * CHUNK_EPOCHS)
    }

    /// Bytes that the pool holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        let held = self.batches.iter().map(|batch| batch.epochs.len() * 2 + batch.free.capacity());
        held.sum::<usize>() + self.batches.capacity() * size_of::<Batch>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_in_batches_and_goes_back() {
        let mut pool = Pool::new(BATCH_CHUNKS + 2);
        let ids: Vec<ChunkId> = core::iter::from_fn(|| pool.take()).collect();
        assert_eq!(ids.len(), BATCH_CHUNKS + 2, "no more than the limit");
        let full = pool.memory_bytes();
        assert!(full >= 2 * BATCH_CHUNKS * CHUNK_EPOCHS * 2);
        pool.epochs_mut(ids[0])[7] = 9;
        for id in &ids[..BATCH_CHUNKS] {
            pool.give(*id);
        }
        pool.shrink();
        assert!(pool.memory_bytes() < full, "one batch went back");
        let again = pool.take().expect("a free place");
        assert!(pool.epochs(again).iter().all(|units| *units == 0), "a chunk begins with zeros");
    }
}
