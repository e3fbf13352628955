//! What a launcher that was killed with SIGKILL left behind: found by the process id in the names, and removed.
use crate::hosts::netns;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// What every name of a run begins with.
pub const PREFIX: &str = "mtb-";
/// Environment variable that marks the processes of a run; its value is the run's tag.
pub const ENV_RUN: &str = "MYCROFT_TESTBED_RUN";
/// Where shared memory lives.
const SHM_DIR: &str = "/dev/shm";

/// A tag that no other run of the machine has: `mtb-PID-N`.
pub fn new_tag() -> String {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    format!("{PREFIX}{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed))
}

/// The directories of a run, removed when dropped.
#[derive(Debug)]
pub struct Dirs {
    /// The run's tag.
    pub tag: String,
    /// Plan, control block, board, logs.
    pub run: PathBuf,
    /// Segments.
    pub shm: PathBuf,
    /// Whether `logs` in the run directory outlives the run.
    pub keep_logs: bool,
}

impl Drop for Dirs {
    fn drop(&mut self) {
        remove(&self.shm);
        if !self.keep_logs {
            remove(&self.run);
            return;
        }
        for entry in std::fs::read_dir(&self.run).into_iter().flatten().flatten() {
            if entry.file_name() != "logs" {
                remove(&entry.path());
            }
        }
    }
}

/// Where the segments of run `tag` lie: in shared memory where the machine has it.
pub fn shm_dir(tag: &str, run_dir: &Path) -> PathBuf {
    if Path::new(SHM_DIR).is_dir() { Path::new(SHM_DIR).join(tag) } else { run_dir.join("shm") }
}

/// What was removed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    /// Processes killed.
    pub processes: Vec<u32>,
    /// Network namespaces deleted.
    pub namespaces: Vec<String>,
    /// Directories removed.
    pub directories: Vec<PathBuf>,
}

impl Collected {
    /// Nothing was left.
    pub fn is_empty(&self) -> bool {
        self == &Collected::default()
    }
}

/// Removes what runs left whose launcher is gone. Runs of living launchers are not touched.
pub fn collect_leftovers() -> Collected {
    let mut collected = Collected::default();
    for (pid, run) in marked_processes() {
        if is_left(&run) {
            // SAFETY: kill has no memory effects; the process carries the mark of a run whose launcher is gone.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
            collected.processes.push(pid);
        }
    }
    for name in netns::list(PREFIX) {
        if is_left(&name) {
            netns::delete(&name);
            collected.namespaces.push(name);
        }
    }
    for parent in [std::env::temp_dir(), PathBuf::from(SHM_DIR)] {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(is_left) && entry.path().is_dir() {
                remove(&entry.path());
                collected.directories.push(entry.path());
            }
        }
    }
    collected.directories.sort();
    collected
}

/// Whether a name is a run's (`mtb-PID-N`, then nothing or `-...`) and its launcher is gone.
fn is_left(name: &str) -> bool {
    let Some((pid, rest)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else { return false };
    let number = rest.split('-').next().unwrap_or_default();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(pid) && digits(number) && !is_running(pid)
}

/// Whether a process exists that is more than a corpse: a killed launcher stays a zombie until its parent looks.
fn is_running(pid: &str) -> bool {
    std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// Living processes that carry the mark of a run, with its tag.
fn marked_processes() -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        // Not readable: somebody else's, or gone.
        let Ok(environ) = std::fs::read(entry.path().join("environ")) else { continue };
        let mark = environ.split(|byte| *byte == 0).find_map(|variable| {
            let rest = variable.strip_prefix(ENV_RUN.as_bytes())?.strip_prefix(b"=")?;
            OsStr::from_bytes(rest).to_str().map(str::to_owned)
        });
        found.extend(mark.map(|mark| (pid, mark)));
    }
    found
}

/// Removes a directory or file; what is not there is fine, and what cannot be removed stays for the next collection.
fn remove(path: &Path) {
    let _ = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_dead_launchers_are_left() {
        let me = std::process::id();
        assert!(!is_left(&format!("mtb-{me}-0")));
        assert!(!is_left(&format!("mtb-{me}-0-h3")));
        // Process ids end below 2^22.
        assert!(is_left("mtb-99999999-0") && is_left("mtb-99999999-12-br"));
        for other in ["mtb-", "mtb-99999999", "mtb-x-0", "mtb-99999999-x", "other-99999999-0", "mtb-control-a-99999999"]
        {
            assert!(!is_left(other), "{other}");
        }
    }

    #[test]
    fn directories_go_and_logs_stay_when_asked() {
        let base = tempfile::tempdir().unwrap();
        let make = |keep_logs| {
            let dirs = Dirs { tag: new_tag(), run: base.path().join("run"), shm: base.path().join("shm"), keep_logs };
            std::fs::create_dir_all(dirs.run.join("logs")).unwrap();
            std::fs::create_dir_all(&dirs.shm).unwrap();
            std::fs::write(dirs.run.join("control"), "x").unwrap();
            dirs
        };
        drop(make(true));
        assert!(base.path().join("run/logs").is_dir() && !base.path().join("run/control").exists());
        assert!(!base.path().join("shm").exists());
        drop(make(false));
        assert!(!base.path().join("run").exists());
        assert_ne!(new_tag(), new_tag());
    }
}
