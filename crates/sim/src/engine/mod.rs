//! The simulation: ranks work off their streams, meet in operations, and what an agent on each host would tell of it
//! comes out as batches.
//!
//! A rank's stream is in order, so a rank knows nothing of time beyond its next operation until all members of that have
//! come. There the mechanics (`collective`) compute every moment of the operation at once, its members go on, and a
//! rank that can never go on is blocked, with everybody who waits for it. Records are told up to the moment before which
//! nothing can change any more (`watermark`).
mod emit;
mod lanes;
mod load;
mod meet;
mod ops;
#[cfg(test)]
mod order;
mod pace;
mod rank;
mod sizes;
mod step;
mod tap;
#[cfg(test)]
mod tests;
mod world;

pub use tap::Slice;
pub use world::EPOCH;

use crate::collective::healthy::Rows;
use crate::collective::trace::Looks;
use crate::collective::{Moments, mix};
use crate::fault::{Fault, FaultKind};
use crate::profile::NEVER;
use crate::program::Item;
use crate::scenario::Scenario;
use crate::score::Truth;
use emit::Agent;
use meet::Meetings;
use mycroft_record::{Batch, NANOS_PER_MS, NANOS_PER_SEC};
use rank::RankRun;
use std::collections::BTreeMap;
use std::sync::Arc;
use tap::Tap;
use world::World;

/// Simulated time that one call of [`Simulation::next_stretch`] covers.
pub const STRETCH_NS: u64 = NANOS_PER_SEC;
/// Ranks may run ahead of what is told by this much more each time it is not enough.
const AHEAD_NS: u64 = NANOS_PER_SEC / 2;
/// When the processes start.
const START_NS: u64 = 200 * NANOS_PER_MS;
/// Agents look this often (`agent::config`).
const LOOK_NS: u64 = 100 * NANOS_PER_MS;

/// What arrives at the server, and when.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// True time, nanoseconds since 1970.
    pub arrives_at: u64,
    /// The records.
    pub batch: Batch,
}

/// How far a simulation has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Iterations that the slowest rank has finished.
    pub iterations: u64,
    /// Median iteration of rank 0, milliseconds; 0 before the first.
    pub iteration_ms_median: f64,
}

/// One run of one scenario. The same scenario gives the same deliveries, byte for byte, on any machine.
#[derive(Debug)]
pub struct Simulation {
    world: World,
    ranks: Vec<RankRun>,
    meetings: Meetings,
    agents: Vec<Agent>,
    moments: Moments,
    rows: Rows,
    /// Ranks that may go on.
    runnable: Vec<u32>,
    /// Ranks that turned out to be in something that does not end.
    doomed: Vec<u32>,
    /// Ranks that wait for time to pass.
    parked: Vec<u32>,
    /// Ranks do not go on beyond this.
    horizon: u64,
    /// Everything before this was told.
    told: u64,
    until: u64,
    programs: BTreeMap<(u32, u32, u64), Arc<[Item]>>,
    /// Rank 0's iterations: begin and end.
    iterations: Vec<(u64, u64)>,
    /// What goes over the wires, where somebody looks.
    tap: Option<Tap>,
}

impl Simulation {
    /// A job at its beginning. The scenario has passed [`Scenario::check`].
    pub fn new(scenario: &Scenario) -> Simulation {
        let world = World::new(scenario);
        let start = |rank: u32| {
            let skew = scenario.start_skew_ms * NANOS_PER_MS;
            let connect = (scenario.life.first_connect_ms * 1e6) as u64;
            let bits = mix(mix(scenario.seed, 0x57A7), u64::from(rank));
            START_NS + connect + if skew > 0 { bits % skew } else { bits % (20 * NANOS_PER_MS) }
        };
        let ranks: Vec<RankRun> = (0..scenario.world())
            .map(|rank| {
                let stage = world.coordinates(rank).pp;
                RankRun::new(rank, scenario.host_of(rank), stage, start(rank))
            })
            .collect();
        let agents = (0..scenario.hosts)
            .map(|host| {
                let phase = 1 + mix(mix(scenario.seed, 0xA6E7), u64::from(host)) % LOOK_NS;
                Agent::new(host, Looks { phase, every: LOOK_NS }, scenario.cluster.nics_per_host)
            })
            .collect();
        Simulation {
            meetings: Meetings::new(world.groups.len()),
            runnable: (0..scenario.world()).rev().collect(),
            doomed: Vec::new(),
            parked: Vec::new(),
            moments: Moments::default(),
            rows: Rows::default(),
            horizon: 0,
            told: 0,
            until: (scenario.duration_s * 1e9) as u64,
            programs: BTreeMap::new(),
            iterations: Vec::new(),
            tap: None,
            world,
            ranks,
            agents,
        }
    }

