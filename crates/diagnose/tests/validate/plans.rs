//! Plans.
use mycroft_diagnose::validate::{Check, Costs, End, Group, Pair, Pass, Plan, Problem, Shape, Work, lint, plan};
use mycroft_record::Rank;
use proptest::prelude::*;
use std::collections::BTreeSet;

pub(crate) const COSTS: Costs = Costs { check_ns: 50_000_000, pair_ns: 100_000_000 };
const MINUTE: u64 = 60_000_000_000;

pub(crate) fn group(n: u32, shape: Shape) -> Group {
    // Ranks in the job are not ranks in the communicator.
    Group { comm: 7, members: (0..n).map(|i| Rank(1_000 - i)).collect(), shape }
}

fn known(groups: &[Group]) -> BTreeSet<Rank> {
    groups.iter().flat_map(|group| group.members.iter().copied()).collect()
}

fn pairs(plan: &Plan) -> Vec<Pair> {
    let of = |pass: &Pass| if let Work::Pairs(pairs) = &pass.work { pairs.clone() } else { Vec::new() };
    plan.passes.iter().flat_map(of).collect()
}

fn ranks(pairs: &[Pair]) -> BTreeSet<(Rank, Rank)> {
    pairs.iter().map(Pair::ranks).collect()
}

#[test]
fn a_ring_of_any_size_takes_two_passes_or_three() {
    for n in 2..=300u32 {
        let ring = group(n, Shape::Ring);
        let made = plan(std::slice::from_ref(&ring), &[], COSTS);
        let expected = if n == 2 { 1 } else { 2 + n as usize % 2 };
        assert_eq!(made.passes.len(), expected, "{n}");
        assert_eq!(lint(&made, &known(std::slice::from_ref(&ring)), MINUTE), []);
        let ways: BTreeSet<(Rank, Rank)> = (0..n as usize)
            .map(|i| (ring.members[i], ring.members[(i + 1) % n as usize]))
            .map(|(one, other)| (one.min(other), one.max(other)))
            .collect();
        assert_eq!(ranks(&pairs(&made)), ways, "{n}: every way of the ring");
    }
}

#[test]
fn a_tree_of_any_size_takes_four_passes_and_two_trees_eight() {
    for n in 2..=300u32 {
        for (shape, most) in [(Shape::Tree, 4), (Shape::DoubleTree, 8)] {
            let tree = group(n, shape);
            let made = plan(std::slice::from_ref(&tree), &[], COSTS);
            assert!(made.passes.len() <= most, "{n} {shape:?}: {}", made.passes.len());
            assert_eq!(lint(&made, &known(std::slice::from_ref(&tree)), MINUTE), []);
            let made = pairs(&made);
            assert!(shape == Shape::DoubleTree || made.len() == n as usize - 1, "{n}");
            // Everybody is reached: the ways are connected.
            let mut reached = BTreeSet::from([tree.members[0]]);
            while let Some(new) = made.iter().find_map(|pair| {
                let (one, other) = pair.ranks();
                match (reached.contains(&one), reached.contains(&other)) {
                    (true, false) => Some(other),
                    (false, true) => Some(one),
                    _ => None,
                }
            }) {
                reached.insert(new);
            }
            assert_eq!(reached.len(), n as usize, "{n} {shape:?}");
        }
    }
}

#[test]
fn checks_are_run_by_all_members_at_once_and_before_ways() {
    let groups = [group(4, Shape::Ring), Group { comm: 8, members: (1..3).map(Rank).collect(), shape: Shape::Ring }];
    let made = plan(&groups, &[Check::Host, Check::Device, Check::Host], COSTS);
    let all: Vec<Rank> = known(&groups).into_iter().collect();
    let alone = |check| Work::Alone { check, ranks: all.clone() };
    assert_eq!((&made.passes[0].work, &made.passes[1].work), (&alone(Check::Device), &alone(Check::Host)));
    assert_eq!(made.passes.len(), 4, "both rings at the same time: {made:?}");
    assert_eq!(made.usual_ns(), 2 * COSTS.check_ns + 2 * COSTS.pair_ns);
    assert_eq!(plan(&[], &Check::ALL, COSTS), Plan::default());
}

