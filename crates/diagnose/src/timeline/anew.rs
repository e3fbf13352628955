//! A job that is started again: whose processes are new, which are forgotten, and what of those that live on is kept.
use super::Timeline;
use super::rank::RankState;
use super::ranks::Slot;
#[cfg(test)]
use mycroft_record::NANOS_PER_SEC;
use mycroft_record::{Batch, CommId, CommInit, CommRank, HostTime, Rank, Record};
use std::collections::BTreeSet;

/// Processes of earlier lives that are remembered, so that what still comes of them is left alone: two lives of 100,000 ranks.
const BEFORE_MAX: usize = 200_000;

impl Timeline {
    /// Whether a batch is of a process that takes the place of one that is gone, or of which nothing was heard for
    /// `no_data_after_ns`, or comes when all are gone.
    pub(crate) fn begins_anew(&self, batch: &Batch, no_data_after_ns: u64) -> bool {
        let Some(process) = batch.source.process.filter(|_| !self.ranks.is_empty()) else { return false };
        let key = (batch.source.host.clone(), process);
        if self.before.contains(&key) || self.unnamed.contains_key(&key) {
            return false;
        }
        match self.ranks.get(&process.rank).filter(|_| process.rank != Rank::UNKNOWN) {
            Some(known) if known.process == process => false,
            Some(known) => known.is_gone() || batch.collected_at.since_ns(known.sampled_at) > no_data_after_ns,
            None => self.leaving.len() == self.ranks.len() && self.leaving().all(RankState::is_gone),
        }
    }

    /// Whether what still comes of a process says nothing any more: it is of an earlier life.
    pub(super) fn is_of_before(&self, batch: &Batch) -> bool {
        let Some(process) = batch.source.process.filter(|_| !self.before.is_empty()) else { return false };
        self.before.contains(&(batch.source.host.clone(), process))
    }

    /// Whether a record of a process that lived on is about a communicator of which another is gone for good: nothing in it
    /// goes on.
    pub(super) fn is_of_over(&self, slot: Slot, record: &Record) -> bool {
        let comm = match record {
            Record::OpState(op) => op.op.id.comm,
            Record::OpDone(op) => op.op.id.comm,
            Record::FlowState(flow) => flow.flow.op.comm,
            Record::FlowDone(flow) => flow.flow.op.comm,
            Record::CommInit(init) => init.comm,
            _ => return false,
        };
        self.ranks.at(slot).carried && self.over.contains(&comm)
    }

    /// The job as it is when it begins anew because of `first`: without those that are gone, silent or replaced, and without
    /// the communicators that one of them was in.
    pub(crate) fn anew(&self, first: &Batch, no_data_after_ns: u64) -> Timeline {
        let replaced = first.source.process.map(|process| process.rank);
        let is_over = |state: &RankState| {
            state.is_gone() || Some(state.rank) == replaced || self.no_data(state, no_data_after_ns)
        };
        let (gone, stay): (Vec<&RankState>, Vec<&RankState>) = self.ranks.values().partition(|state| is_over(state));
        let mut next = Timeline { newest_sample: self.newest_sample, ..Timeline::default() };
        (next.clock_errors, next.clock_error_ns) = (self.clock_errors.clone(), self.clock_error_ns);
        if self.before.len() + gone.len() <= BEFORE_MAX {
            next.before.clone_from(&self.before);
        }
        let gone_ranks: BTreeSet<Rank> = gone.iter().map(|state| state.rank).collect();
        next.over = gone.iter().flat_map(|state| state.comms.keys().copied()).collect();
        next.before.extend(gone.iter().map(|state| (state.host.clone(), state.process)));
        let names = self.unnamed.iter().filter(|(_, rank)| !gone_ranks.contains(rank));
        next.unnamed = names.map(|(key, rank)| (key.clone(), *rank)).collect();
        for state in stay {
            next.carry_over(self, state);
        }
        next.count_unknown_clocks();
        next
    }

    /// Takes over a rank that lives on, with its communicators that are whole.
    fn carry_over(&mut self, from: &Timeline, state: &RankState) {
        let fresh = RankState {
            world_size: state.world_size,
            kernel_events: state.kernel_events,
            nccl_version: state.nccl_version,
            has_shown_broadcast: state.has_shown_broadcast,
            sampled_at: state.sampled_at,
            clock_error_ns: state.clock_error_ns,
            carried: true,
            ..RankState::new(state.rank, state.host.clone(), state.process)
        };
        let slot = self.ranks.slot_or_insert(state.rank, || fresh);
        let whole = state.comms.iter().filter(|(comm, joined)| !joined.ended && !self.over.contains(comm));
        let known: Vec<(CommId, CommRank)> = whole.map(|(comm, joined)| (*comm, joined.me)).collect();
        for (comm, comm_rank) in known {
            let Some(of) = from.comms.get(&comm) else { continue };
            let (n_ranks, name) = (of.n_ranks, of.name.clone());
            self.on_comm_init(slot, &CommInit { at: HostTime::NONE, comm, n_ranks, n_nodes: 0, comm_rank, name });
        }
    }

    /// Takes a batch in as an engine does.
    #[cfg(test)]
    pub(super) fn live_on(&mut self, batch: &Batch) {
        if self.begins_anew(batch, NANOS_PER_SEC) {
            *self = self.anew(batch, NANOS_PER_SEC);
        }
        self.observe(batch, 500_000);
    }
}
