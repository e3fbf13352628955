//! Series of jobs in SQLite: pieces of time that are over, and what is known besides. Bodies are the server's own; the store does
//! not read them.
use crate::meta::{Meta, MetaError};
use mycroft_record::HostTime;
use rusqlite::{Connection, Row, params};

/// The tables.
pub(crate) const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS series_pieces (
        job TEXT NOT NULL, what TEXT NOT NULL, width_s INTEGER NOT NULL, start_at INTEGER NOT NULL, end_at INTEGER NOT NULL,
        iterations INTEGER NOT NULL, sum_ms REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (job, what, width_s, start_at));
    CREATE INDEX IF NOT EXISTS series_pieces_by_time ON series_pieces (end_at);
    CREATE TABLE IF NOT EXISTS series_states (
        job TEXT NOT NULL, what TEXT NOT NULL, json TEXT NOT NULL, PRIMARY KEY (job, what));";

/// A piece of time that is over.
#[derive(Clone, PartialEq, Debug)]
pub struct PieceRow {
    /// What it is about: `iterations`, `ranks` or `paths`.
    pub what: &'static str,
    /// Its width, seconds.
    pub width_s: u64,
    /// It is forgotten when a piece of the same width ends by so much later, nanoseconds.
    pub kept_ns: u64,
    /// When its first iteration began (of `iterations`: ended).
    pub start: HostTime,
    /// When its last one ended.
    pub end: HostTime,
    /// Its iterations.
    pub iterations: u64,
    /// How long they took together, milliseconds.
    pub sum_ms: f64,
    /// The rest.
    pub body: Vec<u8>,
}

/// A piece as it was kept.
#[derive(Clone, PartialEq, Debug)]
pub struct StoredPiece {
    /// As in [`PieceRow`].
    pub what: String,
    /// Its width, seconds.
    pub width_s: u64,
    /// When its first iteration began (of `iterations`: ended).
    pub start: HostTime,
    /// When its last one ended.
    pub end: HostTime,
    /// Its iterations.
    pub iterations: u64,
    /// How long they took together, milliseconds.
    pub sum_ms: f64,
    /// The rest.
    pub body: Vec<u8>,
}

/// What of a job's series is to be kept.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SeriesRows {
    /// The job.
    pub job: String,
    /// Pieces that are over.
    pub pieces: Vec<PieceRow>,
    /// What is known besides, by what it is about: it takes the place of what was known before.
    pub states: Vec<(&'static str, String)>,
}

/// The series of a job as they were kept.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StoredSeries {
    /// Pieces, oldest first.
    pub pieces: Vec<StoredPiece>,
    /// What is known besides.
    pub states: Vec<(String, String)>,
}

impl Meta {
    /// Keeps rows, all or none, and forgets what is older than it is kept, of all jobs what ended before `forget_before`.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn put_series(&self, rows: &SeriesRows, forget_before: HostTime) -> Result<(), MetaError> {
        let mut connection = self.lock();
        write(&mut connection, rows, forget_before).map_err(self.failed("writing series to"))
    }

    /// The series of a job; empty where nothing is known.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn series(&self, job: &str) -> Result<StoredSeries, MetaError> {
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
    let sql = "SELECT what, width_s, start_at, end_at, iterations, sum_ms, body FROM series_pieces WHERE job = ?1 ORDER BY start_at";
    let pieces = connection.prepare_cached(sql)?.query_map([job], piece)?.collect::<rusqlite::Result<_>>()?;
    let state = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let sql = "SELECT what, json FROM series_states WHERE job = ?1 ORDER BY what";
    let states = connection.prepare_cached(sql)?.query_map([job], state)?.collect::<rusqlite::Result<_>>()?;
    Ok(StoredSeries { pieces, states })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn piece(what: &'static str, width_s: u64, start_s: u64) -> PieceRow {
        let (start, end) = (HostTime(start_s * SECOND), HostTime((start_s + width_s) * SECOND));
        PieceRow {
            what,
            width_s,
            kept_ns: 3_600 * SECOND,
            start,
            end,
            iterations: 7,
            sum_ms: 700.5,
            body: vec![1, 2, 3],
        }
    }

    fn rows(job: &str, pieces: Vec<PieceRow>) -> SeriesRows {
        SeriesRows { job: job.to_owned(), pieces, states: vec![("ranks", format!("[{job:?}]"))] }
    }

    #[test]
    fn pieces_come_back_and_old_ones_go() {
        let meta = Meta::in_memory().expect("memory");
        let never = HostTime::NONE;
        meta.put_series(&rows("a", vec![piece("ranks", 60, 100), piece("ranks", 900, 100)]), never).expect("kept");
        meta.put_series(&rows("b", vec![piece("ranks", 60, 100)]), never).expect("kept");
        let stored = meta.series("a").expect("read");
        assert_eq!(stored.states, [("ranks".to_owned(), "[\"a\"]".to_owned())]);
        let first = &stored.pieces[0];
        assert_eq!((first.iterations, first.sum_ms, &*first.body), (7, 700.5, &[1u8, 2, 3][..]));
        assert_eq!((first.start, stored.pieces.len()), (HostTime(100 * SECOND), 2));
        // An hour later the minute is forgotten, the quarter of an hour and another job's are not.
        meta.put_series(&rows("a", vec![piece("ranks", 60, 3_800)]), never).expect("kept");
        let widths = |job| {
            meta.series(job)
                .expect("read")
                .pieces
                .iter()
                .map(|one| (one.width_s, one.start.0 / SECOND))
                .collect::<Vec<_>>()
        };
        assert_eq!((widths("a"), widths("b")), (vec![(900, 100), (60, 3_800)], vec![(60, 100)]));
        // What is older than the store keeps anything goes with its job.
        meta.put_series(&rows("a", Vec::new()), HostTime(2_000 * SECOND)).expect("kept");
        assert_eq!((widths("a"), widths("b")), (vec![(60, 3_800)], vec![]));
        assert_eq!(meta.series("b").expect("read"), StoredSeries::default());
        assert_eq!(meta.series("none").expect("read"), StoredSeries::default());
    }
}
