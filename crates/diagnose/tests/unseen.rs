//! Operations that are known to be issued and not seen (a Broadcast of NCCL 2.29 and 2.30): nobody waits for their end, and who
//! may be in one is not accused of not having started what comes next.
mod cluster;
mod hand;

use cluster::{MS, T0};
use hand::{Hand, meta};
use mycroft_record::*;

const GROUP: u64 = 2;

/// Four ranks in all, of which the first two have a group of their own.
fn job() -> Hand {
    let mut hand = Hand::of(4, &[(1, "ALL", &[0, 1, 2, 3]), (GROUP, "TP", &[0, 1])]);
    for rank in 0..4 {
        let attach = ProcessInfo {
            attached_at: HostTime(T0),
            world_size: 4,
            local_rank: rank,
            gpu: 0,
            profiler_abi: 6,
            nccl_version: 23_007,
            kernel_events: true,
        };
        hand.tell(rank, HostTime(T0), vec![Record::Process(attach)]);
        let done = OpDone { ended_first_at: HostTime(T0 + 950 * MS), ..done(meta(1, 0, rank, true), 950, true) };
        hand.look(rank, 1_000, &[], vec![Record::OpDone(done)]);
    }
    hand
}

fn done(op: OpMeta, at_ms: u64, observed: bool) -> OpDone {
    let at = HostTime(T0 + at_ms * MS);
    OpDone { op, ended_at: at, ended_first_at: at, flows: 0, observed }
}

/// A rank issues a Broadcast in the group, of which nothing more is told.
fn broadcasts(hand: &mut Hand, rank: u32, seq: u64, at_ms: u64) {
    let enqueued_at = HostTime(T0 + at_ms * MS);
    let untold = OpMeta { algorithm: Algorithm::Unknown, n_channels: 0, ..meta(GROUP, seq, rank, false) };
    let op = OpMeta { kind: OpKind::Broadcast, root: 0, enqueued_at, ..untold };
    hand.look(rank, at_ms + 100, &[], vec![Record::OpDone(done(op, at_ms, false))]);
}

/// What all have issued next: those whose device has begun with it, and those whose device has not.
fn reduce(rank: u32, started: bool) -> OpMeta {
    OpMeta { enqueued_at: HostTime(T0 + 1_500 * MS), ..meta(1, 1, rank, started) }
}

/// From then on nothing moves; what each rank shows of operation 1 of ALL.
fn stands(hand: &mut Hand, shown: [Option<bool>; 4]) {
    for at in (1_600..13_000).step_by(100) {
        for (rank, started) in (0..).zip(shown) {
            let op: Vec<OpMeta> = started.map(|started| reduce(rank, started)).into_iter().collect();
            hand.look(rank, at, &op, vec![]);
        }
        hand.tick(at);
    }
}

fn category(hand: &Hand) -> Category {
    hand.engine.cases()[0].finding.category
}

/// Rank 0 does not come to the Broadcast of its group. Rank 1, whose host waits for it, has not come to what others are in.
#[test]
fn who_may_wait_unseen_is_not_accused_and_whom_it_waits_for_is() {
    let mut hand = job();
    broadcasts(&mut hand, 1, 0, 1_200);
    stands(&mut hand, [None, None, Some(true), Some(true)]);
    let text = hand.text(13_000);
    assert_eq!((hand.suspects(), category(&hand)), (vec!["rank 0".to_owned()], Category::NotStarted), "{text}");
    let suspects = &hand.engine.cases()[0].finding.suspects;
    assert_eq!(suspects.len(), 1, "{text}");
}

/// The same where rank 1's host does not wait: it has issued what comes next, and its device has not come to it.
#[test]
fn a_device_behind_what_is_not_seen_has_not_stopped() {
    let mut hand = job();
    broadcasts(&mut hand, 1, 0, 1_200);
    stands(&mut hand, [None, Some(false), Some(true), Some(true)]);
    let text = hand.text(13_000);
    assert_eq!((hand.suspects(), category(&hand)), (vec!["rank 0".to_owned()], Category::NotStarted), "{text}");
    assert_eq!(hand.engine.cases()[0].finding.suspects.len(), 1, "{text}");
}

/// Both are in the Broadcast, whatever stopped there: neither is idle, and no device is known to be the one.
#[test]
fn where_all_may_be_inside_nobody_is_idle() {
    for shown in [None, Some(false)] {
        let mut hand = job();
        broadcasts(&mut hand, 0, 0, 1_200);
        broadcasts(&mut hand, 1, 0, 1_200);
        stands(&mut hand, [shown, shown, Some(true), Some(true)]);
        let text = hand.text(13_000);
        assert_eq!(category(&hand), Category::Unknown, "{text}");
        assert!(text.contains("in Broadcast TP #0") && text.contains("caveat not-visible"), "{text}");
    }
}

/// Rank 1 has been through the Broadcast and ran what came after it; now it does not come to what the others are in.
#[test]
fn who_ran_something_since_is_not_excused() {
    let mut hand = job();
    broadcasts(&mut hand, 0, 0, 1_200);
    broadcasts(&mut hand, 1, 0, 1_200);
    for rank in 0..2 {
        let op = OpMeta { enqueued_at: HostTime(T0 + 1_400 * MS), ..meta(GROUP, 1, rank, true) };
        hand.look(rank, 1_500, &[], vec![Record::OpDone(done(op, 1_450, true))]);
    }
    stands(&mut hand, [Some(true), None, Some(true), Some(true)]);
    let text = hand.text(13_000);
    assert_eq!((hand.suspects(), category(&hand)), (vec!["rank 1".to_owned()], Category::NotStarted), "{text}");
}

