//! Whose link is slow, how slow it is, and whose proxy thread pauses.
use super::*;
use crate::blame::hang::NO_META;
use mycroft_record::*;

/// Ranks 0 to 3 are on host a, 4 to 7 on b, 8 to 11 on c. Rank 0 alone sends to b; beside it others send to c.
fn links(beside: &[(u32, f64)]) -> Vec<Fact> {
    let of = |from: u32, to: u32, base_ms: f64, now_ms: f64| LinkCost {
        from: Rank(from),
        to: Rank(to),
        now_ms,
        base_ms,
        bytes: 1_000,
        mb: 0.001,
        on_way: OnWay::default(),
    };
    let (a, b, c) = (HostName::from("a"), HostName::from("b"), HostName::from("c"));
    let mut pairs = Pairs::new();
    pairs.insert((a.clone(), b.clone()), vec![of(0, 4, 50.0, 320.0)]);
    let beside = beside.iter().map(|(rank, now_ms)| of(*rank, 8 + rank, 1.0, *now_ms));
    pairs.insert((a.clone(), c), beside.collect());
    let hosts = (a, b);
    of_pair(&hosts, &pairs[&hosts], &pairs, &Config::default(), 200.0, &|_| false)
}

#[test]
fn the_only_link_on_a_way_is_its_senders_where_the_sender_is_slow_beside_others() {
    let is_rank = |facts: &[Fact]| matches!(facts, [Fact::RankLink { from, of: 1, sends, .. }] if from.0 == Rank(0) && sends.slow == 1);
    assert!(is_rank(&links(&[(0, 5.5), (1, 1.1), (2, 0.9)])));
    let is_way = |facts: &[Fact]| matches!(facts, [Fact::WireExcess { links: 1, of: 1, .. }]);
    assert!(is_way(&links(&[(0, 5.5), (1, 5.1), (2, 0.9)])), "another rank's is slow too");
    assert!(is_way(&links(&[(0, 1.1), (1, 1.1), (2, 0.9)])), "it is as fast towards others");
    assert!(is_way(&links(&[(0, 5.5)])), "nobody is beside it");
}

/// From host a to host b: sender, receiver and how slow each link is now; before they took 10 ms.
fn between(links: &[(u32, u32, f64)]) -> Vec<Fact> {
    let (a, b) = (HostName::from("a"), HostName::from("b"));
    let of = |(from, to, now_ms): &(u32, u32, f64)| LinkCost {
        from: Rank(*from),
        to: Rank(*to),
        now_ms: *now_ms,
        base_ms: 10.0,
        bytes: 1_000,
        mb: 0.001,
        on_way: OnWay::default(),
    };
    let pairs = Pairs::from([((a.clone(), b.clone()), links.iter().map(of).collect())]);
    let hosts = (a, b);
    of_pair(&hosts, &pairs[&hosts], &pairs, &Config::default(), 200.0, &|_| false)
}

#[test]
fn several_slow_links_are_one_ranks_where_it_has_no_others() {
    let is_rank = |facts: &[Fact]| facts.iter().any(|fact| matches!(fact, Fact::RankLink { .. }));
    assert!(is_rank(&between(&[(0, 8, 300.0), (1, 9, 10.0), (2, 10, 10.0)])));
    let sends = between(&[(0, 8, 300.0), (0, 9, 60.0), (1, 9, 10.0), (2, 10, 10.0)]);
    assert!(
        matches!(&sends[0], Fact::RankLink { from, sends, .. } if from.0 == Rank(0) && sends.slow == 1),
        "its sends"
    );
    assert!(is_rank(&between(&[(0, 8, 300.0), (1, 8, 280.0), (1, 9, 10.0), (2, 10, 10.0)])), "its receives");
    assert!(!is_rank(&between(&[(0, 8, 300.0), (1, 9, 280.0), (2, 10, 10.0)])), "two ranks'");
    assert!(is_rank(&between(&[(0, 8, 300.0), (1, 9, 70.0), (2, 10, 10.0)])), "one waits");
    assert!(!is_rank(&between(&[(0, 8, 300.0), (0, 9, 280.0), (0, 10, 10.0)])), "it sends as fast as before as well");
}

