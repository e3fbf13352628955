//! Stops that are over: one that was soon is no case, but where ranks of one host are late again and again, something is wrong
//! there.
use super::{Bench, Docket, Open};
use crate::case::advice;
use crate::case::host_place;
use crate::case::weigh::Verdict;
use crate::case::{Case, CaseEvent, CaseId};
use crate::fact::{Fact, LEFT_UNTOUCHED, NIC_DOWN, STUCK_INSIDE, WANDER};
use mycroft_record::{Category, HostName, HostTime, NANOS_PER_MS, Place, Suspect, What};

/// So many stops within the time in which pauses belong together, all because of ranks of one host, are no coincidence.
const AGAIN: usize = 3;
/// How sure it is that the host is why.
const SURE: f64 = 0.8;

/// Confidence left in a stall's suspects once the stall has resolved itself.
pub(super) const RESUMED_DOUBT: f64 = 0.5;

impl Docket {
    /// What looked like a stall went on. Before there is a baseline of iterations that was a long step, as far as anybody knows.
    pub(super) fn resumed(&mut self, bench: &Bench<'_>, open: &Open, moved: HostTime) -> CaseEvent {
        let length = moved.since_ns(open.stalled_since);
        self.paused_until = self.paused_until.max(moved);
        let stood = self.open.iter_mut().filter(|of| of.id == open.id);
        stood.for_each(|of| of.stood_ns = of.stood_ns.max(length));
        if let Some(key) = open.cause.clone() {
            return self.goes_on(open.id, key, bench.now);
        }
        let finding = &self.case(open.id).finding;
        if self.is_told(finding) {
            return self.withdraw(bench, open.id);
        }
        if length < self.transient_ns(bench) || (bench.watch.is_young() && !self.shows(open.id, NIC_DOWN)) {
            if let Some(again) = self.late_again(bench, open) {
                return again;
            }
            if !bench.watch.is_young() {
                self.stops.take(moved, length);
            }
            return self.withdraw(bench, open.id);
        } else if let Some(event) = self.wandered(bench, open, moved) {
            return event;
        } else {
            // What explained a stop may not explain why it goes on slowly: let better evidence take over. Who was named only
            // for being inside and not moving does move.
            let [was_down, was_inside, was_untouched] =
                [NIC_DOWN, STUCK_INSIDE, LEFT_UNTOUCHED].map(|rule| self.shows(open.id, rule));
            let at = self.place_of(open.id);
            let case = &mut self.cases[at];
            case.finding.what = What::Slowdown;
            // That an interface was down is no guess.
            let doubt = if was_down { 1.0 } else { RESUMED_DOUBT };
            case.finding.suspects.iter_mut().for_each(|suspect| suspect.confidence *= doubt);
            if case.finding.category == Category::Gpu && was_inside {
                case.finding.suspects.clear();
                case.finding.category = Category::Unknown;
                case.finding.diagnosed_at = HostTime::NONE;
            } else if case.finding.category == Category::Gpu && was_untouched {
                // A device that leaves its slots for seconds and then goes on is slow to fill and drain them.
                case.finding.category = Category::GpuCopy;
            }
            case.do_next = advice::steps(case.finding.what, case.finding.category, &case.finding.suspects);
            case.updated_at = bench.now;
        }
        self.raised_at.get_or_insert(open.stalled_since);
        if let Some(of) = self.open.iter_mut().find(|of| of.id == open.id) {
            of.onset = open.stalled_since;
        }
        CaseEvent::Strengthened(open.id)
    }

    /// A stop that is over, where ranks of several hosts have been late in turn: pauses that wander, as those of Python's garbage
    /// collector do, have one case, which names nobody.
    fn wandered(&mut self, bench: &Bench<'_>, open: &Open, moved: HostTime) -> Option<CaseEvent> {
        let finding = &self.case(open.id).finding;
        if finding.category != Category::NotStarted || bench.watch.is_young() {
            return None;
        }
        let place = finding.suspects.first()?.place.clone();
        self.stops.note(moved, &place);
        let (stops, ranks) = self.stops.wander(bench.now)?;
        if self.wanders().is_some() {
            return Some(self.withdraw(bench, open.id));
        }
        let verdict = Verdict {
            category: Category::NotStarted,
            ..Verdict::unknown(What::Slowdown, self.case(open.id).finding.since)
        };
        self.write(bench, open.id, verdict, &[Fact::Wander { stops, ranks }], Vec::new());
        if let Some(of) = self.open.iter_mut().find(|of| of.id == open.id) {
            of.stalled_since = HostTime::NONE;
        }
        let at = self.place_of(open.id);
        self.cases[at].finding.diagnosed_at = bench.now;
        Some(CaseEvent::Strengthened(open.id))
    }

