//! One live run: server, agents, a testbed job, its fault and the verdict. The testbed and the brain meet here only.
use crate::stop::Stop;
use crate::switched::{self, Block};
use anyhow::{Context, Result, bail};
use mycroft_diagnose::case::Gain;
use mycroft_diagnose::render::NOBODY;
use mycroft_diagnose::{Case, render};
use mycroft_record::{Finding, HostTime, NANOS_PER_MS};
use mycroft_serve::{ServeConfig, Server, ServerHandle};
use mycroft_sim::{Scenario, Score, Truth, score};
use mycroft_testbed::leftovers::PREFIX;
use mycroft_testbed::{Host, LaunchConfig, Running, Testbed, Tracer};
use mycroft_wire::Endpoint;
use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often a run looks at job and server.
const POLL: Duration = Duration::from_millis(50);
/// How long a verdict must stand before the run believes that it will not change: longer than three ticks.
const SETTLE: Duration = Duration::from_millis(3500);
/// Longest a job may take to start and reach its fault beyond the scenario's own duration.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Longest wait for stacks and dumps after a verdict: agents are asked when a case opens, and take a second or two.
const CAPTURE_LIMIT: Duration = Duration::from_secs(10);
/// Iterations a slowdown's verdict must stand, whichever of the two is longer.
const SETTLE_ITERATIONS: u64 = 3;

/// A program that the ranks run instead of the testbed's own job.
pub(crate) struct Program {
    /// Program and first arguments of a rank.
    pub(crate) rank_command: Vec<OsString>,
    /// What ranks are told when the scenario's fault is one that they make themselves.
    pub(crate) told_fault: Option<String>,
    /// The fault in the user's words, where they are not the scenario's.
    pub(crate) words: Option<String>,
    /// Where the run's directory is kept.
    pub(crate) run_dir: Option<PathBuf>,
    /// Holds the program's files.
    pub(crate) _files: TempDir,
}

/// What a run may vary besides its scenario.
#[derive(Default)]
pub(crate) struct Options {
    /// Keep the store here.
    pub(crate) record: Option<PathBuf>,
    /// What the job's NCCL loads.
    pub(crate) tracer: Tracer,
    /// Length in iterations of blocks with and without profiler events; 0: always with.
    pub(crate) switch_every: u64,
    /// No agents: what the tracer writes stays where it is.
    pub(crate) no_agents: bool,
    /// What ranks run, if not the testbed's own job.
    pub(crate) program: Option<Program>,
}

/// What a run shows while it goes on.
pub(crate) struct Moment {
    /// Since the start of the job.
    pub(crate) seconds: f64,
    /// Finished by the slowest rank.
    pub(crate) iterations: u64,
    /// Median iteration time so far.
    pub(crate) iteration_ms_median: Option<f64>,
    /// Seconds since the fault was injected.
    pub(crate) fault_since_s: Option<f64>,
    /// The newest case in a few words.
    pub(crate) verdict: Option<String>,
}

/// How a run ended.
pub(crate) struct Outcome {
    pub(crate) scenario: String,
    pub(crate) seed: u64,
    pub(crate) transport: String,
    /// The NCCL release that the ranks' library imitates, or `default`; none in a simulation.
    pub(crate) nccl: Option<&'static str>,
    pub(crate) truth: Truth,
    /// The fault as the user calls it.
    pub(crate) fault: Option<String>,
    pub(crate) finding: Option<Finding>,
    pub(crate) because: Vec<String>,
    /// From the injection to the case; negative: a false alarm before it.
    pub(crate) detected_after_ms: Option<i64>,
    /// From the injection to the settled verdict.
    pub(crate) diagnosed_after_ms: Option<i64>,
    /// Iterations between the fault's first effect and the case.
    pub(crate) iterations_to_detection: Option<u64>,
    pub(crate) score: Score,
    pub(crate) iterations: u64,
    pub(crate) iteration_ms_median: Option<f64>,
    /// Of the iterations that began after the fault; `None`: none did, or nobody measured it.
    pub(crate) faulty_iteration_ms_median: Option<f64>,
    pub(crate) report_text: String,
    /// What stacks and Flight Recorder dumps of the ranks say, where a run waits for them.
    pub(crate) capture: Option<Gain>,
}

