//! The launcher: hosts, agents, ranks, the fault, the truth about it, and the cleaning up.
mod told;

use crate::board::{Board, KEPT, Lap};
use crate::config::{FAULT_FILE, LaunchConfig, Tracer};
use crate::error::TestbedError;
use crate::fault::{self, Guard, Site};
use crate::hosts::{Host, Hosts, make_private_dir};
use crate::leftovers::{Collected, Dirs, ENV_RUN, collect_leftovers, new_tag, shm_dir};
use crate::library::{COLLECTIVE_LIBRARY, NCCL_SONAME, TRACER_LIBRARY, find};
use crate::process::{Process, Spawner, Spec, describe, wait_all};
use crate::workload::{BOARD_FILE, CONTROL_FILE, PLAN_FILE};
use mycroft_sim::{Algo, Fault, Scenario, Transport, Truth};
use mycroft_testbed_nccl::control::{ControlFile, ENV_CONTROL, ENV_RANK};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a wait looks again.
const POLL: Duration = Duration::from_millis(20);
/// How long agents get to ship what they hold after SIGTERM.
const AGENT_GRACE: Duration = Duration::from_secs(3);
/// Starts testbeds.
#[derive(Debug)]
pub struct Testbed;

/// How far the job is.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Iterations finished, per rank.
    pub iterations: Vec<u64>,
    /// Median duration of the iterations after warm-up and before the fault, milliseconds.
    pub iteration_ms_median: Option<f64>,
    /// Median duration of the iterations that began after the fault, milliseconds.
    pub faulty_iteration_ms_median: Option<f64>,
    /// Ranks whose process runs.
    pub ranks_alive: usize,
}

/// How a rank ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RankExit {
    /// Its global rank.
    pub rank: u32,
    /// Whether it ended in order.
    pub clean: bool,
    /// `exit code 0`, `signal 9`.
    pub status: String,
    /// Last line it wrote, empty if none.
    pub last_line: String,
}

/// A running testbed. Dropping it kills all its processes and removes all it made. Fields drop in this order.
pub struct Running {
    guards: Vec<Guard>,
    ranks: Vec<Process>,
    agents: Vec<Process>,
    site: Site,
    board: Board,
    truth: Truth,
    warmed_up_at: Option<Instant>,
    fault_from: Option<Vec<u64>>,
    collected: Collected,
    job: String,
    told_fault: Option<String>,
    spawner: Spawner,
    dirs: Dirs,
}

impl Testbed {
    /// Makes the hosts, starts agents and ranks, and returns while they come up. What earlier launchers left behind
    /// when they were killed is removed first.
    ///
    /// # Errors
    /// The scenario cannot be played here, or a host or process cannot be made; what was made is removed.
    pub fn launch(config: LaunchConfig) -> Result<Running, TestbedError> {
        let scenario = Arc::new(config.scenario.clone());
        check(&config).map_err(|message| TestbedError::Scenario { name: scenario.name.clone(), message })?;
        let library = config.library.clone().map_or_else(|| find(COLLECTIVE_LIBRARY), Ok)?;
        let tracer = match &config.tracer {
            Tracer::Found => Some(find(TRACER_LIBRARY)?),
            Tracer::At(path) => Some(path.clone()),
            Tracer::Off => None,
        };
        let (collected, _) = (collect_leftovers(), crate::nccl()?);
        let dirs = make_dirs(&config)?;
        let world = scenario.world() as usize;
        let control = make_control(&dirs.run.join(CONTROL_FILE), &scenario)?;
        let board = Board::create(&dirs.run.join(BOARD_FILE), world)?;
        board.switch_every(config.switch_every);
        write_plan(&dirs.run.join(PLAN_FILE), &scenario)?;
        let link = dirs.run.join(NCCL_SONAME);
        std::os::unix::fs::symlink(&library, &link).map_err(|source| TestbedError::file("link", link, source))?;
        let hosts = Arc::new(Hosts::create(&scenario, &dirs.tag, &dirs.run, &dirs.shm, &control)?);
        let job = if config.job.is_empty() { scenario.name.clone() } else { config.job.clone() };
        let spawner = Spawner::start()?;
        let site = Site { scenario, control, hosts, pids: Arc::new(Vec::new()) };
        let mut running = Running {
            guards: Vec::new(),
            ranks: Vec::new(),
            agents: Vec::new(),
            site,
            board,
            truth: Truth::healthy(),
            warmed_up_at: None,
            fault_from: None,
            collected,
            job,
            told_fault: config.told_fault.clone(),
            spawner,
            dirs,
        };
        running.start_agents(&config)?;
        running.start_ranks(&config, tracer.as_deref())?;
        Ok(running)
    }
}

