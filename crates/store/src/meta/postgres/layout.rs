//! Tables, by numbered steps that can be taken forwards and back (`docs/formats/store.md`, "PostgreSQL").
use tokio_postgres::{Client, Error, Transaction};

/// A step. `up` makes the layout of its number from the one before; `down` takes it back, with what is only in it.
struct Step {
    up: &'static str,
    down: &'static str,
}

/// All steps; the first makes layout 1 of an empty database. A step that was released is never changed.
const STEPS: &[Step] = &[CASES, LEASES, SHARED];

const CASES: Step = Step {
    // Names compare by bytes, as in SQLite, whatever the database's language.
    up: r#"
        CREATE TABLE mycroft_stores (
            store TEXT COLLATE "C" NOT NULL PRIMARY KEY, since TIMESTAMPTZ NOT NULL DEFAULT now());
        CREATE TABLE mycroft_cases (
            store TEXT COLLATE "C" NOT NULL REFERENCES mycroft_stores ON DELETE CASCADE, job TEXT COLLATE "C" NOT NULL,
            id BIGINT NOT NULL, state TEXT NOT NULL, opened_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
            json TEXT NOT NULL, PRIMARY KEY (store, job, id));
        CREATE INDEX mycroft_cases_by_time ON mycroft_cases (store, opened_at);
        CREATE TABLE mycroft_actions (
            store TEXT COLLATE "C" NOT NULL REFERENCES mycroft_stores ON DELETE CASCADE, id BIGINT NOT NULL,
            job TEXT COLLATE "C" NOT NULL, state TEXT NOT NULL, at BIGINT NOT NULL, json TEXT NOT NULL,
            PRIMARY KEY (store, id));
        CREATE TABLE mycroft_policies (
            store TEXT COLLATE "C" NOT NULL REFERENCES mycroft_stores ON DELETE CASCADE, job TEXT COLLATE "C" NOT NULL,
            json TEXT NOT NULL, PRIMARY KEY (store, job));
        CREATE TABLE mycroft_series_pieces (
            store TEXT COLLATE "C" NOT NULL REFERENCES mycroft_stores ON DELETE CASCADE, job TEXT COLLATE "C" NOT NULL,
            what TEXT COLLATE "C" NOT NULL, width_s BIGINT NOT NULL, start_at BIGINT NOT NULL, end_at BIGINT NOT NULL,
            iterations BIGINT NOT NULL, sum_ms DOUBLE PRECISION NOT NULL, body BYTEA NOT NULL,
            PRIMARY KEY (store, job, what, width_s, start_at));
        CREATE INDEX mycroft_series_pieces_by_time ON mycroft_series_pieces (store, end_at);
        CREATE TABLE mycroft_series_states (
            store TEXT COLLATE "C" NOT NULL REFERENCES mycroft_stores ON DELETE CASCADE, job TEXT COLLATE "C" NOT NULL,
            what TEXT COLLATE "C" NOT NULL, json TEXT NOT NULL, PRIMARY KEY (store, job, what));"#,
    down: "DROP TABLE mycroft_series_states, mycroft_series_pieces, mycroft_policies, mycroft_actions, mycroft_cases, mycroft_stores;",
};

/// Of all stores together: a job has one server.
const LEASES: Step = Step {
    up: r#"
        CREATE TABLE mycroft_leases (
            job TEXT COLLATE "C" NOT NULL PRIMARY KEY, holder TEXT NOT NULL, until TIMESTAMPTZ NOT NULL);"#,
    down: "DROP TABLE mycroft_leases;",
};

/// Numbers from 1,000,000 on are of cases that move from server to server: no second row of one.
const SHARED: Step = Step {
    up: "CREATE UNIQUE INDEX mycroft_cases_shared ON mycroft_cases (job, id) WHERE id >= 1000000;",
    down: "DROP INDEX mycroft_cases_shared;",
};

/// One at a time: several servers may start at once. The number is ours, in a space that is the database's own: "mycroft" in ASCII.
const LOCK: i64 = 0x006d_7963_726f_6674;

/// The newest layout that this release knows.
pub(super) const NEWEST: i64 = STEPS.len() as i64;

/// Takes the steps from the layout that is found to `to`, all or none, and gives what it found. A layout that is newer than this
/// release knows is left as it is.
pub(super) async fn bring_to(client: &mut Client, to: i64) -> Result<i64, Error> {
    let work = client.transaction().await?;
    work.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let found = found(&work).await?;
    if found > NEWEST {
        return Ok(found);
    }
    if found == 0 && to > 0 {
        let sql = "CREATE TABLE IF NOT EXISTS mycroft_schema (
                       version BIGINT NOT NULL PRIMARY KEY, since TIMESTAMPTZ NOT NULL DEFAULT now())";
        work.batch_execute(sql).await?;
    }
    for (version, step) in steps() {
        if version > found && version <= to {
            work.batch_execute(step.up).await?;
            work.execute("INSERT INTO mycroft_schema (version) VALUES ($1)", &[&version]).await?;
        }
    }
    for (version, step) in steps().rev() {
        if version <= found && version > to {
            work.batch_execute(step.down).await?;
            work.execute("DELETE FROM mycroft_schema WHERE version = $1", &[&version]).await?;
        }
    }
    if found > 0 && to == 0 {
        work.batch_execute("DROP TABLE mycroft_schema").await?;
    }
    work.commit().await?;
    Ok(found)
}

fn steps() -> impl DoubleEndedIterator<Item = (i64, &'static Step)> {
    STEPS.iter().enumerate().map(|(before, step)| (before as i64 + 1, step))
}

async fn found(work: &Transaction<'_>) -> Result<i64, Error> {
    let is_there: bool = work.query_one("SELECT to_regclass('mycroft_schema') IS NOT NULL", &[]).await?.try_get(0)?;
    if !is_there {
        return Ok(0);
    }
    work.query_one("SELECT coalesce(max(version), 0) FROM mycroft_schema", &[]).await?.try_get(0)
}
