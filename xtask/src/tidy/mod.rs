//! `cargo xtask tidy`: the edges between rooms and the house rules that a machine can check.
mod circles;
mod papers;
mod ratchet;
mod syntax;
mod thresholds;

use crate::run::output;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Who may use whom inside the workspace (ARCHITECTURE.md, code map). A new edge is a page in docs/decisions.
const EDGES: &[(&str, &[&str])] = &[
    ("mycroft-record", &[]),
    ("mycroft-ring", &["mycroft-record"]),
    ("mycroft-probe-core", &["mycroft-record", "mycroft-ring"]),
    ("mycroft-nccl", &["mycroft-probe-core", "mycroft-record"]),
    ("mycroft-preload", &["mycroft-probe-core", "mycroft-record", "mycroft-ring"]),
    ("mycroft-wire", &["mycroft-record"]),
    ("mycroft-bus", &["mycroft-record", "mycroft-wire"]),
    ("mycroft-store", &["mycroft-record", "mycroft-wire"]),
    ("mycroft-flow", &[]),
    ("mycroft-formats", &["mycroft-record"]),
    ("mycroft-agent", &["mycroft-record", "mycroft-ring", "mycroft-wire"]),
    ("mycroft-diagnose", &["mycroft-record"]),
    (
        "mycroft-serve",
        &["mycroft-bus", "mycroft-record", "mycroft-wire", "mycroft-store", "mycroft-diagnose", "mycroft-formats"],
    ),
    ("mycroft-sim", &["mycroft-record"]),
    ("mycroft-testbed-nccl", &[]),
    ("mycroft-testbed-verbs", &[]),
    ("mycroft-testbed", &["mycroft-sim", "mycroft-testbed-nccl"]),
    (
        "mycroft-cli",
        &[
            "mycroft-record",
            "mycroft-ring",
            "mycroft-agent",
            "mycroft-bus",
            "mycroft-wire",
            "mycroft-store",
            "mycroft-diagnose",
            "mycroft-flow",
            "mycroft-formats",
            "mycroft-serve",
            "mycroft-sim",
            "mycroft-testbed",
        ],
    ),
    ("xtask", &[]),
];

/// Rooms that may contain `unsafe` (invariant 8).
const UNSAFE_ROOMS: &[&str] = &[
    "crates/ring/",
    "crates/probe/",
    "crates/testbed/",
    "crates/agent/src/process.rs",
    "crates/agent/src/tap/ring.rs",
];

/// Words banned in a room, and what to do instead.
const BANNED: &[(&str, &str, &str)] = &[
    ("crates/diagnose/src/", "Instant::now", "time is an argument (invariant 1)"),
    ("crates/diagnose/src/", "SystemTime", "time is an argument (invariant 1)"),
    ("crates/diagnose/src/", "HashMap", "iteration order must not show: BTreeMap (invariant 1)"),
    ("crates/diagnose/src/", "HashSet", "iteration order must not show: BTreeSet (invariant 1)"),
    ("crates/diagnose/src/", "std::fs", "the brain does no IO (invariant 1)"),
    ("crates/diagnose/src/", "std::net", "the brain does no IO (invariant 1)"),
    ("crates/diagnose/src/", "std::env", "configuration is an argument (invariant 1)"),
    ("crates/diagnose/src/", "async fn", "no async in the brain (invariant 1)"),
    ("crates/sim/src/", "Instant::now", "simulated time only"),
    ("crates/sim/src/", "SystemTime", "simulated time only"),
    ("crates/probe/", "println!", "nothing in the probe prints (invariant 3)"),
    ("crates/probe/", "process::exit", "nothing in the probe ends the job (invariant 3)"),
    ("", "todo!(", "finish it"),
    ("", "unimplemented!(", "finish it"),
    ("", "dbg!(", "remove it"),
    ("", "#[ignore", "a test runs or does not exist"),
];

/// Rooms whose code runs on the job's threads: nothing there takes a lock (SPEC.md, "No lock on the event path").
const LOCK_FREE_ROOMS: &[&str] =
    &["crates/probe/core/src/", "crates/probe/nccl/src/", "crates/probe/preload/src/", "crates/ring/src/"];

