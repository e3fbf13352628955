//! Everything that a cluster is made of, started in a temporary folder and ended with this.
use crate::database::{self, PASSWORD};
use crate::hosts::Traced;
use mycroft_bus::kafka::KafkaTopic;
use mycroft_bus::kafka::mock::MockBrokers;
use mycroft_bus::{BusSecurity, Topic};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Servers, and agents, one a host.
pub(crate) const SERVERS: usize = 2;
pub(crate) const AGENTS: usize = 4;
/// Partitions of the topic of a few jobs: two a server.
const PARTITIONS: u32 = 4;
/// Nothing takes longer unless it is broken.
const PATIENCE: Duration = Duration::from_secs(60);
/// A server that stops first makes segments of what it took in: hundred millions of records of a measurement.
const STOP: Duration = Duration::from_secs(600);
/// Between two looks at something that will become true.
const LOOK: Duration = Duration::from_millis(20);

/// A process of `mycroft`; it ends with this one, however that ends.
struct Running {
    child: Child,
    /// What it says.
    log: PathBuf,
}

impl Running {
    fn start(program: &Path, log: PathBuf, args: &[&str]) -> Running {
        let mut command = Command::new("setpriv");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("MYCROFT_") {
                command.env_remove(name);
            }
        }
        command.env("MYCROFT_CONFIG", "/dev/null").arg("--pdeathsig=KILL").arg(program).args(args);
        let said = File::create(&log).expect("a file");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn().expect("setpriv runs");
        Running { child, log }
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// `kill -9`.
    fn end(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// The cluster.
pub(crate) struct Site {
    program: PathBuf,
    /// Brokers in this process; `None`: others are used.
    brokers: Option<MockBrokers>,
    /// The topic's address.
    bus: String,
    partitions: u32,
    pub(crate) database: database::Server,
    servers: Vec<Option<Running>>,
    agents: Vec<Option<Running>>,
    /// What ranks of jobs write, until the folder goes.
    pub(crate) jobs: Vec<Traced>,
    /// Step marks that each rank of a job has written which has ended.
    pub(crate) ended: Vec<(String, u64)>,
    folder: tempfile::TempDir,
    is_interrupted: Arc<AtomicBool>,
}

impl Site {
    /// Starts all of it, but for jobs, with the topic of `bus` on brokers that are there or one on brokers of this process; `None`, with a
    /// line that says so: there is no PostgreSQL on this machine.
    pub(crate) fn start(program: &Path, bus: Option<&str>) -> Option<Site> {
        let mut site = match bus {
            None => Site::without_agents(program, PARTITIONS)?,
            Some(bus) => {
                let address = bus.parse().expect("kafka://HOST:PORT/TOPIC");
                let topic = KafkaTopic::new(&address, &BusSecurity::default()).expect("settings");
                let partitions = topic.partitions().expect("brokers that have the topic");
                Site::on(program, None, bus.to_owned(), partitions)?
            }
        };
        (0..AGENTS).for_each(|agent| site.start_agent(agent));
        Some(site)
    }

    /// Starts all of it, but for jobs and agents, with so many partitions; `None`: as `start`.
    pub(crate) fn without_agents(program: &Path, partitions: u32) -> Option<Site> {
        let brokers = MockBrokers::start("mycroft", partitions);
        let bus = brokers.address().to_string();
        Site::on(program, Some(brokers), bus, partitions)
    }

    fn on(program: &Path, brokers: Option<MockBrokers>, bus: String, partitions: u32) -> Option<Site> {
        let is_interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&is_interrupted)).expect("a signal can be heard");
        }
        let database = database::Server::start()?;
        let folder = tempfile::tempdir().expect("a folder");
        let password = folder.path().join("password");
        fs::write(&password, PASSWORD).expect("written");
        fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).expect("ours");
        let (servers, agents) = ((0..SERVERS).map(|_| None).collect(), (0..AGENTS).map(|_| None).collect());
        let program = program.to_owned();
        let (jobs, ended) = (Vec::new(), Vec::new());
        let mut site =
            Site { program, brokers, bus, partitions, database, servers, agents, jobs, ended, folder, is_interrupted };
        (0..SERVERS).for_each(|server| site.start_server(server));
        Some(site)
    }

    /// A file or folder that goes with this.
    pub(crate) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Starts a server (again), and returns when it answers.
    pub(crate) fn start_server(&mut self, server: usize) {
        let of = |name: &str| self.path(&format!("server-{server}.{name}"));
        let (wire, bus, meta) = (format!("unix:{}", of("wire")), self.bus(), self.database.url());
        let mut args = vec!["serve", "--http", "127.0.0.1:0", "--wire", &wire];
        let (store, password) = (of("store"), self.path("password"));
        args.extend(["--store", &store, "--bus", &bus, "--meta", &meta, "--meta-password-file", &password]);
        // A killed server leaves its socket.
        let _ = fs::remove_file(of("wire"));
        let running = Running::start(&self.program, of("log").into(), &args);
        self.until("a server starts", || running.said().contains("http://"));
        self.servers[server] = Some(running);
    }

    /// Starts an agent (again).
    pub(crate) fn start_agent(&mut self, agent: usize) {
        let of = |name: &str| self.path(&format!("host{agent}.{name}"));
        let (bus, host, dir, spool) = (self.bus(), format!("host{agent}"), of("segments"), of("spool"));
        let args = ["agent", "--bus", &bus, "--host", &host, "--dir", &dir, "--spool", &spool, "--nice", "0"];
        self.agents[agent] = Some(Running::start(&self.program, of("log").into(), &args));
    }

    /// `kill -9` of a server.
    pub(crate) fn kill_server(&mut self, server: usize) {
        self.servers[server] = None;
    }

    /// The process of a server.
    pub(crate) fn pid(&self, server: usize) -> Option<u32> {
        self.servers[server].as_ref().map(|running| running.child.id())
    }

    /// Stops a server as an operator does: what it has taken in is kept when this returns.
    pub(crate) fn stop_server(&mut self, server: usize) {
        let Some(mut running) = self.servers[server].take() else { return };
        let told = Command::new("kill").args(["-TERM", &running.child.id().to_string()]).status().expect("kill runs");
        assert!(told.success(), "it runs");
        self.until_at_most(STOP, "a server stops", || running.child.try_wait().expect("it is ours").is_some());
    }

    /// `kill -9` of an agent.
    pub(crate) fn kill_agent(&mut self, agent: usize) {
        self.agents[agent] = None;
    }

    /// Begins a job of one rank a host.
    pub(crate) fn start_job(&mut self, name: &str) {
        let segments: Vec<PathBuf> =
            (0..AGENTS).map(|host| self.path(&format!("host{host}.segments")).into()).collect();
        let segments: Vec<&Path> = segments.iter().map(|path| &**path).collect();
        self.jobs.push(Traced::start(name, &segments));
    }

    /// Ends a job that has done its work.
    pub(crate) fn end_job(&mut self, name: &str) {
        let at = self.jobs.iter().position(|job| job.name() == name).expect("a job of that name");
        let marks = self.jobs.remove(at).end();
        self.ended.push((name.to_owned(), marks));
    }

    pub(crate) fn job(&self, name: &str) -> &Traced {
        self.jobs.iter().find(|job| job.name() == name).expect("a job of that name")
    }

    /// The topic's address.
    pub(crate) fn bus(&self) -> String {
        self.bus.clone()
    }

    /// The brokers of this process, which there are unless others are used.
    pub(crate) fn brokers(&self) -> &MockBrokers {
        self.brokers.as_ref().expect("brokers of this process")
    }

    /// Where a server keeps records.
    pub(crate) fn store(&self, server: usize) -> PathBuf {
        self.path(&format!("server-{server}.store")).into()
    }

    /// Where a server answers readers.
    pub(crate) fn url(&self, server: usize) -> String {
        let said = self.servers[server].as_ref().map(Running::said).unwrap_or_default();
        let url = said.split_whitespace().find(|word| word.starts_with("http://")).unwrap_or_default();
        url.trim_end_matches(['/', ',']).to_owned()
    }

    /// Which server has the partition of a job; `None`: nobody.
    pub(crate) fn server_of(&self, job: &str) -> Option<usize> {
        let part = mycroft_bus::partition_of(job, self.partitions);
        let sql = format!(
            "SELECT holder FROM mycroft_leases WHERE job LIKE 'bus % partition {part}' AND until > clock_timestamp()"
        );
        let holder = self.database.sql(&sql);
        let name = |server: usize| fs::read_to_string(self.store(server).join("store-id")).unwrap_or_default();
        (0..SERVERS).find(|server| name(*server).trim() == holder)
    }

    /// Waits until it is so.
    pub(crate) fn until(&self, what: &str, is_so: impl FnMut() -> bool) -> Duration {
        self.until_at_most(PATIENCE, what, is_so)
    }

    fn until_at_most(&self, most: Duration, what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < most, "not within {most:?}: {what}");
            self.wait(LOOK);
        }
        begun.elapsed()
    }

    /// Lets time pass. Whoever interrupts ends all of it.
    pub(crate) fn wait(&self, time: Duration) {
        std::thread::sleep(time);
        assert!(!self.is_interrupted.load(Ordering::Relaxed), "interrupted");
    }
}

/// Agents before servers, and all before what they use; the folder last.
impl Drop for Site {
    fn drop(&mut self) {
        self.agents.clear();
        self.servers.clear();
        self.jobs.clear();
    }
}
