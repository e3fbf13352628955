//! The jobs of the slow families: shapes, lengths and what healthy ones of them do.
use super::cost::quiet;
use crate::cluster::{Cluster, Fabric};
use crate::engine::Simulation;
use crate::life::Life;
use crate::random::Random;
use crate::scenario::{Algo, DpMode, Scenario};
use crate::swarm::chance::{between, coin, log_between, pick};
use crate::swarm::load::{self, Load};

/// Shortest and longest healthy iteration, seconds.
const ITERATION_S: (f64, f64) = (0.01, 60.0);
/// Share of an iteration that is computation that nothing hides.
const COMPUTATION: (f64, f64) = (0.6, 0.8);
/// Longest operation, seconds: 10 GB over a NIC of 400 Gbit/s. An iteration is long because it has many, or because it computes.
const OPERATION_S: f64 = 0.2;
/// Records that a run of an ordinary length may make: what a core simulates and diagnoses in about a second.
const RECORDS_MAX: f64 = 800_000.0;
/// Seconds and iterations of a run by which its records are counted beforehand.
const USUAL: (f64, f64) = (45.0, 90.0);
/// The optimizer's share of computation.
const OPTIMIZER: f64 = 0.05;
/// A backward pass takes twice as long as a forward one.
const PASSES: f64 = 3.0;

/// Draws ranks, groups, machines and sizes; gives the length of a healthy iteration, seconds.
pub(super) fn draw(scenario: &mut Scenario, chance: &mut Random) -> f64 {
    let wanted_s = log_between(chance, ITERATION_S.0, ITERATION_S.1);
    groups(scenario, chance);
    machines(scenario, chance);
    sizes(scenario, chance);
    while records(scenario, wanted_s) > RECORDS_MAX && smaller(scenario) {}
    share_out(scenario, wanted_s, between(chance, COMPUTATION.0, COMPUTATION.1))
}

fn groups(scenario: &mut Scenario, chance: &mut Random) {
    scenario.ranks_per_host = *pick(chance, &[2, 4, 8, 8]);
    scenario.hosts = *pick(chance, &[4, 4, 8, 8, 16, 32]);
    let world = scenario.world();
    scenario.tp = *pick(chance, &[1, 1, 2, scenario.ranks_per_host]);
    scenario.pp = *pick(chance, &[1, 1, 2, 4]);
    scenario.cp = *pick(chance, &[1, 1, 1, 2]);
    while scenario.tp * scenario.cp * scenario.pp * 2 > world {
        scenario.pp = (scenario.pp / 2).max(1);
        scenario.cp = 1;
    }
    scenario.dp = world / (scenario.tp * scenario.cp * scenario.pp);
    scenario.moe = chance.below(6) == 0;
    scenario.ep = if scenario.moe { *pick(chance, &[2, 4]).min(&scenario.dp) } else { 0 };
    scenario.dp_mode = *pick(chance, &[DpMode::ReduceScatter, DpMode::AllReduce, DpMode::AllReduce, DpMode::Fsdp]);
    scenario.algo = *pick(chance, &[Algo::Ring, Algo::Tree]);
    scenario.channels = *pick(chance, &[1, 2, 4, 8, 16, 32]);
    // Without stages these are steps of gradient accumulation.
    scenario.micro_batches = scenario.pp * *pick(chance, &[1, 2, 4, 8]);
    scenario.layers = *pick(chance, &[1, 2, 4, 8]);
}

fn machines(scenario: &mut Scenario, chance: &mut Random) {
    let clocks = coin(chance);
    scenario.cluster = Cluster {
        nics_per_host: *pick(chance, &[1, 2, scenario.ranks_per_host]),
        fabric: *pick(chance, &[Fabric::Single, Fabric::Rail, Fabric::SpineLeaf]),
        hosts_per_leaf: *pick(chance, &[2, 4, 8]),
        oversubscription: if coin(chance) { between(chance, 1.2, 2.0) } else { 1.0 },
        latency_us: between(chance, 2.0, 10.0),
        rdma_spread: between(chance, 0.02, 0.1),
        nvlink_spread: between(chance, 0.005, 0.02),
        clock_offset_us: if clocks { between(chance, 10.0, 5_000.0) } else { 0.0 },
        clock_drift_ppm: if clocks { between(chance, 1.0, 20.0) } else { 0.0 },
        kernel_events: chance.below(6) > 0,
        protocols: coin(chance),
        ..Cluster::default()
    };
}

