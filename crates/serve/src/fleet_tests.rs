//! Tests of what is remembered of hosts.
use super::*;
use mycroft_record::{ExitStatus, Gap, ProcessExit, StepMark};

const S: u64 = NANOS_PER_SEC;
const NOW: HostTime = HostTime(1_735_689_600 * NANOS_PER_SEC);

fn batch(host: &str, rank: Option<u32>, records: Vec<Record>) -> Batch {
    let process = rank.map(|rank| ProcessKey { rank: Rank(rank), pid: 100 + rank, nonce: 7 });
    Batch { source: Source { job: "train".into(), host: host.into(), process }, collected_at: NOW, records }
}

fn process(world_size: u32, nccl_version: u32, kernel_events: bool) -> Record {
    let profiler_abi = if nccl_version < 22_300 { 0 } else { 5 };
    let info =
        ProcessInfo { attached_at: NOW, world_size, local_rank: 0, gpu: 0, profiler_abi, nccl_version, kernel_events };
    Record::Process(info)
}

fn mark() -> Record {
    Record::StepMark(StepMark { at: NOW, step: 1 })
}

fn all(fleet: &Fleet, now: HostTime) -> (BTreeMap<String, HostJson>, Vec<RanksOfJobJson>) {
    fleet.json(now, |_| true, &BTreeSet::new())
}

#[test]
fn a_host_is_told_with_its_processes_losses_and_clock() {
    let fleet = Fleet::default();
    for rank in 0..4 {
        fleet.take(NOW, &batch("h0", Some(rank), vec![process(8, 22_809, rank != 3)]));
    }
    let offset =
        ClockOffset { at: NOW, offset_ns: -2_000_000_000, drift_ppb: 5_000, bound_ns: 400_000, since: HostTime::NONE };
    fleet.take(NOW + 3 * S, &batch("h0", None, vec![Record::ClockOffset(offset), mark()]));
    let gap = |cause, lost| Record::Gap(Gap { noticed_at: NOW, lost, cause });
    fleet.take(NOW + 3 * S, &batch("h0", Some(0), vec![gap(GapCause::RingLapped, 5), gap(GapCause::SpoolDropped, 7)]));
    fleet.lost(NOW + 4 * S, &batch("h0", None, Vec::new()).source, 9);
    let (hosts, jobs) = all(&fleet, NOW + 5 * S);
    let host = &hosts["h0"];
    let traced: Vec<_> = host.traced.iter().map(|t| (t.processes, t.nccl.as_deref(), t.kernel_events)).collect();
    assert_eq!(traced, [(1, Some("2.28.9"), Some(false)), (3, Some("2.28.9"), Some(true))]);
    assert_eq!((host.lost.ring, host.lost.spool, host.lost.server, host.lost.probe), (5, 7, 9, 0));
    assert_eq!(host.lost.last_at, TimeJson::of(NOW + 4 * S));
    let clock = host.clock.expect("it is known");
    assert_eq!((clock.bound_s, clock.drift_ppm), (Some(0.0004), 5.0));
    assert!((clock.offset_s + 2.0).abs() < 1e-3, "{clock:?}");
    // Collected at NOW by a clock that is 2 s behind, arrived 3 s later.
    assert!((host.behind_s - 1.0).abs() < 1e-3 && (host.silent_s - 2.0).abs() < 1e-9, "{host:?}");
    assert_eq!((jobs[0].world_size, jobs[0].ranks, jobs[0].missing, jobs[0].hosts), (Some(8), 4, 4, 1));
    assert_eq!(jobs[0].missing_ranks, [[4, 7]]);
}

#[test]
fn ranks_of_which_nobody_tells_are_ranges_at_both_ends_and_between() {
    let fleet = Fleet::default();
    for rank in [2, 3, 6] {
        fleet.take(NOW, &batch("h0", Some(rank), vec![process(u32::MAX, 22_809, true)]));
    }
    let job = &all(&fleet, NOW).1[0];
    assert_eq!(job.missing_ranks, [[0, 1], [4, 5], [7, u32::MAX - 1]]);
    assert_eq!(job.missing, u64::from(u32::MAX) - 3);
    let fleet = Fleet::default();
    fleet.take(NOW, &batch("h0", Some(0), vec![mark()]));
    let job = &all(&fleet, NOW).1[0];
    assert_eq!((job.world_size, job.missing), (None, 0), "nobody said how many there are");
}