/// What a healthy run costs.
pub(crate) struct Load {
    pub(crate) iteration_ms_median: f64,
    /// Bytes on the wire after warm-up.
    pub(crate) bytes_per_iteration_and_host: f64,
    /// Blocks with and without profiler events, where the job had them.
    pub(crate) blocks: Vec<Block>,
}

/// A run in progress. Dropping it stops everything it started.
pub(crate) struct Live {
    scenario: Scenario,
    running: Running,
    server: ServerHandle,
    injected: Option<Instant>,
    began: Instant,
    program: Option<Program>,
    /// Holds the agents' socket; removed last.
    _dir: TempDir,
}

/// The command line of a host's agent.
pub(crate) fn agent_argv(own: &Path, server: &OsStr, host: &Host) -> Vec<OsString> {
    let spool = host.segment_dir.with_extension("spool");
    let mut argv = vec![own.as_os_str().to_owned(), "agent".into(), "--server".into(), server.to_owned()];
    // Of nothing that this machine is configured with.
    argv.extend(["--config".into(), "/dev/null".into()]);
    argv.extend(["--host".into(), OsString::from(&host.name)]);
    argv.extend(["--dir".into(), host.segment_dir.clone().into_os_string()]);
    argv.extend(["--spool".into(), spool.into_os_string()]);
    argv.extend(["--nic-root".into(), host.nic_root.clone().into_os_string()]);
    argv
}

impl Live {
    /// Starts the server, the agents and the job.
    pub(crate) fn start(scenario: Scenario, options: Options) -> Result<Live> {
        if let Some(dir) = &options.record
            && std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
        {
            bail!(
                "{}: has files already, and records of two runs would be taken for one job's: give a new directory",
                dir.display()
            );
        }
        // Named as the testbed names what is its: `mycroft testbed clean` finds it when this process was killed.
        let prefix = format!("{PREFIX}{}-0-live-", std::process::id());
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir().context("cannot make a temporary directory")?;
        let socket = dir.path().join("wire.sock");
        let server = Server::start(ServeConfig {
            http: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            wire: vec![Endpoint::Unix(socket.clone())],
            store_dir: options.record,
            ..ServeConfig::default()
        })
        .context("cannot start the server")?;
        let own = std::env::current_exe().context("cannot find this executable")?;
        let own_job = || vec![own.clone().into_os_string(), "testbed".into(), "rank".into()];
        let rank_command = options.program.as_ref().map_or_else(own_job, |program| program.rank_command.clone());
        let server_name = OsString::from(format!("unix:{}", socket.display()));
        let mut launch = LaunchConfig::new(scenario.clone(), rank_command);
        if !options.no_agents {
            launch.agent_command = Some(Box::new(move |host| agent_argv(&own, &server_name, host)));
        }
        launch.tracer = options.tracer;
        launch.switch_every = options.switch_every;
        if let Some(program) = &options.program {
            launch.told_fault.clone_from(&program.told_fault);
            launch.run_dir.clone_from(&program.run_dir);
        }
        let running = Testbed::launch(launch)?;
        if let Some(note) = running.transport_note() {
            eprintln!("mycroft: {note}");
        }
        let (injected, began, program) = (None, Instant::now(), options.program);
        Ok(Live { scenario, running, server, injected, began, program, _dir: dir })
    }

    /// What joins the hosts.
    pub(crate) fn transport(&self) -> String {
        self.running.transport().to_string()
    }

    /// Name of the job in records.
    pub(crate) fn job(&self) -> &str {
        self.running.job()
    }

    /// Where the server answers.
    pub(crate) fn http_addr(&self) -> SocketAddr {
        self.server.http_addr()
    }

    /// Runs to the verdict (or the end of a healthy run), showing moments; `None` when interrupted. Job and server go on
    /// until `after` returns.
    pub(crate) fn run(
        mut self,
        stop: &Stop,
        show: impl FnMut(&Moment),
        after: impl FnOnce(&Outcome),
    ) -> Result<Option<Outcome>> {
        let Some(iterations_to_detection) = self.follow(stop, show)? else { return Ok(None) };
        let outcome = self.outcome(iterations_to_detection);
        after(&outcome);
        // The server first: the end of the ranks is ours, not the job's.
        self.server.stop();
        self.running.stop();
        Ok(Some(outcome))
    }

