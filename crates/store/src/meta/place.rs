//! Where the database of cases is.
use std::fmt;
use std::path::PathBuf;

/// Where the database of cases is.
#[derive(Clone, Debug, Default)]
pub enum MetaPlace {
    /// A file in the store's folder.
    #[default]
    File,
    /// A database of a PostgreSQL server, that other stores may use as well.
    Postgres(PostgresAt),
}

/// A database of a PostgreSQL server.
#[derive(Clone)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "nothing reads them then"))]
pub struct PostgresAt {
    pub(super) url: String,
    pub(super) password: Option<String>,
    pub(super) ca_pem: Option<PathBuf>,
}

/// The password does not show, nor what stands in the URL where none belongs.
impl fmt::Debug for PostgresAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresAt").field("ca_pem", &self.ca_pem).finish_non_exhaustive()
    }
}
