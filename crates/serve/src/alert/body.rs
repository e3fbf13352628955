//! What an alert looks like to who receives it: our own JSON, or the shapes of Slack, PagerDuty and Alertmanager.
use crate::api::{CaseJson, NoteJson, SuspectJson, TimeJson, rfc3339};
use mycroft_record::text::printable;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::str::FromStr;

/// Alertmanager takes an alert that is not sent again for over after some minutes; ours is over when its case is.
const OPEN_NS: u64 = 30 * 24 * 3600 * NANOS_PER_SEC;

/// The body of an alert.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AlertJson {
    /// `opened`, `settled`, `revised` (what it says changed after it had settled), `closed`, `acknowledged` (somebody looks after it)
    /// or `unsilenced` (it is open at the end of a silence).
    pub event: String,
    /// The case.
    pub case: CaseJson,
}

/// The shape of alerts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WebhookFormat {
    /// [`AlertJson`].
    #[default]
    Generic,
    /// An incoming webhook of Slack, or of what takes the same (Mattermost, Discord's `/slack`): one line.
    Slack,
    /// Events API v2 of PagerDuty; the key is the routing key.
    PagerDuty,
    /// `POST /api/v2/alerts` of Prometheus' Alertmanager.
    Alertmanager,
}

impl WebhookFormat {
    /// Every format.
    pub const ALL: [WebhookFormat; 4] =
        [WebhookFormat::Generic, WebhookFormat::Slack, WebhookFormat::PagerDuty, WebhookFormat::Alertmanager];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            WebhookFormat::Generic => "generic",
            WebhookFormat::Slack => "slack",
            WebhookFormat::PagerDuty => "pagerduty",
            WebhookFormat::Alertmanager => "alertmanager",
        }
    }
}

impl FromStr for WebhookFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<WebhookFormat, String> {
        let found = WebhookFormat::ALL.into_iter().find(|format| format.as_str() == word);
        found.ok_or_else(|| format!("{word:?}: expected generic, slack, pagerduty or alertmanager"))
    }
}

/// The bytes of an alert. `key`: PagerDuty's routing key.
pub(super) fn body(format: WebhookFormat, alert: &AlertJson, key: Option<&str>) -> Vec<u8> {
    let value = match format {
        WebhookFormat::Generic => serde_json::to_value(alert),
        WebhookFormat::Slack => Ok(json!({ "text": line(alert) })),
        WebhookFormat::PagerDuty => Ok(pagerduty(alert, key.unwrap_or_default())),
        WebhookFormat::Alertmanager => Ok(alertmanager(alert)),
    };
    // Numbers, strings and lists only: serde_json has no way to fail on them.
    serde_json::to_vec(&value.unwrap_or_default()).unwrap_or_default()
}

/// One line: what is wrong, who, how sure, what to do first.
pub(crate) fn line(alert: &AlertJson) -> String {
    let case = &alert.case;
    let first = case.do_next.first().map(|text| format!(" First: {}.", printable(text))).unwrap_or_default();
    let why = match alert.event.as_str() {
        "closed" => format!(" {}.", printable(&case.closed_because)),
        "acknowledged" | "noted" => case.notes.last().map(said).unwrap_or_default(),
        _ => first,
    };
    format!("case {} {}: {}.{why}", case.id, alert.event, summary(case))
}

/// ` ada on desk: I look at the switch.`
fn said(note: &NoteJson) -> String {
    let text = printable(&note.text);
    format!(" {}{}{text}.", printable(&note.who), if text.is_empty() { "" } else { ": " })
}

/// `llama-70b hang: rank 6 on host1 (gpu, 95 %)`.
pub(crate) fn summary(case: &CaseJson) -> String {
    let who = match case.suspects.as_slice() {
        [] => format!("nobody is named ({})", case.category),
        [first, more @ ..] => {
            let others = if more.is_empty() { String::new() } else { format!(" or {} more", more.len()) };
            format!("{}{others} ({}, {:.0} %)", place(first), case.category, 100.0 * first.confidence)
        }
    };
    format!("{} {}: {who}", printable(&case.job), case.what)
}

/// A suspect in a few words.
pub(crate) fn place(suspect: &SuspectJson) -> String {
    let host = suspect.host.as_deref().map(printable);
    match (&suspect.link, suspect.rank, host) {
        (Some(link), _, _) => format!("link {} -> {}", printable(&link.from), printable(&link.to)),
        (None, Some(rank), Some(host)) => format!("rank {rank} on {host}"),
        (None, Some(rank), None) => format!("rank {rank}"),
        (None, None, Some(host)) => host.into_owned(),
        (None, None, None) => "a rank without a number".to_owned(),
    }
}

fn severity(case: &CaseJson) -> &'static str {
    if case.what == "slowdown" { "warning" } else { "critical" }
}

