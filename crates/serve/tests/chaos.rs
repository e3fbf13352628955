//! Servers, brokers, database and agents of a bus end and come back, one after the other and in whatever is going on: no record that was
//! acknowledged is lost, no case is lost or doubled, and none is false. `cargo xtask cluster --rounds N` does the same for longer.
#[path = "../../store/tests/server/mod.rs"]
mod database;
mod feeder;
mod fleet;
mod hosts;
mod stalled;

use feeder::{Fed, Feeder, Rig};
use fleet::{child, rows, until};
use hosts::Traced;
use mycroft_agent::{Agent, AgentConfig};
use mycroft_bus::kafka::mock::MockBrokers;
use mycroft_bus::kafka::way;
use mycroft_bus::{BusAddress, BusSecurity};
use mycroft_record::{JobName, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long brokers are away.
const AWAY: Duration = Duration::from_secs(3);
/// Says to this program that it is an agent: brokers, folder.
const AGENT: &str = "MYCROFT_TEST_BUS_AGENT";

/// Not a test of its own: the program of `fleet::child`.
#[test]
fn a_server_of_its_own() {
    fleet::serve_if_told();
}

/// Not a test of its own: the program of `agent`.
#[test]
fn an_agent_of_its_own() {
    let Ok(role) = std::env::var(AGENT) else { return };
    let (brokers, dir) = role.split_once('|').expect("brokers and a folder");
    let (address, dir): (BusAddress, _) = (brokers.parse().expect("an address"), Path::new(dir));
    let by = way(&address, &BusSecurity::default());
    // Of this machine's interfaces it tells nothing.
    let config = AgentConfig {
        nic_root: Some(dir.join("none")),
        ..AgentConfig::new(&dir.join("segments"), &dir.join("spool"), by)
    };
    let agent = Agent::start(config).expect("the agent starts");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("a pipe");
    agent.stop();
}

/// An agent in a process of its own, ended with this one. What it shall read and what it spools is in the folder.
fn agent(brokers: &MockBrokers, dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "an_agent_of_its_own", "--nocapture"]);
    command.env(AGENT, format!("{}|{}", brokers.address(), dir.display()));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts")
}

/// Of a job with real agents nothing at all is lost: what an agent had not handed over when it was killed is still in the segment.
impl Fed for Traced {
    fn name(&self) -> &str {
        Traced::name(self)
    }

    /// It does so by itself.
    fn feed(&mut self) {}

    fn stall(&mut self) {
        Traced::stall(self, 1);
    }

    fn go_on(&mut self) {
        Traced::go_on(self);
    }

    fn acknowledged(&self) -> [u64; 2] {
        [self.marks(); 2]
    }
}

fn end(child: &mut Child) {
    child.kill().expect("kill -9");
    child.wait().expect("ended");
}

/// Step marks that the servers' folders hold, by job and rank.
fn kept(dirs: &[&Path]) -> BTreeMap<(JobName, u32), BTreeSet<u64>> {
    let mut out: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    for dir in dirs {
        for delivery in mycroft_store::read_only(&dir.join("store")).expect("a store") {
            let batch = delivery.expect("read").batch;
            let rank = batch.source.process.map_or(0, |process| process.rank.0);
            let marks = batch.records.iter().filter_map(|record| match record {
                Record::StepMark(mark) => Some(mark.step),
                _ => None,
            });
            out.entry((batch.source.job.clone(), rank)).or_default().extend(marks);
        }
    }
    out
}

/// Cases in the order in which they opened.
fn states(database: &database::Server) -> String {
    database.sql("SELECT string_agg(job || ' ' || state, ', ' ORDER BY opened_at, job) FROM mycroft_cases")
}

/// What ends and comes back, and the jobs meanwhile.
struct Site {
    brokers: MockBrokers,
    database: database::Server,
    /// Of both servers, and of the hosts of the job with real agents.
    dirs: [tempfile::TempDir; 4],
    servers: Vec<Child>,
    agents: Vec<Child>,
    feeder: Feeder,
}

