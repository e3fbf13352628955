//! Whole testbeds of four processes on two hosts, in both transports: right data, real effects of every fault, and
//! nothing left behind. Rank and launcher processes are this test binary again, see `rank_process`.
mod common;

use common::{be_a_rank, launch, this_binary};
use mycroft_sim::{Fault, FaultKind, Scenario, Transport};
use mycroft_testbed::{LaunchConfig, Running, Testbed, Tracer, collect_leftovers};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Long enough for a loaded machine of two cores; a pass takes a fraction of it.
const LIMIT: Duration = Duration::from_secs(60);
/// A healthy iteration takes less than a tenth of a second: a job that does not move in this time hangs.
const HANG: Duration = Duration::from_millis(2500);

/// Not a test of its own: the process of one rank, when the launcher appended its arguments.
#[test]
fn rank_process() {
    be_a_rank();
}

fn small(transport: Transport) -> Scenario {
    Scenario {
        name: "small".to_owned(),
        hosts: 2,
        ranks_per_host: 2,
        tp: 2,
        pp: 1,
        dp: 2,
        micro_batches: 2,
        layers: 1,
        dp_bytes: 128 << 10,
        nic_bytes_per_sec: 20_000_000,
        loss_every: 2,
        transport,
        ..Scenario::default()
    }
}

/// Both transports where namespaces may be made, else loopback alone.
fn transports() -> Vec<Transport> {
    // SAFETY: no arguments, no effects.
    let root = unsafe { libc::geteuid() } == 0;
    if root {
        vec![Transport::Loopback, Transport::Netns]
    } else {
        eprintln!("not root: namespaces are not tested");
        vec![Transport::Loopback]
    }
}

/// Names in a directory that begin with a run's tag.
fn named(dir: &Path, tag: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|e| e.file_name().to_string_lossy().starts_with(tag)).map(|e| e.path()).collect()
}

fn assert_nothing_left(tag: &str, pids: &[u32]) {
    for dir in [std::env::temp_dir(), "/dev/shm".into(), "/run/netns".into()] {
        assert_eq!(named(&dir, tag), Vec::<PathBuf>::new());
    }
    let alive: Vec<&u32> = pids.iter().filter(|pid| Path::new("/proc").join(pid.to_string()).exists()).collect();
    assert!(alive.is_empty(), "still running: {alive:?}");
}

fn stop_and_check(running: Running) {
    let (tag, mut pids) = (running.tag().to_owned(), running.rank_pids().to_vec());
    pids.extend(running.agent_pids());
    running.stop();
    assert_nothing_left(&tag, &pids);
}

fn iterations_of_a_healthy_job(scenario: Scenario, iterations: u64) {
    let transport = scenario.transport;
    let mut running = launch(scenario);
    assert_eq!(running.transport(), transport);
    running.wait_for_iteration(iterations, LIMIT).unwrap();
    let exits = running.finish(LIMIT);
    assert!(exits.iter().all(|exit| exit.clean), "{exits:?}");
    assert!(running.progress().iteration_ms_median.unwrap() < 1000.0);
    assert_eq!(running.truth().fault, None);
    stop_and_check(running);
}

#[test]
fn a_small_job_computes_the_right_data() {
    for transport in transports() {
        iterations_of_a_healthy_job(small(transport), 20);
    }
}

#[test]
fn pipelines_experts_and_trees_compute_the_right_data() {
    let pipeline = Scenario { tp: 1, pp: 2, dp: 2, moe: true, ..small(Transport::Loopback) };
    iterations_of_a_healthy_job(pipeline, 8);
    let tree = Scenario {
        tp: 1,
        dp: 4,
        algo: mycroft_sim::Algo::Tree,
        dp_mode: mycroft_sim::DpMode::AllReduce,
        start_skew_ms: 300,
        ..small(Transport::Loopback)
    };
    iterations_of_a_healthy_job(tree, 8);
}

/// Half of what a proxy thread sleeps at once, milliseconds: other causes do not stop this small job for as long.
const HALF_A_SLEEP_MS: f64 = 500.0;

