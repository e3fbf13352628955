//! Leases in SQLite: between processes that use one file.
use super::Sqlite;
use crate::meta::error::MetaError;
use crate::meta::lease::{Lease, Leased};
use mycroft_record::HostTime;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};
use std::time::Duration;

/// Asks for now, ns since 1970, in whole milliseconds.
const NOW: &str = "SELECT CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000000";

impl Sqlite {
    /// Takes a job that nobody has, or whose lease is over; goes on with one's own.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn take_lease(&self, job: &str, holder: &str, length: Duration) -> Result<Leased, MetaError> {
        let sql = "INSERT INTO leases (job, holder, until) VALUES (?1, ?2, ?4 + ?3)
                   ON CONFLICT (job) DO UPDATE SET holder = excluded.holder, until = excluded.until
                   WHERE leases.until <= ?4 OR leases.holder = excluded.holder RETURNING until";
        self.change_lease("taking a lease of", sql, (job, holder, length))
    }

    /// Lengthens one's own lease, which is not over yet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn renew_lease(&self, job: &str, holder: &str, length: Duration) -> Result<Leased, MetaError> {
        let sql = "UPDATE leases SET until = ?4 + ?3 WHERE job = ?1 AND holder = ?2 AND until > ?4 RETURNING until";
        self.change_lease("renewing a lease of", sql, (job, holder, length))
    }

    /// Gives one's own lease up; false: it is not one's own.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn release_lease(&self, job: &str, holder: &str) -> Result<bool, MetaError> {
        let gone = self.lock().execute("DELETE FROM leases WHERE job = ?1 AND holder = ?2", params![job, holder]);
        gone.map(|rows| rows > 0).map_err(self.failed("giving up a lease of"))
    }

    /// Leases that are not over, of jobs whose names begin so.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn leases(&self, prefix: &str) -> Result<Vec<Lease>, MetaError> {
        let list = |connection: &Connection| -> rusqlite::Result<Vec<Lease>> {
            let now: i64 = connection.query_row(NOW, [], |row| row.get(0))?;
            let sql = "SELECT job, holder, until FROM leases WHERE substr(job, 1, length(?1)) = ?1 AND until > ?2 ORDER BY job";
            let mut found = connection.prepare(sql)?;
            let lease = |row: &Row<'_>| {
                let until = HostTime(row.get::<_, i64>(2)?.cast_unsigned());
                Ok(Lease { job: row.get(0)?, holder: row.get(1)?, until })
            };
            found.query_map(params![prefix, now], lease)?.collect()
        };
        list(&self.lock()).map_err(self.failed("listing leases of"))
    }

    fn change_lease(
        &self,
        operation: &'static str,
        sql: &str,
        (job, holder, length): (&str, &str, Duration),
    ) -> Result<Leased, MetaError> {
        let length_ns = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX / 4);
        let change = |connection: &mut Connection| -> rusqlite::Result<Leased> {
            let work = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // One moment for all that is asked: a lease that ends in between would be nobody's.
            let now: i64 = work.query_row(NOW, [], |row| row.get(0))?;
            let until: Option<i64> =
                work.query_row(sql, params![job, holder, length_ns, now], |row| row.get(0)).optional()?;
            let leased = match until {
                Some(until) => {
                    let until = HostTime(until.cast_unsigned());
                    Leased::Ours(Lease { job: job.to_owned(), holder: holder.to_owned(), until })
                }
                None => held(&work, job, now)?,
            };
            work.commit()?;
            Ok(leased)
        };
        change(&mut self.lock()).map_err(self.failed(operation))
    }
}

fn held(work: &Transaction<'_>, job: &str, now: i64) -> rusqlite::Result<Leased> {
    let sql = "SELECT holder, until FROM leases WHERE job = ?1 AND until > ?2";
    let of = |row: &Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?));
    let row = work.query_row(sql, params![job, now], of).optional()?;
    Ok(row.map_or(Leased::Over, |(holder, until)| {
        Leased::Held(Lease { job: job.to_owned(), holder, until: HostTime(until.cast_unsigned()) })
    }))
}
