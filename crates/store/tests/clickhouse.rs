//! Segments in ClickHouse: what is read there is what was in the files, once each, whatever server and way do meanwhile.
#[path = "clickhouse_server/mod.rs"]
mod clickhouse_server;
#[path = "../../wire/tests/common/mod.rs"]
mod common;
mod kept;

use clickhouse_server::{PASSWORD, Server};
use common::{Random, any_batch, iteration, step_batch};
use kept::{HOUR, T0, files};
use mycroft_record::{Batch, HostTime};
use mycroft_store::remote::RecordsPlace;
use mycroft_store::runs::history;
use mycroft_store::{Delivery, Store, StoreAt, StoreConfig, read_only};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const S: u64 = 1_000_000_000;
/// Ranks of a segment, of 140 records each.
const RANKS: u32 = 24;
/// A segment stays a file for an hour, and for one after it was found there.
const LATER: u64 = 2 * HOUR;

/// A store that keeps all: a server that forgets by itself goes by its own clock.
fn open(dir: &Path, records: RecordsPlace) -> Store {
    let retain_age = Duration::from_secs(5_000 * 86_400);
    Store::open(dir, StoreConfig { records, retain_age, ..StoreConfig::default() }).expect("a store")
}

fn delivered(at: impl Into<StoreAt>) -> Vec<Delivery> {
    read_only(at).expect("listed").map(|delivery| delivery.expect("read")).collect()
}

fn at(dir: &Path, records: RecordsPlace) -> StoreAt {
    StoreAt { dir: dir.to_owned(), records }
}

/// Batches of every kind, with names that are hard to write down.
fn batches() -> Vec<Batch> {
    let mut runner = TestRunner::deterministic();
    let drawn = (0..200).map(|_| any_batch().new_tree(&mut runner).expect("a batch").current());
    let mut random = Random(1);
    let ordinary = (0..40).map(|number| iteration(number % 8, u64::from(number / 8), &mut random));
    let mut all: Vec<Batch> = drawn.filter(|batch| !batch.records.is_empty()).chain(ordinary).collect();
    for (batch, name) in all.iter_mut().zip(["", "a'b", "tab\tnew\nline", "back\\slash", "nul\0", "\u{2603}", "{x:1}"])
    {
        batch.source.job = name.into();
    }
    all
}

#[test]
fn what_is_read_back_is_what_the_files_had() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), server.place());
    store.note_started(T0, 1).expect("noted");
    for (nth, batch) in batches().iter().enumerate() {
        store.append(T0 + nth as u64 * S, batch).expect("kept");
        if nth % 50 == 49 {
            store.compact().expect("a segment");
        }
    }
    store.compact().expect("a segment");
    let before = delivered(dir.path());
    let lived: Vec<_> = history(dir.path()).expect("a store").map(|one| one.expect("read")).collect();
    let segments = files(dir.path(), "parquet").len();
    assert!(before.len() > 100 && segments >= 3, "{} in {segments}", before.len());
    store.send_records(T0 + 300 * S);
    assert_eq!(store.records_trouble(), None);
    assert_eq!(files(dir.path(), "parquet").len(), segments, "a start within the hour needs no database");
    assert!(delivered(at(dir.path(), server.place())) == before, "read there");
    store.send_records(T0 + LATER);
    assert_eq!(files(dir.path(), "parquet"), [] as [&Path; 0], "they are there alone");
    let there = at(dir.path(), server.place());
    assert!(delivered(there.clone()) == before, "read there");
    let again: Vec<_> = history(there.clone()).expect("a store").map(|one| one.expect("read")).collect();
    assert!(again == lived, "with the runs of the server");
    // What is in the log yet comes behind.
    store.append(T0 + LATER, &step_batch("late", 0, 1)).expect("kept");
    let all = delivered(there);
    assert_eq!(all.len(), before.len() + 1);
    assert_eq!(&*all.last().expect("some").batch.source.job, "late");
    let other = tempfile::tempdir().expect("a folder");
    let another = open(other.path(), server.place());
    assert_eq!(delivered(at(other.path(), server.place())), [], "another store has its own");
    drop(another);
    let rows = server.ask("SELECT count() FROM mycroft_records");
    let records: usize = before.iter().map(|delivery| delivery.batch.records.len()).sum();
    assert_eq!(rows, records.to_string());
}

