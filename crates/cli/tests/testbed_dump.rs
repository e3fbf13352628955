//! A case on the testbed brings a capture of itself: its ranks are no Python, which is told, and the verdict is the same.
mod common;

use common::{Going, line_with, mycroft, until};
use std::io::{Read, Write};
use std::net::TcpStream;

/// GET of a local server, as JSON; `None` while there is none.
fn get(address: &str, path: &str) -> Option<serde_json::Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

#[test]
fn a_case_on_the_testbed_is_captured_without_harm() {
    let args = ["demo", "--transport", "loopback", "--after", "4", "--fault", "gpu-hang@host1:rank6"];
    let mut demo = Going::start(mycroft(&args));
    let line = line_with(&mut demo.stdout, "API http://");
    let (job, address) = line.split_once("; job ").and_then(|(_, rest)| rest.split_once("; API http://")).unwrap();
    let address = address.trim_end_matches('/');
    // The demo ends soon after its verdict and takes its server with it, so what it says last may not be seen.
    let dump = until("agents answer the capture of the case", || {
        let dump = get(address, &format!("/api/v1/jobs/{job}/dumps/1"))?;
        let told = dump["tried"].as_array()?.iter().filter(|tried| tried["kind"] == "stacks").count();
        (told == 16).then_some(dump)
    });
    assert_eq!((&dump["automatic"], &dump["case"]), (&true.into(), &1.into()), "{dump}");
    for tried in dump["tried"].as_array().unwrap().iter().filter(|tried| tried["kind"] == "stacks") {
        assert!(tried["text"].as_str().unwrap().contains("not a Python process"), "{tried}");
    }
    let (status, out, err) = demo.wait();
    assert_eq!(status.code(), Some(0), "the verdict is right: {out} {err}");
}
