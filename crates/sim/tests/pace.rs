//! What is measured without records is the job that is told of.
use mycroft_sim::{Family, Simulation, swarm};

#[test]
fn a_job_takes_as_long_told_as_untold() {
    for seed in 0..6 {
        let scenario = swarm(seed, Some(Family::Pulse));
        let mut told = Simulation::new(&scenario);
        while told.next_stretch().is_some() {}
        assert_eq!(told.iterations(), Simulation::untold(&scenario, usize::MAX), "seed {seed}");
    }
}
