//! What goes over the wires between hosts, slice by slice, as a mirror port behind every NIC would see it. Nothing in it says
//! which operation a slice is of, or what is wrong.
use super::world::World;
use crate::collective::Hop;
use crate::collective::trace::Lane;
use crate::profile::NEVER;
use std::collections::BTreeMap;

/// A slice that left a NIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slice {
    /// Number of the NIC that sent it, among all: those of host 0 first ([`crate::Cluster::nics_per_host`]).
    pub from_nic: u32,
    /// Number of the NIC that it is for.
    pub to_nic: u32,
    /// The queue pair; each connection has its own, numbered as they were first used.
    pub queue_pair: u32,
    /// When its first byte left, nanoseconds of the simulation.
    pub begin_ns: u64,
    /// When its last byte left.
    pub end_ns: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// One direction of a connection between two ranks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Connection {
    pub(super) group: u32,
    pub(super) is_message: bool,
    pub(super) channel: u8,
    /// Global rank.
    pub(super) from: u32,
    /// Position in the group.
    pub(super) peer: u32,
}

/// What was seen and not taken yet.
#[derive(Debug, Default)]
pub(super) struct Tap {
    queue_pairs: BTreeMap<Connection, u32>,
    slices: Vec<Slice>,
}

impl Tap {
    /// The slices of one operation of a connection.
    ///
    /// A slice to a NIC that receives no more leaves all the same, at the pace that the sender's side has: nobody tells the
    /// sender at once. What is sent again is not played.
    pub(super) fn carry(&mut self, world: &World, of: Connection, lane: &impl Lane, hop: &Hop<'_>) {
        let to = world.groups[of.group as usize].members[of.peer as usize];
        let next = self.queue_pairs.len() as u32;
        let queue_pair = *self.queue_pairs.entry(of).or_insert(next);
        let (from_nic, to_nic) = (world.nic(of.from) as u32, world.nic(to) as u32);
        let own = world.sending_profile(of.from);
        let gone = world.parts(of.from).killed.unwrap_or(NEVER);
        let mut busy = 0;
        for step in 0..lane.steps() {
            let given = lane.at(step, 2);
            if given == NEVER {
                return;
            }
            let begin_ns = given.max(busy);
            let arrives = hop.wire.finish(begin_ns, hop.slice_ns);
            let end_ns = if arrives == NEVER { own.finish(begin_ns, hop.slice_ns) } else { arrives };
            if end_ns == NEVER || end_ns >= gone {
                return;
            }
            busy = end_ns;
            let bytes = hop.cut.slice_bytes;
            self.slices.push(Slice { from_nic, to_nic, queue_pair, begin_ns, end_ns, bytes });
        }
    }

    /// What was seen since the last time.
    pub(super) fn take(&mut self) -> Vec<Slice> {
        std::mem::take(&mut self.slices)
    }
}
