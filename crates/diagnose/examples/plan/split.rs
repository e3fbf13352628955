//! Micro-batches: time of one division, and what it gains.
use super::median;
use super::noise::Random;
use mycroft_diagnose::mitigate::split::{Replica, even, split};
use std::hint::black_box;
use std::time::Instant;

/// Groups, and FALCON's Table 6 in seconds.
const SIZES: [(usize, Option<f64>); 7] = [
    (8, None),
    (16, Some(0.01)),
    (32, Some(0.01)),
    (64, Some(0.01)),
    (128, Some(0.11)),
    (256, Some(6.78)),
    (512, Some(35.93)),
];
/// Micro-batches of each group in an even split.
const EACH: u32 = 16;
/// Jobs of each size, and rounds of each.
const JOBS: u64 = 50;
const ROUNDS: usize = 21;

/// Replicas of some 100 ms a micro-batch that differ by 1 %, one in twenty (and at least one) 1.1 to 3 times slower.
fn replicas(groups: usize, stages: usize, random: &mut Random) -> Vec<Replica> {
    let slow = random.number(0, groups);
    let replica = |index: usize, random: &mut Random| {
        let is_slow = index == slow || random.number(0, 20) == 0;
        let factor = if is_slow { random.between(1.1, 3.0) } else { 1.0 };
        let odd = random.number(0, stages);
        let stage = |stage: usize, random: &mut Random| {
            let own = 1e8 * (1.0 + 0.01 * random.normal());
            (if stage == odd { own * factor } else { own }) as u64
        };
        let stages: Vec<u64> = (0..stages).map(|index| stage(index, random)).collect();
        Replica::pipeline(&stages)
    };
    (0..groups).map(|index| replica(index, random)).collect()
}

/// The table.
pub(crate) fn print(seed: u64) {
    println!("## Micro-batches (S2)\n");
    println!(
        "{JOBS} drawn jobs of each size, {EACH} micro-batches a group, {ROUNDS} rounds each; one group in twenty is 1.1 to 3 times \
         slower. *Slowdown removed*: of what the slow groups cost with an even split against none slow. The last columns are pipelines \
         of 8 stages of which one is slow.\n"
    );
    println!(
        "| groups | FALCON's Table 6, s | ours, ms: median, longest | slowdown removed, median | pipelines, ms: median, longest | slowdown removed, median |"
    );
    println!("|---|---|---|---|---|---|");
    for (groups, paper) in SIZES {
        let paper = paper.map_or("-".to_owned(), |seconds| format!("{seconds}"));
        println!("| {groups} | {paper} | {} | {} |", row(groups, 1, seed), row(groups, 8, seed));
    }
    println!();
}

fn row(groups: usize, stages: usize, seed: u64) -> String {
    let (mut took, mut removed) = (Vec::new(), Vec::new());
    for job in 0..JOBS {
        let mut random = Random(seed + 1000 * groups as u64 + job);
        let replicas = replicas(groups, stages, &mut random);
        let batch = EACH * groups as u32;
        let rounds = (0..ROUNDS).map(|_| {
            let began = Instant::now();
            let _ = black_box(split(black_box(&replicas), batch));
            began.elapsed().as_secs_f64() * 1e3
        });
        took.push(median(&mut rounds.collect::<Vec<f64>>()));
        let (Ok(before), Ok(after)) = (even(&replicas, batch), split(&replicas, batch)) else { continue };
        let mut healthy: Vec<f64> = replicas.iter().map(|replica| replica.time_ns(EACH) as f64).collect();
        let healthy = median(&mut healthy);
        removed.push((before.time_ns - after.time_ns) as f64 / (before.time_ns as f64 - healthy));
    }
    let (middle, removed) = (median(&mut took), median(&mut removed));
    format!("{middle:.3}, {:.3} | {:.0} %", took.last().copied().unwrap_or(f64::NAN), 100.0 * removed)
}

/// A run of which a solver's own answer is known.
pub(crate) fn print_run(args: &[String]) {
    let [times, micro_batches, theirs] = args else { return };
    let numbers = |text: &str| -> Vec<f64> { text.split(',').filter_map(|number| number.parse().ok()).collect() };
    let (times, theirs) = (numbers(times), numbers(theirs));
    let replicas: Vec<Replica> = times.iter().map(|ms| Replica::single((ms * 1e6).round() as u64)).collect();
    let Ok(found) = split(&replicas, micro_batches.parse().unwrap_or(0)) else { return };
    let slowest = |counts: &[f64]| times.iter().zip(counts).map(|(time, count)| time * count).fold(0.0, f64::max);
    let ours: Vec<f64> = found.micro_batches.iter().map(|count| f64::from(*count)).collect();
    let variance = |counts: &[f64]| {
        let all: Vec<f64> = times.iter().zip(counts).map(|(time, count)| time * count).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        all.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / all.len() as f64
    };
    println!(
        "GREYHOUND's own run: 4 devices, one clocked down, {times:?} ms per micro-batch, {micro_batches} micro-batches. Its solver took \
         {theirs:.0?}: slowest {:.0} ms, standard deviation {:.0} ms. Ours {ours:.0?}: {:.0} ms, {:.0} ms.\n",
        slowest(&theirs),
        variance(&theirs).sqrt(),
        slowest(&ours),
        variance(&ours).sqrt()
    );
}
