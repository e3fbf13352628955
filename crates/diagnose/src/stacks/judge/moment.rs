//! Stacks against dumps: they may show different moments, or what no recorder holds.
use super::{Doubt, Judge, OPEN_MAX, RECORDS_MAX, Ruling, family_of_call, fault, kind_of_stuck};
use crate::fact::Fact;
use crate::stacks::doing::Activities;
use crate::stacks::frames;
use crate::stacks::index::Lane;
use crate::stacks::scene::DumpOp;
use crate::stacks::verdict::Role;
use crate::stacks::wrong;
use mycroft_record::{Category, OpKind, Rank, What};

impl Judge<'_, '_> {
    /// No recorder tells what ended, and every rank of which there are stacks waits for its peers: several, so that none of
    /// them is merely between two operations.
    pub(super) fn waits_behind_retired(&self) -> bool {
        let stacks: Vec<Rank> = self.index.bundle.stacks.iter().filter_map(|process| process.rank).collect();
        let tells = &self.index.tells;
        let none_tells = !tells.is_empty() && tells.iter().all(|tells| tells.retires_only);
        none_tells && stacks.len() > 1 && stacks.iter().all(|rank| self.doings.waits_for_peers(*rank))
    }

    /// The job went on while it was looked at: a rank's stack is in a collective that its dump, taken before, does not hold
    /// open, while it holds another open that the rank must have left since.
    pub(super) fn running(&self) -> bool {
        self.graph.current.iter().any(|(rank, ops)| {
            let called = self.doings.of.get(rank).and_then(|doing| doing.waits_in).and_then(family_of_call);
            let Some(called) = called else { return false };
            let open = |op: &DumpOp| {
                let slot =
                    op.collective_seq().and_then(|seq| self.index.groups[op.group as usize].lane(*rank)?.slot(seq));
                slot.and_then(|slot| self.index.tables.ops.get(slot.op as usize)).map(|op| op.kind)
            };
            let kinds: Vec<OpKind> = self.open_kinds(*rank);
            // Transfers and operations without a word of ours say nothing either way.
            ops.iter().all(|op| open(op).is_some_and(|kind| kind != OpKind::Unknown))
                && !kinds.contains(&called)
                && self.called_before(*rank, called)
        })
    }

    /// The rank was through a call from this very place before: its group is set up, and a call is recorded at once.
    fn called_before(&self, rank: Rank, called: OpKind) -> bool {
        let Some(place) = self.doings.of.get(&rank).and_then(|doing| doing.at) else { return false };
        let groups = self.index.groups_of.get(&rank).into_iter().flatten();
        let lanes = groups.filter_map(|group| self.index.groups[*group as usize].lane(rank));
        lanes.flat_map(|lane| &lane.slots).filter(|slot| slot.done).any(|slot| {
            let tables = &self.index.tables;
            let same = tables.ops.get(slot.op as usize).is_some_and(|op| op.kind == called);
            same && tables.own_frame(slot.stack).is_some_and(|frame| frames::same_place(frame, place))
        })
    }

    /// A dump that is older than its peers': they are through collectives that nobody leaves before all are in, and that
    /// its rank had not issued when it was written. Returns the rank, and by how many nanoseconds it is older.
    pub(super) fn older_dump(&self) -> Option<(Rank, u64)> {
        let any_open = self.graph.current.values().any(|ops| !ops.is_empty());
        self.index.groups.iter().find_map(|group| {
            let through = group.lanes.iter().filter_map(|lane| {
                let tells = self.index.tells[lane.dump?];
                // Who retires without completing is through only what it went on from, and if it holds anything open.
                let skip = usize::from(tells.retires_only);
                let sure = !tells.retires_only || any_open;
                let mut done = lane.slots.iter().rev().skip(skip).filter(|slot| sure && slot.done);
                done.find(|slot| self.scene.waits_for_all(slot)).map(|slot| (slot.seq, lane))
            });
            let (seq, ahead) = through.max_by_key(|(seq, lane)| (*seq, lane.rank))?;
            let behind = group.lanes.iter().find(|lane| {
                let issued = lane.slots.last().map(|slot| slot.seq).or(lane.issued);
                lane.dump.is_some() && !self.index.is_printed(lane) && issued.is_some_and(|issued| issued < seq)
            })?;
            let newest = |lane: &Lane| {
                let entries = self.index.dump(lane).map(|dump| dump.entries.as_slice()).unwrap_or_default();
                entries.iter().map(|entry| entry.created_at.max(entry.completed_at)).max().unwrap_or_default()
            };
            Some((behind.rank, newest(ahead).since_ns(newest(behind))))
        })
    }

