//! Who stopped first (Pulse, section 6.2, fail-stop), where all are silent at last: of all operations that somebody did not begin or
//! did not end, the first, and of its members the one that has sent least.
use super::expected::RECURS;
use super::lateness::{Beginning, Ways, beginnings};
use super::members::communicators;
use super::round::{Round, Sent, Share};
use super::suspect::{SAME, Sign, Suspect};
use std::collections::{BTreeMap, BTreeSet};

/// Operations of a sender that tell who does the same.
const OPERATIONS: usize = 20;
/// Share of them in which another one was in the same place at the same time.
const TOGETHER: f64 = 0.8;
/// Those that compute together begin within so many epochs of each other.
const AT_ONCE_EPOCHS: u64 = 2;
/// Fewest that do the same: what two others did next is what is due.
const PEERS_MIN: usize = 2;

/// A round: its class and its number in it.
type Key = (usize, usize);

/// An operation that a sender did not begin or not end.
struct Due<'a> {
    round: Key,
    /// The sender's last one, or that operation itself, where it began.
    share: &'a Share,
    /// Bytes of it.
    sent: u64,
    whole: u64,
    since_ns: u64,
    /// When it began, or was to begin.
    at_ns: u64,
}

/// Whoever stopped first, in each communicator of the first operation that did not end. Nothing has stopped that was silent for less
/// than the longest time between two rounds of a class.
pub(super) fn stopped(
    classes: &BTreeMap<usize, Vec<Round>>,
    sent: &[Sent<'_>],
    (gap_ns, until_ns): (u64, u64),
    epoch_ns: u64,
) -> Vec<Suspect> {
    let last_ns = sent.iter().filter_map(|flow| flow.epochs.last()).map(|(epoch, _)| (epoch + 1) * epoch_ns).max();
    let between = |rounds: &Vec<Round>| rounds.windows(2).map(|pair| pair[1].start_ns() - pair[0].start_ns()).max();
    let between = classes.values().filter_map(between).max();
    let Some((last_ns, between)) = last_ns.zip(between) else { return Vec::new() };
    if until_ns.saturating_sub(last_ns) < gap_ns.max(between) {
        return Vec::new();
    }
    let mut timeline = Timeline::default();
    for beginning in beginnings(classes, &Ways::of(sent, epoch_ns)) {
        timeline.add(beginning);
    }
    let dues: Vec<Due<'_>> = timeline.of_sender.keys().filter_map(|from| timeline.due(*from)).collect();
    let Some(first_ns) = dues.iter().map(|due| due.at_ns).min() else { return Vec::new() };
    let first: Vec<&Due<'_>> = dues.iter().filter(|due| due.at_ns < first_ns + gap_ns).collect();
    let of = communicators(first.iter().flat_map(|due| due.share.to.iter().map(|to| (due.share.from, *to))));
    let mut groups: BTreeMap<u32, Vec<&Due<'_>>> = BTreeMap::new();
    first.iter().for_each(|due| groups.entry(of[&due.share.from]).or_default().push(due));
    let look = Look { classes, sent, timeline: &timeline, dues: &dues, epoch_ns };
    let mut found: Vec<Suspect> = groups.values().filter_map(|of| look.least(of)).collect();
    found.sort_by_key(|suspect| suspect.from);
    found.dedup_by_key(|suspect| suspect.from);
    found
}

/// What is looked at to tell who stopped.
struct Look<'a, 'b> {
    classes: &'a BTreeMap<usize, Vec<Round>>,
    sent: &'a [Sent<'b>],
    timeline: &'a Timeline<'a>,
    dues: &'a [Due<'a>],
    epoch_ns: u64,
}

impl Look<'_, '_> {
    /// Of those of one communicator that did not end the one that has sent least.
    fn least(&self, dues: &[&Due<'_>]) -> Option<Suspect> {
        let mut by_bytes = dues.to_vec();
        by_bytes.sort_by_key(|due| (due.sent, due.share.from));
        let least = *by_bytes.first()?;
        // What goes in an epoch may be a slice that one of two had just begun.
        if by_bytes.get(1).is_some_and(|next| next.sent - least.sent <= least.share.active.full_bytes) {
            return None;
        }
        let round = &self.classes[&least.round.0][least.round.1];
        let members = || round.shares.iter().filter(|share| share.group == least.share.group);
        let has_ended =
            |share: &Share| share.whole_bytes > 0 && share.bytes as f64 >= share.whole_bytes as f64 * (1.0 - SAME);
        let from = least.share.from;
        let to: Vec<u32> = least.share.to.iter().copied().collect();
        let [receiver] = to[..] else { return Some(self.suspect(least, from, to)) };
        // A ring ends for all or for nobody.
        if least.sent > 0 && members().any(has_ended) {
            return None;
        }
        let is_receiver_due = self.dues.iter().any(|due| due.share.from == receiver && due.sent == 0);
        if least.sent > 0 && dues.len() == 1 && is_receiver_due {
            // Either may have stopped, unless it is what buffers take for a receiver that does not.
            return self.is_of_buffers(least.sent).then(|| self.suspect(least, receiver, vec![from]));
        }
        // Those that compute with it went on, so it had computed: who receives it does not.
        if least.sent == 0 && members().count() == 0 && self.timeline.has_company(from, round, self.epoch_ns) {
            return Some(self.suspect(least, receiver, vec![from]));
        }
        Some(self.suspect(least, from, to))
    }

    fn suspect(&self, due: &Due<'_>, from: u32, to: Vec<u32>) -> Suspect {
        let sent = if from == due.share.from { due.sent } else { 0 };
        let sign = Sign::Stopped { sent, whole: due.whole, since_ns: due.since_ns };
        let peers = self.timeline.peers(due.share.from).len() as u32;
        Suspect { from, to, sign, rounds: 1, peers }
    }

    /// Whether flows have paused after as many bytes before.
    fn is_of_buffers(&self, bytes: u64) -> bool {
        let operations = self.sent.iter().flat_map(|flow| &flow.operations);
        operations.filter(|one| one.bytes.abs_diff(bytes) as f64 <= bytes as f64 * SAME).count() >= RECURS
    }
}

/// What each sender began, in order of time.
#[derive(Default)]
struct Timeline<'a> {
    of_sender: BTreeMap<u32, Vec<Beginning<'a>>>,
    /// Senders in each round and place.
    together: BTreeMap<(Key, u32), BTreeSet<u32>>,
}

