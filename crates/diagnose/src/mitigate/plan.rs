//! A plan: all that would be changed, complete, with what it gains and costs. Making it decides everything; whoever carries it
//! out has no choice left and may do so twice.
use super::leave::{LeftOut, Strike, leave_out};
use super::place::{Pace, PlaceError, Waits};
use super::rent::{Ladder, Renting, Rung, Strategy};
use super::split::{Replica, Split, evenly, split};
use mycroft_record::{Category, HostName, HostTime, JobName};

/// A strategy must take away so much of what is lost, in hundredths, or it is not considered.
pub const GAIN_MIN_PERCENT: u64 = 5;

/// What can be arranged in a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The host at each position, row by row: the first pipeline stage's, then the second's. An empty name is any host that
    /// is not left out.
    pub hosts: Vec<HostName>,
    /// Micro-batches of each replica; those of one column follow each other.
    pub micro_batches: Vec<u32>,
    /// Hosts that the job does without from its next start on.
    pub left_out: Vec<HostName>,
}

/// What each strategy costs the job once, in nanoseconds: what it took when it was done before, or what is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Other numbers of micro-batches, and even ones again afterwards.
    pub split_ns: u64,
    /// Hosts change places: the job pauses while parameters are exchanged.
    pub move_ns: u64,
    /// A checkpoint, the start, and the iterations since the checkpoint.
    pub restart_ns: u64,
}

impl Costs {
    /// Some seconds and a minute (FALCON 5.3), half an hour (7.5: "tens of minutes").
    pub const PAPER: Costs = Costs { split_ns: 5_000_000_000, move_ns: 60_000_000_000, restart_ns: 1_800_000_000_000 };

    /// Of one strategy.
    pub fn of(&self, strategy: Strategy) -> u64 {
        match strategy {
            Strategy::Ignore => 0,
            Strategy::Split => self.split_ns,
            Strategy::Move => self.move_ns,
            Strategy::Restart => self.restart_ns,
        }
    }
}

/// What a plan is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct Situation {
    /// The job.
    pub job: JobName,
    /// When (server's clock).
    pub now: HostTime,
    /// How the job is arranged now.
    pub present: Assignment,
    /// The job as its iteration time depends on that; its hosts are those of `present`, in the same order.
    pub model: super::place::Job,
    /// Replicas that share a column's hosts; at least one.
    pub replicas_per_column: usize,
    /// Most micro-batches of a replica, by its memory.
    pub micro_batches_max: Option<u32>,
    /// Who is suspected of what.
    pub suspects: Vec<(HostName, Category)>,
    /// What the present faults have cost so far, nanoseconds.
    pub lost_ns: u64,
    /// What each strategy costs.
    pub costs: Costs,
    /// What has been done against these faults already.
    pub done: Strategy,
    /// Hosts that are free to take the place of others; `None`: not known, taken for enough.
    pub spares: Option<Vec<HostName>>,
    /// Faults of hosts before.
    pub history: Vec<Strike>,
}

/// One strategy, considered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Which.
    pub strategy: Strategy,
    /// Iteration time with it, nanoseconds, by the model.
    pub after_ns: u64,
    /// What it costs once.
    pub cost_ns: u64,
    /// Whether it has not been done yet and takes enough of the loss away, more than milder ones.
    pub helps: bool,
    /// Whether it is the best of its kind for sure.
    pub is_exact: bool,
}

/// What would be done, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The job.
    pub job: JobName,
    /// When it was made (server's clock).
    pub as_of: HostTime,
    /// What has been done against these faults already.
    pub done: Strategy,
    /// What would be done now; doing nothing is a plan, too.
    pub strategy: Strategy,
    /// The arrangement that it is made for.
    pub from: Assignment,
    /// The arrangement that it makes.
    pub to: Assignment,
    /// Iteration time of a healthy job, nanoseconds, by the model.
    pub healthy_ns: u64,
    /// Iteration time now, by the model.
    pub before_ns: u64,
    /// Iteration time with the plan, by the model.
    pub after_ns: u64,
    /// What it costs once, nanoseconds.
    pub cost_ns: u64,
    /// What the faults have cost so far, nanoseconds.
    pub lost_ns: u64,
    /// Every strategy, mildest first.
    pub choices: Vec<Choice>,
    /// The strategy after this one, and what must be lost until it is due, nanoseconds.
    pub next: Option<(Strategy, u64)>,
    /// Who takes each of the helping strategies when it is due pays at most so many times what somebody pays who knows when the
    /// faults end ([`Ladder::bound`]).
    pub bound: f64,
    /// Hosts to be left out at a restart, with reasons.
    pub left_out: Vec<LeftOut>,
}

/// Why an arrangement is not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The job is arranged neither as the plan was made for nor as it makes it.
    Changed,
}

