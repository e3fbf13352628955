//! An append-only file of checked entries: 4 bytes length, 4 bytes CRC-32C of length and content, content.
//!
//! An entry is whole or it is not there. A damaged one costs itself: the next whole one behind it is found by the mark
//! that every content carries. Reading changes nothing; only the one who opens the log for writing cuts off a torn tail.
//! Appends go straight to the kernel, so they survive the end of the process; `sync` makes them survive the end of the
//! machine.
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Length and checksum.
pub const ENTRY_HEAD_BYTES: u64 = 8;
/// The same, as a length of arrays.
const HEAD_BYTES: usize = 8;
const _: () = assert!(HEAD_BYTES as u64 == ENTRY_HEAD_BYTES, "one number in two types");
/// An entry is one frame, with a few numbers before it.
const MAX_ENTRY_BYTES: usize = crate::codec::MAX_FRAME_BYTES + 64;
/// What is looked through at once for the next entry behind a damaged one.
const SEARCH_BYTES: usize = 256 * 1024;
/// What is passed over where the disk cannot read: a sector of today's disks.
const SECTOR_BYTES: u64 = 4096;

/// The mark that every content of a log carries, by which entries are found behind a damaged one.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// Bytes of the content before it.
    pub at: usize,
    /// It is one of these.
    pub any_of: &'static [[u8; 4]],
}

/// A part of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Piece {
    /// A whole entry.
    Entry {
        /// Where it begins in the file.
        offset: u64,
        /// What it holds.
        content: Vec<u8>,
    },
    /// Bytes that are no whole entry, passed over.
    Damaged {
        /// Where they begin.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// The end of the file, where somebody stopped writing inside an entry (or is writing now).
    Torn {
        /// Where it begins.
        offset: u64,
        /// How many bytes.
        bytes: u64,
    },
}

/// The parts of a log between two offsets, in order.
#[derive(Debug)]
pub struct Pieces {
    file: File,
    marks: Marks,
    offset: u64,
    end: u64,
}

impl Pieces {
    /// All of a log up to `end`; what is appended behind is not looked at.
    pub fn new(file: File, marks: Marks, end: u64) -> Pieces {
        Pieces { file, marks, offset: 0, end }
    }

    /// The parts of a file as it is now.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn of_file(path: &Path, marks: Marks) -> io::Result<Pieces> {
        let file = File::open(path)?;
        let end = file.metadata()?.len();
        Ok(Pieces::new(file, marks, end))
    }

    /// Whether the file got longer or shorter since: somebody appends to it.
    pub fn is_written_to(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.len() != self.end)
    }
}

impl Iterator for Pieces {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let offset = self.offset;
        if offset >= self.end {
            return None;
        }
        // A disk that cannot read a place has lost what lies there, no more.
        let is_torn = match entry_at(&self.file, offset, self.end).unwrap_or(At::Broken { is_torn: false }) {
            At::Whole(content) => {
                self.offset += ENTRY_HEAD_BYTES + content.len() as u64;
                return Some(Piece::Entry { offset, content });
            }
            At::Broken { is_torn } => is_torn,
        };
        let next = find_entry(&self.file, self.marks, offset + 1, self.end);
        self.offset = next.unwrap_or(self.end);
        let bytes = self.offset - offset;
        Some(match next {
            None if is_torn => Piece::Torn { offset, bytes },
            _ => Piece::Damaged { offset, bytes },
        })
    }
}

/// What lies at an offset.
enum At {
    Whole(Vec<u8>),
    /// No whole entry; torn: its length says that it would go on behind the end.
    Broken {
        is_torn: bool,
    },
}

fn checksum(length: [u8; 4], content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&length), content)
}

fn entry_at(file: &File, offset: u64, end: u64) -> io::Result<At> {
    if end.saturating_sub(offset) < ENTRY_HEAD_BYTES {
        return Ok(At::Broken { is_torn: true });
    }
    let mut head = [0u8; HEAD_BYTES];
    file.read_exact_at(&mut head, offset)?;
    let [l0, l1, l2, l3, c0, c1, c2, c3] = head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    let is_torn = end - offset - ENTRY_HEAD_BYTES < length as u64;
    if is_torn || length > MAX_ENTRY_BYTES {
        return Ok(At::Broken { is_torn });
    }
    let mut content = vec![0u8; length];
    file.read_exact_at(&mut content, offset + ENTRY_HEAD_BYTES)?;
    let sound = checksum([l0, l1, l2, l3], &content) == u32::from_le_bytes([c0, c1, c2, c3]);
    Ok(if sound { At::Whole(content) } else { At::Broken { is_torn: false } })
}