    /// What a rank has in flight, the operations that queue behind others included.
    pub(super) fn open_kinds(&self, rank: Rank) -> Vec<OpKind> {
        let groups = self.index.groups_of.get(&rank).into_iter().flatten();
        let lanes = groups.filter_map(|group| self.index.groups[*group as usize].lane(rank));
        let open = lanes.flat_map(|lane| lane.slots.iter().rev().take(OPEN_MAX).filter(|slot| !slot.done));
        let mut kinds: Vec<OpKind> =
            open.filter_map(|slot| self.index.tables.ops.get(slot.op as usize)).map(|op| op.kind).collect();
        // Native Gloo records a reduce-scatter as an all-reduce.
        if kinds.contains(&OpKind::AllReduce) {
            kinds.push(OpKind::ReduceScatter);
        }
        kinds
    }

    /// No dump holds anything in flight, yet stacks show ranks that wait for their peers: in something that is not recorded.
    /// The few that do not wait are what they wait for.
    pub(super) fn by_stacks(&self) -> Option<Ruling> {
        let waits = |rank: &Rank| {
            let doing = self.doings.of.get(rank)?;
            let recorded = doing.waits_in.and_then(family_of_call).is_some() && self.index.has_dump(*rank);
            Some(doing.activity == Activities::WaitsForPeers && !recorded)
        };
        let told: Vec<(Rank, bool)> = self.index.ranks.iter().filter_map(|rank| Some((*rank, waits(rank)?))).collect();
        let waiting: Vec<Rank> = told.iter().filter(|(_, waits)| *waits).map(|(rank, _)| *rank).collect();
        let idle: Vec<Rank> =
            told.iter().map(|(rank, _)| *rank).filter(|rank| !self.doings.waits_for_peers(*rank)).collect();
        if idle.is_empty() || waiting.len() < idle.len() || told.len() < self.index.ranks.len() {
            return None;
        }
        let activity = self.doings.of.get(&idle[0]).map(|doing| doing.activity);
        let (category, cause) = kind_of_stuck(activity);
        let mut ruling = fault(What::Hang, category, cause);
        for rank in &idle {
            self.blame(&mut ruling, *rank, 0.7, Role::Absent);
        }
        ruling.missing.clone_from(&idle);
        ruling.facts = self.doing_facts(idle.iter().chain(waiting.iter().take(RECORDS_MAX)).copied());
        ruling.called = self.doings.of.get(&waiting[0]).and_then(|doing| doing.waits_in).map(str::to_owned);
        let world = self.index.groups.iter().enumerate().find(|(_, group)| group.lanes.len() == self.index.ranks.len());
        let recorded = ruling.called.as_deref().and_then(family_of_call).is_some();
        ruling.at = world.filter(|_| recorded).and_then(|(id, group)| {
            let last = group.lane(idle[0])?.slots.last().map_or(0, |slot| slot.seq);
            Some(DumpOp::collective(id as u32, last + 1))
        });
        let dumps = &self.index.bundle.dumps;
        let blank = dumps.iter().any(|dump| dump.rank == idle[0] && dump.entries.is_empty());
        ruling.seq = (recorded && blank).then_some(1); // it never issued anything: its first is waited for
        Some(ruling)
    }

    /// A send and the receive that meets it do not mean the same.
    pub(super) fn transfer_mismatch(&self) -> Option<Ruling> {
        let found = (0..self.index.groups.len()).find_map(|id| wrong::transfer(self.index, id as u32))?;
        let mut ruling = fault(What::Desync, Category::ArgumentMismatch, found.cause);
        let op = DumpOp::transfer(found.group, found.pair, found.seq);
        let pair = &self.index.groups[found.group as usize].pairs[found.pair as usize];
        let confidence = if found.odd.len() == 1 { 0.85 } else { 0.5 };
        for rank in &found.odd {
            self.blame(&mut ruling, *rank, confidence, Role::Odd);
        }
        if found.odd.len() > 1 {
            ruling.doubts.push(Doubt::WhichOf(found.odd.clone()));
        }
        let camp = |text: &String, rank: Rank| (text.clone(), vec![(rank, self.host(rank))]);
        let camps = vec![camp(&found.sent, pair.from), camp(&found.expected, pair.to)];
        ruling.facts.push(Fact::Mismatch {
            op: self.op_ref(&[pair.to], &op),
            camps,
            kinds_differ: false,
            never_before: Vec::new(),
            out_of_turn: Vec::new(),
        });
        ruling.facts.extend(self.doing_facts(found.odd.iter().copied()));
        ruling.facts.extend(self.records(&op, &[pair.from, pair.to]));
        ruling.at = Some(op);
        Some(ruling)
    }
}
