//! Who left a collective out although nobody stopped for it: where what comes next on the communicator is alike, its members
//! go on, each with another operation of the others' (Flight Recorder, case one, without a hang). What they receive is wrong
//! from then on, and they wait for each other longer.
//!
//! Between two operations of another communicator all its members issue as many collectives, since they run the same
//! program. The one that issued one less once, and never before or after, left it out.
use crate::fact::Fact;
use crate::timeline::{Comm, Issued, Timeline};
use mycroft_record::{CommId, HostTime, OpClass, OpKind, OpSeq, Rank};
use std::collections::BTreeMap;

/// Members that must agree against one: of two nobody knows which is right.
const OTHERS_MIN: usize = 2;
/// Turns in which all members of a communicator issued as much, without which they need not run the same program.
const TURNS_MIN: usize = 8;
/// Iterations at the beginning of what is remembered in which operations may be forgotten that were issued later than others
/// that are not: one that runs, and the next one, which is issued meanwhile.
const FORGETFUL: usize = 2;
/// Of how many communicators it is asked at most: 64 x 1,024 ranks x 512 operations of the past.
const COMMS_MAX: usize = 64;

/// What a member issued elsewhere between one operation of a communicator and the next.
type Turn = (HostTime, usize);
/// By the operation with which they begin: its kind and number.
type Turns = BTreeMap<(OpKind, OpSeq), Turn>;

/// Which of a member's collectives are counted between which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Counted {
    /// Others, between two of the communicator that all members share.
    Others,
    /// Those of the communicator that all share, between two others, of whichever communicator: members of several groups
    /// have the same number there if they run the same program.
    Own,
}

/// The rank that left one out, if there is just one such, as the communicators of at least three members tell.
pub(crate) fn left_out(timeline: &Timeline) -> Option<Fact> {
    odd_one_of(timeline, timeline.comms.values(), Counted::Others)
}

/// The same of those that wait in a cycle: the one of them that left out a collective of the communicator in which its peers
/// wait for it. What comes next there is alike, so they went on, up to where it was a whole iteration ahead.
pub(crate) fn left_out_in(timeline: &Timeline, waited_in: &[CommId]) -> Option<Fact> {
    odd_one_of(timeline, timeline.comms.values().filter(|comm| waited_in.contains(&comm.id)), Counted::Own)
}

fn odd_one_of<'a>(timeline: &Timeline, comms: impl Iterator<Item = &'a Comm>, counted: Counted) -> Option<Fact> {
    let mut found: Option<Fact> = None;
    for comm in comms.filter(|comm| comm.ranks.len() > OTHERS_MIN).take(COMMS_MAX) {
        let Some(members) = turns(timeline, comm, counted) else { continue };
        let Some((rank, at, fewer)) = odd_one(&members) else { continue };
        match &found {
            Some(Fact::LeftOut { rank: other, .. }) if *other != rank => return None,
            Some(_) => {}
            None => {
                let (host, comm) = (timeline.host(rank), timeline.comm_name(comm.id));
                let (own, peers) = (counted == Counted::Own, members.len() - 1);
                found = Some(Fact::LeftOut { rank, host, comm, own, at, fewer, peers });
            }
        }
    }
    found
}

/// The turns of all members of a communicator; `None`: records of one are lost, or not all are known.
fn turns(timeline: &Timeline, comm: &Comm, counted: Counted) -> Option<BTreeMap<Rank, Turns>> {
    let of = |rank: &Rank| {
        let state = timeline.ranks.get(rank).filter(|state| !timeline.has_fresh_gap(state))?;
        let issued = state.issued();
        let oldest = issued.first()?.enqueued_at;
        let since = state.iterations.list().iter().filter(|it| it.end > oldest).nth(FORGETFUL - 1);
        Some((*rank, taken(&issued, comm.id, counted, since.map_or(HostTime(u64::MAX), |it| it.end))))
    };
    (comm.n_ranks as usize == comm.ranks.len()).then(|| comm.ranks.keys().map(of).collect::<Option<_>>()).flatten()
}

/// A member's turns that began after the last operation of which the record is lost: numbers are missing there,
/// while one that was left out has none. Operations are forgotten in the order in which they ended, so before `whole_from` one
/// may be missed of a communicator that shows no earlier one.
fn taken(issued: &[Issued], shared: CommId, counted: Counted, whole_from: HostTime) -> Turns {
    let mut out = Turns::new();
    let mut begun: Option<((OpKind, OpSeq), HostTime, usize)> = None;
    let mut last: BTreeMap<CommId, u64> = BTreeMap::new();
    for op in issued.iter().filter(|op| op.id.class == OpClass::Collective) {
        let (comm, seq) = (op.id.comm, op.id.seq);
        let doubted_until = match last.insert(comm, seq.0) {
            Some(last) if last + 1 != seq.0 => op.enqueued_at + 1,
            None if seq.0 > 0 => whole_from,
            _ => HostTime::NONE,
        };
        out.retain(|_, (at, _)| *at >= doubted_until);
        begun = begun.filter(|(_, at, _)| *at >= doubted_until);
        if (comm == shared) == (counted == Counted::Own) {
            begun = begun.map(|(first, at, count)| (first, at, count + 1));
            continue;
        }
        if let Some((first, at, count)) = begun {
            out.insert(first, (at, count));
        }
        begun = Some(((op.kind, seq), op.enqueued_at, 0));
    }
    out
}

