//! The whole line by itself: a job of real processes gets slow, the server sees it, plans, acts, looks at what came of it, and takes
//! the plan back when the device is healthy again.
use super::running::{EACH, LIMIT, rank_command, scenario};
use crate::live::agent_argv;
use crate::stop::Stop;
use anyhow::{Context, Result, bail};
use mycroft_serve::api::{ActionJson, AutoRequest, PlanRequest};
use mycroft_serve::{ServeConfig, Server, ServerHandle};
use mycroft_sim::{Fault, FaultKind};
use mycroft_testbed::leftovers::PREFIX;
use mycroft_testbed::{Change, LaunchConfig, Running, Testbed};
use mycroft_wire::Endpoint;
use serde_json::Value;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

/// Replicas of the job.
const REPLICAS: u32 = 4;
/// How many times longer one of them computes.
const SLOWER: f64 = 1.8;
/// Iterations before the fault: what the brain learns as usual.
const HEALTHY: u64 = 80;
/// How often the job looks into its file.
const POLL: Duration = Duration::from_millis(100);
/// The files are written by a server that nobody else reaches: no token of anybody.
const TOKEN: &str = "of-a-server-in-this-process";

/// A job, its server, and the file between them.
struct Loop {
    server: ServerHandle,
    running: Running,
    /// What the job does now.
    division: Vec<u32>,
    began: Instant,
    page: String,
}

/// Plays it; `None` when somebody asked to stop.
pub(super) fn play(stop: &Stop) -> Result<Option<String>> {
    let prefix = format!("{PREFIX}{}-0-acts-", std::process::id());
    let dir = tempfile::Builder::new().prefix(&prefix).tempdir().context("cannot make a temporary directory")?;
    let mut world = start(dir.path())?;
    let file = dir.path().join("act").join(world.running.job()).join("plan.json");
    world.running.wait_warmed_up(LIMIT)?;
    world.running.wait_for_iteration(HEALTHY, LIMIT)?;
    world.allow()?;
    world.row("healthy", None)?;
    world.running.inject_fault(&Fault { severity: Some(SLOWER), ..Fault::new(FaultKind::GpuPower, 1) })?;
    world.began = Instant::now();
    let is = |state: &'static str| move |actions: &[ActionJson]| actions.iter().any(|action| action.state == state);
    for (what, wanted, then) in [
        ("the server divides the micro-batches", "applied", None),
        ("its effect is known", "kept", Some(())),
        ("the device is healthy again, and the server takes it back", "taken-back", None),
    ] {
        if !world.until(&file, is(wanted), stop)? {
            return Ok(None);
        }
        let seconds = world.began.elapsed().as_secs_f64();
        world.row(what, Some(seconds))?;
        if then.is_some() {
            world.running.heal();
            world.began = Instant::now();
            world.page.push_str("| *the device is healed* | 0.0 | | |\n");
        }
    }
    let actions = world.server.actions(None).actions;
    world.server.stop();
    world.running.stop();
    Ok(Some(format!("{}{}", world.page, told(&actions))))
}

/// What the audit log says.
fn told(actions: &[ActionJson]) -> String {
    let mut text =
        String::from("\nThe audit log, as `mycroft actions` shows it (job, files and times left out):\n\n```\n");
    for action in actions {
        let _ = writeln!(
            text,
            "action {}: {} by {}: {}; {:.0} ms before, {:.0} after, {:.0} promised, the change cost {:.2} s; {}: {}",
            action.number,
            action.strategy,
            action.by,
            action.because,
            action.before_ms,
            action.after_ms.unwrap_or_default(),
            action.promised_ms,
            action.cost_ms.unwrap_or_default() / 1e3,
            action.state,
            action.ended_because
        );
    }
    text.push_str("```\n");
    text
}

