//! Deliveries: the order in which a replay takes batches in, from a server's store and from a recording.
#[path = "../../wire/tests/common/mod.rs"]
mod common;
mod kept;

use common::{any_batch, step_batch};
use kept::{T0, open, rounded};
use mycroft_record::*;
use mycroft_store::recording::{self, RecordingWriter};
use mycroft_store::runs::{Happening, before, history, runs};
use mycroft_store::{Delivery, segment};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// Writes the same as a recording and gives its files with their content.
fn record(dir: &Path, deliveries: &[Delivery]) -> BTreeMap<String, Vec<u8>> {
    let mut writer = RecordingWriter::create(dir).unwrap();
    for Delivery { arrives_at, batch } in deliveries {
        writer.append(*arrives_at, batch.clone()).unwrap();
    }
    let files = writer.finish().unwrap();
    let content = |name: &str| std::fs::read(dir.join(name)).unwrap();
    let found: BTreeMap<String, Vec<u8>> = files.iter().map(|file| (file.name.clone(), content(&file.name))).collect();
    for file in &files {
        assert_eq!(file.bytes, found[&file.name].len() as u64);
    }
    assert_eq!(std::fs::read_dir(dir.join(recording::RECORDS)).unwrap().count(), files.len());
    found
}

fn read(dir: &Path) -> Vec<Delivery> {
    recording::read(dir).unwrap().map(Result::unwrap).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// However batches are spread over logs and segments, and whatever their hosts' clocks say, they come as they
    /// arrived.
    #[test]
    fn a_store_delivers_in_the_order_of_arrival(
        batches in proptest::collection::vec((any_batch(), 0..4_u64, 0..3_u8), 1..24)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut store = open(dir.path());
        let (mut now, mut wanted) = (T0, Vec::new());
        for (batch, minutes, then) in batches {
            now = now + minutes * 30 * 60 * NANOS_PER_SEC;
            store.append(now, &batch).unwrap();
            wanted.push(Delivery { arrives_at: now, batch: rounded(batch) });
            match then {
                0 => drop(store.compact().unwrap()),
                1 => {
                    drop(store);
                    store = open(dir.path());
                }
                _ => {}
            }
        }
        let full = |all: Vec<Delivery>| -> Vec<Delivery> {
            all.into_iter().filter(|delivery| !delivery.batch.records.is_empty()).collect()
        };
        let found: Vec<Delivery> = store.deliveries().unwrap().map(Result::unwrap).collect();
        prop_assert_eq!(full(found), full(wanted));
    }

    /// A recording gives back what was recorded, and the same deliveries give the same bytes.
    #[test]
    fn a_recording_keeps_order_and_arrival(batches in proptest::collection::vec((any_batch(), 0..5_000_000_u64), 0..24)) {
        let mut now = T0;
        let deliveries: Vec<Delivery> = batches
            .into_iter()
            .map(|(batch, later)| {
                now = now + later;
                Delivery { arrives_at: HostTime(now.0 / 1000 * 1000), batch: rounded(batch) }
            })
            .collect();
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        prop_assert_eq!(record(one.path(), &deliveries), record(two.path(), &deliveries));
        let kept: Vec<Delivery> =
            deliveries.into_iter().filter(|delivery| !delivery.batch.records.is_empty()).collect();
        prop_assert_eq!(read(one.path()), kept);
    }
}

#[test]
fn a_full_file_is_followed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let big = |at: u64| {
        let batch = step_batch("job", 0, at);
        let mark = |step| Record::StepMark(StepMark { at: T0, step });
        Batch { records: (0..segment::MAX_ROWS as u64 / 2).map(mark).collect(), ..batch }
    };
    let deliveries: Vec<Delivery> =
        (0..3).map(|at| Delivery { arrives_at: T0 + at * 1000, batch: rounded(big(at)) }).collect();
    assert_eq!(record(dir.path(), &deliveries).len(), 2);
    assert_eq!(read(dir.path()), deliveries);
    let mut two = RecordingWriter::create(tempfile::tempdir().unwrap().path()).unwrap();
    let batch = Batch { records: [big(0).records, big(1).records, big(2).records].concat(), ..big(0) };
    let error = two.append(T0, batch).unwrap_err().to_string();
    assert!(error.contains("786432 records, at most 524288"), "{error}");
}

