//! What links keep of flows, and which of these paused.
use super::*;
use mycroft_record::NANOS_PER_MS;

#[test]
fn samples_keep_their_microsecond_for_days() {
    let first = HostTime(1_700_000_000 * NANOS_PER_SEC);
    let mut link = Link::new(Rank(0), Rank(1), first);
    let mut outgoing: Vec<LinkSample> = Vec::new();
    for n in 0..5_000u64 {
        let at = first + n * 97 * NANOS_PER_SEC + n * 1_234_567;
        let us = 1000.0 + n as f64;
        let took = Took { sent_us: us, awaited_us: us - 900.0, held_us: 900.0, alone_us: 2.0 * us };
        let bytes = (1 << 33) + (n << 8);
        link.push(at, took, bytes);
        outgoing.push(LinkSample { at, took, bytes });
    }
    // 35 minutes are kept apart, which is more than any window looked at.
    let newest = link.newest().expect("there are samples").at;
    for (kept, told) in
        link.samples().zip(&outgoing).filter(|(_, told)| newest.since_ns(told.at) < 35 * 60 * NANOS_PER_SEC)
    {
        assert!(told.at.since_ns(kept.at) < 1000 && kept.at <= told.at);
        assert_eq!(kept.bytes, told.bytes);
        let near = |kept: f64, told: f64| kept <= told && told - kept <= told / 1024.0;
        let Took { sent_us, awaited_us, held_us, alone_us } = told.took;
        let kept = kept.took;
        let all = [(kept.sent_us, sent_us), (kept.awaited_us, awaited_us), (kept.held_us, held_us)];
        assert!(all.iter().chain(&[(kept.alone_us, alone_us)]).all(|(kept, told)| near(*kept, *told)), "{kept:?}");
    }
    link.push(first, Took::default(), 0);
    assert!(link.newest().is_some_and(|sample| sample.at > first), "older than the link's beginning is at it");
    assert_eq!(size_of::<Packed>(), 16);
    assert!(size_of::<NicSample>() <= 40);
    assert_eq!(Link::new(Rank(0), Rank(1), first).samples().count(), 0);
    link.push(newest + NANOS_PER_MS, Took { sent_us: 1.0, ..Took::default() }, 1);
}

/// Stages of a flow's two ends, from recorded runs and simulated ones, in microseconds.
#[test]
fn what_a_proxy_holds_is_told_from_what_waits_for_the_wire_or_for_credit() {
    let half = |direction, stage_us| Half {
        rank: Rank(0),
        direction,
        total_chunks: 8,
        bytes: 1,
        stage_us,
        stage_max_us: [0; 3],
        lasted_us: 0,
        ended_at: HostTime(NANOS_PER_SEC),
    };
    // Awaited in all, and held by the sender.
    let own = |send, recv| {
        let ends = (half(mycroft_record::Direction::Send, send), half(mycroft_record::Direction::Recv, recv));
        let took = took(&ends.0, &ends.1);
        let sum = |us: f64| (us / wall_us(1.0, 8, FIFO_SLOTS)).round() as u32;
        (sum(took.awaited_us + took.held_us), sum(took.held_us))
    };
    // The processors of the sender's host are busy: its data waits for its thread, and the receiver has room.
    assert_eq!(own([43_895, 20_849, 177], [38_336, 1, 0]), (21_026, 20_849));
    // A slow wire.
    assert_eq!(own([30, 40, 99_000], [105_000, 1, 0]), (99_040, 40));
    // Behind a slow proxy: the receiver has data that it cannot pass on, and now and then waits for some.
    assert_eq!(own([36_362, 10_861, 1_226], [3_376, 2, 43_806]), (1_226, 0));
    // Two hosts before a slow device in a ring: there is no room for most of it, and its wire is as fast as ever.
    assert_eq!(own([918_996, 246_820, 15_891], [158_617, 52, 944_765]), (15_891, 0));
    // Nobody waits for data that comes when it is wanted.
    assert_eq!(own([10, 50_000, 100], [90, 1, 80_000]), (90, 0));
}

