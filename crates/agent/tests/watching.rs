//! An agent watches real processes: what it tells of them while they live, and when they end.
mod common;

use common::child::{COMM, Job, Traced};
use common::{PATIENCE, Rig, only, steps, threads_named, wait_for, wait_until};
use mycroft_agent::{Agent, AgentConfig, AgentError};
use mycroft_record::{ExitStatus, GapCause, HostTime, NANOS_PER_MS, Rank, Record};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The child's entry; see `common::child`.
#[test]
fn traced_process() {
    common::child::main();
}

fn wall_now() -> HostTime {
    HostTime(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64)
}

/// Position of the first record that `is` holds for.
fn position(records: &[Record], is: impl Fn(&Record) -> bool) -> usize {
    records.iter().position(is).unwrap_or_else(|| panic!("not there: {records:#?}"))
}

fn op_of(record: &Record) -> Option<u64> {
    match record {
        Record::OpState(state) => Some(state.op.id.seq.0),
        _ => None,
    }
}

#[test]
fn a_job_that_ran_before_the_agent_is_told_whole() {
    let rig = Rig::new();
    let _server = rig.serve();
    let mut job = Traced::start(&rig.segment_dir(), "job-a", 3);
    job.tell("profiler");
    job.tell("begin 0");
    job.tell("end 0");
    job.tell("begin 1");
    job.tell("move 1");
    let begun = wall_now();
    let agent = rig.agent();
    rig.wait("the first sample", job.pid(), |r| matches!(r, Record::Sampled(_)).then_some(()));
    let records = rig.of(job.pid());
    let Record::Process(process) = &records[0] else { panic!("not the process first: {records:#?}") };
    assert_eq!((process.world_size, process.local_rank, process.gpu), (8, 3, -1));
    assert_eq!((process.profiler_abi, process.nccl_version, process.kernel_events), (6, 22900, true));
    let age_ns = begun.since_ns(process.attached_at);
    assert!(process.attached_at.is_some() && age_ns < PATIENCE.as_nanos() as u64, "{age_ns} ns ago");
    let Record::CommInit(comm) = &records[1] else { panic!("not the communicator second: {records:#?}") };
    assert_eq!((comm.comm, comm.n_ranks, comm.comm_rank.0, &*comm.name), (COMM, 8, 3, "DP_0"));
    let state = position(&records, |r| op_of(r) == Some(1));
    let Record::OpState(state) = &records[state] else { unreachable!("just found") };
    assert!(state.op.enqueued_at > process.attached_at && state.op.enqueued_at < begun);
    let flow = position(&records, |r| matches!(r, Record::FlowState(_)));
    let Record::FlowState(flow) = &records[flow] else { unreachable!("just found") };
    assert_eq!((flow.counters.done, flow.counters.total_chunks, flow.bytes), (1, 8, 1 << 19));
    assert!(records.iter().any(|r| matches!(r, Record::OpDone(done) if done.op.id.seq.0 == 0)));
    assert!(records.iter().any(|r| matches!(r, Record::FlowDone(_))));
    let source = rig.received()[0].source.clone();
    let process = rig.received().into_iter().find_map(|b| b.source.process).expect("a process");
    assert_eq!((&*source.job, &*source.host, process.rank), ("job-a", "host0", Rank(3)));
    job.leave();
    agent.stop();
}

#[test]
fn a_job_that_starts_after_the_agent_is_told_as_it_goes() {
    let rig = Rig::new();
    let _server = rig.serve();
    let agent = rig.agent();
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    let pid = job.pid();
    rig.wait("an idle sample", pid, |r| matches!(r, Record::Sampled(s) if s.ops_in_flight == 0).then_some(()));
    job.tell("begin 7");
    rig.wait("the operation", pid, |r| (op_of(r) == Some(7)).then_some(()));
    job.tell("profiler");
    rig.wait("the profiler", pid, |r| matches!(r, Record::Process(p) if p.profiler_abi == 6).then_some(()));
    job.tell("move 7");
    rig.wait("progress", pid, |r| matches!(r, Record::FlowState(f) if f.counters.done == 1).then_some(()));
    job.tell("end 7");
    rig.wait("its end", pid, |r| matches!(r, Record::OpDone(_)).then_some(()));
    job.tell("drop 5");
    rig.wait("the loss", pid, |r| {
        matches!(r, Record::Gap(g) if g.cause == GapCause::ProbeDropped && g.lost == 5).then_some(())
    });
    job.tell("close");
    rig.wait("the communicator's end", pid, |r| matches!(r, Record::CommEnd(end) if end.comm == COMM).then_some(()));
    job.leave();
    let exit = rig.wait("the exit", pid, |r| if let Record::ProcessExit(exit) = r { Some(*exit) } else { None });
    assert!(exit.clean);
    assert!(rig.segment_files().is_empty());
    let inits = rig.of(pid).iter().filter(|r| matches!(r, Record::CommInit(_))).count();
    assert_eq!(inits, 1, "a communicator is told once");
    let stats = agent.stop();
    assert_eq!((stats.segments, stats.records_lost, stats.dropped), (0, 5, 0));
    assert_eq!(stats.records_read, 2);
}

