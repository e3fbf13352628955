//! What the footer of a segment tells of all its rows.
use mycroft_record::HostTime;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use std::fs::File;
use std::path::Path;

/// When the earliest batch of a segment was collected, as its footer tells; `None` where it does not.
pub(crate) fn earliest(path: &Path) -> Option<HostTime> {
    earliest_of(path, "collected_at")
}

/// Whether a segment says of each batch when it arrived.
pub(crate) fn says_arrival(path: &Path) -> bool {
    earliest_of(path, "arrived_at").is_some()
}

/// The least value of a column of times, `None` where not every row has one.
fn earliest_of(path: &Path, column: &str) -> Option<HostTime> {
    let reader = || SerializedFileReader::new(File::open(path).ok()?).ok();
    let reader = std::panic::catch_unwind(reader).ok()??;
    let mut earliest: Option<u64> = None;
    for group in reader.metadata().row_groups() {
        let column = group.columns().iter().find(|found| found.column_path().string() == column)?;
        let Some(Statistics::Int64(statistics)) = column.statistics() else { return None };
        let (0, Some(least)) = (statistics.null_count_opt()?, statistics.min_opt()) else { return None };
        let least = least.cast_unsigned().checked_mul(1000)?;
        earliest = Some(earliest.map_or(least, |other| other.min(least)));
    }
    earliest.map(HostTime)
}
