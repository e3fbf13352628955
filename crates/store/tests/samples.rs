//! Stores and recordings of earlier releases must stay readable. One frozen folder of each per version in `testdata`;
//! `MYCROFT_WRITE_SAMPLES=1 cargo test -p mycroft-store --test samples` adds what is missing and leaves the others alone.
#[path = "../../wire/tests/common/mod.rs"]
mod common;

use common::step_batch;
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC};
use mycroft_store::meta::CaseRow;
use mycroft_store::runs::{Run, runs};
use mycroft_store::{Store, StoreConfig, recording};
use std::path::{Path, PathBuf};

/// When the newest release goes on with what an older one left.
const T_NOW: HostTime = HostTime(1_800_000_000 * NANOS_PER_SEC);

/// A folder for each layout of a store that a release wrote, the newest last.
const STORES: &[&str] = &["store-v1", "store-v2", "store-v3"];

/// The same of recordings.
const RECORDINGS: &[&str] = &["recording-v1"];

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

fn writing(path: &Path) -> bool {
    std::env::var_os("MYCROFT_WRITE_SAMPLES").is_some() && !path.exists()
}

/// Steps 0 and 1 are sealed into a segment, 2 and 3 are still in a log.
fn batches() -> Vec<Batch> {
    (0..4).map(|step| step_batch("train", 3, step)).collect()
}

fn case() -> CaseRow {
    CaseRow {
        id: 1,
        job: "train".to_owned(),
        state: "settled".to_owned(),
        opened_at: HostTime(1_700_000_000 * NANOS_PER_SEC),
        updated_at: HostTime(1_700_000_001 * NANOS_PER_SEC),
        json: r#"{"id":1,"state":"settled"}"#.to_owned(),
    }
}

/// A run that told of a case and stopped.
fn run() -> Run {
    let at = |seconds: u64| HostTime((1_700_000_000 + seconds) * NANOS_PER_SEC);
    Run { at: at(0), log: 1, next_case: 1, told_until: at(1), stopped_at: at(2) }
}

fn write_store(to: &Path) {
    let store = Store::open(to, StoreConfig::default()).expect("a store");
    let batches = batches();
    store.note_started(run().at, run().next_case).expect("room");
    // This server's clock is two seconds ahead.
    let append = |batch: &Batch| store.append(batch.collected_at + 2 * NANOS_PER_SEC, batch).expect("room");
    batches[..2].iter().for_each(append);
    store.compact().expect("a segment");
    batches[2..].iter().for_each(append);
    store.flush().expect("synced");
    store.note_told(run().told_until).expect("room");
    store.put_case(&case()).expect("a case");
    store.note_stopped(run().stopped_at).expect("room");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("the sample") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

#[test]
fn stores_of_every_version_are_read() {
    let newest = folder(STORES[STORES.len() - 1]);
    if writing(&newest) {
        write_store(&newest);
    }
    for name in STORES {
        let dir = tempfile::tempdir().expect("a folder");
        copy(&folder(name), dir.path());
        let store = Store::open(dir.path(), StoreConfig::default()).expect("opens");
        let read: Vec<Batch> = store.read_all().expect("reads").map(|batch| batch.expect("whole")).collect();
        assert_eq!(read, batches(), "{name}");
        assert_eq!(store.list_cases(Some("train"), 10).expect("cases"), [case()], "{name}");
        // Version 1 does not say when batches arrived.
        let later = if *name == "store-v1" { 0 } else { 2 * NANOS_PER_SEC };
        for delivery in store.deliveries().expect("reads").map(|delivery| delivery.expect("whole")) {
            assert_eq!(delivery.arrives_at, delivery.batch.collected_at + later, "{name}");
        }
        // Runs are known since version 3.
        let known = if *name == "store-v3" { vec![run()] } else { Vec::new() };
        assert_eq!(runs(dir.path()).expect("reads"), known, "{name}");
        // What an older release began is gone on with, in a log of its own.
        store.note_started(T_NOW, 2).expect("room");
        let begun = Run { at: T_NOW, log: 3, next_case: 2, ..Run::default() };
        assert_eq!(runs(dir.path()).expect("reads"), [known, vec![begun]].concat(), "{name}");
        store.append(T_NOW, &step_batch("train", 3, 9)).expect("room");
        store.compact().expect("a segment");
        assert_eq!(store.read_all().expect("reads").count(), 5, "{name}");
    }
}

#[test]
fn recordings_of_every_version_are_read() {
    let arrives_at = |batch: &Batch| HostTime(batch.collected_at.0 + 2 * NANOS_PER_SEC);
    let newest = folder(RECORDINGS[RECORDINGS.len() - 1]);
    if writing(&newest) {
        std::fs::create_dir_all(&newest).expect("a folder");
        let mut writer = recording::RecordingWriter::create(&newest).expect("a recording");
        batches().into_iter().for_each(|batch| writer.append(arrives_at(&batch), batch).expect("room"));
        writer.finish().expect("files");
    }
    for name in RECORDINGS {
        assert!(recording::is_recording(&folder(name)), "{name}");
        let read = recording::read(&folder(name)).expect("reads").map(|delivery| delivery.expect("whole"));
        let read: Vec<(HostTime, Batch)> = read.map(|delivery| (delivery.arrives_at, delivery.batch)).collect();
        let written: Vec<(HostTime, Batch)> = batches().into_iter().map(|batch| (arrives_at(&batch), batch)).collect();
        assert_eq!(read, written, "{name}");
    }
}
