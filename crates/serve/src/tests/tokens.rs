//! Tokens by name over HTTP and the wire: what each role may, and each refusal.
use super::*;
use crate::tokens::{NewToken, Role, TokenBook};
use mycroft_wire::{Client, ClientConfig, Refusal, WireError};

const OWN: &str = "own-0123456789abcdef";
const ACTS: &str = "act-0123456789abcdef";

struct Guarded {
    world: World,
    book: TokenBook,
    _folder: tempfile::TempDir,
}

impl Guarded {
    fn start() -> Guarded {
        let folder = tempfile::tempdir().expect("a folder");
        let store = folder.path().join("store");
        let config = ServeConfig {
            wire: vec!["127.0.0.1:0".parse().expect("an endpoint")],
            token: Some(OWN.to_owned()),
            act_token: Some(ACTS.to_owned()),
            act_dir: Some(folder.path().join("act")),
            store_dir: Some(store.clone()),
            ..quick()
        };
        Guarded { world: World::start(config), book: TokenBook::of(&store), _folder: folder }
    }

    fn token(&self, name: &str, role: Role, jobs: &[&str]) -> String {
        let jobs = jobs.iter().map(|job| (*job).to_owned()).collect();
        let host = (role == Role::Agent).then(|| "h1".to_owned());
        self.book.add(NewToken { name: name.to_owned(), role, host, jobs, holds: None }).expect("made")
    }

    fn ask(&self, method: &str, path: &str, token: &str) -> (u16, String) {
        let body = r#"{"who": "ada", "text": "seen"}"#;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = raw(self.world.server.http_addr(), head.as_bytes()).expect("an answer");
        (answer.status, answer.body)
    }

    fn refused(&self, method: &str, path: &str, token: &str, word: &str) {
        let (status, body) = self.ask(method, path, token);
        assert!(status == 403 && body.contains(word) && !body.contains(token), "{method} {path}: {status} {body}");
    }

    fn connect(&self, token: &str, host: &str) -> Result<Client, WireError> {
        let config = ClientConfig { token: Some(token.to_owned()), host: host.to_owned(), ..ClientConfig::default() };
        Client::connect(&self.world.server.wire_endpoints()[0], &config)
    }
}

#[test]
fn each_role_may_what_it_may_and_no_more() {
    let guarded = Guarded::start();
    guarded.world.send("train", &[OPEN]);
    guarded.world.server.wait_for_case(PATIENCE, |_| true).expect("a case");
    let [reader, operator, admin, agent] = [Role::Reader, Role::Operator, Role::Admin, Role::Agent]
        .map(|role| guarded.token(&role.to_string(), role, &[]));
    for token in [&reader, &operator, &admin, &OWN.to_owned()] {
        for path in ["/api/v1/jobs", "/api/v1/cases/1", "/metrics", "/api/v1/health"] {
            assert_eq!(guarded.ask("GET", path, token).0, 200, "{path}");
        }
    }
    guarded.refused("GET", "/api/v1/jobs", &agent, "reads nothing");
    guarded.refused("POST", "/login", &agent, "reads nothing");
    guarded.refused("POST", "/api/v1/cases/1/notes", &reader, "role operator");
    guarded.refused("POST", "/api/v1/jobs/train/dumps", &reader, "role operator");
    for token in [&operator, &admin, &OWN.to_owned()] {
        assert_eq!(guarded.ask("POST", "/api/v1/cases/1/notes", token).0, 200);
    }
    for token in [&reader, &operator] {
        guarded.refused("POST", "/api/v1/jobs/train/actions", token, "role admin");
        guarded.refused("POST", "/api/v1/gates/1/1", token, "role admin");
    }
    // The server's own token reads; who acts shows another, or an admin's.
    assert_eq!(guarded.ask("POST", "/api/v1/jobs/train/actions", OWN).0, 401);
    for token in [admin.as_str(), ACTS] {
        assert_eq!(guarded.ask("POST", "/api/v1/jobs/train/actions", token).0, 400, "it may; the body is no plan");
    }
    guarded.book.revoke("reader").expect("it is there");
    assert_eq!(guarded.ask("GET", "/api/v1/jobs", &reader).0, 401, "at once");
    assert_eq!(guarded.ask("GET", "/api/v1/jobs", "nobody's").0, 401);
}

#[test]
fn what_stands_ends_with_the_token_that_began_it() {
    let guarded = Guarded::start();
    let [reader, agent] = [Role::Reader, Role::Agent].map(|role| guarded.token(&role.to_string(), role, &[]));
    let listen = |token: &str| {
        events::Listener::open(&guarded.world, "", &format!("Authorization: Bearer {token}\r\nConnection: close\r\n"))
    };
    let (mut own, mut named) = (listen(OWN), listen(&reader));
    for listener in [&mut own, &mut named] {
        assert_eq!(listener.next().expect("an event").0, "begin");
    }
    let [mut free, mut bound] =
        [(OWN, "h2"), (&agent, "h1")].map(|(token, host)| guarded.connect(token, host).expect("let in"));
    for name in ["reader", "agent"] {
        guarded.book.revoke(name).expect("it is there");
    }
    assert_eq!(named.next(), None, "a reader's stream ends");
    let asked = Instant::now();
    let refused = loop {
        match bound.send(&batch("other", &[OPEN])).and_then(|()| bound.flush(PATIENCE)) {
            Err(WireError::Refused { code, text, .. }) => break (code, text),
            other => assert!(asked.elapsed() < PATIENCE, "{other:?}"),
        }
    };
    assert!(refused.0 == Refusal::BadToken && refused.1.contains("token agent was revoked"), "{refused:?}");
    // The server's own token, and what it began, stay.
    free.flush(PATIENCE).expect("still let in");
    guarded.world.send("train", &[OPEN]);
    assert_eq!(own.next().expect("an event").0, "case");
}