#[test]
fn a_link_that_is_several_times_slower_is_not_as_fast_as_before_however_much_slower_another_is() {
    let of = |to: u32, base_ms: f64, now_ms: f64| {
        let (from, to, bytes, mb) = (Rank(0), Rank(to), 1_000, 0.001);
        LinkCost { from, to, now_ms, base_ms, bytes, mb, on_way: OnWay::default() }
    };
    let [worst, less, fast] = [of(8, 18.0, 693.0), of(9, 15.0, 111.0), of(10, 15.0, 16.0)];
    let others = worst.others([less, fast].iter(), &[]);
    assert_eq!((others.slow, others.less_slow, others.fast), (0, 1, 1));
}

/// Of a ring 0 -> 1 -> 2, both ends of a flow: how long its longest step waited in each of three stages, seconds.
fn who_pauses(flows: &[(u32, [u32; 3], [u32; 3])]) -> Vec<Rank> {
    let us = |seconds: [u32; 3]| seconds.map(|second| 1_000_000 * second);
    let mut timeline = Timeline::default();
    let pause = |(from, send, recv): &(u32, [u32; 3], [u32; 3])| Pause {
        at: HostTime(1),
        from: Rank(*from),
        to: Rank(from.wrapping_add(1)),
        op: NO_META.id,
        channel: ChannelId(0),
        send_max_us: us(*send),
        recv_max_us: us(*recv),
    };
    timeline.links.pauses.extend(flows.iter().map(pause));
    let facts = pauses(&timeline, &Config::default(), HostTime(0), HostTime(2));
    let rank = |fact: &Fact| match fact {
        Fact::ProxyPause { rank, .. } => *rank,
        other => panic!("{other:?}"),
    };
    facts.iter().map(rank).collect()
}

#[test]
fn who_sends_to_one_that_pauses_does_not_pause() {
    // Rank 1 grants no credit, in four channels, and of what it has itself nothing was sent in one of them.
    let (no_credit, unsent) = ((0, [1, 1, 0], [1, 0, 0]), (1, [1, 1, 0], [1, 0, 0]));
    assert_eq!(who_pauses(&[no_credit, no_credit, no_credit, no_credit, unsent]), [Rank(1)]);
    let full = (u32::MAX, [1, 1, 0], [1, 0, 1]);
    assert_eq!(who_pauses(&[full, no_credit, unsent]), [Rank(1)], "nor one that has no room itself");
    // Some of what was sent before is found to have arrived after the sleep.
    let late = (1, [0, 0, 1], [1, 0, 0]);
    assert_eq!(who_pauses(&[unsent, late, late]), [Rank(1)]);
}

#[test]
fn who_has_no_room_to_send_to_does_not_pause() {
    let sends = (1, [0, 1, 0], [1, 0, 0]);
    // What rank 1 received lies there still, in two channels: rank 0 may not send more.
    let full = (0, [1, 1, 0], [1, 0, 1]);
    assert_eq!(who_pauses(&[full, full, sends]), [Rank(1)]);
    let unsent = (0, [1, 1, 0], [1, 0, 0]);
    assert_eq!(who_pauses(&[unsent, unsent]), [Rank(0)], "there was room");
    assert_eq!(who_pauses(&[full, full]), [], "who has not come leaves no room to anybody before it");
}

/// What a link cost in each of three iterations, milliseconds awaited and on its way, and bytes.
fn times(wire_ms: f64, sent_ms: f64, bytes: f64) -> LinkTimes {
    let (wire, held, sent) = (vec![1e3 * wire_ms; 3], vec![0.0; 3], vec![1e3 * sent_ms; 3]);
    LinkTimes { wire, held, sent, bytes: vec![bytes; 3] }
}

