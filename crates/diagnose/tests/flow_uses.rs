//! What communicators are for, on rate curves made by hand. The name of a test says what is told.
mod wire;

use mycroft_diagnose::Parallelism::{Context, Data, Expert, Pipeline, Tensor};
use mycroft_diagnose::flow::{Basis, Members, Sent, Use, Used, uses};
use wire::{Draw, EPOCH_NS, GAP_NS, PERIOD_NS, SLICE, SLICE_NS, Wire, names};

const ITERATIONS: u64 = 12;

/// What is told, and that nobody is suspected: these jobs are healthy.
fn told(wire: &Wire) -> Vec<Used> {
    assert_eq!(names(&wire.suspects()), []);
    of(wire)
}

fn of(wire: &Wire) -> Vec<Used> {
    let curves: Vec<_> = wire.flows.iter().map(|(key, epochs)| (*key, Vec::from_iter(epochs.clone()))).collect();
    let sent = |((from, to, _), epochs): &'static (_, Vec<(u64, u32)>)| Sent {
        from: *from,
        to: *to,
        epochs,
        operations: Vec::new(),
    };
    let curves: &'static [_] = curves.leak();
    uses(&curves.iter().map(sent).collect::<Vec<_>>(), EPOCH_NS, GAP_NS)
}

/// Uses, members, number of groups and what tells it.
fn short(told: &[Used]) -> Vec<(Use, Members, usize, Basis)> {
    told.iter().map(|used| (used.of, used.members, used.groups.len(), used.basis)).collect()
}

/// One operation of a ring: each of these to the next one on a channel, so many slices, all within 30 us.
fn ring(wire: &mut Wire, draw: &mut Draw, members: &[u32], channel: u32, (at, slices): (u64, u64)) {
    for (place, from) in members.iter().enumerate() {
        let to = members[(place + 1) % members.len()];
        let begin = at + draw.below(30_000);
        wire.send((*from, to, channel), begin, begin + slices * SLICE_NS, slices * SLICE);
    }
}

/// When an iteration begins.
fn begin(iteration: u64) -> u64 {
    10_000_000 + iteration * 3 * PERIOD_NS
}

/// Messages of two stages of a pipeline: activations there and gradients back, four micro-batches.
fn pipeline(wire: &mut Wire, draw: &mut Draw, (one, other): (u32, u32), at: u64) {
    // One forward, one backward: F F B F B F B B.
    for (turn, is_there) in [true, true, false, true, false, true, false, false].into_iter().enumerate() {
        let begin = at + 2_000_000 * turn as u64 + draw.below(30_000);
        let flow = if is_there { (one, other, 7) } else { (other, one, 7) };
        wire.send(flow, begin, begin + 10 * SLICE_NS, 10 * SLICE);
    }
}

#[test]
fn messages_there_and_back_are_a_pipeline_and_rings_of_its_stages_sum_gradients() {
    let (mut wire, mut draw) = (Wire::default(), Draw::stream(1, 40));
    for iteration in 0..ITERATIONS {
        for rank in 0..4 {
            pipeline(&mut wire, &mut draw, (rank, 10 + rank), begin(iteration));
        }
        for first in [0, 10] {
            let members: Vec<u32> = (first..first + 4).collect();
            ring(&mut wire, &mut draw, &members, 0, (begin(iteration) + 30_000_000, 100));
        }
    }
    let data = (Use::Of(Data), Members::Exactly(4), 2, Basis::Usual);
    assert_eq!(short(&told(&wire)), [data, (Use::Of(Pipeline), Members::Exactly(2), 4, Basis::Shape)]);
}

/// In a ring of two both send the same at the same time, in a pipeline of two they take turns.
#[test]
fn a_ring_of_two_is_no_pipeline() {
    let (mut wire, mut draw) = (Wire::default(), Draw::stream(2, 40));
    for iteration in 0..ITERATIONS {
        for first in [0, 2, 4] {
            ring(&mut wire, &mut draw, &[first, first + 1], 0, (begin(iteration), 50));
            ring(&mut wire, &mut draw, &[first, first + 1], 0, (begin(iteration) + 20_000_000, 50));
        }
    }
    assert_eq!(short(&told(&wire)), [(Use::Of(Data), Members::Exactly(2), 3, Basis::Usual)]);
}

