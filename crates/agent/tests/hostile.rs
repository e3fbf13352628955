//! Segments written by an adversary: none stops the agent or hides another, and each is told once.
mod common;

use common::child::{Job, Traced};
use common::{Rig, wait_until};
use mycroft_agent::{AgentHandle, Notice};
use mycroft_record::Record;
use mycroft_ring::layout::header;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The child's entry; see `common::child`.
#[test]
fn traced_process() {
    common::child::main();
}

fn write_private(path: &Path, bytes: &[u8]) {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path).expect("a new file");
    file.write_all_at(bytes, 0).expect("write");
}

fn bad_segments(notices: &[Notice]) -> Vec<(PathBuf, String)> {
    let bad = |n: &Notice| match n {
        Notice::BadSegment { path, reason } => Some((path.clone(), reason.clone())),
        _ => None,
    };
    notices.iter().filter_map(bad).collect()
}

/// Waits until the agent watches a process that started just now: it got past everything that was there before.
fn wait_watching(rig: &Rig, pid: u32) {
    rig.wait("a healthy process is watched", pid, |r| matches!(r, Record::Sampled(_)).then_some(()));
}

/// Bytes of a true segment with operations in flight.
fn true_segment(rig: &Rig) -> (Job, Vec<u8>) {
    let mut job = Job::start(&rig.segment_dir(), "job", 0);
    (0..5).for_each(|seq| job.begin(seq));
    job.steps(100);
    let bytes = fs::read(job.writer.path().expect("a file")).expect("readable");
    (job, bytes)
}

#[test]
fn files_that_are_no_segments_are_told_once_and_left_alone() {
    let rig = Rig::new();
    let (_job, bytes) = true_segment(&rig);
    let dir = rig.segment_dir();
    let path = |name: &str| dir.join(format!("{name}.mycroft"));
    write_private(&path("1-1-empty"), b"");
    write_private(&path("1-1-text"), b"not a segment, but long enough to be read as one".repeat(200).as_slice());
    write_private(&path("1-1-cut"), &bytes[..bytes.len() / 2]);
    let mut newer = bytes.clone();
    newer[header::VERSION * 8] ^= 0x40;
    write_private(&path("1-1-newer"), &newer);
    write_private(&path("1-1-open"), &bytes);
    fs::set_permissions(path("1-1-open"), fs::Permissions::from_mode(0o666)).expect("chmod");
    symlink("/dev/zero", path("1-1-link")).expect("symlink");
    fs::create_dir(path("1-1-dir")).expect("directory");
    let fifo = std::process::Command::new("mkfifo").arg(path("1-1-fifo")).status().expect("mkfifo runs");
    assert!(fifo.success());
    let _server = rig.serve();
    let agent = rig.agent();
    let job = Traced::start(&dir, "job", 1);
    wait_watching(&rig, job.pid());
    let mut told = Vec::new();
    wait_until("each is told", || {
        told.extend(bad_segments(&agent.take_notices()));
        told.len() >= 8
    });
    let second = Traced::start(&dir, "job", 2);
    wait_watching(&rig, second.pid());
    told.extend(bad_segments(&agent.take_notices()));
    told.sort();
    let names: Vec<_> = told.iter().map(|(p, _)| p.file_stem().expect("a name").to_string_lossy()).collect();
    let kinds = ["cut", "dir", "empty", "fifo", "link", "newer", "open", "text"].map(|kind| format!("1-1-{kind}"));
    assert_eq!(names, kinds, "each once: {told:?}");
    assert!(told[5].1.contains("version"), "{:?}", told[5]);
    assert!(told[6].1.contains("0666"), "{:?}", told[6]);
    assert!(kinds.iter().all(|kind| path(kind).symlink_metadata().is_ok()), "nothing of others is removed");
}

/// Writes into a segment behind its writer's back.
fn poke(path: &Path, word: usize, value: u64) {
    let file = File::options().write(true).open(path).expect("our file");
    file.write_all_at(&value.to_ne_bytes(), word as u64 * 8).expect("write");
}

#[test]
fn a_segment_that_claims_the_process_of_another_user_is_refused() {
    let rig = Rig::new();
    // Process 2 is the kernel's where the superuser is 0, and anyhow not of the user the test makes up.
    if fs::metadata("/proc/self").map(|m| std::os::unix::fs::MetadataExt::uid(&m)).expect("own user") == 0 {
        return refused_for_another_uid(&rig);
    }
    let (job, _) = true_segment(&rig);
    poke(job.writer.path().expect("a file"), header::PID, 1);
    let agent = rig.agent();
    expect_refusal(&agent, "does not run as user");
}

/// The superuser owns process 1, too; so here the directory and its segment belong to somebody else.
fn refused_for_another_uid(rig: &Rig) {
    const NOBODY: u32 = 65534;
    let (job, _) = true_segment(rig);
    std::os::unix::fs::chown(rig.segment_dir(), Some(NOBODY), None).expect("the superuser may");
    std::os::unix::fs::chown(job.writer.path().expect("a file"), Some(NOBODY), None).expect("the superuser may");
    let agent = rig.agent();
    expect_refusal(&agent, "does not run as user 65534");
}

fn expect_refusal(agent: &AgentHandle, words: &str) {
    let mut told = Vec::new();
    wait_until("it is told", || {
        told.extend(bad_segments(&agent.take_notices()));
        !told.is_empty()
    });
    assert!(told[0].1.contains(words), "{told:?}");
}