/// What takes a lock, or is one.
const LOCKS: &[&str] = &["Mutex", "RwLock", "Condvar", ".lock()", "pthread_mutex", "call_once", "LazyLock"];

/// Rooms that read bytes which nobody vouches for: no unwrap and no cast that may lose something, in the whole crate.
const LINTED_ROOMS: &[&str] =
    &["crates/flow/src/lib.rs", "crates/formats/src/lib.rs", "crates/ring/src/lib.rs", "crates/wire/src/lib.rs"];

/// Lints that an attribute of each of these crates turns on.
const LINTS: &[&str] = &[
    "clippy::unwrap_used",
    "clippy::cast_possible_truncation",
    "clippy::cast_possible_wrap",
    "clippy::cast_sign_loss",
];

/// What to do with the list of exceptions.
#[derive(clap::Args, Default)]
pub(crate) struct TidyArgs {
    /// Write `xtask/exceptions.toml` anew without what is no longer needed; refuses to add or raise.
    #[arg(long)]
    write_exceptions: bool,
    /// Write `docs/thresholds.md` anew from the code.
    #[arg(long)]
    write_thresholds: bool,
}

/// Runs every rule; the error lists all violations.
pub(crate) fn tidy(root: &Path, args: &TidyArgs) -> Result<()> {
    let mut violations = Vec::new();
    edges(root, &mut violations)?;
    let files = sources(root)?;
    if args.write_exceptions {
        ratchet::write(root, ratchet::measure(&files)?)?;
    }
    if args.write_thresholds {
        thresholds::write(root, &files)?;
    }
    thresholds::check(root, &files, &mut violations)?;
    violations.extend(ratchet::measure(&files)?.violations(&ratchet::listed(root)?.unwrap_or_default()));
    for (path, text) in &files {
        rules_of_file(path, text, &mut violations);
    }
    papers::check(root, &files, &mut violations)?;
    if violations.is_empty() {
        eprintln!("tidy: {} files and {} crates in order", files.len(), EDGES.len());
        return Ok(());
    }
    bail!("tidy: {} violations\n{}", violations.len(), violations.join("\n"));
}

/// Compares the dependencies in every manifest (not the dev-dependencies) with `EDGES`, in both directions: an edge that
/// no manifest has is no edge.
fn edges(root: &Path, violations: &mut Vec<String>) -> Result<()> {
    let text = output(root, "cargo", &["metadata", "--format-version", "1", "--no-deps"])?;
    let metadata: serde_json::Value = serde_json::from_str(&text).context("cargo metadata printed no JSON")?;
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may_use) = allowed.get(name) else {
            violations
                .push(format!("{name}: a new room; give it its edges in xtask/src/tidy/mod.rs and a decision page"));
            continue;
        };
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let used: Vec<&str> = dependencies
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| dependency["name"].as_str())
            .filter(|target| target.starts_with("mycroft-"))
            .collect();
        for target in used.iter().filter(|target| !may_use.contains(target)) {
            violations
                .push(format!("{name} -> {target}: not an edge of ARCHITECTURE.md; needs a page in docs/decisions"));
        }
        for target in may_use.iter().filter(|target| !used.contains(target)) {
            violations
                .push(format!("{name} -> {target}: an edge of the map that no manifest has; take it out of both"));
        }
    }
    Ok(())
}

/// All Rust sources that git knows or would add, with their text.
fn sources(root: &Path) -> Result<Vec<(String, String)>> {
    let listed = output(root, "git", &["ls-files", "--cached", "--others", "--exclude-standard", "*.rs"])?;
    let mut files = Vec::new();
    for path in listed.lines() {
        let full: PathBuf = root.join(path);
        if full.is_file() {
            let text = std::fs::read_to_string(&full).with_context(|| format!("{path}: not readable as UTF-8"))?;
            files.push((path.to_owned(), text));
        }
    }
    Ok(files)
}

