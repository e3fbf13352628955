//! `mycroft backup` as who runs a server uses it: while the server runs, and what the copy is good for.
mod common;

use common::{refusal, say, serve};
use mycroft_store::{Store, StoreConfig, recording};

#[test]
fn a_backup_of_a_running_server_replays_to_the_same_reports_and_starts_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (run, dir, copy) = (path("run"), path("store"), path("copy"));
    let simulated = say(&["sim", "run", "--ranks", "16", "--fault", "gpu-hang@host0:rank5", "--json", "--out", &run]);
    assert!(simulated.json()["correct"].is_boolean(), "{simulated:?}");
    let store = Store::open(dir.as_ref(), StoreConfig::default()).unwrap();
    for delivery in recording::read(run.as_ref()).unwrap() {
        let delivery = delivery.unwrap();
        store.append(delivery.arrives_at, &delivery.batch).unwrap();
    }
    store.compact().unwrap();
    drop(store);
    let (server, _url) = serve(&["--store", &dir, "--retain-days", "36500", "--token-file", &path("own")]);
    assert_eq!(say(&["token", "add", "ada", "--role", "reader", "--out", &path("ada"), "--store", &dir]).code, Some(0));
    let done = say(&["backup", "--store", &dir, &copy]);
    assert!(done.code == Some(0) && done.stdout.contains("files"), "{done:?}");
    drop(server);
    let replayed = |store: &str| say(&["replay", store, "--json"]);
    let (first, second) = (replayed(&dir), replayed(&copy));
    assert!(first.code == Some(1) && first.stdout.contains("rank"), "a case: {first:?}");
    assert_eq!(first.stdout, second.stdout);
    // A server goes on with it, and its readers are known.
    let (_again, url) = serve(&["--store", &copy, "--retain-days", "36500", "--token-file", &path("own")]);
    let read = say(&["cases", "--url", &url, "--token-file", &path("ada")]);
    assert_eq!(read.code, Some(0), "{read:?}");
    assert!(refusal(&["backup", "--store", &dir, &copy]).contains("there already"));
    assert!(refusal(&["backup", "--store", &path("nowhere"), &path("x")]).contains("holds no store"));
}
