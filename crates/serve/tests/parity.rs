//! Testbed and simulator agree: each recorded run, played again by the simulator and judged by the same brain: same suspect,
//! category and rules; for stalls the same final state, flow by flow. The simulator strikes at many moments of an iteration, as
//! nobody wrote down that of a recording: right at each, and one leaves exactly what the testbed left.
use mycroft_diagnose::{Case, Report, render};
use mycroft_record::*;
use mycroft_serve::TICK;
use mycroft_serve::replay::replay;
use mycroft_sim::{Algo, Scenario, Simulation, Truth, score};
use runs::{RUNS, as_told_today, batches, truth};
use std::collections::{BTreeMap, BTreeSet};

mod runs;

/// Moments of an iteration at which the simulator's fault strikes.
const PHASES: u32 = 48;
/// When the first of them is: after warm-up, and after enough iterations to know what is usual.
const AFTER_S: f64 = 3.0;
/// The same for slowdowns: some seconds show how much ways vary.
const SLOW_AFTER_S: f64 = 8.0;
/// Ranks that stop within this of each other stop together: half of a forward pass of a layer, and more than any
/// operation of the job takes.
const TOGETHER_NS: u64 = 2_500_000;
/// The same for slowdowns, where the verdict does not depend on the moment.
const SLOW_PHASES: u32 = 6;
/// How much faster the interfaces of healthy network namespaces are than they are told to be: their token buckets let
/// half a megabyte pass at once, and no operation of the job is larger. (What loopback addresses and slow interfaces
/// carry is held to their speed.)
const BURSTS: u64 = 4;
/// How much later or earlier the simulator's cases may be, seconds: some iterations of the slowest, 0.8 s.
const LAGS_DIFFER_S: f64 = 3.0;
/// How much longer or shorter iterations may be.
const ITERATION_FACTOR: f64 = 1.15;
/// How many more or fewer records of a kind there may be.
const RECORDS_FACTOR: f64 = 1.25;
/// How much more or less time a flow's slices may take: an order of magnitude.
const FLOWS_FACTOR: f64 = 10.0;

/// The job that was recorded (`recorded.rs` has the command), as the simulator plays it.
fn scenario(name: &str) -> Scenario {
    let mut scenario = Scenario { hosts: 4, ranks_per_host: 2, tp: 2, pp: 2, dp: 2, ..Scenario::default() };
    if name == "healthy-tree-moe" {
        (scenario.moe, scenario.algo) = (true, Algo::Tree);
    }
    if ["healthy-tree-moe", "nic-down"].contains(&name) {
        scenario.nic_bytes_per_sec *= BURSTS;
    }
    scenario.name = name.to_owned();
    scenario.fault = truth(name).fault;
    scenario
}

fn play(scenario: &Scenario) -> (Vec<Batch>, Truth) {
    scenario.check().unwrap();
    let mut simulation = Simulation::new(scenario);
    let mut batches = Vec::new();
    while let Some(stretch) = simulation.next_stretch() {
        batches.extend(stretch.into_iter().map(|delivery| delivery.batch));
    }
    (batches, simulation.truth().pop().unwrap_or_else(Truth::healthy))
}

fn report(batches: Vec<Batch>) -> Report {
    replay(batches, TICK).pop_first().unwrap().1
}

/// What is left of a rank when nothing moves any more.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Stand {
    /// Operations that its device is in.
    inside: BTreeSet<String>,
    /// If in none: the first that it was given.
    before: Option<String>,
    /// Its process is gone.
    gone: bool,
    /// Of each direction of each operation that has flows in flight: which of its counters are behind the one before.
    /// Channels are not told apart: which of two was served first is chance.
    flows: BTreeMap<String, BTreeSet<String>>,
}

/// What is left of a job, and when each rank did something last.
#[derive(Default)]
struct Scene {
    stands: BTreeMap<u32, Stand>,
    moved_at: BTreeMap<u32, u64>,
}

