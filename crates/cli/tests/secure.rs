//! TLS by flags, as who runs a server meets it: certificates of server, agents and readers.
mod common;

use common::{Going, line_with, mycroft, refusal, say};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const TOKEN: &str = "a-token-of-sufficient-length";

/// An authority, and certificates that it has signed: `ca.pem`, and `NAME.pem` with `NAME.key` of the server and two hosts.
fn certificates(folder: &Path) {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    fs::write(folder.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
    let issuer = rcgen::Issuer::new(params, key);
    for (name, names) in [("server", &["localhost", "127.0.0.1"][..]), ("a", &["a"]), ("b", &["b"])] {
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let leaf = rcgen::CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
        fs::write(folder.join(format!("{name}.pem")), leaf.pem()).unwrap();
        let path = folder.join(format!("{name}.key"));
        fs::write(&path, key.serialize_pem()).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }
}

#[test]
fn server_agents_and_readers_believe_each_other_by_certificates() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (cert, key, ca) = (path("server.pem"), path("server.key"), path("ca.pem"));
    let at = ["serve", "--http", "127.0.0.1:0", "--wire", "127.0.0.1:0", "--token", TOKEN];
    let wire = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca];
    let http = ["--http-tls-cert", &cert, "--http-tls-key", &key];
    let mut server = Going::start(mycroft(&[&at[..], &wire, &http].concat()));
    let line = line_with(&mut server.stderr, "https://");
    let after = line.split("https://").nth(1).unwrap();
    let (address, wire) = (after.split('/').next().unwrap(), after.split("agents at ").nth(1).unwrap());
    let wire = wire.split_whitespace().next().unwrap();
    let url = format!("https://{address}");

    let read = say(&["cases", "--url", &url, "--token", TOKEN, "--url-ca", &ca]);
    assert_eq!(read.code, Some(0), "{read:?}");
    let line = refusal(&["cases", "--url", &url, "--token", TOKEN]);
    assert!(line.contains("--url-ca"), "{line}");
    let line = refusal(&["cases", "--url", &format!("http://{address}"), "--token", TOKEN]);
    assert!(line.contains("speaks HTTPS"), "{line}");

    let agent = |host: &str, certificate: &str| {
        let (cert, key) = (path(&format!("{certificate}.pem")), path(&format!("{certificate}.key")));
        let (dir, spool) = (path(&format!("{host}-{certificate}")), path(&format!("spool-{host}-{certificate}")));
        let as_host = ["--token", TOKEN, "--host", host, "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
        let args = [&["agent", "--server", wire, "--dir", &dir, "--spool", &spool][..], &as_host].concat();
        Going::start(mycroft(&args))
    };
    let mut wrong = agent("a", "b");
    let line = line_with(&mut wrong.stderr, "refused");
    assert!(line.contains("wrong certificate") && line.contains("is for b, and not for host a"), "{line}");
    let _right = agent("b", "b");
    common::until("its agent is connected", || {
        let read = say(&["doctor", "--json", "--url", &url, "--token", TOKEN, "--url-ca", &ca]);
        read.stdout.contains("1 agents connected").then_some(())
    });

    let (cert, key) = (path("a.pem"), path("a.key"));
    let own = ["--host", "a", "--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &key];
    let doctor = |more: &[&str]| {
        say(&[&["doctor", "--url", &url, "--token", TOKEN, "--url-ca", &ca, "--server", wire][..], more].concat())
    };
    let found = doctor(&own);
    assert!(found.stdout.contains("lets agents in"), "{found:?}");
    let found = doctor(&["--host", "a", "--tls-ca", &ca]);
    assert!(found.stdout.contains("with a certificate only") && found.stdout.contains("--tls-cert"), "{found:?}");
}

#[test]
fn a_file_that_cannot_be_used_is_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(folder.path().join("empty"), "").unwrap();
    let (cert, key, ca, empty) = (path("a.pem"), path("a.key"), path("ca.pem"), path("empty"));
    let (dir, spool) = (path("segments"), path("spool"));
    let agent = |tls: &[&str]| refusal(&[&["agent", "--dir", &dir, "--spool", &spool][..], tls].concat());
    let line = agent(&["--tls-ca", &empty]);
    assert!(line.contains("/empty: no certificate inside; expected a PEM file with certificates"), "{line}");
    let line = agent(&["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &path("b.key")]);
    assert!(line.contains("/a.pem: ") && line.contains("certificate and key must belong together"), "{line}");
    let line = agent(&["--tls-ca", &ca, "--tls-cert", &cert, "--tls-key", &path("absent")]);
    assert!(line.contains("/absent: "), "{line}");
    for half in
        [&["--tls-cert", &cert][..], &["--tls-ca", &ca, "--tls-key", &key], &["--tls-cert", &cert, "--tls-key", &key]]
    {
        assert!(agent(half).contains("--tls-c"), "{half:?}");
    }
    let serve =
        |tls: &[&str]| refusal(&[&["serve", "--http", "127.0.0.1:0", "--wire", "127.0.0.1:0"][..], tls].concat());
    let line = serve(&["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &empty]);
    assert!(line.contains("/empty: "), "{line}");
    assert!(serve(&["--tls-client-ca", &ca]).contains("--tls-cert"));
    let lists = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca, "--tls-client-crl", &ca];
    let line = serve(&lists);
    assert!(line.contains("no revocation list inside") && line.contains("X509 CRL"), "{line}");
    assert!(serve(&["--tls-client-crl", &ca]).contains("--tls-client-ca"));
    let line = serve(&["--http-tls-cert", &cert, "--http-tls-key", &path("b.key")]);
    assert!(line.contains("HTTP address") && line.contains("/a.pem"), "{line}");
    let line = refusal(&["cases", "--url", "https://127.0.0.1:1", "--url-ca", &empty]);
    assert!(line.contains("--url-ca") && line.contains("/empty"), "{line}");
}