/// Whether this machine can play it; a fault that the ranks make themselves need not be one of the testbed's.
fn check(config: &LaunchConfig) -> Result<(), String> {
    if config.told_fault.is_none() {
        return config.scenario.check_testbed();
    }
    config.scenario.check()?;
    Scenario { fault: None, ..config.scenario.clone() }.check_testbed()
}

fn make_dirs(config: &LaunchConfig) -> Result<Dirs, TestbedError> {
    let tag = new_tag();
    let run = config.run_dir.clone().unwrap_or_else(|| std::env::temp_dir().join(&tag));
    let run = std::path::absolute(&run).map_err(|source| TestbedError::file("resolve", run, source))?;
    let shm = shm_dir(&tag, &run);
    make_private_dir(&run)?;
    let dirs = Dirs { tag, run, shm, keep_logs: config.run_dir.is_some() };
    make_private_dir(&dirs.run.join("logs"))?;
    make_private_dir(&dirs.shm)?;
    Ok(dirs)
}

fn make_control(path: &Path, scenario: &Scenario) -> Result<Arc<ControlFile>, TestbedError> {
    let control = ControlFile::create(path, scenario.hosts as usize, scenario.world() as usize)
        .map_err(|source| TestbedError::file("make", path, source))?;
    control.set_seed(scenario.seed);
    Ok(Arc::new(control))
}

fn write_plan(path: &Path, scenario: &Scenario) -> Result<(), TestbedError> {
    let text = serde_json::to_vec(scenario).map_err(std::io::Error::from);
    text.and_then(|text| std::fs::write(path, text)).map_err(|source| TestbedError::file("write", path, source))
}

/// Lays the fault's text where ranks look for it, whole or not at all.
fn tell(run: &Path, text: &str) -> Result<(), TestbedError> {
    let (path, part) = (run.join(FAULT_FILE), run.join(format!("{FAULT_FILE}.part")));
    std::fs::write(&part, text).map_err(|source| TestbedError::file("write", &part, source))?;
    std::fs::rename(&part, &path).map_err(|source| TestbedError::file("rename", &path, source))
}

impl Running {
    fn start_agents(&mut self, config: &LaunchConfig) -> Result<(), TestbedError> {
        let Some(command) = &config.agent_command else { return Ok(()) };
        for host in self.site.hosts.list() {
            let spec = Spec {
                argv: command(host),
                env: vec![(ENV_RUN.into(), self.dirs.tag.clone().into())],
                env_remove: Vec::new(),
                netns: host.netns.clone(),
                log: self.dirs.run.join("logs").join(format!("agent-{}.log", host.name)),
            };
            self.agents.push(self.spawner.spawn(&spec)?);
        }
        Ok(())
    }

