//! Who computes for longer than its peers (Pulse, section 6.2, fail-slow of computation): how long it is silent before an operation,
//! from the last byte that it sent or received. Whoever waits for one that is late begins late as well, but not after its last byte.
use super::round::{Round, Sent, Share};
use super::suspect::{DEVIATIONS, SENDERS_MIN, Sign, Suspect};
use super::table::{Table, deviation, mean, middle, scatter};
use std::collections::{BTreeMap, BTreeSet};

/// Beginnings that are late by less than this share of the time from one round to the next cost nobody anything.
const LATER: f64 = 0.05;
/// Operations of a place that are looked at, the last ones. Computation of experts differs from iteration to iteration by a quarter
/// (standard deviation; Pulse 7.2.4): with 20, four standard errors are less than what 350 of 700 W cost.
const OPERATIONS: usize = 20;
/// Most places of one kind of operation in an iteration. A kind that comes more often without another between has no places.
const PLACES_MAX: u32 = 64;

/// Where in the recurring sequence of an iteration an operation is: its kind, and how many of that kind its sender has begun since one
/// of another kind. Two of like volume, as ReduceScatter and AllGather, are told apart by it.
pub(super) type Place = (usize, u32);

/// One beginning.
pub(super) struct Beginning<'a> {
    pub(super) place: Place,
    pub(super) share: &'a Share,
    /// Number of the round, and its beginning.
    pub(super) round: usize,
    pub(super) start_ns: u64,
    /// Silence of its sender before.
    silence_ns: f64,
}

/// Whoever computes for longer, from all rounds by class.
pub(super) fn late(classes: &BTreeMap<usize, Vec<Round>>, sent: &[Sent<'_>], epoch_ns: u64) -> Vec<Suspect> {
    let ways = Ways::of(sent, epoch_ns);
    let mut by_place: BTreeMap<Place, Vec<Beginning<'_>>> = BTreeMap::new();
    for beginning in beginnings(classes, &ways) {
        by_place.entry(beginning.place).or_default().push(beginning);
    }
    let found = by_place.into_values().flat_map(|beginnings| {
        let rounds = classes.get(&beginnings[0].place.0).map_or(&[][..], |rounds| rounds);
        let starts: Vec<u64> = rounds.iter().map(Round::start_ns).collect();
        let periods: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        of_place(&beginnings, middle(&periods))
    });
    most_late(found.collect())
}

/// Those of one place that begin late by more than what `period_ns` from one round to the next makes little of.
fn of_place(beginnings: &[Beginning<'_>], period_ns: f64) -> Vec<Suspect> {
    let mut rounds: BTreeMap<usize, Vec<&Beginning<'_>>> = BTreeMap::new();
    beginnings.iter().for_each(|beginning| rounds.entry(beginning.round).or_default().push(beginning));
    let mut last: Vec<_> = rounds.into_values().filter(|of| of.len() >= SENDERS_MIN).collect();
    last.sort_by_key(|of| std::cmp::Reverse(of[0].start_ns));
    let mut table = Table::default();
    for of in last.iter().take(OPERATIONS) {
        // Those that wait for each other end together; others may have ended at another time.
        let mut groups: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        of.iter().for_each(|one| groups.entry(one.share.group).or_default().push(one.silence_ns));
        let of_all = middle(&of.iter().map(|one| one.silence_ns).collect::<Vec<_>>());
        for one in of {
            let own = &groups[&one.share.group];
            let center = if own.len() < SENDERS_MIN { of_all } else { middle(own) };
            table.add(one.share, one.silence_ns - center);
        }
    }
    let lags = table.of_each(mean);
    let all: Vec<f64> = lags.values().copied().collect();
    if all.len() < SENDERS_MIN {
        return Vec::new();
    }
    let (center, of_all) = (middle(&all), scatter(&all));
    let is_late = |(from, lag): &(&u32, &f64)| {
        let values = &table.rows[from].0;
        let own = DEVIATIONS * deviation(values) / (values.len() as f64).sqrt();
        **lag - center > (LATER * period_ns).max(DEVIATIONS * of_all).max(own)
    };
    let sign = |lag: f64| Sign::Late { by_ns: lag as u64 };
    lags.iter().filter(is_late).map(|(from, lag)| table.suspect(*from, sign(*lag), all.len())).collect()
}

/// What somebody sends, with the number of the round and its share, or receives: when, and the class.
type Event<'a> = (u64, usize, Option<(usize, &'a Share)>);

