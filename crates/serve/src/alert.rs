//! Alerts out: a POST of the case's JSON to one URL when a case opens, settles, is revised or closes.
//!
//! Delivery is at least once and in order: one thread, one alert after the other, a few tries each. A receiver that is
//! away costs nothing but old alerts; the cases themselves are always in the API.
mod body;

use crate::api::CaseJson;
use crate::book::Change;
use crate::case::BookedCase;
use crate::post::{Outcome, agent, post, tries};
use crate::stats::{Stats, add};
use body::body;
pub use body::{AlertJson, WebhookFormat};
pub(crate) use body::{line, place, summary};
use mycroft_wire::sync::lock;
use ring::hmac;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use tracing::warn;

/// Alerts that may wait: 1,000 at 20 KB are 20 MB; more open cases than that are one outage, not a thousand pages.
const WAITING_MAX: usize = 1_000;
/// The header that shows that an alert comes from who knows the key, and is whole.
const SIGNATURE: &str = "X-Mycroft-Signature";

/// What somebody is to be told.
struct Alert {
    change: Change,
    case: BookedCase,
}

/// Where alerts go, and how they look.
#[derive(Clone)]
pub(crate) struct Recipient {
    pub(crate) url: String,
    pub(crate) format: WebhookFormat,
    /// PagerDuty's routing key; of the others, what alerts are signed with.
    pub(crate) key: Option<String>,
}

/// The queue of alerts.
pub(crate) struct Alerts {
    state: Mutex<Waiting>,
    changed: Condvar,
    stats: Arc<Stats>,
}

struct Waiting {
    alerts: VecDeque<Alert>,
    open: bool,
}

impl Alerts {
    /// An empty queue.
    pub(crate) fn new(stats: Arc<Stats>) -> Alerts {
        let waiting = Waiting { alerts: VecDeque::new(), open: true };
        Alerts { state: Mutex::new(waiting), changed: Condvar::new(), stats }
    }

    /// Queues an alert; the oldest is dropped and counted when there are too many.
    pub(crate) fn post(&self, change: Change, case: BookedCase) {
        let mut state = lock(&self.state);
        if state.alerts.len() >= WAITING_MAX {
            state.alerts.pop_front();
            add(&self.stats.alerts_dropped, 1);
        }
        state.alerts.push_back(Alert { change, case });
        drop(state);
        self.changed.notify_all();
    }

    /// Ends `run`: what waits gets one more try each while the receiver answers.
    pub(crate) fn close(&self) {
        lock(&self.state).open = false;
        self.changed.notify_all();
    }

    /// Delivers until closed.
    pub(crate) fn run(&self, to: &Recipient) {
        let agent = agent();
        while let Some(alert) = self.next() {
            let outcome = self.deliver(&agent, to, &alert);
            let failed = outcome.is_err();
            match outcome {
                Ok(()) => add(&self.stats.alerts_sent, 1),
                Err(why) => {
                    add(&self.stats.alerts_failed, 1);
                    let (number, word) = (alert.case.number, alert.change.word());
                    warn!(case = number, error = why, "alert for case {number} ({word}) was not delivered: {why}");
                }
            }
            let mut state = lock(&self.state);
            if failed && !state.open {
                add(&self.stats.alerts_failed, state.alerts.len() as u64);
                state.alerts.clear(); // The server stops and the receiver is away.
            }
        }
    }

    fn next(&self) -> Option<Alert> {
        let guard = lock(&self.state);
        let idle = |state: &mut Waiting| state.open && state.alerts.is_empty();
        self.changed.wait_while(guard, idle).unwrap_or_else(PoisonError::into_inner).alerts.pop_front()
    }

    fn deliver(&self, agent: &ureq::Agent, to: &Recipient, alert: &Alert) -> Result<(), String> {
        let alert = AlertJson { event: alert.change.word().to_owned(), case: CaseJson::of(&alert.case) };
        let bytes = body(to.format, &alert, to.key.as_deref());
        let pause = |pause| {
            let guard = lock(&self.state);
            let waited = self.changed.wait_timeout_while(guard, pause, |state| state.open);
            waited.unwrap_or_else(PoisonError::into_inner).0.open
        };
        tries(|| once(agent, to, &bytes), pause).map(drop)
    }
}

/// One try.
fn once(agent: &ureq::Agent, to: &Recipient, body: &[u8]) -> Outcome {
    let mut request = agent.post(&to.url).header("Content-Type", "application/json");
    if let Some(key) = to.key.as_ref().filter(|_| to.format != WebhookFormat::PagerDuty) {
        request = request.header(SIGNATURE, signature(key, body));
    }
    match post(request, body) {
        Ok(answer) => match answer.status().as_u16() {
            200..=299 => Outcome::Delivered(answer),
            status @ (408 | 429 | 500..=599) => Outcome::TryAgain(format!("the receiver answered {status}"), None),
            status => Outcome::Refused(format!("the receiver answered {status}; check the webhook URL")),
        },
        Err(why) => Outcome::TryAgain(why, None),
    }
}

/// `sha256=HEX`: HMAC-SHA-256 of the body, as GitHub signs its webhooks.
fn signature(key: &str, body: &[u8]) -> String {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), body);
    let hex: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2.
    #[test]
    fn a_signature_is_that_of_the_standard() {
        let wanted = "sha256=5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(signature("Jefe", b"what do ya want for nothing?"), wanted);
    }
}
