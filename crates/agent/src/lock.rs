//! One agent per directory: an advisory lock that ends with the process, however it ends.
use crate::error::AgentError;
use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Name of the lock file. It stays when the agent ends; only the lock on it counts.
const LOCK_FILE: &str = "agent.lock";

/// A held lock.
#[derive(Debug)]
pub(crate) struct DirLock {
    _file: File,
}

impl DirLock {
    /// Takes the lock of a directory.
    pub(crate) fn take(dir: &Path) -> Result<DirLock, AgentError> {
        let path = dir.join(LOCK_FILE);
        let open = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(&path);
        let file = open.map_err(|source| AgentError::Lock { path: path.clone(), source })?;
        match file.try_lock() {
            Ok(()) => Ok(DirLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(AgentError::Locked { path }),
            Err(TryLockError::Error(source)) => Err(AgentError::Lock { path, source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let first = DirLock::take(dir.path()).expect("nobody has it");
        let second = DirLock::take(dir.path()).expect_err("taken");
        assert!(matches!(second, AgentError::Locked { .. }), "{second}");
        drop(first);
        DirLock::take(dir.path()).expect("free again");
        let missing = DirLock::take(&dir.path().join("nowhere")).expect_err("no such directory");
        assert!(matches!(missing, AgentError::Lock { .. }), "{missing}");
    }
}
