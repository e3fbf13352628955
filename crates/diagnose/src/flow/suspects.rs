//! Who among senders is slow, late or stopped, from flows alone (Pulse, section 6.2): each sender beside those that did the
//! same at the same time. What cannot be told from one more than from another is not told.
use super::rounds::{Round, Sent, Share, join_with_peers, rounds};
use crate::median::median;
use std::collections::{BTreeMap, BTreeSet};

/// Rounds that are looked at: the last ten of a kind (Pulse, section 6.2: k = 10).
const ROUNDS: usize = 10;
/// A sender is compared where it took part in so many of them: what was once may be chance.
const ROUNDS_MIN: usize = 3;
/// Fewest senders of a round: of two, the usual one is not known.
const SENDERS_MIN: usize = 3;
/// Epochs with bytes that a rate is taken of: the first and the last are filled in part, and others shall be full.
const EPOCHS_MIN: u64 = 16;
/// Whose rate is less than its peers' by this share: half of the smallest that Pulse tests (table 4, a path at 80 %).
const SLOWER: f64 = 0.1;
/// Beginnings that are late by less than this share of the time from one round to the next cost nobody anything.
const LATER: f64 = 0.05;
/// Standard deviations of its peers that a sender differs by: 1 in 30,000 by chance, were they normal.
const DEVIATIONS: f64 = 4.0;
/// Standard deviation of normal values over the median of their distance from the middle one.
const SIGMA_OF_MAD: f64 = 1.4826;
/// An operation of which no more than this share is missing is whole.
const SAME: f64 = 0.01;

/// What a sender does that its peers do not.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sign {
    /// While it sends, its rate is lower (fail-slow of communication). Bytes per second and flow.
    Slow {
        /// Its own rate.
        rate: f64,
        /// The middle one of all of the same rounds.
        usual: f64,
    },
    /// It begins later than the others of its ring (fail-slow of computation), by so many nanoseconds each time.
    Late {
        /// Nanoseconds, the middle one of its rounds.
        by_ns: u64,
    },
    /// An operation ended for nobody, and it has sent least of it (fail-stop); 0: it did not begin.
    Stopped {
        /// Bytes that it sent.
        sent: u64,
        /// Bytes of a whole one.
        whole: u64,
        /// When its last byte went, nanoseconds; when the operation began, where it sent none.
        since_ns: u64,
    },
}

/// A sender that differs from its peers.
#[derive(Clone, PartialEq, Debug)]
pub struct Suspect {
    /// Its number.
    pub from: u32,
    /// Whom it sent to in the operations that show it, ascending.
    pub to: Vec<u32>,
    /// What it does.
    pub sign: Sign,
    /// Operations that were looked at.
    pub rounds: u32,
    /// Senders it was compared with.
    pub peers: u32,
}

/// Whom flows show to be slow, late or stopped: stopped ones first, then slow ones, then late ones. `until_ns` is the end of what
/// was seen; nothing has stopped that was silent for less than it ever took from one operation to the next.
pub fn suspects(mut sent: Vec<Sent<'_>>, epoch_ns: u64, gap_ns: u64, until_ns: u64) -> Vec<Suspect> {
    let mut classes: BTreeMap<usize, Vec<Round>> = BTreeMap::new();
    join_with_peers(&mut sent, gap_ns);
    for round in rounds(&sent, epoch_ns, gap_ns) {
        classes.entry(round.class).or_default().push(round);
    }
    let mut end = End { last_ns: BTreeMap::new(), until_ns };
    for share in classes.values().flatten().flat_map(|round| &round.shares) {
        let last_ns = end.last_ns.entry(share.from).or_default();
        *last_ns = share.end_ns.max(*last_ns);
    }
    let mut found: Vec<Suspect> = classes.values().flat_map(|of_class| stopped(of_class, gap_ns, &end)).collect();
    found.sort_by_key(|suspect| suspect.from);
    found.dedup_by_key(|suspect| suspect.from);
    if found.is_empty() {
        found.extend(classes.values().flat_map(|of_class| slow(&recent(of_class), epoch_ns)));
        // Of several kinds of operations the one that shows it most often, with the receivers of all.
        found.sort_by_key(|suspect| (suspect.from, std::cmp::Reverse(suspect.rounds)));
        found.dedup_by(|other, kept| {
            let is_same = other.from == kept.from;
            if is_same {
                kept.to = kept.to.iter().chain(&other.to).copied().collect::<BTreeSet<u32>>().into_iter().collect();
            }
            is_same
        });
    }
    // Whoever waits for one that sends slowly, or is that one, begins its next operation late.
    if found.is_empty() {
        found = first_late(classes.values().flat_map(|of_class| late(&recent(of_class))).collect());
    }
    found
}

