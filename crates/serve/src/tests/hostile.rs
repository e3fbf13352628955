//! Hostile and broken HTTP: an answer or a closed connection, and the server goes on.
use super::*;
use mycroft_wire::descriptors::{Shares, current};

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
        "/api/v1/jobs/%ff/dumps",
        "/api/v1/jobs/%ff/dumps/1",
        "/api/v1/jobs/j/dumps/%ff",
        "/api/v1/jobs/j/dumps/1/files/%ff",
        "/%ff",
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
fn who_has_not_shown_the_token_goes_first_and_a_reader_always_finds_a_place() {
    let world = World::start(ServeConfig { token: Some("0123456789abcdef".to_owned()), ..quick() });
    let address = world.server.http_addr();
    let ask = |path: &str, head: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{head}\r\n");
        let mut stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        stream.write_all(request.as_bytes()).expect("written");
        let mut start = [0; 12];
        let answered = stream.read_exact(&mut start).map(|()| start);
        (stream, answered)
    };
    let token = "Authorization: Bearer 0123456789abcdef\r\n";
    let (mut reader, answered) = ask("/api/v1/health", token);
    assert_eq!(&answered.expect("an answer"), b"HTTP/1.1 200");
    // Three times as many as there is room for, in turn silent, half a request, and one that asks for the page only.
    let visitors = Shares::of(current()).visitors;
    let mut held: Vec<TcpStream> = Vec::new();
    for n in 0..3 * visitors {
        let mut stream = TcpStream::connect(address).expect("the server accepts");
        match n % 3 {
            0 => {}
            1 => stream.write_all(b"GET / HT").expect("the beginning of a request"),
            _ => stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("a request"),
        }
        held.push(stream);
    }
    held[0].set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let ended = held[0].read(&mut [0]);
    assert!(matches!(ended, Ok(0) | Err(_)), "the oldest is put out, not {ended:?}");
    for _ in 0..10 {
        let (_, answered) = ask("/api/v1/jobs", token);
        assert_eq!(&answered.expect("an answer"), b"HTTP/1.1 200");
    }
    // The first reader is still there.
    let mut rest = vec![0; 1 << 16];
    reader.set_read_timeout(Some(Duration::from_millis(1))).expect("a timeout can be set");
    while reader.read(&mut rest).is_ok_and(|count| count > 0) {}
    reader.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let again = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\n{token}Connection: close\r\n\r\n");
    reader.write_all(again.as_bytes()).expect("it was not put out");
    let mut answer = String::new();
    reader.read_to_string(&mut answer).expect("an answer");
    let put_out = answer.lines().find(|l| l.starts_with("mycroft_http_refused_total ")).expect("the counter");
    assert_ne!(put_out, "mycroft_http_refused_total 0");
}

/// Names come from agents; a metrics page may be looked at in a terminal.
#[test]
fn metrics_and_errors_carry_no_control_characters() {
    let world = World::start(quick());
    world.send("evil\x1b[2J\x07\n# forged 1\\\"", &[NOTHING]);
    world.until("/api/v1/jobs", |v| v["jobs"].as_array().is_some_and(|jobs| jobs.len() == 1));
    let metrics = get(world.server.http_addr(), "/metrics", &[]).body;
    assert!(metrics.contains("evil"), "{metrics}");
    assert!(!metrics.contains(|c: char| c.is_control() && c != '\n') && !metrics.contains("\n# forged"), "{metrics}");
    let refused = get(world.server.http_addr(), "/api/v1/jobs/%1b%5b2J/dumps/7", &[]).body;
    let error: crate::api::ErrorJson = serde_json::from_str(&refused).expect("JSON");
    assert!(error.error.contains("no capture 7") && !error.error.contains(char::is_control), "{refused}");
}

/// One connection that invents ranks, hosts and communicators: the server keeps some, counts the rest and says so.
#[test]
fn invented_ranks_are_counted_and_told() {
    let world = World::start(quick());
    let mark = Record::StepMark(StepMark { at: HostTime(NEW_YEAR), step: NOTHING });
    for rank in 0..1100 {
        let process = Some(mycroft_record::ProcessKey { rank: Rank(rank), pid: 1, nonce: 1 });
        let source = Source { job: "train".into(), host: "one-host".into(), process };
        assert!(world.server.ingest(Batch { source, collected_at: HostTime(NEW_YEAR), records: vec![mark.clone()] }));
    }
    let health = world.until("/api/v1/health", |v| v["dropped"]["limits"] == 1100 - 1024 && v["status"] == "degraded");
    assert!(health["problems"][0].as_str().is_some_and(|p| p.contains("invent")), "{health}");
    // Health counts at once, a job's line at the next look.
    let told = |v: &serde_json::Value| {
        v["jobs"][0]["caveats"][0]["text"].as_str().is_some_and(|text| text.contains("76 records"))
    };
    let jobs = world.until("/api/v1/jobs", told);
    assert_eq!(jobs["jobs"][0]["processes"], 1024);
}
