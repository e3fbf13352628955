//! The built command as a child process: run to its end, or kept and stopped.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod diff;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longest a test waits for anything but a whole testbed: a loaded machine of two cores takes a fraction of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(50);
/// Between two looks at something that will become true.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// `mycroft ARGS...` without the variables of the shell that runs the tests.
pub(crate) fn mycroft(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mycroft"));
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if (name.starts_with("MYCROFT_") && name != "MYCROFT_LIB_DIR") || name.starts_with("NCCL_") {
            command.env_remove(name.as_ref());
        }
    }
    // Whatever is installed on this machine.
    command.env("MYCROFT_CONFIG", "/dev/null");
    command.args(args).stdin(Stdio::null());
    command
}

/// What a command that ended said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Said {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs a command to its end; one that goes on is ended and shows as `code: None`.
pub(crate) fn end(mut command: Command) -> Said {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let text = |stream: &mut dyn Read| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    std::thread::scope(|scope| {
        let out = scope.spawn(|| text(&mut stdout));
        let err = scope.spawn(|| text(&mut stderr));
        let begun = Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > PATIENCE {
                child.kill().unwrap();
            }
            std::thread::sleep(LOOK);
        }
        Said { code: child.wait().unwrap().code(), stdout: out.join().unwrap(), stderr: err.join().unwrap() }
    })
}

/// `mycroft ARGS...` to its end.
pub(crate) fn say(args: &[&str]) -> Said {
    end(mycroft(args))
}

/// The only line of standard error of a command that could not do what was asked.
pub(crate) fn refusal(args: &[&str]) -> String {
    let said = say(args);
    assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
    assert_eq!(said.stdout, "", "{args:?}: {said:?}");
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{args:?}: one line: {said:?}");
    assert!(lines[0].starts_with("mycroft: ") && !lines[0].contains("panicked"), "{args:?}: {said:?}");
    lines[0].to_owned()
}

/// A command that goes on. Killed when dropped, so that a failed test leaves nothing.
pub(crate) struct Going {
    child: Child,
    pub(crate) stdout: BufReader<ChildStdout>,
    pub(crate) stderr: BufReader<ChildStderr>,
}

impl Going {
    pub(crate) fn start(mut command: Command) -> Going {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Going { child, stdout, stderr }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Sends a signal such as `INT`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.pid().to_string()]).status().unwrap();
        assert!(status.success(), "kill -{name}");
    }

    /// Waits for the end: status and the rest of what was said.
    pub(crate) fn wait(mut self) -> (ExitStatus, String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).unwrap();
        self.stderr.read_to_string(&mut err).unwrap();
        (self.child.wait().unwrap(), out, err)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line that contains `word`; panics with all lines when the stream ends before.
pub(crate) fn line_with(stream: &mut impl BufRead, word: &str) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).unwrap() == 0 {
            panic!("no line with {word:?} in {seen:?}");
        }
        if line.contains(word) {
            return line.trim_end().to_owned();
        }
        seen.push_str(&line);
    }
}

/// Looks until `probe` gives something.
pub(crate) fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(LOOK);
    }
}

/// Whether these tests may make network namespaces.
pub(crate) fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Transports that can be tested here.
pub(crate) fn transports() -> Vec<&'static str> {
    if is_root() {
        vec!["loopback", "netns"]
    } else {
        eprintln!("not root: namespaces are not tested");
        vec!["loopback"]
    }
}

/// Everything on this machine that carries the name of a run of the launcher `pid`: living processes by the mark in
/// their environment, namespaces, directories in shared memory and in `temp`.
pub(crate) fn traces_of(pid: u32, temp: &Path) -> Vec<String> {
    let run = format!("mtb-{pid}-");
    let mark = format!("MYCROFT_TESTBED_RUN={run}");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let is_marked = std::fs::read(entry.path().join("environ")).is_ok_and(|environ| {
            environ.split(|byte| *byte == 0).any(|variable| variable.starts_with(mark.as_bytes()))
        });
        if is_marked {
            found.push(format!("process {}", entry.file_name().to_string_lossy()));
        }
    }
    for place in ["/run/netns", "/dev/shm"] {
        for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&run) {
                found.push(entry.path().display().to_string());
            }
        }
    }
    // The run had this directory for itself: whatever is in it was left.
    found.extend(std::fs::read_dir(temp).unwrap().flatten().map(|entry| entry.path().display().to_string()));
    found
}

/// A server on free ports, and the line with its URL and the address for agents.
pub(crate) fn started(more: &[&str]) -> (Going, String) {
    let mut going =
        Going::start(mycroft(&[&["serve", "--http", "127.0.0.1:0", "--wire", "127.0.0.1:0"], more].concat()));
    let line = line_with(&mut going.stderr, "http://");
    (going, line)
}

pub(crate) fn url_in(line: &str) -> String {
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    let url = url.trim_end_matches(['/', ',']).to_owned();
    assert!(!url.ends_with(":0"), "{line}");
    url
}

/// A server on free ports, and its URL as it prints it.
pub(crate) fn serve(more: &[&str]) -> (Going, String) {
    let (going, line) = started(more);
    let url = url_in(&line);
    (going, url)
}
