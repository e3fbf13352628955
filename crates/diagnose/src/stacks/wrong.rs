//! The first wrong point of a group: the smallest sequence number from which ranks disagree on type, sizes, dtype, splits
//! or call stack and never agree again; and who is the odd one there.
//!
//! Disagreement is looked for in two steps. Numbers are compared first, lane by lane against one reference (sequential
//! memory, linear). Only columns that differ anywhere are looked at closely.
use super::index::{Group, Index, Lane, Slot};
use super::tables::{Family, NONE, Tables};
use super::verdict::Cause;
use crate::blame::history;
use mycroft_record::{OpKind, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What ranks disagree on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Differs {
    /// The operation.
    Op,
    /// Element types.
    Dtype,
    /// Numbers of elements.
    Size,
    /// What all send is not what all expect.
    Splits,
    /// Only the place in the program.
    Path,
}

/// How the odd one was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// Most ranks agree, and their own past agrees with them.
    Both,
    /// Most ranks agree.
    Majority,
    /// No majority: its own past.
    History,
    /// Nothing tells.
    Not,
}

/// A point at which ranks disagree.
#[derive(Clone, Debug)]
pub(super) struct WrongPoint {
    pub(super) group: u32,
    pub(super) seq: u64,
    pub(super) differs: Differs,
    /// Ranks by what they mean, the smaller camps first: ranks and a cell that stands for them.
    pub(super) camps: Vec<(Vec<Rank>, Slot)>,
    pub(super) odd: Vec<Rank>,
    pub(super) found: Found,
    /// The odd ones are one operation ahead of or behind the others from here on.
    pub(super) shifted: bool,
}

/// What an operation is compared by: family, element types, elements. `None` where the recorder does not tell.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Args {
    family: Option<Family>,
    dtypes: Vec<Arc<str>>,
    inputs: Option<i64>,
    outputs: Option<i64>,
}

/// Arguments by number, so that comparing is comparing numbers.
#[derive(Debug, Default)]
struct ArgIds {
    by_slot: BTreeMap<(u32, u32, bool), u32>,
    by_args: BTreeMap<Args, u32>,
    all: Vec<Args>,
}

impl ArgIds {
    fn of(&mut self, tables: &Tables<'_>, slot: &Slot) -> u32 {
        let key = (slot.op, slot.shape, slot.count > 1);
        if let Some(id) = self.by_slot.get(&key) {
            return *id;
        }
        let args = args(tables, slot);
        let next = self.all.len() as u32;
        let id = *self.by_args.entry(args.clone()).or_insert(next);
        if id == next {
            self.all.push(args);
        }
        self.by_slot.insert(key, id);
        id
    }
}

fn args(tables: &Tables<'_>, slot: &Slot) -> Args {
    let op = tables.ops.get(slot.op as usize);
    let mut out = Args { family: op.map(|op| op.family.clone()), dtypes: Vec::new(), inputs: None, outputs: None };
    let Some((shape, sums)) = tables.shapes.get(slot.shape as usize).zip(tables.sums.get(slot.shape as usize)) else {
        return out;
    };
    out.dtypes = shape.input_dtypes.iter().chain(&shape.output_dtypes).cloned().collect();
    out.dtypes.sort_unstable();
    out.dtypes.dedup();
    let name = op.map_or("", |op| &*op.name);
    let uneven = name.contains("_v") || !sums.even;
    if slot.count > 1 {
        return out;
    }
    (out.inputs, out.outputs) = match op.map_or(OpKind::Unknown, |op| op.kind) {
        OpKind::AllReduce | OpKind::Reduce | OpKind::Gather => (sums.inputs, None),
        OpKind::Broadcast => (None, sums.outputs.or(sums.inputs)),
        OpKind::Scatter => (None, sums.outputs),
        OpKind::AllGather => (sums.inputs.filter(|_| !uneven), sums.outputs),
        OpKind::ReduceScatter => (sums.inputs, sums.outputs.filter(|_| !uneven)),
        // Splits are the caller's; only the sums over all ranks must fit.
        _ => (None, None),
    };
    out
}

