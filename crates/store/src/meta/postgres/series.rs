//! Series in PostgreSQL.
use super::text::{kept, told};
use crate::series::{SeriesRows, StoredPiece, StoredSeries};
use mycroft_record::HostTime;
use tokio_postgres::{Client, Error, Row, Transaction};

/// What of a job's series is to be kept, as the connection's thread takes it.
pub(super) struct Kept {
    pub(super) job: String,
    /// With what of the same width is forgotten: what ended so many nanoseconds before.
    pub(super) pieces: Vec<(StoredPiece, Option<u64>)>,
    pub(super) states: Vec<(String, String)>,
}

impl Kept {
    pub(super) fn of(rows: &SeriesRows) -> Kept {
        let pieces = rows.pieces.iter().map(|piece| {
            let stored = StoredPiece {
                what: piece.what.to_owned(),
                width_s: piece.width_s,
                start: piece.start,
                end: piece.end,
                iterations: piece.iterations,
                sum_ms: piece.sum_ms,
                body: piece.body.clone(),
            };
            (stored, Some(piece.kept_ns))
        });
        let states = rows.states.iter().map(|(what, json)| ((*what).to_owned(), json.clone()));
        Kept { job: rows.job.clone(), pieces: pieces.collect(), states: states.collect() }
    }

    /// Of another database, which has forgotten what is old.
    pub(super) fn whole((job, stored): (String, StoredSeries)) -> Kept {
        Kept { job, pieces: stored.pieces.into_iter().map(|piece| (piece, None)).collect(), states: stored.states }
    }
}

/// Writes rows, as a part of what is going on.
pub(super) async fn enter(work: &Transaction<'_>, store: &str, rows: &Kept) -> Result<(), Error> {
    let job = kept(&rows.job);
    let insert = work
        .prepare(
            "INSERT INTO mycroft_series_pieces (store, job, what, width_s, start_at, end_at, iterations, sum_ms, body)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
             ON CONFLICT (store, job, what, width_s, start_at) DO UPDATE
             SET end_at = excluded.end_at, iterations = excluded.iterations, sum_ms = excluded.sum_ms, body = excluded.body",
        )
        .await?;
    let forget = work
        .prepare("DELETE FROM mycroft_series_pieces WHERE store = $1 AND job = $2 AND what = $3 AND width_s = $4 AND end_at < $5")
        .await?;
    for (piece, kept_ns) in &rows.pieces {
        let (start, end) = (piece.start.0.cast_signed(), piece.end.0.cast_signed());
        let (width, count) = (piece.width_s.cast_signed(), piece.iterations.cast_signed());
        let (what, sum, body) = (&piece.what, &piece.sum_ms, &piece.body);
        work.execute(&insert, &[&store, &job, what, &width, &start, &end, &count, sum, body]).await?;
        if let Some(kept_ns) = kept_ns {
            let old = end.saturating_sub_unsigned(*kept_ns);
            work.execute(&forget, &[&store, &job, what, &width, &old]).await?;
        }
    }
    let sql = "INSERT INTO mycroft_series_states (store, job, what, json) VALUES ($1, $2, $3, $4)
               ON CONFLICT (store, job, what) DO UPDATE SET json = excluded.json";
    for (what, json) in &rows.states {
        work.execute(sql, &[&store, &job, what, &kept(json)]).await?;
    }
    Ok(())
}

/// Writes rows, all or none, and forgets what is old.
pub(super) async fn write(client: &mut Client, store: &str, rows: &Kept, forget_before: HostTime) -> Result<(), Error> {
    let work = client.transaction().await?;
    enter(&work, store, rows).await?;
    let before = forget_before.0.cast_signed();
    work.execute("DELETE FROM mycroft_series_pieces WHERE store = $1 AND end_at < $2", &[&store, &before]).await?;
    let sql = "DELETE FROM mycroft_series_states AS s WHERE store = $1 AND job <> $2
               AND NOT EXISTS (SELECT FROM mycroft_series_pieces AS p WHERE p.store = s.store AND p.job = s.job)";
    work.execute(sql, &[&store, &kept(&rows.job)]).await?;
    work.commit().await
}

/// The series of a job.
pub(super) async fn read(client: &Client, store: &str, job: &str) -> Result<StoredSeries, Error> {
    let job = kept(job);
    let sql = "SELECT what, width_s, start_at, end_at, iterations, sum_ms, body FROM mycroft_series_pieces
               WHERE store = $1 AND job = $2 ORDER BY start_at, what, width_s";
    let pieces = client.query(sql, &[&store, &job]).await?.iter().map(piece).collect::<Result<_, Error>>()?;
    let sql = "SELECT what, json FROM mycroft_series_states WHERE store = $1 AND job = $2 ORDER BY what";
    let state = |row: &Row| Ok((row.try_get(0)?, told(row.try_get(1)?)));
    let states = client.query(sql, &[&store, &job]).await?.iter().map(state).collect::<Result<_, Error>>()?;
    Ok(StoredSeries { pieces, states })
}

fn piece(row: &Row) -> Result<StoredPiece, Error> {
    let number = |at: usize| row.try_get::<_, i64>(at).map(i64::cast_unsigned);
    Ok(StoredPiece {
        what: row.try_get(0)?,
        width_s: number(1)?,
        start: HostTime(number(2)?),
        end: HostTime(number(3)?),
        iterations: number(4)?,
        sum_ms: row.try_get(5)?,
        body: row.try_get(6)?,
    })
}
