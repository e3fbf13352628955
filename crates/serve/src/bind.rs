//! Binding every address before the first thread starts.
use crate::clock::Clock;
use crate::config::ServeConfig;
use crate::error::ServeError;
use crate::tokens::TokenBook;
use mycroft_wire::descriptors::{self, Shares};
use mycroft_wire::{Door, Doorkeeper, Endpoint, Listener, Places, ServerConfig, ServerTls, TlsServer, WireClock};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tracing::warn;

/// Threads that answer HTTP: conversion to JSON is all they do, and the brain should keep a core of two.
const HTTP_THREADS: usize = 1;

/// Endpoints that are bound and not served yet. A listener removes its socket file when it stops serving, so one that
/// never served is served for a moment when the start fails.
pub(crate) struct Bound(pub(crate) Vec<Listener>);

impl Drop for Bound {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|listener| drop(listener.serve(Arc::new(|_| {}))));
    }
}

/// Takes as many file descriptors as the system gives, and says when they are few.
fn share_descriptors() -> Shares {
    let limit = descriptors::raise();
    let shares = Shares::of(limit);
    if shares.is_tight {
        warn!(
            limit,
            "the limit of {limit} open files leaves room for {} agents and {} readers: raise it (ulimit -n, LimitNOFILE) \
             if there are more",
            shares.agents,
            shares.readers
        );
    }
    shares
}

/// Binds every endpoint of agents; with the tokens by name, where a server has a token of its own and a store: without one of
/// its own it asks nobody. Clocks of agents are compared with the server's, by which records arrive.
pub(crate) fn bind_wire(
    config: &ServeConfig,
    clock: &Clock,
) -> Result<(Shares, Bound, Option<Arc<TokenBook>>), ServeError> {
    let store = config.store_dir.as_ref().filter(|_| config.token.is_some());
    let tokens = store.map(|store| Arc::new(TokenBook::of(store)));
    let shares = share_descriptors();
    let mut bound = Bound(Vec::new());
    // Agents share their places; strangers have some of each listener.
    let strangers = (shares.strangers / config.wire.len().max(1)).max(1);
    let places = Arc::new(Places::new(Shares { strangers, ..shares }));
    for endpoint in &config.wire {
        // TLS is TCP's; a unix socket is guarded by the rights of its directory.
        let tls = if let Endpoint::Tcp(_) = endpoint { config.tls.clone() } else { None };
        let door = Door::from(config.token.clone());
        let door = tokens.as_ref().map_or(door.clone(), |tokens| door.with(Arc::clone(tokens) as Arc<dyn Doorkeeper>));
        let listener = Listener::bind(endpoint, ServerConfig { token: door, tls })?;
        let read = Arc::clone(clock);
        bound.0.push(listener.with_places(&places).with_clock(WireClock::new(move || read())));
    }
    Ok((shares, bound, tokens))
}

/// The HTTP address, bound.
pub(crate) struct BoundHttp {
    pub(crate) runtime: Runtime,
    pub(crate) listener: TcpListener,
    /// The address that it got.
    pub(crate) http: SocketAddr,
    pub(crate) http_tls: Option<Arc<ServerTls>>,
}

/// Reads the certificate of the HTTP address, where it has one, and binds the address.
pub(crate) fn bind_http(config: &ServeConfig) -> Result<BoundHttp, ServeError> {
    let address = config.http;
    let files =
        config.http_tls.clone().map(|identity| TlsServer { identity, client_ca_pem: None, client_crl_pem: None });
    let tls = files.map(|files| ServerTls::open(&files, &["http/1.1"]).map(Arc::new)).transpose();
    let http_tls = tls.map_err(ServeError::HttpTls)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(HTTP_THREADS)
        .thread_name("mycroft-http")
        .enable_all()
        .build()
        .map_err(|source| ServeError::Thread { what: "the network runtime", source })?;
    let bound = runtime.block_on(TcpListener::bind(address));
    let (listener, http) = bound
        .and_then(|listener| listener.local_addr().map(|local| (listener, local)))
        .map_err(|source| ServeError::BindHttp { address, source })?;
    Ok(BoundHttp { runtime, listener, http, http_tls })
}
