//! Servers on a bus: partitions by leases, cases that go on when another server takes over, and nothing judged twice.
#[path = "../../store/tests/server/mod.rs"]
mod database;
mod feeder;
mod fleet;
mod small_disk;
mod stalled;

use feeder::Rig;
use fleet::{PATIENCE, case_of, child, holder, rows, signal, start, until};
use mycroft_bus::kafka::mock::MockBrokers;
use mycroft_bus::kafka::{KafkaTopic, way};
use mycroft_bus::{Begin, BusError, BusSecurity, Entry, Fetched, Part, Topic};
use mycroft_record::{HostTime, Record};
use mycroft_serve::{BusSource, Server, ServerHandle};
use mycroft_store::meta::MetaPlace;
use small_disk::SmallDisk;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What is promised from the end of a server to the next verdict.
const FAILOVER: Duration = Duration::from_secs(10);

/// Not a test of its own: the program of `fleet::child`.
#[test]
fn a_server_of_its_own() {
    fleet::serve_if_told();
}

#[test]
fn a_case_goes_on_after_a_restart_and_what_is_no_record_of_ours_is_passed_over() {
    let (brokers, dir) = (MockBrokers::start("mycroft", 2), tempfile::tempdir().expect("a folder"));
    let rig = Rig::new(way(brokers.address(), &BusSecurity::default()));
    let mut feeder = rig.job("train");
    brokers.write(b"train", b"{\"not\": \"ours\"}");
    let server = start(&brokers, dir.path(), MetaPlace::File);
    feeder.stall();
    let mut found = None;
    until("a case", &mut feeder, || {
        found = server.wait_for_case(Duration::from_millis(50), case_of("train"));
        found.is_some()
    });
    let case = found.expect("a case");
    assert!(case.number > 1_000_000, "a number of the bus: {}", case.number);
    server.stop();
    let again = start(&brokers, dir.path(), MetaPlace::File);
    until("the case goes on", &mut feeder, || again.case(case.number).is_some_and(|case| case.is_open()));
    feeder.go_on();
    until("the case ends", &mut feeder, || again.case(case.number).is_some_and(|case| !case.is_open()));
    assert!(again.case(case.number + 1).is_none(), "it is not doubled");
    let closed = again.case(case.number).expect("it is known");
    assert!(!closed.case.closed_because.contains("restarted"), "{}", closed.case.closed_because);
}

/// Brokers whose processors are taken while a server reads what came lately: for a while they give nothing that came after a time.
struct Slow {
    brokers: KafkaTopic,
    after: HostTime,
}

struct SlowPart {
    part: Box<dyn Part>,
    after: HostTime,
    held: Option<Fetched>,
    slow_since: Option<Instant>,
}

/// Longer than a broker takes that has nothing else to do, and shorter than one that is given up.
const SLOW: Duration = Duration::from_secs(4);

impl Topic for Slow {
    fn name(&self) -> String {
        self.brokers.name()
    }
    fn partitions(&self) -> Result<u32, BusError> {
        self.brokers.partitions()
    }
    fn part(&self, partition: u32) -> Result<Box<dyn Part>, BusError> {
        let part = self.brokers.part(partition)?;
        Ok(Box::new(SlowPart { part, after: self.after, held: None, slow_since: None }))
    }
}

impl Part for SlowPart {
    fn begin(&mut self, since: HostTime) -> Result<Begin, BusError> {
        self.part.begin(since)
    }
    fn next(&mut self, wait: Duration) -> Result<Option<Fetched>, BusError> {
        if self.held.is_none() {
            self.held = self.part.next(wait)?;
        }
        let is_late = self.held.as_ref().is_some_and(|fetched| fetched.at > self.after);
        if is_late && self.slow_since.get_or_insert_with(Instant::now).elapsed() < SLOW {
            std::thread::park_timeout(wait);
            return Ok(None);
        }
        Ok(self.held.take())
    }
    fn end(&mut self) -> Result<i64, BusError> {
        self.part.end()
    }
    fn go_to(&mut self, offset: i64) -> Result<(), BusError> {
        self.part.go_to(offset)
    }
    fn keep(&mut self, offset: i64) -> Result<(), BusError> {
        self.part.keep(offset)
    }
}

