//! What the brain knows of a job, as a situation to plan for. What it cannot know is asked ([`Asked`]); what is assumed is
//! said.
use super::effect::{Paces, SLOW_FROM, paces};
use super::follow::thousandths;
use super::leave::Strike;
use super::place::{HEALTHY, Job, Pace, SlowPath, Waits};
use super::plan::{Assignment, Costs, Situation, time_ns};
use super::rent::Strategy;
use super::split::evenly;
use crate::case::{Case, CaseState};
use crate::report::{RankSummary, Report};
use mycroft_record::{Category, HostName, HostTime, NANOS_PER_MS, Place, What};
use std::collections::BTreeMap;

/// What nobody but the job's owner knows. Ranks are taken in Megatron's order: tensor, data, pipeline.
#[derive(Clone, PartialEq, Debug)]
pub struct Asked {
    /// Ranks of a tensor-parallel group; all on one host.
    pub tensor: u32,
    /// Pipeline stages.
    pub pipeline: u32,
    /// Micro-batches of the whole batch, over all replicas.
    pub micro_batches: u32,
    /// Most micro-batches of a replica, by its memory.
    pub micro_batches_max: Option<u32>,
    /// A healthy iteration, milliseconds; `None`: what is usual, as the brain learned it.
    pub healthy_ms: Option<f64>,
    /// How long an iteration waits for the exchange of gradients, milliseconds; `None`: a tenth of a healthy iteration.
    pub gradients_ms: Option<f64>,
    /// Activations of a micro-batch from one stage to the next, milliseconds.
    pub activations_ms: f64,
    /// When replicas wait for each other.
    pub waits: Waits,
    /// What each strategy costs.
    pub costs: Costs,
    /// What has been done already.
    pub done: Strategy,
    /// How micro-batches are divided now, of each replica; empty: evenly.
    pub divided: Vec<u32>,
    /// When the last action began: what was lost before has been answered.
    pub answered: Option<HostTime>,
    /// Hosts that are free; `None`: not known.
    pub spares: Option<Vec<HostName>>,
    /// Faults of hosts before these, in this job and in others.
    pub history: Vec<Strike>,
}

/// A situation, and what was assumed to make it.
#[derive(Clone, PartialEq, Debug)]
pub struct Known {
    /// What to plan for.
    pub situation: Situation,
    /// The open cases that it is about, by the numbers of the report.
    pub cases: Vec<u64>,
    /// One sentence each.
    pub assumed: Vec<String>,
}

/// Faults that make a host's own work longer.
const OWN: [Category; 5] =
    [Category::Gpu, Category::GpuCopy, Category::HostThread, Category::NotStarted, Category::DataLoading];
/// Faults of a host's way to others, or of a path.
const NETWORK: [Category; 4] =
    [Category::NetworkSend, Category::NetworkReceive, Category::NetworkCongestion, Category::Peer];
/// Of a healthy iteration, what waits for gradients where nobody says.
const GRADIENTS_SHARE: f64 = 0.1;

/// Of the loss, what the model may miss before that is said.
const UNEXPLAINED_SHARE: f64 = 0.2;

/// The situation of a job.
///
/// # Errors
/// One sentence that says what is not known, or does not fit.
pub fn known(report: &Report, asked: &Asked) -> Result<Known, String> {
    let (hosts, per_host) = hosts(&report.ranks)?;
    let shape = shape(report.ranks.len(), hosts.len(), per_host, asked)?;
    let mut assumed = Vec::new();
    let healthy_ms = asked.healthy_ms.or(report.iteration_ms_median).filter(|ms| *ms > 0.0);
    let healthy_ms =
        healthy_ms.ok_or("no usual iteration time is known yet: wait, or say how long a healthy one is")?;
    let now_ms = report.ranks.iter().filter_map(|rank| rank.iteration_ms).fold(healthy_ms, f64::max);
    let mut model = model(asked, &shape, healthy_ms, hosts.len(), &mut assumed)?;
    let cases: Vec<&Case> = report.cases.iter().filter(|case| is_slow(case)).collect();
    let (micro_batches, paces) = divided(report, asked, shape.replicas)?;
    let suspects = faults(&cases, &hosts, now_ms - healthy_ms, paces.as_ref(), &mut model, &mut assumed);
    let since = cases.iter().map(|case| case.finding.since).min().unwrap_or(report.as_of);
    let since = asked.answered.map_or(since, |answered| since.max(answered));
    let lost_ns = report.as_of.since_ns(since) as f64 * (now_ms - healthy_ms) / now_ms;
    let situation = Situation {
        job: report.job.clone(),
        now: report.as_of,
        present: Assignment { hosts, micro_batches, left_out: Vec::new() },
        model,
        replicas_per_column: shape.per_column,
        micro_batches_max: asked.micro_batches_max,
        suspects,
        lost_ns: lost_ns as u64,
        costs: asked.costs,
        done: asked.done,
        spares: asked.spares.clone(),
        history: asked.history.clone(),
    };
    if asked.done >= Strategy::Split && asked.divided.is_empty() {
        assumed.push("micro-batches are taken for evenly divided now, whatever was done before".to_owned());
    }
    if !cases.is_empty() {
        assumed.extend(unexplained(&situation, healthy_ms, now_ms));
    }
    if asked.history.is_empty() {
        assumed.push("no fault of a host is known from before: each counts as bad for the first time".to_owned());
    }
    Ok(Known { situation, cases: cases.iter().map(|case| case.id.0).collect(), assumed })
}

