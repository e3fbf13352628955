//! Facts told by hand, and what they say together.
use super::*;
use crate::blame::hang::NO_META;
use crate::case::Evidence;
use crate::fact::{OnWay, OpRef};
use mycroft_record::{Batch, FlowCounters, ProcessKey, Record, Sampled, Source};

fn inside(ops: &[&[(u32, &str, u64)]]) -> Vec<(String, f64)> {
    let of = |members: &&[(u32, &str, u64)]| -> Vec<(Rank, HostName, HostTime)> {
        let member =
            |(rank, host, ms): &(u32, &str, u64)| (Rank(*rank), HostName::from(*host), HostTime(ms * NANOS_PER_MS));
        members.iter().map(member).collect()
    };
    let ops: Vec<_> = ops.iter().map(of).collect();
    let suspects = longest_inside(&ops.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let name = |place: &Place| match place {
        Place::Rank { rank, .. } => rank.to_string(),
        Place::Host { host } => host.to_string(),
        Place::Link { .. } => String::new(),
    };
    suspects.iter().map(|suspect| (name(&suspect.place), (suspect.confidence * 100.0).round())).collect()
}

fn pairs(list: &[(&str, f64)]) -> Vec<(String, f64)> {
    list.iter().map(|(name, percent)| ((*name).to_owned(), *percent)).collect()
}

#[test]
fn a_host_is_named_for_several_of_its_ranks_inside_and_not_for_one() {
    assert_eq!(inside(&[&[(10, "c", 1)]]), pairs(&[("10", 90.0)]));
    assert_eq!(inside(&[&[(10, "c", 1), (11, "c", 1)]]), pairs(&[("c", 90.0), ("10", 45.0), ("11", 45.0)]));
    assert_eq!(inside(&[&[(10, "c", 1), (14, "d", 1)]]), pairs(&[("10", 45.0), ("14", 45.0)]));
    assert_eq!(inside(&[&[(10, "c", 1), (14, "d", 9)]]), pairs(&[("10", 81.0), ("14", 9.0)]), "who waited longest");
}

#[test]
fn of_many_that_are_inside_nobody_is_named() {
    let alone: Vec<[(u32, &str, u64); 1]> = (0..8).map(|rank| [(rank, ["a", "b"][rank as usize / 4], 1)]).collect();
    let ops: Vec<&[_]> = alone.iter().map(|members| &members[..]).collect();
    assert_eq!(inside(&ops), []);
    assert_eq!(inside(&ops[3..5]), pairs(&[("3", 45.0), ("4", 45.0)]));
    let none_shared = inside(&ops[..4]);
    assert!(none_shared.iter().all(|(name, _)| name != "a"), "all on one host, each alone: {none_shared:?}");
    assert_eq!(inside(&[]), []);
}

/// Of a run in which slow copies had not shown yet: one link of many was a little slower than before.
#[test]
fn what_stands_alone_and_explains_next_to_nothing_accuses_nobody() {
    let said = |now_ms: f64| {
        let (from, to) = (HostName::from("d"), HostName::from("c"));
        let fact = Fact::WireExcess {
            from,
            to,
            now_ms,
            base_ms: 36.0,
            iteration_ms: 553.0,
            mb: 9.0,
            on_way: OnWay::default(),
            links: 4,
            of: 4,
        };
        slowdown(&Timeline::default(), &[fact], &Config::default(), HostTime(1), 553.0).category
    };
    assert_eq!(said(56.0), Category::Unknown);
    assert_ne!(said(136.0), Category::Unknown);
    assert_eq!(
        said(100.0),
        Category::Unknown,
        "no slower than what waits for somebody else, and much less than all grew"
    );
}

/// Of a ring through three hosts: the slow copy takes all of the time, who waits for it half of it at most.
#[test]
fn who_waits_for_a_slow_copy_now_for_data_and_now_for_room_is_no_slow_copy() {
    let said = |of_other_ms: f64| {
        let copy = |rank: u32, host: &str, grew_ms: f64| {
            let (host, base_ms, iteration_ms) = (HostName::from(host), 2.0, 5_000.0);
            Fact::CopyExcess { rank: Rank(rank), host, now_ms: base_ms + grew_ms, base_ms, iteration_ms, unseen: false }
        };
        let mut facts = vec![copy(7, "a", of_other_ms), copy(23, "c", 4_000.0)];
        facts.extend([8, 9, 10].map(|rank| copy(rank, "b", 0.0)));
        let verdict = slowdown(&Timeline::default(), &facts, &Config::default(), HostTime(1), 5_000.0);
        let places: Vec<Place> = verdict.suspects.iter().map(|suspect| suspect.place.clone()).collect();
        (places, verdict.confidence() >= DECISIVE)
    };
    let (slow, other) = (rank_place(Rank(23), &"c".into()), rank_place(Rank(7), &"a".into()));
    assert_eq!(said(1_980.0), (vec![slow.clone()], true));
    assert_eq!(said(2_100.0), (vec![slow, other], false), "that is more than waiting");
}

/// A ring's way through a host is slow, which its two ends show together; what one of the host's devices copies besides is, too.
#[test]
fn a_slow_way_through_a_host_is_the_devices_whose_other_copies_are_slow() {
    let (host, iteration_ms) = (|| HostName::from("a"), 5_000.0);
    let (entry, exit) = (Rank(0), Rank(4));
    let way = || Fact::PassageExcess { host: host(), entry, exit, now_ms: 4_800.0, base_ms: 1.0, iteration_ms };
    let copy = |rank: u32, now_ms: f64| Fact::CopyExcess {
        rank: Rank(rank),
        host: host(),
        now_ms,
        base_ms: 40.0,
        iteration_ms,
        unseen: false,
    };
    let said = |facts: &[Fact]| -> Vec<Place> {
        let verdict = slowdown(&Timeline::default(), facts, &Config::default(), HostTime(1), iteration_ms);
        verdict.leads().cloned().collect()
    };
    let of_host = vec![network::host_place(&host())];
    assert_eq!(said(&[way()]), of_host);
    assert_eq!(said(&[way(), copy(0, 700.0)]), [rank_place(Rank(0), &host())]);
    assert_eq!(said(&[way(), copy(0, 700.0), copy(4, 600.0)]), of_host, "one of two");
    assert_eq!(said(&[way(), copy(0, 60.0)]), of_host, "a little slower, as whoever waits");
}

/// A link that others fill lets flows stand still for as long as a proxy thread that sleeps.
#[test]
fn pauses_at_an_interface_that_others_keep_busy_are_no_proxy_threads() {
    let host = |name: &str| HostName::from(name);
    let pause = |name: &str| Fact::ProxyPause {
        rank: Rank(1),
        host: host(name),
        at: HostTime(1),
        pause_ms: 3_000.0,
        flows: 6,
        inbound: false,
        op: None,
    };
    let wire = |from: &str, to: &str| {
        let (from, to) = (host(from), host(to));
        Fact::WireExcess {
            from,
            to,
            now_ms: 1_090.0,
            base_ms: 26.0,
            iteration_ms: 2_783.0,
            mb: 9.0,
            on_way: OnWay::default(),
            links: 8,
            of: 8,
        }
    };
    let foreign = |name: &str| {
        let (nic_mb_s, job_mb_s) = (47.0, 1.6);
        Fact::ForeignTraffic { host: host(name), nic: "eth0".into(), nic_mb_s, job_mb_s }
    };
    let said =
        |facts: &[Fact]| slowdown(&Timeline::default(), facts, &Config::default(), HostTime(1), 2_783.0).category;
    let slow = [pause("a"), pause("a"), wire("a", "b"), wire("c", "a"), wire("c", "d"), foreign("a"), foreign("c")];
    assert_eq!(said(&slow), Category::NetworkCongestion);
    assert_eq!(said(&slow[..5]), Category::HostThread);
    let elsewhere = [&[pause("d"), pause("d")], &slow[2..]].concat();
    assert_eq!(said(&elsewhere), Category::HostThread);
}

#[test]
fn of_two_ranks_that_seem_to_pause_the_one_with_the_slow_links_does() {
    let end = |rank: u32| (Rank(rank), HostName::from(format!("host{}", rank / 4).as_str()));
    let link = |from: u32, to: u32, grew_ms: f64| Fact::RankLink {
        from: end(from),
        to: end(to),
        now_ms: 300.0 + grew_ms,
        base_ms: 300.0,
        iteration_ms: 2_000.0,
        links: 1,
        of: 4,
        sends: OtherLinks::default(),
        receives: OtherLinks::default(),
        returns: OtherLinks::default(),
    };
    let pause = |rank: u32| {
        let (at, pause_ms, flows, inbound, op) = (HostTime(1), 1_000.0, 2, true, None);
        Fact::ProxyPause { rank: Rank(rank), host: end(rank).1, at, pause_ms, flows, inbound, op }
    };
    let mut facts = vec![pause(4), pause(4), pause(8), pause(8), link(4, 8, 1_100.0), link(8, 12, 2_100.0)];
    let said = |facts: &[Fact]| {
        let verdict = slowdown(&Timeline::default(), facts, &Config::default(), HostTime(1), 2_000.0);
        assert_eq!(verdict.category, Category::HostThread);
        verdict.suspects[0].place.clone()
    };
    assert_eq!(said(&facts), rank_place(Rank(8), &end(8).1));
    let one_more = [&facts[..], &[pause(4)]].concat();
    assert_eq!(said(&one_more), rank_place(Rank(8), &end(8).1), "however often the other seems to");
    facts[5] = link(0, 4, 2_100.0);
    assert_eq!(said(&facts), rank_place(Rank(4), &end(4).1));
}

/// So many other links are slow, and so many are not.
fn of_others(slow: usize, fast: usize) -> OtherLinks {
    OtherLinks { slow, fast, ..OtherLinks::default() }
}

/// Of a ring's link that is twenty times as slow, where all else that its ends exchange are short messages.
#[test]
fn short_messages_tell_the_ends_of_a_slow_link_apart() {
    let end = |rank: u32| (Rank(rank), HostName::from(format!("host{}", rank / 4).as_str()));
    let short = |less_slow: usize, short_fast: usize| OtherLinks { less_slow, short_fast, ..OtherLinks::default() };
    let said = |sends: OtherLinks, receives: OtherLinks| {
        let (from, to, returns) = (end(4), end(8), OtherLinks::default());
        let (now_ms, base_ms, iteration_ms, links, of) = (841.0, 41.0, 597.0, 1, 4);
        let link = Fact::RankLink { from, to, now_ms, base_ms, iteration_ms, links, of, sends, receives, returns };
        let verdict = slowdown(&Timeline::default(), &[link], &Config::default(), HostTime(1), iteration_ms);
        verdict.leads().cloned().collect::<Vec<Place>>()
    };
    let [sender, receiver] = [4, 8].map(|rank| rank_place(Rank(rank), &end(rank).1));
    let either = vec![sender.clone(), receiver.clone()];
    let first = [sender];
    assert_eq!(said(short(1, 0), short(0, 1)), first);
    let second = [receiver];
    assert_eq!(said(short(0, 2), short(1, 1)), second);
    assert_eq!(said(short(1, 0), short(1, 1)), either, "both are slower");
    assert_eq!(said(short(1, 0), short(0, 0)), either, "the other end shows nothing");
    let by_message = |by_message: usize| OtherLinks { by_message, ..OtherLinks::default() };
    assert_eq!(said(by_message(1), by_message(0)), first, "each message is: the other end comes late");
    assert_eq!(said(by_message(1), by_message(1)), either, "at both ends");
    assert_eq!(said(by_message(1), short(1, 0)), either);
    assert_eq!(said(OtherLinks { fast: 1, ..short(1, 0) }, of_others(0, 1)), either, "longer ones deny it");
    assert_eq!(said(of_others(1, 0), of_others(1, 1)), first, "of both some are slow, of the sender all");
    assert_eq!(said(of_others(2, 1), of_others(1, 0)), second);
    assert_eq!(said(of_others(1, 0), of_others(1, 0)), either);
}

/// Two of seven links to a host are many times slower, both of one rank. Beside them are links from another host.
#[test]
fn a_host_to_which_most_links_are_slow_is_no_single_rank() {
    let end = |rank: u32| (Rank(rank), HostName::from(format!("host{}", rank / 8).as_str()));
    let (from, to, now_ms, base_ms, iteration_ms) = (end(34), end(16), 738.0, 43.0, 780.0);
    let (links, of, sends, receives, returns) = (2, 7, of_others(0, 3), of_others(1, 0), OtherLinks::default());
    let link = Fact::RankLink { from, to, now_ms, base_ms, iteration_ms, links, of, sends, receives, returns };
    let said = |now_ms: f64, links: usize| {
        let (from, to, base_ms, of) = (end(40).1, end(16).1, 33.0, 8);
        let (mb, on_way) = (6.0, OnWay { now_ms, base_ms });
        let way = Fact::WireExcess { from, to, now_ms, base_ms, iteration_ms, mb, on_way, links, of };
        let facts = [link.clone(), way];
        let verdict = slowdown(&Timeline::default(), &facts, &Config::default(), HostTime(1), iteration_ms);
        verdict.leads().next().cloned()
    };
    let rank = Some(rank_place(Rank(16), &end(16).1));
    assert_eq!(said(300.0, 8), rank, "they wait for it");
    assert_eq!(said(726.0, 2), rank, "they may be its own");
    assert_ne!(said(726.0, 8), rank);
}

/// Of sends that are ten times as slow. Elsewhere a proxy thread was late with a little of what it had.
#[test]
fn a_thread_that_is_late_with_little_does_not_hide_slow_sends() {
    let end = |rank: u32| (Rank(rank), HostName::from(format!("host{}", rank / 4).as_str()));
    let said = |held_ms: f64| {
        let (from, to, now_ms, base_ms, iteration_ms) = (end(4), end(8), 1_808.0, 184.0, 614.0);
        let (links, of, sends, receives, returns) = (1, 2, of_others(6, 0), of_others(0, 0), OtherLinks::default());
        let link = Fact::RankLink { from, to, now_ms, base_ms, iteration_ms, links, of, sends, receives, returns };
        let late = |(rank, now_ms): (u32, f64)| {
            let (rank, host) = end(rank);
            Fact::HandoverExcess { rank, host, now_ms, base_ms: 0.0, iteration_ms }
        };
        let facts: Vec<Fact> = [(16, held_ms), (20, 1.0), (24, 1.0)].map(late).into_iter().chain([link]).collect();
        slowdown(&Timeline::default(), &facts, &Config::default(), HostTime(1), iteration_ms).category
    };
    assert_eq!(said(69.0), Category::NetworkSend);
    assert_eq!(said(800.0), Category::HostThread, "who waits for such a thread seems to be slow");
}

/// Of a rank whose sends are six times as slow: who received from it was told of pauses of a second.
#[test]
fn who_receives_from_a_slow_sender_does_not_pause() {
    let end = |rank: u32| (Rank(rank), HostName::from(format!("host{}", rank / 4).as_str()));
    let said_of = |sends: OtherLinks, receives: OtherLinks, returns: OtherLinks| {
        let (from, to, now_ms, base_ms, iteration_ms) = (end(4), end(8), 770.0, 200.0, 500.0);
        let (links, of) = (1, 8);
        let link = Fact::RankLink { from, to, now_ms, base_ms, iteration_ms, links, of, sends, receives, returns };
        let (at, pause_ms, flows, inbound, op) = (HostTime(1), 1_000.0, 7, true, None);
        let pause = Fact::ProxyPause { rank: Rank(8), host: end(8).1, at, pause_ms, flows, inbound, op };
        let facts = [link, pause.clone(), pause.clone(), pause];
        let verdict = slowdown(&Timeline::default(), &facts, &Config::default(), HostTime(1), 500.0);
        (verdict.category, verdict.suspects[0].place.clone())
    };
    let none = OtherLinks::default();
    let said_with = |receives, returns| said_of(of_others(2, 0), receives, returns);
    let said = |receives| said_with(receives, none);
    let the_senders = (Category::NetworkSend, rank_place(Rank(4), &end(4).1));
    assert_eq!(said(of_others(0, 2)), the_senders);
    assert_eq!(said_with(none, of_others(0, 1)), the_senders, "it sends as fast as before");
    let not_served = (Category::HostThread, rank_place(Rank(8), &end(8).1));
    assert_eq!(said(of_others(1, 1)), not_served, "others wait for it as well");
    assert_eq!(said(none), not_served, "nothing else tells");
    let short = OtherLinks { short_fast: 2, ..none };
    assert_eq!(said_with(short, short), the_senders, "short messages pass, and two others of the sender's are slow");
    assert_eq!(said_of(of_others(1, 0), short, short), the_senders, "all that it sends is slow");
    let one = OtherLinks { short_fast: 1, ..of_others(1, 0) };
    assert_eq!(said_of(one, short, short), not_served, "one may be by chance");
    assert_eq!(said_with(none, of_others(1, 1)), not_served, "it sends late too");
    let many_times = OtherLinks { less_slow: 1, ..none };
    assert_eq!(said_of(many_times, of_others(0, 2), none), the_senders, "not in proportion, and no doubt");
    assert_eq!(said_of(OtherLinks { fast: 1, ..many_times }, of_others(0, 2), none), not_served, "it sends well, too");
}

/// Of a rank whose sends are ten times as slow: nothing that it receives stood still.
#[test]
fn a_thread_that_sleeps_takes_nothing_either() {
    let end = |rank: u32| (Rank(rank), HostName::from(format!("host{}", rank / 4).as_str()));
    let link = |from: u32, to: u32, sends: OtherLinks| {
        let (from, to, now_ms, base_ms, iteration_ms) = (end(from), end(to), 1_300.0, 130.0, 1_200.0);
        let (links, of, receives, returns) = (1, 8, of_others(0, 3), of_others(0, 3));
        Fact::RankLink { from, to, now_ms, base_ms, iteration_ms, links, of, sends, receives, returns }
    };
    let pause = |inbound: bool| {
        let (at, pause_ms, flows, op) = (HostTime(1), 1_500.0, 12, None);
        Fact::ProxyPause { rank: Rank(4), host: end(4).1, at, pause_ms, flows, inbound, op }
    };
    let of = |facts: &[Fact]| slowdown(&Timeline::default(), facts, &Config::default(), HostTime(1), 1_200.0);
    let said = |facts: &[Fact]| {
        let verdict = of(facts);
        assert_eq!(verdict.leads().collect::<Vec<_>>(), [&rank_place(Rank(4), &end(4).1)]);
        verdict.category
    };
    let slow = link(4, 8, of_others(2, 0));
    let facts = [slow.clone(), pause(false), pause(false)];
    assert_eq!(said(&facts), Category::NetworkSend);
    assert_eq!(said(&[slow.clone(), pause(false), pause(true)]), Category::HostThread, "it did not receive either");
    assert_eq!(said(&[link(4, 8, of_others(2, 1)), pause(false), pause(false)]), Category::HostThread);
    let received = link(12, 4, of_others(0, 2));
    assert_eq!(said(&[slow, received, pause(false), pause(false)]), Category::HostThread);

    let suspects = vec![Suspect { place: rank_place(Rank(4), &end(4).1), confidence: 0.99 }];
    let (what, category, since) = (What::Slowdown, Category::HostThread, HostTime(1));
    let paused = Finding { what, category, suspects, since, detected_at: since, diagnosed_at: since };
    let mut verdict = of(&facts);
    verdict.suspects[0].confidence = 0.7;
    assert!(verdict.confidence() >= verdict.least_against(&paused, &facts), "it says what the pauses were");
    assert!(verdict.confidence() < verdict.least_against(&paused, &facts[1..]), "that all it sends is slow says so");
}

/// Of a link that flaps: a device behind it had slots to fill and nothing came.
#[test]
fn who_does_not_move_behind_a_link_that_is_down_is_not_why() {
    let op = OpRef { meta: NO_META, label: "AllReduce A #0".to_owned() };
    let evidence = Evidence { rank: None, op: None, flow: None, at: HostTime(1) };
    let end = |rank: u32, host: &str| (Rank(rank), HostName::from(host));
    let lost = |from, to| Fact::NotDelivered {
        from,
        to,
        op: op.clone(),
        evidence,
        send: FlowCounters::default(),
        since: HostTime(1),
        longest_ns: 0,
        served_meanwhile: false,
    };
    let idle = Fact::GpuNotReady {
        rank: Rank(0),
        host: "a".into(),
        op: op.clone(),
        evidence,
        counters: FlowCounters::default(),
        strong: true,
    };
    let down = |host: &str| Fact::NicDown { host: host.into(), nic: "eth0".into(), at: HostTime(1) };
    let both = [idle, lost(end(3, "d"), end(5, "e")), lost(end(5, "e"), end(3, "d"))];
    let said = |more: Option<Fact>| {
        let facts: Vec<Fact> = both.iter().cloned().chain(more).collect();
        let verdict = hang(&Timeline::default(), &facts, HostTime(1));
        (verdict.category, verdict.suspects[0].place.clone())
    };
    assert_eq!(said(None), (Category::Gpu, rank_place(Rank(0), &"a".into())));
    assert_eq!(said(Some(down("e"))).1, Place::Host { host: "e".into() });
    assert_eq!(said(Some(down("f"))).0, Category::Gpu, "nothing is lost at that one");
    // What one rank sends reaches neither of two: rank 0 waits for it behind a neighbour inside its own host.
    let one_sender = [both[0].clone(), lost(end(3, "d"), end(5, "e")), lost(end(3, "d"), end(0, "a"))];
    let verdict = hang(&Timeline::default(), &one_sender, HostTime(1));
    assert_eq!(verdict.category, Category::NetworkSend);
    assert_eq!(verdict.suspects[0].place, Place::Host { host: "d".into() });
}

/// Of a ring in which a crowded host's threads are late: one of its ranks is named for less, and is a part of it.
#[test]
fn a_rank_of_a_suspect_host_speaks_for_it() {
    let late = |rank: u32, name: &str, now_ms: f64| {
        let (rank, host) = (Rank(rank), HostName::from(name));
        Fact::HandoverExcess { rank, host, now_ms, base_ms: 1.0, iteration_ms: 5_000.0 }
    };
    let said = |name: &str| {
        let host = HostName::from("a");
        let waits = Fact::CpuWait { host, now_milli: 280.0, base_milli: 20.0, busy_milli: 1_000.0 };
        let facts = [late(1, "a", 300.0), late(2, name, 1_600.0), waits];
        let verdict = slowdown(&Timeline::default(), &facts, &Config::default(), HostTime(1), 5_000.0);
        assert_eq!(verdict.suspects[0].place, Place::Host { host: HostName::from("a") });
        verdict.confidence() >= DECISIVE
    };
    assert!(said("a"));
    assert!(!said("b"), "one of another host does not");
}

/// Of a ring .. a -> b -> c: copies last where slots wait behind the slow way, by as much as the way does.
#[test]
fn copies_elsewhere_are_behind_a_slow_way() {
    let said = |host: &str, now_ms: f64| {
        let copies = |rank: u32, host: &str, now_ms: f64| {
            let (rank, host) = (Rank(rank), HostName::from(host));
            Fact::CopyExcess { rank, host, now_ms, base_ms: 5.0, iteration_ms: 410.0, unseen: false }
        };
        let (from, to, iteration_ms) = (HostName::from("b"), HostName::from("c"), 410.0);
        let way = Fact::WireExcess {
            from,
            to,
            now_ms,
            base_ms: 28.0,
            iteration_ms,
            mb: 9.0,
            on_way: OnWay::default(),
            links: 4,
            of: 4,
        };
        let others = (3..7).map(|rank| copies(rank, "z", 6.0));
        let facts: Vec<Fact> = others.chain([copies(1, host, 290.0), copies(2, host, 290.0), way]).collect();
        slowdown(&Timeline::default(), &facts, &Config::default(), HostTime(1), iteration_ms).category
    };
    assert_eq!(said("a", 265.0), Category::NetworkSend);
    assert_eq!(said("a", 100.0), Category::GpuCopy, "by more than the way");
    assert_eq!(said("b", 265.0), Category::GpuCopy, "of the way's own end");
}

/// Of a tree in which all ranks that waited for a slow copy send at once: a way is slower then too.
#[test]
fn the_only_slow_copy_that_takes_longer_than_a_way_is_not_behind_it() {
    let timeline = four_ranks();
    let said = |copies: &[(u32, f64)]| {
        let iteration_ms = 619.0;
        let copy = |(rank, now_ms): &(u32, f64)| {
            let (rank, host) = (Rank(*rank), HostName::from("a"));
            Fact::CopyExcess { rank, host, now_ms: *now_ms, base_ms: 0.0, iteration_ms, unseen: false }
        };
        let (from, to) = (HostName::from("b"), HostName::from("c"));
        let (now_ms, base_ms, on_way) = (173.0, 41.0, OnWay::default());
        let way = Fact::WireExcess { from, to, now_ms, base_ms, iteration_ms, mb: 9.0, on_way, links: 7, of: 8 };
        let facts: Vec<Fact> = copies.iter().map(copy).chain([way]).collect();
        slowdown(&timeline, &facts, &Config::default(), HostTime(1), iteration_ms).category
    };
    assert_eq!(said(&[(15, 149.0)]), Category::GpuCopy);
    assert_eq!(said(&[(15, 120.0)]), Category::NetworkSend, "by less than the way");
    assert_eq!(said(&[(15, 149.0), (23, 130.0)]), Category::NetworkSend, "as do others");
}

/// A job of four ranks on host d.
fn four_ranks() -> Timeline {
    let mut timeline = Timeline::default();
    for rank in 0..4 {
        let process = ProcessKey { rank: Rank(rank), pid: rank + 1, nonce: 1 };
        let source = Source { job: "job".into(), host: "d".into(), process: Some(process) };
        let sampled = Sampled { at: HostTime(1), ops_in_flight: 0, flows_in_flight: 0, alive: true, stopped: false };
        timeline.observe(&Batch { source, collected_at: HostTime(1), records: vec![Record::Sampled(sampled)] }, 0);
    }
    timeline
}

/// Of a tree: rank 1 waits for a neighbour inside its own host, of which nothing is seen, for as long as another host's ways
/// take, or a device elsewhere.
#[test]
fn who_waits_in_a_tree_for_others_is_no_slow_copy() {
    let iteration_ms = 692.0;
    let copy = || Fact::CopyExcess {
        rank: Rank(1),
        host: "a".into(),
        now_ms: 818.0,
        base_ms: 8.0,
        iteration_ms,
        unseen: false,
    };
    let ways = |count: usize| {
        let way = |from: &str| Fact::WireExcess {
            from: from.into(),
            to: "z".into(),
            now_ms: 700.0,
            base_ms: 29.0,
            iteration_ms,
            mb: 9.0,
            on_way: OnWay::default(),
            links: 4,
            of: 4,
        };
        ["w", "x", "y"].into_iter().take(count).map(way).collect::<Vec<_>>()
    };
    let said = |beside: &[Fact]| {
        let facts: Vec<Fact> = beside.iter().cloned().chain([copy()]).collect();
        slowdown(&four_ranks(), &facts, &Config::default(), HostTime(1), iteration_ms).category
    };
    assert_eq!(said(&ways(2)), Category::GpuCopy, "longer than either");
    assert_eq!(said(&ways(3)), Category::NetworkReceive, "so many are not slow because of a copy elsewhere");
    let computes =
        |now_ms: f64| [Fact::ComputeExcess { rank: Rank(551), host: "b".into(), now_ms, base_ms: 400.0, iteration_ms }];
    assert_eq!(said(&computes(1_050.0)), Category::Gpu, "it accounts for all that iterations grew");
    assert_eq!(said(&computes(900.0)), Category::GpuCopy, "it does not");
}

/// Of a way whose time before is forgotten, while that of the copies behind it is not.
#[test]
fn copies_take_the_place_of_a_slow_way_only_where_they_are_surer() {
    let place = Place::Host { host: "a".into() };
    let finding = |category| Finding {
        what: What::Slowdown,
        category,
        suspects: vec![Suspect { place: place.clone(), confidence: 0.88 }],
        since: HostTime(1),
        detected_at: HostTime(2),
        diagnosed_at: HostTime(2),
    };
    let takes = |category, confidence, of| {
        let suspects = vec![Suspect { place: place.clone(), confidence }];
        let verdict = Verdict { category, suspects, ..Verdict::unknown(What::Slowdown, HostTime(1)) };
        verdict.confidence() >= verdict.least_against(&finding(of), &[])
    };
    assert!(!takes(Category::GpuCopy, 0.91, Category::NetworkCongestion));
    assert!(takes(Category::GpuCopy, 0.95, Category::NetworkCongestion));
    assert!(takes(Category::NetworkReceive, 0.85, Category::NetworkCongestion), "other ways tell more");
    assert!(takes(Category::GpuCopy, 0.85, Category::Gpu));
    assert!(!takes(Category::GpuCopy, 0.80, Category::Gpu));
}

/// Of a tree: a rank near the root waits for its parent, inside its own host, as long as the slow copy elsewhere takes, or for
/// all that iterations grow.
#[test]
fn who_may_wait_for_an_unseen_parent_is_no_slow_copy_where_another_is() {
    let iteration_ms = 489.0;
    let copy = |rank: u32, host: &str, now_ms: f64, unseen: bool| {
        let (rank, host) = (Rank(rank), HostName::from(host));
        Fact::CopyExcess { rank, host, now_ms, base_ms: 0.0, iteration_ms, unseen }
    };
    let said = |facts: &[Fact]| -> Vec<Place> {
        let verdict = slowdown(&four_ranks(), facts, &Config::default(), HostTime(1), iteration_ms);
        verdict.leads().cloned().collect()
    };
    let (near_root, slow) = (rank_place(Rank(0), &"a".into()), rank_place(Rank(28), &"d".into()));
    assert_eq!(said(&[copy(0, "a", 550.0, true), copy(28, "d", 88.0, false)]), vec![slow.clone()]);
    assert_eq!(said(&[copy(0, "a", 220.0, true), copy(28, "d", 208.0, false)]), vec![slow]);
    assert_eq!(said(&[copy(0, "a", 550.0, true)]), vec![near_root.clone()], "nobody else's are slow");
    let of_host = vec![network::host_place(&"a".into())];
    assert_eq!(said(&[copy(0, "a", 550.0, true), copy(4, "a", 512.0, true)]), of_host, "one of them it is");
    assert_eq!(said(&[copy(0, "a", 550.0, false), copy(28, "d", 88.0, false)]), vec![near_root], "its parent is seen");
}

/// Of a tree: a slow way elsewhere accounts for most of what a rank near the root waits.
#[test]
fn who_may_wait_for_an_unseen_parent_is_behind_a_slow_way() {
    let iteration_ms = 218.0;
    let said = |unseen: bool| {
        let (rank, host) = (Rank(1), HostName::from("a"));
        let copy = Fact::CopyExcess { rank, host, now_ms: 210.0, base_ms: 5.0, iteration_ms, unseen };
        let way = |from: &str, to: &str, now_ms: f64, base_ms: f64| Fact::WireExcess {
            from: from.into(),
            to: to.into(),
            now_ms,
            base_ms,
            iteration_ms,
            mb: 9.0,
            on_way: OnWay::default(),
            links: 4,
            of: 4,
        };
        let facts = [copy, way("y", "z", 132.0, 15.0), way("z", "y", 251.0, 85.0)];
        slowdown(&four_ranks(), &facts, &Config::default(), HostTime(1), iteration_ms).category
    };
    assert_ne!(said(true), Category::GpuCopy);
    assert_eq!(said(false), Category::GpuCopy, "its parent is seen: it waits for nobody");
}

/// The same of the way of one rank: what rank 4 sends is slow to all.
#[test]
fn who_may_wait_for_an_unseen_parent_is_behind_slow_sends_of_a_rank() {
    let end = |rank: u32| (Rank(rank), HostName::from(format!("host{rank}")));
    let iteration_ms = 421.0;
    let said = |unseen: bool| {
        let (rank, host) = (Rank(1), HostName::from("z"));
        let copy = Fact::CopyExcess { rank, host, now_ms: 482.0, base_ms: 5.0, iteration_ms, unseen };
        let (sends, receives) =
            (OtherLinks { slow: 1, ..OtherLinks::default() }, OtherLinks { fast: 2, ..OtherLinks::default() });
        let link = Fact::RankLink {
            from: end(4),
            to: end(8),
            now_ms: 494.0,
            base_ms: 19.0,
            iteration_ms,
            links: 1,
            of: 8,
            sends,
            receives,
            returns: OtherLinks::default(),
        };
        let verdict = slowdown(&four_ranks(), &[copy, link], &Config::default(), HostTime(1), iteration_ms);
        verdict.suspects.into_iter().map(|suspect| suspect.place).collect::<Vec<Place>>()
    };
    let sender = rank_place(Rank(4), &end(4).1);
    assert_eq!(said(true), vec![sender.clone()]);
    assert!(said(false).len() > 1, "its parent is seen: it waits for nobody");
}

/// Of a ring .. a -> b -> c: both ends of b wait for each other as long as data waits on its ways in and out.
#[test]
fn a_passage_between_two_slow_ways_is_no_slow_copy() {
    let iteration_ms = 844.0;
    let passage = |host: &str, now_ms: f64| {
        let (entry, exit) = (Rank(80), Rank(87));
        Fact::PassageExcess { host: host.into(), entry, exit, now_ms, base_ms: 1.0, iteration_ms }
    };
    let way = |from: &str, to: &str, grew_ms: f64| Fact::WireExcess {
        from: from.into(),
        to: to.into(),
        now_ms: 160.0 + grew_ms,
        base_ms: 160.0,
        iteration_ms,
        mb: 9.0,
        on_way: OnWay::default(),
        links: 1,
        of: 1,
    };
    let said =
        |facts: &[Fact]| slowdown(&Timeline::default(), facts, &Config::default(), HostTime(1), iteration_ms).category;
    let ways = || [way("a", "b", 297.0), way("b", "c", 320.0)];
    let of = |host: &str, now_ms: f64, ways: &[Fact]| said(&[&[passage(host, now_ms)], ways].concat());
    assert_eq!(of("b", 445.0, &ways()), Category::NetworkSend);
    assert_eq!(of("b", 445.0, &ways()[..1]), Category::GpuCopy, "what leaves it is not late");
    assert_eq!(of("b", 800.0, &ways()), Category::GpuCopy, "by much more than the ways");
}
