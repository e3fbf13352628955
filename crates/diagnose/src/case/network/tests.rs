//! Which cause fits which ways between hosts are slow and which are not.
use super::*;

/// From one host to another: milliseconds per iteration now and before.
type Told<'a> = (&'a str, &'a str, f64, f64);

/// So many of the links that carry alike are slow.
fn excess((from, to, now_ms, base_ms): Told<'_>, links: usize, of: usize) -> Fact {
    let (from, to) = (HostName::from(from), HostName::from(to));
    Fact::WireExcess {
        from,
        to,
        now_ms,
        base_ms,
        iteration_ms: 500.0,
        mb: base_ms,
        on_way: OnWay::default(),
        links,
        of,
    }
}

fn facts(list: &[Told<'_>]) -> Vec<Fact> {
    let one = |&(from, to, now_ms, base_ms): &Told<'_>| {
        if now_ms - base_ms > 5.0 {
            return excess((from, to, now_ms, base_ms), 4, 4);
        }
        Fact::WireOther {
            from: HostName::from(from),
            to: HostName::from(to),
            now_ms,
            base_ms,
            mb: base_ms,
            on_way: OnWay::default(),
            links: 1,
        }
    };
    list.iter().map(one).collect()
}

/// A way that takes so many milliseconds per iteration now and before.
fn way(now_ms: f64, base_ms: f64) -> Way {
    let (ratio, excess_ms, sent) = (now_ms / base_ms, now_ms - base_ms, (base_ms, base_ms));
    Way {
        ratio,
        excess_ms,
        weight: 1.0,
        denies: 1.0,
        beyond: None,
        sent,
        follows: false,
        is_of_ring: true,
        mirrors: false,
        moved: false,
        on_way: None,
        sent_share: 1.0,
    }
}

fn said(facts: &[Fact]) -> Option<(Category, Vec<String>, bool)> {
    let found = of_slowdown(facts, &Config::default()).pop()?;
    let hosts = found.places.iter().map(|place| match place {
        Place::Host { host } => host.to_string(),
        other => format!("{other:?}"),
    });
    Some((found.category, hosts.collect(), found.either))
}

