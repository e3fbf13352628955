//! Cases about what no iteration shows for sure: faults that others hide, and parts of a restless job.
use super::{Bench, Docket, Open, is_sure, is_sure_of_host, meets, told_again};
use crate::blame::{chance, own, slow};
use crate::case::CaseEvent;
use crate::case::network::{self, host_place};
use crate::case::weigh::{self, DECISIVE, Verdict};
use crate::fact::Fact;
use crate::watch::Slow;
use mycroft_record::{Category, HostName, HostTime, NANOS_PER_SEC, Place, Rank, What};
use std::collections::BTreeSet;

/// How sure the first suspects must be together: what makes no iteration longer must stand alone, since there is no step
/// that it explains.
const HIDDEN_SURE: f64 = 0.8;
/// Iterations that take so many times as long as before are worth a look at all parts, although that may be chance.
const DRIFTS: f64 = 1.1;
/// Where the iterations that are looked at lasted longer than this together, nanoseconds, ..
const LONG_NS: u64 = 10 * NANOS_PER_SEC;
/// .. so many are enough beside the job as it was when healthy.
const OF_LONG: usize = 3;
/// What a way that is slow beyond doubt, or copies, must account for of what makes a job slow alone.
const WAY_SHARE: f64 = 0.85;
/// How sure the first suspects must be together where a restless job is slow for a long stretch: of two that cannot be told
/// apart both are.
const STRETCH_SURE: f64 = 0.6;
/// What copies must account for of `OF_STRETCH`: in a tree less than all of what waits is surely a rank's own.
const OF_COPY: f64 = 0.6;
/// How sure of a slow NIC one must be to tell of it at once, if iterations that last many seconds say so together.
const WHOLE_SURE: f64 = 0.95;
/// What a suspect must account for of that.
const OF_STRETCH: f64 = 0.5;

impl Docket {
    /// What works side by side hides each other: the job waits for the slowest device, and a ring for its slowest part. What
    /// became so much slower that the job would be slow without the open cases too is a fault of its own.
    pub(super) fn hidden(&mut self, bench: &Bench<'_>) -> Option<CaseEvent> {
        let needed = bench.config.recover_iterations;
        // A job that is slow only because one of its parts is may be no slower than chance makes it.
        let slow = bench.seen.slow.clone().or_else(|| bench.watch.drift(bench.timeline, needed))?;
        let base_from = bench.watch.raised_from();
        let onset = bench.watch.laps_ago(needed).filter(|_| base_from.is_some())?;
        let (alone_ms, base_max_ms) = ((bench.config.slow_factor_floor - 1.0) * slow.base_ms, slow.base_max_ms);
        // Ranks end their iterations at different times. Where the first of them say until when, fewer iterations than needed
        // are left of the others, and chance makes a few of a restless rank long.
        let until = bench.timeline.newest_sample;
        let hidden = Slow { base_from, base_until: onset, base_max_ms: f64::MAX, onset, until, ..slow };
        let mut facts = Vec::new();
        if bench.watch.is_level(base_from, onset) {
            facts = slow::hidden(bench.timeline, bench.config, &hidden.windows(), alone_ms);
            facts.retain(|fact| !self.explains(bench, fact));
            network::without_known(&mut facts, &self.slow_nics(onset));
            // Where the known faults are gone, ways hold again what those held in their stead.
            if bench.seen.slow.is_none() {
                facts.retain(|fact| !slow::is_of_way(fact));
            }
            chance::without_chance(&mut facts, bench.timeline, &hidden.windows(), alone_ms);
        }
        let few = bench.watch.laps_ago(OF_LONG).filter(|_| until.since_ns(onset) > LONG_NS);
        let healthy = self.usual_until().map(|base_until| Slow {
            base_from: HostTime::NONE,
            base_until,
            base_max_ms,
            onset: few.unwrap_or(onset),
            ..hidden.clone()
        });
        if let Some(healthy) = healthy {
            self.add_own(bench, &healthy, alone_ms, &mut facts);
            self.add_ways(bench, &healthy, alone_ms, &mut facts);
        }
        self.open_hidden(bench, hidden, facts, alone_ms, HIDDEN_SURE, false)
    }

