//! Judgements by their plain definition, which compares each value with a list of all others, are those that are given.
use mycroft_diagnose::validate::{
    Check, CheckResult, CheckRow, Judgement, LATENCY_RATIO, LinkMeasure, LinkResult, LinkRow, PROCESSOR_RATIO,
    SLOW_RATIO, Slow, SlowPlace, Times, judge,
};
use mycroft_record::Rank;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

type Way = (Rank, Rank);

/// A time, whose it is, and the middle of several times.
type Value<K> = (K, Times);

/// Ratio, whether it is slow, and from which ratio on it would be.
type Compared = (Option<f64>, bool, f64);

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let mid = values.len() / 2;
    if values.len() % 2 == 1 { values[mid] } else { (values[mid - 1] + values[mid]) / 2.0 }
}

fn ns(times: Times) -> f64 {
    times.fastest_ns as f64
}

fn compare<K: PartialEq>(values: &[Value<K>], limit: f64) -> Vec<Compared> {
    let one = |value: &Value<K>| {
        let peers: Vec<f64> = values.iter().filter(|other| other.0 != value.0).map(|other| ns(other.1)).collect();
        if peers.len() < 2 || median(peers.clone()) <= 0.0 {
            return (None, false, f64::INFINITY);
        }
        let middle = median(peers.clone());
        let away = median(peers.iter().map(|peer| (peer - middle).abs()).collect());
        let tells_from = limit.max(1.0 + 4.0 * (1.0 + 2.0 / peers.len() as f64) * 1.4826 * away / middle);
        let ratio = ns(value.1) / middle;
        (Some(ratio), ratio >= tells_from, tells_from)
    };
    values.iter().map(one).collect()
}

fn beyond_all<K: PartialEq>(values: &[Value<K>], compared: &mut [Compared], limit: f64) {
    let mut shortest_first: Vec<usize> = (0..values.len()).filter(|i| compared[*i].1).collect();
    shortest_first.sort_by(|a, b| ns(values[*a].1).total_cmp(&ns(values[*b].1)));
    for i in shortest_first {
        let others = (0..values.len()).filter(|j| !compared[*j].1 && values[*j].0 != values[i].0);
        let longest_ns = others.map(|j| values[j].1.median_ns as f64).fold(0.0, f64::max);
        let tells_from = compared[i].0.unwrap_or(0.0) * limit * longest_ns / ns(values[i].1);
        compared[i].2 = compared[i].2.max(tells_from);
        compared[i].1 = ns(values[i].1) >= limit * longest_ns;
    }
}

fn caveat(what: &str, limit: f64, compared: &[Compared], caveats: &mut Vec<String>) {
    let Some(worst) = compared.iter().map(|compared| compared.2).max_by(f64::total_cmp) else { return };
    if worst.is_infinite() {
        caveats.push(format!("{what}: fewer than 2 peers, nobody is compared"));
    } else if worst > limit * 1.09 {
        caveats.push(format!("{what}: peers differ so much that only {worst:.2} times their middle is told"));
    }
}

fn shortest<K: Ord, V: Copy>(results: &[V], key: impl Fn(&V) -> K, times: impl Fn(&mut V) -> &mut Times) -> Vec<V> {
    let mut by_key: BTreeMap<K, V> = BTreeMap::new();
    for result in results {
        let mut again = *result;
        let (kept, again) = (times(by_key.entry(key(result)).or_insert(*result)), times(&mut again));
        kept.fastest_ns = kept.fastest_ns.min(again.fastest_ns);
        kept.median_ns = kept.median_ns.min(again.median_ns);
    }
    by_key.into_values().collect()
}

fn raise<K: Ord>(ratios: &mut BTreeMap<K, f64>, of: K, ratio: f64) {
    let largest = ratios.entry(of).or_default();
    *largest = largest.max(ratio);
}

fn way(link: &LinkResult) -> Way {
    (link.from.min(link.to), link.from.max(link.to))
}

