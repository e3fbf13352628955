//! `mycroft testbed overhead`: iteration time traced against untraced, in pairs, and the volume of the trace.
use crate::args::OverheadArgs;
use crate::live::{Live, Load, Options};
use crate::stop::Stop;
use crate::{EXIT_INTERRUPTED, EXIT_OK};
use anyhow::{Context, Result, bail};
use mycroft_sim::{Scenario, Transport};
use std::fmt::Write as _;

/// Student's t for a two-sided 95 % interval, by degrees of freedom 1 to 30.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// The 32-rank job of the paper's testbed (Mycroft section 7.1): TP 8 inside a host, PP 2 and DP 2 across.
fn scenario(seed: u64, seconds: f64) -> Scenario {
    Scenario {
        name: "overhead".to_owned(),
        hosts: 4,
        ranks_per_host: 8,
        tp: 8,
        pp: 2,
        dp: 2,
        tp_bytes: 32 << 10,
        dp_bytes: 256 << 10,
        duration_s: seconds,
        transport: Transport::Loopback,
        seed,
        ..Scenario::default()
    }
}

/// What a reader must know of the number.
const WHAT_IT_CONTAINS: &str = "
All ranks, agents and the server share this machine's cores, so the difference contains more than the callbacks
([callback.md](callback.md)): what the collective library itself does for a profiler (with kernel events on it wakes the
proxy thread of each communicator at every kernel's start and end, also inside a host), the agents' samples, and the
server's work. The promise of SPEC.md is about the job alone, on a host whose cores are not all taken.
";

/// Measures and prints; with `--write` also as Markdown.
pub(crate) fn overhead(args: &OverheadArgs) -> Result<u8> {
    if args.pairs < 2 {
        bail!("--pairs {}: a confidence interval needs at least 2", args.pairs);
    }
    if !(1.0..=86_400.0).contains(&args.seconds) {
        bail!("--seconds {}: expected 1 to 86400", args.seconds);
    }
    let stop = Stop::on_signals()?;
    let mut pairs = Vec::new();
    let mut volume = Vec::new();
    for pair in 0..args.pairs {
        let mut medians = [0.0; 2];
        // Every other pair runs in the other order, so that a drift of the machine favours neither.
        for turn in 0..2 {
            let traced = (turn == 0) == (pair % 2 == 0);
            let options = Options { untraced: !traced, ..Options::default() };
            let live = Live::start(scenario(u64::from(pair) + 1, args.seconds), options)?;
            let Some(load) = live.load(&stop)? else { return Ok(EXIT_INTERRUPTED) };
            let Load { iteration_ms_median, bytes_per_iteration_and_host } = load;
            medians[usize::from(!traced)] = iteration_ms_median;
            if traced {
                volume.push(bytes_per_iteration_and_host);
            }
        }
        let ratio = medians[0] / medians[1];
        eprintln!(
            "[{}/{}] traced {:.2} ms, untraced {:.2} ms, ratio {ratio:.4}",
            pair + 1,
            args.pairs,
            medians[0],
            medians[1]
        );
        pairs.push((medians[0], medians[1], ratio));
    }
    let text = render(&pairs, &volume, args);
    print!("{text}");
    if let Some(path) = &args.write {
        std::fs::write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(EXIT_OK)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn render(pairs: &[(f64, f64, f64)], volume: &[f64], args: &OverheadArgs) -> String {
    let ratios: Vec<f64> = pairs.iter().map(|pair| pair.2).collect();
    let n = ratios.len() as f64;
    let average = mean(&ratios);
    let variance = ratios.iter().map(|ratio| (ratio - average).powi(2)).sum::<f64>() / (n - 1.0);
    let t = T_95.get(ratios.len() - 2).copied().unwrap_or(1.96);
    let half = t * (variance / n).sqrt();
    let mut out = String::from("# Overhead\n\n");
    let _ = writeln!(
        out,
        "Made by `mycroft testbed overhead --pairs {} --seconds {}` (version {}, {} build): 32 ranks on 4 hosts (TP 8, PP 2, \
         DP 2), loopback, agents and server running in both halves of a pair, the tracer loaded in one.\n",
        args.pairs,
        args.seconds,
        env!("CARGO_PKG_VERSION"),
        if cfg!(debug_assertions) { "dev" } else { "release" },
    );
    out.push_str("| pair | traced ms | untraced ms | ratio |\n|---|---|---|---|\n");
    for (index, (traced, untraced, ratio)) in pairs.iter().enumerate() {
        let _ = writeln!(out, "| {} | {traced:.2} | {untraced:.2} | {ratio:.4} |", index + 1);
    }
    let _ = writeln!(
        out,
        "\nIteration time, traced over untraced: {:+.2} % with a 95 % confidence interval of {:+.2} % to {:+.2} %.\n",
        (average - 1.0) * 100.0,
        (average - half - 1.0) * 100.0,
        (average + half - 1.0) * 100.0,
    );
    let _ = writeln!(out, "Trace volume on the wire: {:.1} KB per iteration and host.", mean(volume) / 1000.0);
    out.push_str(WHAT_IT_CONTAINS);
    out
}
