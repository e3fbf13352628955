//! How a job is split among its ranks shows in what its communicators do, though none has a name: drawn layouts, played by
//! the simulator (Pulse, section 5.2).
use mycroft_diagnose::{Config, Engine, Parallelism, Split};
use mycroft_record::{HostTime, Record};
use mycroft_serve::TICK;
use mycroft_sim::{DpMode, GroupKind, Random, Scenario, Schedule, Simulation};
use std::collections::BTreeMap;

/// Of at most so many ranks.
const RANKS_MAX: u64 = 512;
/// Layouts of each of two tests, unless `MYCROFT_LAYOUTS` says how many: 100 take minutes.
const LAYOUTS: u64 = 15;

/// One of a few numbers.
fn one_of<const N: usize>(draw: &mut Random, of: [u32; N]) -> u32 {
    of[draw.below(N as u64) as usize]
}

fn drawn(seed: u64) -> Scenario {
    let mut draw = Random::stream(seed, 0x1A_70_07);
    let (tp, cp, pp, dp) = loop {
        let tp = one_of(&mut draw, [1, 1, 2, 4, 8]);
        let cp = one_of(&mut draw, [1, 1, 1, 2, 4]);
        let pp = one_of(&mut draw, [1, 1, 2, 3, 4, 8]);
        let dp = one_of(&mut draw, [1, 2, 3, 4, 6, 8, 16, 32]);
        let world = u64::from(tp * cp * pp * dp);
        if (2..=RANKS_MAX).contains(&world) {
            break (tp, cp, pp, dp);
        }
    };
    let world = tp * cp * pp * dp;
    let ranks_per_host = (1..=8).rev().find(|ranks| world % ranks == 0).unwrap_or(1);
    let moe = dp > 1 && draw.below(3) == 0;
    let ep = if moe { (2..=dp).rev().filter(|ep| dp % ep == 0).nth(draw.below(2) as usize).unwrap_or(dp) } else { 0 };
    let dp_mode = [DpMode::AllReduce, DpMode::ReduceScatter, DpMode::Fsdp][draw.below(3) as usize];
    let is_interleaved = pp > 1 && draw.below(4) == 0;
    let layers = if is_interleaved { 2 } else { 1 + draw.below(3) as u32 };
    let life = mycroft_sim::Life { size_classes: one_of(&mut draw, [0, 0, 3]), size_spread: 0.1, ..Default::default() };
    Scenario {
        name: format!("tp{tp} cp{cp} pp{pp} dp{dp} ep{ep} {dp_mode:?} layers {layers} of {}", life.size_classes),
        hosts: world / ranks_per_host,
        ranks_per_host,
        tp,
        cp,
        pp,
        dp,
        moe,
        ep,
        dp_mode,
        layers,
        life,
        schedule: if is_interleaved { Schedule::Interleaved } else { Schedule::OneFOneB },
        virtual_stages: if is_interleaved { 2 } else { 1 },
        micro_batches: pp * (1 + draw.below(2) as u32),
        tp_bytes: 1 << (16 + draw.below(3)),
        pp_bytes: 1 << (15 + draw.below(3)),
        dp_bytes: 1 << (20 + draw.below(3)),
        warm_up_iterations: 0,
        checkpoint_every: 0,
        forward_ms: 2.0,
        backward_ms: 4.0,
        nic_bytes_per_sec: 2_000_000_000,
        duration_s: 10.0,
        seed,
        ..Scenario::default()
    }
}

/// What a server that no name tells anything says of it at its end.
fn told(scenario: &Scenario) -> Vec<Split> {
    let mut engine = Engine::new("job".into(), Config::default());
    let mut simulation = Simulation::new(scenario);
    let (tick_ns, mut next) = (TICK.as_nanos() as u64, 0);
    while let Some(stretch) = simulation.next_stretch() {
        for mut delivery in stretch {
            if delivery.arrives_at > next {
                next = delivery.arrives_at + tick_ns;
                engine.tick(HostTime(delivery.arrives_at));
            }
            for record in &mut delivery.batch.records {
                if let Record::CommInit(init) = record {
                    init.name = "".into();
                }
            }
            engine.observe(&delivery.batch);
        }
    }
    engine.report(HostTime(next)).layout
}

fn is(scenario: &Scenario) -> Vec<Split> {
    let mut counts: BTreeMap<(Parallelism, u32, u32), u64> = BTreeMap::new();
    for group in scenario.layout().groups() {
        let of = match group.kind {
            GroupKind::Tensor => Parallelism::Tensor,
            GroupKind::Pipeline => Parallelism::Pipeline,
            GroupKind::Data => Parallelism::Data,
            GroupKind::Expert => Parallelism::Expert,
            GroupKind::Context => Parallelism::Context,
        };
        *counts.entry((of, group.ranks.len() as u32, group.ranks[1] - group.ranks[0])).or_default() += 1;
    }
    counts.into_iter().map(|((of, ranks, apart), groups)| Split { of, ranks, apart, groups }).collect()
}

/// No word is wrong, and all is told of nearly all.
fn right(from: u64) {
    let said = std::env::var("MYCROFT_LAYOUTS").ok().and_then(|said| said.parse().ok());
    let count = said.unwrap_or(LAYOUTS);
    let (mut wrong, mut untold) = (Vec::new(), Vec::new());
    for scenario in (from..from + count).map(drawn) {
        let (told, is) = (told(&scenario), is(&scenario));
        let line = format!("{} ({}): {told:?}, is {is:?}", scenario.seed, scenario.name);
        let names = |splits: &[Split]| -> BTreeMap<(u32, u32), Vec<Parallelism>> {
            let mut names: BTreeMap<(u32, u32), Vec<Parallelism>> = BTreeMap::new();
            splits.iter().for_each(|split| names.entry((split.ranks, split.apart)).or_default().push(split.of));
            names
        };
        let truth = names(&is);
        let is_true = |(shape, of): (&(u32, u32), &Vec<Parallelism>)| {
            truth.get(shape).is_some_and(|truth| of.iter().all(|of| truth.contains(of)))
        };
        if !names(&told).iter().all(is_true) {
            wrong.push(line);
        } else if told != is {
            untold.push(line);
        }
    }
    println!("{} wrong, {} not whole, of {count}", wrong.len(), untold.len());
    println!("{}\n{}", wrong.join("\n"), untold.join("\n"));
    assert!(wrong.is_empty());
    assert!(10 * untold.len() as u64 <= count);
}

#[test]
fn a_job_without_names_tells_how_it_is_split() {
    right(1000);
}

#[test]
fn another_job_without_names_tells_how_it_is_split() {
    right(1100);
}
