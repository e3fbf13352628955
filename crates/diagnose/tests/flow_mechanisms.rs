//! What tells one cause from another where operations of several groups lie between each other, on rate curves made by hand. The name
//! of a test says what is told.
mod wire;

use mycroft_diagnose::flow::Sign;
use wire::{Draw, PERIOD_NS, SLICE, SLICE_NS, Wire, names};

const RANKS: u32 = 4;

/// Slices that a receiver's buffers take before it begins.
const BUFFERS: u64 = 8;

/// A ring's operation: all begin at `at` but one, by how much later. Until it does, the others send what its buffers take.
fn ring(wire: &mut Wire, draw: &mut Draw, first: u32, at: u64, slices: u64, late: Option<(u32, u64)>) {
    for rank in 0..RANKS {
        let flow = (first + rank, first + (rank + 1) % RANKS, 0);
        let begin = at + draw.below(30_000);
        match late {
            Some((who, by)) if who != rank => {
                wire.send(flow, begin, begin + BUFFERS * SLICE_NS, BUFFERS * SLICE);
                let left = slices - BUFFERS;
                wire.send(flow, begin + by, begin + by + left * SLICE_NS, left * SLICE);
            }
            late => {
                let begin = begin + late.map_or(0, |(_, by)| by);
                wire.send(flow, begin, begin + slices * SLICE_NS, slices * SLICE);
            }
        }
    }
}

/// ReduceScatter and AllGather of one ring have one volume; before the first of them a message comes from elsewhere, as in a pipeline.
#[test]
fn who_is_late_before_one_of_two_operations_of_like_volume_is_named() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 20);
        let (mut wire, by) = (Wire::default(), 2_000_000 + draw.below(2_000_000));
        for round in 0..12u64 {
            let at = 10_000_000 + round * 2 * PERIOD_NS;
            for rank in 0..RANKS {
                wire.send((100 + rank, rank, 0), at, at + 6 * SLICE_NS, 6 * SLICE);
            }
            ring(&mut wire, &mut draw, 0, at + 8_000_000, 40, Some((2, by)));
            ring(&mut wire, &mut draw, 0, at + 20_000_000, 40, None);
        }
        let found = wire.suspects();
        assert_eq!(names(&found), [2], "seed {seed}: {found:?}");
        let Sign::Late { by_ns } = found[0].sign else { panic!("{found:?}") };
        assert!(by_ns.abs_diff(by) < 200_000, "seed {seed}: {by_ns} of {by}");
    }
}

/// Another ring's operation of like volume reaches from one of the first ring's into its next.
#[test]
fn rounds_of_two_rings_that_lie_between_each_other_are_whole() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 21);
        let mut wire = Wire::default();
        for round in 0..24u64 {
            let at = 10_000_000 + round * 6_000_000;
            ring(&mut wire, &mut draw, 0, at, 60, Some((1, 1_500_000)));
            ring(&mut wire, &mut draw, 10, at + 4_000_000, 60, None);
        }
        let found = wire.suspects();
        assert_eq!(names(&found), [1], "seed {seed}: {found:?}");
    }
}

/// Who waits for a message begins late, and not after its last byte.
#[test]
fn who_waits_for_a_late_message_is_not_late() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 22);
        let mut wire = Wire::default();
        for round in 0..12u64 {
            let at = 10_000_000 + round * 2 * PERIOD_NS;
            for rank in 0..RANKS {
                let late = if rank == 3 { 4_000_000 } else { draw.below(30_000) };
                wire.send((20 + rank, rank, 0), at + late, at + late + 30 * SLICE_NS, 30 * SLICE);
                let answer = at + late + 30 * SLICE_NS + 3_000_000 + draw.below(30_000);
                wire.send((rank, 20 + rank, 0), answer, answer + 30 * SLICE_NS, 30 * SLICE);
            }
            // What all begin with.
            ring(&mut wire, &mut draw, 20, at - 8_000_000, 50, None);
        }
        let found = wire.suspects();
        assert_eq!(names(&found), [23], "seed {seed}: {found:?}");
    }
}

