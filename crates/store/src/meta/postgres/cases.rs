//! Cases, actions and policies in PostgreSQL.
use super::text::{kept, told};
use crate::meta::rows::{ActionRow, CaseRow, MAX_LIST, PolicyRow, SHARED_FROM};
use mycroft_record::HostTime;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, GenericClient, Row};

pub(super) async fn put_case(client: &impl GenericClient, store: &str, case: &CaseRow) -> Result<(), Error> {
    // Bits of an unsigned number in PostgreSQL's signed ones; times end in 2262.
    let (id, opened, updated) =
        (case.id.cast_signed(), case.opened_at.0.cast_signed(), case.updated_at.0.cast_signed());
    if case.id >= SHARED_FROM {
        return put_shared(client, store, case).await;
    }
    let sql = "INSERT INTO mycroft_cases (store, job, id, state, opened_at, updated_at, json) VALUES ($1, $2, $3, $4, $5, $6, $7)
               ON CONFLICT (store, job, id) DO UPDATE SET state = excluded.state, opened_at = excluded.opened_at,
               updated_at = excluded.updated_at, json = excluded.json";
    let (job, state, json) = (kept(&case.job), kept(&case.state), kept(&case.json));
    client.execute(sql, &[&store, &job, &id, &state, &opened, &updated, &json]).await.map(|_| ())
}

/// A case that another store may have taken over meanwhile: then it is not ours to write.
async fn put_shared(client: &impl GenericClient, store: &str, case: &CaseRow) -> Result<(), Error> {
    let (id, opened, updated) =
        (case.id.cast_signed(), case.opened_at.0.cast_signed(), case.updated_at.0.cast_signed());
    let (job, state, json) = (kept(&case.job), kept(&case.state), kept(&case.json));
    let values: [&(dyn ToSql + Sync); 7] = [&store, &job, &id, &state, &opened, &updated, &json];
    let sql = "UPDATE mycroft_cases SET state = $4, opened_at = $5, updated_at = $6, json = $7
               WHERE store = $1 AND job = $2 AND id = $3";
    if client.execute(sql, &values).await? > 0 {
        return Ok(());
    }
    // The index of shared numbers has it where another store has.
    let sql = "INSERT INTO mycroft_cases (store, job, id, state, opened_at, updated_at, json) VALUES ($1, $2, $3, $4, $5, $6, $7)
               ON CONFLICT DO NOTHING";
    client.execute(sql, &values).await.map(|_| ())
}

/// Jobs that have cases with shared numbers, whosever they are.
pub(super) async fn shared_jobs(client: &impl GenericClient) -> Result<Vec<String>, Error> {
    let sql = "SELECT DISTINCT job FROM mycroft_cases WHERE id >= $1";
    let rows = client.query(sql, &[&SHARED_FROM.cast_signed()]).await?;
    rows.iter().map(|row| row.try_get(0).map(told)).collect()
}

/// Makes all cases of these jobs with shared numbers this store's.
pub(super) async fn claim(client: &impl GenericClient, store: &str, jobs: &[String]) -> Result<(), Error> {
    let jobs: Vec<_> = jobs.iter().map(|job| kept(job)).collect();
    let sql = "UPDATE mycroft_cases SET store = $1 WHERE id >= $2 AND job = ANY($3) AND store <> $1";
    client.execute(sql, &[&store, &SHARED_FROM.cast_signed(), &jobs]).await.map(|_| ())
}

/// The highest number of a case in `[from, to)` that any store has; 0: none has one.
pub(super) async fn highest(client: &impl GenericClient, from: u64, to: u64) -> Result<u64, Error> {
    let sql = "SELECT coalesce(max(id), 0) FROM mycroft_cases WHERE id >= $1 AND id < $2";
    let row = client.query_one(sql, &[&from.cast_signed(), &to.cast_signed()]).await?;
    row.try_get::<_, i64>(0).map(i64::cast_unsigned)
}

