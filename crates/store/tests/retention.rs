//! When logs become segments, how many, and when those go: by the server's clock.
#[path = "../../wire/tests/common/mod.rs"]
mod common;
mod kept;

use common::step_batch;
use kept::{HOUR, T0, files, open, replay, rounded};
use mycroft_record::*;
use mycroft_store::{Store, StoreConfig};
use std::time::Duration;

#[test]
fn retention_goes_by_when_records_arrived_and_by_size() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { retain_age: Duration::from_secs(2 * 3600), ..StoreConfig::default() };
    let store = Store::open(dir.path(), config.clone()).unwrap();
    for hour in 0..5 {
        // The host's clock is eight days behind, or says 1970, or 2200.
        let collected_at =
            [T0 - 192 * HOUR, HostTime(1000), HostTime(7_258_118_400 * NANOS_PER_SEC)][hour as usize % 3];
        store.append(T0 + hour * HOUR, &Batch { collected_at, ..step_batch("job", 0, hour) }).unwrap();
        assert_eq!(store.compact().unwrap(), 1);
    }
    let first = files(dir.path(), "parquet")[0].display().to_string();
    assert!(first.contains("date=2023-11-14/hour=22/0000000001-"), "{first}");
    assert_eq!(files(dir.path(), "log").len(), 1);
    // T0 is 13 minutes into an hour: four hours later the first two hours have been over for two.
    let done = store.maintain(T0 + 4 * HOUR).unwrap();
    assert_eq!((done.segments_removed, files(dir.path(), "parquet").len()), (2, 3));
    assert!(!dir.path().join("segments/date=2023-11-14/hour=22").exists(), "empty folders go too");
    drop(store);
    let store = Store::open(dir.path(), StoreConfig { retain_bytes: 1, ..config }).unwrap();
    assert_eq!(store.maintain(T0 + 4 * HOUR).unwrap().segments_removed, 3);
    assert!(replay(&store).is_empty());
}

/// One agent that claims twenty thousand hours must not cost others their records: a log is one file.
#[test]
fn a_log_becomes_one_file_whatever_hours_agents_claim() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let future = |n: u64| Batch { collected_at: T0 + n * HOUR, ..step_batch("job", 0, n) };
    for n in 0..500 {
        store.append(T0 + n, &future(n)).unwrap();
    }
    assert_eq!(store.compact().unwrap(), 1);
    assert_eq!(files(dir.path(), "parquet").len(), 1);
    assert_eq!(replay(&store), (0..500).map(|n| rounded(future(n))).collect::<Vec<_>>());
}

#[test]
fn old_logs_become_segments() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(T0, &step_batch("job", 0, 1)).unwrap();
    assert_eq!(store.maintain(T0 + 30 * NANOS_PER_SEC).unwrap().segments_written, 0);
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.maintain(T0 + 601 * NANOS_PER_SEC).unwrap().segments_written, 1, "also after a restart");
    // A server whose clock was set back does not wait for that clock to come round again.
    store.append(T0 + 9 * HOUR, &step_batch("job", 0, 2)).unwrap();
    assert_eq!(store.maintain(T0).unwrap().segments_written, 1);
    assert_eq!(replay(&store).len(), 2);
}
