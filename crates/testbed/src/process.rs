//! Child processes that cannot outlive the launcher: each is the leader of its own process group and is killed by the
//! kernel when the thread that started it ends.
use crate::error::TestbedError;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes from the end of a log in which its last line is looked for.
const TAIL_BYTES: usize = 4096;
/// How often a wait for several processes looks at them.
const POLL: Duration = Duration::from_millis(10);

/// What to start.
#[derive(Debug)]
pub struct Spec {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Environment variables on top of the launcher's own.
    pub env: Vec<(OsString, OsString)>,
    /// Environment variables of the launcher that the child does not inherit.
    pub env_remove: Vec<&'static str>,
    /// Network namespace to run in.
    pub netns: Option<String>,
    /// File that takes standard output and error.
    pub log: PathBuf,
}

/// Starts processes from one long-lived thread, because PR_SET_PDEATHSIG follows the thread, not the process.
#[derive(Debug)]
pub struct Spawner {
    requests: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

type Request = (Command, mpsc::Sender<std::io::Result<Child>>);

impl Spawner {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn start() -> Result<Spawner, TestbedError> {
        let (requests, inbox) = mpsc::channel::<Request>();
        let thread = std::thread::Builder::new()
            .name("mtb-spawner".into())
            .spawn(move || {
                for (mut command, reply) in inbox {
                    // The other side waits for the reply; if it is gone the child is of no use.
                    if let Err(mpsc::SendError(Ok(mut child))) = reply.send(command.spawn()) {
                        end(&mut child);
                    }
                }
            })
            .map_err(|source| TestbedError::Spawn { program: "a thread".to_owned(), source })?;
        Ok(Spawner { requests: Some(requests), thread: Some(thread) })
    }

    /// Starts a process.
    ///
    /// # Errors
    /// The program is not there, or the system refused a process.
    pub fn spawn(&self, spec: &Spec) -> Result<Process, TestbedError> {
        let command = command(spec)?;
        let program = command.get_program().to_string_lossy().into_owned();
        let gone = || std::io::Error::other("the spawner thread is gone");
        let (reply, answer) = mpsc::channel();
        let sent = self.requests.as_ref().is_some_and(|requests| requests.send((command, reply)).is_ok());
        let child = if sent { answer.recv().unwrap_or_else(|_| Err(gone())) } else { Err(gone()) };
        let child = child.map_err(|source| TestbedError::Spawn { program, source })?;
        Ok(Process { child, status: None, log: spec.log.clone() })
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

fn command(spec: &Spec) -> Result<Command, TestbedError> {
    let mut argv: Vec<OsString> = Vec::new();
    if let Some(netns) = &spec.netns {
        argv.extend(["ip", "netns", "exec", netns].map(OsString::from));
    }
    argv.extend(spec.argv.iter().cloned());
    let (program, arguments) = argv.split_first().ok_or_else(|| TestbedError::Spawn {
        program: "nothing".to_owned(),
        source: std::io::Error::other("the command line is empty"),
    })?;
    let log_error = |source| TestbedError::file("open the log", &spec.log, source);
    let log = File::options().create(true).append(true).open(&spec.log).map_err(log_error)?;
    let mut command = Command::new(program);
    command.args(arguments);
    for name in &spec.env_remove {
        command.env_remove(name);
    }
    command.envs(spec.env.iter().cloned());
    command.stdin(Stdio::null()).stdout(log.try_clone().map_err(log_error)?).stderr(log).process_group(0);
    let parent = std::process::id();
    // SAFETY: between fork and exec only async-signal-safe calls are made: prctl and getppid.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // The parent may have died before the call above.
            if libc::getppid() as u32 != parent {
                return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        });
    }
    Ok(command)
}

/// A started process; killed with its group when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    status: Option<ExitStatus>,
    log: PathBuf,
}

impl Process {
    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, `None` while it runs. What is left of it stays until it is killed or dropped, so that an agent can read
    /// how it ended however late it looks.
    pub fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = peek(self.child.id());
        }
        self.status
    }

    /// Sends a signal to the process alone; false when it has ended.
    pub fn signal(&mut self, signal: i32) -> bool {
        // SAFETY: kill has no memory effects; the child is not reaped (status is None), so the id is still its own.
        self.status().is_none() && unsafe { libc::kill(self.child.id() as i32, signal) } == 0
    }

    /// Kills it with its whole group and reaps it.
    pub fn kill(&mut self) {
        if self.status().is_none() {
            end(&mut self.child);
        }
        if let Ok(Some(status)) = self.child.try_wait() {
            self.status = Some(status);
        }
    }

    /// The last line it wrote, empty if none.
    pub fn last_line(&self) -> String {
        last_line(&self.log)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How the child `pid` ended, without collecting it; `None` while it runs.
fn peek(pid: u32) -> Option<ExitStatus> {
    // SAFETY: the struct is plain integers, for which all zero bytes are a value: of no process.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` lives through the call and is written by it alone.
    if unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, flags) } != 0 {
        return None;
    }
    // SAFETY: waitid wrote the fields of a child that ended, or left them zero.
    let (ended, status) = unsafe { (info.si_pid() != 0, info.si_status()) };
    // The number as `wait` gives it: the code in the second byte, or the signal, with a bit for its core.
    let raw = match info.si_code {
        libc::CLD_EXITED => (status & 0xff) << 8,
        libc::CLD_DUMPED => status | 0x80,
        _ => status,
    };
    ended.then(|| ExitStatus::from_raw(raw))
}

