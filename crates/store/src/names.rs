//! Names in the store's directory, and what they say (`docs/formats/store.md`).
use crate::error::StoreError;
use mycroft_record::time::{date_of_day, day_of_date};
use std::io;
use std::path::{Path, PathBuf};

pub(crate) fn io_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { operation, path, source }
}

pub(crate) fn wal_dir(dir: &Path) -> PathBuf {
    dir.join("wal")
}

pub(crate) fn log_path(dir: &Path, number: u64) -> PathBuf {
    wal_dir(dir).join(format!("{number:010}.log"))
}

/// One segment file as its name tells: `date=2026-11-21/hour=10/0000000012-0badcafe.parquet`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SegmentFile {
    /// Hours since the epoch.
    pub(crate) hour: u64,
    /// Number of the log that it was made of.
    pub(crate) log: u64,
    /// CRC-32C of the whole file.
    pub(crate) checksum: u32,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

pub(crate) fn hour_dir(dir: &Path, hour: u64) -> PathBuf {
    let (year, month, day) = date_of_day(hour / 24);
    dir.join("segments").join(format!("date={year:04}-{month:02}-{day:02}")).join(format!("hour={:02}", hour % 24))
}

/// Log and checksum.
fn parse_name(name: &str) -> Option<(u64, u32)> {
    let (log, checksum) = name.strip_suffix(".parquet")?.split_once('-')?;
    Some((log.parse().ok()?, u32::from_str_radix(checksum, 16).ok()?))
}

fn parse_date(name: &str) -> Option<u64> {
    let mut parts = name.strip_prefix("date=")?.split('-').map(str::parse);
    day_of_date(parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?)
}

fn names(dir: &Path) -> Result<Vec<String>, StoreError> {
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    };
    match list() {
        // Retention or an earlier look may have removed it in between.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.map_err(io_error("listing", dir)),
    }
}

/// All segments, those of the oldest hour first. Files that are not named as segments are left alone.
pub(crate) fn segments(dir: &Path) -> Result<Vec<SegmentFile>, StoreError> {
    let root = dir.join("segments");
    let mut found = Vec::new();
    for date in names(&root)? {
        let Some(day) = parse_date(&date) else { continue };
        for hour_name in names(&root.join(&date))? {
            let Some(hour) = hour_name.strip_prefix("hour=").and_then(|h| h.parse::<u64>().ok()) else { continue };
            found.extend(named_segments(&root.join(&date).join(&hour_name), day * 24 + hour)?);
        }
    }
    found.sort();
    Ok(found)
}

/// The segments in one folder, by name. Files that are not named as segments are left alone.
pub(crate) fn named_segments(folder: &Path, hour: u64) -> Result<Vec<SegmentFile>, StoreError> {
    let mut found = Vec::new();
    for name in names(folder)? {
        let Some((log, checksum)) = parse_name(&name) else { continue };
        let path = folder.join(name);
        let bytes = std::fs::metadata(&path).map_or(0, |m| m.len());
        found.push(SegmentFile { hour, log, checksum, path, bytes });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_names_and_names_have_days() {
        for days in (0..200_000).step_by(37) {
            let folder = hour_dir(Path::new(""), days * 24);
            let date = folder.parent().and_then(Path::file_name).and_then(|name| name.to_str()).expect("a date");
            assert_eq!(parse_date(date), Some(days), "{date}");
        }
        assert_eq!(parse_date("date=2026-13-01"), None);
        assert_eq!(parse_name("0000000012-0000beef.parquet"), Some((12, 0xbeef)));
        assert_eq!(parse_name("0000000012.parquet"), None);
        assert_eq!(parse_name("notes.parquet"), None);
    }
}
