//! Who is slow, late or stopped, from rate curves of drawn jobs: rings, pipelines and all-to-all, healthy and not.
mod wire;

use mycroft_diagnose::flow::Sign;
use wire::{Draw, EPOCH_NS, GAP_NS, PERIOD_NS, SLICE, SLICE_NS, Wire, names};

/// What is wrong with rank 3.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// A way so many times slower.
    Way(f64),
    /// It begins late.
    Late(u64),
    /// Its host hands slices over late: all wait, nobody sends slower.
    Held(u64),
    /// It sends no more after so many slices of the last operation.
    Stops(u64),
}

/// Rings of four on channels, as often as asked, whose slices go around in step.
fn rings(draw: &mut Draw, rings: u32, rounds: u64, fault: Fault) -> Wire {
    let mut wire = Wire::default();
    for round in 0..rounds {
        for ring in 0..rings {
            let is_hit = |rank: u32| ring == 0 && rank == 3;
            let begin = 10_000_000 + round * PERIOD_NS + draw.below(50_000);
            let late = if let (Fault::Late(by), 0) = (fault, ring) { by } else { 0 };
            for channel in 0..2 {
                slices(&mut wire, draw, (ring, channel, round + 1 == rounds), begin, late, fault, &is_hit);
            }
        }
    }
    let stays = if let Fault::Stops(_) = fault { 3 * PERIOD_NS } else { 0 };
    wire.until_ns += stays;
    wire
}

fn slices(
    wire: &mut Wire,
    draw: &mut Draw,
    (ring, channel, is_last): (u32, u32, bool),
    begin: u64,
    late: u64,
    fault: Fault,
    is_hit: &dyn Fn(u32) -> bool,
) {
    let mut at = begin;
    for slice in 0..24u64 {
        let mut slowest = 0;
        for rank in 0..4u32 {
            let steady = SLICE_NS as f64 * (1.0 + draw.below(60) as f64 / 1000.0);
            let lasts = match fault {
                Fault::Way(times) if is_hit(rank) => (steady * times) as u64,
                _ => steady as u64,
            };
            let held = match fault {
                Fault::Held(ns) if ring == 0 => ns,
                _ => 0,
            };
            slowest = slowest.max(lasts + held);
            // What the others wait for came never.
            let sent_until = match fault {
                Fault::Stops(after) if ring == 0 && is_last => after + u64::from((rank + 4 - 3) % 4) * 2,
                _ => u64::MAX,
            };
            if slice >= sent_until {
                continue;
            }
            // Rank 3 sends its first slice late, the others theirs at once, and then wait for it.
            let waits = if slice == 0 && !is_hit(rank) { 0 } else { late };
            let address = |rank: u32| 100 * ring + rank;
            let flow = (address(rank), address((rank + 1) % 4), channel);
            wire.send(flow, at + waits, at + waits + lasts, SLICE);
        }
        at += slowest;
    }
}

#[test]
fn nobody_of_a_healthy_ring_is_named() {
    for seed in 0..100 {
        let mut draw = Draw::stream(seed, 1);
        let number = 1 + draw.below(3) as u32;
        let found = rings(&mut draw, number, 12, Fault::None).suspects();
        assert_eq!(found, [], "seed {seed}");
    }
}

#[test]
fn a_slow_way_is_named_by_its_rate_while_it_sends() {
    for seed in 0..100 {
        let mut draw = Draw::stream(seed, 2);
        let times = 1.4 + draw.below(30) as f64 / 10.0;
        let number = 1 + draw.below(3) as u32;
        let found = rings(&mut draw, number, 12, Fault::Way(times)).suspects();
        assert_eq!(names(&found), [3], "seed {seed}, {times} times slower: {found:?}");
        let Sign::Slow { rate, usual } = found[0].sign else { panic!("{found:?}") };
        let share = rate / usual * times;
        assert!((0.9..1.1).contains(&share), "seed {seed}: {share} of 1/{times}");
        assert_eq!((&found[0].to[..], found[0].rounds, found[0].peers), (&[0][..], 10, 4 * number - 1));
    }
}

/// Gaps of others that are shorter than an epoch make its epochs less than full.
#[test]
fn nobody_else_is_named_where_gaps_are_shorter_than_an_epoch() {
    for seed in 0..100 {
        let mut draw = Draw::stream(seed, 10);
        let times = 1.15 + draw.below(25) as f64 / 100.0;
        let number = 1 + draw.below(3) as u32;
        let found = rings(&mut draw, number, 12, Fault::Way(times)).suspects();
        assert_eq!(names(&found), [3], "seed {seed}, {times} times slower: {found:?}");
    }
}

