//! Bounded reads of the small text files of `/proc` and `/sys`: one attempt, a fixed buffer, no panic on garbage.
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Bytes read of one file at most. The longest we need is the first lines of `/proc/meminfo`, about 100 bytes, and
/// `/proc/PID/stat`, at most 52 fields of up to 20 digits plus a 64-byte name = 1.1 KiB; 2 KiB is room for both.
pub(crate) const SMALL_FILE_BYTES_MAX: usize = 2048;

/// A buffer to read small files into, kept by the caller so that a tick allocates nothing.
pub(crate) struct SmallBuffer {
    bytes: Box<[u8; SMALL_FILE_BYTES_MAX]>,
}

impl SmallBuffer {
    pub(crate) fn new() -> SmallBuffer {
        SmallBuffer { bytes: Box::new([0; SMALL_FILE_BYTES_MAX]) }
    }

    /// The trimmed text of the file at `path`, cut at the buffer's size; `None` when it cannot be read or is not text.
    ///
    /// Opens without blocking, so that a pipe in the place of a file cannot hold the caller.
    pub(crate) fn read_path(&mut self, path: &Path) -> Option<&str> {
        let mut file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        let mut len = 0;
        while len < self.bytes.len() {
            match file.read(&mut self.bytes[len..]) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        text(&self.bytes[..len])
    }

    /// The same of a file that is already open, from its begin. The error of the read itself is told.
    pub(crate) fn read_open(&mut self, file: &File) -> std::io::Result<Option<&str>> {
        let mut len = 0;
        while len < self.bytes.len() {
            match file.read_at(&mut self.bytes[len..], len as u64) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(text(&self.bytes[..len]))
    }
}

/// Text up to the last character that is whole, trimmed; `None` if it is not UTF-8.
fn text(bytes: &[u8]) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text.trim()),
        Err(e) if e.error_len().is_none() => std::str::from_utf8(&bytes[..e.valid_up_to()]).ok().map(str::trim),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_bounded_and_survive_garbage() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let mut buffer = SmallBuffer::new();
        let path = dir.path().join("f");
        assert_eq!(buffer.read_path(&path), None, "a missing file is not text");
        assert_eq!(buffer.read_path(dir.path()), None, "a directory is not text");
        std::fs::write(&path, b" 42\n").expect("write");
        assert_eq!(buffer.read_path(&path), Some("42"));
        std::fs::write(&path, [0xff, 0xfe, b'1']).expect("write");
        assert_eq!(buffer.read_path(&path), None);
        std::fs::write(&path, vec![b'7'; 1 << 20]).expect("write");
        assert_eq!(buffer.read_path(&path).map(str::len), Some(SMALL_FILE_BYTES_MAX));
        let mut cut = vec![b'a'; SMALL_FILE_BYTES_MAX - 1];
        cut.extend_from_slice("\u{e9}".as_bytes());
        std::fs::write(&path, cut).expect("write");
        assert_eq!(buffer.read_path(&path).map(str::len), Some(SMALL_FILE_BYTES_MAX - 1));
    }
}
