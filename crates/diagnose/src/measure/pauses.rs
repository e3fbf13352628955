//! Proxy threads that slept for a while, from the pauses that they left in flows.
use crate::timeline::{Pause, Timeline};
use mycroft_record::{HostTime, NANOS_PER_SEC, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// Pauses of ways that end within this time are of one thread that slept: a second, and what lies between ends of flows.
const MERGE_NS: u64 = 3 * NANOS_PER_SEC / 2;

/// A proxy thread that slept.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Slept {
    /// The slot of its rank.
    pub(crate) slot: u32,
    /// When its first flow went on.
    pub(crate) at: HostTime,
    /// For how long, milliseconds.
    pub(crate) ms: f64,
    /// How likely it is that it was this one.
    pub(crate) chance: f64,
}

/// The proxy threads that slept in a time; a step of a flow shows it that waits for `least_us` in one stage.
//= mycroft 7.1
pub(super) fn slept(timeline: &Timeline, (from, until): (HostTime, HostTime), least_us: u32) -> Vec<Slept> {
    let inside = |pause: &&Pause| pause.at > from && pause.at <= until;
    let mut all: Vec<&Pause> = timeline.links.pauses.iter().filter(inside).collect();
    all.sort_by_key(|pause| (pause.at, pause.from, pause.to, pause.channel));
    let mut events: Vec<Vec<&Pause>> = Vec::new();
    for pause in all {
        match events.last_mut() {
            Some(event) if pause.at.since_ns(event[0].at) < MERGE_NS => event.push(pause),
            _ => events.push(vec![pause]),
        }
    }
    let of = |event: &Vec<&Pause>| {
        let (at, who) = (event[0].at, of_event(event, least_us));
        let slept = move |(rank, ms, chance)| Some(Slept { slot: timeline.ranks.slot(rank)?, at, ms, chance });
        who.into_iter().filter_map(slept)
    };
    events.iter().flat_map(of).collect()
}

/// What a way that stood still shows, the clearest last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Mark {
    /// The sender found late that its data had arrived.
    ToldLate,
    /// Data was on its way while the receiver waited for it: a receiver that looks would see it.
    Untaken,
    /// Data was ready while the receiver, who may have given credit, waited for it.
    Unsent,
}

impl Mark {
    /// How much it speaks against the sender's proxy, and against the receiver's.
    fn points(self) -> (u32, u32) {
        match self {
            Mark::ToldLate => (1, 0),
            Mark::Untaken => (2, 3),
            Mark::Unsent => (3, 2),
        }
    }
}

