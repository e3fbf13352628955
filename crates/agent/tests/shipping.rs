//! What becomes of records while the server is away, comes back, or never comes.
mod common;

use common::child::{Traced, noise};
use common::{PATIENCE, Rig, steps, wait_for, wait_until};
use mycroft_agent::{Agent, AgentConfig, Notice};
use mycroft_record::{Batch, GapCause, NANOS_PER_SEC, Record};
use mycroft_wire::Spooled;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The child's entry; see `common::child`.
#[test]
fn traced_process() {
    common::child::main();
}

/// Marks without those that came twice: a frame that was on its way when the server went away is sent again.
fn in_order_once(marks: &[u64]) -> Vec<u64> {
    let mut once = marks.to_vec();
    once.dedup();
    once.sort_unstable();
    once.dedup();
    once
}

/// Records of the process that its spool lost.
fn spool_lost(records: &[Record]) -> u64 {
    let lost = |r: &Record| match r {
        Record::Gap(gap) if gap.cause == GapCause::SpoolDropped => gap.lost,
        _ => 0,
    };
    records.iter().map(lost).sum()
}

#[test]
fn a_server_that_is_lost_and_back_misses_nothing() {
    let rig = Rig::new();
    let server = rig.serve();
    let agent = rig.agent();
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    let pid = job.pid();
    job.tell("steps 100");
    wait_until("the first marks", || steps(&rig.of(pid)).last() == Some(&100));
    drop(server);
    wait_until("the loss is noticed", || !agent.stats().connected);
    job.tell("steps 100");
    wait_until("records are spooled", || agent.stats().spooled > 0);
    job.tell("steps 100");
    let _server = rig.serve();
    job.tell("steps 100");
    let marks = wait_for("the last mark", || Some(steps(&rig.of(pid))).filter(|m| m.last() == Some(&400)));
    assert_eq!(in_order_once(&marks), (1..=400).collect::<Vec<_>>());
    assert!(marks.is_sorted(), "each source in order: {marks:?}");
    wait_until("the spool is empty", || agent.stats().spooled == 0);
    wait_until("the process is told again to a server that may be new", || {
        let records = rig.of(pid);
        let told = |is: fn(&Record) -> bool| records.iter().filter(|r| is(r)).count();
        told(|r| matches!(r, Record::Process(_))) >= 2 && told(|r| matches!(r, Record::CommInit(_))) >= 2
    });
    let records = rig.of(pid);
    assert_eq!((spool_lost(&records), agent.stats().dropped), (0, 0));
    let notices = agent.take_notices();
    let away = notices.iter().filter(|n| matches!(n, Notice::ServerAway { .. })).count();
    assert!((1..=3).contains(&away), "told when its reason changes, not at each attempt: {notices:?}");
    assert!(matches!(notices.last(), Some(Notice::ServerBack { .. })), "{notices:?}");
}

#[test]
fn an_agent_without_a_server_keeps_its_records_for_the_next_run() {
    let rig = Rig::new();
    let agent = rig.agent();
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    let pid = job.pid();
    wait_until("it is watched", || agent.stats().segments == 1);
    job.tell("steps 50");
    let stats = agent.stop();
    assert!(stats.spooled > 0 && !stats.connected, "{stats:?}");
    job.signal("-KILL");
    let agent = rig.agent();
    wait_until("the end is seen", || agent.stats().segments == 0 && rig.segment_files().is_empty());
    let _server = rig.serve();
    rig.wait("the exit", pid, |r| matches!(r, Record::ProcessExit(_)).then_some(()));
    let records = rig.of(pid);
    assert_eq!(in_order_once(&steps(&records)), (1..=50).collect::<Vec<_>>());
    assert!(matches!(records[0], Record::Process(_)), "what waited longest comes first: {:?}", records[0]);
    assert_eq!(spool_lost(&records), 0);
}

