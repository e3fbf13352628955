//! The calls as JSON lines, one file a process (`docs/formats/calls.md`): written where `RECORDER_LINES` names a file.
//!
//! Like the rest of the recorder it reads descriptors by the byte offsets of NCCL's headers.
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::sync::Mutex;
use std::time::Instant;

/// What the file tells of a process so far.
struct Lines {
    file: File,
    begun: Instant,
    /// Small numbers for handles, contexts, threads, buffers and streams, in the order in which they were first seen.
    handles: BTreeMap<u64, u64>,
    contexts: BTreeMap<u64, u64>,
    threads: BTreeMap<u64, u64>,
    pointers: BTreeMap<u64, u64>,
    next_handle: u64,
}

static LINES: Mutex<Option<Lines>> = Mutex::new(None);

/// Reads `T` at byte `at` of a descriptor.
unsafe fn at<T: Copy>(descr: *const u8, at: usize) -> T {
    // SAFETY: the caller passes a whole descriptor of the version whose offsets it uses.
    unsafe { descr.add(at).cast::<T>().read_unaligned() }
}

/// The C string whose pointer lies at byte `at` of a descriptor, quoted.
unsafe fn text(descr: *const u8, offset: usize) -> String {
    // SAFETY: as for `at`.
    let pointer = unsafe { at::<*const c_char>(descr, offset) };
    // SAFETY: the library gives NULL or static strings.
    let text = if pointer.is_null() { c"" } else { unsafe { CStr::from_ptr(pointer) } };
    format!("{:?}", text.to_string_lossy())
}

fn small(map: &mut BTreeMap<u64, u64>, value: u64) -> u64 {
    if value == 0 {
        return 0;
    }
    let next = map.len() as u64 + 1;
    *map.entry(value).or_insert(next)
}

impl Lines {
    fn open(version: u64) -> Option<Lines> {
        let path = std::env::var_os("RECORDER_LINES")?;
        let mut file = File::create(path).expect("the file can be made");
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let number = |name: &str| variable(name).parse::<u64>().unwrap_or(0);
        writeln!(
            file,
            "{{\"format\":\"nccl-profiler-calls/1\",\"abi\":{version},\"nccl\":{:?},\"test\":{:?},\"rank\":{},\
             \"ranks\":{},\"env\":\"\",\"proxy_control_calls_left_out\":0}}",
            format!("testbed {}", variable("MYCROFT_TESTBED_NCCL")).trim_end(),
            variable("RECORDER_TEST"),
            number("RANK"),
            number("WORLD_SIZE"),
        )
        .expect("there is room");
        let none = BTreeMap::new;
        let begun = Instant::now();
        let (handles, contexts, threads, pointers) = (none(), none(), none(), none());
        Some(Lines { file, begun, handles, contexts, threads, pointers, next_handle: 0 })
    }

    fn line(&mut self, call: &str, rest: &str) {
        // SAFETY: plain system call.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
        let known = self.threads.len();
        let thread = small(&mut self.threads, thread) - 1;
        if self.threads.len() > known {
            writeln!(self.file, "{{\"thread\":{thread},\"name\":\"testbed\"}}").expect("there is room");
        }
        let t = self.begun.elapsed().as_nanos();
        writeln!(self.file, "{{\"t\":{t},\"thread\":{thread},\"call\":\"{call}\"{rest}}}").expect("there is room");
    }
}

/// Does something with the file, where one is wanted.
fn with(version: u64, act: impl FnOnce(&mut Lines)) {
    let mut lines = LINES.lock().expect("no writer failed");
    if lines.is_none() && version > 0 {
        *lines = Lines::open(version);
    }
    if let Some(lines) = lines.as_mut() {
        act(lines);
    }
}

/// `init`; `comm`: hash, nodes, ranks, rank where the version tells them.
pub fn init(version: u64, context: u64, comm: Option<[u64; 4]>, mask: c_int) {
    with(version, |lines| {
        let context = small(&mut lines.contexts, context);
        let mut rest = format!(",\"context\":{context}");
        if let Some([hash, nodes, ranks, rank]) = comm {
            let comm = format!("\"hash\":\"{hash:016x}\",\"nodes\":{nodes},\"ranks\":{ranks},\"rank\":{rank}");
            let _ = write!(rest, ",\"comm\":\"\",{comm}");
        }
        let _ = write!(rest, ",\"mask\":{mask}");
        lines.line("init", &rest);
    });
}

