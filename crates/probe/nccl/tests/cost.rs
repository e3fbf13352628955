//! The event path allocates nothing and makes no system call (invariant 3), each shown with a negative control.
mod driver;

use driver::{CollArgs, Ctx, Ev, Plugin, ProxyArgs, in_own_process};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::c_int;
use std::process::Command;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts each thread's allocations; the plugin's tables are linked into this binary, so its allocations count too.
struct Counting;

// SAFETY: hands everything to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's own promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's own promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// All kinds of events of a few operations, with timers near the wall clock and far from it.
fn events(plugin: &Plugin, context: Ctx, now_ns: u64) {
    for seq in 0..50 {
        let coll = plugin.coll(context, &CollArgs::all_reduce(1, 0, seq, 2));
        plugin.stop(coll);
        let p2p = plugin.p2p(context, 1, 0, true, 1, 1);
        plugin.stop(p2p);
        let kernels: [Ev; 3] = [
            plugin.kernel(context, coll, 0, now_ns),
            plugin.kernel(context, coll, 1, 5),
            plugin.kernel(context, p2p, 0, 0),
        ];
        let foreign = ProxyArgs { pid: 1, channel: 0, peer: 1, n_steps: 6, send: true };
        for (parent, args) in
            [(coll, ProxyArgs::own(0, 1, 6, true)), (p2p, ProxyArgs::own(0, 1, 6, true)), (Ev(9), foreign)]
        {
            let flow = plugin.proxy_op(context, parent, 0, &args);
            plugin.record_null(flow, driver::OP_IN_PROGRESS);
            for step in 0..6 {
                plugin.send_step(context, flow, step, 100, 2);
                plugin.recv_step(context, flow, step, 100, 0);
            }
            plugin.stop(flow);
        }
        for kernel in kernels {
            plugin.kernel_stop(kernel, now_ns);
        }
        plugin.stop(coll);
    }
}

#[test]
fn no_allocation() {
    in_own_process("no_allocation", &[], |_| {
        for abi in [3, 4, 5, 6, 7] {
            let plugin = Plugin::linked(abi);
            let mut mask = 0;
            let context = plugin.init(1, c"cost", 4, 0, &mut mask);
            let run = || {
                // A thread's first record claims its ring; from then on nothing may be allocated.
                events(&plugin, context, mycroft_ring::clock::realtime_ns());
                let before = ALLOCATIONS.get();
                events(&plugin, context, mycroft_ring::clock::realtime_ns());
                let events = ALLOCATIONS.get() - before;
                drop(std::hint::black_box(Box::new(1)));
                let control = ALLOCATIONS.get() - before - events;
                (events, control)
            };
            assert_eq!(run(), (0, 1), "on the thread that made the communicator");
            assert_eq!(std::thread::scope(|scope| scope.spawn(run).join().expect("joins")), (0, 1), "on another");
            plugin.finalize(context);
        }
    });
}

/// Allocations of everything a process does with the tracer: attach, communicators, events, finalize, also of a second
/// communicator and of one of very many ranks.
fn allocations_of_a_life(abi: u32) -> u64 {
    let plugin = Plugin::linked(abi);
    let mask = Box::leak(Box::new(0));
    // The driver asks once for its own process id.
    ProxyArgs::own(0, 1, 1, true);
    let before = ALLOCATIONS.get();
    for n_ranks in [4, 1_000_000] {
        let context = plugin.init(1, c"cost", n_ranks, 0, mask);
        events(&plugin, context, mycroft_ring::clock::realtime_ns());
        plugin.finalize(context);
    }
    ALLOCATIONS.get() - before
}

#[test]
fn no_allocation_from_attach_to_finalize() {
    in_own_process("no_allocation_from_attach_to_finalize", &[], |dir| {
        for abi in [3, 4, 5, 6, 7] {
            assert_eq!(allocations_of_a_life(abi), 0, "v{abi}");
        }
        assert_eq!(mycroft_ring::segment::list(dir).expect("readable").len(), 1, "it was traced");
    });
}

#[test]
fn no_allocation_where_the_tracer_refuses() {
    in_own_process("no_allocation_where_the_tracer_refuses", &[("MYCROFT_DIR", "/proc/none/of/ours")], |_| {
        assert_eq!(allocations_of_a_life(6), 0);
    });
}

/// Exit status of a process that came through.
const CAME_THROUGH: c_int = 42;
/// What a filtered process is to do.
const CHILD: &str = "MYCROFT_TEST_FILTERED";

/// From here on any system call but exit_group kills the process. False where the kernel has no seccomp.
fn kill_on_any_system_call() -> bool {
    let (load_number, jump_if_equal, give) = (0x20, 0x15, 0x06);
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        op(load_number, 0, 0, 0),
        op(jump_if_equal, 0, 1, libc::SYS_exit_group as u32),
        op(give, 0, 0, libc::SECCOMP_RET_ALLOW),
        op(give, 0, 0, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: a filter of four valid instructions; only this process is concerned.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) == 0
    }
}

fn filtered(test: &str, what: &str) -> std::process::ExitStatus {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, what);
    command.env("MYCROFT_DIR", dir.path()).env("MYCROFT_SEGMENT_BYTES", "8388608");
    command.output().expect("the test binary runs").status
}

fn child(what: &str) -> ! {
    let plugin = Plugin::open(6);
    let mut mask = 0;
    let context = plugin.init(1, c"cost", 4, 0, &mut mask);
    let now_ns = mycroft_ring::clock::realtime_ns();
    events(&plugin, context, now_ns);
    if !kill_on_any_system_call() {
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(CAME_THROUGH + 1) };
    }
    if what == "events" {
        events(&plugin, context, now_ns);
    } else {
        // SAFETY: a harmless system call.
        unsafe { libc::getppid() };
    }
    // SAFETY: ends the child at once.
    unsafe { libc::_exit(CAME_THROUGH) }
}

#[test]
fn no_system_call() {
    if let Ok(what) = std::env::var(CHILD) {
        child(&what);
    }
    let status = filtered("no_system_call", "events");
    if status.code() == Some(CAME_THROUGH + 1) {
        // This kernel has no seccomp: it cannot be shown here.
        return;
    }
    assert_eq!(status.code(), Some(CAME_THROUGH), "the event path made a system call: {status}");
    let control = filtered("no_system_call", "control");
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&control), Some(libc::SIGSYS), "{control}");
}
