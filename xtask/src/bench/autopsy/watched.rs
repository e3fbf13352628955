//! A child process run to its end, and what it cost: read from outside, without system calls that need `unsafe`.
use anyhow::{Context, Result, bail};
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at a process: its memory at the end is missed by at most what it takes in this time.
const LOOK: Duration = Duration::from_millis(3);
/// Unit of processor times in /proc (`USER_HZ`, fixed at 100 for programs).
const TICKS_PER_S: f64 = 100.0;
/// Fields of /proc/PID/stat behind the name: state, then user and system time as the 12th and 13th of them.
const USER_TICKS: usize = 11;

/// What a process cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    /// From start to end.
    pub(super) wall_s: f64,
    /// User and system time of all its threads.
    pub(super) cpu_s: f64,
    /// Largest resident set.
    pub(super) peak_bytes: u64,
}

/// Runs a command; what it cost and printed, or nothing when it had to be ended. Exit codes 0 and 1 are answers.
pub(super) fn watch(mut command: Command, patience: Duration) -> Result<Option<(Cost, String)>> {
    let begun = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let mut stdout = child.stdout.take().context("no pipe to the child")?;
    let proc = format!("/proc/{}", child.id());
    let said = std::thread::spawn(move || {
        let mut said = String::new();
        stdout.read_to_string(&mut said).map(|_| said)
    });
    let mut peak_bytes = 0;
    let (wall_s, cpu_s) = loop {
        let (state, cpu_s) = times(&proc)?;
        if state == 'Z' {
            break (begun.elapsed().as_secs_f64(), cpu_s);
        }
        peak_bytes = peak_bytes.max(peak(&proc));
        if begun.elapsed() > patience {
            child.kill().context("cannot end the child")?;
            child.wait().context("cannot wait for the child")?;
            return Ok(None);
        }
        std::thread::sleep(LOOK);
    };
    let status = child.wait().context("cannot wait for the child")?;
    let said = said.join().map_err(|_| anyhow::anyhow!("the reader of the child's output panicked"))?;
    let said = said.context("the child printed no text")?;
    if !matches!(status.code(), Some(0 | 1)) {
        bail!("{command:?} ended with {status}: {said}");
    }
    Ok(Some((Cost { wall_s, cpu_s, peak_bytes }, said)))
}

/// State and processor time of a child that nobody has waited for: there even after its end.
fn times(proc: &str) -> Result<(char, f64)> {
    let stat = std::fs::read_to_string(format!("{proc}/stat")).context("the child cannot be looked at")?;
    let (_, fields) = stat.rsplit_once(") ").context("an unknown form of /proc/PID/stat")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    let state = fields.first().and_then(|state| state.chars().next()).unwrap_or('?');
    Ok((state, (ticks(USER_TICKS) + ticks(USER_TICKS + 1)) / TICKS_PER_S))
}

/// Largest resident set so far, bytes; 0 where the process has no memory any more.
fn peak(proc: &str) -> u64 {
    let status = std::fs::read_to_string(format!("{proc}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
