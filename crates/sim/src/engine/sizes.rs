//! How an operation is cut into steps, and by which protocol it goes.
use super::rank::OpTrace;
use super::world::World;
use crate::program;
use crate::scenario::Scenario;
use mycroft_record::{OpClass, OpKind, Protocol};

/// Slots of a connection's FIFO (`NCCL_STEPS`).
pub(super) const STEPS: u64 = 8;
/// Bytes of a slot: the testbed's 512 KiB buffer in 8.
pub(super) const SLOT_BYTES: u64 = 64 << 10;
/// Most loops of a collective: larger data takes larger slots, as NCCL's buffers are larger than the testbed's.
const LOOPS_MAX: u64 = 2;
/// Most slices of a message between two ranks.
const PAIR_STEPS_MAX: u64 = 16;
/// Slices of a ring's chunk (`NCCL_STEPS` / 2 in slices of `NCCL_STEPS` / 4).
pub(super) const SLICES: u64 = 2;
/// A collective gets one more channel for every so many bytes.
const CHANNEL_BYTES_MIN: u64 = 4096;

/// Bytes of a line in LL for each byte of data: four of data and four that say that they are there.
const LL_BYTES_OF_BYTE: u64 = 2;
/// Up to so many bytes a collective over the network goes as LL (where NCCL's tuning crosses over in rings of a few ranks).
const LL_BYTES_MAX: u64 = 16 << 10;
/// Up to so many bytes a collective inside a host goes as LL128.
const LL128_BYTES_MAX: u64 = 2 << 20;

/// Payload bytes of a collective: in all for AllReduce, of all members for the others.
fn whole_bytes(kind: OpKind, count: u64, members: u64) -> u64 {
    let bytes = count * program::ELEMENT_BYTES;
    if kind == OpKind::AllReduce { bytes } else { bytes * members }
}

/// The protocol of a collective of so many bytes; `far`: it crosses hosts.
fn protocol(scenario: &Scenario, far: bool, whole: u64) -> Protocol {
    match scenario.cluster.protocols {
        true if whole <= LL_BYTES_MAX => Protocol::Ll,
        true if !far && whole <= LL128_BYTES_MAX => Protocol::Ll128,
        _ => Protocol::Simple,
    }
}

/// The protocol that is told of an operation; that of messages is not.
pub(super) fn told_protocol(world: &World, op: &OpTrace) -> Protocol {
    let group = &world.groups[op.group as usize];
    let whole = whole_bytes(op.kind, op.count, group.members.len() as u64);
    let of_collective = || protocol(&world.scenario, group.hosts > 1, whole);
    if op.class == OpClass::Collective { of_collective() } else { Protocol::Unknown }
}

/// How a collective is cut: steps in the records' unit, how many may be in flight, bytes of one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) channels: u64,
    pub(super) loops: u64,
    pub(super) slices: u64,
    pub(super) window: u64,
    pub(super) slice_bytes: u64,
    pub(super) steps: u64,
}

/// Payload bytes of a collective that go around: per member for AllGather and ReduceScatter, in all for AllReduce.
pub(super) fn sizes(kind: OpKind, count: u64, members: usize, scenario: &Scenario, tree: bool) -> Sizes {
    let n = members as u64;
    let whole = whole_bytes(kind, count, n);
    let channels = (whole / CHANNEL_BYTES_MIN).clamp(1, u64::from(scenario.channels));
    let is_ll = protocol(scenario, true, whole) == Protocol::Ll;
    let part = whole.div_ceil(channels) * if is_ll { LL_BYTES_OF_BYTE } else { 1 };
    if tree {
        let slots = part.div_ceil(SLOT_BYTES).clamp(1, PAIR_STEPS_MAX);
        let slice_bytes = part.div_ceil(slots);
        return Sizes { channels, loops: slots, slices: 1, window: STEPS, slice_bytes, steps: slots };
    }
    let slices = SLICES;
    let (slot, loops_max) = slots(scenario, LOOPS_MAX);
    let loops = part.div_ceil(4 * slot * n).clamp(1, loops_max);
    let slice_bytes = part.div_ceil(loops * n * slices).max(1);
    let sends = if kind == OpKind::AllReduce { 2 * (n - 1) } else { n - 1 };
    Sizes { channels, loops, slices, window: STEPS / 4 * slices, slice_bytes, steps: loops * sends * slices }
}

/// Slices of a message and their size.
pub(super) fn message_cut(count: u64, scenario: &Scenario) -> (u64, u64) {
    let bytes = count * program::ELEMENT_BYTES;
    let (slot, steps_max) = slots(scenario, PAIR_STEPS_MAX);
    let steps = bytes.div_ceil(slot).clamp(1, steps_max);
    (steps, bytes.div_ceil(steps).max(1))
}

/// Bytes of a slot, and how many turns there may be: so many where slots grow with the data.
fn slots(scenario: &Scenario, most: u64) -> (u64, u64) {
    match scenario.cluster.slot_bytes {
        0 => (SLOT_BYTES, most),
        bytes => (bytes, u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `NCCL_STEPS` slots of a connection hold two chunks of a ring, of half as many steps each.
    #[test]
    fn two_chunks_fit_the_fifo_of_any_ring() {
        for members in [2, 3, 16, 17, 1024] {
            let sizes = sizes(OpKind::AllReduce, 1 << 20, members, &Scenario::default(), false);
            assert_eq!(sizes.window, 2 * sizes.slices, "{members} members");
            assert_eq!(sizes.steps, sizes.loops * 2 * (members as u64 - 1) * sizes.slices);
        }
    }

    /// Slots of one size make more loops of larger data, in slices of two slots.
    #[test]
    fn slots_of_one_size_make_loops() {
        let mut scenario = Scenario { channels: 1, ..Scenario::default() };
        let of = |scenario: &Scenario| sizes(OpKind::AllReduce, 16 << 20, 4, scenario, false);
        assert_eq!(of(&scenario).loops, LOOPS_MAX);
        scenario.cluster.slot_bytes = 512 << 10;
        assert_eq!((of(&scenario).loops, of(&scenario).slice_bytes), (8, 1 << 20));
        assert_eq!(message_cut(64 << 18, &scenario), (128, 512 << 10));
    }

    /// A small collective goes as lines of which half is flags.
    #[test]
    fn small_collectives_go_as_ll_where_protocols_are_on() {
        let mut scenario = Scenario::default();
        let bytes = |scenario: &Scenario| {
            let sizes = sizes(OpKind::AllReduce, 2048, 4, scenario, false);
            sizes.slice_bytes * sizes.loops * 4 * sizes.slices * sizes.channels
        };
        assert_eq!(bytes(&scenario), 8192);
        scenario.cluster.protocols = true;
        assert_eq!(bytes(&scenario), 16384);
        let of = |far, bytes| protocol(&scenario, far, bytes);
        assert_eq!((of(true, 8192), of(false, 1 << 20)), (Protocol::Ll, Protocol::Ll128));
        assert_eq!((of(true, 1 << 20), of(false, 4 << 20)), (Protocol::Simple, Protocol::Simple));
    }
}
