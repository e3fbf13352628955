//! Flight Recorder dumps: how a rank was told to write them (its environment), asking for one, and taking it.
//!
//! torch dumps when something is written to the pipe `TORCH_NCCL_DEBUG_INFO_PIPE_FILE`RANK`.pipe`, which its monitor looks
//! at every second, or when its worker server (`TORCH_WORKER_SERVER_SOCKET`, torch 2.5 and later; or the
//! `torch.distributed.debug` server, whose port only the job knows) is asked. Without either, a dump that torch's own
//! watchdog has written is taken as it lies.
use super::access::{Target, Wanted};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Largest dump taken: the default ring of 2,000 entries with stacks is 0.5 MB; rings of 100,000 are 25 MB.
const DUMP_BYTES_MAX: u64 = 64 << 20;
/// How often the dump file is looked at.
const POLL: Duration = Duration::from_millis(50);
/// A dump without our asking is taken when it is not older: torch's watchdog dumps minutes before anybody looks.
const OWN_DUMP_AGE_MAX: Duration = Duration::from_secs(30 * 60);
/// What the worker server may take: it holds the interpreter's lock for a dump with call stacks.
const SERVER_LIMIT: Duration = Duration::from_secs(2);
/// Head of an HTTP answer.
const HTTP_HEAD_BYTES_MAX: usize = 16 << 10;

const PIPE: &str = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE";
/// The first that is set counts.
const PREFIXES: [&str; 2] = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"];
const DYNAMIC: &str = "TORCH_FR_DUMP_DYNAMIC_FILE_NAME";
const CACHE: &str = "XDG_CACHE_HOME";
const HOME: &str = "HOME";
const RANK: &str = "RANK";
const SOCKET: &str = "TORCH_WORKER_SERVER_SOCKET";
/// Ours: the port that the job gave its worker server (`start_debug_server(worker_port=...)`).
const PORT: &str = "MYCROFT_TORCH_DEBUG_PORT";

const VARIABLES: [&str; 9] = [PIPE, PREFIXES[0], PREFIXES[1], DYNAMIC, CACHE, HOME, RANK, SOCKET, PORT];

/// Every entry of a dump has this field, in both forms.
const ENTRY: &[u8] = b"record_id";

/// Paths of the worker server that make a dump, best first: into the file that torch is told to use (torch 2.15), the
/// pickle itself, JSON without stacks.
const HANDLERS: [&str; 3] = ["fr_dump_file", "dump_nccl_trace_pickle", "fr_trace_json"];

/// How one rank was told to dump.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Recorder {
    /// The job's own number of the rank.
    pub(crate) rank: Option<u32>,
    pipe: Option<PathBuf>,
    /// Where a dump may appear.
    files: Vec<PathBuf>,
    socket: Option<PathBuf>,
    port: Option<u16>,
}

/// What a dump file was like at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Print {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// A dump was asked for.
pub(crate) enum Asked {
    /// It will appear in a file that is different then; how it was asked for.
    File(Vec<Option<Print>>, &'static str),
    /// Here it is.
    Bytes(Vec<u8>),
    /// There is no way to ask; what to do about it.
    NoWay(String),
}

/// A dump, and what to know of it.
pub(crate) type Dump = (Vec<u8>, String);

impl Recorder {
    /// As the environment of the process says. `known_rank`: where it says none.
    pub(crate) fn of(target: &Target, known_rank: Option<u32>) -> Result<Recorder, String> {
        let environ = target.environ(&VARIABLES).map_err(|e| match e.kind() {
            std::io::ErrorKind::PermissionDenied => target.denied(),
            _ => format!("reading its environment: {e}"),
        })?;
        Ok(Recorder::from_environ(&environ, known_rank))
    }

    fn from_environ(environ: &BTreeMap<String, String>, known_rank: Option<u32>) -> Recorder {
        let get = |name: &str| environ.get(name).map(String::as_str);
        let rank = get(RANK).and_then(|rank| rank.parse().ok()).or(known_rank);
        let mut files = Vec::new();
        if let Some(rank) = rank {
            let dynamic = get(DYNAMIC).is_some_and(|on| !matches!(on, "0" | "false" | "False" | "no"));
            match PREFIXES.iter().find_map(|name| get(name)) {
                Some(whole) if dynamic => files.push(PathBuf::from(whole)),
                Some(prefix) => files.push(PathBuf::from(format!("{prefix}{rank}"))),
                None => {
                    let cache =
                        get(CACHE).map(str::to_owned).or_else(|| get(HOME).map(|home| format!("{home}/.cache")));
                    files.extend(cache.map(|dir| PathBuf::from(format!("{dir}/torch/comm_lib_trace_rank_{rank}"))));
                    files.push(PathBuf::from(format!("/tmp/nccl_trace_rank_{rank}")));
                }
            }
        }
        Recorder {
            rank,
            pipe: get(PIPE).zip(rank).map(|(prefix, rank)| PathBuf::from(format!("{prefix}{rank}.pipe"))),
            files,
            socket: get(SOCKET).map(PathBuf::from),
            port: get(PORT).and_then(|port| port.parse().ok()),
        }
    }