#[test]
fn a_killed_process_is_told_within_300_ms_with_what_it_was_doing() {
    let rig = Rig::new();
    let _server = rig.serve();
    let agent = rig.agent();
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    let pid = job.pid();
    job.tell("begin 0");
    job.tell("begin 1");
    rig.wait("both operations", pid, |r| (op_of(r) == Some(1)).then_some(()));
    job.tell("steps 3");
    let killed = wall_now();
    job.signal("-KILL");
    let exit = rig.wait("the exit", pid, |r| if let Record::ProcessExit(exit) = r { Some(*exit) } else { None });
    assert!(!exit.clean);
    assert_eq!(exit.status, ExitStatus::Signal(9), "its parent, this test, has not collected it");
    let after_ms = exit.noticed_at.since_ns(killed) / NANOS_PER_MS;
    assert!(after_ms < 300, "noticed after {after_ms} ms");
    let records = rig.of(pid);
    assert!(matches!(records.last(), Some(Record::ProcessExit(_))), "the exit is the last word");
    assert_eq!(steps(&records), [1, 2, 3]);
    let last: Vec<u64> =
        records[position(&records, |r| matches!(r, Record::StepMark(_)))..].iter().filter_map(op_of).collect();
    assert!(last.ends_with(&[0, 1]), "the final states: {last:?}");
    let dead =
        |r: &Record| matches!(r, Record::Sampled(s) if !s.alive && s.ops_in_flight == 2 && s.flows_in_flight == 2);
    assert!(records.iter().any(dead));
    wait_until("the file is removed", || rig.segment_files().is_empty());
    wait_until("nothing is watched", || agent.stats().segments == 0);
}

#[test]
fn a_process_that_died_before_the_agent_came_is_told_and_removed() {
    let rig = Rig::new();
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    let pid = job.pid();
    job.tell("begin 4");
    job.tell("steps 2000");
    drop(job);
    assert_eq!(rig.segment_files().len(), 1, "a killed process leaves its segment");
    let _server = rig.serve();
    let _agent = rig.agent();
    rig.wait("the exit", pid, |r| matches!(r, Record::ProcessExit(exit) if !exit.clean).then_some(()));
    let records = rig.of(pid);
    let read = steps(&records);
    let lost: u64 = records.iter().map(|r| if let Record::Gap(g) = r { g.lost } else { 0 }).sum();
    assert_eq!(read.last(), Some(&2000));
    assert_eq!(read.len() as u64 + lost, 2000, "every mark is read or told as lost");
    assert!(records.iter().any(|r| op_of(r) == Some(4)));
    wait_until("the file is removed", || rig.segment_files().is_empty());
}

#[test]
fn a_stopped_process_is_told_and_its_operations_are_told_again() {
    let rig = Rig::new();
    let _server = rig.serve();
    let _agent = rig.agent();
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    let pid = job.pid();
    job.tell("begin 0");
    job.signal("-STOP");
    rig.wait("the stop", pid, |r| matches!(r, Record::Sampled(s) if s.stopped && s.alive).then_some(()));
    let states = || -> Vec<HostTime> {
        let at = |r: &Record| if let Record::OpState(s) = r { Some(s.sampled_at) } else { None };
        rig.of(pid).iter().filter_map(at).collect()
    };
    wait_until("the operation is told four times", || states().len() >= 4);
    let told = states();
    for pair in told.windows(2).skip(1) {
        let apart_ms = pair[1].since_ns(pair[0]) / NANOS_PER_MS;
        assert!(apart_ms >= 990, "an unchanged operation is told once a second, not after {apart_ms} ms");
    }
    let samples: Vec<HostTime> =
        rig.of(pid).iter().filter_map(|r| if let Record::Sampled(s) = r { Some(s.at) } else { None }).collect();
    assert!(samples.windows(2).all(|pair| pair[1] > pair[0]));
    let per_second = samples.len() as u64 * 1000 / (samples[samples.len() - 1].since_ns(samples[0]) / NANOS_PER_MS);
    assert!(per_second <= 4, "an unchanged process is sampled twice a second, not {per_second} times");
    job.signal("-CONT");
    rig.wait("it goes on", pid, |r| matches!(r, Record::Sampled(s) if !s.stopped && s.at > told[3]).then_some(()));
}

