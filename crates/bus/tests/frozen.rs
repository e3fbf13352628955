//! What agents of earlier releases have written must stay understood: topics keep it for days. A frozen record per version in
//! `testdata/vN`; `MYCROFT_WRITE_SAMPLES=1 cargo test -p mycroft-bus --test frozen` makes one that is not there.
use mycroft_bus::Entry;
use mycroft_record::{Batch, HostTime, Record, Source, StepMark};
use mycroft_wire::codec;
use std::path::PathBuf;

fn batch() -> Batch {
    let at = HostTime(1_700_000_000_000_000_000);
    let source = Source { job: "train-7".into(), host: "host0".into(), process: None };
    Batch { source, collected_at: at, records: vec![Record::StepMark(StepMark { at, step: 7 })] }
}

fn entry() -> Entry {
    Entry {
        agent: 0x0102_0304_0506_0708,
        machine: 9,
        sequence: 77,
        sent: HostTime(1_700_000_000_100_000_000),
        host: "host0".to_owned(),
        software: "mycroft 0.1.0".to_owned(),
        frame: codec::encode(&[batch()]).expect("it fits"),
    }
}

#[test]
fn a_record_of_version_1_is_understood() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/v1/record.bin");
    if std::env::var_os("MYCROFT_WRITE_SAMPLES").is_some() && !path.exists() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, entry().encode()).expect("written");
    }
    let read = Entry::decode(&std::fs::read(&path).expect("a sample")).expect("a record");
    assert_eq!(codec::decode(&read.frame).expect("a frame").batches, [batch()]);
    assert_eq!(Entry { frame: Vec::new(), ..read }, Entry { frame: Vec::new(), ..entry() });
}
