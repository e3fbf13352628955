//! When to do what: against whoever knows when the fault ends.
use mycroft_diagnose::mitigate::rent::{Ladder, Renting, Rung, Step, Strategy};
use proptest::prelude::*;

const RUNGS: [Strategy; 3] = [Strategy::Split, Strategy::Move, Strategy::Restart];

/// A fault: what an iteration loses under each strategy (nothing first), and how many iterations it lasts.
#[derive(Clone, Debug)]
struct Fault {
    loss_ns: Vec<u64>,
    iterations: u64,
}

/// What the ladder pays, and the largest loss of one iteration for each rung taken.
fn online(ladder: &Ladder, fault: &Fault) -> (u64, u64) {
    let mut renting = Renting::new(ladder.clone());
    let (mut paid, mut taken) = (0, 0);
    for _ in 0..fault.iterations {
        paid += fault.loss_ns[taken];
        if renting.lose(fault.loss_ns[taken]).is_some() {
            paid += ladder.rungs()[taken].cost_ns;
            taken += 1;
        }
    }
    (paid, fault.loss_ns[0] * (taken as u64 + 1))
}

/// What whoever knows the end pays: the best of doing one thing at once, or nothing.
fn offline(ladder: &Ladder, fault: &Fault) -> u64 {
    let costs = std::iter::once(0).chain(ladder.rungs().iter().map(|rung| rung.cost_ns));
    costs.zip(&fault.loss_ns).map(|(cost, loss)| cost + loss * fault.iterations).min().unwrap_or(0)
}

fn games() -> impl proptest::strategy::Strategy<Value = (Ladder, Fault)> {
    use proptest::strategy::Strategy as _;
    let costs = prop::collection::vec(1u64..20_000, 1..=3);
    let losses = prop::collection::vec(0u64..100, 4);
    (costs, losses, 0u64..3000).prop_map(|(mut costs, mut loss_ns, iterations)| {
        costs.sort_unstable();
        costs.dedup();
        loss_ns.sort_unstable_by(|a, b| b.cmp(a));
        let rung = |(strategy, cost_ns): (Strategy, u64)| Rung { strategy, cost_ns };
        let rungs: Vec<Rung> = RUNGS.into_iter().zip(costs).map(rung).collect();
        (Ladder::new(&rungs), Fault { loss_ns, iterations })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn it_never_costs_more_than_the_bound((ladder, fault) in games()) {
        let (paid, within_iterations) = online(&ladder, &fault);
        let best = offline(&ladder, &fault);
        prop_assert!(
            paid as f64 <= ladder.bound() * best as f64 + within_iterations as f64 + 1e-6,
            "paid {} against {} times {}", paid, ladder.bound(), best
        );
        if ladder.rungs().len() == 1 {
            prop_assert_eq!(ladder.bound(), 2.0);
        }
        prop_assert!(ladder.bound() <= 1.0 + ladder.rungs().len() as f64);
    }
}

fn usual() -> Ladder {
    let rung = |(strategy, cost_ns)| Rung { strategy, cost_ns };
    Ladder::new(&[(Strategy::Restart, 1800), (Strategy::Split, 5), (Strategy::Move, 60)].map(rung))
}

#[test]
fn loss_climbs_the_ladder_and_relief_takes_it_back() {
    let mut renting = Renting::new(usual());
    assert!((usual().bound() - (1.0 + 65.0 / 60.0)).abs() < 1e-12, "{}", usual().bound());
    let mut steps = Vec::new();
    for iteration in 1..=1000 {
        steps.extend(renting.lose(2).map(|step| (iteration, step)));
    }
    let applied = [(3, Strategy::Split), (31, Strategy::Move), (901, Strategy::Restart)];
    assert_eq!(steps, applied.map(|(iteration, strategy)| (iteration, Step::Apply(strategy))));
    assert_eq!(renting.strategy(), Strategy::Restart);
    assert_eq!(renting.relief(), Some(Step::TakeBack(Strategy::Split)));
    assert_eq!((renting.strategy(), renting.relief()), (Strategy::Ignore, None), "only once");
    assert_eq!(renting.next().map(|(rung, more)| (rung.strategy, more)), Some((Strategy::Split, 5)), "a new fault");
}

#[test]
fn what_was_lost_before_the_first_look_makes_nobody_restart_at_once() {
    let mut renting = Renting::new(usual());
    assert_eq!(renting.lose(1_000_000), Some(Step::Apply(Strategy::Split)));
    // The cheap one worked: next to nothing is lost any more, and nothing more is done.
    for _ in 0..50 {
        assert_eq!(renting.lose(1), None);
    }
    assert_eq!(renting.next().map(|(rung, more)| (rung.strategy, more)), Some((Strategy::Move, 5)));
}

#[test]
fn a_rung_that_is_no_cheaper_than_a_stronger_one_is_none() {
    let rung = |strategy, cost_ns| Rung { strategy, cost_ns };
    let strategies =
        |rungs: &[Rung]| -> Vec<Strategy> { Ladder::new(rungs).rungs().iter().map(|rung| rung.strategy).collect() };
    let dear = [rung(Strategy::Split, 5), rung(Strategy::Move, 90), rung(Strategy::Restart, 60)];
    assert_eq!(strategies(&dear), [Strategy::Split, Strategy::Restart]);
    let equal = [rung(Strategy::Split, 5), rung(Strategy::Move, 5), rung(Strategy::Ignore, 0)];
    assert_eq!(strategies(&equal), [Strategy::Move]);
}
