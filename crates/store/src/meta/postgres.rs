//! The database as tables of a PostgreSQL server, where each store has rows of its own.
pub(crate) mod address;
mod cases;
mod layout;
mod leases;
mod link;
mod series;
mod text;

use super::error::MetaError;
use super::lease::{Lease, Leased};
use super::place::PostgresAt;
use super::rows::{ActionRow, CaseRow, PolicyRow, Rows};
use crate::series::{SeriesRows, StoredSeries};
use address::Address;
use link::{ASK_LIMIT, FIRST_LIMIT, Link, WHOLE_LIMIT, Work, away};
use mycroft_record::HostTime;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

/// What a connection is told first. What is acknowledged is on the server's disk (`local` and stronger stay as they are), a statement
/// that nobody waits for any more ends, and so does a connection whose other end is gone, with the lock that it holds.
const SETTINGS: &str = "
    SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
    SET statement_timeout = '60s';
    SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3; SET tcp_user_timeout = 20000;";
/// How long to wait for the connection of a process that ended just now to end, too.
const LOCK_WAIT: &str = "SET lock_timeout = '2s'";

/// The tables, as one store uses them.
#[derive(Debug)]
pub(crate) struct Postgres {
    link: Link,
    store: String,
}

/// What was found of a store.
enum Found {
    Known,
    New,
    /// Another connection uses it.
    InUse,
}

impl Postgres {
    /// Connects, makes or renews the tables, and takes the store for this connection. `rows` is asked where the database does not
    /// know the store yet.
    ///
    /// # Errors
    /// When the server cannot be reached or used, the tables are of a newer release, or another process uses the store.
    pub(crate) fn open(
        at: &PostgresAt,
        store: &str,
        rows: impl FnOnce() -> Result<Rows, MetaError>,
    ) -> Result<Postgres, MetaError> {
        let link = ready(at)?;
        bring(&link, layout::NEWEST)?;
        let name = store.to_owned();
        let found = link.ask("opening", WHOLE_LIMIT, |client| Box::pin(take(client, name)))?;
        let postgres = Postgres { link, store: store.to_owned() };
        match found {
            Found::Known => {}
            Found::New => postgres.begin(rows()?)?,
            Found::InUse => {
                let reason = format!(
                    "another process uses it for the store {store:?}; stop that one, or wait for the end of a connection that was cut (half a minute); or give this folder another name in store-id"
                );
                return Err(away("opening", postgres.link.shown(), reason));
            }
        }
        Ok(postgres)
    }

    /// Enters the store, with what it held elsewhere.
    fn begin(&self, rows: Rows) -> Result<(), MetaError> {
        self.whole("writing all cases to", rows, true)
    }

    /// Puts rows in place of those of the same names.
    ///
    /// # Errors
    /// When they cannot be written; none is then.
    pub(crate) fn restore(&self, rows: Rows) -> Result<(), MetaError> {
        self.whole("writing what waited to", rows, false)
    }

    fn whole(&self, operation: &'static str, rows: Rows, is_new: bool) -> Result<(), MetaError> {
        let store = self.store.clone();
        let limit = if is_new { FIRST_LIMIT } else { WHOLE_LIMIT };
        self.link.ask(operation, limit, move |client| Box::pin(enter(client, store, rows, is_new)))
    }

    /// Why nothing can be asked any more, where the connection has ended.
    pub(crate) fn gone(&self) -> Option<MetaError> {
        let told = "the connection has ended; look whether it runs and is reachable";
        self.link.is_ended().then(|| away("using", self.link.shown(), told.to_owned()))
    }

    pub(crate) fn put_case(&self, case: &CaseRow) -> Result<(), MetaError> {
        let (store, case) = (self.store.clone(), case.clone());
        self.ask("writing a case to", |client| Box::pin(async move { cases::put_case(client, &store, &case).await }))
    }

    pub(crate) fn list_cases(&self, job: Option<&str>, limit: usize) -> Result<Vec<CaseRow>, MetaError> {
        let (store, job) = (self.store.clone(), job.map(str::to_owned));
        self.link.ask("listing the cases of", WHOLE_LIMIT, move |client| {
            Box::pin(async move { cases::list_cases(client, &store, job.as_deref(), limit).await })
        })
    }

    pub(crate) fn put_action(&self, action: &ActionRow) -> Result<(), MetaError> {
        let (store, action) = (self.store.clone(), action.clone());
        self.ask("writing an action to", |client| {
            Box::pin(async move { cases::put_action(client, &store, &action).await })
        })
    }

    pub(crate) fn list_actions(&self, limit: usize) -> Result<Vec<ActionRow>, MetaError> {
        let store = self.store.clone();
        self.link.ask("listing the actions of", WHOLE_LIMIT, move |client| {
            Box::pin(async move { cases::list_actions(client, &store, limit).await })
        })
    }

    pub(crate) fn put_policy(&self, policy: &PolicyRow) -> Result<(), MetaError> {
        let (store, policy) = (self.store.clone(), policy.clone());
        self.ask("writing a policy to", |client| {
            Box::pin(async move { cases::put_policy(client, &store, &policy).await })
        })
    }

    pub(crate) fn list_policies(&self) -> Result<Vec<PolicyRow>, MetaError> {
        let store = self.store.clone();
        self.ask("listing the policies of", |client| {
            Box::pin(async move { cases::list_policies(client, &store).await })
        })
    }

    pub(crate) fn put_series(&self, rows: &SeriesRows, forget_before: HostTime) -> Result<(), MetaError> {
        let (store, rows) = (self.store.clone(), series::Kept::of(rows));
        self.ask("writing series to", move |client| {
            Box::pin(async move { series::write(client, &store, &rows, forget_before).await })
        })
    }

