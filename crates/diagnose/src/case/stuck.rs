//! The network's part of a verdict on a stall: the hosts that have part in all links on which ready data does not arrive.
use crate::case::host_place;
use crate::case::weigh::SUSPECTS_MAX;
use crate::fact::{CRAWLS_NS, Fact};
use crate::timeline::Timeline;
use mycroft_record::{Category, HostName, HostTime, NANOS_PER_SEC, Place, Rank, Suspect, What};
use std::collections::{BTreeMap, BTreeSet};

/// How sure it is that hosts that are cut off together are.
const CUT_OFF: f64 = 0.9;
/// How sure it is that a rank cannot send from whom several wait for data.
const ONE_SENDER: f64 = 0.8;
/// What crawls, a slice on its way or a device with a slot, does not stand still before it has taken so many times as long as the
/// slowest that went on.
pub(crate) const CRAWLS_ON: u64 = 2;
/// Interfaces that are seen to be down within this went together: they are read once a second, by clocks that agree.
const TOGETHER_NS: u64 = 3 * NANOS_PER_SEC / 2;

/// Hosts with an interface that is down, with the time at which it went.
fn down(facts: &[Fact]) -> BTreeMap<&HostName, HostTime> {
    let down = facts.iter().filter_map(|fact| match fact {
        Fact::NicDown { host, at, .. } => Some((host, *at)),
        _ => None,
    });
    down.collect()
}

/// Hosts with an interface that is down and a part in every operation that stands still over several hosts, where no flow shows
/// more: a socket takes data for sent as soon as the kernel holds it, so nothing is seen to be undelivered. A link that went down
/// while the job went on without it is another matter.
pub(crate) fn cut(_: &Timeline, facts: &[Fact]) -> Option<(What, Category, Vec<Suspect>)> {
    let across = facts.iter().filter_map(|fact| match fact {
        Fact::StuckInside { members, .. } => Some(members.iter().map(|(_, host, _)| host).collect::<BTreeSet<_>>()),
        _ => None,
    });
    let across: Vec<BTreeSet<&HostName>> = across.filter(|hosts| hosts.len() > 1).collect();
    let stalled = facts.iter().find_map(|fact| match fact {
        Fact::Stalled { since, .. } => Some(*since),
        _ => None,
    });
    let went_on = |at: HostTime| stalled.is_some_and(|since| since.since_ns(at) > TOGETHER_NS);
    let has_part = |host: &HostName| !across.is_empty() && across.iter().all(|hosts| hosts.contains(host));
    let down = down(facts).into_iter().filter(|(host, at)| has_part(host) && !went_on(*at));
    let hosts: Vec<&HostName> = down.map(|(host, _)| host).collect();
    let each = CUT_OFF / hosts.len().max(1) as f64;
    let suspect = |host: &&HostName| Suspect { place: host_place(host), confidence: each };
    (!hosts.is_empty())
        .then(|| (What::Hang, Category::NetworkSend, hosts.iter().take(SUSPECTS_MAX).map(suspect).collect()))
}

/// Whether each of these links has an end of which nothing is known any more: that the rank is gone explains them all.
fn lead_to_silence(facts: &[Fact]) -> bool {
    let silent: BTreeSet<Rank> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::NoData { rank, .. } => Some(*rank),
            _ => None,
        })
        .collect();
    facts.iter().all(|fact| match fact {
        Fact::NotDelivered { from, to, .. } => silent.contains(&from.0) || silent.contains(&to.0),
        _ => true,
    })
}

/// A rank and its host.
type End = (Rank, HostName);

struct Stuck {
    from: HostName,
    to: HostName,
    /// Ready data was not even accepted by the sender's transport (Table 4: not transmitted).
    untransmitted: bool,
}

