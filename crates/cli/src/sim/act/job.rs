//! A simulated job that goes on as plans have it: one simulation from each change to the next, with the faults that are there
//! then. Here the faults and the brain meet; the brain is given records only.
use anyhow::{Context, Result, anyhow};
use mycroft_diagnose::mitigate::follow::{Follower, Terms};
use mycroft_diagnose::mitigate::place::Waits;
use mycroft_diagnose::mitigate::plan::{Assignment, Costs, Plan};
use mycroft_diagnose::mitigate::rent::Strategy;
use mycroft_diagnose::mitigate::seen::Shape;
use mycroft_diagnose::{Config, Engine};
use mycroft_record::{HostName, HostTime, NANOS_PER_SEC};
use mycroft_sim::{EPOCH, Fault, Iteration, Scenario, Simulation};
use std::collections::BTreeSet;

/// When the processes of a simulated job are up, seconds: an onset counts from there.
const UP_S: f64 = 0.21;

/// A job with its faults, and what changes of it cost.
#[derive(Clone, Debug)]
pub(super) struct Trace {
    /// The job; its faults count from its start.
    pub(super) scenario: Scenario,
    /// What the strategies cost, in seconds: other micro-batches, other places, a restart. The planner is told the same.
    pub(super) costs_s: [f64; 3],
}

/// Something that was done.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Action {
    /// When it was decided, seconds.
    pub(super) at_s: f64,
    pub(super) strategy: Strategy,
    /// Who was slow, as far as was known.
    pub(super) slow: Vec<String>,
    /// How long the job stood still, seconds.
    pub(super) pause_s: f64,
    /// An even division again.
    pub(super) is_back: bool,
    /// Hosts in other places.
    pub(super) moved: usize,
    /// The fewest and the most micro-batches of a replica.
    pub(super) division: (u32, u32),
}

/// A run of a trace: when each iteration began and ended, seconds, and what was done.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Acted {
    pub(super) iterations: Vec<(f64, f64)>,
    pub(super) actions: Vec<Action>,
    /// A healthy iteration, as the brain learned it, seconds.
    pub(super) usual_s: Option<f64>,
}

/// How a job is arranged, and which hosts were replaced.
struct Arranged {
    present: Assignment,
    replaced: BTreeSet<u32>,
}

impl Trace {
    /// The same job without plans.
    pub(super) fn without(&self) -> Result<Acted> {
        let scenario = self.from(0.0, &Arranged::first(&self.scenario))?;
        let mut acted = Acted::default();
        acted.add(0.0, self.scenario.duration_s, &Simulation::untold(&scenario, usize::MAX));
        Ok(acted)
    }

    /// The job with each plan carried out when it is due.
    pub(super) fn with(&self) -> Result<Acted> {
        let mut arranged = Arranged::first(&self.scenario);
        let mut follower = Follower::new(self.terms(), arranged.present.clone());
        let (mut acted, mut at_s) = (Acted::default(), 0.0);
        while at_s < self.scenario.duration_s {
            let (plan, since_s, iterations) = play(&self.from(at_s, &arranged)?, &mut follower, at_s)?;
            let until_s = (at_s + since_s).min(self.scenario.duration_s);
            acted.add(at_s, until_s, &iterations);
            let Some(plan) = plan.filter(|_| until_s < self.scenario.duration_s) else { break };
            let action = self.carry_out(&plan, until_s, &mut arranged, &mut follower)?;
            at_s = until_s + action.pause_s;
            acted.actions.push(action);
        }
        acted.usual_s = follower.usual_ms().map(|ms| ms / 1e3);
        Ok(acted)
    }

    fn carry_out(&self, plan: &Plan, at_s: f64, arranged: &mut Arranged, follower: &mut Follower) -> Result<Action> {
        let mut plan = plan.clone();
        // The replacement takes the name of the host that it replaces.
        for (host, before) in plan.to.hosts.iter_mut().zip(&plan.from.hosts).filter(|(host, _)| host.is_empty()) {
            *host = before.clone();
        }
        let slow = follower.slow();
        arranged.present =
            plan.apply(&arranged.present).map_err(|refused| anyhow!("a plan for another job: {refused:?}"))?;
        for left in &plan.left_out {
            arranged.replaced.insert(number(&left.host)?);
        }
        follower.carried_out(&plan);
        let [split_s, move_s, restart_s] = self.costs_s;
        let pause_s = match plan.strategy {
            Strategy::Ignore => 0.0,
            // There and back.
            Strategy::Split => split_s / 2.0,
            Strategy::Move => move_s,
            Strategy::Restart => restart_s,
        };
        let moved = plan.from.hosts.iter().zip(&plan.to.hosts).filter(|(from, to)| from != to).count();
        let counts = || plan.to.micro_batches.iter().copied();
        let division = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
        let is_back = plan.choices.is_empty();
        Ok(Action { at_s, strategy: plan.strategy, slow, pause_s, is_back, moved, division })
    }

