//! What senders did together in one operation.
use super::Operation;
use std::collections::{BTreeMap, BTreeSet};

/// What one sender sent to one receiver over one queue pair or connection.
#[derive(Clone, Debug)]
pub struct Sent<'a> {
    /// Number of the sender, as the caller counts them.
    pub from: u32,
    /// Number of the receiver.
    pub to: u32,
    /// Epochs that are not empty and their bytes, in order of time.
    pub epochs: &'a [(u64, u32)],
    /// The operations in them, in order of time.
    pub operations: Vec<Operation>,
}

/// What one sender did in a round.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Share {
    pub(super) from: u32,
    /// Its communicator: the smallest number in it.
    pub(super) group: u32,
    /// Its receivers.
    pub(super) to: BTreeSet<u32>,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) bytes: u64,
    /// Its silences but the longest, nanoseconds: a sender whose receiver is late is silent once.
    pub(super) pauses_ns: u64,
    /// When it sent: of several queue pairs to one receiver each, of several receivers when it sent to any (Pulse,
    /// section 6.2, custom collectives).
    pub(super) active: Active,
    /// The same of each receiver alone, where there are several.
    pub(super) ways: Vec<(u32, Active)>,
    /// Bytes that its flows send in whole operations like this one; 0: no two are alike.
    pub(super) whole_bytes: u64,
}

/// Share of its epochs that are fuller than the one that stands for a sender's rate. In a ring of two channels others wait for a
/// straggler after each slice of 40 us (Pulse, section 6.1): of their epochs of 32 us an eighth holds no part of a gap.
const FULLER: f64 = 0.1;

/// Epochs that are not empty.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct Active {
    pub(super) epochs: u64,
    /// Bytes of an epoch without a gap in it. Where it waits for others a sender's epochs are filled in part only, so their mean
    /// would make it look slow.
    pub(super) full_bytes: u64,
}

impl Active {
    /// Of the bytes of epochs.
    pub(super) fn of(epochs: impl IntoIterator<Item = u64>) -> Active {
        let mut bytes: Vec<u64> = epochs.into_iter().collect();
        let at = (bytes.len() as f64 * (1.0 - FULLER)) as usize;
        let full_bytes = if bytes.is_empty() { 0 } else { *bytes.select_nth_unstable(at).1 };
        Active { epochs: bytes.len() as u64, full_bytes }
    }
}

/// One operation of several senders at one time.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Round {
    /// Rounds of the same number are alike.
    pub(super) class: usize,
    pub(super) shares: Vec<Share>,
}

impl Round {
    pub(super) fn start_ns(&self) -> u64 {
        self.shares.iter().map(|share| share.start_ns).min().unwrap_or(0)
    }

    /// Those of its senders that wait for each other, group by group: rings, and all-to-all of which each sends to all others.
    pub(super) fn groups(&self) -> Vec<Vec<u32>> {
        let mut left: BTreeMap<u32, &BTreeSet<u32>> = self.shares.iter().map(|share| (share.from, &share.to)).collect();
        let mut groups = Vec::new();
        while let Some((first, to)) = left.pop_first() {
            let mut group = vec![first];
            let mut next: Vec<u32> = to.iter().copied().collect();
            let (mut is_ring, mut most, mut least) = (to.len() == 1, to.len(), to.len());
            while let Some(member) = next.pop() {
                let Some(to) = left.remove(&member) else { continue };
                group.push(member);
                (is_ring, most, least) = (is_ring && to.len() == 1, most.max(to.len()), least.min(to.len()));
                next.extend(to);
            }
            let closes = |from: &u32| self.of(*from).is_some_and(|share| share.to.iter().all(|to| group.contains(to)));
            let is_mesh = least == most && most + 1 == group.len();
            if group.len() > 2 && (is_ring || is_mesh) && group.iter().all(closes) {
                group.sort_unstable();
                groups.push(group);
            }
        }
        groups
    }

    /// What a sender did in it.
    pub(super) fn of(&self, from: u32) -> Option<&Share> {
        self.shares.iter().find(|share| share.from == from)
    }
}

/// Parts of several communicators that lie beside each other in time as rounds.
pub(super) fn together_in_time(class: usize, parts: Vec<(u32, Vec<Share>)>) -> Vec<Round> {
    let span = |(_, shares): &(u32, Vec<Share>)| {
        let start_ns = shares.iter().map(|share| share.start_ns).min().unwrap_or(0);
        (start_ns, shares.iter().map(|share| share.end_ns).max().unwrap_or(start_ns))
    };
    let rounds = beside(parts, span, |(communicator, _)| *communicator as usize);
    let round = |parts: Vec<(u32, Vec<Share>)>| {
        let mut shares: Vec<Share> = parts.into_iter().flat_map(|(_, shares)| shares).collect();
        shares.sort_by_key(|share| share.from);
        Round { class, shares }
    };
    rounds.into_iter().map(round).collect()
}

/// What lies beside each other in time (beginning, end), at most one of each owner.
pub(super) fn beside<T>(mut all: Vec<T>, span: impl Fn(&T) -> (u64, u64), owner: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    all.sort_by_key(|one| (span(one).0, owner(one)));
    let mut groups: Vec<Vec<T>> = Vec::new();
    let mut until_ns = 0;
    for one in all {
        let ((start_ns, end_ns), of) = (span(&one), owner(&one));
        let joins = |group: &&mut Vec<T>| start_ns < until_ns && group.iter().all(|other| owner(other) != of);
        match groups.last_mut().filter(joins) {
            Some(group) => {
                until_ns = until_ns.max(end_ns);
                group.push(one);
            }
            None => {
                until_ns = end_ns;
                groups.push(vec![one]);
            }
        }
    }
    groups
}

/// Epochs of several flows as those of one.
pub(super) fn together(epochs: impl Iterator<Item = (u64, u64)>) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    epochs.for_each(|(epoch, bytes)| *all.entry(epoch).or_default() += bytes);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of epochs of which an eighth holds no part of a gap the full ones stand for the rate, and a burst of one epoch does not.
    #[test]
    fn full_epochs_tell_the_rate() {
        let waiting = (0..80).map(|epoch| if epoch % 8 == 0 { 100 } else { 10 + epoch % 8 });
        assert_eq!(Active::of(waiting), Active { epochs: 80, full_bytes: 100 });
        let burst = (0..80).map(|epoch| if epoch == 40 { 900 } else { 100 });
        assert_eq!(Active::of(burst).full_bytes, 100);
        assert_eq!(Active::of([]), Active::default());
    }
}