    /// Asks the rank for a dump.
    pub(crate) fn ask(&self, target: &Target, until: Instant) -> Asked {
        let before: Vec<Option<Print>> = self.files.iter().map(|path| print_of(target, path)).collect();
        let mut refused = Vec::new();
        if let Some(pipe) = &self.pipe {
            match ring(target, pipe) {
                Ok(()) => return Asked::File(before, "its pipe was written to"),
                Err(why) => refused.push(why),
            }
        }
        if self.socket.is_some() || self.port.is_some() {
            match self.ask_server(target, until) {
                Ok(Some(bytes)) => return Asked::Bytes(bytes),
                Ok(None) => return Asked::File(before, "its worker server said that it dumps"),
                Err(why) => refused.push(why),
            }
        }
        if refused.is_empty() {
            refused.push(format!(
                "the job gives no way to ask for one: start it with {PIPE}=/tmp/fr-pipe- (torch adds RANK.pipe), and see \
                 that TORCH_FR_BUFFER_SIZE is not 0"
            ));
        }
        Asked::NoWay(refused.join("; "))
    }

    fn ask_server(&self, target: &Target, until: Instant) -> Result<Option<Vec<u8>>, String> {
        // A server that hangs must leave time for the stacks, which then say why.
        let until = until.min(Instant::now() + SERVER_LIMIT);
        let (mut why, mut empty) = (String::new(), None);
        for handler in HANDLERS {
            let answer = match (&self.socket, self.port) {
                (Some(socket), _) => {
                    let handle = target.open(socket, Wanted::Socket)?;
                    let stream = UnixStream::connect(format!("/proc/self/fd/{}", handle.as_raw_fd()))
                        .map_err(|e| format!("{}: {e}", socket.display()))?;
                    post(stream, UnixStream::set_read_timeout, UnixStream::set_write_timeout, handler, until)
                }
                (None, Some(port)) => {
                    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                    let stream = TcpStream::connect_timeout(&address, Duration::from_secs(1))
                        .map_err(|e| format!("worker server at {address}: {e}"))?;
                    post(stream, TcpStream::set_read_timeout, TcpStream::set_write_timeout, handler, until)
                }
                (None, None) => return Err("no worker server".to_owned()),
            };
            match answer {
                Ok((200, _)) if handler == HANDLERS[0] => return Ok(None),
                // A process without NCCL gives a pickle without entries, and its entries as JSON (torch 2.15 with Gloo).
                Ok((200, body)) if body.windows(ENTRY.len()).any(|window| window == ENTRY) => return Ok(Some(body)),
                Ok((200, body)) if is_whole(&body) => empty = empty.or(Some(body)),
                Ok((status, _)) => why = format!("its worker server answered {status} to {handler}"),
                Err(error) => why = format!("its worker server, asked for {handler}: {error}"),
            }
        }
        empty.map(Some).ok_or(why)
    }

    /// Takes what came of asking.
    pub(crate) fn take(&self, target: &Target, asked: Asked, until: Instant) -> Result<Dump, String> {
        match asked {
            Asked::Bytes(bytes) => Ok((bytes, String::new())),
            Asked::File(before, how) => self.wait_for_file(target, &before, how, until),
            Asked::NoWay(why) => self.own_dump(target).ok_or(why),
        }
    }

    /// The file that is not as before any more, once it is whole.
    fn wait_for_file(
        &self,
        target: &Target,
        before: &[Option<Print>],
        how: &str,
        until: Instant,
    ) -> Result<Dump, String> {
        let mut last: Vec<Option<Print>> = before.to_vec();
        loop {
            for (index, path) in self.files.iter().enumerate() {
                let now = print_of(target, path);
                let changed = now.is_some() && now != before[index];
                let stands = now == std::mem::replace(&mut last[index], now);
                if changed
                    && stands
                    && let Ok(bytes) = read(target, path)
                    && is_whole(&bytes)
                {
                    return Ok((bytes, String::new()));
                }
            }
            if Instant::now() + POLL >= until {
                break;
            }
            std::thread::sleep(POLL);
        }
        let files: Vec<String> = self.files.iter().map(|path| path.display().to_string()).collect();
        Err(format!(
            "no new dump in {}, though {how}: does a thread hold the interpreter's lock (a dump with call stacks waits \
             for it), or does the job write dumps elsewhere ({} is read from its environment at start)?",
            files.join(" or "),
            PREFIXES[0]
        ))
    }