    fn start_ranks(&mut self, config: &LaunchConfig, tracer: Option<&Path>) -> Result<(), TestbedError> {
        let scenario = Arc::clone(&self.site.scenario);
        for rank in 0..scenario.world() {
            let host = &self.site.hosts.list()[scenario.host_of(rank) as usize];
            let mut argv = config.rank_command.clone();
            argv.extend(["--run-dir".into(), self.dirs.run.clone().into_os_string()]);
            argv.extend(["--rank".into(), rank.to_string().into()]);
            let mut env = self.rank_env(rank, host, config.segment_bytes);
            env.extend(tracer.map(|path| ("NCCL_PROFILER_PLUGIN".into(), path.as_os_str().to_owned())));
            env.extend(config.rank_env.iter().cloned());
            let spec = Spec {
                argv,
                env,
                env_remove: vec!["NCCL_PROFILER_PLUGIN", "NCCL_ALGO", "NCCL_BUFFSIZE", "MYCROFT_OFF"],
                netns: host.netns.clone(),
                log: self.dirs.run.join("logs").join(format!("rank-{rank}.log")),
            };
            self.ranks.push(self.spawner.spawn(&spec)?);
        }
        self.site.pids = Arc::new(self.ranks.iter().map(Process::pid).collect());
        Ok(())
    }

    fn rank_env(&self, rank: u32, host: &Host, segment_bytes: u64) -> Vec<(OsString, OsString)> {
        let scenario = &self.site.scenario;
        let algo = match scenario.algo {
            Algo::Ring => "Ring",
            Algo::Tree => "Tree",
        };
        let variables: [(&str, OsString); 15] = [
            (ENV_RUN, self.dirs.tag.clone().into()),
            ("NCCL_HOSTID", host.name.clone().into()),
            ("NCCL_ALGO", algo.into()),
            ("MYCROFT_TESTBED_ADDR", host.address.to_string().into()),
            (ENV_CONTROL, self.dirs.run.join(CONTROL_FILE).into_os_string()),
            (ENV_RANK, rank.to_string().into()),
            ("MYCROFT_DIR", host.segment_dir.clone().into_os_string()),
            ("MYCROFT_SEGMENT_BYTES", segment_bytes.to_string().into()),
            ("MYCROFT_JOB", self.job.clone().into()),
            ("MYCROFT_RANK", rank.to_string().into()),
            ("MYCROFT_WORLD_SIZE", scenario.world().to_string().into()),
            ("MYCROFT_HOST", host.name.clone().into()),
            ("RANK", rank.to_string().into()),
            ("WORLD_SIZE", scenario.world().to_string().into()),
            ("LOCAL_RANK", (rank % scenario.ranks_per_host).to_string().into()),
        ];
        variables.into_iter().map(|(name, value)| (name.into(), value)).collect()
    }

    /// The hosts of the run.
    pub fn hosts(&self) -> &[Host] {
        self.site.hosts.list()
    }

    /// How hosts were made.
    pub fn transport(&self) -> Transport {
        self.site.hosts.transport()
    }

    /// One line for the user when `auto` fell back to loopback.
    pub fn transport_note(&self) -> Option<&str> {
        self.site.hosts.note()
    }

    /// Job name in the records.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// The scenario that runs.
    pub fn scenario(&self) -> &Scenario {
        &self.site.scenario
    }

    /// The run's tag, which all its names begin with.
    pub fn tag(&self) -> &str {
        &self.dirs.tag
    }

    /// Directory of the run; `logs` in it has what ranks and agents wrote.
    pub fn run_dir(&self) -> &Path {
        &self.dirs.run
    }

    /// Process ids of the ranks, by rank.
    pub fn rank_pids(&self) -> &[u32] {
        &self.site.pids
    }

    /// Process ids of the agents, by host.
    pub fn agent_pids(&self) -> Vec<u32> {
        self.agents.iter().map(Process::pid).collect()
    }

    /// What earlier, killed launchers had left and this one removed.
    pub fn collected(&self) -> &Collected {
        &self.collected
    }

