//! A directory of segments that others play with, and agents that are killed: nothing hangs, nothing outside is touched, a
//! hostile segment does not take the time of others, and nothing acknowledged is told twice.
mod common;

use common::child::Job;
use common::{Rig, wait_for, wait_until};
use mycroft_agent::{Agent, AgentConfig, AgentError, Notice};
use mycroft_record::Record;
use mycroft_ring::layout::{Geometry, HEADER_BYTES, MAX_SEGMENT_BYTES, RING_HEADER_WORDS, WORD_BYTES, header};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Set in the process of an agent: the directories and the endpoint of its rig.
const AGENT_VARIABLE: &str = "MYCROFT_AGENT_TEST_AGENT";

/// Not a test: an agent in a process of its own, so that it can be killed.
#[test]
fn agent_process() {
    let Some(paths) = std::env::var_os(AGENT_VARIABLE) else { return };
    let paths: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    let [segments, spool, socket, nics] = &paths[..] else { panic!("four paths: {paths:?}") };
    let config = AgentConfig::new(segments, spool, mycroft_agent::Endpoint::Unix(socket.clone()));
    let _agent = Agent::start(AgentConfig { nic_root: Some(nics.clone()), ..config }).expect("the agent starts");
    // Until it is killed, or its parent is gone.
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

/// Killed when dropped.
struct AgentProcess(Child);

impl AgentProcess {
    fn start(rig: &Rig) -> AgentProcess {
        let mycroft_agent::Endpoint::Unix(socket) = rig.endpoint() else { unreachable!("a rig has a socket") };
        let paths = [rig.segment_dir(), rig.spool_dir(), socket, rig.nic_root()];
        let mut command = Command::new(std::env::current_exe().expect("this test binary"));
        command.args(["--exact", "agent_process", "--nocapture"]);
        command.env(AGENT_VARIABLE, std::env::join_paths(paths).expect("no colons"));
        AgentProcess(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("the agent starts"))
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.0.kill().expect("kill -9");
        self.0.wait().expect("it is gone");
    }
}

/// The sum of all positions that the agent keeps.
fn kept(rig: &Rig) -> u64 {
    let text = fs::read_to_string(rig.segment_dir().join("agent.positions")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum()
}

#[test]
fn a_killed_agents_successor_tells_only_what_was_not_acknowledged() {
    const STEPS: u64 = 300;
    const KILLS: u64 = 5;
    let rig = Rig::new();
    let _server = rig.serve();
    let mut job = Job::start(&rig.segment_dir(), "job", 0);
    let told = || common::steps(&rig.of(std::process::id()));
    for round in 1..=KILLS {
        let agent = AgentProcess::start(&rig);
        job.steps(STEPS);
        wait_until("all is told", || told().len() as u64 >= round * STEPS);
        wait_until("and kept", || kept(&rig) == round * STEPS);
        drop(agent);
    }
    let _agent = AgentProcess::start(&rig);
    job.steps(1);
    wait_until("the last is told", || told().last() == Some(&(KILLS * STEPS + 1)));
    assert_eq!(told(), (1..=KILLS * STEPS + 1).collect::<Vec<_>>(), "each once, in order");
}

#[test]
fn what_the_server_never_got_is_told_by_the_next_agent() {
    let rig = Rig::new();
    let mut job = Job::start(&rig.segment_dir(), "job", 0);
    for _ in 0..3 {
        let _agent = AgentProcess::start(&rig);
        job.steps(50);
    }
    let _server = rig.serve();
    let _agent = AgentProcess::start(&rig);
    wait_until("all is told", || {
        let told: std::collections::BTreeSet<u64> = common::steps(&rig.of(std::process::id())).into_iter().collect();
        told == (1..=150).collect()
    });
}

fn make_fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
}

#[test]
fn pipes_in_the_place_of_the_agents_files_hold_nobody() {
    let rig = Rig::new();
    let job = Job::start(&rig.segment_dir(), "job", 0);
    make_fifo(&rig.segment_dir().join("agent.lock"));
    let refused = Agent::start(rig.config()).expect_err("no lock");
    assert!(matches!(refused, AgentError::Lock { .. }), "{refused}");
    fs::remove_file(rig.segment_dir().join("agent.lock")).expect("ours");
    make_fifo(&rig.segment_dir().join("agent.positions"));
    make_fifo(&rig.segment_dir().join("agent.positions-new"));
    let agent = rig.agent();
    wait_until("the job is watched", || agent.stats().segments == 1);
    agent.stop();
    assert!(rig.segment_dir().join("agent.positions").is_file(), "a file in its place");
    drop(job);
}

#[test]
fn a_directory_exchanged_for_a_link_leads_nowhere() {
    let rig = Rig::new();
    let agent = rig.agent();
    let dir = rig.segment_dir();
    let (moved, target) = (dir.with_file_name("moved"), dir.with_file_name("target"));
    fs::create_dir(&target).expect("a directory");
    // A file that the agent would remove in its own directory, and those it would write to.
    for name in ["1-1-aa.mycroft", "1-1-bb.mycroft-new", "agent.positions", "agent.lock"] {
        fs::write(target.join(name), "precious").expect("write");
    }
    fs::rename(&dir, &moved).expect("ours");
    symlink(&target, &dir).expect("a link");
    let told = wait_for("it is told", || {
        let notices = agent.take_notices();
        notices.into_iter().find(|notice| matches!(notice, Notice::DirUnreadable { .. }))
    });
    agent.stop();
    for entry in fs::read_dir(&target).expect("there").flatten() {
        assert_eq!(fs::read_to_string(entry.path()).expect("readable"), "precious", "{told}");
    }
    assert_eq!(fs::read_dir(&target).expect("there").count(), 4);
}

#[test]
fn a_directory_that_is_made_anew_is_watched_again() {
    let rig = Rig::new();
    let agent = rig.agent();
    fs::rename(rig.segment_dir(), rig.segment_dir().with_file_name("moved")).expect("ours");
    let _job = Job::start(&rig.segment_dir(), "job", 0);
    wait_until("the job is watched", || agent.stats().segments == 1);
    Agent::start(AgentConfig { spool_dir: rig.spool_dir().with_file_name("other"), ..rig.config() })
        .expect_err("its lock is held");
}

/// A segment of the largest size that has no bytes on the disk and claims to be of this process.
fn sparse_segment(rig: &Rig, header: &[u8], number: u32) -> File {
    let geometry = Geometry::for_bytes(MAX_SEGMENT_BYTES);
    let mut bytes = header[..HEADER_BYTES].to_vec();
    let mut put = |word: usize, value: u64| bytes[word * 8..][..8].copy_from_slice(&value.to_ne_bytes());
    put(header::NONCE, u64::from(number) + 1);
    put(header::TOTAL_BYTES, geometry.total_bytes());
    put(header::COMM_COUNT, geometry.comms);
    put(header::OP_COUNT, geometry.ops);
    put(header::FLOW_COUNT, geometry.flows);
    put(header::RING_COUNT, geometry.rings);
    put(header::RING_SLOTS, geometry.ring_slots);
    for (i, offset) in geometry.offsets().into_iter().enumerate() {
        put(header::SECTIONS + i, offset * WORD_BYTES as u64);
    }
    let path = rig.segment_dir().join(format!("{}-1-{number:08x}.mycroft", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path).expect("a new file");
    file.set_len(geometry.total_bytes()).expect("sparse");
    file.write_all_at(&bytes, 0).expect("write");
    file
}

/// Heads that jump by a whole ring make every slot news, and none holds a record.
fn jump(files: &[File], head: u64) {
    let geometry = Geometry::for_bytes(MAX_SEGMENT_BYTES);
    for file in files {
        for ring in 0..geometry.rings {
            let at = (geometry.offsets()[6] + ring * RING_HEADER_WORDS as u64) * WORD_BYTES as u64;
            file.write_all_at(&(head * geometry.ring_slots).to_ne_bytes(), at).expect("write");
        }
    }
}

#[test]
fn hostile_segments_cost_no_more_than_a_round_may() {
    const HOSTILE: u32 = 30;
    const ROUNDS: u64 = 10;
    let rig = Rig::new();
    let _server = rig.serve();
    let mut honest = Job::start(&rig.segment_dir(), "job", 0);
    let header = fs::read(honest.writer.path().expect("a file")).expect("readable");
    let files: Vec<File> = (0..HOSTILE).map(|number| sparse_segment(&rig, &header, number)).collect();
    let agent = rig.agent();
    wait_until("all are watched", || agent.stats().segments == u64::from(HOSTILE) + 1);
    let before = agent.stats();
    let mut head = 0;
    wait_until("rounds go on", || {
        let rounds = agent.stats().rounds - before.rounds;
        if rounds >= head {
            honest.steps(1);
            head = rounds + 1;
            jump(&files, head);
        }
        rounds >= ROUNDS
    });
    let after = agent.stats();
    let (rounds, bytes) = (after.rounds - before.rounds, after.bytes_read - before.bytes_read);
    // Before its first debt each may cost what one look at most costs: 16 Ki slots of 128 bytes and the tables, 7 MiB.
    let first = u64::from(HOSTILE) * (7 << 20);
    let most = (rounds + 1) * mycroft_agent::config::ROUND_BYTES_MAX + first;
    assert!(bytes <= most, "{bytes} bytes in {rounds} rounds, at most {most}");
    honest.steps(1);
    wait_until("the honest one is told to its end", || {
        let steps = |record: &Record| matches!(record, Record::StepMark(mark) if mark.step == honest.last_step());
        rig.matching(|source| source.process.is_some_and(|p| p.nonce == honest.writer.nonce())).iter().any(steps)
    });
}