/// Each sends to all others, those of `at_once` to all at the same time, others to one after the other; a way's rate is one of `times`.
fn exchange(draw: &mut Draw, rounds: u64, at_once: fn(u32) -> bool, times: impl Fn(u32, u32) -> f64) -> Wire {
    let mut wire = Wire::default();
    for round in 0..rounds {
        for from in 0..RANKS {
            let mut at = 10_000_000 + round * PERIOD_NS + draw.below(40_000);
            for to in (0..RANKS).filter(|to| *to != from) {
                let lasts = (40 * SLICE_NS) as f64 * times(from, to) * (1.0 + draw.below(40) as f64 / 1000.0);
                wire.send((from, to, 0), at, at + lasts as u64, 40 * SLICE);
                // The next one begins when the last slices are on their way.
                at += if at_once(from) { 0 } else { lasts as u64 - 200_000 };
            }
        }
    }
    wire
}

/// Of four in an exchange both ends of a path are half.
#[test]
fn a_slow_path_is_slower_than_what_both_of_its_ends_do_otherwise() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 23);
        let slow = 1.4 + draw.below(20) as f64 / 10.0;
        let of = |from: u32, to: u32| if [(0, 2), (2, 0)].contains(&(from, to)) { slow } else { 1.0 };
        let found = exchange(&mut draw, 12, |_| true, of).suspects();
        let told: Vec<(u32, &[u32])> = found.iter().map(|one| (one.from, &one.to[..])).collect();
        assert_eq!(told, [(0, &[2][..]), (2, &[0][..])], "seed {seed}, {slow} times slower: {found:?}");
    }
}

/// Rank 1 sends to one after the other, at a third of what the others send to all at once; on each way it is as fast as they.
#[test]
fn who_sends_to_one_after_the_other_is_not_slow() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 24);
        let found = exchange(&mut draw, 12, |from| from != 1, |_, _| 1.0).suspects();
        assert!(found.iter().all(|one| !matches!(one.sign, Sign::Slow { .. })), "seed {seed}: {found:?}");
    }
}

/// Both flows at a NIC that is slow in both directions are slow; the sender of one of them is not.
#[test]
fn who_is_slow_only_to_one_that_is_slow_itself_is_not_named() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 25);
        let mut wire = Wire::default();
        for round in 0..12u64 {
            for rank in 0..12u64 {
                let begin = 10_000_000 + round * PERIOD_NS + draw.below(40_000);
                let times = if rank == 2 || rank == 3 { 3 } else { 1 };
                let flow = (rank as u32, (rank as u32 + 1) % 12, 0);
                wire.send(flow, begin, begin + 40 * SLICE_NS * times, 40 * SLICE);
            }
        }
        assert_eq!(names(&wire.suspects()), [3], "seed {seed}");
    }
}

/// A ring in which rank 2's host is busy otherwise: it hands over a few slices, then nothing for 4 ms. Before that it was well.
fn busy_host(draw: &mut Draw, healthy: u64, busy: u64) -> Wire {
    let mut wire = Wire::default();
    for round in 0..healthy {
        ring(&mut wire, draw, 0, 10_000_000 + round * PERIOD_NS, 60, None);
    }
    for round in 0..busy {
        let mut at = 10_000_000 + healthy * PERIOD_NS + round * 6 * PERIOD_NS;
        let mut left = 60;
        while left > 0 {
            let some = (2 + draw.below(5)).min(left);
            for place in 0..RANKS {
                let rank = (2 + place) % RANKS;
                let begin = at + u64::from(place) * SLICE_NS;
                wire.send((rank, (rank + 1) % RANKS, 0), begin, begin + some * SLICE_NS, some * SLICE);
            }
            (left, at) = (left - some, at + 4_000_000);
        }
    }
    wire
}

