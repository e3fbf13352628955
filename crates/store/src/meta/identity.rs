//! The name of a store in a database that several use (`docs/formats/store.md`, "PostgreSQL").
use super::error::MetaError;
use mycroft_wire::log::sync_dir;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The file in the store's folder.
pub(crate) const FILE: &str = "store-id";
/// Longest name that is believed.
const BYTES_MAX: usize = 128;
/// Random bytes of a made name: 64 bits, so that two of a million stores meet once in 37 million such sites.
const RANDOM_BYTES: usize = 8;

/// The name of the store in this folder; made where it has none. One process uses the folder.
///
/// # Errors
/// The file cannot be read, or holds no name.
pub(crate) fn of(dir: &Path) -> Result<String, MetaError> {
    let path = dir.join(FILE);
    let found = match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => make(dir, &path),
        Err(error) => Err(error),
    };
    let failed = |source| MetaError::File { operation: "reading the name of the store in", path: path.clone(), source };
    let text = found.map_err(failed)?;
    let name = text.trim();
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > BYTES_MAX || !name.chars().all(is_fit) {
        let told = format!("expected a name of 1 to {BYTES_MAX} letters, digits, dots, hyphens and underscores");
        return Err(failed(io::Error::new(ErrorKind::InvalidData, told)));
    }
    Ok(name.to_owned())
}

/// The name of the store in this folder, which has one.
///
/// # Errors
/// The file is not there or cannot be read, or holds no name.
#[cfg(feature = "clickhouse")]
pub(crate) fn named(dir: &Path) -> Result<String, MetaError> {
    let path = dir.join(FILE);
    match std::fs::metadata(&path) {
        Ok(_) => of(dir),
        Err(source) => Err(MetaError::File { operation: "reading the name of the store in", path, source }),
    }
}

/// Host and random digits: a person sees whose it is.
fn make(dir: &Path, path: &Path) -> io::Result<String> {
    let mut random = [0; RANDOM_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host: String = host.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(BYTES_MAX / 2).collect();
    let name = format!("{host}-{:016x}\n", u64::from_be_bytes(random));
    let part = dir.join("store-id.tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.write_all(name.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&part, path)?;
    sync_dir(dir)?;
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_keeps_its_name_and_another_has_another() {
        let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let name = of(dir.path()).expect("a name");
        assert_eq!(of(dir.path()).expect("a name"), name);
        assert_ne!(of(other.path()).expect("a name"), name);
        for bad in ["", "a b", "\n", "a'b", &"x".repeat(BYTES_MAX + 1)] {
            std::fs::write(dir.path().join(FILE), bad).expect("written");
            let told = of(dir.path()).expect_err("no name").to_string();
            assert!(told.contains("store-id") && told.contains("expected a name"), "{told}");
        }
    }
}
