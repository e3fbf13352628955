//! Jobs of real processes that are linked to the CPU stand-in for NCCL, with and without the library before it.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses its part")]
pub mod agents;
pub mod cases;
pub mod tests_of_ranks;

use mycroft_ring::gate::hold::{Gates, HoldError};
use mycroft_testbed_nccl::abi::UniqueId;
use mycroft_testbed_nccl::api::ncclGetUniqueId;
use mycroft_testbed_nccl::control::ControlFile;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Far beyond what any step takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What was built beside this test.
pub fn built(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let deps = exe.parent().expect("in a folder");
    let folders = [deps, deps.parent().expect("in another")];
    // `deps` first: building tests renews it, and not the copy one folder up.
    let found = folders.iter().map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is built together with its tests"))
}

/// Jobs of this process so far: each has addresses of its own.
static JOBS: AtomicUsize = AtomicUsize::new(0);

/// How a job is started.
#[derive(Clone, Default)]
pub struct Shape {
    pub ranks: usize,
    /// What `examples/rank.rs` plays.
    pub job: &'static str,
    /// Rounds, or until it is stopped.
    pub rounds: Option<u64>,
    /// Without the library before NCCL.
    pub bare: bool,
    /// With the tracer in the same process.
    pub traced: bool,
    /// Each rank on a host of its own: only over sockets does a rank hear that a peer is gone.
    pub apart: bool,
    /// With its faults under control, and the segments of each host in a directory of its own.
    pub controlled: bool,
    /// With the driver of a GPU and cuBLAS in place of the stand-in's own names (`examples/fake_gpu.rs`).
    pub gpu: bool,
    /// As processes of this user.
    pub user: Option<u32>,
    /// Between hosts over RDMA, each rank with a device of its own.
    pub verbs: bool,
    pub env: Vec<(&'static str, String)>,
}

pub struct Rank {
    pub child: Child,
    lines: Receiver<String>,
    /// The latest round it told.
    pub round: u64,
    /// How it ended: "done ROUNDS DIGEST" or "failed CALL CODE".
    pub end: Option<String>,
}

pub struct Job {
    pub ranks: Vec<Rank>,
    pub dir: tempfile::TempDir,
}

impl Job {
    pub fn start(shape: &Shape) -> Job {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("lib")).expect("a folder");
        let (stand_in, gpu) = (built("libmycroft_testbed_nccl.so"), built_example("libfake_gpu.so"));
        let nccl = if shape.gpu { &gpu } else { &stand_in };
        for (name, library) in [("libnccl.so.2", nccl), ("libcuda.so.1", &gpu), ("libcublas.so.13", &gpu)] {
            std::os::unix::fs::symlink(library, dir.path().join("lib").join(name)).expect("a link");
        }
        if let Some(user) = shape.user {
            give_to(dir.path(), user);
        }
        let mut id = UniqueId { internal: [0; 128] };
        // SAFETY: a valid place.
        assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
        if shape.controlled {
            std::fs::create_dir_all(dir.path().join("segments")).expect("a folder");
            drop(ControlFile::create(&dir.path().join("control"), shape.ranks, shape.ranks).expect("a file"));
        }
        let number = JOBS.fetch_add(1, Ordering::Relaxed);
        let ranks = (0..shape.ranks).map(|rank| Rank::start(shape, dir.path(), &id, rank, number)).collect();
        let mut job = Job { ranks, dir };
        job.ranks.iter_mut().for_each(|rank| rank.wait("ready", |rank| rank.end.is_some()));
        job
    }

    /// Where its segments are.
    pub fn segments(&self) -> PathBuf {
        self.dir.path().join("segments")
    }

    /// Where the segments of each rank are, if each host has a directory.
    pub fn directories(&self) -> Vec<PathBuf> {
        (0..self.ranks.len()).map(|rank| self.segments().join(format!("host{rank}"))).collect()
    }

    /// What befalls ranks and hosts.
    pub fn control(&self) -> ControlFile {
        ControlFile::open(&self.dir.path().join("control")).expect("a controlled job")
    }

    pub fn gates(&self) -> Result<Gates, HoldError> {
        Gates::open(&self.segments(), "gate-test")
    }

    /// Waits until each rank has made so many rounds more.
    pub fn progress(&mut self, rounds: u64) {
        for rank in &mut self.ranks {
            rank.read_all();
            let wanted = rank.round + rounds;
            rank.wait("progress", |rank| rank.round >= wanted);
        }
    }

    /// Ends after the same round; rounds and digest of each rank.
    pub fn stop(mut self) -> Vec<(u64, String)> {
        let mut input = self.ranks[0].child.stdin.take().expect("piped");
        input.write_all(b"stop\n").expect("it listens");
        self.results()
    }

