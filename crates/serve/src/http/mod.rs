//! The HTTP side: accepts connections with limits on everything, and hands requests to the routes.
//!
//! axum routes; the connections are hyper's own, because a server that strangers can reach needs a header timeout and
//! a connection limit.
mod acts;
pub(crate) mod answers;
pub(crate) mod auth;
mod compare;
mod dumps;
mod events;
mod fleet;
mod gates;
mod guests;
mod health;
mod holders;
mod metrics;
mod notes;
mod operations;
mod pages;
mod routes;
mod secure;
mod series;

pub(crate) use routes::Shared;

use crate::stats::add;
use axum::Extension;
use guests::{Guest, Guests};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use mycroft_wire::ServerTls;
use mycroft_wire::descriptors::Shares;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Largest request head: no route needs more than a token and a job name (1 KiB each), browsers send cookies.
const BUFFER_BYTES: usize = 16 * 1024;
/// Headers accepted in a request.
const HEADERS_MAX: usize = 64;
/// Limit for sending a request's head, also of an idle kept-alive connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit for a whole connection: a reader that takes an answer drop by drop goes, a Prometheus reconnects.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(300);
/// How long answers in progress may take when the server stops: a third of the time in which it has to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until `stop` changes.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>, shares: Shares, mut stop: watch::Receiver<bool>) {
    let for_readers = acts::for_readers()
        .merge(series::routes())
        .merge(compare::routes())
        .merge(operations::routes())
        .merge(notes::routes())
        .merge(events::routes())
        .merge(fleet::routes());
    let router = routes::router(Arc::clone(&shared), for_readers, acts::router(&shared));
    let graceful = GracefulShutdown::new();
    let guests = Guests::new(shares.visitors, shares.readers);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.changed() => break,
        };
        match accepted {
            Ok((stream, from)) => {
                let (guest, is_another_out) = guests.enter(from.ip());
                add(&shared.stats.http_refused, u64::from(is_another_out));
                let router = router.clone().layer(Extension(guest.clone()));
                tokio::spawn(converse(stream, guest, shared.http_tls.clone(), router, graceful.watcher()));
            }
            // Out of file descriptors, or the peer went away before it was accepted: go on, but not in a hot loop.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    drop(listener);
    shared.book.feed().close();
    // Past the limit the tasks end with their runtime.
    let _ = tokio::time::timeout(STOP_TIMEOUT, graceful.shutdown()).await;
}

/// Talks with one client until it ends, its time is over, or it is put out.
async fn converse(
    stream: TcpStream,
    guest: Guest,
    tls: Option<Arc<ServerTls>>,
    router: axum::Router,
    watcher: Watcher,
) {
    let talk = async {
        let Some(tls) = tls else { return answer(TokioIo::new(stream), router, watcher).await };
        if let Ok(Some(stream)) = tokio::time::timeout(HEAD_TIMEOUT, secure::accept(stream, &tls)).await {
            answer(TokioIo::new(stream), router, watcher).await;
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(CONNECTION_TIMEOUT, talk) => {}
        () = guest.put_out() => {}
    }
}

/// Answers requests of a connection.
async fn answer<I: Read + Write + Unpin + Send + 'static>(io: I, router: axum::Router, watcher: Watcher) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, TowerToHyperService::new(router));
    // An error here is the client's: a broken request was answered 400, a broken connection has nobody to tell.
    let _ = watcher.watch(connection).await;
}