fn end(child: &mut Child) {
    // SAFETY: kill has no memory effects; the child leads its group, whose id is thus its own until it is reaped.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
    // A process that cannot be waited for is not ours any more.
    let _ = child.kill();
    let _ = child.wait();
}

/// Exit status in words: `exit code 1`, `signal 9`.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "unknown status".to_owned(),
    }
}

/// Waits until all have ended or the limit is over; says whether all have.
pub fn wait_all<'a>(processes: impl IntoIterator<Item = &'a mut Process>, limit: Duration) -> bool {
    let begun = Instant::now();
    for process in processes {
        while process.status().is_none() {
            if begun.elapsed() > limit {
                return false;
            }
            std::thread::sleep(POLL);
        }
    }
    true
}

fn last_line(log: &Path) -> String {
    let bytes = std::fs::read(log).unwrap_or_default();
    let tail = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned();
    tail.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned()
}

/// Runs a tool to its end and gives what it printed.
///
/// # Errors
/// The tool is not there or failed; what it said is in the error.
pub fn tool(program: &str, arguments: &[&str], input: &str) -> Result<String, TestbedError> {
    use std::io::Write;
    let shown = || format!("{program} {}", arguments.join(" "));
    let failed = |message: String| TestbedError::Tool { command: shown(), message };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that ends without reading its input says why below.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        return Err(failed(format!("{} ({})", text, describe(output.status))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(dir: &Path, script: &str) -> Spec {
        Spec {
            argv: ["sh", "-c", script].map(OsString::from).to_vec(),
            env: vec![("MTB_WORD".into(), "here".into())],
            env_remove: vec!["HOME"],
            netns: None,
            log: dir.join("log"),
        }
    }

    #[test]
    fn output_goes_to_the_log_and_the_status_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let spawner = Spawner::start().unwrap();
        let mut process = spawner.spawn(&spec(dir.path(), "echo one; echo $MTB_WORD${HOME-none} >&2; exit 3")).unwrap();
        assert!(wait_all([&mut process], Duration::from_secs(20)));
        assert_eq!(process.last_line(), "herenone");
        assert_eq!(describe(process.status().unwrap()), "exit code 3");
        assert!(!process.signal(libc::SIGTERM));
    }

    /// A launcher that collects a rank before its agent has looked takes away how it ended.
    #[test]
    fn an_ended_process_can_be_read_until_it_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let spawner = Spawner::start().unwrap();
        for (script, how) in [("exit 3", "exit code 3"), ("kill -TERM $$", "signal 15"), ("exit 0", "exit code 0")] {
            let mut process = spawner.spawn(&spec(dir.path(), script)).unwrap();
            assert!(wait_all([&mut process], Duration::from_secs(20)));
            let stat = Path::new("/proc").join(process.pid().to_string()).join("stat");
            assert_eq!(describe(process.status().unwrap()), how);
            assert!(std::fs::read_to_string(&stat).unwrap().contains(") Z "), "{how}");
            process.kill();
            assert_eq!(describe(process.status().unwrap()), how);
            assert!(!stat.exists(), "{how}");
        }
    }

    #[test]
    fn grandchildren_die_with_the_group() {
        let dir = tempfile::tempdir().unwrap();
        let spawner = Spawner::start().unwrap();
        let mut process = spawner.spawn(&spec(dir.path(), "sleep 600 & echo $!; wait")).unwrap();
        let begun = Instant::now();
        while process.last_line().is_empty() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(POLL);
        }
        let grandchild = process.last_line();
        process.kill();
        assert_eq!(describe(process.status().unwrap()), "signal 9");
        let stat = Path::new("/proc").join(&grandchild).join("stat");
        let running = || std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
        while running() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(POLL);
        }
        assert!(!running());
    }

    #[test]
    fn errors_name_the_program() {
        let dir = tempfile::tempdir().unwrap();
        let spawner = Spawner::start().unwrap();
        let missing = Spec { argv: vec!["/no/such/program".into()], ..spec(dir.path(), "") };
        assert!(spawner.spawn(&missing).unwrap_err().to_string().contains("/no/such/program"));
        let error = tool("sh", &["-c", "echo bad >&2; exit 2"], "").unwrap_err().to_string();
        assert!(error.contains("bad (exit code 2)"), "{error}");
        assert_eq!(tool("cat", &[], "through").unwrap(), "through");
    }
}