/// Injects each slowdown in turn into one job: it slows down by half at least, and recovers when healed.
fn slowdowns(transport: Transport) {
    let mut running = launch(small(transport));
    for kind in FaultKind::TESTBED.into_iter().filter(|kind| !kind.stops_job()) {
        advance(&mut running, 12);
        running.inject_fault(&Fault::new(kind, 1)).unwrap();
        assert!(running.truth().at_ms > 0);
        let from = running.progress().iterations.into_iter().max().unwrap();
        advance(&mut running, 6);
        let progress = running.progress();
        let healthy = progress.iteration_ms_median.unwrap();
        let faulty = match kind {
            FaultKind::ProxyDelay => first_slow_lap(&mut running, from, HALF_A_SLEEP_MS),
            _ => progress.faulty_iteration_ms_median.unwrap(),
        };
        eprintln!("{transport} {kind}: {healthy:.1} ms -> {faulty:.1} ms ({:.1}x)", faulty / healthy);
        assert!(faulty > 1.5 * healthy, "{transport} {kind}: {healthy:.1} ms -> {faulty:.1} ms");
        running.heal();
    }
    let exits = running.finish(LIMIT);
    assert!(exits.iter().all(|exit| exit.clean), "{exits:?}");
    stop_and_check(running);
}

/// Waits until all ranks have gone `more` iterations on.
fn advance(running: &mut Running, more: u64) {
    let now = running.progress().iterations.into_iter().max().unwrap();
    running.wait_for_iteration(now + more, LIMIT).unwrap();
}

/// What the first iteration from `from` on took that took longer than `least` milliseconds. A proxy thread sleeps in some
/// steps only, and this small job sends few: it may be a while until it does.
fn first_slow_lap(running: &mut Running, from: u64, least: f64) -> f64 {
    for _ in 0..200 {
        if let Some((_, lap)) = running.laps().into_iter().find(|(at, lap)| *at >= from && lap.ms > least) {
            return lap.ms;
        }
        advance(running, 1);
    }
    panic!("no iteration since {from} took longer than {least} ms");
}

#[test]
fn slowdowns_slow_the_job_on_loopback() {
    slowdowns(Transport::Loopback);
}

#[test]
fn slowdowns_slow_the_job_in_namespaces() {
    if transports().contains(&Transport::Netns) {
        slowdowns(Transport::Netns);
    }
}

/// Injects one fault that stops the job, and checks that it does.
fn stops(transport: Transport, kind: FaultKind) {
    let mut running = launch(small(transport));
    running.wait_warmed_up(LIMIT).unwrap();
    let fault: Fault = format!("{kind}@host1").parse().unwrap();
    running.inject_fault(&fault).unwrap();
    let before = running.progress();
    assert!(!running.wait(HANG), "{transport} {kind}: all ranks ended");
    let after = running.progress();
    let moved: Vec<u64> = after.iterations.iter().zip(&before.iterations).map(|(a, b)| a - b).collect();
    assert!(moved.iter().all(|&moved| moved <= 3), "{transport} {kind}: went on by {moved:?}");
    assert_eq!(after.ranks_alive, if kind == FaultKind::RankCrash { 3 } else { 4 }, "{transport} {kind}");
    let culprits = if kind == FaultKind::NicDown { vec![2, 3] } else { vec![2] };
    assert_eq!((running.truth().hosts.clone(), running.truth().ranks.clone()), (vec!["host1".to_owned()], culprits));
    stop_and_check(running);
}

#[test]
fn stopping_faults_stop_the_job() {
    for transport in transports() {
        for kind in FaultKind::TESTBED.into_iter().filter(|kind| kind.stops_job()) {
            stops(transport, kind);
        }
    }
}

#[test]
fn a_link_that_comes_up_again_lets_the_job_go_on() {
    for transport in transports() {
        let mut running = launch(small(transport));
        running.wait_warmed_up(LIMIT).unwrap();
        running.inject_fault(&Fault::new(FaultKind::NicDown, 0)).unwrap();
        assert!(!running.wait(Duration::from_millis(700)));
        running.heal();
        let now = running.progress().iterations.into_iter().max().unwrap();
        running.wait_for_iteration(now + 5, LIMIT).unwrap();
        stop_and_check(running);
    }
}

#[test]
fn agents_run_inside_their_host_and_see_its_nic() {
    for transport in transports() {
        let script = |host: &mycroft_testbed::Host| {
            let nic = host.nic_root.join("eth0");
            let text = format!("cat {0}/operstate && echo nic-{1} && exec sleep 600", nic.display(), host.name);
            ["sh", "-c", &text].map(OsString::from).to_vec()
        };
        let config = LaunchConfig {
            tracer: Tracer::Off,
            agent_command: Some(Box::new(script)),
            ..LaunchConfig::new(small(transport), this_binary("rank_process"))
        };
        let mut running = Testbed::launch(config).unwrap();
        running.wait_warmed_up(LIMIT).unwrap();
        for host in running.hosts() {
            let log = running.run_dir().join("logs").join(format!("agent-{}.log", host.name));
            let text = std::fs::read_to_string(log).unwrap();
            assert_eq!(text, format!("up\nnic-{}\n", host.name));
        }
        stop_and_check(running);
    }
}

