//! The communicators of this process: contexts, order counters, and what is kept per channel.
use crate::events::{CommInfo, CommTag};
use crate::handle::{DROP_HANDLE, GENERATION_MASK, Handle, HandleKind, first_generation, next_generation};
use crate::runtime::Runtime;
use mycroft_record::{CommId, CommRank};
use mycroft_ring::limits::may_map;
use mycroft_ring::pages::{Backing, Slab, Zeroed, leak};
use mycroft_ring::{CommBegin, CommSlot, DropKind, Errno, RawCommBegin, RawCommEnd, RawRecord, Text, now_ticks};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Channels of a communicator: NCCL's MAXCHANNELS.
pub(crate) const MAX_CHANNELS: usize = 64;
/// Operations that may wait unobserved (no flow, no kernel event) before the oldest is given up: 64 is more than any
/// host thread enqueues between two looks of the proxy at its queue.
const UNOBSERVED_WINDOW: u64 = 64;
/// Peers counted for where neither the interface nor the launcher tells the size (v1 to v3): 4096 x 2 x 8 B = 64 KiB.
const UNTOLD_PEERS: u32 = 4096;
/// Most peers counted for: 2^20 x 2 x 8 B = 16 MiB for one communicator, beyond the largest known job.
const MAX_PEERS: u32 = 1 << 20;
/// Counters up to this size are made without a look at the job's limits: 64 Ki peers.
const LOOKED_AT_BYTES: usize = 1 << 20;
/// Longest communicator name read where it comes without a length, bytes.
const MAX_NAME_BYTES: usize = 128;

/// Not introduced to the segment yet (v1 to v3 before the first event).
const UNKNOWN: u32 = 0;
/// A thread is introducing it.
const INTRODUCING: u32 = 1;
/// In the segment.
const KNOWN: u32 = 2;

/// What a communicator needs beside its place; kept for the next one in the same place.
struct Room {
    /// Two counters for each peer: sends, receives.
    p2p: Slab<AtomicU64>,
    /// Handles of the last operations without kernel events.
    unobserved: [AtomicU64; UNOBSERVED_WINDOW as usize],
    /// The latest collective's kernel on each channel.
    kernels: [AtomicU64; MAX_CHANNELS],
}

/// One communicator.
pub(crate) struct Comm {
    /// Its context; 0 when the place is free, `DROP_HANDLE` while it is being taken.
    handle: AtomicU64,
    generation: AtomicU32,
    known: AtomicU32,
    /// `CommSlot` bits plus one, 0 when the segment had no room.
    slot: AtomicU64,
    id: AtomicU64,
    rank: AtomicU32,
    n_ranks: AtomicU32,
    next_coll: AtomicU64,
    /// Operations of all kinds that began to wait unobserved.
    waited: AtomicU64,
    /// An operation of it has had a flow.
    has_flows: AtomicBool,
    room: AtomicPtr<Room>,
}

// SAFETY: integers, and a pointer that may be NULL.
unsafe impl Zeroed for Comm {}

/// All communicators. Places are given out in `init` and taken back in `finalize` only.
pub(crate) struct CommTable {
    comms: Slab<Comm>,
    alive: AtomicU32,
    untold_peers: u32,
}

impl CommTable {
    pub(crate) fn new(count: u32, nonce: u32, world_size: u32) -> Result<CommTable, Errno> {
        let comms = Slab::<Comm>::new(count as usize, Backing::Now)?;
        for (comm, slot) in comms.iter().zip(0u32..) {
            comm.generation.store(first_generation(nonce, !slot), Ordering::Relaxed);
        }
        Ok(CommTable { comms, alive: AtomicU32::new(0), untold_peers: world_size.max(UNTOLD_PEERS) })
    }

    /// Whether every communicator was finalized.
    pub(crate) fn none_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire) == 0
    }

    /// The communicator at a place.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> Option<&Comm> {
        self.comms.get(index as usize)
    }

    #[inline]
    fn get(&self, raw: u64) -> Option<(u32, &Comm)> {
        let handle = Handle::decode(raw)?;
        let comm = self.comms.get(handle.slot as usize)?;
        (handle.kind == HandleKind::Comm && comm.handle.load(Ordering::Acquire) == raw).then_some((handle.slot, comm))
    }
}

