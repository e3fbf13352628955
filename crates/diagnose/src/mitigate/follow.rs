//! One plan after the other for a job that runs, from what is measured of it (FALCON 5.2): a host or a path that is slower than its
//! peers begins to be paid for; when that reaches the cost of the next strategy, its plan is due.
//!
//! What is known of faults is only what [`seen`](super::seen) says. A host or a path counts once it was slow in two rows that follow
//! each other, of which the first, in which it may have begun, is not measured. Other hosts or paths, or a host with another
//! pace, are another fault, against which nothing is done yet; what was lost before counts where one of the old ones is still there.
//! A path on which nothing goes any more, because hosts moved, stays as slow as it was last. Once no host is slow, an uneven
//! division is taken back at once.
//!
//! Data on its way to a rank that is late waits, which looks like a slow path. So ways say something of paths only where replicas
//! end their micro-batches together (by the model with the paces of hosts), and no path is slower than what iterations lose.
//! NICs that are slow to every other host are not told from paths.
use super::effect::SLOW_FROM;
use super::place::{HEALTHY, Job, Pace, PlaceError, SLOWEST, SlowPath, Waits};
use super::plan::{Assignment, Costs, Plan, Situation, plan};
use super::rent::Strategy;
use super::seen::{Seen, Shape, Way, middle};
use super::split::{Replica, evenly};
use crate::measured::Measured;
use crate::median::median;
use mycroft_record::{Category, HostName, HostTime, JobName, NANOS_PER_MS};
use std::collections::BTreeMap;

/// Rows from which the healthy job is learned.
const LEARN_ROWS: usize = 5;
/// A path is slow from so many times what is usual on. Table 2 of FALCON has a spread of 0.29 for such paths.
const PATH_SLOW_FROM: f64 = 1.3;
/// .. and from so many on where replicas do not end their micro-batches together: data waits for ranks that are late.
const PATH_SLOW_BESIDE: f64 = 4.0;
/// Replicas end together within this share of a micro-batch.
const TOGETHER: f64 = 0.5;
/// .. and where they are further apart than so many, no way says anything of its path.
const APART: f64 = 1.5;
/// .. and from so much of what the slowest path takes more than usual: others wait behind it, and are judged when it is gone.
const WORST_SHARE: f64 = 0.5;
/// Rows of which a pace is the mean, at most.
const MEAN_ROWS: usize = 3;
/// A host whose pace differs by more than this share from what was planned for has another fault.
const OTHER_PACE: f64 = 0.1;

/// What the owner of a job says of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Terms {
    /// The job.
    pub job: JobName,
    /// How it is laid out.
    pub shape: Shape,
    /// When replicas wait for each other.
    pub waits: Waits,
    /// Activations of a micro-batch from one stage to the next, milliseconds.
    pub activations_ms: f64,
    /// What each strategy costs.
    pub costs: Costs,
}

/// The job without faults.
#[derive(Clone, PartialEq, Debug)]
struct Usual {
    iteration_ms: f64,
    stages_ns: Vec<u64>,
    gradients_ns: u64,
    /// Milliseconds for a megabyte from place to place.
    ways: BTreeMap<Way, f64>,
}

/// Two hosts, the lesser name first.
type Ends = (HostName, HostName);

/// Hosts and paths that are slow, and how slow.
#[derive(Clone, PartialEq, Debug, Default)]
struct Slow {
    hosts: BTreeMap<HostName, f64>,
    paths: BTreeMap<Ends, f64>,
}

/// What follows a job.
#[derive(Clone, Debug)]
pub struct Follower {
    terms: Terms,
    arranged: Assignment,
    learning: Vec<Seen>,
    usual: Option<Usual>,
    /// Rows with the same hosts and paths slow, and what was lost in them, nanoseconds.
    rows: Vec<Seen>,
    row_slow: Slow,
    rows_lost_ns: u64,
    /// What is paid for now.
    about: Slow,
    lost_ns: u64,
    /// What of that was lost before the last fault joined the others.
    kept_ns: u64,
    done: Strategy,
}

impl Follower {
    /// Begins with a healthy job that is arranged like this: its first rows say what is usual.
    pub fn new(terms: Terms, arranged: Assignment) -> Follower {
        let (row_slow, about) = Default::default();
        let (rows_lost_ns, lost_ns, kept_ns, done) = (0, 0, 0, Strategy::Ignore);
        Follower {
            terms,
            arranged,
            learning: Vec::new(),
            usual: None,
            rows: Vec::new(),
            row_slow,
            rows_lost_ns,
            about,
            lost_ns,
            kept_ns,
            done,
        }
    }