impl Plan {
    /// The arrangement after the plan. Applied twice it is applied once.
    ///
    /// # Errors
    /// [`Refused::Changed`] where the plan is not for this arrangement.
    pub fn apply(&self, present: &Assignment) -> Result<Assignment, Refused> {
        let is_known = *present == self.from || *present == self.to;
        if is_known { Ok(self.to.clone()) } else { Err(Refused::Changed) }
    }
}

/// One strategy worked out.
struct Worked {
    strategy: Strategy,
    to: Assignment,
    after_ns: u64,
    is_exact: bool,
}

/// Makes the plan of a situation.
///
/// # Errors
/// Where the model does not fit the job, see [`PlaceError`].
pub fn plan(situation: &Situation) -> Result<Plan, PlaceError> {
    let model = &situation.model;
    let as_it_is: Vec<usize> = (0..model.hosts.len()).collect();
    model.check(&as_it_is)?;
    if situation.present.hosts.len() != model.hosts.len() {
        return Err(PlaceError::Placement);
    }
    let before_ns = time_ns(situation, &as_it_is, &situation.present.micro_batches)?;
    let healthy_ns = healthy_ns(situation)?;
    let left_out = left_out(situation);
    let options = options(situation, before_ns, &left_out)?;
    let mut least = before_ns;
    let mut choices = Vec::new();
    for option in &options {
        let enough = before_ns.saturating_sub(healthy_ns) * GAIN_MIN_PERCENT / 100;
        let helps = option.strategy > situation.done && option.after_ns + enough.max(1) <= least;
        least = if helps { option.after_ns } else { least };
        let (strategy, after_ns, is_exact) = (option.strategy, option.after_ns, option.is_exact);
        let cost_ns = situation.costs.of(strategy);
        choices.push(Choice { strategy, after_ns, cost_ns, helps, is_exact });
    }
    let helping = choices.iter().filter(|choice| choice.helps);
    let rung = |choice: &Choice| Rung { strategy: choice.strategy, cost_ns: choice.cost_ns };
    let ladder = Ladder::new(&helping.map(rung).collect::<Vec<Rung>>());
    let bound = ladder.bound();
    let mut renting = Renting::new(ladder);
    renting.lose(situation.lost_ns);
    let strategy = renting.strategy();
    let chosen = options.iter().find(|option| option.strategy == strategy);
    let (to, after_ns) =
        chosen.map_or((situation.present.clone(), before_ns), |option| (option.to.clone(), option.after_ns));
    Ok(Plan {
        job: situation.job.clone(),
        as_of: situation.now,
        done: situation.done,
        strategy,
        from: situation.present.clone(),
        to,
        healthy_ns,
        before_ns,
        after_ns,
        cost_ns: situation.costs.of(strategy),
        lost_ns: situation.lost_ns,
        choices,
        next: renting.next().map(|(rung, more_ns)| (rung.strategy, more_ns)),
        bound,
        left_out: if strategy == Strategy::Restart { left_out } else { Vec::new() },
    })
}

/// Every strategy that can be worked out, mildest first.
fn options(situation: &Situation, before_ns: u64, left_out: &[LeftOut]) -> Result<Vec<Worked>, PlaceError> {
    let present = &situation.present;
    let as_it_is: Vec<usize> = (0..present.hosts.len()).collect();
    let ignore = Worked { strategy: Strategy::Ignore, to: present.clone(), after_ns: before_ns, is_exact: true };
    let mut options = vec![ignore];
    if let Some((micro_batches, after_ns)) =
        divided(situation, &as_it_is)?.filter(|(_, after_ns)| *after_ns < before_ns)
    {
        let to = Assignment { micro_batches, ..present.clone() };
        options.push(Worked { strategy: Strategy::Split, to, after_ns, is_exact: true });
    }
    options.extend(moved(situation, &as_it_is)?);
    if !left_out.is_empty() {
        let to = restarted(situation, left_out);
        let after_ns = restarted_ns(situation, left_out)?;
        options.push(Worked { strategy: Strategy::Restart, to, after_ns, is_exact: true });
    }
    Ok(options)
}

/// Hosts in better places, if there are any, and the batch divided for them where that is better still.
fn moved(situation: &Situation, as_it_is: &[usize]) -> Result<Option<Worked>, PlaceError> {
    let present = &situation.present;
    let placed = situation.model.place(as_it_is)?;
    if placed.placement == as_it_is {
        return Ok(None);
    }
    let after_ns = time_ns(situation, &placed.placement, &present.micro_batches)?;
    let mut best = (present.micro_batches.clone(), after_ns);
    if let Some(divided) = divided(situation, &placed.placement)?.filter(|(_, after_ns)| *after_ns < best.1) {
        best = divided;
    }
    let hosts = placed.placement.iter().map(|&host| present.hosts[host].clone()).collect();
    let to = Assignment { hosts, micro_batches: best.0, left_out: present.left_out.clone() };
    Ok(Some(Worked { strategy: Strategy::Move, to, after_ns: best.1, is_exact: placed.is_exact }))
}

