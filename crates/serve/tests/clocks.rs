//! Hosts whose clocks are off: the simulator's jobs, seen by agents with wrong clocks that exchange times with the server
//! as the wire does, have the verdicts that they have when all clocks are right.
use mycroft_diagnose::{Report, render};
use mycroft_record::{Batch, HostName, HostTime, NANOS_PER_MS, NANOS_PER_SEC, Record};
use mycroft_serve::TICK;
use mycroft_serve::replay::{Player, TAIL};
use mycroft_sim::{Delivery, EPOCH, Scenario, Simulation, Truth, score};
use mycroft_wire::clock::{PeerClock, Stamps};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

const MS: u64 = NANOS_PER_MS;
const S: i64 = NANOS_PER_SEC as i64;

/// A clock against the true time.
#[derive(Clone, Copy, Debug, Default)]
struct Clock {
    offset_ns: i64,
    drift_ppb: i64,
    /// At so many nanoseconds of the job it is set by so much.
    step: Option<(u64, i64)>,
}

impl Clock {
    fn off(offset_ns: i64) -> Clock {
        Clock { offset_ns, ..Clock::default() }
    }

    /// What it shows at a true time, whole microseconds.
    fn read(&self, at: HostTime) -> HostTime {
        if !at.is_some() {
            return at;
        }
        let run = at.0 as i64 - EPOCH as i64;
        let drifted = (i128::from(run) * i128::from(self.drift_ppb) / i128::from(S)) as i64;
        let step = self.step.filter(|(when, _)| run >= *when as i64).map_or(0, |(_, ns)| ns);
        HostTime(at.0.saturating_add_signed(self.offset_ns + drifted + step) / 1000 * 1000)
    }
}

/// One host's agent and its connection.
struct Line {
    clock: Clock,
    stamps: Stamps,
    peer: PeerClock,
    /// Frames sent so far.
    frames: u64,
}

/// Whether agents exchange times.
#[derive(Clone, Copy, PartialEq)]
enum Wire {
    Times,
    /// An agent of version 2.
    Old,
    /// As it was: nobody compares clocks.
    Blind,
}

/// Brings deliveries to the brain as agents with these clocks send them.
fn play(deliveries: &[Delivery], clocks: &BTreeMap<&str, Clock>, wire: Wire) -> Report {
    let mut player = Player::new(TICK);
    let mut lines: BTreeMap<HostName, Line> = BTreeMap::new();
    let mut next = 0;
    while next < deliveries.len() {
        // A frame: what one host ships at a time.
        let (at, host) = (deliveries[next].arrives_at, deliveries[next].batch.source.host.clone());
        let same = |one: &&Delivery| one.arrives_at == at && one.batch.source.host == host;
        let frame: Vec<&Delivery> = deliveries[next..].iter().take_while(same).collect();
        next += frame.len();
        let line = lines.entry(host.clone()).or_insert_with(|| {
            let clock = clocks.get(&*host).copied().unwrap_or_default();
            Line { clock, stamps: Stamps::default(), peer: PeerClock::default(), frames: 0 }
        });
        let shown = |batch: &Batch| {
            let mut batch = batch.clone();
            batch.collected_at = line.clock.read(batch.collected_at);
            batch.records.iter_mut().for_each(|record| record.each_time(|time| *time = line.clock.read(*time)));
            batch
        };
        let batches: Vec<Batch> = frame.iter().map(|one| shown(&one.batch)).collect();
        let arrives = HostTime(at);
        if wire == Wire::Times {
            // The way there takes some of the time since the frame was collected; the answer is read before the next.
            let sent = frame[0].batch.collected_at.max(arrives - (MS + line.frames % 7 * MS / 2)).min(arrives);
            line.peer.take(line.stamps.stamp(line.clock.read(sent)), arrives);
        }
        let mut told = line.peer.tell(&batches, arrives);
        if wire == Wire::Blind {
            told.clear();
        }
        if wire == Wire::Times {
            let answer = line.peer.stamp(arrives);
            let late = if line.frames.is_multiple_of(5) { MS } else { 60 * MS };
            line.stamps.take(answer, line.clock.read(arrives + late));
        }
        line.frames += 1;
        told.iter().chain(&batches).for_each(|batch| player.deliver(arrives, batch));
    }
    player.finish(TAIL).pop_first().expect("one job").1.report
}