/// Operations inside a host are not seen to end without kernel events: what ends an iteration is none of them.
#[test]
fn what_is_never_seen_to_end_does_not_keep_iterations_from_being_known() {
    let mut hand = Hand::of(2, &[(1, "ALL", &[0, 1]), (GROUP, "TP", &[0, 1])]);
    for seq in 0..20 {
        let at = 1_000 + 200 * seq;
        for rank in 0..2 {
            let enqueued_at = HostTime(T0 + (at - 100) * MS);
            let inside = OpMeta { enqueued_at, ..meta(GROUP, seq, rank, false) };
            let across = OpMeta {
                enqueued_at,
                count: 1 << 20,
                started_at: HostTime(T0 + (at - 20) * MS),
                ..meta(1, seq, rank, true)
            };
            let records = [done(inside, at - 100, false), done(across, at, true)].map(Record::OpDone).to_vec();
            hand.look(rank, at + 10, &[], records);
        }
        hand.tick(at + 50);
    }
    let text = hand.text(5_000);
    assert!(text.contains("18 iterations") && !text.contains("not known yet"), "{text}");
}

/// Without kernel events: two ranks have data for each other that does not arrive. That they are in what they receive is not
/// seen, and they do not wait for each other to begin with it.
#[test]
fn two_that_exchange_what_does_not_arrive_are_no_deadlock() {
    let mut hand = Hand::of(1, &[(1, "PP", &[0, 1])]);
    for rank in 0..2 {
        let attach = ProcessInfo {
            attached_at: HostTime(T0),
            world_size: 2,
            local_rank: 0,
            gpu: 0,
            profiler_abi: 1,
            nccl_version: 22_304,
            kernel_events: false,
        };
        hand.tell(rank, HostTime(T0), vec![Record::Process(attach)]);
    }
    for at in (1_000..13_000).step_by(100) {
        for rank in 0..2 {
            let half = |class: OpClass, kind: OpKind, direction: Direction| {
                let mut op = OpMeta { kind, n_channels: 0, ..meta(1, 0, rank, false) };
                (op.id.class, op.id.peer) = (class, CommRank(1 - rank));
                let ready = u32::from(direction == Direction::Send);
                let flow = Record::FlowState(FlowState {
                    sampled_at: HostTime(T0 + at * MS),
                    flow: FlowKey { op: op.id, channel: ChannelId(0), peer: CommRank(1 - rank), direction },
                    counters: FlowCounters { total_chunks: 2, posted: 2, ready, transmitted: ready, done: 0 },
                    bytes: 0,
                    times: FlowTimes::default(),
                    peer_wait_polls: 0,
                    proxied_for_pid: 0,
                });
                (op, flow)
            };
            let (send, sent) = half(OpClass::Send, OpKind::Send, Direction::Send);
            let (recv, received) = half(OpClass::Recv, OpKind::Recv, Direction::Recv);
            hand.look(rank, at, &[send, recv], vec![sent, received]);
        }
        hand.tick(at);
    }
    let finding = &hand.engine.cases()[0].finding;
    assert_eq!((finding.what, finding.category), (What::Hang, Category::NetworkSend), "{}", hand.text(13_000));
}

/// A job of which only calls are known, on a NCCL that tells no profiler anything: each calls an all-reduce every 200 ms.
fn calls_only() -> Hand {
    let mut hand = Hand::of(4, &[(1, "ALL", &[0, 1, 2, 3])]);
    for seq in 0..20 {
        let at = 1_000 + 200 * seq;
        for rank in 0..4 {
            call(&mut hand, rank, seq, at);
        }
        hand.tick(at + 50);
    }
    hand
}

fn call(hand: &mut Hand, rank: u32, seq: u64, at_ms: u64) {
    let op = OpMeta { enqueued_at: HostTime(T0 + at_ms * MS), ..meta(1, seq, rank, false) };
    hand.look(rank, at_ms + 10, &[], vec![Record::OpDone(done(op, at_ms, false))]);
}

fn nobody_calls(hand: &mut Hand, until_ms: u64) {
    for at in (5_200..until_ms).step_by(100) {
        (0..4).for_each(|rank| hand.look(rank, at, &[], vec![]));
        hand.tick(at);
    }
}

#[test]
fn who_calls_nothing_more_is_named_by_calls_alone() {
    let mut hand = calls_only();
    [0, 1, 3].into_iter().for_each(|rank| call(&mut hand, rank, 20, 5_000));
    nobody_calls(&mut hand, 20_000);
    let text = hand.text(20_000);
    assert_eq!((hand.suspects(), category(&hand)), (vec!["rank 2".to_owned()], Category::NotStarted), "{text}");
    assert_eq!(hand.engine.cases()[0].finding.what, What::Hang, "{text}");
    // It goes on.
    for rank in [2, 0, 1, 3] {
        call(&mut hand, rank, if rank == 2 { 20 } else { 21 }, 20_000);
    }
    call(&mut hand, 2, 21, 20_100);
    hand.tick(20_200);
    hand.tick(21_000);
    assert!(hand.engine.cases().is_empty(), "it is over: {}", hand.text(21_000));
}

/// A checkpoint: all have called the same, and nothing tells whether that is over.
#[test]
fn a_job_of_which_all_called_the_same_does_not_hang() {
    let mut hand = calls_only();
    nobody_calls(&mut hand, 200_000);
    assert!(hand.engine.cases().is_empty(), "{}", hand.text(200_000));
}
