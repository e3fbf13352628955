//! What the agent may see of a process, and opening files as that process names them. Everything a process says of itself
//! (environment, paths, files) is taken as hostile: nothing is followed out of its own root, nothing of another owner is
//! opened, every read has a limit.
use crate::process::{open_in_root, own_uid};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Bytes of a process's environment looked at: Linux allows a quarter of the stack limit, 2 MiB by default.
const ENVIRON_BYTES_MAX: u64 = 2 << 20;
/// Bytes of a memory map looked at: 65,530 mappings (the kernel's default limit) x about 120 bytes = 8 MiB.
const MAPS_BYTES_MAX: u64 = 8 << 20;
/// Longest path taken from an environment: the kernel's own limit.
const PATH_BYTES_MAX: usize = 4096;
/// Ticks in which `/proc` tells times: USER_HZ, 100 on every Linux since 2.6.
const TICKS_PER_SEC: f64 = 100.0;
/// Children of one rank that are looked at: two data loaders (training, evaluation) of 16 workers.
pub(crate) const CHILDREN_MAX: usize = 32;

/// A process, told from a later one of the same number.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pid: u32,
    start_ticks: u64,
    reachable: bool,
}

/// What kind of file is wanted at a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// A regular file, to read.
    Regular,
    /// A FIFO, to write.
    Fifo,
    /// A unix socket, to connect to.
    Socket,
}

impl Wanted {
    fn fits(self, file_type: std::fs::FileType) -> bool {
        match self {
            Wanted::Regular => file_type.is_file(),
            Wanted::Fifo => file_type.is_fifo(),
            Wanted::Socket => file_type.is_socket(),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Wanted::Regular => "regular file",
            Wanted::Fifo => "FIFO",
            Wanted::Socket => "socket",
        }
    }
}

