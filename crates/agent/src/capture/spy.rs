//! Reading the stacks of Python processes, in a process of its own.
//!
//! The reader (py-spy) maps the interpreter's files and follows pointers in another process's memory. Both may be made
//! to fail badly by who controls them (a file cut short while it is mapped is a SIGBUS), so a helper does it: the
//! agent's own program again, with little memory and little time. It never stops the process it reads.
use crate::config::SpyProgram;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Instant;

/// The helper's first words: what comes before is not its.
const MARK: &[u8] = b"MYCROFT-SPY 1\n";
/// Output of a helper: 33 processes x 256 threads x 4 KiB would be 33 MiB.
const OUTPUT_BYTES_MAX: u64 = 48 << 20;

/// Stacks of one process as py-spy's JSON, or why there are none.
pub(crate) type Stacks = Result<Vec<u8>, String>;

/// Reads the stacks of these processes, in their order.
pub(crate) fn read(program: &SpyProgram, pids: &[u32], until: Instant) -> Vec<Stacks> {
    let mut output = Vec::new();
    let ended = run(program, pids, until, &mut output);
    let mut read = parse(&output);
    pids.iter()
        .map(|pid| match read.iter().position(|(of, _)| of == pid) {
            Some(index) => read.swap_remove(index).1,
            None => Err(ended.clone()),
        })
        .collect()
}