    /// Looks on until the verdict stands; gives the iterations from the fault's first effect to the case.
    fn follow(&mut self, stop: &Stop, mut show: impl FnMut(&Moment)) -> Result<Option<Option<u64>>> {
        let mut iterations_at_fault = None;
        let mut iterations_to_detection = None;
        let mut settled: Option<(Instant, u64, String)> = None;
        let limit = Duration::from_secs_f64(self.scenario.duration_s);
        loop {
            if stop.asked() {
                return Ok(None);
            }
            std::thread::sleep(POLL);
            if self.running.fault_is_due() {
                self.running.inject()?;
                self.injected = Some(Instant::now());
            } else if self.injected.is_none() {
                self.running.check_alive()?;
            }
            let progress = self.running.progress();
            let iterations = progress.iterations.iter().copied().min().unwrap_or(0);
            let report = self.server.report(self.running.job());
            let case = report.as_ref().and_then(|report| report.cases.first()).cloned();
            if self.running.fault_shows() && iterations_at_fault.is_none() {
                iterations_at_fault = Some(iterations);
            }
            if case.is_some() && iterations_to_detection.is_none() {
                iterations_to_detection = iterations_at_fault.map(|at| iterations.saturating_sub(at));
            }
            show(&Moment {
                seconds: self.began.elapsed().as_secs_f64(),
                iterations,
                iteration_ms_median: progress.iteration_ms_median,
                fault_since_s: self.injected.map(|at| at.elapsed().as_secs_f64()),
                verdict: case.as_ref().map(in_few_words),
            });
            let since = if self.scenario.fault.is_none() { Some(self.began) } else { self.injected };
            if since.is_some_and(|since| since.elapsed() >= limit) {
                break;
            }
            if self.injected.is_none() && self.began.elapsed() >= limit + START_LIMIT {
                bail!(
                    "the job did not get going within {:?}: its slowest rank finished {iterations} iterations",
                    START_LIMIT
                );
            }
            let verdict = case.as_ref().filter(|case| case.finding.diagnosed_at.is_some()).map(in_few_words);
            settled = match (verdict, settled) {
                (Some(new), Some((when, at, old))) if new == old => Some((when, at, old)),
                (Some(new), _) => Some((Instant::now(), iterations, new)),
                (None, _) => None,
            };
            let stops = self.scenario.fault.as_ref().is_some_and(|fault| fault.kind.stops_job());
            if let Some((when, at, _)) = &settled
                && self.injected.is_some()
                && when.elapsed() >= SETTLE
                && (stops || iterations >= at + SETTLE_ITERATIONS)
            {
                break;
            }
        }
        Ok(Some(iterations_to_detection))
    }

    /// Runs a healthy job for the scenario's duration after warm-up and says what it cost; `None` when interrupted.
    pub(crate) fn load(mut self, stop: &Stop) -> Result<Option<Load>> {
        self.running.wait_warmed_up(START_LIMIT)?;
        let warm_up = u64::from(self.scenario.warm_up_iterations);
        let (bytes, iterations, begun) = (self.server.wire_bytes(), self.slowest(), Instant::now());
        while begun.elapsed() < Duration::from_secs_f64(self.scenario.duration_s) {
            if stop.asked() {
                return Ok(None);
            }
            std::thread::sleep(POLL);
            self.running.check_alive()?;
        }
        let bytes = self.server.wire_bytes() - bytes;
        let iterations = self.slowest().saturating_sub(iterations).max(1);
        let median = self.running.progress().iteration_ms_median.context("no iteration was finished")?;
        let hosts = f64::from(self.scenario.hosts);
        let laps = self.running.laps().into_iter().filter(|(i, _)| *i >= warm_up);
        let blocks = switched::blocks(laps, |iteration| self.running.switch(iteration));
        self.running.stop();
        self.server.stop();
        let bytes_per_iteration_and_host = bytes as f64 / iterations as f64 / hosts;
        Ok(Some(Load { iteration_ms_median: median, bytes_per_iteration_and_host, blocks }))
    }

