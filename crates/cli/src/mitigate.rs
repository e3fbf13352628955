//! `mycroft mitigate`: what could be done about a slow job, and what that would gain and cost.
use crate::api::{Api, ServerArgs, escaped};
use crate::carry::{self, Written};
use crate::exit::{EXIT_FOUND, EXIT_OK};
use crate::told::{json, print};
use anyhow::Result;
use clap::value_parser;
use mycroft_serve::api::PlanJson;
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
    /// Micro-batches of the whole batch, over all replicas.
    #[arg(long, value_parser = value_parser!(u32).range(1..))]
    micro_batches: u32,
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
    /// Seconds of the job that other numbers of micro-batches cost.
    #[arg(long, default_value_t = 5.0)]
    split_cost: f64,
    /// Seconds of the job that it costs when hosts change places.
    #[arg(long, default_value_t = 60.0)]
    move_cost: f64,
    /// Seconds of the job that a restart costs: checkpoint, start, and the iterations since the checkpoint.
    #[arg(long, default_value_t = 1800.0)]
    restart_cost: f64,
    /// What has been done against the present faults already: ignore, split, move or restart.
    #[arg(long, default_value = IGNORE)]
    done: String,
    /// A host that is free to take another's place (repeatable); default: not known, taken for enough.
    #[arg(long)]
    spare: Vec<String>,
    /// Where the plan divides micro-batches: write the division to this file, which ranks with the Python package read and change
    /// over to together. A file that says so already stays as it is.
    #[arg(long, value_name = "FILE")]
    write_plan: Option<PathBuf>,
    /// With --write-plan: write the even division instead, whatever the plan is.
    #[arg(long, requires = "write_plan")]
    take_back: bool,
    /// Where the plan leaves hosts out: add them to this list, for `python -m mycroft exclude`.
    #[arg(long, value_name = "FILE")]
    write_exclusions: Option<PathBuf>,
    /// Print the server's JSON.
    #[arg(long)]
    json: bool,
}

/// Shows the plan. Exit 1 when it would change something.
pub(crate) fn mitigate(args: &MitigateArgs) -> Result<u8> {
    let plan: PlanJson = Api::new(&args.server)?.get(&path(args))?;
    if args.json {
        print(&format!("{}\n", json(&plan)?))?;
    } else {
        print(&plan.text)?;
    }
    carry(args, &plan)?;
    Ok(if plan.strategy == IGNORE { EXIT_OK } else { EXIT_FOUND })
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
            told(path, carry::division(path, &plan.from, "taken back: the even division")?);
        } else if plan.strategy == SPLIT {
            let (before, after) = (plan.before_ms, plan.after_ms);
            let reason = format!("cases {}: {before:.0} ms an iteration, {after:.0} by the model", cases.join(", "));
            told(path, carry::division(path, &plan.to, &reason)?);
        } else {
            eprintln!("mycroft: {} is not written: the plan divides no micro-batches now", path.display());
        }
    }
    match &args.write_exclusions {
        Some(path) if plan.left_out.is_empty() => {
            eprintln!("mycroft: {} is not written: the plan leaves no host out", path.display());
        }
        Some(path) => told(path, carry::exclusions(path, plan)?),
        None => (),
    }
    Ok(())
}

/// The request.
fn path(args: &MitigateArgs) -> String {
    let mut path = format!(
        "/api/v1/plan?micro_batches={}&tensor={}&pipeline={}&activations_ms={}&each_micro_batch={}&split_cost_s={}&move_cost_s={}\
         &restart_cost_s={}&done={}",
        args.micro_batches,
        args.tensor,
        args.pipeline,
        args.activations_ms,
        args.each_micro_batch,
        args.split_cost,
        args.move_cost,
        args.restart_cost,
        escaped(&args.done)
    );
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", escaped(&value)));
        }
    };
    add("job", args.job.clone());
    add("micro_batches_max", args.micro_batches_max.map(|count| count.to_string()));
    add("healthy_ms", args.healthy_ms.map(|ms| ms.to_string()));
    add("gradients_ms", args.gradients_ms.map(|ms| ms.to_string()));
    add("spares", Some(args.spare.join(",")).filter(|names| !names.is_empty()));
    path
}
