//! Cases, what was done about them, and series: the small data that changes in place. In an SQLite file, or in PostgreSQL.
mod error;
pub(crate) mod identity;
mod lease;
mod place;
#[cfg(feature = "postgres")]
mod postgres;
mod rows;
mod sqlite;

pub use error::MetaError;
pub use lease::{Lease, Leased};
pub use place::{MetaPlace, PostgresAt};
pub use rows::{ActionRow, CaseRow, PolicyRow, SHARED_FROM};
pub(crate) use sqlite::copy;

use crate::series::{SeriesRows, StoredSeries};
use mycroft_record::HostTime;
use std::path::{Path, PathBuf};
use std::time::Duration;

impl MetaPlace {
    /// A database by its URL, such as `postgres://mycroft@db.example.org/mycroft`. `ca_pem`: certificates that may sign the
    /// server's; with it the connection is TLS.
    ///
    /// # Errors
    /// The URL is none, the file of certificates cannot be used, or others could listen on the way to the server.
    pub fn postgres(url: String, password: Option<String>, ca_pem: Option<PathBuf>) -> Result<MetaPlace, MetaError> {
        let at = PostgresAt { url, password, ca_pem };
        #[cfg(feature = "postgres")]
        return postgres::address::Address::of(&at).map(|_| MetaPlace::Postgres(at));
        #[cfg(not(feature = "postgres"))]
        return Meta::open_postgres(&at, "", None).map(|_| MetaPlace::Postgres(at));
    }
}

/// The database. All methods take `&self`.
#[derive(Debug)]
pub struct Meta {
    backend: Backend,
}

#[derive(Debug)]
enum Backend {
    Sqlite(sqlite::Sqlite),
    #[cfg(feature = "postgres")]
    Postgres(postgres::Postgres),
}

/// Asks whichever it is.
macro_rules! ask {
    ($meta:expr, $one:ident => $answer:expr) => {
        match &$meta.backend {
            Backend::Sqlite($one) => $answer,
            #[cfg(feature = "postgres")]
            Backend::Postgres($one) => $answer,
        }
    };
}

impl Meta {
    /// Opens or creates the database file.
    ///
    /// # Errors
    /// When the file cannot be used or is of a newer release.
    pub fn open(path: &Path) -> Result<Meta, MetaError> {
        Ok(Meta { backend: Backend::Sqlite(sqlite::Sqlite::open(path)?) })
    }

    /// Opens a database of a PostgreSQL server for the store of this name, and makes or renews its tables. Rows of the store
    /// that lie in `file` are taken over where the database does not know the store yet.
    ///
    /// # Errors
    /// When it cannot be reached or used, is of a newer release, or another process uses it for this store.
    #[cfg(feature = "postgres")]
    pub fn open_postgres(at: &PostgresAt, store: &str, file: Option<&Path>) -> Result<Meta, MetaError> {
        let postgres = postgres::Postgres::open(at, store, || {
            let file = file.filter(|file| file.exists());
            file.map_or_else(|| Ok(rows::Rows::default()), |file| sqlite::Sqlite::open(file)?.rows())
        })?;
        Ok(Meta { backend: Backend::Postgres(postgres) })
    }

    /// As with the feature `postgres`, which this program was built without.
    ///
    /// # Errors
    /// Always.
    #[cfg(not(feature = "postgres"))]
    pub fn open_postgres(_: &PostgresAt, _: &str, _: Option<&Path>) -> Result<Meta, MetaError> {
        Err(MetaError::Address("this program was built without PostgreSQL (cargo feature `postgres`)".to_owned()))
    }

    /// Brings the tables of a PostgreSQL server to a layout by its number, forwards or back, and gives the one that was found. 0: none
    /// are left. What an older layout has no place for is lost.
    ///
    /// # Errors
    /// When it cannot be reached, is of a newer release, or does not know such a layout.
    #[cfg(feature = "postgres")]
    pub fn bring_postgres_to(at: &PostgresAt, layout: i64) -> Result<i64, MetaError> {
        postgres::bring_to(at, layout)
    }

    /// A database that ends with the process.
    ///
    /// # Errors
    /// Only without memory.
    pub fn in_memory() -> Result<Meta, MetaError> {
        Ok(Meta { backend: Backend::Sqlite(sqlite::Sqlite::in_memory()?) })
    }

