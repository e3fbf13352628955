//! The routes of `docs/formats/api.md`.
use super::answers::{Answers, Key};
use super::auth::Denied;
use super::guests::Guest;
use super::holders::{self, Holder, Wanted};
use super::{dumps, metrics, pages};
use crate::act::Acts;
use crate::alert::Alerts;
use crate::api::{CaseJson, CasesJson, ErrorJson, HealthJson, JobsJson, RanksJson, ReportJson};
use crate::book::{CaseBook, Filter};
use crate::case::BookState;
use crate::clock::Clock;
use crate::command::Command;
use crate::dump::Dumps;
use crate::expiry::Watched;
use crate::gates::Gates;
use crate::inbox::Inbox;
use crate::stats::Stats;
use crate::stored::Stored;
use crate::tokens::TokenBook;
use axum::extract::{
    Path, Query, RawPathParams, Request, State,
    rejection::{JsonRejection, PathRejection, QueryRejection, RawPathParamsRejection},
};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get as on_get, post as on_post};
use axum::{Extension, Router, http::HeaderValue};
use mycroft_diagnose::{Report, render};
use mycroft_record::JobName;
use mycroft_record::text::printable;
use mycroft_wire::{ListenerHandle, ServerTls};
use serde::Deserialize;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;

/// Items of a list when `limit` is not given.
const LIMIT_DEFAULT: usize = 100;
/// Most items of a list: 10,000 ranks at 300 bytes are 3 MB.
const LIMIT_MAX: usize = 10_000;
/// Longest name of who asks.
const WHO_CHARS_MAX: usize = 200;
/// How long a reader waits for the brain: a tick at 100,000 ranks may take five seconds (SPEC.md, "Root cause").
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// What the routes read.
pub(crate) struct Shared {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) book: Arc<CaseBook>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) clock: Clock,
    pub(crate) listeners: Arc<Mutex<Vec<ListenerHandle>>>,
    pub(crate) dumps: Arc<Dumps>,
    pub(crate) gates: Arc<Gates>,
    pub(crate) token: Option<String>,
    /// Tokens by name; none where no token is asked for, or there is no store.
    pub(crate) tokens: Option<Arc<TokenBook>>,
    pub(crate) alerts: Option<Arc<Alerts>>,
    pub(crate) acts: Arc<Acts>,
    /// A number for this run of the server: when it started.
    pub(crate) run: u64,
    /// Series of jobs that are not diagnosed.
    pub(crate) stored: Stored,
    /// Answers that others have asked for, too.
    pub(crate) answers: Answers,
    /// Who may act shows this.
    pub(crate) act_token: Option<String>,
    /// TLS of the HTTP address.
    pub(crate) http_tls: Option<Arc<ServerTls>>,
    /// Certificates that the server uses.
    pub(crate) certificates: Vec<Watched>,
}

/// A refusal: status and what the client is told.
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        // Names of agents and paths of clients are quoted in it.
        (self.0, Json(ErrorJson { error: printable(&self.1).into_owned() })).into_response()
    }
}

/// What was to be told failed.
pub(super) fn not_worked_out() -> Refusal {
    Refusal(StatusCode::INTERNAL_SERVER_ERROR, "the answer could not be worked out".to_owned())
}

pub(super) fn bad_request(text: impl Into<String>) -> Refusal {
    Refusal(StatusCode::BAD_REQUEST, text.into())
}

/// All routes, behind the checks: those of this file, others for readers, and more that check by themselves.
pub(crate) fn router(shared: Arc<Shared>, for_readers: Router<Arc<Shared>>, more: Router<Arc<Shared>>) -> Router {
    let guarded = Router::new()
        .route("/api/v1/jobs", on_get(jobs))
        .route("/api/v1/cases", on_get(cases))
        .route("/api/v1/cases/{id}", on_get(case))
        .route("/api/v1/report", on_get(report))
        .route("/api/v1/ranks", on_get(ranks))
        .route("/api/v1/health", on_get(health))
        .route("/api/v1/jobs/{job}/dumps", on_get(dumps::list).post(dumps::begin))
        .route("/api/v1/jobs/{job}/dumps/{id}", on_get(dumps::one))
        .route("/api/v1/jobs/{job}/dumps/{id}/files/{*path}", on_get(dumps::file))
        .route("/metrics", on_get(scrape))
        .route("/login", on_post(login))
        .merge(for_readers)
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), admit));
    Router::new()
        .route("/", on_get(pages::document))
        .route("/page/{name}", on_get(pages::file))
        .method_not_allowed_fallback(wrong_method)
        .merge(guarded)
        .merge(more)
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), finish))
        .with_state(shared)
}

