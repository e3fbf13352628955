//! `mycroft validate` and `mycroft hold`: ranks of a running job wait at their gates, are tested, and go on.
mod ask;
mod case;
mod gates;
mod groups;
mod line;
mod run;
mod show;

use crate::api::{Api, ServerArgs};
use crate::exit::{EXIT_FOUND, EXIT_OK};
use crate::mitigate::who;
use crate::segment_dir::default_segment_dir;
use crate::stop::Stop;
use crate::times::span;
use crate::token::ActTokenArgs;
use crate::told::{json, print};
use anyhow::{Context, Result, bail};
use ask::Wanted;
use case::Tested;
use clap::{ValueEnum, value_parser};
use gates::Job;
use groups::Members;
use mycroft_diagnose::validate::{Check, Costs, Plan, Shape, again, judge, lint, plan};
use mycroft_ring::gate::hold::Terms;
use mycroft_serve::api::CaseJson;
use run::Results;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long tests usually take: three sizes of six products each, and 24 messages of a megabyte, on a busy machine.
const CHECK_NS: u64 = 120_000_000;
const PAIR_NS: u64 = 250_000_000;
/// How often passes in which somebody stands out are run again: what is slow by chance is not slow four times.
const AGAIN_MAX: usize = 3;

const AFTER_HELP: &str = "\
Examples:
  mycroft validate --job llama-70b --dry-run        what would be tested, and how long the job would pause
  mycroft validate --job llama-70b                  hold, test, release, say who is slow
  mycroft validate --job llama-70b --case 12        the same, and what that does to case 12 of the server
  mycroft validate --job llama-70b --watch --tell   test unsure, costly cases by itself (--below, --above, --every)
  mycroft validate --job llama-70b --groups 8a3f0c1d2e4b5a69 --shape tree --checks device
  mycroft validate --job llama-70b --agents --url http://server:7701 --act-token-file act-token   all of it, on several hosts

The job must run with LD_PRELOAD=libmycroft_preload.so: all of it on this machine, or with --agents on the hosts of agents that run
with --may-hold. Ranks go on by themselves when this command is interrupted (after half a second, with --agents after two and a
half), when a rank, an agent or the server ends, and at the end of --at-most. Today tests of devices and ways run over the CPU
library only; on a GPU they say that they are unable to.

Exit codes: 0 nobody is slower than its peers, 1 somebody is, 2 it could not be tested.";