/// One sentence where the model, with the faults in it, is far from what an iteration takes: its plan is about something else.
fn unexplained(situation: &Situation, healthy_ms: f64, now_ms: f64) -> Option<String> {
    let present: Vec<usize> = (0..situation.model.hosts.len()).collect();
    let model_ns = time_ns(situation, &present, &situation.present.micro_batches).ok()?;
    let model_ms = model_ns as f64 / NANOS_PER_MS as f64;
    let (told, seen) = ((model_ms - healthy_ms).max(0.0), now_ms - healthy_ms);
    ((told - seen).abs() > UNEXPLAINED_SHARE * seen).then(|| {
        format!("the model makes an iteration {told:.0} ms longer than a healthy one, and it is {seen:.0} ms longer: what it says of gains is as far off")
    })
}

/// How the batch is divided now, and, where that is not evenly, how much longer than its peers each host computes: an iteration does not
/// show it, since whoever has most micro-batches sets its pace.
fn divided(report: &Report, asked: &Asked, replicas: u32) -> Result<(Vec<u32>, Option<Paces>), String> {
    let even = evenly(asked.micro_batches, replicas);
    if asked.divided.is_empty() || asked.divided == even {
        return Ok((even, None));
    }
    let now = &asked.divided;
    if now.len() != even.len()
        || now.iter().map(|count| u64::from(*count)).sum::<u64>() != u64::from(asked.micro_batches)
    {
        let (total, count) = (asked.micro_batches, now.len());
        return Err(format!(
            "micro-batches are divided among {count} replicas as {now:?}: that is not {total} among {replicas}"
        ));
    }
    let paces = paces(report, (asked.tensor, asked.pipeline), now).ok_or(
        "micro-batches are divided unevenly, and what each rank computes is not seen: take that back before another division",
    )?;
    Ok((now.clone(), Some(paces)))
}

fn is_slow(case: &Case) -> bool {
    case.state == CaseState::Open && case.finding.what == What::Slowdown
}

/// Hosts in the order of their ranks, and the ranks of each.
fn hosts(ranks: &[RankSummary]) -> Result<(Vec<HostName>, usize), String> {
    if ranks.is_empty() || ranks.iter().zip(0..).any(|(rank, number)| rank.rank.0 != number) {
        return Err(format!("ranks 0 to {} are not all seen", ranks.len().max(1) - 1));
    }
    let blocks: Vec<&[RankSummary]> = ranks.chunk_by(|one, other| one.host == other.host).collect();
    let hosts: Vec<HostName> = blocks.iter().map(|block| block[0].host.clone()).collect();
    let per_host = blocks[0].len();
    let different = hosts.iter().collect::<std::collections::BTreeSet<_>>().len();
    if different != hosts.len() || blocks.iter().any(|block| block.len() != per_host) {
        return Err("hosts do not have the same number of consecutive ranks each".to_owned());
    }
    Ok((hosts, per_host))
}

/// How hosts and replicas make a grid.
struct Shape {
    rows: usize,
    per_column: usize,
    replicas: u32,
}

fn shape(ranks: usize, hosts: usize, per_host: usize, asked: &Asked) -> Result<Shape, String> {
    let (tensor, rows) = (asked.tensor.max(1) as usize, asked.pipeline.max(1) as usize);
    if !per_host.is_multiple_of(tensor) {
        return Err(format!("a host has {per_host} ranks, which is no multiple of {tensor} tensor-parallel ones"));
    }
    if !hosts.is_multiple_of(rows) {
        return Err(format!("{hosts} hosts do not make {rows} pipeline stages of whole hosts; plans move whole hosts"));
    }
    let replicas = u32::try_from(ranks / tensor / rows).unwrap_or(u32::MAX);
    if asked.micro_batches < replicas {
        return Err(format!("{} micro-batches are fewer than {replicas} replicas", asked.micro_batches));
    }
    Ok(Shape { rows, per_column: per_host / tensor, replicas })
}

