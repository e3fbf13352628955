//! TLS over real sockets: both sides are checked, a certificate binds an agent to its host, and files may change.
#[path = "common/certificates.rs"]
mod certificates;
mod common;
#[path = "common/heard.rs"]
mod heard;
#[path = "common/sockets.rs"]
mod sockets;

use certificates::Certificates;
use common::step_batch;
use heard::Heard;
use mycroft_record::Batch;
use mycroft_wire::{Client, ClientConfig, Endpoint, Listener, Refusal, ServerConfig, ServerTls, TlsClient, WireError};
use sockets::{PATIENCE, any_port, config, refusal, serve};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Instant;

#[test]
fn tls_carries_batches_and_checks_both_sides() {
    let certs = Certificates::new();
    let (handle, received) = serve(&any_port(), certs.server(None));
    let endpoint = handle.local_endpoint();
    let mut client = Client::connect(&endpoint, &certs.client("localhost", None)).unwrap();
    // Larger than TLS's own buffers, in noise that does not compress.
    let mut random = common::Random(1);
    let batches: Vec<Batch> = (0..300).map(|n| common::iteration(n % 8, u64::from(n), &mut random)).collect();
    client.send_all(&batches).unwrap();
    client.flush(PATIENCE).unwrap();
    assert_eq!(received.try_iter().collect::<Vec<_>>(), batches);

    let error = Client::connect(&endpoint, &certs.client("elsewhere", None)).unwrap_err().to_string();
    assert!(error.contains("TLS with") && error.contains("server name"), "{error}");
    let (code, text) = refusal(Client::connect(&endpoint, &config()));
    assert_eq!((code, text.contains("CA certificate")), (Refusal::TlsRequired, true));

    let ca = certs.path("ca.pem");
    let (strict, _received) = serve(&any_port(), certs.server(Some(&ca)));
    assert!(
        Client::connect(&strict.local_endpoint(), &certs.client("localhost", Some(certs.identity("host0")))).is_ok()
    );
    let error = Client::connect(&strict.local_endpoint(), &certs.client("localhost", None)).unwrap_err().to_string();
    assert!(error.contains("with a certificate only"), "{error}");

    let (plain, _received) = serve(&any_port(), ServerConfig::default());
    let error = Client::connect(&plain.local_endpoint(), &certs.client("localhost", None)).unwrap_err().to_string();
    assert!(error.contains("does not speak TLS"), "{error}");
}

#[test]
fn unusable_certificates_are_named() {
    let certs = Certificates::new();
    let mut config = certs.server(None);
    config.tls.as_mut().unwrap().identity.key_pem = certs.path("host0.key");
    assert!(Listener::bind(&any_port(), config).unwrap_err().to_string().contains("belong together"));
    let mut config = certs.server(None);
    config.tls.as_mut().unwrap().identity.cert_pem = certs.path("absent.pem");
    assert!(Listener::bind(&any_port(), config).unwrap_err().to_string().contains("absent.pem"));
}

#[test]
fn an_agent_with_a_certificate_speaks_for_the_host_that_it_names() {
    let (certs, heard) = (Certificates::new(), Heard::default());
    let (server, received) = heard.during(|| serve(&any_port(), certs.server(Some(&certs.path("ca.pem")))));
    let connect = |host: &str, identity: Option<&str>| {
        let tls = certs.client("localhost", identity.map(|name| certs.identity(name)));
        Client::connect(&server.local_endpoint(), &ClientConfig { host: host.to_owned(), ..tls })
    };
    for (host, named) in [("host0", "host1"), ("host1", "host0"), ("localhost", "host0"), ("no name", "host0")] {
        let (code, text) = refusal(connect(host, Some(named)));
        assert!(code == Refusal::BadCertificate && text.contains(host) && text.contains("--host"), "{text}");
    }
    let mut agent = connect("host0", Some("host0")).unwrap();
    for (step, host) in [(1, "host0"), (2, "host1"), (3, "host0")] {
        let mut batch = step_batch("job", 0, step);
        batch.source.host = host.into();
        agent.send(&batch).unwrap();
    }
    agent.flush(PATIENCE).unwrap();
    assert!(agent.last_reject().is_some_and(|why| why.contains("of host host1")), "{:?}", agent.last_reject());
    assert_eq!(received.try_iter().count(), 2);
    // Whom TLS itself does not let in: without a certificate, or with one of another authority.
    let stranger = Certificates::new();
    let foreign = ClientConfig {
        tls: Some(TlsClient {
            ca_pem: certs.path("ca.pem"),
            server_name: Some("localhost".to_owned()),
            identity: Some(stranger.identity("host0")),
        }),
        ..config()
    };
    let error = Client::connect(&server.local_endpoint(), &foreign).unwrap_err().to_string();
    assert!(error.contains("did the server's authority for agents sign it"), "{error}");
    assert!(connect("host0", None).is_err());
    // A server tells its log after it has told the peer.
    let of_tls = |line: &&String| line.contains("127.0.0.1") && line.contains("the agent's certificate: ");
    let end = Instant::now() + PATIENCE;
    while heard.lines().iter().filter(of_tls).count() < 2 && Instant::now() < end {
        std::thread::yield_now();
    }
    let lines = heard.lines();
    assert!(
        lines.iter().any(|line| line.contains("wrong certificate") && line.contains("is for host1, and not")),
        "{lines:?}"
    );
    assert_eq!(lines.iter().filter(of_tls).count(), 2, "{lines:?}");
}

