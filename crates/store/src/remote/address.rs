//! Which ClickHouse server and database, and how the way there is kept safe.
use super::error::RecordsError;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// The scheme of the URL.
const SCHEME: &str = "clickhouse://";
/// Ports of ClickHouse's HTTP interface, without and with TLS.
const PORTS: (u16, u16) = (8123, 8443);
/// What says that nobody else can listen on the way.
const PLAIN: &str = "tls=disable";

/// Where records are besides the store's folder.
#[derive(Clone, Debug, Default)]
pub enum RecordsPlace {
    /// In the folder only.
    #[default]
    Folder,
    /// In tables of a ClickHouse server, that other stores may use as well.
    ClickHouse(ClickHouseAt),
}

/// A database of a ClickHouse server, by its HTTP interface.
#[derive(Clone)]
#[cfg_attr(not(feature = "clickhouse"), allow(dead_code, reason = "nothing reads them then"))]
pub struct ClickHouseAt {
    pub(super) user: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: String,
    pub(super) password: Option<String>,
    pub(super) ca_pem: Option<PathBuf>,
}

/// The password does not show.
impl fmt::Debug for ClickHouseAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClickHouseAt")
            .field("at", &self.to_string())
            .field("ca_pem", &self.ca_pem)
            .finish_non_exhaustive()
    }
}

/// For people: user, host and database.
impl fmt::Display for ClickHouseAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}@{}:{}/{}", self.user, self.host, self.port, self.database)
    }
}

impl RecordsPlace {
    /// A database of a ClickHouse server: `clickhouse://USER@HOST:PORT/DATABASE`. Without an authority (`ca_pem`) another machine
    /// is connected to only where the URL ends in `?tls=disable`.
    ///
    /// # Errors
    /// It is no such URL, has a password, others could listen on the way there, or this program was built without.
    pub fn clickhouse(
        url: &str,
        password: Option<String>,
        ca_pem: Option<PathBuf>,
    ) -> Result<RecordsPlace, RecordsError> {
        let at = ClickHouseAt::of(url, password, ca_pem)?;
        if cfg!(feature = "clickhouse") { Ok(RecordsPlace::ClickHouse(at)) } else { Err(RecordsError::NotBuilt) }
    }
}

impl ClickHouseAt {
    fn of(url: &str, password: Option<String>, ca_pem: Option<PathBuf>) -> Result<ClickHouseAt, RecordsError> {
        let refused = |why: &str| Err(RecordsError::Address(why.to_owned()));
        // What is wrong is not repeated: it may hold a password.
        let expected =
            "expected a URL such as clickhouse://USER@HOST:PORT/DATABASE (PORT is that of the HTTP interface)";
        let Some(rest) = url.strip_prefix(SCHEME) else { return refused(expected) };
        let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
        let Some((authority, database)) = rest.split_once('/') else { return refused(expected) };
        let Some((user, place)) = authority.rsplit_once('@') else { return refused(expected) };
        if user.contains(':') {
            return refused(
                "a password in the URL is seen by whoever lists processes or reads the configuration: put it into a file \
                 (--records-password-file)",
            );
        }
        let is_name =
            |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
        let is_plain = match query {
            None => false,
            Some(PLAIN) => true,
            Some(_) => return refused("behind the database ?tls=disable can stand, and nothing else"),
        };
        let usual = if ca_pem.is_some() { PORTS.1 } else { PORTS.0 };
        let Some((host, port)) = host_and_port(place, usual) else { return refused(expected) };
        if !is_name(user) || !is_name(database) {
            return refused("user and database have letters, digits, hyphens, dots and underscores");
        }
        let at = ClickHouseAt { user: user.to_owned(), host, port, database: database.to_owned(), password, ca_pem };
        match (&at.ca_pem, is_plain) {
            (Some(_), true) => {
                refused("an authority (--records-ca) is for TLS, and ?tls=disable says that there is none")
            }
            (None, false) if !is_here(&at.host) => Err(RecordsError::Address(format!(
                "{at}: is another machine: name the authority of its certificate (--records-ca FILE), or write ?tls=disable \
                 behind the database where nobody else can listen on the way"
            ))),
            _ => Ok(at),
        }
    }
}

fn host_and_port(place: &str, usual: u16) -> Option<(String, u16)> {
    let (host, port) = match place.rsplit_once(':') {
        // The colons of an address in brackets are its own.
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (place, usual),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let is_host = bare.map_or(!host.is_empty() && host.chars().all(is_fit), |bare| bare.parse::<IpAddr>().is_ok());
    is_host.then(|| (host.to_owned(), port))
}

fn is_here(host: &str) -> bool {
    host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(url: &str, ca: bool) -> Result<ClickHouseAt, String> {
        let ca_pem = ca.then(|| PathBuf::from("ca.pem"));
        ClickHouseAt::of(url, Some("s3cret".to_owned()), ca_pem).map_err(|error| error.to_string())
    }

    #[test]
    fn an_address_is_taken_where_nobody_else_can_listen() {
        let shown = |url, ca| at(url, ca).map(|at| at.to_string());
        assert_eq!(shown("clickhouse://ada@localhost/m", false).unwrap(), "clickhouse://ada@localhost:8123/m");
        assert_eq!(shown("clickhouse://ada@[::1]:9/m", false).unwrap(), "clickhouse://ada@[::1]:9/m");
        assert_eq!(shown("clickhouse://ada@db/m", true).unwrap(), "clickhouse://ada@db:8443/m");
        assert_eq!(shown("clickhouse://ada@db:81/m?tls=disable", false).unwrap(), "clickhouse://ada@db:81/m");
        assert!(shown("clickhouse://ada@db/m", false).unwrap_err().contains("--records-ca"));
        assert!(shown("clickhouse://ada@db/m?tls=disable", true).unwrap_err().contains("tls=disable"));
        for wrong in [
            "http://ada@db/m",
            "clickhouse://db/m",
            "clickhouse://ada@db",
            "clickhouse://ada@:1/m",
            "clickhouse://ada@localhost:x/m",
            "clickhouse://ada@localhost/m?x=1",
            "clickhouse://ada@local host/m",
            "clickhouse://ada@localhost/",
            "clickhouse://ada@localhost/m'",
            "clickhouse://a'b@localhost/m",
        ] {
            assert!(at(wrong, false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_message_shows_a_password() {
        for url in
            ["clickhouse://ada:s3cret@db/m", "clickhouse://ada:s3cret@localhost/m", "s3cret", "clickhouse://s3cret"]
        {
            let told = at(url, false).unwrap_err();
            assert!(!told.contains("s3cret"), "{told}");
        }
        assert!(at("clickhouse://ada:s3cret@db/m", false).unwrap_err().contains("--records-password-file"));
        assert!(!format!("{:?}", at("clickhouse://ada@localhost/m", false).unwrap()).contains("s3cret"));
    }
}