/// What is known of one rank's operations and flows in flight.
#[derive(Default)]
struct Live {
    ops: BTreeMap<OpId, OpState>,
    flows: BTreeMap<FlowKey, FlowState>,
    moved_at: u64,
    gone: bool,
}

impl Scene {
    fn of(batches: &[Batch]) -> Scene {
        let mut in_order: Vec<&Batch> = batches.iter().collect();
        mycroft_record::batch::sort_as_collected(&mut in_order);
        let mut kinds: BTreeMap<CommId, String> = BTreeMap::new();
        let mut live: BTreeMap<u32, Live> = BTreeMap::new();
        for batch in in_order {
            let Some(process) = batch.source.process else { continue };
            for record in &batch.records {
                if let Record::CommInit(comm) = record {
                    kinds.insert(comm.comm, comm.name.split('_').next().unwrap_or_default().to_owned());
                }
                live.entry(process.rank.0).or_default().take(record);
            }
        }
        let mut scene = Scene::default();
        for (rank, live) in live {
            scene.moved_at.insert(rank, live.moved_at);
            scene.stands.insert(rank, live.stand(&kinds));
        }
        scene
    }

    /// Ranks that agree with another scene.
    fn equal_ranks(&self, other: &Scene) -> usize {
        self.stands.iter().filter(|(rank, stand)| other.stands.get(rank) == Some(stand)).count()
    }

    /// The ranks that do not, for people.
    fn differences(&self, other: &Scene) -> String {
        let differs = self.stands.iter().filter(|(rank, stand)| other.stands.get(rank) != Some(stand));
        differs
            .map(|(rank, stand)| format!("rank {rank}: {stand:?}\n   real: {:?}\n", other.stands.get(rank)))
            .collect()
    }

    /// Two ranks that stopped one after the other here and the other way around there.
    fn order_differs(&self, other: &Scene) -> Option<(u32, u32)> {
        let before = |scene: &Scene, a: u32, b: u32| scene.moved_at[&a] + TOGETHER_NS < scene.moved_at[&b];
        let pairs = self.moved_at.keys().flat_map(|a| self.moved_at.keys().map(move |b| (*a, *b)));
        pairs.into_iter().find(|(a, b)| before(self, *a, *b) && before(other, *b, *a))
    }
}

impl Live {
    fn take(&mut self, record: &Record) {
        match record {
            Record::OpState(state) => {
                self.moved_at = self.moved_at.max(state.op.started_last_at.0);
                self.ops.insert(state.op.id, *state);
            }
            Record::OpDone(done) => {
                self.moved_at = self.moved_at.max(done.ended_at.0);
                self.ops.remove(&done.op.id);
            }
            Record::FlowState(flow) => {
                self.moved_at = self.moved_at.max(flow.times.last_progress_at.0);
                self.flows.insert(flow.flow, *flow);
            }
            Record::FlowDone(flow) => drop(self.flows.remove(&flow.flow)),
            Record::ProcessExit(_) => self.gone = true,
            _ => {}
        }
    }

    fn stand(&self, kinds: &BTreeMap<CommId, String>) -> Stand {
        let label = |op: &OpMeta| match op.id.class {
            OpClass::Collective => format!("{} {}", op.kind, kinds[&op.id.comm]),
            _ => format!("{} {} {}", op.kind, kinds[&op.id.comm], op.id.peer),
        };
        let started = |state: &&OpState| state.kernels_started > 0;
        let inside: BTreeSet<String> = self.ops.values().filter(started).map(|state| label(&state.op)).collect();
        let issued = |state: &&OpState| (state.op.enqueued_at, state.op.id);
        let first = self.ops.values().filter(|state| state.kernels_started == 0).min_by_key(issued);
        let before = if inside.is_empty() { first.map(|state| label(&state.op)) } else { None };
        let mut flows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for flow in self.flows.values() {
            let state = &self.ops[&flow.flow.op];
            let queued = if state.kernels_started == 0 { " (queued)" } else { "" };
            let place = format!("{}{queued} {} {}", label(&state.op), flow.flow.direction, flow.flow.peer);
            flows.entry(place).or_default().insert(signature(&flow.counters, flow.flow.direction));
        }
        Stand { inside, before, gone: self.gone, flows }
    }
}

