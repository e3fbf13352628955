//! The store: replay equals what was appended, crashes, retention, damage, the hot window, cases.
#[path = "../../wire/tests/common/mod.rs"]
mod common;

use common::{Random, any_batch, iteration, source, step_batch};
use mycroft_record::*;
use mycroft_store::meta::CaseRow;
use mycroft_store::{Cursor, HotLimits, Query, Store, StoreConfig};
use mycroft_wire::codec;
use proptest::prelude::*;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const T0: HostTime = HostTime(1_700_000_000 * NANOS_PER_SEC);
const HOUR: u64 = 3600 * NANOS_PER_SEC;

fn open(dir: &Path) -> Store {
    Store::open(dir, StoreConfig::default()).unwrap()
}

fn replay(store: &Store) -> Vec<Batch> {
    store.read_all().unwrap().map(Result::unwrap).collect()
}

fn rounded(mut batch: Batch) -> Batch {
    codec::round_to_micros(&mut batch);
    batch
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[derive(Clone, Debug)]
enum Step {
    Append(Vec<Batch>),
    Compact,
    Reopen,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// Whatever is appended comes back, whatever happens in between; within an hour in the order of appending.
    #[test]
    fn a_replay_gives_what_was_appended(steps in proptest::collection::vec(prop_oneof![
        4 => proptest::collection::vec(any_batch(), 1..5).prop_map(Step::Append), 1 => Just(Step::Compact), 1 => Just(Step::Reopen)], 1..12)) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let mut model = Vec::new();
        for step in steps {
            match step {
                Step::Append(batches) => for mut batch in batches {
                    batch.collected_at = T0;
                    store.append(&batch).unwrap();
                    model.push(rounded(batch));
                }
                Step::Compact => {
                    store.compact().unwrap();
                }
                Step::Reopen => {
                    drop(store);
                    store = open(dir.path());
                }
            }
        }
        let full = |batches: Vec<Batch>| -> Vec<Batch> { batches.into_iter().filter(|b| !b.records.is_empty()).collect() };
        prop_assert_eq!(full(replay(&store)), full(model.clone()));
        store.compact().unwrap();
        prop_assert_eq!(replay(&store), full(model));
    }
}

#[test]
fn hours_become_partitions_and_retention_goes_by_age_and_size() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { retain_age: Duration::from_secs(2 * 3600), ..StoreConfig::default() };
    let store = Store::open(dir.path(), config.clone()).unwrap();
    for hour in 0..5 {
        let batch = step_batch("job", 0, hour);
        store.append(&Batch { collected_at: T0 + hour * HOUR, ..batch }).unwrap();
    }
    assert_eq!(store.compact().unwrap(), 5);
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

#[test]
fn old_logs_become_segments_and_their_batches_leave_memory() {
    let dir = tempfile::tempdir().unwrap();
    let hot = HotLimits { age: Duration::from_secs(60), ..HotLimits::default() };
    let store = Store::open(dir.path(), StoreConfig { hot, ..StoreConfig::default() }).unwrap();
    store.append(&Batch { collected_at: T0, ..step_batch("job", 0, 1) }).unwrap();
    assert_eq!(store.maintain(T0 + 30 * NANOS_PER_SEC).unwrap().segments_written, 0);
    assert_eq!(store.stats().hot_records, 2);
    assert_eq!(store.maintain(T0 + 601 * NANOS_PER_SEC).unwrap().segments_written, 1);
    assert_eq!((store.stats().hot_records, store.stats().hot_bytes), (0, 0));
    assert_eq!(replay(&store).len(), 1);
}

#[test]
fn after_a_restart_the_hot_window_holds_what_the_log_held() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    store.append(&step_batch("old", 0, 1)).unwrap();
    store.compact().unwrap();
    store.append(&step_batch("job", 0, 2)).unwrap();
    store.maintain(T0).unwrap();
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.tail(Cursor::default(), 10).batches.len(), 1);
    assert_eq!(store.jobs(), ["job", "old"]);
    assert_eq!(store.job_rows()[0].first_at, step_batch("job", 0, 2).collected_at);
}

