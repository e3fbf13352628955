//! The pitfalls of NCCL's profiler interface, each as NCCL does it: foreign pointers, repeated, missing and late events,
//! stale handles, reload, fork, threads.
mod driver;

use driver::{CollArgs, Ctx, Ev, Plugin, ProxyArgs, drain, flows, full, in_own_process, open_segment, ops};
use mycroft_record::{CommId, CommRank, Direction, FlowCounters, OpClass, OpKind, OpSeq};
use mycroft_ring::{DropKind, RawRecord};
use std::ffi::c_int;

const HASH: u64 = 0xfeed;

fn begin(plugin: &Plugin, n_ranks: c_int, rank: c_int) -> Ctx {
    let mut mask = 0;
    plugin.init(HASH, c"", n_ranks, rank, &mut mask)
}

fn all_reduce(plugin: &Plugin, context: Ctx, n_channels: u8) -> Ev {
    plugin.coll(context, &CollArgs::all_reduce(HASH, 0, 0, n_channels))
}

fn own(plugin: &Plugin, context: Ctx, parent: Ev, send: bool) -> Ev {
    let op = plugin.proxy_op(context, parent, 0, &ProxyArgs::own(0, 1, 4, send));
    if plugin.abi >= 4 {
        plugin.record_null(op, driver::OP_IN_PROGRESS);
    }
    op
}

#[test]
fn kernels_alone_tell_of_an_operation_inside_a_host() {
    in_own_process("kernels_alone_tell_of_an_operation_inside_a_host", &[], |dir| {
        let plugin = Plugin::open(6);
        let context = begin(&plugin, 2, 0);
        let coll = all_reduce(&plugin, context, 3);
        let early = plugin.kernel(context, coll, 0, 0);
        plugin.kernel_stop(early, 0);
        plugin.stop(coll);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for channel in 1..3 {
                    let kernel = plugin.kernel(context, coll, channel, 123_456);
                    plugin.kernel_stop(kernel, 123_999);
                    plugin.stop(kernel);
                    plugin.record(kernel, driver::KERNEL_STOP, 5);
                }
            });
        });
        let done = ops(&drain(&mut open_segment(dir)));
        assert_eq!(done.len(), 1);
        assert_eq!((done[0].flows, done[0].observed, done[0].op.n_channels), (0, true, 3));
        assert!(done[0].op.started_ticks < done[0].op.started_last_ticks);
        assert!(done[0].ended_first_ticks < done[0].ended_ticks);
    });
}

#[test]
fn stage_times_count_from_the_kernel_start() {
    in_own_process("stage_times_count_from_the_kernel_start", &[], |dir| {
        let plugin = Plugin::open(6);
        let context = begin(&plugin, 2, 0);
        let first = all_reduce(&plugin, context, 1);
        plugin.kernel_stop(plugin.kernel(context, first, 0, 0), 0);
        let coll = all_reduce(&plugin, context, 1);
        let send = own(&plugin, context, coll, true);
        let recv = own(&plugin, context, coll, false);
        let sent = plugin.step(context, send, 0);
        plugin.record(sent, driver::SEND_GPU_WAIT, 0);
        // Data arrives while the operation is still enqueued: it costs the operation nothing.
        let received = plugin.step(context, recv, 0);
        plugin.record(received, driver::RECV_WAIT, 0);
        spin_us(3_000);
        plugin.record(received, driver::RECV_FLUSH_WAIT, 8);
        let began = std::time::Instant::now();
        let kernel = plugin.kernel(context, coll, 0, 0);
        spin_us(1_000);
        plugin.record(sent, driver::SEND_PEER_WAIT, 0);
        // However long this thread waited for a processor meanwhile; the 3 ms before the kernel are beyond it.
        let most_us = began.elapsed().as_micros() as u32 + 1_500;
        spin_us(2_000);
        plugin.record(sent, driver::SEND_WAIT, 8);
        plugin.stop(sent);
        plugin.stop(send);
        plugin.stop(recv);
        plugin.kernel_stop(kernel, 0);
        let done = flows(&drain(&mut open_segment(dir)));
        assert!((1_000..most_us).contains(&done[0].stage_us[0]), "posted before the kernel: {:?}", done[0].stage_us);
        assert!(done[0].stage_us[1] >= 2_000, "the receiver gave no credit for 2 ms: {:?}", done[0].stage_us);
        assert_eq!(done[0].stage_us, done[0].stage_max_us);
        assert_eq!(done[1].stage_us[0], 0, "the wire was done before the kernel began");
    });
}