    /// A dump that the job has written for itself, not long ago.
    fn own_dump(&self, target: &Target) -> Option<Dump> {
        // Torch's default path is the same for all jobs of a user: a process without Python has written none of them.
        let started = target.started().filter(|_| target.is_python() == Ok(true))?;
        self.files.iter().find_map(|path| {
            let modified = target.open(path, Wanted::Regular).ok()?.metadata().ok()?.modified().ok()?;
            let age = SystemTime::now().duration_since(modified).unwrap_or_default();
            let fits = modified >= started && age <= OWN_DUMP_AGE_MAX;
            let bytes = fits.then(|| read(target, path).ok()).flatten().filter(|bytes| is_whole(bytes))?;
            let text =
                format!("not asked for: the job wrote it itself {} s ago, {} says", age.as_secs(), path.display());
            Some((bytes, text))
        })
    }
}

/// Writes to a FIFO that somebody reads. The only thing that a capture ever writes.
fn ring(target: &Target, pipe: &Path) -> Result<(), String> {
    let handle = target.open(pipe, Wanted::Fifo)?;
    let fifo = File::options()
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    let written = fifo.and_then(|mut fifo| fifo.write_all(b"1\n"));
    written.map_err(|e| match e.raw_os_error() {
        Some(libc::ENXIO) => format!(
            "{}: nobody reads it; is torch's monitor thread running (TORCH_NCCL_ENABLE_MONITORING=1)?",
            pipe.display()
        ),
        // Full: an earlier request waits to be read, which is a request as well.
        Some(libc::EAGAIN) => {
            format!("{}: full of requests that nobody takes; torch's monitor thread is stuck", pipe.display())
        }
        _ => format!("{}: {e}", pipe.display()),
    })
}

fn print_of(target: &Target, path: &Path) -> Option<Print> {
    let meta = target.open(path, Wanted::Regular).ok()?.metadata().ok()?;
    Some(Print { inode: meta.ino(), bytes: meta.len(), modified: (meta.mtime(), meta.mtime_nsec()) })
}

fn read(target: &Target, path: &Path) -> Result<Vec<u8>, String> {
    let at = |what: String| format!("{}: {what}", path.display());
    let handle = target.open(path, Wanted::Regular)?;
    let file =
        File::options().read(true).custom_flags(libc::O_NONBLOCK).open(format!("/proc/self/fd/{}", handle.as_raw_fd()));
    let file = file.map_err(|e| at(e.to_string()))?;
    let mut bytes = Vec::new();
    file.take(DUMP_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|e| at(e.to_string()))?;
    if bytes.len() as u64 > DUMP_BYTES_MAX {
        return Err(at(format!("larger than {DUMP_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// A pickle that ends with its STOP, or JSON that ends with its bracket: torch writes in one go, from front to end.
fn is_whole(bytes: &[u8]) -> bool {
    let end = bytes.trim_ascii_end().last().copied();
    match bytes.first() {
        Some(0x80) => bytes.last() == Some(&b'.'),
        Some(b'{' | b'[') => matches!(end, Some(b'}' | b']')),
        _ => false,
    }
}

type SetTimeout<S> = fn(&S, Option<Duration>) -> std::io::Result<()>;

/// One POST; status and body.
fn post<S: Read + Write>(
    mut stream: S,
    read_timeout: SetTimeout<S>,
    write_timeout: SetTimeout<S>,
    handler: &str,
    until: Instant,
) -> Result<(u16, Vec<u8>), String> {
    let left = || Some(until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
    let text = |e: std::io::Error| e.to_string();
    write_timeout(&stream, left()).map_err(text)?;
    let request = format!(
        "POST /handler/{handler} HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).map_err(text)?;
    let mut answer = Vec::new();
    let mut buffer = vec![0u8; 64 << 10];
    loop {
        read_timeout(&stream, left()).map_err(text)?;
        match stream.read(&mut buffer).map_err(text)? {
            0 => break,
            count => answer.extend_from_slice(&buffer[..count]),
        }
        if answer.len() as u64 > DUMP_BYTES_MAX {
            return Err(format!("an answer of more than {DUMP_BYTES_MAX} bytes"));
        }
        if Instant::now() >= until {
            return Err("it is too slow".to_owned());
        }
    }
    let head =
        answer.windows(4).take(HTTP_HEAD_BYTES_MAX).position(|four| four == b"\r\n\r\n").ok_or("no HTTP answer")?;
    let status = String::from_utf8_lossy(&answer[..head]).split(' ').nth(1).and_then(|s| s.parse().ok());
    let body = answer.split_off(head + 4);
    Ok((status.ok_or("no HTTP answer")?, body))
}
