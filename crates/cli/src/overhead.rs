//! `mycroft testbed overhead`: iteration time traced against untraced, in rounds, and the volume of the trace.
use crate::args_testbed::OverheadArgs;
use crate::exit::{EXIT_INTERRUPTED, EXIT_OK};
use crate::live::{Live, Load, Options, Program};
use crate::stop::Stop;
use crate::switched::{Block, PAIRS_MIN, changes, interval, median};
use anyhow::{Context, Result, bail};
use mycroft_sim::{Scenario, Transport};
use mycroft_testbed::{Awake, Tracer};
use std::fmt::Write as _;

/// Student's t for a two-sided 95 % interval, by degrees of freedom 1 to 30.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// With 8 ranks per host the 32-rank job of the paper's testbed (Mycroft section 7.1): TP 8 inside a host, PP 2 and DP 2
/// across. With fewer, the same with smaller tensor-parallel groups. Ranks compute for the same time again and again: what
/// chance adds to an iteration would have to be outnumbered.
fn scenario(seed: u64, args: &OverheadArgs) -> Scenario {
    Scenario {
        name: "overhead".to_owned(),
        hosts: 4,
        ranks_per_host: args.ranks_per_host,
        tp: args.ranks_per_host,
        pp: 2,
        dp: 2,
        tp_bytes: 32 << 10,
        dp_bytes: 256 << 10,
        duration_s: args.seconds,
        transport: Transport::Loopback,
        jitter: 0.0,
        seed,
        ..Scenario::default()
    }
}

/// The job that is measured, and what its ranks run if it is not the testbed's own.
fn job(seed: u64, args: &OverheadArgs) -> Result<(Scenario, Option<Program>)> {
    let Some(program) = &args.torch else { return Ok((scenario(seed, args), None)) };
    let (scenario, program) = crate::torch::healthy_job(program, args.ranks_per_host, args.seconds)?;
    Ok((Scenario { seed, ..scenario }, Some(program)))
}

/// What a reader must know of the numbers.
const WHAT_IT_CONTAINS: &str = "
All ranks, agents and the server share this machine's cores, so the difference contains more than the callbacks
([callback.md](callback.md)): the agents' samples, the server's work, and what the collective library itself does for any
profiler plugin. The empty plugin asks for the same events and does nothing with them; a ratio beside it leaves the
library's own share out. The promise of SPEC.md is about the job alone, on a host whose cores are not all taken.
";

/// The same of blocks within a job.
const WHAT_SWITCHING_CONTAINS: &str = "
Of each pair of neighbouring blocks one has profiler events and one has none, by turns the first; the first iteration of a
block is left out. The plugin is loaded and attached in both: what is compared is what events cost, from the collective
library's calls to whatever reads them. Agents and server, where they run, share the machine's cores with the job. The
change is the Hodges-Lehmann estimate over the pairs, its interval that of Wilcoxon's signed-rank test. Processor time is that
of all threads of a rank, the mean over the ranks.
";

/// What the job's NCCL loads in one run of a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Arm {
    Untraced,
    Empty,
    Traced,
}

impl Arm {
    fn as_str(self) -> &'static str {
        match self {
            Arm::Untraced => "untraced",
            Arm::Empty => "empty plugin",
            Arm::Traced => "traced",
        }
    }
}

/// Median iteration time of each arm in one round, milliseconds, in the order of `arms`.
type Round = Vec<f64>;

