//! Other processes as `/proc` shows them, and this agent's own processor time. Unsafe code is here and in `tap/ring.rs` only.
use crate::smallfile::SmallBuffer;
use mycroft_record::ExitStatus;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Threads of one process looked at. A training process has some hundreds.
const THREADS_MAX: usize = 4096;
/// How often all threads of a process that is known to be stopped are looked at again: 8 processes x 200 threads x
/// about 8 us = 1.3 % of a core while everything is stopped.
const STOPPED_RECHECK: Duration = Duration::from_secs(1);

/// What a process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    /// It exists and at least one thread may run.
    Running,
    /// Every thread is stopped by a signal or a debugger (state T or t).
    Stopped,
    /// It is gone, a zombie, has given its memory back and runs no more, or another process has its number.
    Gone,
}

/// Watches one process. Its `stat` file stays open: the kernel ties it to the process, not to the number, so that a
/// reused number can never be mistaken for it.
#[derive(Debug)]
pub(crate) struct ProcessWatch {
    stat: Option<File>,
    path: PathBuf,
    tasks: PathBuf,
    start_ticks: u64,
    stopped_until: Option<Instant>,
    /// This agent may look into the process: what the kernel shows as its exit code is one.
    is_readable: bool,
    status: ExitStatus,
}

/// The fields of `/proc/PID/stat` that we use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stat {
    state: u8,
    start_ticks: u64,
    /// It has memory. An ending process gives it back first, which takes seconds where there is much of it.
    has_memory: bool,
    /// The reader may see where its program lies (shown as 1 otherwise), and so its exit code.
    is_readable: bool,
    /// As `wait` gives it; 0 too where the reader may not see it.
    exit_code: u32,
}

impl Stat {
    /// It runs no instruction of its program any more.
    fn is_over(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') || !self.has_memory
    }
}

impl ProcessWatch {
    /// Watches the process `pid` that started `start_ticks` clock ticks after boot (field 22 of its `stat`).
    pub(crate) fn new(proc_root: &Path, pid: u32, start_ticks: u64) -> ProcessWatch {
        let dir = proc_root.join(pid.to_string());
        let path = dir.join("stat");
        let (stat, tasks, status) = (File::open(&path).ok(), dir.join("task"), ExitStatus::Unknown);
        ProcessWatch { stat, path, tasks, start_ticks, stopped_until: None, is_readable: false, status }
    }

    /// What the process does now. Costs one read unless the process is stopping or ending.
    pub(crate) fn look(&mut self, buffer: &mut SmallBuffer) -> Life {
        let stat = match self.read(buffer) {
            Ok(stat) => stat,
            Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => None,
            // Something else than its end (for example too many open files): unknown is not gone.
            Err(_) => return Life::Running,
        };
        let Some(stat) = stat.filter(|s| s.start_ticks == self.start_ticks) else { return Life::Gone };
        self.is_readable |= stat.is_readable;
        let life = match stat.state {
            _ if stat.is_over() => self.look_at_ended_leader(buffer, stat.exit_code),
            b'T' | b't' => self.look_at_stopped_leader(buffer),
            _ => Life::Running,
        };
        if life != Life::Stopped {
            self.stopped_until = None;
        }
        life
    }

    /// How it ended, if it could be read: its parent may collect it between two looks.
    pub(crate) fn status(&self) -> ExitStatus {
        self.status
    }

    fn read(&mut self, buffer: &mut SmallBuffer) -> io::Result<Option<Stat>> {
        let file = match self.stat.take() {
            Some(file) => file,
            None => File::open(&self.path)?,
        };
        let text = buffer.read_open(self.stat.insert(file))?;
        Ok(text.and_then(parse_stat))
    }

    /// A main thread may end before the others: the process lives while one of its threads does.
    fn look_at_ended_leader(&mut self, buffer: &mut SmallBuffer, exit_code: u32) -> Life {
        if !all_threads(&self.tasks, buffer, Stat::is_over) {
            return Life::Running;
        }
        if self.is_readable {
            let [low, code, ..] = exit_code.to_le_bytes();
            let signal = low & 0x7f; // the bit above it says that there is a core
            self.status = if signal == 0 { ExitStatus::Code(code) } else { ExitStatus::Signal(signal) };
        }
        Life::Gone
    }