/// Who is to blame for data that does not arrive.
pub(crate) fn undelivered(facts: &[Fact]) -> Option<(Category, Vec<Suspect>)> {
    if lead_to_silence(facts) {
        return None;
    }
    let mut links = Vec::new();
    let mut served = Vec::new();
    // Whose data is slow where that of others was not is slow towards all.
    let overtaken = longest(facts, |served| served);
    for fact in facts {
        let Fact::NotDelivered { from, to, send, served_meanwhile, .. } = fact else { continue };
        if *served_meanwhile || overtaken.contains_key(&from.0) {
            served.push((from, to, send.ready > send.transmitted));
        } else {
            let untransmitted = send.ready > send.transmitted;
            links.push(Stuck { from: from.1.clone(), to: to.1.clone(), untransmitted });
        }
    }
    if links.is_empty() {
        return one_ranks(&served);
    }
    let down = down(facts);
    let hosts: BTreeSet<HostName> = links.iter().flat_map(|link| [link.from.clone(), link.to.clone()]).collect();
    if let Some(first) = hosts.iter().filter_map(|host| down.get(host)).min() {
        // Those that went with it hang on the same switch.
        let together = down.iter().filter(|(_, at)| at.since_ns(*first).max(first.since_ns(**at)) <= TOGETHER_NS);
        let each = |(host, _): (&&HostName, &HostTime)| Suspect { place: host_place(host), confidence: 0.97 };
        return Some((Category::NetworkSend, together.take(SUSPECTS_MAX).map(each).collect()));
    }
    if let Some(hosts) = cut_off(&links) {
        let each = |host: HostName| Suspect { place: host_place(&host), confidence: CUT_OFF };
        return Some((Category::NetworkSend, hosts.into_iter().take(SUSPECTS_MAX).map(each).collect()));
    }
    let mut scored: Vec<(f64, HostName)> = hosts.iter().map(|host| (score(host, &links), host.clone())).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let best = scored.first()?.clone();
    let second = scored.get(1).map_or(0.0, |other| other.0);
    let confidence = (0.5 + (best.0 - second)).clamp(0.3, 0.95);
    let sends = links.iter().any(|link| link.from == best.1);
    let category = if sends { Category::NetworkSend } else { Category::NetworkReceive };
    let suspects = scored
        .iter()
        .take(4)
        .map(|(score, host)| Suspect {
            place: host_place(host),
            confidence: if *host == best.1 { confidence } else { (1.0 - confidence) * score.clamp(0.1, 1.0) },
        })
        .collect();
    Some((category, suspects))
}

/// Whether what does not arrive comes in the end, as what was sent before it did: each flow has delivered a slice that took
/// for ever, and the next one has not taken much longer yet.
pub(crate) fn crawls(facts: &[Fact]) -> bool {
    let stalled = facts.iter().find_map(|fact| match fact {
        Fact::Stalled { waited_ns, .. } => Some(*waited_ns),
        _ => None,
    });
    let Some(waited_ns) = stalled else { return false };
    let longest = longest(facts, |_| true);
    facts.iter().all(|fact| match fact {
        Fact::NotDelivered { from, .. } => longest.get(&from.0).is_some_and(|ns| waited_ns <= CRAWLS_ON * ns),
        _ => true,
    })
}

/// Ranks of which a slice crawled and arrived, with how long it took, by the flows that `counts` takes.
fn longest(facts: &[Fact], counts: impl Fn(bool) -> bool) -> BTreeMap<Rank, u64> {
    let mut out: BTreeMap<Rank, u64> = BTreeMap::new();
    for fact in facts {
        if let Fact::NotDelivered { from, longest_ns, served_meanwhile, .. } = fact
            && *longest_ns >= CRAWLS_NS
            && counts(*served_meanwhile)
        {
            let known = out.entry(from.0).or_default();
            *known = (*known).max(*longest_ns);
        }
    }
    out
}

