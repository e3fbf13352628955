//! How a bus is entered: TLS and SASL.
use std::fmt;
use std::path::PathBuf;

/// TLS and SASL of a bus; neither by default.
#[derive(Clone, Debug, Default)]
pub struct BusSecurity {
    /// Certificates that may sign the brokers' (PEM): switches TLS on.
    pub ca_pem: Option<PathBuf>,
    /// This client's own certificate and key (PEM), where brokers ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Who it is.
    pub sasl: Option<Sasl>,
}

/// A name, its password, and how it is shown.
#[derive(Clone)]
pub struct Sasl {
    /// `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.
    pub mechanism: String,
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

/// All but the password.
impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sasl").field("mechanism", &self.mechanism).field("user", &self.user).finish_non_exhaustive()
    }
}
