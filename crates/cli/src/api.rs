//! Client of the server's HTTP API (docs/formats/api.md).
use crate::args::ServerArgs;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::time::Duration;

/// Longest time a request may take: the server is near, and a person waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest file taken: what an agent sends at most of one dump, 64 MiB.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// A server to ask.
pub(crate) struct Api {
    url: String,
    token: Option<String>,
    agent: ureq::Agent,
}

impl Api {
    /// A client for the server that was named on the command line.
    pub(crate) fn new(args: &ServerArgs) -> Api {
        let config =
            ureq::Agent::config_builder().timeout_global(Some(REQUEST_TIMEOUT)).http_status_as_error(false).build();
        Api { url: args.url.trim_end_matches('/').to_owned(), token: args.token.clone(), agent: config.into() }
    }

    /// GET of a path such as `/api/v1/cases?job=x`, as text.
    pub(crate) fn text(&self, path: &str) -> Result<String> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.get(&url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut response = request
            .call()
            .with_context(|| format!("no answer from {url}: is `mycroft serve` running there (see --url)?"))?;
        let status = response.status();
        let body = response.body_mut().read_to_string().with_context(|| format!("{url}: the answer broke off"))?;
        if !status.is_success() {
            let said = serde_json::from_str::<Value>(&body).ok();
            let said = said.as_ref().and_then(|value| value["error"].as_str()).unwrap_or(&body).to_owned();
            bail!("{url} answered {status}: {said}");
        }
        Ok(body)
    }

    /// POST without a body, as JSON.
    pub(crate) fn post(&self, path: &str) -> Result<Value> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.post(&url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let response = request
            .send_empty()
            .with_context(|| format!("no answer from {url}: is `mycroft serve` running there (see --url)?"))?;
        let body = Api::taken(&url, response)?;
        serde_json::from_slice(&body).with_context(|| format!("{url} answered something that is not JSON"))
    }

    /// GET of a file.
    pub(crate) fn bytes(&self, path: &str) -> Result<Vec<u8>> {
        let url = format!("{}{path}", self.url);
        let mut request = self.agent.get(&url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let response = request.call().with_context(|| format!("no answer from {url}"))?;
        Api::taken(&url, response)
    }

    /// The body of a success, or what the server said.
    fn taken(url: &str, mut response: ureq::http::Response<ureq::Body>) -> Result<Vec<u8>> {
        let body = response.body_mut().with_config().limit(BODY_BYTES_MAX).read_to_vec();
        let body = body.with_context(|| format!("{url}: the answer broke off"))?;
        let status = response.status();
        if !status.is_success() {
            let said = serde_json::from_slice::<Value>(&body).ok();
            let text = String::from_utf8_lossy(&body);
            let said = said.as_ref().and_then(|value| value["error"].as_str()).unwrap_or(&text).to_owned();
            bail!("{url} answered {status}: {said}");
        }
        Ok(body)
    }

    /// GET as JSON.
    pub(crate) fn json(&self, path: &str) -> Result<Value> {
        let body = self.text(path)?;
        serde_json::from_str(&body).with_context(|| format!("{}{path} answered something that is not JSON", self.url))
    }
}

/// A list that the server wraps in an object (`{"cases": [...]}`) or gives bare.
pub(crate) fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).or(Some(value)).and_then(Value::as_array).map_or(&[], Vec::as_slice)
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
