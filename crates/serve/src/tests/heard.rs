//! Who hears what a server tells: the subscriber of the thread that started it, from all of the server's threads, and
//! nobody else.
#[path = "../../../wire/tests/common/heard.rs"]
pub(super) mod hearing;

use super::*;
use hearing::Heard;
use mycroft_wire::Endpoint;

/// A server with everything that tells: a wire, a store, a webhook at which nobody takes anything.
fn talkative(dir: &std::path::Path) -> ServeConfig {
    ServeConfig {
        wire: vec![Endpoint::Tcp("127.0.0.1:0".to_owned())],
        store_dir: Some(dir.join("store")),
        webhook: Some("http://127.0.0.1:1/".to_owned()),
        dump_on_case: false,
        ..quick()
    }
}

/// Makes the brain, the wire, a capture that HTTP orders, and the webhook tell something; the lines.
fn all_said(world: World, heard: &Heard, job: &str) -> String {
    world.send(job, &[OPEN]);
    world.until("/api/v1/cases", |cases| !cases["cases"].as_array().is_none_or(Vec::is_empty));
    // Its thread is started by one of HTTP's.
    let asked = format!("POST /api/v1/jobs/{job}/dumps HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(raw(world.server.http_addr(), asked.as_bytes()).expect("an answer").status, 202);
    world.until(&format!("/api/v1/jobs/{job}/dumps"), |dumps| dumps["dumps"][0]["state"] == "failed");
    let Endpoint::Tcp(address) = &world.server.wire_endpoints()[0] else { unreachable!("it is TCP") };
    let mut stranger = TcpStream::connect(address).expect("it listens");
    stranger.write_all(&[b'x'; 64]).expect("sent");
    let _ = stranger.read_to_end(&mut Vec::new());
    // Its threads have said what they say when it has ended.
    world.server.stop();
    heard.lines().join("\n")
}

#[test]
fn each_of_two_servers_is_heard_by_whoever_started_it() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let (one, other) = (Heard::default(), Heard::default());
    let first = one.during(|| World::start(talkative(dirs[0].path())));
    let second = other.during(|| World::start(talkative(dirs[1].path())));
    let told = [all_said(first, &one, "one"), all_said(second, &other, "other")];
    for (text, mine, others) in [(&told[0], "\"one\"", "\"other\""), (&told[1], "\"other\"", "\"one\"")] {
        let job = mine.trim_matches('"');
        for part in [
            format!("INFO mycroft_serve::brain: job {mine} appeared job={job}"),
            format!("case 1 opened: hang unknown in job {mine} case=1 job={job}"),
            format!("capture 1 of job {mine} failed"),
            "WARN mycroft_wire::server: agent at 127.0.0.1 refused".to_owned(),
            "WARN mycroft_serve::alert: alert for case 1 (opened) was not delivered".to_owned(),
        ] {
            assert!(text.contains(&part), "{part}\nin\n{text}");
        }
        assert!(!text.contains(others), "{text}");
    }
}