    /// Iterations that the slowest rank has finished.
    fn slowest(&mut self) -> u64 {
        self.running.progress().iterations.iter().copied().min().unwrap_or(0)
    }

    /// Takes the last report and scores it.
    fn outcome(&mut self, iterations_to_detection: Option<u64>) -> Outcome {
        let truth = self.running.truth().clone();
        let progress = self.running.progress();
        let transport = self.running.transport().to_string();
        let report = self.server.report(self.running.job());
        let report_text = report.as_deref().map_or("no report\n".to_owned(), render);
        let cases: Vec<Case> = report.map(|report| report.cases.clone()).unwrap_or_default();
        let first = cases.first();
        let words = self.program.as_ref().and_then(|program| program.words.clone());
        let after = |time: HostTime| -> Option<i64> {
            let at = i64::try_from(truth.at_ms).ok()?;
            time.some().filter(|_| at != 0).map(|time| (time.0 / NANOS_PER_MS) as i64 - at)
        };
        Outcome {
            scenario: self.scenario.name.clone(),
            seed: self.scenario.seed,
            transport,
            nccl: mycroft_testbed::nccl().ok(),
            score: judge(&truth, &cases),
            fault: words.or_else(|| truth.fault.as_ref().map(ToString::to_string)),
            finding: first.map(|case| case.finding.clone()),
            because: first
                .map(|case| case.because.iter().map(|reason| reason.text.clone()).collect())
                .unwrap_or_default(),
            detected_after_ms: first.and_then(|case| after(case.opened_at)),
            diagnosed_after_ms: first.and_then(|case| after(case.finding.diagnosed_at)),
            iterations_to_detection,
            iterations: progress.iterations.iter().copied().min().unwrap_or(0),
            iteration_ms_median: progress.iteration_ms_median,
            faulty_iteration_ms_median: progress.faulty_iteration_ms_median,
            report_text,
            truth,
            capture: first.and_then(|_| self.capture()),
        }
    }

    /// The first capture of a case of a program's job: the testbed's own job has no interpreter and no recorder.
    fn capture(&self) -> Option<Gain> {
        self.program.as_ref()?;
        let case = self.server.wait_for_case(CAPTURE_LIMIT, |case| !case.captures.is_empty())?;
        case.captures.into_iter().next().map(|capture| capture.gain)
    }
}

/// A run is right when its first case is, no case came before the fault, and no other case names anybody else.
fn judge(truth: &Truth, cases: &[Case]) -> Score {
    if let Some(early) =
        cases.iter().find(|case| truth.fault.is_some() && case.opened_at.0 / NANOS_PER_MS < truth.at_ms)
    {
        let why = format!("a false {} ({}) was opened before the fault", early.finding.what, early.finding.category);
        return Score { correct: false, why };
    }
    let verdict = score(truth, cases.first().map(|case| &case.finding));
    if !verdict.correct {
        return verdict;
    }
    for other in cases.iter().skip(1) {
        let again = score(truth, Some(&other.finding));
        if !again.correct {
            return Score { correct: false, why: format!("a second case is wrong: {}", again.why) };
        }
    }
    verdict
}

/// A case in a few words.
fn in_few_words(case: &Case) -> String {
    let finding = &case.finding;
    let suspects: Vec<String> = finding
        .suspects
        .iter()
        .take(2)
        .map(|suspect| match &suspect.place {
            mycroft_record::Place::Rank { rank, host } => format!("rank {rank} on {host}"),
            mycroft_record::Place::Host { host } => host.to_string(),
            mycroft_record::Place::Link { from, to } => format!("{from} -> {to}"),
        })
        .collect();
    let who = match &suspects[..] {
        [] if finding.diagnosed_at.is_some() => NOBODY.to_owned(),
        [] => "suspect not known yet".to_owned(),
        some => some.join(", "),
    };
    format!("{} / {}: {who}", finding.what, finding.category)
}
