//! The files of a dead job: found below the named folders and read.
//!
//! Others may be able to write into those folders, also while we read. So each named folder is opened once, and all below
//! it is opened relative to that handle, part by part, never through a link; a file is looked at again when it is open, and
//! only regular files are read. Nothing here waits for anybody: a pipe is not opened for reading in earnest.
use mycroft_formats::Naming;
use mycroft_record::dump::Unusable;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Stat, fstat, open, openat, readlinkat, stat, statat};
use rustix::process::geteuid;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most files of a folder: 100,000 ranks with a dump, its JSON and two stack files each, and as many again.
const FILES_MAX: usize = 1 << 20;
/// Deepest folder: node/rank/kind is three.
const DEPTH_MAX: usize = 32;

/// A folder, as something to open what is in it. `PATH` needs no permission to read it.
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A folder, to list it.
const LISTED: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A file: a pipe would hold whoever opens it, a terminal would become ours.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A file to be read.
pub(crate) struct Found {
    place: Place,
    /// Its name for people and for ranks: relative to the folder, `/` between parts.
    pub(crate) name: String,
}

/// How a file is opened.
enum Place {
    /// It was named itself.
    Named(PathBuf),
    /// Below a folder that was named.
    Below { folder: Arc<OwnedFd>, path: PathBuf },
    /// What a link below such a folder leads to.
    Link { folder: Arc<OwnedFd>, path: PathBuf },
    /// What is piped in.
    Input,
}

impl Found {
    /// Whether it is what is piped in: it has no length.
    pub(crate) fn is_input(&self) -> bool {
        matches!(self.place, Place::Input)
    }

    /// Whether it was reached through a link that stands in a folder. Whoever made that link decided what is read, so
    /// nothing of the file is quoted.
    pub(crate) fn is_linked(&self) -> bool {
        matches!(self.place, Place::Link { .. })
    }
}

/// The files below the folders, in the order of their names, and what was passed over.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) files: Vec<Found>,
    /// What is not read because it is no dump: pipes, hidden files, links to folders.
    pub(crate) notes: Vec<String>,
    /// What could hold a dump, and could not be looked into.
    pub(crate) unread: Vec<Unusable>,
}

/// Finds the files of what was named: folders, files, or links to them.
///
/// # Errors
/// One of them is not there, may not be listed, or is neither a folder nor a regular file; in words for who named it.
pub(crate) fn find(dirs: &[PathBuf], naming: &Naming) -> Result<Findings, String> {
    let mut findings = Findings::default();
    for dir in dirs {
        if dir.as_os_str() == "-" {
            findings.files.push(Found { place: Place::Input, name: "-".to_owned() });
            continue;
        }
        let shown = dir.display();
        let told = stat(dir)
            .map_err(|error| format!("{shown}: cannot be read; give the folder that holds the dumps: {error}"))?;
        // One folder needs no name; of several, each file tells whose it is.
        let prefix = if dirs.len() > 1 { format!("{shown}/") } else { String::new() };
        match kind(&told) {
            FileType::Directory => {
                let cannot = |error| format!("{shown}: cannot be listed; check its permissions: {error}");
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let handle = Arc::new(open(dir, flags, Mode::empty()).map_err(cannot)?);
                let root = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
                let mut walk = Walk { folder: &handle, root, naming, findings: &mut findings };
                walk.list(&handle, Path::new(""), &prefix, DEPTH_MAX).map_err(cannot)?;
            }
            FileType::RegularFile => {
                let name = dir.file_name().map_or_else(|| prefix.clone(), |name| name.to_string_lossy().into_owned());
                findings.files.push(Found { place: Place::Named(dir.clone()), name });
            }
            other => return Err(format!("{shown}: {}, and only folders and regular files are read", word(other))),
        }
    }
    findings.files.sort_by(|a, b| a.name.cmp(&b.name));
    findings.unread.sort();
    Ok(findings)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn word(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Symlink => "a link to a link",
        FileType::Directory => "a folder",
        _ => "no regular file",
    }
}

