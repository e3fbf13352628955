//! The double binary tree: AllReduce up to the root and down again, on one channel.
//!
//! The numbering is the testbed's (`crates/testbed/nccl/src/kernel/tree.rs`): a binary heap on even channels and its
//! mirror image on odd ones. NCCL's trees differ in numbering only.
use super::ring::two;
use super::{Cut, Hop, Moments, Seat, Wire};
use crate::profile::NEVER;

/// Where the nodes of a channel's tree sit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    ranks: usize,
    mirrored: bool,
}

/// Lanes of a member: sends and receives on the way up and down, for its parent and for each child.
pub(crate) const LANES: usize = 6;

impl Shape {
    /// The tree of `channel` among `ranks`.
    pub(crate) fn new(ranks: usize, channel: usize) -> Shape {
        Shape { ranks, mirrored: channel % 2 == 1 }
    }

    /// The member at heap position `node`.
    pub(crate) fn member(&self, node: usize) -> usize {
        if self.mirrored { self.ranks - 1 - node } else { node }
    }

    /// Heap position of the parent.
    fn parent(node: usize) -> Option<usize> {
        (node > 0).then(|| (node - 1) / 2)
    }

    /// Heap positions of the children.
    pub(crate) fn children(&self, node: usize) -> impl Iterator<Item = usize> + use<> {
        let ranks = self.ranks;
        [2 * node + 1, 2 * node + 2].into_iter().filter(move |child| *child < ranks)
    }
}

/// One connection's end at a member: which lane, who is at the other end, which direction it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// Lane in the moments.
    pub(crate) lane: usize,
    /// Member at the other end.
    pub(crate) peer: usize,
    /// It sends.
    pub(crate) sends: bool,
}

/// Lane numbers of a node: up to the parent, down to each child, and what comes in.
fn lane(node: usize, which: usize) -> usize {
    node * LANES + which
}
const UP_OUT: usize = 0;
const DOWN_IN: usize = 1;
const UP_IN: usize = 2;
const DOWN_OUT: usize = 4;

/// Every connection's ends of a member.
pub(crate) fn ends(shape: Shape, node: usize) -> Vec<End> {
    let mut out = Vec::new();
    if let Some(parent) = Shape::parent(node) {
        let peer = shape.member(parent);
        out.push(End { lane: lane(node, UP_OUT), peer, sends: true });
        out.push(End { lane: lane(node, DOWN_IN), peer, sends: false });
    }
    for (i, child) in shape.children(node).enumerate() {
        let peer = shape.member(child);
        out.push(End { lane: lane(node, UP_IN + i), peer, sends: false });
        out.push(End { lane: lane(node, DOWN_OUT + i), peer, sends: true });
    }
    out
}

/// Wires of a node to and from its parent.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) up: Wire,
    pub(crate) down: Wire,
    pub(crate) factor: f64,
}

/// What moves chunks between a node and the other end of one of its connections.
pub(crate) fn hop<'a>(shape: Shape, node: usize, end: &End, cut: Cut, branches: &'a [Branch]) -> Hop<'a> {
    let child = shape.children(node).find(|child| shape.member(*child) == end.peer);
    // Up are its sends to its parent and what its children send.
    let goes_up = end.sends != child.is_some();
    let branch = &branches[child.unwrap_or(node)];
    Hop::new(cut, if goes_up { &branch.up } else { &branch.down }, branch.factor)
}

/// Moves `steps` chunks up and down; `branches[node]` are the wires between a node and its parent (the root's are not
/// used), seats are by member. Gives when each member's kernel ends.
pub(crate) fn run(
    moments: &mut Moments,
    shape: Shape,
    steps: usize,
    cut: Cut,
    seats: &mut [Seat<'_>],
    branches: &[Branch],
) -> Vec<u64> {
    let n = seats.len();
    moments.clear(steps);
    let mut tree = Tree { moments, shape, cut, branches, up: vec![0; n], down: vec![0; n], busy: vec![[0; 2]; n] };
    for node in 0..n {
        tree.up[node] = seats[shape.member(node)].start;
        tree.down[node] = seats[shape.member(node)].start;
    }
    for step in 0..steps {
        for node in (1..n).rev() {
            tree.up(seats, node, step);
        }
        tree.turn(seats, step);
        for node in 1..n {
            tree.down(seats, node, step);
        }
    }
    let mut ends = vec![0; n];
    for node in 0..n {
        ends[shape.member(node)] = tree.up[node].max(tree.down[node]);
    }
    ends
}

struct Tree<'a> {
    moments: &'a mut Moments,
    shape: Shape,
    cut: Cut,
    branches: &'a [Branch],
    /// When the part of a node's device that reduces, and the one that broadcasts, is free.
    up: Vec<u64>,
    down: Vec<u64>,
    /// When each node's wire to its parent, and from it, is free.
    busy: Vec<[u64; 2]>,
}

