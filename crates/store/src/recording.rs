//! Recordings: a folder of segments that say when each batch arrived (`docs/formats/store.md`, "Recordings").
//!
//! The same batches in the same order give the same bytes. Files are `records/NUMBER-CHECKSUM.parquet`, in the order of
//! arrival, each readable by any Parquet reader.
use crate::delivery::Deliveries;
use crate::error::StoreError;
use crate::names::{SegmentFile, io_error, named_segments};
use crate::segment;
use mycroft_record::{Batch, HostTime};
use mycroft_wire::codec;
use std::path::{Path, PathBuf};

/// The folder of the files inside a recording's.
pub const RECORDS: &str = "records";

/// One file of a recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordingFile {
    /// Relative to the recording's folder.
    pub name: String,
    /// Bytes.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
}

/// Writes a recording.
#[derive(Debug)]
pub struct RecordingWriter {
    records_dir: PathBuf,
    batches: Vec<Batch>,
    arrivals: Vec<HostTime>,
    /// Records of `batches`.
    records: usize,
    written: Vec<RecordingFile>,
}

impl RecordingWriter {
    /// A recording in `dir`, which is made where it is missing. It must not hold one already.
    ///
    /// # Errors
    /// When the folder cannot be made, or holds a recording.
    pub fn create(dir: &Path) -> Result<RecordingWriter, StoreError> {
        std::fs::create_dir_all(dir).map_err(io_error("creating", dir))?;
        let records_dir = dir.join(RECORDS);
        std::fs::create_dir(&records_dir).map_err(io_error("creating", &records_dir))?;
        Ok(RecordingWriter { records_dir, batches: Vec::new(), arrivals: Vec::new(), records: 0, written: Vec::new() })
    }

    /// Adds a batch that arrives not before its predecessors. Times are rounded down to whole microseconds; batches
    /// without records are not kept.
    ///
    /// # Errors
    /// When a full file cannot be written, or the batch alone would not fit into one.
    pub fn append(&mut self, arrives_at: HostTime, mut batch: Batch) -> Result<(), StoreError> {
        if batch.records.len() > segment::MAX_ROWS {
            let reason = format!("a batch of {} records, at most {}", batch.records.len(), segment::MAX_ROWS);
            return Err(StoreError::Segment { path: self.records_dir.clone(), reason });
        }
        if batch.records.is_empty() {
            return Ok(());
        }
        if self.records + batch.records.len() > segment::MAX_ROWS {
            self.write_file()?;
        }
        codec::round_to_micros(&mut batch);
        self.records += batch.records.len();
        self.batches.push(batch);
        self.arrivals.push(arrives_at);
        Ok(())
    }

    /// Writes what is left and says what there is.
    ///
    /// # Errors
    /// When the last file cannot be written.
    pub fn finish(mut self) -> Result<Vec<RecordingFile>, StoreError> {
        if self.records > 0 {
            self.write_file()?;
        }
        Ok(self.written)
    }

    fn write_file(&mut self) -> Result<(), StoreError> {
        let number = self.written.len() + 1;
        let temporary = self.records_dir.join(format!("{number:010}.tmp"));
        let checksum = segment::write(&temporary, &self.batches, &self.arrivals)
            .map_err(|e| StoreError::Segment { path: temporary.clone(), reason: e.to_string() })?;
        let name = format!("{number:010}-{checksum:08x}.parquet");
        let target = self.records_dir.join(&name);
        std::fs::rename(&temporary, &target).map_err(io_error("renaming to", &target))?;
        let bytes = std::fs::metadata(&target).map_err(io_error("reading", &target))?.len();
        self.written.push(RecordingFile { name: format!("{RECORDS}/{name}"), bytes, records: self.records as u64 });
        self.batches.clear();
        self.arrivals.clear();
        self.records = 0;
        Ok(())
    }
}

/// Whether a folder holds a recording.
pub fn is_recording(dir: &Path) -> bool {
    dir.join(RECORDS).is_dir()
}

/// The deliveries of a recording, one file in memory at a time.
///
/// # Errors
/// When the folder cannot be listed.
pub fn read(dir: &Path) -> Result<Deliveries, StoreError> {
    let mut files: Vec<SegmentFile> = named_segments(&dir.join(RECORDS), 0)?;
    files.sort();
    Ok(Deliveries::recorded(files))
}
