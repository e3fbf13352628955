//! NCCL's double binary tree (`graph/trees.cc`), over all members of a communicator.

/// Parent and side of a node in a tree whose leaves are the odd numbers: the lowest set bit of a node says its height.
/// `None` for the root.
fn parent(node: usize, nodes: usize) -> Option<(usize, Side)> {
    if node == 0 {
        return None;
    }
    let bit = 1usize << node.trailing_zeros();
    let up = (node ^ bit) | (bit << 1);
    let parent = if up >= nodes { node ^ bit } else { up };
    Some((parent, if node < parent { Side::Left } else { Side::Right }))
}

/// Which child of its parent a node is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Side {
    Left,
    Right,
}

/// An edge of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edge {
    pub(super) child: usize,
    pub(super) parent: usize,
    pub(super) side: Side,
    /// How far below the root the child is.
    pub(super) depth: usize,
}

/// Edges of the first tree over `nodes` members, or of the second: its mirror image for an even number, and moved on by one
/// for an odd number, so that a leaf of one is an inner node of the other.
pub(super) fn edges(nodes: usize, second: bool) -> Vec<Edge> {
    let member = |node: usize| match (second, nodes % 2) {
        (false, _) => node,
        (true, 0) => nodes - 1 - node,
        (true, _) => (node + 1) % nodes,
    };
    let depth = |mut node: usize| {
        let mut depth = 0;
        while let Some((up, _)) = parent(node, nodes) {
            (node, depth) = (up, depth + 1);
        }
        depth
    };
    let edge = |node: usize| {
        let (up, side) = parent(node, nodes)?;
        Some(Edge { child: member(node), parent: member(up), side, depth: depth(node) })
    };
    (0..nodes).filter_map(edge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_member_but_one_has_a_parent_and_nobody_more_than_two_children() {
        for nodes in 1..=300 {
            for second in [false, true] {
                let edges = edges(nodes, second);
                assert_eq!(edges.len(), nodes - 1);
                let mut children: BTreeMap<usize, Vec<Side>> = BTreeMap::new();
                edges.iter().for_each(|edge| children.entry(edge.parent).or_default().push(edge.side));
                for (parent, sides) in &mut children {
                    sides.sort_unstable();
                    sides.dedup();
                    let count = edges.iter().filter(|edge| edge.parent == *parent).count();
                    assert_eq!(sides.len(), count, "{nodes} {second}: one child a side of {parent}");
                }
                let up: BTreeMap<usize, usize> = edges.iter().map(|edge| (edge.child, edge.parent)).collect();
                let root = |start: usize| (0..nodes).fold(start, |at, _| *up.get(&at).unwrap_or(&at));
                assert!((0..nodes).all(|node| root(node) == root(0)), "{nodes} {second}: one tree");
            }
        }
    }

    #[test]
    fn a_leaf_of_one_tree_is_inside_the_other() {
        for nodes in (4..=64).step_by(2) {
            let inside = |second| edges(nodes, second).iter().map(|edge| edge.parent).collect::<Vec<_>>();
            let (one, other) = (inside(false), inside(true));
            assert!((0..nodes).all(|node| one.contains(&node) || other.contains(&node)), "{nodes}");
        }
    }
}
