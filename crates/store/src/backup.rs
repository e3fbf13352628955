//! A copy of a store while its server uses it (`docs/formats/store.md`, "Backup").
use crate::error::StoreError;
use crate::facade::{META_FILE, META_WAITING};
use crate::meta;
use crate::names::{io_error, log_path, segments, wal_dir};
use mycroft_wire::log::{create_private_dir, numbered_files, sync_dir};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

/// What is in the folder and is not copied as a file: copied in another way, or of the server's process.
const APART: [&str; 3] = ["lock", "wal", "segments"];
/// Databases, each with its log (`-wal`, `-shm`): copied as they are at one moment.
const DATABASES: [&str; 2] = [META_FILE, META_WAITING];

/// What a backup holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BackedUp {
    /// Files.
    pub files: u64,
    /// Bytes of them, but for the database.
    pub bytes: u64,
}

/// Copies a store, also one that a server writes to: all that it had acknowledged when the copying began. `to` is made; a server
/// can be started with it.
///
/// Logs go before segments: a log that became a segment meanwhile is found as that, and a segment whose log was copied does not
/// count. Cases go before both, so that no case lacks its records.
///
/// # Errors
/// `to` is there already; something cannot be read or written. What was copied until then stays.
pub fn back_up(dir: &Path, to: &Path) -> Result<BackedUp, StoreError> {
    if to.exists() {
        return Err(io_error("creating", to)(io::Error::new(ErrorKind::AlreadyExists, "it is there already")));
    }
    let mut done = BackedUp::default();
    create_private_dir(&wal_dir(to)).map_err(io_error("creating", to))?;
    for name in DATABASES {
        let database = dir.join(name);
        if database.exists() {
            meta::copy(&database, &to.join(name))?;
            done.files += 1;
        }
    }
    let wal = wal_dir(dir);
    for number in numbered_files(&wal, "log").map_err(io_error("listing", &wal))? {
        copy(&log_path(dir, number), &log_path(to, number), &mut done)?;
    }
    for segment in segments(dir)? {
        // Both are below `dir`, by the names that made it.
        let Ok(place) = segment.path.strip_prefix(dir) else { continue };
        copy(&segment.path, &to.join(place), &mut done)?;
    }
    let logs = DATABASES.iter().flat_map(|name| ["", "-wal", "-shm"].map(|end| format!("{name}{end}")));
    let apart: Vec<String> = logs.chain(APART.map(str::to_owned)).collect();
    copy_rest(dir, to, &apart, &mut done)?;
    sync_dir(to).map_err(io_error("syncing", to))?;
    Ok(done)
}

/// Files that are replaced or only grow: runs, tokens, captures.
fn copy_rest(dir: &Path, to: &Path, apart: &[String], done: &mut BackedUp) -> Result<(), StoreError> {
    let listed = std::fs::read_dir(dir).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in listed.map_err(io_error("listing", dir))? {
        let (name, path) = (entry.file_name(), entry.path());
        let kind = entry.file_type().map_err(io_error("reading", &path))?;
        if apart.iter().any(|apart| name == **apart) {
            continue;
        }
        if kind.is_dir() {
            copy_rest(&path, &to.join(name), &[], done)?;
        } else if kind.is_file() {
            copy(&path, &to.join(name), done)?;
        }
    }
    Ok(())
}

/// One file with its rights; one that is gone meanwhile was removed by its server, as no longer needed.
fn copy(from: &Path, to: &Path, done: &mut BackedUp) -> Result<(), StoreError> {
    let copied = || -> io::Result<u64> {
        to.parent().map_or(Ok(()), create_private_dir)?;
        let bytes = std::fs::copy(from, to)?;
        File::open(to)?.sync_all()?;
        Ok(bytes)
    };
    match copied() {
        Ok(bytes) => {
            done.files += 1;
            done.bytes += bytes;
            Ok(())
        }
        Err(error) if error.kind() == ErrorKind::NotFound && !from.exists() => Ok(()),
        Err(error) => Err(io_error("copying", from)(error)),
    }
}
