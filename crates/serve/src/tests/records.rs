//! A server whose records went to ClickHouse answers what one with files answers, series and cases included.
#[path = "../../../store/tests/clickhouse_server/mod.rs"]
mod clickhouse_server;

use super::{get, quick};
use crate::config::ServeConfig;
use crate::server::{Seams, ServerHandle, start};
use clickhouse_server::Server;
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC};
use mycroft_sim::{Scenario, Simulation};
use mycroft_store::remote::RecordsPlace;
use mycroft_store::{Store, StoreConfig};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Records of a job that is over for so long are in no server's memory, and no file any more.
const LATER: u64 = 3 * 3600 * NANOS_PER_SEC;
/// Thirteen years: the recording is old, and the database has its own clock.
const RETAIN: Duration = Duration::from_secs(5_000 * 86_400);

/// What reaches a server of a job of three minutes with a slow device, and when.
fn simulated() -> Vec<(u64, Batch)> {
    let fault = Some("gpu-power@host1:rank3,severity=1.8,after=0".parse().expect("a fault"));
    let scenario =
        Scenario { hosts: 2, ranks_per_host: 2, tp: 1, pp: 1, dp: 4, duration_s: 200.0, fault, ..Scenario::default() };
    scenario.check().expect("a valid scenario");
    let mut simulation = Simulation::new(&scenario);
    let stretches = std::iter::from_fn(|| simulation.next_stretch());
    stretches.flatten().map(|delivery| (delivery.arrives_at, delivery.batch)).collect()
}

/// A server with the real brain, whose clock the test sets.
fn serve(dir: &Path, records: RecordsPlace, clock: &Arc<AtomicU64>) -> ServerHandle {
    let config = ServeConfig {
        store_dir: Some(dir.to_owned()),
        records,
        retain_age: RETAIN,
        tick: Duration::from_secs(1),
        dump_on_case: false,
        ..quick()
    };
    let clock = Arc::clone(clock);
    let seams = Seams { clock: Arc::new(move || HostTime(clock.load(Ordering::SeqCst))), ..Seams::default() };
    start(config, seams).expect("it starts")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry")) {
        let to = to.join(entry.file_name());
        if entry.file_type().expect("known").is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("copied");
        }
    }
}

/// What a server answers of a job, by route.
fn told(server: &ServerHandle, job: &str, window: (u64, u64)) -> Vec<(String, String)> {
    let (from, to) = (window.0 / 1_000_000, window.1 / 1_000_000);
    let routes = [
        "/api/v1/jobs".to_owned(),
        "/api/v1/cases".to_owned(),
        format!("/api/v1/jobs/{job}/iterations"),
        format!("/api/v1/jobs/{job}/iterations?from={from}&to={to}&points=7"),
        format!("/api/v1/jobs/{job}/ranks/series"),
        format!("/api/v1/jobs/{job}/ranks/series?from={from}&to={to}&limit=2"),
        format!("/api/v1/jobs/{job}/paths"),
    ];
    let answered = |path: String| {
        let answer = get(server.http_addr(), &path, &[]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        (path, answer.body)
    };
    routes.into_iter().map(answered).collect()
}

#[test]
fn series_and_cases_are_the_same_where_the_records_are_rows_and_where_they_are_files() {
    let Some(database) = Server::start() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (files, rows) = (folder.path().join("files"), folder.path().join("rows"));
    let deliveries = simulated();
    let (job, first) = (deliveries[0].1.source.job.to_string(), deliveries[0].0);
    let last = HostTime(deliveries[deliveries.len() - 1].0);
    let clock = Arc::new(AtomicU64::new(first - NANOS_PER_SEC));
    let server = serve(&rows, database.place(), &clock);
    for (at, batch) in deliveries {
        clock.store(at, Ordering::SeqCst);
        assert!(server.ingest(batch));
    }
    server.stop();
    copy(&rows, &files);
    let config = StoreConfig { records: database.place(), retain_age: RETAIN, ..StoreConfig::default() };
    let store = Store::open(&rows, config).expect("a store");
    store.compact().expect("a segment");
    // Sent, and found there.
    (0..2).for_each(|_| store.send_records(last));
    store.send_records(last + LATER);
    assert_eq!(store.records_trouble(), None);
    drop(store);
    let records = |dir: &Path| mycroft_store::read_only(dir).expect("a store").count();
    assert!(records(&rows) == 0 && records(&files) > 100, "they are in one place each");
    clock.store((last + LATER).0, Ordering::SeqCst);
    let window = (first + 30 * NANOS_PER_SEC, last.0 - 30 * NANOS_PER_SEC);
    let of_files = serve(&files, RecordsPlace::Folder, &clock);
    let of_rows = serve(&rows, database.place(), &clock);
    let (told_files, told_rows) = (told(&of_files, &job, window), told(&of_rows, &job, window));
    for ((path, of_files), (_, of_rows)) in told_files.iter().zip(&told_rows) {
        assert_eq!(of_rows, of_files, "{path}");
    }
    let said = |nth: usize| serde_json::from_str::<serde_json::Value>(&told_rows[nth].1).expect("JSON");
    let (iterations, ranks) = (said(2), said(4));
    assert!(iterations["points"].as_array().is_some_and(|points| points.len() > 1), "{iterations}");
    assert_eq!((&ranks["ranks"][0]["rank"], ranks["ranks"].as_array().map(Vec::len)), (&3.into(), Some(4)), "{ranks}");
}