#[test]
fn several_jobs_are_kept_apart_and_each_hears_of_the_host() {
    let rig = Rig::new();
    let _server = rig.serve();
    let _agent = Agent::start(AgentConfig { host: Some("node7".to_owned()), ..rig.config() }).expect("an agent");
    let jobs = [Traced::start(&rig.segment_dir(), "a", 0), Traced::start(&rig.segment_dir(), "b", 0)];
    for (job, name) in jobs.iter().zip(["a", "b"]) {
        rig.wait("a sample", job.pid(), |r| matches!(r, Record::Sampled(_)).then_some(()));
        let sources = rig.received().into_iter().map(|b| b.source);
        let mut own = sources.filter(|s| s.process.is_some_and(|p| p.pid == job.pid()));
        assert!(own.all(|s| &*s.job == name && &*s.host == "node7"));
    }
    for name in ["a", "b"] {
        wait_until("network and vitals", || {
            let about = |is: fn(&Record) -> bool| rig.of_hosts().iter().any(|(s, r)| &*s.job == name && is(r));
            about(|r| matches!(r, Record::NicState(n) if &*n.nic == "eth0" && n.up && n.tx_bytes == 4096))
                && about(|r| matches!(r, Record::HostVitals(v) if v.memory_available_bytes > 0))
        });
    }
}

#[test]
fn a_probe_that_takes_leave_ends_although_its_process_lives() {
    let rig = Rig::new();
    let _server = rig.serve();
    let agent = rig.agent();
    let job = Job::start(&rig.segment_dir(), "job", 0);
    let pid = std::process::id();
    rig.wait("a sample", pid, |r| matches!(r, Record::Sampled(_)).then_some(()));
    job.writer.mark_clean_exit();
    drop(job);
    rig.wait("the exit", pid, |r| matches!(r, Record::ProcessExit(exit) if exit.clean).then_some(()));
    wait_until("nothing is watched", || agent.stats().segments == 0);
}

#[test]
fn a_ring_that_laps_the_agent_is_a_gap() {
    let rig = Rig::new();
    let _server = rig.serve();
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    job.tell("steps 50000");
    let _agent = rig.agent();
    let pid = job.pid();
    let lost = rig.wait("the gap", pid, |r| match r {
        Record::Gap(gap) if gap.cause == GapCause::RingLapped => Some(gap.lost),
        _ => None,
    });
    let read = wait_for("the newest", || Some(steps(&rig.of(pid))).filter(|s| s.last() == Some(&50000)));
    assert_eq!(read.len() as u64 + lost, 50000);
}

#[test]
fn stopping_ships_the_last_records_and_leaves_no_thread() {
    let rig = Rig::new();
    let _server = rig.serve();
    let agent = rig.agent();
    let mut job = Traced::start(&rig.segment_dir(), "job", 0);
    rig.wait("a sample", job.pid(), |r| matches!(r, Record::Sampled(_)).then_some(()));
    job.tell("steps 100");
    agent.stop();
    assert_eq!(steps(&rig.of(job.pid())).last(), Some(&100), "drained and flushed by the stop itself");
    let dir = rig.segment_dir();
    job.tell("steps 1");
    Agent::start(rig.config()).expect("the directory is free again").stop();
    assert_eq!(steps(&rig.of(job.pid())), (1..=101).collect::<Vec<_>>(), "the next one goes on where this left off");
    assert!(!rig.of(job.pid()).iter().any(|r| matches!(r, Record::ProcessExit(_))), "the job goes on");
    assert_eq!(only(&rig.segment_files()).parent(), Some(&*dir));
}

