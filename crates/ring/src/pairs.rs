//! The list of a process's queue pairs, beside its segment: whose packets are whose (Pulse, section 4.1).
//!
//! `PID-STARTTIME-NONCE.mycroft-pairs` is text, as `docs/formats/pairs.md` has it: who the process is, then a line for each queue pair that was
//! connected, in that order. The job's side ([`PairsFile`]) writes a line with one system call, when a connection is made, and takes no
//! heap. The file goes with the process, as a segment does: at an orderly end, or when somebody finds that its process is gone.
use crate::clock::realtime_ns;
use crate::collect;
use crate::create::{draw_nonce, open_directory};
use crate::error::{CreateError, Errno, Scarce};
use crate::fixed::{FixedPath, FixedText};
use crate::limits;
use crate::names::{FileName, PAIRS_SUFFIX};
use crate::process::Identity;
use crate::region::space_of;
use crate::sys::{Resource, limit, open_at};
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// First line: the format and its version.
const HEADING: &str = "mycroft queue pairs 1";
/// Queue pairs that one process lists: NCCL has two or more a channel and peer, thousands at most.
const PAIRS_MAX: u32 = 16_384;
/// Bytes of a line at most: numbers of 6, 6 and 20 digits, an address of 45, and what is between.
const LINE_BYTES: usize = 128;
/// Bytes of what stands before: two names of 255 bytes, a number, and words.
const HEAD_BYTES: usize = 640;
/// Bytes that the file can have: 2 MiB.
const FILE_BYTES_MAX: u64 = PAIRS_MAX as u64 * LINE_BYTES as u64 + HEAD_BYTES as u64;

/// A queue pair that is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueuePair {
    /// Its number, 24 bits: packets that come to it carry it.
    pub local: u32,
    /// The number of the other end: packets that it sends carry it.
    pub remote: u32,
    /// The address of the other end, from its GID: of RoCEv2 this is where packets go.
    pub address: IpAddr,
    /// When it was connected, nanoseconds since 1970.
    pub at_ns: u64,
}

impl QueuePair {
    /// One that is connected now, to a GID as the interface has it: sixteen bytes, an IPv6 address, of which those of IPv4 are a part.
    pub fn now(local: u32, remote: u32, gid: [u8; 16]) -> QueuePair {
        QueuePair { local, remote, address: Ipv6Addr::from(gid).to_canonical(), at_ns: realtime_ns() }
    }

    /// Reads a line; `None` for what is none.
    pub fn parse(line: &str) -> Option<QueuePair> {
        let mut words = line.split(' ');
        let mut number = || u32::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let (local, remote) = (number()?, number()?);
        let (address, at_ns) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        words.next().is_none().then_some(QueuePair { local, remote, address, at_ns })
    }
}

impl fmt::Display for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x} {:#08x} {} {}", self.local, self.remote, self.address, self.at_ns)
    }
}

/// Whose queue pairs they are, as its environment says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PairsOf<'a> {
    /// Name of the job.
    pub job: &'a str,
    /// Name of the host.
    pub host: &'a str,
    /// Global rank; `None` where it was not told.
    pub rank: Option<u32>,
}

impl<'a> PairsOf<'a> {
    /// Reads a list: whose it is, and its queue pairs. Lines that are none (the last one of a full file system) are passed over. `None` for a
    /// text that is no list.
    pub fn parse(text: &'a str) -> Option<(PairsOf<'a>, impl Iterator<Item = QueuePair> + 'a)> {
        let mut lines = text.lines();
        lines.next().filter(|line| *line == HEADING)?;
        let mut named = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let (job, host, rank) = (named("job")?, named("host")?, named("rank")?);
        Some((PairsOf { job, host, rank: rank.parse().ok() }, lines.filter_map(QueuePair::parse)))
    }
}

impl fmt::Display for PairsOf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADING}")?;
        one_line(f, "job", self.job)?;
        one_line(f, "host", self.host)?;
        match self.rank {
            Some(rank) => writeln!(f, "rank {rank}"),
            None => writeln!(f, "rank unknown"),
        }
    }
}

/// A name of several lines would be read as others.
fn one_line(f: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    write!(f, "{name} ")?;
    text.split(['\n', '\r']).try_for_each(|part| f.write_str(part))?;
    f.write_str("\n")
}

/// The list of this process, to which lines are added.
#[derive(Debug)]
pub struct PairsFile {
    file: File,
    path: FixedPath,
    pid: u32,
    lines: AtomicU32,
    removed: AtomicBool,
}

