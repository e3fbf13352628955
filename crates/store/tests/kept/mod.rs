//! A store under test: opened, read back, and its files.
#![allow(dead_code, reason = "each test binary uses some of it")]
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC};
use mycroft_store::{Store, StoreConfig};
use mycroft_wire::codec;
use std::path::{Path, PathBuf};

pub(crate) const T0: HostTime = HostTime(1_700_000_000 * NANOS_PER_SEC);
pub(crate) const HOUR: u64 = 3600 * NANOS_PER_SEC;

pub(crate) fn open(dir: &Path) -> Store {
    Store::open(dir, StoreConfig::default()).unwrap()
}

pub(crate) fn replay(store: &Store) -> Vec<Batch> {
    store.read_all().unwrap().map(Result::unwrap).collect()
}

/// As the store gives it back.
pub(crate) fn rounded(mut batch: Batch) -> Batch {
    codec::round_to_micros(&mut batch);
    batch
}

/// All files below a folder that end so, by their path.
pub(crate) fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
