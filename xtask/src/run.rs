//! Running commands with their line printed, so that a failure can be repeated by hand.
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Runs a command in `root`, inheriting output; an error names the command and how it ended.
pub(crate) fn run(root: &Path, program: &str, args: &[&str]) -> Result<()> {
    eprintln!("$ {program} {}", args.join(" "));
    let started = Instant::now();
    let status = Command::new(program)
        .args(args)
        .current_dir(root)
        .status()
        .with_context(|| format!("cannot start `{program}`: is it installed and on the PATH?"))?;
    eprintln!("  ({:.1} s)", started.elapsed().as_secs_f64());
    if !status.success() {
        bail!("`{program} {}` ended with {status}", args.join(" "));
    }
    Ok(())
}

/// Standard output of a command that must succeed.
pub(crate) fn output(root: &Path, program: &str, args: &[&str]) -> Result<String> {
    output_with(root, program, args, &[])
}

/// As [`output`], with these variables in its environment.
pub(crate) fn output_with(root: &Path, program: &str, args: &[&str], variables: &[(&str, &str)]) -> Result<String> {
    let out = Command::new(program)
        .args(args)
        .envs(variables.iter().copied())
        .current_dir(root)
        .output()
        .with_context(|| format!("cannot start `{program}`: is it installed and on the PATH?"))?;
    if !out.status.success() {
        bail!("`{program} {}` ended with {}: {}", args.join(" "), out.status, String::from_utf8_lossy(&out.stderr));
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// Whether a program answers to `--version` (or any given argument).
pub(crate) fn answers(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|out| out.status.success())
}

/// Where cargo builds.
pub(crate) fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// Builds an example in release mode, with its package's library, which it may load: its program.
pub(crate) fn example(root: &Path, package: &str, name: &str) -> Result<String> {
    run(root, "cargo", &["build", "--release", "--package", package, "--lib", "--example", name])?;
    Ok(target_dir(root).join("release/examples").join(name).to_string_lossy().into_owned())
}
