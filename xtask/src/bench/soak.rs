//! `cargo xtask bench soak`: a day of a job of 64 ranks with restarts of everything, as docs/results/soak.md.
use crate::run::output_with;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::path::Path;

/// Hours of the job.
const HOURS: &str = "24";

/// Plays the soak in release mode and writes its page. It fails where something was lost, a case opened or memory grew.
pub(crate) fn measure(root: &Path) -> Result<()> {
    let args = ["test", "--release", "--package", "mycroft-serve", "--test", "soak", "--", "--nocapture"];
    let text = output_with(root, "cargo", &args, &[("MYCROFT_SOAK_HOURS", HOURS)])?;
    let figure = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mut page = String::from("# Soak: a day of a job, with restarts of everything\n\n");
    page.push_str("Written by `cargo xtask bench soak`; do not edit.\n\n");
    page.push_str(
        "A healthy job of 64 ranks on 8 hosts is simulated and goes through spool, wire, log, segments and brain at the speed of \
         the machine. The server stops and starts from its store, agents end and start from their spools, at random \
         times of the job. At each stop of the server all that its agents were acknowledged in ten minutes must be in \
         the store, and no case may have been opened.\n\n| figure | |\n|---|---|\n",
    );
    let rows = [
        ("hours", "hours of the job"),
        ("took_s", "seconds that it took"),
        ("records", "records"),
        ("server_restarts", "stops of the server"),
        ("agent_restarts", "restarts of agents"),
        ("frames_spooled", "frames that waited in a spool"),
        ("batches_compared", "acknowledged batches that were looked for in the store, all found"),
        ("memory_mib", "resident memory of all of it in one process, MiB, forty looks"),
    ];
    for (name, says) in rows {
        let value = figure(&format!("{name} ")).with_context(|| format!("the soak printed no `{name}`:\n{text}"))?;
        writeln!(page, "| {says} | {value} |")?;
    }
    if !text.contains("test result: ok") {
        bail!("the soak failed:\n{text}");
    }
    let path = root.join("docs/results/soak.md");
    std::fs::write(&path, &page).with_context(|| format!("{}: not writable", path.display()))?;
    println!("{page}");
    Ok(())
}
