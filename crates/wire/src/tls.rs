//! rustls set-up from PEM files, with errors that name the file.
use crate::trusted::{self, Holds};
use crate::{TlsClient, TlsIdentity, TlsServer, WireError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;

fn failed(path: &Path, reason: impl std::fmt::Display, hint: &str) -> WireError {
    WireError::Tls { endpoint: path.display().to_string(), reason: format!("{reason}; {hint}") }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, WireError> {
    let hint = "expected a PEM file with certificates";
    let pem = trusted::read(path, Holds::Public).map_err(|e| failed(path, e, hint))?;
    let list =
        CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>().map_err(|e| failed(path, e, hint))?;
    if list.is_empty() { Err(failed(path, "no certificate inside", hint)) } else { Ok(list) }
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>, WireError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|e| failed(path, e, "expected certificates of an authority"))?;
    }
    Ok(Arc::new(roots))
}

fn key(identity: &TlsIdentity) -> Result<PrivateKeyDer<'static>, WireError> {
    let (path, hint) = (&identity.key_pem, "expected a PEM file with one private key");
    let pem = trusted::read(path, Holds::Secret).map_err(|e| failed(path, e, hint))?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|e| failed(path, e, hint))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

pub(super) fn client(tls: &TlsClient) -> Result<Arc<ClientConfig>, WireError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&tls.ca_pem, e, "the TLS library is unusable"))?
        .with_root_certificates(roots(&tls.ca_pem)?);
    let config = match &tls.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => builder
            .with_client_auth_cert(certificates(&identity.cert_pem)?, key(identity)?)
            .map_err(|e| failed(&identity.cert_pem, e, "certificate and key must belong together"))?,
    };
    Ok(Arc::new(config))
}

pub(super) fn server(tls: &TlsServer) -> Result<Arc<ServerConfig>, WireError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&tls.identity.cert_pem, e, "the TLS library is unusable"))?;
    let builder = match &tls.client_ca_pem {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots(path)?, provider())
                .build()
                .map_err(|e| failed(path, e, "expected certificates of an authority"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder
        .with_single_cert(certificates(&tls.identity.cert_pem)?, key(&tls.identity)?)
        .map_err(|e| failed(&tls.identity.cert_pem, e, "certificate and key must belong together"))?;
    Ok(Arc::new(config))
}
