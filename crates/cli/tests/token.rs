//! Tokens by name as who runs a server meets them: made, shown once, used, listed, revoked.
mod common;

use common::{say, serve};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_token_is_made_used_listed_and_revoked_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (store, own, mine) = (path("store"), path("own"), path("mine"));
    let (_server, url) = serve(&["--store", &store, "--token-file", &own]);
    let added = say(&["token", "add", "ada", "--role", "reader", "--store", &store]);
    assert_eq!((added.code, added.stderr.as_str()), (Some(0), ""), "{added:?}");
    let token = added.stdout.trim();
    assert!(token.len() == 48 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{added:?}");
    let cases = |token: &str| say(&["cases", "--url", &url, "--token", token]);
    assert_eq!(cases(token).code, Some(0));
    let noted = say(&["cases", "1", "--note", "x", "--url", &url, "--token", token]);
    assert!(noted.code == Some(2) && noted.stderr.contains("needs the role operator"), "{noted:?}");
    let kept = ["token", "add", "h1", "--role", "agent", "--host", "h1", "--out", &mine, "--store", &store];
    let kept = say(&kept);
    assert_eq!((kept.code, kept.stdout.as_str()), (Some(0), ""), "{kept:?}");
    assert_eq!(fs::metadata(&mine).unwrap().permissions().mode() & 0o777, 0o600);
    let agents = cases(fs::read_to_string(&mine).unwrap().trim());
    assert!(agents.code == Some(2) && agents.stderr.contains("reads nothing"), "{agents:?}");
    let listed = say(&["token", "list", "--store", &store]);
    let words: Vec<Vec<&str>> = listed.stdout.lines().map(|line| line.split_whitespace().take(4).collect()).collect();
    assert_eq!(words, [["ada", "reader", "all", "jobs,"], ["h1", "agent", "host", "h1,"]], "{listed:?}");
    let json = say(&["token", "list", "--json", "--store", &store]);
    assert_eq!(json.json()["tokens"][1]["host"], "h1");
    assert!(!listed.stdout.contains(token) && !json.stdout.contains(token));
    assert!(json.json()["tokens"][0]["expires_at"].is_null(), "{json:?}");
    assert_eq!(say(&["token", "add", "bob", "--role", "reader", "--for", "30d", "--store", &store]).code, Some(0));
    let soon = say(&["token", "list", "--store", &store]);
    let bob = soon.stdout.lines().find(|line| line.starts_with("bob")).unwrap();
    assert!(bob.contains(", expires 20") && bob.ends_with(" UTC") && !bob.contains("EXPIRED"), "{bob}");
    let revoked = say(&["token", "revoke", "ada", "--store", &store]);
    assert_eq!((revoked.code, revoked.stdout.as_str()), (Some(0), "ada is revoked\n"));
    let refused = cases(token);
    assert!(refused.code == Some(2) && refused.stderr.contains("401"), "{refused:?}");
}

#[test]
fn what_cannot_be_made_is_said_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let line = common::refusal(&["token", "add", "a", "--role", "agent", "--out", &path("out"), "--store", &path("")]);
    assert!(line.contains("--host") && !folder.path().join("out").exists(), "{line}");
    let line = common::refusal(&["token", "add", "a", "--role", "king", "--store", &path("")]);
    assert!(line.contains("agent, reader, operator, admin"), "{line}");
    let line = common::refusal(&["token", "add", "a", "--role", "reader", "--for", "soon", "--store", &path("")]);
    assert!(line.contains("30d") || line.contains("no time"), "{line}");
    assert!(common::refusal(&["token", "revoke", "a", "--store", &path("")]).contains("no token a"));
    assert!(common::refusal(&["token", "list", "--store", &path("absent")]).contains("absent"));
}