/// Beginnings of all rounds with their places.
pub(super) fn beginnings<'a>(classes: &'a BTreeMap<usize, Vec<Round>>, ways: &Ways<'_>) -> Vec<Beginning<'a>> {
    let mut events: BTreeMap<u32, Vec<Event<'a>>> = BTreeMap::new();
    for (class, rounds) in classes {
        for (number, round) in rounds.iter().enumerate() {
            for share in &round.shares {
                events.entry(share.from).or_default().push((share.start_ns, *class, Some((number, share))));
                for to in &share.to {
                    events.entry(*to).or_default().push((share.start_ns, *class, None));
                }
            }
        }
    }
    let mut found = Vec::new();
    for of in events.values_mut() {
        of.sort_by_key(|(start_ns, class, sends)| (*start_ns, *class, sends.is_some()));
        // What it receives divides an iteration only where all that it sends is of one kind.
        let sends: BTreeSet<usize> =
            of.iter().filter(|(.., sends)| sends.is_some()).map(|(_, class, _)| *class).collect();
        of.retain(|(.., share)| share.is_some() || sends.len() < 2);
        let has_others = of.iter().any(|(_, class, _)| *class != of[0].1);
        let (mut before, mut ordinal) = (None, 0);
        for (_, class, sends) in of.iter() {
            if before != Some(*class) {
                (before, ordinal) = (Some(*class), 0);
            }
            let Some((number, share)) = *sends else { continue };
            let place = (*class, if has_others { ordinal } else { 0 });
            ordinal = PLACES_MAX.min(ordinal + 1);
            if let Some(silence_ns) = ways.silence_ns(share, &classes[class][number]) {
                found.push(Beginning { place, share, round: number, start_ns: share.start_ns, silence_ns });
            }
        }
    }
    found
}

/// The other end of a flow, and the flow's epochs.
type Way<'a> = (u32, &'a [(u64, u32)]);

/// What goes to and from each sender.
pub(super) struct Ways<'a> {
    epoch_ns: u64,
    of: BTreeMap<u32, Vec<Way<'a>>>,
}

impl<'a> Ways<'a> {
    pub(super) fn of(sent: &[Sent<'a>], epoch_ns: u64) -> Ways<'a> {
        let mut of: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for flow in sent {
            of.entry(flow.from).or_default().push((flow.to, flow.epochs));
            of.entry(flow.to).or_default().push((flow.from, flow.epochs));
        }
        Ways { epoch_ns, of }
    }

    /// From the last byte to or from a sender until it begins. What others of its communicator send it in this round is no byte before.
    fn silence_ns(&self, share: &Share, round: &Round) -> Option<f64> {
        let group: Vec<&Share> = round.shares.iter().filter(|other| other.group == share.group).collect();
        let begins = group.iter().map(|other| other.start_ns).min()?;
        let is_member = |other: u32| group.iter().any(|member| member.from == other || member.to.contains(&other));
        let last = |(other, epochs): &Way<'_>| {
            let until_ns = if is_member(*other) { begins } else { share.start_ns };
            let at = epochs.partition_point(|(epoch, _)| epoch * self.epoch_ns < until_ns).checked_sub(1)?;
            Some((epochs[at].0 + 1) * self.epoch_ns)
        };
        let last_ns = self.of.get(&share.from)?.iter().filter_map(last).max()?;
        Some(share.start_ns.saturating_sub(last_ns) as f64)
    }
}

/// Of those that are late those that are by at least half as much as the latest: whoever waits for one begins its next operation
/// late as well, by less.
fn most_late(mut late: Vec<Suspect>) -> Vec<Suspect> {
    let by = |suspect: &Suspect| if let Sign::Late { by_ns } = suspect.sign { by_ns } else { 0 };
    let most = late.iter().map(by).max().unwrap_or(0);
    late.retain(|suspect| 2 * by(suspect) >= most);
    late.sort_by_key(|suspect| (suspect.from, std::cmp::Reverse(by(suspect))));
    late.dedup_by_key(|suspect| suspect.from);
    late
}
