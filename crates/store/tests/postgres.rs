//! The database of cases as tables of a PostgreSQL server.
mod server;
mod suite;

use mycroft_record::HostTime;
use mycroft_store::meta::{CaseRow, Leased, Meta, MetaError};
use server::Server;
use std::time::Duration;
use suite::case;

#[test]
fn a_server_answers_as_any_database_must_and_as_a_file_does() {
    let Some(server) = Server::start() else { return };
    suite::all(&|| server.open("one"));
    assert_eq!(server.open("two").list_cases(None, 10).expect("cases"), [], "each store has rows of its own");
    for seed in 0..8 {
        let (file, remote) = (Meta::in_memory().expect("memory"), server.open(&format!("drawn-{seed}")));
        suite::same_answers(&file, &remote, seed);
    }
    suite::all(&|| server.open("two"));
    suite::shared(&server.open("three"));
}

#[test]
fn a_job_has_one_holder_among_servers_that_share_a_database() {
    let Some(server) = Server::start() else { return };
    suite::leases(&|number| server.open(&format!("store-{number}")));
}

/// Of servers on a bus.
#[test]
fn a_case_moves_with_its_job_and_who_had_it_writes_it_no_more() {
    let Some(server) = server::Server::start() else { return };
    let (one, other) = (server.open("one"), server.open("other"));
    let numbers = [7, 1_000_001, 1_000_002];
    numbers.iter().for_each(|id| one.put_case(&case(*id, "moves", *id)).expect("written"));
    one.put_case(&case(1_000_003, "stays", 1)).expect("written");
    let claimed = other.claim_cases(&|job| job == "moves", 9).expect("claimed");
    assert_eq!(claimed.iter().map(|case| case.id).collect::<Vec<_>>(), [1_000_002, 1_000_001]);
    let rows =
        || server.sql("SELECT string_agg(store || ' ' || id || ' ' || state, ', ' ORDER BY id) FROM mycroft_cases");
    let moved = "one 7 open, other 1000001 open, other 1000002 open, one 1000003 open";
    assert_eq!(rows(), moved);
    let late = CaseRow { state: "late".to_owned(), ..case(1_000_001, "moves", 9) };
    one.put_case(&late).expect("nothing is wrong, and nothing is written");
    assert_eq!(rows(), moved);
    other.put_case(&CaseRow { state: "closed".to_owned(), ..late }).expect("written");
    assert_eq!(rows(), moved.replace("1000001 open", "1000001 closed"));
    assert_eq!(one.highest_case(1_000_000, 2_000_000).expect("asked"), 1_000_003, "whosever they are");
    assert_eq!(one.claim_cases(&|_| true, 9).expect("claimed").len(), 3, "and back");
}

#[test]
fn layouts_go_forwards_and_back_and_a_newer_one_is_refused() {
    let Some(server) = Server::start() else { return };
    let at = server.at();
    let tables = || server.sql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'mycroft%'");
    let newest: i64 = {
        server.open("one").put_case(&case(1, "a", 5)).expect("kept");
        server.sql("SELECT max(version) FROM mycroft_schema").parse().expect("a number")
    };
    assert_eq!(Meta::bring_postgres_to(&at, newest).expect("as it is"), newest);
    assert_eq!(server.open("one").list_cases(None, 9).expect("cases").len(), 1, "the newest again loses nothing");
    server.open("one").take_lease("a", "one", Duration::from_secs(3_600)).expect("asked");
    assert_eq!(Meta::bring_postgres_to(&at, 1).expect("back"), newest);
    assert_eq!(tables(), "7", "layout 1 has no leases");
    let again = server.open("one");
    assert_eq!(again.list_cases(None, 9).expect("cases").len(), 1, "and all cases");
    assert!(matches!(again.take_lease("a", "other", Duration::ZERO), Ok(Leased::Ours(_))), "what had no place is lost");
    drop(again);
    // Back by single steps, and forwards by single steps.
    for layout in (0..newest).rev() {
        assert_eq!(Meta::bring_postgres_to(&at, layout).expect("back"), layout + 1);
    }
    assert_eq!(tables(), "0", "nothing is left");
    for layout in 1..=newest {
        assert_eq!(Meta::bring_postgres_to(&at, layout).expect("forwards"), layout - 1);
    }
    assert_eq!(server.open("one").list_cases(None, 9).expect("cases"), [], "layout 0 has no place for rows");
    suite::all(&|| server.open("two"));
    assert_eq!(Meta::bring_postgres_to(&at, 0).expect("back at once"), newest);
    assert_eq!(tables(), "0");
    suite::all(&|| server.open("three"));
    for none in [-1, newest + 1] {
        let told = Meta::bring_postgres_to(&at, none).expect_err("no such layout").to_string();
        assert!(told.contains(&format!("layout {none}")), "{told}");
    }
    server.sql("INSERT INTO mycroft_schema (version) VALUES (7001)");
    for refused in [Meta::open_postgres(&at, "one", None).err(), Meta::bring_postgres_to(&at, 0).err()] {
        let refused = refused.expect("refused");
        assert!(matches!(refused, MetaError::Newer { found: 7001, .. }), "{refused}");
        let told = refused.to_string();
        assert!(told.contains("postgres://ada@") && told.contains("layout 7001, this release knows"), "{told}");
        assert!(!told.contains("s3cret"), "{told}");
    }
    assert_eq!(server.sql("SELECT count(*) FROM mycroft_cases"), "6", "and left as it is");
}

