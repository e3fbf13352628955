//! How long a job's iterations take, without records: what a fault costs, measured with it and without it.
use super::{STRETCH_NS, Simulation};
use crate::due::Due;
use crate::fault::Fault;
use crate::iteration::Iteration;
use crate::scenario::Scenario;

impl Simulation {
    /// The iterations that rank 0 has finished.
    pub fn iterations(&self) -> Vec<Iteration> {
        self.iterations.iter().map(|(began, ended)| Iteration { began: *began, ended: *ended }).collect()
    }

    /// The iterations of a job until rank 0 has finished `most`, the job stops or its time is over. It is the same as of a
    /// job that is told of; only that nothing is. The scenario has passed [`Scenario::check`].
    pub fn untold(scenario: &Scenario, most: usize) -> Vec<Iteration> {
        let mut simulation = Simulation::new(scenario);
        // A hundredth of a short job at a time: it need not be played to its end.
        let stretch_ns = ((scenario.duration_s * 1e7) as u64).clamp(1, STRETCH_NS);
        while simulation.iterations.len() < most && !simulation.is_stopped() {
            let Some(target) = simulation.reach(stretch_ns) else { break };
            simulation.told = target;
            simulation.ranks.iter_mut().for_each(|rank| rank.forget_before(target));
            simulation.agents.iter_mut().for_each(super::emit::Agent::forget_flows);
        }
        let mut iterations = simulation.iterations();
        iterations.truncate(most);
        iterations
    }

    /// What each fault costs and whether a case is due for it, in the order of [`Simulation::truth`]: the job as it was played
    /// beside the same job without that fault. All others are there in both.
    pub fn dues(&self) -> Vec<Due> {
        let (scenario, with) = (&self.world.scenario, self.iterations());
        let faults: Vec<&Fault> = scenario.all_faults().collect();
        let others = |left: usize| {
            let kept = faults.iter().enumerate().filter(|(at, _)| *at != left);
            Scenario { fault: None, faults: kept.map(|(_, fault)| (*fault).clone()).collect(), ..scenario.clone() }
        };
        let of = |at: usize| match faults[at].kind.is_of_job() {
            true => Due::of(scenario, faults[at], &with, &Simulation::untold(&others(at), usize::MAX)),
            // What is seen of the job is disturbed, not the job.
            false => Due::of(scenario, faults[at], &with, &with),
        };
        (0..faults.len()).map(of).collect()
    }
}
