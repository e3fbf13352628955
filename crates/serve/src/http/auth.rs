//! Who may read: bearer token, constant-time comparison, and the Host rule of a server without one.
use std::net::IpAddr;

/// Shortest token a server that others can reach accepts: 16 characters of base64 are 96 bits.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;

/// What a request may not do, and the answer that says what to do instead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denied {
    /// No `Authorization: Bearer` although a token is set.
    NoToken,
    /// Another token.
    WrongToken,
    /// A token by name whose time is over.
    ExpiredToken,
    /// No token is set and the Host header is a foreign name (a web page that made its name point to this machine).
    ForeignHost,
}

impl Denied {
    /// HTTP status.
    pub(crate) fn status(self) -> u16 {
        match self {
            Denied::NoToken | Denied::WrongToken | Denied::ExpiredToken => 401,
            Denied::ForeignHost => 403,
        }
    }

    /// What the client is told.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Denied::NoToken => {
                "this server wants a token: send the header `Authorization: Bearer TOKEN` with the server's token"
            }
            Denied::WrongToken => "the token is not this server's: check which server and which token file you use",
            Denied::ExpiredToken => {
                "the token has expired: ask who runs this server for another one (`mycroft token add`)"
            }
            Denied::ForeignHost => {
                "without a token this server answers only to localhost or an IP address in the Host header: \
                 use http://127.0.0.1:PORT, or start the server with a token"
            }
        }
    }
}

/// Whether a request with these headers may read.
pub(crate) fn check(token: Option<&str>, authorization: Option<&[u8]>, host: Option<&[u8]>) -> Result<(), Denied> {
    let Some(token) = token else {
        return if host.is_none_or(is_local_name) { Ok(()) } else { Err(Denied::ForeignHost) };
    };
    let given = authorization.and_then(bearer).ok_or(Denied::NoToken)?;
    if equal_in_constant_time(given, token.as_bytes()) { Ok(()) } else { Err(Denied::WrongToken) }
}

/// Name of the cookie that stands for the header in a browser.
const COOKIE: &str = "mycroft";

/// The cookie that says what `Authorization: Bearer TOKEN` says; `None` where the token has characters that no cookie can have
/// (RFC 6265 section 4.1.1).
pub(crate) fn cookie(token: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\');
    token.bytes().all(fits).then(|| format!("{COOKIE}={token}"))
}

/// The header that the cookie stands for.
pub(crate) fn from_cookie(header: &[u8]) -> Option<Vec<u8>> {
    let mut pairs = header.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let value = pairs.find_map(|pair| pair.strip_prefix(COOKIE.as_bytes())?.strip_prefix(b"="))?;
    Some([b"Bearer ", value].concat())
}

/// The credentials of `Bearer CREDENTIALS`; the scheme's case does not matter (RFC 9110 section 11.1).
pub(super) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = header.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| rest.trim_ascii())
}

/// Compares without a branch on content: the time depends on the given length only, which the caller knows anyway.
fn equal_in_constant_time(given: &[u8], secret: &[u8]) -> bool {
    let mut difference = u8::from(given.len() != secret.len()) | u8::from(secret.is_empty());
    for (index, byte) in given.iter().enumerate() {
        let expected = secret.get(index % secret.len().max(1)).copied().unwrap_or(0);
        difference = std::hint::black_box(difference | (byte ^ expected));
    }
    difference == 0
}

/// Whether a Host header names this machine or an address: a name of somebody's DNS means a rebinding page.
fn is_local_name(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "correct-horse-battery";

    fn with(authorization: &[u8]) -> Result<(), Denied> {
        check(Some(SECRET), Some(authorization), None)
    }

    #[test]
    fn only_the_exact_token_passes() {
        assert_eq!(with(b"Bearer correct-horse-battery"), Ok(()));
        assert_eq!(with(b"bearer  correct-horse-battery "), Ok(()));
        for wrong in ["Bearer correct-horse-batterz", "Bearer correct-horse-batter", "Bearer ", "Bearer x"] {
            assert_eq!(with(wrong.as_bytes()), Err(Denied::WrongToken), "{wrong}");
        }
        let twice = format!("Bearer {SECRET}{SECRET}");
        assert_eq!(with(twice.as_bytes()), Err(Denied::WrongToken));
        for none in ["Basic correct-horse-battery", "correct-horse-battery", "", "Bear"] {
            assert_eq!(with(none.as_bytes()), Err(Denied::NoToken), "{none}");
        }
        assert_eq!(check(Some(SECRET), None, Some(b"127.0.0.1")), Err(Denied::NoToken));
    }

    #[test]
    fn a_cookie_stands_for_the_header() {
        let cookie = cookie(SECRET).expect("it fits");
        let header = from_cookie(format!("other=1; {cookie}; mycroftx=2").as_bytes()).expect("it is there");
        assert_eq!(with(&header), Ok(()));
        assert_eq!(from_cookie(b"mycroftx=1; x=mycroft=2"), None);
        assert_eq!(from_cookie(b"mycroft=wrong").as_deref().map(with), Some(Err(Denied::WrongToken)));
    }

    #[test]
    fn an_empty_secret_equals_nothing() {
        assert!(!equal_in_constant_time(b"", b""));
        assert!(!equal_in_constant_time(b"x", b""));
    }

    #[test]
    fn without_a_token_only_local_names_and_addresses_are_answered() {
        for host in ["localhost:9", "LOCALHOST", "127.0.0.1:80", "127.0.0.2", "[::1]:80", "10.1.2.3:80"] {
            assert_eq!(check(None, None, Some(host.as_bytes())), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:80", "", "[evil]:80", "\u{e9}"] {
            assert_eq!(check(None, None, Some(host.as_bytes())), Err(Denied::ForeignHost), "{host}");
        }
        assert_eq!(check(None, None, None), Ok(()), "HTTP/1.0 has no Host");
    }
}
