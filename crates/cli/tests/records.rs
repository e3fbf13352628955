//! `mycroft serve --records` and those who read there, as who runs them meets them.
#[path = "../../store/tests/clickhouse_server/mod.rs"]
mod clickhouse_server;
mod common;

use clickhouse_server::{PASSWORD, Server};
use common::{refusal, say, serve, until};
use mycroft_record::{Batch, NANOS_PER_SEC};
use mycroft_store::{Store, StoreConfig};
use mycroft_wire::codec;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The batches of a recorded hang, as they arrived.
fn recorded() -> Vec<Batch> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../serve/tests/recorded/gpu-hang.frames");
    let bytes = fs::read(path).unwrap();
    let mut batches = Vec::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let frame_bytes = codec::header(rest).unwrap().frame_bytes;
        batches.extend(codec::decode(&rest[..frame_bytes]).unwrap().batches);
        rest = &rest[frame_bytes..];
    }
    mycroft_record::batch::sort_as_collected(&mut batches);
    batches
}

/// What `replay --series` told of a job of some iterations.
fn has_series(told: &[u8], job: &str) {
    let told: serde_json::Value = serde_json::from_slice(told).unwrap();
    for what in ["iterations", "ranks", "paths"] {
        let series = &told["series"][0][what];
        assert!(series["job"] == *job && series["iterations"].as_u64() > Some(5), "{what}: {told}");
    }
}

#[test]
fn replay_and_export_give_the_same_from_clickhouse_as_from_files() {
    let Some(database) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (store_dir, password) = (path("store"), path("password"));
    fs::write(&password, PASSWORD).unwrap();
    fs::set_permissions(&password, PermissionsExt::from_mode(0o600)).unwrap();
    // Rows that a server with its own clock would forget: thirteen years are kept.
    let retain_age = std::time::Duration::from_secs(5_000 * 86_400);
    let config = StoreConfig { records: database.place(), retain_age, ..StoreConfig::default() };
    let store = Store::open(Path::new(&store_dir), config).unwrap();
    let batches = recorded();
    let (first, last) = (batches[0].collected_at, batches[batches.len() - 1].collected_at);
    store.note_started(first, 1).unwrap();
    for (nth, batch) in batches.iter().enumerate() {
        store.append(batch.collected_at, batch).unwrap();
        if nth % (batches.len() / 3) == 1 {
            store.compact().unwrap();
        }
    }
    store.note_stopped(last).unwrap();
    store.compact().unwrap();
    let job = batches[0].source.job.to_string();
    let out = |name: &str| path(name);
    let read = |from: &[&str]| {
        let replayed = say(&[&["replay", &store_dir][..], from].concat());
        assert_eq!((replayed.code, replayed.stderr.as_str()), (Some(1), ""), "a hang is in it");
        let mut texts = vec![replayed.stdout.into_bytes()];
        for more in [&["--json"][..], &["--records"], &["--series"]] {
            texts.push(say(&[&["replay", &store_dir][..], more, from].concat()).stdout.into_bytes());
        }
        for format in ["perfetto", "csv", "json", "parquet"] {
            let to = out(format);
            let args = ["export", &store_dir, "--job", &job, "--format", format, "--out", &to];
            let said = say(&[&args[..], from].concat());
            assert_eq!(said.code, Some(0), "{said:?}");
            texts.push(fs::read(&to).unwrap());
        }
        texts
    };
    let files = read(&[]);
    assert!(files.iter().all(|text| text.len() > 100));
    has_series(&files[3], &job);
    store.send_records(last);
    store.send_records(last + 7_200 * NANOS_PER_SEC);
    assert_eq!(store.records_trouble(), None);
    drop(store);
    let empty = say(&["replay", &store_dir]);
    assert!(empty.stderr.contains("no records"), "no segment is a file any more: {empty:?}");
    let url = format!("clickhouse://ada@127.0.0.1:{}/default", database.port);
    let rows = read(&["--records-in", &url, "--records-password-file", &password]);
    assert!(
        rows == files,
        "{:?} {:?}",
        rows.iter().map(Vec::len).collect::<Vec<_>>(),
        files.iter().map(Vec::len).collect::<Vec<_>>()
    );
    let wrong = say(&["replay", &store_dir, "--records-in", &url]);
    assert!(wrong.code == Some(2) && wrong.stderr.contains("--records-password-file"), "{wrong:?}");
}

/// What the server is ill with.
fn problems(url: &str) -> Vec<String> {
    let health: serde_json::Value =
        ureq::get(format!("{url}/api/v1/health")).call().unwrap().body_mut().read_json().unwrap();
    health["problems"].as_array().unwrap().iter().map(|problem| problem.as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_server_says_that_clickhouse_is_away_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    // Nobody listens on the port of discards.
    let (_server, http) = serve(&["--store", &path("store"), "--records", "clickhouse://ada@127.0.0.1:9/m"]);
    let problem = until("it is told", || problems(&http).pop());
    assert!(problem.contains("segments wait in the store's folder for ClickHouse"), "{problem}");
    assert!(problem.contains("clickhouse://ada@127.0.0.1:9/m"), "{problem}");
    let seen = refusal(&["serve", "--store", &path("other"), "--records", "clickhouse://ada:s3cret@localhost/m"]);
    assert!(seen.contains("--records-password-file") && !seen.contains("s3cret"), "{seen}");
    let open = refusal(&["serve", "--store", &path("other"), "--records", "clickhouse://ada@db.example.org/m"]);
    assert!(open.contains("--records-ca") && open.contains("clickhouse://ada@db.example.org:8123/m"), "{open}");
    let bare = refusal(&["serve", "--records", "clickhouse://ada@localhost/m"]);
    assert!(bare.contains("--store"), "{bare}");
}
