//! `mycroft serve --meta` as who runs a server meets it.
mod common;
#[path = "../../store/tests/server/mod.rs"]
mod server;

use common::{Going, mycroft, refusal, say, serve, until, url_in};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// What the server is ill with.
fn problems(url: &str) -> Vec<String> {
    let health: serde_json::Value =
        ureq::get(format!("{url}/api/v1/health")).call().unwrap().body_mut().read_json().unwrap();
    health["problems"].as_array().unwrap().iter().map(|problem| problem.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_server_keeps_cases_in_postgresql_and_says_when_it_is_away() {
    let Some(mut database) = server::Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (store, password) = (path("store"), path("password"));
    fs::write(&password, format!("{}\n", server::PASSWORD)).unwrap();
    fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
    let url = database.url();
    let (server, http) = serve(&["--store", &store, "--meta", &url, "--meta-password-file", &password]);
    assert_eq!(
        database.sql("SELECT store FROM mycroft_stores"),
        fs::read_to_string(folder.path().join("store/store-id")).unwrap().trim()
    );
    assert_eq!(problems(&http), Vec::<String>::new());
    database.kill();
    let problem = until("it is told", || problems(&http).pop());
    assert!(problem.contains("cases wait in the store's folder") && problem.contains("postgres://ada@/"), "{problem}");
    assert!(!problem.contains("s3cret"), "{problem}");
    database.go_on();
    until("it is back", || problems(&http).is_empty().then_some(()));
    let other = refusal(&[
        "serve",
        "--http",
        "127.0.0.1:0",
        "--store",
        &path("copy"),
        "--meta",
        "postgres://ada@db.example.org/x",
    ]);
    assert!(other.contains("--meta-ca") && other.contains("postgres://ada@db.example.org:5432/x"), "{other}");
    drop(server);
    database.kill();
    let away = refusal(&["serve", "--http", "127.0.0.1:0", "--store", &store, "--meta", &url]);
    assert!(away.contains("connecting to postgres://ada@/"), "{away}");
    let seen = refusal(&["serve", "--store", &store, "--meta", "postgres://ada:s3cret@localhost/x"]);
    assert!(seen.contains("--meta-password-file") && !seen.contains("s3cret"), "{seen}");
}

#[test]
fn the_configuration_file_names_the_database() {
    let Some(database) = server::Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (config, password) = (path("mycroft.toml"), path("password"));
    fs::write(&password, server::PASSWORD).unwrap();
    fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
    let text = format!(
        "[serve]\nhttp = \"127.0.0.1:0\"\nwire = [\"127.0.0.1:0\"]\nstore = {:?}\nmeta = {:?}\nmeta-password-file = {password:?}\n",
        path("store"),
        database.url()
    );
    fs::write(&config, text).unwrap();
    let checked = say(&["config", "check", &config]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let line = checked.stdout.lines().find(|line| line.trim_start().starts_with("meta ")).unwrap();
    assert!(line.contains("postgres://ada@/") && line.contains("file, line 5"), "{checked:?}");
    let mut server = Going::start(mycroft(&["serve", "--config", &config]));
    let http = url_in(&common::line_with(&mut server.stderr, "http://"));
    assert_eq!(problems(&http), Vec::<String>::new());
    assert_eq!(database.sql("SELECT count(*) FROM mycroft_stores"), "1");
    fs::write(&config, "[serve]\nmeta = \"postgres://ada@localhost/x\"\n").unwrap();
    let checked = say(&["config", "check", &config]);
    assert!(checked.code == Some(1) && checked.stdout.contains("--store"), "{checked:?}");
}