#[test]
fn a_token_for_some_jobs_shows_no_other() {
    let guarded = Guarded::start();
    for job in ["mine", "theirs"] {
        guarded.world.send(job, &[OPEN]);
        guarded.world.server.wait_for_case(PATIENCE, |case| &*case.job == job).expect("a case");
    }
    let token = guarded.token("ada", Role::Admin, &["mine"]);
    let (status, jobs) = guarded.ask("GET", "/api/v1/jobs", &token);
    assert!(status == 200 && jobs.contains("\"mine\"") && !jobs.contains("theirs"), "{jobs}");
    for path in ["/api/v1/report?job=mine", "/api/v1/cases?job=mine", "/api/v1/cases/1", "/api/v1/actions?job=mine"] {
        let (status, body) = guarded.ask("GET", path, &token);
        assert!(status == 200 && !body.contains("theirs"), "{path}: {status} {body}");
    }
    for path in [
        "/api/v1/report?job=theirs",
        "/api/v1/report?job=%74heirs",
        "/api/v1/cases?job=theirs",
        "/api/v1/cases/2",
        "/api/v1/jobs/theirs/iterations",
        "/api/v1/jobs/%74heirs/dumps",
        "/api/v1/compare?job=mine&with=theirs",
        "/api/v1/ranks?job=mine&job=theirs",
        "/api/v1/events?job=theirs",
    ] {
        guarded.refused("GET", path, &token, "theirs");
    }
    for path in ["/api/v1/cases", "/api/v1/report", "/metrics", "/api/v1/events", "/api/v1/actions", "/nope"] {
        guarded.refused("GET", path, &token, "?job=NAME");
    }
    guarded.refused("POST", "/api/v1/cases/2/notes", &token, "theirs");
    guarded.refused("POST", "/api/v1/jobs/theirs/actions", &token, "theirs");
    guarded.refused("POST", "/api/v1/gates/1/1", &token, "?job=NAME");
    assert_eq!(guarded.ask("POST", "/api/v1/cases/1/notes", &token).0, 200);
    assert_eq!(guarded.ask("GET", "/api/v1/cases/99", &token).0, 404);
}

#[test]
fn a_login_gives_the_token_that_was_shown_and_no_better_one() {
    let guarded = Guarded::start();
    let token = guarded.token("ada", Role::Reader, &[]);
    let head = format!(
        "POST /login HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    let answer = raw(guarded.world.server.http_addr(), head.as_bytes()).expect("an answer");
    assert!(answer.status == 204 && answer.head.contains(&format!("mycroft={token};")), "{}", answer.head);
    assert!(!answer.head.contains(OWN), "{}", answer.head);
}

#[test]
fn an_agents_token_is_for_records_of_its_host() {
    let guarded = Guarded::start();
    let (agent, reader) = (guarded.token("h1", Role::Agent, &[]), guarded.token("ada", Role::Reader, &[]));
    let why = |outcome: Result<Client, WireError>| match outcome {
        Err(WireError::Refused { code: Refusal::BadToken, text, .. }) => text,
        other => panic!("{other:?}"),
    };
    assert!(why(guarded.connect(&agent, "h2")).contains("host h1"));
    assert!(why(guarded.connect(&reader, "h1")).contains("role reader"));
    assert!(why(guarded.connect("nobody's", "h1")).contains("missing or wrong"));
    guarded.connect(OWN, "anything").expect("the server's own token admits every agent");
    guarded.connect(&agent, "h1").expect("its host");
    guarded.book.revoke("h1").expect("it is there");
    assert!(why(guarded.connect(&agent, "h1")).contains("missing or wrong"));
}

#[test]
fn a_token_holds_for_as_long_as_it_was_made_for() {
    let guarded = Guarded::start();
    let of = |name: &str, role, host: Option<&str>, hours: u64| {
        let (name, host) = (name.to_owned(), host.map(str::to_owned));
        let holds = Some(Duration::from_secs(hours * 3600));
        guarded.book.add(NewToken { name, role, host, jobs: Vec::new(), holds }).expect("made")
    };
    // One whose time is over when it is made stands for one that was made long ago.
    let (now, over) = (of("ada", Role::Reader, None, 1), of("bob", Role::Reader, None, 0));
    assert_eq!(guarded.ask("GET", "/api/v1/jobs", &now).0, 200);
    let (status, body) = guarded.ask("GET", "/api/v1/jobs", &over);
    assert!(status == 401 && body.contains("expired") && !body.contains(&over), "{status} {body}");
    let agent = of("h1", Role::Agent, Some("h1"), 0);
    match guarded.connect(&agent, "h1") {
        Err(WireError::Refused { code: Refusal::BadToken, text, .. }) => {
            assert!(text.contains("h1 has expired"), "{text}")
        }
        other => panic!("{other:?}"),
    }
}
