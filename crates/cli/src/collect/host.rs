//! What this host itself says: its programs, its kernel, NCCL's own status, versions.
use crate::stop::Stop;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// `nvidia-smi -q` takes 1 to 3 s for eight devices, and may never end where a driver hangs.
const PROGRAM_LIMIT: Duration = Duration::from_secs(15);
/// NCCL asks all its processes and gives up on those that are silent after 5 s of its own.
const RAS_LIMIT: Duration = Duration::from_secs(12);
/// How often it is looked whether somebody asked us to stop.
const LOOK: Duration = Duration::from_millis(100);
/// A connection to this host.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// Longest answer: 100,000 ranks of a line each are 10 MB.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Where NCCL listens (2.24 and newer), unless told otherwise.
const RAS_ADDRESS: &str = "localhost:28028";

/// What a program of this host prints.
///
/// # Errors
/// It is not there, failed, or did not end in time; in words.
pub(super) fn program(name: &str, args: &[&str], stop: &Stop) -> Result<Vec<u8>, String> {
    let mut command = Command::new(name);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => "there is no such program here".to_owned(),
        _ => format!("it cannot be started: {error}"),
    })?;
    let Some(pipe) = child.stdout.take() else { return Err("it has no output".to_owned()) };
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let mut out = Vec::new();
        let read = pipe.take(ANSWER_BYTES_MAX).read_to_end(&mut out).map(|_| out);
        // Nobody listens when the time was up.
        let _ = tell.send(read);
    });
    let until = Instant::now() + PROGRAM_LIMIT;
    let read = loop {
        match told.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) if Instant::now() < until && !stop.asked() => {}
            read => break read,
        }
    };
    let Ok(read) = read else {
        // It may be in uninterruptible sleep: then it is left to the kernel.
        let _ = child.kill();
        return Err(format!("it did not end within {} s", PROGRAM_LIMIT.as_secs()));
    };
    let out = read.map_err(|error| format!("its output cannot be read: {error}"))?;
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() || !out.is_empty() {
        Ok(out)
    } else {
        Err(format!("it failed ({status}); may this user run it?"))
    }
}

/// NCCL's own status of the job (RAS), as text.
///
/// # Errors
/// Nobody listens, or it said nothing; in words.
pub(super) fn ras(address: Option<&str>, stop: &Stop) -> Result<Vec<u8>, String> {
    let address = address.unwrap_or(RAS_ADDRESS);
    let cannot = |error: std::io::Error| {
        format!("{address}: {error} (NCCL 2.24 or newer listens there, unless NCCL_RAS_ENABLE=0)")
    };
    let mut last = None;
    for place in address.to_socket_addrs().map_err(cannot)? {
        match TcpStream::connect_timeout(&place, CONNECT_LIMIT) {
            Ok(stream) => return ask(stream, stop).map_err(cannot),
            Err(error) => last = Some(error),
        }
    }
    Err(last.map_or_else(|| format!("{address}: no such address"), cannot))
}

fn ask(mut stream: TcpStream, stop: &Stop) -> std::io::Result<Vec<u8>> {
    let until = Instant::now() + RAS_LIMIT;
    stream.set_write_timeout(Some(CONNECT_LIMIT))?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.write_all(b"verbose status\n")?;
    let (mut said, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    while (said.len() as u64) < ANSWER_BYTES_MAX && Instant::now() < until && !stop.asked() {
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => said.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) if said.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    if said.is_empty() { Err(std::io::Error::other("it gave no answer")) } else { Ok(said) }
}

/// Versions of what a verdict may depend on, a line each.
pub(super) fn versions() -> String {
    let mut text = format!("mycroft {}\n", env!("CARGO_PKG_VERSION"));
    let uname = rustix::system::uname();
    let kernel =
        [uname.sysname(), uname.release(), uname.version(), uname.machine()].map(|part| part.to_string_lossy());
    text.push_str(&format!("kernel {}\n", kernel.join(" ")));
    let of = |path: &str| std::fs::read_to_string(path).ok().map(|said| said.trim().to_owned());
    let system = of("/etc/os-release").and_then(|said| {
        let line = said.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?.trim_matches('"').to_owned();
        Some(line)
    });
    for (what, said) in [("system", system), ("nvidia driver", of("/sys/module/nvidia/version"))] {
        text.extend(said.map(|said| format!("{what} {said}\n")));
    }
    let devices = std::fs::read_dir(Path::new("/sys/class/infiniband")).into_iter().flatten().flatten();
    let mut devices: Vec<String> = devices.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    devices.sort();
    for device in devices {
        let firmware = of(&format!("/sys/class/infiniband/{device}/fw_ver")).unwrap_or_default();
        text.push_str(&format!("infiniband {device} firmware {firmware}\n"));
    }
    text
}

/// The name of this host.
pub(super) fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
