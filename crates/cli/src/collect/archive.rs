//! The package: a tar file, compressed with zstd, that is there whole or not at all.
use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, linkat};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Text shrinks to a tenth with it, at 300 MB/s of one core.
const LEVEL: i32 = 3;
/// Only who collects may read it: logs quote what a job does.
const MODE: u32 = 0o600;

/// A package that is being written, without a name: however the process ends before [`Archive::finish`], nothing is left.
pub(super) struct Archive {
    tar: tar::Builder<zstd::Encoder<'static, BufWriter<File>>>,
    path: PathBuf,
    /// The first part of all names in it: whose these are.
    host: String,
    now: u64,
    /// Bytes put in, before compression.
    pub(super) bytes: u64,
    /// Files put in.
    pub(super) files: usize,
}

impl Archive {
    /// # Errors
    /// There is a file of that name, or none can be made there.
    pub(super) fn create(path: &Path, host: &str) -> Result<Archive> {
        if path.symlink_metadata().is_ok() {
            anyhow::bail!("--out {}: there is such a file already; name another", path.display());
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::tempfile_in(folder);
        let file = file.with_context(|| format!("--out {}: nothing can be written there", path.display()))?;
        let packed = zstd::Encoder::new(BufWriter::new(file), LEVEL).context("zstd")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (path, host) = (path.to_owned(), host.to_owned());
        Ok(Archive { tar: tar::Builder::new(packed), path, host, now, bytes: 0, files: 0 })
    }

    /// Puts a file in, `name` with `/` between its parts.
    pub(super) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.append(name, bytes.len() as u64, bytes)
    }

    /// Puts a file in as it lies on disk.
    pub(super) fn add_file(&mut self, name: &str, file: &mut File) -> Result<()> {
        let size = file.seek(SeekFrom::End(0)).context("a temporary file")?;
        file.rewind().context("a temporary file")?;
        self.append(name, size, file.take(size))
    }

    fn append(&mut self, name: &str, size: u64, from: impl Read) -> Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(MODE);
        header.set_mtime(self.now);
        let name = format!("{}/{name}", self.host);
        let writing = || format!("writing {} into {}", name, self.path.display());
        self.tar.append_data(&mut header, &name, from).with_context(writing)?;
        self.bytes += size;
        self.files += 1;
        Ok(())
    }

    /// Ends it and gives it its name; bytes of the package.
    pub(super) fn finish(self) -> Result<u64> {
        let writing = || format!("writing {}", self.path.display());
        let packed = self.tar.into_inner().with_context(writing)?.finish().with_context(writing)?;
        let file = packed.into_inner().map_err(|error| error.into_error()).with_context(writing)?;
        let size = file.metadata().with_context(writing)?.len();
        name(file, &self.path).with_context(writing)?;
        Ok(size)
    }
}

/// Gives a file without a name its name, or where a file system knows no such files copies it. What is there stays.
fn name(mut file: File, path: &Path) -> io::Result<()> {
    let own = format!("/proc/self/fd/{}", file.as_raw_fd());
    match linkat(CWD, own, CWD, path, AtFlags::SYMLINK_FOLLOW) {
        Ok(()) => return Ok(()),
        Err(Errno::EXIST) => return Err(Errno::EXIST.into()),
        Err(_) => {}
    }
    file.rewind()?;
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    io::copy(&mut file, &mut copy).map(|_| ()).inspect_err(|_| {
        // Half a package is none; the copying failed already.
        let _ = std::fs::remove_file(path);
    })
}