/// Lets in who may read. Whoever has shown a token is a reader from then on, who has a place of his own.
async fn admit(
    State(shared): State<Arc<Shared>>,
    guest: Extension<Guest>,
    params: Params,
    mut request: Request,
    next: Next,
) -> Response {
    let holder = match holders::holder(shared.token.as_deref(), shared.tokens.as_deref(), request.headers(), true) {
        Ok(holder) => holder,
        Err(denied) => return deny(denied, denied.text()),
    };
    if !guest.become_reader() {
        let text = "too many readers are connected: close some, or try again in some seconds";
        return Refusal(StatusCode::SERVICE_UNAVAILABLE, text.to_owned()).into_response();
    }
    if let Err(text) = holder.may_ask(&wanted(&shared, &request, params)) {
        return Refusal(StatusCode::FORBIDDEN, text).into_response();
    }
    request.extensions_mut().insert(holder);
    next.run(request).await
}

/// Parts of the path by name.
pub(super) type Params = Result<RawPathParams, RawPathParamsRejection>;

/// What a request is about.
pub(super) fn wanted<'r>(shared: &Shared, request: &'r Request, params: Params) -> Wanted<'r> {
    let params = params.ok();
    let named =
        |wanted: &str| params.as_ref()?.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.to_owned());
    let (job, is_job) = (named("job"), request.uri().path().starts_with("/api/v1/jobs/"));
    let id = named("id").filter(|_| !is_job);
    let job_of_case = id.as_ref().and_then(|id| Some(shared.book.get(id.parse().ok()?)?.job.to_string()));
    Wanted { method: request.method(), uri: request.uri(), job, job_of_case, is_case: id.is_some() }
}

pub(super) fn deny(denied: Denied, text: &str) -> Response {
    let status = StatusCode::from_u16(denied.status()).unwrap_or(StatusCode::FORBIDDEN);
    let mut response = Refusal(status, text.to_owned()).into_response();
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"mycroft\""));
    }
    response
}

/// Counts the answer and adds the headers every answer has.
async fn finish(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    shared.stats.answered(response.status().as_u16());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(nothing);
    response
}

async fn unknown_path() -> Refusal {
    Refusal(StatusCode::NOT_FOUND, "no such path: GET / is the page, docs/formats/api.md lists the others".to_owned())
}

async fn wrong_method() -> Refusal {
    Refusal(StatusCode::METHOD_NOT_ALLOWED, "this API only reads: use GET".to_owned())
}

/// From here on the browser shows the token by itself.
async fn login(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Result<Response, Refusal> {
    let shown = holders::shown_token(&headers).filter(|_| shared.token.is_some());
    pages::login(shown.as_deref(), shared.http_tls.is_some()).map_err(bad_request)
}

/// `?limit=N`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    pub(super) limit: Option<usize>,
}

/// `?job=NAME&state=WORD&limit=N`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CasesQuery {
    job: Option<String>,
    state: Option<String>,
    limit: Option<usize>,
}

/// `?job=NAME&format=json|text&limit=N`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReportQuery {
    job: Option<String>,
    format: Option<String>,
    limit: Option<usize>,
}

/// `?job=NAME&order=rank|trouble&limit=N`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RanksQuery {
    job: Option<String>,
    order: Option<String>,
    limit: Option<usize>,
}

pub(super) type Asked<T> = Result<Query<T>, QueryRejection>;

/// The parameters, or what is wrong with them.
pub(super) fn parameters<T>(asked: Asked<T>, known: &str) -> Result<T, Refusal> {
    match asked {
        Ok(Query(query)) => Ok(query),
        Err(rejection) => Err(bad_request(format!("{}; this path knows {known}", rejection.body_text()))),
    }
}

/// What a path names, or that it names nothing.
pub(super) fn named<T>(asked: Result<Path<T>, PathRejection>) -> Result<T, Refusal> {
    let text = |rejection: PathRejection| format!("the path cannot be read: {}", rejection.body_text());
    asked.map(|Path(names)| names).map_err(|rejection| bad_request(text(rejection)))
}

/// Checks the name of who asks.
pub(super) fn who(name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.chars().count() > WHO_CHARS_MAX {
        return Err(bad_request(format!("who: say who asks, in at most {WHO_CHARS_MAX} characters")));
    }
    Ok(())
}

/// The body, or what is wrong with it.
pub(super) fn body<T>(request: Result<Json<T>, JsonRejection>) -> Result<T, Refusal> {
    request.map(|Json(request)| request).map_err(|rejection| bad_request(rejection.body_text()))
}

pub(super) fn list_limit(limit: Option<usize>) -> Result<usize, Refusal> {
    match limit {
        None => Ok(LIMIT_DEFAULT),
        Some(limit @ 1..=LIMIT_MAX) => Ok(limit),
        Some(limit) => Err(bad_request(format!("limit={limit}: expected 1 to {LIMIT_MAX}"))),
    }
}

async fn jobs(
    State(shared): State<Arc<Shared>>,
    holder: Extension<Holder>,
    asked: Asked<ListQuery>,
) -> Result<Json<JobsJson>, Refusal> {
    let limit = list_limit(parameters(asked, "limit")?.limit)?;
    let mut jobs = shared.stats.jobs();
    jobs.retain(|job| holder.sees(&job.name));
    let more = jobs.len().saturating_sub(limit) as u64;
    jobs.truncate(limit);
    Ok(Json(JobsJson { jobs, more }))
}