    /// Milliseconds of an iteration of the healthy job, once it is known.
    pub fn usual_ms(&self) -> Option<f64> {
        self.usual.as_ref().map(|usual| usual.iteration_ms)
    }

    /// Hosts and paths that are slow as far as is known, in words with how many times.
    pub fn slow(&self) -> Vec<String> {
        let hosts = self.about.hosts.iter().map(|(host, pace)| format!("{host} {pace:.2}"));
        let paths = self.about.paths.iter().map(|((one, other), pace)| format!("{one}-{other} {pace:.1}"));
        hosts.chain(paths).collect()
    }

    /// Takes in what was measured since the last look, and gives the plan that is due now.
    ///
    /// # Errors
    /// Where the model does not fit the job, see [`PlaceError`].
    pub fn look(&mut self, measured: &Measured, now: HostTime) -> Result<Option<Plan>, PlaceError> {
        for stretch in &measured.stretches {
            if let Some(seen) = Seen::of(measured, stretch, &self.arranged, self.terms.shape) {
                self.take(seen);
            }
        }
        let Some(usual) = &self.usual else { return Ok(None) };
        if self.about.hosts.is_empty() && self.rows.len() > 1 && !self.is_even() {
            return Ok(Some(self.taken_back(usual, now)));
        }
        if self.about == Slow::default() {
            return Ok(None);
        }
        let plan = plan(&self.situation(usual, now))?;
        Ok(Some(plan).filter(|plan| plan.strategy != Strategy::Ignore))
    }

    /// The plan was carried out.
    pub fn carried_out(&mut self, plan: &Plan) {
        self.arranged = plan.to.clone();
        self.done = plan.strategy;
        // What was lost beyond the price is spent (`rent`), but for what older faults have cost.
        self.lost_ns = self.lost_ns.min(plan.cost_ns.max(self.kept_ns));
        (self.rows, self.rows_lost_ns) = (Vec::new(), 0);
        if plan.strategy == Strategy::Restart {
            let out = |host: &HostName| plan.left_out.iter().any(|left| left.host == *host);
            self.about.hosts.retain(|host, _| !out(host));
            self.about.paths.retain(|(one, other), _| !out(one) && !out(other));
        }
        self.row_slow = self.about.clone();
    }

    fn take(&mut self, seen: Seen) {
        let Some(usual) = self.usual.clone() else {
            self.learning.push(seen);
            self.usual = (self.learning.len() >= LEARN_ROWS).then(|| self.learned()).flatten();
            return;
        };
        let lost_ms = (seen.iteration_ms - usual.iteration_ms).max(0.0) * seen.iterations as f64;
        let lost_ns = ns(lost_ms);
        let slow = self.slow_in(&seen, &usual);
        if !slow.is_of(&self.row_slow) {
            (self.rows, self.rows_lost_ns) = (Vec::new(), 0);
        }
        self.row_slow = slow;
        self.rows.push(seen);
        if self.rows.len() > MEAN_ROWS + 1 {
            self.rows.remove(0);
        }
        self.rows_lost_ns += lost_ns;
        self.lost_ns += lost_ns;
        // The first row may be of before and after.
        let rows: Vec<&Seen> = self.rows.iter().skip(1).collect();
        let Some(mean) = Seen::mean(&rows) else { return };
        let known = self.slow_in(&mean, &usual);
        if known.is_like(&self.about) {
            return;
        }
        if !self.go_on(&known) {
            self.lost_ns = self.rows_lost_ns;
        }
        self.kept_ns = self.lost_ns - self.rows_lost_ns.min(self.lost_ns);
        (self.about, self.done) = (known, Strategy::Ignore);
    }

    /// The job as its first rows were.
    fn learned(&self) -> Option<Usual> {
        let all: Vec<&Seen> = self.learning.iter().collect();
        let mean = Seen::mean(&all)?;
        let iteration_ms = median(self.learning.iter().map(|seen| seen.iteration_ms).collect())?;
        let stages_ns: Vec<u64> = mean.stages_ms.iter().map(|ms| ns(*ms).max(1)).collect();
        let links = vec![ns(self.terms.activations_ms); stages_ns.len().saturating_sub(1)];
        let pipeline = Replica::pipeline(&[stages_ns.clone(), links].concat());
        let gradients_ns = ns(iteration_ms).saturating_sub(pipeline.time_ns(self.each()));
        Some(Usual { iteration_ms, stages_ns, gradients_ns, ways: mean.ways })
    }

