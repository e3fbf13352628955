//! Calls of NCCL's API, where a kind of operation may get no event of its own: `Broadcast` in NCCL 2.29 and 2.30
//! (`mycroft_record::nccl`).
//!
//! Interface 5 and later tell of each call, below an event of its group (`ncclGroupStart` to `ncclGroupEnd`; a single call is
//! a group too), on the thread that calls. The operation's event names its call as its parent and comes before the group
//! ends, so a call of such a kind that has none by then is recorded there: issued, its end not observed. Operations take
//! their order numbers at the call, since that order is the same on all ranks: NCCL may launch a group on another thread, or
//! hand its host part to the stream, and the event then comes later. An operation whose call was recorded is not recorded
//! again, and from the first operation on that is seen of a kind, calls of that kind are left to their operations.
use crate::events::CallStart;
use crate::handle::{Handle, HandleKind, first_generation, next_generation};
use mycroft_record::{Datatype, OpKind};
use mycroft_ring::Errno;
use mycroft_ring::pages::{Backing, Slab, Zeroed};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Calls and groups remembered, reused in turn: a group of 4095 calls fits, and each takes 64 B, so 256 KiB at most.
const CALLS: usize = 1 << 12;

/// No operation came yet.
const OPEN: u64 = 0;
/// Its operation came.
const SHOWN: u64 = 1;
/// It was recorded without one.
const TOLD: u64 = 2;

/// What an operation's parent says of it.
pub(crate) enum Called {
    /// Nothing: it is no call that is remembered.
    Unknown,
    /// The operation has this order number.
    Number(u64),
    /// The operation was recorded with its call.
    Recorded,
}

/// A call, or a group of calls. One thread makes a group's calls, so that its list needs no care.
#[repr(align(64))]
struct Call {
    handle: AtomicU64,
    /// `OPEN`, `SHOWN` or `TOLD`; of a group: its newest call.
    state: AtomicU64,
    /// The next call of the group; of a group: its first.
    next: AtomicU64,
    context: AtomicU64,
    /// Its order number.
    seq: AtomicU64,
    count: AtomicU64,
    /// Ticks.
    begun: AtomicU64,
    /// Low half: root; above: kind, type of elements, 1 for a group.
    shape: AtomicU64,
}

// SAFETY: integers only.
unsafe impl Zeroed for Call {}

const GROUP: u64 = 1 << 48;

/// The calls of this process.
pub(crate) struct CallTable {
    calls: Slab<Call>,
    next: AtomicUsize,
    nonce: u32,
    /// Calls are to be remembered: there are kinds that may stay without an operation.
    counts: AtomicBool,
    /// A bit for each kind, by its code, of which no operation was seen and none may come.
    hidden: AtomicU64,
}

fn bit(kind: OpKind) -> u64 {
    1 << (u32::from(kind.code()) % u64::BITS)
}

/// A call as it was told.
pub(crate) struct Told {
    pub(crate) context: u64,
    pub(crate) seq: u64,
    /// Ticks.
    pub(crate) begun: u64,
    pub(crate) start: CallStart,
}

impl Call {
    fn kind(&self) -> OpKind {
        OpKind::from_code((self.shape.load(Relaxed) >> 32) as u8)
    }

    fn told(&self) -> Told {
        let shape = self.shape.load(Relaxed);
        let start = CallStart {
            kind: self.kind(),
            count: self.count.load(Relaxed),
            datatype: Datatype::from_code((shape >> 40) as u8),
            root: shape as u32 as i32,
            is_captured: false,
        };
        let (context, seq, begun) = (self.context.load(Relaxed), self.seq.load(Relaxed), self.begun.load(Relaxed));
        Told { context, seq, begun, start }
    }
}

impl CallTable {
    pub(crate) fn new(nonce: u32) -> Result<CallTable, Errno> {
        let calls = Slab::new(CALLS, Backing::WhenTouched)?;
        let (counts, hidden) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(CallTable { calls, next: AtomicUsize::new(0), nonce, counts, hidden })
    }