struct Job {
    deliveries: Vec<Delivery>,
    truth: Truth,
    right: Report,
}

/// A scenario, played once for all tests of this process.
fn job(name: &'static str) -> Job {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../scenarios/{name}.toml"));
    let mut simulation = Simulation::new(&Scenario::load(&path).unwrap());
    let mut deliveries = Vec::new();
    while let Some(stretch) = simulation.next_stretch() {
        deliveries.extend(stretch);
    }
    // All that arrives at a time, host by host: a frame each.
    deliveries.sort_by(|a, b| (a.arrives_at, &a.batch.source.host).cmp(&(b.arrives_at, &b.batch.source.host)));
    let truth = simulation.truth().pop().unwrap_or_else(Truth::healthy);
    let right = play(&deliveries, &BTreeMap::new(), Wire::Times);
    Job { deliveries, truth, right }
}

/// The text of a report without what it says of clocks.
fn golden(report: &Report) -> String {
    let lines = render(report);
    let about_clocks = |line: &&str| line.starts_with("caveat clock-");
    lines.lines().filter(|line| !about_clocks(line)).map(|line| format!("{line}\n")).collect()
}

/// What is named, of what kind, and when it began to within a tenth of a second.
fn verdicts(report: &Report) -> Vec<String> {
    let of = |case: &mycroft_diagnose::Case| {
        let finding = &case.finding;
        let places: Vec<String> = finding.suspects.iter().take(1).map(|one| format!("{:?}", one.place)).collect();
        format!("{} {} {places:?}", finding.what, finding.category)
    };
    report.cases.iter().map(of).collect()
}

fn agrees(name: &str, job: &Job, clocks: &BTreeMap<&str, Clock>, wire: Wire) -> Report {
    let report = play(&job.deliveries, clocks, wire);
    let about =
        || format!("{name} with {clocks:?}\n{}\nand with right clocks\n{}", render(&report), render(&job.right));
    assert_eq!(verdicts(&report), verdicts(&job.right), "{}", about());
    let verdict = score(&job.truth, report.cases.first().map(|case| &case.finding));
    assert!(verdict.correct, "{}: {}", verdict.why, about());
    for (one, right) in report.cases.iter().zip(&job.right.cases) {
        let apart = one.finding.since.0.abs_diff(right.finding.since.0);
        assert!(apart <= 100 * MS, "{apart} ns apart: {}", about());
    }
    report
}

const FAULTS: [&str; 4] = ["rank-stuck-16", "gpu-power-16", "nic-bandwidth-16", "rank-crash-16"];

