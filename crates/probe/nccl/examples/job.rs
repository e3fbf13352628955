//! A small host program in NCCL's place, for `tests/scarce.rs`: it opens the tracer and, in one forked process for each
//! case, lowers a limit or makes calls fail, lives a job's life through the plugin's interface, and ends in order.
//!
//! `job limits`, or under LD_PRELOAD of `faults`: `job faults`. Each line: the case, how the process ended, whether it was
//! traced, how many files it left, and what the tracer told NCCL's log.
#[path = "../tests/driver/mod.rs"]
mod driver;

use driver::{CollArgs, Ev, Plugin, ProxyArgs};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::io::Write;
use std::path::Path;

/// The tracer's lines, one after the other.
static mut SAID: [u8; 4096] = [0; 4096];

/// NCCL's logger, whose sixth argument is the line.
unsafe extern "C" fn logger(_: c_int, _: c_ulong, _: *const c_char, _: c_int, _: *const c_char, line: *const c_char) {
    // SAFETY: the plugin's C string.
    let line = unsafe { CStr::from_ptr(line) }.to_bytes();
    let said = &raw mut SAID;
    // SAFETY: one thread, and at most one byte less than there is room.
    unsafe { std::ptr::copy_nonoverlapping(line.as_ptr(), said.cast(), line.len().min(4095)) };
}

/// A communicator of some and one of a million ranks, with events of all kinds.
fn live(plugin: &Plugin, mask: &mut c_int) {
    driver::LOG.store(logger as *mut c_void, std::sync::atomic::Ordering::Relaxed);
    for n_ranks in [4, 1_000_000] {
        let context = plugin.init(7, c"scarce", n_ranks, 0, mask);
        for seq in 0..20 {
            let coll = plugin.coll(context, &CollArgs::all_reduce(7, 0, seq, 1));
            plugin.stop(coll);
            let p2p = plugin.p2p(context, 7, 0, true, 1, 1);
            plugin.stop(p2p);
            for (parent, send) in [(coll, true), (coll, false), (p2p, true), (Ev(9), true)] {
                let flow = plugin.proxy_op(context, parent, 0, &ProxyArgs::own(0, 1, 4, send));
                plugin.record_null(flow, driver::OP_IN_PROGRESS);
                (0..4).for_each(|step| plugin.send_step(context, flow, step, 100, 1));
                plugin.stop(flow);
            }
            plugin.kernel_stop(plugin.kernel(context, coll, 0, 0), 0);
        }
        plugin.finalize(context);
    }
}

/// What happens between the fork and the end.
trait Case {
    /// Before the tracer's first call.
    fn begin(&self);
    /// After its last: whether there was anything left to fail.
    fn end(&self) -> bool;
}

/// A soft limit.
struct Limit {
    resource: libc::__rlimit_resource_t,
    value: u64,
}

impl Limit {
    fn set(&self, value: Option<u64>) {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: a struct to write to and read from.
        unsafe {
            libc::getrlimit(self.resource, &raw mut limit);
            limit.rlim_cur = value.map_or(limit.rlim_max, |value| value.min(limit.rlim_max));
            libc::setrlimit(self.resource, &raw const limit);
        }
    }
}

impl Case for Limit {
    fn begin(&self) {
        self.set(Some(self.value));
    }
    fn end(&self) -> bool {
        self.set(None);
        true
    }
}

/// A call that fails.
struct Fault {
    arm: unsafe extern "C" fn(c_uint, c_uint, c_int),
    disarm: unsafe extern "C" fn() -> c_uint,
    kind: c_uint,
    nth: c_uint,
    ever: bool,
}

impl Case for Fault {
    fn begin(&self) {
        // SAFETY: the preloaded library's function.
        unsafe { (self.arm)(self.kind, self.nth, c_int::from(self.ever)) };
    }
    fn end(&self) -> bool {
        // SAFETY: as above.
        unsafe { (self.disarm)() > self.nth }
    }
}

/// Exit status where the fault's number was beyond the last call.
const NOTHING_FAILED: c_int = 3;

