//! What becomes of a connection's moments: the member's kernel, the flow that its tracer tells of, the slices on the wire.
use super::Simulation;
use super::meet::Entry;
use super::tap::Connection;
use crate::collective::Hop;
use crate::collective::trace::{Head, Lane, Looks, flow};
use mycroft_record::OpClass;

impl Simulation {
    /// A member's kernel on one channel is worked out.
    pub(super) fn take(
        &mut self,
        rank: u32,
        number: Option<u64>,
        entry: &Option<Entry>,
        channel: u8,
        end: u64,
        asleep: (u64, u64),
    ) {
        let run = &mut self.ranks[rank as usize];
        run.asleep = asleep;
        let (Some(number), Some(entry)) = (number, entry) else { return };
        let op = run.op(number);
        op.started = entry.start;
        if channel == 0 {
            (op.left_first, op.left) = (end, end);
        } else {
            op.left_first = op.left_first.min(end);
            op.left = op.left.max(end);
        }
    }

    /// A lane's moments become the flow that the tracer tells of, if the operation has it, and what the wire carries of it.
    pub(super) fn trace(
        &mut self,
        rank: u32,
        number: Option<u64>,
        lane: &impl Lane,
        end: (u8, u32, bool),
        hop: &Hop<'_>,
    ) {
        let Some(number) = number else { return };
        let looks = self.looks(rank);
        let op = self.ranks[rank as usize].op(number);
        let (channel, peer, sends) = end;
        let Some(at) = op.flow(channel, peer, sends) else { return };
        let head = Head { sends, posted: op.flows[at].posted, kernel: op.started, slice_bytes: hop.cut.slice_bytes };
        op.flows[at].trace = Some(flow(lane, head, looks));
        let (group, is_message) = (op.group, op.class != OpClass::Collective);
        if let Some(tap) = self.tap.as_mut().filter(|_| sends && hop.wire.network) {
            tap.carry(&self.world, Connection { group, is_message, channel, from: rank, peer }, lane, hop);
        }
    }

    fn looks(&self, rank: u32) -> Looks {
        self.agents[self.ranks[rank as usize].host as usize].looks
    }
}