#[test]
fn a_damaged_file_is_named_and_the_rest_is_delivered() {
    for recorded in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let batches: Vec<Batch> = (0..3).map(|step| step_batch("job", step as u32, step)).collect();
        let folder = if recorded {
            let mut numbers = 0;
            for batch in &batches {
                // One recording a file, put together by hand.
                let part = tempfile::tempdir().unwrap();
                let delivery = Delivery { arrives_at: batch.collected_at, batch: batch.clone() };
                numbers += 1;
                for (name, content) in record(part.path(), &[delivery]) {
                    let name = name.replace("0000000001", &format!("{numbers:010}"));
                    std::fs::create_dir_all(dir.path().join(recording::RECORDS)).unwrap();
                    std::fs::write(dir.path().join(name), content).unwrap();
                }
            }
            dir.path().join(recording::RECORDS)
        } else {
            let store = open(dir.path());
            for batch in &batches {
                store.append(T0, batch).unwrap();
                store.compact().unwrap();
            }
            let date = std::fs::read_dir(dir.path().join("segments")).unwrap().next().unwrap().unwrap().path();
            std::fs::read_dir(date).unwrap().next().unwrap().unwrap().path()
        };
        let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let mut bytes = std::fs::read(&files[1]).unwrap();
        bytes[20] ^= 0x55;
        std::fs::write(&files[1], bytes).unwrap();
        let all: Vec<_> = match recorded {
            true => recording::read(dir.path()).unwrap().collect(),
            false => open(dir.path()).deliveries().unwrap().collect(),
        };
        let errors: Vec<String> = all.iter().filter_map(|one| one.as_ref().err().map(ToString::to_string)).collect();
        let name = files[1].file_name().unwrap().to_string_lossy().into_owned();
        assert!(errors.len() == 1 && errors[0].contains(&name) && errors[0].contains("checksum"), "{errors:?}");
        assert_eq!(all.len() - errors.len(), 2, "recorded: {recorded}");
    }
}

#[test]
fn what_is_no_recording_is_not_taken_for_one() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!recording::is_recording(dir.path()));
    RecordingWriter::create(dir.path()).unwrap().finish().unwrap();
    assert!(recording::is_recording(dir.path()) && read(dir.path()).is_empty());
    assert!(RecordingWriter::create(dir.path()).unwrap_err().to_string().contains("creating"));
}

/// Runs that had nothing to take in, that ended without a word, or that told and stopped, come in their order between what
/// each took in; a file that was never written says nothing.
#[test]
fn a_history_has_each_run_around_what_it_took_in() {
    let dir = tempfile::tempdir().unwrap();
    let at = |second: u64| T0 + second * NANOS_PER_SEC;
    open(dir.path()).append(at(0), &step_batch("job", 0, 0)).unwrap();
    for run in 1..5 {
        let store = open(dir.path());
        store.note_started(at(run * 10), run).unwrap();
        if run != 2 {
            store.append(at(run * 10 + 1), &step_batch("job", 0, run)).unwrap();
        }
        if run == 3 {
            store.compact().unwrap();
            store.append(at(run * 10 + 2), &step_batch("job", 0, run)).unwrap();
        }
        match run {
            1 => store.note_told(at(12)).unwrap(),
            3 => {
                store.note_told(at(34)).unwrap();
                store.note_stopped(at(35)).unwrap();
            }
            _ => {}
        }
    }
    let words: Vec<String> = history(dir.path())
        .unwrap()
        .map(|one| match one.unwrap() {
            Happening::Started(run) => {
                format!("{} started, case {}", run.at.since_ns(T0) / NANOS_PER_SEC, run.next_case)
            }
            Happening::Delivered(one) => format!("{} delivered", one.arrives_at.since_ns(T0) / NANOS_PER_SEC),
            Happening::ToldUntil(at) => format!("{} told", at.since_ns(T0) / NANOS_PER_SEC),
            Happening::Stopped(at) => format!("{} stopped", at.since_ns(T0) / NANOS_PER_SEC),
        })
        .collect();
    let wanted = [
        "0 delivered",
        "10 started, case 1",
        "11 delivered",
        "12 told",
        "20 started, case 2",
        "30 started, case 3",
        "31 delivered",
        "32 delivered",
        "35 stopped",
        "40 started, case 4",
        "41 delivered",
    ];
    assert_eq!(words, wanted);
    let third = runs(dir.path()).unwrap()[2];
    let earlier: Vec<HostTime> =
        before(&dir.path().into(), &third, HostTime::NONE).unwrap().map(|one| one.unwrap().arrives_at).collect();
    assert_eq!(earlier, [at(0), at(11)]);
}
