//! What a server is told, and the rules that a configuration must keep before anything is bound.
use crate::alert::WebhookFormat;
use crate::bus::source::BusSource;
use crate::http::auth::TOKEN_BYTES_MIN;
use crate::otlp::OtlpHeaders;
use mycroft_store::StoreConfig;
use mycroft_store::meta::MetaPlace;
use mycroft_store::remote::RecordsPlace;
use mycroft_wire::{Endpoint, TlsIdentity, TlsServer};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

/// Default port of the HTTP API.
pub const HTTP_PORT: u16 = 7701;
/// How often every job is weighed when nothing is due earlier.
pub const TICK: Duration = Duration::from_secs(1);
/// Shortest and longest tick accepted: below 10 ms the loop would do little else, above a minute the promise of two
/// seconds from stall to case would rest on `next_check` alone.
const TICK_RANGE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(60));

/// A server's configuration.
#[derive(Clone)]
pub struct ServeConfig {
    /// Where the HTTP API listens; port 0 picks a free one.
    pub http: SocketAddr,
    /// Where agents connect; empty for a server that only shows old cases.
    pub wire: Vec<Endpoint>,
    /// A bus from which records come as well; needs a store, and one database for all servers of it.
    pub bus: Option<BusSource>,
    /// Shared secret of agents and readers; required as soon as any address is not loopback.
    pub token: Option<String>,
    /// TLS of the wire's TCP endpoints.
    pub tls: Option<TlsServer>,
    /// Certificate and key of the HTTP address, which speaks HTTPS then and nothing else.
    pub http_tls: Option<TlsIdentity>,
    /// Where records and cases are kept; `None`: nothing outlives the server.
    pub store_dir: Option<PathBuf>,
    /// Where cases, actions, policies and series are, of a server with a store.
    pub meta: MetaPlace,
    /// Where segments of records go besides the store's folder.
    pub records: RecordsPlace,
    /// Stored records that arrived longer ago than this are deleted.
    pub retain_age: Duration,
    /// The oldest stored records are deleted while all together take more bytes than this.
    pub retain_bytes: u64,
    /// How often every job is weighed when nothing is due earlier.
    pub tick: Duration,
    /// URL that receives a POST when a case opens, settles or closes.
    pub webhook: Option<String>,
    /// What its POSTs look like.
    pub webhook_format: WebhookFormat,
    /// PagerDuty's routing key; for other formats, what POSTs are signed with.
    pub webhook_key: Option<String>,
    /// URL of an OpenTelemetry collector: cases go to it as log records and spans, iterations as metrics.
    pub otlp: Option<String>,
    /// Headers of these POSTs.
    pub otlp_headers: OtlpHeaders,
    /// Take stacks and Flight Recorder dumps of a job when a case of it opens.
    pub dump_on_case: bool,
    /// Where files are written that carry plans out; `None`: the server only plans. Needs a store, for the audit log, and a token.
    pub act_dir: Option<PathBuf>,
    /// Secret of who may act; another than the readers'.
    pub act_token: Option<String>,
}

impl Default for ServeConfig {
    fn default() -> ServeConfig {
        ServeConfig {
            http: SocketAddr::from((Ipv4Addr::LOCALHOST, HTTP_PORT)),
            wire: Vec::new(),
            bus: None,
            token: None,
            tls: None,
            http_tls: None,
            store_dir: None,
            meta: MetaPlace::File,
            records: RecordsPlace::Folder,
            retain_age: StoreConfig::default().retain_age,
            retain_bytes: StoreConfig::default().retain_bytes,
            tick: TICK,
            webhook: None,
            webhook_format: WebhookFormat::Generic,
            webhook_key: None,
            otlp: None,
            otlp_headers: OtlpHeaders::default(),
            dump_on_case: true,
            act_dir: None,
            act_token: None,
        }
    }
}

/// Secrets (the token, credentials inside URLs and headers) do not show.
impl fmt::Debug for ServeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeConfig")
            .field("http", &self.http)
            .field("wire", &self.wire)
            .field("bus", &self.bus)
            .field("token", &self.token.as_ref().map(|_| "set"))
            .field("tls", &self.tls)
            .field("http_tls", &self.http_tls)
            .field("store_dir", &self.store_dir)
            .field("meta", &self.meta)
            .field("records", &self.records)
            .field("retain_age", &self.retain_age)
            .field("retain_bytes", &self.retain_bytes)
            .field("tick", &self.tick)
            .field("dump_on_case", &self.dump_on_case)
            .field("act_dir", &self.act_dir)
            .field("act_token", &self.act_token.as_ref().map(|_| "set"))
            .field("webhook", &self.webhook.as_ref().map(|_| "set"))
            .field("webhook_format", &self.webhook_format)
            .field("otlp", &self.otlp.as_ref().map(|_| "set"))
            .field("otlp_headers", &self.otlp_headers)
            .finish_non_exhaustive()
    }
}

