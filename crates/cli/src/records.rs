//! Where records are besides the store's folder, by flags.
use anyhow::{Context, Result};
use mycroft_store::StoreAt;
use mycroft_store::remote::RecordsPlace;
use std::path::{Path, PathBuf};

/// Flags of the server of `mycroft serve`.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct RecordsArgs {
    /// Send records to ClickHouse, too: clickhouse://USER@HOST:PORT/DATABASE, with the port of its HTTP interface. A segment of ten
    /// minutes is sent when it is complete, and deleted in the store's folder an hour later; while the server is away it
    /// waits there. Several servers may share one database.
    #[arg(long, env = "MYCROFT_RECORDS", value_name = "URL", requires = "store")]
    pub(crate) records: Option<String>,
    #[command(flatten)]
    pub(crate) way: WayArgs,
}

/// Flags of who reads a store whose records are in ClickHouse.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct RecordsInArgs {
    /// Read what is not in the store's folder any more from ClickHouse: the URL that `mycroft serve --records` had.
    #[arg(long, env = "MYCROFT_RECORDS", value_name = "URL")]
    pub(crate) records_in: Option<String>,
    #[command(flatten)]
    pub(crate) way: WayArgs,
}

/// How the way to the database is kept safe.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct WayArgs {
    /// File that holds the password of ClickHouse's user.
    #[arg(long, env = "MYCROFT_RECORDS_PASSWORD_FILE", value_name = "FILE")]
    pub(crate) records_password_file: Option<PathBuf>,
    /// Certificate authority of the ClickHouse server (PEM): switches TLS on. Another machine is connected to without it only where
    /// the URL ends in ?tls=disable.
    #[arg(long, env = "MYCROFT_RECORDS_CA", value_name = "FILE")]
    pub(crate) records_ca: Option<PathBuf>,
}

impl WayArgs {
    fn place(&self, flag: &'static str, url: Option<&String>) -> Result<RecordsPlace> {
        let Some(url) = url else { return Ok(RecordsPlace::Folder) };
        let read = |path: &PathBuf| {
            crate::token::secret(path).with_context(|| format!("--records-password-file {}", path.display()))
        };
        let password = self.records_password_file.as_ref().map(read).transpose()?;
        RecordsPlace::clickhouse(url, password, self.records_ca.clone()).context(flag)
    }
}

impl RecordsArgs {
    /// The place that they name.
    ///
    /// # Errors
    /// A file cannot be used, or the URL names no database that can be connected to safely.
    pub(crate) fn place(&self) -> Result<RecordsPlace> {
        self.way.place("--records", self.records.as_ref())
    }
}

impl RecordsInArgs {
    /// The store in this folder, with where else its records are.
    ///
    /// # Errors
    /// As `RecordsArgs::place`.
    pub(crate) fn at(&self, dir: &Path) -> Result<StoreAt> {
        Ok(StoreAt { dir: dir.to_owned(), records: self.way.place("--records-in", self.records_in.as_ref())? })
    }
}
