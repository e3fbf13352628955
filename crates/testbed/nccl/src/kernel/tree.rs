//! The tree algorithms: a binary tree on even channels and its mirror image on odd ones.
//!
//! NCCL's double tree ([`over_hosts`]) has the same idea (a leaf of one tree is an inner node of the other) with another
//! numbering; the NCCL personalities use it.

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

/// The family of `rank` in an AllReduce as NCCL builds it (`graph/trees.cc`, `graph/connect.cc`): a double binary tree over
/// hosts, and inside each host (`hosts[rank]` names a rank's) a chain that begins at the rank of the tree. The first half
/// of the channels has the first tree, the second half the second.
pub fn over_hosts(hosts: &[usize], rank: usize, channel: usize, channels: usize) -> Family {
    let of_host = |host: usize| (0..hosts.len()).filter(move |r| hosts[*r] == host);
    let chain: Vec<usize> = of_host(hosts[rank]).collect();
    let place = chain.iter().position(|r| *r == rank).unwrap_or(0);
    let mut family = Family { parent: None, children: chain.get(place + 1).copied().into_iter().collect() };
    if place > 0 {
        family.parent = Some(chain[place - 1]);
    } else {
        let nodes = hosts.iter().max().map_or(1, |h| h + 1);
        let over = double_tree(hosts[rank], nodes, channels > 1 && channel >= channels / 2);
        let head = |host: usize| of_host(host).next().unwrap_or(rank);
        family.parent = over.parent.map(head);
        family.children.extend(over.children.into_iter().map(head));
    }
    family
}

/// The second tree is the first one's mirror image for an even number of nodes, and moved on by one for an odd number: a
/// leaf of one is an inner node of the other.
fn double_tree(node: usize, nodes: usize, second: bool) -> Family {
    let there = |n: usize| match (second, nodes % 2) {
        (false, _) => n,
        (true, 0) => nodes - 1 - n,
        (true, _) => (n + nodes - 1) % nodes,
    };
    let back = |n: usize| if second && nodes % 2 == 1 { (n + 1) % nodes } else { there(n) };
    let one = binary_tree(there(node), nodes);
    Family { parent: one.parent.map(back), children: one.children.into_iter().map(back).collect() }
}

/// A tree whose leaves are the odd numbers: the lowest set bit of a node says its height.
fn binary_tree(node: usize, nodes: usize) -> Family {
    if node == 0 {
        let top = (nodes > 1).then(|| nodes.next_power_of_two() / 2);
        return Family { parent: None, children: top.into_iter().collect() };
    }
    let bit = 1usize << node.trailing_zeros();
    let up = (node ^ bit) | (bit << 1);
    let parent = if up >= nodes { node ^ bit } else { up };
    let mut children = Vec::new();
    let mut low = bit >> 1;
    if low > 0 {
        children.push(node - low);
    }
    while low > 0 && node + low >= nodes {
        low >>= 1;
    }
    if low > 0 {
        children.push(node + low);
    }
    Family { parent: Some(parent), children }
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

    /// Both ends of every edge agree, all hang under one root, and nobody has more than NCCL's three children.
    #[test]
    fn chains_under_trees_agree_and_reach_everybody() {
        for (nodes, locals) in (1..12).flat_map(|n| [(n, 1), (n, 2), (n, 4)]) {
            let hosts: Vec<usize> = (0..nodes * locals).map(|r| r / locals).collect();
            for channel in 0..4 {
                let family = |rank| over_hosts(&hosts, rank, channel, 4);
                let roots = (0..hosts.len()).filter(|r| family(*r).parent.is_none()).count();
                assert_eq!(roots, 1, "{nodes} hosts of {locals}");
                for rank in 0..hosts.len() {
                    let f = family(rank);
                    assert!(f.children.len() <= 3);
                    assert!(f.children.iter().all(|c| family(*c).parent == Some(rank)));
                    let up = std::iter::successors(Some(rank), |r| family(*r).parent).take(hosts.len() + 1).count();
                    assert!(up <= hosts.len(), "a circle");
                    assert!(f.parent.is_none_or(|p| family(p).children.contains(&rank)));
                }
            }
        }
    }

    /// The trees of the recorded runs on four hosts.
    #[test]
    fn four_hosts_have_the_recorded_trees() {
        let hosts = [0, 1, 2, 3];
        let of = |rank, channel| over_hosts(&hosts, rank, channel, 2);
        assert_eq!(of(0, 0), Family { parent: None, children: vec![2] });
        assert_eq!(of(2, 0), Family { parent: Some(0), children: vec![1, 3] });
        assert_eq!(of(3, 1), Family { parent: None, children: vec![1] });
        assert_eq!(of(1, 1), Family { parent: Some(3), children: vec![2, 0] });
    }

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
