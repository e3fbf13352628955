//! Whether what a connection was let in with holds still.
use crate::admission::{Door, Shown};
use crate::refusal::Refusal;
use crate::refused::{End, refuse};
use crate::stream::Stream;
use crate::tls::ServerTls;
use std::time::{Duration, Instant};

/// How soon a connection ends whose token or certificate was revoked, or whose token has expired: the server's files are looked at
/// this often for each.
const LOOK: Duration = Duration::from_secs(1);

/// What a connection was let in with.
pub(super) struct Standing {
    /// Its token, where that may end.
    token: Option<Shown>,
    /// How often the list of revoked certificates had changed when it showed its own; `None`: it showed none.
    revocations: Option<u64>,
    /// When that is looked at again.
    look_at: Instant,
}

impl Standing {
    /// Of a connection whose handshake is done.
    pub(super) fn of(token: Option<Shown>, stream: &Stream, tls: Option<&ServerTls>) -> Standing {
        let revocations = stream.certificate().and(tls).map(ServerTls::revocations);
        Standing { token, revocations, look_at: Instant::now() + LOOK }
    }

    /// Ends a connection whose token opens no door any more, and one whose certificate may be revoked by now: its agent connects
    /// again and shows it.
    pub(super) fn look(&mut self, door: &Door, tls: Option<&ServerTls>) -> Result<(), End> {
        if Instant::now() < self.look_at {
            return Ok(());
        }
        self.look_at = Instant::now() + LOOK;
        if self.revocations.is_some() && self.revocations != tls.map(ServerTls::revocations) {
            return refuse(Refusal::BadCertificate, "the list of revoked certificates has changed: connect again");
        }
        let opens = self.token.as_ref().map_or(Ok(()), |token| door.still_opens(token));
        opens.or_else(|why| refuse(Refusal::BadToken, why))
    }
}
