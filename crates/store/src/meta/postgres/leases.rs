//! Leases in PostgreSQL: between servers that share the database, whatever their stores. Each change is one statement, which compares
//! and sets under the row's lock, by the database's clock.
use super::text::{kept, told};
use crate::meta::lease::{Lease, Leased};
use mycroft_record::HostTime;
use std::time::Duration;
use tokio_postgres::{Client, Error, Row};

/// Takes a job that nobody has, or whose lease is over; goes on with one's own. Where another has it, the statement has locked the
/// row, so that what is read then is what it met.
const TAKE: &str = "
    INSERT INTO mycroft_leases (job, holder, until) VALUES ($1, $2, now() + make_interval(secs => $3))
    ON CONFLICT (job) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE mycroft_leases.until <= now() OR mycroft_leases.holder = excluded.holder
    RETURNING (extract(epoch FROM until) * 1000000000)::bigint";

const RENEW: &str = "
    UPDATE mycroft_leases SET until = now() + make_interval(secs => $3) WHERE job = $1 AND holder = $2 AND until > now()
    RETURNING (extract(epoch FROM until) * 1000000000)::bigint";

pub(super) async fn take(client: &mut Client, job: &str, holder: &str, length: Duration) -> Result<Leased, Error> {
    change(client, TAKE, (job, holder, length)).await
}

pub(super) async fn renew(client: &mut Client, job: &str, holder: &str, length: Duration) -> Result<Leased, Error> {
    change(client, RENEW, (job, holder, length)).await
}

pub(super) async fn release(client: &Client, job: &str, holder: &str) -> Result<bool, Error> {
    let sql = "DELETE FROM mycroft_leases WHERE job = $1 AND holder = $2";
    Ok(client.execute(sql, &[&kept(job), &kept(holder)]).await? > 0)
}

pub(super) async fn list(client: &Client, prefix: &str) -> Result<Vec<Lease>, Error> {
    let sql = "SELECT job, holder, (extract(epoch FROM until) * 1000000000)::bigint FROM mycroft_leases
               WHERE starts_with(job, $1) AND until > now() ORDER BY job";
    let lease = |row: &Row| {
        let until = HostTime(row.try_get::<_, i64>(2)?.cast_unsigned());
        Ok(Lease { job: told(row.try_get(0)?), holder: told(row.try_get(1)?), until })
    };
    client.query(sql, &[&kept(prefix)]).await?.iter().map(lease).collect()
}

async fn change(
    client: &mut Client,
    sql: &str,
    (job, holder, length): (&str, &str, Duration),
) -> Result<Leased, Error> {
    let work = client.transaction().await?;
    let changed = work.query_opt(sql, &[&kept(job), &kept(holder), &length.as_secs_f64()]).await?;
    let leased = if let Some(row) = changed {
        let until = HostTime(row.try_get::<_, i64>(0)?.cast_unsigned());
        Leased::Ours(Lease { job: job.to_owned(), holder: holder.to_owned(), until })
    } else {
        let sql = "SELECT holder, (extract(epoch FROM until) * 1000000000)::bigint FROM mycroft_leases
                   WHERE job = $1 AND until > now()";
        match work.query_opt(sql, &[&kept(job)]).await? {
            None => Leased::Over,
            Some(row) => {
                let until = HostTime(row.try_get::<_, i64>(1)?.cast_unsigned());
                Leased::Held(Lease { job: job.to_owned(), holder: told(row.try_get(0)?), until })
            }
        }
    };
    work.commit().await?;
    Ok(leased)
}
