//! An append-only file of checked entries: 4 bytes length, 4 bytes CRC-32C of length and content, content.
//!
//! An entry is whole or it is not there: opening cuts a torn tail off. Appends go straight to the kernel, so they
//! survive the end of the process; `sync` makes them survive the end of the machine.
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Length and checksum.
pub const ENTRY_HEAD_BYTES: u64 = 8;
/// An entry is one frame.
const MAX_ENTRY_BYTES: usize = crate::codec::MAX_FRAME_BYTES;

/// An open log.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    bytes: u64,
}

fn checksum(length: [u8; 4], content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), content)
}

/// The entry at an offset, or `None` when there is no whole one.
///
/// # Errors
/// The file cannot be read.
pub fn read_entry(file: &File, offset: u64, end: u64) -> io::Result<Option<Vec<u8>>> {
    if end.saturating_sub(offset) < ENTRY_HEAD_BYTES {
        return Ok(None);
    }
    let mut head = [0u8; ENTRY_HEAD_BYTES as usize];
    file.read_exact_at(&mut head, offset)?;
    let [l0, l1, l2, l3, c0, c1, c2, c3] = head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if length > MAX_ENTRY_BYTES || end - offset - ENTRY_HEAD_BYTES < length as u64 {
        return Ok(None);
    }
    let mut content = vec![0u8; length];
    file.read_exact_at(&mut content, offset + ENTRY_HEAD_BYTES)?;
    let sound = checksum([l0, l1, l2, l3], &content) == u32::from_le_bytes([c0, c1, c2, c3]);
    Ok(sound.then_some(content))
}

impl LogFile {
    /// Opens or creates the log, shows every whole entry to `each`, and cuts off what follows the last one.
    /// Also says how many bytes were cut.
    ///
    /// # Errors
    /// The file cannot be opened, read or cut.
    pub fn open(path: &Path, each: &mut dyn FnMut(Vec<u8>)) -> io::Result<(LogFile, u64)> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        LogFile::of(file, each)
    }

    /// As `open`, for a file that is open already for reading and writing.
    ///
    /// # Errors
    /// The file cannot be read, or not be cut.
    pub fn of(file: File, each: &mut dyn FnMut(Vec<u8>)) -> io::Result<(LogFile, u64)> {
        let end = file.metadata()?.len();
        let mut bytes = 0;
        while let Some(content) = read_entry(&file, bytes, end)? {
            bytes += ENTRY_HEAD_BYTES + content.len() as u64;
            each(content);
        }
        if bytes < end {
            file.set_len(bytes)?;
        }
        Ok((LogFile { file, bytes }, end - bytes))
    }

    /// Appends one entry. After an error the log is as it was before.
    ///
    /// # Errors
    /// The entry is over the limit, or the file cannot be written.
    pub fn append(&mut self, content: &[u8]) -> io::Result<()> {
        if content.len() > MAX_ENTRY_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("an entry of {} bytes", content.len())));
        }
        let length = (content.len() as u32).to_le_bytes();
        let mut entry = Vec::with_capacity(ENTRY_HEAD_BYTES as usize + content.len());
        entry.extend_from_slice(&length);
        entry.extend_from_slice(&checksum(length, content).to_le_bytes());
        entry.extend_from_slice(content);
        let written = self.file.write_all_at(&entry, self.bytes);
        if let Err(e) = written {
            // A half-written entry would be cut off at the next opening; cut it now if that is possible.
            let _ = self.file.set_len(self.bytes);
            return Err(e);
        }
        self.bytes += entry.len() as u64;
        Ok(())
    }

    /// Length of the file in bytes: where the next entry goes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The entry at an offset, or `None` when there is no whole one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self, offset: u64) -> io::Result<Option<Vec<u8>>> {
        read_entry(&self.file, offset, self.bytes)
    }

    /// A second handle, for reading while this one appends.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub fn reader(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Makes what was appended survive the end of the machine.
    ///
    /// # Errors
    /// The file cannot be flushed.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Makes the creation, renaming or removal of files in a directory durable.
///
/// # Errors
/// The directory cannot be opened or synced.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Creates a directory, and its parents, that only this user may enter.
///
/// # Errors
/// The directory cannot be made, or belongs to somebody else.
pub fn create_private_dir(dir: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// The numbers of the files named `NUMBER.extension` in a directory, ascending; other files are left alone.
///
/// # Errors
/// The directory cannot be read.
pub fn numbered_files(dir: &Path, extension: &str) -> io::Result<Vec<u64>> {
    let names =
        std::fs::read_dir(dir)?.map(|entry| entry.map(|e| e.file_name().to_str().unwrap_or_default().to_owned()));
    Ok(numbers_of(names.collect::<io::Result<Vec<String>>>()?, extension))
}

/// The numbers of the names `NUMBER.extension`, ascending.
pub(crate) fn numbers_of(names: Vec<String>, extension: &str) -> Vec<u64> {
    let number = |name: String| name.strip_suffix(extension)?.strip_suffix('.')?.parse().ok();
    let mut numbers: Vec<u64> = names.into_iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

/// A small file of two numbers that is overwritten in place; a torn write reads as `None`.
#[derive(Debug)]
pub struct Mark {
    file: File,
}

impl Mark {
    /// Opens or creates the file and reads what it holds.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn open(path: &Path) -> io::Result<(Mark, Option<(u64, u64)>)> {
        Mark::of(OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?)
    }

    /// As `open`, for a file that is open already for reading and writing.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(mut file: File) -> io::Result<(Mark, Option<(u64, u64)>)> {
        let mut bytes = Vec::new();
        Read::by_ref(&mut file).take(64).read_to_end(&mut bytes)?;
        let mut r = crate::bytes::Reader::new(&bytes);
        let value = (|| {
            let (first, second, crc) = (r.u64()?, r.u64()?, r.u32()?);
            (crc32c::crc32c(&bytes[..16]) == crc).then_some((first, second))
        })();
        Ok((Mark { file }, value))
    }

    /// Overwrites both numbers.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set(&mut self, first: u64, second: u64) -> io::Result<()> {
        let mut bytes = [first.to_le_bytes(), second.to_le_bytes()].concat();
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&bytes)
    }
}