#[test]
fn ranks_load_the_tracer_and_take_their_segments_with_them() {
    let config = LaunchConfig::new(small(Transport::Loopback), this_binary("rank_process"));
    let mut running = Testbed::launch(config).unwrap();
    running.wait_warmed_up(LIMIT).unwrap();
    let segments = |running: &Running| -> Vec<usize> {
        running.hosts().iter().map(|host| std::fs::read_dir(&host.segment_dir).unwrap().count()).collect()
    };
    assert_eq!(segments(&running), vec![2, 2]);
    let exits = running.finish(LIMIT);
    assert!(exits.iter().all(|exit| exit.clean), "{exits:?}");
    assert_eq!(segments(&running), vec![0, 0]);
    stop_and_check(running);
}

#[test]
fn a_panicking_launcher_leaves_nothing() {
    for transport in transports() {
        let mut seen = (String::new(), Vec::new());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut running = launch(small(transport));
            running.wait_warmed_up(LIMIT).unwrap();
            seen = (running.tag().to_owned(), running.rank_pids().to_vec());
            panic!("on purpose");
        }));
        assert!(outcome.is_err());
        assert_eq!(seen.1.len(), 4);
        assert_nothing_left(&seen.0, &seen.1);
    }
}

#[test]
fn runs_beside_each_other_do_not_meet() {
    let mut all: Vec<Running> =
        transports().into_iter().flat_map(|transport| [launch(small(transport)), launch(small(transport))]).collect();
    all[0].inject_fault(&Fault::new(FaultKind::NicDown, 0)).unwrap();
    for running in &mut all[1..] {
        running.wait_for_iteration(10, LIMIT).unwrap();
        let exits = running.finish(LIMIT);
        assert!(exits.iter().all(|exit| exit.clean), "{exits:?}");
    }
    all.into_iter().for_each(stop_and_check);
}

#[test]
fn logs_stay_where_a_directory_was_given() {
    let base = tempfile::tempdir().unwrap();
    let run_dir = base.path().join("run");
    let config = LaunchConfig {
        tracer: Tracer::Off,
        run_dir: Some(run_dir.clone()),
        ..LaunchConfig::new(small(Transport::Loopback), this_binary("rank_process"))
    };
    let mut running = Testbed::launch(config).unwrap();
    running.wait_warmed_up(LIMIT).unwrap();
    stop_and_check(running);
    let left: Vec<_> = std::fs::read_dir(&run_dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, vec![OsString::from("logs")]);
    assert!(run_dir.join("logs/rank-3.log").is_file());
}

/// Not a test of its own: a launcher that is going to be killed. It writes its tag and pids where it is told.
#[test]
fn launcher_process() {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(at) = arguments.iter().position(|argument| argument == "--doomed") else { return };
    let transport = arguments[at + 1].parse().unwrap();
    let mut running = launch(small(transport));
    running.wait_warmed_up(LIMIT).unwrap();
    let pids: Vec<String> = running.rank_pids().iter().map(u32::to_string).collect();
    let part = format!("{}.part", arguments[at + 2]);
    std::fs::write(&part, format!("{} {}", running.tag(), pids.join(" "))).unwrap();
    std::fs::rename(&part, &arguments[at + 2]).unwrap();
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_launcher_leaves_what_the_collector_finds() {
    for transport in transports() {
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("report");
        let argv = this_binary("launcher_process");
        let mut launcher = std::process::Command::new(&argv[0])
            .args(&argv[1..])
            .args(["--doomed".into(), transport.to_string().into(), report.clone().into_os_string()])
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let until = |what: &str, done: &mut dyn FnMut() -> bool| {
            while !done() {
                assert!(begun.elapsed() < LIMIT, "{what}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        until("the launcher reports", &mut || report.exists());
        let text = std::fs::read_to_string(&report).unwrap();
        let mut words = text.split(' ');
        let tag = words.next().unwrap().to_owned();
        let pids: Vec<u32> = words.map(|word| word.parse().unwrap()).collect();
        // A living launcher's run is not touched.
        let collected = collect_leftovers();
        assert!(!collected.directories.iter().any(|path| path.to_string_lossy().contains(&tag)), "{collected:?}");
        assert!(pids.iter().all(|pid| Path::new("/proc").join(pid.to_string()).exists()));
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        let gone = |pid: &u32| !Path::new("/proc").join(pid.to_string()).exists();
        until("ranks die with their launcher", &mut || pids.iter().all(gone));
        assert!(!named(&std::env::temp_dir(), &tag).is_empty());
        let collected = collect_leftovers();
        assert!(!collected.is_empty());
        assert_nothing_left(&tag, &pids);
    }
}