pub(super) async fn list_cases(
    client: &impl GenericClient,
    store: &str,
    job: Option<&str>,
    limit: usize,
) -> Result<Vec<CaseRow>, Error> {
    let sql = "SELECT job, id, state, opened_at, updated_at, json FROM mycroft_cases
               WHERE store = $1 AND ($2::text IS NULL OR job = $2) ORDER BY opened_at DESC, id DESC, job LIMIT $3";
    let rows = client.query(sql, &[&store, &job.map(kept), &most(limit)]).await?;
    rows.iter().map(case).collect()
}

/// Cases of these jobs with shared numbers, newest first.
pub(super) async fn list_shared(
    client: &impl GenericClient,
    store: &str,
    jobs: &[String],
    limit: usize,
) -> Result<Vec<CaseRow>, Error> {
    let jobs: Vec<_> = jobs.iter().map(|job| kept(job)).collect();
    let sql = "SELECT job, id, state, opened_at, updated_at, json FROM mycroft_cases
               WHERE store = $1 AND id >= $2 AND job = ANY($3) ORDER BY opened_at DESC, id DESC, job LIMIT $4";
    let rows = client.query(sql, &[&store, &SHARED_FROM.cast_signed(), &jobs, &most(limit)]).await?;
    rows.iter().map(case).collect()
}

fn case(row: &Row) -> Result<CaseRow, Error> {
    Ok(CaseRow {
        job: told(row.try_get(0)?),
        id: row.try_get::<_, i64>(1)?.cast_unsigned(),
        state: told(row.try_get(2)?),
        opened_at: time(row, 3)?,
        updated_at: time(row, 4)?,
        json: told(row.try_get(5)?),
    })
}

pub(super) async fn put_action(client: &impl GenericClient, store: &str, action: &ActionRow) -> Result<(), Error> {
    let sql = "INSERT INTO mycroft_actions (store, id, job, state, at, json) VALUES ($1, $2, $3, $4, $5, $6)
               ON CONFLICT (store, id) DO UPDATE SET job = excluded.job, state = excluded.state, at = excluded.at,
               json = excluded.json";
    let (id, at) = (action.id.cast_signed(), action.at.0.cast_signed());
    let (job, state, json) = (kept(&action.job), kept(&action.state), kept(&action.json));
    client.execute(sql, &[&store, &id, &job, &state, &at, &json]).await.map(|_| ())
}

pub(super) async fn list_actions(
    client: &impl GenericClient,
    store: &str,
    limit: usize,
) -> Result<Vec<ActionRow>, Error> {
    let sql = "SELECT id, job, state, at, json FROM mycroft_actions WHERE store = $1 ORDER BY id DESC LIMIT $2";
    let action = |row: &Row| {
        let (id, at) = (row.try_get::<_, i64>(0)?.cast_unsigned(), time(row, 3)?);
        Ok(ActionRow { id, job: told(row.try_get(1)?), state: told(row.try_get(2)?), at, json: told(row.try_get(4)?) })
    };
    client.query(sql, &[&store, &most(limit)]).await?.iter().map(action).collect()
}

pub(super) async fn put_policy(client: &impl GenericClient, store: &str, policy: &PolicyRow) -> Result<(), Error> {
    let sql = "INSERT INTO mycroft_policies (store, job, json) VALUES ($1, $2, $3)
               ON CONFLICT (store, job) DO UPDATE SET json = excluded.json";
    client.execute(sql, &[&store, &kept(&policy.job), &kept(&policy.json)]).await.map(|_| ())
}

pub(super) async fn list_policies(client: &impl GenericClient, store: &str) -> Result<Vec<PolicyRow>, Error> {
    let sql = "SELECT job, json FROM mycroft_policies WHERE store = $1 ORDER BY job";
    let policy = |row: &Row| Ok(PolicyRow { job: told(row.try_get(0)?), json: told(row.try_get(1)?) });
    client.query(sql, &[&store]).await?.iter().map(policy).collect()
}

fn most(limit: usize) -> i64 {
    limit.min(MAX_LIST) as i64
}

fn time(row: &Row, at: usize) -> Result<HostTime, Error> {
    Ok(HostTime(row.try_get::<_, i64>(at)?.cast_unsigned()))
}
