//! `cargo xtask bench`: measurements that print ratios side by side and become docs/results.
use crate::run::run;
use anyhow::Result;
use std::path::Path;

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// Which measurement.
    #[arg(value_enum, default_value_t = What::All)]
    what: What,
}

/// The measurements.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Everything below.
    All,
    /// Ring writer and reader throughput.
    Ring,
    /// Nanoseconds per profiler callback.
    Callback,
    /// Iteration time traced against untraced, in pairs, and trace volume.
    Overhead,
}

/// Runs the chosen measurements in release mode.
pub(crate) fn bench(root: &Path, args: &BenchArgs) -> Result<()> {
    let wanted = |what: What| args.what == What::All || args.what == what;
    if wanted(What::Ring) {
        run(root, "cargo", &["run", "--release", "--package", "mycroft-ring", "--example", "ring_bench"])?;
    }
    if wanted(What::Callback) {
        run(root, "cargo", &["run", "--release", "--package", "mycroft-nccl", "--example", "callback_bench"])?;
    }
    if wanted(What::Overhead) {
        run(root, "cargo", &["build", "--release", "--workspace", "--exclude", "xtask"])?;
        run(root, "target/release/mycroft", &["testbed", "overhead", "--write", "docs/results/overhead.md"])?;
    }
    Ok(())
}
