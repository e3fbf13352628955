//! Who does the same as whom: ranks whose programs have the same operations, by kind, size and communicator's size.
use crate::timeline::{RankState, Timeline};
use mycroft_record::OpKind;
use std::collections::{BTreeMap, BTreeSet};

/// An operation must have come so often to be a part of the program.
const RECURS: u64 = 3;

/// A line of a program: the kind, what tells it from others of the kind, and how many take part.
type Line = (OpKind, u32, u32);

/// A rank's place in the job, as far as its operations tell: pipeline stage, tensor position, part in an exchange. Ranks of
/// the same role do the same work by design. A number without a meaning of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Role(u32);

impl Role {
    /// One of several.
    #[cfg(test)]
    pub(crate) fn number(number: u32) -> Role {
        Role(number)
    }

    /// For whoever compares ranks outside of the brain.
    pub(crate) fn as_number(self) -> u32 {
        self.0
    }

    /// Of something that carries so much, in steps.
    pub(super) fn of_load(step: i32) -> Role {
        Role(step.cast_unsigned())
    }
}

/// The roles of all ranks, by slot.
pub(super) fn of_all(timeline: &Timeline) -> Vec<Role> {
    let programs: Vec<BTreeSet<Line>> = timeline.ranks.by_slot().iter().map(|state| program(timeline, state)).collect();
    let different: BTreeSet<&BTreeSet<Line>> = programs.iter().collect();
    let numbers: BTreeMap<&BTreeSet<Line>, u32> = different.into_iter().zip(0..).collect();
    programs.iter().map(|program| Role(numbers[program])).collect()
}

/// What a rank has done so far. Sizes count by their power of two; of sends and receives whether the peer is before or after
/// the rank, which tells the first stage of a pipeline from the last.
fn program(timeline: &Timeline, state: &RankState) -> BTreeSet<Line> {
    let line = |(comm, kind, size_or_peer): (_, OpKind, u64)| {
        let size = timeline.comms.get(&comm).map_or(0, |comm| comm.n_ranks);
        let what = match kind {
            OpKind::Send | OpKind::Recv => {
                u32::from(state.comms.get(&comm).is_some_and(|joined| size_or_peer > u64::from(joined.me.0)))
            }
            _ => size_or_peer.max(1).ilog2(),
        };
        (kind, what, size)
    };
    let recurring = state.iterations.lines().filter(|(_, count)| *count >= RECURS);
    recurring.map(|((comm, kind, size_or_peer, _), _)| line((comm, kind, size_or_peer))).collect()
}
