//! Files and folders that are there whole or not at all: written under another name beside the place, then renamed.
use anyhow::{Context, Result, bail};
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile, TempDir};

/// What unfinished files and folders are named with.
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

/// Writes a file at once.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let mut file = WholeFile::create(path)?;
    file.write(text.as_bytes())?;
    file.keep()
}

/// A folder that is being filled; `keep` puts it in its place, dropping it removes it with all that is in it.
#[derive(Debug)]
pub(crate) struct WholeFolder {
    folder: TempDir,
    path: PathBuf,
}

impl WholeFolder {
    /// Begins the folder `path`, which must not be there yet or be empty; `flag` is how the user named it.
    pub(crate) fn create(flag: &str, path: &Path) -> Result<WholeFolder> {
        let cannot = || format!("{flag} {}: cannot be made", path.display());
        match std::fs::read_dir(path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => {}
            Ok(false) => bail!("{flag} {}: is not empty; give a folder that is not there yet", path.display()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(cannot),
        }
        std::fs::create_dir_all(folder_of(path)).with_context(cannot)?;
        let mut builder = Builder::new();
        let builder = builder.prefix(PREFIX).permissions(Permissions::from_mode(0o777));
        let folder = builder.tempdir_in(folder_of(path)).with_context(cannot)?;
        Ok(WholeFolder { folder, path: path.to_owned() })
    }

    /// Where to write meanwhile.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Puts it in its place.
    pub(crate) fn keep(self) -> Result<()> {
        let WholeFolder { folder, path } = self;
        // Renaming replaces an empty folder.
        std::fs::rename(folder.path(), &path).with_context(|| format!("cannot write {}", path.display()))?;
        // It is no longer where it was: there is nothing to remove.
        let _ = folder.keep();
        Ok(())
    }
}
