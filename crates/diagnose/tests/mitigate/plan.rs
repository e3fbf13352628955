//! Whole plans: which strategy when, what the linter refuses, and the text.
use mycroft_diagnose::mitigate::leave::{LONGEST_NS, REMEMBERED_NS, Strike, leave_out};
use mycroft_diagnose::mitigate::lint::lint;
use mycroft_diagnose::mitigate::place::{HEALTHY, Job, Pace, SlowPath, Waits};
use mycroft_diagnose::mitigate::plan::{Assignment, Costs, Plan, Refused, Situation, plan};
use mycroft_diagnose::mitigate::render;
use mycroft_diagnose::mitigate::rent::Strategy;
use mycroft_record::{Category, HostName, HostTime, NANOS_PER_SEC};
use proptest::prelude::{Just, ProptestConfig, any, prop, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as _;

const MS: u64 = 1_000_000;
const HOUR: u64 = 3600 * NANOS_PER_SEC;
/// 2026-01-01.
const NOW: HostTime = HostTime(1_767_225_600 * NANOS_PER_SEC);

fn name(number: usize) -> HostName {
    format!("host{number}").as_str().into()
}

/// A healthy job of so many stages and columns, eight micro-batches a replica, of which 500 s were lost.
fn situation(stages: usize, columns: usize) -> Situation {
    let hosts = stages * columns;
    Situation {
        job: "train".into(),
        now: NOW,
        present: Assignment {
            hosts: (0..hosts).map(name).collect(),
            micro_batches: vec![8; columns],
            left_out: Vec::new(),
        },
        model: Job {
            stages_ns: vec![100 * MS; stages],
            gradients_ns: vec![200 * MS; stages],
            activations_ns: 2 * MS,
            micro_batches: 8,
            waits: Waits::EachIteration,
            hosts: vec![Pace::HEALTHY; hosts],
            paths: Vec::new(),
        },
        replicas_per_column: 1,
        micro_batches_max: None,
        suspects: Vec::new(),
        lost_ns: 500 * NANOS_PER_SEC,
        costs: Costs::PAPER,
        done: Strategy::Ignore,
        spares: None,
        history: Vec::new(),
    }
}

/// Host 1's device takes twice as long.
fn one_slow() -> Situation {
    let mut situation = situation(2, 4);
    situation.model.hosts[1].compute = 2 * HEALTHY;
    situation.suspects = vec![(name(1), Category::Gpu)];
    situation
}

/// The path from host 1 to host 2 takes six times as long.
fn one_congested() -> Situation {
    let mut situation = situation(2, 4);
    situation.model.paths = vec![SlowPath { ends: (1, 2), network: 6 * HEALTHY }];
    situation.suspects = vec![(name(1), Category::NetworkCongestion)];
    situation
}

fn made(situation: &Situation) -> Plan {
    let plan = plan(situation).expect("the model fits");
    assert_eq!(lint(&plan, situation), Vec::<String>::new());
    plan
}

#[test]
fn a_slow_device_gets_fewer_micro_batches() {
    let plan = made(&one_slow());
    assert_eq!(plan.strategy, Strategy::Split);
    assert_eq!(plan.to.micro_batches, [10, 4, 9, 9]);
    assert_eq!(plan.to.hosts, plan.from.hosts);
    assert_eq!((plan.healthy_ns, plan.before_ns, plan.after_ns), (1102 * MS, 1902 * MS, 1302 * MS));
    // Moving it helps no more; a restart would, once half an hour is lost.
    assert_eq!(plan.next.map(|(strategy, _)| strategy), Some(Strategy::Restart));
}

#[test]
fn a_congested_path_is_left_by_its_ends() {
    let plan = made(&one_congested());
    assert_eq!((plan.strategy, plan.after_ns), (Strategy::Move, plan.healthy_ns));
    assert_eq!(plan.to.micro_batches, plan.from.micro_batches);
    let moved = plan.from.hosts.iter().zip(&plan.to.hosts).filter(|(from, to)| from != to).count();
    assert_eq!(moved, 2);
    // Where moving has been done, and the loss goes on, what is left is a restart.
    let mut situation = Situation { done: Strategy::Move, ..one_congested() };
    assert_eq!(made(&situation).strategy, Strategy::Ignore);
    situation.lost_ns = 1800 * NANOS_PER_SEC;
    let plan = made(&situation);
    assert_eq!((plan.strategy, plan.after_ns), (Strategy::Restart, plan.healthy_ns));
    assert_eq!((plan.to.hosts[1].as_ref(), plan.to.left_out.as_slice()), ("", [name(1)].as_slice()));
}

#[test]
fn nothing_is_done_before_it_pays_or_where_nothing_helps() {
    let early = Situation { lost_ns: 4 * NANOS_PER_SEC, ..one_slow() };
    let plan = made(&early);
    assert_eq!((plan.strategy, plan.next), (Strategy::Ignore, Some((Strategy::Split, NANOS_PER_SEC))));
    let healthy = made(&situation(2, 4));
    assert_eq!((healthy.strategy, healthy.next), (Strategy::Ignore, None));
    // Every host is slow: no split and no place helps, and nobody is left out without a suspect.
    let mut all = situation(2, 2);
    all.model.hosts = vec![Pace { compute: 1500, network: HEALTHY }; 4];
    assert_eq!(made(&all).strategy, Strategy::Ignore);
    // Stages that wait for each other in each micro-batch have no use for another split.
    let mut often = one_slow();
    often.model.waits = Waits::EachMicroBatch;
    assert!(made(&often).choices.iter().all(|choice| choice.strategy != Strategy::Split));
}

#[test]
fn a_plan_is_for_one_arrangement_and_may_be_applied_twice() {
    let plan = made(&one_slow());
    let once = plan.apply(&plan.from).expect("made for it");
    assert_eq!(plan.apply(&once), Ok(once.clone()));
    let mut other = plan.from.clone();
    other.hosts.swap(0, 1);
    assert_eq!(plan.apply(&other), Err(Refused::Changed));
}

#[test]
fn spare_hosts_take_the_places() {
    let mut situation = Situation { lost_ns: 2000 * NANOS_PER_SEC, done: Strategy::Move, ..one_congested() };
    situation.suspects = vec![(name(1), Category::NetworkCongestion), (name(2), Category::NetworkCongestion)];
    situation.spares = Some(vec!["spare".into()]);
    let strike = Strike {
        host: name(2),
        at: HostTime(NOW.0 - 24 * HOUR),
        category: Category::NetworkCongestion,
        job: "other".into(),
    };
    situation.history = vec![strike];
    let plan = made(&situation);
    assert_eq!(plan.to.left_out, [name(2)], "the one that was bad before, as there is one spare host");
    assert_eq!(plan.to.hosts[2].as_ref(), "spare");
}

/// What the linter says of a plan that was spoilt.
fn said(spoil: impl Fn(&mut Plan)) -> String {
    let situation = one_slow();
    let mut plan = plan(&situation).expect("the model fits");
    spoil(&mut plan);
    lint(&plan, &situation).join("; ")
}

#[test]
fn the_linter_sees_what_is_spoilt() {
    let cases: [(&str, String); 10] = [
        ("32 micro-batches before and 33 after", said(|plan| plan.to.micro_batches[0] += 1)),
        ("replica 1 has 0 micro-batches", said(|plan| plan.to.micro_batches = vec![14, 0, 9, 9])),
        ("host0 has 2 places", said(|plan| plan.to.hosts[1] = name(0))),
        ("host99 is neither", said(|plan| plan.to.hosts[1] = name(99))),
        ("does not change what it is for", said(|plan| plan.to.hosts.swap(0, 1))),
        ("a place has no host", said(|plan| plan.to.hosts[3] = "".into())),
        ("is no faster", said(|plan| plan.after_ns = plan.before_ns)),
        ("another iteration time", said(|plan| plan.after_ns -= 1)),
        ("is not due", said(|plan| plan.lost_ns = 0)),
        ("for another job", said(|plan| plan.from.hosts.swap(0, 1))),
    ];
    for (expected, said) in cases {
        assert!(said.contains(expected), "{expected:?} is not in {said:?}");
    }
    let mut situation = Situation { micro_batches_max: Some(10), ..one_slow() };
    let plan = made(&situation);
    situation.micro_batches_max = Some(8);
    assert!(lint(&plan, &situation).join("; ").contains("replica 2 has 9 micro-batches; it must have 1 to 8"));
}

#[test]
fn the_text_says_what_why_and_what_next() {
    let expected = "\
plan for job train at 2026-01-01T00:00:00.000000000Z: S2, other numbers of micro-batches
  iteration  1102 ms healthy, 1902 ms now, 1302 ms with the plan (75 % of the slowdown removed)
  cost       5000 ms once; the faults have cost 500 s so far
  why now    what was lost has reached what split costs, 5000 ms, and 495 s more; it is the mildest that helps; who acts when it is due pays at most 2.00 times what would be paid if the end were known
  would      give replica 0 10 micro-batches instead of 8, its gradients weight 10/32
  would      give replica 1 4 micro-batches instead of 8, its gradients weight 4/32
  would      give replica 2 9 micro-batches instead of 8, its gradients weight 9/32
  would      give replica 3 9 micro-batches instead of 8, its gradients weight 9/32
  weighed    S1 ignore: 1902 ms an iteration, costs nothing
  weighed    S2 split: 1302 ms an iteration (75 % of the slowdown removed), costs 5000 ms
  weighed    S4 restart: 1102 ms an iteration (100 % of the slowdown removed), costs 30 min
  next       S4 restart, when 29 min more is lost
  nothing is carried out: this is a plan
";
    assert_eq!(render(&made(&one_slow())), expected);
}

#[test]
fn bad_once_is_out_for_a_day_and_bad_often_for_longer() {
    let named = [(name(3), Category::Gpu)];
    let strike = |ago_ns: u64| Strike {
        host: name(3),
        at: HostTime(NOW.0 - ago_ns),
        category: Category::Gpu,
        job: "any".into(),
    };
    let hours = |history: &[Strike]| {
        let left = leave_out(&named, history, NOW, None);
        (left[0].strikes, left[0].until.since_ns(NOW) / HOUR)
    };
    assert_eq!(hours(&[]), (1, 24));
    assert_eq!(hours(&[strike(48 * HOUR)]), (2, 48));
    assert_eq!(hours(&[strike(48 * HOUR), strike(48 * HOUR + HOUR / 2)]), (2, 48), "the same fault, seen twice");
    assert_eq!(hours(&[strike(HOUR / 2)]), (1, 24), "the present fault");
    assert_eq!(hours(&[strike(REMEMBERED_NS + 1)]), (1, 24), "long ago");
    assert_eq!(hours(&[strike(24 * HOUR), strike(48 * HOUR), strike(72 * HOUR)]), (4, 192));
    let often: Vec<Strike> = (1..29).map(|days| strike(days * 24 * HOUR)).collect();
    assert_eq!(leave_out(&named, &often, NOW, None)[0].until.since_ns(NOW), LONGEST_NS);
    assert_eq!(leave_out(&named, &often, NOW, Some(0)), []);
}

fn situations() -> impl proptest::strategy::Strategy<Value = Situation> {
    let shapes = prop::sample::select(vec![(1, 4), (2, 2), (2, 4), (3, 3), (4, 2), (4, 1)]);
    shapes.prop_flat_map(|(stages, columns)| {
        let hosts = stages * columns;
        let pace = prop_oneof![3 => Just(HEALTHY), 1 => HEALTHY..4000];
        let network = prop_oneof![5 => Just(HEALTHY), 1 => HEALTHY..9000];
        let pace = (pace, network).prop_map(|(compute, network)| Pace { compute, network });
        let path = (0..hosts, 1..hosts, HEALTHY..9000)
            .prop_map(move |(one, by, network)| SlowPath { ends: (one, (one + by) % hosts), network });
        let rest =
            (0u64..3000, 1usize..3, prop::option::of(8u32..12), any::<bool>(), 0usize..4, prop::option::of(0usize..3));
        (prop::collection::vec(pace, hosts), prop::collection::vec(path, 0..3), rest).prop_map(
            move |(hosts, paths, (lost, replicas, limit, often, done, spares))| {
                let mut situation = situation(stages, columns);
                let is_odd = |host: usize| hosts[host] != Pace::HEALTHY;
                situation.suspects =
                    (0..hosts.len()).filter(|host| is_odd(*host)).map(|host| (name(host), Category::Gpu)).collect();
                situation.model = Job { hosts, paths, ..situation.model };
                situation.model.waits = if often { Waits::EachMicroBatch } else { Waits::EachIteration };
                situation.replicas_per_column = replicas;
                situation.present.micro_batches = vec![8; columns * replicas];
                situation.micro_batches_max = limit;
                situation.lost_ns = lost * NANOS_PER_SEC;
                situation.done = Strategy::ALL[done];
                situation.spares = spares.map(|count| (100..100 + count).map(name).collect());
                situation
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn every_plan_passes_the_linter(situation in situations()) {
        let made = plan(&situation).expect("the model fits");
        prop_assert_eq!(lint(&made, &situation), Vec::<String>::new());
        prop_assert_eq!(plan(&situation).expect("again"), made.clone());
        prop_assert!(made.strategy == Strategy::Ignore || made.strategy > situation.done);
        prop_assert!(made.choices.iter().all(|choice| choice.after_ns >= made.healthy_ns), "nothing is faster than healthy");
        // What was carried out is not planned again.
        let now = made.apply(&situation.present).expect("made for it");
        if made.strategy == Strategy::Split {
            let after = Situation { present: now, ..situation };
            prop_assert!(plan(&after).expect("fits").strategy != Strategy::Split);
        }
    }
}
