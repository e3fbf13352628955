//! Whether what a connection was let in with holds still.
use crate::admission::{Door, Shown};
use crate::refusal::Refusal;
use crate::refused::{End, refuse};
use crate::stream::Stream;
use crate::tls::{ServerTls, Version};
use rustls::pki_types::CertificateDer;
use std::time::{Duration, Instant};

/// How soon a connection ends whose token or certificate was revoked, or whose token has expired: the server's files are looked at
/// this often for each.
const LOOK: Duration = Duration::from_secs(1);

/// What a connection was let in with.
pub(super) struct Standing {
    /// Its token, where that may end.
    token: Option<Shown>,
    /// Its certificate, and those between it and an authority; empty where none was shown.
    certificates: Vec<CertificateDer<'static>>,
    /// By which files of the server the certificate was checked last. Not by those that it was let in with: these may
    /// have changed before the handshake was done.
    checked_by: Option<Version>,
    /// When that is looked at again.
    look_at: Instant,
}

impl Standing {
    /// Of a connection whose handshake is done.
    pub(super) fn of(token: Option<Shown>, stream: &Stream) -> Standing {
        let certificates = stream.certificates().to_vec();
        Standing { token, certificates, checked_by: None, look_at: Instant::now() + LOOK }
    }

    /// Ends a connection whose token opens no door any more, or whose certificate is not what files of the server that have changed
    /// let in.
    pub(super) fn look(&mut self, door: &Door, tls: Option<&ServerTls>) -> Result<(), End> {
        if Instant::now() < self.look_at {
            return Ok(());
        }
        self.look_at = Instant::now() + LOOK;
        if let Some(tls) = tls.filter(|_| !self.certificates.is_empty()) {
            let checked = tls.check_again(&self.certificates, self.checked_by);
            self.checked_by = Some(checked.or_else(|why| refuse(Refusal::BadCertificate, why))?);
        }
        let opens = self.token.as_ref().map_or(Ok(()), |token| door.still_opens(token));
        opens.or_else(|why| refuse(Refusal::BadToken, why))
    }
}
