//! Client of the server's HTTP API (docs/formats/api.md). Answers are read as the shapes that the server writes.
use crate::secure::believed;
use crate::token::TokenArgs;
use mycroft_record::text::{printable, printable_within};
use mycroft_serve::api::ErrorJson;
use serde::{Serialize, de::DeserializeOwned};
use std::path::PathBuf;
use std::time::Duration;

/// The default of `--url`.
pub(crate) const OWN_URL: &str = "http://127.0.0.1:7701";

/// Which server, and the token for it.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ServerArgs {
    /// HTTP address of the server.
    #[arg(long, env = "MYCROFT_URL", default_value = OWN_URL)]
    pub(crate) url: String,
    /// Certificate authority (PEM) of a server whose address begins with https://; default the public ones.
    #[arg(long, env = "MYCROFT_URL_CA", value_name = "FILE")]
    pub(crate) url_ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
}

/// Longest time a request may take: the server is near, and a person waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest file taken: what an agent sends at most of one dump, 64 MiB.
const BODY_BYTES_MAX: u64 = 64 << 20;
/// Of an answer that is no error of ours, what is shown.
const SHOWN_CHARS: usize = 200;
/// The status of an answer to somebody without the token, or with another.
const UNAUTHORIZED: u16 = 401;

/// Why a server gave no answer that is of use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    /// Nobody answers.
    #[error("no answer from {url}: is `mycroft serve` running there (see --url)?: {source}")]
    Unreachable { url: String, source: Box<ureq::Error> },
    /// It shows a certificate that is not believed, or speaks no TLS.
    #[error(
        "{url}: {source}: give its certificate authority with --url-ca, and its name as the certificate has it with --url"
    )]
    Tls { url: String, source: Box<ureq::Error> },
    /// The answer broke off, or is too large.
    #[error("{url}: the answer broke off: {source}")]
    BrokeOff { url: String, source: Box<ureq::Error> },
    /// It wants a token, or another one.
    #[error("{url} answered {status}: {said}", status = UNAUTHORIZED)]
    Token { url: String, said: String },
    /// It refuses.
    #[error("{url} answered {status}: {said}")]
    Refused { url: String, status: u16, said: String },
    /// Another program answers, or a server of a version that tells otherwise.
    #[error("{url} answered something that this version does not understand: {source}")]
    NotUnderstood { url: String, source: serde_json::Error },
}

/// A server to ask.
pub(crate) struct Api {
    url: String,
    token: Option<String>,
    agent: ureq::Agent,
}

impl Api {
    /// A client for the server that was named on the command line.
    ///
    /// # Errors
    /// When the file with the token, or with the authority, cannot be read.
    pub(crate) fn new(args: &ServerArgs) -> anyhow::Result<Api> {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(REQUEST_TIMEOUT))
            .http_status_as_error(false)
            .tls_config(believed(args.url_ca.as_ref())?)
            .build();
        Ok(Api { url: args.url.trim_end_matches('/').to_owned(), token: args.token.read()?, agent: config.into() })
    }

    /// GET of a path such as `/api/v1/cases?job=x`.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.understood(path, &self.bytes(path)?)
    }

    /// POST without a body.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.posted(path, self.token.as_deref(), |request| request.send_empty())
    }

    /// POST of JSON, with the readers' token.
    ///
    /// # Errors
    /// What the server says, or that it does not answer.
    pub(crate) fn say<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ApiError> {
        self.act(path, self.token.as_deref(), body)
    }

    /// POST of JSON, with the token that acts.
    ///
    /// # Errors
    /// What the server says, or that it does not answer.
    pub(crate) fn act<T: DeserializeOwned>(
        &self,
        path: &str,
        token: Option<&str>,
        body: &impl Serialize,
    ) -> Result<T, ApiError> {
        // Numbers, strings and lists only: serde_json has no way to fail on them.
        let body = serde_json::to_vec(body).unwrap_or_default();
        self.posted(path, token, |request| request.header("Content-Type", "application/json").send(&body))
    }

    fn posted<T: DeserializeOwned>(
        &self,
        path: &str,
        token: Option<&str>,
        send: impl FnOnce(
            ureq::RequestBuilder<ureq::typestate::WithBody>,
        ) -> Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<T, ApiError> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.post(&url);
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let body = taken(&url, send(request))?;
        self.understood(path, &body)
    }

    /// GET as text.
    pub(crate) fn text(&self, path: &str) -> Result<String, ApiError> {
        Ok(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    /// GET of a file.
    pub(crate) fn bytes(&self, path: &str) -> Result<Vec<u8>, ApiError> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.get(&url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        taken(&url, request.call())
    }

    fn understood<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, ApiError> {
        let url = || format!("{}{path}", self.url);
        serde_json::from_slice(body).map_err(|source| ApiError::NotUnderstood { url: url(), source })
    }
}

/// Whether a server answers, and TLS does not let us talk with it.
fn is_of_tls(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) => true,
        // What TLS finds while it reads.
        ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}

/// The body of a success, or what the server said.
fn taken(url: &str, answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Vec<u8>, ApiError> {
    let url = || printable(url).into_owned();
    let mut response = answer.map_err(|source| {
        let (url, is_tls, source) = (url(), is_of_tls(&source), Box::new(source));
        if is_tls { ApiError::Tls { url, source } } else { ApiError::Unreachable { url, source } }
    })?;
    let body = response.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec();
    let body = body.map_err(|source| ApiError::BrokeOff { url: url(), source: Box::new(source) })?;
    let status = response.status();
    if status.is_success() {
        return Ok(body);
    }
    let said = match serde_json::from_slice::<ErrorJson>(&body) {
        Ok(ErrorJson { error }) => printable(&error).into_owned(),
        Err(_) => printable_within(&String::from_utf8_lossy(&body), SHOWN_CHARS).into_owned(),
    };
    Err(match status.as_u16() {
        UNAUTHORIZED => ApiError::Token { url: url(), said },
        status => ApiError::Refused { url: url(), status, said },
    })
}

/// A name as part of a path or as a query value.
pub(crate) fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}