impl Tree<'_> {
    /// The latest moment at which what the children sent is there.
    fn children_gave(&self, node: usize, step: usize) -> u64 {
        let there = (0..self.shape.children(node).count()).map(|i| self.moments.get(lane(node, UP_IN + i), step, 2));
        there.max().unwrap_or(0)
    }

    fn consumed(&mut self, node: usize, step: usize, done: u64) {
        for i in 0..self.shape.children(node).count() {
            self.moments.set(lane(node, UP_IN + i), step, 3, done);
        }
    }

    fn up(&mut self, seats: &mut [Seat<'_>], node: usize, step: usize) {
        let Some(parent) = Shape::parent(node) else { return };
        let branch = &self.branches[node];
        let hop = Hop::new(self.cut, &branch.up, branch.factor);
        let me = self.shape.member(node);
        let offered = hop.offered(self.moments, lane(node, UP_OUT), step);
        self.moments.set(lane(node, UP_OUT), step, 0, offered);
        let at = self.up[node].max(offered).max(self.children_gave(node, step));
        let done = if at == NEVER { NEVER } else { seats[me].copy(at, self.cut.copy_ns) };
        self.up[node] = done;
        self.consumed(node, step, done);
        self.moments.set(lane(node, UP_OUT), step, 1, done);
        let into = lane(parent, UP_IN + (node - 1) % 2);
        let [from, to] = two(seats, me, self.shape.member(parent));
        hop.carry(self.moments, (lane(node, UP_OUT), into), step, (from, to), &mut self.busy[node][0]);
    }

    /// The root: what came up goes down.
    fn turn(&mut self, seats: &mut [Seat<'_>], step: usize) {
        let at = self.up[0].max(self.children_gave(0, step));
        let done = self.give(seats, 0, step, at);
        self.up[0] = done;
        self.consumed(0, step, done);
    }

    fn down(&mut self, seats: &mut [Seat<'_>], node: usize, step: usize) {
        let at = self.down[node].max(self.moments.get(lane(node, DOWN_IN), step, 2));
        let done = self.give(seats, node, step, at);
        self.down[node] = done;
        self.moments.set(lane(node, DOWN_IN), step, 3, done);
    }

    /// Gives a chunk that can be given at `at` to all children: when the device has done so.
    fn give(&mut self, seats: &mut [Seat<'_>], node: usize, step: usize, mut at: u64) -> u64 {
        let me = self.shape.member(node);
        let children: Vec<usize> = self.shape.children(node).collect();
        for (i, child) in children.iter().enumerate() {
            let branch = &self.branches[*child];
            let hop = Hop::new(self.cut, &branch.down, branch.factor);
            let offered = hop.offered(self.moments, lane(node, DOWN_OUT + i), step);
            self.moments.set(lane(node, DOWN_OUT + i), step, 0, offered);
            at = at.max(offered);
        }
        let done = if at == NEVER { NEVER } else { seats[me].copy(at, self.cut.copy_ns) };
        for (i, child) in children.iter().enumerate() {
            self.moments.set(lane(node, DOWN_OUT + i), step, 1, done);
            let branch = &self.branches[*child];
            let hop = Hop::new(self.cut, &branch.down, branch.factor);
            let [from, to] = two(seats, me, self.shape.member(*child));
            let lanes = (lane(node, DOWN_OUT + i), lane(*child, DOWN_IN));
            hop.carry(self.moments, lanes, step, (from, to), &mut self.busy[*child][1]);
        }
        done
    }
}
