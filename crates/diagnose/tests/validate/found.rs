//! Judgements of noisy results.
use crate::plans::{COSTS, group};
use mycroft_diagnose::validate::{
    Check, CheckResult, Group, Judgement, LinkMeasure, LinkResult, Pair, Plan, Shape, SlowPlace, Times, Work, again,
    judge, plan,
};
use mycroft_record::Rank;

/// A generator of numbers, the same for each seed.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// From 0 to 1.
    fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        ((self.uniform() * n as f64) as usize).min(n - 1)
    }

    /// Five repetitions: each component differs by 1 % (the paper's Table 2 has 2 % for devices over months), each repetition
    /// by 2 %, and one in five is up to three times as long because something else ran.
    fn times(&mut self, nominal_ns: f64) -> Times {
        let own = 1.0 + 0.01 * self.gauss();
        let mut all: Vec<u64> = (0..5)
            .map(|_| {
                let spike = if self.uniform() < 0.2 { 1.0 + 2.0 * self.uniform() } else { 1.0 };
                (nominal_ns * own * (1.0 + 0.02 * self.gauss().abs()) * spike) as u64
            })
            .collect();
        all.sort_unstable();
        Times { fastest_ns: all[0], median_ns: all[2] }
    }

    fn gauss(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// What a plan measures where a check of a rank or a direction takes `factor` times as long; what stands out twice.
fn measured(plan: &Plan, alone: impl Fn(Rank) -> f64, way: impl Fn(Rank, Rank) -> f64, draw: &mut Draw) -> Judgement {
    let (mut checks, mut links) = (Vec::new(), Vec::new());
    let mut run = |plan: &Plan, checks: &mut Vec<CheckResult>, links: &mut Vec<LinkResult>| {
        for pass in &plan.passes {
            match &pass.work {
                Work::Alone { check, ranks } => checks.extend(ranks.iter().flat_map(|rank| {
                    let part = |part| (part, draw.times(1e6 * f64::from(1u32 << (3 * part)) * alone(*rank)));
                    let result = |(part, times)| CheckResult { rank: *rank, check: *check, part, times };
                    (0..3).map(part).map(result).collect::<Vec<_>>()
                })),
                Work::Pairs(pairs) => links.extend(pairs.iter().flat_map(|pair| ways(pair, &way, draw))),
            }
        }
    };
    run(plan, &mut checks, &mut links);
    run(&again(plan, &judge(&checks, &links)), &mut checks, &mut links);
    judge(&checks, &links)
}

fn ways(pair: &Pair, factor: impl Fn(Rank, Rank) -> f64, draw: &mut Draw) -> Vec<LinkResult> {
    let mut results = Vec::new();
    for (from, to) in [(pair.one.rank, pair.other.rank), (pair.other.rank, pair.one.rank)] {
        for (measure, nominal_ns) in [(LinkMeasure::Bandwidth, 2e6), (LinkMeasure::Latency, 2e4)] {
            let times = draw.times(nominal_ns * factor(from, to));
            results.push(LinkResult { from, to, between_hosts: true, measure, times });
        }
    }
    results
}

/// The ways of one group.
fn links(n: u32, shape: Shape, factor: impl Fn(Rank, Rank) -> f64, draw: &mut Draw) -> Judgement {
    measured(&plan(&[group(n, shape)], &[], COSTS), |_| 1.0, factor, draw)
}

/// The devices of one group.
fn devices(n: u32, factor: impl Fn(Rank) -> f64, draw: &mut Draw) -> Judgement {
    let plan = plan(&[group(n, Shape::Ring)], &[Check::Device], COSTS);
    measured(&Plan { passes: plan.passes[..1].to_vec() }, factor, |_, _| 1.0, draw)
}

fn found(judgement: &Judgement) -> Vec<SlowPlace> {
    judgement.slow.iter().map(|slow| slow.place).collect()
}

const SEEDS: u64 = 30;

#[test]
fn one_device_at_1_2_is_found_and_nobody_else() {
    for seed in 0..SEEDS {
        let mut draw = Draw::new(seed);
        let n = 3 + draw.below(60) as u32;
        let slow = Rank(1_000 - draw.below(n as usize) as u32);
        let judgement = devices(n, |rank| if rank == slow { 1.2 } else { 1.0 }, &mut draw);
        assert_eq!(found(&judgement), [SlowPlace::Alone(slow, Check::Device)], "seed {seed}, {n} ranks");
        assert_eq!(found(&devices(n, |_| 1.0, &mut draw)), [], "seed {seed}: nobody");
    }
}

fn one_link(sizes: impl Fn(&mut Draw) -> u32, shape: Shape) {
    for seed in 0..SEEDS {
        let mut draw = Draw::new(1_000 + seed);
        let n = sizes(&mut draw);
        let all = links(n, shape, |_, _| 1.0, &mut draw);
        assert_eq!(found(&all), [], "seed {seed}: nobody");
        let one = all.links[draw.below(all.links.len())].result;
        let place = SlowPlace::Link(one.from.min(one.to), one.from.max(one.to));
        let is_it = |a, b| (a, b) == (one.from, one.to) || (b, a) == (one.from, one.to);
        let both = links(n, shape, |a, b| if is_it(a, b) { 1.2 } else { 1.0 }, &mut draw);
        assert_eq!(found(&both), [place], "seed {seed}, {n} ranks");
        let way = links(n, shape, |a, b| if (a, b) == (one.from, one.to) { 1.2 } else { 1.0 }, &mut draw);
        assert_eq!(found(&way), [place], "seed {seed}, {n} ranks, one direction");
        let rows = way.links.iter().filter(|row| row.is_slow).map(|row| (row.result.from, row.result.to));
        assert!(rows.into_iter().all(|way| way == (one.from, one.to)), "seed {seed}: the direction");
    }
}

#[test]
fn one_way_of_an_even_ring_at_1_2_is_found_and_nobody_else() {
    one_link(|draw| 4 + 2 * draw.below(30) as u32, Shape::Ring);
}

#[test]
fn one_way_of_an_odd_ring_at_1_2_is_found_and_nobody_else() {
    one_link(|draw| 3 + 2 * draw.below(30) as u32, Shape::Ring);
}

#[test]
fn one_way_of_a_tree_at_1_2_is_found_and_nobody_else() {
    one_link(|draw| 4 + draw.below(60) as u32, Shape::Tree);
}

#[test]
fn one_way_of_two_trees_at_1_2_is_found_and_nobody_else() {
    one_link(|draw| 6 + draw.below(60) as u32, Shape::DoubleTree);
}

#[test]
fn a_rank_all_of_whose_ways_are_slow_is_named_and_not_each_way() {
    for seed in 0..SEEDS {
        let mut draw = Draw::new(2_000 + seed);
        let n = 5 + draw.below(40) as u32;
        let slow = group(n, Shape::Ring).members[draw.below(n as usize)];
        let judgement = links(n, Shape::Ring, |a, b| if a == slow || b == slow { 1.2 } else { 1.0 }, &mut draw);
        assert_eq!(found(&judgement), [SlowPlace::Ends(slow)], "seed {seed}, {n} ranks");
    }
}

#[test]
fn ways_inside_a_host_are_not_compared_with_those_between_hosts() {
    let rows = links(8, Shape::Ring, |_, _| 1.0, &mut Draw::new(5)).links;
    let between: Vec<LinkResult> = rows.iter().map(|row| row.result).collect();
    let inside = links(8, Shape::Ring, |_, _| 0.1, &mut Draw::new(6)).links;
    let inside = inside.iter().map(|row| {
        let (from, to) = (Rank(row.result.from.0 + 5_000), Rank(row.result.to.0 + 5_000));
        LinkResult { from, to, between_hosts: false, ..row.result }
    });
    assert_eq!(found(&judge(&[], &between.into_iter().chain(inside).collect::<Vec<_>>())), []);
}

fn check(rank: u32, check: Check, fastest_ns: u64) -> CheckResult {
    CheckResult { rank: Rank(rank), check, part: 0, times: Times { fastest_ns, median_ns: 2 * fastest_ns } }
}

#[test]
fn what_cannot_be_told_is_said() {
    let two = [check(0, Check::Device, 100), check(1, Check::Device, 300)];
    let way = LinkResult {
        from: Rank(0),
        to: Rank(1),
        between_hosts: true,
        measure: LinkMeasure::Bandwidth,
        times: two[0].times,
    };
    let two = judge(&two, &[way]);
    assert_eq!(found(&two), [], "of two nobody knows which is as it should be");
    assert!(two.checks.iter().all(|row| row.ratio.is_none()) && two.links.iter().all(|row| row.ratio.is_none()));
    assert_eq!(two.caveats.len(), 2, "{:?}", two.caveats);
    let uneven: Vec<CheckResult> = (0..8).map(|i| check(i, Check::Device, 100 + 10 * u64::from(i))).collect();
    let uneven = judge(&uneven, &[]);
    assert_eq!(found(&uneven), [], "all differ");
    assert!(uneven.caveats[0].contains("peers differ so much"), "{:?}", uneven.caveats);
    // Threads that wake up late by microseconds are late for nobody.
    let late = |ns: u64| {
        (0..8).map(move |i| CheckResult { part: 1, ..check(i, Check::Host, if i == 3 { 3 * ns } else { ns }) })
    };
    assert_eq!(found(&judge(&late(50_000).collect::<Vec<_>>(), &[])), []);
    assert_eq!(found(&judge(&late(500_000).collect::<Vec<_>>(), &[])), [SlowPlace::Alone(Rank(3), Check::Host)]);
    // A processor that others use too is not a slow one.
    let shared = |i| check(i, Check::Processor, if i == 3 { 130 } else { 100 });
    assert_eq!(found(&judge(&(0..8).map(shared).collect::<Vec<_>>(), &[])), []);
}

#[test]
fn what_was_measured_twice_counts_with_its_shortest_time() {
    let mut results: Vec<CheckResult> = (0..4).map(|i| check(i, Check::Device, 100)).collect();
    results[2] = check(2, Check::Device, 150);
    assert_eq!(found(&judge(&results, &[])), [SlowPlace::Alone(Rank(2), Check::Device)]);
    let plan = plan(&[group(4, Shape::Ring)], &[Check::Device, Check::Host], COSTS);
    assert_eq!(again(&plan, &judge(&results, &[])).passes, plan.passes[..1], "the pass in which it stood out");
    results.push(check(2, Check::Device, 101));
    assert_eq!(found(&judge(&results, &[])), []);
}

/// Six ways as a real NIC with a bucket gave them, and those of one at 1.2: each by itself is within what the others differ.
#[test]
fn a_rank_s_ways_say_together_what_none_says_alone() {
    let ms = [[46.7, 47.1], [46.6, 47.4], [40.9, 39.9], [41.6, 40.6], [41.6, 39.2]];
    let way = |i: usize, back: usize| {
        let (from, to) = (Rank(i as u32), Rank((i as u32 + 1) % 5));
        let ns = (ms[i][back] * 1e6) as u64;
        let times = Times { fastest_ns: ns, median_ns: ns };
        let (from, to) = if back == 0 { (from, to) } else { (to, from) };
        LinkResult { from, to, between_hosts: true, measure: LinkMeasure::Bandwidth, times }
    };
    let results: Vec<LinkResult> = (0..5).flat_map(|i| [way(i, 0), way(i, 1)]).collect();
    let judgement = judge(&[], &results);
    assert_eq!(found(&judgement), [SlowPlace::Ends(Rank(1))]);
    let ring = plan(&[Group { comm: 1, members: (0..5).map(Rank).collect(), shape: Shape::Ring }], &[], COSTS);
    assert_eq!(again(&ring, &judgement).passes.len(), 2, "and are tested again: {:?}", ring.passes);
}

fn latency((from, to): (u32, u32), us: u64) -> LinkResult {
    let times = Times { fastest_ns: 1_000 * us, median_ns: 2_000 * us };
    LinkResult { from: Rank(from), to: Rank(to), between_hosts: true, measure: LinkMeasure::Latency, times }
}

fn bandwidth((from, to): (u32, u32), ms: f64) -> LinkResult {
    let times = Times { fastest_ns: (ms * 1e6) as u64, median_ns: (ms * 1e6) as u64 };
    LinkResult { measure: LinkMeasure::Bandwidth, times, ..latency((from, to), 1) }
}

/// Small messages on a machine with fewer cores than ranks, as they were measured: one is 2.47 times their middle, and another 2.15.
#[test]
fn no_latency_is_slow_that_others_nearly_have_as_well() {
    let us = [
        ((0, 4), 111),
        ((1, 2), 355),
        ((2, 1), 191),
        ((2, 3), 153),
        ((2, 4), 270),
        ((3, 2), 117),
        ((4, 0), 135),
        ((4, 2), 150),
        ((4, 5), 326),
        ((5, 4), 138),
    ];
    let results: Vec<LinkResult> = us.iter().map(|(way, us)| latency(*way, *us)).collect();
    let judgement = judge(&[], &results);
    assert_eq!(found(&judgement), []);
    assert!(judgement.caveats[0].contains("latency between hosts"), "{:?}", judgement.caveats);
    // One whose fastest is not beyond what another usually takes is not, either.
    let one = |way: &(u32, u32), us: u64| if *way == (1, 2) { 1_200 } else { us };
    let results: Vec<LinkResult> = us.iter().map(|(way, us)| latency(*way, one(way, *us))).collect();
    assert_eq!(found(&judge(&[], &results)), []);
    // Two that are far beyond all others are, both.
    let slow = [((1, 2), 1_900), ((2, 1), 2_000), ((4, 5), 2_100)];
    let but = |way: &(u32, u32)| slow.iter().find(|one| one.0 == *way).map(|one| one.1);
    let results: Vec<LinkResult> = us.iter().map(|(way, us)| latency(*way, but(way).unwrap_or(*us))).collect();
    let places = [SlowPlace::Link(Rank(1), Rank(2)), SlowPlace::Link(Rank(4), Rank(5))];
    assert_eq!(found(&judge(&[], &results)), places);
}

/// A NIC is slow for large messages, and a small one to its neighbour's other side: that neighbour is not all slow.
#[test]
fn a_rank_is_not_named_for_ways_that_are_slow_in_different_measures() {
    let ring = |n: u32| (0..n).flat_map(move |i| [(i, (i + 1) % n), ((i + 1) % n, i)]);
    let large = ring(6).map(|way| bandwidth(way, if way.0 == 1 || way.1 == 1 { 50.0 } else { 41.0 }));
    let small = ring(6).map(|way| latency(way, if way == (0, 5) { 500 } else { 100 }));
    let judgement = judge(&[], &large.chain(small).collect::<Vec<_>>());
    assert_eq!(found(&judgement), [SlowPlace::Ends(Rank(1)), SlowPlace::Link(Rank(0), Rank(5))]);
}
