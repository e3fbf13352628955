//! The database as an SQLite file, or in memory.
mod leases;
mod series;

use super::error::MetaError;
#[cfg(feature = "postgres")]
use super::rows::Rows;
use super::rows::{ActionRow, CaseRow, MAX_LIST, PolicyRow, SHARED_FROM};
use mycroft_record::HostTime;
use mycroft_wire::sync::lock;
use rusqlite::{Connection, OpenFlags, Row, params};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// Layout of the tables; a file with a higher one belongs to a newer release. Tables may be added without a new number: releases
/// that do not know them leave them alone.
const SCHEMA_VERSION: i64 = 1;
/// How long to wait for another process (a person with the sqlite3 tool) to finish.
const BUSY_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Tables of series.
const SERIES_TABLES: &str = "
    CREATE TABLE IF NOT EXISTS series_pieces (
        job TEXT NOT NULL, what TEXT NOT NULL, width_s INTEGER NOT NULL, start_at INTEGER NOT NULL, end_at INTEGER NOT NULL,
        iterations INTEGER NOT NULL, sum_ms REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (job, what, width_s, start_at));
    CREATE INDEX IF NOT EXISTS series_pieces_by_time ON series_pieces (end_at);
    CREATE TABLE IF NOT EXISTS series_states (
        job TEXT NOT NULL, what TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (job, what));";

/// The file.
#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    connection: Mutex<Connection>,
}

