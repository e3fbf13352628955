//! HTTPS: TLS below HTTP, and words for who speaks plain HTTP to it.
use mycroft_wire::ServerTls;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What a client of TLS sends first: a handshake (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 0x16;
/// How long what a plain peer still sends is read: unread, the kernel resets the connection, and the answer is lost.
const QUIET: Duration = Duration::from_millis(500);
/// The answer to plain HTTP. No redirect: a token may have come with the request, and its client should learn not to send it so.
const PLAIN: &str = r#"{"error":"this address speaks HTTPS: begin its URL with https:// (for mycroft, see --url-ca)"}"#;

/// TLS over a connection; `None` where the peer speaks none, and has been told so, or is not understood.
pub(super) async fn accept(mut stream: TcpStream, tls: &ServerTls) -> Option<TlsStream<TcpStream>> {
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 0 {
        return None;
    }
    if first != [HANDSHAKE] {
        say_plain(&mut stream).await;
        return None;
    }
    // An error here is the peer's: it was told by TLS.
    TlsAcceptor::from(tls.config()).accept(stream).await.ok()
}

async fn say_plain(stream: &mut TcpStream) {
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close";
    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{PLAIN}", PLAIN.len());
    // The peer may be gone.
    if stream.write_all(answer.as_bytes()).await.is_ok() && stream.shutdown().await.is_ok() {
        let mut rest = [0; 1024];
        let read = async { while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
        let _ = tokio::time::timeout(QUIET, read).await;
    }
}
