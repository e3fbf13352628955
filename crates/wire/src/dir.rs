//! Directories that only this user may change, and files in them, opened so that nobody leads us elsewhere.
//!
//! A directory is opened once and checked through its handle: it is no link, it is ours, and nobody else may write into
//! it or exchange it on its path. Files are opened relative to that handle, never through a link, and are ours.
use rustix::fs::{self, AtFlags, Dir, FileType, Mode, OFlags, Stat};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Owner whom the kernel shows for users that a user namespace does not know (`/proc/sys/kernel/overflowuid`).
const UNKNOWN_UID: u32 = 65_534;
/// Content of `uid_map` where every user is known: no user namespace.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];
/// Write permission for group and others.
const OTHERS_WRITE: u32 = 0o022;
/// Write permission for others, and the bit by which only owners remove and rename entries.
const ALL_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// How a file of a private directory is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// For reading; it must be there.
    Read,
    /// For reading and writing, made with mode 0600 if it is not there.
    ReadWrite,
}

/// A directory that only this user may change.
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
    handle: OwnedFd,
}

/// The user that this process acts as.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

pub(crate) fn refused<T>(why: String) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

impl PrivateDir {
    /// Makes the directory with mode 0700, and parents that are missing, and opens it.
    ///
    /// # Errors
    /// It cannot be made or opened; it is a link; another user owns it or may write into it; another user may exchange
    /// it on its path.
    pub fn open(path: &Path) -> io::Result<PrivateDir> {
        // Without a slash at the end, which would follow a link.
        let path: PathBuf = path.components().collect();
        check_above(&path)?;
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = match fs::open(&path, flags, Mode::empty()) {
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) if path.is_symlink() => {
                return refused("it is a link; give the directory itself".to_owned());
            }
            other => other?,
        };
        let stat = fs::fstat(&handle)?;
        let own = own_uid();
        if stat.st_uid != own {
            let owner = stat.st_uid;
            return refused(format!("it belongs to user {owner}, not to user {own}; give another directory"));
        }
        if stat.st_mode & OTHERS_WRITE != 0 {
            let mode = stat.st_mode & 0o7777;
            return refused(format!("it has mode {mode:04o}, so that other users may write into it; chmod 0700 it"));
        }
        Ok(PrivateDir { path, handle })
    }

    /// Its path, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file of it.
    ///
    /// # Errors
    /// It cannot be opened; it is a link or no regular file; another user owns it; it has a second name.
    pub fn file(&self, name: &str, access: Access) -> io::Result<File> {
        let flags = match access {
            Access::Read => OFlags::RDONLY,
            Access::ReadWrite => OFlags::RDWR | OFlags::CREATE,
        };
        // A FIFO without a second end would hold whoever opens it.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR) {
            Err(rustix::io::Errno::LOOP) => return refused(format!("{name} is a link; remove it")),
            other => File::from(other?),
        };
        check_file(&fs::fstat(&file)?).or_else(|why| refused(format!("{name} {why}; remove it")))?;
        Ok(file)
    }

    /// Removes a file of it.
    ///
    /// # Errors
    /// There is none, or it cannot be removed.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    /// The names in it that are UTF-8, in no order.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle)? {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }
}

fn check_file(stat: &Stat) -> Result<(), String> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("is no regular file".to_owned());
    }
    if stat.st_uid != own_uid() {
        return Err(format!("belongs to user {}", stat.st_uid));
    }
    if stat.st_nlink > 1 {
        return Err("has a second name elsewhere".to_owned());
    }
    Ok(())
}

/// Whether users other than this one and root could put another directory in this one's place.
pub(crate) fn check_above(path: &Path) -> io::Result<()> {
    let parent = |path: &Path| match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Some(PathBuf::from(".")),
        other => other.map(Path::to_owned),
    };
    let mut above = parent(path);
    while let Some(dir) = above.take_if(|dir| !dir.exists()) {
        above = parent(&dir);
    }
    let Some(above) = above else { return Ok(()) };
    for dir in above.canonicalize()?.ancestors() {
        let meta = std::fs::metadata(dir)?;
        let (owner, mode) = (meta.uid(), meta.mode());
        let dir = dir.display();
        if !is_known(owner) {
            return refused(format!("{dir} above it belongs to user {owner}, who could exchange it; give another one"));
        }
        if mode & ALL_WRITE != 0 && mode & STICKY == 0 {
            return refused(format!("every user may exchange it, {dir} above it lets them; give another one"));
        }
    }
    Ok(())
}

