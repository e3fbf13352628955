//! Tests of segments: the schema, and files that are damaged or of other programs.
use super::*;
use crate::footer::earliest;
use mycroft_record::{NANOS_PER_SEC, StepMark};

#[test]
fn the_schema_is_one_the_parquet_crate_accepts_and_names_are_unique() {
    let schema = parse_message_type(&schema_text()).unwrap();
    assert_eq!(schema.get_fields().len(), layout().columns.len());
    assert_eq!(FIXED[TIME].0, "time");
}

#[test]
fn a_file_of_another_program_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    std::fs::write(&path, b"PAR1 not really").unwrap();
    assert!(read_unchecked(&path).is_err());
    let schema = Arc::new(parse_message_type("message m { REQUIRED INT32 a; }").unwrap());
    let writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
    writer.close().unwrap();
    assert_eq!(read_unchecked(&path).unwrap_err(), "a Parquet file, but not one of mycroft's");
}

#[test]
fn any_damage_gives_an_error_or_batches_never_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let source = Source { job: Arc::from("j"), host: Arc::from("h"), process: None };
    let at = HostTime(1_700_000_000 * NANOS_PER_SEC);
    let records = (0..50).map(|step| Record::StepMark(StepMark { at: at + step * 1000, step })).collect();
    write(&path, &[Batch { source, collected_at: at, records }], &[]).unwrap();
    assert_eq!(earliest(&path), Some(at));
    let whole = std::fs::read(&path).unwrap();
    for cut in (0..whole.len()).step_by(211) {
        std::fs::write(&path, &whole[..cut]).unwrap();
        assert!(read_unchecked(&path).is_err() && earliest(&path).is_none(), "cut at {cut}");
    }
    for at in (0..whole.len()).step_by(41) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        std::fs::write(&path, &damaged).unwrap();
        if let Ok(batches) = read_unchecked(&path) {
            assert!(batches.iter().map(|arrived| arrived.batch.records.len()).sum::<usize>() <= 50);
        }
        let _ = earliest(&path);
    }
}
