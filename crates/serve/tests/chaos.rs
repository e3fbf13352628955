//! Servers, brokers and database of a bus end and come back, one after the other and in whatever is going on: no record that was
//! acknowledged is lost, no case is lost or doubled, and none is false.
#[path = "../../store/tests/server/mod.rs"]
mod database;
mod feeder;
mod fleet;
mod stalled;

use feeder::{Feeder, Rig};
use fleet::{child, rows, until};
use mycroft_bus::BusSecurity;
use mycroft_bus::kafka::mock::MockBrokers;
use mycroft_bus::kafka::way;
use mycroft_record::{JobName, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

/// How long brokers are away.
const AWAY: Duration = Duration::from_secs(3);

/// Not a test of its own: the program of `fleet::child`.
#[test]
fn a_server_of_its_own() {
    fleet::serve_if_told();
}

fn end(child: &mut Child) {
    child.kill().expect("kill -9");
    child.wait().expect("ended");
}

fn feed_for(feeder: &mut Feeder, time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        feeder.feed();
    }
}

/// Step marks that the servers' folders hold, by job and rank.
fn kept(dirs: &[&Path]) -> BTreeMap<(JobName, u32), BTreeSet<u64>> {
    let mut out: BTreeMap<_, BTreeSet<u64>> = BTreeMap::new();
    for dir in dirs {
        for delivery in mycroft_store::read_only(&dir.join("store")).expect("a store") {
            let batch = delivery.expect("read").batch;
            let rank = batch.source.process.map_or(0, |process| process.rank.0);
            let marks = batch.records.iter().filter_map(|record| match record {
                Record::StepMark(mark) => Some(mark.step),
                _ => None,
            });
            out.entry((batch.source.job.clone(), rank)).or_default().extend(marks);
        }
    }
    out
}

#[test]
fn what_ends_and_comes_back_loses_nothing_and_doubles_nothing() {
    let Some(mut database) = database::Server::start() else { return };
    let brokers = MockBrokers::start("mycroft", 2);
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let serve = |server: usize, database: &database::Server| child(&brokers, dirs[server].path(), database);
    let rig = Rig::new(way(brokers.address(), &BusSecurity::default()));
    let mut servers = [0, 1].map(|server| serve(server, &database));
    let mut feeder = rig.job("train-1");
    feeder.join(rig.job("train-2"));
    let states = |database: &database::Server| {
        let sql = "SELECT string_agg(job || ' ' || state, ', ' ORDER BY opened_at, job) FROM mycroft_cases";
        database.sql(sql)
    };
    feed_for(&mut feeder, Duration::from_secs(3));
    feeder.stall_one("train-1");
    until("a case", &mut feeder, || states(&database) == "train-1 open");
    // Each server once, while a case is open.
    for (number, server) in servers.iter_mut().enumerate() {
        end(server);
        feed_for(&mut feeder, Duration::from_secs(1));
        *server = serve(number, &database);
        feed_for(&mut feeder, Duration::from_secs(6));
        assert_eq!(states(&database), "train-1 open", "server {number}");
    }
    feeder.go_on();
    until("the case ends", &mut feeder, || states(&database) == "train-1 closed");
    // Brokers, while all is well.
    brokers.down();
    feed_for(&mut feeder, AWAY);
    brokers.up();
    feed_for(&mut feeder, AWAY);
    assert_eq!(states(&database), "train-1 closed", "silence of all is no case");
    // The database, and a stall meanwhile that nobody may judge.
    database.kill();
    feed_for(&mut feeder, AWAY);
    feeder.stall_one("train-2");
    feed_for(&mut feeder, AWAY);
    database.go_on();
    until("a case after the database", &mut feeder, || states(&database) == "train-1 closed, train-2 open");
    // A server and the brokers at once.
    end(&mut servers[0]);
    brokers.down();
    feed_for(&mut feeder, AWAY);
    brokers.up();
    servers[0] = serve(0, &database);
    feed_for(&mut feeder, Duration::from_secs(6));
    feeder.go_on();
    until("all cases end", &mut feeder, || states(&database) == "train-1 closed, train-2 closed");
    let acknowledged = feeder.acknowledged();
    let is_kept = |(job, ranks): &(JobName, [u64; 2])| {
        let kept = kept(&[dirs[0].path(), dirs[1].path()]);
        (0..2).all(|rank| {
            let found = &kept[&(job.clone(), rank)];
            (1..=ranks[rank as usize]).all(|step| found.contains(&step))
        })
    };
    until("all that was acknowledged is kept", &mut feeder, || acknowledged.iter().all(is_kept));
    servers.iter_mut().for_each(end);
    assert_eq!(states(&database), "train-1 closed, train-2 closed", "{}", rows(&database));
}
