//! `cargo xtask bench`: measurements that print ratios side by side and become docs/results.
mod autopsy;
mod callback;
mod cluster;
mod drift;
mod flow;
mod lttng;
mod page;
mod pause;
mod plan;
mod preload;
mod ring;
mod rows;
mod scale;
mod soak;

use crate::run::{example, run, target_dir};
use anyhow::Result;
use std::path::Path;

/// Fewest rounds from which a median says something.
const ROUNDS_MIN: usize = 3;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// Which measurement.
    #[arg(value_enum, default_value_t = What::All)]
    what: What,
    /// Rounds of the ring, callback, preload, pause, flow and autopsy measurements; medians over them are reported. At least 3.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Leave larger jobs out of the scale measurement, and print its page only.
    #[arg(long, default_value_t = u32::MAX)]
    ranks_max: u32,
    #[command(flatten)]
    cluster: cluster::ClusterSize,
    /// Of the flow measurement this section only; the others of its page stay as they are.
    #[arg(long, value_enum)]
    only: Option<flow::Section>,
}

/// The measurements.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Everything below.
    All,
    /// Ring writer and reader throughput, beside LTTng-UST where it is installed.
    Ring,
    /// Nanoseconds per profiler callback.
    Callback,
    /// What the preloaded library adds to NCCL's host calls.
    Preload,
    /// How long a validation pauses jobs of 64 to 1,024 simulated ranks.
    Pause,
    /// Bytes of flows in epochs of microseconds: events per second, memory, which epoch shows which straggler, and Pulse's experiments (its Table 4).
    Flow,
    /// Dumps of 1,024 ranks to one verdict: time, memory, linearity, beside PyTorch's analyser where it is installed.
    Autopsy,
    /// Change points of iteration times: 499 synthetic series by four methods.
    Drift,
    /// Plans against slowness: how fast they are made and what they gain, for 8 to 512 groups and 16 to 10,240 ranks.
    Plan,
    /// Brain, backend and simulator on jobs of 1,024 to 102,400 ranks: some ten minutes, two cores, 16 GB.
    Scale,
    /// Two servers on a bus with 100 simulated jobs of 1,024 ranks: some ten minutes, two cores, as much memory as there is but 8 GB.
    Cluster,
    /// What the live page of a job of 10,240 ranks costs server and browser: some four minutes, Chromium.
    Page,
    /// A day of a job of 64 ranks with restarts of everything: nothing lost, no case, memory flat.
    Soak,
    /// What divisions of micro-batches win back in jobs of real processes: some three minutes.
    Mitigate,
    /// Iteration time traced against untraced and an empty plugin, and trace volume.
    Overhead,
}

/// Runs the chosen measurements in release mode.
pub(crate) fn bench(root: &Path, args: &BenchArgs) -> Result<()> {
    let wanted = |what: What| args.what == What::All || args.what == what;
    let rounds = args.rounds.max(ROUNDS_MIN);
    if wanted(What::Ring) {
        ring::measure(root, rounds)?;
    }
    if wanted(What::Callback) {
        callback::measure(root, rounds)?;
    }
    if wanted(What::Preload) {
        preload::measure(root, rounds)?;
    }
    if wanted(What::Pause) {
        pause::measure(root, rounds)?;
    }
    if wanted(What::Flow) {
        flow::measure(root, rounds, args.only)?;
    }
    if wanted(What::Autopsy) {
        autopsy::measure(root, rounds)?;
    }
    if wanted(What::Drift) {
        drift::measure(root)?;
    }
    if wanted(What::Plan) {
        plan::measure(root)?;
    }
    if wanted(What::Scale) {
        scale::measure(root, args.ranks_max)?;
    }
    if wanted(What::Cluster) {
        cluster::measure(root, &args.cluster)?;
    }
    if wanted(What::Page) {
        page::measure(root)?;
    }
    if wanted(What::Soak) {
        soak::measure(root)?;
    }
    if wanted(What::Mitigate) {
        run(root, "cargo", &["build", "--release", "-p", "mycroft-cli", "-p", "mycroft-testbed-nccl"])?;
        let mycroft = target_dir(root).join("release/mycroft");
        run(
            root,
            &mycroft.to_string_lossy(),
            &["testbed", "mitigate", "--write", "docs/results/mitigation-testbed.md"],
        )?;
    }
    if wanted(What::Overhead) {
        overhead(root)?;
    }
    Ok(())
}

/// Of the testbed, in two ways.
fn overhead(root: &Path) -> Result<()> {
    run(root, "cargo", &["build", "--release", "--workspace", "--exclude", "xtask"])?;
    example(root, "mycroft-testbed-nccl", "empty")?;
    let release = target_dir(root).join("release");
    let (mycroft, empty) = (release.join("mycroft"), release.join("examples/libempty.so"));
    let write = ["--write", "docs/results/overhead.md"];
    let arguments = ["testbed", "overhead", "--empty-plugin", &empty.to_string_lossy()];
    run(root, &mycroft.to_string_lossy(), &[&arguments[..], &write[..]].concat())?;
    let in_job = ["testbed", "overhead", "--switch-every", "6", "--rounds", "1", "--seconds", "580"];
    let write = ["--ranks-per-host", "1", "--write", "docs/results/overhead-in-job.md"];
    run(root, &mycroft.to_string_lossy(), &[&in_job[..], &write[..]].concat())
}
