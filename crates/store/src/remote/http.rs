//! ClickHouse's HTTP interface: a statement in, rows out. Each call waits so long at most and is not tried again here.
use super::address::ClickHouseAt;
use super::error::RecordsError;
use mycroft_record::text::printable_within;
use mycroft_wire::trusted::{self, Holds};
use std::io::{ErrorKind, Read};
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

/// Where TLS does not come about.
const NOT_BELIEVED: &str = "look whether --records-ca is its authority, the host in the URL a name in its certificate, and the port that of \
                            HTTPS (8443)";

/// Where something else than HTTP answers, as a port of TLS does.
const NO_HTTP: &str = "look whether the port is that of its HTTP interface (8123); where it speaks TLS there, name its authority \
                       (--records-ca)";
const CUT_OFF: [ErrorKind; 3] = [ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe];

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
        let answer = request
            .send(body)
            .map_err(|error| self.failed(operation, format!("{error}; {}", self.to_look_at(&error))))?;
        let status = answer.status();
        let mut body = answer.into_body().into_with_config().limit(u64::MAX).reader();
        if status.is_success() {
            return Ok(body);
        }
        let mut said = Vec::new();
        // Whatever can be read of a refusal is better than nothing.
        let _ = body.by_ref().take(4096).read_to_end(&mut said);
        let said = printable_within(String::from_utf8_lossy(&said).trim(), SHOWN_CHARS).into_owned();
        let remedy = remedy(status.as_u16(), &said);
        Err(self.failed(operation, format!("it answered {}: {said}{remedy}", status.as_u16())))
    }

    /// Where no answer came.
    fn to_look_at(&self, error: &ureq::Error) -> &'static str {
        let is_tls = self.at.ca_pem.is_some();
        match error {
            ureq::Error::Tls(_) | ureq::Error::Rustls(_) => NOT_BELIEVED,
            ureq::Error::Io(error) if is_tls && error.kind() == ErrorKind::InvalidData => NOT_BELIEVED,
            ureq::Error::Protocol(_) | ureq::Error::Http(_) if !is_tls => NO_HTTP,
            ureq::Error::Io(error) if !is_tls && CUT_OFF.contains(&error.kind()) => NO_HTTP,
            _ => "look whether it runs and is reachable",
        }
    }

    /// An error of this server.
    pub(super) fn failed(&self, operation: &'static str, reason: String) -> RecordsError {
        RecordsError::Server { operation, at: self.shown(), reason }
    }
}

/// What lets a user in who was refused. ClickHouse begins a refusal with its own number, which says more than the status.
fn remedy(status: u16, said: &str) -> &'static str {
    let number = said.strip_prefix("Code: ").and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    match (number.and_then(|number| number.parse().ok()), status) {
        (Some(81), _) => "; make the database there (CREATE DATABASE), or name another in the URL",
        (Some(195), _) => "; look at the addresses that the user may come from (<networks> of the user, there)",
        (Some(497), _) => "; give the user there the right that it names (GRANT)",
        (Some(192..=194 | 516), _) | (None, 401 | 403) => "; look at the user and --records-password-file",
        _ => "",
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
