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
        let (blocked_us, bytes) = (1000 + n as u32, (1 << 33) + (n << 8));
        link.push(at, (blocked_us, blocked_us - 900), 16, bytes);
        let (wire_us, held_us) = (wall_us(1000.0 + n as f64, 16, FIFO_SLOTS), wall_us(900.0, 16, FIFO_SLOTS));
        let sent_us = wire_us - held_us;
        outgoing.push(LinkSample { at, wire_us, held_us, sent_us, bytes });
    }
    // 35 minutes are kept apart, which is more than any window looked at.
    let newest = link.newest().expect("there are samples").at;
    for (kept, told) in
        link.samples().zip(&outgoing).filter(|(_, told)| newest.since_ns(told.at) < 35 * 60 * NANOS_PER_SEC)
    {
        assert!(told.at.since_ns(kept.at) < 1000 && kept.at <= told.at);
        assert_eq!((kept.wire_us, kept.bytes), (told.wire_us, told.bytes));
        assert!((kept.held_us - told.held_us).abs() <= told.wire_us / 1024.0, "{kept:?} {told:?}");
    }
    link.push(first, (0, 0), 1, 0);
    assert!(link.newest().is_some_and(|sample| sample.at > first), "older than the link's beginning is at it");
    assert_eq!(size_of::<Packed>(), 16);
    assert!(size_of::<NicSample>() <= 40);
    assert_eq!(Link::new(Rank(0), Rank(1), first).samples().count(), 0);
    link.push(newest + NANOS_PER_MS, (1, 1), 1, 1);
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
        ended_at: HostTime(NANOS_PER_SEC),
    };
    let own = |send, recv| {
        let ends = (half(mycroft_record::Direction::Send, send), half(mycroft_record::Direction::Recv, recv));
        let (blocked_us, sent_us) = blocked(&ends.0, &ends.1);
        (blocked_us, blocked_us.saturating_sub(sent_us))
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
        ended_at: HostTime(1_700_000_000 * NANOS_PER_SEC),
    };
    let mut outgoing = Outgoing::default();
    for round in 0..100 {
        for peer in 1..=300 {
            outgoing.add(&half(0), &half(peer), (round, 0));
        }
    }
    assert_eq!(outgoing.links.len(), LINKS_PER_RANK);
    let kept: usize = outgoing.links.iter().map(|link| link.samples.len()).sum();
    assert_eq!((kept, outgoing.samples), (SAMPLES_PER_RANK, SAMPLES_PER_RANK));
    assert!(outgoing.links.iter().all(|link| link.samples.len() >= SAMPLES_PER_RANK / LINKS_PER_RANK));
}
