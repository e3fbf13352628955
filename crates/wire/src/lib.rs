//! How batches become bytes and travel: the codec and its cells, the framed protocol between agents and a server over
//! TCP or a unix socket (client, server, TLS), the spool that holds frames while the server is away, and the file of
//! checked entries that spool and store share. Formats: `docs/formats/wire.md`, `docs/formats/record.md`.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod about;
mod admission;
mod agents;
mod arrival;
mod attendance;
pub mod budget;
mod bytes;
mod capture;
mod carrier;
pub mod cells;
mod certificate;
mod client;
pub mod clock;
pub mod codec;
pub mod descriptors;
mod dial;
pub mod dir;
mod gate;
mod intake;
pub mod log;
mod narrow;
pub mod offset;
mod places;
mod proto;
mod receipt;
mod refusal;
mod refused;
mod server;
mod socket;
pub mod spool;
mod spooled;
pub mod strangers;
mod stream;
mod subscriber;
pub mod sync;
mod tls;
pub mod trusted;

pub use admission::{Door, Doorkeeper};
pub use arrival::ServerLimits;
pub use attendance::Attendance;
pub use capture::{CAPTURE_TEXT_BYTES_MAX, CaptureKind, CaptureOrder, Captured, PIECE_BYTES_MAX, VERSION_CAPTURE};
pub use carrier::{Carrier, Way};
pub use client::{Client, ClientStats};
pub use clock::{VERSION_TIMES, WireClock};
pub use dial::{random_id, this_machine};
pub use gate::{GATE_BYTES_MAX, GateSaid, VERSION_GATE};
pub use intake::{Received, Sink};
pub use places::{NotOrdered, Peer, Places};
pub use proto::{VERSION_HIGHEST, VERSION_LOWEST};
pub use receipt::{Kept, Promise, Receipt};
pub use refusal::Refusal;
pub use server::{Listener, ListenerHandle, ServerStats};
pub use spooled::Spooled;
pub use subscriber::with_callers_subscriber;
pub use tls::ServerTls;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Longest time to write one message: 17 MB at 2 MB/s.
pub const WRITE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Endpoint {
    /// `host:port`.
    Tcp(String),
    /// Path of a unix socket.
    Unix(PathBuf),
}

impl FromStr for Endpoint {
    type Err = WireError;
    /// `unix:/path` or `host:port`.
    fn from_str(text: &str) -> Result<Endpoint, WireError> {
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return Err(WireError::BadEndpoint { text: text.to_owned() });
            }
            return Ok(Endpoint::Unix(PathBuf::from(path)));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Endpoint::Tcp(text.to_owned())),
            _ => Err(WireError::BadEndpoint { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => f.write_str(address),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A certificate chain and its private key, both PEM files.
#[derive(Clone, Debug)]
pub struct TlsIdentity {
    /// Certificate chain, own certificate first.
    pub cert_pem: PathBuf,
    /// Private key.
    pub key_pem: PathBuf,
}

/// TLS of an agent.
#[derive(Clone, Debug)]
pub struct TlsClient {
    /// Certificates that may sign the server's.
    pub ca_pem: PathBuf,
    /// Name the server's certificate must carry; the endpoint's host when not given.
    pub server_name: Option<String>,
    /// This agent's own certificate, where the server asks for one.
    pub identity: Option<TlsIdentity>,
}

/// TLS of a server.
#[derive(Clone, Debug)]
pub struct TlsServer {
    /// The server's certificate.
    pub identity: TlsIdentity,
    /// Certificates that must have signed an agent's, which then speaks for the host that its certificate names and for no other;
    /// `None`: agents need no certificate.
    pub client_ca_pem: Option<PathBuf>,
    /// Revocation lists (CRL) of the authority that signs agents' certificates; counts with `client_ca_pem` only. `None`: all hold
    /// until they end.
    pub client_crl_pem: Option<PathBuf>,
}

/// How an agent connects.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Name of this host, for the server's messages.
    pub host: String,
    /// Number that tells this machine from others, so that a server notices two hosts with one name; `None`: that of the
    /// machine's present boot.
    pub machine: Option<u64>,
    /// Shared secret, where the server asks for one.
    pub token: Option<String>,
    /// TLS; TCP endpoints only.
    pub tls: Option<TlsClient>,
    /// Limit for connecting and the handshake together.
    pub connect_timeout: Duration,
    /// How long `send` waits for credit.
    pub send_timeout: Duration,
    /// Limit for writing one message to a server that does not read; the connection ends then.
    pub write_timeout: Duration,
    /// The clock that the times in this agent's records are of, and those that it exchanges.
    pub clock: WireClock,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            host: String::new(),
            machine: None,
            token: None,
            tls: None,
            connect_timeout: Duration::from_secs(5),
            send_timeout: Duration::from_secs(2),
            write_timeout: WRITE_TIMEOUT_DEFAULT,
            clock: WireClock::default(),
        }
    }
}