#[test]
fn files_that_change_are_used_and_unusable_ones_are_not() {
    let (certs, other, heard) = (Certificates::new(), Certificates::new(), Heard::default());
    let tls = ServerTls::open(&certs.files(None), &[]).unwrap();
    let first = tls.config();
    let until_changed = |from: &Arc<_>| {
        let end = Instant::now() + PATIENCE;
        loop {
            let now = heard.during(|| tls.config());
            if !Arc::ptr_eq(&now, from) || Instant::now() >= end {
                return now;
            }
            std::thread::yield_now();
        }
    };
    let put = |file: &str, content: &[u8]| {
        std::fs::write(certs.path("beside"), content).unwrap();
        std::fs::rename(certs.path("beside"), certs.path(file)).unwrap();
    };
    put("localhost.pem", b"nothing");
    let end = Instant::now() + PATIENCE;
    while heard.lines().is_empty() && Instant::now() < end {
        assert!(Arc::ptr_eq(&heard.during(|| tls.config()), &first), "the old one stays");
    }
    let lines = heard.lines();
    assert!(lines.len() == 1 && lines[0].contains("localhost.pem: no certificate inside"), "{lines:?}");
    for file in ["localhost.key", "localhost.pem"] {
        put(file, &std::fs::read(other.path(file)).unwrap());
    }
    assert!(!Arc::ptr_eq(&until_changed(&first), &first), "the new one is used");
}

/// Sends until the server says no.
fn cut_off(client: &mut Client) -> (Refusal, String) {
    let begun = Instant::now();
    loop {
        match client.send(&step_batch("job", 0, 1)).and_then(|()| client.flush(PATIENCE)) {
            Err(WireError::Refused { code, text, .. }) => return (code, text),
            other => assert!(begun.elapsed() < PATIENCE, "{other:?}"),
        }
    }
}

/// A server that lets in agents with certificates that are not on the list.
fn with_list(certs: &Certificates) -> ServerConfig {
    let mut files = certs.files(Some(&certs.path("ca.pem")));
    files.client_crl_pem = Some(certs.revoke(&[]));
    ServerConfig { tls: Some(files), ..ServerConfig::default() }
}

fn of_host(certs: &Certificates, host: &str) -> ClientConfig {
    ClientConfig { host: host.to_owned(), ..certs.client("localhost", Some(certs.identity(host))) }
}

#[test]
fn an_agent_whose_certificate_is_revoked_is_let_go_and_comes_back_with_another() {
    let certs = Certificates::new();
    let (server, _received) = serve(&any_port(), with_list(&certs));
    let connect = |host: &str| Client::connect(&server.local_endpoint(), &of_host(&certs, host));
    let (mut revoked, mut other) = (connect("host0").unwrap(), connect("host1").unwrap());
    certs.revoke(&[2]);
    let (code, text) = cut_off(&mut revoked);
    assert!(code == Refusal::BadCertificate && text.contains("evoked"), "{text}");
    assert!(revoked.reconnect().unwrap_err().to_string().contains("evoked"), "{:?}", revoked.reconnect());
    other.send(&step_batch("job", 1, 1)).unwrap();
    other.flush(PATIENCE).unwrap();
    assert_eq!((other.stats().resent, server.stats().connections), (0, 1), "it has stayed connected");
    certs.issue("host0", 4);
    revoked.reconnect().unwrap();
    revoked.flush(PATIENCE).unwrap();
    // A list that cannot be read is said at the start.
    let mut files = certs.files(Some(&certs.path("ca.pem")));
    files.client_crl_pem = Some(certs.path("ca.pem"));
    let refused = ServerTls::open(&files, &[]).unwrap_err().to_string();
    assert!(refused.contains("ca.pem") && refused.contains("no revocation list"), "{refused}");
}

#[test]
fn who_began_a_handshake_before_its_certificate_was_revoked_does_not_stay() {
    let certs = Certificates::new();
    let (server, _received) = serve(&any_port(), with_list(&certs));
    let way = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::Tcp(way.local_addr().unwrap().to_string());
    let config = of_host(&certs, "host0");
    let agent = std::thread::spawn(move || Client::connect(&endpoint, &config));
    let (mut near, _) = way.accept().unwrap();
    let mut far = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let pass = |from: &mut TcpStream, to: &mut TcpStream| {
        let mut bytes = [0; 16 * 1024];
        let length = from.read(&mut bytes).unwrap();
        to.write_all(&bytes[..length]).unwrap();
    };
    // The server has said by which list it will check the certificate, which is still to come.
    pass(&mut near, &mut far);
    pass(&mut far, &mut near);
    certs.revoke(&[2]);
    let begun = Instant::now();
    let is_let_in = || match Client::connect(&server.local_endpoint(), &of_host(&certs, "host0")) {
        Err(why) => !why.to_string().contains("evoked"),
        Ok(_) => true,
    };
    while is_let_in() {
        assert!(begun.elapsed() < PATIENCE, "the list is not read");
    }
    let (mut from_near, mut to_far) = (near.try_clone().unwrap(), far.try_clone().unwrap());
    std::thread::spawn(move || std::io::copy(&mut from_near, &mut to_far));
    std::thread::spawn(move || std::io::copy(&mut far, &mut near));
    let (code, text) = cut_off(&mut agent.join().unwrap().unwrap());
    assert!(code == Refusal::BadCertificate && text.contains("evoked"), "{text}");
}