impl PairsFile {
    /// Begins the list in the directory of segments, which is made when missing. Takes no heap.
    ///
    /// # Errors
    /// The directory is none of this user's own, or a limit leaves no room.
    pub fn create(directory: &FixedPath, of: &PairsOf<'_>) -> Result<PairsFile, CreateError> {
        let identity = Identity::current()?;
        let opened = open_directory(directory)?;
        limits::check_descriptors(&opened)?;
        // Writing beyond it would raise SIGXFSZ.
        let most = limit(Resource::FileSize);
        if most < FILE_BYTES_MAX {
            return Err(CreateError::NoSpace { scarce: Scarce::FileSize, available: most, needed: FILE_BYTES_MAX });
        }
        collect::at_attach(&opened, space_of(&opened).map_err(CreateError::Directory)?);
        let nonce = draw_nonce(&identity);
        let name =
            FileName::printed(format_args!("{}-{}-{nonce:08x}{PAIRS_SUFFIX}", identity.pid, identity.start_time));
        let mut path = *directory;
        if !(path.push(b"/") && path.push(name.as_bytes())) {
            return Err(CreateError::Directory(Errno(libc::ENAMETOOLONG)));
        }
        let failed = |operation| move |source| CreateError::File { operation, source };
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_EXCL;
        let file = open_at(opened.as_raw_fd(), name.as_c_str(), flags, 0o600).map_err(failed("create"))?;
        let (lines, removed) = (AtomicU32::new(0), AtomicBool::new(false));
        let list = PairsFile { file, path, pid: identity.pid, lines, removed };
        // It tells readers in other pid namespaces that this process lives.
        list.file.try_lock().map_err(|e| Errno::of(&e.into())).map_err(failed("lock"))?;
        list.write(&FixedText::<HEAD_BYTES>::printed(format_args!("{of}"))).map_err(failed("write"))?;
        Ok(list)
    }

    /// Adds a line: one system call. What does not fit any more is left out, and so is what a forked child connects.
    pub fn add(&self, pair: &QueuePair) {
        if std::process::id() != self.pid || self.lines.fetch_add(1, Ordering::Relaxed) >= PAIRS_MAX {
            return;
        }
        // A full file system: whose packets these are is not known then.
        let _ = self.write(&FixedText::<LINE_BYTES>::printed(format_args!("{pair}\n")));
    }

    /// Removes the file, where this is the process that made it.
    pub fn remove(&self) {
        if std::process::id() == self.pid && !self.removed.swap(true, Ordering::Relaxed) {
            // SAFETY: a C string. A file that will not go is collected later.
            unsafe { libc::unlink(self.path.as_c_str().as_ptr()) };
        }
    }

    fn write<const N: usize>(&self, text: &FixedText<N>) -> Result<(), Errno> {
        (&self.file).write_all(text.as_bytes()).map_err(|e| Errno::of(&e))
    }
}

impl Drop for PairsFile {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;

    fn names(directory: &std::path::Path) -> Vec<std::path::PathBuf> {
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn a_list_says_whose_queue_pairs_went_where_and_goes_with_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = FixedPath::new(directory.path().as_os_str().as_bytes()).unwrap();
        let of = PairsOf { job: "two\nlines", host: "node 7", rank: Some(3) };
        let list = PairsFile::create(&path, &of).unwrap();
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 9]);
        let pair = QueuePair::now(0x12, 0xff_ffff, gid);
        assert_eq!(pair.address.to_string(), "10.0.0.9");
        list.add(&pair);
        let [file] = &names(directory.path())[..] else { panic!("one file") };
        let text = std::fs::read_to_string(file).unwrap() + "half a li";
        let (read, pairs) = PairsOf::parse(&text).unwrap();
        assert_eq!(read, PairsOf { job: "twolines", ..of });
        assert_eq!(pairs.collect::<Vec<_>>(), [pair]);
        drop(list);
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn the_list_of_a_process_that_is_gone_is_collected() {
        let directory = tempfile::tempdir().unwrap();
        let dead = directory.path().join("4000000000-1-00000001.mycroft-pairs");
        std::fs::write(&dead, HEADING).unwrap();
        let path = FixedPath::new(directory.path().as_os_str().as_bytes()).unwrap();
        let list = PairsFile::create(&path, &PairsOf { job: "j", host: "h", rank: None }).unwrap();
        let opened = File::open(directory.path()).unwrap();
        let gone = collect::collect_dead(&opened, |_| true).unwrap();
        assert_eq!(gone, [dead.file_name().unwrap()]);
        assert_eq!(names(directory.path()).len(), 1, "that of this process is there");
        drop(list);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic(text in "(mycroft queue pairs 1\njob a\nhost b\nrank 1\n)?[0-9a-fx:. \n]{0,200}") {
            if let Some((_, pairs)) = PairsOf::parse(&text) {
                for pair in pairs {
                    prop_assert_eq!(QueuePair::parse(&pair.to_string()), Some(pair));
                }
            }
        }
    }
}
