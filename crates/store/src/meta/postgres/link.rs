//! One connection, on threads of its own: whoever asks waits no longer than a limit, and may be an async task.
use super::address::Address;
use crate::meta::error::MetaError;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio_postgres::error::{DbError, SqlState};
use tokio_postgres::{Client, Error, NoTls};

/// Longest that connecting takes, all addresses of the server together.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Longest that a row or a listing takes. Whoever waits for it (an upkeep that has logs to sync, a brain that meets a new job) waits
/// no longer, and once: then the database counts as away.
pub(super) const ASK_LIMIT: Duration = Duration::from_secs(2);
/// Longest that all rows of a file take, or new tables: 1,000 cases take a tenth of a second.
pub(super) const WHOLE_LIMIT: Duration = Duration::from_secs(60);
/// Longest that the rows of a file take at the first start, for which nobody waits but who starts it: 900,000 cases at a millisecond for each question.
pub(super) const FIRST_LIMIT: Duration = Duration::from_secs(1_800);

/// What is asked, while it is being answered.
pub(super) type Work<'c, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'c>>;

/// The connection. It ends when this is dropped.
pub(super) struct Link {
    runtime: Option<Runtime>,
    client: Arc<Mutex<Client>>,
    shown: String,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // Dropped in an async task a runtime panics, but for this.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// When nobody answers, or the server refuses.
    pub(super) fn open(address: &Address) -> Result<Link, MetaError> {
        let failed = |reason: String| away("connecting to", &address.shown, reason);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("mycroft-meta")
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let connecting = {
            let address = address.clone();
            async move {
                match tokio::time::timeout(CONNECT_LIMIT, connect(&address)).await {
                    Ok(connected) => connected.map_err(|error| said(&error)),
                    Err(_) => Err(silent(CONNECT_LIMIT)),
                }
            }
        };
        match wait(&runtime, connecting) {
            Ok(client) => {
                let client = Arc::new(Mutex::new(client));
                Ok(Link { runtime: Some(runtime), client, shown: address.shown.clone() })
            }
            Err(reason) => {
                runtime.shutdown_background();
                Err(failed(reason))
            }
        }
    }

    /// Has the connection do something, at most for `limit`.
    ///
    /// # Errors
    /// What the server said, or that it said nothing.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        operation: &'static str,
        limit: Duration,
        work: impl for<'c> FnOnce(&'c mut Client) -> Work<'c, T> + Send + 'static,
    ) -> Result<T, MetaError> {
        let client = Arc::clone(&self.client);
        let Some(runtime) = &self.runtime else { return Err(away(operation, &self.shown, silent(limit))) };
        let answered = wait(runtime, async move {
            let asked = async { work(&mut *client.lock().await).await };
            match tokio::time::timeout(limit, asked).await {
                Ok(answer) => answer.map_err(|error| (is_away(&error), said(&error))),
                Err(_) => Err((true, silent(limit))),
            }
        });
        let place = self.shown.clone();
        answered.map_err(|(is_away, reason)| MetaError::Postgres { operation, place, reason, is_away })
    }

    /// Whether it is known that the other end is gone. While something is being asked, that will hear of it.
    pub(super) fn is_ended(&self) -> bool {
        self.client.try_lock().is_ok_and(|client| client.is_closed())
    }

    /// User, host and database.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }
}

/// Runs it on the runtime's thread, since the caller's may belong to another one.
fn wait<T, E>(runtime: &Runtime, work: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: Send + 'static + Ended,
{
    let (answer, answered) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        // Nobody waits any more only where the caller's thread is gone.
        let _ = answer.send(work.await);
    });
    answered.recv().unwrap_or_else(|_| Err(E::ended()))
}

/// What it is called when the runtime ended under way.
trait Ended {
    fn ended() -> Self;
}

impl Ended for String {
    fn ended() -> String {
        "the connection was given up".to_owned()
    }
}

impl Ended for (bool, String) {
    fn ended() -> (bool, String) {
        (true, String::ended())
    }
}

async fn connect(address: &Address) -> Result<Client, Error> {
    if let Some(tls) = address.tls.clone() {
        let (client, connection) = address.config.connect(tls).await?;
        // It ends with an error only where what is asked then says so, too.
        tokio::spawn(async move { drop(connection.await) });
        return Ok(client);
    }
    let (client, connection) = address.config.connect(NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

pub(super) fn away(operation: &'static str, shown: &str, reason: String) -> MetaError {
    MetaError::Postgres { operation, place: shown.to_owned(), reason, is_away: true }
}

fn silent(limit: Duration) -> String {
    format!("no answer within {} s; look whether it runs and is reachable", limit.as_secs())
}

/// All but what is about the row itself: data (22) and sizes (54). A constraint (23) fails where somebody took the store out: opening it enters it again.
fn is_away(error: &Error) -> bool {
    let class = error.code().map(|code| code.code().get(..2).unwrap_or_default().to_owned());
    !matches!(class.as_deref(), Some("22" | "54"))
}

/// What the server said, and what to do.
fn said(error: &Error) -> String {
    if let Some(told) = error.as_db_error() {
        let hint = hint(told).map(|hint| format!("; {hint}")).unwrap_or_default();
        return format!("{}{hint}", told.message());
    }
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(&format!(": {source}"));
        next = source.source();
    }
    let hint = if text.contains("TLS") {
        "look whether --meta-ca is its authority, and the host in the URL a name in its certificate"
    } else {
        "look whether it runs and is reachable"
    };
    format!("{text}; {hint}")
}

fn hint(told: &DbError) -> Option<&'static str> {
    let code = told.code();
    if [SqlState::INVALID_PASSWORD, SqlState::INVALID_AUTHORIZATION_SPECIFICATION].contains(code) {
        Some("check user and password, and what the server's pg_hba.conf asks for")
    } else if *code == SqlState::INVALID_CATALOG_NAME {
        Some("make it first: CREATE DATABASE")
    } else if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        Some("the user must be allowed to make tables at the first start, best as the owner of the database")
    } else {
        None
    }
}
