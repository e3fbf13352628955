//! `mycroft mitigate` as a person meets it.
mod common;

use common::{refusal, say, serve};

#[test]
fn help_says_what_to_tell_it_and_that_nothing_is_done_unasked() {
    let help = say(&["mitigate", "--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for word in [
        "--job",
        "--micro-batches",
        "--tensor",
        "--pipeline",
        "--restart-cost",
        "--done",
        "--json",
        "--write-plan",
        "--apply",
        "--auto",
        "Nothing is done unless asked for",
    ] {
        assert!(help.stdout.contains(word), "no {word}:\n{}", help.stdout);
    }
}

#[test]
fn without_a_job_or_a_batch_there_is_no_plan() {
    let (_server, url) = serve(&[]);
    let line = refusal(&["mitigate", "--micro-batches", "8", "--url", &url]);
    assert!(line.contains(&url) && line.contains("404") && line.contains("no job has been seen"), "{line}");
    assert_eq!(say(&["mitigate", "--url", &url]).code, Some(2), "--micro-batches must be given");
}

/// A server that may act: who asks it with which token, and what its log says.
#[test]
fn a_server_acts_only_where_it_may_and_for_whom_may_ask() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let refused = refusal(&["serve", "--http", "127.0.0.1:0", "--wire", "127.0.0.1:0", "--act-dir", &path("act")]);
    assert!(refused.contains("--store") && refused.contains("--act-token-file"), "{refused}");
    let (_server, url) =
        serve(&["--store", &path("store"), "--act-dir", &path("act"), "--act-token-file", &path("act-token")]);
    let log = say(&["actions", "--url", &url]);
    assert_eq!((log.code, log.stdout.as_str()), (Some(0), "nothing was done\n"), "{}", log.stderr);
    let auto = ["mitigate", "--url", &url, "--job", "j", "--auto", "split", "--micro-batches", "8"];
    let unknown = refusal(&[&auto[..], &["--act-token-file", &path("act-token")]].concat());
    assert!(unknown.contains("404") && unknown.contains("\"j\""), "{unknown}");
    let without = refusal(&auto);
    assert!(without.contains("401") && without.contains("token that acts"), "{without}");
    let take_back = refusal(&["mitigate", "--url", &url, "--take-back"]);
    assert!(take_back.contains("--apply") && take_back.contains("--write-plan"), "{take_back}");
    let (_quiet, url) = serve(&[]);
    let quiet = refusal(&["mitigate", "--url", &url, "--job", "j", "--apply", "--take-back"]);
    assert!(quiet.contains("403") && quiet.contains("--act-dir"), "{quiet}");
}