/// It has enough senders, and each sent all.
fn is_whole(round: &&Round) -> bool {
    let is_whole = |share: &Share| share.bytes as f64 >= share.whole_bytes as f64 * (1.0 - SAME);
    round.shares.len() >= SENDERS_MIN && round.shares.iter().all(is_whole)
}

/// The last whole rounds of a class.
fn recent(of_class: &[Round]) -> Vec<&Round> {
    let mut rounds: Vec<&Round> = of_class.iter().rev().filter(is_whole).take(ROUNDS).collect();
    rounds.reverse();
    rounds
}

/// A value of each sender in each round.
#[derive(Default)]
struct Table {
    /// By sender: its values, and its receivers.
    rows: BTreeMap<u32, (Vec<f64>, BTreeSet<u32>)>,
}

impl Table {
    fn add(&mut self, share: &Share, value: f64) {
        let (values, to) = self.rows.entry(share.from).or_default();
        values.push(value);
        to.extend(&share.to);
    }

    /// Of each sender with enough rounds its mean or median.
    fn of_each(&self, of: fn(&[f64]) -> f64) -> BTreeMap<u32, f64> {
        let enough = self.rows.iter().filter(|(_, (values, _))| values.len() >= ROUNDS_MIN);
        enough.map(|(from, (values, _))| (*from, of(values))).collect()
    }

    fn suspect(&self, from: u32, sign: Sign, of: usize) -> Suspect {
        let (values, to) = &self.rows[&from];
        let to = to.iter().copied().collect();
        Suspect { from, to, sign, rounds: values.len() as u32, peers: of as u32 - 1 }
    }
}

fn slow(recent: &[&Round], epoch_ns: u64) -> Vec<Suspect> {
    let mut table = Table::default();
    let mut usual_rates = Vec::new();
    for round in recent {
        let measured: Vec<&Share> = round.shares.iter().filter(|share| share.active.epochs >= EPOCHS_MIN).collect();
        if measured.len() < SENDERS_MIN {
            continue;
        }
        let rate = |share: &Share| share.active.full_bytes as f64;
        let usual = middle(&measured.iter().map(|share| rate(share)).collect::<Vec<_>>());
        usual_rates.push(usual * 1e9 / epoch_ns as f64);
        measured.iter().for_each(|share| table.add(share, rate(share) / usual));
    }
    let means = table.of_each(mean);
    let all: Vec<f64> = means.values().copied().collect();
    if all.len() < SENDERS_MIN {
        return Vec::new();
    }
    let (center, of_all, usual) = (middle(&all), scatter(&all), middle(&usual_rates));
    let is_slow = |(from, share): &(&u32, &f64)| {
        let (values, _) = &table.rows[from];
        let own = DEVIATIONS * deviation(values) / (values.len() as f64).sqrt();
        center - **share > (SLOWER * center).max(DEVIATIONS * of_all).max(own)
    };
    let sign = |share: f64| Sign::Slow { rate: share * usual, usual: center * usual };
    means.iter().filter(is_slow).map(|(from, share)| table.suspect(*from, sign(*share), all.len())).collect()
}

/// Whoever begins later than others of its group.
fn late(recent: &[&Round]) -> Vec<Suspect> {
    let starts: Vec<u64> = recent.iter().map(|round| round.start_ns()).collect();
    let periods: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mut table = Table::default();
    for round in recent {
        for group in round.groups() {
            let of_group: Vec<&Share> = group.iter().filter_map(|from| round.of(*from)).collect();
            let usual = middle(&of_group.iter().map(|share| share.start_ns as f64).collect::<Vec<_>>());
            of_group.iter().for_each(|share| table.add(share, share.start_ns as f64 - usual));
        }
    }
    let lags = table.of_each(middle);
    let all: Vec<f64> = lags.values().copied().collect();
    if all.len() < SENDERS_MIN || periods.is_empty() {
        return Vec::new();
    }
    let (center, of_all, period) = (middle(&all), scatter(&all), middle(&periods));
    let is_late = |(from, lag): &(&u32, &f64)| {
        let own = DEVIATIONS * scatter(&table.rows[from].0) / (table.rows[from].0.len() as f64).sqrt();
        **lag - center > (LATER * period).max(DEVIATIONS * of_all).max(own)
    };
    let sign = |lag: f64| Sign::Late { by_ns: lag as u64 };
    lags.iter().filter(is_late).map(|(from, lag)| table.suspect(*from, sign(*lag), all.len())).collect()
}