//= mycroft 5.3
/// Which rank's proxy slept, by comparing both ends of every way that stood still. It leaves marks at its neighbours too:
/// data that is ready is not sent by whoever sleeps, and not to whoever sleeps either, who grants no credit meanwhile. So
/// each way speaks against both its ends, a little more against the one whose turn it was, and the rank on most of them
/// slept: who sends to it is on one of its ways only. Where what was received lies there still, the sender had no
/// room: that speaks, a little, against a receiver that something else speaks against. Alone it goes from rank to rank, back
/// to one that has not come.
fn of_event(event: &[&Pause], limit: u32) -> Vec<(Rank, f64, f64)> {
    let mut ways: BTreeMap<(Rank, Rank), Mark> = BTreeMap::new();
    let mut without_room: BTreeSet<Rank> = BTreeSet::new();
    for pause in event {
        let (s, r) = (pause.send_max_us, pause.recv_max_us);
        let (untaken, unsent, waiting, full) = (s[2] >= limit, s[1] >= limit, r[0] >= limit, r[2] >= limit);
        let mark = match (unsent, untaken) {
            (true, _) if full => {
                without_room.insert(pause.to); // what came before lies there still: there was no room for more
                continue;
            }
            (true, _) if waiting => Mark::Unsent,
            (_, true) if waiting => Mark::Untaken,
            (_, true) => Mark::ToldLate,
            // One end that waits alone waits for a rank that has not come yet: no pause of anybody's proxy.
            _ => continue,
        };
        let way = ways.entry((pause.from, pause.to)).or_insert(mark);
        *way = mark.max(*way);
    }
    // Data that is on its way between two for long is sent by one that sleeps, or not taken by one: another way tells, then or next time.
    let is_either = ways.len() + without_room.len() == 1 && ways.values().all(|mark| *mark != Mark::Unsent);
    let mut points: BTreeMap<Rank, u32> = BTreeMap::new();
    for ((from, to), mark) in ways {
        let (of_sender, of_receiver) = mark.points();
        *points.entry(from).or_default() += of_sender;
        *points.entry(to).or_default() += of_receiver;
    }
    for rank in &without_room {
        points.entry(*rank).and_modify(|value| *value += 1);
    }
    let mut order: Vec<(u32, Rank)> = points.iter().map(|(rank, value)| (*value, *rank)).collect();
    order.sort_by_key(|(value, rank)| (std::cmp::Reverse(*value), *rank));
    let Some(&(most, _)) = order.first() else { return Vec::new() };
    let who: Vec<(u32, Rank)> = order.iter().filter(|(value, _)| is_either || *value == most).copied().collect();
    if most < 2 || (who.len() > 1 && !is_either) {
        return Vec::new();
    }
    let chance = 1.0 / who.len() as f64;
    let of = |(_, rank): (u32, Rank)| {
        let touching = event.iter().filter(|pause| pause.from == rank || pause.to == rank);
        let longest = touching.flat_map(|pause| pause.send_max_us.iter().chain(&pause.recv_max_us)).max();
        (rank, f64::from(longest.copied().unwrap_or(0)) / 1e3, chance)
    };
    who.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::hang::NO_META;
    use mycroft_record::ChannelId;

    /// Of a ring 0 -> 1 -> 2, both ends of a flow: how long its longest step waited in each of three stages, seconds.
    fn who_pauses(flows: &[(u32, [u32; 3], [u32; 3])]) -> Vec<Rank> {
        likely(flows).into_iter().map(|(rank, _)| rank).collect()
    }

    /// .. and how likely each is.
    fn likely(flows: &[(u32, [u32; 3], [u32; 3])]) -> Vec<(Rank, f64)> {
        let us = |seconds: [u32; 3]| seconds.map(|second| 1_000_000 * second);
        let mut timeline = Timeline::default();
        let pause = |(from, send, recv): &(u32, [u32; 3], [u32; 3])| Pause {
            at: HostTime(1),
            from: Rank(*from),
            to: Rank(from.wrapping_add(1)),
            op: NO_META.id,
            channel: ChannelId(0),
            send_max_us: us(*send),
            recv_max_us: us(*recv),
        };
        timeline.links.pauses.extend(flows.iter().map(pause));
        let all: Vec<&Pause> = timeline.links.pauses.iter().collect();
        of_event(&all, 500_000).into_iter().map(|(rank, _, chance)| (rank, chance)).collect()
    }

    #[test]
    fn who_sends_to_one_that_pauses_does_not_pause() {
        // Rank 1 grants no credit, in four channels, and of what it has itself nothing was sent in one of them.
        let (no_credit, unsent) = ((0, [1, 1, 0], [1, 0, 0]), (1, [1, 1, 0], [1, 0, 0]));
        assert_eq!(who_pauses(&[no_credit, no_credit, no_credit, no_credit, unsent]), [Rank(1)]);
        let full = (u32::MAX, [1, 1, 0], [1, 0, 1]);
        assert_eq!(who_pauses(&[full, no_credit, unsent]), [Rank(1)], "nor one that has no room itself");
        // Some of what was sent before is found to have arrived after the sleep.
        let late = (1, [0, 0, 1], [1, 0, 0]);
        assert_eq!(who_pauses(&[unsent, late, late]), [Rank(1)]);
        let either = [(Rank(2), 0.5), (Rank(1), 0.5)];
        assert_eq!(likely(&[late, late]), either, "it may be sent slowly, or not taken");
    }

    #[test]
    fn who_has_no_room_to_send_to_does_not_pause() {
        let sends = (1, [0, 1, 0], [1, 0, 0]);
        // What rank 1 received lies there still, in two channels: rank 0 may not send more.
        let full = (0, [1, 1, 0], [1, 0, 1]);
        assert_eq!(who_pauses(&[full, full, sends]), [Rank(1)]);
        let unsent = (0, [1, 1, 0], [1, 0, 0]);
        assert_eq!(who_pauses(&[unsent, unsent]), [Rank(0)], "there was room");
        assert_eq!(who_pauses(&[full, full]), [], "who has not come leaves no room to anybody before it");
    }
}