#[test]
fn two_servers_cannot_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let _first = open(dir.path());
    let error = Store::open(dir.path(), StoreConfig::default()).unwrap_err().to_string();
    assert!(error.contains("another server uses this directory"), "{error}");
}

#[test]
fn torn_logs_and_damaged_segments_cost_only_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for (step, compact) in [(1, true), (2, true), (3, false), (4, false)] {
        store.append(&step_batch("job", 0, step)).unwrap();
        if compact {
            store.compact().unwrap();
        }
    }
    drop(store);
    let log = &files(dir.path(), "log")[0];
    let bytes = std::fs::read(log).unwrap();
    std::fs::write(log, &bytes[..bytes.len() - 3]).unwrap();
    let segments = files(dir.path(), "parquet");
    std::fs::write(&segments[0], &std::fs::read(&segments[0]).unwrap()[..200]).unwrap();
    std::fs::write(segments[0].with_file_name("0000000077-12345678.parquet"), b"not Parquet at all").unwrap();
    std::fs::write(segments[0].with_file_name("notes.txt"), b"a person was here").unwrap();
    let store = open(dir.path());
    let (good, bad): (Vec<_>, Vec<_>) = store.read_all().unwrap().partition(Result::is_ok);
    let good: Vec<Batch> = good.into_iter().map(Result::unwrap).collect();
    assert_eq!(good, [step_batch("job", 0, 2), step_batch("job", 0, 3)].map(rounded));
    let bad: Vec<String> = bad.into_iter().map(|e| e.unwrap_err().to_string()).collect();
    assert!(bad.len() == 2 && bad[0].contains("0000000001-"), "{bad:?}");
}

/// A crash between two renames, and one between the last rename and the removal of the log.
#[test]
fn a_crash_while_segments_are_written_neither_loses_nor_doubles() {
    for finished in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        for hour in 0..2 {
            store.append(&Batch { collected_at: T0 + hour * HOUR, ..step_batch("job", 0, hour) }).unwrap();
        }
        drop(store);
        let log = files(dir.path(), "log").remove(0);
        let saved = std::fs::read(&log).unwrap();
        open(dir.path()).compact().unwrap();
        let segments = files(dir.path(), "parquet");
        std::fs::write(&log, saved).unwrap();
        if !finished {
            std::fs::remove_file(&segments[1]).unwrap();
        }
        let store = open(dir.path());
        assert_eq!(replay(&store).len(), 2, "finished: {finished}");
        store.compact().unwrap();
        assert_eq!(replay(&store).len(), 2, "finished: {finished}");
    }
}

/// Not a test of its own: the process that the next test kills.
#[test]
fn child_that_writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os("MYCROFT_TEST_STORE_CHILD") else { return };
    let store = open(Path::new(&dir));
    let stdout = std::io::stdout();
    for step in 0.. {
        store.append(&step_batch("job", 0, step)).unwrap();
        use std::io::Write;
        writeln!(stdout.lock(), "appended {step}").unwrap();
        if step % 50 == 49 {
            store.compact().unwrap();
        }
    }
}

#[test]
fn a_killed_server_loses_nothing_it_had_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = 0;
    for round in 0..6u64 {
        let sub = dir.path().join(round.to_string());
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_writes_until_it_is_killed", "--nocapture"])
            .env("MYCROFT_TEST_STORE_CHILD", &sub)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut taken = 0;
        let mut killed = false;
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            taken += u64::from(line.unwrap().contains("appended"));
            if taken >= 45 + round * 13 && !killed {
                child.kill().unwrap();
                killed = true;
            }
        }
        child.wait().unwrap();
        let steps: Vec<u64> = replay(&open(&sub)).iter().map(step_of).collect();
        assert!(steps.len() as u64 >= taken, "round {round}: {} of {taken}", steps.len());
        assert_eq!(steps, (0..steps.len() as u64).collect::<Vec<_>>(), "round {round}");
        expected += taken;
    }
    assert!(expected > 6 * 45);
}