/// Which counters of a flow are behind. Once a slice is under way, whether the next one was handed to the transport as
/// well depends on how many requests that takes: the testbed's sockets take one, NICs and the simulator all.
fn signature(counters: &FlowCounters, direction: Direction) -> String {
    let FlowCounters { total_chunks, posted, ready, mut transmitted, done } = *counters;
    if direction == Direction::Send && done < transmitted {
        transmitted = ready;
    }
    let is = |less: u32, more: u32| if less < more { "<" } else { "=" };
    format!(
        "done {} transmitted {} ready {} posted {} total",
        is(done, transmitted),
        is(transmitted, ready),
        is(ready, posted),
        is(posted, total_chunks)
    )
}

/// The most likely suspects.
fn suspects(case: &Case) -> BTreeSet<Place> {
    let most = case.finding.suspects.iter().map(|suspect| suspect.confidence).fold(0.0, f64::max);
    let first = case.finding.suspects.iter().filter(|suspect| suspect.confidence >= most - 0.01);
    first.map(|suspect| suspect.place.clone()).collect()
}

/// Rules that fired, and whom each names: the hosts and ranks in its words.
fn reasons(case: &Case) -> BTreeSet<String> {
    let words = |text: &str| -> Vec<String> {
        let words: Vec<&str> = text.split([' ', ',', ';', '(', ')']).filter(|word| !word.is_empty()).collect();
        let host = |word: &&str| word.strip_prefix("host").is_some_and(|rest| rest.parse::<u32>().is_ok());
        let ranks = words.windows(2).filter(|pair| pair[0] == "rank").map(|pair| format!("rank {}", pair[1]));
        words.iter().filter(|word| host(word)).map(|word| (*word).to_owned()).chain(ranks).collect()
    };
    case.because.iter().map(|reason| format!("{} {}", reason.rule, words(&reason.text).join(" "))).collect()
}

/// What a case says against its suspects, and the hosts and ranks that it names.
fn accusations(case: &Case) -> BTreeSet<String> {
    reasons(case).into_iter().filter(|reason| !reason.starts_with("watch.")).collect()
}

/// Seconds of the simulator's healthy iteration of this job.
fn iteration_s(scenario: &Scenario) -> f64 {
    let healthy = Scenario { fault: None, duration_s: AFTER_S, ..scenario.clone() };
    let mut simulation = Simulation::new(&healthy);
    while simulation.next_stretch().is_some() {}
    simulation.progress().iteration_ms_median / 1e3
}

/// Plays a run's fault at `phases` moments of an iteration, and looks on for `seconds`.
fn at_phases(
    name: &str,
    phases: u32,
    (after_s, seconds): (f64, f64),
    mut look: impl FnMut(u32, &[Batch], &Truth, &Report),
) {
    let mut scenario = scenario(name);
    scenario.duration_s = after_s + seconds;
    let iteration_s = iteration_s(&scenario);
    for phase in 0..phases {
        if let Some(fault) = &mut scenario.fault {
            fault.after_s = after_s + iteration_s * f64::from(phase) / f64::from(phases);
            // Where the job goes on, chance has a say in what follows.
            scenario.seed = if fault.kind.stops_job() { 1 } else { u64::from(1 + phase) };
        }
        let (batches, truth) = play(&scenario);
        let report = report(batches.clone());
        look(phase, &batches, &truth, &report);
    }
}

/// In the testbed it stood for more than a second, which is told first.
const STOOD: &str = "background-compute";

fn wrong(truth: &Truth, report: &Report) -> Option<String> {
    let verdict = score(truth, report.cases.first().map(|case| &case.finding));
    (!verdict.correct).then(|| format!("{}\n{}", verdict.why, render(report)))
}

