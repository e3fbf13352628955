//! The HTTP side: accepts connections with limits on everything, and hands requests to the routes.
//!
//! axum routes; the connections are hyper's own, because a server that strangers can reach needs a header timeout and
//! a connection limit.
pub(crate) mod auth;
mod dumps;
mod metrics;
mod routes;

pub(crate) use routes::Shared;

use crate::stats::add;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// Connections at once: people, a Prometheus and a few scripts; each costs at most `BUFFER_BYTES` and a task, 4 MiB.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// Largest request head: no route needs more than a token and a job name (1 KiB each), browsers send cookies.
const BUFFER_BYTES: usize = 16 * 1024;
/// Headers accepted in a request.
const HEADERS_MAX: usize = 64;
/// Limit for sending a request's head, also of an idle kept-alive connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for a whole connection: a reader that takes an answer drop by drop goes, a Prometheus reconnects.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// How long answers in progress may take when the server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Serves until `stop` changes.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>, mut stop: watch::Receiver<bool>) {
    let router = routes::router(Arc::clone(&shared));
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => break,
        };
        match accepted {
            Ok((stream, _)) => match Arc::clone(&room).try_acquire_owned() {
                Ok(permit) => converse(stream, permit, &router, &graceful),
                // Closing at once tells the client more than a connection nobody reads.
                Err(_) => add(&shared.stats.http_refused, 1),
            },
            // Out of file descriptors, or the peer went away before it was accepted: go on, but not in a hot loop.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    drop(listener);
    // Past the limit the tasks end with their runtime.
    let _ = tokio::time::timeout(STOP_TIMEOUT, graceful.shutdown()).await;
}

fn converse(stream: TcpStream, permit: OwnedSemaphorePermit, router: &axum::Router, graceful: &GracefulShutdown) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        // An error here is the client's: a broken request was answered 400, a broken connection has nobody to tell.
        let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
        drop(permit);
    });
}
