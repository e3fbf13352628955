//! ClickHouse's HTTP interface: a statement in, rows out. Each call waits so long at most and is not tried again here.
use super::address::ClickHouseAt;
use super::error::RecordsError;
use mycroft_record::text::printable_within;
use mycroft_wire::trusted::{self, Holds};
use std::io::Read;
use std::time::Duration;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Longest wait for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Longest wait for an answer's head: a piece of a segment is written within a second by a server that is not overloaded.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Longest wait for all of a segment.
const READ_LIMIT: Duration = Duration::from_secs(300);
/// Of an answer to a statement, what is taken.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Of a refusal, what is told.
const SHOWN_CHARS: usize = 300;

/// A server to ask.
pub(super) struct Link {
    at: ClickHouseAt,
    url: String,
    agent: ureq::Agent,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Link {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// The file of the authority cannot be used.
    pub(super) fn new(at: &ClickHouseAt) -> Result<Link, RecordsError> {
        let scheme = if at.ca_pem.is_some() { "https" } else { "http" };
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(CONNECT_LIMIT))
            .timeout_send_body(Some(ANSWER_LIMIT))
            .timeout_recv_response(Some(ANSWER_LIMIT))
            .timeout_recv_body(Some(READ_LIMIT))
            .http_status_as_error(false)
            .proxy(None)
            .tls_config(believed(at)?)
            .build();
        let url = format!("{scheme}://{}:{}/?database={}", at.host, at.port, at.database);
        Ok(Link { at: at.clone(), url, agent: config.into() })
    }

    /// Which server, for people.
    pub(super) fn shown(&self) -> String {
        self.at.to_string()
    }

    /// Runs a statement; what it answers as text.
    ///
    /// # Errors
    /// The server is away or refuses.
    pub(super) fn ask(&self, operation: &'static str, statement: &str) -> Result<String, RecordsError> {
        let mut text = String::new();
        let body = self.send(operation, &self.url, statement.as_bytes())?;
        let read = body.take(ANSWER_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| self.failed(operation, error.to_string()))?;
        Ok(text)
    }

    /// The rows of a statement as they come.
    ///
    /// # Errors
    /// As `ask`; what breaks off shows where it is read.
    pub(super) fn rows(&self, operation: &'static str, statement: &str) -> Result<impl Read + use<>, RecordsError> {
        self.send(operation, &self.url, statement.as_bytes())
    }

    /// Writes rows; all are there when this returns.
    ///
    /// # Errors
    /// As `ask`. Some of the rows may be there then.
    pub(super) fn insert(&self, operation: &'static str, statement: &str, rows: &[u8]) -> Result<(), RecordsError> {
        let url = format!("{}&query={}", self.url, escaped(statement));
        let mut end = Vec::new();
        let read = self.send(operation, &url, rows)?.take(ANSWER_BYTES_MAX).read_to_end(&mut end);
        read.map(drop).map_err(|error| self.failed(operation, error.to_string()))
    }

    fn send(&self, operation: &'static str, url: &str, body: &[u8]) -> Result<impl Read + use<>, RecordsError> {
        let mut request = self.agent.post(url).header("X-ClickHouse-User", &self.at.user);
        if let Some(password) = &self.at.password {
            request = request.header("X-ClickHouse-Key", password);
        }
        let look = "look whether it runs and is reachable";
        let answer = request.send(body).map_err(|error| self.failed(operation, format!("{error}; {look}")))?;
        let status = answer.status();
        let mut body = answer.into_body().into_with_config().limit(u64::MAX).reader();
        if status.is_success() {
            return Ok(body);
        }
        let mut said = Vec::new();
        // Whatever can be read of a refusal is better than nothing.
        let _ = body.by_ref().take(4096).read_to_end(&mut said);
        let said = printable_within(String::from_utf8_lossy(&said).trim(), SHOWN_CHARS).into_owned();
        let hint = match status.as_u16() {
            401 | 403 | 516 => "; look at the user and --records-password-file",
            _ => "",
        };
        Err(self.failed(operation, format!("it answered {}: {said}{hint}", status.as_u16())))
    }

    /// An error of this server.
    pub(super) fn failed(&self, operation: &'static str, reason: String) -> RecordsError {
        RecordsError::Server { operation, at: self.shown(), reason }
    }
}

/// Whom the server must be signed by.
fn believed(at: &ClickHouseAt) -> Result<TlsConfig, RecordsError> {
    let Some(path) = &at.ca_pem else { return Ok(TlsConfig::default()) };
    let refused = |why: String| {
        let path = path.display();
        RecordsError::Address(format!(
            "--records-ca {path}: {why}; expected a PEM file with certificates of an authority"
        ))
    };
    let pem = trusted::read(path, Holds::Public).map_err(|error| refused(error.to_string()))?;
    let mut certificates: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| refused(error.to_string()))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(refused("no certificate inside".to_owned()));
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&certificates)).build())
}

/// A statement as a value of a query.
fn escaped(text: &str) -> String {
    let each = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(each).collect()
}
