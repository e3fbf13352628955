//! What people say of a case, for readers: that they look after it, that it is to be quiet for a while, what they found.
use super::dumps::refuse_foreign_page;
use super::routes::{Refusal, Shared, bad_request, body, named, who};
use crate::api::{CaseJson, NoteRequest};
use crate::book::{Change, NotTaken};
use crate::case::Note;
use axum::Router;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Json;
use axum::routing::post as on_post;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use std::sync::Arc;
use tracing::info;

/// Largest request: the longest text, each character escaped.
const BODY_BYTES_MAX: usize = 32 << 10;
/// Longest text: a screen.
const TEXT_CHARS_MAX: usize = 2_000;
/// Longest silence: a fault that nobody repairs in a week is told again.
const SILENCE_S_MAX: u64 = 7 * 24 * 3600;

/// The route.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/api/v1/cases/{id}/notes", on_post(note)).layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// Takes a note.
async fn note(
    State(shared): State<Arc<Shared>>,
    number: Result<Path<u64>, PathRejection>,
    headers: HeaderMap,
    request: Result<Json<NoteRequest>, JsonRejection>,
) -> Result<Json<CaseJson>, Refusal> {
    refuse_foreign_page(&headers)?;
    let (number, request) = (named(number)?, body(request)?);
    who(&request.who)?;
    let note = checked(request, (shared.clock)())?;
    let told = note.clone();
    let case = shared.book.note(number, note).map_err(|why| refusal(number, why))?;
    if told.acknowledges {
        info!(case = number, "case {number} is looked after by {}", told.who);
        if let Some(alerts) = shared.alerts.as_ref().filter(|_| !case.is_silent(told.at)) {
            alerts.post(Change::Acknowledged, case.clone());
        }
    }
    Ok(Json(CaseJson::of(&case)))
}

fn checked(request: NoteRequest, now: HostTime) -> Result<Note, Refusal> {
    let NoteRequest { who, text, acknowledge, silence_s } = request;
    if text.chars().count() > TEXT_CHARS_MAX {
        return Err(bad_request(format!("text: at most {TEXT_CHARS_MAX} characters")));
    }
    if text.is_empty() && !acknowledge && silence_s.is_none() {
        return Err(bad_request("say at least one of text, acknowledge and silence_s"));
    }
    if silence_s.is_some_and(|seconds| seconds > SILENCE_S_MAX) {
        return Err(bad_request(format!("silence_s: at most {SILENCE_S_MAX}, a week")));
    }
    let silent_until = silence_s.map(|seconds| HostTime(now.0.saturating_add(seconds * NANOS_PER_SEC)));
    Ok(Note { at: now, who, text, acknowledges: acknowledge, silent_until })
}

fn refusal(number: u64, why: NotTaken) -> Refusal {
    match why {
        NotTaken::NoCase => Refusal(
            StatusCode::NOT_FOUND,
            format!("no case {number} in memory: GET /api/v1/cases lists those there are"),
        ),
        NotTaken::NotOpen => {
            Refusal(StatusCode::CONFLICT, format!("case {number} is not open: only a text can be added"))
        }
        NotTaken::TooMany => Refusal(StatusCode::CONFLICT, format!("case {number} has as many notes as are kept")),
    }
}