fn judge_checks(checks: &[CheckResult], judgement: &mut Judgement) {
    let mut slow = BTreeMap::new();
    let kinds: BTreeSet<(Check, u32)> = checks.iter().map(|result| (result.check, result.part)).collect();
    for (check, part) in kinds {
        let of: Vec<&CheckResult> = checks.iter().filter(|of| (of.check, of.part) == (check, part)).collect();
        let values: Vec<Value<Rank>> = of.iter().map(|of| (of.rank, of.times)).collect();
        let limit = if matches!(check, Check::Device | Check::Copy) { SLOW_RATIO } else { PROCESSOR_RATIO };
        let compared = compare(&values, limit);
        caveat(&format!("{} {part}", check.as_str()), limit, &compared, &mut judgement.caveats);
        for (result, (ratio, is_slow, _)) in of.into_iter().zip(compared) {
            let is_slow = is_slow && !((check, part) == (Check::Host, 1) && result.times.fastest_ns < 1_000_000);
            judgement.checks.push(CheckRow { result: *result, ratio, is_slow });
            if is_slow {
                raise(&mut slow, SlowPlace::Alone(result.rank, check), ratio.unwrap());
            }
        }
    }
    judgement.slow.extend(slow.into_iter().map(|(place, ratio)| Slow { place, ratio }));
}

fn judge_links(links: &[LinkResult], judgement: &mut Judgement) {
    let mut slow: BTreeMap<LinkMeasure, BTreeMap<Way, f64>> = BTreeMap::new();
    for (between_hosts, place) in [(false, "inside hosts"), (true, "between hosts")] {
        for (measure, what, limit) in
            [(LinkMeasure::Bandwidth, "bandwidth", SLOW_RATIO), (LinkMeasure::Latency, "latency", LATENCY_RATIO)]
        {
            let is = |of: &&LinkResult| (of.between_hosts, of.measure) == (between_hosts, measure);
            let of: Vec<&LinkResult> = links.iter().filter(is).collect();
            let values: Vec<Value<Way>> = of.iter().map(|of| (way(of), of.times)).collect();
            let mut compared = compare(&values, limit);
            if measure == LinkMeasure::Latency {
                beyond_all(&values, &mut compared, limit);
            }
            caveat(&format!("{what} {place}"), limit, &compared, &mut judgement.caveats);
            for (result, (ratio, is_slow, _)) in of.into_iter().zip(compared) {
                judgement.links.push(LinkRow { result: *result, ratio, is_slow });
                if is_slow {
                    raise(slow.entry(measure).or_default(), way(result), ratio.unwrap());
                }
            }
        }
    }
    mark_ends(&mut judgement.links, slow.entry(LinkMeasure::Bandwidth).or_default());
    judgement.slow.extend(places(&links.iter().map(way).collect(), slow));
}

fn mark_ends(links: &mut [LinkRow], slow: &mut BTreeMap<Way, f64>) {
    let ranks: BTreeSet<Rank> = links.iter().map(|row| row.result.from).collect();
    for (rank, between_hosts) in ranks.into_iter().flat_map(|rank| [(rank, false), (rank, true)]) {
        let is = |of: &LinkResult| of.measure == LinkMeasure::Bandwidth && of.between_hosts == between_hosts;
        let of = links.iter().map(|row| row.result).filter(is);
        let (own, others): (Vec<LinkResult>, Vec<_>) = of.partition(|of| of.from == rank || of.to == rank);
        let count = |of: &[LinkResult]| of.iter().map(way).collect::<BTreeSet<_>>().len();
        if count(&own) < 2 || count(&others) < 2 {
            continue;
        }
        let fastest = own.iter().map(|of| ns(of.times)).fold(f64::INFINITY, f64::min);
        let middle = median(others.iter().map(|of| ns(of.times)).collect());
        let slower = others.iter().filter(|of| ns(of.times) >= fastest).count();
        if fastest < SLOW_RATIO * middle || slower * 10 > others.len() {
            continue;
        }
        for row in links.iter_mut().filter(|row| own.contains(&row.result)) {
            row.is_slow = true;
            raise(slow, way(&row.result), ns(row.result.times) / middle);
        }
    }
}

