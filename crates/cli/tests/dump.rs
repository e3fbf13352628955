//! `mycroft dump` end to end: a server, an agent and Python ranks as processes, one of which never enters an operation.
mod common;

use common::{Going, PATIENCE, end, line_with, mycroft, refusal, until};
use mycroft_ring::{SegmentConfig, SegmentWriter};
use std::io::BufReader;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const SCRIPT: &str = "CLI_DUMP_TEST_SCRIPT";
const SEGMENTS: &str = "CLI_DUMP_TEST_DIR";

/// A process that is traced and then becomes Python: the same process to the agent.
#[test]
fn python_rank() {
    let (Ok(script), Ok(dir)) = (std::env::var(SCRIPT), std::env::var(SEGMENTS)) else { return };
    let rank: u32 = std::env::var("RANK").expect("set by the parent").parse().expect("a number");
    let config = SegmentConfig {
        dir: dir.as_ref(),
        size_bytes: 1 << 20,
        job: "llama",
        host: "host0",
        rank,
        world_size: 3,
        local_rank: rank,
        gpu: -1,
    };
    let _writer = SegmentWriter::create(&config).expect("a segment");
    panic!("{}", Command::new("python3").args(["-u", "-c", &script]).exec());
}

/// A rank with torch's recorder in small: five all-reduces are done; all but rank 1 are in the sixth.
const RANK: &str = r#"
import os, pickle, threading, time
rank = int(os.environ['RANK'])
pipe = os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE'] + str(rank) + '.pipe'
os.mkfifo(pipe)
fd = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
begun = time.time_ns()
main = str(threading.get_ident())
frames = [{'name': 'all_reduce', 'filename': '/torch/distributed/distributed_c10d.py', 'line': 3000},
          {'name': 'train', 'filename': '/job/train.py', 'line': 30}, {'name': '<module>', 'filename': '/job/train.py', 'line': 40}]
def entry(seq):
    done = seq < 6
    return {'frames': frames, 'record_id': seq - 1, 'pg_id': 0, 'process_group': ('0', 'default_pg'), 'thread_name': 'MainThread',
        'thread_id': main, 'collective_seq_id': seq, 'p2p_seq_id': 0, 'op_id': seq, 'profiling_name': 'nccl:all_reduce',
        'time_created_ns': begun + seq * 1000000, 'input_sizes': [[8, 4]], 'input_dtypes': ['Float'], 'output_sizes': [[8, 4]],
        'output_dtypes': ['Float'], 'state': 'completed' if done else 'scheduled', 'time_discovered_started_ns': None,
        'time_discovered_completed_ns': begun + seq * 1000000 + 500000 if done else None, 'retired': done,
        'timeout_ms': 600000, 'is_p2p': False}
last = 5 if rank == 1 else 6
dump = {'version': '2.10', 'comm_lib_version': '2.28.3',
    'pg_config': {'0': {'name': '0', 'desc': 'default_pg', 'ranks': '[0, 1, 2]'}},
    'pg_status': {'0': {'last_enqueued_collective': last, 'last_started_collective': -1, 'last_completed_collective': 5}},
    'entries': [entry(seq) for seq in range(1, last + 1)]}
def record():
    while True:
        if os.read(fd, 128):
            with open(os.environ['TORCH_FR_DUMP_TEMP_FILE'] + str(rank), 'wb') as file:
                file.write(pickle.dumps(dump, protocol=2))
        time.sleep(0.05)
threading.Thread(target=record, daemon=True).start()
def load_batch_stuck():
    print('ready')
    time.sleep(600)
def all_reduce():
    print('ready')
    time.sleep(600)
def train():
    load_batch_stuck() if rank == 1 else all_reduce()
train()
"#;

struct Python(Child);

