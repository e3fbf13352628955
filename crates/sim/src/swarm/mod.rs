//! Scenarios by the thousand: a seed gives a job, its machines, its life and its faults. Even the options are drawn: each
//! is there with a probability of one half, so that scenarios differ in what they have and not only in numbers.
mod chance;
mod family;
mod fault;
mod load;
mod slow;
mod split;

use crate::cluster::{Cluster, Fabric};
use crate::life::Life;
use crate::random::Random;
use crate::scenario::{Algo, DpMode, Scenario, Schedule};
use chance::{between, coin, pick};
pub use family::Family;
use load::Load;
pub use slow::{share_out, slow_and_cost};
pub use split::split;

/// Operations per second that a rank may have, so that a run stays cheap.
const OPS_PER_SEC_MAX: f64 = 60.0;
/// Shortest and longest healthy iteration, seconds. The longest leaves room for a baseline and a slow end within 45 s.
const ITERATION_S: (f64, f64) = (0.3, 1.0);
/// The longest where several faults follow each other.
const COMPOUND_ITERATION_S: f64 = 0.6;
/// Models: hidden size and sequence length of known ones (FALCON's and Pulse's GPT-2, Llama, Mixtral).
const MODELS: [(f64, f64); 5] =
    [(2048.0, 2048.0), (4096.0, 2048.0), (5120.0, 4096.0), (8192.0, 4096.0), (8192.0, 8192.0)];
/// By how much bytes and bandwidths are smaller than real ones; their ratios are what matters.
const SCALE: f64 = 1.0 / 1024.0;
/// Bytes of an activation, bytes that a parameter's gradient moves as.
const ACTIVATION_BYTES: f64 = 2.0;
/// See [`ACTIVATION_BYTES`].
const GRADIENT_BYTES: f64 = 4.0;

/// A scenario that depends on its arguments only; `None`: a family is drawn as well. It passes [`Scenario::check`].
pub fn swarm(seed: u64, family: Option<Family>) -> Scenario {
    let mut chance = Random::stream(seed, 0x5A4A);
    let drawn = *pick(&mut chance, &Family::DRAWN);
    let family = family.unwrap_or(drawn);
    if family.is_measured() {
        return slow::draw(seed, family).0;
    }
    let mut scenario = Scenario { name: format!("{family}-{seed}"), seed, ..Scenario::default() };
    shape(&mut scenario, &mut chance);
    machines(&mut scenario, &mut chance);
    let longest_s = if family == Family::Compound { COMPOUND_ITERATION_S } else { ITERATION_S.1 };
    let iteration_s = work(&mut scenario, &mut chance, longest_s);
    life(&mut scenario, &mut chance, iteration_s);
    let load = Load::of(&scenario);
    fault::draw(&mut scenario, &mut chance, family, &load, iteration_s);
    scenario
}

/// Ranks, hosts and how the model is spread over them.
fn shape(scenario: &mut Scenario, chance: &mut Random) {
    let world = *pick(chance, &[64u32, 64, 64, 64, 64, 128, 128, 128, 128, 256, 256, 256, 512, 512, 1024]);
    scenario.ranks_per_host = *pick(chance, &[4, 8, 8, 8]);
    scenario.hosts = world / scenario.ranks_per_host;
    let (cp_on, pp_on, moe) = (coin(chance), coin(chance), coin(chance));
    scenario.tp = *pick(chance, &[1, 2, 4, scenario.ranks_per_host]);
    scenario.cp = if cp_on { *pick(chance, &[2, 2, 4]) } else { 1 };
    scenario.pp = if pp_on { *pick(chance, &[2, 4, 8]) } else { 1 };
    // At least two replicas: without them a job has no data-parallel operations.
    while scenario.tp * scenario.cp * scenario.pp * 2 > world {
        scenario.pp = (scenario.pp / 2).max(1);
    }
    scenario.dp = world / (scenario.tp * scenario.cp * scenario.pp);
    scenario.moe = moe;
    scenario.ep = if moe { *pick(chance, &[2, 4, 8]).min(&scenario.dp) } else { 0 };
    scenario.dp_mode = *pick(chance, &[DpMode::ReduceScatter, DpMode::AllReduce, DpMode::Fsdp]);
    scenario.algo = if coin(chance) { Algo::Tree } else { Algo::Ring };
    scenario.channels = *pick(chance, &[1, 2, 2, 4]);
    scenario.micro_batches = scenario.pp * *pick(chance, &[1, 2]);
    scenario.layers = *pick(chance, &[1, 2]);
    if scenario.pp > 1 && coin(chance) {
        scenario.schedule = Schedule::Interleaved;
        scenario.virtual_stages = 2;
        scenario.layers = 2;
    }
}

