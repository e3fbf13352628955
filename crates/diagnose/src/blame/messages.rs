//! What single messages say of links that carry too little for their time in an iteration to: one of about the same size takes
//! as long as ever, whatever else the iteration is late with.
use crate::blame::slow::{Windows, compared};
use crate::fact::Fact;
use crate::median::median;
use crate::timeline::{Iteration, Link, Timeline};
use mycroft_record::Rank;
use std::collections::{BTreeMap, BTreeSet};

/// Awaited messages of a class of sizes, before and since, from which on they tell: one in each iteration that a slowdown needs.
const LEAST: usize = 3;
/// So many times longer is slow: latencies, which stay as they were, are part of it, and who shares a wire takes twice as long.
const TIMES: f64 = 3.0;
/// The same where none is so slow: of messages that are mostly latency little is sent, and the link is slow besides for sure.
const TIMES_OF_SHORT: f64 = 1.3;

/// Microseconds that messages took, before and since, by class of size.
type Sizes = BTreeMap<i32, (Vec<f64>, Vec<f64>)>;

/// Half octaves: where tokens are routed no message is as large as the one before, and those of a class differ by a fifth.
fn class(bytes: u64) -> i32 {
    (2.0 * (bytes.max(1) as f64).log2()).round() as i32
}

/// Counts the links of either end of a link that is slow alone whose messages take longer, where no other tells the ends apart.
pub(super) fn count(timeline: &Timeline, windows: &Windows, facts: &mut [Fact]) {
    for fact in facts {
        let Fact::RankLink { from, to, sends, receives, .. } = fact else { continue };
        if [&*sends, &*receives].iter().any(|others| others.slow + others.fast > 0) {
            continue;
        }
        let all = || timeline.links.all(&timeline.ranks);
        let count = |times: f64| {
            let is_slow = |link: &&Link| is_slower(timeline, link, windows, times) == Some(true);
            (
                all().filter(|link| link.from == from.0 && link.to != to.0).filter(is_slow).count(),
                all().filter(|link| link.to == to.0 && link.from != from.0).filter(is_slow).count(),
            )
        };
        let (sent, received) = match count(TIMES) {
            (0, 0) => count(TIMES_OF_SHORT),
            counts => counts,
        };
        (sends.by_message, receives.by_message) = (sent, received);
    }
}

/// Whether the messages of a link's sender to others take longer, and those of `mates`, ranks of its host, do not.
pub(super) fn are_the_senders(
    timeline: &Timeline,
    windows: &Windows,
    (from, to): (Rank, Rank),
    mates: &BTreeSet<Rank>,
) -> bool {
    let links = mates.iter().chain([&from]).flat_map(|rank| timeline.links.of(&timeline.ranks, *rank));
    let others = links.filter(|link| (link.from, link.to) != (from, to));
    let others: Vec<&Link> = others.collect();
    let tells = |times: f64| {
        is_one_senders(others.iter().map(|link| (link.from == from, is_slower(timeline, link, windows, times))))
    };
    tells(TIMES) || tells(TIMES_OF_SHORT)
}

/// Of links of a sender and of its mates, and whether each is slower.
fn is_one_senders(links: impl Iterator<Item = (bool, Option<bool>)>) -> bool {
    let (mut slower, mut as_before) = (false, false);
    for (is_own, is_slower) in links {
        match is_slower {
            Some(true) if !is_own => return false,
            Some(true) => slower = true,
            Some(false) => as_before |= !is_own,
            None => {}
        }
    }
    slower && as_before
}

/// What the largest awaited messages of a link tell; what lay there when its receiver came tells nothing.
fn is_slower(timeline: &Timeline, link: &Link, windows: &Windows, times: f64) -> Option<bool> {
    let (base, now) = compared(timeline.ranks.get(&link.from)?.iterations.list(), windows);
    let mut sizes = Sizes::new();
    for sample in link.samples().filter(|sample| sample.wire_us > 0.0) {
        let is_in = |list: &[&Iteration]| list.iter().any(|it| sample.at > it.start && sample.at <= it.end);
        let (before, since) = sizes.entry(class(sample.bytes)).or_default();
        if is_in(&base) {
            before.push(sample.wire_us);
        } else if is_in(&now) {
            since.push(sample.wire_us);
        }
    }
    largest_take_longer(sizes, times)
}