fn spin_us(us: u128) {
    let begin = std::time::Instant::now();
    while begin.elapsed().as_micros() < us {
        std::hint::spin_loop();
    }
}

#[test]
fn a_lost_kernel_stop_is_told_by_the_next_collective() {
    in_own_process("a_lost_kernel_stop_is_told_by_the_next_collective", &[], |dir| {
        let plugin = Plugin::open(5);
        let context = begin(&plugin, 2, 0);
        let lost = all_reduce(&plugin, context, 1);
        plugin.stop(lost);
        plugin.kernel(context, lost, 0, 0);
        let mut reader = open_segment(dir);
        assert!(ops(&drain(&mut reader)).is_empty());
        let next = all_reduce(&plugin, context, 1);
        plugin.stop(next);
        plugin.kernel(context, next, 0, 0);
        let done = ops(&drain(&mut reader));
        assert_eq!(done.len(), 1);
        assert_eq!(done[0].op.id.seq, OpSeq(0));
    });
}

fn point_to_point(test: &str, abi: u32) {
    in_own_process(test, &[("MYCROFT_KERNEL_EVENTS", "off")], |dir| {
        let plugin = Plugin::open(abi);
        let mut mask = 0;
        let context = plugin.init(HASH, c"PP", 4, 0, &mut mask);
        assert_eq!(mask, if abi >= 4 { 30 } else { 14 });
        for (send, peer) in [(true, 1), (true, 1), (false, 1), (true, 2), (false, 3)] {
            let op = plugin.p2p(context, HASH, 0, send, peer, 1);
            let flow = plugin.proxy_op(context, op, 0, &ProxyArgs::own(0, peer, 1, send));
            plugin.stop(op);
            match (abi >= 4, send) {
                (true, _) => {
                    plugin.record_null(flow, driver::OP_IN_PROGRESS);
                    if send {
                        plugin.send_step(context, flow, 0, 4096, 0);
                    } else {
                        plugin.recv_step(context, flow, 0, 4096, 0);
                    }
                }
                (false, true) => (0..4).for_each(|state| plugin.record_op(flow, state, state as u64 / 2 * 4096, 1)),
                (false, false) => {
                    (4..8).for_each(|state| plugin.record_op(flow, state, (state as u64 - 4) / 2 * 4096, 1))
                }
            }
            plugin.stop(flow);
        }
        let records = drain(&mut open_segment(dir));
        let ids: Vec<_> =
            ops(&records).iter().map(|done| (done.op.id.class, done.op.id.peer.0, done.op.id.seq.0)).collect();
        let (send, recv) = (OpClass::Send, OpClass::Recv);
        assert_eq!(ids, [(send, 1, 0), (send, 1, 1), (recv, 1, 0), (send, 2, 0), (recv, 3, 0)]);
        for (op, flow) in ops(&records).iter().zip(flows(&records)) {
            assert_eq!(op.op.id, flow.flow.op);
            assert_eq!((op.observed, op.op.count, op.op.nccl_seq), (true, 1024, 0));
            assert_eq!(op.op.kind, if op.op.id.class == send { OpKind::Send } else { OpKind::Recv });
            assert_eq!((flow.counters, flow.bytes), (full(1), 4096));
        }
    });
}

