//! Agent to server: an own framed protocol over TCP or a unix socket (`docs/formats/wire.md`).
use mycroft_record::Batch;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

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
    /// Certificates that must have signed an agent's; `None`: agents need no certificate.
    pub client_ca_pem: Option<PathBuf>,
}

/// How an agent connects.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Name of this host, for the server's messages.
    pub host: String,
    /// Shared secret, where the server asks for one.
    pub token: Option<String>,
    /// TLS; TCP endpoints only.
    pub tls: Option<TlsClient>,
    /// Limit for connecting and the handshake together.
    pub connect_timeout: Duration,
    /// How long `send` waits for credit.
    pub send_timeout: Duration,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            host: String::new(),
            token: None,
            tls: None,
            connect_timeout: Duration::from_secs(5),
            send_timeout: Duration::from_secs(2),
        }
    }
}

/// Whom a server admits.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Shared secret; `None`: anybody may connect.
    pub token: Option<String>,
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
    #[error("sending to {endpoint}: the connection is closed; call reconnect")]
    Disconnected {
        /// To whom.
        endpoint: String,
    },
}

/// An agent's connection.
#[derive(Debug)]
pub struct Client {
    endpoint: Endpoint,
}

impl Client {
    /// Connects, says hello and waits for the server's welcome.
    pub fn connect(endpoint: &Endpoint, config: &ClientConfig) -> Result<Client, WireError> {
        let _ = config;
        Err(WireError::Disconnected { endpoint: endpoint.to_string() })
    }

    /// Takes a batch: `Ok` means that the client owns it now and resends it after `reconnect` until the server has
    /// acknowledged it; `Err` means that nothing of it was sent and the caller still owns it.
    pub fn send(&mut self, batch: &Batch) -> Result<(), WireError> {
        let _ = batch;
        Err(WireError::Disconnected { endpoint: self.endpoint.to_string() })
    }

    /// As `send`, several batches in one frame (processes of one host compress better together).
    pub fn send_all(&mut self, batches: &[Batch]) -> Result<(), WireError> {
        let _ = batches;
        Err(WireError::Disconnected { endpoint: self.endpoint.to_string() })
    }

    /// As `send`, for a frame that `codec::encode` made (from a spool).
    pub fn send_frame(&mut self, frame: &[u8]) -> Result<(), WireError> {
        let _ = frame;
        Err(WireError::Disconnected { endpoint: self.endpoint.to_string() })
    }

    /// Reads acknowledgements and credits that are there, sends a heartbeat when due. Call at least once a second.
    pub fn poll(&mut self) -> Result<(), WireError> {
        Err(WireError::Disconnected { endpoint: self.endpoint.to_string() })
    }

    /// Waits until everything sent is acknowledged.
    pub fn flush(&mut self, timeout: Duration) -> Result<(), WireError> {
        let _ = timeout;
        Err(WireError::Disconnected { endpoint: self.endpoint.to_string() })
    }

    /// Connects again and resends what was not acknowledged.
    pub fn reconnect(&mut self) -> Result<(), WireError> {
        Err(WireError::Disconnected { endpoint: self.endpoint.to_string() })
    }

    /// Gives back the frames that were not acknowledged, oldest first (for the spool).
    pub fn into_unacked(self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// A bound server socket.
#[derive(Debug)]
pub struct Listener {
    endpoint: Endpoint,
}

impl Listener {
    /// Binds. Port 0 picks a free port.
    pub fn bind(endpoint: &Endpoint, config: ServerConfig) -> Result<Listener, WireError> {
        let _ = config;
        Ok(Listener { endpoint: endpoint.clone() })
    }

    /// The endpoint with the real port.
    pub fn local_endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Serves in threads of its own. A frame is acknowledged after the handler has returned for all of its batches.
    pub fn serve(self, handler: Arc<dyn Fn(Batch) + Send + Sync>) -> ListenerHandle {
        let _ = handler;
        ListenerHandle { endpoint: self.endpoint, address: None }
    }
}

/// A running server; stops when dropped.
#[derive(Debug)]
pub struct ListenerHandle {
    endpoint: Endpoint,
    address: Option<SocketAddr>,
}

impl ListenerHandle {
    /// The TCP address, `None` for a unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The endpoint with the real port.
    pub fn local_endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }
}
