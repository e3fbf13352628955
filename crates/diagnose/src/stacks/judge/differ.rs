//! Ranks that do not mean the same operation.
use super::{Doubt, Judge, Ruling, Sink, fault};
use crate::fact::Fact;
use crate::stacks::frames;
use crate::stacks::index::Slot;
use crate::stacks::scene::DumpOp;
use crate::stacks::tables::NONE;
use crate::stacks::verdict::{Cause, Role};
use crate::stacks::wrong::{Differs, Found, WrongPoint};
use mycroft_record::dump::Frame;
use mycroft_record::{Category, HostTime, Rank, What};

impl Judge<'_, '_> {
    /// The disagreement that explains the hang, if one does: its group is stuck at it or behind it.
    pub(super) fn causal_point(&self, absent: &[Sink]) -> Option<WrongPoint> {
        let mut points: Vec<(&WrongPoint, HostTime)> = Vec::new();
        for point in self.wrong.iter().filter_map(|wrong| wrong.lasting.as_ref()) {
            let group = &self.index.groups[point.group as usize];
            let open =
                group.lanes.iter().any(|lane| lane.slots.iter().rev().any(|slot| !slot.done && slot.seq >= point.seq));
            let odd = |rank: &Rank| point.odd.contains(rank);
            let here: Vec<&Sink> = absent.iter().filter(|sink| sink.op.group == point.group).collect();
            let explained = match point.differs {
                Differs::Path => {
                    let all = absent.iter().all(|sink| odd(&sink.rank));
                    let peers = here.len() == absent.len() && here.iter().all(|sink| !odd(&sink.rank));
                    (all || (peers && here.len() * 2 > group.lanes.len())) && !point.odd.is_empty()
                }
                _ => absent.iter().all(|sink| odd(&sink.rank) || sink.op.group == point.group),
            };
            if open && explained {
                let times = group.lanes.iter().filter_map(|lane| self.index.entry(lane, lane.slot(point.seq)?));
                let first = times.map(|entry| entry.created_at).min().unwrap_or_default();
                points.push((point, first));
            }
        }
        // Arguments speak louder than places in the program; of each, the earliest.
        points.sort_by_key(|(point, at)| (point.differs == Differs::Path, *at, point.group));
        points.first().map(|(point, _)| (*point).clone())
    }

    pub(super) fn mismatch(&self, point: &WrongPoint) -> Ruling {
        let op = DumpOp::collective(point.group, point.seq);
        let (category, cause) = self.kind_of(point);
        let mut ruling = fault(What::Desync, category, cause);
        let confidence = match point.found {
            Found::Both => 0.97,
            Found::Majority => 0.95,
            Found::History => 0.8,
            Found::Not => 0.5,
        };
        let members = point.camps.iter().map(|(ranks, _)| ranks.len()).sum::<usize>();
        let many = point.camps.len() > 2 && !point.camps.iter().any(|(ranks, _)| ranks.len() * 2 > members);
        if many {
            let text = "no two camps agree: what ranks give here depends on data (experts without tokens, uneven batches), and \
                        none of them stands out";
            ruling.said.push(self.told().reason("args.data-dependent", text, &[]));
        }
        for rank in point.odd.iter().filter(|_| !many) {
            let conduct = self.blame(&mut ruling, *rank, confidence, Role::Odd);
            let slot = self.index.groups[point.group as usize].lane(*rank).and_then(|lane| lane.slot(point.seq));
            let frame: Option<&Frame> = slot.and_then(|slot| self.index.tables.own_frame(slot.stack));
            conduct.at = frame.cloned().or(conduct.at.take());
        }
        if point.found == Found::Not {
            let all = point.camps.iter().flat_map(|(ranks, _)| ranks).copied().collect();
            ruling.doubts.push(Doubt::WhichOf(all));
        }
        ruling.facts.push(self.mismatch_fact(point, &op));
        ruling.facts.extend(self.splits_fact(point, &op));
        ruling.facts.extend(self.parting(point, &op));
        ruling.facts.extend(self.doing_facts(point.odd.iter().copied()));
        let mut one_each: Vec<Rank> = point.camps.iter().filter_map(|(ranks, _)| ranks.first()).copied().collect();
        one_each.sort_unstable();
        ruling.facts.extend(self.records(&op, &one_each));
        ruling.at = Some(op);
        ruling.point = Some(point.clone());
        ruling
    }