    /// Calls of this kind may stay without an operation.
    pub(crate) fn hide(&self, kind: OpKind) {
        self.hidden.fetch_or(bit(kind), Relaxed);
        self.counts.store(true, Relaxed);
    }

    fn get(&self, raw: u64) -> Option<&Call> {
        let handle = Handle::decode(raw).filter(|handle| handle.kind == HandleKind::Call)?;
        let call = self.calls.get(handle.slot as usize)?;
        (call.handle.load(Acquire) == raw).then_some(call)
    }

    /// A place for a call that nobody has a handle of yet.
    fn take(&self) -> (u64, &Call) {
        let slot = self.next.fetch_add(1, Relaxed) % CALLS;
        let call = &self.calls[slot];
        let before = Handle::decode(call.handle.swap(0, AcqRel));
        let first = || first_generation(self.nonce, slot as u32);
        let generation = before.map_or_else(first, |handle| next_generation(handle.generation));
        (Handle { kind: HandleKind::Call, generation, slot: slot as u32 }.encode(), call)
    }

    /// Whether calls are remembered.
    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.counts.load(Relaxed)
    }

    /// A group of calls begins: its handle.
    #[inline]
    pub(crate) fn begin_group(&self) -> u64 {
        let (handle, group) = self.take();
        group.state.store(0, Relaxed);
        group.next.store(0, Relaxed);
        group.shape.store(GROUP, Relaxed);
        group.handle.store(handle, Release);
        handle
    }

    fn group(&self, raw: u64) -> Option<&Call> {
        self.get(raw).filter(|call| call.shape.load(Relaxed) & GROUP != 0)
    }

    /// A collective was called inside a group, as number `seq` of its communicator: the call's handle; `None` where the
    /// group is not known.
    #[inline]
    pub(crate) fn begin(&self, group: u64, call: &Told) -> Option<u64> {
        let list = self.group(group)?;
        let (handle, place) = self.take();
        place.state.store(OPEN, Relaxed);
        place.next.store(0, Relaxed);
        place.context.store(call.context, Relaxed);
        place.seq.store(call.seq, Relaxed);
        place.count.store(call.start.count, Relaxed);
        place.begun.store(call.begun, Relaxed);
        let codes = u64::from(call.start.kind.code()) << 32 | u64::from(call.start.datatype.code()) << 40;
        place.shape.store(u64::from(call.start.root as u32) | codes, Relaxed);
        place.handle.store(handle, Release);
        let newest = list.state.swap(handle, Relaxed);
        match self.get(newest) {
            Some(before) => before.next.store(handle, Relaxed),
            None => list.next.store(handle, Relaxed),
        }
        Some(handle)
    }

    /// An operation begins whose event names `parent`.
    #[inline]
    pub(crate) fn called(&self, parent: u64) -> Called {
        let Some(call) = self.get(parent) else { return Called::Unknown };
        let hidden = bit(call.kind());
        if self.hidden.load(Relaxed) & hidden != 0 {
            self.hidden.fetch_and(!hidden, Relaxed);
        }
        match call.state.compare_exchange(OPEN, SHOWN, AcqRel, Acquire) {
            Err(TOLD) => Called::Recorded,
            _ => Called::Number(call.seq.load(Relaxed)),
        }
    }

    /// A group ended: gives those of its calls that are to be recorded. False where some of its calls are not known any
    /// more.
    pub(crate) fn end_group(&self, raw: u64, mut tell: impl FnMut(&Told)) -> bool {
        let Some(group) = self.group(raw) else { return true };
        let mut next = group.next.swap(0, Relaxed);
        while next != 0 {
            let Some(call) = self.get(next) else { return false };
            let is_hidden = self.hidden.load(Relaxed) & bit(call.kind()) != 0;
            if is_hidden && call.state.compare_exchange(OPEN, TOLD, AcqRel, Acquire).is_ok() {
                tell(&call.told());
            }
            next = call.next.load(Relaxed);
        }
        true
    }
}
