//! `mycroft sim run`: one simulated job, its diagnosis, and the truth beside it.
use super::args::SimRunArgs;
use super::label;
use super::play::{Dues, Run, family_of, play};
use crate::demo::print_outcome;
use crate::exit::{EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK};
use crate::live::Outcome;
use crate::progress::Progress;
use crate::stop::Stop;
use crate::testbed::{as_json, parse_fault};
use crate::whole::WholeFolder;
use anyhow::{Context, Result, anyhow, bail};
use mycroft_diagnose::render;
use mycroft_record::{HostTime, NANOS_PER_MS};
use mycroft_sim::swarm::share_out;
use mycroft_sim::{Fault, Scenario, Score, Truth, swarm};
use mycroft_store::recording::{RecordingFile, RecordingWriter};
use serde_json::{Value, json};
use std::path::Path;

/// Ranks of a host where only `--ranks` says how many there are.
const RANKS_PER_HOST: u32 = 8;

/// An iteration of a job of which only `--ranks` is known, seconds, and the share of it that is computation.
const ITERATION_S: f64 = 0.4;
/// See [`ITERATION_S`]: the middle of the 60 to 80 % of computation that nothing hides (Pulse 2, FALCON 3.1).
const COMPUTATION: f64 = 0.7;

/// The scenario that was asked for: of a file, of a seed, or the default one, with the flags laid over it.
fn scenario(args: &SimRunArgs) -> Result<Scenario> {
    let mut scenario = match (&args.scenario, args.swarm) {
        (Some(path), _) => Scenario::load(path)?,
        (None, Some(seed)) => swarm(seed, args.family),
        (None, None) => Scenario { name: "command-line".to_owned(), ..Scenario::default() },
    };
    args.shape.lay_over(&mut scenario);
    scenario.cp = args.cp.unwrap_or(scenario.cp);
    scenario.ep = args.ep.unwrap_or(scenario.ep);
    scenario.virtual_stages = args.virtual_stages.unwrap_or(scenario.virtual_stages);
    if let Some(ranks) = args.ranks {
        spread(&mut scenario, args, ranks)?;
    }
    scenario.dp_mode = args.dp_mode.unwrap_or(scenario.dp_mode);
    scenario.schedule = args.schedule.unwrap_or(scenario.schedule);
    if !args.fault.is_empty() {
        let faults: Vec<Option<Fault>> = args.fault.iter().map(|text| parse_fault(text)).collect::<Result<_>>()?;
        let mut faults = faults.into_iter().flatten();
        scenario.fault = faults.next();
        scenario.faults = faults.collect();
    }
    if let Some(after) = args.after {
        for fault in scenario.fault.iter_mut().chain(&mut scenario.faults) {
            fault.after_s = after;
        }
    }
    scenario.duration_s = args.duration.unwrap_or(scenario.duration_s);
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    scenario.check().map_err(|message| anyhow!("{message}"))?;
    if args.ranks.is_some() && args.scenario.is_none() && args.swarm.is_none() {
        // An iteration as long as the default job's about is, with the shares of a real one.
        share_out(&mut scenario, ITERATION_S, COMPUTATION);
    }
    Ok(if args.swarm.is_some() { scenario } else { scenario.folded() })
}

/// Lays `ranks` out: hosts of eight, tensor parallel over a host, data parallel over the rest; what a flag says holds.
fn spread(scenario: &mut Scenario, args: &SimRunArgs, ranks: u32) -> Result<()> {
    let per_host = args.shape.ranks_per_host.unwrap_or(RANKS_PER_HOST.min(ranks));
    if ranks == 0 || per_host == 0 || !ranks.is_multiple_of(per_host) {
        bail!("--ranks {ranks}: expected a multiple of the {per_host} ranks of a host; see --ranks-per-host");
    }
    (scenario.hosts, scenario.ranks_per_host) = (ranks / per_host, per_host);
    scenario.tp = args.shape.tp.unwrap_or(per_host);
    scenario.pp = args.shape.pp.unwrap_or(1);
    scenario.cp = args.cp.unwrap_or(1);
    if args.shape.dp.is_none() {
        let model = u64::from(scenario.tp) * u64::from(scenario.pp) * u64::from(scenario.cp);
        if model == 0 || !u64::from(ranks).is_multiple_of(model) {
            bail!("--ranks {ranks}: expected a multiple of tp x pp x cp = {model}");
        }
        // At most `ranks`.
        scenario.dp = u32::try_from(u64::from(ranks) / model).unwrap_or(ranks);
    }
    Ok(())
}

/// Runs one scenario; exit 0 exactly when the verdict is right.
pub(crate) fn run(args: &SimRunArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let scenario = scenario(args)?;
    let mut recording = args.out.as_deref().map(|out| Recording::create("--out", out)).transpose()?;
    if !args.json {
        let faults: Vec<String> = scenario.all_faults().map(ToString::to_string).collect();
        let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(" and ") };
        eprintln!("{}: {} ranks on {} hosts, fault {faults}", scenario.name, scenario.world(), scenario.hosts);
    }
    let mut progress = Progress::start();
    let dues = Dues::of(args.swarm.map(|_| family_of(&scenario)));
    let played = play(&scenario, dues, recording.as_mut().map(Recording::writer), &stop, |moment| {
        progress.say(|| {
            let of = scenario.duration_s;
            format!("{} of {of} s simulated, {} iterations", moment.seconds, moment.iterations)
        });
    })?;
    drop(progress);
    let Some(run) = played else {
        eprintln!("mycroft: interrupted; nothing is kept");
        return Ok(EXIT_INTERRUPTED);
    };
    if let Some(recording) = recording {
        recording.keep(&scenario, &run.truths)?;
    }
    let outcome = outcome(&scenario, &run);
    if args.json {
        println!("{}", json_of(&scenario, &run, &outcome));
    } else {
        print_outcome(&outcome);
        println!(
            "simulated {} records of {} ranks at {:.1} times real time, diagnosis included",
            run.records,
            scenario.world(),
            run.speed
        );
    }
    Ok(if run.judgement.correct() { EXIT_OK } else { EXIT_FOUND })
}

