//! References to table cells, and the counters that move inside them.
use crate::layout::{CELL_WORDS, dir, flow, op};
use crate::narrow::{low, low16};
use crate::sync::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

macro_rules! slot {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// 16 bits of index and 24 of generation; never 0 as bits. A reference that outlived its cell is recognised by its
        /// generation and does nothing. Valid only within the segment that gave it out.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name { index: u16, generation: u32 }
        impl $name {
            /// Bits that `to_bits` may set.
            pub const BITS: u32 = 16 + dir::GENERATION_BITS;
            #[inline]
            pub(crate) fn new(index: u64, generation: u64) -> $name {
                $name { index: low16(index), generation: low(generation) }
            }
            /// Cell in the table.
            #[inline]
            pub fn index(self) -> u16 { self.index }
            /// Generation of the cell.
            #[inline]
            pub fn generation(self) -> u32 { self.generation }
            /// As the low 40 bits of a word: generation above 16 bits of index.
            #[inline]
            pub fn to_bits(self) -> u64 { u64::from(self.generation) << 16 | u64::from(self.index) }
            /// From `to_bits`; higher bits are ignored. Any bits are safe: a reference to nothing does nothing.
            #[inline]
            pub fn from_bits(bits: u64) -> $name {
                $name { index: low16(bits), generation: low((bits >> 16) & dir::GENERATION_MASK) }
            }
        }
    };
}

slot!(
    /// A communicator in the table.
    CommSlot
);
slot!(
    /// An operation in flight.
    OpSlot
);
slot!(
    /// A flow in flight.
    FlowSlot
);

/// Adds to a counter that one thread writes: a load and a store, no locked instruction.
#[inline]
fn bump(word: &AtomicU64, by: u64) -> u64 {
    let value = word.load(Relaxed).wrapping_add(by);
    word.store(value, Relaxed);
    value
}

/// Keeps the first non-zero value.
#[inline]
fn keep_first(word: &AtomicU64, ticks: u64) {
    if word.load(Relaxed) == 0 {
        // Several threads may come first at once; whoever wins, the difference is theirs.
        let _ = word.compare_exchange(0, ticks, Relaxed, Relaxed);
    }
}

/// Keeps the largest value of one writing thread; two threads at once may leave the smaller of theirs.
#[inline]
fn keep_last(word: &AtomicU64, ticks: u64) {
    if word.load(Relaxed) < ticks {
        word.store(ticks, Relaxed);
    }
}

/// The moving part of an operation in flight. Counts may be bumped from several threads (a locked add each).
#[repr(transparent)]
pub struct OpCell([AtomicU64; CELL_WORDS]);

impl OpCell {
    pub(crate) fn words(&self) -> &[AtomicU64; CELL_WORDS] {
        &self.0
    }

    /// A channel's kernel started on the device: how many have now.
    #[inline]
    pub fn kernel_started(&self, at_ticks: u64) -> u64 {
        keep_first(&self.0[op::STARTED], at_ticks);
        keep_last(&self.0[op::STARTED_LAST], at_ticks);
        self.0[op::KERNELS_STARTED].fetch_add(1, Relaxed) + 1
    }

    /// A channel's kernel stopped: how many have now.
    #[inline]
    pub fn kernel_stopped(&self, at_ticks: u64) -> u64 {
        self.finished_at(at_ticks);
        self.0[op::KERNELS_STOPPED].fetch_add(1, Relaxed) + 1
    }

    /// A flow was appended: how many were.
    #[inline]
    pub fn flow_started(&self) -> u64 {
        self.0[op::FLOWS_STARTED].fetch_add(1, Relaxed) + 1
    }

    /// A flow completed: how many have now.
    #[inline]
    pub fn flow_done(&self, at_ticks: u64) -> u64 {
        self.finished_at(at_ticks);
        self.0[op::FLOWS_DONE].fetch_add(1, Relaxed) + 1
    }

    #[inline]
    fn finished_at(&self, at_ticks: u64) {
        keep_first(&self.0[op::ENDED_FIRST], at_ticks);
        keep_last(&self.0[op::ENDED_LAST], at_ticks);
    }

    /// Ticks when the first kernel started, 0 not yet.
    #[inline]
    pub fn started_ticks(&self) -> u64 {
        self.0[op::STARTED].load(Relaxed)
    }