    /// The open case of pauses that wander over ranks.
    fn wanders(&self) -> Option<CaseId> {
        self.open.iter().map(|open| open.id).find(|id| self.shows(*id, WANDER))
    }

    /// Whether a case is about a stop that is over, and another about pauses that wander over ranks.
    pub(super) fn is_one_of_many(&self, open: &Open) -> bool {
        open.stood_ns > 0 && self.wanders().is_some_and(|id| id != open.id)
    }

    /// Stops shorter than this that went away are no case, nanoseconds: as for waits, so many times what the job came back from
    /// twice. Generation between trainings is such a stop. What cost less than an iteration, once, is none either: of what comes
    /// again `explain` and [`Docket::late_again`] tell.
    fn transient_ns(&self, bench: &Bench<'_>) -> u64 {
        let usual_ns = self.stops.usual_ns(bench.now);
        let iteration_ns = (bench.watch.iteration_ms().unwrap_or(0.0) * NANOS_PER_MS as f64) as u64;
        usual_ns.saturating_mul(bench.config.stall_wait_factor).max(bench.config.transient_ns).max(iteration_ns)
    }

    /// Whether another case that is open tells of the same slowdown, of whoever is most likely.
    fn is_told_of(&self, id: CaseId, category: Category, suspects: &[Suspect]) -> bool {
        let place = suspects.first().map(|suspect| &suspect.place);
        let is_same = |case: &Case| {
            let finding = &case.finding;
            let first = finding.suspects.first().map(|suspect| &suspect.place);
            finding.what == What::Slowdown && finding.category == category && first == place
        };
        self.open.iter().any(|open| open.id != id && is_same(self.case(open.id)))
    }

    /// Whether a case rests on a rule.
    pub(super) fn shows(&self, id: CaseId, rule: &str) -> bool {
        self.case(id).because.iter().any(|reason| reason.rule == rule)
    }

    /// A stop that is over soon and was because of a host that has been late often lately: a slowdown since the first time,
    /// of the rank if it was always the same. A device that leaves its slots again and again, and goes on, is slow to fill and
    /// drain them.
    pub(super) fn late_again(&mut self, bench: &Bench<'_>, open: &Open) -> Option<CaseEvent> {
        let case = self.case(open.id);
        let (host, _, category) = late(case)?;
        let within_ns = bench.config.pause_window_ns;
        let oldest = bench.now - within_ns;
        let before = self.transients.iter().filter(|other| other.closed_at >= oldest);
        let all: Vec<&Case> = before
            .filter(|other| late(other).is_some_and(|(of, _, as_what)| of == host && as_what == category))
            .chain([case])
            .collect();
        if all.len() < AGAIN {
            return None;
        }
        let place = &case.finding.suspects.first()?.place;
        let is_one = all.iter().filter_map(|case| late(case)).all(|(_, of, _)| of == place);
        // No two devices are slow in turn, and ranks that pause in turn collect garbage.
        let is_whole = all.iter().filter_map(|case| late(case)).all(|(_, of, _)| matches!(of, Place::Host { .. }));
        if !is_one && (category == Category::GpuCopy || !is_whole) {
            return None;
        }
        let place = if is_one { place.clone() } else { host_place(host) };
        let since = all.iter().map(|case| case.finding.since).min()?;
        let (host, times, is_device) = (host.clone(), all.len(), category == Category::GpuCopy);
        let facts = [Fact::LateAgain { host, times, within_ns, is_device }];
        let (group, op) = (case.group, case.op);
        let suspects = vec![Suspect { place, confidence: SURE }];
        if self.is_told_of(open.id, category, &suspects) {
            return Some(self.withdraw(bench, open.id));
        }
        let verdict = Verdict { what: What::Slowdown, category, suspects, since, group, op };
        self.write(bench, open.id, verdict, &facts, Vec::new());
        let at = self.place_of(open.id);
        self.cases[at].finding.since = since;
        self.open.iter_mut().filter(|of| of.id == open.id).for_each(|of| of.onset = since);
        self.raised_at.get_or_insert(since);
        Some(CaseEvent::Strengthened(open.id))
    }
}

/// Whose rank a case names that did not issue what others waited for, or whose device did not touch its slots, that place, and
/// what it is where that comes again.
fn late(case: &Case) -> Option<(&HostName, &Place, Category)> {
    let place = &case.finding.suspects.first()?.place;
    let is_untouched = || case.because.iter().any(|reason| reason.rule == LEFT_UNTOUCHED);
    let category = match case.finding.category {
        Category::NotStarted => Category::NotStarted,
        Category::Gpu if is_untouched() => Category::GpuCopy,
        _ => return None,
    };
    match place {
        Place::Rank { host, .. } | Place::Host { host } => Some((host, place, category)),
        Place::Link { .. } => None,
    }
}
