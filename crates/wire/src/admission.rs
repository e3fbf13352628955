//! The first bytes of a connection: whether it speaks TLS where it should, this protocol, and the token.
use crate::agents::Owner;
use crate::certificate::speaks_for;
use crate::proto::{self, Hello};
use crate::refusal::Refusal;
use crate::refused::{End, refuse};
use crate::stream::Stream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fmt, io};

/// Looks at the first byte, so that a peer on the wrong side of TLS gets words that it can read.
pub(super) fn begin_tls(
    stream: Stream,
    tls: Option<Arc<rustls::ServerConfig>>,
    deadline: Instant,
) -> Result<Stream, (Stream, End)> {
    let Stream::Tcp(socket) = stream else { return Ok(stream) };
    let Some(config) = tls else { return Ok(Stream::Tcp(socket)) };
    let mut first = [0u8; 1];
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let peeked = socket.set_read_timeout(Some(left)).and_then(|()| socket.peek(&mut first));
    match peeked {
        Ok(1) if first[0] == 0x16 => {}
        Ok(1) => {
            let text = "this address speaks TLS only; give the agent the server's CA certificate".to_owned();
            return Err((Stream::Tcp(socket), End::Refuse(Refusal::TlsRequired, text)));
        }
        _ => return Err((Stream::Tcp(socket), End::Silent)),
    }
    match rustls::ServerConnection::new(config) {
        Ok(connection) => Ok(Stream::tls(connection, socket)),
        Err(_) => Err((Stream::Tcp(socket), End::Silent)),
    }
}

/// Longest wait for the rest of a hello whose version is not spoken: it comes in one piece with the head, and is read to name the
/// host only.
const NAME_PATIENCE: Duration = Duration::from_millis(200);

/// Reads an agent's hello and checks everything that does not depend on who else is here.
/// With whom its number belongs to. `named` is the host that it says, as soon as that is known.
pub(super) fn read_hello(
    stream: &mut Stream,
    door: &Door,
    deadline: Instant,
    named: &mut Option<String>,
) -> Result<(Hello, Owner), End> {
    let mut head = [0u8; proto::HELLO_HEAD_BYTES];
    let (magic, rest) = head.split_at_mut(4);
    stream.read_exact_by(magic, deadline).map_err(unwelcome)?;
    if magic[..2] == [0x16, 3] {
        return refuse(Refusal::NoTls, "this address speaks no TLS; drop the agent's TLS settings");
    }
    if magic != proto::MAGIC {
        return refuse(Refusal::OtherProtocol, "this is mycroft's port for agents; the web interface has its own port");
    }
    stream.read_exact_by(rest, deadline)?;
    let (lowest, highest, length) = Hello::head(&head);
    let (own_low, own_high) = (proto::VERSION_LOWEST, proto::VERSION_HIGHEST);
    let versions = format!("agent speaks {lowest} to {highest}, server {own_low} to {own_high}");
    if highest < own_low || lowest > own_high {
        *named = read_name(stream, length, deadline.min(Instant::now() + NAME_PATIENCE));
    }
    if highest < own_low {
        return refuse(Refusal::TooOld, format!("protocol versions: {versions}; upgrade the agent"));
    }
    if lowest > own_high {
        return refuse(Refusal::TooNew, format!("protocol versions: {versions}; upgrade the server first"));
    }
    if length > proto::MAX_HELLO_BODY_BYTES {
        return refuse(Refusal::Malformed, format!("a hello of {length} bytes"));
    }
    let mut body = vec![0u8; length];
    stream.read_exact_by(&mut body, deadline)?;
    let Some(hello) = Hello::body(lowest, highest, &body) else {
        return refuse(Refusal::Malformed, "the hello ends too early");
    };
    *named = Some(hello.host.clone());
    match door.opens(&hello) {
        Ok(token) => {
            let certificate = stream.certificate();
            if let Some(Err(why)) = certificate.as_ref().map(|shown| speaks_for(shown, &hello.host)) {
                return refuse(Refusal::BadCertificate, why);
            }
            let owner = Owner { host: hello.host.clone(), is_bound: token.is_some() || certificate.is_some(), token };
            Ok((hello, owner))
        }
        Err(why) => refuse(Refusal::BadToken, why),
    }
}