/// Of those that are late those that are by at least half as much as the latest: whoever waits for one begins its next operation
/// late as well, by less.
fn first_late(mut late: Vec<Suspect>) -> Vec<Suspect> {
    let by = |suspect: &Suspect| if let Sign::Late { by_ns } = suspect.sign { by_ns } else { 0 };
    let most = late.iter().map(by).max().unwrap_or(0);
    late.retain(|suspect| 2 * by(suspect) >= most);
    late.sort_by_key(|suspect| (suspect.from, std::cmp::Reverse(by(suspect))));
    late.dedup_by_key(|suspect| suspect.from);
    late
}

/// When what was seen ended.
struct End {
    /// The last byte of each sender.
    last_ns: BTreeMap<u32, u64>,
    until_ns: u64,
}

/// Who has sent least of the last operation of a class, in each group that waits, where it ended for nobody.
fn stopped(of_class: &[Round], gap_ns: u64, end: &End) -> Vec<Suspect> {
    let last_ns = end.last_ns.values().max().copied().unwrap_or(0);
    // A capture may end while all wait for somebody who is late.
    let between = of_class.windows(2).map(|pair| pair[1].start_ns() - pair[0].start_ns()).max();
    if between.is_none_or(|between| end.until_ns.saturating_sub(last_ns) < gap_ns.max(between)) {
        return Vec::new();
    }
    let mut usual: BTreeMap<Vec<u32>, &Round> = BTreeMap::new();
    for round in recent(of_class) {
        usual.extend(round.groups().into_iter().map(|group| (group, round)));
    }
    let least = |(group, usual): (&Vec<u32>, &&Round)| {
        let takes_part = |round: &&Round| group.iter().any(|from| round.of(*from).is_some());
        least_of(group, usual, of_class.iter().rev().find(takes_part)?, end)
    };
    usual.iter().filter_map(least).collect()
}

/// Who of a group has sent least of `last`, beside `usual`, which was whole.
fn least_of(group: &[u32], usual: &Round, last: &Round, end: &End) -> Option<Suspect> {
    // Who went on to something else did not wait in it.
    let went_on = |from: &u32| last.of(*from).is_some_and(|share| end.last_ns.get(from) > Some(&share.end_ns));
    if group.iter().any(went_on) {
        return None;
    }
    let mut progress: Vec<(f64, &Share, Option<&Share>)> = Vec::new();
    for share in group.iter().filter_map(|from| usual.of(*from)) {
        let now = last.of(share.from);
        let bytes = match share.whole_bytes {
            // Where no two are alike all that is known is who did not begin.
            0 => now.map_or(0.0, |_| share.active.full_bytes as f64 * 2.0),
            _ => now.map_or(0.0, |now| now.bytes as f64),
        };
        progress.push((bytes, share, now));
    }
    progress.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.from.cmp(&b.1.from)));
    let [(least, share, now), (next, ..), .., (most, of_most, _)] = progress[..] else { return None };
    let ended = of_most.whole_bytes > 0 && most >= of_most.whole_bytes as f64 * (1.0 - SAME);
    // What goes in an epoch may be a slice that one of two had just begun.
    if ended || next - least <= share.active.full_bytes as f64 {
        return None;
    }
    let sign = Sign::Stopped {
        sent: now.map_or(0, |now| now.bytes),
        whole: share.whole_bytes,
        since_ns: now.map_or(last.start_ns(), |now| now.end_ns),
    };
    let to = share.to.iter().copied().collect();
    Some(Suspect { from: share.from, to, sign, rounds: 1, peers: group.len() as u32 - 1 })
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn middle(values: &[f64]) -> f64 {
    median(values.to_vec()).unwrap_or(0.0)
}

/// Standard deviation of values of which few are others, from the median of their distance from the middle one.
fn scatter(values: &[f64]) -> f64 {
    let center = middle(values);
    SIGMA_OF_MAD * middle(&values.iter().map(|value| (value - center).abs()).collect::<Vec<_>>())
}

fn deviation(values: &[f64]) -> f64 {
    let center = mean(values);
    (values.iter().map(|value| (value - center).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0).max(1.0)).sqrt()
}