/// One named folder while it is listed.
struct Walk<'a> {
    folder: &'a Arc<OwnedFd>,
    /// Its path without links.
    root: PathBuf,
    naming: &'a Naming,
    findings: &'a mut Findings,
}

impl Walk<'_> {
    /// One folder and those in it. `path`: where it is, below the named one.
    fn list(&mut self, handle: &OwnedFd, path: &Path, prefix: &str, depth: usize) -> rustix::io::Result<()> {
        for entry in Dir::read_from(handle)? {
            let entry = entry?;
            let raw = entry.file_name();
            if matches!(raw.to_bytes(), b"." | b"..") {
                continue;
            }
            let name = format!("{prefix}{}", raw.to_string_lossy());
            let path = path.join(std::ffi::OsStr::from_bytes(raw.to_bytes()));
            // Some file systems do not tell what an entry is.
            let found = match entry.file_type() {
                FileType::Unknown => statat(handle, raw, AtFlags::SYMLINK_NOFOLLOW).map(|stat| kind(&stat)),
                known => Ok(known),
            };
            match found {
                Err(error) => self.unread(name, format!("cannot be looked at: {error}")),
                Ok(FileType::Symlink) => self.link(handle, raw, &path, name),
                Ok(FileType::Directory) if depth == 0 => {
                    self.unread(name, format!("more than {DEPTH_MAX} folders deep"));
                }
                Ok(FileType::Directory) => {
                    let inner = openat(handle, raw, LISTED, Mode::empty());
                    let listed = inner.and_then(|inner| self.list(&inner, &path, &format!("{name}/"), depth - 1));
                    if let Err(error) = listed {
                        self.unread(name, format!("cannot be listed: {error}"));
                    }
                }
                // Hidden files are what editors and copying tools leave behind.
                Ok(FileType::RegularFile) if raw.to_bytes().starts_with(b".") => self.note(name, "hidden, not read"),
                Ok(FileType::RegularFile) => {
                    self.found(name, Place::Below { folder: Arc::clone(self.folder), path });
                }
                // The pipes that trigger dumps lie beside them.
                Ok(_) => self.note(name, "no regular file, not read"),
            }
        }
        Ok(())
    }

    /// A link in a folder. What it leads to is met by itself where it lies below the named folder.
    fn link(&mut self, handle: &OwnedFd, raw: &std::ffi::CStr, path: &Path, name: String) {
        let link = statat(handle, raw, AtFlags::SYMLINK_NOFOLLOW);
        let target = statat(handle, raw, AtFlags::empty());
        let (Ok(link), Ok(target)) = (link, target) else { return self.note(name, "a link to nothing, not read") };
        if std::fs::canonicalize(self.root.join(path)).is_ok_and(|target| target.starts_with(&self.root)) {
            return;
        }
        match kind(&target) {
            FileType::RegularFile if is_trusted(&link, &target) => {
                self.found(name, Place::Link { folder: Arc::clone(self.folder), path: path.to_owned() });
            }
            FileType::RegularFile => self.unread(name, NOT_FOLLOWED.to_owned()),
            FileType::Directory => self.note(name, "a link to a folder outside, not followed; name that folder itself"),
            other => self.note(name, &format!("a link to {}, not read", word(other))),
        }
    }

    fn found(&mut self, name: String, place: Place) {
        if self.findings.files.len() < FILES_MAX {
            self.findings.files.push(Found { place, name });
        } else {
            self.unread(name, format!("beyond {FILES_MAX} files"));
        }
    }

    fn note(&mut self, name: String, why: &str) {
        self.findings.notes.push(format!("{name}: {why}"));
    }

    fn unread(&mut self, name: String, why: String) {
        self.findings.unread.push(Unusable { rank: self.naming.rank(&name), source: name.into(), why });
    }
}

/// Why a link is left alone.
const NOT_FOLLOWED: &str =
    "a link to another user's file outside the folder, not followed; name that file or its folder";