    /// Adds what ranks and their threads do themselves for longer than when the job was healthy, on hosts that no open case
    /// is about: that is nobody else's, however few iterations lie between the faults.
    fn add_own(&self, bench: &Bench<'_>, healthy: &Slow, alone_ms: f64, facts: &mut Vec<Fact>) {
        let windows = healthy.windows();
        let mut own = slow::own(bench.timeline, bench.config, &windows, alone_ms);
        chance::without_chance(&mut own, bench.timeline, &windows, alone_ms);
        let told: BTreeSet<_> = facts.iter().filter_map(own_part).collect();
        own.retain(|fact| own_part(fact).is_some_and(|part| !self.is_known(part.1) && !told.contains(&part)));
        facts.extend(own);
    }

    /// Adds the ways between hosts that no open case is about, beside what they were when the job was healthy: where another
    /// fault began with the level, or before it, the level shows nothing of it.
    fn add_ways(&self, bench: &Bench<'_>, healthy: &Slow, alone_ms: f64, facts: &mut Vec<Fact>) {
        if facts.iter().any(|fact| matches!(fact, Fact::WireExcess { .. })) {
            return;
        }
        let mut ways = slow::ways(bench.timeline, bench.config, &healthy.windows(), alone_ms);
        ways.retain(|fact| match fact {
            Fact::WireOther { from, to, .. } => !self.is_known(from) && !self.is_known(to),
            Fact::WireExcess { from, to, .. } => {
                !self.is_known(from) && !self.is_known(to) && !self.came_with_a_case(bench, healthy, fact, [from, to])
            }
            _ => true,
        });
        if slow::is_any_way_slow(&ways, alone_ms) {
            facts.extend(ways);
        }
    }

    /// Whether a way became slow in the same iteration as a case's suspect, open or closed: then it waits for that one.
    fn came_with_a_case(&self, bench: &Bench<'_>, healthy: &Slow, way: &Fact, ends: [&HostName; 2]) -> bool {
        let places = ends.map(host_place);
        let way = std::slice::from_ref(way);
        let an_iteration_ns = (healthy.now_ms * 1e6) as u64;
        let before = healthy.base_until - an_iteration_ns;
        let began = own::first_slow(bench.timeline, way, &places, Category::NetworkCongestion, before);
        let mut slowdowns = self.cases.iter().filter(|case| case.finding.what == What::Slowdown);
        slowdowns.any(|case| {
            let since = case.finding.since;
            since.since_ns(began).max(began.since_ns(since)) <= an_iteration_ns
        })
    }

    /// Whether all ways that speak for a verdict became slow, and stayed so, in the same iteration as the suspect of an open case,
    /// or have been slow now and then since the newest one's.
    fn is_wake(&self, bench: &Bench<'_>, hidden: &Slow, verdict: &Verdict, facts: &[Fact]) -> bool {
        let leads: Vec<Place> = verdict.leads().cloned().collect();
        let parts = own::of(facts, &leads, verdict.category);
        let an_iteration_ns = (hidden.now_ms * 1e6) as u64;
        let came_with = |began: HostTime| {
            let since = |open: &Open| self.case(open.id).finding.since;
            let mut apart_ns =
                self.open.iter().map(since).map(|since| since.since_ns(began).max(began.since_ns(since)));
            apart_ns.any(|apart_ns| apart_ns <= an_iteration_ns)
        };
        let began = || own::began(bench.timeline, &parts, usize::MAX, hidden.until);
        network::is_of_network(verdict.category)
            && (began().is_some_and(came_with) || own::flickers(bench.timeline, &parts, hidden.base_from, hidden.until))
    }

    /// Whether an open case is about a host, or a rank on it: it is among those that the case is surest of.
    pub(super) fn is_known(&self, host: &HostName) -> bool {
        self.open.iter().flat_map(|open| self.surest(open.id)).any(|place| meets(place, &host_place(host)))
    }

    /// A part that is slower in each iteration of a job that is not slow for sure: iterations are restless, and the part
    /// alone shows that something is wrong. Where they are hardly longer only devices are looked at.
    pub(super) fn unnoticed(&mut self, bench: &Bench<'_>) -> Option<CaseEvent> {
        if let Some(stretch) = bench.watch.stretch(bench.timeline, bench.config) {
            let windows = stretch.windows();
            let least_ms = OF_STRETCH * windows.iteration_ms;
            let mut facts = slow::blame(bench.timeline, bench.config, &windows);
            chance::without_chance(&mut facts, bench.timeline, &windows, least_ms);
            return self.open_hidden(bench, stretch, facts, least_ms, STRETCH_SURE, true);
        }
        let drift = bench.watch.drift(bench.timeline, bench.config.recover_iterations)?;
        let alone_ms = (bench.config.slow_factor_floor - 1.0) * drift.base_ms;
        let (timeline, config, windows) = (bench.timeline, bench.config, drift.windows());
        let mut facts = if drift.now_ms >= DRIFTS * drift.base_ms {
            slow::blame_without_waiting(timeline, config, &windows, alone_ms)
        } else {
            slow::computing(timeline, config, &windows, alone_ms)
        };
        chance::without_chance(&mut facts, timeline, &windows, alone_ms);
        self.open_hidden(bench, drift, facts, alone_ms, DECISIVE, true)
    }