    /// A database that ends with the process, with the cases of a file that cannot be written now (a full disk): those
    /// that the file itself holds, without what may still lie in its log.
    pub(crate) fn copy_in_memory(path: &Path) -> Result<Meta, MetaError> {
        Ok(Meta { backend: Backend::Sqlite(sqlite::Sqlite::copy_in_memory(path)?) })
    }

    /// Where this is a server's: moves all rows here from a file that stood in for it.
    ///
    /// # Errors
    /// When they cannot be read or written; none is then, and all stay in the file.
    pub(crate) fn take_over(&self, stand_in: &Meta) -> Result<(), MetaError> {
        match (&self.backend, &stand_in.backend) {
            #[cfg(feature = "postgres")]
            (Backend::Postgres(postgres), Backend::Sqlite(file)) => {
                postgres.restore(file.rows()?)?;
                file.clear()
            }
            _ => Ok(()),
        }
    }

    /// Why nothing can be asked any more, where a connection has ended.
    pub(crate) fn gone(&self) -> Option<MetaError> {
        ask!(self, one => one.gone())
    }

    /// Inserts or replaces a case.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put_case(&self, case: &CaseRow) -> Result<(), MetaError> {
        ask!(self, one => one.put_case(case))
    }

    /// Cases of a job (or of all jobs), newest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn list_cases(&self, job: Option<&str>, limit: usize) -> Result<Vec<CaseRow>, MetaError> {
        ask!(self, one => one.list_cases(job, limit))
    }

    /// Inserts or replaces an action.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put_action(&self, action: &ActionRow) -> Result<(), MetaError> {
        ask!(self, one => one.put_action(action))
    }

    /// Actions, newest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn list_actions(&self, limit: usize) -> Result<Vec<ActionRow>, MetaError> {
        ask!(self, one => one.list_actions(limit))
    }

    /// Inserts or replaces what may be done to a job.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put_policy(&self, policy: &PolicyRow) -> Result<(), MetaError> {
        ask!(self, one => one.put_policy(policy))
    }

    /// What may be done to which job, by name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn list_policies(&self) -> Result<Vec<PolicyRow>, MetaError> {
        ask!(self, one => one.list_policies())
    }

    /// Keeps rows, all or none, and forgets what is older than it is kept, of all jobs what ended before `forget_before`.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn put_series(&self, rows: &SeriesRows, forget_before: HostTime) -> Result<(), MetaError> {
        ask!(self, one => one.put_series(rows, forget_before))
    }

    /// The series of a job; empty where nothing is known.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn series(&self, job: &str) -> Result<StoredSeries, MetaError> {
        ask!(self, one => one.series(job))
    }

    /// Takes a job for `holder`: one that nobody has, or whose lease is over; one's own begins anew.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn take_lease(&self, job: &str, holder: &str, length: Duration) -> Result<Leased, MetaError> {
        ask!(self, one => one.take_lease(job, holder, length))
    }

    /// Lengthens the lease of `holder` to `length` from now, which is not over yet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn renew_lease(&self, job: &str, holder: &str, length: Duration) -> Result<Leased, MetaError> {
        ask!(self, one => one.renew_lease(job, holder, length))
    }

    /// Gives the lease of `holder` up; false: it is not its own any more.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn release_lease(&self, job: &str, holder: &str) -> Result<bool, MetaError> {
        ask!(self, one => one.release_lease(job, holder))
    }

    /// Leases that are not over, of jobs whose names begin so.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn leases(&self, prefix: &str) -> Result<Vec<Lease>, MetaError> {
        ask!(self, one => one.leases(prefix))
    }

    /// Makes the cases with shared numbers ([`SHARED_FROM`]) of all jobs that `is_wanted` this store's, and gives them, newest first.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn claim_cases(&self, is_wanted: &dyn Fn(&str) -> bool, limit: usize) -> Result<Vec<CaseRow>, MetaError> {
        ask!(self, one => one.claim_cases(is_wanted, limit))
    }

    /// The highest number of a case in `[from, to)` that any store has; 0: none has one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn highest_case(&self, from: u64, to: u64) -> Result<u64, MetaError> {
        ask!(self, one => one.highest_case(from, to))
    }
}
