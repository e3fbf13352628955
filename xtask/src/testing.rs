//! `cargo xtask test`, `demo` and `dist`.
use crate::run::{answers, run, target_dir};
use crate::tidy;
use anyhow::Result;
use std::path::Path;

/// What to leave out of a test run.
#[derive(clap::Args)]
pub(crate) struct TestArgs {
    /// Only tests whose name contains this text (skips format, rules and lints).
    filter: Option<String>,
    /// After a change: skip the tests that run a whole testbed (real processes, about ten minutes on two cores), the
    /// hundred simulated jobs (three; `swarm` has those that were once wrong), and the simulator's bytes in other profiles.
    #[arg(long)]
    quick: bool,
}

/// Debian packages the tests use, each by a program of it: network namespaces and traffic control, a C compiler for bundled
/// SQLite and zstd, real Python processes for captures, and `setpriv` for processes without rights.
const APT_PACKAGES: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("cc", "gcc"),
    ("nm", "binutils"),
    ("python3", "python3"),
    ("setpriv", "util-linux"),
];

/// Every check a change must pass, cheapest first.
pub(crate) fn test(root: &Path, args: &TestArgs) -> Result<()> {
    install(root)?;
    if args.filter.is_none() {
        run(root, "cargo", &["fmt", "--all", "--check"])?;
        tidy::tidy(root, &tidy::TidyArgs::default())?;
        // Advisories need a database that is fetched: not here, see deny.toml.
        run(root, "cargo", &["deny", "--locked", "check", "licenses", "bans", "sources"])?;
        run(root, "cargo", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    }
    run(root, "cargo", &["build", "--workspace"])?;
    let mut nextest = vec!["nextest", "run", "--workspace", "--no-fail-fast"];
    if args.quick {
        nextest.extend(["-E", "not binary(/^testbed_|^hundred$/)"]);
    }
    if let Some(filter) = &args.filter {
        nextest.push(filter);
    }
    run(root, "cargo", &nextest)?;
    if args.filter.is_none() && !args.quick {
        same_bytes_however_built(root)?;
    }
    Ok(())
}

/// The simulator's digests, which the tests have compared as developed, unoptimized and as released. Only the simulator
/// is built anew.
fn same_bytes_however_built(root: &Path) -> Result<()> {
    for profile in ["plain", "release"] {
        let digest = ["test", "--quiet", "--package", "mycroft-sim", "--test", "digest", "--profile", profile];
        run(root, "cargo", &digest)?;
    }
    Ok(())
}

/// Installs missing tools: Debian packages where apt-get is there and allowed, cargo-nextest and cargo-deny by name.
fn install(root: &Path) -> Result<()> {
    let mut missing: Vec<&str> = APT_PACKAGES
        .iter()
        .filter(|(program, _)| !answers("sh", &["-c", &format!("command -v {program}")]))
        .map(|&(_, package)| package)
        .collect();
    missing.dedup();
    if !missing.is_empty() {
        run(root, "apt-get", &["update", "-qq"])?;
        let mut args = vec!["install", "-y", "-qq", "--no-install-recommends"];
        args.extend(missing);
        run(root, "apt-get", &args)?;
    }
    if !answers("cargo", &["nextest", "--version"]) {
        run(root, "cargo", &["install", "--locked", "cargo-nextest"])?;
    }
    if !answers("cargo", &["deny", "--version"]) {
        // Unoptimized: built in half the time, and a check takes seconds either way.
        run(root, "cargo", &["install", "--locked", "--debug", "cargo-deny"])?;
    }
    Ok(())
}

/// Builds everything and runs the demo.
pub(crate) fn demo(root: &Path, args: &[String]) -> Result<()> {
    run(root, "cargo", &["build", "--workspace", "--exclude", "xtask"])?;
    let mut argv = vec!["demo"];
    argv.extend(args.iter().map(String::as_str));
    let mycroft = target_dir(root).join("debug/mycroft");
    run(root, &mycroft.strip_prefix(root).unwrap_or(&mycroft).to_string_lossy(), &argv)
}

/// Release binary and libraries side by side in target/dist.
pub(crate) fn dist(root: &Path) -> Result<()> {
    run(root, "cargo", &["build", "--release", "--workspace", "--exclude", "xtask"])?;
    let (target, dist) = (target_dir(root), root.join("target/dist"));
    std::fs::create_dir_all(&dist)?;
    for file in ["mycroft", "libmycroft_nccl.so", "libmycroft_testbed_nccl.so"] {
        std::fs::copy(target.join("release").join(file), dist.join(file))?;
        eprintln!("{}", dist.join(file).display());
    }
    Ok(())
}
