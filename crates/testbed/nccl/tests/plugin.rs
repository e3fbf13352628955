//! The profiler plugin interface: a plugin that writes everything down, and the order NCCL promises.

mod common;

use common::*;
use mycroft_testbed_nccl::abi::{Algo, DType, Func, RedOp};
use std::collections::HashMap;
use std::ffi::{CString, c_int, c_void};

/// The recorder's record; the same layout as in `examples/recorder.rs`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Call {
    what: u64,
    version: u64,
    kind: u64,
    handle: u64,
    parent: u64,
    rank: i64,
    state: i64,
    fields: [i64; 6],
    thread: u64,
}

struct Recorder {
    mask: extern "C" fn(c_int),
    drain: extern "C" fn(extern "C" fn(*const Call, *mut c_void), *mut c_void),
}

extern "C" fn take(call: *const Call, to: *mut c_void) {
    // SAFETY: `drain` below passes a Vec, the recorder a record.
    unsafe { (*to.cast::<Vec<Call>>()).push(*call) };
}

impl Recorder {
    fn open(path: &str) -> Recorder {
        let c_path = CString::new(path).unwrap();
        // SAFETY: a plugin of our own; the symbols have these types.
        unsafe {
            let lib = libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            assert!(!lib.is_null(), "{path} is not there: cargo test builds it as an example");
            let symbol = |name: &str| libc::dlsym(lib, CString::new(name).unwrap().as_ptr());
            Recorder {
                mask: std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(symbol("recorder_mask")),
                drain: std::mem::transmute::<
                    *mut c_void,
                    extern "C" fn(extern "C" fn(*const Call, *mut c_void), *mut c_void),
                >(symbol("recorder_drain")),
            }
        }
    }

    fn calls(&self) -> Vec<Call> {
        let mut out: Vec<Call> = Vec::new();
        (self.drain)(take, (&raw mut out).cast());
        out
    }
}

/// Events by handle: what was started, the states it went through with their arguments, how often it stopped.
#[derive(Debug)]
struct Event {
    start: Call,
    states: Vec<(i64, [i64; 6])>,
    stops: usize,
}

fn events(calls: &[Call]) -> HashMap<u64, Event> {
    let mut out: HashMap<u64, Event> = HashMap::new();
    for call in calls {
        match call.what {
            1 => {
                out.insert(call.handle, Event { start: *call, states: Vec::new(), stops: 0 });
            }
            2 => out.get_mut(&call.handle).expect("stop of an event that was started").stops += 1,
            3 => {
                let event = out.get_mut(&call.handle).expect("state of an event that was started");
                assert_eq!(event.stops, 0, "a state after the stop");
                event.states.push((call.state, call.fields));
            }
            _ => {}
        }
    }
    out
}

fn of_kind(events: &HashMap<u64, Event>, kind: u64) -> Vec<&Event> {
    let mut list: Vec<&Event> = events.values().filter(|e| e.start.kind == kind).collect();
    list.sort_by_key(|e| e.start.handle);
    list
}

/// States in order, repetitions folded.
fn folded(event: &Event) -> Vec<i64> {
    let mut out: Vec<i64> = event.states.iter().map(|s| s.0).collect();
    out.dedup();
    out
}

const ELEMENTS: usize = 400_000;

/// One test function: the environment and the loaded plugin belong to the whole process.
#[test]
fn the_plugin_hears_what_nccl_tells() {
    let exe = std::env::current_exe().unwrap();
    let path = exe.parent().unwrap().parent().unwrap().join("examples/librecorder.so");
    let path = path.to_str().unwrap().to_owned();
    let recorder = Recorder::open(&path);
    // SAFETY: no other thread of this process reads the environment now.
    unsafe { std::env::set_var("NCCL_PROFILER_PLUGIN", &path) };
    for version in 1..=6u64 {
        // SAFETY: as above.
        unsafe { std::env::set_var("MYCROFT_TESTBED_PROFILER_ABI", format!("v{version}")) };
        across_hosts(&recorder, version);
        inside_a_host(&recorder, version);
        grouped_transfers(&recorder, version);
    }
    without_plugin(&recorder);
}

