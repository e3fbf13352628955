//! Where the time of simulated jobs goes: the parts are the iteration, and who is slow takes what the others wait.
use mycroft_diagnose::{Config, Engine, Measured, Part, Stretch};
use mycroft_record::HostTime;
use mycroft_serve::TICK;
use mycroft_sim::{Family, Scenario, Simulation, swarm};

/// What an engine measures of a job, looking every tick as a server would, and the true iterations: begin and end,
/// nanoseconds.
fn measured(scenario: &Scenario) -> (Vec<Measured>, Vec<(u64, u64)>) {
    let mut simulation = Simulation::new(scenario);
    let mut engine = Engine::new("job".into(), Config::default());
    let tick_ns = TICK.as_nanos() as u64;
    let (mut next_tick, mut all) = (None, Vec::new());
    while let Some(stretch) = simulation.next_stretch() {
        for delivery in stretch {
            let now = next_tick.get_or_insert(HostTime(delivery.arrives_at + tick_ns));
            while now.0 <= delivery.arrives_at {
                engine.tick(*now);
                all.push(engine.take_measured());
                *now = *now + tick_ns;
            }
            engine.observe(&delivery.batch);
        }
    }
    let truth = simulation.iterations().iter().map(|one| (one.began, one.ended)).collect();
    (all, truth)
}

fn mean_ms(stretch: &Stretch) -> f64 {
    stretch.iterations.iter().map(|(_, ms)| ms).sum::<f64>() / stretch.iterations.len() as f64
}

/// The sum of a rank's parts is the iteration, and computation and issue alone, which nothing was cut from, are no more.
#[test]
fn parts_and_waiting_are_the_iteration() {
    let families = [Family::Healthy, Family::Slow, Family::Pulse];
    let (mut cells, mut waits) = (0, 0);
    for (seed, family) in (0..3).flat_map(|seed| families.map(|family| (seed, family))) {
        let scenario = swarm(seed, Some(family));
        let (all, _) = measured(&scenario);
        for stretch in all.iter().flat_map(|measured| &measured.stretches) {
            let iteration_ms = mean_ms(stretch);
            for spent in stretch.ranks.iter().flatten() {
                let sum: f64 = spent.exposed_ms.iter().map(|ms| f64::from(*ms)).sum();
                assert!((sum / iteration_ms - 1.0).abs() < 0.01, "{}: {spent:?} of {iteration_ms}", scenario.name);
                let alone = f64::from(spent.took_ms[0] + spent.took_ms[1]);
                assert!(alone <= 1.01 * iteration_ms, "{}: {spent:?} of {iteration_ms}", scenario.name);
                waits += usize::from(spent.exposed_ms[Part::OWN] > 0.0);
                cells += 1;
            }
        }
    }
    assert!(cells > 1_000 && waits * 10 > cells * 9, "{waits} of {cells} wait: the parts leave room");
}

/// A device that is slow from the first second on: iterations are as long as the simulator made them, its rank computes longer
/// than the others, and these wait for as long.
#[test]
fn who_is_slow_takes_what_the_others_wait() {
    let fault = "gpu-power@host1:rank3,severity=1.8,after=0".parse().expect("a fault");
    let slow = Scenario {
        hosts: 4,
        ranks_per_host: 2,
        tp: 1,
        pp: 1,
        dp: 8,
        duration_s: 30.0,
        fault: Some(fault),
        ..Scenario::default()
    };
    slow.check().expect("a valid scenario");
    let (all, truth) = measured(&slow);
    let stretches: Vec<&Stretch> = all.iter().flat_map(|measured| &measured.stretches).collect();
    assert!(stretches.len() > 10, "{} stretches of 30 s", stretches.len());
    let seen_ms = stretches.iter().map(|stretch| mean_ms(stretch)).sum::<f64>() / stretches.len() as f64;
    let true_ms = truth.iter().skip(3).map(|(began, ended)| (ended - began) as f64 / 1e6).sum::<f64>();
    let true_ms = true_ms / (truth.len() - 3) as f64;
    assert!((seen_ms / true_ms - 1.0).abs() < 0.01, "{seen_ms} ms measured, {true_ms} ms simulated");
    let ranks = &all.iter().find(|measured| !measured.ranks.is_empty()).expect("measured").ranks;
    let mean = |slot: usize, part: Part| {
        let known: Vec<f64> = stretches
            .iter()
            .filter_map(|stretch| Some(f64::from(stretch.ranks[slot]?.exposed_ms[part as usize])))
            .collect();
        known.iter().sum::<f64>() / known.len() as f64
    };
    let slots = |is_slow: bool| (0..ranks.len()).filter(move |slot| (ranks[*slot].rank.0 == 3) == is_slow);
    let slow = slots(true).next().expect("rank 3");
    let more_ms = mean(slow, Part::Computation) - mean(0, Part::Computation);
    assert!(more_ms > 0.1 * true_ms, "{more_ms} of {true_ms} ms");
    // In the same place of other hosts: who sends out of its host has the wire's time too.
    for other in slots(false).filter(|slot| ranks[*slot].rank.0 % 2 == 1) {
        let waits_ms = mean(other, Part::Waiting) - mean(slow, Part::Waiting);
        assert!((waits_ms - more_ms).abs() < 0.05 * true_ms, "slot {other} waits {waits_ms} ms of {more_ms}");
    }
}
