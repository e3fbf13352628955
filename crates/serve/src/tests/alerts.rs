//! The webhook: what is posted when, and that a receiver that is away does no harm.
use super::*;
use crate::AlertJson;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;

/// Takes one POST and answers with the status line; gives the path and the body.
pub(super) fn receive(listener: &TcpListener, status: &str) -> (String, AlertJson) {
    let (mut stream, _) = listener.accept().expect("the server posts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).expect("a line") > 0, "the head ended early: {head}");
    }
    let length = head.lines().find_map(|l| l.to_lowercase().strip_prefix("content-length: ").map(str::to_owned));
    let mut body = vec![0; length.expect("a length").parse().expect("a number")];
    reader.read_exact(&mut body).expect("the body");
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").expect("answered");
    let path = head.split(' ').nth(1).expect("a path").to_owned();
    (path, serde_json::from_slice(&body).expect("an alert"))
}

pub(super) fn with_hook() -> (World, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/hook?x=1", listener.local_addr().expect("an address"));
    (World::start(ServeConfig { webhook: Some(url), ..quick() }), listener)
}

#[test]
fn a_case_is_posted_when_it_opens_settles_and_closes() {
    let (world, hook) = with_hook();
    for (step, event) in [(OPEN, "opened"), (SETTLE, "settled"), (CLOSE, "closed")] {
        world.send("train", &[step]);
        let (path, alert) = receive(&hook, "204 No Content");
        assert_eq!((path.as_str(), alert.event.as_str(), alert.case.id), ("/hook?x=1", event, 1));
    }
}

#[test]
fn a_settled_case_that_says_something_else_is_posted_as_revised() {
    let (world, hook) = with_hook();
    for (step, event) in [(OPEN, "opened"), (SETTLE, "settled"), (REVISE, "revised"), (CLOSE, "closed")] {
        world.send("train", &[step]);
        assert_eq!(receive(&hook, "204 No Content").1.event, event);
    }
    let case = world.json("/api/v1/cases/1");
    assert_eq!((&case["category"], &case["settled"]), (&"host-thread".into(), &true.into()));
    assert_eq!(case["revisions"], 2, "{case}");
    assert_eq!(case["revised_at"], case["said_before"][1]["until"], "{case}");
    let before = &case["said_before"][1];
    assert_eq!((&before["what"], &before["category"]), (&"hang".into(), &"network-send".into()), "{case}");
    assert_eq!(before["suspects"][0]["rank"], 1, "{case}");
}

#[test]
fn a_failed_post_is_tried_again_and_a_refused_one_is_not() {
    let (world, hook) = with_hook();
    world.send("train", &[OPEN]);
    assert_eq!(receive(&hook, "503 Busy").1.event, "opened");
    assert_eq!(receive(&hook, "200 OK").1.event, "opened", "tried again");
    world.send("train", &[SETTLE]);
    assert_eq!(receive(&hook, "404 Not Found").1.event, "settled");
    world.send("train", &[CLOSE]);
    assert_eq!(receive(&hook, "302 Found\r\nLocation: http://127.0.0.1:1/").1.event, "closed", "404 was final");
    let counted = |outcome: &str, count: u64| {
        let deadline = Instant::now() + PATIENCE;
        let line = format!("mycroft_alerts_total{{outcome=\"{outcome}\"}} {count}");
        while !get(world.server.http_addr(), "/metrics", &[]).body.contains(&line) {
            assert!(Instant::now() < deadline, "never counted {line}");
        }
    };
    counted("sent", 1);
    counted("failed", 2);
}

#[test]
fn a_receiver_that_never_answers_does_not_hold_up_diagnosis_or_a_stop() {
    let (world, hook) = with_hook();
    world.send("train", &[OPEN]);
    let (stuck, _) = hook.accept().expect("the server posts");
    world.send("train", &[SETTLE, CLOSE]);
    world.server.wait_for_case(PATIENCE, |case| case.state == crate::BookState::Closed).expect("diagnosis goes on");
    let stopped = Instant::now();
    drop(hook);
    world.server.stop();
    assert!(stopped.elapsed() < Duration::from_secs(20), "took {:?}", stopped.elapsed());
    drop(stuck);
}
