//! Captures with real processes: Python ranks, a stand-in for torch's recorder, processes that are no Python, that may
//! not be looked into, that vanish, that lie in their environment.
mod common;

use common::child::{Job, Traced};
use common::{PATIENCE, Rig, wait_until};
use mycroft_agent::{Agent, AgentConfig, AgentHandle, CaptureConfig, SpyProgram};
use mycroft_record::HostTime;
use mycroft_wire::{CaptureKind, CaptureOrder, Captured, Endpoint, Listener, ListenerHandle, ServerConfig};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The child's entry; see `common::child`.
#[test]
fn traced_process() {
    common::child::main();
}

const SCRIPT: &str = "MYCROFT_CAPTURE_TEST_SCRIPT";
const SEGMENTS: &str = "MYCROFT_CAPTURE_TEST_DIR";

/// A process that is traced and then becomes Python: the same process to the agent.
#[test]
fn python_rank() {
    let Ok(script) = std::env::var(SCRIPT) else { return };
    let dir = std::env::var(SEGMENTS).expect("set by the parent");
    let rank = std::env::var("RANK").expect("set by the parent").parse().expect("a number");
    let _job = Job::start(Path::new(&dir), "job", rank);
    panic!("{}", Command::new("python3").args(["-u", "-c", &script]).exec());
}

/// The helper that reads stacks, as the agent starts it: process ids behind the test's name.
#[test]
fn spy_helper() {
    let pids: Vec<u32> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    if !pids.is_empty() {
        mycroft_agent::spy(&pids);
    }
}

const AGENT: &str = "MYCROFT_CAPTURE_TEST_AGENT";

/// An agent in a process of its own, until its parent has read enough.
#[test]
fn agent_process() {
    let Ok(dir) = std::env::var(AGENT) else { return };
    let dir = Path::new(&dir);
    let endpoint = Endpoint::Unix(dir.join("server.sock"));
    let config = AgentConfig::new(&dir.join("segments"), &dir.join("spool"), endpoint);
    let _agent = Agent::start(AgentConfig { capture: capturing(), ..config }).expect("the agent starts");
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

fn capturing() -> CaptureConfig {
    let args = ["--exact", "spy_helper", "--nocapture", "--test-threads=1"].map(Into::into).to_vec();
    CaptureConfig { enabled: true, spy: Some(SpyProgram { program: "/proc/self/exe".into(), args }) }
}

/// Whether there is a Python; says so when there is none.
fn has_python() -> bool {
    let has = Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success());
    if !has {
        eprintln!("skipped: no python3 here");
    }
    has
}

/// A Python rank; killed when dropped.
struct Python {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Python {
    /// Starts it and waits until the script says `ready`.
    fn start(rig: &Rig, rank: u32, script: &str, variables: &[(&str, &str)]) -> Python {
        let mut child = Command::new(std::env::current_exe().expect("this test binary"))
            .args(["--exact", "python_rank", "--nocapture"])
            .env(SCRIPT, script)
            .env(SEGMENTS, rig.segment_dir())
            .env("RANK", rank.to_string())
            .env_remove("XDG_CACHE_HOME")
            .env("HOME", rig.segment_dir().join("home"))
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let said = BufReader::new(child.stdout.take().expect("piped"));
        let mut python = Python { child, said };
        python.wait_for("ready");
        python
    }

    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim() != word {
            line.clear();
            assert!(self.said.read_line(&mut line).expect("readable") > 0, "the script ended");
        }
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const STUCK: &str = "
import time
def load_batch_stuck(source):
    print('ready')
    time.sleep(600)
def train():
    load_batch_stuck('shard-7')
train()
";

/// A server that gives orders.
struct Orderer {
    server: ListenerHandle,
    answers: Receiver<Captured>,
    next: u64,
}

/// What a capture brought.
#[derive(Default, Debug)]
struct Brought {
    files: BTreeMap<String, Vec<u8>>,
    /// Kind, process: file and text.
    tried: BTreeMap<(CaptureKind, u32), (String, String)>,
    end: Option<(u32, String)>,
    took: Duration,
}

impl Brought {
    fn text(&self, kind: CaptureKind, pid: u32) -> &str {
        &self.tried.get(&(kind, pid)).unwrap_or_else(|| panic!("{kind:?} of {pid} was not tried: {self:?}")).1
    }

