//! rustls set-up from PEM files, with errors that name the file.
use crate::sync::lock;
use crate::trusted::{self, Holds};
use crate::{TlsClient, TlsIdentity, TlsServer, WireError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often a server looks whether its files have changed, at most: three calls of the system.
const LOOK_EVERY: Duration = Duration::from_secs(1);

fn failed(path: &Path, reason: impl fmt::Display, hint: &str) -> WireError {
    WireError::TlsFile { path: path.to_owned(), reason: format!("{reason}; {hint}") }
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

fn revocations(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, WireError> {
    let hint = "expected a PEM file with revocation lists (X509 CRL), one of each authority of agents";
    let pem = trusted::read(path, Holds::Public).map_err(|e| failed(path, e, hint))?;
    let list = CertificateRevocationListDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>();
    let list = list.map_err(|e| failed(path, e, hint))?;
    if list.is_empty() { Err(failed(path, "no revocation list inside", hint)) } else { Ok(list) }
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

/// A server's TLS from its files, which are read again when they have changed.
pub struct ServerTls {
    files: TlsServer,
    /// Protocols that are offered inside, such as `http/1.1`; empty: none is named.
    inside: Vec<Vec<u8>>,
    state: Mutex<State>,
}

struct State {
    config: Arc<ServerConfig>,
    stamps: Vec<Option<Stamp>>,
    looked: Instant,
    /// How often the list of revoked certificates has changed.
    revocations: u64,
}

/// Changes with every change of a file: device, number, bytes, and when it was written.
type Stamp = (u64, u64, u64, i64, i64);

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// `TlsFile`: which file, what is wrong with it, and what to do.
    pub fn open(files: &TlsServer, inside: &[&str]) -> Result<ServerTls, WireError> {
        let inside: Vec<Vec<u8>> = inside.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        // Before they are read: what changes meanwhile is read again.
        let stamps = stamps(files);
        let config = server(files, &inside)?;
        let state = Mutex::new(State { config, stamps, looked: Instant::now(), revocations: 0 });
        Ok(ServerTls { files: files.clone(), inside, state })
    }

    /// What the next connection is taken with. Files that cannot be used are told in the log, and what was read before stays.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.state().config)
    }

    /// How often the list of revoked certificates has changed: whoever was let in before shows a certificate again.
    pub(crate) fn revocations(&self) -> u64 {
        self.state().revocations
    }

    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        if state.looked.elapsed() >= LOOK_EVERY {
            state.looked = Instant::now();
            self.look(&mut state);
        }
        state
    }

    fn look(&self, state: &mut State) {
        let stamps = stamps(&self.files);
        if stamps == state.stamps {
            return;
        }
        let is_other_list = self.files.client_crl_pem.is_some() && state.stamps.last() != stamps.last();
        state.stamps = stamps;
        let path = self.files.identity.cert_pem.display();
        match server(&self.files, &self.inside) {
            Ok(config) => {
                state.config = config;
                state.revocations += u64::from(is_other_list);
                let what = if is_other_list { "the list of revoked certificates" } else { "the certificate" };
                info!(%path, "files of TLS have changed and are used from now on: {what} of {path}");
            }
            // A list that cannot be read is no reason to let nobody in: what was revoked before stays so.
            Err(error) => warn!(%error, "files of TLS have changed and cannot be used, the old ones stay: {error}"),
        }
    }
}

fn stamps(files: &TlsServer) -> Vec<Option<Stamp>> {
    let paths = [&files.identity.cert_pem, &files.identity.key_pem].into_iter().chain(&files.client_ca_pem);
    let paths = paths.chain(&files.client_crl_pem);
    let stamp = |meta: std::fs::Metadata| (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
    paths.map(|path| std::fs::metadata(path).ok().map(stamp)).collect()
}

fn server(tls: &TlsServer, inside: &[Vec<u8>]) -> Result<Arc<ServerConfig>, WireError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&tls.identity.cert_pem, e, "the TLS library is unusable"))?;
    let builder = match &tls.client_ca_pem {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(roots(path)?, provider());
            if let Some(path) = &tls.client_crl_pem {
                verifier = verifier.with_crls(revocations(path)?).only_check_end_entity_revocation();
            }
            let verifier = verifier.build().map_err(|e| failed(path, e, "expected certificates of an authority"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(certificates(&tls.identity.cert_pem)?, key(&tls.identity)?)
        .map_err(|e| failed(&tls.identity.cert_pem, e, "certificate and key must belong together"))?;
    config.alpn_protocols = inside.to_vec();
    Ok(Arc::new(config))
}

impl TlsClient {
    /// Looks whether the files can be used.
    ///
    /// # Errors
    /// `TlsFile`: which file, what is wrong with it, and what to do.
    pub fn check(&self) -> Result<(), WireError> {
        client(self).map(|_| ())
    }
}
