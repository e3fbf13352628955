//! Why a server says no; the numbers are in `docs/formats/wire.md`.
use std::fmt;

/// Why a server refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The agent is too old for the server.
    TooOld,
    /// The agent is too new for the server.
    TooNew,
    /// The token is missing or wrong.
    BadToken,
    /// The peer speaks something else.
    OtherProtocol,
    /// The server wants TLS.
    TlsRequired,
    /// The server speaks no TLS on this address.
    NoTls,
    /// Too many connections.
    Full,
    /// A message broke the rules.
    Malformed,
    /// The server ends.
    Stopping,
    /// The server's own defect or want; send it again.
    Failed,
    /// The server has no memory for the frame now; send it again.
    Busy,
    /// The number of the agent is another one's.
    NumberTaken,
    /// The agent has no certificate, or one of another host.
    BadCertificate,
    /// A reason of a newer server.
    Other(u16),
}

impl Refusal {
    pub(super) fn code(self) -> u16 {
        match self {
            Refusal::TooOld => 1,
            Refusal::TooNew => 2,
            Refusal::BadToken => 3,
            Refusal::OtherProtocol => 4,
            Refusal::TlsRequired => 5,
            Refusal::NoTls => 6,
            Refusal::Full => 7,
            Refusal::Malformed => 8,
            Refusal::Stopping => 9,
            Refusal::Failed => 10,
            Refusal::Busy => 11,
            Refusal::NumberTaken => 12,
            Refusal::BadCertificate => 13,
            Refusal::Other(code) => code,
        }
    }

    /// The same as a word for programs; it does not change.
    pub fn word(self) -> &'static str {
        match self {
            Refusal::TooOld => "too-old",
            Refusal::TooNew => "too-new",
            Refusal::BadToken => "token",
            Refusal::OtherProtocol => "other-protocol",
            Refusal::TlsRequired => "tls-required",
            Refusal::NoTls => "no-tls",
            Refusal::Full => "full",
            Refusal::Malformed => "malformed",
            Refusal::Stopping => "stopping",
            Refusal::Failed => "failed",
            Refusal::Busy => "busy",
            Refusal::NumberTaken => "number-taken",
            Refusal::BadCertificate => "certificate",
            Refusal::Other(_) => "other",
        }
    }

    pub(super) fn from_code(code: u16) -> Refusal {
        match code {
            1 => Refusal::TooOld,
            2 => Refusal::TooNew,
            3 => Refusal::BadToken,
            4 => Refusal::OtherProtocol,
            5 => Refusal::TlsRequired,
            6 => Refusal::NoTls,
            7 => Refusal::Full,
            8 => Refusal::Malformed,
            9 => Refusal::Stopping,
            10 => Refusal::Failed,
            11 => Refusal::Busy,
            12 => Refusal::NumberTaken,
            13 => Refusal::BadCertificate,
            other => Refusal::Other(other),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Refusal::TooOld => "this agent is too old",
            Refusal::TooNew => "this agent is too new",
            Refusal::BadToken => "wrong token",
            Refusal::OtherProtocol => "other protocol",
            Refusal::TlsRequired => "TLS required",
            Refusal::NoTls => "no TLS here",
            Refusal::Full => "too many connections",
            Refusal::Malformed => "malformed message",
            Refusal::Stopping => "the server is stopping",
            Refusal::Failed => "the server failed to handle a frame",
            Refusal::Busy => "the server has no memory for a frame now",
            Refusal::NumberTaken => "the agent's number is another one's",
            Refusal::BadCertificate => "wrong certificate",
            Refusal::Other(code) => return write!(f, "reason {code}"),
        };
        f.write_str(text)
    }
}