    /// The deliveries of the next second of the job, in the order in which they arrive; `None` when the job's time is
    /// over.
    pub fn next_stretch(&mut self) -> Option<Vec<Delivery>> {
        let target = self.reach(STRETCH_NS)?;
        let deliveries = self.tell(target);
        self.told = target;
        Some(deliveries)
    }

    /// Works out the next so many nanoseconds of the job; gives the moment before which all is decided then, `None` when the
    /// job's time is over.
    fn reach(&mut self, stretch_ns: u64) -> Option<u64> {
        if self.told >= self.until {
            return None;
        }
        let target = (self.told + stretch_ns).min(self.until);
        self.horizon = self.horizon.max(target);
        loop {
            self.run();
            if self.parked.is_empty() {
                self.give_up();
            }
            if self.watermark() > target {
                break;
            }
            self.horizon += AHEAD_NS;
            self.runnable.append(&mut self.parked);
        }
        Some(target)
    }

    /// Notes what goes over the wires from now on: [`Simulation::take_slices`].
    pub fn tap_wires(&mut self) {
        self.tap.get_or_insert_default();
    }

    /// The slices between hosts that were worked out since the last call, in no order; none unless [`Simulation::tap_wires`] was
    /// called. Some may lie after the moment up to which the job was played.
    pub fn take_slices(&mut self) -> Vec<Slice> {
        self.tap.as_mut().map(Tap::take).unwrap_or_default()
    }

    /// What is really wrong, fault by fault; empty: nothing. Of a device that stops it is known at the end of the job only
    /// whether its main thread stopped with it.
    pub fn truth(&self) -> Vec<Truth> {
        let scenario = &self.world.scenario;
        let mut truths = Truth::of_all(scenario, EPOCH / NANOS_PER_MS);
        for truth in &mut truths {
            let kind = match &truth.fault {
                Some(fault) if fault.kind == FaultKind::GpuHang => FaultKind::RankStuck,
                Some(fault) if fault.kind == FaultKind::GpuExecutionError => FaultKind::CudaExecutionError,
                _ => continue,
            };
            if truth.ranks.iter().all(|rank| self.has_nothing_issued(*rank)) {
                let stuck = truth.fault.clone().map(|fault| Fault { kind, ..fault });
                truth.alike = stuck.map(|stuck| Box::new(Truth::of(&stuck, scenario, truth.at_ms)));
            }
        }
        truths
    }

    /// The rank's device has stopped after the last operation that was issued to it: its main thread waits for the device,
    /// and the next operation is never issued.
    fn has_nothing_issued(&self, rank: u32) -> bool {
        let run = &self.ranks[rank as usize];
        run.device == NEVER && run.items[run.at..].iter().all(|item| matches!(item, Item::Compute { .. }))
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        Progress {
            iterations: self.ranks.iter().map(|rank| rank.iteration.saturating_sub(1)).min().unwrap_or(0),
            iteration_ms_median: self.median_between(0, NEVER).map_or(0.0, |ns| ns as f64 / 1e6),
        }
    }

