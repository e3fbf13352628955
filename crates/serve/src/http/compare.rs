//! `GET /api/v1/compare`: how two windows differ, of one job or of two.
use super::routes::{Asked, Refusal, Shared, bad_request, list_limit, not_worked_out, parameters};
use super::series::{RANKS_DEFAULT, ask, window};
use crate::api::CompareJson;
use crate::series::SeriesKind;
use axum::extract::State;
use axum::response::Json;
use axum::{Router, routing::get as on_get};
use serde::Deserialize;
use std::sync::Arc;

/// The route.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/api/v1/compare", on_get(compare))
}

/// `?job=NAME&from=MS&to=MS&with=NAME&with_from=MS&with_to=MS&limit=N`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareQuery {
    job: String,
    from: Option<f64>,
    to: Option<f64>,
    with: Option<String>,
    with_from: Option<f64>,
    with_to: Option<f64>,
    limit: Option<usize>,
}

/// What is looked at, and what it is compared with; without a job of its own, the same.
async fn compare(State(shared): State<Arc<Shared>>, asked: Asked<CompareQuery>) -> Result<Json<CompareJson>, Refusal> {
    let query = parameters(asked, "job, from, to, with, with_from, with_to and limit")?;
    let times = window(query.from, query.to)?;
    let with_times = window(query.with_from, query.with_to)?;
    let limit = query.limit.map_or(Ok(RANKS_DEFAULT), |limit| list_limit(Some(limit)))?;
    let with = query.with.unwrap_or_else(|| query.job.clone());
    if with == query.job && times == with_times {
        return Err(bad_request(
            "with_from and with_to: say with which time of the job it is compared, or with which other job",
        ));
    }
    let after = ask(&shared, &query.job, SeriesKind::Ranks, times).await?.ranks.inside(times);
    let before = ask(&shared, &with, SeriesKind::Ranks, with_times).await?.ranks.inside(with_times);
    // Some ten milliseconds at 10,240 ranks.
    let work = move || CompareJson::of((&with, &before), (&query.job, &after), limit);
    tokio::task::spawn_blocking(work).await.map(Json).map_err(|_| not_worked_out())
}
