//! The routes of a job's series: its iterations, where the time of its ranks went, and what went between its hosts.
use super::answers::Key;
use super::routes::{Asked, Refusal, Shared, ask_brain, bad_request, list_limit, named, not_worked_out, parameters};
use crate::api::{IterationsJson, PathsJson, RankSeriesJson, TimeJson};
use crate::book::Filter;
use crate::command::Command;
use crate::series::{SeriesKind, SeriesTold};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{Json, Response};
use axum::{Router, routing::get as on_get};
use mycroft_record::{HostTime, JobName};
use serde::Deserialize;
use std::sync::Arc;

/// Points when `points` is not given: one a pixel of a page.
const POINTS_DEFAULT: usize = 1_000;
/// Cases that are bands, at most.
const BANDS_MAX: usize = 200;
/// Ranks or paths in full when `limit` is not given: what a person looks at.
pub(super) const RANKS_DEFAULT: usize = 64;

/// The routes.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/v1/jobs/{job}/iterations", on_get(iterations))
        .route("/api/v1/jobs/{job}/ranks/series", on_get(ranks))
        .route("/api/v1/jobs/{job}/paths", on_get(paths))
}

/// `?from=MS&to=MS&points=N`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IterationsQuery {
    from: Option<f64>,
    to: Option<f64>,
    points: Option<usize>,
}

/// `?from=MS&to=MS&limit=N`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RanksQuery {
    from: Option<f64>,
    to: Option<f64>,
    limit: Option<usize>,
}

/// A window of milliseconds since the epoch; without a bound, all there is on that side.
pub(super) fn window(from: Option<f64>, to: Option<f64>) -> Result<(HostTime, HostTime), Refusal> {
    let is_time = |ms: &f64| (0.0..1e15).contains(ms);
    if !from.iter().chain(&to).all(is_time) || from.zip(to).is_some_and(|(from, to)| from > to) {
        return Err(bad_request("from and to: expected milliseconds since the Unix epoch, from before to"));
    }
    let time = |ms: f64| HostTime((ms * 1e6) as u64);
    Ok((from.map_or(HostTime::NONE, time), to.map_or(HostTime(u64::MAX), time)))
}

/// What the loop knows of a job, or the store of one that is not diagnosed.
pub(super) async fn ask(
    shared: &Shared,
    job: &str,
    what: SeriesKind,
    (from, to): (HostTime, HostTime),
) -> Result<SeriesTold, Refusal> {
    if let Some(told) = ask_brain(shared, |reply| Command::Series { job: job.into(), what, from, to, reply }).await? {
        return Ok(*told);
    }
    let (stored, name) = (shared.stored.clone(), JobName::from(job));
    let read = tokio::task::spawn_blocking(move || stored.series(&name)).await.ok().flatten();
    read.map(|series| SeriesTold::of(&series, what, from, to)).ok_or_else(|| {
        let text = format!("no job {job:?} is being diagnosed or kept: GET /api/v1/jobs lists those there are");
        Refusal(StatusCode::NOT_FOUND, text)
    })
}

/// `GET /api/v1/jobs/JOB/iterations`.
async fn iterations(
    State(shared): State<Arc<Shared>>,
    job: Result<Path<String>, PathRejection>,
    asked: Asked<IterationsQuery>,
) -> Result<Json<IterationsJson>, Refusal> {
    let (job, query) = (named(job)?, parameters(asked, "from, to and points")?);
    let (from, to) = window(query.from, query.to)?;
    let points = query.points.map_or(Ok(POINTS_DEFAULT), |points| list_limit(Some(points)))?;
    let told = ask(&shared, &job, SeriesKind::Iterations, (from, to)).await?;
    let (mut cases, _) = shared.book.list(&Filter { job: Some(JobName::from(&*job)), state: None }, BANDS_MAX);
    cases.reverse();
    let as_of = TimeJson::exact((shared.clock)());
    Ok(Json(IterationsJson::of(&job, as_of, &told, points, &cases)))
}

/// `GET /api/v1/jobs/JOB/ranks/series`.
async fn ranks(
    State(shared): State<Arc<Shared>>,
    job: Result<Path<String>, PathRejection>,
    asked: Asked<RanksQuery>,
) -> Result<Response, Refusal> {
    let (job, told, limit) = means(&shared, job, asked, SeriesKind::Ranks).await?;
    let key = Key::new("ranks", &job, limit, &told.ranks.pieces);
    shared.answers.told(key, move || RankSeriesJson::of(&job, &told.ranks, limit)).await.ok_or_else(not_worked_out)
}

/// `GET /api/v1/jobs/JOB/paths`.
async fn paths(
    State(shared): State<Arc<Shared>>,
    job: Result<Path<String>, PathRejection>,
    asked: Asked<RanksQuery>,
) -> Result<Response, Refusal> {
    let (job, told, limit) = means(&shared, job, asked, SeriesKind::Paths).await?;
    let key = Key::new("paths", &job, limit, &told.paths.pieces);
    shared.answers.told(key, move || PathsJson::of(&job, &told.paths, limit)).await.ok_or_else(not_worked_out)
}

/// What the loop knows of the window that is asked for.
async fn means(
    shared: &Shared,
    job: Result<Path<String>, PathRejection>,
    asked: Asked<RanksQuery>,
    what: SeriesKind,
) -> Result<(String, SeriesTold, usize), Refusal> {
    let (job, query) = (named(job)?, parameters(asked, "from, to and limit")?);
    let window = window(query.from, query.to)?;
    let limit = query.limit.map_or(Ok(RANKS_DEFAULT), |limit| list_limit(Some(limit)))?;
    let told = ask(shared, &job, what, window).await?;
    Ok((job, told, limit))
}