    /// The scenario of the job from a moment on.
    fn from(&self, at_s: f64, arranged: &Arranged) -> Result<Scenario> {
        let mut scenario = self.scenario.clone();
        let faults = scenario.all_faults().filter(|fault| {
            let ends = [Some(fault.host), fault.peer_host];
            !ends.into_iter().flatten().any(|host| arranged.replaced.contains(&host))
        });
        let faults: Vec<Fault> = faults.filter_map(|fault| later(fault, at_s)).collect();
        (scenario.fault, scenario.faults) = (None, faults);
        scenario.duration_s = self.scenario.duration_s - at_s + UP_S;
        scenario.life.micro_batches.clone_from(&arranged.present.micro_batches);
        scenario.life.places = arranged.present.hosts.iter().map(number).collect::<Result<_>>()?;
        scenario.check().map_err(|message| anyhow!("{message}"))?;
        Ok(scenario)
    }

    fn terms(&self) -> Terms {
        let scenario = &self.scenario;
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let [split, moved, restart] = self.costs_s;
        Terms {
            job: scenario.name.as_str().into(),
            shape: Shape { tensor: scenario.tp as usize, stages: scenario.pp as usize },
            waits: Waits::EachIteration,
            activations_ms: scenario.pp_bytes as f64 / scenario.nic_bytes_per_sec as f64 * 1e3,
            costs: Costs { split_ns: ns(split), move_ns: ns(moved), restart_ns: ns(restart) },
        }
    }
}

/// A fault as it is seen from a moment on; `None`: it is over.
fn later(fault: &Fault, at_s: f64) -> Option<Fault> {
    let begins_s = fault.after_s - at_s;
    let lasts_s = match fault.lasts_s() {
        Some(lasts_s) if begins_s + lasts_s <= 0.0 => return None,
        lasts_s => lasts_s.map(|lasts_s| lasts_s + begins_s.min(0.0)),
    };
    Some(Fault { after_s: begins_s.max(0.0) + UP_S, lasts_s, ..fault.clone() })
}

/// Plays a job until a plan is due or its time is over: the plan, how long that took, seconds, and the iterations until then.
fn play(scenario: &Scenario, follower: &mut Follower, at_s: f64) -> Result<(Option<Plan>, f64, Vec<Iteration>)> {
    let mut simulation = Simulation::new(scenario);
    let mut engine = Engine::new(scenario.name.as_str().into(), Config::default());
    let mut now = EPOCH;
    while let Some(deliveries) = simulation.next_stretch() {
        deliveries.iter().for_each(|delivery| engine.observe(&delivery.batch));
        now += NANOS_PER_SEC;
        engine.tick(HostTime(now));
        let plan = follower.look(&engine.take_measured(), HostTime(now + (at_s * 1e9) as u64))?;
        if plan.is_some() {
            return Ok((plan, ended_s(&mut simulation, now - EPOCH), simulation.iterations()));
        }
    }
    Ok((None, scenario.duration_s, simulation.iterations()))
}

/// When the iteration ends that is under way at a moment, seconds.
fn ended_s(simulation: &mut Simulation, at: u64) -> f64 {
    let ended = loop {
        if let Some(iteration) = simulation.iterations().iter().find(|iteration| iteration.ended >= at) {
            break iteration.ended;
        }
        if simulation.next_stretch().is_none() {
            break at;
        }
    };
    ended as f64 / 1e9 - UP_S
}

impl Arranged {
    fn first(scenario: &Scenario) -> Arranged {
        let hosts = (0..scenario.hosts).map(|host| HostName::from(scenario.host_name(host))).collect();
        let micro_batches = vec![scenario.micro_batches; scenario.dp as usize];
        Arranged { present: Assignment { hosts, micro_batches, left_out: Vec::new() }, replaced: BTreeSet::new() }
    }
}

impl Acted {
    /// Adds the iterations of a simulation that began at a moment, as far as they ended by another.
    fn add(&mut self, at_s: f64, until_s: f64, iterations: &[Iteration]) {
        let seconds = |ns: u64| at_s + (ns as f64 / 1e9 - UP_S).max(0.0);
        let all = iterations.iter().map(|iteration| (seconds(iteration.began), seconds(iteration.ended)));
        // The last one ends exactly then, to rounding.
        self.iterations.extend(all.filter(|(_, ended_s)| *ended_s <= until_s + 1e-6));
    }

    /// Iterations that ended between two moments, for a second.
    pub(super) fn rate(&self, from_s: f64, until_s: f64) -> f64 {
        let share = |(began, ended): &(f64, f64)| {
            (ended.min(until_s) - began.max(from_s)).max(0.0) / (ended - began).max(f64::MIN_POSITIVE)
        };
        self.iterations.iter().map(share).sum::<f64>() / (until_s - from_s)
    }
}

/// The number of a host of a scenario.
fn number(host: &HostName) -> Result<u32> {
    let digits = host.strip_prefix("host").context("a host that no scenario has")?;
    digits.parse().context("a host that no scenario has")
}