fn pagerduty(alert: &AlertJson, key: &str) -> Value {
    let case = &alert.case;
    let action = match alert.event.as_str() {
        "closed" => "resolve",
        "acknowledged" => "acknowledge",
        _ => "trigger",
    };
    // PagerDuty cuts a summary at 1,024 characters and refuses a longer one.
    let summary: String = line(alert).chars().take(1024).collect();
    json!({
        "routing_key": key,
        "event_action": action,
        "dedup_key": format!("mycroft-case-{}", case.id),
        "client": "mycroft",
        "payload": {
            "summary": summary,
            "source": printable(&case.job),
            "severity": severity(case),
            "component": case.suspects.first().map(place),
            "class": case.category,
            "timestamp": case.opened_at.as_ref().map(|at| at.text.clone()),
            "custom_details": { "because": reasons(case), "do_next": case.do_next },
        },
    })
}

/// Labels that never change, so that a revised case is the same alert.
fn alertmanager(alert: &AlertJson) -> Value {
    let case = &alert.case;
    let begun = |time: &TimeJson| (time.text.clone(), rfc3339(HostTime(time.ns.saturating_add(OPEN_NS))));
    let (starts_at, open_until) = case.opened_at.as_ref().map(begun).unzip();
    let ends_at = case.closed_at.as_ref().map(|at| at.text.clone()).or(open_until);
    json!([{
        "labels": {
            "alertname": "MycroftCase",
            "job": printable(&case.job),
            "case": case.id.to_string(),
            "severity": severity(case),
        },
        "annotations": {
            "summary": line(alert),
            "because": reasons(case).join("; "),
            "do_next": case.do_next.join("; "),
        },
        "startsAt": starts_at,
        "endsAt": ends_at,
    }])
}

fn reasons(case: &CaseJson) -> Vec<String> {
    case.because.iter().map(|reason| reason.text.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::BookedCase;
    use crate::tests::{NEW_YEAR, example_case};
    use mycroft_diagnose::{CaseId, CaseState};

    fn alert(event: &str, is_open: bool) -> AlertJson {
        let mut case = example_case(CaseId(1), HostTime(NEW_YEAR));
        if !is_open {
            (case.state, case.closed_at) = (CaseState::Closed, HostTime(NEW_YEAR + 5 * NANOS_PER_SEC));
            "recovered".clone_into(&mut case.closed_because);
        }
        AlertJson { event: event.to_owned(), case: CaseJson::of(&BookedCase::of(7, &"llama\u{1b}[2J".into(), &case)) }
    }

    fn told(format: WebhookFormat, alert: &AlertJson) -> Value {
        serde_json::from_slice(&body(format, alert, Some("the-key"))).expect("JSON")
    }

    #[test]
    fn one_line_says_what_who_and_what_to_do_and_nothing_a_terminal_obeys() {
        let opened = told(WebhookFormat::Slack, &alert("opened", true));
        let text = opened["text"].as_str().expect("a text");
        assert!(
            text.starts_with("case 7 opened: llama")
                && text.contains("hang: rank 1 on host1 or 1 more (network-send, 90 %)."),
            "{text}"
        );
        assert!(
            text.contains("First: check the link of host1") && !text.contains('\u{1b}') && !text.contains('\n'),
            "{text}"
        );
        let closed = told(WebhookFormat::Slack, &alert("closed", false));
        assert!(closed["text"].as_str().is_some_and(|text| text.ends_with(" recovered.")), "{closed}");
    }

    #[test]
    fn pagerduty_gets_one_incident_a_case_that_ends_with_it() {
        let opened = told(WebhookFormat::PagerDuty, &alert("opened", true));
        let words = (&opened["routing_key"], &opened["event_action"], &opened["dedup_key"]);
        assert_eq!(words, (&json!("the-key"), &json!("trigger"), &json!("mycroft-case-7")), "{opened}");
        assert_eq!(opened["payload"]["severity"], "critical");
        let closed = told(WebhookFormat::PagerDuty, &alert("closed", false));
        assert_eq!((&closed["event_action"], &closed["dedup_key"]), (&json!("resolve"), &opened["dedup_key"]));
    }

    #[test]
    fn alertmanager_keeps_one_alert_a_case_until_it_is_closed() {
        let (opened, settled) = (
            told(WebhookFormat::Alertmanager, &alert("opened", true)),
            told(WebhookFormat::Alertmanager, &alert("settled", true)),
        );
        assert_eq!(opened[0]["labels"], settled[0]["labels"]);
        assert_eq!(
            (&opened[0]["startsAt"], &opened[0]["endsAt"]),
            (&json!("2025-01-01T00:00:00.000000000Z"), &json!("2025-01-31T00:00:00.000000000Z"))
        );
        assert_eq!(
            told(WebhookFormat::Alertmanager, &alert("closed", false))[0]["endsAt"],
            "2025-01-01T00:00:05.000000000Z"
        );
    }

    #[test]
    fn words_of_formats_go_both_ways() {
        for format in WebhookFormat::ALL {
            assert_eq!(format.as_str().parse(), Ok(format));
        }
        assert!("teams".parse::<WebhookFormat>().is_err_and(|text| text.contains("pagerduty")));
    }
}
