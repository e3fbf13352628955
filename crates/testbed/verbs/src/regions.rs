//! Registered memory: which bytes of this process a key names, and who may touch them.
use crate::qp::{Memory, Piece};
use std::collections::BTreeMap;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

/// What a region allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rights {
    /// This end's receives may fill it.
    pub(crate) local_write: bool,
    /// The other end may write it.
    pub(crate) remote_write: bool,
}

#[derive(Clone, Copy, Debug)]
struct Region {
    /// Where it is in this process.
    base: usize,
    bytes: usize,
    /// The address by which work names it.
    name: u64,
    rights: Rights,
}

impl Region {
    /// Where `piece` is in this process, where the region holds all of it.
    fn place(&self, piece: Piece) -> Option<*mut u8> {
        let offset = usize::try_from(piece.address.checked_sub(self.name)?).ok()?;
        let end = offset.checked_add(piece.bytes as usize)?;
        (end <= self.bytes).then(|| ptr::with_exposed_provenance_mut(self.base + offset))
    }
}

/// Keys begin here, so that a forgotten key (0) is none.
const FIRST_KEY: u32 = 0x100;

/// The regions of a device. A region that is taken away is not touched any more: who touches one holds the lock.
#[derive(Debug)]
pub(crate) struct Regions {
    table: RwLock<BTreeMap<u32, Region>>,
    next: AtomicU32,
}

impl Regions {
    pub(crate) fn new() -> Regions {
        Regions { table: RwLock::new(BTreeMap::new()), next: AtomicU32::new(FIRST_KEY) }
    }

    /// Takes a region in, and gives it a key.
    ///
    /// # Safety
    /// The bytes stay mapped, readable, and writable where `rights` say so, until [`Regions::remove`].
    pub(crate) unsafe fn add(&self, base: *mut u8, bytes: usize, name: u64, rights: Rights) -> u32 {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let region = Region { base: base.expose_provenance(), bytes, name, rights };
        self.table.write().unwrap_or_else(PoisonError::into_inner).insert(key, region);
        key
    }

    pub(crate) fn remove(&self, key: u32) {
        self.table.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// Runs `touch` on the piece's place if `allowed`, while nobody can take the region away.
    fn with(&self, piece: Piece, allowed: impl Fn(Rights) -> bool, touch: impl FnOnce(*mut u8)) -> bool {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let region = table.get(&piece.key).filter(|region| allowed(region.rights));
        region.and_then(|region| region.place(piece)).map(touch).is_some()
    }
}

/// Bytes at the end of what is written that are written in order: a program waits for the last word of a message.
const TAIL_BYTES: usize = 1024;

/// Copies to memory at which a program looks meanwhile: the last `TAIL_BYTES` word by word, in ascending order.
///
/// # Safety
/// `to` is writable for the length of `from`.
unsafe fn copy_in_order(from: &[u8], to: *mut u8) {
    let head = from.len().saturating_sub(TAIL_BYTES);
    // SAFETY: the caller's promise; `head` is at most the length.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, head) };
    std::sync::atomic::fence(Ordering::Release);
    let mut at = head;
    while at < from.len() {
        // SAFETY: at is below the length.
        let target = unsafe { to.add(at) };
        match from[at..].first_chunk::<8>() {
            Some(word) if target.addr().is_multiple_of(8) => {
                // SAFETY: eight bytes are left, and the place is aligned for them.
                unsafe { target.cast::<u64>().write_volatile(u64::from_ne_bytes(*word)) };
                at += 8;
            }
            _ => {
                // SAFETY: one byte is left.
                unsafe { target.write_volatile(from[at]) };
                at += 1;
            }
        }
    }
    std::sync::atomic::fence(Ordering::Release);
}

impl Memory for Regions {
    fn append(&self, piece: Piece, out: &mut Vec<u8>) -> bool {
        let bytes = piece.bytes as usize;
        out.reserve(bytes);
        self.with(
            piece,
            |_| true,
            |from| {
                // SAFETY: the region holds `bytes` from here, and stays while the lock is held; so much was reserved. The
                // program may change them meanwhile, as it may under a NIC: then it sends a mixture.
                unsafe {
                    ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(out.len()), bytes);
                    out.set_len(out.len() + bytes);
                }
            },
        )
    }

    fn fill(&self, piece: Piece, bytes: &[u8]) -> bool {
        let piece = Piece { bytes: bytes.len() as u32, ..piece };
        // SAFETY: the region holds the piece, and stays while the lock is held.
        self.with(piece, |rights| rights.local_write, |to| unsafe { copy_in_order(bytes, to) })
    }

    fn may_write(&self, piece: Piece) -> bool {
        self.with(piece, |rights| rights.remote_write, |_| {})
    }

    fn write(&self, piece: Piece, bytes: &[u8]) -> bool {
        let piece = Piece { bytes: bytes.len() as u32, ..piece };
        // SAFETY: as in `fill`.
        self.with(piece, |rights| rights.remote_write, |to| unsafe { copy_in_order(bytes, to) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_registered_is_touched() {
        let regions = Regions::new();
        let mut memory = [7u8; 100];
        let rights = Rights { local_write: true, remote_write: false };
        // SAFETY: the memory lives longer than the key.
        let key = unsafe { regions.add(memory.as_mut_ptr().wrapping_add(10), 80, 1000, rights) };
        let piece = |address, bytes| Piece { address, bytes, key };
        let mut out = vec![1];
        assert!(regions.append(piece(1000, 80), &mut out));
        assert_eq!(out.len(), 81);
        for wrong in [piece(999, 2), piece(1000, 81), piece(1080, 1), piece(u64::MAX, 2)] {
            assert!(!regions.append(wrong, &mut out), "{wrong:?}");
        }
        assert!(regions.fill(piece(1001, 3), &[1, 2, 3]));
        assert!(!regions.write(piece(1001, 3), &[9; 3]), "not for the other end");
        assert!(!regions.may_write(piece(1001, 3)));
        assert_eq!(memory[10..15], [7, 1, 2, 3, 7]);
        regions.remove(key);
        assert!(!regions.append(piece(1000, 1), &mut out));
    }

    #[test]
    fn odd_places_are_copied_whole() {
        for (bytes, offset) in [(0, 0), (1, 1), (8, 0), (63, 3), (1024, 0), (4096, 0), (4099, 5)] {
            let from: Vec<u8> = (0..bytes).map(|at| at as u8 | 1).collect();
            let mut to = vec![0u8; bytes + 16];
            // SAFETY: the target is longer than the source.
            unsafe { copy_in_order(&from, to.as_mut_ptr().add(offset)) };
            assert_eq!(to[offset..offset + bytes], from[..]);
            assert!(to[..offset].iter().chain(&to[offset + bytes..]).all(|byte| *byte == 0));
        }
    }
}
