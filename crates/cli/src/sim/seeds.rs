//! `mycroft sim score --families`: what became of each seed, one by one, and tables of them.
use super::args::ScoreArgs;
use super::bands::{page, summary};
use super::curve::curve;
use super::line::{Line, json_of, line};
use super::play::{Dues, family_of, play};
use super::worker::{Ended, each, jobs};
use crate::progress::Progress;
use crate::stop::Stop;
use crate::whole;
use anyhow::Result;
use mycroft_sim::swarm;

/// Plays every seed of every family and tells what became of them; whether all are right, `None` when interrupted.
pub(super) fn score(args: &ScoreArgs, stop: &Stop) -> Result<Option<bool>> {
    let mut lines: Vec<Line> = Vec::new();
    let mut progress = Progress::start();
    let total = (args.seeds.end - args.seeds.first) * args.families.len() as u64;
    for family in &args.families {
        let name = family.as_str();
        let one = |seed| -> Result<Option<Line>> {
            let scenario = swarm(seed, Some(*family));
            let dues = Dues::of(Some(family_of(&scenario)));
            Ok(play(&scenario, dues, None, stop, |_| ())?.map(|run| line(name, &scenario, &run)))
        };
        let whole = each(args.seeds, jobs(args.jobs), stop, one, |seed, ended| {
            lines.push(match ended {
                Ended::Done(line) => line,
                Ended::Failed(why) => {
                    let wrong = vec![format!("the run itself failed: {why}")];
                    Line { family: name, seed, wrong, ..Line::default() }
                }
            });
            let wrong = lines.iter().filter(|line| !line.wrong.is_empty()).count();
            progress.say(|| format!("{} of {total} seeds, {wrong} failing", lines.len()));
            Ok(())
        })?;
        if !whole {
            drop(progress);
            eprintln!("mycroft: interrupted after {} of {total} seeds; nothing is written", lines.len());
            return Ok(None);
        }
    }
    drop(progress);
    tell(args, &lines)?;
    Ok(Some(lines.iter().all(|line| line.wrong.is_empty())))
}

fn tell(args: &ScoreArgs, lines: &[Line]) -> Result<()> {
    let families: Vec<&str> = args.families.iter().map(|family| family.as_str()).collect();
    let command = format!("mycroft sim score --families {} --seeds {}", families.join(","), args.seeds);
    if let Some(path) = &args.lines {
        let text: String = lines.iter().map(|line| format!("{}\n", json_of(line))).collect();
        whole::write(path, &text)?;
    }
    if let Some(path) = &args.svg {
        whole::write(path, &curve(lines))?;
    }
    let page = page(&command, lines);
    if let Some(path) = &args.write {
        whole::write(path, &page)?;
    }
    match args.json {
        true => println!("{}", summary(lines)),
        false => print!("{page}"),
    }
    Ok(())
}