macro_rules! point_to_point_each {
    ($($name:ident $abi:literal;)+) => { $(#[test] fn $name() { point_to_point(stringify!($name), $abi); })+ };
}

point_to_point_each! {
    point_to_point_v1 1;
    point_to_point_v3 3;
    point_to_point_v4 4;
    point_to_point_v6 6;
    point_to_point_v7 7;
}

#[test]
fn another_processs_operation_is_told_apart_without_touching_its_pointers() {
    in_own_process("another_processs_operation_is_told_apart_without_touching_its_pointers", &[], |dir| {
        let plugin = Plugin::open(5);
        begin(&plugin, 4, 0);
        let foreign = ProxyArgs { pid: 1, channel: 2, peer: 3, n_steps: 2, send: true };
        // Addresses of the other process: nothing is mapped there.
        let context = Ctx(0x7f00_dead_0000);
        let flow = plugin.proxy_op(context, Ev(0x7f00_beef_0000), 2, &foreign);
        plugin.record_null(flow, driver::OP_IN_PROGRESS);
        plugin.send_step(context, flow, 0, 100, 0);
        plugin.send_step(context, flow, 1, 100, 1);
        let mut reader = open_segment(dir);
        let live = reader.flows().expect("readable").items;
        assert_eq!((live.len(), live[0].proxied_for_pid, live[0].counters), (1, 1, full(2)));
        plugin.stop(flow);
        let done = flows(&drain(&mut reader));
        assert_eq!((done.len(), done[0].proxied_for_pid, done[0].bytes), (1, 1, 200));
        assert_eq!((done[0].flow.op.comm, done[0].flow.op.peer), (CommId(0), CommRank(2)));
        assert_eq!((done[0].flow.channel.0, done[0].flow.peer), (2, CommRank(3)));
    });
}

#[test]
fn what_never_progresses_is_never_shown() {
    in_own_process("what_never_progresses_is_never_shown", &[], |dir| {
        let plugin = Plugin::open(6);
        let context = begin(&plugin, 4, 0);
        let coll = all_reduce(&plugin, context, 1);
        // CollNet's and the copy engine's proxies start but get no state and no stop.
        for _ in 0..40_000 {
            plugin.proxy_op(context, coll, 0, &ProxyArgs::own(0, 1, 4, false));
        }
        plugin.stop(coll);
        let mut reader = open_segment(dir);
        assert!(reader.flows().expect("readable").items.is_empty());
        plugin.kernel_stop(plugin.kernel(context, coll, 0, 0), 0);
        let records = drain(&mut reader);
        assert_eq!((ops(&records).len(), flows(&records).len()), (1, 0));
        assert!(ops(&records)[0].observed);
        // The table has room again although nothing was ever stopped.
        let coll = all_reduce(&plugin, context, 1);
        let flow = own(&plugin, context, coll, true);
        plugin.send_step(context, flow, 0, 1, 0);
        plugin.stop(flow);
        assert_eq!(flows(&drain(&mut reader)).len(), 1);
    });
}

#[test]
fn missing_stops_end_with_the_communicator() {
    in_own_process("missing_stops_end_with_the_communicator", &[], |dir| {
        let plugin = Plugin::open(6);
        let context = begin(&plugin, 4, 0);
        let coll = all_reduce(&plugin, context, 1);
        plugin.stop(coll);
        plugin.kernel(context, coll, 0, 0);
        let flow = own(&plugin, context, coll, true);
        plugin.send_step(context, flow, 0, 64, 0);
        let hung = plugin.step(context, flow, 1);
        plugin.record(hung, driver::SEND_GPU_WAIT, 0);
        plugin.record(hung, driver::SEND_PEER_WAIT, 0);
        let mut reader = open_segment(dir);
        assert_eq!(reader.ops().expect("readable").items.len(), 1, "a hung operation stays visible");
        let live = reader.flows().expect("readable").items;
        let short = FlowCounters { total_chunks: 4, posted: 2, ready: 2, transmitted: 1, done: 1 };
        assert_eq!(live[0].counters, short);
        plugin.finalize(context);
        let records = drain(&mut reader);
        assert_eq!((flows(&records)[0].counters, flows(&records)[0].bytes), (short, 64));
        assert!(!ops(&records)[0].observed);
        assert_eq!(ops(&records)[0].ended_ticks, ops(&records)[0].op.enqueued_ticks);
        assert!(reader.ops().expect("readable").items.is_empty());
        // NCCL goes on with the old handles after the finalize.
        plugin.record(hung, driver::SEND_WAIT, 64);
        plugin.stop(hung);
        plugin.stop(flow);
        plugin.stop(coll);
        plugin.finalize(context);
        assert!(drain(&mut reader).is_empty());
    });
}

#[test]
fn a_step_cut_by_an_abort_is_not_done() {
    in_own_process("a_step_cut_by_an_abort_is_not_done", &[], |dir| {
        let plugin = Plugin::open(4);
        let context = begin(&plugin, 4, 0);
        let coll = all_reduce(&plugin, context, 1);
        let flow = own(&plugin, context, coll, true);
        let step = plugin.step(context, flow, 0);
        plugin.record(step, driver::SEND_GPU_WAIT, 0);
        plugin.stop(step);
        plugin.record(step, driver::SEND_WAIT, 9);
        plugin.stop(step);
        plugin.stop(flow);
        let done = flows(&drain(&mut open_segment(dir)));
        let cut = FlowCounters { total_chunks: 4, posted: 1, ..FlowCounters::default() };
        assert_eq!((done[0].counters, done[0].bytes), (cut, 0));
    });
}

#[test]
fn steps_that_come_again_do_not_count_again() {
    in_own_process("steps_that_come_again_do_not_count_again", &[], |dir| {
        let plugin = Plugin::open(6);
        let context = begin(&plugin, 4, 0);
        let coll = all_reduce(&plugin, context, 1);
        let flow = plugin.proxy_op(context, coll, 0, &ProxyArgs::own(0, 1, 9, true));
        plugin.record_null(flow, driver::OP_IN_PROGRESS);
        for _ in 0..10 {
            // Both live in the same lane; the ninth is past the end.
            for step in [0, 8, 9, -1] {
                plugin.send_step(context, flow, step, 10, 0);
            }
        }
        plugin.stop(flow);
        let done = flows(&drain(&mut open_segment(dir)));
        let twice = FlowCounters { total_chunks: 9, ..full(2) };
        assert_eq!((done[0].counters, done[0].bytes), (twice, 20));
    });
}

#[test]
fn stale_repeated_and_null_are_harmless() {
    in_own_process("stale_repeated_and_null_are_harmless", &[], |dir| {
        for abi in 1..=7 {
            let plugin = Plugin::open(abi);
            let context = begin(&plugin, 4, 0);
            assert_ne!(plugin.start_null(context), 0);
            let coll = all_reduce(&plugin, context, 1);
            let flow = own(&plugin, context, coll, true);
            let step = plugin.step(context, flow, 0);
            for event in [Ev(0), Ev(1), Ev(u64::MAX), Ev(0x7fff_1234_5678), coll, flow, step] {
                for state in -3..40 {
                    plugin.record_null(event, state);
                }
                plugin.stop(event);
                plugin.stop(event);
                plugin.record_null(event, driver::SEND_WAIT);
                // A handle of anything as the parent of anything, and as a context.
                for raw in [event.0, event.0 ^ 1 << 40, event.0 ^ 1] {
                    plugin.step(Ctx(raw), Ev(raw), 0);
                    plugin.kernel(Ctx(raw), Ev(raw), 255, 0);
                    plugin.proxy_op(Ctx(raw), Ev(raw), -1, &ProxyArgs::own(255, -1, -1, true));
                    all_reduce(&plugin, Ctx(raw), 255);
                    plugin.p2p(Ctx(raw), HASH, 0, true, -7, 255);
                }
            }
            plugin.finalize(Ctx(0));
            plugin.finalize(Ctx(u64::MAX));
            plugin.finalize(context);
            plugin.finalize(context);
        }
        assert!(open_segment(dir).state().expect("readable").dropped[DropKind::Stale as usize] > 0);
    });
}

#[test]
fn closing_and_loading_again_goes_on_in_the_same_segment() {
    in_own_process("closing_and_loading_again_goes_on_in_the_same_segment", &[], |dir| {
        let mut old = None;
        for round in 0..3 {
            let plugin = Plugin::open(6);
            let context = begin(&plugin, 4, 0);
            assert_ne!(old.replace(context), Some(context), "contexts are never given out again");
            let coll = all_reduce(&plugin, context, 1);
            let flow = own(&plugin, context, coll, true);
            plugin.send_step(context, flow, 0, 1, 0);
            plugin.stop(flow);
            plugin.kernel_stop(plugin.kernel(context, coll, 0, 0), 0);
            plugin.finalize(context);
            let stop = plugin.table.stop;
            plugin.close();
            // A thread that is late: the code must still be mapped (`-z nodelete`).
            // SAFETY: that it may be called is what is tested.
            assert_eq!(unsafe { stop(coll.0 as *mut std::ffi::c_void) }, 0);
            let records = drain(&mut open_segment(dir));
            assert_eq!(ops(&records).len(), round + 1);
            assert!(ops(&records).iter().all(|done| done.op.id.seq == OpSeq(0)), "a new communicator counts from 0");
        }
    });
}

#[test]
fn a_forked_child_stays_silent() {
    in_own_process("a_forked_child_stays_silent", &[], |dir| {
        let plugin = Plugin::open(6);
        let context = begin(&plugin, 4, 0);
        let coll = all_reduce(&plugin, context, 1);
        // SAFETY: the child calls the plugin and leaves by exit, running the same exit handlers as the parent.
        let child = unsafe { libc::fork() };
        if child == 0 {
            plugin.kernel_stop(plugin.kernel(context, coll, 0, 0), 0);
            plugin.stop(coll);
            let mut mask = 0;
            plugin.init(HASH, c"", 4, 0, &mut mask);
            all_reduce(&plugin, context, 1);
            plugin.finalize(context);
            // SAFETY: ends the child.
            unsafe { libc::exit(if mask == 0 { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child ended well and was asked for nothing");
        let mut reader = open_segment(dir);
        assert!(matches!(drain(&mut reader)[..], [RawRecord::CommBegin(_)]));
        assert_eq!(reader.ops().expect("readable").items.len(), 1);
        plugin.kernel_stop(plugin.kernel(context, coll, 0, 0), 0);
        assert_eq!(ops(&drain(&mut reader)).len(), 1, "the parent goes on");
    });
}

#[test]
fn several_communicators_and_progress_threads() {
    // 32 MiB have 32 rings: enough for threads that end while their successors already run.
    let size = [("MYCROFT_SEGMENT_BYTES", "33554432")];
    in_own_process("several_communicators_and_progress_threads", &size, |dir| {
        const OPS: usize = 300;
        let plugin = Plugin::open(6);
        std::thread::scope(|scope| {
            for comm in 0..4u64 {
                let plugin = &plugin;
                scope.spawn(move || {
                    let mut mask = 0;
                    let context = plugin.init(HASH + comm, c"", 4, comm as c_int, &mut mask);
                    for seq in 0..OPS as u64 {
                        let coll = plugin.coll(context, &CollArgs::all_reduce(HASH + comm, comm as c_int, seq, 1));
                        plugin.stop(coll);
                        // The proxy's and the profiler's thread work on the same operation at once; a kernel that sends
                        // to another host cannot end before the proxy has taken up its part.
                        let taken_up = std::sync::Barrier::new(2);
                        std::thread::scope(|inner| {
                            inner.spawn(|| {
                                let kernel = plugin.kernel(context, coll, 0, 0);
                                taken_up.wait();
                                plugin.kernel_stop(kernel, 0);
                            });
                            let send = own(plugin, context, coll, true);
                            taken_up.wait();
                            (0..4).for_each(|step| plugin.send_step(context, send, step, 10, 0));
                            plugin.stop(send);
                        });
                    }
                    plugin.finalize(context);
                });
            }
        });
        let mut reader = open_segment(dir);
        assert_eq!(reader.state().expect("readable").dropped[DropKind::Record as usize], 0);
        let records = drain(&mut reader);
        for comm in 0..4 {
            let mine = |id: CommId| id == CommId(HASH + comm);
            let mut seqs: Vec<u64> =
                ops(&records).iter().filter(|done| mine(done.op.id.comm)).map(|done| done.op.id.seq.0).collect();
            seqs.sort_unstable();
            assert_eq!(seqs, (0..OPS as u64).collect::<Vec<_>>());
            let flows: Vec<_> = flows(&records).into_iter().filter(|done| mine(done.flow.op.comm)).collect();
            assert_eq!(flows.len(), OPS);
            assert!(flows.iter().all(|f| f.counters == full(4) && f.flow.direction == Direction::Send));
        }
        assert!(ops(&records).iter().filter(|done| done.flows == 1).count() > 0);
    });
}

#[test]
fn without_kernel_events_an_operation_inside_a_host_is_unknown() {
    let off = [("MYCROFT_KERNEL_EVENTS", "off")];
    in_own_process("without_kernel_events_an_operation_inside_a_host_is_unknown", &off, |dir| {
        let plugin = Plugin::open(6);
        let context = begin(&plugin, 4, 0);
        for _ in 0..70 {
            plugin.stop(all_reduce(&plugin, context, 1));
        }
        let mut reader = open_segment(dir);
        let done = ops(&drain(&mut reader));
        assert_eq!(done.len(), 70, "given up after a window of 64, and from then on at once");
        assert!(done.iter().all(|done| !done.observed && done.flows == 0));
        assert_eq!(reader.ops().expect("readable").items.len(), 0);
    });
}

#[test]
fn a_full_table_gives_up_the_oldest() {
    in_own_process("a_full_table_gives_up_the_oldest", &[("MYCROFT_SEGMENT_BYTES", "262144")], |dir| {
        let plugin = Plugin::open(6);
        let context = begin(&plugin, 4, 0);
        for _ in 0..1000 {
            all_reduce(&plugin, context, 1);
        }
        let last = all_reduce(&plugin, context, 1);
        let mut reader = open_segment(dir);
        assert!(reader.state().expect("readable").dropped[DropKind::Op as usize] > 0, "counted");
        let live = reader.ops().expect("readable").items;
        assert!(live.iter().any(|op| op.op.id.seq == OpSeq(1000)), "the newest is in the table");
        plugin.kernel_stop(plugin.kernel(context, last, 0, 0), 0);
        let mut records = Vec::new();
        reader.drain(10_000, &mut records).expect("readable");
        assert!(ops(&records).iter().any(|done| done.op.id.seq == OpSeq(1000) && done.observed));
    });
}

#[test]
fn with_nothing_set_it_works() {
    let nothing = [("MYCROFT_DIR", ""), ("MYCROFT_SEGMENT_BYTES", "")];
    in_own_process("with_nothing_set_it_works", &nothing, |_| {
        let plugin = Plugin::open(6);
        let context = begin(&plugin, 8, 3);
        all_reduce(&plugin, context, 1);
        // SAFETY: getuid cannot fail.
        let dir = std::path::PathBuf::from(format!("/dev/shm/mycroft-{}", unsafe { libc::getuid() }));
        let own = format!("{}-", std::process::id());
        let files = mycroft_ring::segment::list(&dir).expect("the default folder");
        let mine = files.iter().find(|f| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&own)));
        let reader = mycroft_ring::SegmentReader::open(mine.expect("our segment")).expect("opens");
        let header = reader.header();
        assert_eq!((header.job.as_str(), header.rank, header.world_size), ("default", 3, 8));
        plugin.finalize(context);
    });
}

#[test]
fn off_means_off() {
    in_own_process("off_means_off", &[("MYCROFT_OFF", "1")], |dir| {
        let plugin = Plugin::open(6);
        let mut mask = 99;
        let context = plugin.init(HASH, c"", 4, 0, &mut mask);
        assert_eq!(mask, 0);
        let coll = all_reduce(&plugin, context, 1);
        plugin.stop(coll);
        plugin.finalize(context);
        assert!(!dir.exists());
    });
}

#[test]
fn tracing_switches_while_the_job_runs_and_steps_are_marked() {
    in_own_process("tracing_switches_while_the_job_runs_and_steps_are_marked", &[], |dir| {
        let plugin = Plugin::open(6);
        // SAFETY: the C ABI of the exported functions.
        let (tracing, step) = unsafe {
            (
                std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn(c_int) -> c_int>(
                    plugin.symbol(c"mycroft_tracing"),
                ),
                std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn(u64) -> c_int>(
                    plugin.symbol(c"mycroft_step"),
                ),
            )
        };
        assert_eq!(step(1), 1, "nothing is traced yet");
        let mask = Box::leak(Box::new(0));
        plugin.init(HASH, c"", 4, 0, mask);
        assert_eq!(*mask, 94);
        assert_eq!(tracing(0), 0);
        assert_eq!(*mask, 0);
        assert_eq!(tracing(1), 0);
        assert_eq!(*mask, 94);
        assert_eq!(step(7), 0);
        let records = drain(&mut open_segment(dir));
        assert!(matches!(records[1], RawRecord::StepMark(mark) if mark.step == 7 && mark.at_ticks > 0));
    });
}
