//! A plan as data: other numbers of micro-batches for each replica, and hosts in other places.
use mycroft_record::{Batch, Record};
use mycroft_sim::{Delivery, Fault, Scenario, Simulation};
use proptest::prelude::*;

/// A job of one rank on each host without anything that makes two hosts differ.
fn job(pp: u32, dp: u32) -> Scenario {
    let mut scenario = Scenario {
        hosts: pp * dp,
        ranks_per_host: 1,
        tp: 1,
        pp,
        dp,
        micro_batches: 4,
        jitter: 0.0,
        dp_bytes: 400_000,
        duration_s: 10.0,
        warm_up_iterations: 0,
        ..Scenario::default()
    };
    (scenario.cluster.rdma_spread, scenario.cluster.nvlink_spread) = (0.0, 0.0);
    scenario
}

fn told(scenario: &Scenario) -> Vec<Delivery> {
    let mut simulation = Simulation::new(scenario);
    std::iter::from_fn(|| simulation.next_stretch()).flatten().collect()
}

fn batches(scenario: &Scenario) -> Vec<(u64, Batch)> {
    told(scenario).into_iter().map(|delivery| (delivery.arrives_at, delivery.batch)).collect()
}

/// An iteration, the mean of ten, in microseconds; the first ones are left out, as processes start up to 20 ms apart.
fn mean_us(scenario: &Scenario) -> u64 {
    let iterations = Simulation::untold(scenario, 13);
    assert_eq!(iterations.len(), 13);
    (iterations[12].ended - iterations[2].ended) / 10_000
}

/// Operations that ended, of all ranks: what a batch costs in messages.
fn sends(scenario: &Scenario) -> usize {
    let count = |delivery: &Delivery| {
        delivery.batch.records.iter().filter(|record| matches!(record, Record::OpDone(_))).count()
    };
    told(scenario).iter().map(count).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    /// What is as without a plan is told as without a plan, record for record.
    #[test]
    fn an_even_division_and_hosts_at_their_own_places_change_nothing(seed in 0u64..1000, pp in 1u32..4, dp in 1u32..4) {
        let plain = Scenario { seed, jitter: 0.02, fault: Some("gpu-power@host0,severity=2,after=1".parse::<Fault>().unwrap()), ..job(pp, dp) };
        let mut arranged = plain.clone();
        arranged.life.micro_batches = vec![4; dp as usize];
        arranged.life.places = (0..pp * dp).collect();
        prop_assert_eq!(arranged.check(), Ok(()));
        prop_assert_eq!(batches(&plain), batches(&arranged));
    }

    /// Where all hosts are alike it does not matter which is where.
    #[test]
    fn a_healthy_job_takes_as_long_in_any_placement(places in Just((0..12).collect::<Vec<u32>>()).prop_shuffle()) {
        let plain = job(3, 4);
        let mut arranged = plain.clone();
        arranged.life.places = places;
        prop_assert_eq!(arranged.check(), Ok(()));
        let (one, other) = (mean_us(&plain), mean_us(&arranged));
        prop_assert!(one.abs_diff(other) <= one / 100, "{} and {} us", one, other);
    }

    /// A slow device is slow wherever its host is, and slows the replica that is there.
    #[test]
    fn a_fault_goes_with_its_host(place in 0u32..4) {
        let mut arranged = job(1, 4);
        arranged.fault = Some("gpu-power@host0:rank0,severity=3,after=0".parse().unwrap());
        arranged.life.places = (0..4).collect();
        arranged.life.places.swap(0, place as usize);
        arranged.life.micro_batches = vec![5; 4];
        arranged.life.micro_batches[place as usize] = 1;
        let spared = mean_us(&arranged);
        arranged.life.micro_batches.rotate_left(1);
        let hit = mean_us(&arranged);
        // 5 micro-batches of 30 ms against 5 of 90 ms.
        prop_assert!(spared < 200_000 && hit > 400_000, "{} and {} us", spared, hit);
    }
}

/// However a batch is divided, a stage sends and receives as often for it.
#[test]
fn a_division_keeps_the_work() {
    let done = |micro_batches: Vec<u32>| {
        let mut scenario = Scenario { duration_s: 60.0, loss_every: 0, ..job(2, 2) };
        scenario.life.micro_batches = micro_batches;
        let ended = Simulation::untold(&scenario, 5).last().map_or(0, |last| last.ended);
        scenario.duration_s = ended as f64 / 1e9 + 0.02;
        sends(&scenario)
    };
    let (even, uneven) = (done(vec![4, 4]), done(vec![2, 6]));
    // Ranks that are ahead have begun the next iteration: a few operations of two hundred.
    assert!(even > 150 && even.abs_diff(uneven) <= even / 10, "{even} and {uneven} operations");
}

#[test]
fn places_that_are_no_permutation_are_refused() {
    for places in ["[0, 1, 2]", "[0, 1, 2, 2]", "[0, 1, 2, 4]"] {
        let text = format!("seed = 1\n[life]\nplaces = {places}\n");
        let error = Scenario::parse("s.toml", &text).expect_err(places).to_string();
        assert!(error.contains("s.toml:3: life.places: expected each host from 0 to 3 once"), "{error}");
    }
}
