//! Whom an agent's certificate is for.
use mycroft_record::text::printable;
use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;

/// Whether an agent with this certificate may speak for a host: a subject alternative name of it is the host's name. Why not,
/// otherwise.
pub(super) fn speaks_for(certificate: &CertificateDer<'_>, host: &str) -> Result<(), String> {
    let remedy = "give the agent a certificate with its host's name, or that name with --host";
    let shown = printable(host);
    let name = ServerName::try_from(host)
        .map_err(|_| format!("the name {shown:?} cannot stand in a certificate; give the host another with --host"))?;
    let parsed = ParsedCertificate::try_from(certificate).map_err(|e| format!("the agent's certificate: {e}"))?;
    match rustls::client::verify_server_name(&parsed, &name) {
        Ok(()) => Ok(()),
        Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. })) => {
            // rustls gives them as `DnsName("host0")`.
            let name = |given: &String| given.trim_start_matches("DnsName(").trim_matches(['"', ')']).to_owned();
            let names = printable(&presented.iter().map(name).collect::<Vec<_>>().join(", ")).into_owned();
            Err(format!("the agent's certificate is for {names}, and not for host {shown}; {remedy}"))
        }
        Err(e) => Err(format!("the agent's certificate does not name host {shown} ({e}); {remedy}")),
    }
}