fn names(stops_job: bool) -> impl Iterator<Item = &'static str> {
    let is_it = move |name: &&str| truth(name).fault.is_some_and(|fault| fault.kind.stops_job() == stops_job);
    RUNS.into_iter().filter(is_it).filter(|name| *name != STOOD)
}

#[test]
fn stalls_leave_what_the_testbed_leaves() {
    for name in names(true) {
        let recorded = batches(name);
        let real = Scene::of(&recorded);
        assert_eq!(real.stands.len(), 8, "{name}");
        let real_report = report(recorded);
        let real_case = &real_report.cases[0];
        let (mut same, mut best) = (Vec::new(), (0, String::new()));
        at_phases(name, PHASES, (AFTER_S, 4.0), |phase, batches, truth, report| {
            assert_eq!(wrong(truth, report), None, "{name} at phase {phase}");
            let [case] = report.cases.as_slice() else {
                panic!("{name} at phase {phase}: one case\n{}", render(report))
            };
            assert_eq!(case.finding.what, real_case.finding.what, "{name} at phase {phase}");
            assert_eq!(suspects(case), suspects(real_case), "{name} at phase {phase}");
            let scene = Scene::of(batches);
            let equal = scene.equal_ranks(&real);
            let (ours, theirs) = (accusations(case), accusations(real_case));
            let order = scene.order_differs(&real);
            if equal >= best.0 {
                best = (
                    equal,
                    format!("phase {phase}: order {order:?}, {ours:?} {theirs:?}\n{}", scene.differences(&real)),
                );
            }
            if equal == real.stands.len() && order.is_none() && ours == theirs {
                assert_eq!(case.finding.category, real_case.finding.category, "{name} at phase {phase}");
                same.push(phase);
            }
        });
        assert!(!same.is_empty(), "{name}: no phase is as recorded; nearest, {} of 8 ranks, {}", best.0, best.1);
    }
}

/// Seconds from the fault to what a case says of its beginning, to the case, and to its verdict.
fn lags(case: &Case, truth: &Truth) -> [f64; 3] {
    let at = truth.at_ms * NANOS_PER_MS;
    let seconds = |time: HostTime| (time.0 as f64 - at as f64) / 1e9;
    [case.finding.since, case.opened_at, case.finding.diagnosed_at].map(seconds)
}

/// Whom a slowdown's first case accuses of what, and when, are the testbed's.
fn same_slowdown(at: &str, (case, truth): (&Case, &Truth), (real_case, real_truth): (&Case, &Truth)) {
    assert_eq!(case.finding.what, real_case.finding.what, "{at}");
    assert_eq!(case.finding.category, real_case.finding.category, "{at}");
    assert_eq!(suspects(case), suspects(real_case), "{at}");
    assert_eq!(accusations(case), accusations(real_case), "{at}");
    let (ours, real) = (lags(case, truth), lags(real_case, real_truth));
    assert!(ours.is_sorted() && real.is_sorted(), "{at}: onset, case, verdict after {ours:?} s, {real:?} s");
    // When a proxy falls asleep is chance, here as there.
    if !at.starts_with("proxy-delay") {
        let apart = ours.iter().zip(&real).map(|(ours, real)| (ours - real).abs()).fold(0.0, f64::max);
        assert!(apart < LAGS_DIFFER_S, "{at}: onset, case, verdict after {ours:?} s, {real:?} s in the testbed");
    }
}

#[test]
fn slowdowns_are_seen_in_the_same_parts_and_in_the_same_order() {
    for name in names(false) {
        let (real_truth, real_report) = (truth(name), report(batches(name)));
        at_phases(name, SLOW_PHASES, (SLOW_AFTER_S, 14.0), |phase, _, truth, report| {
            let at = format!("{name} at phase {phase}");
            assert_eq!(wrong(truth, report), None, "{at}");
            same_slowdown(&at, (&report.cases[0], truth), (&real_report.cases[0], &real_truth));
        });
    }
}

