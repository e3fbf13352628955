//! What was live replays to the same cases: a job with a fault, a server that stops, is killed and starts again at random,
//! agents that lose their connections and send what they hold later. The core of the live server with the test's clock
//! writes a store; the player of `mycroft replay` says the same of it.
use crate::TICK;
use crate::api::CaseJson;
use crate::book::{CASES_KEPT, CaseBook, Change};
use crate::case::BookedCase;
use crate::core::{Core, Parts, Told};
use crate::replay::Player;
use crate::upkeep::{old_cases, row};
use crate::warm::{WARM_NS, recent};
use mycroft_diagnose::{Config, Engine};
use mycroft_record::{Batch, HostName, HostTime, NANOS_PER_MS};
use mycroft_sim::{Fault, FaultKind, Random, Scenario, Simulation};
use mycroft_store::runs::history;
use mycroft_store::{Store, StoreAt, StoreConfig};
use mycroft_wire::codec;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Drawn histories: two of each of eight kinds of job, on two busy cores half a minute.
const SEEDS: u64 = 16;
/// Length of a job, seconds: a fault in its middle is found, and goes away where it does.
const JOB_S: f64 = 40.0;

/// What a server does, and when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Start,
    Stop,
    Crash,
}

/// A story of restarts: of the server, and when each agent is without a connection.
struct Plan {
    acts: Vec<(u64, Act)>,
    away: BTreeMap<HostName, Vec<(u64, u64)>>,
}

fn between(random: &mut Random, low_ms: u64, high_ms: u64) -> u64 {
    low_ms * NANOS_PER_MS + random.below((high_ms - low_ms) * NANOS_PER_MS) / 1000 * 1000
}

fn plan(random: &mut Random, began: u64, ended: u64, hosts: &[HostName]) -> Plan {
    let (mut at, mut acts) = (began - between(random, 0, 3_000), Vec::new());
    while at < ended {
        acts.push((at, Act::Start));
        at += between(random, 200, 30_000);
        acts.push((at, if random.below(2) == 0 { Act::Stop } else { Act::Crash }));
        at += match random.below(12) {
            0 => between(random, 900_000, 1_000_000), // Longer than a job may be silent.
            1 => between(random, 29_000, 61_000),
            _ => between(random, 1, 8_000),
        };
    }
    // A last run that hears of everything; often long enough to retire the job.
    acts.push((at, Act::Start));
    let rest = if random.below(3) > 0 { between(random, 900_000, 960_000) } else { between(random, 0, 60_000) };
    acts.push((at + rest, if random.below(2) == 0 { Act::Stop } else { Act::Crash }));
    let mut away: BTreeMap<HostName, Vec<(u64, u64)>> = BTreeMap::new();
    for host in hosts {
        let mut out: Vec<(u64, u64)> = Vec::new();
        for _ in 0..random.below(4) {
            let from = began + random.below(ended - began) / 1000 * 1000;
            out.push((from, from + between(random, 10, 10_000)));
        }
        // After each start agents come back one after the other.
        let starts = acts.iter().filter(|(_, act)| *act == Act::Start);
        out.extend(starts.map(|(at, _)| (*at, at + between(random, 1, 3_000))));
        away.insert(host.clone(), out);
    }
    Plan { acts, away }
}

impl Plan {
    /// When a frame of a host that is ready at `at` reaches a server; `None`: never.
    fn arrival(&self, host: &HostName, mut at: u64) -> Option<u64> {
        loop {
            let before = at;
            let down = self.acts.chunks(2).find_map(|run| match run {
                [(start, _), (stop, _)] if at < *stop => Some(at.max(*start)),
                _ => None,
            });
            at = down?;
            for (from, to) in &self.away[host] {
                if (*from..*to).contains(&at) {
                    at = *to;
                }
            }
            if at == before {
                return Some(at);
            }
        }
    }
}