/// The best division of the batch for a placement, and the iteration time with it.
fn divided(situation: &Situation, placement: &[usize]) -> Result<Option<(Vec<u32>, u64)>, PlaceError> {
    let Some(split) = divide(situation, placement) else { return Ok(None) };
    let after_ns = time_ns(situation, placement, &split.micro_batches)?;
    Ok(Some((split.micro_batches, after_ns)))
}

/// Iteration time of an arrangement: the slowest replica with its own micro-batches, or all stages together, and the slowest ring.
pub(super) fn time_ns(situation: &Situation, placement: &[usize], micro_batches: &[u32]) -> Result<u64, PlaceError> {
    let model = &situation.model;
    let even_ns = model.iteration_ns(placement)?;
    if model.waits == Waits::EachMicroBatch || micro_batches.len() != replicas(situation) {
        return Ok(even_ns);
    }
    let columns: Vec<_> = (0..model.columns()).map(|column| model.replica(placement, column)).collect();
    let pipelines_ns = columns.iter().map(|replica| replica.time_ns(model.micro_batches)).max().unwrap_or(0);
    let each = micro_batches.chunks(situation.replicas_per_column.max(1)).zip(&columns);
    let own = each.flat_map(|(counts, replica)| counts.iter().map(|count| replica.time_ns(*count)));
    Ok(even_ns - pipelines_ns + own.max().unwrap_or(0))
}

fn replicas(situation: &Situation) -> usize {
    situation.model.columns() * situation.replicas_per_column
}

/// The best division of the present batch; none where stages wait for each other in each micro-batch.
fn divide(situation: &Situation, placement: &[usize]) -> Option<Split> {
    let model = &situation.model;
    if model.waits == Waits::EachMicroBatch || situation.present.micro_batches.len() != replicas(situation) {
        return None;
    }
    let columns = (0..model.columns()).map(|column| model.replica(placement, column));
    let limited = columns.map(|replica| Replica { limit: situation.micro_batches_max, ..replica });
    let all: Vec<_> = limited.flat_map(|replica| std::iter::repeat_n(replica, situation.replicas_per_column)).collect();
    split(&all, situation.present.micro_batches.iter().sum()).ok()
}

/// The same job without these faults: healthy hosts in the places of some, or of all, and an even split.
fn without_ns(situation: &Situation, is_gone: &dyn Fn(usize) -> bool) -> Result<u64, PlaceError> {
    let mut job = situation.model.clone();
    job.paths.retain(|path| !is_gone(path.ends.0) && !is_gone(path.ends.1));
    (0..job.hosts.len()).filter(|host| is_gone(*host)).for_each(|host| job.hosts[host] = Pace::HEALTHY);
    job.iteration_ns(&(0..job.hosts.len()).collect::<Vec<usize>>())
}

fn healthy_ns(situation: &Situation) -> Result<u64, PlaceError> {
    without_ns(situation, &|_| true)
}

fn restarted_ns(situation: &Situation, left_out: &[LeftOut]) -> Result<u64, PlaceError> {
    let hosts = &situation.present.hosts;
    without_ns(situation, &|host| left_out.iter().any(|left| left.host == hosts[host]))
}

fn left_out(situation: &Situation) -> Vec<LeftOut> {
    let spares = situation.spares.as_ref().map(Vec::len);
    leave_out(&situation.suspects, &situation.history, situation.now, spares)
}

/// Spare hosts, or any, in the places of those that are left out, and the batch divided evenly.
fn restarted(situation: &Situation, left_out: &[LeftOut]) -> Assignment {
    let mut spares = situation.spares.iter().flatten();
    let out = |host: &HostName| left_out.iter().any(|left| left.host == *host);
    let replaced = |host: &HostName| {
        if out(host) { spares.next().cloned().unwrap_or_else(|| HostName::from("")) } else { host.clone() }
    };
    let hosts = situation.present.hosts.iter().map(replaced).collect();
    let mut all: Vec<HostName> = situation.present.left_out.clone();
    all.extend(left_out.iter().map(|left| left.host.clone()).filter(|host| !situation.present.left_out.contains(host)));
    let total: u32 = situation.present.micro_batches.iter().sum();
    let count = u32::try_from(situation.present.micro_batches.len()).unwrap_or(u32::MAX);
    Assignment { hosts, micro_batches: evenly(total, count), left_out: all }
}