    /// How many times longer iterations took because of each fault, in the order of [`Simulation::truth`]: what it did to
    /// the job, whatever it did to a part. The first fault is compared with the job before it, as if no other had come; the
    /// others with the same job without them, since the faults before them may be there still. `None` where nothing is to be
    /// compared; infinite where the job stopped.
    pub fn slowdowns(&self) -> Vec<Option<f64>> {
        let since_start = |ms: u64| (ms * NANOS_PER_MS).saturating_sub(EPOCH);
        let truths = self.truth();
        let mut order: Vec<usize> = (0..truths.len()).collect();
        order.sort_by_key(|at| (truths[*at].at_ms, *at));
        let faults: Vec<Fault> = order.iter().filter_map(|at| truths[*at].fault.clone()).collect();
        let mut slowdowns = vec![None; truths.len()];
        let mut without: Option<Simulation> = None;
        for (before, at) in order.iter().enumerate() {
            let truth = &truths[*at];
            let (from, until) =
                (since_start(truth.at_ms), truth.until_ms.map_or(self.until, since_start).min(self.until));
            let is_last = before + 1 >= faults.len();
            let alone = (!is_last).then(|| self.with_only(&faults[..=before]));
            let with_it = alone.as_ref().unwrap_or(self);
            slowdowns[*at] = match &without {
                None => with_it.slowdown(from, until),
                Some(without_it) => with_it.slowdown_beside(without_it, from, until),
            };
            without = alone;
        }
        slowdowns
    }

    /// The same job, run to its end, with these faults and no others.
    fn with_only(&self, faults: &[Fault]) -> Simulation {
        let mut simulation =
            Simulation::new(&Scenario { fault: None, faults: faults.to_vec(), ..self.world.scenario.clone() });
        while simulation.next_stretch().is_some() {}
        simulation
    }

    /// By how many times more iterations the other finished between two moments, nanoseconds of the simulation.
    fn slowdown_beside(&self, without: &Simulation, from: u64, until: u64) -> Option<f64> {
        if self.is_stopped() {
            return Some(f64::INFINITY);
        }
        let finished = |of: &Simulation| of.finished_by(until) - of.finished_by(from);
        let (with, without) = (finished(self), finished(without));
        (without > 0.0).then(|| without / with)
    }

    fn is_stopped(&self) -> bool {
        self.ranks.iter().any(|rank| rank.blocked)
    }

    /// How many iterations rank 0 has finished at a moment; of the one that it is in, the part that is over.
    fn finished_by(&self, at: u64) -> f64 {
        let share =
            |(begin, end): &(u64, u64)| (at.saturating_sub(*begin) as f64 / (end - begin).max(1) as f64).min(1.0);
        self.iterations.iter().take_while(|(begin, _)| *begin < at).map(share).sum()
    }

    /// How many times longer the iterations took that touched this stretch (nanoseconds of the simulation) than those
    /// before it, warm-up left out.
    fn slowdown(&self, from: u64, until: u64) -> Option<f64> {
        let warm = usize::try_from(self.world.scenario.warm_up_iterations).unwrap_or(usize::MAX);
        let after = self.iterations.get(warm).map(|(begin, _)| *begin)?;
        let before = self.median_between(after, from)?;
        if self.is_stopped() {
            return Some(f64::INFINITY);
        }
        let touched = self.iterations.iter().filter(|(begin, end)| *end > from && *begin < until);
        let mut lengths: Vec<u64> = touched.map(|(begin, end)| end - begin).collect();
        lengths.sort_unstable();
        let median = lengths.get(lengths.len() / 2)?;
        Some(*median as f64 / before.max(1) as f64)
    }

    /// Median length of rank 0's iterations that begin and end between two moments.
    fn median_between(&self, from: u64, until: u64) -> Option<u64> {
        let inside = self.iterations.iter().filter(|(begin, end)| *begin >= from && *end <= until);
        let mut lengths: Vec<u64> = inside.map(|(begin, end)| end - begin).collect();
        lengths.sort_unstable();
        lengths.get(lengths.len() / 2).copied()
    }

    /// Nobody can go on, and some wait for each other in a circle: what they wait for does not come.
    fn give_up(&mut self) {
        for rank in 0..self.world.scenario.world() {
            self.block(rank);
        }
        self.run();
    }

    /// The moment before which everything is decided.
    fn watermark(&self) -> u64 {
        let running = self.ranks.iter().filter(|rank| !rank.blocked && rank.waiting == 0).map(|rank| rank.device);
        running.min().unwrap_or(NEVER).min(self.meetings.first_entry())
    }

    fn run(&mut self) {
        loop {
            if let Some(rank) = self.doomed.pop() {
                self.block(rank);
            } else if let Some(rank) = self.runnable.pop() {
                self.advance(rank);
            } else {
                return;
            }
        }
    }
}
