//! Who of a cycle of waiting left the order in which it always issues its operations. Its peers keep to theirs and wait;
//! from the cycle alone neither side can be told from the other (Flight Recorder: reordered and left out collectives).
use super::hang::{NO_META, Walk};
use super::history;
use crate::fact::OpRef;
use crate::timeline::{Issued, OpNode, Timeline};
use mycroft_record::{CommId, CommRank, HostTime, OpClass, OpId, OpKind, OpMeta, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// Operations up to the one that a rank waits in whose places in the order are looked at: parts of a group that were
/// completed, and what it could do without those who wait for it.
const WINDOW: usize = 16;
/// Operations of context that decide what comes next: more than layers have that are alike.
const CONTEXT: usize = 64;
/// Ranks looked at per analysis: 1,024 x 16 places x 512 operations of the past.
const RANKS_MAX: usize = 1024;
/// An operation that does not follow within so many is left out, and not only late.
const LATE_MAX: usize = 8;
/// So many times sooner after another than ever before is no next turn.
const SOONER: u64 = 2;

/// A line of the program: order counter and kind. Sizes may change from iteration to iteration.
type Line = (CommId, OpClass, CommRank, OpKind);

fn line(id: &OpId, kind: OpKind) -> Line {
    (id.comm, id.class, id.peer, kind)
}

/// A rank that left its order.
#[derive(Debug)]
pub(crate) struct Departure {
    pub rank: Rank,
    /// What it issued.
    pub op: OpRef,
    /// What it always issued there before, and peers wait for.
    pub instead_of: String,
    /// It went on without that: left out, and not only late.
    pub left_out: bool,
}

/// The ranks of the cycles of `walk`, of which `cycle` is one, that left their order; none where the past does not tell.
pub(crate) fn departures(timeline: &Timeline, walk: &Walk<OpNode>, cycle: &[Rank]) -> Vec<Departure> {
    // Rank -> the operations in which it is waited for, each with one who waits.
    let mut awaited: BTreeMap<Rank, BTreeMap<OpNode, Rank>> = BTreeMap::new();
    for (waiter, edges) in &walk.entry_edges {
        for (node, missing) in edges {
            awaited.entry(*missing).or_default().insert(*node, *waiter);
        }
    }
    let others = walk.in_cycles().into_iter().filter(|rank| !cycle.contains(rank));
    let ranks: BTreeSet<Rank> = cycle.iter().copied().chain(others).take(RANKS_MAX).collect();
    let of = |rank: Rank| departure(timeline, rank, walk.entry_edges.get(&rank)?, awaited.get(&rank)?);
    ranks.into_iter().filter_map(of).collect()
}

/// Whether `rank`, which waits in the operations of `entered`, went past one of those in which it is `awaited`.
fn departure(
    timeline: &Timeline,
    rank: Rank,
    entered: &[(OpNode, Rank)],
    awaited: &BTreeMap<OpNode, Rank>,
) -> Option<Departure> {
    let issued = timeline.ranks.get(&rank)?.issued();
    let id_of = |node: &OpNode| node.id_for(timeline.comm_rank(node.comm(), rank)?);
    let last = issued.iter().position(|op| entered.iter().any(|(node, _)| id_of(node) == Some(op.id)))?;
    let lines: Vec<Line> = issued.iter().map(|op| line(&op.id, op.kind)).collect();
    let times: Vec<HostTime> = issued.iter().map(|op| op.enqueued_at).collect();
    for at in last.saturating_sub(WINDOW)..=last {
        let Some(wanted) = history::expected(&lines[..at], CONTEXT).filter(|wanted| *wanted != lines[at]) else {
            continue;
        };
        // Where it issues what is awaited later on, and others of that line before it, this is not where it left that out.
        let is_due = |id: &OpId| !issued[at..].iter().any(|op| line(&op.id, wanted.3) == wanted && op.id.seq < id.seq);
        let is_wanted = |node: &OpNode| id_of(node).is_some_and(|id| line(&id, wanted.3) == wanted && is_due(&id));
        let Some((node, waiter)) = awaited.iter().find(|(node, _)| is_wanted(node)) else { continue };
        let Issued { id, kind, enqueued_at } = issued[at];
        let meta = OpMeta { id, kind, enqueued_at, ..NO_META };
        let op = OpRef { meta, label: timeline.label(&meta) };
        let held = timeline.op_ref(*waiter, node)?;
        // What comes every few iterations misleads the past: of a collective its peers tell what came.
        let of_peers = if id_of(node)?.class == OpClass::Collective { held.meta.kind } else { wanted.3 };
        let wanted = (wanted.0, wanted.1, wanted.2, of_peers);
        return Some(Departure { rank, op, instead_of: held.label, left_out: is_left_out(&lines, &times, at, wanted) });
    }
    None
}

/// Whether a rank that issued something else than `wanted` at `at` went on as if it had done that: where the same line
/// comes next it is its next turn, or it does not come soon. One that is only late comes out of its turn, and what follows
/// is what always followed both. Where nothing follows, it comes sooner than the next turn ever did after what was issued.
fn is_left_out(lines: &[Line], times: &[HostTime], at: usize, wanted: Line) -> bool {
    let Some(next) = lines[at..].iter().position(|line| *line == wanted) else {
        return lines.len() - at > LATE_MAX;
    };
    let with_it: Vec<Line> = lines[..at].iter().chain([&wanted]).copied().collect();
    let done: Vec<Line> = with_it.iter().chain(&lines[at..at + next]).copied().collect();
    let (left_out, late) = (surprises(&with_it, &lines[at..]), surprises(&done, &lines[at + next + 1..]));
    if left_out != late {
        return left_out < late;
    }
    let gap = |at: usize| times[at + 1].since_ns(times[at]);
    let is_turn = |before: &usize| lines[*before] == lines[at] && lines[before + 1] == wanted;
    let usual = (0..at).filter(is_turn).map(gap).min();
    let is_soon = next == 1 && usual.is_some_and(|usual| SOONER * gap(at) < usual);
    !is_soon && history::expected(&done, CONTEXT) == Some(wanted)
}

/// How many of the next lines, up to [`LATE_MAX`], are not what the past let expect.
fn surprises(past: &[Line], next: &[Line]) -> usize {
    let mut past = past.to_vec();
    let is_surprise = |line: &&Line| {
        let deviates = history::deviates(&past, CONTEXT, **line) == Some(true);
        past.push(**line);
        deviates
    };
    next.iter().take(LATE_MAX).filter(is_surprise).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank issues `a` and `b` every iteration, 300 ms long, and now and then `b` twice. At last it issues `b` first, and `a`
    /// so many microseconds after that.
    fn left_out(after_us: u64) -> bool {
        let [a, b] = [1, 2].map(|comm| (CommId(comm), OpClass::Collective, CommRank(0), OpKind::AllReduce));
        let (mut lines, mut times, mut now) = (Vec::new(), Vec::new(), 1_000_000_000);
        let mut issue = |line: Line, after_us: u64| {
            now += 1_000 * after_us;
            lines.push(line);
            times.push(HostTime(now));
        };
        for iteration in 0..16 {
            issue(a, 300_000);
            issue(b, 4);
            if iteration % 4 == 3 {
                issue(b, 8);
            }
        }
        issue(b, 300_000);
        issue(a, after_us);
        let at = lines.len() - 2;
        is_left_out(&lines, &times, at, a)
    }

    #[test]
    fn what_follows_at_once_is_late_and_not_the_next_turn() {
        assert!(!left_out(4), "b after b comes sooner, but that is not the turn of a");
        assert!(left_out(290_000));
    }
}
