//! Pieces of a curve into operations whose volume is known about (Pulse, section 5.2, Algorithm 1).
//!
//! A call says what its algorithm sends to a peer, and not how channels divide that, so that a volume is known within a twentieth. A silence in the
//! midst of an operation (a receiver that is late) may fall into that twentieth. But operations of one call send the same each time,
//! to the byte, and what follows them is silent each time; silences inside of them lie now here, now there.
use super::point::Point;
use std::collections::BTreeMap;

/// A volume recurs when so many operations have it: two may be chance.
pub(super) const RECURS: usize = 3;
/// Of a least volume the most that an operation sends, in parts of nineteen: a twentieth less than the share is least, a twentieth more is most
/// (`volume::SURE_PARTS`).
const MOST_PARTS: u64 = 21;
/// What was sent is the same where it differs by less than this part: a unit of an epoch, and what is carried to the next.
const SAME_PARTS: u64 = 1000;
/// Times that it is learned anew: where an operation was cut wrongly, the next one began wrongly as well.
const ROUNDS: usize = 3;

/// An end that an operation may have: what was sent until then, and how long the silence behind it is.
#[derive(Clone, Copy)]
struct End {
    pieces: usize,
    bytes: u64,
    silence_ns: u64,
}

/// What operations of a volume were seen to send: bytes, how often, and nanoseconds of silence behind it.
type Seen = Vec<(u64, usize, u64)>;

/// Joins pieces to operations of these least volumes, in turn; whether each sent as much.
pub(super) fn join(pieces: &[Vec<Point>], volumes: &[u64], epoch_ns: u64) -> Vec<(Vec<Point>, bool)> {
    let mut learned: BTreeMap<u64, u64> = BTreeMap::new();
    for _ in 0..ROUNDS {
        let mut seen: BTreeMap<u64, Seen> = BTreeMap::new();
        walk(pieces, volumes, epoch_ns, &learned, |volume, ends, _| {
            let of = seen.entry(volume).or_default();
            ends.iter().for_each(|end| note(of, end));
        });
        learned = seen.iter().filter_map(|(volume, seen)| Some((*volume, usual(seen)?))).collect();
    }
    let mut joined = Vec::new();
    walk(pieces, volumes, epoch_ns, &learned, |volume, _, of| {
        let points = of.concat();
        let is_complete = points.iter().map(Point::new_bytes).sum::<u64>() >= volume;
        joined.push((points, is_complete));
    });
    joined
}

/// Goes through the operations: the volume, all ends it may have, and its pieces.
fn walk(
    pieces: &[Vec<Point>],
    volumes: &[u64],
    epoch_ns: u64,
    learned: &BTreeMap<u64, u64>,
    mut each: impl FnMut(u64, &[End], &[Vec<Point>]),
) {
    let mut rest = pieces;
    for volume in volumes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let ends = ends(rest, *volume, epoch_ns);
        let exact = learned.get(volume).and_then(|bytes| ends.iter().find(|end| is_same(end.bytes, *bytes)));
        let count = exact.or(ends.first()).map_or(rest.len(), |end| end.pieces);
        let (of, after) = rest.split_at(count);
        each(*volume, &ends, of);
        rest = after;
    }
}

/// The ends that an operation of this least volume may have: the first silence behind it, and others up to the most that it sends. None
/// where the curve ends before.
fn ends(pieces: &[Vec<Point>], volume: u64, epoch_ns: u64) -> Vec<End> {
    let most = u128::from(volume) * u128::from(MOST_PARTS) / 19;
    let (mut bytes, mut found) = (0, Vec::new());
    for (number, piece) in pieces.iter().enumerate() {
        bytes += piece.iter().map(Point::new_bytes).sum::<u64>();
        if bytes < volume {
            continue;
        }
        if u128::from(bytes) > most && !found.is_empty() {
            break;
        }
        let last = piece.last().map_or(0, |point| point.epoch + 1);
        let next = pieces.get(number + 1).and_then(|next| next.first());
        let silence_ns = next.map_or(u64::MAX, |next| next.epoch.saturating_sub(last).saturating_mul(epoch_ns));
        found.push(End { pieces: number + 1, bytes, silence_ns });
    }
    found
}

fn is_same(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= other / SAME_PARTS
}

fn note(seen: &mut Seen, end: &End) {
    match seen.iter_mut().find(|(bytes, ..)| is_same(end.bytes, *bytes)) {
        Some((_, times, silence_ns)) => {
            *times += 1;
            *silence_ns = silence_ns.saturating_add(end.silence_ns);
        }
        None => seen.push((end.bytes, 1, end.silence_ns)),
    }
}

/// What was seen most often; of what was seen as often, what the longest silence followed.
fn usual(seen: &Seen) -> Option<u64> {
    let most = seen.iter().max_by_key(|(_, times, silence_ns)| (*times, *silence_ns))?;
    (most.1 >= RECURS).then_some(most.0)
}
