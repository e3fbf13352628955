//! Cases of what `explain` says: one for each cause, as long as the evidence for it lasts.
use super::again::RESUMED_DOUBT;
use super::same::meets;
use super::{CASES_MAX, Docket, Open, Told};
use crate::case::weigh::{SURER, Verdict};
use crate::case::{Case, CaseEvent, CaseId, CaseState, Evidence as Seen, Reason, Said, advice};
use crate::evidence::{Evidence, Subject};
use crate::explain::{self, Cause, Key, SURE_ENOUGH};
use crate::fact::WANDER;
use crate::measure::Component;
use mycroft_record::{Finding, HostTime, Place, Suspect, What};

impl Docket {
    /// Opens a case for each cause that has none, and closes those whose evidence is gone.
    pub(crate) fn explained(&mut self, causes: &[Cause], evidence: &Evidence, now: HostTime) -> Vec<CaseEvent> {
        let mut events = Vec::new();
        for told in self.told.clone() {
            let lasts = match &told.key {
                (_, Subject::Job) => evidence.tracks.contains_key(&(Component::Iteration, Subject::Job)),
                key => evidence.tracks.contains_key(key),
            };
            if !lasts {
                self.told.retain(|other| other.id != told.id);
                events.push(self.end(told.id, "its suspect takes no longer than its peers do", now));
            }
        }
        for cause in causes {
            let id = self.surer_now(cause).or_else(|| self.knew_nobody(cause)).or_else(|| self.is_why(cause));
            if let Some(id) = id {
                events.push(self.revise(id, cause, now));
                continue;
            }
            if let Some(told) = self.told.iter().find(|told| told.key == cause.key) {
                self.began_later(told.id, cause);
                continue;
            }
            if self.names_one_of(&cause.suspects) {
                continue;
            }
            if (cause.suspects.is_empty() || cause.key.1 == Subject::Job) && self.has_open() {
                continue;
            }
            events.push(self.tell(cause, now));
        }
        events
    }

    /// Closes all of them: the job was started again, or ended.
    pub(super) fn end_told(&mut self, why: &str, now: HostTime) -> Vec<CaseEvent> {
        std::mem::take(&mut self.told).into_iter().map(|told| self.end(told.id, why, now)).collect()
    }

    /// Whether an open case is about one of these.
    fn names_one_of(&self, suspects: &[Suspect]) -> bool {
        let open = self.open.iter().map(|open| open.id).chain(self.told.iter().map(|told| told.id));
        let named = open.flat_map(|id| self.case(id).finding.suspects.iter()).collect::<Vec<_>>();
        suspects.iter().any(|suspect| named.iter().any(|named| meets(&suspect.place, &named.place)))
    }

    /// Whether a case of a cause names whoever is named first in a finding.
    pub(super) fn is_told(&self, finding: &Finding) -> bool {
        let mut told = self.told.iter().flat_map(|told| &self.case(told.id).finding.suspects);
        finding.suspects.first().is_some_and(|named| told.any(|told| meets(&told.place, &named.place)))
    }

    /// A stop is over that slowed the job before: its case goes on as that of its cause.
    pub(super) fn goes_on(&mut self, id: CaseId, key: Key, now: HostTime) -> CaseEvent {
        self.open.retain(|open| open.id != id);
        self.told.push(Told { id, key });
        let at = self.place_of(id);
        let case = &mut self.cases[at];
        case.finding.what = What::Slowdown;
        case.finding.suspects.iter_mut().for_each(|suspect| suspect.confidence *= RESUMED_DOUBT);
        case.do_next = advice::steps(case.finding.what, case.finding.category, &case.finding.suspects);
        case.updated_at = now;
        CaseEvent::Strengthened(id)
    }

    /// The case of a stop that the job got over, which says less of why it is slow than the cause does: nobody, or the same place.
    fn is_why(&mut self, cause: &Cause) -> Option<CaseId> {
        let is_it = |open: &&Open| {
            let finding = &self.case(open.id).finding;
            let named = |place: &Place| cause.suspects.iter().any(|suspect| meets(&suspect.place, place));
            finding.what == What::Slowdown
                && !self.shows(open.id, WANDER)
                && finding.suspects.first().is_none_or(|suspect| named(&suspect.place))
        };
        let id = self.open.iter().find(is_it)?.id;
        self.open.retain(|open| open.id != id);
        self.told.push(Told { id, key: cause.key.clone() });
        Some(id)
    }