    fn look_at_stopped_leader(&mut self, buffer: &mut SmallBuffer) -> Life {
        let now = Instant::now();
        if self.stopped_until.is_some_and(|until| now < until) {
            return Life::Stopped;
        }
        if !all_threads(&self.tasks, buffer, |stat| matches!(stat.state, b'T' | b't')) {
            return Life::Running;
        }
        self.stopped_until = Some(now + STOPPED_RECHECK);
        Life::Stopped
    }
}

/// Whether every thread that can be looked at is like that.
fn all_threads(tasks: &Path, buffer: &mut SmallBuffer, is: impl Fn(&Stat) -> bool) -> bool {
    let Ok(entries) = std::fs::read_dir(tasks) else { return true };
    entries
        .take(THREADS_MAX)
        .flatten()
        .filter_map(|entry| buffer.read_path(&entry.path().join("stat")).and_then(parse_stat))
        .all(|stat| is(&stat))
}

/// The name in parentheses may hold anything, also ") R 1 ", so the fields count from the last parenthesis.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    // The state is field 3, the start time field 22.
    let start_ticks = fields.nth(18)?.parse().ok()?;
    // Then comes the size of its memory (23), later the address of its program (26) and its exit code (52).
    let has_memory = fields.next() != Some("0");
    let is_readable = fields.nth(2).and_then(|start| start.parse().ok()).is_some_and(|start: u64| start > 1);
    let exit_code = fields.nth(25).and_then(|code| code.parse().ok()).unwrap_or(0);
    Some(Stat { state, start_ticks, has_memory, is_readable, exit_code })
}

/// Whether the process `pid` runs as user `uid`; an error if it cannot be told (most often because it is gone).
pub(crate) fn runs_as(proc_root: &Path, pid: u32, uid: u32, buffer: &mut SmallBuffer) -> io::Result<bool> {
    let path = proc_root.join(pid.to_string()).join("status");
    let text = buffer.read_path(&path).ok_or(io::ErrorKind::NotFound)?;
    let line = text.lines().find_map(|line| line.strip_prefix("Uid:")).ok_or(io::ErrorKind::InvalidData)?;
    // Real, effective, saved and file system user.
    Ok(line.split_ascii_whitespace().take(3).any(|word| word.parse() == Ok(uid)))
}

/// The user this agent runs as.
pub(crate) fn own_uid() -> u32 {
    // SAFETY: geteuid has no precondition and cannot fail.
    unsafe { libc::geteuid() }
}

/// Locks a whole file for its open description, without waiting: others can ask for such a lock without taking it.
pub(crate) fn lock_description(file: &File) -> io::Result<()> {
    // SAFETY: the struct is plain integers, for which all zero bytes are a value: from the begin, of any length.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: `lock` lives through the call, which writes nothing, and the descriptor is open.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that lives through the call, and the clock needs nothing else.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    match (rc, u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec)) {
        (0, Ok(seconds), Ok(nanos)) => Duration::new(seconds, nanos),
        _ => Duration::ZERO,
    }
}

/// A handle (`O_PATH`: nothing is opened in earnest) on what `path` names inside `root`. Links on the way stay inside
/// `root`, a link at the end is not followed. Before Linux 5.6 links on the way are followed as this process sees them.
pub(crate) fn open_in_root(root: &Path, path: &Path) -> io::Result<File> {
    const FLAGS: i32 = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let dir = File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(root)?;
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the struct is plain integers, for which all zero bytes are a value.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = FLAGS as u64;
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    // SAFETY: `name` is a terminated string and `how` a struct of the size that is passed; both live through the call,
    // and the kernel writes to neither.
    let fd = unsafe {
        let (dir, name, how) = (dir.as_raw_fd(), name.as_ptr(), &raw const how);
        libc::syscall(libc::SYS_openat2, dir, name, how, std::mem::size_of::<libc::open_how>())
    };
    if fd >= 0 {
        let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
        // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
        return Ok(unsafe { File::from_raw_fd(fd) });
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::ENOSYS) {
        return Err(error);
    }
    let inside = root.join(path.strip_prefix("/").unwrap_or(path));
    File::options().read(true).custom_flags(FLAGS).open(inside)
}

