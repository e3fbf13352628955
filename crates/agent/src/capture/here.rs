//! Stacks and dumps of the ranks of this host without a server: for `mycroft collect`, when a job is about to be restarted.
use super::access::{read_limited, start_ticks};
use super::{Round, Watched};
use crate::clock::wall_now;
use crate::config::{CaptureConfig, SpyProgram};
use mycroft_record::Rank;
use mycroft_wire::{CaptureKind, CaptureOrder, Captured};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// What launchers tell a rank its number by (torchrun, and all that start torch).
const RANK: &str = "RANK";
/// Begins of the variables that tell how a rank communicates.
const TELLING: [&str; 9] =
    ["NCCL_", "RCCL_", "TORCH_", "PYTORCH_", "CUDA_", "HIP_", "UCX_", "MYCROFT_", "OMP_NUM_THREADS"];
/// .. and whole names.
const TELLING_WHOLE: [&str; 5] = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK"];
/// Words of names that hold secrets, ours among them (`MYCROFT_TOKEN`).
const SECRET: [&str; 4] = ["TOKEN", "SECRET", "PASSWORD", "KEY"];
/// How often it is looked whether to stop.
const LOOK: Duration = Duration::from_millis(100);
/// Files may wait for whoever takes them.
const QUEUED: usize = 64;

/// A process of this host that was started as a rank of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalRank {
    /// Its number, as `RANK` in its environment says.
    pub rank: u32,
    /// Its process.
    pub pid: u32,
    /// The variables of its environment that tell how it communicates, by name.
    pub variables: BTreeMap<String, String>,
}

/// What became of one file of a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It was taken.
    File {
        /// Its name: `mycroft autopsy` knows by it what it is and of which rank.
        name: String,
        /// What is in it.
        bytes: Vec<u8>,
    },
    /// It was not, or something is to be known of it.
    Note {
        /// Whose.
        rank: u32,
        /// Stacks, or a Flight Recorder dump.
        kind: &'static str,
        /// Why, and what to do about it.
        text: String,
    },
}

/// The ranks of this host by number, and how many processes could not be looked at. A process whose parent is a rank (a worker of
/// a data loader) is none.
pub fn local_ranks() -> (Vec<LocalRank>, usize) {
    let pids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let (mut environs, mut denied) = (BTreeMap::new(), 0);
    for pid in pids {
        match read_limited(Path::new(&format!("/proc/{pid}/environ")), 2 << 20) {
            Ok(bytes) => drop(environs.insert(pid, variables(&bytes))),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => denied += 1,
            Err(_) => {}
        }
    }
    let rank_of = |pid: u32| environs.get(&pid)?.get(RANK)?.parse::<u32>().ok();
    let is_child = |pid: u32| parent(pid).is_some_and(|parent| rank_of(parent).is_some());
    let found = environs.iter().filter_map(|(pid, variables)| {
        let rank = rank_of(*pid).filter(|_| !is_child(*pid))?;
        Some(LocalRank { rank, pid: *pid, variables: variables.clone() })
    });
    let mut ranks: Vec<LocalRank> = found.collect();
    ranks.sort_by_key(|rank| (rank.rank, rank.pid));
    (ranks, denied)
}

fn variables(environ: &[u8]) -> BTreeMap<String, String> {
    let pair = |entry: &[u8]| {
        let (name, value) = std::str::from_utf8(entry).ok()?.split_once('=')?;
        let tells = TELLING_WHOLE.contains(&name) || TELLING.iter().any(|begin| name.starts_with(begin));
        let is_secret = SECRET.iter().any(|word| name.contains(word));
        (tells && !is_secret).then(|| (name.to_owned(), value.to_owned()))
    };
    environ.split(|byte| *byte == 0).filter_map(pair).collect()
}

fn parent(pid: u32) -> Option<u32> {
    let stat = read_limited(Path::new(&format!("/proc/{pid}/stat")), 8 << 10).ok()?;
    let stat = String::from_utf8_lossy(&stat).into_owned();
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Takes stacks of ranks of this host and of their children, and their Flight Recorder dumps, within `limit`, or until it should
/// stop. Nothing is paused.
pub fn take_here(ranks: &[LocalRank], spy: SpyProgram, limit: Duration, should_stop: impl Fn() -> bool) -> Vec<Taken> {
    let watched = |of: &LocalRank| {
        let start_ticks = start_ticks(of.pid)?;
        Some(Watched { job: "".into(), rank: Rank(of.rank), pid: of.pid, start_ticks, reachable: true })
    };
    let limit_ms = u32::try_from(limit.as_millis()).unwrap_or(u32::MAX);
    let order = CaptureOrder {
        id: 0,
        job: String::new(),
        at: wall_now(),
        in_ms: 0,
        limit_ms,
        stacks: true,
        flight_recorder: true,
    };
    let (out, pieces) = sync_channel(QUEUED);
    let round = Round {
        order,
        ranks: ranks.iter().filter_map(watched).collect(),
        config: CaptureConfig { enabled: true, spy: Some(spy) },
        stuck: Arc::new(AtomicUsize::new(0)),
        out,
    };
    // It ends when it has told all, or when nobody listens any more.
    std::thread::spawn(move || round.run());
    let (mut files, mut notes) = (BTreeMap::<String, Vec<u8>>::new(), Vec::new());
    loop {
        let captured = match pieces.recv_timeout(LOOK) {
            Ok(captured) => captured,
            Err(RecvTimeoutError::Timeout) if !should_stop() => continue,
            Err(_) => break,
        };
        match captured {
            // Pieces of a file come one after the other.
            Captured::Piece { file, bytes, .. } => files.entry(file).or_default().extend(bytes),
            Captured::Tried { kind, rank, text, .. } if !text.is_empty() => {
                let kind = match kind {
                    CaptureKind::FlightRecorder => "Flight Recorder dump",
                    _ => "stacks",
                };
                notes.push(Taken::Note { rank: rank.0, kind, text });
            }
            Captured::Tried { .. } | Captured::End { .. } => {}
        }
    }
    files.into_iter().map(|(name, bytes)| Taken::File { name, bytes }).chain(notes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn variables_that_are_secret_or_tell_nothing_of_communication_are_left_where_they_are() {
        let environ = b"RANK=3\0HF_TOKEN=hf_abc\0MYCROFT_TOKEN=abc\0NCCL_DEBUG=INFO\0PATH=/bin\0WORLD_SIZE=8\0";
        let names: Vec<String> = variables(environ).into_keys().collect();
        assert_eq!(names, ["NCCL_DEBUG", "RANK", "WORLD_SIZE"]);
    }

    /// A rank is found by its environment; what it starts itself inherits that, and is no rank.
    #[test]
    fn a_rank_is_found_and_its_children_are_not() {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 100 & echo $!; wait"]).env(RANK, "4711").env("NCCL_IB_HCA", "mlx5_0");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        let out = child.stdout.take().expect("it is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("the child's number");
        let (ranks, _) = local_ranks();
        let found: Vec<&LocalRank> = ranks.iter().filter(|rank| rank.rank == 4711).collect();
        let grandchild = line.trim().parse().ok().and_then(rustix::process::Pid::from_raw).expect("a number");
        let pid = child.id();
        rustix::process::kill_process(grandchild, rustix::process::Signal::KILL).expect("it is ours");
        child.wait().expect("it ends with what it waits for");
        let [rank] = found[..] else { panic!("{found:?}") };
        assert_eq!((rank.pid, rank.variables.get("NCCL_IB_HCA").map(String::as_str)), (pid, Some("mlx5_0")));
    }
}
