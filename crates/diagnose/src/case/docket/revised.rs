//! What a case says after it has settled, and that it says something else: a revision, which is told.
use super::Docket;
use crate::case::{CaseEvent, CaseId, Said};
use mycroft_record::HostTime;

impl Docket {
    /// Compares what each open case, or one of them, says with what it said since it had settled.
    pub(super) fn compare(&mut self, now: HostTime, only: Option<CaseId>) {
        for open in self.open.iter_mut().filter(|open| only.is_none_or(|only| only == open.id)) {
            let at = self.cases.partition_point(|case| case.id < open.id);
            let case = &mut self.cases[at];
            let is_revised = open.said.as_ref().is_some_and(|said| !said.is_said_by(&case.finding));
            if is_revised && let Some(said) = open.said.take() {
                case.revised_from(Said { until: now, ..said });
                case.updated_at = now;
                self.revised.push(open.id);
            }
            if open.said.is_none() && case.finding.diagnosed_at.is_some() {
                open.said = Some(Said::of(&case.finding, HostTime::NONE));
            }
        }
    }

    /// Adds to what a look changed which cases it revised.
    pub(crate) fn with_revised(&mut self, now: HostTime, events: Vec<CaseEvent>) -> Vec<CaseEvent> {
        self.compare(now, None);
        let revised = std::mem::take(&mut self.revised);
        let is_told = |event: &CaseEvent| matches!(event, CaseEvent::Strengthened(id) if revised.contains(id));
        let others = events.into_iter().filter(|event| !is_told(event));
        revised.iter().copied().map(CaseEvent::Revised).chain(others).collect()
    }
}
