//! An authority with certificates of a server and two hosts, in files.
#![allow(dead_code)] // Each test binary uses its own part.
use mycroft_wire::{ClientConfig, ServerConfig, TlsClient, TlsIdentity, TlsServer};
use std::path::Path;

pub(crate) struct Certificates {
    dir: tempfile::TempDir,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let dir = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca = params.self_signed(&key).unwrap();
        std::fs::write(dir.path().join("ca.pem"), ca.pem()).unwrap();
        let issuer = rcgen::Issuer::new(params, key);
        let certificates = Certificates { dir, issuer };
        for (name, number) in [("localhost", 1), ("host0", 2), ("host1", 3)] {
            certificates.issue(name, number);
        }
        certificates
    }

    /// Writes a new certificate of this name, with this serial number.
    pub(crate) fn issue(&self, name: &str, number: u64) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.serial_number = Some(number.into());
        std::fs::write(self.path(&format!("{name}.pem")), params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        std::fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    /// Writes the list of revoked certificates, by serial numbers, and tells its path.
    pub(crate) fn revoke(&self, numbers: &[u64]) -> std::path::PathBuf {
        let revoked = |number: &u64| rcgen::RevokedCertParams {
            serial_number: (*number).into(),
            revocation_time: rcgen::date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = rcgen::CertificateRevocationListParams {
            this_update: rcgen::date_time_ymd(2026, 1, 1),
            next_update: rcgen::date_time_ymd(2126, 1, 1),
            crl_number: (numbers.len() as u64).into(),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        // Replaced, as whoever brings lists does: a server must not read half of one.
        let (path, new) = (self.path("revoked.pem"), self.path("revoked.new"));
        std::fs::write(&new, list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        std::fs::rename(&new, &path).unwrap();
        path
    }

    pub(crate) fn path(&self, file: &str) -> std::path::PathBuf {
        self.dir.path().join(file)
    }

    pub(crate) fn identity(&self, name: &str) -> TlsIdentity {
        TlsIdentity { cert_pem: self.path(&format!("{name}.pem")), key_pem: self.path(&format!("{name}.key")) }
    }

    pub(crate) fn client(&self, name: &str, identity: Option<TlsIdentity>) -> ClientConfig {
        let tls = TlsClient { ca_pem: self.path("ca.pem"), server_name: Some(name.to_owned()), identity };
        ClientConfig { tls: Some(tls), host: "host0".to_owned(), ..ClientConfig::default() }
    }

    pub(crate) fn files(&self, client_ca: Option<&Path>) -> TlsServer {
        TlsServer {
            identity: self.identity("localhost"),
            client_ca_pem: client_ca.map(Path::to_owned),
            client_crl_pem: None,
        }
    }

    pub(crate) fn server(&self, client_ca: Option<&Path>) -> ServerConfig {
        ServerConfig { token: None.into(), tls: Some(self.files(client_ca)) }
    }
}
