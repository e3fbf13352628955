//! `mycroft mitigate`: what could be done about a slow job, and what that would gain and cost.
use crate::api::{Api, ServerArgs, escaped};
use crate::exit::{EXIT_FOUND, EXIT_OK};
use crate::token::ActTokenArgs;
use crate::told::{json, print};
use anyhow::{Context, Result, bail};
use clap::value_parser;
use mycroft_serve::act::files::{self, Written};
use mycroft_serve::api::{ActRequest, ActionJson, AutoRequest, PlanJson, PlanRequest, PolicyJson};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The strategy that changes nothing.
const IGNORE: &str = "ignore";
/// The strategy that a file of a division carries.
const SPLIT: &str = "split";

/// What the brain cannot know of a job.
#[derive(clap::Args, Debug)]
pub(crate) struct MitigateArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// The job; may be left out while there is only one.
    #[arg(long)]
    job: Option<String>,
    /// Micro-batches of the whole batch, over all replicas: without it there is no plan.
    #[arg(long, value_parser = value_parser!(u32).range(1..))]
    micro_batches: Option<u32>,
    /// Ranks of a tensor-parallel group, all on one host.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    tensor: u32,
    /// Pipeline stages. Ranks are taken in Megatron's order: tensor, data, pipeline.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    pipeline: u32,
    /// Most micro-batches of a replica, by its memory; default: any number.
    #[arg(long)]
    micro_batches_max: Option<u32>,
    /// Milliseconds of a healthy iteration; default: what is usual for the job, as the server learned it.
    #[arg(long)]
    healthy_ms: Option<f64>,
    /// Milliseconds that an iteration waits for the exchange of gradients; default: a tenth of a healthy iteration.
    #[arg(long)]
    gradients_ms: Option<f64>,
    /// Milliseconds of a micro-batch's activations from one stage to the next.
    #[arg(long, default_value_t = 0.0)]
    activations_ms: f64,
    /// Replicas wait for each other in each micro-batch (sharded parameters, experts), not once per iteration.
    #[arg(long)]
    each_micro_batch: bool,
    /// Seconds of the job that other numbers of micro-batches cost; default: as measured before, or 5.
    #[arg(long)]
    split_cost: Option<f64>,
    /// Seconds of the job that it costs when hosts change places; default: 60.
    #[arg(long)]
    move_cost: Option<f64>,
    /// Seconds of the job that a restart costs: checkpoint, start, and the iterations since the checkpoint; default: as seen of this
    /// job before, or 1800.
    #[arg(long)]
    restart_cost: Option<f64>,
    /// What has been done against the present faults already: ignore, split, move or restart; default: what the server did.
    #[arg(long)]
    done: Option<String>,
    /// A host that is free to take another's place (repeatable); default: not known, taken for enough.
    #[arg(long)]
    spare: Vec<String>,
    /// Where the plan divides micro-batches: write the division to this file, which ranks with the Python package read and change
    /// over to together. A file that says so already stays as it is.
    #[arg(long, value_name = "FILE")]
    write_plan: Option<PathBuf>,
    /// Write the even division instead, whatever the plan is: with --write-plan into that file, with --apply by the server.
    #[arg(long)]
    take_back: bool,
    /// Where the plan leaves hosts out: add them to this list, for `python -m mycroft exclude`.
    #[arg(long, value_name = "FILE")]
    write_exclusions: Option<PathBuf>,
    /// Let the server carry the plan out now, write it down, look at what comes of it, and take it back where that is worse, or where
    /// the reason is gone. The server must have been started with --act-dir.
    #[arg(long, conflicts_with_all = ["write_plan", "write_exclusions"])]
    apply: bool,
    /// With --apply: also what was tried before and made the job slower.
    #[arg(long, requires = "apply")]
    again: bool,
    /// Let the server carry plans of these kinds out by itself from now on, as long as it runs and after: split, restart (with a
    /// comma: both), or off.
    #[arg(long, value_name = "KINDS", conflicts_with = "apply")]
    auto: Option<String>,
    /// With --auto: most actions in 24 hours.
    #[arg(long, default_value_t = 4, requires = "auto")]
    auto_per_day: u32,
    /// With --auto: how sure each case must be of its suspect, 0 to 1.
    #[arg(long, default_value_t = 0.9, requires = "auto")]
    auto_confidence: f64,
    #[command(flatten)]
    act_token: ActTokenArgs,
    /// Print the server's JSON.
    #[arg(long)]
    json: bool,
}

