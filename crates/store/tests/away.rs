//! A store whose database is on a PostgreSQL server that goes away and comes back.
mod server;
mod suite;

use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_store::meta::{ActionRow, Leased, Meta, PolicyRow};
use mycroft_store::series::{PieceRow, SeriesRows};
use mycroft_store::{Store, StoreConfig, StoreError};
use server::Server;
use std::path::Path;
use std::time::{Duration, Instant};
use suite::case;

const T0: HostTime = HostTime(1_700_000_000 * NANOS_PER_SEC);
/// A server that was killed is there again within a second or two.
const PATIENCE: Duration = Duration::from_secs(60);

fn open(server: &Server, dir: &Path) -> Result<Store, StoreError> {
    Store::open(dir, StoreConfig { meta: server.place(), ..StoreConfig::default() })
}

fn action() -> ActionRow {
    ActionRow { id: 1, job: "a".to_owned(), state: "applied".to_owned(), at: T0, json: "{}".to_owned() }
}

fn series(minute: u64) -> SeriesRows {
    let (start, end) = (T0 + minute * 60 * NANOS_PER_SEC, T0 + (minute + 1) * 60 * NANOS_PER_SEC);
    let kept_ns = 3_600 * NANOS_PER_SEC;
    let piece = PieceRow { what: "ranks", width_s: 60, kept_ns, start, end, iterations: 1, sum_ms: 1.0, body: vec![1] };
    SeriesRows { job: "a".to_owned(), pieces: vec![piece], states: vec![("ranks", minute.to_string())] }
}

/// Looks after the store, as a server does every second, until its database is there.
fn wait(store: &Store) {
    let (end, mut now) = (Instant::now() + PATIENCE, T0);
    while !store.maintain(now).expect("the disk is well").is_meta_back {
        assert!(Instant::now() < end, "{:?}", store.meta_trouble());
        now = now + NANOS_PER_SEC;
        std::thread::yield_now();
    }
}

#[test]
fn what_is_put_while_the_server_is_away_is_there_when_it_is_back() {
    let Some(mut server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(&server, dir.path()).expect("a store");
    store.put_case(&case(1, "a", 5)).expect("kept");
    store.put_series(&series(0), T0).expect("kept");
    assert_eq!((store.meta_trouble(), store.meta_waits()), (None, true));
    for round in 1..4 {
        server.kill();
        // Whoever finds out first: a row that is written, a listing, or who looks after the store.
        match round {
            1 => store.put_case(&case(1, "a", 5)).expect("it waits"),
            2 => assert!(store.list_cases(None, 9).is_err()),
            _ => {
                let begun = Instant::now();
                while store.meta_trouble().is_none() {
                    assert!(!store.maintain(T0).expect("the disk is well").is_meta_back);
                    assert!(begun.elapsed() < PATIENCE, "nobody noticed");
                }
            }
        }
        let told = store.meta_trouble().expect("it is known");
        assert!(told.contains(" postgres://ada@/") && !told.contains("s3cret"), "{told}");
        store.put_case(&case(1, "a", 5 + round)).expect("it waits");
        store.put_case(&case(10 + round, "b", 1)).expect("it waits");
        store.put_series(&series(round), T0).expect("it waits");
        assert!(matches!(store.put_action(&action()), Err(StoreError::NotKept { .. })));
        let policy = PolicyRow { job: "a".to_owned(), json: "{}".to_owned() };
        assert!(matches!(store.put_policy(&policy), Err(StoreError::NotKept { .. })));
        server.go_on();
        wait(&store);
        assert_eq!(store.meta_trouble(), None);
        assert_eq!(store.list_cases(Some("a"), 9).expect("cases"), [case(1, "a", 5 + round)]);
        assert_eq!(store.list_cases(Some("b"), 9).expect("cases").len() as u64, round);
        let kept = store.series("a").expect("series");
        assert_eq!((kept.pieces.len() as u64, &*kept.states[0].1), (round + 1, &*round.to_string()));
    }
    store.put_action(&action()).expect("written down");
    let waiting = Meta::open(&dir.path().join("waiting.sqlite")).expect("a file");
    assert_eq!(waiting.list_cases(None, 9).expect("cases"), [], "nothing waits any more");
}

#[test]
fn what_waits_outlives_the_process_and_a_start_without_the_server_fails() {
    let Some(mut server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(&server, dir.path()).expect("a store");
    server.kill();
    store.put_case(&case(1, "a", 5)).expect("it waits");
    let backup = dir.path().join("backup");
    mycroft_store::back_up(dir.path(), &backup).expect("copied");
    drop(store);
    let refused = open(&server, dir.path()).expect_err("away").to_string();
    assert!(
        refused.contains("connecting to postgres://ada@/") && refused.contains("look whether it runs"),
        "{refused}"
    );
    server.go_on();
    let store = open(&server, dir.path()).expect("a store");
    assert_eq!(store.list_cases(None, 9).expect("cases"), [case(1, "a", 5)]);
    let name = std::fs::read_to_string(dir.path().join("store-id")).expect("a name");
    assert_eq!(server.sql("SELECT store FROM mycroft_cases"), name.trim());
    drop(store);
    server.sql("DELETE FROM mycroft_stores");
    let store = open(&server, &backup).expect("a store");
    assert_eq!(store.list_cases(None, 9).expect("cases"), [case(1, "a", 5)], "a backup holds what waits, and the name");
    assert_eq!(server.sql("SELECT store FROM mycroft_cases"), name.trim());
}

/// A server that takes connections and never answers must hold nobody for long: a test that hangs here fails.
#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let store = open(&server, dir.path()).expect("a store");
    store.put_series(&series(0), T0).expect("kept");
    server.freeze();
    assert!(store.take_lease("a", "one", Duration::from_secs(1)).is_err());
    // What stands in for the database is nobody else's.
    assert!(matches!(store.take_lease("a", "one", Duration::from_secs(1)), Err(StoreError::NotKept { .. })));
    server.thaw();
    wait(&store);
    assert!(matches!(store.take_lease("a", "one", Duration::from_secs(1)), Ok(Leased::Ours(_))));
    server.freeze();
    let silent = store.series("a").expect_err("no answer").to_string();
    assert!(
        silent.contains("reading series of postgres://ada@/") && silent.contains("no answer within 2 s"),
        "{silent}"
    );
    // From now on nobody asks it.
    assert_eq!(store.series("a").expect("nothing waits").pieces.len(), 0);
    store.put_case(&case(1, "a", 5)).expect("it waits");
    assert!(!store.maintain(T0).expect("the disk is well").is_meta_back, "a thread tries it");
    assert!(!store.maintain(T0).expect("the disk is well").is_meta_back);
    server.thaw();
    wait(&store);
    assert_eq!(store.list_cases(None, 9).expect("cases"), [case(1, "a", 5)]);
    assert_eq!(store.series("a").expect("series").pieces.len(), 1);
}