/// Measures and prints; with `--write` also as Markdown.
pub(crate) fn overhead(args: &OverheadArgs) -> Result<u8> {
    if args.rounds < 2 && args.switch_every.is_none() {
        bail!("--rounds {}: a confidence interval needs at least 2", args.rounds);
    }
    if !(1.0..=86_400.0).contains(&args.seconds) {
        bail!("--seconds {}: expected 1 to 86400", args.seconds);
    }
    if !(1..=16).contains(&args.ranks_per_host) {
        bail!("--ranks-per-host {}: expected 1 to 16", args.ranks_per_host);
    }
    if let Some(path) = &args.empty_plugin
        && !path.is_file()
    {
        bail!("--empty-plugin {}: no such file", path.display());
    }
    if args.switch_every.is_some_and(|every| !(2..=1000).contains(&every)) {
        bail!("--switch-every: expected 2 to 1000 iterations, of which the first is left out");
    }
    let stop = Stop::on_signals()?;
    let awake = args.keep_awake.then(Awake::start).transpose();
    let _awake = awake.context("--keep-awake: cannot run loops at idle priority (leave it out to measure without)")?;
    let mut arms = vec![Arm::Traced];
    arms.extend(args.switch_every.is_none().then_some(Arm::Untraced));
    arms.extend(args.empty_plugin.is_some().then_some(Arm::Empty));
    arms.sort_unstable();
    let mut rounds: Vec<Round> = Vec::new();
    let mut volume = Vec::new();
    // Of each arm the blocks of each run: pairs do not reach from one run to the next.
    let mut runs: Vec<Vec<Vec<Block>>> = vec![Vec::new(); arms.len()];
    for round in 0..args.rounds {
        let mut medians = vec![0.0; arms.len()];
        // The order turns from round to round, so that a drift of the machine favours no arm.
        for turn in 0..arms.len() {
            let index = (turn + round as usize) % arms.len();
            let tracer = match (arms[index], &args.empty_plugin) {
                (Arm::Traced, _) => Tracer::Found,
                (Arm::Empty, Some(path)) => Tracer::At(path.clone()),
                _ => Tracer::Off,
            };
            let (switch_every, no_agents) = (args.switch_every.unwrap_or(0), args.no_agents);
            let (scenario, program) = job(u64::from(round) + 1, args)?;
            let options = Options { tracer, switch_every, no_agents, program, ..Options::default() };
            let Some(load) = Live::start(scenario, options)?.load(&stop)? else { return Ok(EXIT_INTERRUPTED) };
            let Load { iteration_ms_median, bytes_per_iteration_and_host, blocks } = load;
            medians[index] = iteration_ms_median;
            runs[index].push(blocks);
            if arms[index] == Arm::Traced {
                volume.push(bytes_per_iteration_and_host);
            }
        }
        let shown: Vec<String> =
            arms.iter().zip(&medians).map(|(arm, ms)| format!("{} {ms:.2} ms", arm.as_str())).collect();
        eprintln!("[{}/{}] {}", round + 1, args.rounds, shown.join(", "));
        rounds.push(medians);
    }
    let text = match args.switch_every {
        Some(every) => render_switched(&arms, &runs, every, args)?,
        None => render(&arms, &rounds, &volume, args),
    };
    print!("{text}");
    if let Some(path) = &args.write {
        std::fs::write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(EXIT_OK)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Mean of ratios as a change in percent, with the bounds of its 95 % interval.
fn change(ratios: &[f64]) -> [f64; 3] {
    let n = ratios.len() as f64;
    let average = mean(ratios);
    let variance = ratios.iter().map(|ratio| (ratio - average).powi(2)).sum::<f64>() / (n - 1.0);
    let half = T_95.get(ratios.len() - 2).copied().unwrap_or(1.96) * (variance / n).sqrt();
    [average, average - half, average + half].map(|ratio| (ratio - 1.0) * 100.0)
}

/// The head of a page: how it was made, and of which job. `switched`: the command's words for it, if it is.
fn head(title: &str, switched: &str, args: &OverheadArgs) -> String {
    let OverheadArgs { rounds, seconds, ranks_per_host, .. } = args;
    let empty = if args.empty_plugin.is_some() { " --empty-plugin LIBRARY" } else { "" };
    let (flag, daemons) = if args.no_agents {
        (" --no-agents", "without agents")
    } else {
        ("", "agents and server running in every run")
    };
    let awake = if args.keep_awake { " --keep-awake" } else { "" };
    let (version, build) = (env!("CARGO_PKG_VERSION"), if cfg!(debug_assertions) { "dev" } else { "release" });
    let (torch, of_what) = match &args.torch {
        Some(program) => (
            format!(" --torch {program}"),
            format!("{} ranks of the PyTorch program {program} on 2 hosts", 2 * ranks_per_host),
        ),
        None => {
            let ranks = 4 * ranks_per_host;
            (String::new(), format!("{ranks} ranks on 4 hosts (TP {ranks_per_host}, PP 2, DP 2)"))
        }
    };
    format!(
        "# {title}\n\nMade by `mycroft testbed overhead {switched}--rounds {rounds} --seconds {seconds} --ranks-per-host \
         {ranks_per_host}{torch}{empty}{flag}{awake}` (version {version}, {build} build): {of_what}, loopback, {daemons}.\n\n"
    )
}

fn render_switched(arms: &[Arm], runs: &[Vec<Vec<Block>>], every: u64, args: &OverheadArgs) -> Result<String> {
    let mut out = head("Overhead within a job", &format!("--switch-every {every} "), args);
    out.push_str("| plugin | pairs of blocks | with events ms | without ms | change | 95 % interval |\n");
    out.push_str("|---|---|---|---|---|---|\n");
    for (arm, runs) in arms.iter().zip(runs) {
        let (count, [middle, low, high]) = difference(runs, |on, off| (on.ms / off.ms - 1.0) * 100.0)?;
        let [on, off] = medians(runs, |block| block.ms);
        let _ = writeln!(
            out,
            "| {} | {count} | {on:.3} | {off:.3} | {middle:+.3} % | {low:+.3} % to {high:+.3} % |",
            arm.as_str(),
        );
    }
    out.push_str(
        "\n| plugin | processor time per rank and iteration, with events us | without us | more us | 95 % interval |\n",
    );
    out.push_str("|---|---|---|---|---|\n");
    for (arm, runs) in arms.iter().zip(runs) {
        let (_, [middle, low, high]) = difference(runs, |on, off| on.processor_us - off.processor_us)?;
        let [on, off] = medians(runs, |block| block.processor_us);
        let _ = writeln!(out, "| {} | {on:.0} | {off:.0} | {middle:+.1} | {low:+.1} to {high:+.1} |", arm.as_str());
    }
    out.push_str(WHAT_SWITCHING_CONTAINS);
    Ok(out)
}

/// Number of pairs of blocks, and what `compare` (with events, without) makes of them with its 95 % interval.
fn difference(runs: &[Vec<Block>], compare: impl Fn(&Block, &Block) -> f64) -> Result<(usize, [f64; 3])> {
    let pairs: Vec<f64> = runs.iter().flat_map(|blocks| changes(blocks, &compare)).collect();
    let count = pairs.len();
    let Some(found) = interval(&pairs) else {
        bail!("{count} pairs of blocks are too few for an interval: give at least {PAIRS_MIN}, with more --seconds");
    };
    Ok((count, found))
}

/// Median over the blocks with events, and over those without.
fn medians(runs: &[Vec<Block>], of: impl Fn(&Block) -> f64) -> [f64; 2] {
    [true, false].map(|events| {
        let blocks = runs.iter().flatten().filter(|block| block.events == events);
        median(blocks.map(&of)).unwrap_or(f64::NAN)
    })
}

fn render(arms: &[Arm], rounds: &[Round], volume: &[f64], args: &OverheadArgs) -> String {
    let mut out = head("Overhead", "", args);
    let names: Vec<String> = arms.iter().map(|arm| format!("{} ms", arm.as_str())).collect();
    let _ = writeln!(out, "| round | {} |\n|---|{}", names.join(" | "), "---|".repeat(arms.len()));
    for (index, round) in rounds.iter().enumerate() {
        let cells: Vec<String> = round.iter().map(|ms| format!("{ms:.2}")).collect();
        let _ = writeln!(out, "| {} | {} |", index + 1, cells.join(" | "));
    }
    out.push('\n');
    for (over, arm) in arms.iter().enumerate() {
        for (base, under) in arms[..over].iter().enumerate() {
            let ratios: Vec<f64> = rounds.iter().map(|round| round[over] / round[base]).collect();
            let [average, low, high] = change(&ratios);
            let _ = writeln!(
                out,
                "Iteration time, {} over {}: {average:+.2} % with a 95 % confidence interval of {low:+.2} % to {high:+.2} %.\n",
                arm.as_str(),
                under.as_str(),
            );
        }
    }
    let _ = writeln!(out, "Trace volume on the wire: {:.1} KB per iteration and host.", mean(volume) / 1000.0);
    out.push_str(WHAT_IT_CONTAINS);
    out
}