/// The host of a hello whose versions are not spoken: its fields of version 1 are the same in all.
fn read_name(stream: &mut Stream, length: usize, deadline: Instant) -> Option<String> {
    let mut body = vec![0u8; Some(length).filter(|length| *length <= proto::MAX_HELLO_BODY_BYTES)?];
    stream.read_exact_by(&mut body, deadline).ok()?;
    Some(Hello::body(0, 0, &body)?.host)
}

/// An agent that TLS does not let in is told in the log; itself it learns from TLS.
fn unwelcome(error: io::Error) -> End {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(why @ (rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_))) => {
            End::Refuse(Refusal::BadCertificate, format!("the agent's certificate: {why}"))
        }
        _ => End::from(error),
    }
}

/// Knows agents by tokens of their own.
pub trait Doorkeeper: Send + Sync {
    /// Whether an agent of this host, and of no other, may come in with this token: the token's name, or why not. `None`: it is
    /// nobody's token.
    fn admits(&self, token: &str, host: &str) -> Option<Result<String, String>>;
}

/// Whom a server lets in: who shows its token, who has one of its own, or anybody.
#[derive(Clone, Default)]
pub struct Door {
    token: Option<String>,
    keeper: Option<Arc<dyn Doorkeeper>>,
}

impl From<Option<String>> for Door {
    /// The shared secret; `None`: anybody may connect.
    fn from(token: Option<String>) -> Door {
        Door { token, keeper: None }
    }
}

impl Door {
    /// The same, and agents with tokens of their own.
    pub fn with(self, keeper: Arc<dyn Doorkeeper>) -> Door {
        Door { keeper: Some(keeper), ..self }
    }

    /// The name of the token that was shown, where it is one of the host's own; or why it does not open.
    fn opens(&self, hello: &Hello) -> Result<Option<String>, String> {
        let Some(token) = &self.token else { return Ok(None) };
        if same_token(hello.token.as_bytes(), token.as_bytes()) {
            return Ok(None);
        }
        match self.keeper.as_ref().and_then(|keeper| keeper.admits(&hello.token, &hello.host)) {
            Some(outcome) => outcome.map(Some),
            None => Err("the token is missing or wrong; give the agent the server's token".to_owned()),
        }
    }
}

/// A token of a host's own that opened a door, and so has to go on doing.
pub(crate) struct Shown {
    token: String,
    host: String,
    name: String,
}

impl Shown {
    /// What an agent showed, if it is its own: the shared secret is the server's for as long as it runs.
    pub(crate) fn of(hello: &Hello, owner: &Owner) -> Option<Shown> {
        let name = owner.token.clone()?;
        Some(Shown { token: hello.token.clone(), host: hello.host.clone(), name })
    }
}

impl Door {
    /// Whether a token that opened this door still does.
    ///
    /// # Errors
    /// It was revoked, has expired, or is another host's by now.
    pub(crate) fn still_opens(&self, shown: &Shown) -> Result<(), String> {
        match self.keeper.as_ref().and_then(|keeper| keeper.admits(&shown.token, &shown.host)) {
            Some(outcome) => outcome.map(drop),
            None => Err(format!("the token {} was revoked; give the agent another one", shown.name)),
        }
    }
}

/// Secrets do not show.
impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (token, keeper) = (self.token.as_ref().map(|_| "set"), self.keeper.is_some());
        f.debug_struct("Door").field("token", &token).field("keeper", &keeper).finish()
    }
}

/// Takes the same time wherever the first difference is.
fn same_token(given: &[u8], expected: &[u8]) -> bool {
    let mut difference = u8::from(given.len() != expected.len());
    for (index, byte) in given.iter().enumerate() {
        difference |= byte ^ expected.get(index % expected.len().max(1)).copied().unwrap_or(0);
    }
    std::hint::black_box(difference) == 0
}
