//! What the slow families draw.
use mycroft_sim::swarm::claimed_cost;
use mycroft_sim::{Family, Scenario, swarm};
use std::collections::BTreeSet;

#[test]
fn drawn_jobs_are_sound_and_have_what_was_drawn() {
    let (mut kinds, mut channels) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..60 {
        let (scenario, claimed) = (swarm(seed, Some(Family::Slow)), claimed_cost(seed));
        scenario.check().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(claimed.is_some(), scenario.fault.is_some(), "seed {seed}");
        assert!(claimed.is_none_or(|cost| (0.03..=1.5).contains(&cost)));
        kinds.extend(scenario.fault.as_ref().map(|fault| fault.kind));
        channels.insert(scenario.channels);
        let steady = swarm(seed, Some(Family::Steady));
        assert!(steady.all_faults().all(|fault| !fault.kind.is_of_job()));
        let same = |one: &Scenario| (one.hosts, one.tp, one.pp, one.forward_ms.to_bits(), one.life.clone());
        assert_eq!(same(&steady), same(&scenario), "seed {seed}");
    }
    assert!(kinds.len() >= 14 && channels.len() >= 5, "{kinds:?} {channels:?}");
}
