//! An authority with certificates of a server and two hosts, in files.
#![allow(dead_code)] // Each test binary uses its own part.
use mycroft_wire::{ClientConfig, ServerConfig, TlsClient, TlsIdentity, TlsServer};
use std::path::Path;

pub(crate) struct Certificates {
    dir: tempfile::TempDir,
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
        for name in ["localhost", "host0", "host1"] {
            let key = rcgen::KeyPair::generate().unwrap();
            let leaf = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
            std::fs::write(dir.path().join(format!("{name}.pem")), leaf.pem()).unwrap();
            std::fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Certificates { dir }
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
        TlsServer { identity: self.identity("localhost"), client_ca_pem: client_ca.map(Path::to_owned) }
    }

    pub(crate) fn server(&self, client_ca: Option<&Path>) -> ServerConfig {
        ServerConfig { token: None.into(), tls: Some(self.files(client_ca)) }
    }
}