impl Site {
    /// Two jobs that are fed from here, `train-1` and `train-2`, and `train-3`, which has real agents.
    fn start() -> Option<Site> {
        let database = database::Server::start()?;
        let brokers = MockBrokers::start("mycroft", 2);
        let dirs = [(); 4].map(|()| tempfile::tempdir().expect("a folder"));
        let servers = dirs[..2].iter().map(|dir| child(&brokers, dir.path(), &database)).collect();
        let segments: Vec<_> = dirs[2..].iter().map(|dir| dir.path().join("segments")).collect();
        let traced = Traced::start("train-3", &segments.iter().map(|path| &**path).collect::<Vec<_>>());
        let agents = dirs[2..].iter().map(|dir| agent(&brokers, dir.path())).collect();
        let rig = Rig::new(way(brokers.address(), &BusSecurity::default()));
        let mut feeder = rig.job("train-1");
        feeder.join(rig.job("train-2"));
        feeder.join(Feeder::of(traced));
        Some(Site { brokers, database, dirs, servers, agents, feeder })
    }

    fn feed_for(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.feeder.feed();
        }
    }

    fn server_goes_on(&mut self, number: usize) {
        self.servers[number] = child(&self.brokers, self.dirs[number].path(), &self.database);
    }

    fn agent_goes_on(&mut self, number: usize) {
        self.agents[number] = agent(&self.brokers, self.dirs[2 + number].path());
    }

    fn states(&self) -> String {
        states(&self.database)
    }

    fn until(&mut self, what: &str, wanted: &str) {
        let Site { feeder, database, .. } = self;
        until(what, feeder, || states(database) == wanted);
    }

    fn brokers_go_and_come(&mut self) {
        self.brokers.down();
        self.feed_for(AWAY);
        self.brokers.up();
    }
}

#[test]
fn what_ends_and_comes_back_loses_nothing_and_doubles_nothing() {
    let Some(mut site) = Site::start() else { return };
    site.feed_for(Duration::from_secs(3));
    site.feeder.stall_one("train-1");
    site.until("a case", "train-1 open");
    // Each server once, while a case is open, and an agent of a job that is well.
    for number in 0..2 {
        end(&mut site.servers[number]);
        end(&mut site.agents[number]);
        site.feed_for(Duration::from_secs(1));
        site.server_goes_on(number);
        site.agent_goes_on(number);
        site.feed_for(Duration::from_secs(6));
        assert_eq!(site.states(), "train-1 open", "server and agent {number}");
    }
    site.feeder.go_on();
    site.until("the case ends", "train-1 closed");
    // Brokers, while all is well.
    site.brokers_go_and_come();
    site.feed_for(AWAY);
    assert_eq!(site.states(), "train-1 closed", "silence of all is no case");
    // The database, and a stall meanwhile that nobody may judge.
    site.database.kill();
    site.feed_for(AWAY);
    site.feeder.stall_one("train-2");
    site.feed_for(AWAY);
    site.database.go_on();
    site.until("a case after the database", "train-1 closed, train-2 open");
    // Both agents of a job that stalls while they are gone.
    site.agents.iter_mut().for_each(end);
    site.feeder.stall_one("train-3");
    site.feed_for(Duration::from_secs(1));
    (0..2).for_each(|number| site.agent_goes_on(number));
    let open = "train-1 closed, train-2 open, train-3 open";
    site.until("a case after the agents", open);
    // A server, an agent and the brokers at once.
    end(&mut site.servers[0]);
    end(&mut site.agents[0]);
    site.brokers_go_and_come();
    site.server_goes_on(0);
    site.agent_goes_on(0);
    site.feed_for(Duration::from_secs(6));
    assert_eq!(site.states(), open);
    site.feeder.go_on();
    let closed = "train-1 closed, train-2 closed, train-3 closed";
    site.until("all cases end", closed);
    let acknowledged = site.feeder.acknowledged();
    let dirs = [site.dirs[0].path(), site.dirs[1].path()];
    let is_kept = |(job, ranks): &(JobName, [u64; 2])| {
        let kept = kept(&dirs);
        (0..2).all(|rank| {
            let found = &kept[&(job.clone(), rank)];
            (1..=ranks[rank as usize]).all(|step| found.contains(&step))
        })
    };
    until("all that was acknowledged is kept", &mut site.feeder, || acknowledged.iter().all(is_kept));
    site.servers.iter_mut().chain(&mut site.agents).for_each(end);
    assert_eq!(site.states(), closed, "{}", rows(&site.database));
}