/// A cell of a column: lane, slot, number of its arguments.
type Cell<'b> = (usize, &'b Slot, u32);

/// Lanes that mean the same: what they mean, who, and a cell that stands for them.
type Camp = ((u32, u32, u32), Vec<usize>, Slot);

/// A lane that has not agreed with its peers since `start`.
#[derive(Debug)]
struct Run {
    start: u64,
    hard: bool,
    /// Pairs of call stacks that met in it: if it ends, they are legal.
    pairs: Vec<(u32, u32)>,
}

/// What a group disagrees on.
#[derive(Debug, Default)]
pub(super) struct GroupWrong {
    /// The first point of a disagreement that never ends.
    pub(super) lasting: Option<WrongPoint>,
    /// The first disagreement on arguments after which everything went on: silent corruption.
    pub(super) silent: Option<WrongPoint>,
}

struct Scan<'b, 'a> {
    tables: &'b Tables<'a>,
    group: &'b Group,
    id: u32,
    ids: ArgIds,
    runs: BTreeMap<usize, Run>,
    legal: BTreeSet<(u32, u32)>,
    silent: Option<u64>,
}

/// Looks for disagreement in one group.
pub(super) fn look(index: &Index<'_>, id: u32) -> GroupWrong {
    let group = &index.groups[id as usize];
    let tables = &index.tables;
    let columns = suspicious(group, tables);
    if columns.is_empty() {
        return GroupWrong::default();
    }
    let mut scan =
        Scan { tables, group, id, ids: ArgIds::default(), runs: BTreeMap::new(), legal: BTreeSet::new(), silent: None };
    let mut before = None;
    for seq in &columns {
        if before.is_some_and(|before| before + 1 < *seq) {
            scan.end_runs();
        }
        scan.column(*seq);
        before = Some(*seq);
    }
    let last = before.unwrap_or_default();
    scan.settle(last, columns[0])
}

/// Columns in which any lane differs from the lane that is furthest, or in which an all-to-all is uneven.
fn suspicious(group: &Group, tables: &Tables<'_>) -> Vec<u64> {
    let furthest = |lane: &&Lane| (lane.slots.last().map(|slot| slot.seq), lane.slots.len(), u32::MAX - lane.rank.0);
    let Some(reference) = group.lanes.iter().filter(|lane| !lane.slots.is_empty()).max_by_key(furthest) else {
        return Vec::new();
    };
    let uneven: Vec<bool> = tables
        .sums
        .iter()
        .map(|sums| sums.inputs.is_some() && sums.outputs.is_some() && sums.inputs != sums.outputs)
        .collect();
    let exchange: Vec<bool> = tables.ops.iter().map(|op| op.kind == OpKind::AllToAll).collect();
    let is_uneven =
        |slot: &Slot| exchange.get(slot.op as usize) == Some(&true) && uneven.get(slot.shape as usize) == Some(&true);
    let mut out: Vec<u64> = reference.slots.iter().filter(|slot| is_uneven(slot)).map(|slot| slot.seq).collect();
    for lane in &group.lanes {
        let Some(first) = lane.slots.first() else { continue };
        let mut at = reference.slots.partition_point(|slot| slot.seq < first.seq);
        for slot in &lane.slots {
            while reference.slots.get(at).is_some_and(|other| other.seq < slot.seq) {
                at += 1;
            }
            let Some(other) = reference.slots.get(at).filter(|other| other.seq == slot.seq) else { continue };
            let same = slot.op == other.op && slot.shape == other.shape && slot.stack == other.stack;
            if !same || slot.count != other.count {
                out.push(slot.seq);
            }
        }
    }
    out.sort_unstable();
    out.dedup();
    out
}

