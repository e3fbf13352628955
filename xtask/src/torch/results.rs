//! Playing what docs/results/torch.md tells: programs x faults, healthy jobs, and the tracer's cost.
use crate::run::{run, target_dir};
use anyhow::{Context, Result};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs, in the order of the page.
pub(super) const PROGRAMS: &[&str] = &["ddp", "fsdp2", "tp", "pp", "moe"];

/// The faults, each with what joins the hosts: the loopback's network is real only in namespaces.
pub(super) const FAULTS: &[(&str, &str)] = &[
    ("gpu-power@host1:rank2", "loopback"),
    ("data-wait@host0:rank1", "loopback"),
    ("rank-stuck@host0:rank1", "loopback"),
    ("rank-frozen@host1:rank2", "loopback"),
    ("rank-crash@host1:rank3", "loopback"),
    ("skipped-collective@host0:rank1", "loopback"),
    ("wrong-collective@host0:rank1", "loopback"),
    ("wrong-size@host0:rank1", "loopback"),
    ("uneven-micro-batches@host1:rank2", "loopback"),
    ("gc-pauses@host0:rank1,severity=200", "loopback"),
    ("cuda-execution-error@host0:rank1", "loopback"),
    ("gpu-hang@host1:rank2", "loopback"),
    ("nic-bandwidth@host1", "auto"),
    ("nic-down@host1", "auto"),
];

/// Seconds of healthy training before a fault, the longest wait for a diagnosis after it, and those of a healthy job.
const AFTER: &str = "8";
const WAIT: &str = "20";
pub(super) const HEALTHY: &str = "600";
/// Programs whose cost is told, and seconds of each measurement.
pub(super) const COST: &[&str] = &["ddp", "fsdp2"];
const COST_SECONDS: &str = "600";

/// Where results are kept between calls.
pub(super) fn dir(root: &Path) -> PathBuf {
    target_dir(root).join("torch/results")
}

/// Plays what has no result yet.
pub(super) fn play(root: &Path) -> Result<()> {
    run(root, "cargo", &["build", "--workspace", "--exclude", "xtask"])?;
    let (dir, mycroft) = (dir(root), target_dir(root).join("debug/mycroft"));
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    for (fault, transport) in FAULTS {
        for program in PROGRAMS {
            let args = ["--fault", fault, "--transport", transport, "--after", AFTER, "--duration", WAIT];
            verdict(
                &mycroft,
                &dir.join(file(program, fault)),
                &[&["testbed", "torch", program, "--json"], &args[..]].concat(),
            )?;
        }
    }
    for program in PROGRAMS {
        let args = ["testbed", "torch", program, "--json", "--transport", "loopback", "--duration", HEALTHY];
        verdict(&mycroft, &dir.join(file(program, "none")), &args)?;
    }
    for program in COST {
        let args = ["testbed", "overhead", "--torch", program, "--ranks-per-host", "1", "--switch-every", "6"];
        let rest = ["--rounds", "1", "--seconds", COST_SECONDS, "--no-agents"];
        verdict(&mycroft, &dir.join(format!("cost-{program}.md")), &[&args[..], &rest[..]].concat())?;
    }
    Ok(())
}

/// The file of one run.
pub(super) fn file(program: &str, fault: &str) -> String {
    let plain: String = fault.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{program}-{plain}.json")
}

/// Keeps what a command printed; a run that could not be made is told and left out.
fn verdict(mycroft: &Path, kept: &Path, args: &[&str]) -> Result<()> {
    if kept.is_file() {
        return Ok(());
    }
    eprintln!("$ mycroft {}", args.join(" "));
    let output = Command::new(mycroft).args(args).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {}", mycroft.display()))?;
    if output.stdout.is_empty() {
        eprintln!("  no result ({})", output.status);
        return Ok(());
    }
    let mut file = std::fs::File::create(kept).with_context(|| format!("cannot write {}", kept.display()))?;
    file.write_all(&output.stdout).with_context(|| format!("cannot write {}", kept.display()))
}