#[test]
fn who_goes_on_first_after_each_silence_of_a_ring_holds_it_up() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 26);
        let found = busy_host(&mut draw, 8, 6).suspects();
        assert_eq!(names(&found), [2], "seed {seed}: {found:?}");
        let Sign::Held { by_ns } = found[0].sign else { panic!("{found:?}") };
        assert!(by_ns > 10_000_000, "seed {seed}: {by_ns}");
    }
}

/// Messages side by side, of which one sender's pauses again and again.
#[test]
fn a_message_that_pauses_again_and_again_is_held_up_by_its_sender() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 27);
        let mut wire = Wire::default();
        for round in 0..12u64 {
            for rank in 0..6u32 {
                let mut at = 10_000_000 + round * 2 * PERIOD_NS + draw.below(50_000);
                for _ in 0..5 {
                    wire.send((rank, 10 + rank, 0), at, at + 8 * SLICE_NS, 8 * SLICE);
                    at += 8 * SLICE_NS + if rank == 4 { 900_000 } else { 0 };
                }
            }
        }
        let found = wire.suspects();
        assert_eq!(names(&found), [4], "seed {seed}: {found:?}");
        assert!(matches!(found[0].sign, Sign::Held { .. }), "{found:?}");
    }
}

/// Messages of six senders each, there and back, and a silence at last. `last` says what goes of the last ones.
fn messages(draw: &mut Draw, last: impl Fn(u32, bool) -> u64) -> Wire {
    let mut wire = Wire::default();
    for round in 0..10u64 {
        for rank in 0..6u32 {
            for back in [false, true] {
                let slices = if round == 9 { last(rank, back) } else { 30 };
                let at = 10_000_000 + round * PERIOD_NS + draw.below(50_000) + if back { 200_000 } else { 0 };
                let flow = if back { (10 + rank, rank, 0) } else { (rank, 10 + rank, 0) };
                if slices > 0 {
                    wire.send(flow, at, at + slices * SLICE_NS, slices * SLICE);
                }
            }
        }
    }
    wire.until_ns += 4 * PERIOD_NS;
    wire
}

/// Sender 2's last message ends when its receiver's buffers are full, and that receiver sends nothing.
#[test]
fn who_takes_nothing_and_sends_nothing_did_not_begin() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 28);
        let found = messages(&mut draw, |rank, back| match (rank, back) {
            (2, false) => 4,
            (2, true) => 0,
            _ => 30,
        });
        let found = found.suspects();
        assert_eq!(names(&found), [12], "seed {seed}: {found:?}");
        assert!(matches!(found[0].sign, Sign::Stopped { sent: 0, .. }), "{found:?}");
    }
}

/// What the first of all operations that did not end tells; in later ones others are missing as well.
#[test]
fn of_all_operations_that_did_not_end_the_first_tells() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 29);
        let mut wire = messages(&mut draw, |rank, back| match (rank, back) {
            (2, false) => 4,
            (2, true) => 0,
            _ => 30,
        });
        // A ring after the messages, in which both of these are missing at last.
        for round in 0..10u64 {
            for rank in (0..6u32).filter(|rank| round < 9 || *rank != 2) {
                let at = 18_000_000 + round * PERIOD_NS + draw.below(50_000);
                let slices = if round == 9 { 8 } else { 80 };
                wire.send((rank, (rank + 1) % 6, 1), at, at + slices * SLICE_NS, slices * SLICE);
            }
        }
        wire.until_ns += 4 * PERIOD_NS;
        assert_eq!(names(&wire.suspects()), [12], "seed {seed}");
    }
}