/// Bytes of messages, a thousandth of real ones, each factor as likely.
fn sizes(scenario: &mut Scenario, chance: &mut Random) {
    let bytes = |size: f64| (size as u64).clamp(4096, 1 << 28) / 4 * 4;
    let activation = log_between(chance, 16e3, 512e3);
    (scenario.tp_bytes, scenario.pp_bytes) = (bytes(activation), bytes(activation / 2.0));
    scenario.ep_bytes = bytes(activation / 2.0);
    scenario.dp_bytes = bytes(log_between(chance, 1e6, 64e6));
}

/// About how many records a run makes: ends of operations and flows, and what is in flight told again each second.
fn records(scenario: &Scenario, iteration_s: f64) -> f64 {
    let operations = load::operations(scenario);
    let far = load::far_operations(scenario);
    let flows = 2.0 * f64::from(scenario.channels);
    let (seconds, iterations) = (USUAL.0.max(USUAL.1 * iteration_s), USUAL.1.max(USUAL.0 / iteration_s));
    let of_rank = iterations * (operations + 1.5 * far * flows) + seconds * (3.0 + 0.5 * operations);
    f64::from(scenario.world()) * of_rank
}

/// Takes away what makes most records; `false`: there is nothing more to take.
fn smaller(scenario: &mut Scenario) -> bool {
    let halves_dp = scenario.dp >= 4 && scenario.dp.is_multiple_of(2) && scenario.hosts > 4;
    if scenario.layers > 2 && scenario.layers >= scenario.micro_batches {
        scenario.layers /= 2;
    } else if halves_dp {
        (scenario.dp, scenario.hosts) = (scenario.dp / 2, scenario.hosts / 2);
        scenario.ep = scenario.ep.min(scenario.dp);
    } else if scenario.micro_batches > scenario.pp.max(1) {
        scenario.micro_batches /= 2;
    } else if scenario.layers > 1 {
        scenario.layers /= 2;
    } else if scenario.channels > 8 {
        scenario.channels /= 2;
    } else if scenario.ep > 2 {
        scenario.ep = 2;
    } else if scenario.dp_mode == DpMode::Fsdp {
        scenario.dp_mode = DpMode::AllReduce;
    } else if scenario.cp > 1 {
        (scenario.dp, scenario.cp) = (scenario.dp * scenario.cp, 1);
    } else if scenario.tp > 1 && scenario.pp > 1 {
        (scenario.dp, scenario.pp) = (scenario.dp * scenario.pp, 1);
        scenario.micro_batches = 1;
    } else if scenario.moe {
        (scenario.moe, scenario.ep) = (false, 0);
    } else if scenario.ranks_per_host > 4 && scenario.tp < scenario.ranks_per_host && scenario.dp >= 4 {
        (scenario.dp, scenario.ranks_per_host) = (scenario.dp / 2, scenario.ranks_per_host / 2);
        scenario.cluster.nics_per_host = scenario.cluster.nics_per_host.min(scenario.ranks_per_host);
    } else if scenario.channels > 1 {
        scenario.channels /= 2;
    } else {
        return false;
    }
    true
}

