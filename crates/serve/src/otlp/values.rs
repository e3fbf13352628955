//! What logs and spans say alike: attributes of a case, and the numbers of its span.
use crate::alert::place;
use crate::api::{CaseJson, SuspectJson};
use mycroft_record::text::printable_within;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value::Value};
use ring::digest::{SHA256, digest};

/// Entries of a list: the first name whom to ask, the API has all.
const LIST_MAX: usize = 16;
/// Characters of a text: a reason takes some 200.
const TEXT_CHARS_MAX: usize = 1_000;

/// Flag of a trace that is kept.
pub(super) const SAMPLED: u32 = 1;

/// An attribute.
pub(super) fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

/// A text; what is not for print is escaped, since names come from agents.
pub(super) fn text(key: &str, value: &str) -> KeyValue {
    attribute(key, string(value))
}

fn string(value: &str) -> Value {
    Value::StringValue(printable_within(value, TEXT_CHARS_MAX).to_string())
}

/// A whole number.
pub(super) fn number(key: &str, value: u64) -> KeyValue {
    attribute(key, Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn texts<'a>(key: &str, values: impl Iterator<Item = &'a str>) -> KeyValue {
    let values = values.take(LIST_MAX).map(|value| AnyValue { value: Some(string(value)) }).collect();
    attribute(key, Value::ArrayValue(ArrayValue { values }))
}

/// Suspects in a few words each, most likely first.
pub(super) fn suspects(key: &str, suspects: &[SuspectJson]) -> KeyValue {
    let places: Vec<String> = suspects.iter().take(LIST_MAX).map(place).collect();
    texts(key, places.iter().map(String::as_str))
}

/// What a case says.
pub(super) fn of_case(case: &CaseJson) -> Vec<KeyValue> {
    let mut told = vec![
        text("mycroft.job", &case.job),
        number("mycroft.case", case.id),
        text("mycroft.state", &case.state),
        text("mycroft.what", &case.what),
        text("mycroft.category", &case.category),
        suspects("mycroft.suspects", &case.suspects),
        attribute("mycroft.settled", Value::BoolValue(case.settled)),
        number("mycroft.revisions", case.revisions),
        texts("mycroft.because", case.because.iter().map(|reason| reason.text.as_str())),
        texts("mycroft.do_next", case.do_next.iter().map(String::as_str)),
    ];
    told.extend(
        case.suspects.first().map(|first| attribute("mycroft.confidence", Value::DoubleValue(first.confidence))),
    );
    if !case.closed_because.is_empty() {
        told.push(text("mycroft.closed_because", &case.closed_because));
    }
    told
}

/// Trace and span of a case: the first 16 and the next 8 bytes of SHA-256 over its job, number and opening. None of them changes, so
/// that what one run of the server tells belongs to the span that a later one ends.
pub(super) fn ids(case: &CaseJson) -> (Vec<u8>, Vec<u8>) {
    let opened_ns = case.opened_at.as_ref().map_or(0, |at| at.ns);
    let sum = digest(&SHA256, format!("mycroft case\n{}\n{opened_ns}\n{}", case.id, case.job).as_bytes());
    let (trace, rest) = sum.as_ref().split_at(16);
    (trace.to_vec(), rest[..8].to_vec())
}
