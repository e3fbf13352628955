//! When the certificates that a server uses end. What a certificate says is not checked here: TLS does that.
use crate::api::{CertificateJson, TimeJson};
use crate::config::ServeConfig;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_wire::trusted::{self, Holds};
use std::path::{Path, PathBuf};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;

/// A file of certificates, and what they are for.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    of: &'static str,
    path: PathBuf,
}

/// The files of certificates that a server with this configuration uses.
pub(crate) fn watched(config: &ServeConfig) -> Vec<Watched> {
    let http = config.http_tls.as_ref().map(|tls| ("http", tls.cert_pem.clone()));
    let wire = config.tls.as_ref().map(|tls| ("wire", tls.identity.cert_pem.clone()));
    let authority = config.tls.as_ref().and_then(|tls| Some(("agents-authority", tls.client_ca_pem.clone()?)));
    [http, wire, authority].into_iter().flatten().map(|(of, path)| Watched { of, path }).collect()
}

impl Watched {
    /// When the first certificate of the file ends, as the file is now.
    pub(crate) fn json(&self) -> CertificateJson {
        CertificateJson { of: self.of.to_owned(), ends_at: first_end(&self.path).map(TimeJson::exact) }
    }
}

fn first_end(path: &Path) -> Option<HostTime> {
    let pem = trusted::read(path, Holds::Public).ok()?;
    let ends = CertificateDer::pem_slice_iter(&pem).map(|one| end_of(&one.ok()?));
    ends.collect::<Option<Vec<HostTime>>>()?.into_iter().min()
}

/// `notAfter` of a certificate (RFC 5280, 4.1): the second time of the field `validity`.
fn end_of(der: &[u8]) -> Option<HostTime> {
    const SEQUENCE: u8 = 0x30;
    const VERSION: u8 = 0xa0;
    let (_, certificate, _) = element(der, Some(SEQUENCE))?;
    let (_, mut rest, _) = element(certificate, Some(SEQUENCE))?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest, None)?.2;
    }
    // Serial number, algorithm and issuer stand before.
    for _ in 0..3 {
        rest = element(rest, None)?.2;
    }
    let (_, validity, _) = element(rest, Some(SEQUENCE))?;
    let (kind, text, _) = element(element(validity, None)?.2, None)?;
    time_of(kind, text)
}

/// The first element of DER: its tag, its content, and what comes behind.
fn element(der: &[u8], wanted: Option<u8>) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let bytes = usize::from(first & 0x7f);
        let told = rest.get(..bytes).filter(|told| told.len() <= 4)?;
        length = told.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        rest = rest.get(bytes..)?;
    }
    let content = rest.get(..length)?;
    wanted.is_none_or(|wanted| wanted == tag).then_some((tag, content, rest.get(length..)?))
}

/// `YYMMDDHHMMSSZ` (tag 23: years 1950 to 2049) or `YYYYMMDDHHMMSSZ` (tag 24).
fn time_of(kind: u8, text: &[u8]) -> Option<HostTime> {
    let digits = text.strip_suffix(b"Z")?;
    let number = |from: usize, to: usize| std::str::from_utf8(digits.get(from..to)?).ok()?.parse::<i64>().ok();
    let (year, at) = match (kind, digits.len()) {
        (23, 12) => number(0, 2).map(|year| (if year < 50 { 2000 + year } else { 1900 + year }, 2))?,
        (24, 14) => (number(0, 4)?, 4),
        _ => return None,
    };
    let part = |nth: usize| number(at + 2 * nth, at + 2 * nth + 2);
    let (month, day, hour, minute, second) = (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
    // Days since 1970 in the calendar that counts from March, so that leap days come last.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second;
    u64::try_from(seconds).ok()?.checked_mul(NANOS_PER_SEC).map(HostTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_says_when_it_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let key = rcgen::KeyPair::generate().expect("a key");
        let until = |year: i32, month: u8, day: u8| {
            let mut params = rcgen::CertificateParams::new(vec!["h".to_owned()]).expect("a name");
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(year, month, day);
            params.self_signed(&key).expect("a certificate").pem()
        };
        let end = |pem: &str| {
            let path = dir.path().join("cert.pem");
            std::fs::write(&path, pem).expect("written");
            Watched { of: "http", path }.json().ends_at.map(|at| at.text)
        };
        // Both forms of a time: RFC 5280 wants the long one from 2050 on.
        assert_eq!(end(&until(2028, 2, 29)).as_deref(), Some("2028-02-29T00:00:00.000000000Z"));
        assert_eq!(end(&until(2051, 12, 31)).as_deref(), Some("2051-12-31T00:00:00.000000000Z"));
        let chain = until(2031, 1, 1) + &until(2030, 3, 1);
        assert_eq!(end(&chain).as_deref(), Some("2030-03-01T00:00:00.000000000Z"), "the one that ends first");
        assert_eq!(end("no certificate"), None);
        let der = CertificateDer::from_pem_slice(until(2031, 1, 1).as_bytes()).expect("a certificate");
        assert!((0..der.len().min(200)).all(|bytes| end_of(&der[..bytes]).is_none()), "cut off");
    }
}
