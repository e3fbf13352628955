//! Who is slower than its peers, by what they measured while the job was held.
//!
//! All of a kind did the same work, so a time is compared with the middle of the others' times (FALCON 4.3: "transmission
//! sizes are identical"). What is compared is the fastest of several repetitions: what else a host does makes some of them
//! longer, a slow device or link makes all of them longer; and what stands out is measured [`again`] before it is named. Where the others differ much among each other, only what stands
//! out from that is named, and the judgement says from which ratio on it could tell.
use super::middle::Sorted;
use super::{Check, Pass, Plan, Work};
use mycroft_record::Rank;
use std::collections::{BTreeMap, BTreeSet};

/// A device or way is slow beyond this ratio to its peers: what FALCON's profiling calls suspicious, half of the 20 % that
/// must be found.
pub const SLOW_RATIO: f64 = 1.1;
/// The same for what a processor or host does: those that other programs use too differ by as much when healthy.
pub const PROCESSOR_RATIO: f64 = 1.5;
/// The same for the latency of a way: a small message is mostly the wake-up of a thread.
pub const LATENCY_RATIO: f64 = 2.0;
/// Below this nobody is named for how late its threads wake up: no job notices that, and it differs with the weather.
const LATE_NS_MIN: u64 = 1_000_000;
/// The part of [`Check::Host`] that says how late.
const LATE_PART: u32 = 1;
/// And it has to be so many standard deviations of the others above them, more where the others are few: their spread is then
/// hardly known, half as many again for four.
const DEVIATIONS: f64 = 4.0;
const FEW: f64 = 2.0;
/// Fewer peers than these say nothing: of two that differ nobody knows which is as it should be.
const PEERS_MIN: usize = 2;

/// Times of one thing that was done several times, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// The shortest.
    pub fastest_ns: u64,
    /// The one in the middle.
    pub median_ns: u64,
}

/// What a rank measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckResult {
    /// Who.
    pub rank: Rank,
    /// What it did.
    pub check: Check,
    /// Which of the check's sizes or parts, from 0.
    pub part: u32,
    /// How long that took.
    pub times: Times,
}

/// What was measured of a way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LinkMeasure {
    /// A large message: its time gives the bandwidth.
    Bandwidth,
    /// A small one.
    Latency,
}

/// What a pair measured in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkResult {
    /// Who sent.
    pub from: Rank,
    /// Who received.
    pub to: Rank,
    /// Between hosts, and not inside one: compared with its like only.
    pub between_hosts: bool,
    /// Which message.
    pub measure: LinkMeasure,
    /// From both being ready to its arrival.
    pub times: Times,
}

/// A check beside its peers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CheckRow {
    /// What was measured.
    pub result: CheckResult,
    /// Its time by the middle of its peers' times; `None` where there are too few of them.
    pub ratio: Option<f64>,
    /// Slower than its peers.
    pub is_slow: bool,
}

/// One direction of a way beside its peers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LinkRow {
    /// What was measured.
    pub result: LinkResult,
    /// Its time by the middle of other ways' times; `None` where there are too few of them.
    pub ratio: Option<f64>,
    /// Slower than its peers.
    pub is_slow: bool,
}

/// What is slow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SlowPlace {
    /// What this rank does by itself.
    Alone(Rank, Check),
    /// All ways of this rank that were tested, at least two, and none without it beside them.
    Ends(Rank),
    /// The way between these two, the lower rank first.
    Link(Rank, Rank),
}

/// Somebody that is slow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Slow {
    /// Who.
    pub place: SlowPlace,
    /// Its largest ratio to its peers.
    pub ratio: f64,
}

/// What the results say.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Judgement {
    /// Each check, by kind, part and rank.
    pub checks: Vec<CheckRow>,
    /// Each direction of each way: inside hosts first, bandwidth first, then by ranks.
    pub links: Vec<LinkRow>,
    /// Who is slow, by place.
    pub slow: Vec<Slow>,
    /// What could not be told, in sentences.
    pub caveats: Vec<String>,
}

/// Ways that are slow, the lower rank first, with their largest ratio to their peers.
type Ways = BTreeMap<(Rank, Rank), f64>;

/// A time, whose it is (peers are what belongs to others), and the ratio from which it is slow.
struct Value<K> {
    of: K,
    fastest_ns: f64,
    median_ns: f64,
}

impl<K> Value<K> {
    fn of(of: K, times: Times) -> Value<K> {
        Value { of, fastest_ns: times.fastest_ns as f64, median_ns: times.median_ns as f64 }
    }
}