/// Whether the largest messages that tell take so much longer; `None`: none tells. Shorter ones may be nothing but latency.
fn largest_take_longer(mut sizes: Sizes, times: f64) -> Option<bool> {
    sizes.retain(|_, (before, since)| before.len() >= LEAST && since.len() >= LEAST);
    sizes.pop_last().map(|(_, (before, since))| take_longer(before, since, times))
}

/// Whether the usual one does, and most do than nearly all before; or some do by far.
fn take_longer(mut before: Vec<f64>, since: Vec<f64>, times: f64) -> bool {
    before.sort_by(f64::total_cmp);
    let high_us = before[(before.len() - 1) * 9 / 10];
    let above = since.iter().filter(|us| **us > high_us).count();
    let is_above = above * 4 >= since.len() * 3;
    let is_beyond = are_beyond(&since, before[before.len() - 1]);
    let usual = median(before).zip(median(since));
    is_beyond || (is_above && usual.is_some_and(|(before_us, since_us)| since_us >= times * before_us))
}

/// Whether some take so much longer than any did before. Of a message that lay there for a while when its receiver came only
/// the rest is seen, so those that are waited for from their first byte on tell how long all take.
fn are_beyond(since: &[f64], longest_us: f64) -> bool {
    since.iter().filter(|us| **us >= TIMES * longest_us).count() >= LEAST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_take_longer_when_most_do_by_far() {
        let before = vec![160.0, 170.0, 175.0, 176.0, 180.0, 190.0];
        assert!(take_longer(before.clone(), vec![195.0, 609.0, 700.0, 740.0], TIMES));
        assert!(!take_longer(before.clone(), vec![170.0, 175.0, 700.0, 740.0], TIMES), "half of them only");
        assert!(
            !take_longer(before.clone(), vec![300.0, 310.0, 320.0], TIMES),
            "twice as long may be a wire that is shared"
        );
        let few = [600.0, 610.0, 620.0].into_iter().chain((0..16).map(|at| 10.0 * f64::from(at)));
        assert!(take_longer(before.clone(), few.clone().collect(), TIMES), "of most of them only the rest is seen");
        assert!(!take_longer(before, few.skip(1).collect(), TIMES), "two may be chance");
    }

    #[test]
    fn the_largest_messages_tell_that_a_link_is_slower() {
        let (usual, longer) = (vec![160.0; 3], vec![700.0; 3]);
        let told = |sizes: &[(u64, &[f64])]| {
            let of = |(bytes, since): &(u64, &[f64])| (class(*bytes), (usual.clone(), since.to_vec()));
            largest_take_longer(sizes.iter().map(of).collect(), TIMES)
        };
        assert_eq!(told(&[(16, &usual), (16_388, &longer)]), Some(true), "sixteen bytes are a latency");
        assert_eq!(told(&[(16, &longer), (16_388, &usual)]), Some(false));
        assert_eq!(told(&[(16, &longer), (16_388, &longer[..2])]), Some(true), "two do not tell");
        assert_eq!(told(&[(16_388, &longer[..2])]), None);
    }

    /// What experts are sent differs by a fifth from exchange to exchange, latencies and gradients by far more.
    #[test]
    fn messages_of_about_one_size_are_of_one_class() {
        assert_eq!(class(14_000), class(16_388));
        assert_ne!(class(8_192), class(16_388));
        assert_ne!(class(0), class(16));
    }

    #[test]
    fn a_sender_is_slow_alone_where_a_mate_is_as_fast_as_before() {
        let told = |links: &[(bool, Option<bool>)]| is_one_senders(links.iter().copied());
        let (own, mates) = (true, false);
        assert!(told(&[(own, Some(true)), (own, Some(false)), (mates, Some(false)), (mates, None)]));
        assert!(!told(&[(own, Some(true)), (mates, Some(false)), (mates, Some(true))]), "it is their host");
        assert!(!told(&[(own, Some(true)), (mates, None)]), "nothing tells of its mates");
        assert!(!told(&[(own, Some(false)), (mates, Some(false))]), "it sends as fast as before");
    }
}