    /// Kernels started.
    #[inline]
    pub fn kernels_started(&self) -> u64 {
        self.0[op::KERNELS_STARTED].load(Relaxed)
    }

    /// Kernels stopped.
    #[inline]
    pub fn kernels_stopped(&self) -> u64 {
        self.0[op::KERNELS_STOPPED].load(Relaxed)
    }

    /// Flows started.
    #[inline]
    pub fn flows_started(&self) -> u64 {
        self.0[op::FLOWS_STARTED].load(Relaxed)
    }

    /// Flows done.
    #[inline]
    pub fn flows_done(&self) -> u64 {
        self.0[op::FLOWS_DONE].load(Relaxed)
    }

    /// When the host enqueued it.
    #[inline]
    pub fn enqueued_ticks(&self) -> u64 {
        self.0[op::ENQUEUED].load(Relaxed)
    }
}

/// The moving part of a flow in flight. One thread (the proxy progress thread that runs the flow) writes it, with plain
/// stores.
#[repr(transparent)]
pub struct FlowCell([AtomicU64; CELL_WORDS]);

impl FlowCell {
    pub(crate) fn words(&self) -> &[AtomicU64; CELL_WORDS] {
        &self.0
    }

    /// A step was posted: how many have been now.
    #[inline]
    pub fn posted(&self, at_ticks: u64) -> u64 {
        keep_last(&self.0[flow::LAST_PROGRESS], at_ticks);
        bump(&self.0[flow::POSTED], 1)
    }

    /// A step became ready: how many have now.
    #[inline]
    pub fn ready(&self, at_ticks: u64) -> u64 {
        keep_first(&self.0[flow::FIRST_READY], at_ticks);
        keep_last(&self.0[flow::LAST_PROGRESS], at_ticks);
        bump(&self.0[flow::READY], 1)
    }

    /// A step was transmitted: how many have been now.
    #[inline]
    pub fn transmitted(&self, at_ticks: u64) -> u64 {
        keep_last(&self.0[flow::LAST_PROGRESS], at_ticks);
        bump(&self.0[flow::TRANSMITTED], 1)
    }

    /// A step is done: how many are now.
    #[inline]
    pub fn done(&self, at_ticks: u64) -> u64 {
        keep_last(&self.0[flow::LAST_PROGRESS], at_ticks);
        bump(&self.0[flow::DONE], 1)
    }

    /// Bytes moved.
    #[inline]
    pub fn add_bytes(&self, bytes: u64) {
        bump(&self.0[flow::BYTES], bytes);
    }

    /// A step left stage 0, 1 or 2 after `ticks` in it.
    #[inline]
    pub fn stage(&self, stage: usize, ticks: u64) {
        let stage = stage.min(2);
        bump(&self.0[flow::STAGE_TICKS + stage], ticks);
        keep_last(&self.0[flow::STAGE_MAX_TICKS + stage], ticks);
    }

    /// A poll found the peer without credit.
    #[inline]
    pub fn peer_wait_poll(&self) {
        bump(&self.0[flow::PEER_WAIT_POLLS], 1);
    }

    /// Steps posted.
    #[inline]
    pub fn posted_count(&self) -> u64 {
        self.0[flow::POSTED].load(Relaxed)
    }

    /// Steps ready.
    #[inline]
    pub fn ready_count(&self) -> u64 {
        self.0[flow::READY].load(Relaxed)
    }

    /// Steps transmitted.
    #[inline]
    pub fn transmitted_count(&self) -> u64 {
        self.0[flow::TRANSMITTED].load(Relaxed)
    }

    /// Steps done.
    #[inline]
    pub fn done_count(&self) -> u64 {
        self.0[flow::DONE].load(Relaxed)
    }

    /// Steps the flow will make.
    #[inline]
    pub fn total_chunks(&self) -> u32 {
        crate::raw::high(self.0[flow::PEER_TOTAL].load(Relaxed))
    }

    /// When the proxy operation was appended.
    #[inline]
    pub fn started_ticks(&self) -> u64 {
        self.0[flow::STARTED].load(Relaxed)
    }

    /// The operation it belongs to, where it was in the table.
    #[inline]
    pub fn op(&self) -> Option<OpSlot> {
        match self.0[flow::OP_SLOT].load(Relaxed) {
            0 => None,
            bits => Some(OpSlot::from_bits(bits)),
        }
    }
}