/// Shows the plan, and does with it what was asked for. Exit 1 when it would change something that was not done.
pub(crate) fn mitigate(args: &MitigateArgs) -> Result<u8> {
    if args.take_back && args.write_plan.is_none() && !args.apply {
        bail!("--take-back: say where: --apply for what the server did, --write-plan FILE for a file");
    }
    let api = Api::new(&args.server)?;
    if let Some(kinds) = &args.auto {
        return allow(args, &api, kinds);
    }
    if args.apply && args.take_back {
        return act(args, &api, args.job.as_deref().context("--take-back: say of which --job")?);
    }
    let plan: PlanJson = api.get(&path(&request(args)?)?)?;
    if args.json && !args.apply {
        print(&format!("{}\n", json(&plan)?))?;
    } else if !args.json {
        print(&plan.text)?;
    }
    carry(args, &plan)?;
    match plan.strategy == IGNORE {
        true => Ok(EXIT_OK),
        false if args.apply => act(args, &api, &plan.job),
        false => Ok(EXIT_FOUND),
    }
}

/// Lets the server act once.
fn act(args: &MitigateArgs, api: &Api, job: &str) -> Result<u8> {
    let plan = if args.take_back { None } else { Some(request(args)?) };
    let request = ActRequest { plan, take_back: args.take_back, again: args.again, who: who() };
    let path = format!("/api/v1/jobs/{}/actions", escaped(job));
    let action: ActionJson = api.act(&path, args.act_token.read()?.as_deref(), &request)?;
    if args.json {
        print(&format!("{}\n", json(&action)?))?;
    } else {
        print(&format!("{}\n", crate::actions::line(&action)))?;
    }
    Ok(EXIT_OK)
}

/// Lets the server act by itself, or not any more.
fn allow(args: &MitigateArgs, api: &Api, kinds: &str) -> Result<u8> {
    let job = args.job.as_deref().context("--auto: say for which --job")?;
    let allow: Vec<String> = if kinds == "off" { Vec::new() } else { kinds.split(',').map(str::to_owned).collect() };
    let plan = if allow.is_empty() { None } else { Some(request(args)?) };
    let (per_day, confidence) = (args.auto_per_day, args.auto_confidence);
    let request = AutoRequest { plan, allow, per_day, confidence, who: who() };
    let path = format!("/api/v1/jobs/{}/auto", escaped(job));
    let policy: PolicyJson = api.act(&path, args.act_token.read()?.as_deref(), &request)?;
    if args.json {
        print(&format!("{}\n", json(&policy)?))?;
    } else {
        print(&format!("{}\n", crate::actions::allowed(&policy)))?;
    }
    Ok(EXIT_OK)
}

/// Who asks, for the audit log: the server believes it, the token says that it may.
pub(crate) fn who() -> String {
    let user = std::env::var("USER").unwrap_or_else(|_| format!("uid {}", rustix::process::getuid().as_raw()));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{user} on {host}")
}

/// Writes the files that were asked for, and says what became of each.
fn carry(args: &MitigateArgs, plan: &PlanJson) -> Result<()> {
    let told = |path: &Path, written: Written| match written {
        Written::Yes => eprintln!("mycroft: {} is written", path.display()),
        Written::Already => eprintln!("mycroft: {} says so already", path.display()),
    };
    if let Some(path) = &args.write_plan {
        let cases: Vec<String> = plan.cases.iter().map(u64::to_string).collect();
        if args.take_back {
            told(path, files::division(path, &plan.from.micro_batches, "taken back: the even division")?);
        } else if plan.strategy == SPLIT {
            let (before, after) = (plan.before_ms, plan.after_ms);
            let reason = format!("cases {}: {before:.0} ms an iteration, {after:.0} by the model", cases.join(", "));
            told(path, files::division(path, &plan.to.micro_batches, &reason)?);
        } else {
            eprintln!("mycroft: {} is not written: the plan divides no micro-batches now", path.display());
        }
    }
    match &args.write_exclusions {
        Some(path) if plan.left_out.is_empty() => {
            eprintln!("mycroft: {} is not written: the plan leaves no host out", path.display());
        }
        Some(path) => told(path, files::exclusions(path, &plan.left_out)?),
        None => (),
    }
    Ok(())
}

/// What the server is told.
fn request(args: &MitigateArgs) -> Result<PlanRequest> {
    Ok(PlanRequest {
        job: args.job.clone(),
        micro_batches: args.micro_batches.context("--micro-batches: say how many the whole batch has")?,
        tensor: Some(args.tensor),
        pipeline: Some(args.pipeline),
        micro_batches_max: args.micro_batches_max,
        healthy_ms: args.healthy_ms,
        gradients_ms: args.gradients_ms,
        activations_ms: Some(args.activations_ms),
        each_micro_batch: Some(args.each_micro_batch),
        split_cost_s: args.split_cost,
        move_cost_s: args.move_cost,
        restart_cost_s: args.restart_cost,
        done: args.done.clone(),
        spares: Some(args.spare.join(",")).filter(|names| !names.is_empty()),
    })
}

/// The request of a plan.
fn path(request: &PlanRequest) -> Result<String> {
    let Value::Object(fields) = serde_json::to_value(request)? else { bail!("a request is an object") };
    let pair = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={}", escaped(text)),
        other => format!("{name}={}", escaped(&other.to_string())),
    };
    Ok(format!("/api/v1/plan?{}", fields.iter().map(pair).collect::<Vec<String>>().join("&")))
}
