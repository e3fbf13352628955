//! Routes that act, for who shows the token that acts; and the audit log, for readers.
use super::guests::Guest;
use super::routes::{
    Asked, Params, Refusal, Shared, ask_report, bad_request, body, deny, list_limit, named, parameters, wanted, who,
};
use super::{gates, holders};
use crate::act::plan as plans;
use crate::api::{
    ActRequest, ActionJson, ActionsJson, AutoRequest, CaseJson, PlanJson, PlanRequest, PolicyJson, ValidationJson,
};
use crate::case::Validation;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get as on_get, post as on_post};
use axum::{Extension, Router};
use serde::Deserialize;
use std::sync::Arc;
use tracing::info;

/// Largest request: a layout, and the names of some hundred spare hosts.
const BODY_BYTES_MAX: usize = 64 << 10;

/// The routes of the audit log and of plans, behind the readers' checks.
pub(super) fn for_readers() -> Router<Arc<Shared>> {
    Router::new().route("/api/v1/actions", on_get(list)).route("/api/v1/plan", on_get(plan))
}

/// The routes that act.
pub(super) fn router(shared: &Arc<Shared>) -> Router<Arc<Shared>> {
    Router::new()
        .route("/api/v1/jobs/{job}/actions", on_post(act))
        .route("/api/v1/jobs/{job}/auto", on_post(allow))
        .route("/api/v1/cases/{id}/validation", on_post(validated))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .merge(gates::routes())
        .layer(middleware::from_fn_with_state(Arc::clone(shared), admit))
}

/// Lets in who may act: only with the token in the header. A browser's cookie is for reading.
async fn admit(
    State(shared): State<Arc<Shared>>,
    guest: Extension<Guest>,
    params: Params,
    request: Request,
    next: Next,
) -> Response {
    let Some(token) = shared.act_token.as_deref() else {
        let text = "this server does not act: start it with --act-token-file and --act-dir";
        return Refusal(StatusCode::FORBIDDEN, text.to_owned()).into_response();
    };
    let holder = match holders::holder(Some(token), shared.tokens.as_deref(), request.headers(), false) {
        Ok(holder) => holder,
        Err(denied) => return deny(denied, "this needs the token that acts, which is not the readers'"),
    };
    if let Err(text) = holder.may_act(&wanted(&shared, &request, params)) {
        return Refusal(StatusCode::FORBIDDEN, text).into_response();
    }
    if !guest.become_reader() {
        return Refusal(StatusCode::SERVICE_UNAVAILABLE, "too many readers are connected".to_owned()).into_response();
    }
    next.run(request).await
}

/// `?job=NAME&limit=N`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionsQuery {
    job: Option<String>,
    limit: Option<usize>,
}

/// The audit log.
async fn list(State(shared): State<Arc<Shared>>, asked: Asked<ActionsQuery>) -> Result<Json<ActionsJson>, Refusal> {
    let query = parameters(asked, "job and limit")?;
    let limit = list_limit(query.limit)?;
    blocking(move || Ok(shared.acts.list(query.job.as_deref(), limit))).await
}

/// What may be done against slowness.
async fn plan(State(shared): State<Arc<Shared>>, asked: Asked<PlanRequest>) -> Result<Json<PlanJson>, Refusal> {
    let query = parameters(asked, plans::KNOWN)?;
    plans::told(&query).map_err(bad_request)?;
    let report = ask_report(&shared, query.job.clone()).await?;
    blocking(move || shared.acts.plan(&report, &query)).await
}

/// Carries out what is due, or takes back what is in force.
async fn act(
    State(shared): State<Arc<Shared>>,
    job: Result<Path<String>, PathRejection>,
    request: Result<Json<ActRequest>, JsonRejection>,
) -> Result<Json<ActionJson>, Refusal> {
    let (job, request) = (named(job)?, body(request)?);
    who(&request.who)?;
    let report = ask_report(&shared, Some(job)).await?;
    blocking(move || shared.acts.act(&report, &request)).await
}

/// Says what may be done without asking.
async fn allow(
    State(shared): State<Arc<Shared>>,
    job: Result<Path<String>, PathRejection>,
    request: Result<Json<AutoRequest>, JsonRejection>,
) -> Result<Json<PolicyJson>, Refusal> {
    let (job, request) = (named(job)?, body(request)?);
    who(&request.who)?;
    // Known jobs only: a name that was mistyped would wait for ever.
    ask_report(&shared, Some(job.clone())).await?;
    blocking(move || shared.acts.allow(&job, request)).await
}

/// Takes what a test of a case's suspects said.
async fn validated(
    State(shared): State<Arc<Shared>>,
    number: Result<Path<u64>, PathRejection>,
    request: Result<Json<ValidationJson>, JsonRejection>,
) -> Result<Json<CaseJson>, Refusal> {
    let (number, request) = (named(number)?, body(request)?);
    who(&request.who)?;
    let told = request
        .told()
        .ok_or_else(|| bad_request("a word of another version: outcome, category or a suspect's kind"))?;
    let now = (shared.clock)();
    let taken = shared.book.validate(number, |case| Validation { at: now, revisions: case.case.revisions, ..told });
    let no_case = || {
        Refusal(
            StatusCode::NOT_FOUND,
            format!("no open case {number}: GET /api/v1/cases?state=open lists those there are"),
        )
    };
    let case = taken.ok_or_else(no_case)?;
    info!(case = number, outcome = request.outcome, "case {number} was tested by {}: {}", request.who, request.outcome);
    Ok(Json(CaseJson::of(&case)))
}

/// Waits for a disk elsewhere than on the thread that answers.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::act::Declined> + Send + 'static,
) -> Result<Json<T>, Refusal> {
    let failed =
        |_| Refusal(StatusCode::INTERNAL_SERVER_ERROR, "the action failed inside the server: see its log".to_owned());
    let outcome = tokio::task::spawn_blocking(work).await.map_err(failed)?;
    outcome.map(Json).map_err(|(status, text)| Refusal(status, text))
}
