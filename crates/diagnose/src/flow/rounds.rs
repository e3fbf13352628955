//! Operations of several flows that were at work together: one collective, with what each of its members sent.
use super::recur::{PIECES_MAX, RECURS, are_alike};
use super::{Kind, Operation, Rule, kinds, segment};
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
    /// Its receivers.
    pub(super) to: BTreeSet<u32>,
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) bytes: u64,
    /// When it sent: of several queue pairs to one receiver each, of several receivers when it sent to any (Pulse,
    /// section 6.2, custom collectives).
    pub(super) active: Active,
    /// Bytes that its flows send in whole operations like this one; 0: no two are alike.
    pub(super) whole_bytes: u64,
}

/// Share of its epochs that are fuller than the one that stands for a sender's rate. In a ring of two channels others wait for a
/// straggler after each slice of 40 us (Pulse, section 6.1): of their epochs of 32 us an eighth holds no part of a gap.
const FULLER: f64 = 0.1;

/// Volumes of one call differ by less than this share. Those of calls that differ each time, as of experts, lie anywhere: two fifths
/// of them are as near to the middle of a kind by chance.
const SAME: f64 = 0.01;

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
    fn of(epochs: impl IntoIterator<Item = u64>) -> Active {
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

/// A piece of a round: an operation of one flow.
struct Piece<'a> {
    flow: usize,
    operation: &'a Operation,
    whole_bytes: u64,
}

/// Rounds of all flows, each class in order of time. Flows whose volumes recur are joined by volume; the others, of a collective
/// whose parts differ from call to call, by sender, with all they sent at one time.
pub(super) fn rounds(sent: &[Sent<'_>], epoch_ns: u64, gap_ns: u64) -> Vec<Round> {
    let known: Vec<Vec<Kind>> = sent.iter().map(|flow| recurring(&flow.operations)).collect();
    let is_regular = |flow: usize| {
        let bytes = |number: &usize| sent[flow].operations[*number].bytes as f64;
        let same = |kind: &Kind| {
            let of = kind.bytes as f64;
            kind.members.iter().filter(|number| (bytes(number) - of).abs() <= SAME * of).count()
        };
        let same: usize = known[flow].iter().map(same).sum();
        same > 0 && 2 * same >= sent[flow].operations.len()
    };
    let volumes = classes(known.iter().flatten().map(|kind| kind.bytes).collect());
    let mut pieces: BTreeMap<usize, Vec<Piece<'_>>> = BTreeMap::new();
    for (flow, of) in sent.iter().enumerate().filter(|(flow, _)| is_regular(*flow)) {
        for kind in &known[flow] {
            let class = volumes.partition_point(|volume| *volume <= kind.bytes);
            let members = kind.members.iter().map(|number| &of.operations[*number]);
            let whole_bytes = kind.bytes;
            pieces.entry(class).or_default().extend(members.map(|operation| Piece { flow, operation, whole_bytes }));
        }
        if let Some((kind, operation)) = unfinished(&of.operations, &known[flow]) {
            let class = volumes.partition_point(|volume| *volume <= kind.bytes);
            pieces.entry(class).or_default().push(Piece { flow, operation, whole_bytes: kind.bytes });
        }
    }
    let mut rounds: Vec<Round> =
        pieces.into_iter().flat_map(|(class, pieces)| joined(class, pieces, sent, epoch_ns)).collect();
    let irregular: Vec<&Sent<'_>> =
        sent.iter().enumerate().filter(|(flow, _)| !is_regular(*flow)).map(|(_, of)| of).collect();
    rounds.extend(of_senders(&irregular, epoch_ns, gap_ns));
    rounds
}

/// Joins what a late receiver divided: while one member of a ring has not begun, the others send what its buffers take and wait
/// for longer than between two operations (Pulse, section 6.1). Its own operation is whole: pieces of another flow that are as
/// much together and end with it are one operation.
pub(super) fn join_with_peers(sent: &mut [Sent<'_>], gap_ns: u64) {
    let mut whole: Vec<(u64, u64, u64)> =
        sent.iter().flat_map(|flow| flow.operations.iter().map(|one| (one.end_ns, one.start_ns, one.bytes))).collect();
    whole.sort_unstable();
    for flow in sent {
        let mut joined: Vec<Operation> = Vec::with_capacity(flow.operations.len());
        let mut left = &flow.operations[..];
        while !left.is_empty() {
            let pieces = pieces(left, &whole, gap_ns);
            let mut one = left[0].clone();
            left[1..pieces].iter().for_each(|piece| one.join(piece));
            joined.push(one);
            left = &left[pieces..];
        }
        flow.operations = joined;
    }
}

/// How many of the first operations are one of `whole` together (end, beginning, bytes, in order), else 1.
fn pieces(operations: &[Operation], whole: &[(u64, u64, u64)], gap_ns: u64) -> usize {
    let first = &operations[0];
    let mut sum = first.bytes;
    for (count, last) in (2..=PIECES_MAX).zip(&operations[1..]) {
        sum += last.bytes;
        let at = whole.partition_point(|(end_ns, ..)| *end_ns + gap_ns < last.end_ns);
        let near = whole[at..].iter().take_while(|(end_ns, ..)| *end_ns < last.end_ns + gap_ns);
        let mut same = near.filter(|(_, start_ns, bytes)| {
            *start_ns + gap_ns > first.start_ns && are_alike((*bytes).min(sum), sum.max(*bytes))
        });
        if same.next().is_some() {
            return count;
        }
    }
    1
}

/// The lower bound of each class of volumes.
fn classes(mut volumes: Vec<u64>) -> Vec<u64> {
    volumes.sort_unstable();
    let mut bounds: Vec<u64> = Vec::new();
    for volume in volumes {
        if bounds.last().is_none_or(|bound| !are_alike(*bound, volume)) {
            bounds.push(volume);
        }
    }
    bounds
}

fn recurring(operations: &[Operation]) -> Vec<Kind> {
    kinds(operations).into_iter().filter(|kind| kind.members.len() >= RECURS).collect()
}

/// The last operation of a flow where it is less than what came after the one before it until now, and the kind of that.
fn unfinished<'a, 'k>(operations: &'a [Operation], known: &'k [Kind]) -> Option<(&'k Kind, &'a Operation)> {
    let last = operations.len().checked_sub(1)?;
    let kind_of = |number: usize| known.iter().find(|kind| kind.members.binary_search(&number).is_ok());
    if kind_of(last).is_some() {
        return None;
    }
    let before = kind_of(last.checked_sub(1)?)?;
    let followed = before.members.iter().rev().find_map(|number| kind_of(number + 1))?;
    (operations[last].bytes < followed.bytes).then_some((followed, &operations[last]))
}

/// Pieces of one class that lie beside each other in time, one of each flow.
fn joined(class: usize, pieces: Vec<Piece<'_>>, sent: &[Sent<'_>], epoch_ns: u64) -> Vec<Round> {
    let span = |piece: &Piece<'_>| (piece.operation.start_ns, piece.operation.end_ns);
    let groups = beside(pieces, span, |piece| piece.flow);
    groups.iter().map(|group| Round { class, shares: shares(group, sent, epoch_ns) }).collect()
}

/// What lies beside each other in time (beginning, end), at most one of each owner.
fn beside<T>(mut all: Vec<T>, span: impl Fn(&T) -> (u64, u64), owner: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
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

fn shares(group: &[Piece<'_>], sent: &[Sent<'_>], epoch_ns: u64) -> Vec<Share> {
    let mut of_sender: BTreeMap<u32, Vec<&Piece<'_>>> = BTreeMap::new();
    for piece in group {
        of_sender.entry(sent[piece.flow].from).or_default().push(piece);
    }
    let share = |(from, pieces): (u32, Vec<&Piece<'_>>)| {
        let to: BTreeSet<u32> = pieces.iter().map(|piece| sent[piece.flow].to).collect();
        let within = pieces.iter().flat_map(|piece| within(piece.operation, sent[piece.flow].epochs, epoch_ns));
        let active = if to.len() == 1 {
            Active::of(within.map(|(_, bytes)| bytes))
        } else {
            Active::of(together(within).into_values())
        };
        Share {
            from,
            to,
            start_ns: pieces.iter().map(|piece| piece.operation.start_ns).min().unwrap_or(0),
            end_ns: pieces.iter().map(|piece| piece.operation.end_ns).max().unwrap_or(0),
            bytes: pieces.iter().map(|piece| piece.operation.bytes).sum(),
            active,
            whole_bytes: pieces.iter().map(|piece| piece.whole_bytes).sum(),
        }
    };
    of_sender.into_iter().map(share).collect()
}

/// The epochs of an operation.
fn within<'a>(of: &Operation, epochs: &'a [(u64, u32)], epoch_ns: u64) -> impl Iterator<Item = (u64, u64)> + use<'a> {
    let at = |time_ns: u64| epochs.partition_point(|(epoch, _)| *epoch < time_ns / epoch_ns);
    epochs[at(of.start_ns)..at(of.end_ns)].iter().map(|(epoch, bytes)| (*epoch, u64::from(*bytes)))
}