fn all_reduce(world: &World, times: usize) {
    let case = Case { func: Func::AllReduce, dtype: DType::F32, op: RedOp::Sum, count: ELEMENTS, root: 0 };
    world.run(|rank| {
        let send = case.input(rank.rank, rank.ranks);
        for _ in 0..times {
            rank.collective(&case, &send, false);
        }
    });
}

fn across_hosts(recorder: &Recorder, version: u64) {
    (recorder.mask)(2 | 4 | 8 | 16 | 64);
    all_reduce(&World::new(2, 2), 2);
    let calls = recorder.calls();
    let events = events(&calls);
    assert_eq!(calls.iter().filter(|c| c.what == 0).count(), 2, "one init per communicator");
    assert_eq!(calls.iter().filter(|c| c.what == 4).count(), 2, "one finalize per communicator");
    if version >= 4 {
        let init = calls.iter().find(|c| c.what == 0).unwrap();
        assert_eq!((init.fields[1], init.fields[2]), (2, 2), "nodes and ranks");
    }
    let colls = of_kind(&events, 2);
    assert_eq!(colls.len(), 4);
    for coll in &colls {
        assert_eq!(coll.stops, 1);
        assert_eq!(coll.start.fields[1], ELEMENTS as i64);
        assert_eq!(coll.start.fields[3], 2, "channels");
        let parent = &events[&coll.start.parent];
        assert_eq!(parent.start.kind, if version >= 5 { 512 } else { 1 });
    }
    let mut seqs: Vec<(i64, i64)> = colls.iter().map(|c| (c.start.rank, c.start.fields[0])).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, [(0, 0), (0, 1), (1, 0), (1, 1)], "sequence numbers per communicator and function");
    assert_eq!(of_kind(&events, 256).len(), if version >= 5 { 4 } else { 0 });
    proxy_ops(&events, version);
    let kernels = of_kind(&events, 64);
    assert_eq!(kernels.len(), if version >= 3 { 8 } else { 0 });
    for kernel in kernels {
        assert_eq!(kernel.stops, 1);
        assert_eq!(events[&kernel.start.parent].start.kind, 2);
        if version >= 4 {
            assert_eq!(folded(kernel), [22]);
            assert!(kernel.start.fields[1] > 0 && kernel.states[0].1[0] >= kernel.start.fields[1]);
        }
    }
}

fn proxy_ops(events: &HashMap<u64, Event>, version: u64) {
    let ops = of_kind(events, 8);
    // 2 ranks x 2 collectives x 2 channels x 2 directions.
    assert_eq!(ops.len(), 16);
    // A channel moves 800,000 bytes in loops of 2 x 256 KiB: 2 loops x 2 chunks x 4 steps = 16 raw steps, 8 slices.
    let raw = 16;
    let steps = if version == 1 { raw } else { raw / 2 };
    for op in &ops {
        let [pid, channel, peer, n_steps, chunk, is_send] = op.start.fields;
        assert_eq!(op.stops, 1, "v{version} {op:?}");
        assert_eq!(pid, i64::from(std::process::id()));
        assert!(channel < 2 && peer == 1 - op.start.rank && (0..2).contains(&is_send));
        assert_eq!(n_steps, steps);
        assert_eq!(chunk, 65536 * 4 * if version == 1 { 1 } else { 2 });
        assert_eq!(events[&op.start.parent].start.kind, 2);
        if version >= 4 {
            assert_eq!(folded(op), [19]);
        } else {
            old_states(op, is_send == 1, steps);
        }
        let mut children: Vec<&Event> =
            events.values().filter(|e| e.start.kind == 16 && e.start.parent == op.start.handle).collect();
        // A receive may be started again while it cannot be posted: the last start of a step counts.
        children.retain(|e| e.stops == 1);
        children.sort_by_key(|e| e.start.fields[0]);
        let numbers: Vec<i64> = children.iter().map(|e| e.start.fields[0]).collect();
        assert_eq!(numbers, (0..steps).collect::<Vec<_>>());
        let mut bytes = 0;
        for step in children {
            let expected: &[i64] = match (is_send == 1, version >= 4) {
                (true, true) => &[8, 20, 9],
                (true, false) => &[8, 9],
                (false, _) => &[10, 11, 12],
            };
            assert_eq!(folded(step), expected, "v{version}");
            bytes += step.states.last().unwrap().1[0];
        }
        if version >= 4 {
            assert_eq!(bytes, 800_000, "bytes of all steps of a channel");
        }
    }
}

