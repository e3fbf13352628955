//! The store: replay equals what was appended, crashes, retention, damage, full disks, cases, older formats.
#[path = "../../wire/tests/common/mod.rs"]
mod common;
mod kept;

use common::{Random, any_batch, iteration, step_batch};
use kept::{HOUR, T0, files, open, replay, rounded};
use mycroft_record::*;
use mycroft_store::meta::CaseRow;
use mycroft_store::{Store, StoreConfig, read_only};
use proptest::prelude::*;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

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
                    store.append(T0, &batch).unwrap();
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
        store.append(T0, &step_batch("job", 0, step)).unwrap();
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
    assert!(store.damage().len() == 1 && store.damage()[0].contains("0000000003.log"), "{:?}", store.damage());
}

/// A reader comes whenever it likes: while an entry is written, and while a server looks whether its full disk takes anything again.
#[test]
fn who_reads_while_another_writes_meets_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let (is_over, mut read) = (AtomicBool::new(false), 0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for step in 0..200 {
                store.append(T0, &step_batch("job", 0, step)).unwrap();
                store.try_room().unwrap();
            }
            is_over.store(true, Ordering::Release);
        });
        while read < 200 {
            let ended = is_over.load(Ordering::Acquire);
            let batches = mycroft_store::read_only(dir.path()).unwrap().map(|delivery| delivery.unwrap().batch);
            read = batches.count();
            assert!(!ended || read == 200, "{read}");
        }
    });
    assert_eq!(std::fs::read_dir(dir.path().join("wal")).unwrap().count(), 1, "nothing is left");
}

/// A crash before the rename, and one between the rename and the removal of the log.
#[test]
fn a_crash_while_segments_are_written_neither_loses_nor_doubles() {
    for finished in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        for hour in 0..2 {
            store.append(T0, &step_batch("job", 0, hour)).unwrap();
        }
        drop(store);
        let log = files(dir.path(), "log").remove(0);
        let saved = std::fs::read(&log).unwrap();
        open(dir.path()).compact().unwrap();
        let segments = files(dir.path(), "parquet");
        std::fs::write(&log, saved).unwrap();
        if !finished {
            std::fs::remove_file(&segments[0]).unwrap();
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
        store.append(T0, &step_batch("job", 0, step)).unwrap();
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
    assert_eq!(store.list_cases(Some("a"), 2).unwrap(), [case(2, "a", 9), closed]);
    assert_eq!(store.list_cases(None, 10).unwrap().len(), 4);
    assert_eq!(store.list_cases(Some("a"), 10).unwrap()[2].id, u64::MAX);
    drop(store);
    assert!(store_with_broken_meta(dir.path()).list_cases(None, 10).unwrap().is_empty());
}

/// Damages the database of cases and opens the store.
fn store_with_broken_meta(dir: &Path) -> Store {
    std::fs::write(dir.join("meta.sqlite"), b"this is no database, it is a letter to a friend").unwrap();
    open(dir)
}

#[test]
fn a_broken_database_of_cases_costs_only_cases_and_is_used_again_when_it_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let store = store_with_broken_meta(dir.path());
    let trouble = store.meta_trouble().unwrap();
    assert!(trouble.contains("meta.sqlite") && trouble.contains("mycroft database"), "{trouble}");
    store.append(T0, &step_batch("job", 0, 1)).unwrap();
    let case = CaseRow {
        id: 1,
        job: "job".to_owned(),
        state: "open".to_owned(),
        opened_at: T0,
        updated_at: T0,
        json: "{}".to_owned(),
    };
    store.put_case(&case).unwrap();
    assert_eq!(store.list_cases(None, 10).unwrap(), [case]);
    assert!(!store.maintain(T0).unwrap().is_meta_back);
    std::fs::rename(dir.path().join("meta.sqlite"), dir.path().join("meta.broken")).unwrap();
    assert!(!store.maintain(T0 + NANOS_PER_SEC).unwrap().is_meta_back, "not tried every second");
    assert!(store.maintain(T0 + 60 * NANOS_PER_SEC).unwrap().is_meta_back);
    assert_eq!(store.meta_trouble(), None);
    assert_eq!(replay(&store).len(), 1);
}

/// What is new is behind what version 1 left, though the hosts' clocks say otherwise.
#[test]
fn an_old_store_is_gone_on_with_in_the_order_of_arrival() {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/store-v1");
    let dir = tempfile::tempdir().unwrap();
    for path in ["sqlite", "parquet", "log"].iter().flat_map(|extension| files(&from, extension)) {
        let target = dir.path().join(path.strip_prefix(&from).unwrap());
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(path, target).unwrap();
    }
    let old: Vec<Batch> = read_only(dir.path()).unwrap().map(|delivery| delivery.unwrap().batch).collect();
    assert_eq!(old.len(), 4);
    let store = open(dir.path());
    assert_eq!((store.damage(), store.meta_trouble()), (Vec::new(), None));
    let new = rounded(Batch { collected_at: HostTime(1000), ..step_batch("train", 9, 9) });
    store.append(T0 + 30 * HOUR, &new).unwrap();
    for compacted in [false, true] {
        let deliveries: Vec<_> = store.deliveries().unwrap().map(Result::unwrap).collect();
        assert!(deliveries[..4].iter().all(|delivery| delivery.arrives_at == delivery.batch.collected_at));
        assert_eq!(deliveries[4].arrives_at, T0 + 30 * HOUR, "compacted: {compacted}");
        let batches: Vec<Batch> = deliveries.into_iter().map(|delivery| delivery.batch).collect();
        assert_eq!(batches, [&old[..], std::slice::from_ref(&new)].concat());
        store.compact().unwrap();
    }
    assert_eq!(files(dir.path(), "log").len(), 1, "the old log became a segment");
}

/// `mycroft replay` on the store of a dead server, and of one that runs.
#[test]
fn reading_writes_nothing_and_needs_no_lock() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for step in 0..4 {
        store.append(T0, &step_batch("job", 0, step)).unwrap();
        if step == 1 {
            store.compact().unwrap();
        }
    }
    assert_eq!(read_only(dir.path()).unwrap().map(Result::unwrap).count(), 4, "a server uses it");
    drop(store);
    let log = files(dir.path(), "log").remove(0);
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[30] ^= 1;
    bytes.extend_from_slice(&[7; 5]);
    std::fs::write(&log, &bytes).unwrap();
    for name in ["lock", "meta.sqlite"] {
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    let before: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    let (good, bad): (Vec<_>, Vec<_>) = read_only(dir.path()).unwrap().partition(Result::is_ok);
    assert_eq!((good.len(), bad.len()), (3, 2));
    assert!(bad[0].as_ref().unwrap_err().to_string().contains("are damaged or were not written"), "{bad:?}");
    assert_eq!(std::fs::read(&log).unwrap(), bytes);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>(), before);
    let store = open(dir.path());
    let found = store.read_all().unwrap().flatten().count();
    assert_eq!((store.damage().len(), found), (2, 3), "the one writer passes over the entry, too");
}

/// Promise: 16 KB per iteration and host at rest (records of a host with eight ranks, a minute's segment).
#[test]
fn an_iteration_of_a_host_fits_the_promise_at_rest() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut random = Random(9);
    for number in 0..60 {
        for rank in 0..8 {
            store.append(T0, &iteration(rank, number, &mut random)).unwrap();
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
    store.append(T0, &batch).unwrap();
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