fn rules_of_file(path: &str, text: &str, violations: &mut Vec<String>) {
    let in_tests = path.contains("/tests/");
    if !text.trim_start().starts_with("//!") {
        violations.push(format!("{path}:1: no `//!` that says what the file is for"));
    }
    if let Some(line) = text.lines().position(|line| !line.is_ascii()) {
        violations.push(format!("{path}:{}: not ASCII", line + 1));
    }
    if path == "xtask/src/tidy/mod.rs" {
        return;
    }
    for (room, word, instead) in BANNED {
        // A build script talks to cargo by printing, an example or a test to whoever runs it.
        let beside = path.ends_with("build.rs") || in_tests || path.contains("/examples/");
        if !path.starts_with(room) || (*word == "println!" && beside) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if line.contains(word) && !line.trim_start().starts_with("//") {
                violations.push(format!("{path}:{}: `{word}`: {instead}", number + 1));
            }
        }
    }
    locks(path, text, violations);
    lints(path, text, violations);
    let may_be_unsafe = in_tests || UNSAFE_ROOMS.iter().any(|room| path.starts_with(room));
    if !may_be_unsafe && text.lines().any(|line| line.contains("unsafe {") || line.contains("unsafe fn")) {
        violations.push(format!("{path}: `unsafe` outside the rooms that may have it (invariant 8)"));
    }
    let is_library_root = path.starts_with("crates/") && path.ends_with("/src/lib.rs");
    let room_has_unsafe =
        UNSAFE_ROOMS.iter().any(|room| room.starts_with(path.trim_end_matches("lib.rs")) || path.starts_with(room));
    if is_library_root && !room_has_unsafe && !text.contains("#![forbid(unsafe_code)]") {
        violations.push(format!("{path}: a room without unsafe says #![forbid(unsafe_code)]"));
    }
}

/// Lints of the crate that are on, in `warn` or `deny` of an attribute at its top.
fn lints(path: &str, text: &str, violations: &mut Vec<String>) {
    if !LINTED_ROOMS.contains(&path) {
        return;
    }
    let squeezed: String = text.split_whitespace().collect();
    let attributes = squeezed.split("#![").skip(1).filter_map(|rest| rest.split(")]").next());
    let on = |attribute: &str| attribute.contains("warn(") || attribute.contains("deny(");
    let attributes: Vec<&str> = attributes.filter(|attribute| on(attribute)).collect();
    for lint in LINTS.iter().filter(|lint| !attributes.iter().any(|attribute| attribute.contains(**lint))) {
        violations.push(format!("{path}: no `{lint}` in an attribute of the crate"));
    }
}

/// No lock where the job's threads pass.
fn locks(path: &str, text: &str, violations: &mut Vec<String>) {
    if !LOCK_FREE_ROOMS.iter().any(|room| path.starts_with(room)) {
        return;
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or(text);
    let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    for (number, line) in lines {
        if let Some(lock) = LOCKS.iter().find(|lock| line.contains(**lock)) {
            violations.push(format!("{path}:{}: `{lock}` on the way of the job's threads (invariant 3)", number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_that_reads_strange_bytes_keeps_its_lints() {
        let violated = |text: &str| {
            let mut violations = Vec::new();
            lints("crates/wire/src/lib.rs", text, &mut violations);
            violations.len()
        };
        let all = LINTS.join(",\n    ");
        for kept in ["warn", "deny", "cfg_attr(not(test), warn"] {
            let close = if kept.starts_with("cfg") { "))" } else { ")" };
            assert_eq!(violated(&format!("#![forbid(unsafe_code)]\n#![{kept}(\n{all}\n{close}]\nmod a;")), 0, "{kept}");
        }
        assert_eq!(violated(&format!("#![allow({all})]")), LINTS.len(), "an allowed lint is off");
        assert_eq!(violated(&format!("#[warn({all})]\nfn one() {{}}")), LINTS.len(), "of one item, not of the crate");
        assert_eq!(violated("#![warn(clippy::unwrap_used, clippy::cast_sign_loss)]"), 2);
    }
}
