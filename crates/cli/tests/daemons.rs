//! Server and agent as processes: how they end, and what they say of each other.
mod common;

use common::{Going, line_with, mycroft, say};

#[test]
fn a_server_ends_in_time_whatever_it_waits_for() {
    let mut server = Going::start(mycroft(&["serve", "--http", "127.0.0.1:0", "--wire", "127.0.0.1:0"]));
    let line = line_with(&mut server.stderr, "mycroft serve: http://");
    let after = line.split("http://").nth(1).unwrap();
    let address = after.split(['/', ',']).next().unwrap().to_owned();
    // Half a request on as many connections as there are places and more.
    let held: Vec<std::net::TcpStream> = (0..300)
        .filter_map(|_| {
            let mut stream = std::net::TcpStream::connect(&address).ok()?;
            std::io::Write::write_all(&mut stream, b"GET / HT").ok()?;
            Some(stream)
        })
        .collect();
    assert!(held.len() > 200, "{}", held.len());
    let begun = std::time::Instant::now();
    server.signal("TERM");
    let (_, _, stderr) = server.wait();
    // The promise is three seconds; the machine of a test may be busy.
    assert!(begun.elapsed() < std::time::Duration::from_secs(12), "{:?}: {stderr}", begun.elapsed());
}

#[test]
fn an_agent_that_is_refused_says_so_and_the_server_does_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let socket = format!("unix:{}", path("wire.sock"));
    let token = "a-token-of-sufficient-length";
    let mut server = Going::start(mycroft(&["serve", "--http", "127.0.0.1:0", "--wire", &socket, "--token", token]));
    line_with(&mut server.stderr, "mycroft serve: http://");
    let args =
        ["agent", "--server", &socket, "--dir", &path("segments"), "--spool", &path("spool"), "--token", "wrong"];
    let mut agent = Going::start(mycroft(&args));
    let line = line_with(&mut agent.stderr, "refused");
    assert!(line.contains("wrong token") && !line.contains("away"), "{line}");
    let line = line_with(&mut server.stderr, "refused");
    assert!(line.contains("wrong token") && !line.contains(token), "{line}");
}

#[test]
fn a_log_is_json_where_it_is_asked_for_and_its_level_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let socket = format!("unix:{}", path("wire.sock"));
    let token = "a-token-of-sufficient-length";
    let json = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    let args = ["serve", "--http", "127.0.0.1:0", "--wire", &socket, "--token", token, "--log-format", "json"];
    let mut server = Going::start(mycroft(&args));
    let line = json(&line_with(&mut server.stderr, "http://"));
    assert_eq!((&line["level"], &line["target"]), (&"info".into(), &"mycroft::daemon".into()), "{line}");
    assert!(line["time"].as_str().unwrap().ends_with('Z') && line["fields"]["http"].is_string(), "{line}");
    let (segments, spool) = (path("segments"), path("spool"));
    let args = ["agent", "--server", &socket, "--dir", &segments, "--spool", &spool, "--token", "wrong"];
    let mut agent = Going::start(mycroft(&[&args[..], &["--log-level", "warn"]].concat()));
    // The first line: what is only information (where it watches) is left out.
    let mut line = String::new();
    std::io::BufRead::read_line(&mut agent.stderr, &mut line).unwrap();
    assert!(line.starts_with("mycroft agent: warning: ") && line.contains("wrong token"), "{line}");
    let line = json(&line_with(&mut server.stderr, "refused"));
    assert_eq!((&line["level"], &line["fields"]["peer"]), (&"warn".into(), &"the unix socket".into()), "{line}");
}

#[test]
fn what_ends_a_daemon_is_json_where_its_log_is() {
    let dir = tempfile::tempdir().unwrap();
    let no_folder = dir.path().join("file");
    std::fs::write(&no_folder, "").unwrap();
    let no_folder = no_folder.display().to_string();
    for (args, flag) in [
        (vec!["serve", "--http", "127.0.0.1:0", "--wire", "127.0.0.1:0", "--store", &no_folder], "file"),
        (vec!["agent", "--server", "127.0.0.1:9", "--dir", &no_folder, "--spool", &no_folder], "file"),
        (vec!["agent", "--server", "nowhere"], "--server"),
    ] {
        let said = say(&[&args[..], &["--log-format", "json"]].concat());
        let lines: Vec<serde_json::Value> =
            said.stderr.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{said:?}"))).collect();
        let last = lines.last().unwrap();
        assert_eq!((said.code, &last["level"]), (Some(2), &"error".into()), "{said:?}");
        assert!(last["message"].as_str().unwrap().contains(flag), "{said:?}");
        let text = say(&args);
        assert!(text.code == Some(2) && text.stderr.lines().last().unwrap().starts_with("mycroft: "), "{text:?}");
    }
}
