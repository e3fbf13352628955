//! One rank whose sends are slow, beside others that send the same way.
use super::*;
use mycroft_record::{Batch, CommId, CommInit, CommRank, ProcessInfo, ProcessKey, Rank, Record, Source};

/// Sixteen ranks, four on each of four hosts.
pub(super) fn ranks() -> Timeline {
    ranks_with(true)
}

/// The same, of whose kernels events are seen or not.
pub(super) fn ranks_with(kernel_events: bool) -> Timeline {
    let mut timeline = Timeline::default();
    for rank in 0..16u32 {
        let process = ProcessKey { rank: Rank(rank), pid: rank + 1, nonce: 1 };
        let source = Source { job: "job".into(), host: name(rank as usize / 4), process: Some(process) };
        let (comm, name) = (CommId(7), "WORLD".into());
        let init = CommInit { at: at(0), comm, n_ranks: 16, n_nodes: 4, comm_rank: CommRank(rank), name };
        let info = Record::Process(ProcessInfo {
            attached_at: at(0),
            world_size: 16,
            local_rank: rank % 4,
            gpu: 0,
            profiler_abi: 5,
            nccl_version: 22_809,
            kernel_events,
        });
        timeline.observe(&Batch { source, collected_at: at(0), records: vec![info, Record::CommInit(init)] }, 0);
    }
    timeline
}

/// The mean of a way is slower too where one of its senders is, and stands out more: that is the rank's, unless its proxy thread is late.
#[test]
fn a_rank_that_sends_slowly_on_a_way_that_others_share_is_told_and_not_the_way() {
    let told = |held_ms: f64| {
        let mut ring = Ring::default();
        let row = |iteration_ms: f64, sent_ms: f64| {
            let way = |host: usize| {
                (
                    (name(host), name(host + 1)),
                    Way { sent_ms: if host == 2 { sent_ms } else { 100.0 }, mb: 100.0, ..Way::default() },
                )
            };
            Row { iteration_ms, ways: (0..4).map(way).collect(), ..Row::default() }
        };
        ring.of_ranks(20, &row(300.0, 100.0), |_, _| 0.0);
        ring.of_ranks(20, &row(420.0, 400.0), |rank, component| match component {
            Component::Sending if rank == 9 => 110.0,
            Component::Handover if rank == 9 => held_ms,
            _ => 0.0,
        });
        let causes = causes(&ranks(), &Config::default(), &ring.evidence);
        causes.into_iter().map(|cause| (cause.category, cause.key.1)).collect::<Vec<_>>()
    };
    assert_eq!(told(0.0), [(Category::NetworkSend, Subject::Rank(9))]);
    assert_eq!(told(400.0), [(Category::HostThread, Subject::Rank(9))]);
}

/// Without kernel events what seems to be computation may be waiting: for another rank of the host, so the host is named, and for a proxy
/// thread that is late by as much as iterations grew.
#[test]
fn without_kernel_events_a_host_is_named_where_the_transport_accounts_for_nothing() {
    let told = |kernel_events: bool, held_ms: f64| {
        let mut ring = Ring::default();
        let takes = |more_ms: f64, held_ms: f64| {
            move |rank: usize, component| match component {
                Component::Computation if rank == 9 => 200.0 + more_ms,
                Component::Computation => 200.0,
                Component::Handover if rank == 4 => held_ms,
                _ => 0.0,
            }
        };
        let like = |iteration_ms: f64| Row { iteration_ms, ..Row::default() };
        ring.of_ranks(20, &like(300.0), takes(0.0, 0.0));
        ring.of_ranks(10, &like(400.0), takes(100.0, held_ms));
        let causes = causes(&ranks_with(kernel_events), &Config::default(), &ring.evidence);
        causes.into_iter().map(|cause| cause.suspects[0].place.clone()).collect::<Vec<_>>()
    };
    let rank = |rank, host| Place::Rank { rank: Rank(rank), host: name(host) };
    assert_eq!(told(true, 0.0), [rank(9, 2)]);
    assert_eq!(told(false, 0.0), [host(2)]);
    assert_eq!(told(true, 90.0), [rank(9, 2)]);
    assert_eq!(told(false, 90.0), [rank(4, 1)]);
}
