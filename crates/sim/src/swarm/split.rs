//! Jobs without a fault that are split among their ranks in all ways: who tells what communicators are for is asked about these.
use crate::{DpMode, Life, Random, Scenario, Schedule};

/// Of at most so many ranks: Pulse, section 5.2, as SPEC.md promises it.
const RANKS_MAX: u64 = 512;

/// One of a few numbers.
fn one_of<const N: usize>(draw: &mut Random, of: [u32; N]) -> u32 {
    of[draw.below(N as u64) as usize]
}

/// A job of 2 to 512 ranks, as many to a host as go without a rest, 8 at most: tensor, context, pipeline, data and expert parallel,
/// with and without interleaved stages. It computes for some milliseconds and lasts 10 s. The same seed gives the same job.
pub fn split(seed: u64) -> Scenario {
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
    let life = Life { size_classes: one_of(&mut draw, [0, 0, 3]), size_spread: 0.1, ..Default::default() };
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