/// Name of a record's kind, where there are many of it.
fn kind(record: &Record) -> Option<&'static str> {
    Some(match record {
        Record::OpState(_) => "OpState",
        Record::OpDone(_) => "OpDone",
        Record::FlowState(_) => "FlowState",
        Record::FlowDone(_) => "FlowDone",
        Record::Sampled(_) => "Sampled",
        _ => return None,
    })
}

/// Records per second by kind, and the mean of the time that flows of each kind of operation took, microseconds.
fn volumes(batches: &[Batch]) -> (BTreeMap<&'static str, f64>, BTreeMap<String, f64>) {
    let ends = || batches.iter().map(|batch| batch.collected_at.0);
    let seconds = (ends().max().unwrap() - ends().min().unwrap()) as f64 / 1e9;
    let (mut kinds, mut ops, mut names) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for (source, record) in batches.iter().flat_map(|b| b.records.iter().map(|record| (&b.source, record))) {
        if let Some(kind) = kind(record) {
            *kinds.entry(kind).or_insert(0.0) += 1.0 / seconds;
        }
        match record {
            Record::OpDone(done) => drop(ops.insert((source.process, done.op.id), done.op)),
            Record::CommInit(comm) => drop(names.insert(comm.comm, comm.name.clone())),
            _ => {}
        }
    }
    let mut flows: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (source, record) in batches.iter().flat_map(|b| b.records.iter().map(|record| (&b.source, record))) {
        let Record::FlowDone(flow) = record else { continue };
        let Some(op) = ops.get(&(source.process, flow.flow.op)) else { continue };
        let group = names[&op.id.comm].split('_').next().unwrap_or_default();
        let place = format!("{} {group} of {} {}", op.kind, op.count, flow.flow.direction);
        let (sum, count) = flows.entry(place).or_default();
        *sum +=
            flow.times.stage_us.iter().map(|us| f64::from(*us)).sum::<f64>() / f64::from(flow.counters.total_chunks);
        *count += 1.0;
    }
    (kinds, flows.into_iter().map(|(place, (sum, count))| (place, sum / count)).collect())
}

/// As many records of each kind, iterations as long, and flows that take as long.
///
/// The average of the loss is left out of the last: its 16 bytes take as long as two processes of the testbed are
/// apart on the machine that they share, which is milliseconds there and nothing here.
#[test]
fn healthy_jobs_tell_as_much_and_take_as_long() {
    for name in ["healthy-ring", "healthy-tree-moe"] {
        let recorded = as_told_today(batches(name));
        let (real_kinds, real_flows) = volumes(&recorded);
        let real = report(recorded);
        at_phases(name, 1, (AFTER_S, 10.0), |_, batches, _, report| {
            let (kinds, flows) = volumes(batches);
            let near = |ours: f64, real: f64, factor: f64| ours < real * factor && real < ours * factor;
            assert_eq!(report.cases.len(), 0);
            let (ours, real) = (report.iteration_ms_median.unwrap(), real.iteration_ms_median.unwrap());
            assert!(near(ours, real, ITERATION_FACTOR), "{name}: iterations of {ours} ms, of {real} ms in the testbed");
            assert_eq!(kinds.keys().collect::<Vec<_>>(), real_kinds.keys().collect::<Vec<_>>());
            for (kind, real) in &real_kinds {
                assert!(near(kinds[kind], *real, RECORDS_FACTOR), "{name}: {} {kind}/s, {real}", kinds[kind]);
            }
            assert_eq!(flows.keys().collect::<Vec<_>>(), real_flows.keys().collect::<Vec<_>>());
            for (place, real) in real_flows.iter().filter(|(place, _)| !place.contains(" of 4 ")) {
                assert!(near(flows[place], *real, FLOWS_FACTOR), "{name}: {place}: {} us, {real}", flows[place]);
            }
        });
    }
}
