//! Frames: round trips, hostile bytes, frozen samples, newer peers, volume.
mod common;

use common::{Random, any_batch, iteration, step_batch};
use mycroft_record::{Batch, HostTime};
use mycroft_wire::codec::{self, DecodeError, HEADER_BYTES, decode, encode};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn what_goes_in_comes_out(batches in proptest::collection::vec(any_batch(), 0..6)) {
        let frame = encode(&batches).unwrap();
        let decoded = decode(&frame).unwrap();
        prop_assert_eq!(decoded.batches, batches);
        prop_assert_eq!(decoded.skipped_records, 0);
    }

    #[test]
    fn round_is_what_rounding_does_not_change(mut batch in any_batch()) {
        // Else that time alone would decide nearly always.
        batch.collected_at.0 -= batch.collected_at.0 % 1000;
        let exact = batch.clone();
        codec::round_to_micros(&mut batch);
        prop_assert!(codec::is_round(&batch));
        prop_assert_eq!(codec::is_round(&exact), exact == batch);
    }

    #[test]
    fn damaged_frames_are_refused(batches in proptest::collection::vec(any_batch(), 1..4), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut frame = encode(&batches).unwrap();
        let index = at.index(frame.len());
        // The two reserved bytes and the minor version may be anything, but the checksum covers them too.
        frame[index] ^= 1 << bit;
        prop_assert!(decode(&frame).is_err());
    }

    #[test]
    fn cut_frames_are_refused(batches in proptest::collection::vec(any_batch(), 1..4), at in any::<prop::sample::Index>()) {
        let frame = encode(&batches).unwrap();
        prop_assert!(decode(&frame[..at.index(frame.len())]).is_err());
    }

    /// A hostile peer computes its checksum right; nothing may panic or eat memory behind it.
    #[test]
    fn hostile_content_never_panics(batches in proptest::collection::vec(any_batch(), 1..4), edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut raw = raw_of(&encode(&batches).unwrap());
        for (at, byte) in &edits {
            let index = at.index(raw.len());
            raw[index] = *byte;
        }
        let records: usize = batches.iter().map(|b| b.records.len()).sum();
        if let Ok(decoded) = decode(&frame_of(records as u32, &raw)) {
            let found: usize = decoded.batches.iter().map(|b| b.records.len()).sum();
            prop_assert!(found <= records);
        }
    }

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&bytes).is_err());
    }
}

fn raw_of(frame: &[u8]) -> Vec<u8> {
    zstd::bulk::decompress(&frame[HEADER_BYTES..], codec::MAX_RAW_BYTES).unwrap()
}

/// A frame around any content, with sizes and checksum that fit.
fn frame_of(records: u32, raw: &[u8]) -> Vec<u8> {
    let stored = zstd::bulk::compress(raw, 1).unwrap();
    let mut frame = b"MYCB\x01\x00\x00\x00".to_vec();
    for size in [records, raw.len() as u32, stored.len() as u32] {
        frame.extend_from_slice(&size.to_le_bytes());
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&frame), &stored);
    frame.extend_from_slice(&crc.to_le_bytes());
    frame.extend_from_slice(&stored);
    frame
}

#[test]
fn a_newer_minor_version_is_read_as_far_as_known() {
    // Strings "", "j", "h"; one batch of three records: StepMark, a kind 200, StepMark. StepMark has a third column.
    let mut raw = vec![3, 0, 1, b'j', 1, b'h'];
    raw.extend_from_slice(&[1, 1, 2, 0, 9, 3]);
    raw.extend_from_slice(&[3, 13, 1, 200, 1, 13, 1]);
    raw.extend_from_slice(&[13, 2, 11, 3, 2, 0, 5, 3, 0x10, 7, 8, 2, 0, 99]);
    raw.extend_from_slice(&[200, 1, 4, 0xde, 0xad, 0xbe, 0xef]);
    let decoded = decode(&frame_of(3, &raw)).unwrap();
    assert_eq!(decoded.skipped_records, 1);
    let room = |batch: &Batch| (batch.records.capacity(), batch.records.len());
    assert!(decoded.batches.iter().map(room).all(|(room, records)| room == records), "what was skipped keeps no room");
    let marks = &decoded.batches[0].records;
    assert_eq!(
        format!("{marks:?}"),
        "[StepMark(StepMark { at: HostTime(5), step: 7 }), StepMark(StepMark { at: HostTime(5), step: 8 })]"
    );
}

