//! `cargo xtask test` and `demo`.
use crate::run::{answers, run, target_dir};
use crate::tidy;
use crate::tools::unpack_helm;
use anyhow::{Context as _, Result};
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
/// SQLite and zstd, real Python processes for captures, `setpriv` for processes without rights,
/// what makes and reads an .rpm, and the PostgreSQL server of which tests start instances of their own.
const APT_PACKAGES: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("tc", "iproute2"),
    ("cc", "gcc"),
    ("make", "make"),
    ("nm", "binutils"),
    ("python3", "python3"),
    ("setpriv", "util-linux"),
    ("rpmbuild", "rpm"),
    ("pg_ctlcluster", "postgresql"),
];

/// What is tested besides the defaults: a bus, which not everybody wants to build (docs/decisions/025-bus.md).
pub(crate) const FEATURES: &str = "mycroft-cli/kafka,mycroft-bus/kafka,mycroft-serve/kafka";

/// How many of the slowest tests are listed: those that make up most of the time.
const SLOWEST: usize = 20;

/// Every check a change must pass, cheapest first.
pub(crate) fn test(root: &Path, args: &TestArgs) -> Result<()> {
    install(root)?;
    if args.filter.is_none() {
        run(root, "cargo", &["fmt", "--all", "--check"])?;
        tidy::tidy(root, &tidy::TidyArgs::default())?;
        // Where it is installed: its build takes longer than two minutes. Advisories are not here, see deny.toml.
        if answers("cargo", &["deny", "--version"]) {
            run(root, "cargo", &["deny", "--locked", "check", "licenses", "bans", "sources"])?;
        } else {
            eprintln!("no cargo-deny here: licences, bans and sources of dependencies were not checked");
        }
        let clippy = ["clippy", "--workspace", "--all-targets", "--features", FEATURES, "--", "-D", "warnings"];
        run(root, "cargo", &clippy)?;
    }
    run(root, "cargo", &["build", "--workspace", "--features", FEATURES])?;
    let mut nextest = vec!["nextest", "run", "--workspace", "--no-fail-fast", "--features", FEATURES];
    if args.quick {
        nextest.extend(["-E", "not binary(/^testbed_|^hundred$/)"]);
    }
    if let Some(filter) = &args.filter {
        nextest.push(filter);
    }
    let tested = run(root, "cargo", &nextest);
    eprint!("{}", slowest_tests(&target_dir(root).join("nextest/default/junit.xml")));
    tested?;
    if args.filter.is_none() && !args.quick {
        same_bytes_however_built(root)?;
    }
    Ok(())
}

/// Lists what a change that makes CI quicker should look at; empty where the runner left no times.
fn slowest_tests(junit: &Path) -> String {
    let text = std::fs::read_to_string(junit).unwrap_or_default();
    let mut tests: Vec<(f64, String)> = text.split("<testcase ").skip(1).filter_map(time_and_name).collect();
    tests.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all: f64 = tests.iter().map(|(seconds, _)| seconds).sum();
    let lines = tests.iter().take(SLOWEST).map(|(seconds, name)| format!("{seconds:>8.1} s  {name}\n"));
    let head = format!("the slowest of {} tests, which took {all:.0} s one by one:\n", tests.len());
    if tests.is_empty() { String::new() } else { std::iter::once(head).chain(lines).collect() }
}

/// The time and the name of a test, from the attributes of its element.
fn time_and_name(element: &str) -> Option<(f64, String)> {
    let attribute = |name: &str| Some(element.split_once(&format!("{name}=\""))?.1.split_once('"')?.0);
    Some((attribute(" time")?.parse().ok()?, format!("{} {}", attribute("classname")?, attribute("name")?)))
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

/// Installs missing tools: Debian packages where apt-get is there and allowed, cargo-nextest by name.
fn install(root: &Path) -> Result<()> {
    let mut missing: Vec<&str> = APT_PACKAGES
        .iter()
        .filter(|(program, _)| !answers("sh", &["-c", &format!("command -v {program}")]))
        .map(|&(_, package)| package)
        .collect();
    missing.dedup();
    if !missing.is_empty() {
        run(root, "apt-get", &["update", "-qq"])?;
        // Packages must not ask anybody anything.
        let mut args =
            vec!["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", "--no-install-recommends"];
        args.extend(missing);
        run(root, "env", &args)?;
    }
    if !answers("cargo", &["nextest", "--version"]) {
        run(root, "cargo", &["install", "--locked", "cargo-nextest"])?;
    }
    if let Err(error) = install_perfetto(root) {
        eprintln!("no definitions of Perfetto here, the test that reads a trace with them is skipped: {error:#}");
    }
    if let Err(error) = unpack_prometheus(root) {
        eprintln!("no Prometheus here, the tests of deploy/prometheus are skipped: {error:#}");
    }
    if let Err(error) = unpack_helm(root) {
        eprintln!("no helm here, the chart is not rendered by tests: {error:#}");
    }
    Ok(())
}

/// Perfetto's own definitions of its trace format, and what reads them: 2 MB of Python.
fn install_perfetto(root: &Path) -> Result<()> {
    let place = root.join("target/tools/perfetto");
    if place.join("perfetto").exists() && place.join("google").exists() {
        return Ok(());
    }
    let (venv, place) = (crate::torch::python(root), place.to_string_lossy().into_owned());
    let python = if venv.exists() { venv.to_string_lossy().into_owned() } else { "python3".to_owned() };
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", &place];
    run(root, &python, &[&pip, &["perfetto==0.59.1", "protobuf==7.36.2"][..]].concat())
}

/// Debian's Prometheus, 19 MB, unpacked and not installed: its package would start a service.
fn unpack_prometheus(root: &Path) -> Result<()> {
    let (tools, place) = (root.join("target/tools"), root.join("target/tools/prometheus"));
    if answers("promtool", &["--version"]) || place.join("usr/bin/promtool").exists() {
        return Ok(());
    }
    std::fs::create_dir_all(&tools)?;
    let download = ["-q", "download", "prometheus"];
    if run(&tools, "apt-get", &download).is_err() {
        run(root, "apt-get", &["update", "-qq"])?;
        run(&tools, "apt-get", &download)?;
    }
    let named = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("prometheus_");
    let found = std::fs::read_dir(&tools)?.filter_map(|entry| Some(entry.ok()?.file_name()));
    let package = found.into_iter().find(|name| named(name)).context("apt-get left no package")?;
    // Beside, then renamed: half of it is never taken for it.
    let beside = tools.join("prometheus.part");
    run(&tools, "dpkg", &["-x", &package.to_string_lossy(), &beside.to_string_lossy()])?;
    std::fs::rename(&beside, &place)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_tests_come_first() {
        let dir = tempfile::tempdir().expect("a folder");
        let junit = dir.path().join("junit.xml");
        let case = |name, time| format!("<testcase name=\"{name}\" classname=\"cli\" time=\"{time}\">");
        std::fs::write(&junit, format!("<x>{}{}</x>", case("a", "0.5"), case("b", "61.25"))).expect("written");
        let told = slowest_tests(&junit);
        assert_eq!(told, "the slowest of 2 tests, which took 62 s one by one:\n    61.2 s  cli b\n     0.5 s  cli a\n");
        assert_eq!(slowest_tests(&dir.path().join("none")), "");
    }
}
