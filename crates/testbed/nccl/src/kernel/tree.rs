//! The tree algorithms: a binary tree on even channels and its mirror image on odd ones.
//!
//! NCCL's double tree has the same idea (a leaf of one tree is an inner node of the other) with another numbering.

use super::Prim;
use crate::abi::Func;

/// Parent and children of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// Nobody for the root.
    pub parent: Option<usize>,
    /// At most two.
    pub children: Vec<usize>,
}

/// The family of `rank` among `ranks` in the tree of `channel` rooted at `root`.
pub fn family(rank: usize, ranks: usize, root: usize, channel: usize) -> Family {
    let mirrored = channel % 2 == 1;
    let node = if mirrored { (root + ranks - rank) % ranks } else { (rank + ranks - root) % ranks };
    let back = |node: usize| if mirrored { (root + ranks - node) % ranks } else { (node + root) % ranks };
    Family {
        parent: (node > 0).then(|| back((node - 1) / 2)),
        children: [2 * node + 1, 2 * node + 2].into_iter().filter(|c| *c < ranks).map(back).collect(),
    }
}

/// The root of an AllReduce's tree on `channel`.
pub fn all_reduce_root(ranks: usize, channel: usize) -> usize {
    if channel % 2 == 1 { ranks - 1 } else { 0 }
}

/// Which way the chunks of a fiber go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// From the leaves to the root, combining.
    Up,
    /// From the root to the leaves.
    Down,
    /// The root of an AllReduce: up becomes down.
    Turn,
}

/// One direction of one channel's part of a tree collective.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Which collective.
    pub func: Func,
    /// Which way.
    pub flow: Flow,
    /// Whether there is an upstream (children when up, a parent when down).
    pub has_up: bool,
    /// Whether there is a downstream.
    pub has_down: bool,
    /// First element of this channel's part.
    pub part_from: usize,
    /// Elements of this channel's part.
    pub part_count: usize,
    /// Elements of a full chunk.
    pub chunk: usize,
}

impl Tree {
    /// Chunks of the part.
    pub fn chunks(&self) -> usize {
        self.part_count.div_ceil(self.chunk)
    }

    /// Primitive `index`, or `None` past the end.
    pub fn prim(&self, index: usize) -> Option<Prim> {
        if index >= self.chunks() {
            return None;
        }
        let done = index * self.chunk;
        let off = self.part_from + done;
        let count = (self.part_count - done).min(self.chunk);
        let (recv, send) = (self.has_up, self.has_down);
        Some(match self.flow {
            // The root of a Reduce writes its result, the others pass it on.
            Flow::Up => Prim { src: Some(off), dst: (!send).then_some(off), recv, send, post: !send, count },
            Flow::Down => Prim { src: (!recv).then_some(off), dst: Some(off), recv, send, post: false, count },
            Flow::Turn => Prim { src: Some(off), dst: Some(off), recv, send, post: true, count },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_agree_and_reach_everybody() {
        for ranks in 1..20 {
            for (root, channel) in (0..ranks).flat_map(|r| [(r, 0), (r, 1)]) {
                let mut children = vec![0; ranks];
                for rank in 0..ranks {
                    let f = family(rank, ranks, root, channel);
                    assert_eq!(f.parent.is_none(), rank == root);
                    for c in f.children {
                        children[c] += 1;
                        assert_eq!(family(c, ranks, root, channel).parent, Some(rank));
                    }
                }
                children[root] += 1;
                assert!(children.iter().all(|c| *c == 1));
            }
        }
    }
}
