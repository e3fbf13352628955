//! rustls set-up from PEM files, with errors that name the file.
use crate::sync::lock;
use crate::trusted::{self, Holds};
use crate::{TlsClient, TlsIdentity, TlsServer, WireError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
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

/// Which of the files that were read one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version(u64);

/// What checks certificates of agents; `None`: they need none.
type Verifier = Option<Arc<dyn ClientCertVerifier>>;

struct State {
    config: Arc<ServerConfig>,
    verifier: Verifier,
    stamps: Vec<Option<Stamp>>,
    looked: Instant,
    version: Version,
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
        let (config, verifier) = server(files, &inside)?;
        let state = Mutex::new(State { config, verifier, stamps, looked: Instant::now(), version: Version(0) });
        Ok(ServerTls { files: files.clone(), inside, state })
    }

    /// What the next connection is taken with. Files that cannot be used are told in the log, and what was read before stays.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.state().config)
    }

    /// Whether the certificates that an agent showed let it in still, unless these files have said so before; and which files say so.
    ///
    /// # Errors
    /// Why not: the first of them is revoked by now, its time is over, or its authority is another's.
    pub(crate) fn check_again(
        &self,
        shown: &[CertificateDer<'static>],
        checked_by: Option<Version>,
    ) -> Result<Version, String> {
        let (version, verifier) = {
            let state = self.state();
            (state.version, state.verifier.clone())
        };
        if let (Some(verifier), Some((own, between))) = (verifier, shown.split_first())
            && checked_by != Some(version)
        {
            let checked = verifier.verify_client_cert(own, between, UnixTime::now());
            checked.map_err(|why| format!("the agent's certificate: {why}"))?;
        }
        Ok(version)
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
        state.stamps = stamps;
        let path = self.files.identity.cert_pem.display();
        match server(&self.files, &self.inside) {
            Ok((config, verifier)) => {
                (state.config, state.verifier, state.version) = (config, verifier, Version(state.version.0 + 1));
                info!(%path, "the certificate {path}, or what certificates of agents are checked by, has changed and is used from now on");
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

fn server(tls: &TlsServer, inside: &[Vec<u8>]) -> Result<(Arc<ServerConfig>, Verifier), WireError> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(&tls.identity.cert_pem, e, "the TLS library is unusable"))?;
    let verifier = tls.client_ca_pem.as_ref().map(|path| verifier(path, tls.client_crl_pem.as_deref())).transpose()?;
    let builder = match &verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(Arc::clone(verifier)),
    };
    let mut config = builder
        .with_single_cert(certificates(&tls.identity.cert_pem)?, key(&tls.identity)?)
        .map_err(|e| failed(&tls.identity.cert_pem, e, "certificate and key must belong together"))?;
    config.alpn_protocols = inside.to_vec();
    Ok((Arc::new(config), verifier))
}

fn verifier(authority: &Path, revoked: Option<&Path>) -> Result<Arc<dyn ClientCertVerifier>, WireError> {
    let mut verifier = WebPkiClientVerifier::builder_with_provider(roots(authority)?, provider());
    if let Some(path) = revoked {
        verifier = verifier.with_crls(revocations(path)?).only_check_end_entity_revocation();
    }
    verifier.build().map_err(|e| failed(authority, e, "expected certificates of an authority"))
}

impl TlsClient {
    /// Looks whether the files can be used.
    ///
    /// # Errors
    /// `TlsFile`: which file, what is wrong with it, and what to do.
    pub fn check(&self) -> Result<(), WireError> {
        client(self).map(|_| ())
    }

    /// As rustls takes it, for a connection that is not of the wire.
    ///
    /// # Errors
    /// As `check`.
    pub fn config(&self) -> Result<Arc<ClientConfig>, WireError> {
        client(self)
    }
}
