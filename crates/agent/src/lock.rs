//! One agent per directory: an advisory lock that ends with the process, however it ends.
use crate::error::AgentError;
use crate::process::lock_description;
use crate::segment_dir::SegmentDir;
use mycroft_ring::AGENT_LOCK;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsStr;
use std::fs::{File, TryLockError};

/// A held lock. Its file stays when the agent ends; only the lock on it counts.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the lock of a directory. It is held in two ways: `flock` keeps other agents out, and a lock of the open file
    /// description tells tracers, which only ask (`mycroft_ring::collect`), that dead segments are this agent's to remove.
    pub(crate) fn take(dir: &SegmentDir) -> Result<DirLock, AgentError> {
        let path = dir.path().join(AGENT_LOCK);
        // The owner of the directory must be able to ask, also where the superuser makes the file.
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let file = dir
            .open_own(OsStr::new(AGENT_LOCK), OFlags::empty(), mode)
            .map_err(|source| AgentError::Lock { path: path.clone(), source })?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(AgentError::Locked { path }),
            Err(TryLockError::Error(source)) => return Err(AgentError::Lock { path, source }),
        }
        lock_description(&file).map_err(|source| AgentError::Lock { path, source })?;
        Ok(DirLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_once() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = SegmentDir::open(&temp.path().join("segments")).expect("made");
        let first = DirLock::take(&dir).expect("nobody has it");
        let second = DirLock::take(&dir).expect_err("taken");
        assert!(matches!(second, AgentError::Locked { .. }), "{second}");
        drop(first);
        DirLock::take(&dir).expect("free again");
        std::fs::remove_file(dir.path().join(AGENT_LOCK)).expect("there");
        std::fs::create_dir(dir.path().join(AGENT_LOCK)).expect("in its place");
        let refused = DirLock::take(&dir).expect_err("no file");
        assert!(matches!(refused, AgentError::Lock { .. }), "{refused}");
    }
}