impl<'a> Timeline<'a> {
    fn add(&mut self, beginning: Beginning<'a>) {
        let (class, ordinal) = beginning.place;
        let together = self.together.entry(((class, beginning.round), ordinal)).or_default();
        together.insert(beginning.share.from);
        self.of_sender.entry(beginning.share.from).or_default().push(beginning);
    }

    /// Who does the same at the same time.
    fn peers(&self, from: u32) -> Vec<u32> {
        let mut times: BTreeMap<u32, usize> = BTreeMap::new();
        // The last one may be what went wrong.
        let last: Vec<_> = self.of_sender[&from].iter().rev().skip(1).take(OPERATIONS).collect();
        for one in &last {
            for other in &self.together[&((one.place.0, one.round), one.place.1)] {
                *times.entry(*other).or_default() += 1;
            }
        }
        let is_peer =
            |(other, times): &(&u32, &usize)| **other != from && **times as f64 >= TOGETHER * last.len() as f64;
        times.iter().filter(is_peer).map(|(other, _)| *other).collect()
    }

    /// What a sender has not begun, as its peers have, or not ended.
    fn due(&self, from: u32) -> Option<Due<'a>> {
        let last = self.of_sender[&from].last()?;
        let share = last.share;
        if share.whole_bytes > 0 && (share.bytes as f64) < share.whole_bytes as f64 * (1.0 - SAME) {
            let round = (last.place.0, last.round);
            let (sent, whole, since_ns) = (share.bytes, share.whole_bytes, share.end_ns);
            return Some(Due { round, share, sent, whole, since_ns, at_ns: share.start_ns });
        }
        let peers = self.peers(from);
        let next_of = |peer: &u32| {
            let of = &self.of_sender[peer];
            let same = of.iter().rposition(|one| (one.place.0, one.round) == (last.place.0, last.round))?;
            of.get(same + 1)
        };
        // First those that wait for each other, then others that do the same.
        let is_near = |of: &[Beginning<'_>]| {
            let mut last_ones = of.iter().rev().take(OPERATIONS);
            last_ones.any(|one| (one.place.0, one.share.group) == (last.place.0, share.group))
        };
        let others = self.of_sender.iter().filter(|(other, of)| **other != from && is_near(of));
        let near: Vec<u32> = others.map(|(other, _)| *other).collect();
        let next_of_most = |peers: &[u32]| {
            let next: Vec<&Beginning<'a>> = peers.iter().filter_map(next_of).collect();
            (next.len() >= PEERS_MIN && 2 * next.len() >= peers.len()).then_some(next)
        };
        let next = next_of_most(&near).or_else(|| next_of_most(&peers))?;
        let first = next.iter().min_by_key(|one| one.start_ns)?;
        let round = (first.place.0, first.round);
        // Its own share of an operation like that, for its communicator and receivers.
        let like = self.of_sender[&from].iter().rev().find(|one| one.place == first.place).unwrap_or(last);
        let (whole, since_ns) = (like.share.whole_bytes, first.start_ns);
        Some(Due { round, share: like.share, sent: 0, whole, since_ns, at_ns: first.start_ns })
    }

    /// Whether others that always begin at the same moment have begun in a round.
    fn has_company(&self, from: u32, round: &Round, epoch_ns: u64) -> bool {
        let starts: BTreeMap<(usize, usize), u64> =
            self.of_sender[&from].iter().map(|one| ((one.place.0, one.round), one.start_ns)).collect();
        let begins_with = |other: &u32| {
            let common: Vec<bool> = self.of_sender[other]
                .iter()
                .filter_map(|one| Some((one.start_ns, starts.get(&(one.place.0, one.round))?)))
                .map(|(start_ns, own_ns)| start_ns.abs_diff(*own_ns) <= AT_ONCE_EPOCHS * epoch_ns)
                .collect();
            let at_once = common.iter().filter(|at_once| **at_once).count();
            !common.is_empty() && at_once as f64 >= TOGETHER * common.len() as f64
        };
        self.peers(from).iter().any(|other| round.of(*other).is_some() && begins_with(other))
    }
}
