//! The ring: ReduceScatter, AllGather and AllReduce on one channel.
use super::{Hop, Moments, Seat};
use crate::profile::NEVER;

/// How often a rank sends in one loop over the ring, and how many loops and slices there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Chunks a rank sends per loop: n - 1, and for AllReduce 2 (n - 1).
    pub(crate) sends: usize,
    /// Loops over the data.
    pub(crate) loops: usize,
    /// Slices of a chunk.
    pub(crate) slices: usize,
}

impl Plan {
    /// Slices that each rank sends in all.
    pub(crate) fn steps(&self) -> usize {
        self.sends * self.loops * self.slices
    }
}

/// The lane of member `m`'s sends; its receives are the next one.
pub(crate) fn send_lane(m: usize) -> usize {
    2 * m
}

/// Lets the members go around; `hops[m]` is from member m to the next. Gives when each member's kernel ends.
///
//= nccl: src/device/all_reduce.h, reduce_scatter.h, all_gather.h: the order of primitives
/// A loop is `sends + 1` primitives: the first only sends, the last only receives, the others do both with the same
/// chunk, so the slice that is received frees its slot when the slice that is sent fills one.
pub(crate) fn run(moments: &mut Moments, plan: Plan, seats: &mut [Seat<'_>], hops: &[Hop<'_>]) -> Vec<u64> {
    let n = seats.len();
    moments.clear(plan.steps());
    let mut device: Vec<u64> = seats.iter().map(|seat| seat.start).collect();
    let mut busy = vec![0u64; n];
    for turn in 0..plan.loops {
        let first = turn * plan.sends * plan.slices;
        for prim in 0..=plan.sends {
            for slice in 0..plan.slices {
                let sent = (prim < plan.sends).then_some(first + prim * plan.slices + slice);
                let received = (prim > 0).then(|| first + (prim - 1) * plan.slices + slice);
                for m in 0..n {
                    device[m] = primitive(moments, &hops[m], m, &seats[m], device[m], (received, sent));
                }
                let Some(step) = sent else { continue };
                for m in 0..n {
                    let next = (m + 1) % n;
                    let [from, to] = two(seats, m, next);
                    hops[m].carry(moments, (send_lane(m), send_lane(next) + 1), step, (from, to), &mut busy[m]);
                }
            }
        }
    }
    device
}

/// One slice of one primitive of member `m`, whose device was free at `free`: when it is done.
fn primitive(
    moments: &mut Moments,
    hop: &Hop<'_>,
    m: usize,
    seat: &Seat<'_>,
    free: u64,
    (received, sent): (Option<usize>, Option<usize>),
) -> u64 {
    let mut at = free;
    if let Some(step) = received {
        at = at.max(moments.get(send_lane(m) + 1, step, 2));
    }
    if let Some(step) = sent {
        let offered = hop.offered(moments, send_lane(m), step);
        moments.set(send_lane(m), step, 0, offered);
        at = at.max(offered);
    }
    let done = if at == NEVER { NEVER } else { seat.copy(at, hop.cut.copy_ns) };
    if let Some(step) = received {
        moments.set(send_lane(m) + 1, step, 3, done);
    }
    if let Some(step) = sent {
        moments.set(send_lane(m), step, 1, done);
    }
    done
}

/// Two different members at once.
pub(super) fn two<'a, 'b>(seats: &'a mut [Seat<'b>], a: usize, b: usize) -> [&'a mut Seat<'b>; 2] {
    if a < b {
        let (left, right) = seats.split_at_mut(b);
        [&mut left[a], &mut right[0]]
    } else {
        let (left, right) = seats.split_at_mut(a);
        [&mut right[0], &mut left[b]]
    }
}
