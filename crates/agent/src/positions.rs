//! Where an agent that stopped in order left off in each ring, so that the next one does not tell completions twice.
//!
//! Written only when everything read before was handed to the server or the spool, and taken away when it is read: after
//! a crash of the agent the rings are read again from their oldest record, since twice told is better than lost.
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Name of the file, beside the segments: one line each, the segment's file name and the position in each ring.
const FILE: &str = "agent.positions";
/// Largest file believed: 256 segments x (64 rings x 21 digits + 64 bytes of name) = 351 KiB, with room.
const FILE_BYTES_MAX: u64 = 512 << 10;

/// Positions by the segment's file name.
pub(crate) type Positions = BTreeMap<String, Vec<u64>>;

/// Takes the positions that the last agent left; none if it left none that can be read.
pub(crate) fn take(dir: &Path) -> Positions {
    let path = dir.join(FILE);
    let fits = std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_file() && m.len() <= FILE_BYTES_MAX);
    let text = if fits { std::fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
    // Not there, most often.
    let _ = std::fs::remove_file(&path);
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<(String, Vec<u64>)> {
    let mut words = line.split(' ');
    let name = words.next()?.to_owned();
    let positions = words.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    Some((name, positions))
}

/// Leaves positions for the next agent.
pub(crate) fn leave<'a>(dir: &Path, segments: impl Iterator<Item = (&'a PathBuf, &'a [u64])>) -> io::Result<()> {
    let mut text = String::new();
    for (path, positions) in segments {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        text.push_str(name);
        for position in positions {
            // Writing to a string cannot fail.
            let _ = write!(text, " {position}");
        }
        text.push('\n');
    }
    let path = dir.join(FILE);
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let mut file = std::fs::File::options();
    let mut file = file.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags).open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_left_and_taken_once() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let paths = [dir.path().join("1-2-aa.mycroft"), dir.path().join("3-4-bb.mycroft")];
        let positions = [vec![5, 0, u64::MAX], vec![]];
        leave(dir.path(), paths.iter().zip(positions.iter().map(Vec::as_slice))).expect("written");
        let taken = take(dir.path());
        assert_eq!(taken.get("1-2-aa.mycroft"), Some(&positions[0]));
        assert_eq!(taken.get("3-4-bb.mycroft"), Some(&positions[1]));
        assert!(take(dir.path()).is_empty(), "taken once");
    }

    #[test]
    fn garbage_is_no_position() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(dir.path().join(FILE), "a 1 x\nb -1\n\nc 99999999999999999999\nd 7\n").expect("write");
        let taken: Vec<_> = take(dir.path()).into_iter().collect();
        assert_eq!(taken, [(String::new(), vec![]), ("d".to_owned(), vec![7])]);
        std::fs::write(dir.path().join(FILE), vec![b'1'; FILE_BYTES_MAX as usize + 1]).expect("write");
        assert!(take(dir.path()).is_empty());
    }
}
