//! LTTng-UST beside the ring: our own program with one tracepoint, under a real session and without one.
//!
//! The session is like the ring: snapshot mode (nobody reads until asked), overwrite, buffers shared by the user's
//! processes. A session daemon is started where none runs, and stopped; nothing stays behind.
use crate::run::{answers, output, run};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Sub-buffers of one CPU: 4 x 64 KiB = 256 KiB, the next power of two above the small ring (1393 x 128 B = 174 KiB).
const SUB_BUFFERS: &str = "4";
/// Size of a sub-buffer.
const SUB_BUFFER_SIZE: &str = "64k";
/// How long the session daemon may take to answer, or to end.
const DAEMON_TIMEOUT: Duration = Duration::from_secs(15);
/// Between two looks at the daemon.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Our session's name.
const SESSION: &str = "mycroft-bench";
/// Where LTTng leaves files of its own: they are removed again where they were not there before.
const LEFTOVERS: [(&str, &str); 2] = [("/dev/shm", "lttng-ust-wait-"), ("/run", "lttng")];

/// The compiled program and the daemon it registers with.
pub(crate) struct Lttng {
    program: String,
    home: PathBuf,
    daemon: Option<Child>,
    there_before: BTreeSet<PathBuf>,
}

/// Why LTTng cannot be measured here, with what to install.
pub(crate) fn missing() -> Option<String> {
    let has_header = answers("cc", &["-fsyntax-only", "-include", "lttng/tracepoint.h", "-x", "c", "/dev/null"]);
    let what = [
        ("a C compiler `cc`", answers("cc", &["--version"])),
        ("the header lttng/tracepoint.h", has_header),
        ("the program `lttng`", answers("lttng", &["--version"])),
        ("the program `lttng-sessiond`", answers("lttng-sessiond", &["--version"])),
    ];
    let lacking: Vec<&str> = what.iter().filter(|(_, is_there)| !is_there).map(|(name, _)| *name).collect();
    (!lacking.is_empty()).then(|| {
        format!(
            "LTTng-UST was not measured, missing here: {}; install the packages gcc, liblttng-ust-dev and lttng-tools \
             (names of Debian and Ubuntu) and run again",
            lacking.join(", ")
        )
    })
}

/// "LTTng" and its version.
pub(crate) fn version(root: &Path) -> Result<String> {
    let text = output(root, "lttng", &["--version"])?;
    let name = text.lines().next().unwrap_or_default();
    // lttng (LTTng Trace Control) 2.13.9 - NICKNAME
    let number = name.split_once(") ").and_then(|(_, rest)| rest.split_whitespace().next());
    Ok(format!("LTTng {}", number.unwrap_or("of an unknown version")))
}

impl Lttng {
    /// Compiles the program into `build` and starts a session daemon where none answers.
    ///
    /// # Errors
    /// The program does not compile, or the daemon does not answer in `DAEMON_TIMEOUT`.
    pub(crate) fn start(root: &Path, build: &Path) -> Result<Lttng> {
        let home = build.join("lttng-home");
        std::fs::create_dir_all(&home).with_context(|| format!("cannot make {}", home.display()))?;
        let program = build.join("lttng-record-bench").to_string_lossy().into_owned();
        let source = "bench/lttng/record_bench.c";
        run(root, "cc", &["-O2", "-Ibench/lttng", "-o", &program, source, "-llttng-ust", "-ldl"])?;
        let mut lttng = Lttng { program, home, daemon: None, there_before: leftovers() };
        if lttng.call(&["list"]).is_err() {
            let mut command = Command::new("lttng-sessiond");
            command.arg("--no-kernel").env("LTTNG_HOME", &lttng.home).stdout(Stdio::null()).stderr(Stdio::null());
            lttng.daemon = Some(command.spawn().context("cannot start `lttng-sessiond`")?);
            let begin = Instant::now();
            while let Err(error) = lttng.call(&["list"]) {
                if begin.elapsed() > DAEMON_TIMEOUT {
                    return Err(error.context("lttng-sessiond does not answer"));
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(lttng)
    }

    /// Nanoseconds of a tracepoint that no session records.
    ///
    /// # Errors
    /// The program failed, or somebody's session records the tracepoint.
    pub(crate) fn disabled_ns(&self, seconds: &str) -> Result<f64> {
        self.program_ns(seconds, "off")
    }

    /// Nanoseconds of a tracepoint that a session records.
    ///
    /// # Errors
    /// The session could not be made, or the program was not traced by it.
    pub(crate) fn enabled_ns(&self, seconds: &str) -> Result<f64> {
        self.call(&["create", SESSION, "--snapshot"])?;
        let measured = self.record_and_measure(seconds);
        self.call(&["destroy", SESSION])?;
        measured
    }

    fn record_and_measure(&self, seconds: &str) -> Result<f64> {
        let channel = ["--overwrite", "--buffers-uid", "--subbuf-size", SUB_BUFFER_SIZE, "--num-subbuf", SUB_BUFFERS];
        let mut enable_channel = vec!["enable-channel", "-u", "-s", SESSION];
        enable_channel.extend(channel);
        enable_channel.push("ring");
        self.call(&enable_channel)?;
        self.call(&["enable-event", "-u", "-s", SESSION, "-c", "ring", "mycroft_bench:record"])?;
        self.call(&["start", SESSION])?;
        self.program_ns(seconds, "on")
    }

    fn program_ns(&self, seconds: &str, expected: &str) -> Result<f64> {
        let mut command = Command::new(&self.program);
        let out = command.arg(seconds).env("LTTNG_HOME", &self.home).output().context("cannot start the program")?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let row = text.trim().split_once(" ns  ").and_then(|(ns, state)| Some((ns.parse().ok()?, state)));
        match row {
            Some((ns, state)) if state == expected => Ok(ns),
            Some((_, state)) => bail!("the tracepoint was {state} instead of {expected}: look at `lttng list -u`"),
            None => bail!("bench/lttng printed `{}` instead of nanoseconds", text.trim()),
        }
    }

    fn call(&self, args: &[&str]) -> Result<()> {
        let mut command = Command::new("lttng");
        let out = command.arg("--no-sessiond").args(args).env("LTTNG_HOME", &self.home).output();
        let out = out.context("cannot start `lttng`")?;
        if !out.status.success() {
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            bail!("`lttng {}` ended with {}: {}", args.join(" "), out.status, said.trim());
        }
        Ok(())
    }

    /// Asks our daemon to end and waits for it; kills it when it does not.
    fn stop_daemon(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        let _ = Command::new("sh").args(["-c", &format!("kill -TERM {}", daemon.id())]).status();
        let begin = Instant::now();
        while let Ok(None) = daemon.try_wait() {
            if begin.elapsed() > DAEMON_TIMEOUT {
                let _ = daemon.kill();
                let _ = daemon.wait();
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        if self.daemon.is_none() {
            // Somebody else's daemon: its files are not ours.
            return;
        }
        self.stop_daemon();
        for path in leftovers().difference(&self.there_before) {
            let removed = if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) };
            if let Err(error) = removed {
                eprintln!("cannot remove {} that LTTng left: {error}", path.display());
            }
        }
        let _ = std::fs::remove_dir_all(&self.home);
    }
}

/// LTTng's own files that are there now.
fn leftovers() -> BTreeSet<PathBuf> {
    let of = |(dir, prefix): (&str, &str)| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        let prefix = prefix.to_owned();
        let is_ours =
            move |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix));
        paths.filter(is_ours).collect::<Vec<_>>()
    };
    LEFTOVERS.into_iter().flat_map(of).collect()
}
