//! `mycroft agent --bus` and `mycroft serve --bus` as who runs them meets them.
mod common;

use common::{refusal, say};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn what_names_no_bus_is_refused_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password").display().to_string();
    fs::write(&password, "s3cret\n").unwrap();
    fs::set_permissions(&password, PermissionsExt::from_mode(0o666)).unwrap();
    for (args, told) in [
        (&["agent", "--bus", "k1:9092/t"][..], "--bus: \"k1:9092/t\" does not begin with kafka://"),
        (&["agent", "--bus", "kafka://u:s3cret@k1:9092/t"], "no place in the address"),
        (&["serve", "--http", "127.0.0.1:0", "--bus", "kafka://k1:9092"], "names no topic"),
        (&["agent", "--bus-ca", "ca.pem"], "--bus <URL>"),
        (&["agent", "--bus", "kafka://k1:9092/t", "--bus-user", "ada"], "--bus-password-file <FILE>"),
        (
            &["agent", "--bus", "kafka://k1:9092/t", "--bus-user", "ada", "--bus-password-file", &password],
            "--bus-password-file",
        ),
    ] {
        let said = say(args);
        assert!(said.code == Some(2) && said.stderr.contains(told), "{args:?}: {said:?}");
        assert!(!said.stderr.contains("s3cret"), "{said:?}");
    }
}

#[test]
fn help_says_what_a_bus_does_not_bring_back() {
    for command in ["agent", "serve"] {
        let said = say(&[command, "--help"]);
        let whole = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(whole.contains("kafka://HOST:PORT[,HOST:PORT]/TOPIC"), "{whole}");
        assert!(whole.contains("takes no stacks and dumps on order, holds no ranks"), "{whole}");
    }
}

#[test]
fn the_configuration_file_names_the_bus() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("mycroft.toml").display().to_string();
    fs::write(&config, "[agent]\nbus = \"kafka://k1:9092/mycroft\"\n[serve]\nbus = \"kafka://k1:9092/mycroft\"\n")
        .unwrap();
    let checked = say(&["config", "check", &config]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let lines = checked.stdout.lines().filter(|line| line.trim_start().starts_with("bus "));
    assert_eq!(lines.filter(|line| line.contains("kafka://k1:9092/mycroft")).count(), 2, "{checked:?}");
    fs::write(&config, "[serve]\nbus-user = \"ada\"\n").unwrap();
    let checked = say(&["config", "check", &config]);
    assert!(checked.code == Some(1) && checked.stdout.contains("--bus"), "{checked:?}");
}

#[cfg(not(feature = "kafka"))]
#[test]
fn a_program_without_a_bus_says_so() {
    let refused = refusal(&["agent", "--bus", "kafka://k1:9092/t"]);
    assert!(refused.contains("built without a bus (cargo feature `kafka`)"), "{refused}");
}

#[cfg(feature = "kafka")]
mod with_brokers {
    use super::*;
    use common::{Going, line_with, mycroft, serve, until};
    use mycroft_bus::kafka::mock::MockBrokers;

    #[test]
    fn a_server_of_a_bus_needs_a_store() {
        let refused = refusal(&["serve", "--http", "127.0.0.1:0", "--bus", "kafka://127.0.0.1:9/t"]);
        assert!(refused.contains("needs a store"), "{refused}");
        if cfg!(not(feature = "kafka-tls")) {
            let refused = refusal(&["agent", "--bus", "kafka://k1:9092/t", "--bus-ca", "ca.pem"]);
            assert!(refused.contains("built without TLS for a bus (cargo feature `kafka-tls`)"), "{refused}");
        }
    }

    #[test]
    fn agent_and_server_meet_at_brokers_and_say_when_these_are_away() {
        let brokers = MockBrokers::start("mycroft", 2);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let bus = brokers.address().to_string();
        let (_server, http) = serve(&["--store", &path("store"), "--bus", &bus]);
        let problems = || {
            let health: serde_json::Value =
                ureq::get(format!("{http}/api/v1/health")).call().unwrap().body_mut().read_json().unwrap();
            health["problems"].to_string()
        };
        assert_eq!(problems(), "[]");
        let args = ["--dir", &path("segments"), "--spool", &path("spool"), "--nice", "0", "--may-hold"];
        let mut agent = Going::start(mycroft(&[&["agent", "--bus", &bus][..], &args].concat()));
        line_with(&mut agent.stderr, "--may-hold does nothing");
        line_with(&mut agent.stderr, &format!("shipping to {bus}"));
        brokers.down();
        // Of the partitions that it reads, or of how many there are where it has not learned that yet.
        until("it is told", || problems().contains(&bus).then_some(()));
        brokers.up();
        until("it works again", || (problems() == "[]").then_some(()));
        agent.signal("TERM");
        assert!(agent.wait().0.success());
    }
}
