//! Files that decide whom to believe: tokens, private keys, certificates.
//!
//! Whoever may change such a file decides it too. It is looked at through its handle: a regular file of this user or of
//! root, which nobody else may write to, on a path on which nobody else may put another one.
use crate::dir::{check_above, is_known, own_uid, refused};
use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use tracing::warn;

/// Most that such a file holds: a chain of certificates takes some 10 KB, all authorities of a system some 250 KB.
const BYTES_MAX: u64 = 4 << 20;
/// Write permission for group and others.
const OTHERS_WRITE: u32 = 0o022;
/// Read permission for others.
const ALL_READ: u32 = 0o004;

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holds {
    /// What nobody else may know: a token or a private key. That others may read it is told in the log.
    Secret,
    /// What everybody may know: certificates.
    Public,
}

/// The content of a file.
///
/// # Errors
/// It cannot be opened or read; it is no regular file or larger than 4 MiB; another user owns it, may write to it, or may
/// put another file or link in its place.
pub fn read(path: &Path, holds: Holds) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path, holds)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return refused(format!("it has more than {} MiB", BYTES_MAX >> 20));
    }
    Ok(bytes)
}

fn open(path: &Path, holds: Holds) -> io::Result<File> {
    // A FIFO without a second end would hold whoever opens it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty()) {
        Err(rustix::io::Errno::LOOP) => {
            // As the kernel's protected_symlinks: a link says where its owner wants us to look.
            let link = fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
            check_owner(&link).or_else(|why| refused(format!("it is a link that {why}; give the file itself")))?;
            check_above(&path.canonicalize()?)?;
            fs::open(path, flags, Mode::empty())?
        }
        other => other?,
    };
    check_above(path)?;
    let stat = fs::fstat(&file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return refused("it is no regular file".to_owned());
    }
    check_owner(&stat).or_else(|why| refused(format!("it {why}; chown it to the user who runs this")))?;
    let mode = stat.st_mode & 0o7777;
    if mode & OTHERS_WRITE != 0 {
        return refused(format!("it has mode {mode:04o}, so that other users may change it; chmod go-w it"));
    }
    if holds == Holds::Secret && mode & ALL_READ != 0 {
        let path = path.display();
        warn!(%path, "{path} has mode {mode:04o}: every user of this machine can read this secret; chmod 0600 it");
    }
    Ok(File::from(file))
}

fn check_owner(stat: &Stat) -> Result<(), String> {
    let owner = stat.st_uid;
    if is_known(owner) { Ok(()) } else { Err(format!("belongs to user {owner}, not to user {} or root", own_uid())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
    use std::path::PathBuf;

    fn file(dir: &Path, name: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, "content").expect("written");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("ours");
        path
    }

    fn why(path: &Path) -> String {
        read(path, Holds::Secret).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_file_that_others_may_change_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        for (mode, holds) in
            [(0o600, Holds::Secret), (0o400, Holds::Secret), (0o640, Holds::Secret), (0o644, Holds::Public)]
        {
            let path = file(dir.path(), &format!("{mode:o}"), mode);
            assert_eq!(read(&path, holds).expect("trusted"), b"content", "{mode:o}");
        }
        for mode in [0o620, 0o602, 0o666] {
            let text = why(&file(dir.path(), &format!("{mode:o}"), mode));
            assert!(text.contains("chmod go-w"), "{mode:o}: {text}");
        }
    }

    #[test]
    fn what_is_no_file_or_lies_where_all_may_write_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(why(dir.path()).contains("no regular file"), "{}", why(dir.path()));
        let fifo = dir.path().join("fifo");
        fs::mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).expect("a FIFO");
        assert!(why(&fifo).contains("no regular file"), "{}", why(&fifo));
        assert_eq!(
            read(&dir.path().join("absent"), Holds::Secret).err().map(|e| e.kind()),
            Some(io::ErrorKind::NotFound)
        );
        let path = file(dir.path(), "token", 0o600);
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o777)).expect("ours");
        assert!(why(&path).contains("every user may exchange it"), "{}", why(&path));
    }

    /// As secrets are mounted into a container: links of root to links of root.
    #[test]
    fn own_links_are_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        file(dir.path(), "real", 0o600);
        symlink("real", dir.path().join("one")).expect("a link");
        symlink("one", dir.path().join("two")).expect("a link");
        assert_eq!(read(&dir.path().join("two"), Holds::Secret).expect("trusted"), b"content");
        file(dir.path(), "open", 0o666);
        symlink("open", dir.path().join("to-open")).expect("a link");
        assert!(why(&dir.path().join("to-open")).contains("chmod go-w"));
    }

    /// Root only: others cannot give a file away.
    #[test]
    fn a_file_or_link_of_another_user_is_refused() {
        if own_uid() != 0 {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o1777)).expect("ours");
        let theirs = file(dir.path(), "theirs", 0o600);
        let (real, link) = (file(dir.path(), "real", 0o600), dir.path().join("link"));
        symlink(&real, &link).expect("a link");
        if chown(&theirs, Some(12_345), None).is_err() {
            return; // A user namespace that does not know that user.
        }
        lchown(&link, Some(12_345), None).expect("given away");
        assert!(why(&theirs).contains("belongs to user 12345"), "{}", why(&theirs));
        assert!(why(&link).contains("a link that belongs to user 12345"), "{}", why(&link));
        assert_eq!(why(&real), "");
    }

    #[test]
    fn a_file_without_an_end_is_not_read_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = file(dir.path(), "large", 0o600);
        std::fs::OpenOptions::new().write(true).open(&path).and_then(|f| f.set_len(1 << 40)).expect("a sparse file");
        assert!(why(&path).contains("more than 4 MiB"), "{}", why(&path));
    }
}