/// Copies a database that a server may be using, as it is at one moment, with what still lies in its log.
///
/// # Errors
/// When it cannot be read, or the copy cannot be written.
pub(crate) fn copy(from: &Path, to: &Path) -> Result<(), MetaError> {
    let failed = |source| MetaError::Sqlite { operation: "copying", path: from.to_owned(), source };
    let connection = Connection::open_with_flags(from, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
    connection.busy_timeout(BUSY_LIMIT).map_err(failed)?;
    connection.execute("VACUUM INTO ?1", params![to.to_string_lossy()]).map_err(failed)?;
    Ok(())
}

impl Sqlite {
    /// Opens or creates the database file.
    ///
    /// # Errors
    /// When the file cannot be used or is of a newer release.
    pub(crate) fn open(path: &Path) -> Result<Sqlite, MetaError> {
        let connection = Connection::open(path);
        Sqlite::prepare(path, connection)
    }

    /// A database that ends with the process.
    ///
    /// # Errors
    /// Only without memory.
    pub(crate) fn in_memory() -> Result<Sqlite, MetaError> {
        Sqlite::prepare(Path::new("in memory"), Connection::open_in_memory())
    }

    /// A database that ends with the process, with the cases of a file that cannot be written now (a full disk): those
    /// that the file itself holds, without what may still lie in its log.
    pub(crate) fn copy_in_memory(path: &Path) -> Result<Sqlite, MetaError> {
        let meta = Sqlite::in_memory()?;
        let failed = |source| MetaError::Sqlite { operation: "reading", path: path.to_owned(), source };
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
        let name = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let file = Connection::open_with_flags(format!("file:{name}?immutable=1"), flags).map_err(failed)?;
        let old = Sqlite { path: path.to_owned(), connection: Mutex::new(file) };
        for case in old.list_cases(None, MAX_LIST)? {
            meta.put_case(&case)?;
        }
        // A file of an older release has no such tables; then there is nothing to copy.
        for action in old.list_actions(MAX_LIST).unwrap_or_default() {
            meta.put_action(&action)?;
        }
        for policy in old.list_policies().unwrap_or_default() {
            meta.put_policy(&policy)?;
        }
        Ok(meta)
    }

    /// All that it holds.
    ///
    /// # Errors
    /// When it cannot be read.
    #[cfg(feature = "postgres")]
    pub(crate) fn rows(&self) -> Result<Rows, MetaError> {
        let jobs = {
            let connection = self.lock();
            let list = || -> rusqlite::Result<Vec<String>> {
                let sql = "SELECT job FROM series_pieces UNION SELECT job FROM series_states ORDER BY 1";
                connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
            };
            list().map_err(self.failed("reading series of"))?
        };
        let series = jobs.into_iter().map(|job| {
            let stored = self.series(&job)?;
            Ok((job, stored))
        });
        Ok(Rows {
            cases: self.list_cases(None, MAX_LIST)?,
            actions: self.list_actions(MAX_LIST)?,
            policies: self.list_policies()?,
            series: series.collect::<Result<_, MetaError>>()?,
        })
    }

    /// A file does not go away by itself.
    pub(crate) fn gone(&self) -> Option<MetaError> {
        None
    }

    /// Takes all rows out.
    ///
    /// # Errors
    /// When they cannot be; all stay then.
    #[cfg(feature = "postgres")]
    pub(crate) fn clear(&self) -> Result<(), MetaError> {
        let sql = "DELETE FROM cases; DELETE FROM actions; DELETE FROM policies; DELETE FROM series_pieces;
                   DELETE FROM series_states;";
        let empty = |connection: &mut Connection| -> rusqlite::Result<()> {
            let work = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
            work.execute_batch(sql)?;
            work.commit()
        };
        empty(&mut self.lock()).map_err(self.failed("emptying"))
    }

    fn prepare(path: &Path, connection: rusqlite::Result<Connection>) -> Result<Sqlite, MetaError> {
        let failed = |source| MetaError::Sqlite { operation: "opening", path: path.to_owned(), source };
        let connection = connection.map_err(failed)?;
        connection.busy_timeout(BUSY_LIMIT).map_err(failed)?;
        let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
        if found > SCHEMA_VERSION {
            return Err(MetaError::Newer {
                place: path.display().to_string(),
                found,
                known: SCHEMA_VERSION,
                other: "directory",
            });
        }
        connection
            .execute_batch(&format!(
                "PRAGMA journal_mode = WAL;
                 PRAGMA synchronous = NORMAL;
                 BEGIN IMMEDIATE;
                 CREATE TABLE IF NOT EXISTS cases (
                     job TEXT NOT NULL, id INTEGER NOT NULL, state TEXT NOT NULL,
                     opened_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, json TEXT NOT NULL,
                     PRIMARY KEY (job, id)) WITHOUT ROWID;
                 CREATE INDEX IF NOT EXISTS cases_by_time ON cases (opened_at);
                 CREATE TABLE IF NOT EXISTS actions (
                     id INTEGER NOT NULL PRIMARY KEY, job TEXT NOT NULL, state TEXT NOT NULL, at INTEGER NOT NULL,
                     json TEXT NOT NULL);
                 CREATE TABLE IF NOT EXISTS policies (job TEXT NOT NULL PRIMARY KEY, json TEXT NOT NULL);
                 CREATE TABLE IF NOT EXISTS leases (
                     job TEXT NOT NULL PRIMARY KEY, holder TEXT NOT NULL, until INTEGER NOT NULL);
                 {series}
                 PRAGMA user_version = 1;
                 COMMIT;",
                series = SERIES_TABLES
            ))
            .map_err(failed)?;
        Ok(Sqlite { path: path.to_owned(), connection: Mutex::new(connection) })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        lock(&self.connection)
    }

    fn failed(&self, operation: &'static str) -> impl FnOnce(rusqlite::Error) -> MetaError {
        let path = self.path.clone();
        move |source| MetaError::Sqlite { operation, path, source }
    }

    /// Inserts or replaces a case.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn put_case(&self, case: &CaseRow) -> Result<(), MetaError> {
        // Bits of an unsigned number in SQLite's signed ones; times end in 2262.
        let (id, opened, updated) =
            (case.id.cast_signed(), case.opened_at.0.cast_signed(), case.updated_at.0.cast_signed());
        self.lock()
            .execute(
                "INSERT OR REPLACE INTO cases (job, id, state, opened_at, updated_at, json) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![case.job, id, case.state, opened, updated, case.json],
            )
            .map(|_| ())
            .map_err(self.failed("writing a case to"))
    }

    /// Cases of a job (or of all jobs), newest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn list_cases(&self, job: Option<&str>, limit: usize) -> Result<Vec<CaseRow>, MetaError> {
        let sql = "SELECT job, id, state, opened_at, updated_at, json FROM cases WHERE ?1 IS NULL OR job = ?1
                   ORDER BY opened_at DESC, id DESC, job LIMIT ?2";
        let connection = self.lock();
        let list = || -> rusqlite::Result<Vec<CaseRow>> {
            let mut statement = connection.prepare_cached(sql)?;
            let limit = limit.min(MAX_LIST) as i64;
            statement.query_map(params![job, limit], case_of)?.collect()
        };
        list().map_err(self.failed("listing the cases of"))
    }

    /// Cases with shared numbers of jobs that are wanted, newest first: all are this store's.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn claim_cases(
        &self,
        is_wanted: &dyn Fn(&str) -> bool,
        limit: usize,
    ) -> Result<Vec<CaseRow>, MetaError> {
        let is_shared = |case: &CaseRow| case.id >= SHARED_FROM && is_wanted(&case.job);
        let cases = self.list_cases(None, MAX_LIST)?;
        Ok(cases.into_iter().filter(is_shared).take(limit).collect())
    }

    /// The highest number of a case in `[from, to)`; 0: there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn highest_case(&self, from: u64, to: u64) -> Result<u64, MetaError> {
        let sql = "SELECT coalesce(max(id), 0) FROM cases WHERE id >= ?1 AND id < ?2";
        let (from, to) = (from.cast_signed(), to.cast_signed());
        let found = self.lock().query_row(sql, params![from, to], |row| row.get::<_, i64>(0));
        found.map(i64::cast_unsigned).map_err(self.failed("looking for the newest case in"))
    }

    /// Inserts or replaces an action.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn put_action(&self, action: &ActionRow) -> Result<(), MetaError> {
        let sql = "INSERT OR REPLACE INTO actions (id, job, state, at, json) VALUES (?1, ?2, ?3, ?4, ?5)";
        let (id, at) = (action.id.cast_signed(), action.at.0.cast_signed());
        self.lock()
            .execute(sql, params![id, action.job, action.state, at, action.json])
            .map(|_| ())
            .map_err(self.failed("writing an action to"))
    }

    /// Actions, newest first.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn list_actions(&self, limit: usize) -> Result<Vec<ActionRow>, MetaError> {
        let connection = self.lock();
        let list = || -> rusqlite::Result<Vec<ActionRow>> {
            let sql = "SELECT id, job, state, at, json FROM actions ORDER BY id DESC LIMIT ?1";
            let row = |row: &Row<'_>| {
                let (id, at) = (row.get::<_, i64>(0)?.cast_unsigned(), time(row.get(3)?));
                Ok(ActionRow { id, job: row.get(1)?, state: row.get(2)?, at, json: row.get(4)? })
            };
            connection.prepare_cached(sql)?.query_map(params![limit.min(MAX_LIST) as i64], row)?.collect()
        };
        list().map_err(self.failed("listing the actions of"))
    }

    /// Inserts or replaces what may be done to a job.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn put_policy(&self, policy: &PolicyRow) -> Result<(), MetaError> {
        let sql = "INSERT OR REPLACE INTO policies (job, json) VALUES (?1, ?2)";
        let written = self.lock().execute(sql, params![policy.job, policy.json]);
        written.map(|_| ()).map_err(self.failed("writing a policy to"))
    }

    /// What may be done to which job, by name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn list_policies(&self) -> Result<Vec<PolicyRow>, MetaError> {
        let connection = self.lock();
        let list = || -> rusqlite::Result<Vec<PolicyRow>> {
            let row = |row: &Row<'_>| Ok(PolicyRow { job: row.get(0)?, json: row.get(1)? });
            connection.prepare_cached("SELECT job, json FROM policies ORDER BY job")?.query_map([], row)?.collect()
        };
        list().map_err(self.failed("listing the policies of"))
    }
}

fn time(value: i64) -> HostTime {
    HostTime(value.cast_unsigned())
}

fn case_of(row: &Row<'_>) -> rusqlite::Result<CaseRow> {
    Ok(CaseRow {
        job: row.get(0)?,
        id: row.get::<_, i64>(1)?.cast_unsigned(),
        state: row.get(2)?,
        opened_at: time(row.get(3)?),
        updated_at: time(row.get(4)?),
        json: row.get(5)?,
    })
}