#[test]
fn what_is_gone_is_forgotten_and_what_is_not_for_this_reader_is_not_told() {
    let fleet = Fleet::default();
    fleet.take(NOW, &batch("h0", Some(0), vec![process(2, 22_809, true)]));
    fleet.take(NOW, &batch("h0", Some(1), vec![process(2, 22_809, true)]));
    let (hosts, jobs) = fleet.json(NOW, |job| job != "train", &BTreeSet::new());
    assert!(hosts["h0"].traced.is_empty() && jobs.is_empty(), "a job of others");
    let (hosts, jobs) = fleet.json(NOW, |_| true, &BTreeSet::from(["train".to_owned()]));
    assert!(hosts["h0"].traced.is_empty() && jobs.is_empty(), "a job that is over");
    let exit = ProcessExit { noticed_at: NOW, clean: true, status: ExitStatus::Unknown };
    fleet.take(NOW, &batch("h0", Some(0), vec![Record::ProcessExit(exit)]));
    assert_eq!(all(&fleet, NOW).1[0].ranks, 1);
    // Rank 1 is started again under another number: its predecessor is no second rank.
    let mut again = batch("h0", Some(1), vec![process(2, 23_007, true)]);
    again.source.process = Some(ProcessKey { rank: Rank(1), pid: 300, nonce: 8 });
    fleet.take(NOW, &again);
    let (hosts, _) = all(&fleet, NOW);
    assert_eq!(hosts["h0"].traced.iter().map(|t| t.nccl_code).collect::<Vec<_>>(), [23_007]);
    // The host was started anew: nobody tells the end of what ran before.
    fleet.take(NOW + 601 * S, &batch("h0", None, vec![mark()]));
    fleet.forget(NOW + 601 * S);
    assert!(all(&fleet, NOW).0["h0"].traced.is_empty());
    fleet.forget(NOW + 601 * S + FORGOTTEN_NS - 1);
    assert_eq!(all(&fleet, NOW).0.len(), 1);
    fleet.forget(NOW + 601 * S + FORGOTTEN_NS);
    assert!(all(&fleet, NOW).0.is_empty());
}

#[test]
fn names_without_end_take_no_more_room_than_is_given() {
    let fleet = Fleet::default();
    (0..HOSTS_MAX + 9).for_each(|host| fleet.take(NOW, &batch(&format!("h{host}"), None, vec![mark()])));
    assert_eq!(all(&fleet, NOW).0.len(), HOSTS_MAX);
    fleet.forget(NOW + CROWDED_NS);
    fleet.take(NOW + CROWDED_NS, &batch("late", None, vec![mark()]));
    assert_eq!(all(&fleet, NOW + CROWDED_NS).0.len(), 1, "those that are silent made room");
    let many = Fleet::default();
    (0..1_500).for_each(|rank| many.take(NOW, &batch("h", Some(rank), vec![mark()])));
    assert_eq!(all(&many, NOW).1[0].ranks, PROCESSES_MAX as u64);
}

fn peer(host: &str, silent_s: u64) -> Peer {
    Peer {
        connection: 1,
        host: host.to_owned(),
        software: "mycroft 0.1.0".to_owned(),
        version: 4,
        silent: std::time::Duration::from_secs(silent_s),
        spooled: Some(mycroft_wire::Spooled { records: 5, bytes: 600, dropped: 1 }),
    }
}

#[test]
fn a_host_whose_agent_said_hello_and_nothing_else_is_remembered_for_a_day() {
    let fleet = Fleet::default();
    fleet.said(NOW, &peer("h0", 0));
    fleet.said(NOW + 10 * S, &peer("h0", 3));
    let host = all(&fleet, NOW + 20 * S).0["h0"].clone();
    assert_eq!((host.first_heard_at, host.last_heard_at, host.silent_s), (None, None, 0.0));
    let agent = host.last_agent.expect("it said hello");
    assert_eq!((agent.heard_at.ns, agent.wire_version), ((NOW + 7 * S).0, 4));
    assert_eq!(agent.spool, Some(SpoolJson { records: 5, bytes: 600, dropped: 1 }));
    fleet.take(NOW + 30 * S, &batch("h0", None, vec![mark()]));
    let host = all(&fleet, NOW + 30 * S).0["h0"].clone();
    assert_eq!((host.first_heard_at.clone(), host.first_heard_at), (host.last_heard_at, TimeJson::of(NOW + 30 * S)));
    fleet.said(NOW + 60 * S, &peer("h0", 0));
    fleet.forget(NOW + 60 * S + FORGOTTEN_NS - 1);
    assert_eq!(all(&fleet, NOW).0.len(), 1, "its agent was heard later than it");
    fleet.forget(NOW + 60 * S + FORGOTTEN_NS);
    assert!(all(&fleet, NOW).0.is_empty());
    (0..HOSTS_MAX + 9).for_each(|host| fleet.said(NOW, &peer(&format!("h{host}"), 0)));
    assert_eq!(all(&fleet, NOW).0.len(), HOSTS_MAX, "names without end");
}