/// Data of one rank does not arrive where that of others does, over the same wires: `served` are sender, receiver, and whether
/// the sender's transport has not even accepted it.
fn one_ranks(served: &[(&End, &End, bool)]) -> Option<(Category, Vec<Suspect>)> {
    let (from, to, untransmitted) = *served.first()?;
    let place = |end: &End| Place::Rank { rank: end.0, host: end.1.clone() };
    let hosts: BTreeSet<&HostName> = served.iter().map(|(_, to, _)| &to.1).collect();
    let is_one_sender = served.iter().all(|(sender, _, untransmitted)| *sender == from && !untransmitted);
    if is_one_sender && hosts.len() > 1 {
        // It hands over what it has, and no two receivers fail in the same moment.
        return Some((Category::NetworkSend, vec![Suspect { place: place(from), confidence: ONE_SENDER }]));
    }
    // The proxy thread at the end that does not move.
    let (first, second) = if untransmitted { (from, to) } else { (to, from) };
    let suspects =
        vec![Suspect { place: place(first), confidence: 0.7 }, Suspect { place: place(second), confidence: 0.25 }];
    Some((Category::HostThread, suspects))
}

/// Hosts that are cut off from all others together, as under a switch that restarts: every stuck link leads from one side
/// to the other and none lies within a side, and no single host has part in all of them. The smaller side is the one that
/// is cut off; between equal ones nothing decides.
fn cut_off(links: &[Stuck]) -> Option<BTreeSet<HostName>> {
    let mut peers: BTreeMap<&HostName, BTreeSet<&HostName>> = BTreeMap::new();
    for link in links {
        peers.entry(&link.from).or_default().insert(&link.to);
        peers.entry(&link.to).or_default().insert(&link.from);
    }
    let mut side: BTreeMap<&HostName, bool> = BTreeMap::new();
    let mut open = vec![(*peers.keys().next()?, false)];
    while let Some((host, which)) = open.pop() {
        match side.insert(host, which) {
            None => open.extend(peers[host].iter().map(|peer| (*peer, !which))),
            Some(before) if before != which => return None,
            Some(_) => {}
        }
    }
    if side.len() < peers.len() {
        return None;
    }
    let of = |wanted: bool| -> BTreeSet<HostName> {
        side.iter().filter(|(_, which)| **which == wanted).map(|(host, _)| (*host).clone()).collect()
    };
    let (one, other) = (of(false), of(true));
    let (smaller, larger) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    (smaller.len() >= 2 && smaller.len() < larger.len()).then_some(smaller)
}

