//! Evidence: how much longer each rank, host and way takes than it should, and how sure that is.
//!
//! What a cell of a row should be is known from two sources: its *peers*, which do the same work by design in the same
//! iterations (FALCON 4.3 compares like groups with their median), and its own *past*. A new job is judged by the peers; what
//! a rank always took more or less than they, within what healthy devices differ, is learned and taken off. Where a rank has
//! too few peers its past alone says it, scaled by what all ranks take more now, so that more work for all accuses nobody.
//!
//! What counts is *exposed*: by how much a rank is beyond the slowest others, since an iteration waits for the slowest. What
//! is so in most rows gathers a likelihood ratio (Wald's sequential test): "it costs as much as counts" against "it costs
//! nothing". See [`Evidence::needed`] for how much is enough.
mod expected;
mod first;
mod iterations;
mod known;
mod later;
mod past;
mod pauses;
mod rank_sum;
mod ranks;
mod told;
mod track;

use crate::measure::{CELLS, Component, Role, Row, Way};
use crate::median::median;
use expected::{Expected, First, Scale, exposed};
use iterations::{Iterations, Longer};
use known::Known;
use later::Later;
use mycroft_record::{HostName, HostTime};
use past::{FEW_MIN, OfRanks, Past, SPREAD_LEAST, Spread};
pub(crate) use past::{LATELY, PAST_MIN};
use pauses::Pauses;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use track::Value;

pub(crate) use track::Track;

/// The least cost that the tests look for, as a share of the iteration: FALCON 9.1 takes a change of 5 % at least for one.
pub(crate) const COST: f64 = 0.05;
/// How much longer the same bytes are under way, as a share, on a way that is slow: a NIC that lost a lane of four.
pub(crate) const SLOWER: f64 = 0.25;
/// Threads that wait for this share of the time longer than those of other hosts wait for other processes: where a core is free
/// they do for some 0.04 at most, and for 0.125 where others ask for 85 % of them.
pub(crate) const WAITS: f64 = 0.075;
/// A share of the time for which threads wait where nothing else wants the cores.
const WAIT_SPREAD_LEAST: f64 = 0.02;
/// Iterations before which nobody is judged: fewer do not show how much ranks vary.
const ITERATIONS_MIN: usize = 10;
/// No way is known more exactly than this share: queueing on a wire that others use too.
const WAY_SPREAD_LEAST: f64 = 0.05;
/// Tests that may go wrong by chance: one in a year of rows, of about a second each.
const ROWS_A_YEAR: f64 = 365.0 * 86_400.0;

/// What a test is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Subject {
    /// A rank, by its slot.
    Rank(u32),
    /// A host.
    Host(HostName),
    /// What goes from one host to another.
    Way(HostName, HostName),
    /// The whole job.
    Job,
}

/// What all ranks, or ways, take more together than before, in the last rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Common {
    /// By component: how many times as long for computation and for what goes between hosts, else milliseconds more.
    rows: BTreeMap<Component, Vec<f64>>,
}

impl Common {
    fn take(&mut self, component: Component, common: f64) {
        let list = self.rows.entry(component).or_default();
        list.push(common);
        if list.len() > LATELY {
            list.remove(0);
        }
    }

    /// The median of the last rows.
    pub(crate) fn of(&self, component: Component) -> Option<f64> {
        median(self.rows.get(&component)?.clone())
    }
}

/// From which host to which, and what it took.
type BetweenHosts<'a> = (&'a (HostName, HostName), &'a Way);

/// What has been gathered of a job.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    ranks: BTreeMap<Component, OfRanks>,
    ways: BTreeMap<(HostName, HostName), Known>,
    hosts: BTreeMap<Component, (BTreeMap<HostName, Past>, Spread)>,
    later: Later,
    pauses: Pauses,
    iterations: Iterations,
    /// How long the iteration that runs has taken, milliseconds, where that is many times as long as usual.
    running_ms: Option<f64>,
    /// By slot of the rank: what it computed per iteration in the last rows that know it, milliseconds.
    computed: Vec<VecDeque<f64>>,
    /// The first row began then.
    began: HostTime,
    /// What cases that are open are about; `None`: a stop.
    told: Vec<Option<(Component, Subject)>>,
    pub(crate) tracks: BTreeMap<(Component, Subject), Track>,
    pub(crate) common: Common,
}

impl Evidence {
    /// Takes in a row of ranks on `hosts` with `roles`, both by slot.
    pub(crate) fn take(&mut self, hosts: &[HostName], roles: &[Role], row: &Row) {
        self.running_ms = None;
        if !self.began.is_some() {
            self.began = row.start;
        }
        self.take_computed(row);
        let is_odd = self.doubtful_since(hosts.len()).is_some() || self.iterations.is_odd(row.iteration_ms);
        self.take_later(hosts, roles, row, is_odd);
        for component in CELLS {
            self.take_ranks(component, hosts, roles, row, is_odd);
        }
        self.take_ways(row, is_odd);
        self.take_hosts(row, is_odd);
        self.take_pauses(row);
        self.take_iteration(row, hosts.len());
    }

