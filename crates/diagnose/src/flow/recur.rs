//! What recurs among the operations of a flow. A training job sends the same volumes each iteration, so where nobody tells
//! the expected volume, volumes that recur stand for it.
use super::Operation;
use super::expected::RECURS;

/// Volumes of one kind differ by at most so much: padding and synchronization of a call, not another tensor.
const ALIKE: f64 = 0.05;
/// Most pieces that are joined to one operation: a receiver that is late again and again.
pub(super) const PIECES_MAX: usize = 16;

/// Most pieces of an operation that is interrupted: one for each slot of 512 KiB of 256 MiB.
const INTERRUPTIONS_MAX: usize = 512;
/// Pieces are whole together when no more than this share is missing or too much.
const WHOLE: f64 = 0.01;

/// Operations of like volume.
#[derive(Clone, PartialEq, Debug)]
pub struct Kind {
    /// Their places in the list of operations.
    pub members: Vec<usize>,
    /// The middle one of their volumes.
    pub bytes: u64,
    /// The middle one of the times from the beginning of one to that of the next, nanoseconds; none for a single one.
    pub period_ns: Option<u64>,
}

/// The kinds among operations, in the order in which each came first.
pub fn kinds(operations: &[Operation]) -> Vec<Kind> {
    let mut order: Vec<usize> = (0..operations.len()).collect();
    order.sort_by_key(|number| (operations[*number].bytes, *number));
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for number in order {
        let bytes = operations[number].bytes;
        match groups.last_mut() {
            Some(group) if are_alike(operations[group[0]].bytes, bytes) => group.push(number),
            _ => groups.push(vec![number]),
        }
    }
    groups.iter_mut().for_each(|group| group.sort_unstable());
    groups.sort_by_key(|group| group[0]);
    groups.into_iter().map(|members| kind(operations, members)).collect()
}

fn kind(operations: &[Operation], members: Vec<usize>) -> Kind {
    let bytes = middle(members.iter().map(|number| operations[*number].bytes).collect());
    let starts = members.windows(2).map(|pair| operations[pair[1]].start_ns - operations[pair[0]].start_ns);
    let period_ns = middle(starts.collect());
    Kind { members, bytes: bytes.unwrap_or(0), period_ns }
}

/// The middle one, the lower of two.
fn middle(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// Joins neighbours whose volumes do not recur and together are one that does: an operation that was silent for long in its
/// midst. For operations that were cut without an expected volume.
pub fn rejoin(operations: Vec<Operation>) -> Vec<Operation> {
    let kinds = kinds(&operations);
    let recurring: Vec<&Kind> = kinds.iter().filter(|kind| kind.members.len() >= RECURS).collect();
    let mut is_lone = vec![true; operations.len()];
    for number in recurring.iter().flat_map(|kind| &kind.members) {
        is_lone[*number] = false;
    }
    let volumes: Vec<u64> = recurring.iter().map(|kind| kind.bytes).collect();
    let mut joined: Vec<Operation> = Vec::with_capacity(operations.len());
    let mut at = 0;
    while at < operations.len() {
        let pieces = pieces(&operations[at..], &is_lone[at..], &volumes);
        let mut whole = operations[at].clone();
        operations[at + 1..at + pieces].iter().for_each(|piece| whole.join(piece));
        joined.push(whole);
        at += pieces;
    }
    joined
}

/// How many of the first operations, all lone, are one of the volumes together; else 1.
fn pieces(operations: &[Operation], is_lone: &[bool], volumes: &[u64]) -> usize {
    let mut sum = 0;
    for (count, operation) in (1..=PIECES_MAX).zip(operations) {
        if !is_lone[count - 1] {
            return 1;
        }
        sum += operation.bytes;
        if count > 1 && volumes.iter().any(|volume| are_alike((*volume).min(sum), sum.max(*volume))) {
            return count;
        }
    }
    1
}

/// Joins pieces that together are a volume that this flow sent whole before, three times or more: an operation that was interrupted
/// again and again, so that its pieces are small and like each other. Of several such volumes it is the largest.
pub(super) fn rejoin_learned(operations: Vec<Operation>) -> Vec<Operation> {
    let mut learned: Vec<(u64, usize)> = Vec::new();
    let mut joined: Vec<Operation> = Vec::with_capacity(operations.len());
    let mut at = 0;
    while at < operations.len() {
        let count = interrupted(&operations[at..], &learned);
        let mut whole = operations[at].clone();
        operations[at + 1..at + count].iter().for_each(|piece| whole.join(piece));
        match learned.iter_mut().find(|(volume, _)| is_same(*volume, whole.bytes)) {
            Some((_, times)) => *times += 1,
            None => learned.push((whole.bytes, 1)),
        }
        joined.push(whole);
        at += count;
    }
    joined
}

/// How many of the first operations are a learned volume together; else 1.
fn interrupted(operations: &[Operation], learned: &[(u64, usize)]) -> usize {
    let known = || learned.iter().filter(|(_, times)| *times >= RECURS).map(|(volume, _)| *volume);
    let Some(most) = known().max() else { return 1 };
    if known().any(|volume| is_same(volume, operations[0].bytes)) {
        return 1;
    }
    let (mut sum, mut best): (u64, Option<(u64, u64, usize)>) = (0, None);
    for (count, operation) in (1..=INTERRUPTIONS_MAX).zip(operations) {
        sum += operation.bytes;
        if sum > most + (most as f64 * WHOLE) as u64 {
            break;
        }
        for volume in known().filter(|volume| is_same(*volume, sum)) {
            let off = volume.abs_diff(sum);
            if best.is_none_or(|(of, by, _)| (volume, std::cmp::Reverse(off)) > (of, std::cmp::Reverse(by))) {
                best = Some((volume, off, count));
            }
        }
    }
    best.map_or(1, |(.., count)| count)
}

fn is_same(volume: u64, bytes: u64) -> bool {
    volume.abs_diff(bytes) as f64 <= volume as f64 * WHOLE
}

/// Whether a volume is at most a twentieth more than a smaller one.
pub(super) fn are_alike(smaller: u64, larger: u64) -> bool {
    larger as f64 <= smaller as f64 * (1.0 + ALIKE)
}
