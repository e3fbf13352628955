//! Who among senders is slow, late or stopped, from flows alone (Pulse, section 6.2): each sender beside those that did the
//! same at the same time. What cannot be told from one more than from another is not told.
use super::held::held;
use super::lateness::late;
use super::recur::rejoin_learned;
use super::round::{Round, Sent, Share};
use super::rounds::{join_with_peers, rounds};
use super::stopped::stopped;
use super::suspect::{DEVIATIONS, EPOCHS_MIN, SENDERS_MIN, SLOWER, Sign, Suspect};
use super::table::{Table, deviation, mean, middle, recent, scatter};
use super::ways::Ways;
use std::collections::{BTreeMap, BTreeSet};

/// Whom flows show to be slow, late or stopped: stopped ones, else those that are held up, else slow ones, else late ones. `until_ns` is the end of what
/// was seen; nothing has stopped that was silent for less than it ever took from one operation to the next.
pub fn suspects(mut sent: Vec<Sent<'_>>, epoch_ns: u64, gap_ns: u64, until_ns: u64) -> Vec<Suspect> {
    let mut classes: BTreeMap<usize, Vec<Round>> = BTreeMap::new();
    for flow in &mut sent {
        flow.operations = rejoin_learned(std::mem::take(&mut flow.operations));
    }
    join_with_peers(&mut sent, gap_ns);
    for round in rounds(&sent, epoch_ns, gap_ns) {
        classes.entry(round.class).or_default().push(round);
    }
    let mut found = stopped(&classes, &sent, (gap_ns, until_ns), epoch_ns);
    // Of a slow way a ring is never silent: its own sender sends.
    if found.is_empty() {
        found = held(&classes, &sent, epoch_ns);
    }
    if found.is_empty() {
        let closed: BTreeSet<Vec<u32>> = classes.values().flatten().flat_map(Round::groups).collect();
        found.extend(classes.values().flat_map(|of_class| {
            let recent = recent(of_class);
            let ways = Ways::of(&recent);
            let mut slow = slow(&recent, &closed, epoch_ns);
            slow.retain(|suspect| ways.is_slow(suspect.from) != Some(false));
            slow.extend(ways.suspects(epoch_ns));
            slow
        }));
        // Of several kinds of operations the one that shows it most often, with the receivers of all.
        found.sort_by_key(|suspect| (suspect.from, std::cmp::Reverse(suspect.rounds)));
        found.dedup_by(|other, kept| {
            let is_same = other.from == kept.from;
            if is_same {
                kept.to = kept.to.iter().chain(&other.to).copied().collect::<BTreeSet<u32>>().into_iter().collect();
            }
            is_same
        });
        found = without_predecessors(found);
    }
    // Whoever waits for one that sends slowly, or is that one, begins its next operation late.
    if found.is_empty() {
        found = late(&classes, &sent, epoch_ns);
    }
    found
}

/// Without those that are slow only to one that is slow to others: its NIC is at an end of both.
fn without_predecessors(found: Vec<Suspect>) -> Vec<Suspect> {
    let is_explained = |suspect: &Suspect| {
        let [to] = suspect.to[..] else { return false };
        found.iter().any(|other| other.from == to && !other.to.contains(&suspect.from))
    };
    found.iter().filter(|suspect| !is_explained(suspect)).cloned().collect()
}

/// Whether only some of a ring or mesh are with a sender in a round: an operation that was cut.
fn is_part(round: &Round, share: &Share, closed: &BTreeSet<Vec<u32>>) -> bool {
    let with = round.shares.iter().filter(|other| other.group == share.group);
    let with: BTreeSet<u32> = with.map(|other| other.from).collect();
    closed.iter().any(|group| group.len() > with.len() && with.iter().all(|from| group.contains(from)))
}

fn slow(recent: &[&Round], closed: &BTreeSet<Vec<u32>>, epoch_ns: u64) -> Vec<Suspect> {
    let mut table = Table::default();
    let mut usual_rates = Vec::new();
    for round in recent {
        let is_measured = |share: &&Share| share.active.epochs >= EPOCHS_MIN && !is_part(round, share, closed);
        let measured: Vec<&Share> = round.shares.iter().filter(is_measured).collect();
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
