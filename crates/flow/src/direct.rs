//! Flows by queue pair number: a direct-address table over 24 bits, in pages that are made when first used (Pulse, section
//! 4.2: 16 M entries of 4 bytes; a queue pair that was never seen costs nothing here).
use crate::limits::{PAGE_ENTRIES, QUEUE_PAIRS};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A page: flow numbers plus one, 0 where there is none.
struct Page {
    flows: Box<[u32; PAGE_ENTRIES]>,
    used: u32,
}

/// The table.
pub(crate) struct Direct {
    pages: Box<[Option<Page>]>,
}

impl Direct {
    /// A table without pages.
    pub(crate) fn new() -> Direct {
        let pages: Vec<Option<Page>> = core::iter::repeat_with(|| None).take(QUEUE_PAIRS / PAGE_ENTRIES).collect();
        Direct { pages: pages.into_boxed_slice() }
    }

    /// The flow of a queue pair.
    pub(crate) fn get(&self, queue_pair: u32) -> Option<u32> {
        let (page, entry) = place(queue_pair);
        self.pages.get(page)?.as_ref()?.flows.get(entry)?.checked_sub(1)
    }

    /// Sets the flow of a queue pair that has none; numbers beyond 24 bits have no place.
    pub(crate) fn set(&mut self, queue_pair: u32, flow: u32) {
        let (page, entry) = place(queue_pair);
        let Some(slot) = self.pages.get_mut(page) else { return };
        let page = slot.get_or_insert_with(|| Page { flows: Box::new([0; PAGE_ENTRIES]), used: 0 });
        if let Some(known) = page.flows.get_mut(entry) {
            page.used += u32::from(*known == 0);
            *known = flow + 1;
        }
    }

    /// Forgets a queue pair; a page without any goes.
    pub(crate) fn remove(&mut self, queue_pair: u32) {
        let (page, entry) = place(queue_pair);
        let Some(slot) = self.pages.get_mut(page) else { return };
        let Some(held) = slot else { return };
        if let Some(known) = held.flows.get_mut(entry) {
            held.used -= u32::from(*known != 0);
            *known = 0;
        }
        if held.used == 0 {
            *slot = None;
        }
    }

    /// Bytes that the table holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pages = self.pages.iter().filter(|page| page.is_some()).count();
        pages * PAGE_ENTRIES * 4 + self.pages.len() * size_of::<Option<Page>>()
    }
}

fn place(queue_pair: u32) -> (usize, usize) {
    (queue_pair as usize / PAGE_ENTRIES, queue_pair as usize % PAGE_ENTRIES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_come_and_go_with_their_queue_pairs() {
        let mut table = Direct::new();
        let bare = table.memory_bytes();
        assert_eq!(table.get(0xff_ffff), None);
        table.set(0xff_ffff, 0);
        table.set(5, 7);
        assert_eq!((table.get(0xff_ffff), table.get(5), table.get(4)), (Some(0), Some(7), None));
        assert_eq!(table.memory_bytes(), bare + 2 * PAGE_ENTRIES * 4);
        table.remove(5);
        table.remove(5);
        assert_eq!((table.get(5), table.memory_bytes()), (None, bare + PAGE_ENTRIES * 4));
        table.set(1 << 24, 1);
        assert_eq!(table.get(1 << 24), None, "24 bits");
    }
}
