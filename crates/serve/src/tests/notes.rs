//! What people say of a case: who looks after it, when it is quiet, and that it is kept.
use super::alerts::{receive, with_hook};
use super::*;

fn say(world: &World, number: u64, headers: &str, body: &str) -> Answer {
    let head = format!(
        "POST /api/v1/cases/{number}/notes HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    raw(world.server.http_addr(), head.as_bytes()).expect("an answer")
}

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn who_looks_after_a_case_is_told_and_a_silence_has_an_end() {
    let (world, hook) = with_hook();
    world.send("train", &[OPEN]);
    let next = || receive(&hook, "200 OK").1;
    assert_eq!(next().event, "opened");
    let answer = say(&world, 1, JSON, r#"{"who": "ada on desk", "text": "I look at the switch", "acknowledge": true}"#);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let told = next();
    let note = &told.case.notes[0];
    assert_eq!((told.event.as_str(), note.who.as_str(), note.acknowledges), ("acknowledged", "ada on desk", true));

    // Nothing is told of what changes in a silence; at its end that the case is open, and always that it is over.
    assert_eq!(say(&world, 1, JSON, r#"{"who": "ada", "silence_s": 3600}"#).status, 200);
    world.send("train", &[SETTLE]);
    world.until("/api/v1/cases/1", |case| case["settled"] == true);
    assert_eq!(say(&world, 1, JSON, r#"{"who": "ada", "silence_s": 0}"#).status, 200);
    assert_eq!(next().event, "unsilenced");
    assert_eq!(say(&world, 1, JSON, r#"{"who": "ada", "silence_s": 3600}"#).status, 200);
    world.send("train", &[CLOSE]);
    let closed = next();
    assert_eq!((closed.event.as_str(), closed.case.notes.len()), ("closed", 4), "{closed:?}");

    let late = say(&world, 1, JSON, r#"{"who": "ada", "acknowledge": true}"#);
    assert!(late.status == 409 && late.body.contains("not open"), "{}", late.body);
    assert_eq!(say(&world, 1, JSON, r#"{"who": "ada", "text": "it was the optics"}"#).status, 200);
    assert_eq!(world.json("/api/v1/cases/1")["notes"][4]["text"], "it was the optics");
}

#[test]
fn what_is_no_note_is_refused_and_says_why() {
    let world = World::start(quick());
    world.send("train", &[OPEN]);
    world.server.wait_for_case(PATIENCE, |_| true).expect("a case");
    let long = format!(r#"{{"who": "a", "text": "{}"}}"#, "x".repeat(2_001));
    let who = format!(r#"{{"who": "{}", "text": "x"}}"#, "x".repeat(201));
    for (body, word) in [
        (r#"{"text": "x"}"#, "who"),
        (r#"{"who": "", "text": "x"}"#, "who"),
        (who.as_str(), "200 characters"),
        (r#"{"who": "a"}"#, "at least one of"),
        (r#"{"who": "a", "silence_s": 604801}"#, "a week"),
        (r#"{"who": "a", "silence_s": -1}"#, "silence_s"),
        (r#"{"who": "a", "text": "x", "loud": true}"#, "loud"),
        (long.as_str(), "2000 characters"),
        ("{", ""),
    ] {
        let answer = say(&world, 1, JSON, body);
        assert!(answer.status == 400 && answer.body.contains(word), "{body}: {} {}", answer.status, answer.body);
    }
    let good = r#"{"who": "a", "text": "x"}"#;
    assert_eq!(say(&world, 9, JSON, good).status, 404);
    assert_eq!(say(&world, 1, "", good).status, 400, "a form of another page can send no JSON");
    let foreign = format!("{JSON}Origin: http://elsewhere.example\r\n");
    assert_eq!(say(&world, 1, &foreign, good).status, 403);
    for _ in 0..100 {
        assert_eq!(say(&world, 1, JSON, good).status, 200);
    }
    let full = say(&world, 1, JSON, good);
    assert!(full.status == 409 && full.body.contains("as many"), "{}", full.body);
}

#[test]
fn notes_outlast_the_server_and_the_token_is_asked_for() {
    let folder = tempfile::tempdir().expect("a directory");
    let config = || ServeConfig { store_dir: Some(folder.path().join("store")), ..quick() };
    let world = World::start(config());
    world.send("train", &[OPEN]);
    world.server.wait_for_case(PATIENCE, |_| true).expect("a case");
    assert_eq!(say(&world, 1, JSON, r#"{"who": "a", "text": "x", "silence_s": 60}"#).status, 200);
    let said = world.json("/api/v1/cases/1")["notes"].clone();
    drop(world);
    assert_eq!(World::start(config()).json("/api/v1/cases/1")["notes"], said);
    let world = World::start(ServeConfig { token: Some("read-0123456789abcdef".to_owned()), ..quick() });
    assert_eq!(say(&world, 1, JSON, r#"{"who": "a", "text": "x"}"#).status, 401);
}
