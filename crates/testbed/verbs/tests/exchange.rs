//! Two devices of one process exchange messages through the C interface, with and without faults of the network.

mod common;

use common::*;
use mycroft_testbed_verbs::abi::*;

/// Sizes of messages: none, less than a word, around packets, megabytes.
const SIZES: [usize; 9] = [0, 1, 7, 4095, 4096, 4097, 65_536, 1 << 20, (4 << 20) + 3];

/// Writes messages of all sizes from one device to another, and compares completions and data.
fn exchange(faults: &str) {
    let (a, b) = (Nic::open(), Nic::open());
    let (from, to) = connect(&a, &b, USUAL);
    for (nic, seed) in [(&a, 1), (&b, 2)] {
        nic.faults(&format!("{faults},seed={seed}"));
    }
    for (id, bytes) in SIZES.into_iter().enumerate() {
        let (source, target) = (a.buffer(pattern(bytes, id as u64)), b.buffer(vec![0; bytes + 8]));
        assert_eq!(post_receive(to, 100 + id as u64, None), 0);
        let mut sge = source.sge();
        assert_eq!(post(from, &mut write(id as u64, &mut sge, &target)), 0);
        let got = b.poll(1)[0];
        assert_eq!((got.wr_id, got.status, got.opcode), (100 + id as u64, 0, 1 << 7 | 1));
        assert_eq!((got.byte_len as usize, got.wc_flags, got.qp_num), (bytes, WC_WITH_IMM, number(to)));
        assert_eq!(u32::from_be_bytes(got.imm_data) as usize, bytes);
        let sent = a.poll(1)[0];
        assert_eq!((sent.wr_id, sent.status, sent.opcode, sent.qp_num), (id as u64, 0, 1, number(from)));
        assert!(target.bytes[..bytes] == source.bytes, "{bytes} bytes differ");
        assert_eq!(target.bytes[bytes..], [0; 8], "nothing behind them");
    }
    destroy(from);
    destroy(to);
    a.close();
    b.close();
}

#[test]
fn all_sizes_arrive() {
    exchange("");
}

#[test]
fn one_in_a_hundred_is_lost() {
    exchange("drop=0.01");
}

#[test]
fn two_in_a_hundred_are_lost_and_five_come_late() {
    exchange("drop=0.02,reorder=0.05");
}

#[test]
fn many_at_once_both_ways_complete_in_order() {
    let (a, b) = (Nic::open(), Nic::open());
    let pairs: Vec<_> = (0..4).map(|_| connect(&a, &b, USUAL)).collect();
    a.faults("drop=0.005,seed=5");
    let (one, other) = (a.buffer(pattern(100_000, 9)), b.buffer(pattern(100_000, 8)));
    let back = a.buffer(vec![0; 100_000]);
    for id in 0..100u64 {
        for (from, to) in &pairs {
            assert_eq!(post_receive(*to, id, None), 0);
            assert_eq!(post_receive(*from, 1000 + id, None), 0);
            let (mut there, mut here) = (one.sge(), other.sge());
            // Every tenth is heard of, as NCCL does with its credits.
            (there.length, here.length) = (1 + 37 * id as u32, 2 + 41 * id as u32);
            let mut wr = write(id, &mut there, &other);
            wr.send_flags = if id % 10 == 9 { SEND_SIGNALED } else { 0 };
            assert_eq!(post(*from, &mut wr), 0);
            assert_eq!(post(*to, &mut write(2000 + id, &mut here, &back)), 0);
        }
    }
    let (of_a, of_b) = (a.poll(4 * 110), b.poll(4 * 200));
    assert!(of_a.iter().chain(&of_b).all(|wc| wc.status == 0));
    for (from, to) in &pairs {
        let ids = |done: &[Wc], qp: u32, receives: bool| -> Vec<u64> {
            let mine = done.iter().filter(|wc| wc.qp_num == qp && (wc.opcode >> 7 == 1) == receives);
            mine.map(|wc| wc.wr_id).collect()
        };
        assert_eq!(ids(&of_a, number(*from), false), (0..10).map(|at| at * 10 + 9).collect::<Vec<_>>());
        assert_eq!(ids(&of_a, number(*from), true), (1000..1100).collect::<Vec<_>>());
        assert_eq!(ids(&of_b, number(*to), true), (0..100).collect::<Vec<_>>());
        assert_eq!(ids(&of_b, number(*to), false), (2000..2100).collect::<Vec<_>>());
    }
    assert!(a.poll_once().is_empty() && b.poll_once().is_empty());
    for (from, to) in pairs {
        destroy(from);
        destroy(to);
    }
}