fn step_of(batch: &Batch) -> u64 {
    match &batch.records[..] {
        [Record::StepMark(mark), Record::Sampled(_)] => mark.step,
        other => panic!("unexpected {other:?}"),
    }
}

#[test]
fn the_hot_window_answers_by_job_communicator_rank_operation_and_time() {
    let store = Store::memory_only(StoreConfig::default());
    let mut random = Random(3);
    for number in 0..3 {
        for rank in 0..4 {
            store.append(&iteration(rank, number, &mut random)).unwrap();
        }
    }
    store.append(&step_batch("zebra", 1, 5)).unwrap();
    let train = Query { job: Some(Arc::from("train")), ..Query::default() };
    let all = store.query(&train);
    assert!(all.len() > 12 * 140 && all.is_sorted_by_key(|hit| hit.at));
    let rank = store.query(&Query { rank: Some(Rank(2)), ..train.clone() });
    assert!(!rank.is_empty() && rank.iter().all(|h| h.source().process.unwrap().rank == Rank(2)));
    let op = match all.iter().find_map(|h| if let Record::OpDone(done) = h.record() { Some(done.op.id) } else { None })
    {
        Some(op) => op,
        None => panic!("there are completions"),
    };
    let of_op = store.query(&Query { op: Some(op), rank: Some(Rank(0)), ..train.clone() });
    assert_eq!(of_op.iter().filter(|h| matches!(h.record(), Record::OpDone(_))).count(), 1);
    assert_eq!(of_op.iter().filter(|h| matches!(h.record(), Record::FlowDone(_))).count(), 2);
    let comm = store.query(&Query { comm: Some(op.comm), ..train.clone() });
    assert!(comm.len() < all.len() && comm.len() > of_op.len());
    let middle = all[all.len() / 2].at;
    let early = store.query(&Query { until: Some(middle), ..train.clone() }).len();
    assert_eq!(early + store.query(&Query { from: Some(middle), ..train.clone() }).len(), all.len());
    let newest = store.query(&Query { limit: 5, ..train });
    assert!(newest.len() == 5 && newest[0].at == all[all.len() - 5].at);
    assert_eq!(store.query(&Query { job: Some(Arc::from("nobody")), ..Query::default() }).len(), 0);
}

#[test]
fn the_hot_window_keeps_its_limits_and_the_tail_says_what_it_missed() {
    let hot = HotLimits { records: 100, ..HotLimits::default() };
    let store = Store::memory_only(StoreConfig { hot, ..StoreConfig::default() });
    for step in 0..30 {
        store.append(&step_batch("job", 0, step)).unwrap();
    }
    let tail = store.tail(Cursor::default(), 20);
    assert_eq!((tail.batches.len(), tail.missed), (20, 0));
    for step in 30..200 {
        store.append(&step_batch("job", 0, step)).unwrap();
    }
    assert_eq!(store.stats().hot_records, 100);
    let tail = store.tail(tail.cursor, 1000);
    assert_eq!((tail.batches.len(), tail.missed), (50, 130));
    assert_eq!(step_of(&tail.batches[0]), 150);
    let tail = store.tail(tail.cursor, 1000);
    assert_eq!((tail.batches.len(), tail.missed), (0, 0));
    assert_eq!(store.query(&Query::default()).len(), 100, "all that is there is found");
}

#[test]
fn the_last_state_of_each_rank_is_there() {
    let store = Store::memory_only(StoreConfig::default());
    for rank in [3, 1, 2] {
        store.append(&step_batch("job", rank, u64::from(rank))).unwrap();
    }
    let exit = Record::ProcessExit(ProcessExit { noticed_at: T0 + HOUR, clean: false });
    store.append(&Batch { source: source("job", "host9", 2), collected_at: T0, records: vec![exit] }).unwrap();
    store.append(&step_batch("other", 0, 0)).unwrap();
    let states = store.last_states("job");
    assert_eq!(states.iter().map(|(rank, _)| rank.0).collect::<Vec<_>>(), [1, 2, 3]);
    let (_, two) = &states[1];
    assert_eq!((two.exited, two.at, &*two.host), (true, T0 + HOUR, "host9"));
    assert!(two.sampled.is_some() && !states[0].1.exited);
}

