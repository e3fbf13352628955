//! `GET /api/v1/events`: changes of cases as server-sent events.
use super::holders::Holder;
use super::routes::{Asked, Refusal, Shared, bad_request, parameters};
use crate::alert::AlertJson;
use crate::api::CaseJson;
use crate::book::Filter;
use crate::case::{BookState, BookedCase};
use crate::feed::Feed;
use axum::Extension;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get as on_get;
use futures_util::stream::{self, Stream};
use mycroft_record::JobName;
use serde::Deserialize;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// A comment so often, so that a proxy does not take the connection for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// So soon a reader's stream ends whose token was revoked or has expired.
const TOKEN_LOOK: Duration = Duration::from_secs(1);
/// The header with which a browser comes back.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The route.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/api/v1/events", on_get(events))
}

/// `?job=NAME`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    job: Option<String>,
}

/// A reader, and what is to be told.
struct Reader {
    shared: Arc<Shared>,
    holder: Holder,
    job: Option<JobName>,
    newest: watch::Receiver<u64>,
    /// The last change that was told.
    last: u64,
    waiting: VecDeque<Event>,
}

/// Changes from now on, or from the one on that `Last-Event-ID` names.
async fn events(
    State(shared): State<Arc<Shared>>,
    Extension(holder): Extension<Holder>,
    headers: HeaderMap,
    asked: Asked<EventsQuery>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let job = parameters(asked, "job")?.job.map(JobName::from);
    let told = headers.get(&LAST_EVENT_ID).map(|id| id.to_str().map_err(|_| bad_request("Last-Event-ID: no text")));
    let last = told.transpose()?.and_then(|id| number(&shared, id));
    let newest = shared.feed().listen();
    let mut reader = Reader { job, newest, last: 0, waiting: VecDeque::new(), holder, shared };
    match last.filter(|last| reader.shared.feed().after(*last).is_some()) {
        Some(last) => reader.last = last,
        None => reader.begin(),
    }
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok(event), reader))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// `RUN-NUMBER`: numbers of another run of the server are nobody's.
fn id(shared: &Shared, number: u64) -> String {
    format!("{:x}-{number}", shared.run)
}

fn number(shared: &Shared, id: &str) -> Option<u64> {
    let (run, number) = id.split_once('-')?;
    number.parse().ok().filter(|_| run == format!("{:x}", shared.run))
}

impl Reader {
    /// Tells which cases are open: the reader is new, or was away for too long.
    fn begin(&mut self) {
        self.last = self.shared.feed().newest();
        let filter = Filter { job: self.job.clone(), state: Some(BookState::Open) };
        let (cases, _) = self.shared.book.list(&filter, usize::MAX);
        let begin = Event::default().event("begin").id(id(&self.shared, self.last));
        self.waiting.push_back(begin.data(format!("{{\"open_cases\":{}}}", cases.len())));
        for case in cases.iter().rev() {
            let event = self.event("open", case, self.last);
            self.waiting.push_back(event);
        }
    }

    fn event(&self, word: &str, case: &BookedCase, number: u64) -> Event {
        let alert = AlertJson { event: word.to_owned(), case: CaseJson::of(case) };
        // Numbers, strings and lists only: serde_json has no way to fail on them.
        let data = serde_json::to_string(&alert).unwrap_or_default();
        Event::default().event("case").id(id(&self.shared, number)).data(data)
    }

    /// The next event; `None`: the server stops, or the token that was shown holds no more.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if !self.holder.holds(self.shared.tokens.as_deref()) {
                return None;
            }
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if *self.newest.borrow_and_update() == Feed::OVER {
                return None;
            }
            match self.shared.feed().after(self.last) {
                None => self.begin(),
                Some(told) if told.is_empty() => match timeout(TOKEN_LOOK, self.newest.changed()).await {
                    Ok(news) => news.ok()?,
                    Err(_nothing) => {}
                },
                Some(told) => self.take(&told),
            }
        }
    }

    fn take(&mut self, told: &[crate::feed::Told]) {
        for one in told {
            self.last = one.number;
            if self.job.as_ref().is_none_or(|job| *job == one.case.job) {
                let event = self.event(one.change.word(), &one.case, one.number);
                self.waiting.push_back(event);
            }
        }
    }
}

impl Shared {
    fn feed(&self) -> &Feed {
        self.book.feed()
    }
}
