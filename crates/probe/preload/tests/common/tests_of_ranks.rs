//! Orders for a job that is held: every test of a rank by itself, and the ring of the communicator of all.
use mycroft_ring::gate::LaneKind;
use mycroft_ring::gate::hold::{Held, HoldError, Order, Place};
use mycroft_ring::gate::task::{Answer, Kind};
use std::collections::BTreeMap;
use std::time::Duration;

/// Long enough for a busy machine.
pub const WITHIN: Duration = Duration::from_secs(15);

/// The communicator of all, and the rank in it of each that is held.
pub fn world(places: &[Place]) -> (u64, Vec<u32>) {
    let of = |place: &Place| {
        let is_world = |kind, other: u32| kind == LaneKind::Collective && other as usize == places.len();
        let lane = place.next.iter().find(|lane| is_world(lane.key.kind, lane.key.other)).expect("all are in it");
        (lane.key.comm, lane.key.own)
    };
    (of(&places[0]).0, places.iter().map(|place| of(place).1).collect())
}

/// The way between two of those that are held.
pub fn pair(places: &[Place], keeper: usize, guest: usize, bytes: u64) -> Order {
    let (comm, own) = world(places);
    let patience = Duration::from_secs(2);
    Order::Pair { keeper: (keeper, own[keeper]), guest: (guest, own[guest]), comm, bytes, patience }
}

/// Each check, and each way of the ring in passes.
pub fn passes(places: &[Place], bytes: u64) -> Vec<Vec<Order>> {
    let n = places.len();
    let alone = |kind| (0..n).map(|rank| Order::Alone { rank, kind }).collect();
    let mut passes: Vec<Vec<Order>> = [Kind::Device, Kind::Processor, Kind::Host].map(alone).into();
    for first in [0, 1] {
        passes.push((first..n).step_by(2).map(|i| pair(places, i, (i + 1) % n, bytes)).collect());
    }
    passes
}

/// Runs them all; answers of each pass.
pub fn run(held: &mut Held<'_>, bytes: u64) -> Result<Vec<BTreeMap<usize, Answer>>, HoldError> {
    let passes = passes(held.places(), bytes);
    passes.iter().map(|orders| held.run(orders, WITHIN)).collect()
}
