//! The ring algorithms, as a pure function from the index of a primitive to the primitive (NCCL's order of steps).

use super::Prim;
use crate::abi::Func;
use std::sync::Arc;

/// One channel's part of a ring collective.
#[derive(Debug, Clone)]
pub struct Ring {
    /// Which collective.
    pub func: Func,
    /// Ranks in ring order.
    pub order: Arc<[usize]>,
    /// This rank's position in `order`.
    pub pos: usize,
    /// The root's position (Broadcast, Reduce).
    pub root_pos: usize,
    /// Elements per rank (AllGather: sent, ReduceScatter: received), else elements in all.
    pub count: usize,
    /// First element of this channel's part.
    pub part_from: usize,
    /// Elements of this channel's part.
    pub part_count: usize,
    /// Elements of a full chunk.
    pub chunk: usize,
}

impl Ring {
    fn n(&self) -> usize {
        self.order.len()
    }

    /// Loops over the part.
    pub fn loops(&self) -> usize {
        let per_loop = if self.func == Func::AllReduce { self.chunk * self.n() } else { self.chunk };
        self.part_count.div_ceil(per_loop)
    }

    /// Chunks this rank sends to its successor, in all.
    pub fn sends(&self) -> usize {
        let n = self.n();
        let per_loop = match self.func {
            Func::AllReduce => 2 * (n - 1),
            Func::AllGather | Func::ReduceScatter => n - 1,
            Func::Broadcast => usize::from((self.pos + 1) % n != self.root_pos),
            Func::Reduce => usize::from(self.pos != self.root_pos),
            Func::Send | Func::Recv => 0,
        };
        per_loop * self.loops()
    }

    /// Chunks this rank receives from its predecessor, in all.
    pub fn recvs(&self) -> usize {
        let n = self.n();
        let per_loop = match self.func {
            Func::AllReduce => 2 * (n - 1),
            Func::AllGather | Func::ReduceScatter => n - 1,
            Func::Broadcast => usize::from(self.pos != self.root_pos),
            Func::Reduce => usize::from((self.root_pos + 1) % n != self.pos),
            Func::Send | Func::Recv => 0,
        };
        per_loop * self.loops()
    }

    /// Primitive `index`, or `None` past the end.
    pub fn prim(&self, index: usize) -> Option<Prim> {
        let n = self.n();
        let per_loop = match self.func {
            Func::AllReduce => 2 * n - 1,
            Func::AllGather | Func::ReduceScatter => n,
            _ => 1,
        };
        let (turn, k) = (index / per_loop, index % per_loop);
        if turn >= self.loops() {
            return None;
        }
        Some(match self.func {
            Func::AllReduce => self.all_reduce(turn, k),
            Func::AllGather => self.all_gather(turn, k),
            Func::ReduceScatter => self.reduce_scatter(turn, k),
            _ => self.pipeline(turn),
        })
    }

    /// Ring position `back` places before this rank.
    fn behind(&self, back: usize) -> usize {
        (self.pos + self.n() - back % self.n()) % self.n()
    }

    fn all_reduce(&self, turn: usize, k: usize) -> Prim {
        let n = self.n();
        let done = turn * self.chunk * n;
        let left = self.part_count - done;
        let chunk = left.div_ceil(n).next_multiple_of(16).min(self.chunk);
        // k: 0 send, 1..n-2 receive-reduce-send, n-1 the final reduction, then n-2 forwards, then the last receive.
        let place = if k < n { self.behind(k + 1) } else { self.behind(k + 1 - n) };
        let at = place * chunk;
        let count = left.saturating_sub(at).min(chunk);
        let off = self.part_from + done + at.min(left);
        let last = k == 2 * n - 2;
        Prim {
            src: (k < n).then_some(off),
            dst: (k >= n - 1).then_some(off),
            recv: k > 0,
            send: !last,
            post: k == n - 1,
            count,
        }
    }

    fn span(&self, turn: usize) -> (usize, usize) {
        let done = turn * self.chunk;
        (self.part_from + done, (self.part_count - done).min(self.chunk))
    }

    fn all_gather(&self, turn: usize, k: usize) -> Prim {
        let (off, count) = self.span(turn);
        let owner = self.order[self.behind(k)];
        Prim {
            src: (k == 0).then_some(off),
            dst: Some(owner * self.count + off),
            recv: k > 0,
            send: k + 1 < self.n(),
            post: false,
            count,
        }
    }

    fn reduce_scatter(&self, turn: usize, k: usize) -> Prim {
        let (off, count) = self.span(turn);
        let owner = self.order[self.behind(k + 1)];
        let last = k + 1 == self.n();
        Prim {
            src: Some(owner * self.count + off),
            dst: last.then_some(off),
            recv: k > 0,
            send: !last,
            post: last,
            count,
        }
    }

    fn pipeline(&self, turn: usize) -> Prim {
        let (off, count) = self.span(turn);
        let (send, recv) = (self.sends() > 0, self.recvs() > 0);
        let root = self.pos == self.root_pos;
        if self.func == Func::Broadcast {
            Prim { src: root.then_some(off), dst: Some(off), recv, send, post: false, count }
        } else {
            Prim { src: Some(off), dst: root.then_some(off), recv, send, post: root, count }
        }
    }
}