#[test]
fn a_link_that_takes_as_long_as_before_is_not_slower_because_it_is_awaited_now() {
    let grew_ms = |base: LinkTimes, now: LinkTimes| {
        let time = wire_time(now, base, 1.0).expect("both are known");
        time.now_ms - time.base_ms
    };
    assert!(grew_ms(times(80.0, 300.0, 1e6), times(300.0, 300.0, 1e6)) < 1.0, "its receiver came late before");
    assert_eq!(grew_ms(times(80.0, 300.0, 1e6), times(300.0, 310.0, 1e6)), 10.0, "as much as it takes longer");
    assert_eq!(grew_ms(times(80.0, 300.0, 1e6), times(900.0, 900.0, 1e6)), 600.0, "a slow one");
    assert_eq!(grew_ms(times(80.0, 80.0, 1e6), times(300.0, 300.0, 1e6)), 220.0, "awaited by as many as ever");
    assert_eq!(
        grew_ms(times(80.0, 400.0, 4e6), times(300.0, 320.0, 1e6)),
        220.0,
        "an iteration that has sent a quarter so far"
    );
}

/// A host's threads wait for a processor until its peer's NIC becomes slow: what they held is no time of the wire before.
#[test]
fn what_a_thread_held_before_does_not_hide_that_the_wire_is_slow_now() {
    let time = |held_base_ms: f64, held_now_ms: f64| WireTime {
        now_ms: 375.0,
        base_ms: 220.0,
        held_now_ms,
        held_base_ms,
        mb: 6.9,
        on_way: OnWay::default(),
    };
    assert!(time(192.0, 0.2).was_held(&Config::default()));
    assert!(!time(192.0, 150.0).was_held(&Config::default()), "it still is");
    assert!(!time(1.0, 0.1).was_held(&Config::default()), "noise");
}

#[test]
fn a_way_is_told_of_with_the_time_on_it_where_that_says_something_else() {
    let said = |now_ms: f64, base_ms: f64, on_way_ms: f64| {
        let (from, to) = (HostName::from("a"), HostName::from("b"));
        let on_way = OnWay { now_ms: on_way_ms, base_ms: 23.3 };
        Fact::WireOther { from, to, now_ms, base_ms, mb: 0.5, on_way, links: 8 }.reason().text
    };
    assert!(said(8.2, 14.7, 77.9).ends_with("14.7 ms before, but it was longer on its way: 77.9 ms, 23.3 ms before"));
    assert!(said(2.9, 15.3, 23.2).ends_with("15.3 ms before, and it was on its way for 23.2 ms, 23.3 ms before"));
    assert!(said(23.0, 23.3, 23.2).ends_with("ms per iteration, 23.3 ms before"));
}

/// Of a link: sender, receiver, and for how long the data of each iteration was held and on its way, microseconds, before and
/// since.
type Sent = (u32, u32, [[u32; 2]; 2]);

/// What is said of twelve ranks, four a host, that add up what they have every half second: ten times, and ten times since.
fn said_of(links: &[Sent]) -> Vec<Fact> {
    const EACH: u64 = 10;
    let end = |iterations: u64| HostTime(NANOS_PER_SEC) + 500 * NANOS_PER_MS * iterations;
    let mut timeline = Timeline::default();
    for rank in 0..12 {
        let (comm, comm_rank, class) = (CommId(1), CommRank(rank), OpClass::Collective);
        let mut records =
            vec![Record::CommInit(CommInit { at: end(0), comm, n_ranks: 12, n_nodes: 3, comm_rank, name: "A".into() })];
        for seq in 0..2 * EACH {
            let ended_at = end(seq + 1);
            let id = OpId { comm, class, peer: CommRank(0), seq: OpSeq(seq) };
            for (from, to, us) in links.iter().filter(|(from, to, _)| [*from, *to].contains(&rank)) {
                let [held, sent] = us[usize::from(seq >= EACH)];
                let (direction, peer, stage_us) = match *from == rank {
                    true => (Direction::Send, *to, [0, held, sent]),
                    false => (Direction::Recv, *from, [held + sent, 0, 0]),
                };
                records.push(Record::FlowDone(FlowDone {
                    flow: FlowKey { op: id, channel: ChannelId(0), peer: CommRank(peer), direction },
                    counters: FlowCounters { total_chunks: 1, ..FlowCounters::default() },
                    bytes: 1_000,
                    times: FlowTimes { stage_us, ..FlowTimes::default() },
                    ended_at: ended_at - NANOS_PER_MS,
                    peer_wait_polls: 0,
                    proxied_for_pid: 0,
                }));
            }
            let op = OpMeta { id, kind: OpKind::AllReduce, comm_rank, enqueued_at: end(seq), ..NO_META };
            let ended_first_at = ended_at;
            records.push(Record::OpDone(OpDone { op, ended_at, ended_first_at, flows: 0, observed: true }));
        }
        let process = ProcessKey { rank: Rank(rank), pid: rank + 1, nonce: 1 };
        let host = format!("host{}", rank / 4).as_str().into();
        let source = Source { job: "job".into(), host, process: Some(process) };
        timeline.observe(&Batch { source, collected_at: end(2 * EACH), records }, u32::MAX);
    }
    timeline.settle();
    let (onset, until) = (end(EACH), end(2 * EACH));
    let (base_from, base_ns_max, iteration_ms) = (HostTime::NONE, u64::MAX, 500.0);
    let windows = Windows { base_from, base_until: onset, base_ns_max, onset, until, iteration_ms };
    wires(&timeline, &Config::default(), &windows)
}

