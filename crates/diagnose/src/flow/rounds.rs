//! Operations of several flows that were at work together: one collective, with what each of its members sent.
use super::exchanges::of_senders;
use super::expected::RECURS;
use super::members::communicators;
use super::recur::{PIECES_MAX, are_alike};
use super::round::{Active, Round, Sent, Share, beside, together, together_in_time};
use super::{Kind, Operation, kinds};
use std::collections::{BTreeMap, BTreeSet};

/// Volumes of one call differ by less than this share. Those of calls that differ each time, as of experts, lie anywhere: two fifths
/// of them are as near to the middle of a kind by chance.
const SAME: f64 = 0.01;

/// Share of its bytes that a flow with recurring volumes sends in them.
const REGULAR: f64 = 0.8;

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
    // Bytes, since what goes before a late receiver begins is often alike: its buffers.
    let is_regular = |flow: usize| {
        let bytes = |number: &usize| sent[flow].operations[*number].bytes;
        let same = |kind: &Kind| {
            let is_same = |bytes: &u64| bytes.abs_diff(kind.bytes) as f64 <= SAME * kind.bytes as f64;
            kind.members.iter().map(bytes).filter(is_same).sum::<u64>()
        };
        let same: u64 = known[flow].iter().map(same).sum();
        let all: u64 = sent[flow].operations.iter().map(|one| one.bytes).sum();
        same as f64 >= REGULAR * all as f64
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

/// Pieces of one class that lie beside each other in time, one of each flow: first those of each communicator, so that what another
/// one does meanwhile divides nothing; then communicators that were at work at the same time are one round, since they do the same.
fn joined(class: usize, pieces: Vec<Piece<'_>>, sent: &[Sent<'_>], epoch_ns: u64) -> Vec<Round> {
    let of = communicators(pieces.iter().map(|piece| (sent[piece.flow].from, sent[piece.flow].to)));
    let mut by_communicator: BTreeMap<u32, Vec<Piece<'_>>> = BTreeMap::new();
    for piece in pieces {
        by_communicator.entry(of[&sent[piece.flow].from]).or_default().push(piece);
    }
    let span = |piece: &Piece<'_>| (piece.operation.start_ns, piece.operation.end_ns);
    let mut parts = Vec::new();
    for (communicator, pieces) in by_communicator {
        let groups = beside(pieces, span, |piece| piece.flow);
        parts.extend(groups.iter().map(|group| (communicator, shares((communicator, group), sent, epoch_ns))));
    }
    together_in_time(class, parts)
}

fn shares((communicator, group): (u32, &[Piece<'_>]), sent: &[Sent<'_>], epoch_ns: u64) -> Vec<Share> {
    let mut of_sender: BTreeMap<u32, Vec<&Piece<'_>>> = BTreeMap::new();
    for piece in group {
        of_sender.entry(sent[piece.flow].from).or_default().push(piece);
    }
    let share = |(from, pieces): (u32, Vec<&Piece<'_>>)| {
        let to: BTreeSet<u32> = pieces.iter().map(|piece| sent[piece.flow].to).collect();
        let epochs = |piece: &&Piece<'_>| within(piece.operation, sent[piece.flow].epochs, epoch_ns);
        let way = |to: &u32| {
            let of_way = pieces.iter().filter(|piece| sent[piece.flow].to == *to).flat_map(epochs);
            (*to, Active::of(of_way.map(|(_, bytes)| bytes)))
        };
        let (active, ways) = if to.len() == 1 {
            (Active::of(pieces.iter().flat_map(epochs).map(|(_, bytes)| bytes)), Vec::new())
        } else {
            (Active::of(together(pieces.iter().flat_map(epochs)).into_values()), to.iter().map(way).collect())
        };
        Share {
            from,
            group: communicator,
            to,
            start_ns: pieces.iter().map(|piece| piece.operation.start_ns).min().unwrap_or(0),
            end_ns: pieces.iter().map(|piece| piece.operation.end_ns).max().unwrap_or(0),
            bytes: pieces.iter().map(|piece| piece.operation.bytes).sum(),
            pauses_ns: pieces
                .iter()
                .map(|piece| piece.operation.gaps)
                .map(|gaps| gaps.sum_ns - gaps.longest_ns)
                .max()
                .unwrap_or(0),
            active,
            ways,
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
