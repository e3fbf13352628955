//! Cases of what `explain` says: one for each cause, as long as the evidence for it lasts.
use super::{CASES_MAX, Docket, Open, Told};
use crate::case::docket::same::meets;
use crate::case::weigh::{SURER, Verdict};
use crate::case::{Case, CaseEvent, CaseId, CaseState, Evidence as Seen, Reason, Said, advice};
use crate::evidence::{Evidence, Subject};
use crate::explain::{self, Cause};
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
            if self.told.iter().any(|told| told.key == cause.key) || self.names_one_of(&cause.suspects) {
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

    /// Whether a case of a cause names one of a verdict's first suspects.
    pub(super) fn is_told(&self, verdict: &Verdict) -> bool {
        let told = self.told.iter().flat_map(|told| &self.case(told.id).finding.suspects);
        let mut told = told.map(|suspect| &suspect.place);
        told.any(|told| verdict.leads().any(|place| meets(place, told)))
    }

    /// What slowed the job has stopped it: its case goes on as that of a stop.
    pub(super) fn stops(&mut self, verdict: &Verdict) {
        let is_it = |told: &&Told| {
            let named = &self.case(told.id).finding.suspects;
            named.first().is_some_and(|named| verdict.leads().any(|place| meets(place, &named.place)))
        };
        let Some(id) = self.told.iter().find(is_it).map(|told| told.id) else { return };
        self.told.retain(|told| told.id != id);
        let finding = &self.case(id).finding;
        let (onset, said) = (finding.since, Said::of(finding, HostTime::NONE));
        self.open.push(Open { id, onset, said: Some(said), ..Open::default() });
    }

    /// The suspects of a case that are as likely as the first.
    pub(super) fn surest(&self, id: CaseId) -> impl Iterator<Item = &Place> {
        let suspects = &self.case(id).finding.suspects;
        let surest = suspects.first().map_or(0.0, |suspect| suspect.confidence);
        suspects.iter().filter(move |suspect| suspect.confidence + SURER >= surest).map(|suspect| &suspect.place)
    }

    /// Whether a case names one of these places.
    pub(super) fn names_any(&self, id: CaseId, places: &[Place]) -> bool {
        let mut named = self.case(id).finding.suspects.iter().map(|suspect| &suspect.place);
        named.any(|named| places.iter().any(|place| meets(place, named)))
    }

    fn tell(&mut self, cause: &Cause, now: HostTime) -> CaseEvent {
        let finding = Finding {
            what: What::Slowdown,
            category: cause.category,
            suspects: cause.suspects.clone(),
            since: cause.since,
            detected_at: now,
            diagnosed_at: now,
        };
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

fn reason(told: &explain::Told) -> Reason {
    let seen = Seen { rank: None, op: None, flow: None, at: told.at };
    Reason { rule: told.rule.into(), text: told.text.clone(), evidence: vec![seen] }
}
