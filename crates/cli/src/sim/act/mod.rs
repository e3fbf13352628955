//! `mycroft sim act`: simulated jobs with faults, without plans and with plans carried out.
mod job;
mod page;
mod papers;

use super::args::ActArgs;
use crate::exit::EXIT_OK;
use anyhow::{Context, Result};
use job::Trace;
use mycroft_sim::Scenario;

/// Plays the traces and prints what came of them.
pub(crate) fn act(args: &ActArgs) -> Result<u8> {
    if let Some(path) = &args.scenario {
        let costs_s = [args.split_cost, args.move_cost, args.restart_cost];
        let trace = Trace { scenario: Scenario::load(path)?, costs_s };
        print!("{}", page::one(&trace, &trace.without()?, &trace.with()?)?);
        return Ok(EXIT_OK);
    }
    let text = papers::play()?;
    print!("{text}");
    if let Some(path) = &args.write {
        std::fs::write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(EXIT_OK)
}
