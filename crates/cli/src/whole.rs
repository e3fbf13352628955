//! Files that are there whole or not at all: written under another name beside the place, then renamed.
use anyhow::{Context, Result};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile};

/// What unfinished files are named with.
const PREFIX: &str = ".mycroft-unfinished-";

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file that is being written; `keep` puts it in its place, dropping it removes it.
#[derive(Debug)]
pub(crate) struct WholeFile {
    file: NamedTempFile,
    path: PathBuf,
}

impl WholeFile {
    /// Begins the file `path`.
    pub(crate) fn create(path: &Path) -> Result<WholeFile> {
        let mut builder = Builder::new();
        let builder = builder.prefix(PREFIX).permissions(Permissions::from_mode(0o666));
        let file = builder.tempfile_in(folder_of(path)).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(WholeFile { file, path: path.to_owned() })
    }

    /// Adds to it.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Puts it in its place, over what was there.
    pub(crate) fn keep(self) -> Result<()> {
        let WholeFile { file, path } = self;
        file.persist(&path).map(|_| ()).with_context(|| format!("cannot write {}", path.display()))
    }
}
