//! What ranks are told while they run: when to stop, and what to change to.
use super::{RankExit, Running, exit};
use crate::error::TestbedError;
use crate::process::wait_all;
use crate::workload::change::Change;
use std::time::Duration;

/// Iterations that ranks may be apart: neighbours meet in every iteration, so none is two ahead of another, and one
/// more may begin while the launcher counts.
const STOP_MARGIN: u64 = 3;

impl Running {
    /// See [`Board::switch`].
    pub fn switch(&self, iteration: u64) -> Option<(bool, u64)> {
        self.board.switch(iteration)
    }

    /// Changes the job to another division of micro-batches or other positions of ranks, in all ranks before one iteration, and
    /// gives that iteration's number. How long the change took is in its lap.
    ///
    /// # Errors
    /// The job cannot change to it, a rank has ended, or ranks were further than could be told in time: the job may hang then.
    pub fn change(&mut self, change: &Change) -> Result<u64, TestbedError> {
        let scenario = &self.site.scenario;
        change.check(scenario).map_err(|message| TestbedError::Scenario { name: scenario.name.clone(), message })?;
        self.check_alive()?;
        let number = self.board.last_change() + 1;
        change.write(&self.dirs.run, number)?;
        let at = self.furthest() + STOP_MARGIN;
        self.board.change_at(number, at);
        if self.furthest() >= at {
            let message = format!("a rank had begun iteration {at} before it was told to change with it");
            return Err(TestbedError::Scenario { name: self.site.scenario.name.clone(), message });
        }
        Ok(at)
    }

    /// Slows the path between two hosts, both ways, to so many bytes per second until [`Running::heal`] or the end.
    ///
    /// # Errors
    /// The hosts are not there or not on loopback addresses, or one of them has a slow path already.
    pub fn slow_path(&mut self, between: (u32, u32), bytes_per_sec: u64) -> Result<(), TestbedError> {
        let guard = crate::fault::slow_path::inject(&self.site, between, bytes_per_sec)?;
        self.guards.push(guard);
        Ok(())
    }

    fn furthest(&self) -> u64 {
        (0..self.board.ranks()).map(|rank| self.board.iterations(rank)).max().unwrap_or(0)
    }

    /// Ends the job in order, as a training job that has reached its last iteration, and says how ranks ended. Ranks
    /// that do not end within `limit` are killed. Agents go on.
    pub fn finish(&mut self, limit: Duration) -> Vec<RankExit> {
        self.heal();
        self.board.stop_at(self.furthest() + STOP_MARGIN);
        wait_all(&mut self.ranks, limit);
        self.ranks.iter_mut().enumerate().map(|(rank, process)| exit(rank as u32, process)).collect()
    }
}
