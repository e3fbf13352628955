//! The order in which NCCL takes the calls of a group (`enqueue.cc`): collectives first, small before large among those of
//! one kind, then transfers round by round.

use super::task::{Call, CollTask, Task};
use crate::comm::Comm;
use crate::schedule::traffic_per_byte;
use std::collections::VecDeque;

/// Bytes that count for the size of a collective.
pub(super) fn traffic(c: &CollTask, ranks: usize) -> usize {
    c.count * c.dtype.size() * traffic_per_byte(c.func, ranks)
}

/// Whether two collectives are of one kind: function, reduction and type.
pub(super) fn alike(a: &CollTask, b: &CollTask) -> bool {
    (a.func, a.op, a.dtype) == (b.func, b.op, b.dtype)
}

/// The calls in NCCL's order. A transfer of a rank to itself in place is left out: there is nothing to do.
pub(super) fn ordered(comm: &Comm, tasks: Vec<Task>) -> Vec<Task> {
    let (colls, transfers): (Vec<Task>, Vec<Task>) = tasks.into_iter().partition(|t| matches!(t.call, Call::Coll(_)));
    let mut all = by_kind(comm, colls);
    all.extend(by_round(comm, transfers));
    all
}

fn coll_of(task: &Task) -> Option<&CollTask> {
    match &task.call {
        Call::Coll(c) => Some(c),
        Call::P2p(_) => None,
    }
}

/// The kind with the largest collective first; in a kind ascending, equals in the order of the calls.
fn by_kind(comm: &Comm, mut colls: Vec<Task>) -> Vec<Task> {
    let size = |task: &Task| coll_of(task).map_or(0, |c| traffic(c, comm.ranks));
    colls.sort_by_key(|task| std::cmp::Reverse(size(task)));
    let mut kinds: Vec<Vec<Task>> = Vec::new();
    for task in colls {
        let place = kinds.iter().position(|kind| match (coll_of(&kind[0]), coll_of(&task)) {
            (Some(a), Some(b)) => alike(a, b),
            _ => false,
        });
        match place {
            Some(place) => kinds[place].push(task),
            None => kinds.push(vec![task]),
        }
    }
    kinds.iter_mut().for_each(|kind| kind.sort_by_key(|task| size(task)));
    kinds.into_iter().flatten().collect()
}

fn by_round(comm: &Comm, transfers: Vec<Task>) -> Vec<Task> {
    let mut queues: Vec<[VecDeque<Task>; 2]> = (0..comm.ranks).map(|_| Default::default()).collect();
    let mut left = transfers.len();
    for task in transfers {
        if let Call::P2p(t) = &task.call {
            let (peer, side) = (t.peer, usize::from(t.is_send));
            queues[peer][side].push_back(task);
        }
    }
    let mut all = Vec::with_capacity(left);
    while left > 0 {
        for (to, from) in comm.rounds.to.iter().zip(&comm.rounds.from) {
            let (send, recv) = (queues[*to][1].pop_front(), queues[*from][0].pop_front());
            left -= usize::from(send.is_some()) + usize::from(recv.is_some());
            if let (Some(a), Some(b)) = (&send, &recv)
                && *to == comm.rank
                && buffer(a) == buffer(b)
            {
                continue;
            }
            all.extend(send);
            all.extend(recv);
        }
    }
    all
}

fn buffer(task: &Task) -> usize {
    match &task.call {
        Call::P2p(t) => t.buff,
        Call::Coll(_) => 0,
    }
}
