//! Tokens by name in their file: made, found, expired, refused.
use super::*;

fn made(book: &TokenBook, name: &str, role: Role, host: Option<&str>, jobs: &[&str]) -> Result<String, TokenError> {
    let (name, host) = (name.to_owned(), host.map(str::to_owned));
    book.add(NewToken { name, role, host, jobs: jobs.iter().map(|job| (*job).to_owned()).collect(), holds: None })
}

fn good(book: &TokenBook, token: &str) -> Option<Arc<NamedToken>> {
    book.find(token.as_bytes()).map(|shown| match shown {
        Shown::Good(found) => found,
        Shown::Expired(found) => panic!("{found:?}"),
    })
}

#[test]
fn a_token_is_told_once_and_kept_as_its_sum() {
    let dir = tempfile::tempdir().expect("a folder");
    let book = TokenBook::of(dir.path());
    assert_eq!(book.list().expect("none"), []);
    assert_eq!(book.find(b"nobody's"), None);
    let token = made(&book, "ada", Role::Reader, None, &["train"]).expect("made");
    let text = std::fs::read_to_string(dir.path().join(FILE)).expect("written");
    assert!(token.len() == 2 * RANDOM_BYTES && !text.contains(&token), "{text}");
    assert_eq!(std::fs::metadata(dir.path().join(FILE)).expect("there").mode() & 0o777, 0o600);
    let found = good(&book, &token).expect("it is ada's");
    assert_eq!((found.name.as_str(), found.role, &found.jobs[..]), ("ada", Role::Reader, &["train".to_owned()][..]));
    assert_eq!(book.find(found.sha256.as_bytes()), None, "the sum is no token");
    // Another process revokes it.
    TokenBook::of(dir.path()).revoke("ada").expect("it is there");
    assert_eq!(book.find(token.as_bytes()), None);
    assert!(book.revoke("ada").is_err());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let book = TokenBook::of(dir.path());
    let why = |outcome: Result<String, TokenError>| outcome.expect_err("refused").to_string();
    assert!(why(made(&book, "", Role::Reader, None, &[])).contains("name"));
    assert!(why(made(&book, "a b", Role::Reader, None, &[])).contains("name"));
    assert!(why(made(&book, "a", Role::Agent, None, &[])).contains("--host"));
    assert!(why(made(&book, "a", Role::Agent, Some("h1"), &["j"])).contains("--jobs"));
    assert!(why(made(&book, "a", Role::Admin, Some("h1"), &[])).contains("--host"));
    made(&book, "a", Role::Agent, Some("h1"), &[]).expect("made");
    let foreign = tempfile::tempdir().expect("a folder");
    if std::os::unix::fs::chown(foreign.path(), Some(12_345), None).is_ok() {
        assert!(why(made(&TokenBook::of(foreign.path()), "a", Role::Admin, None, &[])).contains("sudo -u '#12345'"));
    }
    assert!(why(made(&book, "a", Role::Reader, None, &[])).contains("already"));
}

#[test]
fn an_agents_token_is_good_for_its_host_only() {
    let dir = tempfile::tempdir().expect("a folder");
    let book = TokenBook::of(dir.path());
    let agent = made(&book, "h1", Role::Agent, Some("h1"), &[]).expect("made");
    let admin = made(&book, "root", Role::Admin, None, &[]).expect("made");
    assert_eq!(book.admits(&agent, "h1"), Some(Ok("h1".to_owned())));
    let refused = |token: &str, host: &str| book.admits(token, host).expect("known").expect_err("refused");
    assert!(refused(&agent, "h2").contains("host h1"));
    assert!(refused(&admin, "h1").contains("role admin"));
    assert_eq!(book.admits("x", "h1"), None);
}

#[test]
fn a_file_that_cannot_be_believed_lets_nobody_in() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let book = TokenBook::of(dir.path());
    let token = made(&book, "ada", Role::Reader, None, &[]).expect("made");
    assert!(book.find(token.as_bytes()).is_some());
    let path = dir.path().join(FILE);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("ours");
    assert_eq!(TokenBook::of(dir.path()).find(token.as_bytes()), None);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
    std::fs::write(&path, "[{}]").expect("written");
    assert_eq!(book.find(token.as_bytes()), None);
    assert!(made(&book, "b", Role::Reader, None, &[]).is_err(), "what is not understood is not replaced");
}

#[test]
fn a_token_that_has_expired_is_refused_by_name() {
    let dir = tempfile::tempdir().expect("a folder");
    let book = TokenBook::of(dir.path());
    let asked = NewToken {
        name: "h1".to_owned(),
        role: Role::Agent,
        host: Some("h1".to_owned()),
        jobs: Vec::new(),
        holds: Some(Duration::from_secs(3600)),
    };
    let token = book.add(asked).expect("made");
    let listed = book.list().expect("readable").remove(0);
    let expires_s = listed.expires_s.expect("it does");
    assert_eq!(expires_s, listed.made_s + 3600);
    assert!(!listed.is_expired(expires_s - 1) && listed.is_expired(expires_s));
    assert_eq!(book.admits(&token, "h1"), Some(Ok("h1".to_owned())));
    // An hour later, as far as the file goes.
    book.change(|tokens| {
        tokens[0].expires_s = Some(tokens[0].made_s);
        Ok(())
    })
    .expect("written");
    assert!(matches!(book.find(token.as_bytes()), Some(Shown::Expired(_))));
    let why = book.admits(&token, "h1").expect("known").expect_err("refused");
    assert!(why.contains("the token h1 has expired") && why.contains("mycroft token add"), "{why}");
}