/// The healthy job. A healthy iteration is `m + p - 1` times a stage, the links once, and the gradients.
fn model(
    asked: &Asked,
    shape: &Shape,
    healthy_ms: f64,
    hosts: usize,
    assumed: &mut Vec<String>,
) -> Result<Job, String> {
    let exchanges = hosts / shape.rows > 1;
    let gradients_ms = match asked.gradients_ms {
        _ if !exchanges => 0.0,
        Some(ms) => ms,
        None => {
            assumed.push(format!(
                "an iteration waits {:.0} ms for gradients: a tenth of a healthy one, as nobody said",
                GRADIENTS_SHARE * healthy_ms
            ));
            GRADIENTS_SHARE * healthy_ms
        }
    };
    let each = asked.micro_batches.div_ceil(shape.replicas);
    let passes = f64::from(each) + shape.rows as f64 - 1.0;
    let stage_ms = (healthy_ms - gradients_ms - (shape.rows as f64 - 1.0) * asked.activations_ms) / passes;
    if stage_ms <= 0.0 || stage_ms < asked.activations_ms {
        return Err("gradients and activations take longer than a healthy iteration leaves".to_owned());
    }
    assumed.push(format!("all stages are alike: {stage_ms:.1} ms a micro-batch on a healthy host"));
    Ok(Job {
        stages_ns: vec![ns(stage_ms).max(1); shape.rows],
        gradients_ns: vec![ns(gradients_ms); shape.rows],
        activations_ns: ns(asked.activations_ms),
        micro_batches: each,
        waits: asked.waits,
        hosts: vec![Pace::HEALTHY; hosts],
        paths: Vec::new(),
    })
}

fn ns(ms: f64) -> u64 {
    (ms * NANOS_PER_MS as f64) as u64
}

/// Makes the hosts and paths that cases name as slow as the job's loss says, and gives who is suspected of what. Where paces of hosts are
/// measured, each is as slow as that, named or not.
fn faults(
    cases: &[&Case],
    hosts: &[HostName],
    excess_ms: f64,
    paces: Option<&Paces>,
    model: &mut Job,
    assumed: &mut Vec<String>,
) -> Vec<(HostName, Category)> {
    let number: BTreeMap<&HostName, usize> = hosts.iter().zip(0..).collect();
    let is_of = |case: &Case, kinds: &[Category]| kinds.contains(&case.finding.category);
    let own = cases.iter().filter(|case| is_of(case, &OWN)).count();
    let network = cases.iter().filter(|case| is_of(case, &NETWORK)).count();
    let share_ms = if own > 0 && network > 0 { excess_ms / 2.0 } else { excess_ms };
    if own + network > 1 {
        assumed.push(format!(
            "{} faults share a loss of {excess_ms:.0} ms an iteration: those of one kind are as slow as each other",
            own + network
        ));
    }
    let work_ns = model.stages_ns.iter().copied().max().unwrap_or(1) * u64::from(model.micro_batches);
    let compute = pace(share_ms, work_ns);
    let way = pace(share_ms, model.gradients_ns.iter().copied().max().unwrap_or(0));
    let measured = |host: &HostName| paces.and_then(|paces| paces.get(host)).filter(|pace| **pace >= SLOW_FROM);
    for (host, at) in hosts.iter().zip(0..) {
        model.hosts[at].compute = measured(host).map_or(HEALTHY, |pace| thousandths(*pace));
    }
    let mut suspects = Vec::new();
    for case in cases {
        let Some(first) = case.finding.suspects.first() else {
            assumed.push(format!("case {} names nobody: the plan does nothing about it", case.id));
            continue;
        };
        let at = |host: &HostName| number.get(host).copied();
        let named: Vec<&HostName> = match &first.place {
            Place::Link { from, to } => vec![from, to],
            place => place.host().into_iter().collect(),
        };
        let places: Vec<usize> = named.iter().filter_map(|host| at(host)).collect();
        match (places.as_slice(), is_of(case, &OWN), is_of(case, &NETWORK)) {
            (&[one, other], _, true) => model.paths.push(SlowPath { ends: (one, other), network: way }),
            (&[host], true, _) if paces.is_none() => model.hosts[host].compute = compute,
            (&[host], true, _) if model.hosts[host].compute > HEALTHY => {}
            (&[host], _, true) => model.hosts[host].network = way,
            _ => {
                assumed
                    .push(format!("case {} ({}) is of no kind that a plan helps now", case.id, case.finding.category));
                continue;
            }
        }
        suspects.extend(named.into_iter().map(|host| (host.clone(), case.finding.category)));
    }
    suspects
}

/// The pace of something that usually takes `usual_ns` and now makes an iteration so much longer.
fn pace(excess_ms: f64, usual_ns: u64) -> u32 {
    if usual_ns == 0 {
        return HEALTHY;
    }
    thousandths(1.0 + excess_ms.max(0.0) * NANOS_PER_MS as f64 / usual_ns as f64)
}