    /// Takes in what is seen so far of an iteration that takes many times as long as usual: what ranks compute and issue is not, and it
    /// says nothing of what is usual.
    pub(crate) fn take_running(&mut self, hosts: &[HostName], roles: &[Role], row: &Row) {
        self.running_ms = Some(row.iteration_ms);
        for component in CELLS.into_iter().filter(|cell| !cell.is_work() && *cell != Component::Issue) {
            self.take_ranks(component, hosts, roles, row, true);
        }
        self.take_ways(row, true);
        self.take_hosts(row, true);
        self.take_pauses(row);
    }

    /// How much longer iterations since then are than those before; `None`: too few were seen before.
    pub(crate) fn longer(&self, since: HostTime) -> Option<Longer> {
        self.iterations.longer(since)
    }

    /// By how much iterations since then are longer than the last ones before, whatever slowed these, milliseconds; `None`: of too few.
    pub(crate) fn step_ms(&self, since: HostTime) -> Option<f64> {
        self.iterations.step_ms(since)
    }

    /// From when on iterations before a moment are those with which [`Evidence::step_ms`] compares.
    pub(crate) fn step_from(&self, since: HostTime) -> Option<HostTime> {
        self.iterations.step_from(since)
    }

    /// Log-likelihood ratio from which on something is told: all tests of the job together go wrong by chance once a year.
    pub(crate) fn needed(&self, subjects: usize) -> f64 {
        (subjects.max(1) as f64 * CELLS.len() as f64 * ROWS_A_YEAR).ln()
    }

    /// Whether enough has been seen to judge by.
    pub(crate) fn is_enough(&self) -> bool {
        self.iterations.count() >= ITERATIONS_MIN
    }

    /// When the first of what takes longer than it should, by half of the evidence that is needed to say so, began: what is seen
    /// from there on is not learned as usual.
    fn doubtful_since(&self, ranks: usize) -> Option<HostTime> {
        let doubt = self.needed(ranks) / 2.0;
        self.tracks.values().filter(|track| track.log_odds > doubt).map(|track| track.since).min()
    }

    fn take_computed(&mut self, row: &Row) {
        self.computed.resize(self.computed.len().max(row.ranks.len()), VecDeque::new());
        for (lately, cells) in self.computed.iter_mut().zip(&row.ranks) {
            let Some(ms) = cells.as_ref().and_then(|cells| cells.ms(Component::Computation)) else { continue };
            lately.push_back(ms);
            if lately.len() > LATELY {
                lately.pop_front();
            }
        }
    }

    /// What a rank computes per iteration now, milliseconds, by its slot; `None` before some rows.
    pub(crate) fn computation_ms(&self, slot: usize) -> Option<f64> {
        let lately = self.computed.get(slot).filter(|lately| lately.len() == LATELY)?;
        median(lately.iter().copied().collect()).filter(|ms| *ms > 0.0)
    }

    /// How long iterations usually are, milliseconds, and the standard deviation of their means of about a second.
    pub(crate) fn usual_ms(&self) -> Option<(f64, f64)> {
        self.iterations.usual().map(|(level_ms, sigma)| (level_ms, sigma * level_ms))
    }

    /// Ways in shares of what the same bytes took: how much of an iteration waits for a way is not seen. Ways that carry little are
    /// each compared with themselves: latencies hide how fast they are, but not that they are slower.
    fn take_ways(&mut self, row: &Row, is_raised: bool) {
        self.compare_at_first(row);
        let most = row.ways.values().map(|way| way.mb).fold(0.0, f64::max);
        let all = row.ways.iter().filter(|(_, way)| way.mb > 0.0);
        let (carrying, light): (Vec<_>, Vec<_>) = all.partition(|(_, way)| way.counts(most));
        let usual = median(carrying.iter().map(|(_, way)| way.ms_per_mb()).collect()).unwrap_or(0.0);
        self.take_alike(&carrying, true, usual, row, is_raised);
        for way in light {
            let usual = self.ways.get(way.0).map_or(0.0, |known| known.past.level);
            self.take_alike(&[way], false, usual, row, is_raised);
        }
        let missing = self.ways.iter_mut().filter(|(hosts, _)| !row.ways.contains_key(*hosts));
        missing.for_each(|(_, known)| known.miss());
    }

