//! `mycroft export`: what other tools read is what was recorded.
mod common;

use common::{refusal, say};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn recorded(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../serve/tests/recorded").join(name).display().to_string()
}

/// What a recording has, by its own lines: operations that ended, flows that ended.
fn counted(store: &str) -> BTreeMap<String, usize> {
    let said = say(&["replay", store, "--records"]);
    let mut counts = BTreeMap::new();
    for line in said.stdout.lines() {
        let kind = line.split('"').nth(3).expect("a kind").to_owned();
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

fn exported(store: &str, format: &str, more: &[&str]) -> (String, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("out");
    let said = say(&[&["export", store, "--format", format, "--out", &file.display().to_string()], more].concat());
    assert_eq!(said.code, Some(0), "{said:?}");
    (said.stderr, std::fs::read(&file).expect("it is there"))
}

#[test]
fn rows_are_the_operations_that_were_recorded_and_those_in_flight() {
    let store = recorded("gpu-hang.frames");
    let ended = counted(&store)["OpDone"];
    let (said, bytes) = exported(&store, "csv", &[]);
    let csv = String::from_utf8(bytes).expect("text");
    let (head, rows) = csv.split_once('\n').expect("a head");
    assert!(head.starts_with("job,host,rank,pid,communicator,") && said.contains("operations: "), "{head} {said}");
    let in_flight = rows.lines().filter(|row| row.ends_with(",,false")).count();
    assert_eq!(rows.lines().count(), ended + in_flight);
    assert!(in_flight >= 7, "all but one rank hang in an operation: {in_flight}");
    let (_, json) = exported(&store, "json", &[]);
    let json = String::from_utf8(json).expect("text");
    assert_eq!(json.lines().count(), rows.lines().count());
    let last: serde_json::Value = serde_json::from_str(json.lines().last().expect("a line")).expect("JSON");
    assert!(last["ended_ns"].is_null() && last["enqueued_ns"].is_u64() && last["kind"].is_string(), "{last}");
    // A second before the last record: less of it, and nothing of before.
    let (_, less) = exported(&store, "csv", &["--from", "-1"]);
    assert!(less.len() < csv.len() / 2, "{} of {} bytes", less.len(), csv.len());
}

/// A cell of Parquet as CSV writes it.
fn cell(field: &Field) -> String {
    match field {
        Field::Null => String::new(),
        Field::Str(text) => text.clone(),
        Field::Bool(flag) => flag.to_string(),
        Field::UByte(number) => number.to_string(),
        Field::UShort(number) => number.to_string(),
        Field::UInt(number) => number.to_string(),
        Field::ULong(number) => number.to_string(),
        // The reader knows no nanoseconds: as they are stored.
        Field::Long(nanos) => nanos.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn parquet_has_the_rows_of_csv_with_times_as_times() {
    let store = recorded("gpu-hang.frames");
    let (_, csv) = exported(&store, "csv", &[]);
    let mut csv = csv::Reader::from_reader(csv.as_slice());
    let head: Vec<String> = csv.headers().expect("a head").iter().map(|name| name.replace("_ns", "_at")).collect();
    let wanted: Vec<Vec<String>> =
        csv.records().map(|row| row.expect("a row").iter().map(str::to_owned).collect()).collect();
    let (said, bytes) = exported(&store, "parquet", &[]);
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(&bytes).expect("written");
    let reader = SerializedFileReader::new(file).expect("Parquet");
    let schema = reader.metadata().file_metadata().schema_descr();
    let names: Vec<&str> = schema.columns().iter().map(|column| column.name()).collect();
    assert_eq!(names, head);
    for column in schema.columns().iter().filter(|column| column.name().ends_with("_at")) {
        let told = format!("{:?}", column.logical_type_ref());
        assert!(told.to_lowercase().contains("nano") && told.contains("is_adjusted_to_u_t_c: true"), "{told}");
    }
    let rows = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row"));
    let read: Vec<Vec<String>> =
        rows.map(|row| row.get_column_iter().map(|(_, field)| cell(field)).collect()).collect();
    assert!(read.len() > 1_000 && said.contains(&format!("{} operations", read.len())), "{said}");
    assert_eq!(read.len(), wanted.len());
    for (read, wanted) in read.iter().zip(&wanted) {
        assert_eq!(read, wanted);
    }
    // Some time is not known, of an end: it is in flight.
    let ended = head.iter().position(|name| name == "ended_at").expect("a column");
    assert!(read.iter().any(|row| row[ended].is_empty()) && read.iter().any(|row| !row[ended].is_empty()));
}

#[test]
fn what_cannot_be_exported_is_said_and_no_file_is_left() {
    let folder = tempfile::tempdir().expect("a directory");
    let out = folder.path().join("out").display().to_string();
    let store = recorded("gpu-hang.frames");
    for (args, word) in [
        (&["--job", "nobody"][..], "no records of job nobody"),
        (&["--from", "yesterday"], "yesterday"),
        (&["--to", "2001-01-01T00:00:00Z"], "records go on until 20"),
    ] {
        let line = refusal(&[&["export", &store, "--format", "csv", "--out", &out], args].concat());
        assert!(line.contains(word), "{line}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
}

/// Perfetto's own definitions of the format read the trace: counts agree, slices nest, both ends of a flow have the same arrow.
#[test]
fn perfetto_reads_the_trace() {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/perfetto");
    if !tools.exists() {
        eprintln!("skipped: no definitions of Perfetto here (`cargo xtask test` installs them)");
        return;
    }
    let store = recorded("gpu-hang.frames");
    let (said, bytes) = exported(&store, "perfetto", &[]);
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("hang.pftrace");
    std::fs::write(&file, bytes).expect("written");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/perfetto_reads.py");
    let mut python = Command::new("python3");
    let output = python.arg(script).arg(&file).env("PYTHONPATH", &tools).env("PYTHONDONTWRITEBYTECODE", "1").output();
    let output = output.expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let counts = counted(&store);
    assert_eq!(told["flow"], counts["FlowDone"], "{told}");
    assert_eq!(told["operation"], serde_json::json!(counts["OpDone"] as u64 + told["in flight"].as_u64().unwrap_or(0)));
    assert_eq!((&told["case"], told["processes"].as_u64()), (&1.into(), Some(9)), "eight ranks and the cases: {told}");
    let (both, one) =
        (told["arrows of two ends"].as_u64().unwrap_or(0), told["arrows of one end"].as_u64().unwrap_or(0));
    assert!(both > 1_000 && one < both / 20, "{told} {said}");
}