fn hosts(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

/// b's NIC: both directions of the ring, and what little it exchanges with d.
const NIC: [Told<'_>; 6] = [
    ("a", "b", 600.0, 150.0),
    ("b", "c", 580.0, 150.0),
    ("c", "d", 160.0, 150.0),
    ("d", "a", 158.0, 150.0),
    ("b", "d", 6.0, 2.0),
    ("d", "b", 5.0, 2.0),
];

#[test]
fn a_nic_is_slow_towards_all() {
    assert_eq!(said(&facts(&NIC)), Some((Category::NetworkSend, hosts(&["b"]), false)));
}

/// Of a ring whose hosts send a little to other pipeline stages, which waits for whoever is late: one of the two slow
/// ways alone would cost less to believe, but explains half.
#[test]
fn a_cause_that_explains_half_does_not_stand_in_the_way_of_one_that_explains_all() {
    let ring = [
        ("8", "9", 1030.0, 252.0),
        ("9", "10", 1045.0, 267.0),
        ("10", "11", 117.7, 258.0),
        ("11", "8", 120.4, 259.7),
        ("10", "14", 2.4, 1.6),
        ("10", "6", 3.2, 3.1),
        ("12", "8", 0.8, 2.6),
        ("13", "9", 1.1, 2.6),
        ("14", "10", 0.8, 2.4),
        ("4", "8", 0.8, 1.6),
        ("5", "9", 1.1, 1.7),
        ("6", "10", 0.8, 1.7),
        ("8", "12", 2.4, 1.4),
        ("8", "4", 3.2, 3.2),
        ("9", "13", 3.3, 1.4),
        ("9", "5", 4.3, 2.7),
    ];
    assert_eq!(said(&facts(&ring)), Some((Category::NetworkSend, hosts(&["9"]), false)));
}

/// Of a ring in which the hosts before the slow one wait for it, and which exchange small messages besides: some of these
/// take several times as long by chance.
#[test]
fn what_hardly_grew_needs_no_explanation() {
    let ring = [
        ("54", "55", 862.0, 148.0),
        ("55", "56", 590.0, 107.0),
        ("52", "53", 174.0, 121.0),
        ("51", "52", 159.0, 100.0),
        ("19", "20", 156.0, 147.0),
        ("20", "18", 2.0, 0.4),
        ("17", "21", 3.2, 0.5),
        ("14", "12", 2.9, 0.2),
        ("13", "12", 4.5, 0.2),
    ];
    assert_eq!(said(&facts(&ring)), Some((Category::NetworkSend, hosts(&["55"]), false)));
}

/// Of a leaf of a tree: most of what it moves goes to one host and back, which serves all others as before.
#[test]
fn who_is_slow_by_less_elsewhere_is_slow() {
    let leaf = [
        ("4", "9", 353.0, 11.0),
        ("9", "4", 520.0, 24.0),
        ("8", "9", 18.1, 6.7),
        ("9", "8", 28.3, 9.0),
        ("1", "4", 11.3, 11.2),
        ("4", "2", 106.5, 187.1),
        ("4", "8", 74.4, 73.8),
    ];
    assert_eq!(said(&facts(&leaf)), Some((Category::NetworkSend, hosts(&["9"]), false)));
}

#[test]
fn a_way_is_slow_and_both_of_its_ends_serve_others() {
    let way = [
        ("a", "b", 120.0, 60.0), // waits behind
        ("b", "c", 900.0, 70.0),
        ("c", "d", 100.0, 170.0),
        ("d", "a", 150.0, 150.0),
    ];
    assert_eq!(said(&facts(&way)), Some((Category::NetworkCongestion, hosts(&["b", "c"]), false)));
}

#[test]
fn traffic_between_two_hosts_slows_both_towards_all() {
    let both = [
        ("a", "b", 800.0, 200.0),
        ("b", "a", 810.0, 200.0),
        ("c", "d", 790.0, 200.0),
        ("d", "c", 820.0, 200.0),
        ("b", "d", 16.0, 4.0),
        ("b", "e", 15.0, 4.0),
        ("e", "d", 14.0, 4.0),
        ("a", "c", 4.1, 4.0),
    ];
    assert_eq!(said(&facts(&both)), Some((Category::NetworkCongestion, hosts(&["b", "d"]), false)));
}

/// The one way that two hosts have in both directions: what else they carry tells, else nothing does.
#[test]
fn two_ends_are_told_apart_by_the_little_that_they_carry_elsewhere() {
    let pair = [("a", "b", 640.0, 150.0), ("b", "a", 650.0, 150.0)];
    assert_eq!(said(&facts(&pair)), Some((Category::NetworkSend, hosts(&["a", "b"]), true)));
    let told = [&pair[..], &[("b", "c", 7.0, 2.0), ("c", "b", 6.5, 2.0), ("a", "d", 2.1, 2.0)]].concat();
    assert_eq!(said(&facts(&told)), Some((Category::NetworkSend, hosts(&["b"]), false)));
    let little = [&pair[..], &[("b", "c", 0.1, 0.02), ("a", "d", 0.02, 0.02)]].concat();
    assert_eq!(said(&facts(&little)), Some((Category::NetworkSend, hosts(&["a", "b"]), true)), "that is noise");
}

#[test]
fn what_no_cause_explains_names_nobody() {
    let all = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let ring: Vec<Told<'_>> = (0..all.len()).map(|at| (all[at], all[(at + 1) % all.len()], 400.0, 100.0)).collect();
    assert_eq!(said(&facts(&ring)), None);
}

/// Few of the links that carry alike are one rank's, not the wire's: the others show that it is as fast as before.
#[test]
fn few_links_of_many_are_not_the_wire() {
    let few = |to| excess(("a", to, 600.0, 150.0), 1, 8);
    assert_eq!(said(&[few("b"), few("c")]), None);
    let one = [few("b"), excess(("c", "a", 600.0, 150.0), 8, 8)];
    assert_eq!(said(&one), Some((Category::NetworkSend, hosts(&["c"]), false)), "a's NIC sends as before");
}

/// Ring b -> c -> d through a host whose processors' sockets are joined badly: all of it takes three times as long, the
/// way from b twice that. What a and e send to c comes so late that nobody sees how long it takes.
#[test]
fn what_is_not_seen_is_no_sign_that_a_host_is_well() {
    let mut facts = facts(&[
        ("b", "c", 823.0, 125.0),
        ("c", "d", 531.0, 144.0),
        ("a", "b", 152.0, 133.0),
        ("b", "e", 3.1, 3.1),
        ("c", "a", 9.6, 3.0),
        ("c", "e", 9.8, 3.1),
        ("a", "c", 0.0, 2.7),
        ("e", "c", 0.0, 3.0),
    ]);
    assert_eq!(said(&facts), Some((Category::NetworkSend, hosts(&["c"]), false)));
    facts.push(excess(("f", "c", 6.0, 1.0), 3, 8));
    facts.push(excess(("g", "c", 7.0, 1.0), 3, 8));
    assert_eq!(said(&facts), Some((Category::NetworkSend, hosts(&["c"]), false)), "nor what carries little");
}

/// Ring a -> b -> c -> d whose hosts exchange small messages besides, the way from b to c is congested. c came late to them
/// before, so of what is sent to it nothing was seen, and the others come late now.
#[test]
fn a_way_shows_its_time_only_where_its_receiver_waits() {
    let mut facts = facts(&[("b", "c", 1269.0, 169.0), ("c", "d", 238.0, 348.0), ("a", "b", 170.0, 168.0)]);
    assert_eq!(said(&facts), Some((Category::NetworkCongestion, hosts(&["b", "c"]), false)));
    let small =
        [("c", "a", 0.0, 2.5), ("c", "e", 0.1, 2.5), ("a", "c", 1.9, 0.0), ("e", "c", 2.2, 0.0), ("d", "c", 2.6, 0.0)];
    let others = [("b", "e", 2.4, 2.4), ("b", "d", 2.3, 2.4), ("d", "b", 2.5, 2.4)];
    facts.extend(small.iter().chain(&others).map(|way| carrying(*way, 2.4)));
    assert_eq!(said(&facts), Some((Category::NetworkCongestion, hosts(&["b", "c"]), false)));
    let slow = |way: &Told<'_>| carrying((way.0, way.1, 7.0 * way.2, way.3), 2.4);
    facts.extend(small.iter().map(slow));
    assert_eq!(said(&facts), Some((Category::NetworkReceive, hosts(&["c"]), false)), "slow as the others never were");
}

/// With so many megabytes per iteration.
fn carrying((from, to, now_ms, base_ms): Told<'_>, mb: f64) -> Fact {
    Fact::WireOther {
        from: HostName::from(from),
        to: HostName::from(to),
        now_ms,
        base_ms,
        mb,
        on_way: OnWay::default(),
        links: 1,
    }
}

/// Ring a -> b -> c, b's NIC is slow. Its small messages to others take a latency each, as before.
#[test]
fn latencies_do_not_deny_that_a_nic_is_slow() {
    let ring = facts(&[("a", "b", 280.0, 44.0), ("b", "c", 1088.0, 97.0), ("c", "d", 80.0, 87.0)]);
    let said_with = |mb: f64| {
        let small = ["d", "e", "f"].map(|to| carrying(("b", to, 2.0, 2.0), mb));
        said(&[&ring[..], &small].concat())
    };
    assert_eq!(said_with(0.01), Some((Category::NetworkSend, hosts(&["b"]), false)));
    assert_eq!(said_with(2.0), Some((Category::NetworkCongestion, hosts(&["b", "c"]), false)), "they are sent as fast");
}

/// Ring .. a -> b -> c -> d -> e, the way from d to e is congested: the nearer, the longer others wait behind it.
#[test]
fn what_waits_behind_a_way_is_no_step_but_the_way_is() {
    let ring = |two_before: f64, before: f64| {
        let (first, last) = (("a", "b", 170.0, 50.0), ("e", "f", 51.0, 65.0));
        [first, ("b", "c", two_before, 50.0), ("c", "d", before, 50.0), ("d", "e", 555.0, 53.0), last]
    };
    let way = Some((Category::NetworkCongestion, hosts(&["d", "e"]), false));
    assert_eq!(said(&facts(&ring(178.0, 180.0))), way);
    assert_eq!(said(&facts(&ring(250.0, 260.0))), way, "longer, but so does who is before it");
    let nic = Some((Category::NetworkSend, hosts(&["d"]), false));
    assert_eq!(said(&facts(&ring(100.0, 260.0))), nic, "that is no waiting");
    assert_eq!(said(&facts(&ring(178.0, 430.0))), nic, "d in both directions");
}

/// Ring a -> b -> c -> d -> e: data comes slowly to c, which passes it on slowly as well.
#[test]
fn what_leads_on_from_a_slow_way_does_not_wait_behind_it() {
    let ring = |before: f64, after: f64| {
        facts(&[("a", "b", before, 42.0), ("b", "c", 438.0, 84.0), ("c", "d", after, 39.0), ("d", "e", 40.0, 39.0)])
    };
    assert_eq!(said(&ring(78.0, 93.0)), Some((Category::NetworkReceive, hosts(&["c"]), false)));
    assert_eq!(said(&ring(93.0, 50.0)), Some((Category::NetworkCongestion, hosts(&["b", "c"]), false)));
}

/// Ring a -> b -> c -> d, b's NIC is slow: what leads on from the slowest way took less before and is longer by less, and
/// who is next is no longer waited for.
#[test]
fn what_leads_on_is_not_behind_though_it_is_longer_by_less() {
    let ring = [("a", "b", 1572.0, 372.0), ("b", "c", 700.0, 137.0), ("c", "d", 355.0, 1310.0)];
    let elsewhere = [("b", "e", 7.4, 3.1), ("e", "b", 11.0, 5.0), ("a", "e", 2.2, 2.2)];
    let told = facts(&[&ring[..], &elsewhere].concat());
    assert_eq!(said(&told), Some((Category::NetworkReceive, hosts(&["b"]), false)));
}

/// Of a tree in which what b sends on to c is not told: it is b's NIC, what b receives, or the way from a.
#[test]
fn the_host_that_all_causes_are_at_is_surer_than_its_peer() {
    let told = [
        ("a", "b", 176.0, 17.7),
        ("e", "b", 4.6, 1.5),
        ("b", "f", 7.8, 3.9),
        ("b", "g", 11.4, 4.0),
        ("b", "e", 4.5, 1.7),
        ("g", "b", 9.0, 3.2),
        ("a", "h", 2.6, 2.6),
        ("d", "a", 35.0, 34.0),
    ];
    let found = of_slowdown(&facts(&told), &Config::default());
    let told: Vec<_> = found.iter().map(|of| (of.category, of.excess_ms.round(), of.places.clone())).collect();
    let [a, b] = ["a", "b"].map(|host| host_place(&HostName::from(host)));
    let word = Category::NetworkReceive;
    assert_eq!(told, [(word, 158.0, vec![b.clone()]), (word, 79.0, vec![b, a])]);
}

/// Two NICs that are slow four times. A way that waits for both besides seems slower still, and in another group of the
/// job time goes elsewhere.
#[test]
fn the_least_slow_ways_tell_how_slow_a_nic_is() {
    let both = [
        ("a", "c", 660.0, 165.0),
        ("c", "a", 640.0, 155.0),
        ("a", "d", 650.0, 162.0),
        ("b", "e", 600.0, 150.0),
        ("e", "b", 680.0, 26.0),
        ("b", "d", 620.0, 155.0),
        ("c", "d", 160.0, 160.0),
    ];
    let elsewhere = |[f, g, h]: [&'static str; 3]| [(f, g, 200.0, 640.0), (g, h, 150.0, 25.0)];
    let groups = [["f", "g", "h"], ["i", "j", "k"], ["l", "m", "n"], ["o", "p", "q"], ["r", "s", "t"]];
    let both = [&both[..], &groups.map(elsewhere).concat()].concat();
    assert_eq!(said(&facts(&both)), Some((Category::NetworkCongestion, hosts(&["a", "b"]), false)));
}

/// c's NIC: what it exchanges with a is little, and slower by the same factor. In a ring of ways that carry alike what is
/// slower by as little waits.
#[test]
fn what_carries_little_is_to_be_explained_in_full() {
    let worst = way(405.0, 36.0);
    let little = way(53.0, 5.0);
    let ring = Way { sent: (20.0, 36.0), ..little };
    assert_eq!(to_explain(&little, &worst), lean(&little, &worst));
    assert!(to_explain(&ring, &worst) < 0.5 * lean(&ring, &worst));
}

/// Traffic between a and c in a ring over three switches: the wire between these was slow before, and the others take less
/// longer.
#[test]
fn a_faster_wire_that_is_slowed_as_much_takes_less_longer() {
    let told = [
        ("z", "a", 859.7, 145.4),
        ("a", "b", 168.0, 37.9),
        ("b", "c", 169.9, 44.7),
        ("c", "d", 177.0, 39.9),
        ("y", "z", 141.7, 156.8),
    ];
    assert_eq!(said(&facts(&told)), Some((Category::NetworkCongestion, hosts(&["a", "c"]), false)));
}

/// The way from a to b. In the rings of other stages those wait that wait for it, and were faster before.
#[test]
fn what_waits_in_another_ring_does_not_tell_how_slow_a_way_is() {
    let told = [
        ("a", "b", 515.0, 102.0),
        ("z", "a", 168.0, 396.0),
        ("b", "c", 173.0, 221.0),
        ("i", "j", 128.0, 46.0),
        ("p", "q", 118.0, 80.0),
        ("q", "r", 129.0, 37.0),
        ("v", "w", 121.0, 61.0),
        ("w", "x", 127.0, 38.0),
    ];
    assert_eq!(said(&facts(&told)), Some((Category::NetworkCongestion, hosts(&["a", "b"]), false)));
}

/// The last of a line of stages: whether it is its NIC or the way to the one before it shows nowhere.
#[test]
fn the_only_way_of_a_host_may_be_slow_as_well_as_its_nic() {
    let line = [("a", "b", 46.0, 30.0), ("b", "a", 47.0, 30.0), ("b", "c", 339.0, 36.0), ("c", "b", 350.0, 30.0)];
    let (peer, nic) = (HostName::from("b"), std::sync::Arc::from("eth0"));
    let mut facts = facts(&line);
    facts.push(Fact::OnePeer { host: HostName::from("c"), peer, besides: None });
    let told: Vec<_> =
        of_slowdown(&facts, &Config::default()).into_iter().map(|of| (of.excess_ms, of.places)).collect();
    let [c, b] = ["c", "b"].map(|host| host_place(&HostName::from(host)));
    assert_eq!(told, [(320.0, vec![c.clone()]), (160.0, vec![c.clone(), b])]);
    facts.push(Fact::NicSlow { host: HostName::from("c"), nic, now_mb_s: 10.0, other_mb_s: 100.0 });
    assert_eq!(of_slowdown(&facts, &Config::default()).len(), 1, "it says itself that it is slower");
}

/// Of a ring .. a -> b -> c -> d .., whose d is known to be slow: c -> d was slow before and shows nothing of c.
#[test]
fn ways_to_a_host_that_is_known_to_be_slow_do_not_show_that_others_are_well() {
    let ring =
        [("a", "b", 56.0, 57.0), ("b", "c", 655.0, 55.0), ("c", "d", 1210.0, 1221.0), ("d", "e", 1086.0, 1060.0)];
    let places = |facts: &[Fact]| {
        let told = of_slowdown(facts, &Config::default()).into_iter();
        told.map(|of| (of.places, of.either)).collect::<Vec<_>>()
    };
    let [b, c] = ["b", "c"].map(|host| host_place(&HostName::from(host)));
    let mut facts = facts(&ring);
    assert_eq!(places(&facts), [(vec![b.clone(), c.clone()], false)], "neither's other way is slower");
    without_known(&mut facts, &BTreeSet::from(["d".into()]));
    assert_eq!(places(&facts), [(vec![c.clone()], false), (vec![c, b], false)], "c, or the way to it");
    assert!(facts.iter().any(|fact| fact.reason().text.starts_with("c exchanges data with b only besides d")));
    let before = facts.len();
    without_known(&mut facts, &BTreeSet::from(["c".into()]));
    assert_eq!(facts.len(), before, "nothing else is many times slower");
}

/// The two of a tree that exchange most; what one of them exchanges with others is slow as well, however little it is.
#[test]
fn what_an_end_carries_elsewhere_is_slow_for_the_same_reason() {
    let pair = [("a", "b", 1870.0, 230.0), ("b", "a", 1849.0, 230.0)];
    let told = [&pair[..], &[("a", "c", 22.7, 1.8), ("c", "a", 45.0, 21.3), ("b", "d", 28.7, 16.8)]].concat();
    assert_eq!(said(&facts(&told)), Some((Category::NetworkSend, hosts(&["a"]), false)));
}

#[test]
fn an_interface_that_says_that_it_is_slower_breaks_a_tie() {
    let mut facts = facts(&[("a", "b", 640.0, 150.0), ("b", "a", 650.0, 150.0)]);
    let nic = std::sync::Arc::from("eth0");
    facts.push(Fact::NicSlow { host: HostName::from("b"), nic, now_mb_s: 10.0, other_mb_s: 100.0 });
    assert_eq!(said(&facts), Some((Category::NetworkSend, hosts(&["b"]), false)));
}

/// Links side by side: that four of them together take so much less says of none that what is waited for was waited for there.
#[test]
fn what_several_links_take_less_together_is_what_one_of_them_takes_less() {
    let told = |links: usize| {
        let mut all = facts(&[("a", "b", 600.0, 150.0), ("b", "c", 250.0, 80.0)]);
        let (from, to) = (HostName::from("c"), HostName::from("d"));
        all.push(Fact::WireOther {
            from,
            to,
            now_ms: 400.0,
            base_ms: 900.0,
            mb: 600.0,
            on_way: OnWay::default(),
            links,
        });
        let ways = ways(&all);
        ways[&(&HostName::from("b"), &HostName::from("c"))].moved
    };
    assert!(told(1), "c is waited for less than before");
    assert!(!told(4), "by 125 ms, and for more on its other way");
}

/// As many milliseconds awaited, and as many on its way, now and before, of so many megabytes over eight links.
fn on_its_way((from, to, now_ms, base_ms): Told<'_>, (on_way_now_ms, on_way_base_ms): (f64, f64), mb: f64) -> Fact {
    let on_way = OnWay { now_ms: on_way_now_ms, base_ms: on_way_base_ms };
    Fact::WireOther { from: HostName::from(from), to: HostName::from(to), now_ms, base_ms, mb, on_way, links: 8 }
}

/// Two hosts that exchange gradients, and little with other stages of a pipeline. The NIC of b is slow, so b comes late to
/// what others send to it: that is awaited for less long, and longer on its way.
#[test]
fn who_comes_late_to_slow_data_hides_that_it_is_slow() {
    let pair = facts(&[("a", "b", 681.0, 178.0), ("b", "a", 711.0, 179.0)]);
    let said_with = |now_ms: f64| {
        let others = [
            on_its_way(("c", "a", 2.9, 15.3), (23.3, 23.2), 44.0),
            on_its_way(("a", "c", 23.4, 23.2), (23.2, 23.2), 44.0),
            on_its_way(("d", "b", 8.0, 14.7), (now_ms, 23.3), 44.0),
        ];
        said(&[&pair[..], &others].concat())
    };
    assert_eq!(said_with(77.9), Some((Category::NetworkSend, hosts(&["b"]), false)));
    let way = Some((Category::NetworkCongestion, hosts(&["a", "b"]), false));
    assert_eq!(said_with(23.3), way, "what comes to b is as fast as before, and so is what a sends");
}

/// Stages of a pipeline hand on less at a time, so a megabyte between them takes five times as long as in the ring of which one way
/// is congested: that was as fast before as its data was on its way.
#[test]
fn a_way_took_no_longer_before_than_its_data_was_on_its_way() {
    let said_with = |on_way: OnWay| {
        let (from, to) = (HostName::from("b"), HostName::from("c"));
        let (now_ms, base_ms, mb) = (411.0, 66.0, 1.9);
        let ring = Fact::WireExcess { from, to, now_ms, base_ms, iteration_ms: 566.0, mb, on_way, links: 2, of: 2 };
        let stages = [("b", "d"), ("d", "b"), ("c", "e"), ("e", "c"), ("d", "e"), ("e", "d")];
        let others = stages.map(|(from, to)| carrying((from, to, 190.0, 191.0), 1.0));
        let found = of_slowdown(&[&[ring][..], &others].concat(), &Config::default());
        found.first().map(|way| way.excess_ms.round())
    };
    assert_eq!(said_with(OnWay { now_ms: 417.0, base_ms: 65.0 }), Some(345.0));
    assert_eq!(
        said_with(OnWay::default()),
        Some(48.0),
        "of which nothing is known but how long as much takes elsewhere"
    );
}

/// The way between two hosts is congested, both come late to what others send to them: nobody waits for that, but it is on
/// its way for no longer.
#[test]
fn what_nobody_waits_for_shows_that_its_ends_are_well() {
    let pair = facts(&[("a", "b", 2678.0, 442.0), ("b", "a", 2821.0, 440.0)]);
    let a = [on_its_way(("a", "c", 3.4, 3.4), (4.6, 4.6), 9.0), on_its_way(("c", "a", 1.2, 4.6), (4.6, 4.6), 9.0)];
    let b = |on_way| [on_its_way(("b", "d", 3.4, 3.4), on_way, 9.0), on_its_way(("d", "b", 1.1, 4.6), on_way, 9.0)];
    let said_with = |on_way| said(&[&pair[..], &a, &b(on_way)].concat());
    let way = Some((Category::NetworkCongestion, hosts(&["a", "b"]), false));
    assert_eq!(said_with((4.6, 4.6)), way);
    assert_eq!(said_with((0.0, 0.0)), Some((Category::NetworkSend, hosts(&["b"]), false)), "unless that is not known");
}

/// Of four hosts, each two of which exchange gradients, two share their NICs with other traffic: with whom the others
/// exchange them is slow as well. What little goes elsewhere tells which they are.
#[test]
fn what_carries_little_tells_which_two_hosts_share_other_traffic() {
    let heavy =
        [("a", "b", 750.0, 135.0), ("b", "a", 773.0, 140.0), ("c", "d", 748.0, 133.0), ("d", "c", 770.0, 139.0)];
    let little = [
        ("b", "d", 18.0, 14.2),
        ("d", "b", 15.5, 11.3),
        ("e", "a", 15.0, 11.0),
        ("a", "c", 16.0, 13.8),
        ("c", "a", 15.0, 11.6),
        ("f", "b", 8.7, 11.9),
        ("b", "f", 16.4, 16.5),
    ];
    let little = little.map(|(from, to, now_ms, base_ms)| {
        let now_ms = if from == "f" || to == "f" { now_ms } else { 5.4 * base_ms };
        on_its_way((from, to, now_ms, base_ms), (0.0, 0.0), base_ms)
    });
    let told: Vec<Fact> = heavy.into_iter().map(|way| carrying(way, way.3)).chain(little).collect();
    assert_eq!(said(&told), Some((Category::NetworkCongestion, hosts(&["a", "d"]), false)));
}

/// A way whose receiver comes late now: data lies there, and nobody sees how long it takes but by how long it is on its way.
#[test]
fn data_that_nobody_waits_for_tells_nothing_where_it_was_on_its_way_for_longer() {
    let is_told = |on_way_now_ms: f64| !ways(&[on_its_way(("a", "b", 1.1, 4.6), (on_way_now_ms, 4.6), 9.0)]).is_empty();
    assert!(is_told(4.6), "it is as fast as before");
    assert!(!is_told(6.9));
}

/// Of the traffic of a stage that meets that of another since a rank is late: in one direction only.
/// Of a way that was seldom waited for before nobody knows how many times slower it is. Messages that are on their way for
/// twice as long are a sign of a slow NIC all the same.
#[test]
fn messages_that_are_on_their_way_for_longer_do_not_deny_that_a_nic_is_slow() {
    let told = |times: f64| {
        let ring = on_its_way(("c", "d", 633.0, 109.0), (640.0, 112.0), 37.5);
        let of_d = [("d", "b", 0.3), ("b", "d", 0.2), ("d", "f", 0.8), ("f", "d", 0.4)];
        let of_c = [("c", "e", 0.8), ("e", "c", 0.4), ("d", "c", 4.0)];
        let of_d = of_d.map(|(from, to, ms)| on_its_way((from, to, times * ms, ms), (times * ms, ms), 0.1));
        let of_c = of_c.map(|(from, to, ms)| on_its_way((from, to, ms, ms), (ms, ms), 0.1));
        [ring].into_iter().chain(of_d).chain(of_c).collect::<Vec<Fact>>()
    };
    assert_eq!(said(&told(2.1)), Some((Category::NetworkReceive, hosts(&["d"]), false)));
    assert_eq!(said(&told(1.0)), Some((Category::NetworkCongestion, hosts(&["c", "d"]), false)));
}

#[test]
fn a_way_that_is_slow_in_one_direction_is_no_way_that_is_slow() {
    let told = |back_ms: f64| {
        let all = [
            ("a", "b", 234.0, 53.0),
            ("b", "a", back_ms, 440.0),
            ("c", "a", 208.0, 206.0),
            ("a", "c", 412.0, 410.0),
            ("a", "d", 414.0, 410.0),
            ("b", "c", 416.0, 412.0),
            ("c", "b", 205.0, 205.0),
            ("d", "b", 209.0, 205.0),
        ];
        said(&facts(&all))
    };
    assert_eq!(told(441.0), None);
    assert_eq!(told(1_940.0), Some((Category::NetworkCongestion, hosts(&["a", "b"]), false)));
}

/// Twenty times slower: a message that is one part data to nineteen of latency takes twice as long.
#[test]
fn messages_that_are_mostly_latency_are_twice_as_slow_at_most() {
    let worst = way(500.0, 25.0);
    let short = |now_ms: f64| Way { sent_share: 0.05, denies: 0.25, ..way(now_ms, 4.0) };
    assert_eq!(lean(&short(8.0), &worst), 0.0);
    assert!(lean(&short(4.1), &worst) < -0.2);
    let long = Way { sent_share: 0.5, ..way(8.0, 4.0) };
    assert!(lean(&long, &worst) < -0.2, "it carries enough to be slower");
    let shared = Way { sent_share: 0.05, denies: 0.25, ..way(80.0, 40.0) };
    assert!(lean(&shared, &worst) < -0.1, "that is no latency");
}

/// Traffic between 5 and 6: a ring of much data, in which 7 waits, and what little goes to hosts of another ring, which nobody
/// waits for: how long it was on its way is all that it tells.
#[test]
fn what_little_goes_elsewhere_tells_of_a_second_nic() {
    let ring =
        [("4", "5", 853.0, 104.0), ("5", "6", 786.0, 107.0), ("6", "7", 597.0, 145.0), ("7", "4", 552.0, 1105.0)];
    let light = |slow: &[&str]| -> Vec<Fact> {
        let way = |(from, to): (&str, &str)| {
            let now_ms = if [from, to].iter().any(|host| slow.contains(host)) { 6.0 } else { 2.3 };
            Fact::WireOther {
                from: HostName::from(from),
                to: HostName::from(to),
                now_ms: 0.8,
                base_ms: 1.2,
                mb: 0.1,
                on_way: OnWay { now_ms, base_ms: 2.3 },
                links: 8,
            }
        };
        [("4", "0"), ("5", "1"), ("6", "2"), ("7", "3"), ("1", "5"), ("2", "6")].map(way).to_vec()
    };
    let both = [facts(&ring), light(&["5", "6"])].concat();
    assert_eq!(said(&both), Some((Category::NetworkCongestion, hosts(&["5", "6"]), false)));
    let one = [facts(&ring), light(&["5"])].concat();
    assert_eq!(said(&one), Some((Category::NetworkSend, hosts(&["5"]), false)));
}

/// Two ways of a ring are congested, and the hosts in the middle are at one of them each.
#[test]
fn two_hosts_between_which_data_is_as_fast_as_before_are_not_both_slow() {
    let ring = [("2", "3", 209.0, 35.0), ("3", "4", 118.0, 188.0), ("4", "5", 246.0, 16.0), ("5", "2", 105.0, 125.0)];
    let between =
        |said: Option<(Category, Vec<String>, bool)>| said.is_some_and(|(_, said, _)| said == hosts(&["3", "4"]));
    assert!(!between(said(&facts(&ring))));
}

/// A ring of the second pipeline stage has a congested way, and the first stage's waits where its hosts exchange activations
/// with those at either end.
#[test]
fn a_ring_of_another_stage_waits_beside_the_slow_way() {
    let rings = [
        ("22", "23", 57.0, 68.0),
        ("23", "24", 553.0, 182.0),
        ("24", "25", 54.0, 116.0),
        ("5", "6", 63.0, 67.0),
        ("6", "7", 185.0, 66.0),
        ("7", "8", 188.0, 71.0),
        ("8", "9", 167.0, 78.0),
        ("6", "22", 10.3, 10.6),
        ("22", "6", 16.0, 15.8),
        ("7", "23", 10.4, 10.6),
        ("23", "7", 15.9, 15.8),
        ("8", "24", 11.0, 10.9),
        ("24", "8", 15.6, 15.8),
        ("9", "25", 11.4, 11.4),
        ("25", "9", 14.9, 15.7),
    ];
    assert_eq!(said(&facts(&rings)), Some((Category::NetworkCongestion, hosts(&["23", "24"]), false)));
}
