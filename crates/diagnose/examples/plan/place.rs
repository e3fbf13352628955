//! Places: time of one search, what it gains, and whether nothing better exists.
use super::median;
use super::noise::Random;
use mycroft_diagnose::mitigate::place::{HEALTHY, Job, Pace, SlowPath, Waits};
use std::time::Instant;

/// Ranks, ranks of a host, pipeline stages.
const SIZES: [(usize, usize, usize); 7] =
    [(16, 1, 4), (64, 8, 2), (256, 8, 4), (1024, 8, 8), (2048, 8, 8), (4096, 8, 8), (10_240, 8, 16)];
const JOBS: u64 = 20;

/// A job with slow devices on one host in a hundred, and slow paths in one ring of a hundred hosts; at least one each.
fn job(ranks: usize, per_host: usize, stages: usize, waits: Waits, random: &mut Random) -> Job {
    let hosts = ranks / per_host;
    let columns = hosts / stages;
    let few = hosts.div_ceil(100);
    let mut paces = vec![Pace::HEALTHY; hosts];
    for _ in 0..few + random.number(0, 2) {
        paces[random.number(0, hosts)].compute = random.number(1100, 3000) as u32;
    }
    let path = |random: &mut Random| {
        let (stage, column) = (random.number(0, stages), random.number(0, columns));
        let ends = (stage * columns + column, stage * columns + (column + 1) % columns);
        SlowPath { ends, network: random.number(1500, 8 * HEALTHY as usize) as u32 }
    };
    let paths = (0..few).map(|_| path(random)).collect();
    // The first and last stage have an embedding and a loss beside their layers.
    let stage = |stage: usize| if stage == 0 || stage + 1 == stages { 110_000_000 } else { 100_000_000 };
    Job {
        stages_ns: (0..stages).map(stage).collect(),
        gradients_ns: vec![400_000_000; stages],
        activations_ns: 2_000_000,
        micro_batches: 2 * stages as u32,
        waits,
        hosts: paces,
        paths,
    }
}

/// The tables.
pub(crate) fn print(seed: u64) {
    println!("## Places (S3)\n");
    println!(
        "{JOBS} drawn jobs of each size: devices of one host in a hundred (at least one host) 1.1 to 3 times slower, paths between \
         neighbours of a ring, one for every hundred hosts, 1.5 to 8 times slower. An exchange of gradients takes as long as four \
         micro-batches of a stage. *Slowdown removed*: of what these faults cost where they are, by the model; what one slow device costs its own \
         pipeline no place can remove. *Proven*: no placement is faster. 16 ranks are of one rank a host, the others of eight.\n"
    );
    for (waits, title) in [
        (Waits::EachIteration, "Rows wait for each other once per iteration"),
        (Waits::EachMicroBatch, "Rows wait for each other in each micro-batch (the paper's assumption)"),
    ] {
        println!("### {title}\n");
        println!(
            "| ranks | hosts: stages x columns | ms: median, longest | proven | slowdown removed: median, least | hosts that move, median |"
        );
        println!("|---|---|---|---|---|---|");
        for (ranks, per_host, stages) in SIZES {
            println!("{}", row(ranks, per_host, stages, waits, seed));
        }
        println!();
    }
}

fn row(ranks: usize, per_host: usize, stages: usize, waits: Waits, seed: u64) -> String {
    let (mut took, mut removed, mut moved, mut proven) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for number in 0..JOBS {
        let job = job(ranks, per_host, stages, waits, &mut Random(seed + 1000 * ranks as u64 + number));
        let present: Vec<usize> = (0..job.hosts.len()).collect();
        let began = Instant::now();
        let Ok(placed) = job.place(&present) else { continue };
        took.push(began.elapsed().as_secs_f64() * 1e3);
        let healthy = Job { hosts: vec![Pace::HEALTHY; present.len()], paths: Vec::new(), ..job.clone() };
        let healthy_ns = healthy.iteration_ns(&present).unwrap_or(0);
        removed.push((placed.before_ns - placed.after_ns) as f64 / (placed.before_ns - healthy_ns) as f64);
        moved.push(placed.placement.iter().enumerate().filter(|(at, host)| at != *host).count() as f64);
        proven += u32::from(placed.is_exact);
    }
    let hosts = ranks / per_host;
    let (middle, gain, moved) = (median(&mut took), median(&mut removed), median(&mut moved));
    format!(
        "| {ranks} | {hosts}: {stages} x {} | {middle:.1}, {:.1} | {proven} of {JOBS} | {:.0} %, {:.0} % | {moved:.0} |",
        hosts / stages,
        took.last().copied().unwrap_or(f64::NAN),
        100.0 * gain,
        100.0 * removed.first().copied().unwrap_or(f64::NAN)
    )
}