impl Target {
    pub(crate) fn new(pid: u32, start_ticks: u64, reachable: bool) -> Target {
        Target { pid, start_ticks, reachable }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    fn proc(&self, what: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{what}", self.pid))
    }

    /// Whether it is still there; else why not and what to do.
    pub(crate) fn is_there(&self) -> Result<(), String> {
        if !self.reachable {
            return Err("the process lives in another process namespace (a container): run the agent with the host's \
                        process namespace (hostPID: true, --pid=host)"
                .to_owned());
        }
        if start_ticks(self.pid) != Some(self.start_ticks) {
            return Err("the process exited meanwhile".to_owned());
        }
        Ok(())
    }

    /// Whether its memory may be looked into; else why not and what to do.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.is_there()?;
        // Opening it asks the kernel the same question as reading the memory does.
        match File::open(self.proc("mem")) {
            Ok(_) => Ok(()),
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
                Err("the process exited meanwhile".to_owned())
            }
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(self.denied()),
            Err(e) => Err(format!("looking into the process: {e}")),
        }
    }

    /// Why the kernel refuses, with the remedy.
    pub(crate) fn denied(&self) -> String {
        let remedy = "run the agent as that user or as root, or give it CAP_SYS_PTRACE (docker: --cap-add SYS_PTRACE; \
                      Kubernetes: securityContext.capabilities.add: [SYS_PTRACE])";
        let (own, of) = (own_uid(), self.owner());
        if let Some(of) = of.filter(|of| *of != own) {
            return format!("no permission: the process runs as user {of}, the agent as user {own}; {remedy}");
        }
        let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
        match scope.trim() {
            "" | "0" => format!("no permission: the kernel refuses to let the agent look into the process; {remedy}"),
            scope => format!(
                "no permission: kernel.yama.ptrace_scope is {scope}; give the agent CAP_SYS_PTRACE (docker: --cap-add \
                 SYS_PTRACE; Kubernetes: securityContext.capabilities.add: [SYS_PTRACE]), or set it to 0 with sysctl"
            ),
        }
    }

    /// The user it runs as.
    pub(crate) fn owner(&self) -> Option<u32> {
        let status = read_limited(&self.proc("status"), 64 << 10).ok()?;
        let status = String::from_utf8_lossy(&status);
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
        // Real, effective, saved, file system: files are made as the last.
        line.split_ascii_whitespace().nth(3)?.parse().ok()
    }

    /// Whether its memory holds a Python interpreter, by the names of what is mapped.
    pub(crate) fn is_python(&self) -> Result<bool, String> {
        let maps =
            read_limited(&self.proc("maps"), MAPS_BYTES_MAX).map_err(|e| format!("reading its memory map: {e}"))?;
        let maps = String::from_utf8_lossy(&maps);
        Ok(maps.lines().filter_map(|line| line.rsplit_once('/')).any(|(_, name)| is_python_name(name)))
    }

    /// Those variables of its environment, as it was started.
    pub(crate) fn environ(&self, wanted: &[&str]) -> io::Result<BTreeMap<String, String>> {
        let bytes = read_limited(&self.proc("environ"), ENVIRON_BYTES_MAX)?;
        let pair = |entry: &[u8]| {
            let (name, value) = std::str::from_utf8(entry).ok()?.split_once('=')?;
            let fits = wanted.contains(&name) && !value.is_empty() && value.len() <= PATH_BYTES_MAX;
            fits.then(|| (name.to_owned(), value.to_owned()))
        };
        // The first of a name counts, as for getenv.
        let mut found = BTreeMap::new();
        for (name, value) in bytes.split(|byte| *byte == 0).filter_map(pair) {
            found.entry(name).or_insert(value);
        }
        Ok(found)
    }

    /// Its children and their children, without those in `but`.
    pub(crate) fn children(&self, but: &BTreeSet<u32>) -> Vec<u32> {
        let mut found = Vec::new();
        let mut level = vec![self.pid];
        for _ in 0..2 {
            let next: Vec<u32> =
                level.iter().flat_map(|pid| children_of(*pid)).filter(|pid| !but.contains(pid)).collect();
            found.extend(&next);
            level = next;
        }
        found.truncate(CHILDREN_MAX);
        found
    }

    /// Opens what the process calls `path`, inside its own root, without following a link at its end.
    pub(crate) fn open(&self, path: &Path, wanted: Wanted) -> Result<File, String> {
        let at = |what: String| format!("{}: {what}", path.display());
        if !path.is_absolute() {
            return Err(at("not an absolute path; give the job one".to_owned()));
        }
        // First without opening it in earnest: opening a device may do things.
        let root = self.proc("root");
        let handle = open_in_root(&root, path).map_err(|e| at(e.to_string()))?;
        let meta = handle.metadata().map_err(|e| at(e.to_string()))?;
        if !wanted.fits(meta.file_type()) {
            return Err(at(format!("not a {}; left alone", wanted.word())));
        }
        let owner = self.owner().ok_or_else(|| at("the process exited meanwhile".to_owned()))?;
        if meta.uid() != owner {
            let whose = meta.uid();
            return Err(at(format!("it belongs to user {whose}, the process runs as user {owner}; left alone")));
        }
        Ok(handle)
    }

    /// When it started, on the clock that files are dated by; `None` where that cannot be told.
    pub(crate) fn started(&self) -> Option<SystemTime> {
        let uptime = read_limited(Path::new("/proc/uptime"), 256).ok()?;
        let uptime: f64 = String::from_utf8_lossy(&uptime).split_ascii_whitespace().next()?.parse().ok()?;
        let age = uptime - self.start_ticks as f64 / TICKS_PER_SEC;
        SystemTime::now().checked_sub(Duration::try_from_secs_f64(age.max(0.0)).ok()?)
    }
}

fn is_python_name(name: &str) -> bool {
    let name = name.trim_end_matches(" (deleted)");
    name.starts_with("libpython") || name == "python" || name.strip_prefix("python").is_some_and(is_version)
}

/// `3`, `3.11`, `3.13t`.
fn is_version(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b't' | b'd' | b'm'))
}

/// Children as the kernel lists them, of every thread.
fn children_of(pid: u32) -> Vec<u32> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists =
        tasks.flatten().take(4096).filter_map(|task| read_limited(&task.path().join("children"), 64 << 10).ok());
    let mut children: Vec<u32> = lists
        .flat_map(|list| {
            let list = String::from_utf8_lossy(&list).into_owned();
            list.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        })
        .collect();
    children.sort_unstable();
    children.dedup();
    children
}

/// Field 22 of a process's `stat`.
pub(crate) fn start_ticks(pid: u32) -> Option<u64> {
    let text = read_limited(Path::new(&format!("/proc/{pid}/stat")), 8 << 10).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// At most so many bytes of a file.
pub(crate) fn read_limited(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}