    /// Ways of which one may say what another should take, `usual` milliseconds a megabyte.
    fn take_alike(&mut self, ways: &[BetweenHosts<'_>], carry: bool, usual: f64, row: &Row, is_raised: bool) {
        let values: Vec<Option<f64>> = ways.iter().map(|(_, way)| Some(way.ms_per_mb())).collect();
        let past_of = |hosts| self.ways.get(hosts).map(|known: &Known| known.past).unwrap_or_default();
        let mut pasts: Vec<Past> = ways.iter().map(|(hosts, _)| past_of(*hosts)).collect();
        let roles: Vec<Option<Role>> = ways.iter().map(|(_, way)| Some(way.role())).collect();
        let expected = Expected::of(&values, &roles, &pasts, Scale::Times(usual.max(1e-9)), First::Past);
        let is_tested = |at: usize| {
            let (from, to) = ways[at].0;
            self.tracks.contains_key(&(Component::Wire, Subject::Way(from.clone(), to.clone())))
        };
        expected.learn(&values, &mut pasts, (|_| is_raised, is_tested), SLOWER);
        // None is known to vary less than most do.
        let known = expected.sigmas.iter().zip(&pasts).filter(|(_, past)| past.n > FEW_MIN);
        let sigma = median(known.map(|(own, _)| own.unwrap_or(0.0)).collect()).unwrap_or(0.0).max(WAY_SPREAD_LEAST);
        let shares = expected.beyond.iter().zip(&expected.sigmas);
        for (((hosts, way), past), (share, own)) in ways.iter().zip(pasts).zip(shares) {
            let known = self.ways.entry((*hosts).clone()).or_default();
            let is_known = known.is_known();
            known.take(way, past, carry, share.is_some_and(|share| share >= SLOWER / 2.0));
            let key = (Component::Wire, Subject::Way(hosts.0.clone(), hosts.1.clone()));
            let (expected_ms, by_past) = (known.expected_ms(), own.filter(|_| !known.was_slow_at_first()));
            // No iteration waits for a way longer than data is under way.
            let costs = way.sent_ms - expected_ms * way.mb >= COST / 2.0 * row.iteration_ms;
            let share = share.map(|share| (1.0 + share) * past.level / expected_ms - 1.0);
            let share = share.filter(|_| is_known).map(|share| if costs { share } else { share.min(0.0) });
            let began = if known.was_slow_at_first() { self.began } else { row.start };
            let of = (SLOWER, sigma.max(own.unwrap_or(0.0)));
            self.test_from(began, key, value(share, expected_ms * way.mb, by_past), of, row);
        }
    }

    /// What hosts are compared in: threads that wait for a processor, which cost what they are late with, that is not seen here; and ways
    /// through them.
    fn take_hosts(&mut self, row: &Row, is_raised: bool) {
        self.take_host(Component::Waiting, &row.waits, (1.0, 0.0), (WAITS, WAIT_SPREAD_LEAST), (row, is_raised));
        let unit = (row.iteration_ms, row.iteration_ms);
        self.take_host(Component::Through, &row.through, unit, (COST, SPREAD_LEAST), (row, is_raised));
    }

    /// A component of hosts. `unit`: what their values are shares of, and what of an iteration such a share costs, milliseconds.
    fn take_host(
        &mut self,
        component: Component,
        of: &BTreeMap<HostName, f64>,
        (unit, unit_ms): (f64, f64),
        (counts, least): (f64, f64),
        (row, is_raised): (&Row, bool),
    ) {
        let values: Vec<Option<f64>> = of.values().copied().map(Some).collect();
        let (known, spread) = self.hosts.entry(component).or_default();
        let mut pasts: Vec<Past> = of.keys().map(|host| known.get(host).copied().unwrap_or_default()).collect();
        let roles = vec![Some(Role::default()); values.len()];
        let expected = Expected::of(&values, &roles, &pasts, Scale::Plus(unit), First::Peers);
        expected.learn(&values, &mut pasts, (|_| is_raised, |_| false), counts);
        known.extend(of.keys().cloned().zip(pasts));
        spread.take(&expected.beyond);
        let sigma = spread.sigma().max(least);
        for ((host, share), own) in of.keys().zip(exposed(&expected.beyond)).zip(expected.sigmas) {
            let key = (component, Subject::Host(host.clone()));
            self.test(key, value(share, unit_ms, own), (counts, sigma.max(own.unwrap_or(0.0))), row);
        }
    }

    /// Proxy threads that sleep now and then.
    fn take_pauses(&mut self, row: &Row) {
        for told in self.pauses.take(row, COST) {
            let key = (Component::Pause, Subject::Rank(told.slot));
            let track = self.tracks.entry(key.clone()).or_insert_with(|| Track::empty((COST, 0.0), told.since));
            track.take_events(told.gain, told.share, told.share * row.iteration_ms, row.end);
            if track.is_over() {
                self.tracks.remove(&key);
                self.pauses.forget(told.slot);
            }
        }
    }

    fn take_iteration(&mut self, row: &Row, ranks: usize) {
        if let Some((level_ms, sigma)) = self.iterations.usual() {
            let share = row.iteration_ms / level_ms - 1.0;
            let least = if self.iterations.knows_spread() { SPREAD_LEAST } else { COST };
            let key = (Component::Iteration, Subject::Job);
            self.test(key, value(Some(share), level_ms, Some(sigma)), (COST, sigma.max(least)), row);
        }
        self.iterations.take(row, self.doubtful_since(ranks));
    }

    /// By way how many times as long as before the same bytes are under way now, where that says how fast it is.
    pub(crate) fn way_times(&self) -> BTreeMap<(HostName, HostName), f64> {
        self.times(true)
    }

    /// The same of ways that carry little, and of those that took longer than their peers from the start.
    pub(crate) fn light_times(&self) -> BTreeMap<(HostName, HostName), f64> {
        self.times(false)
    }

    fn times(&self, tell_fast: bool) -> BTreeMap<(HostName, HostName), f64> {
        let ways = self.ways.iter().filter(|(_, known)| known.tells_fast() == tell_fast);
        ways.filter_map(|(hosts, known)| Some((hosts.clone(), known.times()?))).collect()
    }

    /// Whether ways of these hosts are known, between them where they are several, and on none the same bytes are under way for
    /// longer than before by what counts.
    pub(crate) fn denies_ways(&self, hosts: &BTreeSet<HostName>) -> bool {
        let is_theirs = |(from, to): &(HostName, HostName)| hosts.contains(from) || hosts.contains(to);
        let is_between = |(from, to): &(HostName, HostName)| hosts.contains(from) && hosts.contains(to);
        let is_slow = |(way, known): (&(HostName, HostName), &Known)| {
            is_theirs(way) && known.times().is_some_and(|times| times >= 1.0 + SLOWER)
        };
        let is_known = |way: &(HostName, HostName)| is_theirs(way) && (hosts.len() == 1 || is_between(way));
        self.way_times().keys().any(is_known) && !self.ways.iter().any(is_slow)
    }

    /// What all ranks compute and issue longer than before, milliseconds an iteration: more work, or slower devices.
    pub(crate) fn work_ms(&self) -> f64 {
        let pasts = self.ranks.get(&Component::Computation).map_or(&[][..], |known| &known.pasts);
        let level_ms = median(pasts.iter().filter(|past| past.n > 0).map(|past| past.level).collect()).unwrap_or(0.0);
        let times = self.common.of(Component::Computation).unwrap_or(1.0);
        (times - 1.0) * level_ms + self.common.of(Component::Issue).unwrap_or(0.0)
    }

    /// How much longer than usually all wait now for whoever issues last in an iteration, milliseconds; `None`: nobody knows.
    pub(crate) fn later_ms(&self) -> Option<f64> {
        self.iterations.later_ms()
    }

    /// How long iterations take now, or the one that runs has so far, milliseconds, and by how much that is more than before `since`;
    /// `None`: nobody knows.
    pub(crate) fn grown_ms(&self, since: HostTime) -> (f64, Option<f64>) {
        let now_ms = self.running_ms.unwrap_or(self.iterations.now_ms());
        let level_ms = if self.iterations.knows(since) { self.iterations.level_ms() } else { None };
        (now_ms, level_ms.map(|level_ms| now_ms - level_ms))
    }

    fn test(&mut self, key: (Component, Subject), value: Option<Value>, of: (f64, f64), row: &Row) {
        self.test_from(row.start, key, value, of, row);
    }

    /// Tests what began at a moment if it takes longer in a row for the first time.
    fn test_from(
        &mut self,
        began: HostTime,
        key: (Component, Subject),
        value: Option<Value>,
        (cost, sigma): (f64, f64),
        row: &Row,
    ) {
        let Some(value) = value else { return };
        match self.tracks.get_mut(&key) {
            Some(track) => {
                track.take(value, (cost, sigma), (row.start, row.end));
                if track.is_over() {
                    self.tracks.remove(&key);
                }
            }
            None if value.share > cost / 2.0 => {
                self.tracks.insert(key, Track::begin(value, (cost, sigma), (began, row.end)));
            }
            None => {}
        }
    }
}

/// That something takes longer by a share of so much, milliseconds; `own`: how much it varies, where its past says what it should take.
fn value(share: Option<f64>, unit_ms: f64, own: Option<f64>) -> Option<Value> {
    share.map(|share| Value { share, more_ms: share * unit_ms, tells: f64::INFINITY, by_past: own.is_some() })
}

#[cfg(test)]
mod tests;
