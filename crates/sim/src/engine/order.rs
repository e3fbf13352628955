//! It must not matter which of several ranks is played first: what they tell is the same.
use super::{Delivery, Simulation};
use crate::scenario::Scenario;
use crate::swarm::{Family, swarm};

/// All that is told of a job whose ranks are played in one order or in the other.
fn told(scenario: &Scenario, reverse: bool) -> Vec<Delivery> {
    let mut simulation = Simulation::new(scenario);
    let mut deliveries = Vec::new();
    loop {
        if reverse {
            simulation.parked.reverse();
            simulation.runnable.reverse();
        }
        match simulation.next_stretch() {
            Some(stretch) => deliveries.extend(stretch),
            None => return deliveries,
        }
    }
}

/// Jobs that stop in the middle of something, where it mattered once: a message that fits the FIFO was sent only if those
/// before it were worked out by then (22265).
#[test]
fn it_does_not_matter_which_rank_is_played_first() {
    let seeds = (0..30).chain([22265]);
    let scenarios = seeds.map(|seed| (seed, swarm(seed, (seed < 1_000).then_some(Family::FlightRecorder))));
    for (seed, scenario) in scenarios.filter(|(_, scenario)| scenario.pp > 1 && scenario.world() <= 128) {
        let (one, other) = (told(&scenario, false), told(&scenario, true));
        let same =
            |(one, other): (&Delivery, &Delivery)| one.arrives_at == other.arrives_at && one.batch == other.batch;
        assert!(one.len() == other.len() && one.iter().zip(&other).all(same), "seed {seed}");
    }
}