#[test]
fn what_a_thread_held_before_is_no_time_of_the_wire_before() {
    let wire_ms = |before: [u32; 2]| match &said_of(&[(0, 4, [before, [0, 375_000]])])[..] {
        [Fact::WireExcess { now_ms, base_ms, .. }] => (now_ms.round(), base_ms.round()),
        other => panic!("{other:?}"),
    };
    assert_eq!(wire_ms([0, 28_000]), (375.0, 28.0));
    assert_eq!(wire_ms([192_000, 28_000]), (375.0, 28.0), "its thread got no processor");
}

/// Rank 0 alone sends to host1; it and rank 1 send short messages to host2, which sends to it.
#[test]
fn the_only_link_on_a_way_is_its_senders_where_its_messages_take_longer_and_its_mates_do_not() {
    let is_rank_behind = |before_us: u32, own_us: u32, mates_us: u32| {
        let slow = |from: u32, to: u32, us: u32| (from, to, [[0, 50_000], [0, us]]);
        let short = |from: u32, us: u32| (from, from + 8, [[0, 160], [0, us]]);
        let facts = said_of(&[slow(0, 4, 320_000), slow(8, 0, before_us), short(0, own_us), short(1, mates_us)]);
        facts.iter().any(|fact| matches!(fact, Fact::RankLink { from, to, .. } if (from.0, to.0) == (Rank(0), Rank(4))))
    };
    let is_rank = |own_us: u32, mates_us: u32| is_rank_behind(50_000, own_us, mates_us);
    assert!(is_rank(700, 160));
    assert!(!is_rank(700, 700), "its mate's do too: it is their host");
    assert!(!is_rank(160, 160), "they do not");
    assert!(!is_rank_behind(400_000, 700, 160), "it waits itself behind a link that is slower");
}

/// Interfaces that carry other traffic since a moment are told from those that always did.
#[test]
fn other_traffic_is_new_where_there_was_none_before() {
    let at = |second: u64| HostTime((1_000 + second) * NANOS_PER_SEC);
    let mut timeline = Timeline::default();
    // MB/s of host0, host1 and host2, before and after.
    for (host, rates) in [(0, [1, 50]), (1, [50, 50]), (2, [1, 1])] {
        let mut bytes = 0;
        for second in 0..40 {
            let nic = NicState {
                at: at(second),
                nic: "eth0".into(),
                up: true,
                link_changes: 0,
                speed_bytes_per_sec: 1_000_000_000,
                tx_bytes: bytes,
                rx_bytes: 0,
                errors: 0,
            };
            let source = Source { job: "job".into(), host: format!("host{host}").into(), process: None };
            let records = vec![Record::NicState(nic)];
            timeline.observe(&Batch { source, collected_at: at(second), records }, 500_000);
            bytes += rates[usize::from(second >= 20)] * 1_000_000;
        }
    }
    timeline.newest_sample = at(39);
    let busy = nic::busy_since(&timeline, &Config::default(), at(20), 1.0);
    assert_eq!(busy.iter().map(ToString::to_string).collect::<Vec<_>>(), ["host0"]);
}
