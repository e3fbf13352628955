//! `mycroft testbed torch`: a real PyTorch program in place of the testbed's own job; everything else is the same.
use crate::args_testbed::{TorchArgs, TransportArg};
use crate::live::{Options, Program};
use anyhow::{Context, Result, anyhow, bail};
use mycroft_sim::{Fault, FaultKind, Scenario};
use mycroft_testbed::leftovers::PREFIX;
use serde_json::json;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The Python files that ranks run, so that an installed binary needs no checkout.
const FILES: &[(&str, &str)] = &[
    ("run.py", include_str!("../../../testbed/torch/run.py")),
    ("mycroft_backend.py", include_str!("../../../testbed/torch/mycroft_backend.py")),
    ("programs/ddp.py", include_str!("../../../testbed/torch/programs/ddp.py")),
    ("programs/fsdp2.py", include_str!("../../../testbed/torch/programs/fsdp2.py")),
    ("programs/moe.py", include_str!("../../../testbed/torch/programs/moe.py")),
    ("programs/pp.py", include_str!("../../../testbed/torch/programs/pp.py")),
    ("programs/tp.py", include_str!("../../../testbed/torch/programs/tp.py")),
];

/// Words for faults that the scenario's vocabulary has no kind for, and the kind whose right answer is theirs: more
/// micro-batches are more computation, a pause of the interpreter is a wait before the next operation.
const OWN_WORDS: &[(&str, FaultKind)] =
    &[("uneven-micro-batches", FaultKind::GpuPower), ("gc-pauses", FaultKind::DataWait)];

/// Kinds that the program makes itself.
const BY_PROGRAM: &[FaultKind] = &[
    FaultKind::RankStuck,
    FaultKind::RankFrozen,
    FaultKind::DataWait,
    FaultKind::SkippedCollective,
    FaultKind::WrongCollective,
    FaultKind::WrongSize,
    FaultKind::CudaExecutionError,
];

/// First iterations of a program in which torch and its allocator warm up.
const WARM_UP_ITERATIONS: u32 = 10;

/// The fault, its own word if it has one, and what its ranks are told if they make it.
struct Planned {
    fault: Option<Fault>,
    words: Option<String>,
    told: Option<String>,
}

/// Reads the fault flag; own words stand for the kind that answers them.
fn planned(text: &str) -> Result<Planned> {
    if text == "none" {
        return Ok(Planned { fault: None, words: None, told: None });
    }
    let word = text.split(['@', ',']).next().unwrap_or_default();
    let own = OWN_WORDS.iter().find(|(known, _)| *known == word);
    let known = own.map_or_else(|| text.to_owned(), |(_, kind)| text.replacen(word, kind.as_str(), 1));
    let fault: Fault = known.parse().map_err(|message| anyhow!("--fault {text}: {message}"))?;
    let told = (own.is_some() || BY_PROGRAM.contains(&fault.kind)).then(|| word.to_owned());
    Ok(Planned { fault: Some(fault), words: own.map(|_| text.to_owned()), told })
}

/// The job as the testbed sees it: data parallel over all ranks, which is what tells neighbours.
fn scenario(args: &TorchArgs, fault: Option<Fault>) -> Result<Scenario> {
    if args.hosts == 0 || !args.ranks.is_multiple_of(args.hosts) {
        bail!("--ranks {} --hosts {}: expected a multiple of the hosts", args.ranks, args.hosts);
    }
    let fault = fault.map(|fault| Fault { after_s: args.after, ..fault });
    Ok(Scenario {
        name: format!("torch-{}", program_name(&args.program)),
        hosts: args.hosts,
        ranks_per_host: args.ranks / args.hosts,
        tp: 1,
        pp: 1,
        dp: args.ranks,
        warm_up_iterations: WARM_UP_ITERATIONS,
        duration_s: args.duration,
        transport: args.transport.into(),
        fault,
        ..Scenario::default()
    })
}

/// The file's name without folder and ending.
fn program_name(program: &str) -> String {
    Path::new(program).file_stem().map_or_else(|| program.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// The Python that has torch.
fn python(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.to_owned());
    }
    let own = std::env::current_exe().context("cannot find this executable")?;
    let built = own.ancestors().skip(2).take(2).map(|target| target.join("torch/venv/bin/python"));
    Ok(built.into_iter().find(|path| path.is_file()).unwrap_or_else(|| "python3".into()))
}