    /// A case about parts that became slower by more than `alone_ms`, if the verdict is `sure` enough of its first suspects. A
    /// `quiet` one must account for all of that, or nearly, and its suspect must have parts that tell when it is over.
    fn open_hidden(
        &mut self,
        bench: &Bench<'_>,
        hidden: Slow,
        mut facts: Vec<Fact>,
        alone_ms: f64,
        sure: f64,
        quiet: bool,
    ) -> Option<CaseEvent> {
        let verdict = weigh::slowdown(bench.timeline, &facts, bench.config, hidden.onset, alone_ms);
        // A host whose threads get no processor is seen to, and so are interfaces that others keep busy, whatever share of it shows
        // at their ways.
        let starved: Vec<Place> = facts.iter().filter_map(Fact::starved).map(host_place).collect();
        let gets_none = verdict.leads().any(|place| starved.contains(place));
        // What its host's own counters say over many seconds is told at once.
        let crowded: Vec<Place> = facts.iter().filter_map(Fact::crowded).map(host_place).collect();
        let is_counted_there =
            verdict.category == Category::HostThread && verdict.leads().all(|place| crowded.contains(place));
        let is_one = verdict.leads().count() == 1 && is_sure(&verdict, WHOLE_SURE) && verdict.share >= 1.0;
        let is_whole = !quiet && network::is_of_network(verdict.category) && is_one;
        let is_seen = (is_counted_there || is_whole) && hidden.until.since_ns(hidden.onset) > LONG_NS;
        let is_clear =
            is_sure(&verdict, sure) || is_sure_of_host(&verdict, sure) || slow::are_its_ends(&facts, verdict.leads());
        if !is_clear || self.same_fault(&verdict).is_some() {
            return None;
        }
        if !told_again(&mut self.whisper, &verdict) && !is_seen {
            return None;
        }
        if self.is_wake(bench, &hidden, &verdict, &facts) {
            return None;
        }
        let leads: Vec<Place> = verdict.leads().cloned().collect();
        let mut own = own::of(&facts, &leads, verdict.category);
        if quiet && own.is_empty() {
            own = match verdict.category {
                Category::HostThread => own::of_threads(&facts, &leads),
                category if network::is_of_network(category) => own::of_ways(&facts, &leads),
                _ => own::of_copies(&facts, &leads),
            };
        }
        let foreign: Vec<Place> = network::foreign(&facts).iter().map(host_place).collect();
        let is_counted = gets_none || leads.iter().all(|place| foreign.contains(place));
        let least = match verdict.category {
            Category::GpuCopy if sure == STRETCH_SURE => OF_COPY,
            Category::GpuCopy => WAY_SHARE,
            category if network::is_of_network(category) => WAY_SHARE,
            _ => 1.0,
        };
        if quiet && ((verdict.share < least && !is_counted) || own.is_empty()) {
            return None;
        }
        let needed = bench.config.recover_iterations;
        let onset = own::began(bench.timeline, &own, needed, hidden.until).unwrap_or(hidden.onset);
        let verdict = Verdict { since: onset, ..verdict };
        let hidden = hidden.begun(onset);
        facts.insert(0, hidden.fact());
        let event = self.open_slowdown(bench, verdict, &facts, Some(hidden))?;
        if let Some(open) = self.open.last_mut() {
            open.alone_ms = Some(alone_ms);
            (open.quiet, open.own) = (quiet, if quiet { own } else { std::mem::take(&mut open.own) });
        }
        Some(event)
    }
}

/// Whose own a fact is about: the rule, the host and the rank.
fn own_part(fact: &Fact) -> Option<(&'static str, &HostName, Option<Rank>)> {
    match fact {
        Fact::ComputeExcess { rank, host, .. }
        | Fact::HostExcess { rank, host, .. }
        | Fact::ProxyExcess { rank, host, .. }
        | Fact::HandoverExcess { rank, host, .. } => Some((fact.rule(), host, Some(*rank))),
        Fact::CpuWait { host, .. } => Some((fact.rule(), host, None)),
        _ => None,
    }
}