#[test]
fn a_segment_that_is_cut_while_it_is_watched_is_left_alone() {
    let rig = Rig::new();
    let _server = rig.serve();
    let agent = rig.agent();
    let job = Job::start(&rig.segment_dir(), "job", 0);
    let pid = std::process::id();
    wait_watching(&rig, pid);
    let path = job.writer.path().expect("a file");
    let copy = path.with_file_name("1-1-aa.mycroft");
    write_private(&copy, &fs::read(path).expect("readable"));
    wait_until("the copy is watched, too", || agent.stats().segments == 2);
    File::options().write(true).open(&copy).expect("ours").set_len(4096).expect("cut");
    wait_until("it is left alone", || agent.stats().segments == 1);
    let told = bad_segments(&agent.take_notices());
    assert_eq!(told.iter().map(|(p, _)| p.clone()).collect::<Vec<_>>(), [copy]);
    let other = Traced::start(&rig.segment_dir(), "job", 1);
    wait_watching(&rig, other.pid());
}

/// Any word of a true segment may hold anything: the agent goes on, and so do the processes beside it.
#[test]
fn segments_with_any_words_in_them_stop_nothing() {
    let rig = Rig::new();
    let _server = rig.serve();
    let agent = rig.agent();
    let (_job, bytes) = true_segment(&rig);
    let words = bytes.len() / 8;
    // Header, tables and the first ring slots are where the words steer something.
    let place = prop_oneof![0..512usize, 0..words];
    let value = prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), 0u64..300];
    let pokes = prop::collection::vec((place, value), 1..64);
    let mut runner = TestRunner::default();
    let files = runner.config().cases.min(64);
    let mut paths = Vec::new();
    for n in 0..files {
        let tree = pokes.new_tree(&mut runner).expect("a strategy without rejections");
        let mut copy = bytes.clone();
        for (word, value) in proptest::strategy::ValueTree::current(&tree) {
            // The magic and version decide at once; the tests above are about them.
            let at = word.max(header::TOTAL_BYTES) * 8;
            copy[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        let path = rig.segment_dir().join(format!("{}-1-{n:08x}.mycroft", std::process::id()));
        write_private(&path, &copy);
        paths.push(path);
    }
    let healthy = Traced::start(&rig.segment_dir(), "job", 1);
    wait_watching(&rig, healthy.pid());
    let stats = agent.stats();
    assert!(stats.segments > 2, "some of them pass for segments: {stats:?}");
    healthy.signal("-KILL");
    rig.wait("its end", healthy.pid(), |r| matches!(r, Record::ProcessExit(_)).then_some(()));
    for notice in agent.take_notices() {
        assert!(notice.to_string().len() < 4096, "{notice}");
        assert!(!matches!(notice, Notice::Defect));
    }
    agent.stop();
    drop(paths);
}

/// CRC-32C of type 5, length 8 and eight zero bytes.
const HEARTBEAT_ACK_CRC: u32 = 0xc1a3_ab64;

/// A server that answers what nobody asked for, without end: the agent is not held by it and keeps its records.
#[test]
fn a_server_that_floods_does_not_keep_an_agent_from_stopping() {
    use std::io::{Read, Write};
    let rig = Rig::new();
    let listener = std::os::unix::net::UnixListener::bind(rig.root().join("server.sock")).expect("a socket");
    let flooded = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&flooded);
    std::thread::spawn(move || {
        // A heartbeat's acknowledgement: type, length, checksum, number.
        let many = [&[5u8, 8, 0, 0, 0][..], &HEARTBEAT_ACK_CRC.to_le_bytes(), &[0; 8]].concat().repeat(1000);
        let welcome = [
            &64u32.to_le_bytes()[..],
            &(1u64 << 25).to_le_bytes(),
            &(1u32 << 24).to_le_bytes(),
            &[208, 7, 0, 0],
            &[0; 8],
        ]
        .concat();
        for socket in listener.incoming() {
            let mut socket = socket.expect("a connection");
            let answer = [&b"MYCW\x01\0"[..], &(welcome.len() as u32).to_le_bytes(), &welcome].concat();
            let mut hello = [0; 12];
            let _ = socket.read_exact(&mut hello).and_then(|()| socket.write_all(&answer));
            while socket.write_all(&many).is_ok() {
                counter.fetch_add(1000, Ordering::Relaxed);
            }
        }
    });
    let agent = rig.agent();
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    job.tell("steps 50");
    wait_until("it is watched and flooded", || {
        agent.stats().records_read >= 50 && flooded.load(Ordering::Relaxed) > 4000
    });
    let begun = Instant::now();
    let stats = agent.stop();
    let took = begun.elapsed();
    // The promise is three seconds; the machine of a test may be busy.
    assert!(took < Duration::from_secs(15), "stopping took {took:?}");
    assert!(stats.spooled > 0 && stats.dropped == 0, "{stats:?}");
}

#[test]
fn what_a_server_says_reaches_no_terminal_raw() {
    let reason = "no\x1b[2J\x07\nforged: line".to_owned();
    for notice in [
        Notice::ServerRefused { endpoint: "s:1".to_owned(), reason: reason.clone() },
        Notice::ServerAway { endpoint: "s:1".to_owned(), reason: reason.clone() },
        Notice::Rejected { endpoint: "s:1".to_owned(), reason: reason.clone() },
        Notice::SpoolFailed { reason: reason.clone() },
        Notice::BadSegment { path: "/a\x1b[2J".into(), reason: reason.clone() },
        Notice::DirUnreadable { path: "/a\nb".into(), reason },
    ] {
        let told = notice.to_string();
        assert!(!told.contains(char::is_control), "{told:?}");
    }
}