/// Where the next whole entry begins, at `from` or behind it. A length that is damaged may lead anywhere, so none is
/// believed: every mark is tried.
fn find_entry(file: &File, marks: Marks, from: u64, end: u64) -> Option<u64> {
    let before = ENTRY_HEAD_BYTES + marks.at as u64;
    let mut buffer = vec![0u8; SEARCH_BYTES];
    let mut begin = from.saturating_add(before);
    while begin < end {
        let room = usize::try_from(end - begin).unwrap_or(usize::MAX).min(SEARCH_BYTES);
        let part = buffer.get_mut(..room)?;
        if file.read_exact_at(part, begin).is_err() {
            begin += SECTOR_BYTES;
            continue;
        }
        let found = part.windows(4).enumerate().filter(|(_, window)| marks.any_of.iter().any(|mark| mark == window));
        for (index, _) in found {
            let offset = begin + index as u64 - before;
            if let Ok(At::Whole(_)) = entry_at(file, offset, end) {
                return Some(offset);
            }
        }
        // A mark may lie across the border.
        begin += (room as u64).saturating_sub(3).max(1);
    }
    None
}

/// The entry at an offset, or `None` when there is no whole one.
///
/// # Errors
/// The file cannot be read.
pub fn read_entry(file: &File, offset: u64, end: u64) -> io::Result<Option<Vec<u8>>> {
    Ok(match entry_at(file, offset, end)? {
        At::Whole(content) => Some(content),
        At::Broken { .. } => None,
    })
}

/// A log that is open for appending.
#[derive(Debug)]
pub struct LogFile {
    file: File,
    bytes: u64,
}

impl LogFile {
    /// Opens or creates the log for the one who appends to it, shows every part to `each`, and cuts off a torn tail.
    ///
    /// # Errors
    /// The file cannot be opened or cut.
    pub fn open(path: &Path, marks: Marks, each: &mut dyn FnMut(Piece)) -> io::Result<LogFile> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        LogFile::of(file, marks, each)
    }

    /// As `open`, for a file that is open already for reading and writing.
    ///
    /// # Errors
    /// The file cannot be read, or not be cut.
    pub fn of(file: File, marks: Marks, each: &mut dyn FnMut(Piece)) -> io::Result<LogFile> {
        let mut bytes = file.metadata()?.len();
        for piece in Pieces::new(file.try_clone()?, marks, bytes) {
            if let Piece::Torn { offset, .. } = piece {
                file.set_len(offset)?;
                bytes = offset;
            }
            each(piece);
        }
        Ok(LogFile { file, bytes })
    }

    /// Appends one entry. After an error the log is as it was before.
    ///
    /// # Errors
    /// The entry is too large or cannot be written.
    pub fn append(&mut self, content: &[u8]) -> io::Result<()> {
        self.append_all(&[&[content]])
    }

    /// Appends entries, each given in parts, with one write. After an error the log is as it was before.
    ///
    /// # Errors
    /// As `append`.
    pub fn append_all(&mut self, entries: &[&[&[u8]]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for parts in entries {
            let content: usize = parts.iter().map(|part| part.len()).sum();
            let length = u32::try_from(content).ok().filter(|_| content <= MAX_ENTRY_BYTES);
            let Some(length) = length.map(u32::to_le_bytes) else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("an entry of {content} bytes")));
            };
            let sum = parts.iter().fold(crc32c::crc32c(&length), |sum, part| crc32c::crc32c_append(sum, part));
            bytes.extend_from_slice(&length);
            bytes.extend_from_slice(&sum.to_le_bytes());
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
        }
        self.write(&bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.file.write_all_at(bytes, self.bytes);
        if written.is_err() {
            // A half-written entry would be cut off at the next opening; cut it now if that is possible.
            let _ = self.file.set_len(self.bytes);
        }
        written
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

    /// A second handle, for reading or syncing while this one appends.
    ///
    /// # Errors
    /// No descriptor is left.
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
