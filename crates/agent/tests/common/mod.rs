//! A real server end, real traced processes, and waiting for what must happen.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses a part")]
use mycroft_agent::{Agent, AgentConfig, AgentHandle, Endpoint};
use mycroft_record::{Batch, CommId, Record, Source};
use mycroft_wire::{Listener, ListenerHandle, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub mod child;

/// Nothing here takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `condition` gives something; panics with `what` if it never does.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until `condition` holds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_for(what, || condition().then_some(()));
}

/// A directory with everything an agent needs, and what its server received.
pub struct Rig {
    root: tempfile::TempDir,
    received: Arc<Mutex<Vec<Batch>>>,
}

impl Rig {
    pub fn new() -> Rig {
        let rig = Rig { root: tempfile::tempdir().expect("a temporary directory"), received: Arc::default() };
        let stats = rig.root.path().join("sys/net/eth0/statistics");
        std::fs::create_dir_all(&stats).expect("a made-up interface");
        std::fs::write(stats.join("tx_bytes"), "4096\n").expect("write");
        std::fs::write(rig.root.path().join("sys/net/eth0/operstate"), "up\n").expect("write");
        rig
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn segment_dir(&self) -> PathBuf {
        self.root.path().join("segments")
    }

    pub fn spool_dir(&self) -> PathBuf {
        self.root.path().join("spool")
    }

    pub fn nic_root(&self) -> PathBuf {
        self.root.path().join("sys/net")
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.root.path().join("server.sock"))
    }

    pub fn config(&self) -> AgentConfig {
        AgentConfig {
            nic_root: Some(self.nic_root()),
            ..AgentConfig::new(&self.segment_dir(), &self.spool_dir(), self.endpoint())
        }
    }

    pub fn agent(&self) -> AgentHandle {
        Agent::start(self.config()).expect("the agent starts")
    }

    /// Starts a server at the endpoint; it stops when dropped.
    pub fn serve(&self) -> ListenerHandle {
        let received = self.received.clone();
        let listener = Listener::bind(&self.endpoint(), ServerConfig::default()).expect("the server binds");
        listener.serve(Arc::new(move |frame| received.lock().expect("no panic while received").extend(frame)))
    }

    /// Everything received so far.
    pub fn received(&self) -> Vec<Batch> {
        self.received.lock().expect("no panic while received").clone()
    }

    /// Records received of the process `pid`.
    pub fn of(&self, pid: u32) -> Vec<Record> {
        self.matching(|source| source.process.is_some_and(|p| p.pid == pid))
    }

    /// Records received about hosts.
    pub fn of_hosts(&self) -> Vec<(Source, Record)> {
        let batches = self.received().into_iter().filter(|b| b.source.process.is_none());
        batches.flat_map(|b| b.records.into_iter().map(move |r| (b.source.clone(), r))).collect()
    }

    pub fn matching(&self, wanted: impl Fn(&Source) -> bool) -> Vec<Record> {
        let received = self.received.lock().expect("no panic while received");
        received.iter().filter(|b| wanted(&b.source)).flat_map(|b| b.records.iter().cloned()).collect()
    }

    /// Waits until a record of the process is received for which `pick` gives something.
    pub fn wait<T>(&self, what: &str, pid: u32, pick: impl Fn(&Record) -> Option<T>) -> T {
        wait_for(what, || self.of(pid).iter().find_map(&pick))
    }

    /// Segment files there now.
    pub fn segment_files(&self) -> Vec<PathBuf> {
        mycroft_ring::segment::list(&self.segment_dir()).expect("the directory is readable")
    }
}

/// The iteration numbers of the step marks among records.
pub fn steps(records: &[Record]) -> Vec<u64> {
    let step = |record: &Record| match record {
        Record::StepMark(mark) => Some(mark.step),
        _ => None,
    };
    records.iter().filter_map(step).collect()
}

/// Threads of this process whose name begins so.
pub fn threads_named(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("own threads");
    let names = tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

pub fn comm(id: u64) -> CommId {
    CommId(id)
}

/// The only path of a directory.
pub fn only(paths: &[PathBuf]) -> &Path {
    assert_eq!(paths.len(), 1, "{paths:?}");
    &paths[0]
}
