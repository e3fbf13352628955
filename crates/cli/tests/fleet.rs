//! `mycroft doctor --server URL` at real servers: a healthy one, strangers, nobody, an old and a newer one.
mod common;

use common::{Going, end, line_with, mycroft, refusal, say, started, until, url_in};
use std::io::{Read, Write};
use std::net::TcpListener;

const TOKEN: &str = "a-token-of-sufficient-length";

#[test]
fn every_host_that_a_server_knows_is_looked_at_with_a_readers_token() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (_server, line) = started(&["--store", &path("store"), "--token", TOKEN]);
    let (url, wire) = (url_in(&line), line.rsplit(' ').next().unwrap().to_owned());
    let args = ["agent", "--server", &wire, "--dir", &path("segments"), "--spool", &path("spool"), "--host", "h0"];
    let mut agent = Going::start(mycroft(&[&args[..], &["--token", TOKEN]].concat()));
    line_with(&mut agent.stderr, "watching");
    let doctor = |more: &[&str]| say(&[&["doctor", "--server", &url, "--token", TOKEN], more].concat());
    let told = until("the host is heard", || {
        let told = doctor(&["--json"]).json();
        (told["hosts"] == 1 && told["healthy"] == 1).then_some(told)
    });
    assert_eq!((&told["agents"], &told["version"]), (&1.into(), &env!("CARGO_PKG_VERSION").into()), "{told}");
    let checks: Vec<&str> =
        told["findings"].as_array().unwrap().iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    // This machine's disk may be what it likes.
    assert!(checks.iter().all(|check| *check == "disk"), "{told}");
    let text = doctor(&[]);
    assert!(text.stdout.contains("all 1 hosts: nothing to mend"), "{text:?}");
    agent.signal("KILL");
    // No job was ever told of there, and the host is known all the same.
    let told = until("the agent is missed", || {
        let told = doctor(&["--json"]).json();
        let first = &told["findings"].as_array().unwrap().iter().find(|one| one["check"] == "agent")?["found"];
        Some(first.as_str().unwrap().to_owned())
    });
    assert!(told.contains("its agent has not been heard since 20"), "{told}");
    let text = doctor(&[]);
    assert!(text.stdout.contains("systemctl start mycroft-agent"), "{text:?}");
    // One that shows another token is refused, and named.
    let args =
        ["agent", "--server", &wire, "--dir", &path("segments"), "--spool", &path("other"), "--host", "h\u{1b}9"];
    let mut refused = Going::start(mycroft(&[&args[..], &["--token", "another-token-of-that-length"]].concat()));
    line_with(&mut refused.stderr, "refuse");
    let text = until("it is named", || {
        let told = doctor(&[]);
        told.stdout.contains("agents are refused").then_some(told.stdout)
    });
    assert!(text.contains("h\\u{1b}9 at 127.0.0.1") && text.contains("--token-file"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains("another-token") && !text.contains(TOKEN), "{text}");
    let mut stranger = mycroft(&["doctor", "--server", &url]);
    stranger.env("MYCROFT_TOKEN", "another-token-of-that-length");
    let stranger = end(stranger);
    assert_eq!(stranger.code, Some(2), "{stranger:?}");
    assert!(stranger.stderr.contains("401") && stranger.stderr.contains(&url), "{stranger:?}");
    let nobody = refusal(&["doctor", "--server", "http://127.0.0.1:9"]);
    assert!(nobody.contains("no answer from http://127.0.0.1:9"), "{nobody}");
    let mixed = refusal(&["doctor", "--server", &url, "--pid", "1"]);
    assert!(mixed.contains("--pid") && mixed.contains("this host"), "{mixed}");
}

/// A server that answers each path with what it is given, and others with 404, until the test ends.
fn scripted(answers: &[(&'static str, String)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answers = answers.to_vec();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
                head.push(byte[0]);
            }
            let path = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or_default().to_owned();
            let known = answers.iter().find(|(known, _)| *known == path);
            let (status, body) =
                known.map_or(("404 Not Found", "{\"error\": \"no such path\"}"), |(_, b)| ("200 OK", b));
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    url
}

/// The health of a healthy server, and the fleet that docs/formats/api.md shows.
fn answers() -> (String, String) {
    let now = r#"{"ns": 1735689600000000000, "text": "2025-01-01T00:00:00.000000000Z"}"#;
    let health = format!(
        r#"{{"status": "ok", "problems": [], "version": {:?}, "now": {now}, "uptime_s": 60.0, "agents_connected": 1, "hosts_heard": 1,
        "jobs": 1, "open_cases": 0, "batches": 1, "records": 1, "lag_ms": 0, "queue": {{"batches": 0, "records": 0}},
        "dropped": {{"queue": 0, "store": 0, "jobs": 0}}, "engine_panics": 0, "of_a_newer_server": {{}},
        "disk": {{"free_bytes": 90, "bytes": 100, "retain_s": 604800, "retain_bytes": 50, "more": 1}}}}"#,
        env!("CARGO_PKG_VERSION")
    );
    let document = include_str!("../../../docs/formats/api.md");
    let (_, rest) = document.split_once("<!-- example: fleet -->\n```json\n").unwrap();
    let (fleet, _) = rest.split_once("```").unwrap();
    (health, fleet.to_owned())
}

#[test]
fn servers_of_other_versions_are_understood_or_named() {
    let (health, fleet) = answers();
    let newer =
        fleet.replacen('{', "{\"of_a_newer_server\": [1], ", 1).replace("\"host\":", "\"rack\": \"r1\", \"host\":");
    let url = scripted(&[("/api/v1/health", health.clone()), ("/api/v1/fleet", newer)]);
    let told = say(&["doctor", "--server", &url, "--json"]);
    assert!(told.json()["hosts"].as_u64().is_some_and(|hosts| hosts > 0), "{told:?}");
    let url = scripted(&[("/api/v1/health", health.clone())]);
    let told = say(&["doctor", "--server", &url]);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(
        told.stdout.contains("too old to tell of its hosts") && told.stdout.contains("upgrade the server"),
        "{told:?}"
    );
    let url = scripted(&[("/api/v1/health", health), ("/api/v1/fleet", "{\"hosts\": 7}".to_owned())]);
    let told = refusal(&["doctor", "--server", &url]);
    assert!(told.contains("/api/v1/fleet answered something that this version does not understand"), "{told}");
    let url = scripted(&[]);
    let told = refusal(&["doctor", "--server", &url]);
    assert!(told.contains("/api/v1/health answered 404"), "{told}");
}