/// For a helper process: ends with the thread that started it, maps at most `bytes` more memory than it has (its
/// allocator may have reserved a GiB of addresses at its start), leaves no core and lets others run first. Each may be
/// refused, which costs safety margins and nothing else.
pub(crate) fn confine_self(bytes: u64) {
    let limit = |resource, value: u64| {
        let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        // SAFETY: `limit` is a valid struct that lives through the call, which writes nothing.
        unsafe { libc::setrlimit(resource, &limit) };
    };
    limit(libc::RLIMIT_AS, bytes + mapped_bytes());
    limit(libc::RLIMIT_CORE, 0);
    // SAFETY: both calls take numbers only and concern this process.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::nice(10);
    }
}

/// What this process has mapped; 0 where the kernel does not tell.
fn mapped_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn start_ticks(pid: u32) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a live process");
        parse_stat(&text).expect("a stat line").start_ticks
    }

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep starts")
    }

    fn signal(child: &Child, name: &str) {
        let status = Command::new("kill").arg(name).arg(child.id().to_string()).status().expect("kill runs");
        assert!(status.success());
    }

    fn wait_for(watch: &mut ProcessWatch, life: Life) {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut buffer = SmallBuffer::new();
        while watch.look(&mut buffer) != life {
            assert!(Instant::now() < deadline, "never saw {life:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_process_runs_stops_continues_and_dies() {
        let mut child = sleeper();
        let mut watch = ProcessWatch::new(Path::new("/proc"), child.id(), start_ticks(child.id()));
        wait_for(&mut watch, Life::Running);
        signal(&child, "-STOP");
        wait_for(&mut watch, Life::Stopped);
        signal(&child, "-CONT");
        wait_for(&mut watch, Life::Running);
        signal(&child, "-KILL");
        wait_for(&mut watch, Life::Gone);
        assert!(Path::new(&format!("/proc/{}", child.id())).exists(), "still a zombie, which counts as gone");
        child.wait().expect("reaped");
        assert_eq!(watch.look(&mut SmallBuffer::new()), Life::Gone);
    }

    /// A look at a process in the middle of `exec` shows no program.
    fn wait_until_readable(watch: &mut ProcessWatch) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while watch.look(&mut SmallBuffer::new()) != Life::Running || !watch.is_readable {
            assert!(Instant::now() < deadline, "its own user may look into it");
            std::thread::yield_now();
        }
    }

    #[test]
    fn how_a_process_ended_is_read_from_what_is_left_of_it() {
        for (signal, expected) in [("-KILL", ExitStatus::Signal(9)), ("-TERM", ExitStatus::Signal(15))] {
            let mut child = sleeper();
            let mut watch = ProcessWatch::new(Path::new("/proc"), child.id(), start_ticks(child.id()));
            wait_until_readable(&mut watch);
            self::signal(&child, signal);
            wait_for(&mut watch, Life::Gone);
            assert_eq!(watch.status(), expected);
            child.wait().expect("reaped");
            assert_eq!((watch.look(&mut SmallBuffer::new()), watch.status()), (Life::Gone, expected), "it stays known");
        }
        let mut child = Command::new("sh").args(["-c", "read _; exit 3"]).stdin(Stdio::piped()).spawn().expect("sh");
        let mut watch = ProcessWatch::new(Path::new("/proc"), child.id(), start_ticks(child.id()));
        wait_until_readable(&mut watch);
        drop(child.stdin.take());
        wait_for(&mut watch, Life::Gone);
        assert_eq!(watch.status(), ExitStatus::Code(3));
        child.wait().expect("reaped");
    }

    #[test]
    fn a_reused_number_is_another_process() {
        let own = std::process::id();
        let mut buffer = SmallBuffer::new();
        assert_eq!(ProcessWatch::new(Path::new("/proc"), own, start_ticks(own)).look(&mut buffer), Life::Running);
        assert_eq!(ProcessWatch::new(Path::new("/proc"), own, start_ticks(own) + 1).look(&mut buffer), Life::Gone);
        assert_eq!(ProcessWatch::new(Path::new("/proc"), u32::MAX, 1).look(&mut buffer), Life::Gone);
    }

    /// A made-up `/proc`: the process 7 with one state per thread, the first being the main thread's.
    fn fake_life(states: &[&str]) -> Life {
        let proc = tempfile::tempdir().expect("a temporary directory");
        let memory = |state: &str| if "ZXxE".contains(state) { 0 } else { 4096 };
        let line = |state: &str| format!("7 (a) {} 1{} 99 {}", state.replace('E', "D"), " 0".repeat(17), memory(state));
        for (i, state) in states.iter().enumerate() {
            let dir = proc.path().join(format!("7/task/{}", 7 + i));
            std::fs::create_dir_all(&dir).expect("directories");
            std::fs::write(dir.join("stat"), line(state)).expect("write");
        }
        std::fs::write(proc.path().join("7/stat"), line(states[0])).expect("write");
        ProcessWatch::new(proc.path(), 7, 99).look(&mut SmallBuffer::new())
    }

    #[test]
    fn a_process_is_stopped_or_gone_only_when_all_its_threads_are() {
        assert_eq!(fake_life(&["S", "R"]), Life::Running);
        assert_eq!(fake_life(&["T", "T"]), Life::Stopped);
        assert_eq!(fake_life(&["t", "T"]), Life::Stopped);
        assert_eq!(fake_life(&["T", "S"]), Life::Running);
        assert_eq!(fake_life(&["Z", "S"]), Life::Running);
        assert_eq!(fake_life(&["Z", "Z"]), Life::Gone);
        // E: it gives its memory back, which may take seconds.
        assert_eq!(fake_life(&["E", "E"]), Life::Gone);
        assert_eq!(fake_life(&["E", "Z"]), Life::Gone);
        assert_eq!(fake_life(&["E", "R"]), Life::Running);
    }

    #[test]
    fn a_process_that_cannot_be_looked_at_is_not_gone() {
        let proc = tempfile::tempdir().expect("a temporary directory");
        let stat = proc.path().join("7/stat");
        std::fs::create_dir_all(&stat).expect("a directory in the place of the file: EISDIR");
        let mut watch = ProcessWatch::new(proc.path(), 7, 99);
        let mut buffer = SmallBuffer::new();
        assert_eq!(watch.look(&mut buffer), Life::Running);
        std::fs::remove_dir(&stat).expect("empty");
        assert_eq!(ProcessWatch::new(proc.path(), 7, 99).look(&mut buffer), Life::Gone);
    }

    #[test]
    fn stat_lines_with_hostile_names() {
        let tail = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 23";
        let (state, start_ticks, has_memory, is_readable, exit_code) = (b'S', 4711, true, false, 0);
        let expected = Some(Stat { state, start_ticks, has_memory, is_readable, exit_code });
        assert_eq!(parse_stat(&format!("7 (a) Z 1 (b){tail}")), expected);
        assert_eq!(parse_stat(&format!("7 (){tail}")), expected);
        for garbage in ["", "7", "7 (a)", "7 (a) S", "7 (a) S 1 2", ")"] {
            assert_eq!(parse_stat(garbage), None, "{garbage}");
        }
    }

    #[test]
    fn the_user_of_a_process() {
        let mut buffer = SmallBuffer::new();
        let (own, uid) = (std::process::id(), own_uid());
        assert!(runs_as(Path::new("/proc"), own, uid, &mut buffer).expect("own status"));
        assert!(!runs_as(Path::new("/proc"), own, uid + 1, &mut buffer).expect("own status"));
        assert!(runs_as(Path::new("/proc"), u32::MAX, uid, &mut buffer).is_err());
    }

    #[test]
    fn processor_time_grows() {
        let before = thread_cpu();
        let deadline = Instant::now() + Duration::from_secs(10);
        while thread_cpu() == before {
            assert!(Instant::now() < deadline);
        }
    }
}