/// What comparing gave one value.
#[derive(Clone, Copy)]
struct Compared {
    ratio: Option<f64>,
    is_slow: bool,
    /// From which ratio on it would have been.
    tells_from: f64,
}

/// Compares each value with those of others.
fn compare<K: Ord + Copy>(values: &[Value<K>], limit: f64) -> Vec<Compared> {
    let sorted = Sorted::of(values.iter().map(|value| value.fastest_ns));
    let mut compared = vec![Compared { ratio: None, is_slow: false, tells_from: f64::INFINITY }; values.len()];
    for own in by_place(values.iter().map(|value| value.of)).into_values() {
        let peers = sorted.without(&own);
        let few = peers.count() < PEERS_MIN;
        let Some(middle) = peers.middle().filter(|middle| !few && *middle > 0.0) else { continue };
        let away = peers.distance(middle).unwrap_or(0.0);
        let deviations = DEVIATIONS * (1.0 + FEW / peers.count() as f64);
        // 1.4826 makes the middle of distances a standard deviation of normal values.
        let tells_from = limit.max(1.0 + deviations * 1.4826 * away / middle);
        for i in own {
            let ratio = values[i].fastest_ns / middle;
            compared[i] = Compared { ratio: Some(ratio), is_slow: ratio >= tells_from, tells_from };
        }
    }
    compared
}

/// Which values are of each place.
fn by_place<K: Ord>(places: impl Iterator<Item = K>) -> BTreeMap<K, Vec<usize>> {
    let mut by_place: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    for (i, place) in places.enumerate() {
        by_place.entry(place).or_default().push(i);
    }
    by_place
}

/// Leaves only what at its fastest is `limit` times as long as each that is not slow usually takes: how late threads wake up has
/// no spread that tells how late the next will, and where there are fewer cores than threads a way may be late each time.
fn beyond_all<K: PartialEq>(values: &[Value<K>], compared: &mut [Compared], limit: f64) {
    let mut shortest_first: Vec<usize> = (0..values.len()).filter(|i| compared[*i].is_slow).collect();
    shortest_first.sort_by(|a, b| values[*a].fastest_ns.total_cmp(&values[*b].fastest_ns));
    for i in shortest_first {
        let others = (0..values.len()).filter(|j| !compared[*j].is_slow && values[*j].of != values[i].of);
        let longest_ns = others.map(|j| values[j].median_ns).fold(0.0, f64::max);
        let tells_from = compared[i].ratio.unwrap_or(0.0) * limit * longest_ns / values[i].fastest_ns;
        compared[i].tells_from = compared[i].tells_from.max(tells_from);
        compared[i].is_slow = values[i].fastest_ns >= limit * longest_ns;
    }
}

/// Who is slower than its peers. What was measured more than once counts with its shortest times.
//= falcon 4.3
pub fn judge(checks: &[CheckResult], links: &[LinkResult]) -> Judgement {
    let mut judgement = Judgement::default();
    let times = |result: &mut Times, again: Times| {
        result.fastest_ns = result.fastest_ns.min(again.fastest_ns);
        result.median_ns = result.median_ns.min(again.median_ns);
    };
    let mut by_check: BTreeMap<_, CheckResult> = BTreeMap::new();
    for result in checks {
        let key = (result.check, result.part, result.rank);
        times(&mut by_check.entry(key).or_insert(*result).times, result.times);
    }
    let mut by_way: BTreeMap<_, LinkResult> = BTreeMap::new();
    for result in links {
        let key = (result.between_hosts, result.measure, way(result), result.from);
        times(&mut by_way.entry(key).or_insert(*result).times, result.times);
    }
    judge_checks(&by_check.into_values().collect::<Vec<_>>(), &mut judgement);
    judge_links(&by_way.into_values().collect::<Vec<_>>(), &mut judgement);
    judgement.slow.sort_by_key(|slow| slow.place);
    judgement
}

