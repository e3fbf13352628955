//! What communicators are for, of drawn jobs: from calls without names, and from flows alone (Pulse, section 5.2).
use crate::curves::{EPOCH_NS, Flow, captured};
use mycroft_diagnose::flow::{GAP_NS_DEFAULT, Members, Use, Used, uses};
use mycroft_diagnose::{Config, Engine, Parallelism, Split};
use mycroft_record::{HostTime, Record};
use mycroft_serve::TICK;
use mycroft_sim::{Group, GroupKind, Scenario, Share, Simulation};
use std::collections::{BTreeMap, BTreeSet};

/// A capture lasts so long.
const CAPTURE_S: f64 = 4.0;

/// What was said of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Said {
    /// All of it.
    Whole,
    /// Not all, and nothing wrong.
    Part,
    /// Something wrong.
    Wrong,
    /// Nothing of it shows, and nothing was said.
    Nothing,
}

/// What was said of many jobs.
#[derive(Debug, Default)]
struct Counted {
    whole: u64,
    wrong: u64,
    /// Of which something shows.
    of: u64,
    jobs: u64,
}

impl Counted {
    fn take(&mut self, said: Said) {
        self.jobs += 1;
        self.of += u64::from(said != Said::Nothing);
        self.whole += u64::from(said == Said::Whole);
        self.wrong += u64::from(said == Said::Wrong);
    }

    fn row(&self, from: &str, claim: &str) -> String {
        let share = |hits| {
            let share = Share { hits, of: self.of };
            let (least, most) = share.interval();
            let value = 100.0 * share.value().unwrap_or(0.0);
            format!("{hits} of {}: {value:.1} % ({:.1} to {:.1})", self.of, 100.0 * least, 100.0 * most)
        };
        format!("| {from} | {} | {} | {} | {claim} |", self.jobs, share(self.whole), share(self.wrong))
    }
}

/// Plays drawn jobs and prints the table; jobs of which not all was told as errors.
pub(crate) fn print(first: u64, seeds: u64) {
    let (mut calls, mut flows) = (Counted::default(), Counted::default());
    for seed in first..first + seeds {
        let scenario = mycroft_sim::swarm::split(seed);
        for (view, counted, (said, text)) in
            [("calls", &mut calls, of_calls(&scenario)), ("flows", &mut flows, of_flows(&scenario))]
        {
            counted.take(said);
            if !matches!(said, Said::Whole | Said::Nothing) {
                eprintln!("{seed} {view} {said:?}: {}: {text}", scenario.name);
            }
        }
    }
    println!("| from | jobs | told whole, of those of which something shows | something wrong | the claim |");
    println!("| --- | ---: | ---: | ---: | --- |");
    println!("{}", calls.row("calls, without names", "100 %"));
    println!("{}", flows.row("flows alone", ">= 98 %"));
}

/// What a server tells at a job's end whose communicators have no names.
fn of_calls(scenario: &Scenario) -> (Said, String) {
    let mut engine = Engine::new("job".into(), Config::default());
    let mut simulation = Simulation::new(scenario);
    let (tick_ns, mut next) = (TICK.as_nanos() as u64, 0);
    while let Some(stretch) = simulation.next_stretch() {
        for mut delivery in stretch {
            if delivery.arrives_at > next {
                next = delivery.arrives_at + tick_ns;
                engine.tick(HostTime(delivery.arrives_at));
            }
            for record in &mut delivery.batch.records {
                if let Record::CommInit(init) = record {
                    init.name = "".into();
                }
            }
            engine.observe(&delivery.batch);
        }
    }
    let told = engine.report(HostTime(next)).layout;
    let mut counts: BTreeMap<(Parallelism, u32, u32), u64> = BTreeMap::new();
    for group in scenario.layout().groups() {
        let shape = (parallelism(group.kind), group.ranks.len() as u32, group.ranks[1] - group.ranks[0]);
        *counts.entry(shape).or_default() += 1;
    }
    let truth = counts.into_iter().map(|((of, ranks, apart), groups)| Split { of, ranks, apart, groups });
    let truth: Vec<Split> = truth.collect();
    let is_true = |told: &Split| {
        truth.iter().any(|split| (split.of, split.ranks, split.apart) == (told.of, told.ranks, told.apart))
    };
    let said = match (told == truth, told.iter().all(is_true)) {
        (true, _) => Said::Whole,
        (_, true) => Said::Part,
        _ => Said::Wrong,
    };
    (said, format!("{told:?}"))
}

/// What a capture of all NICs tells, where each rank has one.
fn of_flows(scenario: &Scenario) -> (Said, String) {
    let mut scenario = Scenario { duration_s: CAPTURE_S, ..scenario.clone() };
    scenario.cluster.nics_per_host = scenario.ranks_per_host;
    let (flows, _) = captured(&scenario);
    let told = uses(&flows.iter().map(Flow::sent).collect::<Vec<_>>(), EPOCH_NS, GAP_NS_DEFAULT);
    let groups: Vec<Group> = scenario.layout().groups();
    let host = |rank: &u32| rank / scenario.ranks_per_host;
    let shows = |group: &&Group| group.ranks.iter().any(|rank| host(rank) != host(&group.ranks[0]));
    let truth: BTreeSet<Parallelism> = groups.iter().filter(shows).map(|group| parallelism(group.kind)).collect();
    let is_true =
        |used: &Used| used.groups.iter().all(|members| groups.iter().any(|group| is_of(used, members, group)));
    let said: BTreeSet<Parallelism> = told.iter().filter_map(dimension).collect();
    let said = match (said == truth, told.iter().filter(|used| dimension(used).is_some()).all(is_true)) {
        (true, true) if truth.is_empty() => Said::Nothing,
        (true, true) => Said::Whole,
        (_, true) if said.is_subset(&truth) => Said::Part,
        _ => Said::Wrong,
    };
    (
        said,
        format!(
            "{:?}, is {truth:?}",
            told.iter().map(|used| (used.of, used.members, &used.groups)).collect::<Vec<_>>()
        ),
    )
}

fn dimension(used: &Used) -> Option<Parallelism> {
    match used.of {
        Use::Of(parallelism) => Some(parallelism),
        Use::Numbers => None,
    }
}

/// Whether these are members of a group that is for what is said, and of its size.
fn is_of(used: &Used, members: &[u32], group: &Group) -> bool {
    let size = group.ranks.len() as u32;
    let is_size = match used.members {
        Members::Exactly(ranks) => ranks == size,
        Members::AtLeast(ranks) => ranks <= size,
    };
    is_size && dimension(used) == Some(parallelism(group.kind)) && members.iter().all(|rank| group.ranks.contains(rank))
}

fn parallelism(kind: GroupKind) -> Parallelism {
    match kind {
        GroupKind::Tensor => Parallelism::Tensor,
        GroupKind::Pipeline => Parallelism::Pipeline,
        GroupKind::Data => Parallelism::Data,
        GroupKind::Expert => Parallelism::Expert,
        GroupKind::Context => Parallelism::Context,
    }
}