/// The stall is in what the next server reads again, and so is its end.
#[test]
fn a_case_that_was_closed_is_not_told_again_where_brokers_are_slow() {
    let (brokers, dir) = (MockBrokers::start("mycroft", 1), tempfile::tempdir().expect("a folder"));
    let rig = Rig::new(way(brokers.address(), &BusSecurity::default()));
    let mut feeder = rig.job("train");
    let server = start(&brokers, dir.path(), MetaPlace::File);
    feeder.stall();
    until("a case", &mut feeder, || server.wait_for_case(Duration::ZERO, case_of("train")).is_some());
    let open = Instant::now();
    until("looks in which it is open", &mut feeder, || open.elapsed() > Duration::from_secs(1));
    let after = stalled::now();
    let told = server.wait_for_case(Duration::ZERO, case_of("train")).expect("a case").number;
    feeder.go_on();
    until("the case ends", &mut feeder, || server.case(told).is_some_and(|case| !case.is_open()));
    server.stop();
    let mut config = fleet::config(&brokers.address().to_string(), dir.path(), MetaPlace::File);
    let topic = KafkaTopic::new(brokers.address(), &BusSecurity::default()).expect("settings");
    config.bus = Some(BusSource(Arc::new(Slow { brokers: topic, after })));
    let again = Server::start(config).expect("the server starts");
    until("it has the job", &mut feeder, || again.report("train").is_some());
    feeder.stall();
    until("a case of another stall", &mut feeder, || again.case(told + 1).is_some_and(|case| case.is_settled()));
    let since = |number| again.case(number).expect("a case").case.finding.since;
    assert!(since(told + 1) > after, "it is not the one that is over: {:?} and {:?}", since(told), since(told + 1));
}

