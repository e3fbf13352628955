//! Which server and database, and how the way there is kept safe.
use crate::meta::error::MetaError;
use crate::meta::place::PostgresAt;
use mycroft_wire::TlsClient;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

/// Longest wait for each address of a server. A server of the same site answers within milliseconds.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);
/// A connection that is silent for so long is asked whether the other end is there.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
/// Bytes that nobody took for so long end the connection.
const UNTAKEN_LIMIT: Duration = Duration::from_secs(5);
/// The port where none is said.
const PORT: u16 = 5432;

/// Which server and database.
#[derive(Clone)]
pub(crate) struct Address {
    pub(super) config: Config,
    pub(super) tls: Option<MakeRustlsConnect>,
    /// For people: user, host and database, never the password.
    pub(super) shown: String,
}

impl Address {
    /// What a person said about it.
    ///
    /// # Errors
    /// It is no such URL, or others could listen on the way there.
    pub(crate) fn of(at: &PostgresAt) -> Result<Address, MetaError> {
        let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| at.url.starts_with(scheme));
        // What the parser says of it may repeat a part of a password.
        let parsed = at.url.parse::<Config>().ok().filter(|config| is_url && !config.get_hosts().is_empty());
        let Some(mut config) = parsed else {
            return Err(MetaError::Address(
                "expected a URL such as postgres://USER@HOST:PORT/DATABASE, or postgres:///DATABASE?host=/run/postgresql&user=USER \
                 for a Unix socket"
                    .to_owned(),
            ));
        };
        if config.get_password().is_some() {
            return Err(MetaError::Address(
                "a password in the URL is seen by whoever lists processes or reads the configuration: put it into a file \
                 (--meta-password-file)"
                    .to_owned(),
            ));
        }
        if let Some(password) = &at.password {
            config.password(password);
        }
        config
            .application_name("mycroft")
            .connect_timeout(CONNECT_LIMIT)
            .keepalives_idle(KEEPALIVE_IDLE)
            .tcp_user_timeout(UNTAKEN_LIMIT);
        let shown = shown(&config);
        let tls = tls(&mut config, at, &shown)?;
        Ok(Address { config, tls, shown })
    }
}

fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let host = |(at, host): (usize, &Host)| {
        let port = ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => path.display().to_string(),
        }
    };
    let hosts: Vec<String> = config.get_hosts().iter().enumerate().map(host).collect();
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let database = config.get_dbname().or(config.get_user()).unwrap_or("(the user's)");
    format!("postgres://{user}{}/{database}", hosts.join(","))
}

/// TLS where an authority is named. Without one no other machine is connected to, unless somebody says that this is wanted.
fn tls(config: &mut Config, at: &PostgresAt, shown: &str) -> Result<Option<MakeRustlsConnect>, MetaError> {
    let refused = |why: &str| Err(MetaError::Address(format!("{shown}: {why}")));
    let mode = config.get_ssl_mode();
    let has_socket = config.get_hosts().iter().any(|host| matches!(host, Host::Unix(_)));
    let Some(ca_pem) = at.ca_pem.clone() else {
        return match mode {
            SslMode::Disable => Ok(None),
            SslMode::Prefer if config.get_hosts().iter().all(is_here) && config.get_hostaddrs().is_empty() => {
                config.ssl_mode(SslMode::Disable);
                Ok(None)
            }
            SslMode::Prefer => refused(
                "is another machine: name the authority of its certificate (--meta-ca FILE), or write ?sslmode=disable behind the \
                 database where nobody else can listen on the way",
            ),
            _ => refused("sslmode=require needs the authority of its certificate (--meta-ca FILE)"),
        };
    };
    if mode == SslMode::Disable || has_socket {
        return refused("an authority (--meta-ca) is for TLS, and this connection has none");
    }
    config.ssl_mode(SslMode::Require);
    let tls = TlsClient { ca_pem, server_name: None, identity: None };
    let client = tls.config().map_err(|error| MetaError::Address(error.to_string()))?;
    Ok(Some(MakeRustlsConnect::new(std::sync::Arc::unwrap_or_clone(client))))
}

fn is_here(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            let bare = name.trim_matches(['[', ']']);
            name == "localhost" || bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::place::MetaPlace;

    fn address(url: &str, ca_pem: Option<&str>) -> Result<Address, String> {
        let at = PostgresAt { url: url.to_owned(), password: None, ca_pem: ca_pem.map(Into::into) };
        Address::of(&at).map_err(|error| error.to_string())
    }

    #[test]
    fn no_error_shows_a_password() {
        for url in [
            "postgres://ada:s3cret@db/x?port=no",
            "postgres://ada:s3cret/@db/x",
            "http://ada:s3cret@db/x",
            "ada:s3cret@db",
            "postgres://ada:s3cret@/x",
            "postgres://ada:s3cret@localhost/x",
            "postgres://ada@localhost/x?password=s3cret",
        ] {
            let told = address(url, None).err().expect("refused");
            assert!(!told.contains("s3cret"), "{told}");
        }
        let told = address("postgres://ada:s3cret@localhost/x", None).err().expect("refused");
        assert!(told.contains("--meta-password-file"), "{told}");
        let url = "postgres://ada@127.0.0.1/x".to_owned();
        let place = MetaPlace::postgres(url, Some("s3cret".to_owned()), None).expect("an address");
        assert!(!format!("{place:?}").contains("s3cret"), "{place:?}");
        let MetaPlace::Postgres(at) = place else { panic!("a file") };
        let good = Address::of(&at).expect("an address");
        assert_eq!(
            (&*good.shown, good.config.get_password()),
            ("postgres://ada@127.0.0.1:5432/x", Some(&b"s3cret"[..]))
        );
    }

    #[test]
    fn another_machine_needs_tls_or_a_word() {
        for here in [
            "postgres://ada@localhost/x",
            "postgres://ada@[::1]/x",
            "postgres:///x?host=/run/postgresql",
            "postgres://%2Frun%2Fpostgresql/x",
        ] {
            assert!(address(here, None).expect("an address").tls.is_none(), "{here}");
        }
        let told = address("postgres://ada@db.example.org:6432/x", None).err().expect("refused");
        assert!(told.contains("db.example.org:6432/x") && told.contains("--meta-ca"), "{told}");
        assert!(address("postgres://ada@localhost,db.example.org/x", None).is_err());
        assert!(address("postgres://ada@localhost/x?hostaddr=10.0.0.1", None).is_err());
        assert!(address("postgres://ada@db.example.org/x?sslmode=disable", None).is_ok());
        let told = address("postgres://ada@db.example.org/x", Some("/no/such/file")).err().expect("refused");
        assert!(told.contains("/no/such/file"), "{told}");
        assert!(address("postgres://ada@db.example.org/x?sslmode=disable", Some("/x")).is_err());
        assert!(address("postgres:///x?host=/run/postgresql", Some("/x")).is_err());
    }
}