/// Epochs of several flows as those of one.
fn together(epochs: impl Iterator<Item = (u64, u64)>) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    epochs.for_each(|(epoch, bytes)| *all.entry(epoch).or_default() += bytes);
    all
}

/// Rounds of flows whose volumes do not recur: what each sender sent to anybody without a silence of `gap_ns`.
fn of_senders(sent: &[&Sent<'_>], epoch_ns: u64, gap_ns: u64) -> Vec<Round> {
    let mut senders: BTreeMap<u32, Vec<&Sent<'_>>> = BTreeMap::new();
    sent.iter().for_each(|flow| senders.entry(flow.from).or_default().push(flow));
    let rule = Rule { gap_ns, volumes: Vec::new() };
    let mut all: Vec<Share> = Vec::new();
    for (from, flows) in senders {
        let epochs = flows.iter().flat_map(|flow| flow.epochs).map(|(epoch, bytes)| (*epoch, u64::from(*bytes)));
        let epochs = together(epochs);
        let operations = segment(epochs.iter().map(|(epoch, bytes)| (*epoch, *bytes)), epoch_ns, &rule);
        all.extend(operations.into_iter().map(|operation| Share {
            from,
            to: flows.iter().map(|flow| flow.to).collect(),
            start_ns: operation.start_ns,
            end_ns: operation.end_ns,
            bytes: operation.bytes,
            active: Active::of(
                epochs.range(operation.start_ns / epoch_ns..operation.end_ns / epoch_ns).map(|(_, bytes)| *bytes),
            ),
            whole_bytes: 0,
        }));
    }
    let groups = beside(all, |share| (share.start_ns, share.end_ns), |share| share.from as usize);
    groups.into_iter().map(|shares| Round { class: usize::MAX, shares }).collect()
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
