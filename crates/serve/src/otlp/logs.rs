//! Changes of cases as log records.
use super::values::{SAMPLED, ids, of_case, text};
use crate::alert::{AlertJson, line};
use crate::api::{CaseJson, TimeJson};
use mycroft_record::HostTime;
use opentelemetry_proto::tonic::common::v1::{AnyValue, any_value::Value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, SeverityNumber};

/// A change as a log record; `now`: when it is told.
pub(super) fn record(told: &AlertJson, now: HostTime) -> LogRecord {
    let (trace_id, span_id) = ids(&told.case);
    let (severity, word) = severity(told);
    let mut attributes = of_case(&told.case);
    attributes.push(text("mycroft.change", &told.event));
    if let ("acknowledged" | "noted", Some(note)) = (told.event.as_str(), told.case.notes.last()) {
        attributes.extend([text("mycroft.who", &note.who), text("mycroft.note", &note.text)]);
    }
    LogRecord {
        time_unix_nano: changed_at(told).map_or(now.0, |at| at.ns),
        observed_time_unix_nano: now.0,
        severity_number: severity.into(),
        severity_text: word.to_owned(),
        body: Some(AnyValue { value: Some(Value::StringValue(line(told))) }),
        attributes,
        flags: SAMPLED,
        trace_id,
        span_id,
        event_name: format!("mycroft.case.{}", told.event),
        ..LogRecord::default()
    }
}

/// Only what is wrong is a warning or an error: a word of somebody who looks after it is none.
fn severity(told: &AlertJson) -> (SeverityNumber, &'static str) {
    let is_news = matches!(told.event.as_str(), "opened" | "settled" | "revised" | "unsilenced");
    match told.case.what.as_str() {
        _ if !is_news || told.case.state != "open" => (SeverityNumber::Info, "INFO"),
        "slowdown" => (SeverityNumber::Warn, "WARN"),
        _ => (SeverityNumber::Error, "ERROR"),
    }
}

fn changed_at(told: &AlertJson) -> Option<&TimeJson> {
    let CaseJson { opened_at, updated_at, closed_at, .. } = &told.case;
    match told.event.as_str() {
        "opened" => opened_at.as_ref(),
        "closed" => closed_at.as_ref(),
        // Nothing of the case changed.
        "unsilenced" => None,
        _ => updated_at.as_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::BookedCase;
    use crate::tests::{NEW_YEAR, example_case};
    use mycroft_diagnose::CaseId;

    #[test]
    fn only_what_is_wrong_and_open_is_more_than_information() {
        let case = example_case(CaseId(1), HostTime(NEW_YEAR));
        let case = CaseJson::of(&BookedCase::of(7, &"train".into(), &case));
        for (event, what, state, wanted) in [
            ("opened", "hang", "open", "ERROR"),
            ("settled", "crash", "open", "ERROR"),
            ("revised", "deadlock", "open", "ERROR"),
            ("unsilenced", "desync", "open", "ERROR"),
            ("opened", "slowdown", "open", "WARN"),
            ("closed", "hang", "closed", "INFO"),
            ("closed", "slowdown", "stale", "INFO"),
            ("acknowledged", "hang", "open", "INFO"),
            ("noted", "hang", "open", "INFO"),
            ("validated", "slowdown", "open", "INFO"),
        ] {
            let case = CaseJson { what: what.to_owned(), state: state.to_owned(), ..case.clone() };
            let record = record(&AlertJson { event: event.to_owned(), case }, HostTime(NEW_YEAR + 9));
            assert_eq!(record.severity_text, wanted, "{event} {what} {state}");
            let number = [("INFO", 9), ("WARN", 13), ("ERROR", 17)].iter().find(|(word, _)| *word == wanted);
            assert_eq!(number.map(|(_, number)| *number), Some(record.severity_number));
        }
    }

    #[test]
    fn a_change_bears_the_time_at_which_it_was_made() {
        let (case, now) = (example_case(CaseId(1), HostTime(NEW_YEAR)), HostTime(NEW_YEAR + 9_000_000_000));
        let case = CaseJson::of(&BookedCase::of(7, &"train".into(), &case));
        let at = |event: &str| record(&AlertJson { event: event.to_owned(), case: case.clone() }, now).time_unix_nano;
        assert_eq!((at("opened"), at("settled")), (NEW_YEAR, NEW_YEAR + 250_000_000));
        assert_eq!(at("unsilenced"), now.0, "nothing of the case changed");
    }
}