impl Python {
    fn start(dir: &Path, rank: u32) -> Python {
        let mut child = Command::new(std::env::current_exe().expect("this test binary"))
            .args(["--exact", "python_rank", "--nocapture"])
            .env(SCRIPT, RANK)
            .env(SEGMENTS, dir.join("segments"))
            .env("RANK", rank.to_string())
            .env("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", dir.join("pipe_"))
            .env("TORCH_FR_DUMP_TEMP_FILE", dir.join("fr_"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        line_with(&mut said, "ready");
        // The pipe stays open as long as the script may write to it: it says nothing more.
        std::mem::forget(said);
        Python(child)
    }
}

impl Drop for Python {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server; its HTTP address and where agents connect.
fn server(dir: &Path) -> (Going, String, String) {
    let wire = format!("unix:{}", dir.join("agents.sock").display());
    let store = dir.join("store");
    let mut going =
        Going::start(mycroft(&["serve", "--http", "127.0.0.1:0", "--wire", &wire, "--store", store.to_str().unwrap()]));
    let line = line_with(&mut going.stderr, "http://");
    let begin = line.find("http://").unwrap();
    let url = line[begin..].split(['/', ',']).nth(2).map(|authority| format!("http://{authority}")).unwrap();
    (going, url, wire)
}

fn dump(url: &str, args: &[&str]) -> common::Said {
    end(mycroft(&[&["dump", "--job", "llama", "--server", url], args].concat()))
}

/// `mycroft collect` of the same job, through the server and of this host alone: both packages name the stuck rank.
fn collected(dir: &Path, url: &str, ranks: &[Python]) {
    let pids: Vec<String> = ranks.iter().map(|rank| rank.0.id().to_string()).collect();
    let here: Vec<&str> = pids.iter().flat_map(|pid| ["--pid", pid]).collect();
    for (name, how) in [("all", &["--job", "llama", "--url", url][..]), ("here", &here)] {
        let package = dir.join(format!("{name}.tar.zst"));
        let said = end(mycroft(&[&["collect", "--out", package.to_str().unwrap()][..], how].concat()));
        assert_eq!(said.code, Some(0), "{said:?}");
        let said = end(mycroft(&["autopsy", "--quiet", package.to_str().unwrap()]));
        let is_right =
            said.stdout.starts_with("HANG: rank 1 (3 ranks, 3 dumps") && said.stdout.contains("load_batch_stuck");
        assert!(said.code == Some(1) && is_right, "a package of {name}: {said:?}");
    }
}

#[test]
fn a_running_job_is_dumped_and_the_stuck_rank_and_its_function_are_named() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no python3 here");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (_server, url, wire) = server(dir.path());
    let segments = dir.path().join("segments");
    let spool = dir.path().join("spool");
    let places = ["--dir", segments.to_str().unwrap(), "--spool", spool.to_str().unwrap()];
    let agent = [&["agent", "--server", &wire, "--host", "host0"][..], &places].concat();
    let _agent = Going::start(mycroft(&agent));
    until("the agent makes its directory", || segments.exists().then_some(()));
    let ranks: Vec<Python> = (0..3).map(|rank| Python::start(dir.path(), rank)).collect();
    until("the job is known with its ranks", || {
        let said = end(mycroft(&["cases", "--url", &url]));
        let ranks = end(mycroft(&["watch", "--once", "--url", &url, "--job", "llama"]));
        (said.code == Some(0) && ranks.stdout.contains("host0")).then_some(())
    });

    let out = dir.path().join("out");
    let begun = Instant::now();
    let said = dump(&url, &["--out", out.to_str().unwrap()]);
    assert!(begun.elapsed() < PATIENCE);
    assert_eq!(said.code, Some(1), "something is wrong, and it is told: {said:?}");
    assert!(said.stdout.contains("load_batch_stuck"), "{said:?}");
    assert!(said.stderr.contains("capture 1 of job \"llama\""), "{said:?}");
    let mut names: Vec<String> = std::fs::read_dir(out.join("host0"))
        .expect("a folder per host")
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names[..3], ["comm_lib_trace_rank_0", "comm_lib_trace_rank_1", "comm_lib_trace_rank_2"]);
    assert!(names.len() == 6 && names[3..].iter().all(|name| name.starts_with("pyspy_pid")), "{names:?}");
    let again = end(mycroft(&["autopsy", "--quiet", out.to_str().unwrap()]));
    assert_eq!((again.code, &again.stdout), (Some(1), &said.stdout), "the folder says the same again");
    let refused = dump(&url, &["--out", out.to_str().unwrap()]);
    assert!(refused.code == Some(2) && refused.stderr.contains("not empty"), "{refused:?}");

    let said = dump(&url, &["--json", "--no-stacks"]);
    let verdict = &said.json()["verdict"];
    assert_eq!(
        (&verdict["what"], &verdict["suspects"][0]["rank"], &verdict["seq"]),
        (&"hang".into(), &1.into(), &6.into())
    );
    let said = dump(&url, &["--no-flight-recorder"]);
    assert!(said.stdout.contains("no Flight Recorder dump"), "{said:?}");

    collected(dir.path(), &url, &ranks);

    let (_server, empty, _) = server(tempfile::tempdir().unwrap().path());
    let refused = end(mycroft(&["dump", "--job", "none", "--server", &url]));
    assert!(refused.code == Some(2) && refused.stderr.contains("no job \"none\""), "{refused:?}");
    let refused = end(mycroft(&["dump", "--server", &empty]));
    assert!(refused.code == Some(2) && refused.stderr.contains("knows no job"), "{refused:?}");
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let line = refusal(&["dump", "--job", "x", "--server", "http://127.0.0.1:1"]);
    assert!(line.contains("127.0.0.1:1") && line.contains("mycroft serve"), "{line}");
    let line = refusal(&["dump", "--no-stacks", "--no-flight-recorder"]);
    assert!(line.contains("--no-flight-recorder"), "{line}");
}
