//! A plan as text: what it would do, what that gains and costs, and why now. The same plan gives the same text.
use super::plan::{Choice, Plan};
use super::rent::Strategy;
use mycroft_record::NANOS_PER_MS;
use mycroft_record::text::printable;
use mycroft_record::time::rfc3339;
use std::fmt::Write as _;

/// Changes named one by one; a job of 10,000 ranks has 1,250 hosts.
const LINES_MAX: usize = 24;

/// The plan as text for a terminal.
pub fn render(plan: &Plan) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "{}", printable(&text));
    };
    line(format!("plan for job {} at {}: {}", plan.job, rfc3339(plan.as_of), headline(plan.strategy)));
    line(format!(
        "  iteration  {} healthy, {} now, {} with the plan ({})",
        time(plan.healthy_ns),
        time(plan.before_ns),
        time(plan.after_ns),
        removed(plan, plan.after_ns)
    ));
    line(format!("  cost       {} once; the faults have cost {} so far", time(plan.cost_ns), time(plan.lost_ns)));
    line(format!("  why now    {}", why(plan)));
    let changes = changes(plan);
    changes.iter().take(LINES_MAX).for_each(|change| line(format!("  would      {change}")));
    if changes.len() > LINES_MAX {
        line(format!("  would      and {} more changes (--json has all)", changes.len() - LINES_MAX));
    }
    plan.choices.iter().for_each(|choice| line(format!("  weighed    {}", weighed(plan, choice))));
    if let Some((strategy, more_ns)) = plan.next {
        let next = strategy.number();
        line(format!("  next       {next} {}, when {} more is lost", strategy.as_str(), time(more_ns)));
    }
    line("  nothing is carried out: this is a plan".to_owned());
    out
}

fn headline(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Ignore => "S1, do nothing",
        Strategy::Split => "S2, other numbers of micro-batches",
        Strategy::Move => "S3, hosts change places",
        Strategy::Restart => "S4, checkpoint and restart without some hosts",
    }
}

fn why(plan: &Plan) -> String {
    match (plan.strategy, plan.next) {
        (Strategy::Ignore, None) if plan.before_ns <= plan.healthy_ns => "the job is not slow, by the model".to_owned(),
        (Strategy::Ignore, None) => {
            let more = if plan.done == Strategy::Ignore { "" } else { "more " };
            format!("nothing {more}that can be done takes enough of the loss away")
        }
        (Strategy::Ignore, Some((next, more_ns))) => format!(
            "less is lost so far than {} costs: it is due when {} more is lost; {}",
            next.as_str(),
            time(more_ns),
            bound(plan)
        ),
        (strategy, _) => {
            let late = match plan.lost_ns.saturating_sub(plan.cost_ns) {
                0 => String::new(),
                late_ns => format!(", and {} more", time(late_ns)),
            };
            let costs = time(plan.cost_ns);
            format!(
                "what was lost has reached what {} costs, {costs}{late}; it is the mildest that helps; {}",
                strategy.as_str(),
                bound(plan)
            )
        }
    }
}

/// What is promised to whoever does not wait longer than that.
fn bound(plan: &Plan) -> String {
    format!("who acts when it is due pays at most {:.2} times what would be paid if the end were known", plan.bound)
}

/// What it does, one line for each change.
fn changes(plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for left in &plan.left_out {
        lines.push(format!("leave {} out until {}: {}", left.host, rfc3339(left.until), left.because));
    }
    for (position, (from, to)) in plan.from.hosts.iter().zip(&plan.to.hosts).enumerate() {
        if from != to {
            let to = if to.is_empty() { "any host that is not left out" } else { to };
            lines.push(format!("put {to} in place {position}, where {from} is"));
        }
    }
    let counts = plan.from.micro_batches.iter().zip(&plan.to.micro_batches).enumerate();
    let total: u32 = plan.to.micro_batches.iter().sum();
    for (replica, (from, to)) in counts.filter(|(_, (from, to))| from != to) {
        lines.push(format!(
            "give replica {replica} {to} micro-batches instead of {from}, its gradients weight {to}/{total}"
        ));
    }
    lines
}

fn weighed(plan: &Plan, choice: &Choice) -> String {
    let (number, word) = (choice.strategy.number(), choice.strategy.as_str());
    if choice.strategy == Strategy::Ignore {
        return format!("{number} {word}: {} an iteration, costs nothing", time(choice.after_ns));
    }
    let verdict = match (choice.helps, choice.strategy <= plan.done) {
        (true, _) => "",
        (false, true) => "; done already",
        (false, false) => "; does not help enough",
    };
    let proof = if choice.is_exact { "" } else { "; perhaps not the best of its kind" };
    let (after, cost) = (time(choice.after_ns), time(choice.cost_ns));
    format!("{number} {word}: {after} an iteration ({}), costs {cost}{verdict}{proof}", removed(plan, choice.after_ns))
}

/// How much of the slowdown an iteration time takes away.
fn removed(plan: &Plan, after_ns: u64) -> String {
    let slowdown = plan.before_ns.saturating_sub(plan.healthy_ns);
    if slowdown == 0 {
        return "no slowdown".to_owned();
    }
    let gained = plan.before_ns.saturating_sub(after_ns);
    format!("{} % of the slowdown removed", gained.saturating_mul(100) / slowdown)
}

/// Milliseconds below ten seconds, seconds below ten minutes, minutes above.
fn time(ns: u64) -> String {
    let ms = ns / NANOS_PER_MS;
    match ms {
        0..10_000 => format!("{ms} ms"),
        10_000..600_000 => format!("{} s", ms / 1000),
        _ => format!("{} min", ms / 60_000),
    }
}