/// Whoever made a link in a folder may lead us to any file that we may read and he may not. So it is followed where he
/// could have put the file there himself: the file is his; or the link is ours.
fn is_trusted(link: &Stat, target: &Stat) -> bool {
    link.st_uid == target.st_uid || link.st_uid == geteuid().as_raw()
}

/// Opens a file, and says how long it is.
///
/// # Errors
/// What went wrong, in words: always the reader's trouble, and no evidence about a rank.
pub(crate) fn opened(file: &Found) -> Result<(File, u64), String> {
    let handle = match &file.place {
        Place::Named(path) => openat(CWD, path, READ, Mode::empty()).map_err(cannot_open)?,
        Place::Below { folder, path } => {
            let inner = inner_folder(folder, path)?;
            openat(inner.as_ref().unwrap_or(folder), last(path)?, READ | OFlags::NOFOLLOW, Mode::empty())
                .map_err(cannot_open)?
        }
        Place::Link { folder, path } => follow(folder, path)?,
        Place::Input => {
            return Ok((std::io::stdin().as_fd().try_clone_to_owned().map_err(|e| e.to_string())?.into(), 0));
        }
    };
    let told = fstat(&handle).map_err(cannot_open)?;
    if kind(&told) != FileType::RegularFile {
        return Err(format!("{} by now, not read", word(kind(&told))));
    }
    Ok((File::from(handle), u64::try_from(told.st_size).unwrap_or(0)))
}

fn cannot_open(error: rustix::io::Errno) -> String {
    match error {
        rustix::io::Errno::LOOP => "a link by now, not followed".to_owned(),
        other => format!("cannot be opened: {other}"),
    }
}

fn last(path: &Path) -> Result<&std::ffi::OsStr, String> {
    path.file_name().ok_or_else(|| "no file name".to_owned())
}

/// The folder that a path below `folder` lies in; `None`: `folder` itself.
fn inner_folder(folder: &OwnedFd, path: &Path) -> Result<Option<OwnedFd>, String> {
    let mut inner: Option<OwnedFd> = None;
    for part in path.parent().into_iter().flat_map(Path::components) {
        let next = openat(inner.as_ref().unwrap_or(folder), part.as_os_str(), FOLDER, Mode::empty());
        inner = Some(next.map_err(cannot_open)?);
    }
    Ok(inner)
}

