//! A server whose database of cases is a PostgreSQL server's that goes away: jobs are diagnosed all the same, and what came of it is
//! written when it is back.
#[path = "../../store/tests/server/mod.rs"]
mod server;
mod stalled;

use mycroft_record::{Category, HostTime, NANOS_PER_SEC, Suspect, What};
use mycroft_serve::{BookedCase, ServeConfig, Server, ServerHandle};
use stalled::{HEALTHY, ITERATION, batch, hello, iterations, now, waiting};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn start(database: &server::Server, dir: &Path) -> ServerHandle {
    let http = SocketAddr::from(([127, 0, 0, 1], 0));
    let (store_dir, meta) = (Some(dir.join("store")), database.place());
    Server::start(ServeConfig { http, store_dir, meta, ..ServeConfig::default() }).expect("the server starts")
}

/// A job stalls; gives its case.
fn stalled(server: &ServerHandle) -> BookedCase {
    let at = now();
    let origin = HostTime(at.0 - 2 * NANOS_PER_SEC - HEALTHY * ITERATION);
    for rank in 0..2 {
        let healthy_until = origin + HEALTHY * ITERATION;
        let live = waiting(rank, origin, at);
        let in_flight = live.len() as u32;
        for batch in [
            batch(rank, origin, hello(rank, origin), 0),
            batch(rank, healthy_until, iterations(rank, origin, 0, HEALTHY), 0),
            batch(rank, at, live, in_flight),
        ] {
            assert!(server.ingest(batch), "there is room");
        }
    }
    server.wait_for_case(PATIENCE, BookedCase::is_settled).expect("a settled case")
}

/// When it was diagnosed may change: a start lives through the last minutes once more.
fn said(case: &BookedCase) -> (What, Category, Vec<Suspect>) {
    let finding = &case.case.finding;
    (finding.what, finding.category, finding.suspects.clone())
}

fn written(database: &server::Server, states: &str) {
    let begun = Instant::now();
    let found = || database.sql("SELECT string_agg(id || ' ' || state, ',' ORDER BY id) FROM mycroft_cases");
    while found() != states {
        assert!(begun.elapsed() < PATIENCE, "{} instead of {states}", found());
    }
}

/// A database that takes what is asked and never answers is the worst that the brain could wait for.
#[test]
fn a_job_is_diagnosed_while_the_database_does_not_answer() {
    let Some(database) = server::Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&database, dir.path());
    database.freeze();
    let case = stalled(&server);
    database.thaw();
    written(&database, &format!("{} open", case.number));
    server.stop();
    let again = start(&database, dir.path());
    assert_eq!(again.case(case.number).map(|kept| said(&kept)), Some(said(&case)));
}

#[test]
fn a_server_that_stops_while_the_database_is_away_loses_no_case() {
    let Some(mut database) = server::Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let server = start(&database, dir.path());
    database.kill();
    let case = stalled(&server);
    server.stop();
    let config =
        ServeConfig { store_dir: Some(dir.path().join("store")), meta: database.place(), ..ServeConfig::default() };
    let refused = Server::start(config).expect_err("refused").to_string();
    assert!(refused.contains("opening the store: connecting to postgres://ada@/"), "{refused}");
    assert!(!refused.contains("s3cret"), "{refused}");
    database.go_on();
    let again = start(&database, dir.path());
    assert_eq!(again.case(case.number).map(|kept| said(&kept)), Some(said(&case)));
    written(&database, &format!("{} open", case.number));
}