fn jobs() -> &'static [(&'static str, Job)] {
    static JOBS: OnceLock<Vec<(&'static str, Job)>> = OnceLock::new();
    JOBS.get_or_init(|| FAULTS.into_iter().map(|name| (name, job(name))).collect())
}

#[test]
fn right_clocks_change_nothing() {
    for (name, job) in jobs() {
        let mut player = Player::new(TICK);
        job.deliveries.iter().for_each(|one| player.deliver(HostTime(one.arrives_at), &one.batch));
        let plain = player.finish(TAIL).pop_first().unwrap().1.report;
        let thresholds = |text: String| text.lines().filter(|line| !line.starts_with("threshold")).count();
        assert_eq!(verdicts(&plain), verdicts(&job.right), "{name}");
        assert_eq!(thresholds(render(&plain)), thresholds(render(&job.right)), "{name}");
        assert!(job.right.caveats.iter().all(|caveat| !caveat.rule.starts_with("clock-")), "{:?}", job.right.caveats);
    }
}

/// What the tests of this file would miss if they could not see it: the rank that never comes is on `host0`.
#[test]
fn without_any_comparison_a_healthy_hosts_clock_hides_the_hang_of_another() {
    let (name, stuck) = &jobs()[0];
    assert_eq!(stuck.truth.hosts, ["host0"]);
    for host in ["host1", "host2", "host3"] {
        let report = play(&stuck.deliveries, &BTreeMap::from([(host, Clock::off(2 * S))]), Wire::Blind);
        assert_ne!(verdicts(&report), verdicts(&stuck.right), "{name} {host}\n{}", render(&report));
    }
}

/// A healthy host whose clock is two seconds ahead hid a hang of another host, those with right clocks were named.
#[test]
fn a_clock_that_is_off_changes_no_verdict() {
    for (name, job) in jobs() {
        for offset_ns in [-3_600 * S, -5 * S, -S / 5, S, 2 * S, 3_600 * S] {
            for host in ["host0", "host2"] {
                let report = agrees(name, job, &BTreeMap::from([(host, Clock::off(offset_ns))]), Wire::Times);
                let told: Vec<&str> = report.caveats.iter().map(|caveat| caveat.rule).collect();
                assert_eq!(told.iter().filter(|rule| **rule == "clock-off").count(), 1, "{name} {offset_ns}: {told:?}");
                assert!(!told.contains(&"clock-unknown"), "{name} {offset_ns}: {told:?}");
            }
        }
    }
}

#[test]
fn whole_seconds_change_not_a_word_of_the_report() {
    for (name, job) in jobs() {
        let one = BTreeMap::from([("host0", Clock::off(2 * S))]);
        let two = BTreeMap::from([("host0", Clock::off(7 * S)), ("host1", Clock::off(-3_600 * S))]);
        for clocks in [one, two] {
            let report = play(&job.deliveries, &clocks, Wire::Times);
            assert_eq!(golden(&report), golden(&job.right), "{name} with {clocks:?}");
        }
    }
}

#[test]
fn clocks_that_drift_change_no_verdict() {
    for (name, job) in jobs() {
        let clock = |offset_ns, drift_ppb| Clock { offset_ns, drift_ppb, step: None };
        let one = BTreeMap::from([("host0", clock(0, 200_000))]);
        let several = BTreeMap::from([
            ("host0", clock(30 * S, 200_000)),
            ("host1", clock(-3_600 * S, -200_000)),
            ("host2", clock(0, -200_000)),
        ]);
        for clocks in [one, several] {
            agrees(name, job, &clocks, Wire::Times);
        }
    }
}

#[test]
fn clocks_that_are_set_in_mid_job_change_no_verdict() {
    for (name, job) in jobs() {
        let length = job.deliveries.last().unwrap().arrives_at - EPOCH;
        for step_ns in [10 * S, -10 * S] {
            // Before the fault, and while it is there.
            for when in [length / 4, length * 4 / 5] {
                let step = |offset_ns| Clock { offset_ns, drift_ppb: 0, step: Some((when, step_ns)) };
                agrees(name, job, &BTreeMap::from([("host0", step(0))]), Wire::Times);
                let several = BTreeMap::from([("host1", step(0)), ("host2", step(2 * S)), ("host3", step(-S))]);
                agrees(name, job, &several, Wire::Times);
            }
        }
    }
}

/// Agents that exchange no times: one that is ahead is corrected as far as it must be, and never accused.
#[test]
fn an_old_agent_whose_clock_is_ahead_is_not_known_and_not_accused() {
    for (name, job) in jobs() {
        let clocks = BTreeMap::from([("host0", Clock::off(2 * S))]);
        let report = play(&job.deliveries, &clocks, Wire::Old);
        let told: Vec<&str> = report.caveats.iter().map(|caveat| caveat.rule).collect();
        assert!(told.contains(&"clock-unknown"), "{name}: {told:?}");
        let innocent = |truth: &Truth| !truth.hosts.iter().any(|host| host == "host0");
        if innocent(&job.truth) && *name != "nic-bandwidth-16" {
            assert_eq!(verdicts(&report), verdicts(&job.right), "{name}\n{}", render(&report));
        }
        for case in &report.cases {
            let named = case.finding.suspects.iter().any(|one| format!("{:?}", one.place).contains("\"host0\""));
            assert!(!named || job.truth.hosts.iter().any(|host| host == "host0"), "{name}\n{}", render(&report));
        }
    }
}

#[test]
fn what_the_server_told_is_in_the_stream_that_is_replayed() {
    let (_, job) = &jobs()[0];
    let host: HostName = "host0".into();
    let mut peer = PeerClock::default();
    let batch = job.deliveries.iter().find(|one| one.batch.source.host == host).unwrap();
    let told = peer.tell(std::slice::from_ref(&batch.batch), batch.batch.collected_at - 5 * NANOS_PER_SEC);
    assert!(matches!(told[0].records[..], [Record::ClockOffset(_)]), "{told:?}");
    assert!(told[0].collected_at <= batch.batch.collected_at, "it sorts before what it holds for");
    assert!(told[0].source < batch.batch.source || batch.batch.source.process.is_none());
}
