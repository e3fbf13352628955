//! How work ends that cannot be done: who gives up when, what is flushed, and what the program is told.

mod common;

use common::*;
use mycroft_testbed_verbs::abi::*;
use std::time::Instant;

/// Status numbers of `ibv_wc_status`.
const FLUSHED: u32 = 5;
const REMOTE_ACCESS: u32 = 10;
const RETRY_EXCEEDED: u32 = 12;
const NOT_READY_EXCEEDED: u32 = 13;

fn statuses(done: &[Wc]) -> Vec<(u64, u32)> {
    done.iter().map(|wc| (wc.wr_id, wc.status)).collect()
}

fn state(qp: *mut Qp) -> u32 {
    // SAFETY: all-zero bytes are valid values; a live queue pair.
    unsafe {
        let (mut attr, mut init): (QpAttr, QpInitAttr) = (std::mem::zeroed(), std::mem::zeroed());
        assert_eq!((verbs().query_qp)(qp, &mut attr, QP_STATE, &mut init), 0);
        attr.qp_state
    }
}

#[test]
fn nobody_answers() {
    let (a, b) = (Nic::open(), Nic::open());
    let (from, to) = connect(&a, &b, Patience { timeout: 9, retries: 2, not_ready: 7 });
    let target = b.buffer(vec![0; 10_000]);
    let source = a.buffer(pattern(10_000, 1));
    destroy(to);
    b.close_device();
    assert_eq!(post_receive(from, 50, None), 0);
    let began = Instant::now();
    for id in 1..=3 {
        // It names the piece until it is posted.
        let mut sge = source.sge();
        let mut wr = write(id, &mut sge, &target);
        wr.send_flags = 0;
        assert_eq!(post(from, &mut wr), 0);
    }
    let done = a.poll(4);
    assert_eq!(statuses(&done), [(1, RETRY_EXCEEDED), (2, FLUSHED), (3, FLUSHED), (50, FLUSHED)], "none was signaled");
    assert!(began.elapsed().as_micros() >= 3 * 2097, "three times 4.096 us * 2^9");
    let event = a.event();
    assert_eq!((event.event_type, event.element), (EVENT_QP_FATAL, from.cast()));
    assert_eq!(state(from), QPS_ERR);
    // SAFETY: constants of the library.
    let texts = unsafe { ((verbs().event_type_str)(event.event_type), (verbs().wc_status_str)(12)) };
    assert_eq!(text(texts.0), "local work queue catastrophic error");
    assert_eq!(text(texts.1), "transport retry counter exceeded");
    // What is posted now is flushed at once.
    assert_eq!(post(from, &mut write(4, &mut source.sge(), &target)), 0);
    assert_eq!(statuses(&a.poll(1)), [(4, FLUSHED)]);
    assert_eq!(modify(from, QPS_RESET, 0, |_| {}), 0);
    assert_eq!(state(from), QPS_RESET);
}

#[test]
fn no_receive_is_posted() {
    let (a, b) = (Nic::open(), Nic::open());
    let (from, to) = connect(&a, &b, Patience { not_ready: 3, ..USUAL });
    let (source, target) = (a.buffer(pattern(10_000, 1)), b.buffer(vec![0; 10_000]));
    assert_eq!(post(from, &mut write(1, &mut source.sge(), &target)), 0);
    assert_eq!(statuses(&a.poll(1)), [(1, NOT_READY_EXCEEDED)]);
    assert_eq!(state(to), QPS_RTS, "the receiver goes on");

    // "Always" waits until one is there.
    let (from, to) = connect(&a, &b, USUAL);
    assert_eq!(post(from, &mut write(2, &mut source.sge(), &target)), 0);
    assert_eq!(post_receive(to, 7, None), 0);
    assert_eq!(statuses(&a.poll(1)), [(2, 0)]);
    assert_eq!(statuses(&b.poll(1)), [(7, 0)]);
}

#[test]
fn memory_that_is_given_back_is_not_written() {
    let (a, b) = (Nic::open(), Nic::open());
    let (from, to) = connect(&a, &b, USUAL);
    let (source, target) = (a.buffer(pattern(100, 1)), b.buffer(vec![0; 100]));
    let mut sge = source.sge();
    let wr = write(1, &mut sge, &target);
    assert_eq!(post_receive(to, 7, None), 0);
    drop(target);
    assert_eq!(post(from, &mut { wr }), 0);
    assert_eq!(statuses(&a.poll(1)), [(1, REMOTE_ACCESS)]);
    assert_eq!(statuses(&b.poll(1)), [(7, FLUSHED)]);
    let event = b.event();
    assert_eq!((event.event_type, event.element), (EVENT_QP_ACCESS_ERR, to.cast()));
}

#[test]
fn a_queue_pair_fails_after_so_many_packets() {
    let (a, b) = (Nic::open(), Nic::open());
    let (from, to) = connect(&a, &b, USUAL);
    a.faults("fail_after=5");
    let (source, target) = (a.buffer(pattern(4096 * 3, 1)), b.buffer(vec![0; 4096 * 3]));
    for id in 1..=2 {
        assert_eq!(post_receive(to, id, None), 0);
        assert_eq!(post(from, &mut write(id, &mut source.sge(), &target)), 0);
    }
    let done = a.poll(2);
    assert_eq!(done[1].status, FLUSHED);
    assert!([0, FLUSHED].contains(&done[0].status), "its answer may have come, or not");
    assert_eq!(a.event().event_type, EVENT_QP_FATAL);
    assert_eq!(statuses(&b.poll(1)), [(1, 0)], "five packets arrived");
    assert!(b.poll_once().is_empty());
}

#[test]
fn steps_that_there_are_not() {
    let nic = Nic::open();
    let qp = nic.pair();
    assert_eq!(modify(qp, QPS_RTS, 0, |_| {}), libc::EINVAL, "from reset");
    assert_eq!(modify(qp, QPS_INIT, 0, |_| {}), 0);
    assert_eq!(modify(qp, QPS_RTR, QP_PATH_MTU, |attr| attr.path_mtu = 5), libc::EINVAL, "without a peer");
    let target = nic.buffer(vec![0; 8]);
    let mut sge = target.sge();
    assert_eq!(post(qp, &mut write(1, &mut sge, &target)), libc::EINVAL, "not ready to send");
    assert_eq!(post_receive(qp, 1, None), 0, "receives are taken");
    assert_eq!(modify(qp, QPS_ERR, 0, |_| {}), 0);
    assert_eq!(statuses(&nic.poll(1)), [(1, FLUSHED)]);
    // SAFETY: a live queue, still used by a pair.
    assert_eq!(unsafe { (verbs().destroy_cq)(nic.cq) }, libc::EBUSY);
    destroy(qp);
    nic.close();
}

#[test]
fn a_device_is_open_once() {
    let nic = Nic::open();
    // SAFETY: the device of an open context.
    let again = unsafe { (verbs().open_device)((*nic.context).device) };
    assert!(again.is_null());
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EADDRINUSE));
}
