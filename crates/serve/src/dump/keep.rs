//! The directory of captures: `ID/dump.json` and `ID/files/HOST/NAME`, with limits on size, number and age.
use crate::api::DumpJson;
use crate::clock::wall_now;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_wire::dir::PrivateDir;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of all captures together; the oldest go first. Eight captures of 1,024 ranks x 0.5 MB.
const BYTES_MAX: u64 = 4 << 30;
/// What all captures together may tell of processes, in bytes of memory: eight of the largest.
const TOLD_MAX: usize = 256 << 20;
/// Captures kept, also those that came to nothing.
const DUMPS_MAX: usize = 500;
/// Captures older than a week go: whoever wants one for longer downloads it.
const AGE_MAX_NS: u64 = 7 * 24 * 3600 * NANOS_PER_SEC;
/// A line about a process besides its texts.
const LINE_BYTES: usize = 256;
/// Largest `dump.json` read back: 1,024 ranks x 40 children x 200 bytes = 8 MB.
const JSON_BYTES_MAX: u64 = 64 << 20;

/// The directory.
pub(crate) struct Keep {
    dir: PathBuf,
    /// Goes with the server, and is made with the first capture.
    temporary: bool,
    made: AtomicBool,
}

impl Keep {
    /// Opens or makes it; without a name a private temporary one.
    pub(crate) fn open(dir: Option<PathBuf>) -> io::Result<Keep> {
        let Some(dir) = dir else {
            return Ok(Keep { dir: temporary_name(), temporary: true, made: AtomicBool::new(false) });
        };
        PrivateDir::open(&dir)?;
        Ok(Keep { dir, temporary: false, made: AtomicBool::new(true) })
    }

    /// Makes the directory if it is not there yet. One of that name that somebody else has made is not used.
    pub(crate) fn prepare(&self) -> io::Result<()> {
        if !self.made.load(Ordering::Relaxed) {
            DirBuilder::new().mode(0o700).create(&self.dir)?;
            self.made.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn dir_of(&self, id: u64) -> PathBuf {
        self.dir.join(id.to_string())
    }

    /// Where the files of a capture lie.
    pub(crate) fn files_of(&self, id: u64) -> PathBuf {
        self.dir_of(id).join("files")
    }

    /// The captures of earlier runs.
    pub(crate) fn load(&self) -> BTreeMap<u64, DumpJson> {
        let Ok(entries) = fs::read_dir(&self.dir) else { return BTreeMap::new() };
        let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
        let mut known = BTreeMap::new();
        for id in ids {
            match self.load_one(id) {
                Some(dump) => drop(known.insert(id, dump)),
                // The server ended in the middle of it. A refusal leaves a directory that nobody lists.
                None => drop(self.remove(id)),
            }
        }
        known
    }

    fn load_one(&self, id: u64) -> Option<DumpJson> {
        let path = self.dir_of(id).join("dump.json");
        if fs::metadata(&path).ok()?.len() > JSON_BYTES_MAX {
            return None;
        }
        let dump: DumpJson = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        (dump.id == id).then_some(dump)
    }

    /// Writes down what is known of a finished capture.
    pub(crate) fn write(&self, dump: &DumpJson) -> io::Result<()> {
        let dir = self.dir_of(dump.id);
        DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        let (part, whole) = (dir.join("dump.json.part"), dir.join("dump.json"));
        let mut file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(&serde_json::to_vec(dump)?)?;
        file.sync_all()?;
        fs::rename(part, whole)
    }

    /// What has to go: too old, too many, or too large together. The newest stays whatever its size.
    pub(crate) fn surplus(&self, known: &BTreeMap<u64, DumpJson>, running: &[u64], now: HostTime) -> Vec<u64> {
        let (mut bytes, mut told, mut kept, mut surplus) = (0u64, 0, 0, Vec::new());
        for (id, dump) in known.iter().rev().filter(|(id, _)| !running.contains(id)) {
            let own = dump.files.iter().map(|file| file.bytes).sum::<u64>();
            let old = now.since_ns(HostTime(dump.taken_at.ns)) > AGE_MAX_NS;
            let own_told: usize = dump.tried.iter().map(|tried| LINE_BYTES + tried.host.len() + tried.text.len()).sum();
            let much = bytes.saturating_add(own) > BYTES_MAX || told + own_told > TOLD_MAX;
            if kept > 0 && (old || kept >= DUMPS_MAX || much) {
                surplus.push(*id);
            } else {
                kept += 1;
                told += own_told;
                bytes = bytes.saturating_add(own);
            }
        }
        surplus
    }

    /// The server stops: what is temporary goes with it.
    pub(crate) fn end(&self) {
        if self.temporary && self.made.load(Ordering::Relaxed) {
            // It may be gone already.
            let _ = fs::remove_dir_all(&self.dir);
        }
    }

    /// Deletes a capture.
    pub(crate) fn remove(&self, id: u64) -> io::Result<()> {
        match fs::remove_dir_all(self.dir_of(id)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

impl Drop for Keep {
    fn drop(&mut self) {
        self.end();
    }
}

/// The name of a directory of our own below the system's temporary one: process and time make it ours.
fn temporary_name() -> PathBuf {
    std::env::temp_dir().join(format!("mycroft-dumps-{}-{}", std::process::id(), wall_now().0))
}
