//! Where a server keeps cases, by flags.
use anyhow::{Context, Result};
use mycroft_store::meta::MetaPlace;
use std::path::PathBuf;

/// Flags of the database of cases.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct MetaArgs {
    /// Keep cases, the audit log, policies and series in PostgreSQL instead of a file of the store: postgres://USER@HOST:PORT/DATABASE,
    /// or for a Unix socket postgres:///DATABASE?host=/run/postgresql. It must be reachable at the start; several servers may share
    /// one database.
    #[arg(long, env = "MYCROFT_META", value_name = "URL", requires = "store")]
    pub(crate) meta: Option<String>,
    /// File that holds the password for --meta.
    #[arg(long, env = "MYCROFT_META_PASSWORD_FILE", value_name = "FILE", requires = "meta")]
    pub(crate) meta_password_file: Option<PathBuf>,
    /// Certificate authority of the server of --meta (PEM): switches TLS on. Another machine is connected to without it only where the
    /// URL ends in ?sslmode=disable.
    #[arg(long, env = "MYCROFT_META_CA", value_name = "FILE", requires = "meta")]
    pub(crate) meta_ca: Option<PathBuf>,
}

impl MetaArgs {
    /// The place that they name.
    ///
    /// # Errors
    /// A file cannot be used, or the URL names no database that can be connected to safely.
    pub(crate) fn place(&self) -> Result<MetaPlace> {
        let Some(url) = self.meta.clone() else { return Ok(MetaPlace::File) };
        let read = |path: &PathBuf| {
            crate::token::secret(path).with_context(|| format!("--meta-password-file {}", path.display()))
        };
        let password = self.meta_password_file.as_ref().map(read).transpose()?;
        MetaPlace::postgres(url, password, self.meta_ca.clone()).context("--meta")
    }
}