fn shapes() -> impl Strategy<Value = Vec<Group>> {
    let shape = prop_oneof![Just(Shape::Ring), Just(Shape::Tree), Just(Shape::DoubleTree)];
    let members = prop::sample::subsequence((0..40).collect::<Vec<u32>>(), 1..20).prop_shuffle();
    let group = (1..9u64, members, shape).prop_map(|(comm, members, shape)| Group {
        comm,
        members: members.into_iter().map(Rank).collect(),
        shape,
    });
    prop::collection::vec(group, 1..6)
}

proptest! {
    #[test]
    fn plans_of_any_groups_have_nothing_wrong(groups in shapes()) {
        let made = plan(&groups, &[Check::Device], COSTS);
        prop_assert_eq!(lint(&made, &known(&groups), MINUTE), []);
        // Each member is where its group says.
        for pair in pairs(&made) {
            let is_in = |end: End| groups.iter().any(|group| {
                group.comm == pair.comm && group.members.get(end.place as usize) == Some(&end.rank)
            });
            prop_assert!(is_in(pair.one) && is_in(pair.other));
        }
        let most: usize = groups.iter().map(|group| match group.shape {
            Shape::Ring => 3,
            Shape::Tree => 4,
            Shape::DoubleTree => 8,
        }).sum();
        prop_assert!(made.passes.len() <= 1 + most);
    }
}

#[test]
fn what_is_wrong_with_a_plan_is_told() {
    let end = |rank: u32| End { rank: Rank(rank), place: rank };
    let pair = |one, other| Pair { comm: 1, one: end(one), other: end(other) };
    let pass = |work| Pass { work, usual_ns: 1_000, at_most_ns: 10_000 };
    let known: BTreeSet<Rank> = (0..4).map(Rank).collect();
    let problems = |passes| lint(&Plan { passes }, &known, 1_500);
    let ok = || pass(Work::Pairs(vec![pair(0, 1), pair(2, 3)]));
    assert_eq!(problems(vec![ok()]), []);
    assert_eq!(problems(vec![]), [Problem::Empty]);
    assert_eq!(problems(vec![pass(Work::Pairs(vec![]))]), [Problem::EmptyPass { pass: 0 }]);
    let twice = |rank| Problem::Twice { pass: 0, rank: Rank(rank) };
    assert_eq!(problems(vec![pass(Work::Pairs(vec![pair(0, 1), pair(1, 2)]))]), [twice(1)]);
    assert_eq!(problems(vec![pass(Work::Pairs(vec![pair(3, 3)]))]), [twice(3)]);
    let unknown = Problem::Unknown { pass: 0, rank: Rank(9) };
    let alone = |ranks: &[u32]| Work::Alone { check: Check::Device, ranks: ranks.iter().copied().map(Rank).collect() };
    assert_eq!(problems(vec![pass(alone(&[0, 9]))]), [unknown]);
    let again = Problem::Again { pass: 1, pair: (Rank(0), Rank(1)) };
    let long = Problem::TooLong { usual_ns: 2_000, most_ns: 1_500 };
    assert_eq!(problems(vec![ok(), pass(Work::Pairs(vec![pair(1, 0)]))]), [again, long]);
    for (usual_ns, at_most_ns) in [(0, 10), (1_000, 999), (1_000, u64::MAX)] {
        assert_eq!(problems(vec![Pass { usual_ns, at_most_ns, ..ok() }]), [Problem::Endless { pass: 0 }]);
    }
    assert!(problems(vec![]).iter().all(|problem| problem.to_string() == "nothing is tested"));
}
