//! The configuration file as who runs the daemons meets it: what holds, what is said of mistakes, and what the daemons do.
mod common;

use common::{Going, end, line_with, mycroft, refusal, say};
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn written(folder: &tempfile::TempDir, text: &str) -> String {
    let path = folder.path().join("mycroft.toml");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    path.display().to_string()
}

#[test]
fn a_check_says_what_is_in_force_and_from_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, "[serve]\nretain-days = 30\ntick_ms = 500\nhttp = \"127.0.0.1:1\"\n");
    let mut check = mycroft(&["config", "check", &path, "--", "serve", "--tick-ms", "250"]);
    check.env("MYCROFT_HTTP", "127.0.0.1:2").env("MYCROFT_TOKEN", "a-token-of-sufficient-length");
    let said = end(check);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{said:?}");
    let line = |key: &str| {
        let lines = said.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.filter(|line| line.starts_with(&format!("{key} "))).collect::<Vec<_>>().join("|")
    };
    assert!(said.stdout.starts_with(&path), "{said:?}");
    assert_eq!(line("retain-days"), "retain-days 30 file, line 2");
    assert_eq!(line("tick-ms"), "tick-ms 250 flag");
    assert_eq!(line("http"), "http 127.0.0.1:2 environment, MYCROFT_HTTP");
    assert_eq!(line("retain-bytes"), "retain-bytes 68719476736 default");
    assert_eq!(line("store"), "store - default");
    assert_eq!(line("token"), "token (not shown) environment, MYCROFT_TOKEN");
    assert!(!said.stdout.contains("sufficient") && said.stdout.ends_with("\nok\n"), "{said:?}");
    let said = say(&["config", "check", "--json", &path]);
    let (json, serve) = (said.json(), &said.json()["in_force"]["serve"]);
    assert_eq!((said.code, &json["errors"]), (Some(0), &serde_json::json!([])));
    assert_eq!(serve["retain-days"], serde_json::json!({"values": ["30"], "source": "file, line 2"}));
    assert_eq!(json["in_force"]["agent"]["server"]["values"], serde_json::json!(["127.0.0.1:7700"]));
}

#[test]
fn mistakes_are_told_with_file_and_line_and_start_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, "[serve]\nretain-day = 30\ntick-ms = \"fast\"\n[agent]\nspool-bytes = 1\n");
    let said = say(&["config", "check", &path]);
    assert_eq!(said.code, Some(1), "{said:?}");
    let wrong = |line: usize, text: &str| format!("wrong: {path}:{line}: {text}\n");
    assert!(said.stdout.contains(&wrong(2, "[serve] has no key retain-day: did you mean retain-days?")), "{said:?}");
    assert!(said.stdout.contains(&wrong(3, "tick-ms in [serve]: must be an integer, and is the string \"fast\"")));
    assert!(said.stdout.ends_with("2 errors\n"), "{said:?}");
    let line = refusal(&["serve", "--config", &path]);
    let first = format!("mycroft: {path}:2: [serve] has no key retain-day: did you mean retain-days?");
    assert_eq!(line, format!("{first} (and 1 more: `mycroft config check {path}` lists them)"));
    assert_eq!(say(&["config", "check", &path, "--", "agent"]).code, Some(0), "its table is right");
    // What does not go together is told with where it stands.
    let path = written(&folder, "[serve]\n\nwebhook-format = \"slack\"\n");
    let line = refusal(&["serve", "--config", &path, "--http", "127.0.0.1:0"]);
    assert!(line.contains("--webhook <WEBHOOK>"), "{line}");
    let said = say(&["config", "check", &path]);
    assert!(said.code == Some(1) && said.stdout.contains("wrong: mycroft serve: the following"), "{said:?}");
    let path = written(&folder, "[agent]\ntoken-file = \"/t\"\n");
    let line = refusal(&["agent", "--config", &path, "--token", "x"]);
    assert!(line.contains(&format!("--token-file is from {path}:2")), "{line}");
}

#[test]
fn a_file_that_cannot_be_believed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder, "[serve]\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(refusal(&["serve", "--config", &path]).contains("chmod go-w"));
    let absent = folder.path().join("absent").display().to_string();
    assert!(refusal(&["agent", "--config", &absent]).contains(&absent));
    let path = written(&folder, "[agent]\n# here\ntoken = \"a-token-of-sufficient-length\"\n");
    let line = refusal(&["agent", "--config", &path]);
    assert!(line.contains(":3: token in [agent] is a secret") && line.contains("chmod o-r"), "{line}");
    assert!(!line.contains("sufficient"), "{line}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(say(&["config", "check", &path]).code, Some(0));
    assert!(refusal(&["config", "check", "--", "cases"]).contains("configures agent, serve, watch"));
}

#[test]
fn a_server_is_configured_by_a_file_alone() {
    let folder = tempfile::tempdir().unwrap();
    let socket = format!("unix:{}", folder.path().join("wire.sock").display());
    let path =
        written(&folder, &format!("[serve]\nhttp = \"127.0.0.1:0\"\nwire = [\"{socket}\"]\nlog-format = \"json\"\n"));
    let mut serve = mycroft(&["serve"]);
    serve.env("MYCROFT_CONFIG", &path);
    let mut server = Going::start(serve);
    let line = line_with(&mut server.stderr, "configured by");
    assert!(line.starts_with('{') && line.contains(&path), "{line}");
    assert!(line_with(&mut server.stderr, "agents at").contains(&socket));
}

#[test]
fn what_is_shown_is_a_file_that_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let example = say(&["config", "show", "--example"]);
    assert_eq!(example.code, Some(0), "{example:?}");
    assert!(example.stdout.is_ascii() && example.stdout.lines().all(|line| line.len() <= 130), "{example:?}");
    let path = written(
        &folder,
        "[serve]\nno-dump-on-case = true\nwire = [\"unix:/a\", \"unix:/b\"]\nwebhook = \"http://q/\\\"\"\n",
    );
    let shown = say(&["config", "show", &path]);
    assert!(shown.stdout.contains("\nwire = [\"unix:/a\", \"unix:/b\"] # file, line 3\n"), "{shown:?}");
    assert!(shown.stdout.contains("\n#retain-days = 7\n"), "{shown:?}");
    let in_force = |path: &str| {
        let json = say(&["config", "check", "--json", path]).json();
        ["agent", "serve", "watch"].map(|table| {
            let keys = json["in_force"][table].as_object().unwrap().clone();
            keys.into_iter().map(|(key, one)| (key, one["values"].clone())).collect::<Vec<_>>()
        })
    };
    let before = in_force(&path);
    assert_eq!(in_force(&written(&folder, &shown.stdout)), before);
    let nothing = in_force("/dev/null");
    assert_ne!(before, nothing);
    assert_eq!(in_force(&written(&folder, &example.stdout)), nothing, "an example changes nothing");
}
