//! Where the server is, and who this agent is.
use crate::stream::Stream;
use crate::{Endpoint, TlsClient, WireError, io_error, tls};
use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use std::hash::{BuildHasher, Hasher};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tracing::warn;

/// How a connection is made secret, and the name that its server must have.
pub(super) struct Tls {
    settings: TlsClient,
    config: Arc<rustls::ClientConfig>,
    /// That the server's certificate must carry.
    name: ServerName<'static>,
}

impl Tls {
    /// Reads the files.
    pub(super) fn of(endpoint: &Endpoint, settings: &TlsClient) -> Result<Tls, WireError> {
        let Endpoint::Tcp(address) = endpoint else {
            let reason = "TLS is for TCP endpoints; a unix socket never leaves the host, drop the TLS settings";
            return Err(WireError::Tls { endpoint: endpoint.to_string(), reason: reason.to_owned() });
        };
        let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
        let name = settings.server_name.as_deref().unwrap_or(host.trim_matches(['[', ']'])).to_owned();
        let bad = |e| WireError::Tls { endpoint: endpoint.to_string(), reason: format!("server name: {e}") };
        let (config, name) = (tls::client(settings)?, ServerName::try_from(name).map_err(bad)?);
        Ok(Tls { settings: settings.clone(), config, name })
    }

    /// Certificates may have been renewed since the last connection. Files that cannot be used, because they are being replaced,
    /// leave those that were read before.
    pub(super) fn read_again(&mut self) {
        match tls::client(&self.settings) {
            Ok(new) => self.config = new,
            Err(error) => warn!(%error, "files of TLS cannot be used, those read before stay: {error}"),
        }
    }
}

/// Names looked up at once; more means that the name service hangs.
const LOOKUPS_MAX: usize = 4;

/// Connects; TLS shakes hands with the first bytes.
pub(super) fn dial(endpoint: &Endpoint, tls: Option<&Tls>, deadline: Instant) -> Result<Stream, WireError> {
    let failed = |e| io_error("connecting to", endpoint)(e);
    let address = match endpoint {
        Endpoint::Unix(path) => return UnixStream::connect(path).map(Stream::unix).map_err(failed),
        Endpoint::Tcp(address) => address,
    };
    let mut last = std::io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in addresses(address, deadline).map_err(failed)? {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, left) {
            Ok(socket) => {
                socket.set_nodelay(true).map_err(failed)?;
                return wrap(endpoint, tls, socket);
            }
            Err(e) => last = e,
        }
    }
    Err(failed(last))
}

fn wrap(endpoint: &Endpoint, tls: Option<&Tls>, socket: TcpStream) -> Result<Stream, WireError> {
    let Some(tls) = tls else { return Ok(Stream::tcp(socket)) };
    let connection = rustls::ClientConnection::new(Arc::clone(&tls.config), tls.name.clone())
        .map_err(|e| WireError::Tls { endpoint: endpoint.to_string(), reason: e.to_string() })?;
    Ok(Stream::tls(connection, Arc::new(socket)))
}

/// Why the first words were not exchanged.
pub(super) fn handshake_error(endpoint: &Endpoint, e: std::io::Error) -> WireError {
    let tls = e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let reason = match tls {
        Some(rustls::Error::InvalidMessage(_)) => {
            "the server does not speak TLS on this address; drop the TLS settings or use its TLS address".to_owned()
        }
        Some(rustls::Error::AlertReceived(AlertDescription::CertificateRequired)) => {
            "the server takes agents with a certificate only; give this agent one, and its key".to_owned()
        }
        Some(error @ rustls::Error::AlertReceived(_)) => {
            format!(
                "{error}; check this agent's certificate: did the server's authority for agents sign it, and is it in force?"
            )
        }
        Some(error) => format!("{error}; check the CA certificate and the server name"),
        None => return io_error("shaking hands with", endpoint)(e),
    };
    WireError::Tls { endpoint: endpoint.to_string(), reason }
}

/// Looks an address up. The system's resolver may take half a minute and cannot be stopped, so it runs in a thread of its
/// own that nobody waits for beyond `deadline`.
fn addresses(text: &str, deadline: Instant) -> std::io::Result<Vec<SocketAddr>> {
    static RUNNING: AtomicUsize = AtomicUsize::new(0);
    if let Ok(address) = text.parse() {
        return Ok(vec![address]);
    }
    let slow = || std::io::Error::new(ErrorKind::TimedOut, "the name service does not answer");
    if RUNNING.fetch_add(1, Ordering::Relaxed) >= LOOKUPS_MAX {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        return Err(slow());
    }
    let (sender, found) = mpsc::channel();
    let name = text.to_owned();
    let looking = std::thread::Builder::new().spawn(move || {
        // Nobody may wait for it any more.
        let _ = sender.send(name.to_socket_addrs().map(Iterator::collect));
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    });
    if let Err(error) = looking {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        return Err(error);
    }
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    found.recv_timeout(left).unwrap_or_else(|_| Err(slow()))
}

/// A number that all agents of this machine say until it starts again, and hardly one of another machine; 0: not known.
pub fn this_machine() -> u64 {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // A UUID: 64 of its 122 random bits tell machines apart.
    let digits: String = boot.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

/// Tells this client from every other one, also of the same host; the standard library's hasher is seeded by the
/// operating system.
pub fn random_id() -> u64 {
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}