/// Of whom somebody waits for, each begins its next operation late.
#[test]
fn where_somebody_sends_slowly_nobody_is_late() {
    for seed in 0..50 {
        let mut draw = Draw::stream(seed, 11);
        let times = 2.0 + draw.below(20) as f64 / 10.0;
        let mut wire = rings(&mut draw, 2, 12, Fault::Way(times));
        let late = rings(&mut draw, 2, 12, Fault::Late(3_000_000));
        // Of another kind of operation, later in each iteration, of other queue pairs.
        for ((from, to, channel), epochs) in late.flows {
            let moved =
                epochs.into_iter().filter(|(epoch, _)| epoch % 2 == 0).map(|(epoch, bytes)| (epoch + 1_250, bytes));
            wire.flows.insert((from, to, 2 + channel), moved.collect());
        }
        wire.until_ns += 10_000_000;
        let found = wire.suspects();
        assert_eq!(names(&found), [3], "seed {seed}: {found:?}");
        assert!(matches!(found[0].sign, Sign::Slow { .. }), "{found:?}");
    }
}

#[test]
fn who_begins_late_is_named_and_not_as_slow() {
    for seed in 0..100 {
        let mut draw = Draw::stream(seed, 3);
        let by = 1_200_000 + draw.below(6_000_000);
        let found = rings(&mut draw, 2, 12, Fault::Late(by)).suspects();
        assert_eq!(names(&found), [3], "seed {seed}: {found:?}");
        let Sign::Late { by_ns } = found[0].sign else { panic!("{found:?}") };
        assert!(by_ns.abs_diff(by) < 200_000, "seed {seed}: {by_ns} of {by}");
    }
}

#[test]
fn slices_that_a_host_hands_over_late_are_no_slow_way() {
    for seed in 0..50 {
        let mut draw = Draw::stream(seed, 4);
        let ns = 40_000 + draw.below(100_000);
        let found = rings(&mut draw, 2, 12, Fault::Held(ns)).suspects();
        assert_eq!(found, [], "seed {seed}");
    }
}

#[test]
fn who_stopped_first_has_sent_least() {
    for seed in 0..100 {
        let mut draw = Draw::stream(seed, 5);
        let after = draw.below(12);
        let found = rings(&mut draw, 1, 8, Fault::Stops(after)).suspects();
        assert_eq!(names(&found), [3], "seed {seed}: {found:?}");
        let Sign::Stopped { sent, whole, .. } = found[0].sign else { panic!("{found:?}") };
        assert!(sent.abs_diff(2 * after * SLICE) < SLICE / 4, "seed {seed}: {sent}");
        assert!(whole.abs_diff(48 * SLICE) < SLICE, "seed {seed}: {whole}");
    }
}

/// A host has a NIC in each of its rings.
#[test]
fn a_host_of_which_all_stop_is_named_in_each_of_its_rings() {
    for seed in 0..50 {
        let mut draw = Draw::stream(seed, 12);
        let after = 4 + draw.below(8);
        let mut wire = rings(&mut draw, 1, 8, Fault::Stops(after));
        let other: Vec<_> = wire
            .flows
            .iter()
            .map(|((from, to, channel), epochs)| ((100 + from, 100 + to, *channel), epochs.clone()))
            .collect();
        wire.flows.extend(other);
        let found = wire.suspects();
        assert_eq!(names(&found), [3, 103], "seed {seed}: {found:?}");
    }
}

/// Large operations: what one of many slices is of a whole one says nothing of how sure it is.
#[test]
fn one_slice_less_of_a_large_operation_is_less() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 13);
        let mut wire = Wire::default();
        for round in 0..6u64 {
            let slices = if round == 5 { 100 } else { 400 };
            for rank in 0..4u64 {
                let begin = 10_000_000 + round * PERIOD_NS + draw.below(50_000);
                let of = if round == 5 { slices + (rank + 4 - 3) % 4 * 2 } else { slices };
                wire.send((rank as u32, (rank as u32 + 1) % 4, 0), begin, begin + of * SLICE_NS, of * SLICE);
            }
        }
        wire.until_ns += 3 * PERIOD_NS;
        let found = wire.suspects();
        assert_eq!(names(&found), [3], "seed {seed}: {found:?}");
    }
}

#[test]
fn a_capture_that_ends_while_all_wait_for_one_says_of_nobody_that_it_stopped() {
    for seed in 0..50 {
        let mut draw = Draw::stream(seed, 8);
        let mut wire = rings(&mut draw, 1, 8, Fault::Stops(seed % 12));
        wire.until_ns -= 3 * PERIOD_NS;
        wire.until_ns += GAP_NS + draw.below(PERIOD_NS / 2);
        assert_eq!(wire.suspects(), [], "seed {seed}");
    }
}

#[test]
fn a_channel_that_never_began_counts_as_nothing_sent() {
    for seed in 0..50 {
        let mut draw = Draw::stream(seed, 9);
        let mut wire = rings(&mut draw, 1, 8, Fault::Stops(8));
        // Of rank 3's second channel nothing of the last operation came, and on the first one it is ahead of rank 0.
        let last_begins = (10_000_000 + 7 * PERIOD_NS) / EPOCH_NS;
        wire.flows.get_mut(&(3, 0, 1)).expect("its flow").retain(|epoch, _| *epoch < last_begins);
        for slice in 8..14 {
            let at = 10_100_000 + 7 * PERIOD_NS + slice * SLICE_NS;
            wire.send((3, 0, 0), at, at + SLICE_NS, SLICE);
        }
        wire.until_ns = 10_000_000 + 11 * PERIOD_NS;
        let found = wire.suspects();
        assert_eq!(names(&found), [3], "seed {seed}: {found:?}");
    }
}

