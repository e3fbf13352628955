//! The directory of segments, opened once: whatever its name leads to later, files are looked for in that directory, never
//! through a link, never waiting for the other end of a pipe, and never believed before their type and owner are known.
use crate::error::AgentError;
use crate::process::own_uid;
use rustix::fs::{self as sys, AtFlags, Dir, FileType, Mode, OFlags, Stat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Write permission for group and others.
const OTHERS_WRITE: u32 = 0o022;
/// What the name of a user's directory begins with; the user's number follows.
const USER_PREFIX: &str = "mycroft-";

/// An open directory of segments.
#[derive(Debug)]
pub(crate) struct SegmentDir {
    path: PathBuf,
    handle: File,
    owner: u32,
}

impl SegmentDir {
    /// Opens the directory, and makes it when missing (but not what it lies in). Nobody but its owner may be able to put
    /// files there; that is this user, or, for the superuser, any.
    pub(crate) fn open(path: &Path) -> Result<SegmentDir, AgentError> {
        // Without a slash at the end, which would follow a link.
        let path: PathBuf = path.components().collect();
        let error = |operation, source: rustix::io::Errno| {
            let (path, source) = (path.clone(), io::Error::from(source));
            AgentError::Dir { operation, path, source }
        };
        let made = match sys::mkdir(&path, Mode::RWXU) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(source) => return Err(error("making", source)),
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = File::from(sys::open(&path, flags, Mode::empty()).map_err(|e| error("opening", e))?);
        let mut stat = sys::fstat(&handle).map_err(|e| error("looking at", e))?;
        let own = own_uid();
        let user = if own == 0 { meant_for(&path) } else { None };
        if let (true, Some(user)) = (made, user) {
            // Made by the superuser it would be closed to the user whose ranks are to be traced.
            sys::fchown(&handle, Some(sys::Uid::from_raw(user)), None).map_err(|e| error("giving away", e))?;
            stat = sys::fstat(&handle).map_err(|e| error("looking at", e))?;
        }
        let (owner, mode) = (stat.st_uid, stat.st_mode & 0o7777);
        let expected = user.unwrap_or(if own == 0 { owner } else { own });
        if owner != expected || mode & OTHERS_WRITE != 0 {
            return Err(AgentError::DirUnsafe { path, owner, expected, mode });
        }
        Ok(SegmentDir { path, handle, owner })
    }

    /// Where it was when it was opened, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whose segments it holds.
    pub(crate) fn owner(&self) -> u32 {
        self.owner
    }

    /// The directory itself.
    pub(crate) fn handle(&self) -> &File {
        &self.handle
    }

    /// Whether its path still leads to it.
    pub(crate) fn is_in_place(&self) -> io::Result<bool> {
        let there = sys::statat(sys::CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW)?;
        let open = sys::fstat(&self.handle)?;
        Ok((there.st_dev, there.st_ino) == (open.st_dev, open.st_ino))
    }

    /// The names in it, `max` at most, in no order.
    pub(crate) fn names(&self, max: usize) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle)?.take(max) {
            names.push(OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned());
        }
        Ok(names)
    }

    /// Opens a file for reading, whatever it is: the caller looks at what it got.
    pub(crate) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        self.open_as(name, OFlags::RDONLY)
    }

    /// Opens a file of the agent's own for reading and writing, and makes it when missing. It must be a plain one, and of
    /// this user or of the directory's.
    pub(crate) fn open_own(&self, name: &OsStr, more: OFlags, mode: Mode) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | more;
        let file = File::from(sys::openat(&self.handle, name, flags | SAFE, mode)?);
        self.check_own(&sys::fstat(&file)?)?;
        Ok(file)
    }

    /// The text of a plain file of the agent's own; an error if it is longer than `max` bytes.
    pub(crate) fn read_own(&self, name: &OsStr, max: u64) -> io::Result<String> {
        let file = self.open_as(name, OFlags::RDONLY)?;
        let stat = sys::fstat(&file)?;
        self.check_own(&stat)?;
        if u64::try_from(stat.st_size).is_ok_and(|bytes| bytes > max) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut text = String::new();
        io::Read::read_to_string(&mut io::Read::take(file, max), &mut text)?;
        Ok(text)
    }

    /// Gives a file another name, in place of what had it.
    pub(crate) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(sys::renameat(&self.handle, from, &self.handle, to)?)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(sys::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    fn open_as(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        Ok(File::from(sys::openat(&self.handle, name, flags | SAFE, Mode::empty())?))
    }

    fn check_own(&self, stat: &Stat) -> io::Result<()> {
        let refused = |why: String| Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return refused("it is not a plain file; remove it".to_owned());
        }
        if ![own_uid(), self.owner].contains(&stat.st_uid) {
            return refused(format!("it belongs to user {}; remove it", stat.st_uid));
        }
        Ok(())
    }
}