/// Why a configuration is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Others could connect and no token is set.
    #[error(
        "{what} {address} can be reached from other machines and no token is set: \
         set a token of at least {TOKEN_BYTES_MIN} characters, or listen on 127.0.0.1"
    )]
    Exposed {
        /// Which listener.
        what: &'static str,
        /// Its address.
        address: String,
    },
    /// The token is too easy to guess for an address that others can reach.
    #[error(
        "the token has {bytes} characters and {address} can be reached from other machines: \
         use at least {TOKEN_BYTES_MIN}, for example the output of `openssl rand -base64 24`"
    )]
    ShortToken {
        /// Length of the token.
        bytes: usize,
        /// The address.
        address: String,
    },
    /// The token cannot travel in an HTTP header.
    #[error("the token is empty or contains spaces, control or non-ASCII characters: use printable ASCII only")]
    BadToken,
    /// The tick is out of range.
    #[error("tick of {tick:?}: expected {:?} to {:?}", TICK_RANGE.0, TICK_RANGE.1)]
    BadTick {
        /// What was given.
        tick: Duration,
    },
    /// Acting needs more than a directory.
    #[error(
        "a server that acts needs a store for its audit log and a token of at least {TOKEN_BYTES_MIN} characters that is not the \
         readers': {0} is missing or not fit"
    )]
    Acts(&'static str),
    /// Leases and cases of a bus are in the store.
    #[error("a server that reads a bus needs a store: its leases and cases are there")]
    BusWithoutStore,
    /// PagerDuty takes events with a routing key only.
    #[error("alerts for PagerDuty need its routing key")]
    NoRoutingKey,
    /// The webhook is no URL this program can post to.
    #[error("the webhook URL must begin with http:// or https:// and name a host")]
    BadWebhook,
    /// Paths cannot be added to it, or this program cannot post to it.
    #[error(
        "the address for OpenTelemetry must begin with http:// or https://, name a host, and have neither query nor fragment: \
         /v1/logs, /v1/traces and /v1/metrics are added to it"
    )]
    BadOtlp,
}

impl ServeConfig {
    /// Checks the rules; called by `Server::start`.
    ///
    /// # Errors
    /// The first rule that is broken, with what to change.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.token.as_deref().is_some_and(|t| t.is_empty() || !t.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(ConfigError::BadToken);
        }
        if !(TICK_RANGE.0..=TICK_RANGE.1).contains(&self.tick) {
            return Err(ConfigError::BadTick { tick: self.tick });
        }
        if self.webhook.as_deref().is_some_and(|url| !is_http_url(url)) {
            return Err(ConfigError::BadWebhook);
        }
        if self.otlp.as_deref().is_some_and(|url| !is_http_url(url) || url.contains(['?', '#'])) {
            return Err(ConfigError::BadOtlp);
        }
        if self.webhook.is_some() && self.webhook_format == WebhookFormat::PagerDuty && self.webhook_key.is_none() {
            return Err(ConfigError::NoRoutingKey);
        }
        self.check_acts()?;
        if self.bus.is_some() && self.store_dir.is_none() {
            return Err(ConfigError::BusWithoutStore);
        }
        if !self.http.ip().is_loopback() {
            self.check_exposed("the HTTP address", &self.http.to_string())?;
        }
        for endpoint in &self.wire {
            match endpoint {
                Endpoint::Tcp(address) if !is_loopback(address) => {
                    self.check_exposed("the agents' address", address)?;
                }
                Endpoint::Tcp(_) | Endpoint::Unix(_) => {}
            }
        }
        Ok(())
    }

    fn check_acts(&self) -> Result<(), ConfigError> {
        if self.act_dir.is_none() && self.act_token.is_none() {
            return Ok(());
        }
        let is_fit = |token: &str| token.len() >= TOKEN_BYTES_MIN && token.bytes().all(|b| b.is_ascii_graphic());
        match &self.act_token {
            Some(token) if is_fit(token) && self.token.as_ref() != Some(token) => {}
            _ => return Err(ConfigError::Acts("the token")),
        }
        if self.act_dir.is_none() {
            return Err(ConfigError::Acts("the directory of files"));
        }
        if self.store_dir.is_none() { Err(ConfigError::Acts("the store")) } else { Ok(()) }
    }

    fn check_exposed(&self, what: &'static str, address: &str) -> Result<(), ConfigError> {
        let address = address.to_owned();
        match &self.token {
            None => Err(ConfigError::Exposed { what, address }),
            Some(token) if token.len() < TOKEN_BYTES_MIN => {
                Err(ConfigError::ShortToken { bytes: token.len(), address })
            }
            Some(_) => Ok(()),
        }
    }
}

