//! `mycroft actions`: the audit log of a server.
use crate::api::{Api, ServerArgs, escaped};
use crate::exit::EXIT_OK;
use crate::told::{json, now, print, time};
use anyhow::Result;
use mycroft_record::text::printable;
use mycroft_serve::api::{ActionJson, ActionsJson, PolicyJson};

/// Which actions.
#[derive(clap::Args, Debug)]
pub(crate) struct ActionsArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Only of this job.
    #[arg(long)]
    job: Option<String>,
    /// Print the server's JSON.
    #[arg(long)]
    json: bool,
}

/// Shows what was done, newest first, and what may be done without asking.
pub(crate) fn actions(args: &ActionsArgs) -> Result<u8> {
    let query = args.job.as_ref().map(|job| format!("?job={}", escaped(job))).unwrap_or_default();
    let answer: ActionsJson = Api::new(&args.server)?.get(&format!("/api/v1/actions{query}"))?;
    if args.json {
        print(&format!("{}\n", json(&answer)?))?;
        return Ok(EXIT_OK);
    }
    let mut text: String = answer.policies.iter().map(|policy| format!("{}\n", allowed(policy))).collect();
    for action in &answer.actions {
        text.push_str(&format!("{}\n", line(action)));
    }
    if answer.actions.is_empty() {
        text.push_str("nothing was done\n");
    }
    if answer.more > 0 {
        text.push_str(&format!("and {} more, older ones\n", answer.more));
    }
    print(&text)?;
    Ok(EXIT_OK)
}

/// One action, in a few lines.
pub(crate) fn line(action: &ActionJson) -> String {
    let now = now();
    let done = match action.strategy.as_str() {
        "split" => format!("micro-batches {}", counts(&action.micro_batches)),
        _ => {
            let names: Vec<_> = action.left_out.iter().map(|left| printable(&left.host)).collect();
            format!("leave out {}", names.join(", "))
        }
    };
    let mut text = format!(
        "action {} of job {}: {done}; {}\n  {} by {} of {}: {}\n  in {}",
        action.number,
        printable(&action.job),
        action.state,
        time(Some(&action.at), now),
        action.by,
        printable(&action.who),
        printable(&action.because),
        printable(&action.file),
    );
    if let Some(after_ms) = action.after_ms {
        let cost = action.cost_ms.map(|ms| format!(", the change cost {:.1} s", ms / 1e3)).unwrap_or_default();
        let (before_ms, promised_ms) = (action.before_ms, action.promised_ms);
        text.push_str(&format!(
            "\n  {}: {before_ms:.0} ms an iteration before, {after_ms:.0} after, {promised_ms:.0} promised{cost}",
            action.effect
        ));
    }
    if let Some(ended_at) = &action.ended_at {
        text.push_str(&format!("\n  ended {}: {}", time(Some(ended_at), now), printable(&action.ended_because)));
    }
    text
}

/// What may be done to a job without asking.
pub(crate) fn allowed(policy: &PolicyJson) -> String {
    let (job, asked) = (printable(&policy.job), &policy.asked);
    if asked.allow.is_empty() {
        return format!("job {job}: nothing is done without asking");
    }
    let mut text = format!(
        "job {job}: {} may be done without asking, at most {} in 24 hours, where cases are {:.0} % sure; said {}",
        asked.allow.join(" and "),
        asked.per_day,
        100.0 * asked.confidence,
        printable(&asked.who)
    );
    if !policy.waits_for.is_empty() {
        text.push_str(&format!("\n  not done now: {}", printable(&policy.waits_for)));
    }
    text
}

fn counts(micro_batches: &[u32]) -> String {
    /// Replicas shown one by one.
    const SHOWN: usize = 32;
    let shown: Vec<String> = micro_batches.iter().take(SHOWN).map(u32::to_string).collect();
    let more = micro_batches.len().saturating_sub(SHOWN);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", shown.join(" "))
}
