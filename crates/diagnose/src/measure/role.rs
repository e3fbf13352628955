//! Who does the same as whom: ranks whose programs have the same operations, by kind, size and communicator's size.
use crate::timeline::{MARKER_MIN, RankState, Timeline};
use mycroft_record::{CommId, OpKind};
use std::collections::{BTreeMap, BTreeSet};

/// What tells an operation from others of its kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum What {
    /// A collective's size, by its power of two.
    Size(u32),
    /// A message between stages of a pipeline: whether the peer is after the rank, as of the first stage all are.
    Ahead(bool),
    /// The same of a communicator whose messages come more often than another's: layers exchange more often than stages.
    AheadOften(bool),
    /// A message of an exchange of all with all, as of tokens for experts.
    Exchange,
}

/// A line of a program: the kind, what tells it from others of the kind, and how many take part.
type Line = (OpKind, What, u32);

/// In a ring of up to so many stages each is beside each other: messages with all others are no exchange for sure.
const RING_OF_ALL: u32 = 3;

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

/// What a rank has done so far, as far as it recurs.
fn program(timeline: &Timeline, state: &RankState) -> BTreeSet<Line> {
    let all = state.iterations.lines().filter(|(_, count)| *count >= MARKER_MIN);
    let (messages, collectives): (Vec<_>, Vec<_>) =
        all.partition(|((_, kind, ..), _)| matches!(kind, OpKind::Send | OpKind::Recv));
    let size = |comm: CommId| timeline.comms.get(&comm).map_or(0, |comm| comm.n_ranks);
    let mut lines: BTreeSet<Line> = BTreeSet::new();
    lines.extend(
        collectives.iter().map(|((comm, kind, count, _), _)| (*kind, What::Size(count.max(&1).ilog2()), size(*comm))),
    );
    let mut with: BTreeMap<CommId, Messages> = BTreeMap::new();
    for ((comm, kind, peer, _), count) in messages {
        let me = state.comms.get(&comm).map_or(0, |joined| u64::from(joined.me.0));
        with.entry(comm).or_default().take(kind, (me, peer), count);
    }
    let seldom = with.values().map(|messages| messages.count).min().unwrap_or(0);
    for (comm, messages) in &with {
        let size = size(*comm);
        lines.extend(messages.lines.iter().map(|(kind, ahead)| (*kind, messages.what(*ahead, size, seldom), size)));
    }
    lines
}

/// What a rank sends and receives in a communicator.
#[derive(Default)]
struct Messages {
    /// Kinds, and whether to or from ranks after this one.
    lines: BTreeSet<(OpKind, bool)>,
    peers: BTreeSet<u64>,
    /// The most messages of a kind with a peer.
    count: u64,
}

impl Messages {
    fn take(&mut self, kind: OpKind, (me, peer): (u64, u64), count: u64) {
        if peer != me {
            self.lines.insert((kind, peer > me));
            self.peers.insert(peer);
        }
        self.count = self.count.max(count);
    }

    /// What tells a message to or from a rank after this one, or before it. `seldom` counts the messages of the communicator with fewest.
    fn what(&self, ahead: bool, members: u32, seldom: u64) -> What {
        let with_all = self.peers.len() as u64 + 1 >= u64::from(members);
        match (with_all && members > RING_OF_ALL, self.count * 2 > seldom * 3) {
            (true, _) => What::Exchange,
            (false, true) => What::AheadOften(ahead),
            (false, false) => What::Ahead(ahead),
        }
    }
}

#[cfg(test)]
mod tests;