impl<'b> Scan<'b, '_> {
    fn cells(&mut self, seq: u64) -> Vec<Cell<'b>> {
        let (ids, tables, group) = (&mut self.ids, self.tables, self.group);
        let mut last: Option<((u32, u32, u32), u32)> = None;
        let lanes = group.lanes.iter().enumerate();
        lanes
            .filter_map(|(lane, state)| {
                let slot = state.slot(seq)?;
                let key = (slot.op, slot.shape, slot.count);
                let id = match last {
                    Some((known, id)) if known == key => id,
                    _ => ids.of(tables, slot),
                };
                last = Some((key, id));
                Some((lane, slot, id))
            })
            .collect()
    }

    fn end_runs(&mut self) {
        for run in std::mem::take(&mut self.runs).into_values() {
            self.legal.extend(run.pairs);
        }
    }

    fn column(&mut self, seq: u64) {
        let group = self.group;
        let cells: Vec<(usize, u32, u32, bool)> =
            self.cells(seq).iter().map(|(lane, slot, id)| (*lane, *id, slot.stack, slot.done)).collect();
        if cells.len() < 2 {
            return;
        }
        let splits = self.splits_wrong(seq);
        let most_args = majority(cells.iter().map(|cell| cell.1));
        let most = majority(cells.iter().map(|cell| (cell.1, cell.2)));
        let args_differ = cells.iter().any(|cell| cell.1 != cells[0].1);
        for (lane, args, stack, _) in &cells {
            let reference = most.map(|(_, stack)| stack);
            let hard = splits || (args_differ && most_args != Some(*args));
            let soft = reference.is_none_or(|reference| reference != *stack && reference != NONE && *stack != NONE);
            let soft = soft && (reference.is_some() || cells.iter().any(|cell| cell.2 != *stack));
            if !hard && !soft {
                if let Some(run) = self.runs.remove(lane) {
                    self.legal.extend(run.pairs);
                }
                continue;
            }
            let pairs: Vec<(u32, u32)> = match reference {
                Some(reference) => vec![pair(reference, *stack)],
                None => cells.iter().filter(|cell| cell.2 != *stack).map(|cell| pair(cell.2, *stack)).collect(),
            };
            let known = pairs.iter().all(|pair| self.legal.contains(pair));
            if !hard && known && !self.runs.contains_key(lane) {
                continue;
            }
            let run = self.runs.entry(*lane).or_insert_with(|| Run { start: seq, hard: false, pairs: Vec::new() });
            run.hard |= hard;
            run.pairs.extend(pairs);
        }
        let done = cells.iter().all(|cell| cell.3);
        if (splits || args_differ) && done && cells.len() > 1 && group.lanes.len() > 1 && self.silent.is_none() {
            self.silent = Some(seq);
        }
    }

    /// All members are in an all-to-all and what they send is not what they expect, or one of them breaks with splits that
    /// were always even while the operation does not end. Splits are not recorded, only totals.
    fn splits_wrong(&mut self, seq: u64) -> bool {
        let (tables, members) = (self.tables, self.group.lanes.len());
        let cells = self.cells(seq);
        let mut balance = 0_i64;
        for (_, slot, _) in &cells {
            if !is_exchange(tables, slot) {
                return false;
            }
            let sums = tables.sums.get(slot.shape as usize);
            let Some((inputs, outputs)) = sums.and_then(|sums| sums.inputs.zip(sums.outputs)) else { return false };
            balance = balance.saturating_add(inputs).saturating_sub(outputs);
        }
        (cells.len() == members && balance != 0) || self.breaks_even(seq, &cells)
    }

    /// Most members exchange what everybody always exchanged at this place, some do not, and it does not end.
    fn breaks_even(&self, seq: u64, cells: &[Cell<'_>]) -> bool {
        let Some(usual) = majority(cells.iter().map(|cell| (cell.1.shape, cell.1.stack))) else { return false };
        if cells.iter().all(|cell| cell.1.shape == usual.0) || cells.iter().all(|cell| cell.1.done) {
            return false;
        }
        let mut seen = false;
        for lane in &self.group.lanes {
            let past = lane.slots.iter().take_while(|slot| slot.seq < seq);
            for slot in past.filter(|slot| slot.stack == usual.1 && is_exchange(self.tables, slot)) {
                if slot.shape != usual.0 {
                    return false;
                }
                seen = true;
            }
        }
        seen
    }

    fn settle(mut self, last: u64, first: u64) -> GroupWrong {
        // Lanes that agree in the column after the last suspicious one have come to terms.
        let after: Vec<usize> = self.cells(last + 1).iter().map(|cell| cell.0).collect();
        if after.len() > 1 {
            for lane in after {
                self.runs.remove(&lane);
            }
        }
        let begin = self.group.lanes.iter().filter_map(|lane| lane.slots.first()).map(|slot| slot.seq).max();
        let start = self
            .runs
            .values()
            // Stacks that differ from the first common operation on are how the program is written.
            .filter(|run| run.hard || run.start > begin.unwrap_or(first))
            .map(|run| run.start)
            .min();
        let silent = self.silent.filter(|seq| start != Some(*seq));
        GroupWrong { lasting: start.and_then(|seq| self.point(seq)), silent: silent.and_then(|seq| self.point(seq)) }
    }

    /// The point at `seq`, with its camps and the odd ones among them.
    fn point(&mut self, seq: u64) -> Option<WrongPoint> {
        let splits = self.splits_wrong(seq);
        let cells: Vec<(usize, Slot, u32)> =
            self.cells(seq).iter().map(|(lane, slot, id)| (*lane, **slot, *id)).collect();
        let mut camps: Vec<Camp> = Vec::new();
        let args_differ = cells.iter().any(|cell| cell.2 != cells[0].2);
        for (lane, slot, id) in &cells {
            // Uneven exchanges differ in shape; elsewhere equal arguments in another layout are equal.
            let key = (*id, if splits { slot.shape } else { 0 }, if args_differ || splits { 0 } else { slot.stack });
            match camps.iter_mut().find(|camp| camp.0 == key) {
                Some(camp) => camp.1.push(*lane),
                None => camps.push((key, vec![*lane], *slot)),
            }
        }
        let differs = self.differs(&cells, splits);
        let (odd, found) = self.odd(seq, &camps, splits, &cells);
        let lanes = &self.group.lanes;
        let shifted = odd.first().is_some_and(|lane| self.shifted(seq, *lane, &odd));
        let mut camps: Vec<(Vec<Rank>, Slot)> = camps
            .into_iter()
            .map(|(_, who, slot)| (who.into_iter().map(|lane| lanes[lane].rank).collect(), slot))
            .collect();
        camps.sort_by(|a, b| a.0.len().cmp(&b.0.len()).then_with(|| a.0.cmp(&b.0)));
        let odd = odd.into_iter().map(|lane| lanes[lane].rank).collect();
        Some(WrongPoint { group: self.id, seq, differs, camps, odd, found, shifted })
    }

    fn differs(&self, cells: &[(usize, Slot, u32)], splits: bool) -> Differs {
        let all = |of: &dyn Fn(&Args) -> bool| cells.iter().all(|cell| of(&self.ids.all[cell.2 as usize]));
        let Some(first) = cells.first().map(|cell| &self.ids.all[cell.2 as usize]) else { return Differs::Path };
        if !all(&|args| args.family == first.family) {
            Differs::Op
        } else if !all(&|args| args.dtypes == first.dtypes) {
            Differs::Dtype
        } else if !all(&|args| (args.inputs, args.outputs) == (first.inputs, first.outputs)) {
            Differs::Size
        } else if splits {
            Differs::Splits
        } else {
            Differs::Path
        }
    }

    /// The lanes that are odd: the minority, and where there is none, those that break with their own past.
    fn odd(&self, seq: u64, camps: &[Camp], splits: bool, cells: &[(usize, Slot, u32)]) -> (Vec<usize>, Found) {
        let present = cells.len();
        let others = |camp: &[usize]| -> Vec<usize> {
            cells.iter().map(|cell| cell.0).filter(|lane| !camp.contains(lane)).collect()
        };
        let broke: Vec<(usize, Option<bool>)> =
            cells.iter().map(|(lane, slot, _)| (*lane, self.breaks(*lane, seq, slot))).collect();
        let breakers: Vec<usize> = broke.iter().filter(|(_, broke)| *broke == Some(true)).map(|cell| cell.0).collect();
        if let Some((_, camp, _)) = camps.iter().find(|camp| camp.1.len() * 2 > present) {
            let odd = others(camp);
            if !odd.is_empty() {
                let agrees = breakers == odd;
                return (odd, if agrees { Found::Both } else { Found::Majority });
            }
        }
        let keepers = broke.iter().filter(|(_, broke)| *broke == Some(false)).count();
        if !breakers.is_empty() && keepers > 0 && breakers.len() + keepers == present {
            return (breakers, Found::History);
        }
        let novel: Vec<usize> =
            cells.iter().filter(|(lane, slot, _)| self.is_novel(*lane, seq, slot)).map(|cell| cell.0).collect();
        if !novel.is_empty() && novel.len() < present {
            return (novel, Found::History);
        }
        if splits {
            let unbalanced: Vec<usize> = cells
                .iter()
                .filter(|cell| {
                    self.tables.sums.get(cell.1.shape as usize).is_some_and(|sums| sums.inputs != sums.outputs)
                })
                .map(|cell| cell.0)
                .collect();
            if unbalanced.len() == 1 {
                return (unbalanced, Found::History);
            }
        }
        (if present == 2 { cells.iter().map(|cell| cell.0).collect() } else { Vec::new() }, Found::Not)
    }

    /// Whether what a lane does at `seq` is not what its own past lets expect.
    fn breaks(&self, lane: usize, seq: u64, slot: &Slot) -> Option<bool> {
        let slots = &self.group.lanes[lane].slots;
        let end = slots.partition_point(|slot| slot.seq < seq);
        let symbol = |slot: &Slot| (slot.op, slot.shape, slot.stack);
        let past: Vec<(u32, u32, u32)> = slots[end.saturating_sub(HISTORY)..end].iter().map(symbol).collect();
        history::deviates(&past, history::NEARBY, symbol(slot))
    }

    /// Types or sizes that the lane never used with this operation, although it used the operation before.
    fn is_novel(&self, lane: usize, seq: u64, slot: &Slot) -> bool {
        let slots = &self.group.lanes[lane].slots;
        let past = slots.iter().take_while(|slot| slot.seq < seq).filter(|past| past.op == slot.op);
        let dtypes = |slot: &Slot| self.tables.shapes.get(slot.shape as usize).map(|shape| &shape.input_dtypes);
        let mut seen = false;
        for old in past {
            if dtypes(old) == dtypes(slot) {
                return false;
            }
            seen = true;
        }
        seen
    }

    /// From `seq` on the odd lane does what its peers do one operation later, or earlier.
    fn shifted(&self, seq: u64, lane: usize, odd: &[usize]) -> bool {
        let lanes = &self.group.lanes;
        let Some(peer) = lanes.iter().enumerate().find(|(at, peer)| !odd.contains(at) && peer.slot(seq).is_some())
        else {
            return false;
        };
        let symbol = |lane: &Lane, seq: u64| lane.slot(seq).map(|slot| (slot.op, slot.shape, slot.stack));
        let (me, peer) = (&lanes[lane], peer.1);
        let (mine, theirs) = (symbol(me, seq), symbol(peer, seq));
        let (my_next, their_next) = (symbol(me, seq + 1), symbol(peer, seq + 1));
        if my_next.is_some() && my_next == their_next {
            return false; // they agree again: nobody is ahead or behind
        }
        let skipped = their_next.is_some() && their_next == mine;
        let extra = my_next.is_some() && my_next == theirs;
        // At the end there is no next column: what used to follow theirs is what the odd one does.
        let past = || {
            let slots = me.slots.iter().take_while(|slot| slot.seq < seq).collect::<Vec<_>>();
            slots.windows(2).any(|pair| {
                let of = |slot: &Slot| (slot.op, slot.shape, slot.stack);
                Some(of(pair[0])) == theirs && Some(of(pair[1])) == mine
            })
        };
        mine != theirs && (skipped || extra || (their_next.is_none() && past()))
    }
}

