//! The routes of live captures: list, begin, look, fetch a file.
use super::routes::{Asked, ListQuery, Refusal, Shared, bad_request, list_limit, named, parameters};
use crate::api::{DumpJson, DumpsJson};
use crate::dump::{NotBegun, Wish};
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Json;
use serde::Deserialize;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Files read at once for readers: 4 x 64 MiB.
static FILE_ROOM: Semaphore = Semaphore::const_new(4);

/// `?stacks=true&flight_recorder=true`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BeginQuery {
    stacks: Option<bool>,
    flight_recorder: Option<bool>,
}

fn no_dump(job: &str, id: &str) -> Refusal {
    let text = format!("no capture {id} of job {job:?}: GET /api/v1/jobs/JOB/dumps lists those there are");
    Refusal(StatusCode::NOT_FOUND, text)
}

/// The captures of a job.
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    job: Result<Path<String>, PathRejection>,
    asked: Asked<ListQuery>,
) -> Result<Json<DumpsJson>, Refusal> {
    let job = named(job)?;
    let limit = list_limit(parameters(asked, "limit")?.limit)?;
    Ok(Json(shared.dumps.list(&job, limit)))
}

/// Begins a capture.
pub(super) async fn begin(
    State(shared): State<Arc<Shared>>,
    job: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    asked: Asked<BeginQuery>,
) -> Result<(StatusCode, Json<DumpJson>), Refusal> {
    refuse_foreign_page(&headers)?;
    let job = named(job)?;
    let asked = parameters(asked, "stacks and flight_recorder")?;
    if !shared.stats.jobs().iter().any(|known| known.name == job) {
        let text = format!("no job {job:?}: GET /api/v1/jobs lists those there are");
        return Err(Refusal(StatusCode::NOT_FOUND, text));
    }
    let on = |wished: Option<bool>| wished.unwrap_or(true);
    let wish = Wish { stacks: on(asked.stacks), flight_recorder: on(asked.flight_recorder), case: None };
    let id = shared.dumps.begin(&job, wish).map_err(|why| {
        let status = match why {
            NotBegun::Nothing => StatusCode::BAD_REQUEST,
            NotBegun::Running => StatusCode::CONFLICT,
            NotBegun::Busy | NotBegun::NoPlace(_) | NotBegun::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        };
        Refusal(status, why.to_string())
    })?;
    let dump = shared.dumps.get(&job, id).ok_or_else(|| no_dump(&job, &id.to_string()))?;
    Ok((StatusCode::ACCEPTED, Json(dump)))
}

/// A page of another site can make a browser post here, though not read the answer; browsers say which page it was.
pub(super) fn refuse_foreign_page(headers: &HeaderMap) -> Result<(), Refusal> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    if origin.is_some() && origin == text(header::HOST) {
        return Ok(());
    }
    Err(Refusal(StatusCode::FORBIDDEN, "a page of another site may not ask for this".to_owned()))
}

/// One capture.
pub(super) async fn one(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<DumpJson>, Refusal> {
    let (job, id) = named(path)?;
    let dump = id.parse().ok().and_then(|number| shared.dumps.get(&job, number));
    dump.map(Json).ok_or_else(|| no_dump(&job, &id))
}

/// A file of a capture.
pub(super) async fn file(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<(String, String, String)>, PathRejection>,
) -> Result<(HeaderMap, Bytes), Refusal> {
    let (job, id, path) = named(path)?;
    let Ok(number) = id.parse() else { return Err(bad_request("the part after /dumps/ must be a number")) };
    let gone = || {
        let text = format!("no file {path:?} in capture {id} of job {job:?}: GET /api/v1/jobs/JOB/dumps/ID lists them");
        Refusal(StatusCode::NOT_FOUND, text)
    };
    let place = shared.dumps.file(&job, number, &path).ok_or_else(gone)?;
    // The semaphore is never closed.
    let _room = FILE_ROOM.acquire().await;
    let read = tokio::task::spawn_blocking(move || std::fs::read(place)).await;
    let bytes = read.ok().and_then(Result::ok).ok_or_else(gone)?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/octet-stream"));
    Ok((headers, Bytes::from(bytes)))
}
