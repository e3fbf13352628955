//! Why a server does not start.
use crate::config::ConfigError;
use mycroft_store::StoreError;
use mycroft_wire::WireError;
use std::net::SocketAddr;

/// Why `Server::start` failed. Nothing is left behind: what was bound is released.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration breaks a rule.
    #[error("starting the server: {0}")]
    Config(#[from] ConfigError),
    /// The HTTP address cannot be used.
    #[error("binding the HTTP address {address}: {source}; choose another address or port, or stop what uses it")]
    BindHttp {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate of the HTTP address cannot be used.
    #[error("the certificate of the HTTP address: {0}")]
    HttpTls(#[source] WireError),
    /// An agents' endpoint cannot be used.
    #[error("binding the agents' endpoint: {0}")]
    BindWire(#[from] WireError),
    /// The store cannot be opened or its cases cannot be read.
    #[error("opening the store: {0}")]
    Store(#[from] StoreError),
    /// The bus cannot be used.
    #[error(transparent)]
    Bus(#[from] mycroft_bus::BusError),
    /// The store's directory cannot be used, or others may change it.
    #[error("using the store's directory {}: {source}", dir.display())]
    StoreDir {
        /// The directory.
        dir: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The directory of captures cannot be used.
    #[error("opening the directory of captures {dir:?}: {source}; check that this user may write there")]
    Dumps {
        /// The directory; none: a temporary one.
        dir: Option<std::path::PathBuf>,
        /// Why.
        source: std::io::Error,
    },
    /// The system refused a thread or the network runtime.
    #[error("starting {what}: {source}; check the limits on threads and open files")]
    Thread {
        /// What was started.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
}