/// Now one comes later, now the other: who is there sends its first step, and the rest once the other has come.
#[test]
fn a_ring_of_two_that_come_in_turns_is_no_pipeline() {
    let (mut wire, mut draw) = (Wire::default(), Draw::stream(9, 40));
    for iteration in 0..ITERATIONS {
        let at = begin(iteration) + draw.below(30_000);
        let (early, late) = if iteration % 2 == 0 { (0, 1) } else { (1, 0) };
        wire.send((early, late, 0), at, at + 25 * SLICE_NS, 25 * SLICE);
        let both = at + 25 * SLICE_NS + 3_000_000;
        wire.send((early, late, 0), both, both + 25 * SLICE_NS, 25 * SLICE);
        wire.send((late, early, 0), both, both + 50 * SLICE_NS, 50 * SLICE);
    }
    assert_eq!(short(&of(&wire)), [(Use::Of(Data), Members::Exactly(2), 1, Basis::Usual)]);
}

/// The first stage's gradients go in many parts of one size, as layers do, those of the second do not.
#[test]
fn rings_of_all_stages_are_for_the_same() {
    let (mut wire, mut draw) = (Wire::default(), Draw::stream(10, 40));
    for iteration in 0..ITERATIONS {
        for rank in 0..4 {
            pipeline(&mut wire, &mut draw, (rank, 10 + rank), begin(iteration));
        }
        for part in 0..8 {
            ring(&mut wire, &mut draw, &[0, 1, 2, 3], 0, (begin(iteration) + 20_000_000 + part * 2_000_000, 10));
        }
        ring(&mut wire, &mut draw, &[10, 11, 12, 13], 0, (begin(iteration) + 20_000_000, 80));
    }
    let data = (Use::Of(Data), Members::Exactly(4), 2, Basis::Usual);
    assert_eq!(short(&of(&wire)), [data, (Use::Of(Pipeline), Members::Exactly(2), 4, Basis::Shape)]);
}

/// Exchanges and smaller rings lie in those that sum gradients.
#[test]
fn what_lies_in_a_ring_of_gradients_is_of_experts_or_of_the_sequence() {
    let (mut wire, mut draw) = (Wire::default(), Draw::stream(3, 40));
    for iteration in 0..ITERATIONS {
        for layer in 0..4 {
            let at = begin(iteration) + layer * 6_000_000;
            ring(&mut wire, &mut draw, &[0, 1], 1, (at, 8));
            ring(&mut wire, &mut draw, &[2, 3], 1, (at, 8));
            for (from, to) in (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(from, to)| from != to) {
                let (begin, slices) = (at + 3_000_000 + draw.below(30_000), 8 + u64::from(from * 3 + to) % 5);
                wire.send((from, to, 2), begin, begin + slices * SLICE_NS, slices * SLICE);
            }
        }
        ring(&mut wire, &mut draw, &[0, 1, 2, 3], 0, (begin(iteration) + 30_000_000, 100));
    }
    let all = [
        (Use::Of(Data), Members::Exactly(4), 1, Basis::Shape),
        (Use::Of(Expert), Members::Exactly(4), 1, Basis::Shape),
        (Use::Of(Context), Members::Exactly(2), 2, Basis::Volume),
    ];
    assert_eq!(short(&told(&wire)), all);
}