fn scenario(seed: u64, random: &mut Random) -> Scenario {
    let kinds = [
        None,
        Some(FaultKind::GpuHang),
        Some(FaultKind::RankCrash),
        Some(FaultKind::NicDown),
        Some(FaultKind::RankStuck),
        Some(FaultKind::BackgroundCompute),
        Some(FaultKind::NicBandwidth),
        Some(FaultKind::GpuPower),
    ];
    let mut scenario = Scenario { hosts: 2, ranks_per_host: 2, tp: 2, pp: 1, dp: 2, ..Scenario::default() };
    (scenario.name, scenario.seed, scenario.duration_s) = (format!("restarts-{seed}"), seed, JOB_S);
    scenario.fault = kinds[(seed % 8) as usize].map(|kind| {
        let lasts_s = (!kind.stops_job() && random.below(2) == 0).then_some(10.0);
        Fault { after_s: 5.0 + random.unit() * 20.0, lasts_s, ..Fault::new(kind, 1) }
    });
    if scenario.check().is_err()
        && let Some(fault) = &mut scenario.fault
    {
        fault.rank = Some(2); // A fault of a rank, not of a host.
    }
    scenario.check().expect("a scenario");
    scenario
}

/// What a server told, as the API writes it.
#[derive(PartialEq, Debug)]
struct Line {
    at: HostTime,
    word: &'static str,
    case: String,
}

fn line(at: HostTime, word: &'static str, case: &BookedCase) -> Line {
    Line { at, word, case: json(case) }
}

fn json(case: &BookedCase) -> String {
    serde_json::to_string(&CaseJson::of(case)).expect("JSON")
}

/// The live server without its threads.
struct Live<'a> {
    dir: &'a Path,
    running: Option<(Core, Store, Arc<CaseBook>)>,
    lines: Vec<Line>,
    last_cases: Vec<String>,
}

impl Live<'_> {
    fn start(&mut self, at: HostTime) {
        let store = Store::open(&self.dir.join("store"), StoreConfig::default()).expect("a store");
        let (cases, highest, unreadable) = old_cases(&store, CASES_KEPT).expect("read");
        assert_eq!(unreadable, 0);
        let book = Arc::new(CaseBook::reopen(cases, highest));
        store.note_started(at, book.next_number()).expect("room");
        let mut core = Core::new(Parts {
            make: Arc::new(|job| Box::new(Engine::new(job.clone(), Config::default()))),
            tick_ns: TICK.as_nanos() as u64,
            book: Arc::clone(&book),
            named: Arc::default(),
            series: Arc::new(|_| crate::series::JobSeries::default()),
            stopwatch: None,
            is_live: true,
        });
        core.start(at, &recent(store.deliveries_since(at - WARM_NS).expect("read"), at).0);
        self.running = Some((core, store, book));
        self.write();
    }

    fn deliver(&mut self, at: HostTime, batch: &Batch) {
        let (core, store, _) = self.running.as_mut().expect("a server");
        store.append(at, batch).expect("room");
        core.deliver(at, batch);
        self.write();
    }

    /// Time passes, as the loop lets it: in small steps.
    fn pass(&mut self, until: HostTime) {
        let Some((core, ..)) = &mut self.running else { return };
        while core.next() <= until {
            let next = core.next();
            core.advance(next);
        }
        core.advance(until);
        self.write();
    }

    fn end(&mut self, act: Act, at: HostTime) {
        if act == Act::Stop {
            self.running.as_mut().expect("a server").0.stop(at);
            self.write();
        }
        let (_, store, book) = self.running.take().expect("a server");
        if act == Act::Stop {
            store.note_stopped(at).expect("room");
        }
        self.last_cases = book.list(&crate::book::Filter::default(), usize::MAX).0.iter().rev().map(json).collect();
    }

    /// What the upkeep does.
    fn write(&mut self) {
        let Some((core, store, book)) = &mut self.running else { return };
        let mut told_at = HostTime::NONE;
        for told in core.take_told() {
            let Told::Case(at, change, case) = told else { continue };
            told_at = at;
            if change != Change::Updated {
                self.lines.push(line(at, change.word(), &case));
            }
        }
        if told_at.some().is_some() {
            store.note_told(told_at).expect("room");
            book.take_unwritten().iter().for_each(|case| store.put_case(&row(case)).expect("room"));
        }
    }
}