async fn cases(State(shared): State<Arc<Shared>>, asked: Asked<CasesQuery>) -> Result<Response, Refusal> {
    let query = parameters(asked, "job, state and limit")?;
    let limit = list_limit(query.limit)?;
    let state = query.state.map(|word| {
        let unknown = || bad_request(format!("state={word:?}: expected open, closed, stale or withdrawn"));
        BookState::from_text(&word).ok_or_else(unknown)
    });
    let filter = Filter { job: query.job.map(JobName::from), state: state.transpose()? };
    let (cases, more) = shared.book.list(&filter, limit);
    Ok(Json(CasesJson { cases: cases.iter().map(CaseJson::of).collect(), more }).into_response())
}

async fn case(State(shared): State<Arc<Shared>>, id: Result<Path<String>, PathRejection>) -> Result<Response, Refusal> {
    let Some(number) = id.ok().and_then(|Path(id)| id.parse::<u64>().ok()) else {
        return Err(bad_request("the part after /api/v1/cases/ must be a number, as GET /api/v1/cases lists them"));
    };
    match shared.book.get(number) {
        Some(case) => Ok(Json(CaseJson::of(&case)).into_response()),
        None => {
            let text = format!("no case {number} in memory: GET /api/v1/cases lists those there are");
            Err(Refusal(StatusCode::NOT_FOUND, text))
        }
    }
}

async fn report(State(shared): State<Arc<Shared>>, asked: Asked<ReportQuery>) -> Result<Response, Refusal> {
    let query = parameters(asked, "job, format and limit")?;
    let limit = query.limit.map_or(Ok(LIMIT_MAX), |limit| list_limit(Some(limit)))?;
    match query.format.as_deref() {
        None | Some("json") => {
            let report = ask_report(&shared, query.job).await?;
            Ok(Json(ReportJson::with_known(&report, limit, |number| shared.book.get(number))).into_response())
        }
        Some("text") => Ok(render(&*ask_report(&shared, query.job).await?).into_response()),
        Some(other) => Err(bad_request(format!("format={other:?}: expected json or text"))),
    }
}

async fn ranks(State(shared): State<Arc<Shared>>, asked: Asked<RanksQuery>) -> Result<Response, Refusal> {
    let query = parameters(asked, "job, order and limit")?;
    let limit = query.limit.map_or(Ok(LIMIT_MAX), |limit| list_limit(Some(limit)))?;
    let is_trouble_first = match query.order.as_deref() {
        None | Some("rank") => false,
        Some("trouble") => true,
        Some(other) => return Err(bad_request(format!("order={other:?}: expected rank or trouble"))),
    };
    let report = ask_report(&shared, query.job).await?;
    let key = Key::of_report(&report, limit, is_trouble_first);
    let told = shared.answers.told(key, move || RanksJson::of(&report, limit, is_trouble_first)).await;
    told.ok_or_else(not_worked_out)
}

/// The report of a job, of the only job when none is named.
pub(super) async fn ask_report(shared: &Shared, job: Option<String>) -> Result<Arc<Report>, Refusal> {
    let job = match job {
        Some(job) => job,
        None => only_job(shared)?,
    };
    let told = ask_brain(shared, |reply| Command::Report { job: job.as_str().into(), reply }).await?;
    told.ok_or_else(|| not_diagnosed(&job))
}

/// Asks the thread that owns the engines, which answers within some seconds or is busy.
pub(super) async fn ask_brain<T>(
    shared: &Shared,
    question: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Result<T, Refusal> {
    let (reply, answer) = oneshot::channel();
    let busy = || {
        let text = "diagnosis is busy: try again in a few seconds; GET /api/v1/health says how far behind it is";
        Refusal(StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
    };
    if !shared.inbox.ask(question(reply)) {
        return Err(busy());
    }
    match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(Ok(told)) => Ok(told),
        Ok(Err(_)) | Err(_) => Err(busy()),
    }
}

/// There is no such job.
pub(super) fn not_diagnosed(job: &str) -> Refusal {
    let text = format!("no job {job:?} is being diagnosed: GET /api/v1/jobs lists those there are");
    Refusal(StatusCode::NOT_FOUND, text)
}

fn only_job(shared: &Shared) -> Result<String, Refusal> {
    /// Names shown in the message.
    const SHOWN: usize = 8;
    let names: Vec<String> = shared.stats.jobs().into_iter().map(|job| job.name).collect();
    match &names[..] {
        [only] => Ok(only.clone()),
        [] => Err(Refusal(
            StatusCode::NOT_FOUND,
            "no job has been seen: check that an agent runs and connects here; GET /api/v1/health counts them".into(),
        )),
        many => {
            let shown = many.iter().take(SHOWN).map(|n| format!("{n:?}")).collect::<Vec<_>>().join(", ");
            Err(bad_request(format!("there are {} jobs: add ?job=NAME, one of {shown}", many.len())))
        }
    }
}

async fn health(State(shared): State<Arc<Shared>>) -> Json<HealthJson> {
    Json(shared.health())
}

async fn scrape(State(shared): State<Arc<Shared>>) -> (HeaderMap, String) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    (headers, metrics::text(&shared))
}