/// Who issued less than all others did in just one turn, when, and by how many; `None` where all else is not alike.
fn odd_one(members: &BTreeMap<Rank, Turns>) -> Option<(Rank, HostTime, usize)> {
    let (first, rest) = members.first_key_value().map(|(_, turns)| (turns, members.len() - 1))?;
    let (mut alike, mut odd) = (0, Vec::new());
    for begin in first.keys() {
        let told: Vec<(Rank, Turn)> =
            members.iter().filter_map(|(rank, turns)| Some((*rank, *turns.get(begin)?))).collect();
        if told.len() <= rest {
            continue; // not all remember it, or have come to its end
        }
        let mut counts: BTreeMap<usize, Vec<(Rank, HostTime)>> = BTreeMap::new();
        told.iter().for_each(|(rank, (at, count))| counts.entry(*count).or_default().push((*rank, *at)));
        let mut counts = counts.into_iter();
        match (counts.next(), counts.next(), counts.next()) {
            (Some(_), None, None) => alike += 1,
            (Some((few, who)), Some((many, _)), None) if who.len() == 1 => odd.push((who[0], many - few)),
            _ => return None,
        }
    }
    let [((rank, at), fewer)] = odd[..] else { return None };
    (alike >= TURNS_MIN).then_some((rank, at, fewer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{CommRank, OpId};

    /// Of as many ranks as there are lists, each with how many collectives it issued in its turns.
    fn told(counts: &[&[usize]]) -> Option<(u32, usize)> {
        let turns = |list: &[usize]| {
            let turn = |(seq, count): (usize, &usize)| {
                ((OpKind::AllReduce, OpSeq(seq as u64)), (HostTime(1 + seq as u64), *count))
            };
            list.iter().enumerate().map(turn).collect()
        };
        let members = counts.iter().enumerate().map(|(rank, list)| (Rank(rank as u32), turns(list))).collect();
        odd_one(&members).map(|(rank, _, fewer)| (rank.0, fewer))
    }

    /// In each of six turns of communicator 1 two operations of communicator 2 were issued: the turns that are known where the
    /// records of some are not there.
    fn known(missing: &[u64], whole_from: u64) -> Vec<(u64, usize)> {
        let (mut issued, mut now) = (Vec::new(), 0);
        let mut issue = |comm: u64, seq: u64| {
            now += 1_000;
            let id = OpId { comm: CommId(comm), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) };
            issued.push(Issued { id, kind: OpKind::AllReduce, enqueued_at: HostTime(now) });
        };
        for turn in 0..6 {
            issue(1, turn);
            (2 * turn..2 * turn + 2).for_each(|seq| issue(2, seq));
        }
        issued.retain(|op| op.id.comm == CommId(1) || !missing.contains(&op.id.seq.0));
        let turns = taken(&issued, CommId(1), Counted::Others, HostTime(whole_from));
        let own = taken(&issued, CommId(2), Counted::Own, HostTime(whole_from));
        assert_eq!(own, turns, "between those of one that are not of the other");
        turns.into_iter().map(|((_, seq), (_, count))| (seq.0, count)).collect()
    }

    #[test]
    fn what_was_lost_was_not_left_out() {
        assert_eq!(known(&[], 0), [(0, 2), (1, 2), (2, 2), (3, 2), (4, 2)]);
        assert_eq!(known(&[5], 0), [(4, 2)], "the last of turn 2 is missed in turn 3, which may not be whole either");
    }

    #[test]
    fn what_is_forgotten_was_not_left_out() {
        assert_eq!(known(&[0, 1, 2], 5_000), [(2, 2), (3, 2), (4, 2)], "what turns 0 and 1 issued ended before them");
        assert_eq!(known(&[0, 1, 2], 4_000), [(1, 1), (2, 2), (3, 2), (4, 2)], "turn 1 began when all is known");
    }

    #[test]
    fn who_issued_one_less_once_left_it_out() {
        let usual = [0, 4, 0, 4, 0, 9, 0, 4, 0, 4, 0];
        let mut less = usual;
        less[5] = 8;
        assert_eq!(told(&[&usual, &less, &usual]), Some((1, 1)));
        assert_eq!(told(&[&usual, &usual, &usual]), None);
        assert_eq!(told(&[&usual[..7], &less[..7], &usual[..7]]), None, "too few turns to know that they are alike");
        assert_eq!(told(&[&less, &less, &usual]), None, "most of them did");
        assert_eq!(told(&[&usual, &less[..5], &usual]), None, "it has not come to its end");
        let mut again = less;
        again[7] = 3;
        assert_eq!(told(&[&usual, &again, &usual]), None, "it runs another program");
        let mut more = usual;
        more[7] = 6;
        assert_eq!(told(&[&usual, &less, &more]), None, "they do not run the same one");
    }
}