/// What was simulated: each batch with when it was ready to be sent.
fn simulated(scenario: &Scenario) -> Vec<(u64, Batch)> {
    let mut simulation = Simulation::new(scenario);
    let mut ready = Vec::new();
    while let Some(stretch) = simulation.next_stretch() {
        for mut delivery in stretch {
            codec::round_to_micros(&mut delivery.batch);
            if !delivery.batch.records.is_empty() {
                ready.push((delivery.arrives_at / 1000 * 1000, delivery.batch));
            }
        }
    }
    ready
}

fn live(seed: u64, dir: &Path) -> (Vec<Line>, Vec<String>, Vec<Act>) {
    let mut random = Random::new(seed);
    let ready = simulated(&scenario(seed, &mut random));
    let mut hosts: Vec<HostName> = ready.iter().map(|(_, batch)| batch.source.host.clone()).collect();
    hosts.sort();
    hosts.dedup();
    let plan = plan(&mut random, ready[0].0, ready[ready.len() - 1].0, &hosts);
    let arrives = |(at, batch): (u64, Batch)| plan.arrival(&batch.source.host, at).map(|at| (at, batch));
    let mut arrivals: Vec<(u64, Batch)> = ready.into_iter().filter_map(arrives).collect();
    arrivals.sort_by_key(|(at, _)| *at);
    let mut arrivals = arrivals.into_iter().peekable();
    let mut live = Live { dir, running: None, lines: Vec::new(), last_cases: Vec::new() };
    for &(at, act) in &plan.acts {
        while let Some((at, batch)) = arrivals.next_if(|arrival| arrival.0 < at) {
            live.pass(HostTime(at));
            live.deliver(HostTime(at), &batch);
            if random.below(200) == 0 {
                live.running.as_ref().expect("a server").1.compact().expect("room");
            }
        }
        match act {
            Act::Start => live.start(HostTime(at)),
            Act::Stop | Act::Crash => {
                live.pass(HostTime(at));
                live.end(act, HostTime(at));
            }
        }
    }
    (live.lines, live.last_cases, plan.acts.into_iter().map(|(_, act)| act).collect())
}

#[test]
fn what_was_live_replays_to_the_same_cases() {
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut acts, mut told_before_a_kill) = (Vec::new(), 0);
    for seed in 0..SEEDS {
        let dir = tempfile::tempdir().expect("a folder");
        let (lines, cases, acted) = live(seed, dir.path());
        let store = dir.path().join("store");
        let mut player = Player::new(TICK);
        for happening in history(&store).expect("a store") {
            player.happened(&StoreAt::from(&store), &happening.expect("whole"), None).expect("read");
        }
        let played: Vec<Line> =
            player.take_changes().iter().map(|change| line(change.at, change.word, &change.case)).collect();
        for (number, (live, played)) in lines.iter().zip(&played).enumerate() {
            assert_eq!(live, played, "seed {seed}, line {number}");
        }
        assert_eq!(lines.len(), played.len(), "seed {seed}: {lines:#?} {played:#?}");
        let played = player.finish(Duration::ZERO);
        let replayed: Vec<String> = played.values().flat_map(|played| played.cases.iter().map(json)).collect();
        assert_eq!(cases, replayed, "seed {seed}");
        lines.iter().for_each(|line| *words.entry(line.word).or_default() += 1);
        told_before_a_kill += usize::from(
            acted.last() == Some(&Act::Crash) && lines.last().is_some_and(|line| line.case.contains("for a long time")),
        );
        acts.extend(acted);
    }
    // Not of nothing.
    println!("{words:?}, {} acts, told in silence before a kill: {told_before_a_kill}", acts.len());
    assert!(told_before_a_kill > 0);
    let are_some = ["opened", "closed"].iter().all(|word| words.get(word) > Some(&2));
    assert!(are_some && words.contains_key("settled"), "most are settled when they are opened: {words:?}");
    assert!([Act::Stop, Act::Crash].iter().all(|act| acts.iter().filter(|one| *one == act).count() > 10));
}