fn judge_checks(checks: &[CheckResult], judgement: &mut Judgement) {
    let mut rows: Vec<Option<CheckRow>> = vec![None; checks.len()];
    let mut slow: BTreeMap<(Rank, Check), f64> = BTreeMap::new();
    let kinds: BTreeSet<(Check, u32)> = checks.iter().map(|result| (result.check, result.part)).collect();
    for (check, part) in kinds {
        let of: Vec<usize> =
            (0..checks.len()).filter(|i| (checks[*i].check, checks[*i].part) == (check, part)).collect();
        let value = |i: &usize| Value::of(checks[*i].rank, checks[*i].times);
        let values: Vec<Value<Rank>> = of.iter().map(value).collect();
        let limit = match check {
            Check::Device | Check::Copy => SLOW_RATIO,
            Check::Processor | Check::Host => PROCESSOR_RATIO,
        };
        let compared = compare(&values, limit);
        caveat(&format!("{} {part}", check.as_str()), limit, &compared, judgement);
        for (i, Compared { ratio, is_slow, .. }) in of.into_iter().zip(compared) {
            let is_nothing = (check, part) == (Check::Host, LATE_PART) && checks[i].times.fastest_ns < LATE_NS_MIN;
            let is_slow = is_slow && !is_nothing;
            rows[i] = Some(CheckRow { result: checks[i], ratio, is_slow });
            if is_slow {
                raise(&mut slow, (checks[i].rank, check), ratio.unwrap_or(0.0));
            }
        }
    }
    judgement.checks = rows.into_iter().flatten().collect();
    judgement
        .slow
        .extend(slow.into_iter().map(|((rank, check), ratio)| Slow { place: SlowPlace::Alone(rank, check), ratio }));
}

/// The passes of a plan that have to be run again before anybody is named: those in which somebody stands out, who may have
/// been unlucky. What is slow is slow twice.
pub fn again(plan: &Plan, judgement: &Judgement) -> Plan {
    let alone = |check: Check| judgement.checks.iter().any(|row| row.is_slow && row.result.check == check);
    let ways: BTreeSet<(Rank, Rank)> =
        judgement.links.iter().filter(|row| row.is_slow).map(|row| way(&row.result)).collect();
    let stands_out = |pass: &&Pass| match &pass.work {
        Work::Alone { check, .. } => alone(*check),
        Work::Pairs(pairs) => pairs.iter().any(|pair| ways.contains(&pair.ranks())),
    };
    Plan { passes: plan.passes.iter().filter(stands_out).cloned().collect() }
}

/// The ranks of a way, the lower first.
fn way(result: &LinkResult) -> (Rank, Rank) {
    (result.from.min(result.to), result.from.max(result.to))
}

fn judge_links(links: &[LinkResult], judgement: &mut Judgement) {
    let mut rows: Vec<Option<LinkRow>> = vec![None; links.len()];
    let mut slow: BTreeMap<LinkMeasure, Ways> = BTreeMap::new();
    for between_hosts in [false, true] {
        for measure in [LinkMeasure::Bandwidth, LinkMeasure::Latency] {
            let is = |i: &usize| (links[*i].between_hosts, links[*i].measure) == (between_hosts, measure);
            let of: Vec<usize> = (0..links.len()).filter(is).collect();
            let value = |i: &usize| Value::of(way(&links[*i]), links[*i].times);
            let values: Vec<Value<(Rank, Rank)>> = of.iter().map(value).collect();
            let (what, limit) = match measure {
                LinkMeasure::Bandwidth => ("bandwidth", SLOW_RATIO),
                LinkMeasure::Latency => ("latency", LATENCY_RATIO),
            };
            let mut compared = compare(&values, limit);
            if measure == LinkMeasure::Latency {
                beyond_all(&values, &mut compared, limit);
            }
            let place = if between_hosts { "between hosts" } else { "inside hosts" };
            caveat(&format!("{what} {place}"), limit, &compared, judgement);
            for (i, Compared { ratio, is_slow, .. }) in of.into_iter().zip(compared) {
                rows[i] = Some(LinkRow { result: links[i], ratio, is_slow });
                if is_slow {
                    raise(slow.entry(measure).or_default(), way(&links[i]), ratio.unwrap_or(0.0));
                }
            }
        }
    }
    judgement.links = rows.into_iter().flatten().collect();
    mark_ends(&mut judgement.links, slow.entry(LinkMeasure::Bandwidth).or_default());
    let tested: BTreeSet<(Rank, Rank)> = links.iter().map(way).collect();
    judgement.slow.extend(places(&tested, slow));
}