/// Lives the case in a process of its own and prints its line; whether more of its kind can fail.
fn play(plugin: &Plugin, dir: &Path, name: &str, case: &dyn Case) -> bool {
    let mask: &'static mut c_int = Box::leak(Box::new(0));
    let mut pipe = [0; 2];
    // SAFETY: a place for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    // SAFETY: this program has one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        case.begin();
        live(plugin, mask);
        let more = case.end();
        let traced = std::fs::read_dir(dir).map_or(0, Iterator::count);
        let said = &raw const SAID;
        // SAFETY: one thread; the last byte is always zero.
        let said = unsafe { CStr::from_ptr(said.cast()) }.to_string_lossy();
        let line = format!("traced {traced} said {said}");
        // SAFETY: the pipe's end and a text.
        unsafe { libc::write(pipe[1], line.as_ptr().cast(), line.len()) };
        // SAFETY: an orderly end with all exit functions.
        unsafe { libc::exit(if more { 0 } else { NOTHING_FAILED }) };
    }
    let (mut status, mut buffer) = (0, [0u8; 4096]);
    // SAFETY: the child just made, the pipe just made, and room for what it says.
    let told = unsafe {
        libc::close(pipe[1]);
        libc::waitpid(child, &raw mut status, 0);
        let told = libc::read(pipe[0], buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(pipe[0]);
        usize::try_from(told).unwrap_or(0)
    };
    let left = std::fs::read_dir(dir).map_or(0, Iterator::count);
    let end = if libc::WIFSIGNALED(status) {
        format!("signal {}", libc::WTERMSIG(status))
    } else {
        format!("exit {}", libc::WEXITSTATUS(status))
    };
    let told = String::from_utf8_lossy(&buffer[..told]);
    writeln!(std::io::stdout(), "{name}: {end} left {left} {told}").expect("told");
    status == 0
}

/// Bytes in use that count against a limit: the field of /proc/self/statm.
fn used(field: usize) -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(field).and_then(|pages| pages.trim().parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn limits(plugin: &Plugin, dir: &Path) {
    let sizes = [
        0,
        1,
        4 << 10,
        64 << 10,
        256 << 10,
        300 << 10,
        1 << 20,
        4 << 20,
        8 << 20,
        16 << 20,
        64 << 20,
        256 << 20,
        1 << 40,
    ];
    let above = |used: u64| sizes.map(|size| used + size).into_iter().chain([0]).collect::<Vec<u64>>();
    let plain = sizes.to_vec();
    let few = (0..24).chain([64, 1024]).collect::<Vec<u64>>();
    let all = [
        ("FSIZE", libc::RLIMIT_FSIZE, plain.clone()),
        ("AS", libc::RLIMIT_AS, above(used(0))),
        ("DATA", libc::RLIMIT_DATA, above(used(5))),
        ("NOFILE", libc::RLIMIT_NOFILE, few.clone()),
        ("MEMLOCK", libc::RLIMIT_MEMLOCK, plain.clone()),
        ("NPROC", libc::RLIMIT_NPROC, few),
        ("STACK", libc::RLIMIT_STACK, plain.clone()),
        ("CORE", libc::RLIMIT_CORE, plain),
    ];
    for (name, resource, values) in all {
        for value in values {
            play(plugin, dir, &format!("{name} {value}"), &Limit { resource, value });
        }
    }
}

/// Calls of one kind that are made to fail at most, one after the other.
const FAULTS_MAX: c_uint = 400;

fn faults(plugin: &Plugin, dir: &Path) {
    // SAFETY: C strings.
    let (arm, disarm) = unsafe {
        let symbol = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        (symbol(c"fault_arm"), symbol(c"fault_disarm"))
    };
    assert!(!arm.is_null() && !disarm.is_null(), "run under LD_PRELOAD of the faults");
    // SAFETY: the preloaded library's functions have these signatures.
    let (arm, disarm) = unsafe {
        (
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_uint, c_uint, c_int)>(arm),
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_uint>(disarm),
        )
    };
    let kinds = ["malloc", "mmap", "allocate", "open", "directory", "threads", "stat"];
    for (kind, name) in (1..).zip(kinds) {
        for ever in [false, true] {
            for nth in 0..FAULTS_MAX {
                let case = Fault { arm, disarm, kind, nth, ever };
                if !play(plugin, dir, &format!("{name} {nth}{}", if ever { "+" } else { "" }), &case) {
                    break;
                }
            }
        }
    }
}

fn main() {
    let dir = std::path::PathBuf::from(std::env::var_os("MYCROFT_DIR").unwrap_or_default());
    let plugin = Plugin::open(6);
    ProxyArgs::own(0, 1, 1, true);
    match std::env::args().nth(1).as_deref() {
        Some("limits") => limits(&plugin, &dir),
        Some("faults") => faults(&plugin, &dir),
        other => panic!("limits or faults, not {other:?}"),
    }
    std::io::stdout().flush().expect("told");
}