/// Whether only this machine reaches the address. A name that does not resolve counts as exposed.
fn is_loopback(address: &str) -> bool {
    address.to_socket_addrs().is_ok_and(|mut found| {
        let first = found.next();
        first.is_some_and(|a| a.ip().is_loopback()) && found.all(|a| a.ip().is_loopback())
    })
}

fn is_http_url(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && url.bytes().all(|b| b.is_ascii_graphic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(http: &str, wire: &[&str], token: Option<&str>) -> ServeConfig {
        ServeConfig {
            http: http.parse().expect("a socket address"),
            wire: wire.iter().map(|w| w.parse().expect("an endpoint")).collect(),
            token: token.map(str::to_owned),
            ..ServeConfig::default()
        }
    }

    #[test]
    fn loopback_needs_no_token() {
        for http in ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0"] {
            assert_eq!(config(http, &["127.0.0.1:0", "unix:/tmp/x"], None).check(), Ok(()), "{http}");
        }
    }

    #[test]
    fn what_others_reach_needs_a_long_token() {
        let long = Some("0123456789abcdef");
        for (http, wire) in [("0.0.0.0:0", "127.0.0.1:0"), ("[::]:0", "127.0.0.1:0"), ("127.0.0.1:0", "0.0.0.0:0")] {
            let refused = config(http, &[wire], None).check().expect_err("must be refused");
            assert!(matches!(refused, ConfigError::Exposed { .. }), "{refused}");
            assert!(refused.to_string().contains("0.0.0.0") || refused.to_string().contains("[::]"), "{refused}");
            let refused = config(http, &[wire], Some("0123456789abcde")).check().expect_err("must be refused");
            assert!(matches!(refused, ConfigError::ShortToken { bytes: 15, .. }), "{refused}");
            assert_eq!(config(http, &[wire], long).check(), Ok(()));
        }
    }

    #[test]
    fn tokens_ticks_and_webhooks_are_checked() {
        for token in ["", "with space", "line\nbreak", "\u{fc}ber"] {
            assert_eq!(config("127.0.0.1:0", &[], Some(token)).check(), Err(ConfigError::BadToken), "{token:?}");
        }
        for ms in [0, 9, 60_001] {
            let bad = ServeConfig { tick: Duration::from_millis(ms), ..ServeConfig::default() };
            assert!(matches!(bad.check(), Err(ConfigError::BadTick { .. })), "{ms}");
        }
        for url in ["", "ftp://x", "http://", "https:///path", "http://a b", "hooks.example.org"] {
            let bad = ServeConfig { webhook: Some(url.to_owned()), ..ServeConfig::default() };
            assert_eq!(bad.check(), Err(ConfigError::BadWebhook), "{url:?}");
        }
        for url in ["", "grpc://x:4317", "http://", "http://x:4318/?a=b", "http://x#y", "127.0.0.1:4318"] {
            let bad = ServeConfig { otlp: Some(url.to_owned()), ..ServeConfig::default() };
            assert_eq!(bad.check(), Err(ConfigError::BadOtlp), "{url:?}");
        }
        for (act_dir, act_token, store_dir, token, missing) in [
            (Some("a"), None, Some("s"), None, "token"),
            (Some("a"), Some("short"), Some("s"), None, "token"),
            (Some("a"), Some("0123456789abcdef"), Some("s"), Some("0123456789abcdef"), "token"),
            (None, Some("0123456789abcdef"), Some("s"), None, "directory"),
            (Some("a"), Some("0123456789abcdef"), None, None, "store"),
        ] {
            let bad = ServeConfig {
                act_dir: act_dir.map(PathBuf::from),
                act_token: act_token.map(str::to_owned),
                store_dir: store_dir.map(PathBuf::from),
                token: token.map(str::to_owned),
                ..ServeConfig::default()
            };
            let refused = bad.check().expect_err("must be refused").to_string();
            assert!(refused.contains(&format!("the {missing}")), "{refused}");
        }
        let good = ServeConfig {
            webhook: Some("https://u:p@hooks.example.org/x?y=1".into()),
            otlp: Some("https://u:p@otel.example.org:4318/under/".into()),
            otlp_headers: "Authorization: Bearer s3cret".parse().expect("a header"),
            ..ServeConfig::default()
        };
        assert_eq!(good.check(), Ok(()));
        let shown = format!("{good:?}");
        assert!(!shown.contains("u:p") && !shown.contains("s3cret"), "debug output must not show secrets: {shown}");
    }
}
