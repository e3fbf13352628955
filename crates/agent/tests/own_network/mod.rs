//! Tests that need a network of their own: the test binary runs again, for one test, in a new user and network namespace, where an
//! ordinary user may look at packets and interfaces are nobody else's.
#![allow(dead_code, reason = "each test binary uses a part")]
use std::process::{Command, Stdio};

/// Set for the binary that runs inside.
const INSIDE: &str = "MYCROFT_TEST_OWN_NETWORK";

/// Runs the body of a test of this name in a network namespace with `lo` up; says so and passes where that cannot be made.
pub(crate) fn in_own_network(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        ip("link set lo up");
        return body();
    }
    if !can_unshare() {
        eprintln!("skipped: no network namespace can be made here (unshare -rn), or `ip` is not installed");
        return;
    }
    let binary = std::env::current_exe().expect("the test's own path");
    let inside = Command::new("unshare")
        .arg("-rn")
        .arg(binary)
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare runs");
    let (out, err) = (String::from_utf8_lossy(&inside.stdout), String::from_utf8_lossy(&inside.stderr));
    assert!(inside.status.success(), "{test} inside of its namespace:\n{out}\n{err}");
    assert!(out.contains("1 passed"), "{test} has another name:\n{out}");
}

/// Whether a namespace with interfaces can be made.
fn can_unshare() -> bool {
    let tried = Command::new("unshare").args(["-rn", "ip", "link", "set", "lo", "up"]).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// `ip` with words in one line.
pub(crate) fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status().expect("ip runs");
    assert!(status.success(), "ip {words}");
}