/// Opens what a link leads to, once: a link that leads to a link is not followed.
fn follow(folder: &OwnedFd, path: &Path) -> Result<OwnedFd, String> {
    let inner = inner_folder(folder, path)?;
    let inner = inner.as_ref().unwrap_or(folder).as_fd();
    let link = openat(inner, last(path)?, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let link = link.map_err(cannot_open)?;
    let told = fstat(&link).map_err(cannot_open)?;
    if kind(&told) != FileType::Symlink {
        return Err("no link any more, not read".to_owned());
    }
    let target = readlinkat(&link, "", Vec::new()).map_err(cannot_open)?;
    let handle = openat(inner, &target, READ | OFlags::NOFOLLOW, Mode::empty()).map_err(|error| match error {
        rustix::io::Errno::LOOP => "a link to a link, not followed".to_owned(),
        other => cannot_open(other),
    })?;
    if !is_trusted(&told, &fstat(&handle).map_err(cannot_open)?) {
        return Err(NOT_FOLLOWED.to_owned());
    }
    Ok(handle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn in_folder(make: impl Fn(&Path)) -> (tempfile::TempDir, Findings) {
        let dir = tempfile::tempdir().expect("a folder");
        make(dir.path());
        let findings = find(&[dir.path().to_owned()], &Naming::default()).expect("a folder that can be listed");
        (dir, findings)
    }

    fn loaded(file: &Found) -> Result<Vec<u8>, String> {
        let (mut file, _) = opened(file)?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).map(|_| bytes).map_err(|error| error.to_string())
    }

    /// Whoever may write into the folder may exchange what we have seen in it.
    #[test]
    fn what_is_exchanged_after_listing_is_not_followed_and_holds_nobody() {
        let outside = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(outside.path(), "secret").expect("it can be written");
        let make = |dir: &Path| {
            std::fs::create_dir(dir.join("node")).expect("a folder");
            std::fs::write(dir.join("node/rank_0"), "dump").expect("a file");
        };
        type Exchange<'a> = (&'a str, &'a dyn Fn(&Path));
        let exchanges: [Exchange<'_>; 4] = [
            ("a link", &|dir| symlink(outside.path(), dir.join("node/rank_0")).expect("a link")),
            ("a pipe", &|dir| {
                let made = std::process::Command::new("mkfifo").arg(dir.join("node/rank_0")).status();
                assert!(made.is_ok_and(|status| status.success()));
            }),
            ("a folder", &|dir| std::fs::create_dir(dir.join("node/rank_0")).expect("a folder")),
            ("a link", &|dir| {
                std::fs::rename(dir.join("node"), dir.join("old")).expect("it can be moved");
                symlink(outside.path().parent().expect("a folder"), dir.join("node")).expect("a link");
            }),
        ];
        for (what, exchange) in exchanges {
            let (dir, findings) = in_folder(make);
            let [file] = findings.files.as_slice() else { panic!("one file, not {}", findings.files.len()) };
            assert_eq!(loaded(file).as_deref(), Ok(&b"dump"[..]));
            std::fs::remove_file(dir.path().join("node/rank_0")).expect("it can be removed");
            exchange(dir.path());
            let why = loaded(file).expect_err(what);
            assert!(why.contains(what) || why.contains("cannot be opened: Not a directory"), "{what}: {why}");
        }
    }

    #[test]
    fn a_link_is_followed_once_and_only_where_its_maker_could_have_copied_the_file() {
        let outside = tempfile::tempdir().expect("a folder");
        let at = |name: &str| outside.path().join(name);
        std::fs::write(at("rank_0"), "dump").expect("a file");
        symlink(at("rank_0"), at("again")).expect("a link");
        let (_dir, findings) = in_folder(|dir| {
            symlink(at("rank_0"), dir.join("rank_0")).expect("a link");
            symlink(at("again"), dir.join("rank_1")).expect("a link");
            symlink(outside.path(), dir.join("folder")).expect("a link");
            symlink("nowhere", dir.join("broken")).expect("a link");
            symlink("/dev/zero", dir.join("rank_2")).expect("a link");
        });
        let read: Vec<_> = findings.files.iter().map(|file| (file.name.as_str(), loaded(file))).collect();
        assert_eq!(read[0], ("rank_0", Ok(b"dump".to_vec())));
        assert_eq!(read[1], ("rank_1", Err("a link to a link, not followed".to_owned())));
        let mut notes = findings.notes.clone();
        notes.sort();
        let says: Vec<&str> = notes.iter().filter_map(|note| note.split_once(": ")).map(|(_, why)| why).collect();
        assert_eq!(read.len(), 2);
        assert_eq!(says[0], "a link to nothing, not read");
        assert!(says[1].starts_with("a link to a folder outside") && says[2] == "a link to a device, not read");
        // Another user's link to a third one's file.
        let stat_of = |uid| {
            let mut stat = stat("/").expect("the root");
            stat.st_uid = uid;
            stat
        };
        let me = geteuid().as_raw();
        assert!(is_trusted(&stat_of(me), &stat_of(me + 1)) && is_trusted(&stat_of(me + 1), &stat_of(me + 1)));
        assert!(!is_trusted(&stat_of(me + 1), &stat_of(me)) && !is_trusted(&stat_of(me + 1), &stat_of(me + 2)));
    }

    #[test]
    fn what_is_no_regular_file_is_refused_when_it_is_named() {
        let dir = tempfile::tempdir().expect("a folder");
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().is_ok_and(|status| status.success()));
        for (path, what) in [(pipe, "a pipe"), (PathBuf::from("/dev/zero"), "a device")] {
            let why = find(&[path], &Naming::default()).err().expect(what);
            assert!(why.contains(what), "{why}");
        }
    }
}
