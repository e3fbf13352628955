//! What stands before a ClickHouse server of a test: TLS with a certificate of the test's, or a server that only refuses.
#![allow(dead_code, reason = "each test binary uses some of it")]
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An authority, in a file, and its own means to sign.
pub(crate) fn authority(path: &Path) -> Issuer<'static, KeyPair> {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(path, params.self_signed(&key).expect("signed").pem()).expect("written");
    Issuer::new(params, key)
}

/// Answers HTTP until the test ends.
pub(crate) struct Front {
    pub(crate) port: u16,
    /// Requests that came through, whole.
    pub(crate) requests: Arc<AtomicUsize>,
}

impl Front {
    /// Speaks TLS as 127.0.0.1 by this authority, and passes requests on to a port of this machine.
    pub(crate) fn tls(issuer: &Issuer<'static, KeyPair>, behind: u16) -> Front {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("names");
        let certificate = params.signed_by(&key, issuer).expect("signed").pem();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth().with_single_cert(chain, key).expect("it fits");
        let config = Arc::new(config);
        Front::answer(move |stream, count| {
            let connection = ServerConnection::new(Arc::clone(&config)).expect("a configuration");
            let mut stream = StreamOwned::new(connection, stream);
            let Some(request) = request(&mut stream) else { return };
            count();
            let Ok(mut server) = TcpStream::connect(("127.0.0.1", behind)) else { return };
            let mut answer = Vec::new();
            // Whoever is cut off sees it.
            let _ = server.write_all(&request).and_then(|()| server.read_to_end(&mut answer).map(drop));
            let _ = stream.write_all(&answer).and_then(|()| stream.flush());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        })
    }

    /// Refuses each request without TLS: a status, and what ClickHouse writes with it.
    pub(crate) fn refusing(status: u16, body: &'static str) -> Front {
        Front::answer(move |mut stream, count| {
            let (status, body) = match request(&mut stream) {
                Some(_) => {
                    count();
                    (status, body)
                }
                None => (400, "no HTTP"),
            };
            let length = body.len();
            let _ =
                write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        })
    }

    fn answer(each: impl Fn(TcpStream, &dyn Fn()) + Send + Sync + 'static) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let requests = Arc::new(AtomicUsize::new(0));
        let (each, counted) = (Arc::new(each), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (each, counted) = (Arc::clone(&each), Arc::clone(&counted));
                std::thread::spawn(move || {
                    each(stream, &|| {
                        counted.fetch_add(1, Ordering::SeqCst);
                    })
                });
            }
        });
        Front { port, requests }
    }
}

/// One request, whole, that asks for an end of the connection behind it; `None`: something else came, or nothing.
fn request(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
        if !head[0].is_ascii_alphabetic() {
            return None;
        }
    }
    let text = String::from_utf8(head).ok()?;
    let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse::<usize>().ok();
    let mut body = vec![0; text.lines().find_map(length).unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    let mut request = text.replacen("\r\n", "\r\nConnection: close\r\n", 1).into_bytes();
    request.append(&mut body);
    Some(request)
}