    pub(crate) fn series(&self, job: &str) -> Result<StoredSeries, MetaError> {
        let (store, job) = (self.store.clone(), job.to_owned());
        self.ask("reading series of", |client| Box::pin(async move { series::read(client, &store, &job).await }))
    }

    pub(crate) fn take_lease(&self, job: &str, holder: &str, length: Duration) -> Result<Leased, MetaError> {
        let (job, holder) = (job.to_owned(), holder.to_owned());
        self.ask("taking a lease of", move |client| {
            Box::pin(async move { leases::take(client, &job, &holder, length).await })
        })
    }

    pub(crate) fn renew_lease(&self, job: &str, holder: &str, length: Duration) -> Result<Leased, MetaError> {
        let (job, holder) = (job.to_owned(), holder.to_owned());
        self.ask("renewing a lease of", move |client| {
            Box::pin(async move { leases::renew(client, &job, &holder, length).await })
        })
    }

    pub(crate) fn release_lease(&self, job: &str, holder: &str) -> Result<bool, MetaError> {
        let (job, holder) = (job.to_owned(), holder.to_owned());
        self.ask("giving up a lease of", |client| Box::pin(async move { leases::release(client, &job, &holder).await }))
    }

    pub(crate) fn leases(&self, prefix: &str) -> Result<Vec<Lease>, MetaError> {
        let prefix = prefix.to_owned();
        self.ask("listing leases of", |client| Box::pin(async move { leases::list(client, &prefix).await }))
    }

    pub(crate) fn claim_cases(
        &self,
        is_wanted: &dyn Fn(&str) -> bool,
        limit: usize,
    ) -> Result<Vec<CaseRow>, MetaError> {
        const OPERATION: &str = "taking over cases in";
        let jobs = self.link.ask(OPERATION, WHOLE_LIMIT, |client| Box::pin(cases::shared_jobs(client)))?;
        let jobs: Vec<String> = jobs.into_iter().filter(|job| is_wanted(job)).collect();
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let store = self.store.clone();
        self.link.ask(OPERATION, WHOLE_LIMIT, move |client| {
            Box::pin(async move {
                let work = client.transaction().await?;
                cases::claim(&work, &store, &jobs).await?;
                let claimed = cases::list_shared(&work, &store, &jobs, limit).await?;
                work.commit().await?;
                Ok(claimed)
            })
        })
    }

    pub(crate) fn highest_case(&self, from: u64, to: u64) -> Result<u64, MetaError> {
        self.ask("looking for the newest case in", move |client| {
            Box::pin(async move { cases::highest(client, from, to).await })
        })
    }

    fn ask<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl for<'c> FnOnce(&'c mut Client) -> Work<'c, T> + Send + 'static,
    ) -> Result<T, MetaError> {
        self.link.ask(operation, ASK_LIMIT, work)
    }
}

/// Connects and looks whether the database will do.
fn ready(at: &PostgresAt) -> Result<Link, MetaError> {
    let link = Link::open(&Address::of(at)?)?;
    let encoding = link.ask("opening", WHOLE_LIMIT, |client| {
        Box::pin(async {
            client.batch_execute(SETTINGS).await?;
            client.query_one("SHOW server_encoding", &[]).await?.try_get::<_, String>(0)
        })
    })?;
    if encoding != "UTF8" {
        let reason =
            format!("its encoding is {encoding}, and names of jobs may be in any script; make it with ENCODING 'UTF8'");
        return Err(away("opening", link.shown(), reason));
    }
    Ok(link)
}

fn bring(link: &Link, to: i64) -> Result<i64, MetaError> {
    let found = link.ask("making tables in", WHOLE_LIMIT, move |client| Box::pin(layout::bring_to(client, to)))?;
    if found > layout::NEWEST {
        let (place, known) = (link.shown().to_owned(), layout::NEWEST);
        return Err(MetaError::Newer { place, found, known, other: "database" });
    }
    Ok(found)
}

/// Brings the tables to a layout, forwards or back, and gives the one that was found.
///
/// # Errors
/// The server cannot be used, the tables are of a newer release, or there is no such layout.
pub(crate) fn bring_to(at: &PostgresAt, layout: i64) -> Result<i64, MetaError> {
    if !(0..=layout::NEWEST).contains(&layout) {
        return Err(MetaError::Address(format!(
            "there is no table layout {layout}: this release knows 0 to {}",
            layout::NEWEST
        )));
    }
    bring(&ready(at)?, layout)
}

/// Takes the store for this connection, until it ends.
async fn take(client: &mut Client, store: String) -> Result<Found, Error> {
    client.batch_execute(LOCK_WAIT).await?;
    let lock = "SELECT pg_advisory_lock(hashtextextended('mycroft store ' || $1, 0))";
    match client.execute(lock, &[&store]).await {
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => return Ok(Found::InUse),
        locked => locked?,
    };
    let known = client.query_opt("SELECT FROM mycroft_stores WHERE store = $1", &[&store]).await?;
    Ok(if known.is_some() { Found::Known } else { Found::New })
}

async fn enter(client: &mut Client, store: String, rows: Rows, is_new: bool) -> Result<(), Error> {
    let work = client.transaction().await?;
    if is_new {
        work.execute("INSERT INTO mycroft_stores (store) VALUES ($1)", &[&store]).await?;
    }
    for case in &rows.cases {
        cases::put_case(&work, &store, case).await?;
    }
    for action in &rows.actions {
        cases::put_action(&work, &store, action).await?;
    }
    for policy in &rows.policies {
        cases::put_policy(&work, &store, policy).await?;
    }
    for job in rows.series {
        series::enter(&work, &store, &series::Kept::whole(job)).await?;
    }
    work.commit().await
}