#[test]
fn servers_that_start_at_once_make_the_tables_once() {
    let Some(server) = Server::start() else { return };
    std::thread::scope(|scope| {
        for store in ["a", "b", "c", "d", "e", "f"] {
            let server = &server;
            scope.spawn(move || server.open(store).put_case(&case(1, "a", 5)).expect("kept"));
        }
    });
    assert_eq!(server.sql("SELECT count(*), count(DISTINCT store) FROM mycroft_cases"), "6|6");
}

#[test]
fn one_process_uses_a_store_and_others_are_told() {
    let Some(server) = Server::start() else { return };
    let first = server.open("one");
    let told = Meta::open_postgres(&server.at(), "one", None).expect_err("refused").to_string();
    assert!(
        told.contains("another process uses it for the store \"one\"") && told.contains("postgres://ada@"),
        "{told}"
    );
    server.open("two");
    drop(first);
    server.open("one");
}

/// A store that goes over from a file keeps what it had, once.
#[test]
fn rows_of_a_file_are_taken_over_at_the_first_start() {
    let Some(server) = Server::start() else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("meta.sqlite");
    let file = Meta::open(&path).expect("a file");
    suite::all(&|| Meta::open(&path).expect("a file"));
    let open = || Meta::open_postgres(&server.at(), "one", Some(&path)).expect("a database");
    let meta = open();
    assert_eq!(meta.list_cases(None, 99).expect("cases"), file.list_cases(None, 99).expect("cases"));
    assert_eq!(meta.list_actions(99).expect("actions"), file.list_actions(99).expect("actions"));
    assert_eq!(meta.list_policies().expect("policies"), file.list_policies().expect("policies"));
    assert_eq!(meta.series("a").expect("series"), file.series("a").expect("series"));
    drop(meta);
    file.put_case(&case(77, "a", 77)).expect("kept");
    assert_eq!(open().list_cases(None, 99).expect("cases").len(), 6, "not again");
}

#[test]
fn what_cannot_be_used_is_named_without_its_password() {
    let Some(mut server) = Server::start() else { return };
    let told = |url: String| {
        let told = Meta::open_postgres(&server::at(url), "one", None).expect_err("refused").to_string();
        assert!(!told.contains("s3cret"), "{told}");
        told
    };
    let nowhere = told(server.url().replace("/postgres?", "/nothing?"));
    assert!(nowhere.contains("/nothing: ") && nowhere.contains("CREATE DATABASE"), "{nowhere}");
    let nobody = told(server.url().replace("ada@", "eve@"));
    assert!(nobody.contains("postgres://eve@") && nobody.contains("check user and password"), "{nobody}");
    server.sql("CREATE ROLE bob LOGIN PASSWORD 's3cret'");
    server.sql("CREATE ROLE mallory LOGIN PASSWORD 'another'");
    let wrong = told(server.url().replace("ada@", "mallory@"));
    assert!(wrong.contains("password authentication failed") && wrong.contains("postgres://mallory@"), "{wrong}");
    let forbidden = told(server.url().replace("ada@", "bob@"));
    assert!(
        forbidden.contains("permission denied") && forbidden.contains("must be allowed to make tables"),
        "{forbidden}"
    );
    server.kill();
    let away = told(server.url());
    assert!(away.contains("connecting to postgres://ada@/") && away.contains("look whether it runs"), "{away}");
    let refused = told("postgres://ada@127.0.0.1:1/x".to_owned());
    assert!(refused.contains("postgres://ada@127.0.0.1:1/x: "), "{refused}");
}

#[test]
fn a_database_that_cannot_hold_every_name_is_refused() {
    let Some(server) = Server::start_encoded("LATIN1") else { return };
    let told = Meta::open_postgres(&server.at(), "one", None).expect_err("refused").to_string();
    assert!(told.contains("encoding is LATIN1") && told.contains("ENCODING 'UTF8'"), "{told}");
}

/// What was acknowledged outlives `kill -9` of the server, each time.
#[test]
fn no_acknowledged_row_is_lost_when_the_server_is_killed_under_writes() {
    let Some(mut server) = Server::start() else { return };
    let mut kept = 0;
    for _ in 0..4 {
        let meta = server.open("one");
        let first = kept;
        let (acknowledged, heard) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            let mut next = first;
            while meta.put_case(&case(next, "a", next)).is_ok() {
                // Nobody hears it only when the test failed.
                let _ = acknowledged.send(next);
                next += 1;
            }
        });
        // In the middle of it, as the loop goes on without pause.
        let mut hear = || kept = heard.recv().expect("it writes") + 1;
        (0..50).for_each(|_| hear());
        server.kill();
        writer.join().expect("it ended");
        kept = heard.iter().last().map_or(kept, |last| last + 1);
        server.go_on();
        let found = server.open("one").list_cases(None, usize::MAX).expect("cases");
        // One more may have been written without a word.
        assert!((kept..=kept + 1).contains(&(found.len() as u64)), "{kept} acknowledged, {} found", found.len());
        let mut ids: Vec<u64> = found.iter().map(|case| case.id).collect();
        ids.reverse();
        assert_eq!(ids, (0..found.len() as u64).collect::<Vec<_>>());
        kept = found.len() as u64;
    }
    assert!(server.open("one").series("a").expect("read").pieces.is_empty());
    assert_eq!(server.open("one").list_cases(None, 1).expect("cases")[0].opened_at, HostTime(kept - 1));
}
