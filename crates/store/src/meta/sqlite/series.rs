//! Series in SQLite.
use super::Sqlite;
use crate::meta::error::MetaError;
use crate::series::{SeriesRows, StoredPiece, StoredSeries};
use mycroft_record::HostTime;
use rusqlite::{Connection, Row, params};

impl Sqlite {
    /// Keeps rows, all or none, and forgets what is older than it is kept, of all jobs what ended before `forget_before`.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn put_series(&self, rows: &SeriesRows, forget_before: HostTime) -> Result<(), MetaError> {
        let mut connection = self.lock();
        write(&mut connection, rows, forget_before).map_err(self.failed("writing series to"))
    }

    /// The series of a job; empty where nothing is known.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn series(&self, job: &str) -> Result<StoredSeries, MetaError> {
        read(&self.lock(), job).map_err(self.failed("reading series of"))
    }
}

fn write(connection: &mut Connection, rows: &SeriesRows, forget_before: HostTime) -> rusqlite::Result<()> {
    let write = connection.transaction()?;
    for piece in &rows.pieces {
        let (start, end) = (piece.start.0.cast_signed(), piece.end.0.cast_signed());
        let (width, count) = (piece.width_s.cast_signed(), piece.iterations.cast_signed());
        write
            .prepare_cached("INSERT OR REPLACE INTO series_pieces VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?
            .execute(params![rows.job, piece.what, width, start, end, count, piece.sum_ms, piece.body])?;
        let old = end.saturating_sub_unsigned(piece.kept_ns);
        write
            .prepare_cached("DELETE FROM series_pieces WHERE job = ?1 AND what = ?2 AND width_s = ?3 AND end_at < ?4")?
            .execute(params![rows.job, piece.what, width, old])?;
    }
    for (what, json) in &rows.states {
        write
            .prepare_cached("INSERT OR REPLACE INTO series_states VALUES (?1, ?2, ?3)")?
            .execute(params![rows.job, what, json])?;
    }
    write.execute("DELETE FROM series_pieces WHERE end_at < ?1", params![forget_before.0.cast_signed()])?;
    write.execute(
        "DELETE FROM series_states WHERE job <> ?1 AND job NOT IN (SELECT job FROM series_pieces)",
        params![rows.job],
    )?;
    write.commit()
}

fn read(connection: &Connection, job: &str) -> rusqlite::Result<StoredSeries> {
    let piece = |row: &Row<'_>| {
        let number = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
        Ok(StoredPiece {
            what: row.get(0)?,
            width_s: number(1)?,
            start: HostTime(number(2)?),
            end: HostTime(number(3)?),
            iterations: number(4)?,
            sum_ms: row.get(5)?,
            body: row.get(6)?,
        })
    };
    let sql = "SELECT what, width_s, start_at, end_at, iterations, sum_ms, body FROM series_pieces WHERE job = ?1
               ORDER BY start_at, what, width_s";
    let pieces = connection.prepare_cached(sql)?.query_map([job], piece)?.collect::<rusqlite::Result<_>>()?;
    let state = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let sql = "SELECT what, json FROM series_states WHERE job = ?1 ORDER BY what";
    let states = connection.prepare_cached(sql)?.query_map([job], state)?.collect::<rusqlite::Result<_>>()?;
    Ok(StoredSeries { pieces, states })
}