/// Share of the stuck links that touch the host; its own untransmitted data counts against it (Table 4, local cause).
fn score(host: &HostName, links: &[Stuck]) -> f64 {
    let touch = links.iter().filter(|link| link.from == *host || link.to == *host).count();
    let own = links.iter().filter(|link| link.from == *host);
    let (mut sends, mut held) = (0usize, 0usize);
    for link in own {
        sends += 1;
        held += usize::from(link.untransmitted);
    }
    let base = touch as f64 / links.len() as f64;
    base * 0.8 + if sends > 0 { 0.2 * held as f64 / sends as f64 + 0.02 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::hang::NO_META;
    use crate::case::Evidence;
    use crate::fact::OpRef;
    use mycroft_record::{FlowCounters, NANOS_PER_MS};

    /// Who is named when these links are stuck, each a letter and a letter.
    fn cut(links: &[&str]) -> Option<String> {
        let host = |name: char| HostName::from(name.to_string().as_str());
        let stuck = |link: &&str| {
            let mut ends = link.chars();
            Some(Stuck { from: host(ends.next()?), to: host(ends.next()?), untransmitted: false })
        };
        let links: Vec<Stuck> = links.iter().filter_map(stuck).collect();
        Some(cut_off(&links)?.iter().map(|host| host.to_string()).collect())
    }

    fn host(name: &str) -> HostName {
        HostName::from(name)
    }

    /// Data that does not arrive: from the first rank to the second, two ranks a host.
    fn not_delivered(from: u32, to: u32) -> Fact {
        let end = |rank: u32| (Rank(rank), host(&format!("host{}", rank / 2)));
        let op = OpRef { meta: NO_META, label: "AllReduce A #0".to_owned() };
        let evidence = Evidence { rank: None, op: None, flow: None, at: HostTime(1) };
        let send = FlowCounters::default();
        Fact::NotDelivered {
            from: end(from),
            to: end(to),
            op,
            evidence,
            send,
            since: HostTime(1),
            longest_ns: 0,
            served_meanwhile: false,
        }
    }

    fn is_down(name: &str, at_ms: u64) -> Fact {
        Fact::NicDown { host: host(name), nic: "eth0".into(), at: HostTime(NANOS_PER_SEC + at_ms * NANOS_PER_MS) }
    }

    fn most_likely(facts: &[Fact]) -> Option<Vec<String>> {
        let (_, suspects) = undelivered(facts)?;
        let first = suspects.iter().filter(|suspect| suspect.confidence == suspects[0].confidence);
        let name = |place: &Place| match place {
            Place::Host { host } => host.to_string(),
            _ => String::new(),
        };
        Some(first.map(|suspect| name(&suspect.place)).collect())
    }

    /// Neither end of two pairs would be told from the other, but for their links.
    #[test]
    fn hosts_whose_links_went_down_together_are_named_together() {
        let mut facts = vec![not_delivered(0, 4), not_delivered(4, 0), not_delivered(2, 6), not_delivered(6, 2)];
        facts.extend([is_down("host2", 200), is_down("host3", 900)]);
        assert_eq!(most_likely(&facts), Some(vec!["host2".to_owned(), "host3".to_owned()]));
        // One that went long before is another matter.
        facts[4] = is_down("host2", 9_000);
        assert_eq!(most_likely(&facts), Some(vec!["host3".to_owned()]));
    }

    #[test]
    fn an_operation_that_stands_still_where_a_link_is_down_is_cut() {
        let stuck = |ranks: &[u32]| Fact::StuckInside {
            op: OpRef { meta: NO_META, label: String::new() },
            members: ranks.iter().map(|rank| (Rank(*rank), host(&format!("host{}", rank / 2)), HostTime(1))).collect(),
        };
        let named = |facts: &[Fact]| {
            super::cut(&Timeline::default(), facts).map(|(_, category, suspects)| (category, suspects[0].place.clone()))
        };
        let both = [stuck(&[0, 2, 4]), stuck(&[1, 3, 5]), is_down("host2", 0)];
        assert_eq!(named(&both), Some((Category::NetworkSend, Place::Host { host: host("host2") })));
        assert_eq!(named(&both[..2]), None, "no link is down");
        let apart = [stuck(&[0, 2]), stuck(&[1, 3, 5]), is_down("host2", 0)];
        assert_eq!(named(&apart), None, "one operation stands still without it");
        assert_eq!(named(&[stuck(&[4, 5]), is_down("host2", 0)]), None, "inside a host no link is needed");
        let stalled = |since_s: u64| Fact::Stalled {
            waiting: vec![Rank(0)],
            since: HostTime(since_s * NANOS_PER_SEC),
            waited_ns: NANOS_PER_SEC,
            threshold_ns: NANOS_PER_SEC,
            why: String::new(),
        };
        let later = [both.to_vec(), vec![stalled(9)]].concat();
        assert_eq!(named(&later), None, "the job went on for eight seconds without it");
        assert!(named(&[both.to_vec(), vec![stalled(2)]].concat()).is_some(), "what was on its way had still come");
    }

    /// Over wires that serve others, several wait for one rank: it cannot send. One that waits may as well not take.
    #[test]
    fn who_several_wait_for_over_wires_that_serve_others_cannot_send() {
        let served = |from: u32, to: u32| match not_delivered(from, to) {
            Fact::NotDelivered { from, to, op, evidence, send, since, longest_ns, .. } => {
                Fact::NotDelivered { from, to, op, evidence, send, since, longest_ns, served_meanwhile: true }
            }
            other => other,
        };
        let named = |facts: &[Fact]| match undelivered(facts) {
            Some((category, suspects)) => match &suspects[0].place {
                Place::Rank { rank, .. } => Some((category, rank.0)),
                _ => None,
            },
            None => None,
        };
        assert_eq!(named(&[served(2, 4), served(2, 6)]), Some((Category::NetworkSend, 2)));
        assert_eq!(named(&[served(2, 4)]), Some((Category::HostThread, 4)));
        assert_eq!(named(&[served(2, 4), served(2, 5)]), Some((Category::HostThread, 4)), "both are on one host");
    }

    /// Rank 2 has delivered a slice to rank 4 that took nine seconds, and none to rank 6 yet.
    #[test]
    fn a_rank_whose_slices_crawl_and_come_is_slow() {
        let crawl = |to: u32, longest: u64, served: bool| match not_delivered(2, to) {
            Fact::NotDelivered { from, to, op, evidence, send, since, .. } => {
                let (longest_ns, served_meanwhile) = (longest * NANOS_PER_SEC, served);
                Fact::NotDelivered { from, to, op, evidence, send, since, longest_ns, served_meanwhile }
            }
            other => other,
        };
        let stalled = |seconds: u64| Fact::Stalled {
            waiting: vec![Rank(0)],
            since: HostTime(1),
            waited_ns: seconds * NANOS_PER_SEC,
            threshold_ns: NANOS_PER_SEC,
            why: String::new(),
        };
        let facts = |seconds: u64| [stalled(seconds), crawl(4, 9, true), crawl(6, 0, false)];
        let (category, suspects) = undelivered(&facts(7)).unwrap();
        assert_eq!((category, suspects.len()), (Category::NetworkSend, 1));
        assert!(matches!(suspects[0].place, Place::Rank { rank: Rank(2), .. }));
        assert!(crawls(&facts(7)) && !crawls(&facts(19)), "twice as long as that, and none has come");
        assert!(!crawls(&[stalled(7), crawl(4, 0, true)]), "none has ever come");
        assert!(!crawls(&[stalled(7), crawl(4, 9, true), not_delivered(8, 6)]), "another's do not either");
        let cut = [stalled(7), crawl(4, 9, false), crawl(6, 0, false)];
        assert_eq!(most_likely(&cut), Some(vec!["host1".to_owned()]), "nobody's data passes");
    }

    /// The wire does not accuse a rank of which nothing is known, nor who sends to it.
    #[test]
    fn data_that_does_not_reach_who_is_gone_accuses_nobody() {
        let silent = Fact::NoData {
            rank: Rank(4),
            host: host("host2"),
            waiting: vec![Rank(0)],
            last_seen: HostTime(1),
            gap: false,
        };
        let to_it = [not_delivered(0, 4), not_delivered(4, 0), silent];
        assert_eq!(most_likely(&to_it), None);
        // What is stuck elsewhere is not explained by that.
        let others = [&to_it[..], &[not_delivered(6, 3), not_delivered(3, 6)]].concat();
        assert!(most_likely(&others).is_some());
    }

    #[test]
    fn hosts_that_no_other_reaches_are_cut_off() {
        assert_eq!(cut(&["xa", "xb", "yb", "ax", "by", "cy"]), Some("xy".to_owned()));
        assert_eq!(cut(&["ax", "ay", "bx", "by", "cx", "cy"]), Some("xy".to_owned()));
    }

    #[test]
    fn what_one_host_explains_or_nothing_does_is_no_cut() {
        // One host, whichever way.
        assert_eq!(cut(&["xa", "bx", "cx"]), None);
        // As many on either side.
        assert_eq!(cut(&["ax", "ay", "bx", "by"]), None);
        // Within a side, too.
        assert_eq!(cut(&["xa", "xb", "ya", "yc", "xy"]), None);
        // Two places that have nothing to do with each other.
        assert_eq!(cut(&["xa", "xb", "yc", "yd"]), None);
    }
}
