//! The way to a PostgreSQL server over TCP: TLS, and whom it believes.
mod server;

use mycroft_store::meta::{Meta, MetaPlace, PostgresAt};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use server::{PASSWORD, Server};
use std::path::{Path, PathBuf};

/// An authority, in a file, and its own means to sign.
fn authority(path: &Path) -> Issuer<'static, KeyPair> {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(path, params.self_signed(&key).expect("signed").pem()).expect("written");
    Issuer::new(params, key)
}

fn at(url: &str, ca: Option<&PathBuf>) -> PostgresAt {
    match MetaPlace::postgres(url.to_owned(), Some(PASSWORD.to_owned()), ca.cloned()).expect("an address") {
        MetaPlace::Postgres(at) => at,
        MetaPlace::File => panic!("no file was meant"),
    }
}

#[test]
fn a_connection_is_tls_where_an_authority_is_named_and_believes_no_other() {
    let Some(mut server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let (ca, other) = (dir.path().join("ca.pem"), dir.path().join("other.pem"));
    let issuer = authority(&ca);
    authority(&other);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
    let certificate = params.signed_by(&key, &issuer).expect("signed").pem();
    let port = server.go_on_with_tls(&certificate, &key.serialize_pem());
    let url = format!("postgres://ada@127.0.0.1:{port}/postgres");
    let sql =
        "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'mycroft'";
    let meta = Meta::open_postgres(&at(&url, Some(&ca)), "one", None).expect("a database");
    assert_eq!((meta.list_policies().expect("asked").len(), &*server.sql_at(port, sql)), (0, "1"));
    // Neither another authority nor another name is believed.
    for (url, ca) in [(&url, &other), (&url.replace("127.0.0.1", "127.0.0.2"), &ca)] {
        let told = Meta::open_postgres(&at(url, Some(ca)), "two", None).expect_err("refused").to_string();
        assert!(told.contains("certificate") && told.contains("--meta-ca"), "{told}");
        assert!(told.contains(url.as_str()) && !told.contains(PASSWORD), "{told}");
    }
}
