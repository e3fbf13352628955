//! What a report says of what it cannot see.
mod cluster;
mod hand;

use cluster::{MS, T0};
use hand::{Hand, meta};
use mycroft_record::*;

/// Two ranks wait in an operation that their NCCL does not report, and the third waits for them in the next one.
fn waits_in_what_is_not_visible(nccl_version: u32, shown: bool) -> String {
    let mut hand = Hand::new(3);
    for rank in 0..3 {
        let attach = ProcessInfo {
            attached_at: HostTime(T0),
            world_size: 3,
            local_rank: rank,
            gpu: 0,
            profiler_abi: 6,
            nccl_version,
            kernel_events: true,
        };
        hand.tell(rank, HostTime(T0), vec![Record::Process(attach)]);
        let broadcast = OpMeta { kind: OpKind::Broadcast, root: 0, ..meta(2, 0, rank, true) };
        let done = OpDone {
            op: broadcast,
            ended_at: HostTime(T0 + 950 * MS),
            ended_first_at: HostTime::NONE,
            flows: 0,
            observed: true,
        };
        hand.look(rank, 1_000, &[], if shown { vec![Record::OpDone(done)] } else { vec![] });
    }
    for at in (1_100..13_000).step_by(100) {
        hand.look(0, at, &[meta(1, 0, 0, true)], vec![]);
        hand.look(1, at, &[], vec![]);
        hand.look(2, at, &[], vec![]);
        hand.tick(at);
    }
    assert_eq!(hand.engine.cases()[0].finding.what, What::Hang);
    hand.text(13_000)
}

#[test]
fn what_nccl_does_not_show_is_named_with_its_switch() {
    let told = "caveat not-visible: NCCL 2.29.7 shows of a Broadcast only that it was issued: a rank that waits in one looks idle; switch on \
                NCCL_ALLGATHERV_ENABLE=0 in the job";
    let text = waits_in_what_is_not_visible(22_907, false);
    assert!(text.contains(told), "{text}");
    for (version, shown) in [(22_907, true), (22_705, false), (0, false)] {
        let text = waits_in_what_is_not_visible(version, shown);
        assert!(!text.contains("not-visible"), "{version}, {shown}: {text}");
    }
}

/// Interfaces before v4 do not tell the rank, and no launcher did: people read host, process and place in the communicator.
#[test]
fn who_has_no_rank_is_named_by_host_process_and_communicator() {
    let mut hand = Hand::new(2);
    let untold = |pid: u32| Source {
        job: "hand".into(),
        host: "host0".into(),
        process: Some(ProcessKey { rank: Rank::UNKNOWN, pid, nonce: 1 }),
    };
    for (pid, me) in [(70, 0), (71, 1)] {
        let init = CommInit {
            at: HostTime(T0),
            comm: CommId(9),
            n_ranks: 2,
            n_nodes: 1,
            comm_rank: CommRank(me),
            name: "world".into(),
        };
        let records = vec![Record::CommInit(init)];
        hand.engine.observe(&Batch { source: untold(pid), collected_at: HostTime(T0), records });
    }
    let text = hand.text(1_000);
    let told = "caveat no-rank: nobody told the ranks of 2 processes: ?0 is pid 70 on host0, rank 0 of world; ?1 is pid 71 \
                on host0, rank 1 of world; switch on RANK, or MYCROFT_RANK, in the job";
    assert!(text.contains(told), "{text}");
}

/// Two ranks are in an operation that does not move; the agents say of these that their progress threads do not run.
fn stuck_with_held(held: &[u32]) -> Hand {
    let mut hand = Hand::new(2);
    for at in (1_100..13_000).step_by(100) {
        for rank in 0..2 {
            let look = ProxyHeld {
                at: HostTime(T0 + at * MS),
                since: HostTime(T0 + 1_000 * MS),
                threads: 1,
                state: u32::from(b'D'),
            };
            let told = held.contains(&rank) && at % 1_000 == 0;
            let extra = if told { vec![Record::ProxyHeld(look)] } else { vec![] };
            hand.look(rank, at, &[meta(1, 0, rank, true)], extra);
        }
        hand.tick(at);
    }
    hand
}

#[test]
fn a_held_progress_thread_is_no_device_that_stopped() {
    let (hand, text) = (stuck_with_held(&[1]), stuck_with_held(&[1]).text(13_000));
    let finding = &hand.engine.cases()[0].finding;
    assert_eq!((finding.what, finding.category), (What::Hang, Category::HostThread), "{text}");
    assert_eq!(hand.suspects(), ["rank 1"], "{text}");
    assert!(
        text.contains(
            "the progress thread of rank 1 does not run although it has data to move, and no processor is short"
        ),
        "{text}"
    );
    assert!(text.contains("it waits for a device or a disk [hang.proxy-held]"), "{text}");
}

/// A library whose progress threads sleep while they wait: that they do not run says nothing.
#[test]
fn progress_threads_that_all_sleep_accuse_nobody() {
    for held in [&[][..], &[0, 1]] {
        let hand = stuck_with_held(held);
        assert_eq!(hand.engine.cases()[0].finding.category, Category::Gpu, "{}", hand.text(13_000));
    }
}

/// Three hosts with a rank each, in an operation that does not move and shows no flow; the link of host 2 may be down.
fn stuck_with_link(up: bool) -> (Finding, String) {
    let mut hand = Hand::of(1, &[(1, "DP", &[0, 1, 2])]);
    for at in (1_100..13_000).step_by(100) {
        (0..3).for_each(|rank| hand.look(rank, at, &[meta(1, 0, rank, true)], vec![]));
        let state = NicState {
            at: HostTime(T0 + at * MS),
            nic: "eth0".into(),
            up: up || at < 1_300,
            link_changes: u64::from(!up && at >= 1_300),
            speed_bytes_per_sec: 12_500_000_000,
            tx_bytes: at,
            rx_bytes: at,
            errors: 0,
        };
        let source = Source { job: "hand".into(), host: "host2".into(), process: None };
        let records = vec![Record::NicState(state)];
        hand.engine.observe(&Batch { source, collected_at: HostTime(T0 + at * MS), records });
        hand.tick(at);
    }
    (hand.engine.cases()[0].finding.clone(), hand.text(13_000))
}

/// A socket takes data for sent as soon as the kernel holds it: no flow shows that it does not arrive.
#[test]
fn a_link_that_is_down_is_named_where_no_flow_shows_it() {
    let (finding, text) = stuck_with_link(false);
    assert_eq!((finding.what, finding.category), (What::Hang, Category::NetworkSend), "{text}");
    assert_eq!(finding.suspects[0].place, Place::Host { host: "host2".into() }, "{text}");
    let (finding, text) = stuck_with_link(true);
    assert_eq!(finding.category, Category::Gpu, "{text}");
}
