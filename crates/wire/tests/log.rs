//! Logs: a flipped bit costs one entry, readers change nothing, and a full disk leaves the log as it was.
mod common;

use common::step_batch;
use mycroft_wire::codec;
use mycroft_wire::log::{LogFile, Marks, Piece, Pieces};
use proptest::prelude::*;
use std::path::Path;

const MARKS: Marks = Marks { at: 0, any_of: &[codec::MAGIC] };

fn frame(step: u64, batches: usize) -> Vec<u8> {
    let batches: Vec<_> = (0..batches).map(|rank| step_batch("job", rank as u32, step)).collect();
    codec::encode(&batches).unwrap()
}

fn write(path: &Path, frames: &[Vec<u8>]) {
    let mut log = LogFile::open(path, MARKS, &mut |_| {}).unwrap();
    let (one, rest) = frames.split_first().unwrap();
    log.append(one).unwrap();
    let rest: Vec<Vec<&[u8]>> = rest.iter().map(|frame| vec![&frame[..3], &frame[3..]]).collect();
    log.append_all(&rest.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
}

/// The entries of a log, and how many parts of it are none.
fn read(path: &Path) -> (Vec<Vec<u8>>, usize) {
    let (mut entries, mut others) = (Vec::new(), 0);
    for piece in Pieces::of_file(path, MARKS).unwrap() {
        match piece {
            Piece::Entry { content, .. } => entries.push(content),
            Piece::Damaged { .. } | Piece::Torn { .. } => others += 1,
        }
    }
    (entries, others)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Any one flipped bit costs at most one entry, is told, and reading leaves the file as it is; the next writer
    /// appends behind what is kept.
    #[test]
    fn a_flipped_bit_costs_one_entry(sizes in proptest::collection::vec(1..6usize, 1..12), bit in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let frames: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, size)| frame(n as u64, *size)).collect();
        write(&path, &frames);
        prop_assert_eq!(read(&path), (frames.clone(), 0));
        let mut bytes = std::fs::read(&path).unwrap();
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        let mut end = 0;
        let hit = frames.iter().position(|frame| { end += 8 + frame.len(); bit / 8 < end }).unwrap();
        let mut expected = frames;
        expected.remove(hit);
        prop_assert_eq!(read(&path), (expected.clone(), 1));
        prop_assert_eq!(std::fs::read(&path).unwrap(), bytes);
        let mut told = 0;
        let mut log = LogFile::open(&path, MARKS, &mut |piece| told += usize::from(!matches!(piece, Piece::Entry { .. }))).unwrap();
        prop_assert_eq!(told, 1);
        log.append(&frame(99, 1)).unwrap();
        expected.push(frame(99, 1));
        prop_assert_eq!(read(&path).0, expected);
    }

    /// A file that ends anywhere: the writer cuts what is torn, a reader does not.
    #[test]
    fn a_torn_tail_is_cut_by_the_writer_only(cut in any::<prop::sample::Index>()) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.log");
        let frames: Vec<Vec<u8>> = (0..4).map(|n| frame(n, 1 + n as usize)).collect();
        write(&path, &frames);
        let whole = std::fs::read(&path).unwrap();
        let cut = cut.index(whole.len());
        std::fs::write(&path, &whole[..cut]).unwrap();
        let (mut entries, torn) = read(&path);
        prop_assert_eq!(std::fs::metadata(&path).unwrap().len(), cut as u64);
        prop_assert!(torn <= 1 && frames.starts_with(&entries));
        let mut log = LogFile::open(&path, MARKS, &mut |_| {}).unwrap();
        log.append(&frames[3]).unwrap();
        entries.push(frames[3].clone());
        prop_assert_eq!(read(&path), (entries, 0));
    }
}

/// Not a test of its own: the process that the next test gives a limit of file size.
#[test]
fn child_that_writes_with_little_room() {
    let Some(path) = std::env::var_os("MYCROFT_TEST_LOG_CHILD") else { return };
    let path = Path::new(&path);
    let mut log = LogFile::open(path, MARKS, &mut |_| {}).unwrap();
    let frame = frame(0, 4);
    let (mut written, mut failed) = (0, 0);
    while failed < 3 {
        match log.append(&frame) {
            Ok(()) => written += 1,
            Err(_) => failed += 1,
        }
    }
    assert_eq!(read(path), (vec![frame; written], 0), "as it was before the failures");
    println!("wrote {written}");
}

/// `ulimit -f` makes every write beyond 8 KiB fail, as a full disk does, without any right being needed.
#[test]
fn a_write_that_fails_leaves_the_log_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact child_that_writes_with_little_room --nocapture";
    let output = std::process::Command::new("bash")
        .args(["-c", script])
        .arg(exe)
        .env("MYCROFT_TEST_LOG_CHILD", dir.path().join("x.log"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("wrote "), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
