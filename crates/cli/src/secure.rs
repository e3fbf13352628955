//! TLS of those who connect: agents and `mycroft doctor` to the agents' port, readers to the HTTP address.
use anyhow::{Context, Result};
use mycroft_wire::trusted::{self, Holds};
use mycroft_wire::{TlsClient, TlsIdentity};
use std::path::PathBuf;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Flags of what connects as an agent.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct AgentTlsArgs {
    /// Certificate authority of the server (PEM): switches TLS on.
    #[arg(long, env = "MYCROFT_TLS_CA", value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Name in the server's certificate.
    #[arg(long, env = "MYCROFT_TLS_NAME", default_value = "localhost")]
    pub(crate) tls_name: String,
    /// Certificate chain (PEM) of this agent, for a server with --tls-client-ca: a subject alternative name of it is the name of
    /// this host (--host).
    #[arg(long, env = "MYCROFT_TLS_CERT", value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key (PEM) of this agent's certificate.
    #[arg(long, env = "MYCROFT_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

impl AgentTlsArgs {
    /// What was asked for; `None`: no TLS.
    ///
    /// # Errors
    /// A file cannot be used. Found later, the server would seem to be away, for ever.
    pub(crate) fn client(&self) -> Result<Option<TlsClient>> {
        let Some(ca_pem) = self.tls_ca.clone() else { return Ok(None) };
        let identity = self.tls_cert.clone().zip(self.tls_key.clone());
        let identity = identity.map(|(cert_pem, key_pem)| TlsIdentity { cert_pem, key_pem });
        let tls = TlsClient { ca_pem, server_name: Some(self.tls_name.clone()), identity };
        tls.check().context("--tls-ca, --tls-cert, --tls-key")?;
        Ok(Some(tls))
    }
}

/// Whom a reader believes: the authorities in a file, or without one those that this program knows.
///
/// # Errors
/// The file cannot be used.
pub(crate) fn believed(ca: Option<&PathBuf>) -> Result<TlsConfig> {
    let Some(path) = ca else { return Ok(TlsConfig::default()) };
    let told = || format!("--url-ca {}: expected a PEM file with the certificates of an authority", path.display());
    let pem = trusted::read(path, Holds::Public).with_context(told)?;
    let mut certificates: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) = item.with_context(told)? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(anyhow::anyhow!("no certificate inside")).with_context(told);
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&certificates)).build())
}