/// Marks all ways of a rank whose fastest direction is slow beside those that it has no part in, and slower than nearly all of
/// them: four directions say more together than each by itself.
fn mark_ends(links: &mut [LinkRow], slow: &mut Ways) {
    let senders: BTreeSet<Rank> = links.iter().map(|row| row.result.from).collect();
    for between_hosts in [false, true] {
        let is =
            |row: &LinkRow| row.result.measure == LinkMeasure::Bandwidth && row.result.between_hosts == between_hosts;
        let of: Vec<LinkResult> = links.iter().filter(|row| is(row)).map(|row| row.result).collect();
        let fastest_ns = |i: usize| of[i].times.fastest_ns as f64;
        let sorted = Sorted::of((0..of.len()).map(fastest_ns));
        let ways: BTreeSet<(Rank, Rank)> = of.iter().map(way).collect();
        let mut ends: BTreeMap<Rank, f64> = BTreeMap::new();
        for (rank, own) in by_end(of.iter().map(way)).into_iter().filter(|(rank, _)| senders.contains(rank)) {
            let others = sorted.without(&own);
            let count = own.iter().map(|i| way(&of[*i])).collect::<BTreeSet<_>>().len();
            if count < 2 || ways.len() - count < PEERS_MIN {
                continue;
            }
            let fastest = own.iter().map(|i| fastest_ns(*i)).fold(f64::INFINITY, f64::min);
            let Some(middle) = others.middle() else { continue };
            let slower = sorted.count_from(fastest) - own.len();
            if fastest >= SLOW_RATIO * middle && slower * 10 <= others.count() {
                ends.insert(rank, middle);
            }
        }
        for row in links.iter_mut().filter(|row| is(row)) {
            for middle in [row.result.from, row.result.to].iter().filter_map(|rank| ends.get(rank)) {
                row.is_slow = true;
                raise(slow, way(&row.result), row.result.times.fastest_ns as f64 / middle);
            }
        }
    }
}

/// Which ways each rank is an end of.
fn by_end(ways: impl Iterator<Item = (Rank, Rank)>) -> BTreeMap<Rank, Vec<usize>> {
    let mut by_end: BTreeMap<Rank, Vec<usize>> = BTreeMap::new();
    for (i, (one, other)) in ways.enumerate() {
        by_end.entry(one).or_default().push(i);
        if other != one {
            by_end.entry(other).or_default().push(i);
        }
    }
    by_end
}

/// Ranks all of whose ways are slow in one measure, and the slow ways that this leaves.
fn places(tested: &BTreeSet<(Rank, Rank)>, slow: BTreeMap<LinkMeasure, Ways>) -> Vec<Slow> {
    let tested: Vec<(Rank, Rank)> = tested.iter().copied().collect();
    let by_end = by_end(tested.iter().copied());
    let ways = |rank: &Rank| by_end.get(rank).into_iter().flatten().map(|i| tested[*i]);
    let (mut ends, mut links): (BTreeMap<Rank, f64>, Ways) = Default::default();
    for mut slow in slow.into_values() {
        let is_whole = |rank: &Rank| ways(rank).count() >= 2 && ways(rank).all(|way| slow.contains_key(&way));
        let whole: Vec<Rank> = by_end.keys().copied().filter(is_whole).collect();
        for rank in whole {
            let of: Vec<f64> = ways(&rank).filter_map(|way| slow.get(&way).copied()).collect();
            if of.len() >= 2 {
                ways(&rank).for_each(|way| {
                    slow.remove(&way);
                });
                raise(&mut ends, rank, of.into_iter().fold(0.0, f64::max));
            }
        }
        slow.into_iter().for_each(|(way, ratio)| raise(&mut links, way, ratio));
    }
    links.retain(|way, _| !ends.contains_key(&way.0) && !ends.contains_key(&way.1));
    let ends = ends.into_iter().map(|(rank, ratio)| Slow { place: SlowPlace::Ends(rank), ratio });
    ends.chain(links.into_iter().map(|(way, ratio)| Slow { place: SlowPlace::Link(way.0, way.1), ratio })).collect()
}

/// Keeps the largest ratio of a place.
fn raise<K: Ord>(ratios: &mut BTreeMap<K, f64>, of: K, ratio: f64) {
    let largest = ratios.entry(of).or_default();
    *largest = largest.max(ratio);
}

/// Says what these comparisons could not tell.
fn caveat(what: &str, limit: f64, compared: &[Compared], judgement: &mut Judgement) {
    let mut limits: Vec<f64> = compared.iter().map(|compared| compared.tells_from).collect();
    limits.sort_by(f64::total_cmp);
    let Some(worst) = limits.last() else { return };
    if worst.is_infinite() {
        judgement.caveats.push(format!("{what}: fewer than {PEERS_MIN} peers, nobody is compared"));
    } else if *worst > limit * 1.09 {
        judgement.caveats.push(format!("{what}: peers differ so much that only {worst:.2} times their middle is told"));
    }
}