    pub(super) fn kind_of(&self, point: &WrongPoint) -> (Category, Cause) {
        let argument = match point.differs {
            Differs::Op | Differs::Path => None,
            Differs::Dtype => Some(Cause::Dtype),
            Differs::Size => Some(Cause::Size),
            Differs::Splits => Some(Cause::Splits),
        };
        let Some(cause) = argument.filter(|_| !point.shifted) else {
            return (Category::CodeDivergence, Cause::Divergence);
        };
        // Other arguments from another function are another branch; from the same function they are wrong arguments.
        let of = |ranks: &[Rank], odd: bool| ranks.iter().any(|rank| point.odd.contains(rank)) == odd;
        let stack = |odd: bool| point.camps.iter().find(|(ranks, _)| of(ranks, odd)).map(|(_, slot)| slot.stack);
        let function = |stack: Option<u32>| {
            let frame = stack.filter(|stack| *stack != NONE).and_then(|stack| self.index.tables.own_frame(stack));
            frame.map(|frame| (frame.name.clone(), frame.file.clone()))
        };
        match (function(stack(true)), function(stack(false))) {
            (Some(mine), Some(theirs)) if mine != theirs => (Category::CodeDivergence, Cause::Divergence),
            _ => (Category::ArgumentMismatch, cause),
        }
    }

    pub(super) fn mismatch_fact(&self, point: &WrongPoint, op: &DumpOp) -> Fact {
        let host = |rank: &Rank| (*rank, self.host(*rank));
        let camps =
            point.camps.iter().map(|(ranks, slot)| (self.meaning(point, slot), ranks.iter().map(host).collect()));
        let group = &self.index.groups[point.group as usize];
        let ranks: Vec<Rank> = point.camps.iter().filter_map(|(ranks, _)| ranks.first()).copied().collect();
        let mut op = self.op_ref(&ranks, op);
        op.label = format!("operation {} of {}", point.seq, group.label());
        Fact::Mismatch {
            op,
            camps: camps.collect(),
            kinds_differ: matches!(point.differs, Differs::Op | Differs::Path),
            never_before: Vec::new(),
            out_of_turn: Vec::new(),
        }
    }

    /// What a camp means by the operation: `all_reduce of [[8, 4]] Float at sync (train.py:88)`.
    pub(super) fn meaning(&self, point: &WrongPoint, slot: &Slot) -> String {
        let tables = &self.index.tables;
        let name = tables.ops.get(slot.op as usize).map_or("?", |op| &*op.name);
        let mut text = name.to_owned();
        if let Some(shape) = tables.shapes.get(slot.shape as usize) {
            let dtypes = if shape.input_dtypes.is_empty() { &shape.output_dtypes } else { &shape.input_dtypes };
            let sizes = if shape.inputs.is_empty() { &shape.outputs } else { &shape.inputs };
            if !sizes.is_empty() {
                text += &format!(" of {sizes:?}");
            }
            if point.differs == Differs::Splits && !shape.outputs.is_empty() {
                text += &format!(" into {:?}", shape.outputs);
            }
            if let Some(dtype) = dtypes.first() {
                text += &format!(" {dtype}");
            }
        }
        if let Some(frame) = tables.own_frame(slot.stack) {
            text += &format!(" at {}", frames::text(frame));
        }
        text
    }

    pub(super) fn splits_fact(&self, point: &WrongPoint, op: &DumpOp) -> Option<Fact> {
        if point.differs != Differs::Splits {
            return None;
        }
        let group = &self.index.groups[point.group as usize];
        let slots = group.lanes.iter().filter_map(|lane| lane.slot(point.seq));
        let sums = slots.filter_map(|slot| self.index.tables.sums.get(slot.shape as usize));
        let (mut sent, mut expected) = (0_i64, 0_i64);
        for sums in sums {
            sent = sent.saturating_add(sums.inputs.unwrap_or(0));
            expected = expected.saturating_add(sums.outputs.unwrap_or(0));
        }
        Some(Fact::SplitsDiffer { op: self.op_ref(&point.odd, op), sent, expected })
    }

    pub(super) fn parting(&self, point: &WrongPoint, op: &DumpOp) -> Option<Fact> {
        let odd = |ranks: &[Rank]| ranks.iter().any(|rank| point.odd.contains(rank));
        let mine = point.camps.iter().find(|(ranks, _)| odd(ranks))?;
        let theirs = point.camps.iter().rev().find(|(ranks, _)| !odd(ranks))?;
        let (a, b) = self.index.tables.parting(mine.1.stack, theirs.1.stack)?;
        Some(Fact::PathsPart {
            op: self.op_ref(&point.odd, op),
            odd: point.odd.clone(),
            odd_at: frames::text(a),
            peers_at: frames::text(b),
        })
    }

    /// Arguments that differ although everything went on.
    pub(super) fn silent(&self) -> Option<Ruling> {
        let wrongs = self.wrong.iter();
        let points = wrongs.flat_map(|wrong| [wrong.silent.as_ref(), wrong.lasting.as_ref()]).flatten();
        let argument = |point: &&WrongPoint| matches!(point.differs, Differs::Dtype | Differs::Size | Differs::Splits);
        let point = points.filter(argument).min_by_key(|point| (point.group, point.seq))?;
        let mut ruling = self.mismatch(point);
        for conduct in ruling.conduct.values_mut() {
            conduct.doing = "went on with other arguments than its peers: what was reduced is wrong".to_owned();
        }
        Some(ruling)
    }
}