/// Messages of six senders, and answers 6 ms later; sender 2's last message ends after 4 slices, and nobody answers. In the first
/// rounds sender 4's receiver is late by 3 ms where `buffers` says so, and what goes before is 4 slices too.
fn unanswered(draw: &mut Draw, buffers: bool) -> Wire {
    let mut wire = Wire::default();
    for round in 0..10u64 {
        for rank in 0..6u32 {
            let at = 10_000_000 + round * PERIOD_NS + draw.below(50_000);
            let (there, back) = ((rank, 10 + rank, 0), (10 + rank, rank, 0));
            let slices = if round == 9 && rank == 2 { 4 } else { 30 };
            if buffers && round < 3 && rank == 4 {
                let late = at + 3_000_000;
                wire.send(there, at, at + 4 * SLICE_NS, 4 * SLICE);
                wire.send(there, late, late + 26 * SLICE_NS, 26 * SLICE);
            } else {
                wire.send(there, at, at + slices * SLICE_NS, slices * SLICE);
            }
            if round < 9 || rank != 2 {
                wire.send(back, at + 6_000_000, at + 6_000_000 + 30 * SLICE_NS, 30 * SLICE);
            }
        }
    }
    wire.until_ns += 4 * PERIOD_NS;
    wire
}

/// As much as flows paused after before is what buffers take for a receiver that does not begin.
#[test]
fn a_message_that_ends_where_buffers_are_full_is_held_by_its_receiver() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 32);
        let found = unanswered(&mut draw, true).suspects();
        let told: Vec<(u32, &[u32])> = found.iter().map(|one| (one.from, &one.to[..])).collect();
        assert_eq!(told, [(12, &[2][..])], "seed {seed}: {found:?}");
        assert!(matches!(found[0].sign, Sign::Stopped { sent: 0, .. }), "{found:?}");
    }
}

/// Otherwise either end of it may have stopped.
#[test]
fn of_a_message_that_ends_anywhere_neither_end_is_named() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 33);
        assert_eq!(unanswered(&mut draw, false).suspects(), [], "seed {seed}");
    }
}

/// A ring in which rank 2 stopped, and another one, later, in which rank 13 did not begin because it waits for a message of the first.
#[test]
fn who_waits_for_an_operation_that_did_not_end_has_not_stopped() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 31);
        let mut wire = Wire::default();
        for round in 0..10u64 {
            let at = 10_000_000 + round * PERIOD_NS;
            for rank in 0..RANKS {
                let slices = if round == 9 { 4 + u64::from((rank + 2) % RANKS) * 2 } else { 40 };
                let begin = at + draw.below(30_000);
                wire.send((rank, (rank + 1) % RANKS, 0), begin, begin + slices * SLICE_NS, slices * SLICE);
                let (waits, later) = (round == 9 && rank == 3, at + 6_000_000 + draw.below(30_000));
                let slices = if round == 9 { 12 + 2 * u64::from(rank) } else { 80 };
                let flow = (10 + rank, 10 + (rank + 1) % RANKS, 0);
                if !waits {
                    wire.send(flow, later, later + slices * SLICE_NS, slices * SLICE);
                }
            }
        }
        wire.until_ns += 4 * PERIOD_NS;
        let found = wire.suspects();
        assert_eq!(names(&found), [2], "seed {seed}: {found:?}");
    }
}

/// Parts that differ from call to call; who is late is late by more than what ends an operation, while others send what its buffers take.
#[test]
fn an_exchange_of_uneven_parts_lasts_until_each_has_sent() {
    for seed in 0..20 {
        let mut draw = Draw::stream(seed, 30);
        let mut wire = Wire::default();
        for round in 0..14u64 {
            let at = 10_000_000 + round * PERIOD_NS;
            let late = at + 3_000_000;
            for from in 0..RANKS {
                for to in (0..RANKS).filter(|to| *to != from) {
                    let slices = 20 + draw.below(40);
                    let begin = if from == 3 { late } else { at + draw.below(60_000) };
                    if to == 3 && from != 3 {
                        wire.send((from, to, 0), begin, begin + 8 * SLICE_NS, 8 * SLICE);
                        wire.send((from, to, 0), late, late + slices * SLICE_NS, slices * SLICE);
                    } else {
                        wire.send((from, to, 0), begin, begin + slices * SLICE_NS, slices * SLICE);
                    }
                }
            }
        }
        let found = wire.suspects();
        assert_eq!(names(&found), [3], "seed {seed}: {found:?}");
        assert!(matches!(found[0].sign, Sign::Late { .. }), "{found:?}");
    }
}