    /// How far the job is.
    pub fn progress(&mut self) -> Progress {
        let iterations: Vec<u64> = (0..self.board.ranks()).map(|rank| self.board.iterations(rank)).collect();
        let warm_up = u64::from(self.site.scenario.warm_up_iterations);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for (rank, &now) in iterations.iter().enumerate() {
            let mut durations: Vec<f64> = self.board.laps(rank, warm_up).iter().map(|lap| lap.ms).collect();
            if let Some(from) = &self.fault_from {
                // The iteration in which the fault fell is neither.
                let faulty = now.saturating_sub(from[rank] + 1) as usize;
                let cut = durations.len() - faulty.min(durations.len());
                after.extend_from_slice(&durations[cut..]);
                let healthy = (cut + usize::from(now == from[rank])).saturating_sub(1);
                durations.truncate(healthy);
            }
            before.append(&mut durations);
        }
        Progress {
            iterations,
            iteration_ms_median: median(before),
            faulty_iteration_ms_median: median(after),
            ranks_alive: self.ranks.iter_mut().filter_map(|rank| rank.status().is_none().then_some(())).count(),
        }
    }

    /// What became of each iteration that all ranks have finished and that is kept, oldest first: its number and the mean
    /// of what it took the ranks.
    pub fn laps(&self) -> Vec<(u64, Lap)> {
        let ranks = self.board.ranks();
        let done = (0..ranks).map(|rank| self.board.iterations(rank)).min().unwrap_or(0);
        // Some ranks are ahead, and overwrite what is oldest.
        let from = done.saturating_sub(KEPT as u64 / 2);
        let mut means = vec![Lap::default(); (done - from) as usize];
        for rank in 0..ranks {
            for (mean, lap) in means.iter_mut().zip(self.board.laps(rank, from)) {
                mean.ms += lap.ms / ranks as f64;
                mean.processor_us += lap.processor_us / ranks as f64;
            }
        }
        (from..done).zip(means).collect()
    }