    /// Who is slow in what was seen; of paths of which it says nothing what is known.
    fn slow_in(&self, seen: &Seen, usual: &Usual) -> Slow {
        let hosts = seen.hosts.iter().filter(|(_, pace)| **pace >= SLOW_FROM);
        let hosts: BTreeMap<HostName, f64> = hosts.map(|(host, pace)| (host.clone(), *pace)).collect();
        let own = Slow { hosts: hosts.clone(), paths: BTreeMap::new() };
        let ends_ns = self.ends_ns(&self.job(usual, &own));
        let (first, last) = (ends_ns.iter().min().copied(), ends_ns.iter().max().copied());
        let apart_ns = last.unwrap_or(0) - first.unwrap_or(0);
        let micro_batches = apart_ns as f64 / usual.stages_ns.iter().copied().max().unwrap_or(1) as f64;
        let all = if micro_batches > APART { BTreeMap::new() } else { self.paths(seen, usual) };
        let worst = all.values().copied().fold(1.0, f64::max);
        let least = if micro_batches > TOGETHER { PATH_SLOW_BESIDE } else { PATH_SLOW_FROM };
        let least = least.max(1.0 + (worst - 1.0) * WORST_SHARE);
        // What iterations do not lose is no path's: data that waits in several slots is counted in each.
        let exchange_ms = seen.iteration_ms - last.unwrap_or(0) as f64 / NANOS_PER_MS as f64;
        let most = exchange_ms * NANOS_PER_MS as f64 / usual.gradients_ns.max(1) as f64;
        let slow = all.iter().filter(|(_, pace)| **pace >= least && most >= PATH_SLOW_FROM);
        let slow = slow.map(|(ends, pace)| (ends.clone(), pace.min(most)));
        let unseen = self.about.paths.iter().filter(|(ends, _)| !all.contains_key(*ends));
        let unseen = unseen.map(|(ends, pace)| (ends.clone(), *pace));
        Slow { hosts, paths: slow.chain(unseen).collect() }
    }

    /// A host, or a path on which something goes, was slow before and still is: what it has cost counts.
    fn go_on(&self, known: &Slow) -> bool {
        let place = |host: &HostName| self.arranged.hosts.iter().position(|at| at == host);
        let is_used = |(one, other): &Ends| {
            let (one, other) = (place(one).unwrap_or(usize::MAX), place(other).unwrap_or(usize::MAX));
            let carries = |way: Way| self.usual.as_ref().is_some_and(|usual| usual.ways.contains_key(&way));
            carries((one, other)) || carries((other, one))
        };
        known.hosts.keys().any(|host| self.about.hosts.contains_key(host))
            || known.paths.keys().any(|ends| self.about.paths.contains_key(ends) && is_used(ends))
    }

    /// When each replica has worked off its micro-batches, by the model, nanoseconds.
    fn ends_ns(&self, job: &Job) -> Vec<u64> {
        let as_it_is: Vec<usize> = (0..job.hosts.len()).collect();
        let per_column = self.arranged.micro_batches.len() / job.columns().max(1);
        let end = |(replica, count): (usize, &u32)| job.replica(&as_it_is, replica / per_column.max(1)).time_ns(*count);
        self.arranged.micro_batches.iter().enumerate().map(end).collect()
    }

    /// How many times longer each path takes than is usual between its places, beside what the middle of all does now; in the
    /// slower direction.
    fn paths(&self, seen: &Seen, usual: &Usual) -> BTreeMap<Ends, f64> {
        let ratio = |(way, ms): (&Way, &f64)| Some((*way, ms / usual.ways.get(way).filter(|ms| **ms > 0.0)?));
        let ratios: Vec<(Way, f64)> = seen.ways.iter().filter_map(ratio).collect();
        let Some(all) = middle(ratios.iter().map(|(_, ratio)| *ratio)) else { return BTreeMap::new() };
        let mut paths: BTreeMap<Ends, f64> = BTreeMap::new();
        for ((from, to), ratio) in ratios {
            let (one, other) = (self.arranged.hosts[from].clone(), self.arranged.hosts[to].clone());
            let pace = paths.entry(if one < other { (one, other) } else { (other, one) }).or_default();
            *pace = pace.max(ratio / all.max(f64::MIN_POSITIVE));
        }
        paths
    }

