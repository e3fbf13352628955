//! Hostile and broken HTTP: an answer or a closed connection, and the server goes on.
use super::*;
use crate::http::MAX_CONNECTIONS;

/// The server still answers.
fn still_well(world: &World) {
    assert_eq!(world.json("/api/v1/health")["status"], "ok");
}

#[test]
fn broken_requests_are_refused_one_by_one() {
    let world = World::start(quick());
    let long_path = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(100_000));
    let long_header = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "a".repeat(100_000));
    let headers: String = (0..1000).map(|n| format!("X{n}: 1\r\n")).collect();
    let many_headers = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    let requests: [&[u8]; 12] = [
        b"\r\n\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", // a TLS hello
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        long_path.as_bytes(),
        long_header.as_bytes(),
        many_headers.as_bytes(),
    ];
    for request in requests {
        let shown = String::from_utf8_lossy(&request[..request.len().min(60)]).into_owned();
        let mut closing = TcpStream::connect(world.server.http_addr()).expect("the server accepts");
        closing.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        let _ = closing.write_all(request);
        let _ = closing.shutdown(std::net::Shutdown::Write);
        let mut bytes = Vec::new();
        let _ = closing.read_to_end(&mut bytes);
        if let Some(answer) = parse(&bytes) {
            assert!((400..=599).contains(&answer.status), "{shown}: {}", answer.status);
        }
        still_well(&world);
    }
}

#[test]
fn strange_paths_and_queries_are_answered_as_errors() {
    let world = World::start(quick());
    world.send("train", &[NOTHING]);
    world.until("/api/v1/jobs", |v| v["jobs"][0]["name"] == "train");
    let long_job = format!("/api/v1/report?job={}", "j".repeat(8_000));
    for path in [
        "/api/v1/cases/%00",
        "/api/v1/cases/%ff%fe",
        "/api/v1/cases/../../etc/passwd",
        "/api/v1/cases/99999999999999999999999999",
        "/api/v1/report?job=%00",
        "/api/v1/report?job=%ff",
        "/api/v1/report?job=a&job=b",
        "/api/v1/report?job[]=x",
        "/api/v1/cases?limit=-1",
        "/api/v1/cases?limit=1e9",
        "/api/v1/cases?limit=18446744073709551616",
        long_job.as_str(),
    ] {
        let answer = get(world.server.http_addr(), path, &[]);
        assert!((400..500).contains(&answer.status), "{path}: {}", answer.status);
        assert!(serde_json::from_str::<crate::api::ErrorJson>(&answer.body).is_ok(), "{path}: {}", answer.body);
    }
    still_well(&world);
}

#[test]
fn a_body_is_not_read_however_long_it_claims_to_be() {
    let world = World::start(quick());
    let mut stream = TcpStream::connect(world.server.http_addr()).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream
        .write_all(b"GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n")
        .expect("written");
    let mut start = [0; 12];
    stream.read_exact(&mut start).expect("an answer without waiting for the body");
    assert_eq!(&start, b"HTTP/1.1 200");
    still_well(&world);
}

#[test]
fn too_many_connections_are_closed_and_counted_and_leave_room_again() {
    let world = World::start(quick());
    let address = world.server.http_addr();
    let mut held: Vec<TcpStream> = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(address).expect("the server accepts");
        stream.write_all(b"GET / HT").expect("the beginning of a request");
        held.push(stream);
    }
    let mut refused = TcpStream::connect(address).expect("the system accepts");
    refused.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let mut byte = [0];
    let ended = refused.read(&mut byte);
    assert!(matches!(ended, Ok(0) | Err(_)), "the one too many is closed, not {ended:?}");
    drop(held);
    let deadline = Instant::now() + PATIENCE;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    let answer = loop {
        if let Some(answer) = raw(address, request.as_bytes()) {
            break answer;
        }
        assert!(Instant::now() < deadline, "room never appeared again");
    };
    let refused = answer.body.lines().find(|l| l.starts_with("mycroft_http_refused_total ")).expect("the counter");
    assert_ne!(refused, "mycroft_http_refused_total 0");
}
