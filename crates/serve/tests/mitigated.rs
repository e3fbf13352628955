//! Plans against slowness, acted out in the simulator: what a division gains there is what its plan promised.
use mycroft_diagnose::mitigate::known::{Asked, known};
use mycroft_diagnose::mitigate::lint::lint;
use mycroft_diagnose::mitigate::place::Waits;
use mycroft_diagnose::mitigate::plan::{Costs, plan};
use mycroft_diagnose::mitigate::rent::Strategy;
use mycroft_diagnose::mitigate::split::{Replica, split};
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_serve::TICK;
use mycroft_serve::replay::{Player, TAIL};
use mycroft_sim::{Life, Scenario, Simulation};

/// Micro-batches of each replica in an even division.
const EACH: u32 = 8;

/// A job of so many replicas, each one device on a host of its own: a micro-batch takes two layers of 15 ms.
fn job(replicas: u32) -> Scenario {
    Scenario {
        hosts: replicas,
        ranks_per_host: 1,
        tp: 1,
        pp: 1,
        dp: replicas,
        micro_batches: EACH,
        dp_bytes: 4096,
        ..Scenario::default()
    }
}

/// The same with a device on host 1 that takes so many times as long from a moment on.
fn slow(job: &Scenario, factor: f64, after_s: f64) -> Scenario {
    let fault = format!("gpu-power@host1,severity={factor},after={after_s}").parse().expect("a fault");
    Scenario { fault: Some(fault), ..job.clone() }
}

fn divided(job: &Scenario, micro_batches: &[u32]) -> Scenario {
    Scenario { life: Life { micro_batches: micro_batches.to_vec(), ..Life::default() }, ..job.clone() }
}

/// Median of the last iterations of a job, milliseconds.
fn iteration_ms(scenario: &Scenario) -> f64 {
    scenario.check().expect("a valid scenario");
    let mut took: Vec<f64> =
        Simulation::untold(scenario, 30).iter().map(|one| (one.ended - one.began) as f64 / 1e6).skip(10).collect();
    took.sort_by(f64::total_cmp);
    took[took.len() / 2]
}

/// FALCON 7.3, Figure 13: 55.3, 77.8 and 64.9 % of the slowdown removed for 2, 4 and 8 replicas, weak to severe.
#[test]
fn a_simulated_job_gains_what_its_division_promises() {
    for replicas in [2, 4, 8] {
        let healthy_ms = iteration_ms(&job(replicas));
        let mut removed = Vec::new();
        for factor in [1.3, 1.8, 2.5] {
            let ill = slow(&job(replicas), factor, 0.0);
            // All that is not a micro-batch: gradients, the optimizer, the turn to the next iteration.
            let fill_ns = ((healthy_ms - f64::from(EACH) * 30.0) * 1e6) as u64;
            let replica = |number: u32| Replica {
                fill_ns,
                each_ns: if number == 1 { (30e6 * factor) as u64 } else { 30_000_000 },
                limit: None,
            };
            let all: Vec<Replica> = (0..replicas).map(replica).collect();
            let best = split(&all, EACH * replicas).expect("a division");
            let (before_ms, after_ms) = (iteration_ms(&ill), iteration_ms(&divided(&ill, &best.micro_batches)));
            let share = |after_ms: f64| (before_ms - after_ms) / (before_ms - healthy_ms);
            let (seen, possible) = (share(after_ms), share(best.time_ns as f64 / 1e6));
            println!(
                "{replicas} replicas, {factor} x: {:?}, {before_ms:.0} to {after_ms:.0} ms of {healthy_ms:.0} healthy, {:.1} % removed, {:.1} % possible",
                best.micro_batches,
                100.0 * seen,
                100.0 * possible
            );
            assert!((seen - possible).abs() < 0.05, "{replicas} replicas, {factor} times: {seen} of {possible}");
            removed.push(100.0 * seen);
        }
        let mean = removed.iter().sum::<f64>() / removed.len() as f64;
        println!("{replicas} replicas: {mean:.1} % removed on average");
    }
}

fn asked(micro_batches: u32) -> Asked {
    Asked {
        tensor: 1,
        pipeline: 1,
        micro_batches,
        micro_batches_max: None,
        healthy_ms: None,
        gradients_ms: Some(20.0),
        activations_ms: 0.0,
        waits: Waits::EachIteration,
        costs: Costs { split_ns: NANOS_PER_SEC, ..Costs::PAPER },
        done: Strategy::Ignore,
        divided: Vec::new(),
        answered: None,
        spares: None,
        history: Vec::new(),
    }
}

/// From records to a faster job: the brain's own report of a slow device is planned for, and the plan is played.
#[test]
fn what_the_brain_saw_is_planned_and_the_job_is_faster() {
    let ill = Scenario { duration_s: 60.0, ..slow(&job(4), 1.8, 20.0) };
    let mut simulation = Simulation::new(&ill);
    let mut player = Player::new(TICK);
    while let Some(stretch) = simulation.next_stretch() {
        for delivery in stretch {
            player.deliver(HostTime(delivery.arrives_at), &delivery.batch);
        }
    }
    let report = player.finish(TAIL).pop_first().expect("one job").1.report;
    let known = known(&report, &asked(4 * EACH)).expect("all is known");
    assert_eq!(known.situation.suspects.first().map(|(host, _)| host.as_ref()), Some("host1"), "{:?}", known.assumed);
    let plan = plan(&known.situation).expect("the model fits");
    assert_eq!(lint(&plan, &known.situation), Vec::<String>::new());
    assert_eq!(plan.strategy, Strategy::Split, "{plan:?}");
    let always = slow(&job(4), 1.8, 0.0);
    let (healthy_ms, before_ms) = (iteration_ms(&job(4)), iteration_ms(&always));
    let after_ms = iteration_ms(&divided(&always, &plan.to.micro_batches));
    let removed = (before_ms - after_ms) / (before_ms - healthy_ms);
    println!("{:?}: {before_ms:.0} to {after_ms:.0} ms, healthy {healthy_ms:.0}", plan.to.micro_batches);
    assert!(removed > 0.6, "{removed} of the slowdown removed: {:?}", plan.to.micro_batches);
}