/// Runs the helper and gives why it may have said nothing of a process.
fn run(program: &SpyProgram, pids: &[u32], until: Instant, output: &mut Vec<u8>) -> String {
    let mut command = Command::new(&program.program);
    command.args(&program.args).args(pids.iter().map(u32::to_string));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return format!("starting the stack reader: {e}"),
    };
    let Some(pipe) = child.stdout.take() else { return "the stack reader has no output".to_owned() };
    let (tell, told) = channel();
    let reader = std::thread::Builder::new().name("mycroft-capture-spy".to_owned()).spawn(move || {
        let mut buffer = vec![0u8; 64 << 10];
        let mut pipe = pipe.take(OUTPUT_BYTES_MAX);
        while let Ok(count @ 1..) = pipe.read(&mut buffer) {
            if tell.send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    if let Err(e) = reader {
        end(child);
        return format!("starting a thread: {e}; raise the limit of processes (ulimit -u)");
    }
    loop {
        match told.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(bytes) => output.extend_from_slice(&bytes),
            Err(RecvTimeoutError::Disconnected) => {
                end(child);
                return "the stack reader ended without a word; is its memory not readable?".to_owned();
            }
            Err(RecvTimeoutError::Timeout) => {
                end(child);
                return "its stacks could not be read in time; is the host overloaded?".to_owned();
            }
        }
    }
}

/// Ends the helper. One in uninterruptible sleep is left to the kernel, and to this thread to wait for.
fn end(mut child: Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// `ok PID BYTES`, the bytes, a line end; or `no PID REASON`.
fn parse(output: &[u8]) -> Vec<(u32, Stacks)> {
    let mut found = Vec::new();
    let Some(begin) = output.windows(MARK.len()).position(|window| window == MARK) else { return found };
    let mut rest = &output[begin + MARK.len()..];
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(&rest[..end]).into_owned();
        rest = &rest[end + 1..];
        let mut words = line.splitn(3, ' ');
        let (word, pid, more) = (words.next(), words.next().and_then(|w| w.parse().ok()), words.next().unwrap_or(""));
        match (word, pid) {
            (Some("ok"), Some(pid)) => {
                let Some((json, after)) = more.parse().ok().and_then(|bytes: usize| rest.split_at_checked(bytes))
                else {
                    break;
                };
                found.push((pid, Ok(json.to_vec())));
                rest = after.strip_prefix(b"\n").unwrap_or(after);
            }
            (Some("no"), Some(pid)) => found.push((pid, Err(more.to_owned()))),
            _ => break,
        }
    }
    found
}

/// The helper: tells the stacks of these processes on its output. What `mycroft` runs when an agent asks.
pub fn main(pids: &[u32]) {
    crate::process::confine_self(helper::MEMORY_BYTES_MAX);
    helper::main(pids);
}

#[cfg(feature = "stacks")]
mod helper {
    use super::super::access::read_limited;
    use super::MARK;
    use py_spy::config::LockingStrategy;
    use py_spy::stack_trace::ProcessInfo;
    use py_spy::{Config, PythonSpy, StackTrace};
    use std::io::Write;
    use std::panic::catch_unwind;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    /// The interpreter's files are mapped (50 MB with debug information 200 MB), twice in the worst case.
    pub(super) const MEMORY_BYTES_MAX: u64 = 1 << 30;
    /// Reading a process that runs may meet a stack that changes under the reader's eyes; one that hangs never does.
    const TRIES: usize = 8;
    /// Between two tries.
    const PAUSE: Duration = Duration::from_millis(10);

    pub(super) fn main(pids: &[u32]) {
        let mut out = std::io::stdout().lock();
        // Nobody listens any more: then there is nothing to tell.
        let _ = out.write_all(MARK);
        for &pid in pids {
            let stacks = catch_unwind(|| stacks(pid)).unwrap_or_else(|_| Err("the stack reader failed".to_owned()));
            let _ = match stacks {
                Ok(json) => write!(out, "ok {pid} {}\n{json}\n", json.len()),
                Err(text) => writeln!(out, "no {pid} {}", text.replace(['\n', '\r'], " ")),
            };
            let _ = out.flush();
        }
    }

    fn stacks(pid: u32) -> Result<String, String> {
        // Never stopped: what a stack costs is a few reads of its memory (docs/decisions/005). Full file names: to
        // shorten one it would look for files wherever the process says.
        let config = Config { blocking: LockingStrategy::NonBlocking, full_filenames: true, ..Config::default() };
        let number = i32::try_from(pid).map_err(|e| e.to_string())?;
        let mut spy = PythonSpy::new(number, &config).map_err(|e| format!("{e:#}"))?;
        let mut last = String::new();
        for _ in 0..TRIES {
            match spy.get_stack_traces() {
                Ok(mut traces) => {
                    let info = Arc::new(info(pid));
                    traces.iter_mut().for_each(|trace: &mut StackTrace| trace.process_info = Some(Arc::clone(&info)));
                    return serde_json::to_string(&traces).map_err(|e| e.to_string());
                }
                Err(e) => last = format!("{e:#}"),
            }
            std::thread::sleep(PAUSE);
        }
        Err(format!("{last} (tried {TRIES} times; a process that runs changes while it is read)"))
    }

    /// What py-spy itself leaves out of a library's answer.
    fn info(pid: u32) -> ProcessInfo {
        let parent = parent(pid).map(|parent| {
            Box::new(ProcessInfo { pid: parent as i32, command_line: command_line(parent), parent: None })
        });
        ProcessInfo { pid: pid as i32, command_line: command_line(pid), parent }
    }

    fn command_line(pid: u32) -> String {
        let bytes = read_limited(Path::new(&format!("/proc/{pid}/cmdline")), 4096).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\0', " ").trim_end().to_owned()
    }

    fn parent(pid: u32) -> Option<u32> {
        let bytes = read_limited(Path::new(&format!("/proc/{pid}/stat")), 4096).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (_, fields) = text.rsplit_once(')')?;
        fields.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

#[cfg(not(feature = "stacks"))]
mod helper {
    use super::MARK;
    use std::io::Write;

    /// It does nothing.
    pub(super) const MEMORY_BYTES_MAX: u64 = 64 << 20;

    pub(super) fn main(pids: &[u32]) {
        let mut out = std::io::stdout().lock();
        // Nobody listens any more: then there is nothing to tell.
        let _ = out.write_all(MARK);
        for pid in pids {
            let _ = writeln!(out, "no {pid} this mycroft was built without the feature \"stacks\"");
        }
    }
}