#[test]
fn a_bomb_is_refused_before_it_is_inflated() {
    let mut frame = frame_of(1, &vec![0; 1 << 20]);
    frame[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(decode(&frame), Err(DecodeError::TooLarge { what: "bytes after decompression", .. })));
    let mut frame = frame_of(1, &[0]);
    frame[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(decode(&frame), Err(DecodeError::TooLarge { what: "records", .. })));
}

#[test]
fn too_much_for_one_frame_is_an_error_not_a_panic() {
    let batch = step_batch("job", 0, 1);
    assert!(encode(&vec![batch.clone(); codec::MAX_BATCHES + 1]).is_err());
    let long = Batch { records: vec![batch.records[0].clone(); codec::MAX_RECORDS + 1], ..batch };
    assert!(encode(&[long]).unwrap_err().to_string().contains("split"));
}

fn host_iteration(number: u64, random: &mut Random) -> Vec<Batch> {
    (0..8).map(|rank| iteration(rank, number, random)).collect()
}

/// The sample of the format's first version must stay readable for ever. To make it anew (only before a release):
/// `MYCROFT_WRITE_SAMPLE=1 cargo test -p mycroft-wire --test codec frozen`.
#[test]
fn the_frozen_sample_of_version_1_stays_readable() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/v1/frame.bin");
    let batches = host_iteration(3, &mut Random(42));
    if std::env::var_os("MYCROFT_WRITE_SAMPLE").is_some() {
        std::fs::write(path, encode(&batches).unwrap()).unwrap();
    }
    let decoded = decode(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(decoded.batches, batches);
}

/// Promise: 16 KB per iteration and host; a host's iteration shipped as one frame, times in microseconds.
#[test]
fn a_host_iteration_fits_the_promise() {
    let mut random = Random(1);
    let mut exact = 0;
    let mut rounded = 0;
    for number in 0..10 {
        let mut batches = host_iteration(number, &mut random);
        exact += encode(&batches).unwrap().len();
        for batch in &mut batches {
            codec::round_to_micros(batch);
        }
        rounded += encode(&batches).unwrap().len();
    }
    println!("bytes per host and iteration: {} with ns, {} with us", exact / 10, rounded / 10);
    assert!(rounded / 10 <= 16 * 1024, "{} bytes", rounded / 10);
}

#[test]
fn rounding_keeps_known_times_known() {
    let mut batch = step_batch("job", 0, 1);
    batch.collected_at = HostTime(999);
    codec::round_to_micros(&mut batch);
    assert_eq!(batch.collected_at, HostTime(1000));
}

#[test]
fn every_cause_of_a_gap_is_kept_and_one_of_the_future_is_read_as_damage() {
    use mycroft_record::{Gap, GapCause, Record};
    use mycroft_wire::cells::{self, Interner, Kind};
    let causes = [
        (GapCause::Damaged, 0),
        (GapCause::RingLapped, 1),
        (GapCause::ProbeDropped, 2),
        (GapCause::SpoolDropped, 3),
        (GapCause::ServerDropped, 4),
    ];
    for (cause, code) in causes {
        let record = Record::Gap(Gap { noticed_at: HostTime(1), lost: 2, cause });
        let mut row = Vec::new();
        cells::put(&record, &mut Interner::default(), &mut row);
        assert_eq!(row, [1, 2, code]);
        assert_eq!(cells::take(Kind::Gap, &[], row), Ok(record));
    }
    let damaged = Record::Gap(Gap { noticed_at: HostTime(1), lost: 2, cause: GapCause::Damaged });
    assert_eq!(cells::take(Kind::Gap, &[], [1, 2, 99]), Ok(damaged));
}