/// v1 to v3: cumulative steps in the states of the operation.
fn old_states(op: &Event, is_send: bool, steps: i64) {
    for state in if is_send { 0..4 } else { 4..8i64 } {
        let counts: Vec<i64> = op.states.iter().filter(|s| s.0 == state).map(|s| s.1[1]).collect();
        assert!(counts.is_sorted(), "state {state}: {counts:?}");
        assert_eq!(counts.last(), Some(&steps), "state {state}");
    }
}

fn inside_a_host(recorder: &Recorder, version: u64) {
    (recorder.mask)(2 | 8 | 16 | 64);
    all_reduce(&World::new(2, 1).algo(Algo::Tree), 1);
    let events = events(&recorder.calls());
    assert!(of_kind(&events, 8).is_empty() && of_kind(&events, 16).is_empty(), "no proxy inside a host");
    assert_eq!(of_kind(&events, 64).len(), if version >= 3 { 4 } else { 0 }, "kernels show all the same");
    assert!(of_kind(&events, 2).iter().all(|c| version < 4 || c.start.fields[4] == i64::from(b'T')), "algorithm");
}

fn grouped_transfers(recorder: &Recorder, version: u64) {
    use mycroft_testbed_nccl::api::{ncclGroupEnd, ncclGroupStart, ncclRecv, ncclSend};
    (recorder.mask)(4 | 8 | 16);
    World::new(2, 2).run(|rank| {
        let (send, mut recv) = (vec![rank.rank as u8; 100_000], vec![0u8; 100_000]);
        let peer = 1 - rank.rank as i32;
        // SAFETY: the buffers outlive the synchronization below.
        unsafe {
            assert_eq!(ncclGroupStart(), 0);
            assert_eq!(ncclSend(send.as_ptr().cast(), send.len(), 1, peer, rank.comm, rank.stream), 0);
            assert_eq!(ncclRecv(recv.as_mut_ptr().cast(), recv.len(), 1, peer, rank.comm, rank.stream), 0);
            assert_eq!(ncclGroupEnd(), 0);
        }
        rank.sync();
        assert!(recv.iter().all(|b| i32::from(*b) == peer));
    });
    let events = events(&recorder.calls());
    let transfers = of_kind(&events, 4);
    assert_eq!(transfers.len(), 4);
    assert!(transfers.iter().all(|t| t.start.fields[..2] == [100_000, 1 - t.start.rank] && t.stops == 1));
    let ops = of_kind(&events, 8);
    assert_eq!(ops.len(), 4);
    assert!(ops.iter().all(|o| o.start.fields[3..5] == [2, 65536] && o.stops == 1), "two slots of 64 KiB");
    if version >= 5 {
        let groups = of_kind(&events, 256);
        assert_eq!(groups.len(), 2);
        assert!(groups.iter().all(|g| folded(g) == [23, 24] && g.stops == 1 && g.start.fields[0] == 2));
        assert_eq!(of_kind(&events, 1024).len(), 4);
    }
}

fn without_plugin(recorder: &Recorder) {
    // SAFETY: as in the test's body.
    unsafe { std::env::set_var("NCCL_PROFILER_PLUGIN", "none") };
    all_reduce(&World::new(2, 2), 1);
    assert!(recorder.calls().is_empty());
}
