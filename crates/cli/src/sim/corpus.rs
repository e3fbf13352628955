//! `mycroft sim corpus`: labelled anomalies for other people's detectors.
use super::args::CorpusArgs;
use super::label;
use super::play::family_of;
use super::run::finish;
use super::worker::{Ended, each, jobs};
use crate::exit::{EXIT_INTERRUPTED, EXIT_OK};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::whole::WholeFolder;
use anyhow::{Context, Result, bail};
use mycroft_record::{HostTime, JobName};
use mycroft_sim::{Scenario, Simulation, swarm};
use mycroft_store::recording::{RecordingFile, RecordingWriter};
use serde_json::{Value, json};
use std::path::Path;

/// What the folder says of itself; `{...}` are filled in.
const README: &str = include_str!("corpus/README.md");
/// Community Data License Agreement, Permissive, 2.0; the README says why.
const LICENSE: &str = include_str!("corpus/LICENSE.txt");
/// The job's name in all records.
const JOB: &str = "train";
/// Version of `index.json`; grows when a field changes its meaning.
const INDEX_VERSION: u32 = 1;

/// Fills a new folder with one recording per seed.
pub(crate) fn corpus(args: &CorpusArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let folder = WholeFolder::create("--out", &args.out)?;
    let scenarios = folder.path().join("scenarios");
    std::fs::create_dir(&scenarios).with_context(|| format!("cannot make {}", scenarios.display()))?;
    let mut entries: Vec<Value> = Vec::new();
    let (mut records, mut bytes) = (0, 0);
    let total = args.seeds.end - args.seeds.first;
    let mut progress = Progress::start();
    let work = |seed| record(&swarm(seed, args.family), &scenarios, &stop);
    let whole = each(args.seeds, jobs(args.jobs), &stop, work, |seed, ended| {
        let files = match ended {
            Ended::Done(files) => files,
            Ended::Failed(why) => bail!("seed {seed}: the simulation failed: {why}"),
        };
        records += files.iter().map(|file| file.records).sum::<u64>();
        bytes += files.iter().map(|file| file.bytes).sum::<u64>();
        entries.push(entry(&swarm(seed, args.family), &files));
        progress.say(|| format!("{} of {total} scenarios, {} MB", entries.len(), bytes >> 20));
        Ok(())
    })?;
    drop(progress);
    if !whole {
        eprintln!("mycroft: interrupted; nothing is kept");
        return Ok(EXIT_INTERRUPTED);
    }
    let family = args.family.map(|family| family.as_str());
    let command = format!("mycroft sim corpus --seeds {}", args.seeds);
    let command = family.map_or(command.clone(), |family| format!("{command} --family {family}"));
    let index = json!({
        "version": INDEX_VERSION,
        "made_by": concat!("mycroft ", env!("CARGO_PKG_VERSION")),
        "command": command,
        "license": "CDLA-Permissive-2.0",
        "seeds": args.seeds.to_string(),
        "family": family,
        "records": records,
        "bytes": bytes,
        "scenarios": entries,
    });
    let readme = README
        .replace("{command}", &command)
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{scenarios}", &entries.len().to_string())
        .replace("{records}", &records.to_string());
    for (name, text) in [("index.json", &*label::pretty(&index)), ("README.md", &readme), ("LICENSE", LICENSE)] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    folder.keep()?;
    eprintln!("mycroft: {} scenarios, {records} records, {bytes} bytes: {}", entries.len(), args.out.display());
    Ok(EXIT_OK)
}

/// Simulates a scenario into its folder; `None` when interrupted.
fn record(scenario: &Scenario, scenarios: &Path, stop: &Stop) -> Result<Option<Vec<RecordingFile>>> {
    let dir = scenarios.join(&scenario.name);
    let mut writer = RecordingWriter::create(&dir)?;
    let mut simulation = Simulation::new(scenario);
    let job: JobName = JobName::from(JOB);
    while let Some(stretch) = simulation.next_stretch() {
        if stop.asked() {
            return Ok(None);
        }
        for delivery in stretch {
            let mut batch = delivery.batch;
            // The simulator's name of the job says its family: half of the answer.
            batch.source.job = job.clone();
            writer.append(HostTime(delivery.arrives_at), batch)?;
        }
    }
    finish(writer, &dir, scenario, &simulation.truth()).map(Some)
}

/// What the index says of a scenario.
fn entry(scenario: &Scenario, files: &[RecordingFile]) -> Value {
    let faults: Vec<String> = scenario.all_faults().map(ToString::to_string).collect();
    let files = files.iter().map(|file| json!({"name": file.name, "bytes": file.bytes, "records": file.records}));
    json!({
        "name": scenario.name,
        "folder": format!("scenarios/{}", scenario.name),
        "seed": scenario.seed,
        "family": family_of(scenario),
        "hosts": scenario.hosts,
        "ranks": scenario.world(),
        "duration_s": scenario.duration_s,
        "healthy": !scenario.all_faults().any(|fault| fault.kind.is_of_job()),
        "faults": faults,
        "files": files.collect::<Vec<Value>>(),
    })
}
