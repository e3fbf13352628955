//! One numbering for all dumps: operations, arguments and call stacks that are equal have equal numbers.
//!
//! Each dump numbers its own texts. They are translated once per dump (some tens each), so that comparing two entries of
//! two ranks is comparing numbers. New entries are first compared with what the previous dump had at the same place:
//! ranks of one job number things alike.
use super::frames;
use mycroft_record::OpKind;
use mycroft_record::dump::{Dump, Frame, OpName, Shape};
use std::collections::BTreeMap;
use std::sync::Arc;

/// No such thing.
pub(super) const NONE: u32 = u32::MAX;

/// An operation, whoever issued it.
#[derive(Clone, Debug)]
pub(super) struct Op {
    /// Name as written, without library and peers.
    pub(super) name: Arc<str>,
    pub(super) kind: OpKind,
    /// What it is compared by: names of one operation differ between recorders and code paths.
    pub(super) family: Family,
}

/// Names of one operation; ordered, so that it can be a key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Family {
    /// One of the known operations.
    Known(OpKind),
    /// An operation without a word of ours, e.g. `barrier`.
    Named(Arc<str>),
}

/// Sums over a shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sums {
    /// Elements of all inputs and of all outputs; `None` where there are none.
    pub(super) inputs: Option<i64>,
    pub(super) outputs: Option<i64>,
    /// All tensors of a list have the same number of elements.
    pub(super) even: bool,
}

/// The numbering.
#[derive(Debug, Default)]
pub(super) struct Tables<'a> {
    pub(super) ops: Vec<Op>,
    pub(super) shapes: Vec<&'a Shape>,
    pub(super) sums: Vec<Sums>,
    /// Stacks of the program's frames, innermost first: numbers of frames.
    pub(super) stacks: Vec<Vec<u32>>,
    pub(super) frames: Vec<&'a Frame>,
    op_ids: BTreeMap<&'a str, u32>,
    shape_ids: BTreeMap<&'a Shape, u32>,
    frame_ids: BTreeMap<(&'a str, &'a str, u32), u32>,
    stack_ids: BTreeMap<Vec<u32>, u32>,
}

/// The translation of one dump.
#[derive(Debug, Default)]
pub(super) struct Translation {
    pub(super) ops: Vec<u32>,
    pub(super) shapes: Vec<u32>,
    pub(super) stacks: Vec<u32>,
}

impl<'a> Tables<'a> {
    /// Translates one dump; `like` is the translation of the dump before.
    pub(super) fn translate(&mut self, dump: &'a Dump, like: &Translation) -> Translation {
        let mut out = Translation::default();
        for name in &dump.ops {
            out.ops.push(self.op(name));
        }
        for (at, shape) in dump.shapes.iter().enumerate() {
            let guess = like.shapes.get(at).copied().filter(|id| self.shapes[*id as usize] == shape);
            let id = guess.unwrap_or_else(|| self.shape(shape));
            out.shapes.push(id);
        }
        let frames: Vec<Option<u32>> = dump.frames.iter().map(|frame| self.frame(frame)).collect();
        for (at, stack) in dump.stacks.iter().enumerate() {
            let user: Vec<u32> =
                stack.iter().filter_map(|frame| frames.get(*frame as usize).copied().flatten()).collect();
            let guess = like.stacks.get(at).copied().filter(|id| *id != NONE && self.stacks[*id as usize] == user);
            let id = guess.unwrap_or_else(|| self.stack(user));
            out.stacks.push(id);
        }
        out
    }

    fn op(&mut self, name: &'a OpName) -> u32 {
        if let Some(id) = self.op_ids.get(&*name.op) {
            return *id;
        }
        let id = self.ops.len() as u32;
        let family =
            if name.kind == OpKind::Unknown { Family::Named(name.op.clone()) } else { Family::Known(name.kind) };
        self.ops.push(Op { name: name.op.clone(), kind: name.kind, family });
        self.op_ids.insert(&name.op, id);
        id
    }

    fn shape(&mut self, shape: &'a Shape) -> u32 {
        if let Some(id) = self.shape_ids.get(shape) {
            return *id;
        }
        let id = self.shapes.len() as u32;
        self.shapes.push(shape);
        self.sums.push(sums(shape));
        self.shape_ids.insert(shape, id);
        id
    }

    /// The number of a frame of the program; `None` for frames of the way into the recorder.
    fn frame(&mut self, frame: &'a Frame) -> Option<u32> {
        if !frames::is_program(frame) {
            return None;
        }
        let key = (&*frame.name, frames::tail(&frame.file), frame.line);
        if let Some(id) = self.frame_ids.get(&key) {
            return Some(*id);
        }
        let id = self.frames.len() as u32;
        self.frames.push(frame);
        self.frame_ids.insert(key, id);
        Some(id)
    }

    fn stack(&mut self, user: Vec<u32>) -> u32 {
        if user.is_empty() {
            return NONE;
        }
        if let Some(id) = self.stack_ids.get(&user) {
            return *id;
        }
        let id = self.stacks.len() as u32;
        self.stacks.push(user.clone());
        self.stack_ids.insert(user, id);
        id
    }

    /// The frame of the user's own code that issued what `stack` issued.
    pub(super) fn own_frame(&self, stack: u32) -> Option<&'a Frame> {
        let stack = self.stacks.get(stack as usize)?;
        frames::own(stack.iter().map(|frame| self.frames[*frame as usize]))
    }

    /// The frames at which two stacks part, seen from the outermost: the first that differ.
    pub(super) fn parting(&self, one: u32, other: u32) -> Option<(&'a Frame, &'a Frame)> {
        let (one, other) = (self.stacks.get(one as usize)?, self.stacks.get(other as usize)?);
        let pair = one.iter().rev().zip(other.iter().rev()).find(|(a, b)| a != b)?;
        Some((self.frames[*pair.0 as usize], self.frames[*pair.1 as usize]))
    }
}

fn elements(sizes: &[Box<[i64]>]) -> (Option<i64>, bool) {
    let counts: Vec<i64> = sizes.iter().map(|dims| dims.iter().fold(1_i64, |n, dim| n.saturating_mul(*dim))).collect();
    let even = counts.windows(2).all(|pair| pair[0] == pair[1]);
    let sum = counts.iter().fold(0_i64, |sum, count| sum.saturating_add(*count));
    (if sizes.is_empty() { None } else { Some(sum) }, even)
}

fn sums(shape: &Shape) -> Sums {
    let (inputs, in_even) = elements(&shape.inputs);
    let (outputs, out_even) = elements(&shape.outputs);
    Sums { inputs, outputs, even: in_even && out_even }
}
