//! One message between two ranks: a send and the receive that matches it.
use super::{Cut, Hop, Moments, Seat};
use crate::profile::NEVER;

/// Lane of the sender.
pub(crate) const SEND: usize = 0;
/// Lane of the receiver.
pub(crate) const RECV: usize = 1;

/// Moves `steps` slices; gives when the sender's and the receiver's device are done with it.
pub(crate) fn run(
    moments: &mut Moments,
    steps: usize,
    hop: &Hop<'_>,
    (from, to): (&mut Seat<'_>, &mut Seat<'_>),
) -> (u64, u64) {
    moments.clear(steps);
    let copy_ns = hop.cut.copy_ns;
    let (mut filling, mut draining, mut busy) = (from.start, to.start, 0);
    for step in 0..steps {
        let offered = hop.offered(moments, SEND, step);
        moments.set(SEND, step, 0, offered);
        let at = filling.max(offered);
        filling = if at == NEVER { NEVER } else { from.copy(at, copy_ns) };
        moments.set(SEND, step, 1, filling);
        hop.carry(moments, (SEND, RECV), step, (from, to), &mut busy);
        let at = draining.max(moments.get(RECV, step, 2));
        draining = if at == NEVER { NEVER } else { to.copy(at, copy_ns) };
        moments.set(RECV, step, 3, draining);
    }
    (filling, draining)
}

/// When the sender's device is done with a message that fits the FIFO, whoever receives it and whenever; its proxy begins
/// with the connection at `posted`.
pub(crate) fn fills_alone(steps: usize, cut: Cut, from: &Seat<'_>, posted: u64) -> Option<u64> {
    if steps > cut.window {
        return None;
    }
    let mut at = from.start.max(posted);
    for _ in 0..steps {
        at = if at == NEVER { NEVER } else { from.copy(at, cut.copy_ns) };
    }
    Some(at)
}
