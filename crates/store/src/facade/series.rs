//! Series of jobs, and the disk that all lies on.
use super::{Store, nanos};
use crate::error::StoreError;
use crate::facade::StoreConfig;
use crate::series::{SeriesRows, StoredSeries};
use mycroft_record::HostTime;
use mycroft_wire::sync::lock;

impl Store {
    /// Bytes of the disk that the store lies on: those that are free for it, and all. Waits for the disk.
    ///
    /// # Errors
    /// When the folder cannot be asked.
    pub fn disk_bytes(&self) -> std::io::Result<(u64, u64)> {
        let dir = lock(&self.disk).dir().to_owned();
        let told = rustix::fs::statvfs(&dir)?;
        Ok((told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize))
    }

    /// What it keeps and for how long.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Keeps what of a job's series is over, and forgets what is older than records are kept. While a file of cases cannot be
    /// used nothing is kept: a restart would not have it.
    ///
    /// # Errors
    /// When the database says no.
    pub fn put_series(&self, rows: &SeriesRows, now: HostTime) -> Result<(), StoreError> {
        if self.meta_trouble().is_some() && !self.meta_waits() {
            return Ok(());
        }
        let forget_before = HostTime(now.0.saturating_sub(nanos(self.config.retain_age)));
        self.meta.keep(|meta| meta.put_series(rows, forget_before))
    }

    /// The series of a job as they were kept.
    ///
    /// # Errors
    /// When the database says no.
    pub fn series(&self, job: &str) -> Result<StoredSeries, StoreError> {
        self.meta.ask(|meta| meta.series(job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::PieceRow;

    fn rows() -> SeriesRows {
        let (start, end) = (HostTime(1), HostTime(2));
        let piece =
            PieceRow { what: "ranks", width_s: 60, kept_ns: 60, start, end, iterations: 1, sum_ms: 1.0, body: vec![1] };
        SeriesRows { job: "job".to_owned(), pieces: vec![piece], states: vec![("ranks", "[]".to_owned())] }
    }

    #[test]
    fn series_outlive_the_store_but_not_beside_a_database_that_cannot_be_used() {
        let dir = tempfile::tempdir().expect("a folder");
        let open = || Store::open(dir.path(), StoreConfig::default()).expect("a store");
        let store = open();
        store.put_series(&rows(), HostTime(3)).expect("kept");
        let (free, all) = store.disk_bytes().expect("a disk");
        assert!(free <= all && all > 0, "{free} of {all}");
        drop(store);
        assert_eq!(open().series("job").expect("read").pieces.len(), 1);
        std::fs::write(dir.path().join("meta.sqlite"), "no database").expect("writable");
        let store = open();
        assert!(store.meta_trouble().is_some());
        store.put_series(&rows(), HostTime(3)).expect("no error, and nothing is kept");
        assert_eq!(store.series("job").expect("read").pieces, []);
    }
}