fn places(tested: &BTreeSet<Way>, slow: BTreeMap<LinkMeasure, BTreeMap<Way, f64>>) -> Vec<Slow> {
    let ranks: BTreeSet<Rank> = tested.iter().flat_map(|way| [way.0, way.1]).collect();
    let has = |way: &Way, rank: Rank| way.0 == rank || way.1 == rank;
    let (mut ends, mut links): (BTreeMap<Rank, f64>, BTreeMap<Way, f64>) = Default::default();
    for mut slow in slow.into_values() {
        let is_whole = |rank: &Rank| {
            let of: Vec<_> = tested.iter().filter(|way| has(way, *rank)).collect();
            of.len() >= 2 && of.iter().all(|way| slow.contains_key(way))
        };
        let whole: Vec<Rank> = ranks.iter().copied().filter(is_whole).collect();
        for rank in whole {
            let of: Vec<f64> = slow.iter().filter(|(way, _)| has(way, rank)).map(|(_, ratio)| *ratio).collect();
            if of.len() >= 2 {
                slow.retain(|way, _| !has(way, rank));
                raise(&mut ends, rank, of.into_iter().fold(0.0, f64::max));
            }
        }
        slow.into_iter().for_each(|(way, ratio)| raise(&mut links, way, ratio));
    }
    links.retain(|way, _| !ends.keys().any(|rank| has(way, *rank)));
    let ends = ends.into_iter().map(|(rank, ratio)| Slow { place: SlowPlace::Ends(rank), ratio });
    ends.chain(links.into_iter().map(|(way, ratio)| Slow { place: SlowPlace::Link(way.0, way.1), ratio })).collect()
}

fn plainly(checks: &[CheckResult], links: &[LinkResult]) -> Judgement {
    let mut judgement = Judgement::default();
    judge_checks(&shortest(checks, |of| (of.check, of.part, of.rank), |of| &mut of.times), &mut judgement);
    let key = |of: &LinkResult| (of.between_hosts, of.measure, way(of), of.from);
    judge_links(&shortest(links, key, |of| &mut of.times), &mut judgement);
    judgement.slow.sort_by_key(|slow| slow.place);
    judgement
}

/// Few distinct ones, so that many are equal, or many; some have the length of nothing.
fn times() -> impl Strategy<Value = Times> {
    let usual = prop_oneof![4 => 95..106u64, 2 => 900_000..1_100_000u64, 1 => 1..400u64, 1 => 0..1_000_000_000u64];
    (usual.clone(), usual).prop_map(|(one, other)| Times { fastest_ns: one.min(other), median_ns: one.max(other) })
}

fn checks() -> impl Strategy<Value = Vec<CheckResult>> {
    let check = prop::sample::select(Check::ALL.to_vec());
    let result = (0..9u32, check, 0..2u32, times());
    let result = result.prop_map(|(rank, check, part, times)| CheckResult { rank: Rank(rank), check, part, times });
    prop::collection::vec(result, 0..80)
}

fn links() -> impl Strategy<Value = Vec<LinkResult>> {
    let measure = prop_oneof![3 => Just(LinkMeasure::Bandwidth), 1 => Just(LinkMeasure::Latency)];
    let result = (0..7u32, 0..7u32, any::<bool>(), measure, times());
    let result = result.prop_map(|(from, to, between_hosts, measure, times)| LinkResult {
        from: Rank(from),
        to: Rank(to),
        between_hosts,
        measure,
        times,
    });
    prop::collection::vec(result, 0..80)
}

/// Both directions of a ring, some of whose ranks are slow at both ends.
fn ring() -> impl Strategy<Value = Vec<LinkResult>> {
    (3..30u32, prop::collection::btree_set(0..30u32, 0..3), prop::collection::vec(95..106u64, 60)).prop_map(
        |(count, slow, times)| {
            let link = |i: u32| {
                let (one, other) = (i / 2, (i / 2 + 1) % count);
                let (from, to) = if i.is_multiple_of(2) { (one, other) } else { (other, one) };
                let factor = if slow.contains(&from) || slow.contains(&to) { 14 } else { 10 };
                let fastest_ns = times[i as usize] * factor;
                let times = Times { fastest_ns, median_ns: fastest_ns };
                let (from, to, measure) = (Rank(from), Rank(to), LinkMeasure::Bandwidth);
                LinkResult { from, to, between_hosts: true, measure, times }
            };
            (0..2 * count).map(link).collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn what_is_judged_is_what_the_plain_definition_says(checks in checks(), links in prop_oneof![links(), ring()]) {
        prop_assert_eq!(judge(&checks, &links), plainly(&checks, &links));
    }
}
