//! Finding segments: what is new in the directory, what is worth opening, what was already refused.
use crate::config::{DIR_ENTRIES_MAX, OPEN_GRACE};
use crate::segment_dir::SegmentDir;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The names of a directory and what became of each.
#[derive(Debug)]
pub(crate) struct Directory {
    dir: SegmentDir,
    names: BTreeMap<OsString, Fate>,
    scan: u64,
}

#[derive(Debug)]
struct Fate {
    state: State,
    seen_in_scan: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// To be opened, since then.
    Waiting(Instant),
    /// Open.
    Attached,
    /// Reported and left alone for as long as the file is there.
    Refused,
}

impl Directory {
    pub(crate) fn new(dir: SegmentDir) -> Directory {
        Directory { dir, names: BTreeMap::new(), scan: 0 }
    }

    pub(crate) fn dir(&self) -> &SegmentDir {
        &self.dir
    }

    /// Segment files that wait to be opened, in name order.
    pub(crate) fn scan(&mut self, now: Instant, is_segment: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
        self.scan += 1;
        for name in self.dir.names(DIR_ENTRIES_MAX)? {
            if !name.to_str().is_some_and(&is_segment) {
                continue;
            }
            let fate = self.names.entry(name).or_insert(Fate { state: State::Waiting(now), seen_in_scan: 0 });
            fate.seen_in_scan = self.scan;
        }
        let scan = self.scan;
        self.names.retain(|_, fate| fate.seen_in_scan == scan);
        let waiting = self.names.iter().filter(|(_, fate)| matches!(fate.state, State::Waiting(_)));
        Ok(waiting.map(|(name, _)| self.dir.path().join(name)).collect())
    }

    /// Whether the file is still there, as of the last scan.
    pub(crate) fn has(&self, path: &Path) -> bool {
        path.file_name().is_some_and(|name| self.names.contains_key(name))
    }

    /// Whether the file was refused.
    pub(crate) fn is_refused(&self, path: &Path) -> bool {
        let fate = path.file_name().and_then(|name| self.names.get(name));
        fate.is_some_and(|fate| fate.state == State::Refused)
    }

    /// The file was opened.
    pub(crate) fn attached(&mut self, path: &Path) {
        self.set(path, State::Attached);
    }

    /// The file was refused, for as long as it is there.
    pub(crate) fn refused(&mut self, path: &Path) {
        self.set(path, State::Refused);
    }

    /// Whether a file that cannot be opened had long enough to become one that can.
    pub(crate) fn had_its_time(&self, path: &Path, now: Instant) -> bool {
        match path.file_name().and_then(|name| self.names.get(name)).map(|fate| fate.state) {
            Some(State::Waiting(since)) => now.saturating_duration_since(since) >= OPEN_GRACE,
            _ => false,
        }
    }

    fn set(&mut self, path: &Path, state: State) {
        if let Some(fate) = path.file_name().and_then(|name| self.names.get_mut(name)) {
            fate.state = state;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn is_segment(name: &str) -> bool {
        name.ends_with(".seg")
    }

    #[test]
    fn a_file_waits_until_it_is_opened_or_had_its_time() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut directory = Directory::new(SegmentDir::open(dir.path()).expect("ours"));
        let now = Instant::now();
        let path = dir.path().join("a.seg");
        assert!(directory.scan(now, is_segment).expect("readable").is_empty());
        fs::write(&path, "").expect("write");
        fs::write(dir.path().join("other"), "").expect("write");
        assert_eq!(directory.scan(now, is_segment).expect("readable"), std::slice::from_ref(&path));
        assert!(!directory.had_its_time(&path, now + OPEN_GRACE / 2));
        assert!(directory.had_its_time(&path, now + OPEN_GRACE));
        directory.refused(&path);
        assert!(directory.is_refused(&path));
        assert!(!directory.had_its_time(&path, now + OPEN_GRACE * 2), "it waits no more");
        assert!(directory.scan(now, is_segment).expect("readable").is_empty());
        fs::remove_file(&path).expect("remove");
        assert!(directory.scan(now, is_segment).expect("readable").is_empty());
        fs::write(&path, "").expect("write");
        assert_eq!(
            directory.scan(now, is_segment).expect("readable"),
            std::slice::from_ref(&path),
            "a new file is a new chance"
        );
        directory.attached(&path);
        assert!(directory.scan(now, is_segment).expect("readable").is_empty());
        assert!(directory.has(&path));
        fs::remove_file(&path).expect("remove");
        directory.scan(now, is_segment).expect("readable");
        assert!(!directory.has(&path));
    }
}
