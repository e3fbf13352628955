//! What is measured without records is the job that is told of.
use mycroft_sim::{Family, Scenario, Simulation, swarm};

#[test]
fn a_job_takes_as_long_told_as_untold() {
    for seed in 0..6 {
        let scenario = swarm(seed, Some(Family::Pulse));
        let mut told = Simulation::new(&scenario);
        while told.next_stretch().is_some() {}
        assert_eq!(told.iterations(), Simulation::untold(&scenario, usize::MAX), "seed {seed}");
    }
}

/// Milliseconds of the last of ten iterations of a job of two replicas with so many micro-batches of 30 ms each.
fn divided_ms(numbers: &str) -> f64 {
    let text = format!(
        "hosts = 2\nranks_per_host = 1\ntp = 1\npp = 1\ndp = 2\njitter = 0.0\ndp_bytes = 4096\n[life]\nmicro_batches = {numbers}\n"
    );
    let scenario = Scenario::parse("divided.toml", &text).expect("a scenario");
    let iterations = Simulation::untold(&scenario, 10);
    iterations.last().map_or(0.0, |last| (last.ended - last.began) as f64 / 1e6)
}

#[test]
fn a_replica_works_off_its_own_micro_batches() {
    let (even, uneven) = (divided_ms("[4, 4]"), divided_ms("[2, 6]"));
    assert!((uneven - even - 60.0).abs() < 1.0, "two more on the slowest replica: {even} and {uneven} ms");
    assert_eq!(even, divided_ms("[]"), "as all replicas have by default");
}

#[test]
fn a_division_that_does_not_fit_the_job_is_refused() {
    for (text, word) in [
        ("[life]\nmicro_batches = [4]", "expected dp = 2"),
        ("[life]\nmicro_batches = [4, 0]", "expected 1 to 256"),
        ("[life]\nmicro_batches = [4, 3]", "are 7 together: expected dp x micro_batches = 8"),
        ("dp_mode = \"fsdp\"\n[life]\nmicro_batches = [4, 4]", "only without moe, fsdp"),
    ] {
        let error = Scenario::parse("divided.toml", text).expect_err(text).to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
}
