//! What single messages say of links that carry too little for their time in an iteration to: one of the same size takes as
//! long as ever, whatever else the iteration is late with.
use crate::blame::slow::{Windows, compared};
use crate::fact::Fact;
use crate::median::median;
use crate::timeline::{Iteration, Link, Timeline};
use mycroft_record::Rank;
use std::collections::{BTreeMap, BTreeSet};

/// Awaited messages of one size, before and since, from which on they tell: one in each iteration that a slowdown needs.
const LEAST: usize = 3;
/// So many times longer is slow: latencies, which stay as they were, are part of it, and who shares a wire takes twice as long.
const TIMES: f64 = 3.0;

/// Counts the links of either end of a link that is slow alone whose messages take longer, where no other tells the ends apart.
pub(super) fn count(timeline: &Timeline, windows: &Windows, facts: &mut [Fact]) {
    for fact in facts {
        let Fact::RankLink { from, to, sends, receives, .. } = fact else { continue };
        if [&*sends, &*receives].iter().any(|others| others.slow + others.fast > 0) {
            continue;
        }
        let all = || timeline.links.all(&timeline.ranks);
        let is_slow = |link: &&Link| is_slower(timeline, link, windows) == Some(true);
        let (sent, received) = (
            all().filter(|link| link.from == from.0 && link.to != to.0).filter(is_slow).count(),
            all().filter(|link| link.to == to.0 && link.from != from.0).filter(is_slow).count(),
        );
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
    let (mut slower, mut as_before) = (false, false);
    for link in mates.iter().chain([&from]).flat_map(|rank| timeline.links.of(&timeline.ranks, *rank)) {
        match is_slower(timeline, link, windows) {
            Some(true) if link.from == from => slower |= link.to != to,
            Some(true) => return false,
            Some(false) => as_before |= link.from != from,
            None => {}
        }
    }
    slower && as_before
}

/// Whether the largest messages that tell take so much longer; `None`: none tells. Shorter ones may be nothing but latency, and
/// what lay there when its receiver came tells nothing.
fn is_slower(timeline: &Timeline, link: &Link, windows: &Windows) -> Option<bool> {
    let (base, now) = compared(timeline.ranks.get(&link.from)?.iterations.list(), windows);
    let mut sizes: BTreeMap<u64, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for sample in link.samples().filter(|sample| sample.wire_us > 0.0) {
        let is_in = |list: &[&Iteration]| list.iter().any(|it| sample.at > it.start && sample.at <= it.end);
        let (before, since) = sizes.entry(sample.bytes).or_default();
        if is_in(&base) {
            before.push(sample.wire_us);
        } else if is_in(&now) {
            since.push(sample.wire_us);
        }
    }
    sizes.retain(|_, (before, since)| before.len() >= LEAST && since.len() >= LEAST);
    sizes.pop_last().map(|(_, (before, since))| take_longer(before, since))
}

/// Whether the usual one does, and most do than nearly all before.
fn take_longer(mut before: Vec<f64>, since: Vec<f64>) -> bool {
    before.sort_by(f64::total_cmp);
    let high_us = before[(before.len() - 1) * 9 / 10];
    let above = since.iter().filter(|us| **us > high_us).count();
    let is_above = above * 4 >= since.len() * 3;
    let usual = median(before).zip(median(since));
    is_above && usual.is_some_and(|(before_us, since_us)| since_us >= TIMES * before_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_take_longer_when_most_do_by_far() {
        let before = vec![160.0, 170.0, 175.0, 176.0, 180.0, 190.0];
        assert!(take_longer(before.clone(), vec![195.0, 609.0, 700.0, 740.0]));
        assert!(!take_longer(before.clone(), vec![170.0, 175.0, 700.0, 740.0]), "half of them only");
        assert!(!take_longer(before, vec![300.0, 310.0, 320.0]), "twice as long may be a wire that is shared");
    }
}