#[test]
fn a_spool_that_overflows_drops_the_oldest_and_says_how_many() {
    let rig = Rig::new();
    let agent = Agent::start(AgentConfig { spool_max_bytes: 64 << 10, ..rig.config() }).expect("an agent");
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    let pid = job.pid();
    wait_until("it is watched", || agent.stats().segments == 1);
    let mut told = 0;
    wait_until("the spool overflows more than once", || {
        if agent.stats().records_read == told {
            job.tell("noise 500");
            told += 500;
        }
        agent.stats().dropped > 10_000
    });
    let server = rig.serve();
    wait_until("the newest mark arrives", || steps(&rig.of(pid)).last() == Some(&noise(told)));
    wait_until("the spool is empty", || agent.stats().spooled == 0);
    wait_until("the server is told so, and what was dropped", || {
        let dropped = agent.stats().dropped;
        server.peers().first().and_then(|peer| peer.spooled) == Some(Spooled { records: 0, bytes: 0, dropped })
    });
    let stats = agent.stop();
    assert_eq!(stats.records_lost, 0, "the ring held what the agent had not read");
    let records = rig.of(pid);
    let marks = steps(&records);
    let lost_marks = told - marks.len() as u64;
    let newest: Vec<u64> = (lost_marks + 1..=told).map(noise).collect();
    assert!(marks == newest, "what is left is the newest, whole and in order");
    let lost = spool_lost(&records);
    assert!(lost_marks > 0 && lost >= lost_marks, "{lost} told as lost, {lost_marks} marks are");
    assert!(lost < lost_marks + 1000, "and few others: {lost}, {lost_marks} marks");
    let gap = records.iter().position(|r| matches!(r, Record::Gap(_))).expect("a gap");
    let first = records.iter().position(|r| matches!(r, Record::StepMark(_))).expect("a mark");
    assert!(gap < first, "the loss is told before what came after it");
    let hosts: u64 = rig.of_hosts().iter().map(|(_, r)| spool_lost(std::slice::from_ref(r))).sum();
    assert_eq!(stats.dropped, lost + hosts, "each record lost is told of its source");
}

#[test]
fn a_server_that_refuses_is_told_once_with_its_reason() {
    use mycroft_wire::{Listener, ServerConfig};
    let rig = Rig::new();
    let config = ServerConfig { token: Some("secret".to_owned()).into(), ..ServerConfig::default() };
    let listener = Listener::bind(&rig.endpoint(), config).expect("the server binds");
    let _server = listener.serve(std::sync::Arc::new(|_| panic!("nobody may send")));
    let agent = rig.agent();
    let mut notices = Vec::new();
    wait_until("the refusal", || {
        notices.extend(agent.take_notices());
        !notices.is_empty()
    });
    wait_until("records are spooled", || agent.stats().spooled == 0 && agent.stats().cpu.as_millis() > 0);
    let stats = agent.stop();
    assert!(!stats.connected);
    assert!(matches!(&notices[..], [Notice::ServerRefused { reason, .. }] if reason.contains("token")), "{notices:?}");
    let told = notices[0].to_string();
    assert!(told.starts_with("refused by server") && !told.contains("away"), "{told}");
}

#[test]
fn what_a_host_ships_at_once_is_one_frame_with_times_in_microseconds() {
    let rig = Rig::new();
    let server = rig.serve();
    let _agent = rig.agent();
    let mut jobs: Vec<Traced> = (0..2).map(|rank| Traced::start(&rig.segment_dir(), "job", rank)).collect();
    for job in &mut jobs {
        job.tell("steps 100");
    }
    for job in &jobs {
        wait_until("the last mark", || steps(&rig.of(job.pid())).last() == Some(&100));
    }
    // Read before the batches, so that every frame counted is among them.
    let frames = server.stats().frames;
    let received = rig.received();
    let mut rounded = received.clone();
    rounded.iter_mut().for_each(mycroft_wire::codec::round_to_micros);
    assert_eq!(received, rounded, "no time is finer than a microsecond");
    let shipments: BTreeSet<_> = received.iter().map(|batch| batch.collected_at).collect();
    assert!(received.len() > shipments.len(), "some of them carry both processes, or one and the host");
    assert!(frames <= shipments.len() as u64, "{frames} frames for {} shipments", shipments.len());
}

