//! A case that is over as a span.
use super::values::{SAMPLED, attribute, ids, of_case, suspects, text};
use crate::alert::summary;
use crate::api::{CaseJson, SaidJson, TimeJson};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::{
    Span, Status,
    span::{Event, SpanKind},
    status::StatusCode,
};

/// From when the fault began to the end of the case.
pub(super) fn span(case: &CaseJson) -> Span {
    let (trace_id, span_id) = ids(case);
    let ns = |time: &Option<TimeJson>| time.as_ref().map(|time| time.ns);
    let end = ns(&case.closed_at).or(ns(&case.updated_at)).unwrap_or(0);
    let start = ns(&case.since).or(ns(&case.detected_at)).or(ns(&case.opened_at)).unwrap_or(end);
    Span {
        trace_id,
        span_id,
        flags: SAMPLED,
        name: format!("{} {}", case.what, case.category),
        kind: SpanKind::Internal.into(),
        // Of another clock than the end.
        start_time_unix_nano: start.min(end),
        end_time_unix_nano: end,
        attributes: of_case(case),
        events: events(case),
        status: Some(status(case)),
        ..Span::default()
    }
}

/// What stops a job is an error; a slowdown, and what was taken back, is none.
fn status(case: &CaseJson) -> Status {
    if case.what == "slowdown" || case.state == "withdrawn" {
        return Status { message: String::new(), code: StatusCode::Unset.into() };
    }
    Status { message: summary(case), code: StatusCode::Error.into() }
}

/// What happened, oldest first.
fn events(case: &CaseJson) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |name: &str, at: &Option<TimeJson>, attributes: Vec<KeyValue>| {
        if let Some(at) = at {
            let (time_unix_nano, name) = (at.ns, name.to_owned());
            events.push(Event { time_unix_nano, name, attributes, dropped_attributes_count: 0 });
        }
    };
    add("detected", &case.detected_at, Vec::new());
    add("settled", &case.diagnosed_at, Vec::new());
    for said in &case.said_before {
        add("revised", &said.until, before(said));
    }
    for note in case.notes.iter().filter(|note| note.acknowledges) {
        add("acknowledged", &note.at, vec![text("mycroft.who", &note.who), text("mycroft.note", &note.text)]);
    }
    if let Some(validation) = &case.validation {
        let told = [text("mycroft.outcome", &validation.outcome), text("mycroft.said", &validation.text)];
        add("validated", &validation.at, told.to_vec());
    }
    events.sort_by_key(|event| event.time_unix_nano);
    events
}

/// What the case said until then.
fn before(said: &SaidJson) -> Vec<KeyValue> {
    let mut told = vec![
        text("mycroft.before.what", &said.what),
        text("mycroft.before.category", &said.category),
        suspects("mycroft.before.suspects", &said.suspects),
    ];
    let sure =
        said.suspects.first().map(|first| attribute("mycroft.before.confidence", Value::DoubleValue(first.confidence)));
    told.extend(sure);
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{BookState, BookedCase};
    use crate::tests::{NEW_YEAR, example_case};
    use mycroft_diagnose::CaseId;
    use mycroft_record::HostTime;

    fn ended(state: BookState, what: &str) -> CaseJson {
        let mut booked = BookedCase::of(7, &"train".into(), &example_case(CaseId(1), HostTime(NEW_YEAR)));
        booked.end(state, "over", HostTime(NEW_YEAR + 5_000_000_000));
        CaseJson { what: what.to_owned(), ..CaseJson::of(&booked) }
    }

    #[test]
    fn only_what_stopped_a_job_is_an_error() {
        for (state, what, wanted) in [
            (BookState::Closed, "hang", StatusCode::Error),
            (BookState::Stale, "crash", StatusCode::Error),
            (BookState::Closed, "slowdown", StatusCode::Unset),
            (BookState::Withdrawn, "hang", StatusCode::Unset),
        ] {
            let status = span(&ended(state, what)).status.expect("a status");
            assert_eq!(
                (status.code, status.message.is_empty()),
                (wanted.into(), wanted == StatusCode::Unset),
                "{what}"
            );
        }
    }

    #[test]
    fn the_numbers_are_of_the_case_and_a_clock_that_is_behind_makes_no_negative_time() {
        let (case, other) = (ended(BookState::Closed, "hang"), ended(BookState::Stale, "slowdown"));
        assert_eq!(ids(&case), ids(&other), "what changes is not in them");
        assert_ne!(ids(&case), ids(&CaseJson { id: 8, ..case.clone() }));
        assert_ne!(ids(&case), ids(&CaseJson { job: "trai".to_owned(), ..case.clone() }));
        let late = TimeJson::exact(HostTime(NEW_YEAR + 60_000_000_000));
        let span = span(&CaseJson { since: Some(late), ..case });
        assert_eq!(
            (span.start_time_unix_nano, span.end_time_unix_nano),
            (NEW_YEAR + 5_000_000_000, NEW_YEAR + 5_000_000_000)
        );
    }
}