#[test]
fn an_agent_that_cannot_work_says_why() {
    let rig = Rig::new();
    let agent = rig.agent();
    let second = Agent::start(rig.config()).expect_err("one agent per directory");
    assert!(matches!(second, AgentError::Locked { .. }), "{second}");
    let same_spool = AgentConfig { segment_dir: rig.segment_dir().join("other"), ..rig.config() };
    let second = Agent::start(same_spool).expect_err("one agent per spool");
    assert!(matches!(second, AgentError::Spool(_)), "{second}");
    assert!(second.to_string().contains("agent"), "{second}");
    agent.stop();
    let open = rig.segment_dir().join("open");
    std::fs::create_dir(&open).expect("a directory");
    std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("chmod");
    let refused = Agent::start(AgentConfig { segment_dir: open, ..rig.config() }).expect_err("anybody could write");
    assert!(refused.to_string().contains("0777"), "{refused}");
    let file = rig.segment_dir().join("file");
    std::fs::write(&file, "").expect("write");
    let refused = Agent::start(AgentConfig { segment_dir: file, ..rig.config() }).expect_err("not a directory");
    assert!(matches!(refused, AgentError::Dir { .. }), "{refused}");
    let zero = AgentConfig { sample_every: Duration::ZERO, ..rig.config() };
    let refused = Agent::start(zero).expect_err("no period");
    assert!(refused.to_string().contains("sample_every"), "{refused}");
}

#[test]
fn eight_ranks_cost_little() {
    let rig = Rig::new();
    let _server = rig.serve();
    let agent = rig.agent();
    let mut jobs: Vec<Job> = (0..8).map(|rank| Job::start(&rig.segment_dir(), "job", rank)).collect();
    wait_until("all are watched", || agent.stats().segments == 8);
    let (begin, before) = (Instant::now(), agent.stats());
    let mut seq = 0;
    // 100 operations per second and rank, as a training step of 300 ms with 30 collectives has.
    while begin.elapsed() < Duration::from_secs(2) {
        let due = begin.elapsed().as_millis() as u64 / 10;
        for seq in seq..due {
            for job in &mut jobs {
                job.begin(seq);
                job.advance(seq);
                job.end(seq);
            }
        }
        seq = due;
        std::thread::sleep(Duration::from_millis(5));
    }
    let (after, elapsed) = (agent.stats(), begin.elapsed());
    let share = (after.cpu - before.cpu).as_secs_f64() / elapsed.as_secs_f64();
    let bytes_per_sec = (after.bytes_shipped - before.bytes_shipped) as f64 / elapsed.as_secs_f64();
    println!("agent: {:.2} % of a core, {bytes_per_sec:.0} bytes shipped per second", share * 100.0);
    assert!(after.records_read - before.records_read > 8 * 2 * 100, "it was busy");
    assert!(share < 0.10, "{:.1} % of a core", share * 100.0);
    drop(agent);
    wait_until("no thread is left", || threads_named("mycroft-agent") == 0);
}

/// The thread that calls, as the kernel numbers it.
fn thread_id() -> String {
    let link = std::fs::read_link("/proc/thread-self").expect("this thread");
    link.file_name().expect("PID/task/TID").to_str().expect("a number").to_owned()
}

/// Three threads share one core; one of them writes a ring.
#[test]
fn how_long_threads_wait_for_a_processor_is_told() {
    if !std::path::Path::new("/proc/self/schedstat").exists() {
        eprintln!("skipped: this kernel does not count how long threads wait");
        return;
    }
    let rig = Rig::new();
    let _server = rig.serve();
    let _agent = rig.agent();
    let until = Arc::new(AtomicBool::new(false));
    let (tell, told) = mpsc::channel();
    let threads: Vec<_> = (0..3)
        .map(|n| {
            let (until, tell, dir) = (Arc::clone(&until), tell.clone(), rig.segment_dir());
            std::thread::spawn(move || {
                let job = (n == 0).then(|| Job::start(&dir, "crowd", 0));
                tell.send(thread_id()).expect("the test listens");
                while !until.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                drop(job);
            })
        })
        .collect();
    for thread in told.iter().take(threads.len()) {
        let status = Command::new("taskset").args(["-cp", "0", &thread]).stdout(Stdio::null()).status();
        assert!(status.expect("taskset of util-linux").success());
    }
    let crowded = |record: &Record| matches!(record, Record::HostVitals(vitals) if vitals.cpu_wait_milli >= 300);
    wait_until("threads that wait", || rig.of_hosts().iter().any(|(_, record)| crowded(record)));
    until.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("it spins"));
}