    /// Waits until every rank has finished `iteration` iterations. Fails when a rank ends before, or after `limit`.
    ///
    /// # Errors
    /// A rank ended, or the time is over.
    pub fn wait_for_iteration(&mut self, iteration: u64, limit: Duration) -> Result<(), TestbedError> {
        let begun = Instant::now();
        loop {
            let least = (0..self.board.ranks()).map(|rank| self.board.iterations(rank)).min().unwrap_or(0);
            if least >= iteration {
                return Ok(());
            }
            self.check_alive()?;
            if begun.elapsed() > limit {
                return Err(TestbedError::TimedOut {
                    what: format!("iteration {iteration} was not reached by all ranks"),
                    seconds: limit.as_secs_f64(),
                    hint: format!("the slowest rank finished {least}; logs are in {}", self.dirs.run.display()),
                });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Waits until the warm-up iterations are over.
    ///
    /// # Errors
    /// A rank ended, or the time is over.
    pub fn wait_warmed_up(&mut self, limit: Duration) -> Result<(), TestbedError> {
        let warm_up = u64::from(self.site.scenario.warm_up_iterations);
        self.wait_for_iteration(warm_up + 1, limit)?;
        self.warmed_up_at.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// Fails when a rank has ended although nothing told it to.
    ///
    /// # Errors
    /// Names the rank and how it ended.
    pub fn check_alive(&mut self) -> Result<(), TestbedError> {
        for (rank, process) in self.ranks.iter_mut().enumerate() {
            if let Some(status) = process.status() {
                return Err(TestbedError::RankEnded {
                    rank: rank as u32,
                    status: describe(status),
                    last_line: process.last_line(),
                });
            }
        }
        Ok(())
    }

    /// Whether the scenario's fault is to be injected now: its `after_s` counts from the end of warm-up, which this
    /// call notices. False without a fault, and once one was injected.
    pub fn fault_is_due(&mut self) -> bool {
        if self.warmed_up_at.is_none() {
            let warm_up = u64::from(self.site.scenario.warm_up_iterations);
            let done = (0..self.board.ranks()).all(|rank| self.board.iterations(rank) > warm_up);
            self.warmed_up_at = done.then(Instant::now);
        }
        let due = self.site.scenario.fault.as_ref().map(|fault| Duration::from_secs_f64(fault.after_s));
        match (self.warmed_up_at, due) {
            (Some(begun), Some(after)) => self.truth.fault.is_none() && begun.elapsed() >= after,
            _ => false,
        }
    }

    /// Injects the scenario's fault now.
    ///
    /// # Errors
    /// The scenario has no fault, a rank has ended, or the fault cannot be made.
    pub fn inject(&mut self) -> Result<&Truth, TestbedError> {
        let fault = self.site.scenario.fault.clone().ok_or_else(|| TestbedError::Fault {
            fault: "a fault".to_owned(),
            message: format!("scenario {} has none", self.site.scenario.name),
        })?;
        self.inject_fault(&fault)
    }

    /// Injects `fault` now; it lasts until [`Running::heal`] or the end. The truth is then about this fault.
    ///
    /// # Errors
    /// A rank has ended, or the fault cannot be made.
    pub fn inject_fault(&mut self, fault: &Fault) -> Result<&Truth, TestbedError> {
        self.check_alive()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.fault_from = Some((0..self.board.ranks()).map(|rank| self.board.iterations(rank)).collect());
        match &self.told_fault {
            Some(text) => tell(&self.dirs.run, text)?,
            None => self.guards.push(fault::inject(fault, &self.site)?),
        }
        let at_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.truth = Truth::of(fault, &self.site.scenario, at_ms);
        Ok(&self.truth)
    }

    /// Whether the injected fault has done anything yet: a proxy that sleeps now and then may not for some iterations.
    pub fn fault_shows(&self) -> bool {
        self.fault_from.is_some()
            && self.site.scenario.fault.as_ref().is_none_or(|fault| fault::shows(fault, &self.site))
    }

    /// Undoes all faults that can be undone.
    pub fn heal(&mut self) {
        self.guards.clear();
    }

    /// What was really done.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// Waits until all ranks have ended or `limit` is over; says whether all have.
    pub fn wait(&mut self, limit: Duration) -> bool {
        wait_all(&mut self.ranks, limit)
    }

    /// Kills everything and removes everything: processes, namespaces, links, segments, temporary files. Agents get
    /// SIGTERM first and a moment to ship what they hold.
    pub fn stop(mut self) -> Vec<RankExit> {
        self.guards.clear();
        let exits = self.ranks.iter_mut().enumerate().map(|(rank, process)| exit(rank as u32, process)).collect();
        for agent in &mut self.agents {
            agent.signal(libc::SIGTERM);
        }
        wait_all(&mut self.agents, AGENT_GRACE);
        exits
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").field("tag", &self.dirs.tag).field("job", &self.job).finish_non_exhaustive()
    }
}

/// Ends a rank that still runs, and says how it ended.
fn exit(rank: u32, process: &mut Process) -> RankExit {
    process.kill();
    let status = process.status();
    RankExit {
        rank,
        clean: status.is_some_and(|status| status.success()),
        status: status.map_or_else(|| "unknown status".to_owned(), describe),
        last_line: process.last_line(),
    }
}

/// The middle value; the mean of the two middle ones of an even number.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_bad_launch_says_what_is_wrong_and_leaves_nothing() {
        let bad = Scenario { tp: 3, ..Scenario::default() };
        let error = Testbed::launch(LaunchConfig::new(bad, Vec::new())).unwrap_err().to_string();
        assert!(error.contains("tp x pp x dp"), "{error}");
        let config = LaunchConfig {
            tracer: Tracer::Off,
            library: Some("/dev/null".into()),
            ..LaunchConfig::new(
                Scenario { transport: Transport::Loopback, ..Scenario::default() },
                vec!["/no/such/program".into()],
            )
        };
        let error = Testbed::launch(config).unwrap_err().to_string();
        assert!(error.contains("/no/such/program"), "{error}");
        let mine = format!("mtb-{}-", std::process::id());
        for dir in [std::env::temp_dir(), "/dev/shm".into()] {
            let left = std::fs::read_dir(dir).unwrap().flatten();
            let left: Vec<_> = left.filter(|e| e.file_name().to_string_lossy().starts_with(&mine)).collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}