    /// The file that a try gave, as text.
    fn file(&self, kind: CaptureKind, pid: u32) -> String {
        let (file, text) = &self.tried.get(&(kind, pid)).unwrap_or_else(|| panic!("not tried: {self:?}"));
        let bytes = self.files.get(file).unwrap_or_else(|| panic!("no file: {text}"));
        String::from_utf8_lossy(bytes).into_owned()
    }
}

impl Orderer {
    fn start(rig: &Rig) -> Orderer {
        let (tell, answers) = channel();
        let tell = Mutex::new(tell);
        let listener = Listener::bind(&rig.endpoint(), ServerConfig::default()).expect("the server binds");
        let captured = move |_, captured| drop(tell.lock().expect("nobody panics").send(captured));
        Orderer { server: listener.serve_with(Arc::new(|_| {}), Arc::new(captured)), answers, next: 1 }
    }

    fn order(&mut self, limit_ms: u32) -> u64 {
        wait_until("the agent is connected", || !self.server.peers().is_empty());
        let id = self.next;
        self.next += 1;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        let at = HostTime(since.as_nanos() as u64 + 300_000_000);
        let job = "job".to_owned();
        let order = CaptureOrder { id, job, at, in_ms: 300, limit_ms, stacks: true, flight_recorder: true };
        let peer = &self.server.peers()[0];
        self.server.order(peer.connection, &order).expect("the order is taken");
        id
    }