/// `startEvent`.
/// # Safety
/// `d` must be a descriptor of this version.
pub unsafe fn start(version: u64, context: u64, handle: u64, d: *const u8) {
    with(version, |lines| {
        // SAFETY: the caller's promise; each kind's member is read by its own offsets.
        let (kind, parent, rank) = unsafe {
            let kind = if version <= 4 { u64::from(at::<u8>(d, 0)) } else { at::<u64>(d, 0) };
            (kind, at::<u64>(d, 8), at::<i32>(d, 16))
        };
        let parent = if parent == 0 { 0 } else { lines.handles.get(&parent).copied().unwrap_or(0) };
        lines.next_handle += 1;
        let number = lines.next_handle;
        lines.handles.insert(handle, number);
        let context = small(&mut lines.contexts, context);
        let mut rest = format!(",\"context\":{context},\"type\":{kind},\"parent\":{parent},\"rank\":{rank}");
        // SAFETY: as above.
        let _ = unsafe {
            match kind {
                2 => coll(lines, version, d, &mut rest),
                4 => p2p(lines, version, d, &mut rest),
                8 => proxy_op(d, &mut rest),
                16 => write!(rest, ",\"step\":{}", at::<i32>(d, 24)),
                64 if version >= 4 => {
                    write!(rest, ",\"channel\":{},\"timer\":{}", at::<u8>(d, 24), at::<u64>(d, 32))
                }
                64 => write!(rest, ",\"channel\":{}", at::<u8>(d, 24)),
                256 => write!(rest, ",\"graph\":{},\"depth\":{}", at::<u8>(d, 24) != 0, at::<i32>(d, 28)),
                512 | 1024 | 2048 => api(lines, kind, d, &mut rest),
                _ => Ok(()),
            }
        };
        let _ = write!(rest, ",\"handle\":{number}");
        lines.line("start", &rest);
    });
}

unsafe fn api(lines: &mut Lines, kind: u64, d: *const u8, rest: &mut String) -> std::fmt::Result {
    // SAFETY: the kind says that this member is filled; the same offsets in interfaces 5 and 6.
    unsafe {
        if kind == 2048 {
            return write!(rest, ",\"stream\":{}", small(&mut lines.pointers, at(d, 24)));
        }
        write!(rest, ",\"func\":{},\"count\":{},\"datatype\":{}", text(d, 24), at::<u64>(d, 32), text(d, 40))?;
        let stream = if kind == 512 { 56 } else { 48 };
        if kind == 512 {
            write!(rest, ",\"root\":{}", at::<i32>(d, 48))?;
        }
        let (number, graph) = (small(&mut lines.pointers, at(d, stream)), at::<u8>(d, stream + 8) != 0);
        write!(rest, ",\"stream\":{number},\"graph\":{graph}")
    }
}

/// `parentGroup`, which interfaces 5 and 6 have.
unsafe fn parent_group(
    lines: &Lines,
    version: u64,
    d: *const u8,
    offset: usize,
    rest: &mut String,
) -> std::fmt::Result {
    if version < 5 {
        return Ok(());
    }
    // SAFETY: as for `api`.
    let group = unsafe { at::<u64>(d, offset) };
    write!(rest, ",\"parent_group\":{}", lines.handles.get(&group).copied().unwrap_or(0))
}

unsafe fn coll(lines: &mut Lines, version: u64, d: *const u8, rest: &mut String) -> std::fmt::Result {
    // SAFETY: the kind says that this member is filled; offsets of the version's header.
    unsafe {
        let (send, recv, count, root) = if version <= 3 { (56, 64, 72, 80) } else { (40, 48, 56, 64) };
        let (send, recv) = (small(&mut lines.pointers, at(d, send)), small(&mut lines.pointers, at(d, recv)));
        let (count, root) = (at::<u64>(d, count), at::<i32>(d, root));
        let places = format!("\"send_buff\":{send},\"recv_buff\":{recv},\"count\":{count},\"root\":{root}");
        let old =
            |d| format!("\"comm\":{},\"hash\":\"{:016x}\",\"seq\":{}", text(d, 24), at::<u64>(d, 32), at::<u64>(d, 40));
        match version {
            1 => write!(
                rest,
                ",{},\"func\":{},{places},\"datatype\":{},\"op\":{},\"traffic\":{},\"max_channels\":{},\"warps\":{},\
                 \"algo\":{},\"proto\":{},\"collnet\":{},\"nvls\":{}",
                old(d),
                at::<u8>(d, 48),
                at::<u8>(d, 84),
                at::<u32>(d, 88),
                at::<u64>(d, 96),
                at::<u8>(d, 104),
                at::<u8>(d, 105),
                at::<u8>(d, 106),
                at::<u8>(d, 107),
                at::<i32>(d, 108),
                at::<i32>(d, 112)
            ),
            2 | 3 => {
                let channels = if version == 2 { 104 } else { 96 };
                write!(
                    rest,
                    ",{},\"func\":{},{places},\"datatype\":{},\"max_channels\":{},\"warps\":{},\"algo\":{},\
                     \"proto\":{}",
                    old(d),
                    text(d, 48),
                    text(d, 88),
                    at::<u8>(d, channels),
                    at::<u8>(d, channels + 1),
                    text(d, channels + 8),
                    text(d, channels + 16)
                )
            }
            _ => {
                write!(
                    rest,
                    ",\"seq\":{},\"func\":{},{places},\"datatype\":{},\"channels\":{},\"warps\":{},\"algo\":{},\"proto\":{}",
                    at::<u64>(d, 24),
                    text(d, 32),
                    text(d, 72),
                    at::<u8>(d, 80),
                    at::<u8>(d, 81),
                    text(d, 88),
                    text(d, 96)
                )?;
                parent_group(lines, version, d, 104, rest)
            }
        }
    }
}