/// Hosts, NICs and the network between them. Spreads as in FALCON's Table 2, as far as they show from one operation to
/// the next.
fn machines(scenario: &mut Scenario, chance: &mut Random) {
    let per_host = scenario.ranks_per_host;
    let nics_per_host = if coin(chance) { *pick(chance, &[2, 4, per_host]) } else { 1 };
    let fabric = *pick(chance, &[Fabric::Single, Fabric::Rail, Fabric::SpineLeaf]);
    let clocks = coin(chance);
    scenario.cluster = Cluster {
        nics_per_host,
        fabric,
        hosts_per_leaf: *pick(chance, &[2, 4, 8]),
        oversubscription: if coin(chance) { between(chance, 1.2, 2.0) } else { 1.0 },
        latency_us: between(chance, 5.0, 50.0),
        rdma_spread: between(chance, 0.02, 0.1),
        nvlink_spread: between(chance, 0.005, 0.02),
        clock_offset_us: if clocks { between(chance, 10.0, 5_000.0) } else { 0.0 },
        clock_drift_ppm: if clocks { between(chance, 1.0, 50.0) } else { 0.0 },
        ..Cluster::default()
    };
}

/// Computation, message sizes after FALCON 9.2, and a network on which communication takes 10 to 40 % of an iteration.
/// Gives the length of a healthy iteration, seconds.
fn work(scenario: &mut Scenario, chance: &mut Random, longest_s: f64) -> f64 {
    simplify(scenario, longest_s * OPS_PER_SEC_MAX);
    let shortest_s = (load::operations(scenario) / OPS_PER_SEC_MAX).clamp(ITERATION_S.0, longest_s);
    let iteration_s = between(chance, shortest_s, longest_s);
    let share = between(chance, 0.1, 0.4);
    let (hidden, sequence) = *pick(chance, &MODELS);
    volumes(scenario, hidden, sequence);
    // Passes of a stage: its own micro-batches and the bubble.
    let passes = f64::from(scenario.layers * (scenario.micro_batches + scenario.pp - 1));
    let compute_ms = iteration_s * 1e3 * (1.0 - share);
    scenario.optimizer_ms = 0.05 * compute_ms;
    scenario.forward_ms = 0.95 * compute_ms / passes / 3.0;
    scenario.backward_ms = 2.0 * scenario.forward_ms;
    let load = Load::of(scenario);
    scenario.nic_bytes_per_sec = ((load.network_bytes() / (share * iteration_s)) as u64).max(1_000_000);
    let local = (load.local_bytes / (0.05 * iteration_s)) as u64;
    scenario.cluster.nvlink_bytes_per_sec = local.max(8 * scenario.nic_bytes_per_sec);
    scenario.cluster.copy_bytes_per_sec = (20 * scenario.nic_bytes_per_sec).max(2_000_000_000);
    iteration_s
}

/// Takes away what makes most operations until an iteration has no more than `most`.
fn simplify(scenario: &mut Scenario, most: f64) {
    while load::operations(scenario) > most {
        if scenario.schedule == Schedule::Interleaved {
            (scenario.schedule, scenario.virtual_stages) = (Schedule::OneFOneB, 1);
        } else if scenario.layers > 1 {
            scenario.layers -= 1;
        } else if scenario.micro_batches > scenario.pp.max(2) {
            scenario.micro_batches /= 2;
        } else if scenario.ep > 2 {
            scenario.ep /= 2;
        } else if scenario.dp_mode == DpMode::Fsdp {
            scenario.dp_mode = DpMode::ReduceScatter;
        } else if scenario.pp > 2 {
            scenario.pp /= 2;
            scenario.dp *= 2;
        } else {
            return;
        }
    }
}

/// FALCON 9.2 with a micro-batch of one sequence. Tensor parallelism: 4 AllReduces of s x h per layer and micro-batch, of
/// which a scenario has 2 of twice the size. Pipeline: s x h. Data: 12 h^2 parameters per layer over T. Experts: two
/// copies of the tokens. A scenario's layer stands for 10 of a model's.
fn volumes(scenario: &mut Scenario, hidden: f64, sequence: f64) {
    const LAYERS: f64 = 10.0;
    let tokens = sequence * hidden * ACTIVATION_BYTES * SCALE / f64::from(scenario.cp);
    let parameters = 12.0 * f64::from(scenario.layers) * LAYERS * hidden * hidden / f64::from(scenario.tp);
    let bytes = |size: f64| (size as u64).clamp(4096, 1 << 30) / 4 * 4;
    scenario.tp_bytes = bytes(2.0 * tokens);
    scenario.pp_bytes = bytes(tokens);
    scenario.dp_bytes = bytes(parameters * GRADIENT_BYTES * SCALE);
    scenario.ep_bytes = bytes(2.0 * tokens / f64::from(scenario.tp));
}

