//! The way to a ClickHouse server: TLS and whom it believes, and what is told where it or the user is refused.
mod clickhouse_front;
mod clickhouse_server;
#[path = "../../wire/tests/common/mod.rs"]
mod common;
mod kept;

use clickhouse_front::{Front, authority};
use clickhouse_server::{PASSWORD, Server};
use common::step_batch;
use kept::{HOUR, T0, files};
use mycroft_store::remote::RecordsPlace;
use mycroft_store::{Store, StoreAt, StoreConfig, read_only};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A store with one segment that is to be sent.
fn filled(dir: &Path, records: RecordsPlace) -> Store {
    let retain_age = Duration::from_secs(5_000 * 86_400);
    let store = Store::open(dir, StoreConfig { records, retain_age, ..StoreConfig::default() }).expect("a store");
    store.note_started(T0, 1).expect("noted");
    (1..50).for_each(|step| store.append(T0 + step, &step_batch("train", 0, step)).expect("kept"));
    store.compact().expect("a segment");
    store
}

fn place(host: &str, port: u16, ca: Option<&PathBuf>) -> RecordsPlace {
    let url = format!("clickhouse://ada@{host}:{port}/default");
    RecordsPlace::clickhouse(&url, Some(PASSWORD.to_owned()), ca.cloned()).expect("an address")
}

/// What is told where the segment cannot be sent, and where it cannot be read.
fn told(records: RecordsPlace) -> [String; 2] {
    let dir = tempfile::tempdir().expect("a folder");
    let store = filled(dir.path(), records.clone());
    store.send_records(T0);
    let sent = store.records_trouble().expect("it is refused");
    assert_eq!(files(dir.path(), "parquet").len(), 1, "the segment waits");
    let read = read_only(StoreAt { dir: dir.path().to_owned(), records }).expect_err("it is refused").to_string();
    for told in [&sent, &read] {
        assert!(!told.contains(PASSWORD), "{told}");
    }
    [sent, read]
}

#[test]
fn records_go_over_tls_where_an_authority_is_named() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let (ca, store_dir) = (dir.path().join("ca.pem"), dir.path().join("store"));
    let front = Front::tls(&authority(&ca), server.port);
    let records = place("127.0.0.1", front.port, Some(&ca));
    let store = filled(&store_dir, records.clone());
    let before: Vec<_> = read_only(&store_dir).expect("listed").map(|one| one.expect("read")).collect();
    // Sent, and found there.
    (0..2).for_each(|_| store.send_records(T0));
    store.send_records(T0 + 2 * HOUR);
    assert_eq!(store.records_trouble(), None);
    assert!(files(&store_dir, "parquet").is_empty() && before.len() == 49, "they are there alone");
    let there = read_only(StoreAt { dir: store_dir, records }).expect("listed");
    assert!(there.map(|one| one.expect("read")).eq(before), "read over TLS");
    assert!(front.requests.load(Ordering::SeqCst) > 5, "all of it went that way");
}

#[test]
fn who_is_not_believed_is_asked_nothing_and_what_to_look_at_is_told() {
    let dir = tempfile::tempdir().expect("a folder");
    let (ca, other) = (dir.path().join("ca.pem"), dir.path().join("other.pem"));
    let issuer = authority(&ca);
    authority(&other);
    let plain = Front::refusing(500, "no one may ask this");
    let front = Front::tls(&issuer, plain.port);
    let cases = [
        (place("127.0.0.1", front.port, Some(&other)), ["certificate", "--records-ca"]),
        (place("localhost", front.port, Some(&ca)), ["certificate", "name in its certificate"]),
        (place("127.0.0.1", plain.port, Some(&ca)), ["--records-ca", "8443"]),
        (place("127.0.0.1", front.port, None), ["--records-ca", "8123"]),
    ];
    for (records, parts) in cases {
        for told in told(records) {
            assert!(parts.iter().all(|part| told.contains(part)), "{parts:?} in {told}");
        }
    }
    assert_eq!([&front, &plain].map(|one| one.requests.load(Ordering::SeqCst)), [0, 0]);
}

#[test]
fn a_refusal_over_tls_says_what_the_user_lacks() {
    let dir = tempfile::tempdir().expect("a folder");
    let ca = dir.path().join("ca.pem");
    let issuer = authority(&ca);
    // As servers of 2018, of now, and those without a database or a right say it.
    for (status, body, remedy) in [
        (500, "Code: 193, e.displayText() = DB::Exception: Wrong password for user ada", "--records-password-file"),
        (
            403,
            "Code: 516. DB::Exception: ada: Authentication failed. (AUTHENTICATION_FAILED)",
            "--records-password-file",
        ),
        (403, "Code: 195. DB::Exception: User ada is not allowed to connect from address", "<networks>"),
        (404, "Code: 81. DB::Exception: Database m does not exist. (UNKNOWN_DATABASE)", "CREATE DATABASE"),
        (403, "Code: 497. DB::Exception: ada: Not enough privileges. (ACCESS_DENIED)", "GRANT"),
        (403, "Forbidden by a proxy", "--records-password-file"),
    ] {
        let behind = Front::refusing(status, body);
        let front = Front::tls(&issuer, behind.port);
        for told in told(place("127.0.0.1", front.port, Some(&ca))) {
            assert!(told.contains(remedy) && told.contains(&body[..20]), "{remedy} in {told}");
        }
    }
    let Some(server) = Server::start() else { return };
    let front = Front::tls(&issuer, server.port);
    let url = format!("clickhouse://ada@127.0.0.1:{}/default", front.port);
    let wrong = RecordsPlace::clickhouse(&url, Some("another-one".to_owned()), Some(ca)).expect("an address");
    for told in told(wrong) {
        assert!(told.contains("--records-password-file") && !told.contains("another-one"), "{told}");
    }
}
