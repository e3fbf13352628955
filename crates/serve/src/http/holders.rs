//! Whom a request comes from, and what that one may ask for.
use super::auth::{self, Denied};
use crate::tokens::{NamedToken, Role, Shown, TokenBook};
use axum::extract::Query;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use std::sync::Arc;

/// Paths that a token for some jobs may ask without naming one: what they tell is of no job, or is filtered.
const OF_NO_JOB: &[&str] = &["/api/v1/jobs", "/api/v1/health", "/api/v1/fleet", "/login"];

/// Who has shown a token. `None`: no token is asked for, or the server's own was shown.
#[derive(Clone)]
pub(super) struct Holder(Option<Arc<NamedToken>>);

/// What a request is about.
pub(super) struct Wanted<'r> {
    pub(super) method: &'r Method,
    pub(super) uri: &'r Uri,
    /// The job in the path, decoded.
    pub(super) job: Option<String>,
    /// The job of the case in the path; of a case that is not there, none.
    pub(super) job_of_case: Option<String>,
    /// It names a case.
    pub(super) is_case: bool,
}

/// What was shown: the header, or in a browser the cookie that stands for it.
fn shown(headers: &HeaderMap, with_cookie: bool) -> Option<Vec<u8>> {
    let header = |name: HeaderName| headers.get(name).map(HeaderValue::as_bytes);
    let cookie = || header(header::COOKIE).filter(|_| with_cookie).and_then(auth::from_cookie);
    header(header::AUTHORIZATION).map(<[u8]>::to_vec).or_else(cookie)
}

/// The token that was shown.
pub(super) fn shown_token(headers: &HeaderMap) -> Option<String> {
    shown(headers, true).and_then(|shown| String::from_utf8(auth::bearer(&shown)?.to_vec()).ok())
}

/// Who asks, of a server with this token and tokens by name.
///
/// # Errors
/// Nobody that is known here.
pub(super) fn holder(
    token: Option<&str>,
    book: Option<&TokenBook>,
    headers: &HeaderMap,
    with_cookie: bool,
) -> Result<Holder, Denied> {
    let shown = shown(headers, with_cookie);
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    match auth::check(token, shown.as_deref(), host) {
        Ok(()) => Ok(Holder(None)),
        Err(Denied::WrongToken) => match shown.as_deref().and_then(auth::bearer).and_then(|token| book?.find(token)) {
            Some(Shown::Good(named)) => Ok(Holder(Some(named))),
            Some(Shown::Expired(_)) => Err(Denied::ExpiredToken),
            None => Err(Denied::WrongToken),
        },
        Err(other) => Err(other),
    }
}

impl Holder {
    /// Whether what was shown holds still.
    pub(super) fn holds(&self, book: Option<&TokenBook>) -> bool {
        self.0.as_ref().is_none_or(|named| book.is_some_and(|book| book.holds(named)))
    }

    /// Whether what this job does may be told.
    pub(super) fn sees(&self, job: &str) -> bool {
        self.0.as_ref().is_none_or(|named| named.jobs.is_empty() || named.jobs.iter().any(|own| own == job))
    }

    /// Whether a reader's route may answer.
    ///
    /// # Errors
    /// What the holder may not, and what would be needed.
    pub(super) fn may_ask(&self, wanted: &Wanted<'_>) -> Result<(), String> {
        let Some(named) = &self.0 else { return Ok(()) };
        let name = &named.name;
        let only_reads = matches!(*wanted.method, Method::GET | Method::HEAD) || wanted.uri.path() == "/login";
        match named.role {
            Role::Agent => return Err(format!("the token {name} is an agent's: it sends records and reads nothing")),
            Role::Reader if !only_reads => {
                return Err(format!("the token {name} has the role reader: this needs the role operator"));
            }
            Role::Reader | Role::Operator | Role::Admin => {}
        }
        self.may_see(named, wanted)
    }

    /// Whether a route that acts may.
    ///
    /// # Errors
    /// What the holder may not, and what would be needed.
    pub(super) fn may_act(&self, wanted: &Wanted<'_>) -> Result<(), String> {
        let Some(named) = &self.0 else { return Ok(()) };
        if named.role != Role::Admin {
            return Err(format!("the token {} has the role {}: this needs the role admin", named.name, named.role));
        }
        self.may_see(named, wanted)
    }

    /// A token for some jobs asks for one of these: in the path, by a case, or as `?job=`.
    fn may_see(&self, named: &NamedToken, wanted: &Wanted<'_>) -> Result<(), String> {
        if named.jobs.is_empty() || OF_NO_JOB.contains(&wanted.uri.path()) {
            return Ok(());
        }
        let query = Query::<Vec<(String, String)>>::try_from_uri(wanted.uri).map(|Query(pairs)| pairs);
        let query = query.map_err(|_| "the parameters cannot be read".to_owned())?;
        let of_query = query.into_iter().filter(|(key, _)| matches!(key.as_str(), "job" | "with"));
        let asked: Vec<String> =
            of_query.map(|(_, job)| job).chain(wanted.job.clone()).chain(wanted.job_of_case.clone()).collect();
        let own = named.jobs.join(", ");
        if let Some(foreign) = asked.iter().find(|job| !self.sees(job)) {
            return Err(format!("the token {} is for the jobs {own}, and not for {foreign:?}", named.name));
        }
        if asked.is_empty() && !wanted.is_case {
            return Err(format!(
                "the token {} is for the jobs {own}: ask for one of them, as with ?job=NAME",
                named.name
            ));
        }
        Ok(())
    }
}
