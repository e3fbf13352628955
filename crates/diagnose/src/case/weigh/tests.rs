//! Facts told by hand, and what they say together.
use super::*;
use crate::blame::hang::NO_META;
use crate::case::Evidence;
use crate::fact::OpRef;
use mycroft_record::FlowCounters;

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