impl Room {
    /// Room for so many peers, in pages that are taken when a peer is first met; `None` where the job has not enough.
    fn new(peers: usize) -> Option<&'static Room> {
        let bytes = peers.checked_mul(2 * size_of::<AtomicU64>())?;
        if bytes > LOOKED_AT_BYTES && !may_map(bytes) {
            return None;
        }
        leak(Room {
            p2p: Slab::new(peers * 2, Backing::WhenTouched).ok()?,
            unobserved: [const { AtomicU64::new(0) }; UNOBSERVED_WINDOW as usize],
            kernels: [const { AtomicU64::new(0) }; MAX_CHANNELS],
        })
    }

    fn clear(&self) {
        for word in self.p2p.iter().chain(&self.unobserved).chain(&self.kernels) {
            // What was never written must not be touched now.
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl Comm {
    fn room(&self) -> Option<&Room> {
        // SAFETY: null or a leaked room, which is never freed: a progress thread may hold it after the finalize.
        unsafe { self.room.load(Ordering::Acquire).as_ref() }
    }

    /// Room for `peers`, cleared; false where there is no memory for it. A larger one replaces a smaller one, which stays
    /// (doubling bounds that).
    fn make_room(&self, peers: u32) -> bool {
        let peers = peers.next_power_of_two() as usize;
        match self.room() {
            Some(room) if room.p2p.len() >= peers * 2 => room.clear(),
            _ => {
                let Some(room) = Room::new(peers) else { return false };
                self.room.store(std::ptr::from_ref(room).cast_mut(), Ordering::Release);
            }
        }
        true
    }

    pub(crate) fn id(&self) -> CommId {
        CommId(self.id.load(Ordering::Relaxed))
    }

    pub(crate) fn rank(&self) -> CommRank {
        CommRank(self.rank.load(Ordering::Relaxed))
    }

    pub(crate) fn slot(&self) -> Option<CommSlot> {
        self.slot.load(Ordering::Relaxed).checked_sub(1).map(CommSlot::from_bits)
    }

    /// Order number of the next collective.
    #[inline]
    pub(crate) fn next_coll(&self) -> u64 {
        self.next_coll.fetch_add(1, Ordering::Relaxed)
    }

    /// Order number of the next send to (or receive from) `peer`; `None` for a peer that cannot be.
    #[inline]
    pub(crate) fn next_p2p(&self, peer: u32, is_send: bool) -> Option<u64> {
        let counter = self.room()?.p2p.get(peer as usize * 2 + usize::from(!is_send))?;
        Some(counter.fetch_add(1, Ordering::Relaxed))
    }

    /// Remembers an operation that kernel events will not finish; gives the one that has waited a whole window.
    #[inline]
    pub(crate) fn wait_unobserved(&self, handle: u64) -> Option<u64> {
        // Counted here: an operation's own number counts its kind and peer only, and would take another's place.
        let place = self.waited.fetch_add(1, Ordering::Relaxed) % UNOBSERVED_WINDOW;
        let old = self.room()?.unobserved[place as usize].swap(handle, Ordering::AcqRel);
        (old != 0).then_some(old)
    }

    /// Looks at all operations that wait to be seen.
    pub(crate) fn each_waiting(&self, look: impl FnMut(u64)) {
        let waiting = self.room().into_iter().flat_map(|room| &room.unobserved);
        waiting.map(|handle| handle.load(Ordering::Acquire)).filter(|handle| *handle != 0).for_each(look);
    }

    /// An operation of it has a flow.
    #[inline]
    pub(crate) fn shows_flows(&self) {
        if !self.has_flows.load(Ordering::Relaxed) {
            self.has_flows.store(true, Ordering::Relaxed);
        }
    }

    /// It has shown no flow in a whole window of operations: it lies inside a host.
    pub(crate) fn is_silent(&self) -> bool {
        !self.has_flows.load(Ordering::Relaxed) && self.waited.load(Ordering::Relaxed) > UNOBSERVED_WINDOW
    }

    /// Its window may still hold operations from before it was known to be silent.
    pub(crate) fn was_not_silent_long(&self) -> bool {
        self.waited.load(Ordering::Relaxed) <= 2 * UNOBSERVED_WINDOW
    }

    /// Remembers a collective's kernel on a channel; gives the one before it.
    #[inline]
    pub(crate) fn swap_kernel(&self, channel: u8, kernel: u64) -> Option<u64> {
        let old = self.room()?.kernels.get(usize::from(channel))?.swap(kernel, Ordering::AcqRel);
        (old != 0 && old != kernel).then_some(old)
    }
}

impl Runtime {
    /// A communicator was made: its context, never NULL. May map memory; NCCL is initialising.
    pub fn comm_begin(&self, info: &CommInfo<'_>) -> u64 {
        let table = &self.comms;
        let peers = if info.n_ranks == 0 { table.untold_peers } else { info.n_ranks }.clamp(1, MAX_PEERS);
        // DROP_HANDLE names nothing, so a place that is being taken is nobody's.
        let is_taken = |comm: &Comm| {
            let free = comm.handle.load(Ordering::Relaxed) == 0;
            free && comm.handle.compare_exchange(0, DROP_HANDLE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let Some((comm, slot)) = table.comms.iter().zip(0u32..).find(|(comm, _)| is_taken(comm)) else {
            self.writer().count_drop(DropKind::Comm);
            return DROP_HANDLE;
        };
        if !comm.make_room(peers) {
            comm.handle.store(0, Ordering::Release);
            self.writer().count_drop(DropKind::Comm);
            return DROP_HANDLE;
        }
        let generation = next_generation(comm.generation.load(Ordering::Relaxed));
        comm.generation.store(generation, Ordering::Relaxed);
        let handle = Handle { kind: HandleKind::Comm, generation: generation & GENERATION_MASK, slot };
        comm.next_coll.store(0, Ordering::Relaxed);
        comm.waited.store(0, Ordering::Relaxed);
        comm.has_flows.store(false, Ordering::Relaxed);
        comm.slot.store(0, Ordering::Relaxed);
        comm.n_ranks.store(info.n_ranks, Ordering::Relaxed);
        match info.id {
            Some(id) => {
                comm.id.store(id, Ordering::Relaxed);
                comm.rank.store(info.rank.unwrap_or(0), Ordering::Relaxed);
                self.announce(comm, info.name, info.n_nodes);
                comm.known.store(KNOWN, Ordering::Release);
            }
            None => comm.known.store(UNKNOWN, Ordering::Release),
        }
        table.alive.fetch_add(1, Ordering::AcqRel);
        comm.handle.store(handle.encode(), Ordering::Release);
        handle.encode()
    }

    /// Puts a communicator into the segment's table and ring.
    fn announce(&self, comm: &Comm, name: &str, n_nodes: u32) {
        let at_ticks = now_ticks();
        let (id, rank, n_ranks) = (comm.id(), comm.rank(), comm.n_ranks.load(Ordering::Relaxed));
        let begin = CommBegin { at_ticks, comm: id.0, n_ranks, n_nodes, comm_rank: rank.0, name };
        let slot = self.writer().comm_begin(&begin);
        comm.slot.store(slot.map_or(0, |slot| slot.to_bits() + 1), Ordering::Relaxed);
        let record = RawCommBegin { at_ticks, comm: id, n_ranks, n_nodes, comm_rank: rank, name: Text::new(name) };
        self.push(&RawRecord::CommBegin(record));
    }

    /// The communicator of a context. v1 to v3 tell who it is with its first event: `tag` says.
    #[inline]
    pub(crate) fn comm(&self, context: u64, tag: &CommTag) -> Option<(u32, &Comm)> {
        let (index, comm) = self.comms.get(context)?;
        if comm.known.load(Ordering::Acquire) != KNOWN {
            self.introduce(comm, tag);
        }
        Some((index, comm))
    }

    /// The communicator of a context whose `init` told who it is.
    pub(crate) fn comm_told(&self, context: u64) -> Option<&Comm> {
        let (_, comm) = self.comms.get(context)?;
        (comm.known.load(Ordering::Acquire) == KNOWN).then_some(comm)
    }

    #[cold]
    fn introduce(&self, comm: &Comm, tag: &CommTag) {
        let first = comm.known.compare_exchange(UNKNOWN, INTRODUCING, Ordering::AcqRel, Ordering::Acquire).is_ok();
        // The name and number are the communicator's; whoever comes second meanwhile writes the same.
        comm.id.store(tag.hash, Ordering::Relaxed);
        comm.rank.store(u32::try_from(tag.rank).unwrap_or(0), Ordering::Relaxed);
        if !first {
            return;
        }
        // SAFETY: NULL or a C string that its communicator, which is in use right now, owns; at most MAX_NAME_BYTES of it
        // are read.
        let length = if tag.name.is_null() { 0 } else { unsafe { libc::strnlen(tag.name, MAX_NAME_BYTES) } };
        // SAFETY: strnlen has read these bytes. A NULL name has length 0 and is not dereferenced.
        let bytes = if length == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(tag.name.cast(), length) } };
        self.announce(comm, std::str::from_utf8(bytes).unwrap_or(""), 0);
        comm.known.store(KNOWN, Ordering::Release);
    }

    /// A communicator is freed: what it still had in flight ends here, unobserved. Its context is dead from now on, but
    /// nothing is freed, since NCCL's threads may still use it.
    pub fn comm_end(&self, context: u64) {
        let Some((index, comm)) = self.comms.get(context) else { return };
        // The place is not free before everything of it is over, so it is marked first and freed last.
        let over = Handle::decode(context).map_or(1, |handle| Handle { kind: HandleKind::Drop, ..handle }.encode());
        if comm.handle.compare_exchange(context, over, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return;
        }
        self.flows_retire_comm(index);
        self.ops_retire_comm(index);
        let at_ticks = now_ticks();
        if let Some(slot) = comm.slot() {
            self.writer().comm_end(slot, at_ticks);
        }
        if comm.known.load(Ordering::Acquire) == KNOWN {
            self.push(&RawRecord::CommEnd(RawCommEnd { at_ticks, comm: comm.id() }));
        }
        self.comms.alive.fetch_sub(1, Ordering::AcqRel);
        comm.handle.store(0, Ordering::Release);
    }
}