/// A send and a receive that do not mean the same.
#[derive(Clone, Debug)]
pub(super) struct WrongTransfer {
    pub(super) group: u32,
    pub(super) pair: u32,
    pub(super) seq: u64,
    pub(super) cause: Cause,
    pub(super) sent: String,
    pub(super) expected: String,
    pub(super) odd: Vec<Rank>,
}

/// The first transfer of a group whose two sides differ. The odd side is the one that never had such arguments with this
/// peer before; where both or neither had, both are.
pub(super) fn transfer(index: &Index<'_>, id: u32) -> Option<WrongTransfer> {
    let group = &index.groups[id as usize];
    group.pairs.iter().enumerate().find_map(|(number, pair)| {
        let shape = |sender: bool, seq: u64| {
            let half = pair.half(sender, seq)?;
            let dump = group.lane(if sender { pair.from } else { pair.to })?.dump?;
            let entry = index.bundle.dumps[dump].entries.get(half.entry as usize)?;
            let id = *index.translations[dump].shapes.get(entry.shape as usize)?;
            let (shape, sums) = (index.tables.shapes[id as usize], index.tables.sums[id as usize]);
            Some(if sender {
                (sums.inputs?, shape.input_dtypes.first()?)
            } else {
                (sums.outputs?, shape.output_dtypes.first()?)
            })
        };
        // Aligned at the frontiers, only the oldest open one of both sides surely belongs together.
        let open = || pair.oldest_open(true).filter(|seq| pair.oldest_open(false) == Some(*seq));
        let end = pair.end(true).min(pair.end(false));
        let range = if pair.whole { 0..end } else { open().map_or(0..0, |seq| seq..seq + 1) };
        let seq = range
            .into_iter()
            .find(|seq| matches!((shape(true, *seq), shape(false, *seq)), (Some(a), Some(b)) if a != b))?;
        let (sent, expected) = (shape(true, seq)?, shape(false, seq)?);
        let first = if sent.0 == expected.0 { Cause::Dtype } else { Cause::Size };
        let fresh =
            |sender: bool, mine| seq > 0 && (pair.first_of(sender)..seq).all(|old| shape(sender, old) != Some(mine));
        let odd = match (fresh(true, sent), fresh(false, expected)) {
            (true, false) => vec![pair.from],
            (false, true) => vec![pair.to],
            _ => vec![pair.from.min(pair.to), pair.from.max(pair.to)],
        };
        let text = |word: &str, what: (i64, &Arc<str>)| format!("{word} of {} {}", what.0, what.1);
        let (sent, expected) = (text("send", sent), text("recv", expected));
        Some(WrongTransfer { group: id, pair: number as u32, seq, cause: first, sent, expected, odd })
    })
}

fn is_exchange(tables: &Tables<'_>, slot: &Slot) -> bool {
    tables.ops.get(slot.op as usize).is_some_and(|op| op.kind == OpKind::AllToAll)
}

/// Operations of its own past that a lane is compared with.
const HISTORY: usize = 512;

fn pair(one: u32, other: u32) -> (u32, u32) {
    (one.min(other), one.max(other))
}

/// The value of more than half of the items.
fn majority<T: PartialEq + Copy>(items: impl Iterator<Item = T> + Clone) -> Option<T> {
    let (mut best, mut votes, mut total) = (None, 0_usize, 0_usize);
    for item in items.clone() {
        total += 1;
        if votes == 0 {
            best = Some(item);
        }
        if best == Some(item) { votes += 1 } else { votes -= 1 }
    }
    let best = best?;
    (items.filter(|item| *item == best).count() * 2 > total).then_some(best)
}