/// Whether that Python imports torch, before anything is started.
fn check(python: &Path) -> Result<()> {
    let tried = std::process::Command::new(python).args(["-c", "import torch"]).output();
    match tried {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let why = text.lines().last().unwrap_or_default().to_owned();
            bail!("{} cannot import torch ({why}): `cargo xtask torch` installs it, or give --python", python.display())
        }
        Err(error) => bail!("cannot start {}: {error}", python.display()),
    }
}

/// Lays the Python files into a folder that `mycroft testbed clean` knows.
fn files() -> Result<TempDir> {
    let prefix = format!("{PREFIX}{}-0-torch-", std::process::id());
    let dir = tempfile::Builder::new().prefix(&prefix).tempdir().context("cannot make a temporary directory")?;
    std::fs::create_dir(dir.path().join("programs")).context("cannot make a temporary directory")?;
    for (name, text) in FILES {
        std::fs::write(dir.path().join(name), text).with_context(|| format!("cannot write {name}"))?;
    }
    Ok(dir)
}

/// What is launched for these arguments.
fn job(args: &TorchArgs) -> Result<(Scenario, Program)> {
    let Planned { fault, words, told } = planned(&args.fault)?;
    let scenario = scenario(args, fault)?;
    let python = python(args.python.as_deref())?;
    check(&python)?;
    let dir = files()?;
    let path = Path::new(&args.program);
    let program = if path.extension().is_some_and(|extension| extension == "py") {
        path.canonicalize().with_context(|| format!("{}: no such program", path.display()))?.into_os_string()
    } else if FILES.iter().any(|(name, _)| *name == format!("programs/{}.py", args.program)) {
        args.program.clone().into()
    } else {
        let known = FILES.iter().filter_map(|(name, _)| name.strip_prefix("programs/")?.strip_suffix(".py"));
        bail!("program {}: expected one of {}, or a .py file", args.program, known.collect::<Vec<_>>().join(", "));
    };
    let told_fault = scenario.fault.as_ref().zip(told).map(|(fault, kind)| {
        let rank = fault.culprit_ranks(&scenario).first().copied().unwrap_or(fault.host * scenario.ranks_per_host);
        json!({"kind": kind, "rank": rank, "severity": fault.severity()}).to_string()
    });
    let rank_command = vec![python.into_os_string(), dir.path().join("run.py").into_os_string(), program];
    Ok((scenario, Program { rank_command, told_fault, words, run_dir: args.logs.clone(), _files: dir }))
}

/// A healthy job of a program on two hosts joined by loopback, for so many seconds.
pub(crate) fn healthy_job(program: &str, ranks_per_host: u32, seconds: f64) -> Result<(Scenario, Program)> {
    job(&healthy_args(program, ranks_per_host, seconds))
}

fn healthy_args(program: &str, ranks_per_host: u32, seconds: f64) -> TorchArgs {
    TorchArgs {
        program: program.to_owned(),
        ranks: 2 * ranks_per_host,
        hosts: 2,
        fault: "none".to_owned(),
        after: 0.0,
        duration: seconds,
        transport: TransportArg::Loopback,
        json: false,
        record: None,
        logs: None,
        python: std::env::var_os("MYCROFT_TORCH_PYTHON").map(PathBuf::from),
    }
}

/// The scenario and the run that the arguments ask for.
pub(crate) fn asked(args: &TorchArgs) -> Result<(Scenario, Options)> {
    let (scenario, program) = job(args)?;
    Ok((scenario, Options { record: args.record.clone(), program: Some(program), ..Options::default() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_of_a_program_can_be_played_in_its_scenario() {
        let args = healthy_args("ddp", 2, 10.0);
        for kind in BY_PROGRAM {
            let fault: Fault = format!("{kind}@host0:rank1").parse().expect("a fault");
            assert_eq!(scenario(&args, Some(fault)).expect("a scenario").check(), Ok(()), "{kind}");
        }
    }

    #[test]
    fn own_words_stand_for_the_kind_that_answers_them() {
        let of = |text: &str| planned(text).expect("a fault");
        let pauses = of("gc-pauses@host1:rank3,severity=200");
        let fault = pauses.fault.expect("a fault");
        assert_eq!((fault.kind, fault.host, fault.rank), (FaultKind::DataWait, 1, Some(3)));
        assert_eq!(pauses.words.as_deref(), Some("gc-pauses@host1:rank3,severity=200"));
        assert_eq!(pauses.told.as_deref(), Some("gc-pauses"));
        let by_program = of("rank-frozen@host0");
        assert_eq!((by_program.words, by_program.told.as_deref()), (None, Some("rank-frozen")));
        assert_eq!(of("gpu-power@host0").told, None);
        assert!(planned("no-such@host0").is_err());
    }
}