/// Whom a server admits.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Whom it lets in; by default anybody.
    pub token: Door,
    /// TLS; TCP endpoints only.
    pub tls: Option<TlsServer>,
}

/// Why a connection failed or ended.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Not an endpoint.
    #[error("endpoint {text:?}: expected host:port or unix:/path, for example 127.0.0.1:7700")]
    BadEndpoint {
        /// What was given.
        text: String,
    },
    /// The connection is broken; reconnect.
    #[error("sending to {endpoint}: the connection is closed ({why}); reconnect")]
    Disconnected {
        /// To whom.
        endpoint: String,
        /// What ended it.
        why: String,
    },
    /// A socket operation failed.
    #[error("{operation} {endpoint}: {source}; check that the server runs there and that the address is right")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// To what.
        endpoint: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The server said no, and why.
    #[error("{endpoint} refused the connection ({code}): {text}")]
    Refused {
        /// Who.
        endpoint: String,
        /// The kind of refusal.
        code: Refusal,
        /// The server's reason.
        text: String,
    },
    /// Something else answers there.
    #[error("connecting to {endpoint}: the answer starts with {found:02x?}, not with \"MYCW\"; {hint}")]
    NotMycroft {
        /// Where.
        endpoint: String,
        /// The first bytes of the answer.
        found: [u8; 4],
        /// What it probably is.
        hint: &'static str,
    },
    /// A certificate or key cannot be used.
    #[error("{}: {reason}", path.display())]
    TlsFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it and what to do.
        reason: String,
    },
    /// TLS could not be set up or agreed.
    #[error("TLS with {endpoint}: {reason}")]
    Tls {
        /// With whom.
        endpoint: String,
        /// What went wrong and what to do.
        reason: String,
    },
    /// The server granted no credit in time: it is slower than what is sent.
    #[error("sending to {endpoint}: no credit within {waited:?}; the server is busy, keep the batch and try again")]
    NoCredit {
        /// To whom.
        endpoint: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The frame can never be sent.
    #[error(
        "sending to {endpoint}: a frame of {bytes} bytes, the server takes at most {max}; send fewer batches at once"
    )]
    TooLarge {
        /// To whom.
        endpoint: String,
        /// Its size.
        bytes: usize,
        /// The server's limit.
        max: usize,
    },
    /// What takes frames in place of a server cannot be reached or used.
    #[error("sending to {endpoint}: {reason}")]
    Away {
        /// To whom.
        endpoint: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The batches do not fit a frame.
    #[error(transparent)]
    Encode(#[from] crate::codec::EncodeError),
    /// Something still waits for its acknowledgement.
    #[error("flushing to {endpoint}: {frames} frames not acknowledged within {waited:?}")]
    NotAcknowledged {
        /// To whom.
        endpoint: String,
        /// How many.
        frames: usize,
        /// How long was waited.
        waited: Duration,
    },
}

fn io_error(operation: &'static str, endpoint: &Endpoint) -> impl FnOnce(std::io::Error) -> WireError {
    let endpoint = endpoint.to_string();
    move |source| WireError::Io { operation, endpoint, source }
}