/// Whether it is root, this user, or one whom this user namespace cannot name.
pub(crate) fn is_known(owner: u32) -> bool {
    owner == 0 || owner == own_uid() || (owner == UNKNOWN_UID && in_user_namespace())
}

fn in_user_namespace() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.split_whitespace().eq(ALL_USERS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn why<T>(outcome: io::Result<T>) -> String {
        outcome.err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_missing_directory_is_made_for_this_user_only() {
        let temp = tempfile::tempdir().expect("a directory");
        let path = temp.path().join("a/b");
        let dir = PrivateDir::open(&path).expect("made");
        for made in [temp.path().join("a"), path.clone()] {
            assert_eq!(made.metadata().expect("there").permissions().mode() & 0o777, 0o700, "{}", made.display());
        }
        let file = dir.file("x", Access::ReadWrite).expect("made");
        assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        assert!(dir.names().expect("read").contains(&"x".to_owned()));
        dir.remove("x").expect("removed");
        assert!(!path.join("x").exists());
        PrivateDir::open(&path).expect("it is ours");
    }

    #[test]
    fn links_are_refused_and_what_they_lead_to_is_untouched() {
        let temp = tempfile::tempdir().expect("a directory");
        let (target, path) = (temp.path().join("target"), temp.path().join("dir"));
        std::fs::write(&target, "precious").expect("written");
        let dir = PrivateDir::open(&path).expect("made");
        symlink(&target, path.join("lock")).expect("a link");
        std::fs::hard_link(&target, path.join("hard")).expect("a second name");
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join("fifo"), Mode::RUSR | Mode::WUSR).expect("a FIFO");
        for (name, word) in [("lock", "is a link"), ("hard", "second name"), ("fifo", "no regular file")] {
            for access in [Access::Read, Access::ReadWrite] {
                // Writing to a FIFO without a reader fails already when it is opened.
                let text = why(dir.file(name, access));
                assert!(text.contains(word), "{name}: {text}");
            }
        }
        symlink(&path, temp.path().join("way")).expect("a link");
        for way in ["way", "way/"] {
            let text = why(PrivateDir::open(&temp.path().join(way)));
            assert!(text.contains("it is a link"), "{way}: {text}");
        }
        assert_eq!(std::fs::read_to_string(target).expect("there"), "precious");
    }

    #[test]
    fn a_directory_that_others_may_change_is_refused() {
        let temp = tempfile::tempdir().expect("a directory");
        let path = temp.path().join("dir");
        PrivateDir::open(&path).expect("made");
        let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("ours");
        for open in [0o770, 0o707, 0o1777] {
            mode(&path, open);
            let text = why(PrivateDir::open(&path));
            assert!(text.contains("chmod 0700"), "{open:o}: {text}");
        }
        mode(&path, 0o755);
        PrivateDir::open(&path).expect("others may look");
        mode(temp.path(), 0o777);
        let text = why(PrivateDir::open(&path));
        assert!(text.contains("every user may exchange it"), "{text}");
        mode(temp.path(), 0o1777);
        PrivateDir::open(&path).expect("only its owner removes it");
    }

    /// Root only: others cannot give a directory away.
    #[test]
    fn a_directory_of_another_user_is_refused_also_above() {
        if own_uid() != 0 {
            return;
        }
        let temp = tempfile::tempdir().expect("a directory");
        let path = temp.path().join("theirs");
        std::fs::create_dir(&path).expect("made");
        if std::os::unix::fs::chown(&path, Some(12_345), None).is_err() {
            return; // A user namespace that does not know that user.
        }
        let text = why(PrivateDir::open(&path));
        assert!(text.contains("belongs to user 12345"), "{text}");
        let text = why(PrivateDir::open(&path.join("below/deeper")));
        assert!(text.contains("above it belongs to user 12345"), "{text}");
        assert!(!path.join("below").exists(), "nothing is made there");
    }
}