/// The run as every other run is told: the first case against the fault that it is about.
fn outcome(scenario: &Scenario, run: &Run) -> Outcome {
    let case = run.case();
    let truth = about(run).cloned().unwrap_or_else(Truth::healthy);
    let why = match &run.judgement.wrong[..] {
        [] if run.judgement.outcomes.is_empty() => "healthy, and no case was opened".to_owned(),
        [] => right(run),
        wrong => wrong.join("; "),
    };
    let after = |time: HostTime| -> Option<i64> {
        let at = i64::try_from(truth.at_ms).ok().filter(|at| *at != 0)?;
        time.some().map(|time| (time.0 / NANOS_PER_MS) as i64 - at)
    };
    Outcome {
        scenario: scenario.name.clone(),
        seed: scenario.seed,
        transport: "simulated".to_owned(),
        nccl: None,
        finding: case.map(|case| case.finding.clone()),
        because: case.map(|case| case.because.iter().map(|reason| reason.text.clone()).collect()).unwrap_or_default(),
        detected_after_ms: case.and_then(|case| after(case.opened_at)),
        diagnosed_after_ms: case.and_then(|case| after(case.finding.diagnosed_at)),
        iterations_to_detection: run.iterations_to_detection,
        score: Score { correct: run.judgement.correct(), why },
        iterations: run.progress.iterations,
        iteration_ms_median: Some(run.progress.iteration_ms_median).filter(|ms| *ms > 0.0),
        faulty_iteration_ms_median: None,
        report_text: render(&run.report),
        capture: None,
        fault: truth.fault.as_ref().map(ToString::to_string),
        truth,
    }
}

/// Why a verdict on a job with faults is right: what was found is right, and what was not found is not due.
fn right(run: &Run) -> String {
    let unseen = run.judgement.outcomes.iter().filter(|outcome| !outcome.due && outcome.named_by.is_none());
    let unseen: Vec<String> = unseen
        .map(|outcome| match &run.truths[outcome.fault].due {
            Some(due) => format!("no case is due: {}", due.text()),
            None => "no case is due: it was there too briefly, cost too little, or came after a stop".to_owned(),
        })
        .collect();
    if unseen.is_empty() { "culprits, kinds and categories are right".to_owned() } else { unseen.join("; ") }
}

/// The fault that the first case names, else the first that there is.
fn about(run: &Run) -> Option<&Truth> {
    let named = |outcome: &&mycroft_sim::Outcome| outcome.named_by.is_some_and(|(case, _)| case == 0);
    let outcome = run.judgement.outcomes.iter().find(named);
    outcome.and_then(|outcome| run.truths.get(outcome.fault)).or(run.truths.first())
}

/// What `mycroft testbed run --json` prints, and what only a simulation can say.
fn json_of(scenario: &Scenario, run: &Run, outcome: &Outcome) -> Value {
    let mut value = as_json(outcome);
    value["truths"] = run.truths.iter().map(label::brief).collect();
    value["ranks"] = json!(scenario.world());
    value["hosts"] = json!(scenario.hosts);
    value["records"] = json!(run.records);
    value["batches"] = json!(run.batches);
    value["speed"] = json!(run.speed);
    value["slowest_tick_ms"] = json!(run.slowest_tick.as_secs_f64() * 1e3);
    value
}

/// A recording with its label, which is in its place whole or not at all.
pub(crate) struct Recording {
    folder: WholeFolder,
    writer: RecordingWriter,
}

impl Recording {
    /// Begins a recording in the new folder `path`; `flag` is how the user named it.
    pub(crate) fn create(flag: &str, path: &Path) -> Result<Recording> {
        let folder = WholeFolder::create(flag, path)?;
        let writer = RecordingWriter::create(folder.path())?;
        Ok(Recording { folder, writer })
    }

    /// The folder meanwhile.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Where records go.
    pub(crate) fn writer(&mut self) -> &mut RecordingWriter {
        &mut self.writer
    }

    /// Adds `truth.json` and `scenario.toml` and puts the folder in its place.
    pub(crate) fn keep(self, scenario: &Scenario, truths: &[Truth]) -> Result<()> {
        finish(self.writer, self.folder.path(), scenario, truths)?;
        self.folder.keep()
    }
}

/// Ends a recording in `dir` and writes its label beside it.
pub(crate) fn finish(
    writer: RecordingWriter,
    dir: &Path,
    scenario: &Scenario,
    truths: &[Truth],
) -> Result<Vec<RecordingFile>> {
    let files = writer.finish()?;
    let toml = toml::to_string(scenario).context("a scenario cannot be written as TOML")?;
    for (name, text) in [("truth.json", label::pretty(&label::truth(scenario, truths))), ("scenario.toml", toml)] {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(files)
}