/// What a healthy job does besides training evenly.
fn life(scenario: &mut Scenario, chance: &mut Random, iteration_s: f64) {
    let mut life = Life::default();
    if coin(chance) {
        life.straggle_share = between(chance, 0.005, 0.02);
        life.straggle_factor = between(chance, 1.3, 2.0);
    }
    if coin(chance) {
        life.gc_every = 15 + chance.below(30) as u32;
        life.gc_ms = between(chance, 0.02, 0.15) * iteration_s * 1e3;
    }
    if coin(chance) {
        life.eval_every = 10 + chance.below(15) as u32;
        life.eval_micro_batches = 1 + chance.below(u64::from(scenario.micro_batches)) as u32;
    }
    if coin(chance) {
        life.sequence_imbalance = between(chance, 0.02, 0.15);
    }
    if scenario.moe && coin(chance) {
        life.routing_imbalance = between(chance, 0.05, 0.3);
    }
    if coin(chance) {
        life.first_connect_ms = between(chance, 200.0, 3000.0);
    }
    scenario.life = life;
    scenario.warm_up_iterations = 1 + chance.below(2) as u32;
    scenario.warm_up_factor = if coin(chance) { between(chance, 1.5, 3.0) } else { 1.0 };
    scenario.start_skew_ms = if coin(chance) { chance.below(1000) } else { 0 };
    scenario.loss_every = *pick(chance, &[0, 1, 4]);
    scenario.jitter = between(chance, 0.005, 0.03);
    if coin(chance) {
        scenario.checkpoint_every = 8 + chance.below(12) as u32;
        scenario.checkpoint_ms = 300 + chance.below(1200);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultKind;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn scenarios_of_two_thousand_seeds_are_sound() {
        let mut kinds: BTreeMap<FaultKind, u32> = BTreeMap::new();
        let (mut worlds, mut seconds) = (BTreeSet::new(), 0.0);
        for seed in 0..2_000 {
            let scenario = swarm(seed, None);
            scenario.check().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(scenario, swarm(seed, None));
            worlds.insert(scenario.world());
            let baseline = scenario.all_faults().map(|fault| fault.after_s).fold(f64::INFINITY, f64::min);
            let longest = if scenario.name.starts_with("compound") { 90.0 } else { 60.0 };
            assert!((25.0..=longest).contains(&scenario.duration_s), "seed {seed}: {} s", scenario.duration_s);
            seconds += scenario.duration_s;
            assert!(baseline > 12.0 * ITERATION_S.0, "seed {seed}: the first fault comes at {baseline} s");
            assert!(scenario.nic_bytes_per_sec < 1 << 40, "seed {seed}");
            for fault in scenario.all_faults() {
                *kinds.entry(fault.kind).or_default() += 1;
                assert!(fault.after_s + 4.0 < scenario.duration_s, "seed {seed}: {fault} comes too late");
            }
        }
        assert_eq!(worlds.into_iter().collect::<Vec<u32>>(), vec![64, 128, 256, 512, 1024]);
        assert!(seconds / 2_000.0 < 45.0, "{} s on average", seconds / 2_000.0);
        use FaultKind::{AllDevices, AllNics, HostIssue, NicReceive, NicSend, ProxySlow, SlowStorage, WanderingPauses};
        let only_slow = [HostIssue, ProxySlow, NicSend, NicReceive, AllDevices, AllNics, SlowStorage, WanderingPauses];
        let only_named = [FaultKind::JobEnded];
        assert_eq!(kinds.len() + only_named.len() + only_slow.len(), FaultKind::ALL.len(), "{kinds:?}");
        assert!(kinds.values().all(|count| *count >= 5), "{kinds:?}");
    }

    #[test]
    fn a_run_stays_cheap() {
        let mut most: f64 = 0.0;
        for seed in 0..500 {
            let scenario = swarm(seed, Some(Family::Healthy));
            let passes = f64::from(scenario.layers * (scenario.micro_batches + scenario.pp - 1));
            let compute_s = (passes * 3.0 * scenario.forward_ms + scenario.optimizer_ms) / 1e3;
            most = most.max(load::operations(&scenario) / compute_s);
        }
        // Computation is six tenths of an iteration at least.
        assert!(most < OPS_PER_SEC_MAX / 0.6 + 1.0, "{most}");
    }

    #[test]
    fn families_have_what_they_say() {
        for family in Family::ALL.into_iter().filter(|family| !family.is_measured()) {
            assert_eq!(family.to_string().parse::<Family>().unwrap(), family);
            for seed in 0..50 {
                let scenario = swarm(seed, Some(family));
                let of_job = scenario.all_faults().filter(|fault| fault.kind.is_of_job()).count();
                match family {
                    Family::Healthy => assert_eq!(of_job, 0),
                    Family::Compound => assert!(of_job >= 2, "{scenario:?}"),
                    Family::Slow | Family::Steady => unreachable!("they have tests of their own"),
                    Family::Infrastructure | Family::Endings => assert_eq!(scenario.all_faults().count(), 1),
                    _ => assert_eq!(of_job, 1),
                }
            }
        }
        assert!("x".parse::<Family>().unwrap_err().contains("flight-recorder"));
    }
}