unsafe fn p2p(lines: &mut Lines, version: u64, d: *const u8, rest: &mut String) -> std::fmt::Result {
    // SAFETY: as for `coll`.
    unsafe {
        let buff = if version <= 3 { 48 } else { 32 };
        let buff = small(&mut lines.pointers, at(d, buff));
        match version {
            1..=3 => {
                let (func, datatype) = match version {
                    1 => (at::<u8>(d, 40).to_string(), at::<u8>(d, 56).to_string()),
                    _ => (text(d, 40), text(d, 56)),
                };
                let (comm, hash) = (text(d, 24), at::<u64>(d, 32));
                let (count, peer) = (at::<u64>(d, 64), at::<i32>(d, 72));
                write!(
                    rest,
                    ",\"comm\":{comm},\"hash\":\"{hash:016x}\",\"func\":{func},\"buff\":{buff},\"datatype\":{datatype},\
                     \"count\":{count},\"peer\":{peer}"
                )
            }
            _ => {
                write!(
                    rest,
                    ",\"func\":{},\"buff\":{buff},\"datatype\":{},\"count\":{},\"peer\":{},\"channels\":{}",
                    text(d, 24),
                    text(d, 40),
                    at::<u64>(d, 48),
                    at::<i32>(d, 56),
                    at::<u8>(d, 60)
                )?;
                parent_group(lines, version, d, 64, rest)
            }
        }
    }
}

unsafe fn proxy_op(d: *const u8, rest: &mut String) -> std::fmt::Result {
    // SAFETY: as for `coll`; the same layout in all versions.
    let (pid, channel, peer, steps, chunk, send) = unsafe {
        (at::<i32>(d, 24), at::<u8>(d, 28), at::<i32>(d, 32), at::<i32>(d, 36), at::<i32>(d, 40), at::<i32>(d, 44))
    };
    let own = pid.unsigned_abs() == std::process::id();
    write!(
        rest,
        ",\"own_pid\":{own},\"channel\":{channel},\"peer\":{peer},\"steps\":{steps},\"chunk\":{chunk},\"send\":{send}"
    )
}

/// `recordEventState`.
/// # Safety
/// `args` must be NULL or this version's state arguments.
pub unsafe fn state(version: u64, handle: u64, state: c_int, args: *const c_void) {
    with(0, |lines| {
        let handle = lines.handles.get(&handle).copied().unwrap_or(0);
        let mut rest = format!(",\"handle\":{handle},\"state\":{state}");
        if !args.is_null() {
            // SAFETY: the union begins with a size or a time; before v4 the number of steps follows.
            let value = unsafe { at::<u64>(args.cast(), 0) };
            let _ = match (version, state) {
                // SAFETY: 16 bytes in these versions.
                (1..=3, 0..=7) => write!(rest, ",\"trans\":{value},\"steps\":{}", unsafe { at::<i32>(args.cast(), 8) }),
                (4.., 8..=12 | 20) => write!(rest, ",\"trans\":{value}"),
                (4.., 22) => write!(rest, ",\"timer\":{value}"),
                _ => Ok(()),
            };
        }
        lines.line("state", &rest);
    });
}

/// `stopEvent`.
pub fn stop(handle: u64) {
    with(0, |lines| {
        let handle = lines.handles.get(&handle).copied().unwrap_or(0);
        lines.line("stop", &format!(",\"handle\":{handle}"));
    });
}

/// `finalize`.
pub fn finalize(context: u64) {
    with(0, |lines| {
        let context = small(&mut lines.contexts, context);
        lines.line("finalize", &format!(",\"context\":{context}"));
    });
}