/// Which job, and where.
#[derive(clap::Args, Debug)]
pub(crate) struct JobArgs {
    /// The job (MYCROFT_JOB in its environment).
    #[arg(long)]
    job: String,
    /// Directory of its segments (repeatable: emulated hosts on one machine may have one each); default
    /// /dev/shm/mycroft-UID.
    #[arg(long, env = "MYCROFT_DIR")]
    dir: Vec<PathBuf>,
    /// The job is on the hosts of the agents that are connected to the server at --url; they must run with --may-hold. Needs
    /// --act-token-file.
    #[arg(long)]
    agents: bool,
    /// Longest time in which all ranks have to come to one point.
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "TIME")]
    agree_within: Duration,
}

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ValidateArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Communicators whose members are tested: `widest`, `all`, or their numbers as --dry-run shows them.
    #[arg(long, default_value = "widest", value_delimiter = ',')]
    groups: Vec<String>,
    /// Which ways of a communicator are tested.
    #[arg(long, value_enum, default_value_t = ShapeArg::Ring)]
    shape: ShapeArg,
    /// What each rank tests by itself.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "device,processor,host")]
    checks: Vec<CheckArg>,
    /// Bytes of a large message.
    #[arg(long, default_value_t = 1 << 20, value_parser = value_parser!(u64).range(1..=4 << 20))]
    bytes: u64,
    /// Longest time that the job is held, once all wait; at most 55 s.
    #[arg(long, default_value = "20s", value_parser = duration, value_name = "TIME")]
    at_most: Duration,
    /// Weigh this case of the server anew by the results: its suspect is confirmed, cleared, or another one is found.
    #[arg(long, value_name = "ID")]
    case: Option<u64>,
    #[command(flatten)]
    server: ServerArgs,
    /// With --case or --watch: tell the server what the test said, so that the case says it from then on. Needs --act-token-file.
    #[arg(long)]
    tell: bool,
    #[command(flatten)]
    act_token: ActTokenArgs,
    /// Go on until interrupted: test each open slowdown of the job that is less sure than --below and costs more than --above, once
    /// each time that the case changes its mind.
    #[arg(long, conflicts_with_all = ["case", "dry_run"])]
    watch: bool,
    /// With --watch: how sure a case may be and still be tested, 0 to 1.
    #[arg(long, default_value_t = 0.9)]
    below: f64,
    /// With --watch: by how much iterations must be longer than usual, as a share.
    #[arg(long, default_value_t = 0.1)]
    above: f64,
    /// With --watch: least time between two tests.
    #[arg(long, default_value = "10m", value_parser = pause, value_name = "TIME")]
    every: Duration,
    /// Print the plan and the expected pause, and hold nobody.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct HoldArgs {
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    act_token: ActTokenArgs,
    /// For how long; at most 55 s.
    #[arg(long = "for", default_value = "1s", value_parser = duration, value_name = "TIME")]
    time: Duration,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum ShapeArg {
    /// Each rank with the next.
    Ring,
    /// Parents and children of NCCL's first tree.
    Tree,
    /// Those of both trees.
    DoubleTree,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum CheckArg {
    /// Products on the device.
    Device,
    /// Copies from the device (takes the CUDA runtime: not there yet).
    Copy,
    /// Products on the processor.
    Processor,
    /// Copies in memory, and how late threads wake up.
    Host,
    /// Ways only.
    None,
}

impl CheckArg {
    fn check(self) -> Option<Check> {
        match self {
            CheckArg::Device => Some(Check::Device),
            CheckArg::Copy => Some(Check::Copy),
            CheckArg::Processor => Some(Check::Processor),
            CheckArg::Host => Some(Check::Host),
            CheckArg::None => None,
        }
    }
}

/// Between two tests: a second to a day.
fn pause(text: &str) -> Result<Duration, String> {
    span(text, 1.0, 86_400.0)
}

/// Ranks are held for a minute at most, of which some goes for coming together.
fn duration(text: &str) -> Result<Duration, String> {
    span(text, 0.0, 55.0)
}

fn directories(args: &JobArgs) -> Vec<PathBuf> {
    if args.dir.is_empty() { vec![default_segment_dir()] } else { args.dir.clone() }
}

/// The job's gates, here or on the hosts of agents.
fn find(args: &JobArgs, server: &ServerArgs, token: Option<&str>) -> Result<Job> {
    if args.agents { Job::there(&args.job, server, token) } else { Job::here(&args.job, directories(args)) }
}

fn terms(args: &JobArgs, at_most: Duration) -> Terms {
    Terms { agree_within: args.agree_within, at_most }
}

/// The case that is to be tested.
fn the_case(args: &ValidateArgs, id: u64) -> Result<Tested> {
    let case: CaseJson = Api::new(&args.server)?.get(&format!("/api/v1/cases/{id}"))?;
    Tested::of(&case, &args.job.job)
}

/// Holds a job, tests it as planned, releases it, and says who is slow.
pub(crate) fn validate(args: &ValidateArgs) -> Result<u8> {
    if args.tell && args.case.is_none() && !args.watch {
        bail!("--tell: say about which --case, or --watch");
    }
    let token = args.act_token.read()?;
    if args.watch {
        let stop = Stop::on_signals()?;
        let wanted = Wanted {
            server: &args.server,
            job: &args.job.job,
            below: args.below,
            above: args.above,
            every: args.every,
        };
        return ask::watch(&wanted, &stop, |id| test(args, Some(id), token.as_deref()));
    }
    test(args, args.case, token.as_deref())
}

/// Tests once; of a case, with what that does to it.
fn test(args: &ValidateArgs, case: Option<u64>, token: Option<&str>) -> Result<u8> {
    let case = case.map(|id| the_case(args, id)).transpose()?;
    let mut job = find(&args.job, &args.server, token)?;
    let members = Members::of(&job)?;
    let shape = match args.shape {
        ShapeArg::Ring => Shape::Ring,
        ShapeArg::Tree => Shape::Tree,
        ShapeArg::DoubleTree => Shape::DoubleTree,
    };
    let groups = members.groups(&args.groups, shape)?;
    let checks: Vec<Check> = args.checks.iter().filter_map(|check| check.check()).collect();
    let plan = plan(&groups, &checks, Costs { check_ns: CHECK_NS, pair_ns: PAIR_NS });
    let most_ns = u64::try_from(args.at_most.as_nanos()).unwrap_or(u64::MAX);
    if let Some(problem) = lint(&plan, &members.known(), most_ns).first() {
        bail!("this is not tested: {problem}");
    }
    let mut results = Results::default();
    if args.dry_run {
        let told = show::planned(&args.job.job, &members, &groups, &plan, AGAIN_MAX);
        print(&if args.json { format!("{}\n", json(&told)?) } else { told.text() })?;
        return Ok(EXIT_OK);
    }
    eprintln!("{}", show::announced(members.count(), &plan, AGAIN_MAX, args.at_most));
    let begun = Instant::now();
    let mut held = job.hold(terms(&args.job, args.at_most))?;
    let until = Instant::now() + args.at_most;
    let mut run = |plan: &Plan, results: &mut Results| run::run(&mut held, plan, &members, args.bytes, until, results);
    run(&plan, &mut results).context("the job goes on, not all was tested")?;
    for _ in 0..AGAIN_MAX {
        let stands_out = again(&plan, &judge(&results.checks, &results.links));
        if stands_out.passes.is_empty() {
            break;
        }
        run(&stands_out, &mut results).context("the job goes on, not all was tested")?;
    }
    drop(held);
    let paused = begun.elapsed();
    let judgement = judge(&results.checks, &results.links);
    let case = case.map(|case| case.told(&judgement, &members));
    let told = show::Told::of(&args.job.job, &members, &plan, paused, args.bytes, &results, &judgement);
    let measured = !results.checks.is_empty() || !results.links.is_empty();
    if let Some(case) = case.as_ref().filter(|_| args.tell && measured) {
        let (id, body) = (case.id(), case.validation(&told.found(), &who()));
        let _: CaseJson = Api::new(&args.server)?.act(&format!("/api/v1/cases/{id}/validation"), token, &body)?;
    }
    let told = told.about(case);
    print(&if args.json { format!("{}\n", json(&told)?) } else { told.text() })?;
    if !measured {
        bail!("nothing was measured; see above for why");
    }
    Ok(if judgement.slow.is_empty() { EXIT_OK } else { EXIT_FOUND })
}

/// Holds a job for a while, and says how many ranks and for how long.
pub(crate) fn hold(args: &HoldArgs) -> Result<u8> {
    let token = args.act_token.read()?;
    let mut job = find(&args.job, &args.server, token.as_deref())?;
    let begun = Instant::now();
    let mut held = job.hold(terms(&args.job, args.time + Duration::from_secs(1)))?;
    let (ranks, came) = (held.count(), begun.elapsed());
    eprintln!("{ranks} ranks are held");
    held.keep(args.time)?;
    drop(held);
    let (came, paused) = (came.as_secs_f64() * 1e3, begun.elapsed().as_secs_f64());
    print(&format!(
        "{ranks} ranks came to one point in {came:.1} ms and were held; the job paused for {paused:.3} s\n"
    ))?;
    Ok(EXIT_OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_is_shorter_than_a_watchdog_and_a_pause_between_tests_than_a_day() {
        assert_eq!((duration("55s"), pause("24h")), (Ok(Duration::from_secs(55)), Ok(Duration::from_secs(86_400))));
        assert!(["0s", "500ms", "25h"].iter().all(|text| pause(text).is_err()));
        assert!(["-1s", "56s", "1m"].iter().all(|text| duration(text).is_err()));
    }
}