    /// Micro-batches of a replica in the even division.
    fn each(&self) -> u32 {
        let replicas = u32::try_from(self.arranged.micro_batches.len()).unwrap_or(u32::MAX).max(1);
        self.arranged.micro_batches.iter().sum::<u32>() / replicas
    }

    fn is_even(&self) -> bool {
        let each = self.each();
        self.arranged.micro_batches.iter().all(|count| (each..=each + 1).contains(count))
    }

    /// The model of the job with these slow, as it is arranged.
    fn job(&self, usual: &Usual, slow: &Slow) -> Job {
        let place: BTreeMap<&HostName, usize> = self.arranged.hosts.iter().zip(0..).collect();
        let pace = |host: &HostName| {
            let compute = slow.hosts.get(host).map_or(HEALTHY, |pace| thousandths(*pace));
            Pace { compute, network: HEALTHY }
        };
        let path = |((one, other), pace): (&Ends, &f64)| {
            Some(SlowPath { ends: (*place.get(one)?, *place.get(other)?), network: thousandths(*pace) })
        };
        Job {
            stages_ns: usual.stages_ns.clone(),
            gradients_ns: vec![usual.gradients_ns; usual.stages_ns.len()],
            activations_ns: ns(self.terms.activations_ms),
            micro_batches: self.each(),
            waits: self.terms.waits,
            hosts: self.arranged.hosts.iter().map(pace).collect(),
            paths: slow.paths.iter().filter_map(path).collect(),
        }
    }

    fn situation(&self, usual: &Usual, now: HostTime) -> Situation {
        let model = self.job(usual, &self.about);
        let replicas_per_column = self.arranged.micro_batches.len() / model.columns().max(1);
        let suspects = self.about.hosts.keys().map(|host| (host.clone(), Category::Gpu));
        let ends = self.about.paths.keys().flat_map(|(one, other)| [one.clone(), other.clone()]);
        Situation {
            job: self.terms.job.clone(),
            now,
            present: self.arranged.clone(),
            model,
            replicas_per_column,
            micro_batches_max: None,
            suspects: suspects.chain(ends.map(|host| (host, Category::NetworkCongestion))).collect(),
            lost_ns: self.lost_ns,
            costs: self.terms.costs,
            done: self.done,
            spares: None,
            history: Vec::new(),
        }
    }

    /// The even division again: it is the other half of what dividing costs.
    fn taken_back(&self, usual: &Usual, now: HostTime) -> Plan {
        let (count, total) =
            (self.arranged.micro_batches.len() as u32, self.arranged.micro_batches.iter().sum::<u32>());
        let (job, from) = (self.terms.job.clone(), self.arranged.clone());
        let healthy_ns = ns(usual.iteration_ms);
        Plan {
            job,
            as_of: now,
            done: self.done,
            strategy: Strategy::Split,
            to: Assignment { micro_batches: evenly(total, count), ..from.clone() },
            from,
            healthy_ns,
            before_ns: self.rows.last().map_or(healthy_ns, |seen| ns(seen.iteration_ms)),
            after_ns: healthy_ns,
            cost_ns: 0,
            lost_ns: self.lost_ns,
            choices: Vec::new(),
            next: None,
            bound: 1.0,
            left_out: Vec::new(),
        }
    }
}

impl Slow {
    /// The same hosts and paths.
    fn is_of(&self, other: &Slow) -> bool {
        self.hosts.keys().eq(other.hosts.keys()) && self.paths.keys().eq(other.paths.keys())
    }

    /// .. and hosts that are about as slow. What a congested path takes comes and goes.
    fn is_like(&self, other: &Slow) -> bool {
        let near = |(one, other): (&f64, &f64)| (one / other).ln().abs() <= OTHER_PACE;
        self.is_of(other) && self.hosts.values().zip(other.hosts.values()).all(near)
    }
}

/// A pace as the model has it.
pub(super) fn thousandths(pace: f64) -> u32 {
    ((pace * f64::from(HEALTHY)).round() as u32).clamp(HEALTHY, SLOWEST)
}

fn ns(ms: f64) -> u64 {
    (ms * NANOS_PER_MS as f64) as u64
}
