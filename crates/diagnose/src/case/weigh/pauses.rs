//! Proxy threads that pause again and again, and what only looks like that.
use super::SHADOW;
use crate::fact::{Fact, OtherLinks};
use crate::timeline::Timeline;
use mycroft_record::{HostName, Rank};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Pauses of one rank that are beyond any noise: two of half a second.
const PAUSES_MIN: usize = 2;
/// Other links of a sender that are slow besides, where more of them are not.
const SEVERAL: usize = 2;

/// The pauses of one rank's proxy thread.
#[derive(Debug)]
pub(super) struct Paused {
    pub(super) host: HostName,
    /// How long one lasted on average, milliseconds.
    pub(super) mean_ms: f64,
    count: usize,
}

/// Who pauses most often, by what is left when others explain some.
pub(super) fn of(facts: &[Fact]) -> BTreeMap<Rank, Paused> {
    let mut pauses: BTreeMap<Rank, Paused> = BTreeMap::new();
    for fact in facts {
        if let Fact::ProxyPause { rank, host, pause_ms, .. } = fact {
            let none = || Paused { host: host.clone(), mean_ms: 0.0, count: 0 };
            let entry = pauses.entry(*rank).or_insert_with(none);
            entry.count += 1;
            entry.mean_ms += (pause_ms - entry.mean_ms) / entry.count as f64;
        }
    }
    // Whoever receives from a rank that is slow towards everybody is told late of what it sends: that is no pause.
    let told_late = behind_slow_senders(facts);
    pauses.retain(|rank, _| !told_late.contains(rank) && !only_sends_slowly(facts, *rank));
    // Whom the paused thread does not serve seems to pause with it, on the one link that they share.
    let on_links: BTreeMap<Rank, f64> = pauses.keys().map(|rank| (*rank, on_links_ms(facts, *rank))).collect();
    let worst = on_links.values().copied().fold(0.0, f64::max);
    pauses.retain(|rank, _| on_links.get(rank).is_some_and(|ms| *ms >= SHADOW * worst));
    let most = pauses.values().map(|paused| paused.count).max().unwrap_or(0);
    pauses.retain(|_, paused| paused.count >= PAUSES_MIN && paused.count == most);
    pauses
}

/// Facts without slow links that are one rank's alone, whose proxy thread pauses: they hold what it did not move. So does the
/// only link on a way.
pub(super) fn without<'a>(timeline: &Timeline, facts: &'a [Fact], paused: &BTreeMap<Rank, Paused>) -> Cow<'a, [Fact]> {
    let touches = |rank: &Rank| paused.contains_key(rank);
    let mut of_paused: BTreeSet<(&HostName, &HostName)> = BTreeSet::new();
    for fact in facts {
        match fact {
            Fact::RankLink { from, to, .. } if touches(&from.0) || touches(&to.0) => {
                of_paused.insert((&from.1, &to.1));
            }
            Fact::WireExcess { from, to, of: 1, .. } if !paused.is_empty() => {
                let mut links = timeline.links.all(&timeline.ranks).filter(|link| touches(&link.from));
                if links.any(|link| timeline.host(link.from) == *from && timeline.host(link.to) == *to) {
                    of_paused.insert((from, to));
                }
            }
            _ => {}
        }
    }
    let is_theirs = |fact: &&Fact| matches!(fact, Fact::WireExcess { from, to, .. } if of_paused.contains(&(from, to)));
    if of_paused.is_empty() {
        return Cow::Borrowed(facts);
    }
    Cow::Owned(facts.iter().filter(|fact| !is_theirs(fact)).cloned().collect())
}

/// Ranks at the end of a link that is slow alone, whose sender is slow towards others too, and who get from others as fast
/// as before, or give: a thread that sleeps does neither.
fn behind_slow_senders(facts: &[Fact]) -> BTreeSet<Rank> {
    let serves = |others: &OtherLinks| others.slow == 0 && others.fast > 0;
    // Short messages pass a thread that sleeps now and then, if not when it does: they tell where several links are
    // slow, or all.
    let quickly = |a: &OtherLinks, b: &OtherLinks| {
        let is_quick =
            |others: &OtherLinks| others.short_fast > 0 && others.slow + others.less_slow + others.by_message == 0;
        is_quick(a) && is_quick(b)
    };
    let several = |sends: &OtherLinks| {
        let rest = sends.fast + sends.short_fast + sends.less_slow;
        sends.slow >= SEVERAL || (sends.slow > 0 && rest == 0)
    };
    // Many times slower, if not in proportion: where sends take hundreds of times as long, no two take equally many.
    let is_slow = |others: &OtherLinks| others.slow > 0 || (others.less_slow > 0 && others.fast == 0);
    let of = |fact: &Fact| match fact {
        Fact::RankLink { to, sends, receives, returns, .. }
            if is_slow(sends)
                && receives.slow == 0
                && (serves(receives) || serves(returns) || several(sends) && quickly(receives, returns)) =>
        {
            Some(to.0)
        }
        _ => None,
    };
    facts.iter().filter_map(of).collect()
}

/// Whether nothing but what a rank sends stands still, time and again, and all that it sends is slow: a thread that sleeps takes
/// nothing either.
pub(super) fn only_sends_slowly(facts: &[Fact], wanted: Rank) -> bool {
    let inbound = |fact: &Fact| match fact {
        Fact::ProxyPause { rank, inbound, .. } if *rank == wanted => Some(*inbound),
        _ => None,
    };
    let is_slow_link = |fact: &Fact| match fact {
        Fact::RankLink { from, sends, .. } => from.0 == wanted && sends.slow > 0 && sends.fast + sends.short_fast == 0,
        _ => false,
    };
    let receives = |fact: &Fact| matches!(fact, Fact::RankLink { to, .. } if to.0 == wanted);
    let stands: Vec<bool> = facts.iter().filter_map(inbound).collect();
    stands.len() >= PAUSES_MIN
        && !stands.contains(&true)
        && facts.iter().any(is_slow_link)
        && !facts.iter().any(receives)
}

/// By how much the links grew that are slow alone and lead from or to a rank, milliseconds per iteration.
fn on_links_ms(facts: &[Fact], rank: Rank) -> f64 {
    let of = |fact: &Fact| match fact {
        Fact::RankLink { from, to, now_ms, base_ms, .. } if from.0 == rank || to.0 == rank => now_ms - base_ms,
        _ => 0.0,
    };
    facts.iter().map(of).sum()
}