/// Eight chunks of a millisecond each: one after the other, as where the receiver asks for one at a time, and all at once, so that the
/// last waits for seven. The wire was busy for as long.
#[test]
fn chunks_that_are_side_by_side_are_on_their_way_no_longer_than_the_flow_lasted() {
    let half = |sum_us: u32, max_us: u32, lasted_us| Half {
        rank: Rank(0),
        direction: mycroft_record::Direction::Send,
        total_chunks: 8,
        bytes: 8 << 20,
        stage_us: [0, 0, sum_us],
        stage_max_us: [0, 0, max_us],
        lasted_us,
        ended_at: HostTime(NANOS_PER_SEC),
    };
    let alone_us = |send: Half| took(&send, &send).alone_us;
    assert_eq!(alone_us(half(8_000, 1_000, 20_000)), 8_000.0, "in turn, between what its device fills");
    assert_eq!(alone_us(half(36_000, 8_000, 8_000)), 8_000.0, "side by side");
    assert_eq!(alone_us(half(36_000, 8_000, 7_990)), 8_000.0, "clocks of a flow end a little before its last chunk");
    assert_eq!(alone_us(half(36_000, 8_000, 0)), 0.0, "nobody knows when it began");
}

/// A second on its way is a pause where other flows take milliseconds, and none where all take as long: these are sent slowly.
#[test]
fn what_is_sent_slowly_all_the_time_is_no_pause() {
    let half = |direction, stage_us: [u32; 3]| Half {
        rank: Rank(u32::from(direction == mycroft_record::Direction::Recv)),
        direction,
        total_chunks: 2,
        bytes: 1 << 20,
        stage_us,
        stage_max_us: stage_us,
        lasted_us: 0,
        ended_at: HostTime(1_700_000_000 * NANOS_PER_SEC),
    };
    let pauses = |ms: &[u32]| {
        let mut links = Links::default();
        for sent_us in ms.iter().map(|ms| 1_000 * ms) {
            let ends = (
                half(mycroft_record::Direction::Send, [0, 0, sent_us]),
                half(mycroft_record::Direction::Recv, [sent_us, 0, 0]),
            );
            let op = crate::blame::hang::NO_META.id;
            links.join(0, (op, ChannelId(0)), ends, Limits { pause_us: 500_000, ranks: 2 });
        }
        links.pauses.len()
    };
    assert_eq!(pauses(&[5, 5, 5, 5, 5, 5, 1_000, 5, 5, 1_000]), 2);
    let slow = [[5; 6], [1_000; 6], [1_000; 6]].concat();
    assert_eq!(pauses(&slow), 4, "the first four: it may be over as soon as it came");
}

proptest::proptest! {
    /// What is packed is at most one part in 1,024 (times) or 33 million (bytes) less.
    #[test]
    fn rounded_numbers_are_near(us in 0u32.., bytes in 0u64..1 << 50) {
        let us = u64::from(us);
        let (near_us, near) = (Micros::unpack(Micros::pack(us)), Bytes::unpack(Bytes::pack(bytes)));
        proptest::prop_assert!(near_us <= us && us - near_us <= us >> 10, "{us} {near_us}");
        proptest::prop_assert!(near <= bytes && bytes - near <= bytes >> 25, "{bytes} {near}");
        proptest::prop_assert!(u16::try_from(Micros::pack(us)).is_ok());
    }
}

/// A rank that sends to many keeps the newest of all its links within its bound.
#[test]
fn links_of_a_rank_share_one_bound() {
    let half = |rank: u32| Half {
        rank: Rank(rank),
        direction: mycroft_record::Direction::Send,
        total_chunks: 4,
        bytes: 1,
        stage_us: [1; 3],
        stage_max_us: [1; 3],
        lasted_us: 0,
        ended_at: HostTime(1_700_000_000 * NANOS_PER_SEC),
    };
    let mut outgoing = Outgoing::default();
    for round in 0..100 {
        for peer in 1..=300 {
            outgoing.add(&half(0), &half(peer), Took { sent_us: f64::from(round), ..Took::default() });
        }
    }
    assert_eq!(outgoing.links.len(), LINKS_PER_RANK);
    let kept: usize = outgoing.links.iter().map(|link| link.samples.len()).sum();
    assert_eq!((kept, outgoing.samples), (SAMPLES_PER_RANK, SAMPLES_PER_RANK));
    assert!(outgoing.links.iter().all(|link| link.samples.len() >= SAMPLES_PER_RANK / LINKS_PER_RANK));
}