#[test]
fn cases_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let case = |id, job: &str, opened: u64| CaseRow {
        id,
        job: job.to_owned(),
        state: "open".to_owned(),
        opened_at: T0 + opened,
        updated_at: T0 + opened,
        json: format!("{{\"id\":{id}}}"),
    };
    let store = open(dir.path());
    for case in [case(1, "a", 5), case(2, "a", 9), case(1, "b", 7), case(u64::MAX, "a", 1)] {
        store.put_case(&case).unwrap();
    }
    drop(store);
    let store = open(dir.path());
    let closed = CaseRow { state: "closed".to_owned(), ..case(1, "a", 5) };
    store.put_case(&closed).unwrap();
    assert_eq!(store.get_case("a", 1).unwrap(), Some(closed.clone()));
    assert_eq!(store.get_case("a", 3).unwrap(), None);
    assert_eq!(store.list_cases(Some("a"), 2).unwrap(), [case(2, "a", 9), closed]);
    assert_eq!(store.list_cases(None, 10).unwrap().len(), 4);
    assert_eq!(store.list_cases(Some("a"), 10).unwrap()[2].id, u64::MAX);
    drop(store);
    std::fs::write(dir.path().join("meta.sqlite"), b"this is no database, it is a letter to a friend").unwrap();
    let error = Store::open(dir.path(), StoreConfig::default()).unwrap_err().to_string();
    assert!(error.contains("meta.sqlite") && error.contains("mycroft database"), "{error}");
}

/// Promise: 16 KB per iteration and host at rest (records of a host with eight ranks, a minute's segment).
#[test]
fn an_iteration_of_a_host_fits_the_promise_at_rest() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut random = Random(9);
    for number in 0..60 {
        for rank in 0..8 {
            store.append(&iteration(rank, number, &mut random)).unwrap();
        }
    }
    store.compact().unwrap();
    let bytes: u64 = files(dir.path(), "parquet").iter().map(|f| f.metadata().unwrap().len()).sum();
    println!("{} bytes per host and iteration at rest", bytes / 60);
    assert!(bytes / 60 <= 16 * 1024, "{} bytes", bytes / 60);
}

/// Reads a segment with a program that is not ours.
#[test]
fn other_programs_read_segments() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let batch = iteration(5, 1, &mut Random(4));
    store.append(&batch).unwrap();
    store.compact().unwrap();
    let script = "import sys
try:
    import pyarrow.parquet as pq
    t = pq.read_table(sys.argv[1]).to_pylist()
except ImportError:
    try:
        import duckdb
        c = duckdb.sql('select * from ' + repr(sys.argv[1])); n = c.columns
        t = [dict(zip(n, r)) for r in c.fetchall()]
    except ImportError:
        print('absent'); sys.exit()
d = [r for r in t if r['kind'] == 'OpDone']
print(len(t), len(d), sum(r['count'] for r in d), d[0]['job'], d[0]['rank'], sum(r['started_us'] for r in d))";
    let file = &files(dir.path(), "parquet")[0];
    let output =
        std::process::Command::new(std::env::var_os("MYCROFT_TEST_PYTHON").unwrap_or_else(|| "python3".into()))
            .arg("-c")
            .arg(script)
            .arg(file)
            .output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned() + &String::from_utf8_lossy(&o.stderr));
    let Some(text) = text.ok().filter(|t| !t.starts_with("absent")) else {
        println!("skipped: neither pyarrow nor duckdb for python3 is installed");
        return;
    };
    let done: Vec<OpDone> =
        batch.records.iter().filter_map(|r| if let Record::OpDone(d) = r { Some(*d) } else { None }).collect();
    let count: u64 = done.iter().map(|d| d.op.count).sum();
    let started = |d: &OpDone| (d.op.started_at.0 / 1000) as i64 - (d.ended_at.0 / 1000) as i64;
    let expected =
        format!("{} {} {count} train 5 {}", batch.records.len(), done.len(), done.iter().map(started).sum::<i64>());
    assert_eq!(text.trim(), expected);
}
