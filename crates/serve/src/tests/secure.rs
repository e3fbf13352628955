//! HTTPS over real sockets: what is answered, what plain HTTP is told, and a certificate that is renewed.
use super::*;
use mycroft_wire::TlsIdentity;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

const TOKEN: &str = "own-0123456789abcdef";

struct Secure {
    world: World,
    identity: TlsIdentity,
    folder: tempfile::TempDir,
}

/// A certificate for localhost that signs itself, put into the server's files; as readers need it.
fn renew(identity: &TlsIdentity, folder: &std::path::Path) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    for (path, text) in [(&identity.key_pem, made.signing_key.serialize_pem()), (&identity.cert_pem, made.cert.pem())] {
        std::fs::write(folder.join("beside"), text).expect("written");
        std::fs::rename(folder.join("beside"), path).expect("replaced");
    }
    made.cert.pem()
}

fn start() -> (Secure, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let identity = TlsIdentity { cert_pem: at("cert.pem"), key_pem: at("key.pem") };
    let ca = renew(&identity, folder.path());
    let config = ServeConfig { http_tls: Some(identity.clone()), token: Some(TOKEN.to_owned()), ..quick() };
    (Secure { world: World::start(config), identity, folder }, ca)
}

impl Secure {
    /// The status and text of a GET by somebody who believes this authority.
    fn get(&self, path: &str, ca: &str) -> Result<(u16, String), ureq::Error> {
        let ca = Certificate::from_pem(ca.as_bytes()).expect("a certificate");
        let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&[ca])).build();
        let config = ureq::Agent::config_builder().tls_config(tls).http_status_as_error(false).build();
        let url = format!("https://localhost:{}{path}", self.world.server.http_addr().port());
        let request = ureq::Agent::new_with_config(config).get(url).header("Authorization", format!("Bearer {TOKEN}"));
        let mut answer = request.call()?;
        Ok((answer.status().as_u16(), answer.body_mut().read_to_string()?))
    }
}

#[test]
fn page_api_and_metrics_are_answered_over_https_and_plain_http_is_told() {
    let (secure, ca) = start();
    for (path, word) in [("/", "<html"), ("/api/v1/health", "\"status\""), ("/metrics", "mycroft_")] {
        let (status, text) = secure.get(path, &ca).expect("an answer");
        assert!(status == 200 && text.contains(word), "{path}: {status} {text}");
    }
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate").cert.pem();
    assert!(secure.get("/metrics", &other).is_err(), "another authority");
    let address = secure.world.server.http_addr();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    let answer = raw(address, request.as_bytes()).expect("an answer");
    assert!(answer.status == 400 && answer.body.contains("https://"), "{} {}", answer.status, answer.body);
    // What is neither ends, and holds nothing up.
    let mut silent = TcpStream::connect(address).expect("accepted");
    silent.write_all(&[0x16, 3, 1, 0, 4, 1, 2, 3, 4]).expect("sent");
    silent.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let _ = silent.read_to_end(&mut Vec::new()).expect("it is ended");
    drop(TcpStream::connect(address).expect("accepted"));
    assert_eq!(secure.get("/api/v1/jobs", &ca).expect("an answer").0, 200);
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart() {
    let (secure, old) = start();
    assert_eq!(secure.get("/metrics", &old).expect("an answer").0, 200);
    let new = renew(&secure.identity, secure.folder.path());
    let end = Instant::now() + PATIENCE;
    while secure.get("/metrics", &new).is_err() {
        assert!(Instant::now() < end, "the old one is still shown");
    }
    assert!(secure.get("/metrics", &old).is_err());
}

#[test]
fn a_certificate_that_cannot_be_used_starts_nothing_and_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let identity = TlsIdentity { cert_pem: folder.path().join("c"), key_pem: folder.path().join("k") };
    let why = || match crate::Server::start(ServeConfig { http_tls: Some(identity.clone()), ..quick() }) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it started"),
    };
    renew(&identity, folder.path());
    std::fs::write(&identity.key_pem, "nothing").expect("written");
    assert!(why().contains("/k: ") && why().contains("one private key"), "{}", why());
    std::fs::remove_file(&identity.cert_pem).expect("there");
    assert!(why().contains("/c: ") && why().contains("HTTP"), "{}", why());
}