/// No link is followed and no pipe waited for.
const SAFE: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// The user that the superuser's agent makes a directory for: the one whose number ends its name (`mycroft-1000`), else the
/// owner of the directory it lies in; `None` for the superuser.
fn meant_for(path: &Path) -> Option<u32> {
    let named = path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix(USER_PREFIX)?.parse().ok());
    let above = || std::fs::metadata(path.parent()?).ok().map(|meta| std::os::unix::fs::MetadataExt::uid(&meta));
    named.or_else(above).filter(|user| *user != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn a_missing_directory_is_made_private_but_not_what_it_lies_in() {
        let temp = tempfile::tempdir().expect("a directory");
        let path = temp.path().join("segments");
        SegmentDir::open(&path).expect("made");
        assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o700);
        let refused = SegmentDir::open(&temp.path().join("none/segments")).expect_err("not ours to make");
        assert!(matches!(refused, AgentError::Dir { .. }), "{refused}");
        assert!(!temp.path().join("none").exists());
        symlink(&path, temp.path().join("link")).expect("a link");
        SegmentDir::open(&temp.path().join("link/")).expect_err("a link to it");
    }

    /// Root only: others make directories for nobody else.
    #[test]
    fn the_superuser_makes_a_users_directory_the_users() {
        let temp = tempfile::tempdir().expect("a directory");
        let named = temp.path().join("mycroft-12345");
        if own_uid() != 0 {
            return;
        }
        let Ok(dir) = SegmentDir::open(&named) else {
            return; // A user namespace that does not know that user.
        };
        let uid = |path: &Path| path.metadata().expect("there").uid();
        assert_eq!((dir.owner(), uid(&named)), (12_345, 12_345), "its name says whose it is");
        let inside = SegmentDir::open(&named.join("segments")).expect("made");
        assert_eq!((inside.owner(), uid(&named.join("segments"))), (12_345, 12_345), "it lies in that user's");
        std::os::unix::fs::chown(&named, Some(0), None).expect("the superuser may");
        let refused = SegmentDir::open(&named).expect_err("its user could not write there").to_string();
        assert!(refused.contains("expected user 12345"), "{refused}");
        let own = temp.path().join("segments");
        assert_eq!(SegmentDir::open(&own).expect("made").owner(), 0, "a job of the superuser's");
    }

    #[test]
    fn files_that_are_not_the_agents_are_refused_without_waiting() {
        let temp = tempfile::tempdir().expect("a directory");
        let dir = SegmentDir::open(&temp.path().join("segments")).expect("made");
        let precious = temp.path().join("precious");
        std::fs::write(&precious, "precious").expect("written");
        symlink(&precious, dir.path().join("link")).expect("a link");
        sys::mkfifoat(sys::CWD, dir.path().join("fifo"), Mode::RUSR | Mode::WUSR).expect("a pipe");
        std::fs::create_dir(dir.path().join("dir")).expect("a directory");
        for name in ["link", "fifo", "dir"] {
            let name = OsStr::new(name);
            assert!(dir.read_own(name, 100).is_err(), "{name:?}");
            assert!(dir.open_own(name, OFlags::empty(), Mode::RUSR | Mode::WUSR).is_err(), "{name:?}");
        }
        std::fs::write(dir.path().join("long"), [b'x'; 101]).expect("written");
        assert!(dir.read_own(OsStr::new("long"), 100).is_err());
        assert_eq!(std::fs::read_to_string(precious).expect("there"), "precious");
    }

    #[test]
    fn a_directory_that_was_exchanged_is_noticed_and_the_open_one_stays() {
        let temp = tempfile::tempdir().expect("a directory");
        let (path, moved, other) = (temp.path().join("a"), temp.path().join("b"), temp.path().join("c"));
        let dir = SegmentDir::open(&path).expect("made");
        assert!(dir.is_in_place().expect("there"));
        std::fs::create_dir(&other).expect("made");
        std::fs::write(other.join("precious"), "").expect("written");
        std::fs::rename(&path, &moved).expect("moved");
        symlink(&other, &path).expect("a link");
        assert!(!dir.is_in_place().expect("something is"));
        assert!(dir.remove(OsStr::new("precious")).is_err());
        assert!(
            other.join("precious").exists() && dir.names(10).expect("readable").iter().all(|name| name != "precious")
        );
    }
}