/// Rings that cross: one with each layer, the other once an iteration.
#[test]
fn of_rings_that_cross_the_more_seldom_one_sums_gradients() {
    let (mut wire, mut draw) = (Wire::default(), Draw::stream(4, 40));
    for iteration in 0..ITERATIONS {
        for layer in 0..6 {
            for first in [0, 3] {
                let members = [first, first + 1, first + 2];
                ring(&mut wire, &mut draw, &members, 1, (begin(iteration) + layer * 4_000_000, 20));
            }
        }
        for first in 0..3 {
            ring(&mut wire, &mut draw, &[first, first + 3], 0, (begin(iteration) + 30_000_000, 60));
        }
    }
    let data = (Use::Of(Data), Members::Exactly(2), 3, Basis::Volume);
    assert_eq!(short(&told(&wire)), [data, (Use::Of(Tensor), Members::Exactly(3), 2, Basis::Volume)]);
}

/// Ways of a ring that do not close: the members between them are on the same hosts.
#[test]
fn of_what_stays_inside_of_hosts_the_size_is_not_told() {
    let (mut wire, mut draw) = (Wire::default(), Draw::stream(5, 40));
    for iteration in 0..ITERATIONS {
        for (from, to) in [(3, 4), (7, 0)] {
            let at = begin(iteration) + draw.below(30_000);
            wire.send((from, to, 0), at, at + 100 * SLICE_NS, 100 * SLICE);
        }
    }
    assert_eq!(short(&told(&wire)), [(Use::Of(Data), Members::AtLeast(2), 2, Basis::Usual)]);
}

/// Three messages are on their way before the first comes back, so there is a stage behind the two that are seen.
#[test]
fn stages_inside_of_a_host_show_in_how_many_messages_are_on_their_way() {
    let (mut wire, mut draw) = (Wire::default(), Draw::stream(6, 40));
    for iteration in 0..ITERATIONS {
        for (turn, is_there) in [true, true, true, false, true, false, false, false].into_iter().enumerate() {
            let at = begin(iteration) + 2_000_000 * turn as u64 + draw.below(30_000);
            let flow = if is_there { (0, 1, 0) } else { (1, 0, 0) };
            wire.send(flow, at, at + 10 * SLICE_NS, 10 * SLICE);
        }
    }
    assert_eq!(short(&told(&wire)), [(Use::Of(Pipeline), Members::AtLeast(3), 1, Basis::Shape)]);
}

/// A ring that moves a thousandth of what another one does.
#[test]
fn who_moves_next_to_nothing_agrees_on_numbers() {
    let (mut wire, mut draw) = (Wire::default(), Draw::stream(7, 40));
    for iteration in 0..ITERATIONS {
        ring(&mut wire, &mut draw, &[0, 1, 2], 0, (begin(iteration), 400));
        for (from, to) in [(10, 11), (11, 12), (12, 10)] {
            let at = begin(iteration) + 30_000_000 + draw.below(30_000);
            wire.send((from, to, 0), at, at + 50_000, 8_192);
        }
    }
    let data = (Use::Of(Data), Members::Exactly(3), 1, Basis::Usual);
    assert_eq!(short(&told(&wire)), [data, (Use::Numbers, Members::Exactly(3), 1, Basis::Volume)]);
}

/// Each way of an exchange moves next to nothing, all of a sender together more than that.
#[test]
fn an_exchange_of_many_small_parts_is_of_experts() {
    let (mut wire, mut draw) = (Wire::default(), Draw::stream(8, 40));
    for iteration in 0..ITERATIONS {
        ring(&mut wire, &mut draw, &[0, 1, 2, 3, 4, 5], 0, (begin(iteration), 400));
        for (from, to) in (0..6).flat_map(|from| (0..6).map(move |to| (from, to))).filter(|(from, to)| from != to) {
            let at = begin(iteration) + 30_000_000 + draw.below(30_000);
            wire.send((from, to, 1), at, at + 80_000, 150_000 + 50_000 * u64::from((from + to) % 3));
        }
    }
    let data = (Use::Of(Data), Members::Exactly(6), 1, Basis::Shape);
    assert_eq!(short(&told(&wire)), [data, (Use::Of(Expert), Members::Exactly(6), 1, Basis::Shape)]);
}