/// Shares an iteration of about `iteration_s` out: `computation` of it, or more where the rest would make one operation longer
/// than any is, is computation that nothing hides, the rest is communication, by the simulator's own measure. Gives how long an iteration takes then, seconds.
pub fn share_out(scenario: &mut Scenario, iteration_s: f64, computation: f64) -> f64 {
    let longest_s = OPERATION_S / load::largest_share(scenario).max(f64::EPSILON);
    let wanted_s = ((1.0 - computation) * iteration_s).min(longest_s);
    (scenario.forward_ms, scenario.backward_ms, scenario.optimizer_ms) = (0.0, 0.0, 0.0);
    let network = Load::of(scenario).network_bytes();
    let mut per_sec = network / wanted_s;
    let mut communication_s = wanted_s;
    for _ in 0..4 {
        speeds(scenario, per_sec, wanted_s);
        communication_s = communication(scenario);
        let off = communication_s / wanted_s;
        if network == 0.0 || (off - 1.0).abs() < 0.03 {
            break;
        }
        // What does not depend on bytes cannot be made faster: at most so much at a time.
        per_sec *= off.clamp(0.2, 5.0);
    }
    // Where it takes longer than it should, whatever the speed, the iteration does too.
    let whole_s = iteration_s.max(communication_s / (1.0 - computation));
    let compute_ms = 1e3 * (whole_s - communication_s);
    let passes = f64::from(scenario.layers * (scenario.micro_batches + scenario.pp - 1));
    scenario.optimizer_ms = OPTIMIZER * compute_ms;
    scenario.forward_ms = (1.0 - OPTIMIZER) * compute_ms / passes / PASSES;
    scenario.backward_ms = (PASSES - 1.0) * scenario.forward_ms;
    whole_s
}

fn speeds(scenario: &mut Scenario, per_sec: f64, communication_s: f64) {
    scenario.nic_bytes_per_sec = (per_sec as u64).clamp(1_000_000, 1 << 42);
    let local = Load::of(scenario).local_bytes / (0.2 * communication_s);
    scenario.cluster.nvlink_bytes_per_sec = (local as u64).max(8 * scenario.nic_bytes_per_sec);
    scenario.cluster.copy_bytes_per_sec = (20 * scenario.nic_bytes_per_sec).max(2_000_000_000);
}

/// An iteration without computation, seconds.
fn communication(scenario: &Scenario) -> f64 {
    let iterations = Simulation::untold(&quiet(scenario, 600.0), 4);
    let (first, last) = (iterations.get(1), iterations.last());
    first.zip(last).map_or(1e-3, |(first, last)| {
        let count = (iterations.len() - 1).max(1) as f64;
        (last.ended - first.began) as f64 / 1e9 / count
    })
}

/// What healthy jobs of these shapes do besides training evenly.
pub(super) fn life(scenario: &mut Scenario, chance: &mut Random, iteration_s: f64) {
    let mut life = Life::default();
    if coin(chance) {
        life.straggle_share = between(chance, 0.002, 0.01);
        life.straggle_factor = between(chance, 1.2, 2.0);
    }
    if coin(chance) {
        life.gc_every = 20 + chance.below(60) as u32;
        life.gc_ms = (log_between(chance, 0.02, 1.0) * iteration_s * 1e3).min(2_500.0);
    }
    if coin(chance) {
        life.eval_every = 15 + chance.below(35) as u32;
        life.eval_micro_batches = 1 + chance.below(2 * u64::from(scenario.micro_batches)) as u32;
    }
    if chance.below(3) == 0 {
        life.sequence_imbalance = log_between(chance, 0.02, 0.4);
    }
    if !scenario.moe && chance.below(3) == 0 {
        life.size_classes = *pick(chance, &[2, 4, 8]);
        life.size_spread = log_between(chance, 0.02, 0.3);
    }
    if scenario.moe && coin(chance) {
        life.routing_imbalance = between(chance, 0.05, 0.3);
    }
    if scenario.pp > 1 && coin(chance) {
        life.last_stage = between(chance, 0.05, 0.4);
    }
    if coin(chance) {
        life.first_connect_ms = between(chance, 200.0, 3000.0);
    }
    scenario.life = life;
    scenario.warm_up_iterations = 1 + chance.below(4) as u32;
    scenario.warm_up_factor = if coin(chance) { between(chance, 1.2, 3.0) } else { 1.0 };
    scenario.start_skew_ms = *pick(chance, &[0, 0, 500, 2_000, 30_000]);
    scenario.loss_every = *pick(chance, &[0, 1, 4]);
    scenario.jitter = log_between(chance, 0.002, 0.05);
    if chance.below(3) == 0 {
        scenario.checkpoint_every = 20 + chance.below(40) as u32;
        scenario.checkpoint_ms = (log_between(chance, 0.3, 10.0) * iteration_s * 1e3).clamp(50.0, 30_000.0) as u64;
    }
}
