//! README's "On a real job" between two hosts: a server in one network namespace, an agent in another, joined by a
//! cable, started as README says. Without the right to make namespaces the test says so and passes.
mod common;

use common::{Going, line_with, mycroft, until};
use std::path::Path;
use std::process::{Command, Stdio};

/// What `ip` says; false where it fails or is not there.
fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Two namespaces joined by a cable; removed when dropped.
struct Hosts {
    head: String,
    host: String,
}

const HEAD: &str = "10.77.0.1";
const HOST: &str = "10.77.0.2";

impl Hosts {
    fn joined() -> Option<Hosts> {
        let name = |end: &str| format!("mycroft-readme-{}-{end}", std::process::id());
        let hosts = Hosts { head: name("a"), host: name("b") };
        let (head, host) = (hosts.head.as_str(), hosts.host.as_str());
        let made = ip(&["netns", "add", head])
            && ip(&["netns", "add", host])
            && ip(&["-n", head, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", host])
            && [(head, HEAD), (host, HOST)].iter().all(|(netns, address)| {
                ip(&["-n", netns, "addr", "add", &format!("{address}/24"), "dev", "eth0"])
                    && ip(&["-n", netns, "link", "set", "eth0", "up"])
                    && ip(&["-n", netns, "link", "set", "lo", "up"])
            });
        made.then_some(hosts)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        ip(&["netns", "del", &self.head]);
        ip(&["netns", "del", &self.host]);
    }
}

/// `mycroft ARGS...` on one of the hosts.
fn on(netns: &str, args: &[&str]) -> Command {
    let inside = mycroft(args);
    let mut command = Command::new("ip");
    command.args(["netns", "exec", netns]).arg(inside.get_program()).args(inside.get_args());
    for (name, value) in inside.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.stdin(Stdio::null());
    command
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn an_agent_of_another_host_is_let_in_with_the_servers_token() {
    let Some(hosts) = Hosts::joined() else {
        eprintln!("skipped: network namespaces cannot be made here (root or CAP_NET_ADMIN)");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (store, token) = (shown(&dir.path().join("store")), shown(&dir.path().join("token")));
    let mut server = Going::start(on(&hosts.head, &["serve", "--store", &store, "--token-file", &token]));
    assert!(line_with(&mut server.stderr, "http://").contains("0.0.0.0:7700"));
    assert!(line_with(&mut server.stderr, "new token").contains(&token));

    let (segments, spool) = (shown(&dir.path().join("segments")), shown(&dir.path().join("spool")));
    let to = format!("{HEAD}:7700");
    let agent = ["agent", "--server", &to, "--token-file", &token, "--dir", &segments, "--spool", &spool];
    let _agent = Going::start(on(&hosts.host, &agent));
    until("the agent is let in", || {
        let said = common::end(on(&hosts.head, &["doctor", "--json", "--token-file", &token]));
        said.stdout.contains("1 agents connected").then_some(())
    });
    let doctor = |token: &str| {
        let args = ["doctor", "--json", "--server", &to, "--token-file", token];
        let doctor = common::end(on(&hosts.host, &args)).json();
        let checks = doctor["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["check"] == "way of agents").unwrap()
    };
    assert_eq!(doctor(&token)["grade"], "ok");
    let other = dir.path().join("other");
    std::fs::write(&other, "another-token-of-that-length").unwrap();
    assert_eq!(doctor(&shown(&other))["grade"], "fail");

    let exposed = common::end(on(&hosts.head, &["serve", "--http", "127.0.0.1:0", "--wire", "0.0.0.0:0"]));
    assert!(exposed.code == Some(2) && exposed.stderr.contains("token"), "{exposed:?}");
}