    /// What slowed the job has stopped it: its case goes on as that of a stop.
    pub(super) fn stops(&mut self, verdict: &Verdict) {
        let is_it = |told: &&Told| {
            let named = &self.case(told.id).finding.suspects;
            named.first().is_some_and(|named| verdict.leads().any(|place| meets(place, &named.place)))
        };
        let Some(Told { id, key }) = self.told.iter().find(is_it).cloned() else { return };
        self.told.retain(|told| told.id != id);
        let finding = &self.case(id).finding;
        let (onset, said) = (finding.since, Said::of(finding, HostTime::NONE));
        self.open.push(Open { id, onset, cause: Some(key), said: Some(said), ..Open::default() });
    }

    /// The suspects of a case that are as likely as the first.
    pub(super) fn surest(&self, id: CaseId) -> impl Iterator<Item = &Place> {
        let suspects = &self.case(id).finding.suspects;
        let surest = suspects.first().map_or(0.0, |suspect| suspect.confidence);
        suspects.iter().filter(move |suspect| suspect.confidence + SURER >= surest).map(|suspect| &suspect.place)
    }

    /// The case of this cause, if the cause is surer by now: others may be cleared, or another one is named. Slow ways that have an
    /// end in common are one cause, whichever of them is slowest; that it is all of them is as sure as anything that is told.
    fn surer_now(&self, cause: &Cause) -> Option<CaseId> {
        let is_it = |told: &&Told| told.key == cause.key || self.is_of_ways(told, cause);
        let id = self.told.iter().find(is_it)?.id;
        let is_wire = cause.key.0 == Component::Wire;
        let sure_of =
            |suspects: &[Suspect]| suspects.first().map_or(if is_wire { SURE_ENOUGH } else { 0.0 }, |of| of.confidence);
        (sure_of(&cause.suspects) > sure_of(&self.case(id).finding.suspects) + SURER).then_some(id)
    }

    /// Whether a case and a cause are about ways that may have one reason: an end or a suspect of both, or one is about all ways.
    fn is_of_ways(&self, told: &Told, cause: &Cause) -> bool {
        let (Subject::Way(from, to), Subject::Way(a, b)) = (&told.key.1, &cause.key.1) else { return false };
        let named = &self.case(told.id).finding.suspects;
        let is_all = named.is_empty() || cause.suspects.is_empty();
        let is_named = |of: &Suspect| named.iter().any(|named| meets(&of.place, &named.place));
        is_all || [from, to].into_iter().any(|end| end == a || end == b) || cause.suspects.iter().any(is_named)
    }

    /// More of what came since says that all of the job began to be slow later: what was odd before had another reason.
    fn began_later(&mut self, id: CaseId, cause: &Cause) {
        let at = self.place_of(id);
        let since = &mut self.cases[at].finding.since;
        if cause.key.1 == Subject::Job {
            *since = cause.since.max(*since);
        }
    }

    /// The case that all of the job is slow, where it is so for another reason now.
    fn knew_nobody(&self, cause: &Cause) -> Option<CaseId> {
        let names_nobody = |told: &&Told| self.case(told.id).finding.suspects.is_empty();
        let is_new = cause.suspects.is_empty() && self.told.iter().all(|told| told.key != cause.key);
        self.told.iter().filter(|_| is_new).find(names_nobody).map(|told| told.id)
    }

    fn revise(&mut self, id: CaseId, cause: &Cause, now: HostTime) -> CaseEvent {
        self.told.iter_mut().filter(|told| told.id == id).for_each(|told| told.key = cause.key.clone());
        let at = self.place_of(id);
        let case = &mut self.cases[at];
        let said = Said::of(&case.finding, now);
        let Finding { detected_at, diagnosed_at, .. } = case.finding;
        let was_settled = diagnosed_at.is_some();
        case.finding =
            Finding { diagnosed_at: if was_settled { diagnosed_at } else { now }, ..finding_of(cause, detected_at) };
        let is_other = !said.is_said_by(&case.finding);
        if is_other {
            case.finding.diagnosed_at = now;
        }
        if is_other && was_settled {
            case.revised_from(said);
        }
        case.do_next = advice::steps(case.finding.what, case.finding.category, &case.finding.suspects);
        case.because = cause.because.iter().map(reason).collect();
        case.updated_at = now;
        if is_other && was_settled { CaseEvent::Revised(id) } else { CaseEvent::Strengthened(id) }
    }

    fn tell(&mut self, cause: &Cause, now: HostTime) -> CaseEvent {
        let finding = finding_of(cause, now);
        let do_next = advice::steps(finding.what, finding.category, &finding.suspects);
        let because = cause.because.iter().map(reason).collect();
        let id = self.file(Case { do_next, because, ..Case::of(finding) });
        self.told.push(Told { id, key: cause.key.clone() });
        self.raised_at = Some(cause.since);
        CaseEvent::Opened(id)
    }

