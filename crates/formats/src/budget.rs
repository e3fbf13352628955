//! How much memory reading a file may take: every growth is asked for here first.
use crate::fault::Fault;

/// Live bytes allowed per byte of input, results included.
pub(crate) const MEMORY_PER_BYTE: usize = 2;

/// Live bytes allowed beside that, so that small files fit: ten tables x 512 slots x 8 to 16 bytes = 40 to 80 KB for a
/// dump; 1,000 short lines of a stack x 88 bytes a frame = 88 KB for a text of 30 KB. Four times that: a table that
/// grows is there twice while it moves, and to be safe.
pub(crate) const MEMORY_FLOOR: usize = 512 << 10;

/// Longest input. Offsets are `u32`; a ring of a million entries (500 times the default) is about 240 MB.
pub(crate) const INPUT_BYTES_MAX: usize = 1 << 30;

/// What an allocator keeps beside each piece of memory, and rounds up to, at most (glibc: 8 bytes and multiples of 16, at
/// least 32; mimalloc: size classes an eighth apart).
pub(crate) const ALLOCATION_BYTES: usize = 32;

/// Upper bound of what an entry of a map or a shared string costs beside its content: two counters of an `Arc` (16), an
/// allocation (32), and a slot of up to 24 bytes of a node that is half full (48).
pub(crate) const NODE_BYTES: usize = 96;

/// A length or position as the number that points into a table. Tables hold at most twice an input of a GiB, in values of a
/// byte or more, so all of them fit.
#[inline]
pub(crate) fn number_of(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// Slots that a table starts with.
const FIRST_SLOTS: usize = 8;

/// Counts the memory that a reader holds and refuses what is beyond its share.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Input length.
    total: usize,
    /// How far the reader is: says how much a table will still grow.
    pub(crate) at: usize,
    live: usize,
    limit: usize,
}

impl Budget {
    /// The share of an input of `total` bytes.
    pub(crate) fn new(total: usize) -> Budget {
        Budget { total, at: 0, live: 0, limit: total.saturating_mul(MEMORY_PER_BYTE).saturating_add(MEMORY_FLOOR) }
    }

    /// Asks for `bytes` more.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), Fault> {
        let live = self.live.saturating_add(bytes);
        if live > self.limit {
            return Err(Fault::new(
                self.at,
                format!(
                    "reading on would take more than {} bytes of memory for {} bytes of input: no dump is that dense",
                    self.limit, self.total
                ),
            ));
        }
        self.live = live;
        Ok(())
    }

    /// Asks for the memory of a list of `count` values.
    pub(crate) fn charge_list<T>(&mut self, count: usize) -> Result<(), Fault> {
        if count == 0 {
            return Ok(());
        }
        self.charge(count.saturating_mul(size_of::<T>()).saturating_add(ALLOCATION_BYTES))
    }

    /// Gives `bytes` back.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.live = self.live.saturating_sub(bytes);
    }

    /// Makes room for `more` values in `vec`: as many as it will probably hold at the end, if that is affordable.
    pub(crate) fn room<T>(&mut self, vec: &mut Vec<T>, more: usize) -> Result<(), Fault> {
        if vec.capacity() - vec.len() >= more {
            return Ok(());
        }
        self.grow(vec, more)
    }

    /// Appends one value.
    #[inline]
    pub(crate) fn push<T>(&mut self, vec: &mut Vec<T>, value: T) -> Result<(), Fault> {
        if vec.len() == vec.capacity() {
            self.grow(vec, 1)?;
        }
        vec.push(value);
        Ok(())
    }

    /// Empties `vec` into a vector that takes no more than it needs; `vec` keeps its memory for the next use.
    pub(crate) fn exact<T>(&mut self, vec: &mut Vec<T>) -> Result<Vec<T>, Fault> {
        if vec.is_empty() {
            return Ok(Vec::new());
        }
        self.charge_list::<T>(vec.len())?;
        let mut exact = Vec::with_capacity(vec.len());
        exact.append(vec);
        Ok(exact)
    }

    #[cold]
    fn grow<T>(&mut self, vec: &mut Vec<T>, more: usize) -> Result<(), Fault> {
        let want = vec.len().saturating_add(more);
        // What is read so far tells what is to come; a sixteenth more, so that the estimate mostly suffices.
        let expected = want as u128 * self.total as u128 / self.at.max(1) as u128;
        let expected = usize::try_from(expected).unwrap_or(usize::MAX);
        let slots = expected.saturating_add(expected / 16).clamp(want + want / 8 + FIRST_SLOTS, want * 2 + FIRST_SLOTS);
        let old = vec.capacity();
        // While the values move, the old memory is held beside the new.
        let slots = match self.charge_list::<T>(slots) {
            Ok(()) => slots,
            Err(_) => {
                self.charge_list::<T>(want)?;
                want
            }
        };
        vec.reserve_exact(slots - vec.len());
        if old > 0 {
            self.release(old * size_of::<T>() + ALLOCATION_BYTES);
        }
        Ok(())
    }
}