fn start(dir: &Path) -> Result<Loop> {
    let socket = dir.join("wire.sock");
    let server = Server::start(ServeConfig {
        http: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        wire: vec![Endpoint::Unix(socket.clone())],
        store_dir: Some(dir.join("store")),
        act_dir: Some(dir.join("act")),
        act_token: Some(TOKEN.to_owned()),
        ..ServeConfig::default()
    })
    .context("cannot start the server")?;
    let own = std::env::current_exe().context("cannot find this executable")?;
    let server_name = OsString::from(format!("unix:{}", socket.display()));
    let mut launch = LaunchConfig::new(scenario(REPLICAS), rank_command()?);
    launch.agent_command = Some(Box::new(move |host| agent_argv(&own, &server_name, host)));
    let running = Testbed::launch(launch)?;
    let page = format!(
        "\n## By itself\n\nOne job of {REPLICAS} replicas with agents and a server that may divide micro-batches without asking \
         (`mycroft mitigate --auto split`). The second replica's device gets {SLOWER} times slower, and is healed once the effect \
         is known. Seconds are since the fault, and since it was healed.\n\n\
         | what | s | an iteration, ms | division |\n|---|---|---|---|\n"
    );
    Ok(Loop { server, running, division: vec![EACH; REPLICAS as usize], began: Instant::now(), page })
}

impl Loop {
    fn allow(&self) -> Result<()> {
        let plan = PlanRequest {
            micro_batches: EACH * REPLICAS,
            gradients_ms: Some(5.0),
            split_cost_s: Some(1.0),
            ..PlanRequest::default()
        };
        let allow = vec!["split".to_owned()];
        let request = AutoRequest {
            plan: Some(plan),
            allow,
            per_day: 4,
            confidence: 0.8,
            who: "mycroft testbed mitigate".to_owned(),
        };
        self.server.allow(self.running.job(), request).map(|_| ()).map_err(anyhow::Error::msg)
    }

    /// Follows the file, as ranks with the Python package do, until the audit log says so; false: somebody asked to stop.
    fn until(&mut self, file: &Path, is: impl Fn(&[ActionJson]) -> bool, stop: &Stop) -> Result<bool> {
        let begun = Instant::now();
        loop {
            if stop.asked() {
                return Ok(false);
            }
            self.follow(file)?;
            if is(&self.server.actions(None).actions) {
                return self.follow(file).map(|()| true);
            }
            if begun.elapsed() > LIMIT {
                let list = self.server.actions(None);
                bail!("nothing came of it within {LIMIT:?}: {:?}, {:?}", list.actions, list.policies);
            }
            std::thread::sleep(POLL);
            self.running.check_alive()?;
        }
    }

    fn follow(&mut self, file: &Path) -> Result<()> {
        let Ok(text) = std::fs::read_to_string(file) else { return Ok(()) };
        let plan: Value = serde_json::from_str(&text).with_context(|| format!("{}: no plan", file.display()))?;
        let counts = plan["micro_batches"].as_array().context("a plan without micro-batches")?;
        let division: Vec<u32> = counts.iter().filter_map(|count| u32::try_from(count.as_u64()?).ok()).collect();
        if division != self.division {
            let change = Change { micro_batches: division.clone(), ..Change::none(&scenario(REPLICAS)) };
            self.running.change(&change)?;
            self.division = division;
        }
        Ok(())
    }

    /// What iterations take from here on, with the moment when they began to.
    fn row(&mut self, what: &str, seconds: Option<f64>) -> Result<()> {
        let seconds = seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}"));
        let from = self.running.progress().iterations.iter().copied().max().unwrap_or(0) + 4;
        self.running.wait_for_iteration(from + 10, LIMIT)?;
        let laps = self.running.laps();
        let lap = laps.iter().filter(|(number, _)| (from..from + 10).contains(number)).map(|(_, lap)| lap.ms);
        let ms = crate::switched::median(lap).context("iterations that nobody keeps")?;
        let counts: Vec<String> = self.division.iter().map(u32::to_string).collect();
        let line = format!("| {what} | {seconds} | {ms:.0} | {} |", counts.join(", "));
        eprintln!("{line}");
        let _ = writeln!(self.page, "{line}");
        Ok(())
    }
}