/// Each sends to all others, as many tokens as were routed there; what is slow is slow to all.
fn all_to_all(draw: &mut Draw, rounds: u64, slow: f64) -> Wire {
    let mut wire = Wire::default();
    for round in 0..rounds {
        let begin = 10_000_000 + round * PERIOD_NS;
        // Hundredths of half a slice.
        let loads: Vec<u64> = (0..4).map(|_| 100 + draw.below(701)).collect();
        for from in 0..4u32 {
            // Its expert computed for as long as it had tokens.
            let mut at = begin + loads[from as usize] * 300;
            let times = if from == 2 { slow } else { 1.0 };
            for (to, load) in (0..4u32).zip(&loads).filter(|(to, _)| *to != from) {
                let bytes = load * SLICE / 200;
                let lasts =
                    (*load as f64 / 100.0 * SLICE_NS as f64 * times * (1.0 + draw.below(60) as f64 / 1000.0)) as u64;
                wire.send((from, to, 0), at, at + lasts, bytes);
                // The receiver's kernel comes late.
                at += lasts + draw.below(400_000);
            }
        }
    }
    wire
}

#[test]
fn uneven_experts_are_no_fault_and_a_slow_sender_among_them_is_named() {
    for seed in 0..100 {
        let mut draw = Draw::stream(seed, 6);
        assert_eq!(all_to_all(&mut draw, 14, 1.0).suspects(), [], "seed {seed}");
        let times = 1.5 + draw.below(20) as f64 / 10.0;
        let found = all_to_all(&mut draw, 14, times).suspects();
        assert_eq!(names(&found), [2], "seed {seed}, {times} times slower: {found:?}");
        assert!(!found[0].to.contains(&2) && !found[0].to.is_empty(), "{found:?}");
        assert!(matches!(found[0].sign, Sign::Slow { .. }), "{found:?}");
    }
}

/// Four that send equal parts to all others, where rank 3 begins late, and with `stops` not at all the last time: then what the
/// others send it ends when its buffers are full.
fn equal_parts(draw: &mut Draw, late: u64, stops: bool) -> Wire {
    let mut wire = Wire::default();
    for round in 0..12u64 {
        let is_last = stops && round == 11;
        for from in 0..4u32 {
            let begin = 10_000_000 + round * PERIOD_NS + draw.below(50_000) + if from == 3 { late } else { 0 };
            for to in (0..4u32).filter(|to| *to != from && !(is_last && from == 3)) {
                let slices = if is_last && to == 3 { 8 } else { 60 };
                let lasts = slices * SLICE_NS * (100 + draw.below(6)) / 100;
                wire.send((from, to, 0), begin, begin + lasts, slices * SLICE);
            }
        }
    }
    wire.until_ns += if stops { 3 * PERIOD_NS } else { 0 };
    wire
}

#[test]
fn who_begins_late_where_each_sends_to_all_others_is_named() {
    for seed in 0..50 {
        let mut draw = Draw::stream(seed, 14);
        assert_eq!(equal_parts(&mut draw, 0, false).suspects(), [], "seed {seed}");
        let by = 1_300_000 + draw.below(500_000);
        let found = equal_parts(&mut draw, by, false).suspects();
        assert_eq!(names(&found), [3], "seed {seed}: {found:?}");
        let Sign::Late { by_ns } = found[0].sign else { panic!("{found:?}") };
        assert!(by_ns.abs_diff(by) < 200_000, "seed {seed}: {by_ns} of {by}");
    }
}

#[test]
fn who_does_not_begin_where_each_sends_to_all_others_is_named() {
    for seed in 0..50 {
        let mut draw = Draw::stream(seed, 15);
        let found = equal_parts(&mut draw, 0, true).suspects();
        assert_eq!(names(&found), [3], "seed {seed}: {found:?}");
        assert!(matches!(found[0].sign, Sign::Stopped { sent: 0, .. }), "{found:?}");
    }
}

#[test]
fn stages_of_a_pipeline_that_begin_one_after_the_other_are_not_late() {
    for seed in 0..50 {
        let mut draw = Draw::stream(seed, 7);
        let mut wire = Wire::default();
        for batch in 0..20u64 {
            for stage in 0..3u32 {
                let begin = 10_000_000 + batch * 5_000_000 + u64::from(stage) * 600_000 + draw.below(40_000);
                wire.send((stage, stage + 1, 0), begin, begin + 20 * SLICE_NS, 20 * SLICE);
                let back = begin + 2_000_000;
                wire.send((3 - stage, 2 - stage, 0), back, back + 20 * SLICE_NS, 20 * SLICE);
            }
        }
        assert_eq!(wire.suspects(), [], "seed {seed}");
    }
}
