//! The operations that a rank has in flight. They come and go all the time, so each stays where it is as long as it lasts,
//! and what was there for its flows serves the next one.
use super::comms::Sorted;
use super::rank::LiveOp;
use mycroft_record::{OpId, OpState};

/// Room for flows that is kept for the next operation: both directions of eight channels, 16 x 100 B = 1.6 KB for each
/// operation that was in flight at once.
const FLOWS_KEPT: usize = 16;

/// Operations in flight, found by their ids and walked in ascending order of them.
#[derive(Debug, Default)]
pub(crate) struct Live {
    /// Ascending.
    ids: Vec<OpId>,
    /// Where each of them lies.
    places: Vec<u16>,
    ops: Vec<LiveOp>,
    /// Places where nothing lies that is still of use.
    free: Vec<u16>,
    /// The one that was asked for last: records of one operation, and of its neighbours, come together.
    last: usize,
}

impl Live {
    fn find(&self, id: &OpId) -> Result<usize, usize> {
        match self.ids.last() {
            Some(last) if last < id => Err(self.ids.len()),
            None => Err(0),
            Some(_) => self.ids.binary_search(id),
        }
    }

    pub(crate) fn get(&self, id: &OpId) -> Option<&LiveOp> {
        self.find(id).ok().map(|at| &self.ops[usize::from(self.places[at])])
    }

    pub(crate) fn get_mut(&mut self, id: &OpId) -> Option<&mut LiveOp> {
        let near = [self.last, self.last + 1].into_iter().find(|at| self.ids.get(*at) == Some(id));
        self.last = near.or_else(|| self.find(id).ok())?;
        Some(&mut self.ops[usize::from(self.places[self.last])])
    }

    /// Takes in the first look at an operation, unless there are `most` already.
    pub(super) fn begin(&mut self, state: &OpState, most: u16) {
        let Err(at) = self.find(&state.op.id) else { return };
        if self.len() >= usize::from(most) {
            return;
        }
        let place = match self.free.pop() {
            Some(place) => {
                let op = &mut self.ops[usize::from(place)];
                let flows = std::mem::take(&mut op.flows);
                *op = LiveOp::new(state, flows);
                place
            }
            None => {
                self.ops.push(LiveOp::new(state, Sorted::default()));
                (self.ops.len() - 1) as u16
            }
        };
        self.ids.insert(at, state.op.id);
        self.places.insert(at, place);
    }

    pub(super) fn end(&mut self, id: &OpId) {
        if let Ok(at) = self.find(id) {
            self.ids.remove(at);
            let place = self.places.remove(at);
            self.vacate(place);
        }
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&OpId, &LiveOp) -> bool) {
        let mut kept = 0;
        for at in 0..self.ids.len() {
            let (id, place) = (self.ids[at], self.places[at]);
            if keep(&id, &self.ops[usize::from(place)]) {
                (self.ids[kept], self.places[kept]) = (id, place);
                kept += 1;
            } else {
                self.vacate(place);
            }
        }
        self.ids.truncate(kept);
        self.places.truncate(kept);
    }

    fn vacate(&mut self, place: u16) {
        self.ops[usize::from(place)].flows.clear(FLOWS_KEPT);
        self.free.push(place);
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &OpId> {
        self.ids.iter()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &LiveOp> {
        self.places.iter().map(|place| &self.ops[usize::from(*place)])
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn look(seq: u64, at: u64) -> OpState {
        let op = OpMeta {
            id: OpId { comm: CommId(seq % 3), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) },
            kind: OpKind::AllReduce,
            nccl_seq: 0,
            comm_rank: CommRank(0),
            count: seq,
            datatype: Datatype::Float32,
            root: 0,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            n_channels: 1,
            enqueued_at: HostTime(at),
            started_at: HostTime::NONE,
            started_last_at: HostTime::NONE,
        };
        let sampled_at = HostTime(at);
        OpState { sampled_at, op, kernels_started: 0, kernels_stopped: 0, flows_started: 0, flows_done: 0 }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// It is a map from ids to operations, whatever lay where they lie.
        #[test]
        fn operations_are_found_where_they_lie(steps in proptest::collection::vec((0u8..5, 0u64..12), 0..200)) {
            let (mut live, mut map) = (Live::default(), BTreeMap::new());
            for (at, (what, seq)) in (1..).zip(steps) {
                let state = look(seq, at);
                match what {
                    0 | 1 if map.len() < 8 || map.contains_key(&state.op.id) => {
                        live.begin(&state, 8);
                        map.entry(state.op.id).or_insert(HostTime(at));
                    }
                    0 | 1 => live.begin(&state, 8),
                    2 => {
                        live.end(&state.op.id);
                        map.remove(&state.op.id);
                    }
                    3 => {
                        live.retain(|id, op| id.seq.0 % 2 == seq % 2 || op.seen_at.0 % 3 == 0);
                        map.retain(|id, seen_at| id.seq.0 % 2 == seq % 2 || seen_at.0 % 3 == 0);
                    }
                    _ => {
                        let found = live.get_mut(&state.op.id).map(|op| op.seen_at);
                        prop_assert_eq!(found, map.get(&state.op.id).copied());
                    }
                }
                prop_assert_eq!(live.get(&state.op.id).map(|op| op.meta.id.seq.0), map.get(&state.op.id).map(|_| seq));
                prop_assert!(live.keys().eq(map.keys()) && live.values().map(|op| &op.seen_at).eq(map.values()));
                prop_assert!(live.values().all(|op| op.flows.is_empty()) && live.ops.len() <= 8);
            }
        }
    }
}