#[test]
fn what_waits_while_the_server_is_away_is_sent_when_it_is_back() {
    let Some(mut server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    server.kill();
    let store = open(dir.path(), server.place());
    for step in 0..3 {
        store.append(T0 + step * S, &step_batch("train", 0, step)).expect("kept without it");
        store.compact().expect("a segment");
    }
    let before = delivered(dir.path());
    store.send_records(T0 + LATER);
    let told = store.records_trouble().expect("it is away");
    assert!(told.starts_with("3 segments wait") && told.contains("127.0.0.1"), "{told}");
    assert!(!told.contains(PASSWORD), "{told}");
    assert_eq!(files(dir.path(), "parquet").len(), 3, "nothing is deleted that is not there");
    let error = read_only(at(dir.path(), server.place())).expect_err("it is away").to_string();
    assert!(error.contains("127.0.0.1") && !error.contains(PASSWORD), "{error}");
    // The process that held them ends meanwhile.
    drop(store);
    server.go_on();
    let store = open(dir.path(), server.place());
    store.send_records(T0 + LATER);
    store.send_records(T0 + 2 * LATER);
    assert_eq!((store.records_trouble(), files(dir.path(), "parquet").len()), (None, 0));
    assert_eq!(delivered(at(dir.path(), server.place())), before);
}

#[test]
fn a_server_that_is_killed_under_writes_loses_and_doubles_nothing() {
    let Some(mut server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), server.place());
    let is_over = AtomicBool::new(false);
    let appended = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut random = Random(7);
            let mut number = 0;
            while !is_over.load(Ordering::SeqCst) {
                for rank in 0..RANKS {
                    store.append(T0 + number * S, &iteration(rank, number, &mut random)).expect("kept");
                }
                store.compact().expect("a segment");
                store.send_records(T0 + LATER);
                number += 1;
            }
            number
        });
        // Each time it has taken some more, and is writing.
        let mut entered = 0;
        for _ in 0..4 {
            loop {
                let now: u64 = match server.ask("EXISTS TABLE mycroft_segments").as_str() {
                    "1" => server.ask("SELECT count() FROM mycroft_segments").parse().expect("a number"),
                    _ => 0,
                };
                if now >= entered + 3 {
                    entered = now;
                    break;
                }
            }
            server.kill();
            server.go_on();
        }
        is_over.store(true, Ordering::SeqCst);
        writing.join().expect("it wrote")
    });
    store.send_records(T0 + LATER);
    store.send_records(T0 + 2 * LATER);
    assert_eq!((store.records_trouble(), files(dir.path(), "parquet").len()), (None, 0));
    let mut random = Random(7);
    let wanted: Vec<(HostTime, Batch)> = (0..appended)
        .flat_map(|number| (0..RANKS).map(move |rank| (number, rank)))
        .map(|(number, rank)| (T0 + number * S, kept::rounded(iteration(rank, number, &mut random))))
        .collect();
    let found: Vec<(HostTime, Batch)> =
        delivered(at(dir.path(), server.place())).into_iter().map(|one| (one.arrives_at, one.batch)).collect();
    assert!(found == wanted, "{} of {}", found.len(), wanted.len());
    println!("{appended} segments, {} attempts", server.ask("SELECT uniq(attempt) FROM mycroft_records"));
}

#[test]
fn rows_that_the_server_lost_are_sent_again_before_their_file_goes() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), server.place());
    store.append(T0, &step_batch("train", 0, 1)).expect("kept");
    store.compact().expect("a segment");
    store.send_records(T0);
    let before = delivered(dir.path());
    assert_eq!(server.ask("SELECT count() FROM mycroft_records"), "2");
    server.ask("ALTER TABLE mycroft_records DROP PARTITION 20231114");
    store.send_records(T0 + LATER);
    assert_eq!(files(dir.path(), "parquet").len(), 1, "it is sent again, and stays");
    store.send_records(T0 + 2 * LATER);
    assert_eq!((store.records_trouble(), files(dir.path(), "parquet").len()), (None, 0));
    assert_eq!(delivered(at(dir.path(), server.place())), before);
}

#[test]
fn what_is_older_than_is_kept_goes() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let store =
        Store::open(dir.path(), StoreConfig { records: server.place(), ..StoreConfig::default() }).expect("a store");
    let version = server.ask("SELECT version()");
    for (at, step) in [(T0, 1), (T0 + 5 * 24 * HOUR, 2)] {
        store.append(at, &step_batch("train", 0, step)).expect("kept");
        store.compact().expect("a segment");
        store.send_records(at);
    }
    let told = server.ask("SELECT engine_full FROM system.tables WHERE name = 'mycroft_records'");
    if told.contains("TTL") {
        // The server's own clock decides; what it makes of a date is its business.
        assert!(told.contains("segment_at + toIntervalDay(7)") && told.contains("ttl_only_drop_parts = 1"), "{told}");
        println!("not waited for: {version} forgets by itself");
        return;
    }
    store.send_records(T0 + 8 * 24 * HOUR);
    let left = delivered(at(dir.path(), server.place()));
    assert_eq!(left.len(), 1, "{version}: {left:?}");
    assert_eq!(left[0].arrives_at, T0 + 5 * 24 * HOUR);
}

#[test]
fn tables_of_an_older_release_get_the_columns_that_they_lack() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let send = |at: HostTime, step| {
        let store = open(dir.path(), server.place());
        store.append(at, &step_batch("train", 0, step)).expect("kept");
        store.compact().expect("a segment");
        store.send_records(at);
        assert_eq!(store.records_trouble(), None);
    };
    send(T0, 1);
    let before = delivered(at(dir.path(), server.place()));
    server.ask("ALTER TABLE mycroft_records DROP COLUMN cpu_wait_milli");
    assert_eq!(delivered(at(dir.path(), server.place())), before, "a column that nobody has used reads as null");
    server.ask("ALTER TABLE mycroft_records ADD COLUMN of_a_newer_release Nullable(String)");
    send(T0 + S, 2);
    assert_eq!(delivered(at(dir.path(), server.place())).len(), 2);
    let columns =
        server.ask("SELECT count() FROM system.columns WHERE table = 'mycroft_records' AND name = 'cpu_wait_milli'");
    assert_eq!(columns, "1");
}

#[test]
fn a_password_that_is_wrong_is_told_and_shown_to_nobody() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(dir.path(), server.place_with("another-one"));
    store.append(T0, &step_batch("train", 0, 1)).expect("kept");
    store.compact().expect("a segment");
    store.send_records(T0);
    let told = store.records_trouble().expect("it is refused");
    assert!(told.contains("--records-password-file") && !told.contains("another-one"), "{told}");
}