#[test]
fn sends_fill_receives_and_inline_data_is_copied_when_posted() {
    let (a, b) = (Nic::open(), Nic::open());
    let (from, to) = connect(&a, &b, USUAL);
    let (mut source, target) = (a.buffer(pattern(64, 3)), b.buffer(vec![0; 9_000]));
    let sent = source.bytes.clone();
    let (mut sge, mut place) = (source.sge(), target.sge());
    // Nobody is ready: what is sent now is sent again later, from the copy.
    let mut wr = write(1, &mut sge, &target);
    (wr.opcode, wr.send_flags) = (WR_SEND_WITH_IMM, SEND_SIGNALED | SEND_INLINE);
    assert_eq!(post(from, &mut wr), 0);
    source.bytes.fill(0);
    assert_eq!(post_receive(to, 7, Some(&mut place)), 0);
    let got = b.poll(1)[0];
    assert_eq!((got.wr_id, got.status, got.opcode, got.byte_len), (7, 0, 1 << 7, 64));
    assert_eq!(target.bytes[..64], sent);
    assert_eq!((a.poll(1)[0].wr_id, a.poll_once().len()), (1, 0));
    // Too much for "inline", for a receive, and for the queue.
    let big = a.buffer(pattern(9_001, 4));
    let mut sge = big.sge();
    let mut wr = write(2, &mut sge, &target);
    (wr.opcode, wr.send_flags) = (WR_SEND, SEND_INLINE);
    assert_eq!(post(from, &mut wr), libc::EINVAL);
    wr.send_flags = SEND_SIGNALED;
    assert_eq!(post_receive(to, 8, Some(&mut place)), 0);
    assert_eq!(post(from, &mut wr), 0);
    let (short, refused) = (b.poll(1)[0], a.poll(1)[0]);
    assert_eq!((short.wr_id, short.status), (8, 1), "local length error");
    assert_eq!((refused.wr_id, refused.status), (2, 9), "remote invalid request");
}

#[test]
fn a_queue_takes_no_more_than_it_was_made_for() {
    let (a, b) = (Nic::open(), Nic::open());
    let (from, _) = connect(&a, &b, Patience { timeout: 0, ..USUAL });
    a.faults("drop=1");
    let target = b.buffer(vec![0; 8]);
    let mut sge = Sge { addr: 0, length: 0, lkey: 0 };
    for id in 0..512 {
        assert_eq!(post(from, &mut write(id, &mut sge, &target)), 0);
        assert_eq!(post_receive(from, id, None), 0);
    }
    assert_eq!(post(from, &mut write(9, &mut sge, &target)), libc::ENOMEM);
    assert_eq!(post_receive(from, 9, None), libc::ENOMEM);
}

#[test]
fn no_faster_than_the_rate() {
    let (a, b) = (Nic::open(), Nic::open());
    let (from, to) = connect(&a, &b, Patience { timeout: 14, ..USUAL });
    a.faults("rate=20000000");
    let (source, target) = (a.buffer(pattern(1_000_000, 3)), b.buffer(vec![0; 1_000_000]));
    assert_eq!(post_receive(to, 1, None), 0);
    let began = std::time::Instant::now();
    assert_eq!(post(from, &mut write(1, &mut source.sge(), &target)), 0);
    assert_eq!(b.poll(1)[0].status, 0);
    assert!(began.elapsed().as_millis() >= 49, "a megabyte at 20 MB/s takes 50 ms");
    assert!(target.bytes == source.bytes);
}