#[test]
fn what_a_server_rejects_for_good_is_told_as_lost_and_what_follows_arrives() {
    use mycroft_wire::{Listener, ServerConfig};
    let rig = Rig::new();
    let received = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&received);
    let listener = Listener::bind(&rig.endpoint(), ServerConfig::default()).expect("the server binds");
    let _server = listener.serve(Arc::new(move |frame: Vec<Batch>| {
        let records: Vec<Record> = frame.into_iter().flat_map(|batch| batch.records).collect();
        assert!(!steps(&records).contains(&1), "a defect of the server");
        taken.lock().expect("the lock is not held while it fails").extend(records);
    }));
    let agent = rig.agent();
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    wait_until("it is watched", || agent.stats().segments == 1 && agent.stats().batches_shipped > 0);
    job.tell("steps 1");
    let all = || received.lock().expect("the lock is not held while it fails").clone();
    let gap = |r: &Record| match r {
        Record::Gap(gap) if gap.cause == GapCause::ServerDropped => Some(gap.lost),
        _ => None,
    };
    let lost: u64 = wait_for("the loss is told", || all().iter().find_map(gap));
    job.tell("steps 1");
    wait_until("the next mark arrives", || steps(&all()) == [2]);
    assert!(lost > 0 && agent.stats().dropped >= lost, "{lost} of {:?}", agent.stats());
}

#[test]
fn a_server_that_stops_reading_does_not_keep_an_agent_from_stopping() {
    use mycroft_wire::{Listener, ServerConfig};
    let rig = Rig::new();
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let listener = Listener::bind(&rig.endpoint(), ServerConfig::default()).expect("the server binds");
    let server = listener.serve(Arc::new(move |_| {
        let _ = gate.lock().expect("nobody panics").recv();
    }));
    let timeout = Duration::from_millis(500);
    let agent = Agent::start(AgentConfig { stop_timeout: timeout, ..rig.config() }).expect("an agent");
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    wait_until("it is watched", || agent.stats().segments == 1 && agent.stats().connected);
    let mut told = 0;
    wait_until("more is there than a socket holds", || {
        let stats = agent.stats();
        if stats.records_read + stats.records_lost >= told {
            job.tell("noise 2000");
            told += 2000;
        }
        told >= 60_000
    });
    let begun = Instant::now();
    let stats = agent.stop();
    let took = begun.elapsed();
    assert!(took < timeout + Duration::from_secs(2), "stopping took {took:?}");
    assert!(stats.spooled > 0 && stats.dropped == 0, "{stats:?}");
    drop(open);
    drop(server);
}

/// The host's clock is off: what the agent tells is off alike, and its server knows by how much before the first of it.
#[test]
fn times_of_a_host_whose_clock_is_off_come_with_what_they_are_off_by() {
    for hours in [-1i64, 1] {
        let shift_ns = hours * 3600 * NANOS_PER_SEC as i64;
        let rig = Rig::new();
        let _server = rig.serve();
        let job = Traced::start(&rig.segment_dir(), "job-a", 3);
        let agent = Agent::start(AgentConfig { clock_shift_ns: shift_ns, ..rig.config() }).expect("the agent starts");
        let sampled = rig.wait("a sample", job.pid(), |r| match r {
            Record::Sampled(sampled) => Some(sampled.at),
            _ => None,
        });
        let offset = wait_for("a known offset", || {
            rig.of_hosts().into_iter().find_map(|(_, record)| match record {
                Record::ClockOffset(offset) if offset.is_known() => Some(offset),
                _ => None,
            })
        });
        assert!(offset.offset_ns.abs_diff(shift_ns) <= offset.bound_ns, "{offset:?}");
        let first = &rig.received()[0];
        assert!(matches!(first.records[..], [Record::ClockOffset(_)]), "before everything else: {first:?}");
        // The looks of a process and what is told of the host are of one clock.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64;
        let corrected = offset.server_time(sampled).0;
        assert!(now.abs_diff(corrected) < PATIENCE.as_nanos() as u64, "{corrected} is not {now}");
        job.leave();
        agent.stop();
    }
}
