//! `mycroft sim score`: scenarios by the hundred, and how often the diagnosis is right.
use super::args::ScoreArgs;
use super::page::{Scores, page, text};
use super::play::{Dues, Run, family_of, play};
use super::run::Recording;
use super::seeds;
use super::worker::{Ended, each, jobs};
use crate::exit::{EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::whole;
use anyhow::{Context, Result};
use mycroft_diagnose::render;
use mycroft_record::Category;
use mycroft_sim::{Judgement, Scenario, swarm};
use std::path::Path;
use std::time::Duration;

/// What came of one seed.
pub(crate) struct Seed {
    pub(crate) judgement: Judgement,
    /// What each case said.
    pub(crate) said: Vec<Category>,
    pub(crate) ranks: u32,
    pub(crate) slowest_tick: Duration,
}

/// Plays and scores every seed; exit 0 exactly when none fails.
pub(crate) fn score(args: &ScoreArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    if !args.families.is_empty() {
        let right = seeds::score(args, &stop)?;
        return Ok(right.map_or(EXIT_INTERRUPTED, |right| if right { EXIT_OK } else { EXIT_FOUND }));
    }
    let mut scores = Scores::new(args);
    let mut progress = Progress::start();
    let total = args.seeds.end - args.seeds.first;
    let whole = each(
        args.seeds,
        jobs(args.jobs),
        &stop,
        |seed| one(seed, args, &stop),
        |seed, ended| {
            let scenario = swarm(seed, args.family);
            let family = family_of(&scenario);
            match ended {
                Ended::Done(done) => scores.add(seed, family, &scenario.name, &done),
                Ended::Failed(why) => scores.add_failed(seed, family, &scenario.name, &why),
            }
            if let Some(failing) = scores.failing.last().filter(|failing| failing.seed == seed) {
                progress.clear();
                eprintln!("{}: {}", failing.scenario, failing.why.join("; "));
            }
            progress.say(|| format!("{} of {total} seeds, {} failing", scores.seeds, scores.failing.len()));
            Ok(())
        },
    )?;
    drop(progress);
    if !whole {
        eprintln!("mycroft: interrupted after {} of {total} seeds; nothing is written", scores.seeds);
        return Ok(EXIT_INTERRUPTED);
    }
    if let Some(path) = &args.write {
        whole::write(path, &page(&scores))?;
    }
    if args.json {
        println!("{}", scores.json());
    } else {
        print!("{}", text(&scores));
    }
    Ok(if scores.failing.is_empty() { EXIT_OK } else { EXIT_FOUND })
}

/// Plays one seed; a failing one is played again where its records are to be kept.
fn one(seed: u64, args: &ScoreArgs, stop: &Stop) -> Result<Option<Seed>> {
    let scenario = swarm(seed, args.family);
    let dues = Dues::of(Some(family_of(&scenario)));
    let Some(run) = play(&scenario, dues, None, stop, |_| ())? else { return Ok(None) };
    if !run.judgement.correct()
        && let Some(dir) = &args.keep
        && keep(&scenario, dir, stop)?.is_none()
    {
        return Ok(None);
    }
    Ok(Some(Seed {
        said: run.report.cases.iter().map(|case| case.finding.category).collect(),
        ranks: scenario.world(),
        slowest_tick: run.slowest_tick,
        judgement: run.judgement,
    }))
}

/// Plays a scenario again and keeps its records, truth, scenario and report under `dir`; what an earlier score kept of it
/// is replaced.
fn keep(scenario: &Scenario, dir: &Path, stop: &Stop) -> Result<Option<()>> {
    let place = dir.join(&scenario.name);
    if place.is_dir() {
        std::fs::remove_dir_all(&place).with_context(|| format!("--keep {}: cannot be replaced", place.display()))?;
    }
    let mut recording = Recording::create("--keep", &place)?;
    let Some(Run { truths, report, .. }) = play(scenario, Dues::Felt, Some(recording.writer()), stop, |_| ())? else {
        return Ok(None);
    };
    whole::write(&recording.path().join("report.txt"), &render(&report))?;
    recording.keep(scenario, &truths)?;
    Ok(Some(()))
}