    /// Puts a new case into the docket, under the next number.
    pub(super) fn file(&mut self, case: Case) -> CaseId {
        self.next_id += 1;
        let id = CaseId(self.next_id);
        if self.cases.len() >= CASES_MAX
            && let Some(at) = self.cases.iter().position(|case| case.state == CaseState::Closed)
        {
            self.cases.remove(at);
        }
        self.cases.push(Case { id, ..case });
        id
    }

    fn end(&mut self, id: CaseId, why: &str, now: HostTime) -> CaseEvent {
        let at = self.place_of(id);
        let case = &mut self.cases[at];
        (case.state, case.closed_at, case.updated_at) = (CaseState::Closed, now, now);
        case.closed_because = why.to_owned();
        CaseEvent::Closed(id)
    }
}

fn finding_of(cause: &Cause, detected_at: HostTime) -> Finding {
    Finding {
        what: What::Slowdown,
        category: cause.category,
        suspects: cause.suspects.clone(),
        since: cause.since,
        detected_at,
        diagnosed_at: detected_at,
    }
}

fn reason(told: &explain::Told) -> Reason {
    let seen = Seen { rank: None, op: None, flow: None, at: told.at };
    Reason { rule: told.rule.into(), text: told.text.clone(), evidence: vec![seen] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Row, Way};
    use mycroft_record::{Category, HostName, NANOS_PER_SEC};

    fn host(host: u32) -> HostName {
        format!("host{host}").as_str().into()
    }

    /// The evidence of a job of which the way from host 0 to host 1 is slow.
    fn slow_way() -> Evidence {
        let mut evidence = Evidence::default();
        for second in 0..30 {
            let start = HostTime((1_000 + second) * NANOS_PER_SEC);
            let sent_ms = |from: u32| if from == 0 && second >= 20 { 320.0 } else { 20.0 };
            let way =
                |from: u32| ((host(from), host(from + 1)), Way { sent_ms: sent_ms(from), mb: 100.0, ..Way::default() });
            let ways = (0..3).map(way).collect();
            let end = start + NANOS_PER_SEC;
            let iteration_ms = if second >= 20 { 600.0 } else { 300.0 };
            evidence.take(&[], &[], &Row { start, end, iterations: 3, iteration_ms, ways, ..Row::default() });
        }
        evidence
    }

    fn cause(way: (u32, u32), named: &[(u32, f64)]) -> Cause {
        let suspect =
            |(of, confidence): &(u32, f64)| Suspect { place: Place::Host { host: host(*of) }, confidence: *confidence };
        Cause {
            key: (Component::Wire, Subject::Way(host(way.0), host(way.1))),
            category: Category::NetworkSend,
            suspects: named.iter().map(suspect).collect(),
            since: HostTime(1_020 * NANOS_PER_SEC),
            because: Vec::new(),
        }
    }

    /// Two ends that nothing told apart are told apart once more ways are slow, and whichever of them is slowest, it is one case.
    #[test]
    fn a_case_says_what_its_cause_is_surer_of_later() {
        let (mut docket, evidence) = (Docket::default(), slow_way());
        let mut look = |second: u64, cause: Cause| {
            let events = docket.explained(&[cause], &evidence, HostTime(second * NANOS_PER_SEC));
            let case = &docket.cases[0];
            let named: Vec<Place> = case.finding.suspects.iter().map(|suspect| suspect.place.clone()).collect();
            (events, docket.cases.len(), named, case.revisions)
        };
        let place = |of: u32| Place::Host { host: host(of) };
        let both = cause((0, 1), &[(0, 0.48), (1, 0.48)]);
        let of_both = vec![place(0), place(1)];
        assert_eq!(look(1_030, both.clone()), (vec![CaseEvent::Opened(CaseId(1))], 1, of_both.clone(), 0));
        let unsure = cause((0, 1), &[(2, 0.5)]);
        assert_eq!(look(1_031, unsure), (vec![], 1, of_both, 0), "hardly surer of another");
        let one = cause((0, 1), &[(0, 0.9)]);
        assert_eq!(look(1_032, one), (vec![CaseEvent::Strengthened(CaseId(1))], 1, vec![place(0)], 0));
        let other = cause((0, 1), &[(1, 0.97)]);
        assert_eq!(look(1_033, other), (vec![CaseEvent::Revised(CaseId(1))], 1, vec![place(1)], 1));
        assert_eq!(look(1_034, both).2, [place(1)], "what is less sure says nothing");
    }

    /// Another way that gets slow later, of other hosts, is another cause, however sure it is.
    #[test]
    fn a_case_of_a_way_is_not_taken_over_by_that_of_other_hosts() {
        let (mut docket, evidence) = (Docket::default(), slow_way());
        let at = |second: u64| HostTime(second * NANOS_PER_SEC);
        let first = cause((0, 1), &[(0, 0.7)]);
        docket.explained(std::slice::from_ref(&first), &evidence, at(1_030));
        let both = [first, cause((2, 3), &[(2, 0.93)])];
        assert_eq!(docket.explained(&both, &evidence, at(1_031)), [CaseEvent::Opened(CaseId(2))]);
        let named = docket.cases.iter().map(|case| case.finding.suspects[0].place.clone());
        assert!(named.eq([0, 2].map(|of| Place::Host { host: host(of) })), "each its own");
        let next = cause((0, 3), &[(3, 0.93)]);
        let events = docket.explained(&[next], &evidence, at(1_032));
        assert_eq!(events.last(), Some(&CaseEvent::Revised(CaseId(1))), "an end in common");
    }

    /// What slows all of the job is told as one case; that it is all ways, and not one, too.
    #[test]
    fn a_case_that_names_nobody_goes_on_as_that_of_another_cause() {
        let evidence = slow_way();
        let at = |second: u64| HostTime(second * NANOS_PER_SEC);
        let job = |since: u64| Cause {
            key: (Component::Issue, Subject::Job),
            since: at(since),
            category: Category::NotStarted,
            ..cause((0, 1), &[])
        };
        let mut docket = Docket::default();
        docket.explained(&[job(1_010)], &evidence, at(1_030));
        assert_eq!(docket.explained(&[job(1_020)], &evidence, at(1_031)), []);
        assert_eq!(docket.cases[0].finding.since, at(1_020), "it began later than it seemed to");
        let named = docket.explained(&[cause((0, 1), &[(0, 0.9)])], &evidence, at(1_032));
        assert_eq!(named, [CaseEvent::Opened(CaseId(2))], "somebody is slow besides");
        let mut docket = Docket::default();
        docket.explained(&[job(1_020)], &evidence, at(1_030));
        assert_eq!(docket.explained(&[cause((0, 1), &[])], &evidence, at(1_031)), [CaseEvent::Revised(CaseId(1))]);
        assert_eq!(docket.cases[0].finding.category, Category::NetworkSend);
        let mut docket = Docket::default();
        docket.explained(&[cause((0, 1), &[(0, 0.48), (1, 0.48)])], &evidence, at(1_030));
        assert_eq!(docket.explained(&[cause((2, 3), &[])], &evidence, at(1_031)), [CaseEvent::Revised(CaseId(1))]);
        assert_eq!(docket.cases[0].finding.suspects, []);
    }

    /// The case of a stop that is over, of which nobody is known: a cause says why the job goes on slowly.
    #[test]
    fn a_cause_takes_over_the_case_of_a_stop_that_is_over() {
        let (mut docket, evidence) = (Docket::default(), slow_way());
        let at = |second: u64| HostTime(second * NANOS_PER_SEC);
        let suspects = Vec::new();
        let finding = Finding { suspects, diagnosed_at: HostTime::NONE, ..finding_of(&cause((0, 1), &[]), at(1_021)) };
        let id = docket.file(Case::of(Finding { category: Category::Unknown, ..finding }));
        docket.open.push(Open { id, onset: at(1_020), ..Open::default() });
        let events = docket.explained(&[cause((0, 1), &[(0, 0.9)])], &evidence, at(1_030));
        assert_eq!(events, [CaseEvent::Strengthened(id)], "it had said nothing yet that could be revised");
        let case = &docket.cases[0];
        assert_eq!((docket.cases.len(), docket.open.len(), docket.told.len()), (1, 0, 1));
        assert_eq!((case.finding.category, case.revisions), (Category::NetworkSend, 0));
        assert_eq!(case.finding.suspects[0].place, Place::Host { host: host(0) });
    }

    /// What slowed the job stopped it for a while: the case is about the cause again, which says so once more.
    #[test]
    fn a_cause_has_its_case_back_when_the_job_goes_on() {
        let (mut docket, evidence) = (Docket::default(), slow_way());
        let at = |second: u64| HostTime(second * NANOS_PER_SEC);
        let told = cause((0, 1), &[(0, 0.9)]);
        docket.explained(std::slice::from_ref(&told), &evidence, at(1_030));
        let suspects = told.suspects.clone();
        docket.stops(&Verdict { suspects, ..Verdict::unknown(What::Hang, at(1_031)) });
        let open = docket.open[0].clone();
        assert!(docket.told.is_empty() && open.cause == Some(told.key.clone()));
        docket.cases[0].finding.what = What::Hang;
        assert_eq!(docket.goes_on(open.id, told.key.clone(), at(1_040)), CaseEvent::Strengthened(open.id));
        assert_eq!(docket.cases[0].finding.what, What::Slowdown);
        docket.explained(&[told], &evidence, at(1_041));
        assert_eq!((docket.cases.len(), docket.cases[0].finding.suspects[0].confidence), (1, 0.9));
    }
}