    /// Gives an order and takes everything that comes of it.
    fn capture(&mut self, limit_ms: u32) -> Brought {
        let begun = Instant::now();
        let id = self.order(limit_ms);
        let mut brought = Brought::default();
        while brought.end.is_none() {
            let captured = self.answers.recv_timeout(PATIENCE).expect("the agent answers to the end");
            assert_eq!(captured.capture(), id);
            match captured {
                Captured::Piece { file, offset, bytes, .. } => {
                    let whole = brought.files.entry(file).or_default();
                    assert_eq!(whole.len() as u64, offset, "in order");
                    whole.extend(bytes);
                }
                Captured::Tried { kind, pid, file, text, .. } => drop(brought.tried.insert((kind, pid), (file, text))),
                Captured::End { ranks, text, .. } => brought.end = Some((ranks, text)),
            }
        }
        brought.took = begun.elapsed();
        brought
    }
}

fn agent(rig: &Rig) -> AgentHandle {
    Agent::start(AgentConfig { capture: capturing(), ..rig.config() }).expect("the agent starts")
}

#[test]
fn the_stacks_of_a_rank_and_of_its_worker_name_the_functions_they_are_in() {
    if !has_python() {
        return;
    }
    let rig = Rig::new();
    let mut orderer = Orderer::start(&rig);
    let agent = agent(&rig);
    // A data loader in small: the worker sits in one function, the rank waits for it in another.
    let script = "
import os, time, sys
def read_shard_from_dead_filesystem():
    print('ready')
    time.sleep(600)
def wait_for_worker():
    os.waitpid(worker, 0)
worker = os.fork()
if worker == 0:
    read_shard_from_dead_filesystem()
wait_for_worker()
";
    let rank = Python::start(&rig, 5, script, &[]);
    let other = Traced::start(&rig.segment_dir(), "job", 6);
    wait_until("both are watched", || agent.stats().segments == 2);
    let brought = orderer.capture(5000);
    assert_eq!(brought.end, Some((2, String::new())));
    let own = brought.file(CaptureKind::Stacks, rank.pid());
    assert!(own.contains("wait_for_worker") && own.contains("\"MainThread\""), "{own}");
    assert!(own.contains("\"process_info\":{\"pid\""), "{own}");
    let name = &brought.tried[&(CaptureKind::Stacks, rank.pid())].0;
    assert_eq!(*name, format!("pyspy_pid{}_rank_5.json", rank.pid()));
    let (_, worker) = *brought.tried.keys().find(|(kind, _)| *kind == CaptureKind::ChildStacks).expect("a worker");
    let child = brought.file(CaptureKind::ChildStacks, worker);
    assert!(child.contains("read_shard_from_dead_filesystem"), "{child}");
    assert!(child.contains(&format!("\"parent\":{{\"pid\":{}", rank.pid())), "{child}");
    assert!(brought.text(CaptureKind::Stacks, other.pid()).contains("not a Python process"), "{brought:?}");
    let none = brought.text(CaptureKind::FlightRecorder, other.pid());
    assert!(none.contains("TORCH_NCCL_DEBUG_INFO_PIPE_FILE="), "it says what to switch on: {none}");
}

/// What torch does: makes the FIFO, looks at it now and then, and dumps when it was written to.
const RECORDER: &str = r#"
import os, pickle, time
pipe = os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE'] + os.environ['RANK'] + '.pipe'
os.mkfifo(pipe)
fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
dump = {'version': '2.10', 'pg_config': {}, 'pg_status': {}, 'entries': ['x' * 600000]}
print('ready')
while True:
    if os.read(fd, 128):
        with open(os.environ['TORCH_FR_DUMP_TEMP_FILE'] + os.environ['RANK'], 'wb') as file:
            data = pickle.dumps(dump, protocol=2)
            file.write(data[:1000]); file.flush(); time.sleep(0.3); file.write(data[1000:])
    time.sleep(0.05)
"#;

#[test]
fn a_dump_is_asked_for_through_the_pipe_and_taken_when_it_is_whole() {
    if !has_python() {
        return;
    }
    let rig = Rig::new();
    let mut orderer = Orderer::start(&rig);
    let agent = agent(&rig);
    let place = tempfile::tempdir().expect("a directory");
    let (pipe, dumps) = (place.path().join("pipe_"), place.path().join("dump_"));
    let (pipe, dumps) = (pipe.to_str().expect("text"), dumps.to_str().expect("text"));
    // An old dump must not pass for the new one.
    std::fs::write(format!("{dumps}3"), b"\x80\x02]q\x00.").expect("write");
    let variables = [("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", pipe), ("TORCH_FR_DUMP_TEMP_FILE", dumps)];
    let rank = Python::start(&rig, 3, RECORDER, &variables);
    wait_until("it is watched", || agent.stats().segments == 1);
    let brought = orderer.capture(8000);
    let (name, text) = &brought.tried[&(CaptureKind::FlightRecorder, rank.pid())];
    assert_eq!((name.as_str(), text.as_str()), ("comm_lib_trace_rank_3", ""));
    assert_eq!(brought.files[name], std::fs::read(format!("{dumps}3")).expect("readable"), "whole, in several pieces");
    assert!(brought.files[name].len() > 600_000);
    assert!(brought.took < Duration::from_secs(8), "{:?}", brought.took);
}

/// What torch 2.15 answers in a job over Gloo.
const WORKER_SERVER: &str = r#"
import os, socket, socketserver, http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        answers = {
            '/handler/fr_dump_file': (503, b'Flight Recorder rank is unset'),
            '/handler/dump_nccl_trace_pickle': (200, b'\x80\x02}(X\x07\x00\x00\x00entriesq\x00]q\x01u.'),
            '/handler/fr_trace_json': (200, b'{"entries":[{"record_id":0}]}'),
        }
        status, body = answers.get(self.path, (404, b''))
        self.send_response(status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def address_string(self): return 'agent'
    def log_message(self, *args): pass
server = socketserver.UnixStreamServer(os.environ['TORCH_WORKER_SERVER_SOCKET'], Handler)
print('ready')
server.serve_forever()
"#;

#[test]
fn torchs_worker_server_is_asked_where_the_job_has_one() {
    if !has_python() {
        return;
    }
    let rig = Rig::new();
    let mut orderer = Orderer::start(&rig);
    let agent = agent(&rig);
    let place = tempfile::tempdir().expect("a directory");
    let socket = place.path().join("s").to_str().expect("text").to_owned();
    let rank = Python::start(&rig, 4, WORKER_SERVER, &[("TORCH_WORKER_SERVER_SOCKET", socket.as_str())]);
    wait_until("it is watched", || agent.stats().segments == 1);
    let brought = orderer.capture(4000);
    let dump = brought.file(CaptureKind::FlightRecorder, rank.pid());
    assert_eq!(dump, "{\"entries\":[{\"record_id\":0}]}", "not the dump without entries");
}

#[test]
fn what_an_environment_says_is_not_trusted() {
    if !has_python() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let at = |name: &str| place.path().join(name).to_str().expect("text").to_owned();
    // In the pipe's place: a file, which must not be written to; a link to a pipe; a pipe that nobody reads.
    std::fs::write(at("file_1.pipe"), "precious").expect("write");
    assert!(Command::new("mkfifo").arg(at("pipe_3.pipe")).status().expect("mkfifo runs").success());
    std::os::unix::fs::symlink(at("pipe_3.pipe"), at("link_2.pipe")).expect("a link");
    // In the dump's place: a link to somebody's secret, which no dump has been asked for.
    std::fs::write(at("secret"), "{\"secret\": 1}").expect("write");
    std::os::unix::fs::symlink(at("secret"), at("dump_4")).expect("a link");
    let cases: [(u32, &str, &str, &str); 4] = [
        (1, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "file_", "not a FIFO"),
        (2, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "link_", "not a FIFO"),
        (3, "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "pipe_", "nobody reads it"),
        (4, "TORCH_FR_DUMP_TEMP_FILE", "dump_", "no way to ask"),
    ];
    let rig = Rig::new();
    let mut orderer = Orderer::start(&rig);
    let agent = agent(&rig);
    let ranks = cases.map(|(rank, variable, prefix, says)| {
        (Python::start(&rig, rank, STUCK, &[(variable, at(prefix).as_str())]), says)
    });
    wait_until("all are watched", || agent.stats().segments == 4);
    let brought = orderer.capture(4000);
    for (rank, says) in &ranks {
        let text = brought.text(CaptureKind::FlightRecorder, rank.pid());
        assert!(text.contains(says), "{says}: {text}");
        assert!(
            brought.file(CaptureKind::Stacks, rank.pid()).contains("load_batch_stuck"),
            "the others are not held up"
        );
    }
    assert_eq!(brought.files.len(), 4, "no dump was taken: {:?}", brought.files.keys());
    assert_eq!(std::fs::read_to_string(at("file_1.pipe")).expect("readable"), "precious");
}

#[test]
fn a_dump_that_torch_wrote_itself_is_taken_when_there_is_no_way_to_ask() {
    if !has_python() {
        return;
    }
    let rig = Rig::new();
    let mut orderer = Orderer::start(&rig);
    let agent = agent(&rig);
    let place = tempfile::tempdir().expect("a directory");
    let cache = place.path().to_str().expect("text");
    let script = format!(
        "
import os
os.mkdir('{cache}/torch')
with open('{cache}/torch/comm_lib_trace_rank_2', 'wb') as file:
    file.write(b'\\x80\\x02}}q\\x00.')
{STUCK}"
    );
    let rank = Python::start(&rig, 2, &script, &[("XDG_CACHE_HOME", cache)]);
    wait_until("it is watched", || agent.stats().segments == 1);
    let brought = orderer.capture(4000);
    assert!(brought.text(CaptureKind::FlightRecorder, rank.pid()).contains("the job wrote it itself"), "{brought:?}");
    assert_eq!(brought.files["comm_lib_trace_rank_2"], b"\x80\x02}q\x00.");
}

#[test]
fn a_stopped_rank_a_vanished_one_and_an_order_within_an_order_are_told() {
    if !has_python() {
        return;
    }
    let rig = Rig::new();
    let mut orderer = Orderer::start(&rig);
    let agent = agent(&rig);
    let stopped = Python::start(&rig, 0, STUCK, &[]);
    let place = tempfile::tempdir().expect("a directory");
    let pipe = place.path().join("p").to_str().expect("text").to_owned();
    // It makes a dump never, and ends when it is asked for one.
    let ends = "
import os
os.mkfifo(os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE'] + '1.pipe')
print('ready')
open(os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE'] + '1.pipe').read(1)
";
    let gone = Python::start(&rig, 1, ends, &[("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", pipe.as_str())]);
    wait_until("both are watched", || agent.stats().segments == 2);
    assert!(Command::new("kill").args(["-STOP", &stopped.pid().to_string()]).status().expect("kill runs").success());
    let first = orderer.order(3000);
    let second = orderer.order(3000);
    let mut ends = BTreeMap::new();
    let mut tried = BTreeMap::new();
    while ends.len() < 2 {
        match orderer.answers.recv_timeout(PATIENCE).expect("an answer") {
            Captured::End { capture, text, .. } => drop(ends.insert(capture, text)),
            Captured::Tried { kind, pid, file, text, .. } => drop(tried.insert((kind, pid), (file, text))),
            Captured::Piece { .. } => {}
        }
    }
    assert_eq!(ends[&first], "");
    assert!(ends[&second].contains("another capture"), "{ends:?}");
    assert!(
        !tried[&(CaptureKind::Stacks, stopped.pid())].0.is_empty(),
        "a stopped process is read all the same: {tried:?}"
    );
    let (_, text) = &tried[&(CaptureKind::FlightRecorder, gone.pid())];
    assert!(text.contains("no new dump") || text.contains("exited meanwhile"), "{text}");
}

#[test]
fn a_rank_that_may_not_be_looked_into_is_told_with_the_remedy() {
    if !has_python() {
        return;
    }
    let root = std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok_and(|output| output.status.success());
    if root && !has_setpriv {
        eprintln!("skipped: setpriv is not here, and root may look into everything");
        return;
    }
    let rig = Rig::new();
    let mut orderer = Orderer::start(&rig);
    // PR_SET_DUMPABLE 0: as a program does that holds keys. Only CAP_SYS_PTRACE may look into it.
    let script = format!("import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n{STUCK}");
    let rank = Python::start(&rig, 9, &script, &[]);
    let mut command = if root {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace", "--"]);
        command.arg(std::env::current_exe().expect("this test binary"));
        command
    } else {
        Command::new(std::env::current_exe().expect("this test binary"))
    };
    let dir = rig.segment_dir().parent().expect("the rig's own").to_owned();
    let agent = command.args(["--exact", "agent_process", "--nocapture"]).env(AGENT, dir).stdin(Stdio::piped());
    let mut agent = agent.stdout(Stdio::null()).spawn().expect("the agent starts");
    wait_until("it is connected", || !orderer.server.peers().is_empty());
    // Until the agent has found the segment it knows no rank.
    let mut brought = orderer.capture(3000);
    while brought.end == Some((0, String::new())) {
        brought = orderer.capture(3000);
    }
    let text = brought.text(CaptureKind::Stacks, rank.pid());
    assert!(text.contains("no permission") && text.contains("SYS_PTRACE"), "{text}");
    assert!(brought.files.is_empty());
    drop(agent.stdin.take());
    agent.wait().expect("it ends");
}

#[test]
fn an_agent_that_may_not_capture_says_so_and_one_without_ranks_says_nothing() {
    let rig = Rig::new();
    let mut orderer = Orderer::start(&rig);
    let agent = agent(&rig);
    let brought = orderer.capture(1000);
    assert_eq!(brought.end, Some((0, String::new())));
    assert!(brought.took < Duration::from_secs(3), "nobody is waited for: {:?}", brought.took);
    drop(agent);
    let off = CaptureConfig { enabled: false, ..capturing() };
    wait_until("the first agent is gone", || orderer.server.peers().is_empty());
    let _agent = Agent::start(AgentConfig { capture: off, ..rig.config() }).expect("the agent starts");
    let brought = orderer.capture(1000);
    assert!(brought.end.as_ref().is_some_and(|(_, text)| text.contains("switched off")), "{brought:?}");
}

#[test]
fn a_helper_that_hangs_or_dies_costs_its_own_rank_only_its_time() {
    if !has_python() {
        return;
    }
    for (script, says) in [("sleep 600", "in time"), ("exit 3", "ended without a word")] {
        let rig = Rig::new();
        let mut orderer = Orderer::start(&rig);
        let args = ["-c", script].map(Into::into).to_vec();
        let spy = Some(SpyProgram { program: "/bin/sh".into(), args });
        let capture = CaptureConfig { enabled: true, spy };
        let agent = Agent::start(AgentConfig { capture, ..rig.config() }).expect("the agent starts");
        let rank = Python::start(&rig, 1, STUCK, &[]);
        wait_until("it is watched", || agent.stats().segments == 1);
        let brought = orderer.capture(1000);
        let text = brought.text(CaptureKind::Stacks, rank.pid());
        assert!(text.contains(says), "{says}: {text}");
        assert!(brought.took < Duration::from_secs(4), "{:?}", brought.took);
    }
}
