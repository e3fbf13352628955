//! Event handles: numbers, never pointers, so that a stale, repeated, foreign or invented one is harmless.
//!
//! Layout: `[type: 4 | generation: 28 | slot: 32]`. NCCL tests handles for NULL only and hands them back later, perhaps
//! twice, perhaps after the event is over, perhaps from another process (PXN). A generation starts at a number derived
//! from the process nonce and changes with every reuse of the slot; a handle is taken only when it matches.

/// Bits of the generation.
pub const GENERATION_BITS: u32 = 28;
/// Mask of the generation.
pub const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
/// Bits of a step number that a step handle carries; steps 2^12 apart never share a lane at the same time (8 lanes).
pub const STEP_BITS: u32 = 12;
/// Mask of the step bits.
pub const STEP_MASK: u32 = (1 << STEP_BITS) - 1;
/// Most flow slots a step handle can name: 32 - 12 = 20 bits.
pub const MAX_FLOW_SLOTS: usize = 1 << (32 - STEP_BITS);
/// Bits of a channel number in a kernel handle.
pub const CHANNEL_BITS: u32 = 8;

/// What a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HandleKind {
    /// An operation (Coll or P2p).
    Op = 1,
    /// A flow (ProxyOp).
    Flow = 2,
    /// A step of a flow.
    Step = 3,
    /// One channel of an operation's kernel.
    Kernel = 4,
    /// A communicator (the `context` of a callback).
    Comm = 5,
    /// A call of the API, or a group of calls. (6 is taken by the adapter's chain handles.)
    Call = 7,
    /// An event that is not traced; every use of it is ignored.
    Drop = 15,
}

/// A decoded handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    /// What it names.
    pub kind: HandleKind,
    /// Generation of the slot.
    pub generation: u32,
    /// Slot, with the step or the channel in its low bits where the kind has one.
    pub slot: u32,
}

/// The handle of every event that is not traced. Not NULL: without a handle NCCL would skip the event's children.
pub const DROP_HANDLE: u64 = (HandleKind::Drop as u64) << 60 | 1;

impl Handle {
    /// The number NCCL keeps; never 0.
    #[inline]
    pub fn encode(self) -> u64 {
        (self.kind as u64) << 60 | u64::from(self.generation & GENERATION_MASK) << 32 | u64::from(self.slot)
    }

    /// Decodes any 64 bits; `None` where the type is none of ours or is `Drop`.
    #[inline]
    pub fn decode(raw: u64) -> Option<Handle> {
        let kind = match raw >> 60 {
            1 => HandleKind::Op,
            2 => HandleKind::Flow,
            3 => HandleKind::Step,
            4 => HandleKind::Kernel,
            5 => HandleKind::Comm,
            7 => HandleKind::Call,
            _ => return None,
        };
        Some(Handle { kind, generation: (raw >> 32) as u32 & GENERATION_MASK, slot: raw as u32 })
    }
}

/// First generation of a slot in this process: a mix of the process nonce and the slot, so that another process's handle
/// for the same slot does not fit here except by a chance of 2^-28.
pub fn first_generation(nonce: u32, slot: u32) -> u32 {
    let mut x = u64::from(nonce) << 32 | u64::from(slot);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)) as u32 & GENERATION_MASK
}

/// The generation after `generation`.
#[inline]
pub fn next_generation(generation: u32) -> u32 {
    generation.wrapping_add(1) & GENERATION_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encode_and_decode_agree_and_never_give_null() {
        let kinds = [HandleKind::Op, HandleKind::Flow, HandleKind::Step, HandleKind::Kernel, HandleKind::Comm];
        for kind in kinds.into_iter().chain([HandleKind::Call]) {
            let handle = Handle { kind, generation: 0, slot: 0 };
            assert_ne!(handle.encode(), 0);
            assert_eq!(Handle::decode(handle.encode()), Some(handle));
            let last = Handle { kind, generation: GENERATION_MASK, slot: u32::MAX };
            assert_eq!(Handle::decode(last.encode()), Some(last));
        }
        assert_eq!(Handle::decode(DROP_HANDLE), None);
        assert_eq!(Handle::decode(0), None);
        assert_eq!(Handle::decode(0x7fff_dead_beef), None, "a user-space pointer is never one of our handles");
    }

    #[test]
    fn generations_differ_between_processes() {
        let same = (0..10_000).filter(|&slot| first_generation(1, slot) == first_generation(2, slot)).count();
        assert_eq!(same, 0);
    }
}
