//! `mycroft testbed run`, `clean` and the rank processes.
use crate::args_testbed::{RankArgs, RunArgs};
use crate::demo::print_outcome;
use crate::exit::{EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK};
use crate::live::{Live, Options, Outcome};
use crate::stop::Stop;
use anyhow::{Context, Result, anyhow};
use mycroft_record::{Place, Suspect};
use mycroft_sim::{Fault, Scenario};
use serde_json::{Value, json};

/// A fault flag; `none` is no fault.
pub(crate) fn parse_fault(text: &str) -> Result<Option<Fault>> {
    if text == "none" {
        return Ok(None);
    }
    text.parse::<Fault>().map(Some).map_err(|message| anyhow!("--fault {text}: {message}"))
}

/// The scenario of the file (or the default one) with the flags laid over it.
fn scenario(args: &RunArgs) -> Result<Scenario> {
    let mut scenario = match &args.scenario {
        Some(path) => Scenario::load(path)?,
        None => Scenario { name: "command-line".to_owned(), ..Scenario::default() },
    };
    args.shape.lay_over(&mut scenario);
    if let Some(text) = &args.fault {
        scenario.fault = parse_fault(text)?;
    }
    if let (Some(after), Some(fault)) = (args.after, &mut scenario.fault) {
        fault.after_s = after;
    }
    if let Some(duration) = args.duration {
        scenario.duration_s = duration;
    }
    if let Some(seed) = args.seed {
        scenario.seed = seed;
    }
    if let Some(flag) = args.transport {
        scenario.transport = flag.into();
    }
    scenario.check_testbed().map_err(|message| anyhow!("scenario {}: {message}", scenario.name))?;
    Ok(scenario)
}

/// Runs one scenario; exit 0 exactly when the verdict is right.
pub(crate) fn run(args: &RunArgs) -> Result<u8> {
    let options = Options { record: args.record.clone(), ..Options::default() };
    play(scenario(args)?, options, args.json)
}

/// Plays a scenario to its verdict and prints what came of it; exit 0 exactly when the verdict is right.
pub(crate) fn play(scenario: Scenario, options: Options, json: bool) -> Result<u8> {
    let stop = Stop::on_signals()?;
    if !json {
        let fault = scenario.fault.as_ref().map_or("none".to_owned(), ToString::to_string);
        eprintln!("{}: {} ranks on {} hosts, fault {fault}", scenario.name, scenario.world(), scenario.hosts);
    }
    let live = Live::start(scenario, options)?;
    let Some(outcome) = live.run(&stop, |_| (), |_| ())? else {
        eprintln!("mycroft: interrupted; everything is cleaned up");
        return Ok(EXIT_INTERRUPTED);
    };
    if json {
        println!("{}", as_json(&outcome));
    } else {
        print_outcome(&outcome);
    }
    Ok(if outcome.score.correct { EXIT_OK } else { EXIT_FOUND })
}

/// The one object that `--json` prints.
pub(crate) fn as_json(outcome: &Outcome) -> Value {
    let truth = &outcome.truth;
    let verdict = outcome.finding.as_ref().map(|finding| {
        let suspects = suspects(&finding.suspects);
        json!({
            "what": finding.what.as_str(),
            "category": finding.category.as_str(),
            "suspects": suspects,
            "because": outcome.because,
        })
    });
    let mut whole = json!({
        "scenario": outcome.scenario,
        "seed": outcome.seed,
        "transport": outcome.transport,
        "nccl": outcome.nccl,
        "truth": {
            "fault": outcome.fault,
            "hosts": truth.hosts,
            "ranks": truth.ranks,
            "at_ms": truth.at_ms,
        },
        "detected": outcome.finding.is_some(),
        "detected_after_ms": outcome.detected_after_ms,
        "diagnosed_after_ms": outcome.diagnosed_after_ms,
        "verdict": verdict,
        "correct": outcome.score.correct,
        "why": outcome.score.why,
        "iterations": outcome.iterations,
        "iterations_after_fault": outcome.iterations_to_detection,
        "iteration_ms_median": outcome.iteration_ms_median,
        "faulty_iteration_ms_median": outcome.faulty_iteration_ms_median,
    });
    if let Some(capture) = &outcome.capture {
        whole["capture"] = json!({
            "what": capture.what.as_str(),
            "category": capture.category.map(|category| category.as_str()),
            "suspects": suspects(&capture.suspects),
            "because": capture.because.iter().map(|reason| reason.text.as_str()).collect::<Vec<_>>(),
        });
    }
    whole
}

/// Suspects as every JSON of a verdict has them.
fn suspects(suspects: &[Suspect]) -> Vec<Value> {
    let place = |suspect: &Suspect| match &suspect.place {
        Place::Rank { rank, host } => (json!(rank.0), host.to_string()),
        Place::Host { host } => (Value::Null, host.to_string()),
        Place::Link { from, to } => (Value::Null, format!("{from}->{to}")),
    };
    let told = suspects.iter().map(|suspect| (place(suspect), suspect.confidence));
    told.map(|((rank, host), confidence)| json!({"rank": rank, "host": host, "confidence": confidence})).collect()
}

/// Removes what killed runs left.
pub(crate) fn clean() -> Result<u8> {
    let collected = mycroft_testbed::collect_leftovers();
    println!(
        "removed {} processes, {} namespaces, {} directories",
        collected.processes.len(),
        collected.namespaces.len(),
        collected.directories.len()
    );
    Ok(EXIT_OK)
}

/// One rank of a job, started by the launcher.
pub(crate) fn rank(args: &RankArgs) -> Result<u8> {
    let args = mycroft_testbed::RankArgs { run_dir: args.run_dir.clone(), rank: args.rank };
    u8::try_from(mycroft_testbed::rank_main(&args)).context("a rank's exit code is a byte")
}