    pub fn results(&mut self) -> Vec<(u64, String)> {
        let result = |rank: &mut Rank| {
            while rank.end.is_none() {
                let round = rank.round;
                rank.wait("the end", |rank| rank.end.is_some() || rank.round > round);
            }
            let end = rank.end.clone().expect("waited for");
            let (rounds, digest) =
                end.strip_prefix("done ").and_then(|end| end.split_once(' ')).unwrap_or_else(|| panic!("{end}"));
            assert!(rank.child.wait().expect("a child").success());
            (rounds.parse().expect("a number"), digest.to_owned())
        };
        self.ranks.iter_mut().map(result).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}

impl Rank {
    fn start(shape: &Shape, dir: &Path, id: &UniqueId, rank: usize, job: usize) -> Rank {
        let text: String = id.internal.iter().map(|c| format!("{:02x}", c.cast_unsigned())).collect();
        let host = if shape.apart { rank } else { rank % 2 };
        let mut command = match shape.user {
            // What was built may lie where only this user may look.
            Some(user) => {
                let mut command = Command::new(dir.join("rank"));
                command.uid(user).gid(user);
                command
            }
            None => Command::new(built_example("rank")),
        };
        command
            .env("MTB_ID", text)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", shape.ranks.to_string())
            .env("RANK_JOB", shape.job)
            .env("LD_LIBRARY_PATH", dir.join("lib"))
            .env("MYCROFT_DIR", dir.join("segments"))
            .env("MYCROFT_JOB", "gate-test")
            .env("MYCROFT_TESTBED_NCCL_SETUP_MS", "0")
            .env("FAKE_GPU_NCCL", built("libmycroft_testbed_nccl.so"))
            .env("NCCL_HOSTID", format!("host{host}"))
            .env("MYCROFT_TESTBED_ADDR", format!("127.0.0.{}", 2 + host))
            .envs(shape.rounds.map(|rounds| ("ROUNDS", rounds.to_string())))
            .envs(shape.env.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if shape.verbs {
            let test = std::process::id();
            let address = format!("127.{}.{}.{}", 1 + (test >> 8 & 0x7f), test & 0xff, 1 + 8 * job + rank);
            command
                .env("MYCROFT_TESTBED_NET", "verbs")
                .env("MYCROFT_TESTBED_ADDR", &address)
                .env("MYCROFT_VERBS_ADDRESS", &address)
                .env("NCCL_IBVERBS_LIB", built("libmycroft_testbed_verbs.so"));
        }
        if shape.controlled {
            command
                .env("MYCROFT_TESTBED_CONTROL", dir.join("control"))
                .env("MYCROFT_TESTBED_RANK", rank.to_string())
                .env("MYCROFT_DIR", dir.join("segments").join(format!("host{host}")));
        }
        if !shape.bare {
            let library = built("libmycroft_preload.so");
            command.env("LD_PRELOAD", if shape.user.is_some() { dir.join("lib/preload.so") } else { library });
        }
        if shape.traced {
            command.env("NCCL_PROFILER_PLUGIN", built("libmycroft_nccl.so")).env("MYCROFT_SEGMENT_BYTES", "1048576");
        }
        let mut child = command.spawn().expect("a process");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let (tell, lines) = channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Rank { child, lines, round: 0, end: None }
    }

    fn take(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("round", number)) => self.round = number.parse().expect("a number"),
            Some(("done" | "failed", _)) => self.end = Some(line.to_owned()),
            _ => {}
        }
    }

    /// Takes in what it has told so far.
    pub fn read_all(&mut self) {
        while let Ok(line) = self.lines.try_recv() {
            self.take(&line);
        }
    }

    /// Reads until a line is `what`, or `enough` of what was told.
    pub fn wait(&mut self, what: &str, enough: impl Fn(&Rank) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !enough(self) {
            let line = match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => panic!("no {what} in {PATIENCE:?}; round {}", self.round),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended before {what}; round {}", self.round),
            };
            if line == what {
                return;
            }
            self.take(&line);
        }
    }
}

/// Makes a job's folder another user's, with copies of what its processes load.
fn give_to(dir: &Path, user: u32) {
    let readable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir, readable).expect("ours");
    std::fs::create_dir(dir.join("segments")).expect("a folder");
    let stand_in = built("libmycroft_testbed_nccl.so");
    std::fs::remove_file(dir.join("lib/libnccl.so.2")).expect("a link");
    for (from, to) in [
        (built_example("rank"), "rank"),
        (built("libmycroft_preload.so"), "lib/preload.so"),
        (stand_in, "lib/libnccl.so.2"),
    ] {
        std::fs::copy(from, dir.join(to)).expect("copied");
    }
    for of in ["", "lib", "segments"] {
        chown(dir.join(of), Some(user), Some(user)).expect("root may");
    }
}

fn built_example(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    exe.parent().and_then(Path::parent).expect("in folders").join("examples").join(name)
}