#[test]
fn a_record_that_comes_twice_is_kept_and_judged_once() {
    let (brokers, dir) = (MockBrokers::start("mycroft", 1), tempfile::tempdir().expect("a folder"));
    let server = start(&brokers, dir.path(), MetaPlace::File);
    let batches: Vec<_> = (1..=50)
        .map(|step| stalled::batch(0, HostTime(1_700_000_000_000_000_000 + step * 1_000_000), Vec::new(), 0))
        .collect();
    for (number, batch) in batches.iter().enumerate() {
        let frame = mycroft_wire::codec::encode(std::slice::from_ref(batch)).expect("it fits");
        let (sequence, sent) = (number as u64 + 1, batch.collected_at);
        let entry =
            Entry { agent: 7, machine: 0, sequence, sent, host: "host0".into(), software: String::new(), frame };
        brokers.write(b"train", &entry.encode());
        brokers.write(b"train", &entry.encode());
    }
    let kept = || {
        let stored = mycroft_store::read_only(&dir.path().join("store")).expect("a store");
        stored.map(|delivery| delivery.expect("read").batch).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    while kept().len() < batches.len() {
        assert!(begun.elapsed() < PATIENCE, "{} of {}", kept().len(), batches.len());
    }
    server.stop();
    assert_eq!(kept(), batches);
}

/// Twice as long as a lease is.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(8);

/// Cases are in a file of the disk, which no other server uses: nothing has to be written there for the server to go on.
#[test]
fn a_server_that_shares_its_database_with_nobody_judges_on_while_its_disk_is_full() {
    let (brokers, dir) = (MockBrokers::start("mycroft", 1), tempfile::tempdir().expect("a folder"));
    let Some(disk) = SmallDisk::mount(dir.path()) else { return };
    let rig = Rig::new(way(brokers.address(), &BusSecurity::default()));
    let mut feeder = rig.job("train");
    let server = start(&brokers, &disk.0, MetaPlace::File);
    until("the server has the job", &mut feeder, || server.report("train").is_some());
    disk.fill();
    let filled = Instant::now();
    until("leases of before are over", &mut feeder, || filled.elapsed() > LONGER_THAN_A_LEASE);
    feeder.stall();
    let is_told = |server: &ServerHandle| server.wait_for_case(Duration::ZERO, case_of("train")).is_some();
    until("a case", &mut feeder, || is_told(&server));
    server.stop();
    let again = start(&brokers, &disk.0, MetaPlace::File);
    until("a case of a server that starts on a full disk", &mut feeder, || is_told(&again));
    disk.free();
    let kept = || {
        let stored = mycroft_store::read_only(&disk.0.join("store")).expect("a store");
        let mut marks = [(); 2].map(|()| BTreeSet::new());
        for batch in stored.map(|delivery| delivery.expect("read").batch) {
            let rank = batch.source.process.map_or(0, |process| process.rank.0 as usize);
            marks[rank].extend(batch.records.iter().filter_map(|record| match record {
                Record::StepMark(mark) => Some(mark.step),
                _ => None,
            }));
        }
        marks
    };
    let (_, acknowledged) = feeder.acknowledged().remove(0);
    until("what the disk refused is read again", &mut feeder, || {
        kept().iter().zip(acknowledged).all(|(marks, last)| (1..=last).all(|mark| marks.contains(&mark)))
    });
    again.stop();
}

/// The promise of docs/decisions/025-bus.md.
#[test]
fn another_server_gives_the_next_verdict_within_ten_seconds_of_the_end_of_one() {
    let Some(database) = database::Server::start() else { return };
    let (brokers, dirs) = (MockBrokers::start("mycroft", 1), [(); 2].map(|()| tempfile::tempdir().expect("a folder")));
    let rig = Rig::new(way(brokers.address(), &BusSecurity::default()));
    let mut first = child(&brokers, dirs[0].path(), &database);
    let mut feeder = rig.job("train");
    feeder.join(rig.job("other"));
    feeder.stall_one("train");
    until("a case of the first server", &mut feeder, || rows(&database) == "1000001 train open");
    let second = start(&brokers, dirs[1].path(), database.place());
    until("the second is there", &mut feeder, || {
        database.sql("SELECT count(*) FROM mycroft_leases WHERE job LIKE 'bus % server %'") == "2"
    });
    assert_eq!(second.case(1_000_001), None, "it is the first server's");
    signal(&first, "-KILL");
    let killed = Instant::now();
    first.wait().expect("ended");
    feeder.stall_one("other");
    let mut verdict = None;
    until("a verdict of the second server", &mut feeder, || {
        verdict = second.wait_for_case(Duration::from_millis(20), case_of("other"));
        verdict.is_some()
    });
    let took = killed.elapsed();
    println!("from the end of a server to the next verdict: {:.2} s", took.as_secs_f64());
    assert!(took < FAILOVER, "{took:?}");
    assert_eq!(verdict.expect("a case").number, 2_000_001);
    let went_on = second.case(1_000_001).expect("the case of the first server");
    assert!(went_on.is_open() && went_on.is_settled() && &*went_on.job == "train");
    feeder.go_on();
    until("both cases end", &mut feeder, || rows(&database) == "1000001 train closed, 2000001 other closed");
    assert!(second.case(1_000_001).is_some_and(|case| !case.case.closed_because.contains("restarted")));
    second.stop();
    assert_eq!(rows(&database), "1000001 train closed, 2000001 other closed", "no case is lost or doubled");
}

/// One that was stopped for longer than its lease, and goes on without knowing of it, has nothing to say.
#[test]
fn a_server_that_was_paused_judges_nothing_that_is_anothers_by_then() {
    let Some(database) = database::Server::start() else { return };
    let (brokers, dirs) = (MockBrokers::start("mycroft", 1), [(); 2].map(|()| tempfile::tempdir().expect("a folder")));
    let rig = Rig::new(way(brokers.address(), &BusSecurity::default()));
    let mut first = child(&brokers, dirs[0].path(), &database);
    let mut feeder = rig.job("train");
    feeder.stall();
    until("a case of the first server", &mut feeder, || rows(&database) == "1000001 train open");
    let second = start(&brokers, dirs[1].path(), database.place());
    let paused = holder(&database);
    signal(&first, "-STOP");
    until("the second server goes on", &mut feeder, || second.case(1_000_001).is_some_and(|case| case.is_open()));
    let other = holder(&database);
    assert_ne!(paused, other);
    signal(&first, "-CONT");
    until("the first server is there again", &mut feeder, || {
        let sql =
            format!("SELECT count(*) FROM mycroft_leases WHERE job LIKE 'bus % server {paused}' AND until > now()");
        database.sql(&sql) == "1"
    });
    feeder.go_on();
    until("the case ends", &mut feeder, || rows(&database) == "1000001 train closed");
    assert_eq!(database.sql("SELECT DISTINCT store FROM mycroft_cases"), other, "the second server wrote it");
    assert_eq!(holder(&database), other, "and goes on");
    drop(first.stdin.take());
    first.wait().expect("ended");
    assert_eq!(rows(&database), "1000001 train closed");
}

/// All leases are over then, and the case is not in the database yet: another server would tell it again under a number of its own.
#[test]
fn after_a_database_was_away_for_longer_than_a_lease_a_case_goes_on_where_it_was_told() {
    let Some(mut database) = database::Server::start() else { return };
    let (brokers, dirs) = (MockBrokers::start("mycroft", 1), [(); 2].map(|()| tempfile::tempdir().expect("a folder")));
    let rig = Rig::new(way(brokers.address(), &BusSecurity::default()));
    let mut feeder = rig.job("train");
    let first = start(&brokers, dirs[0].path(), database.place());
    until("the first server has the job", &mut feeder, || first.report("train").is_some());
    let second = start(&brokers, dirs[1].path(), database.place());
    until("the second is there", &mut feeder, || {
        database.sql("SELECT count(*) FROM mycroft_leases WHERE job LIKE 'bus % server %'") == "2"
    });
    let had = holder(&database);
    database.kill();
    feeder.stall();
    let away = Instant::now();
    until("all leases are over", &mut feeder, || away.elapsed() > LONGER_THAN_A_LEASE);
    assert!(first.report("train").is_none(), "nobody judges it");
    database.go_on();
    let back = Instant::now();
    until("a case", &mut feeder, || rows(&database) == "1000001 train open");
    println!("from the start of a database to the case in it: {:.2} s", back.elapsed().as_secs_f64());
    until("somebody has the job", &mut feeder, || !holder(&database).is_empty());
    assert_eq!(holder(&database), had);
    feeder.go_on();
    until("the case ends", &mut feeder, || rows(&database) == "1000001 train closed");
    [first, second].into_iter().for_each(ServerHandle::stop);
    assert_eq!(rows(&database), "1000001 train closed", "no case is lost or doubled");
}

/// Partitions go from a server that has too many to one that came later, and cases with them.
#[test]
fn a_server_that_comes_later_has_its_share_and_the_cases_of_it() {
    let Some(database) = database::Server::start() else { return };
    let (brokers, dirs) = (MockBrokers::start("mycroft", 2), [(); 2].map(|()| tempfile::tempdir().expect("a folder")));
    let rig = Rig::new(way(brokers.address(), &BusSecurity::default()));
    let job = |part| {
        let names = (0..100).map(|number| format!("train-{number}"));
        names.into_iter().find(|name| mycroft_bus::partition_of(name, 2) == part).expect("a name")
    };
    let mut feeder = rig.job(&job(0));
    feeder.join(rig.job(&job(1)));
    feeder.stall();
    let first = start(&brokers, dirs[0].path(), database.place());
    let is_at = |server: &ServerHandle, part| server.wait_for_case(Duration::ZERO, case_of(&job(part))).is_some();
    until("both cases", &mut feeder, || is_at(&first, 0) && is_at(&first, 1));
    let second = start(&brokers, dirs[1].path(), database.place());
    until("one of them moves", &mut feeder, || is_at(&second, 0) != is_at(&second, 1));
    let moved = u32::from(is_at(&second, 1));
    until("the first lets it go", &mut feeder, || !is_at(&first, moved) && is_at(&first, 1 - moved));
    let numbers = database.sql("SELECT string_agg(id::text, ' ' ORDER BY id) FROM mycroft_cases");
    assert_eq!(numbers, "1000001 1000002", "they keep their numbers");
    second.stop();
    until("it comes back", &mut feeder, || is_at(&first, 0) && is_at(&first, 1));
    assert_eq!(database.sql("SELECT count(*) FROM mycroft_cases"), "2");
}
