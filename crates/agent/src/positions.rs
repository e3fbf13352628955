//! Where in each ring an agent has come to, kept in a file beside the segments so that it outlives the agent, however that
//! ends: all before these positions is with the server or in the spool. What comes after is read and told again by the next
//! agent, since twice told is better than lost.
use crate::segment_dir::SegmentDir;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io;

/// Name of the file, beside the segments: one line each, the segment's file name and the position in each ring.
const FILE: &str = "agent.positions";
/// The same while it is being written.
const FILE_NEW: &str = "agent.positions-new";
/// Largest file believed: 256 segments x (64 rings x 21 digits + 64 bytes of name) = 351 KiB, with room.
const FILE_BYTES_MAX: u64 = 512 << 10;

/// Positions by the segment's file name.
pub(crate) type Positions = BTreeMap<String, Vec<u64>>;

/// The positions that the last agent kept; none if it kept none that can be read. The file stays until it is replaced.
pub(crate) fn read(dir: &SegmentDir) -> Positions {
    let text = dir.read_own(OsStr::new(FILE), FILE_BYTES_MAX).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<(String, Vec<u64>)> {
    let mut words = line.split(' ');
    let name = words.next()?.to_owned();
    let positions = words.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    Some((name, positions))
}

/// Keeps positions for the next agent, in place of those kept before.
pub(crate) fn keep<'a>(dir: &SegmentDir, positions: impl Iterator<Item = (&'a str, &'a [u64])>) -> io::Result<()> {
    let mut text = String::new();
    for (name, positions) in positions {
        text.push_str(name);
        for position in positions {
            // Writing to a string cannot fail.
            let _ = write!(text, " {position}");
        }
        text.push('\n');
    }
    let new = OsStr::new(FILE_NEW);
    // An agent that was killed while it wrote left one; most often there is none.
    let _ = dir.remove(new);
    let mut file = dir.open_own(new, OFlags::EXCL, Mode::RUSR | Mode::WUSR)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    dir.rename(new, OsStr::new(FILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir(temp: &tempfile::TempDir) -> SegmentDir {
        SegmentDir::open(&temp.path().join("segments")).expect("made")
    }

    #[test]
    fn positions_are_kept_until_others_are() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = dir(&temp);
        assert!(read(&dir).is_empty());
        let positions = [vec![5, 0, u64::MAX], vec![]];
        let names = ["1-2-aa.mycroft", "3-4-bb.mycroft"];
        keep(&dir, names.into_iter().zip(positions.iter().map(Vec::as_slice))).expect("written");
        for _ in 0..2 {
            let read = read(&dir);
            assert_eq!(read.get("1-2-aa.mycroft"), Some(&positions[0]));
            assert_eq!(read.get("3-4-bb.mycroft"), Some(&positions[1]));
        }
        std::fs::write(dir.path().join(FILE_NEW), "half").expect("an agent was killed here");
        keep(&dir, std::iter::once(("5-6-cc.mycroft", &[7][..]))).expect("written");
        assert_eq!(read(&dir).into_iter().collect::<Vec<_>>(), [("5-6-cc.mycroft".to_owned(), vec![7])]);
    }

    #[test]
    fn garbage_is_no_position() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = dir(&temp);
        let file = dir.path().join(FILE);
        std::fs::write(&file, "a 1 x\nb -1\n\nc 99999999999999999999\nd 7\n").expect("write");
        let kept: Vec<_> = read(&dir).into_iter().collect();
        assert_eq!(kept, [(String::new(), vec![]), ("d".to_owned(), vec![7])]);
        std::fs::write(&file, vec![b'1'; FILE_BYTES_MAX as usize + 1]).expect("write");
        assert!(read(&dir).is_empty());
    }

    #[test]
    fn a_pipe_in_its_place_holds_nobody() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = dir(&temp);
        let made = std::process::Command::new("mkfifo").arg(dir.path().join(FILE)).status().expect("mkfifo runs");
        assert!(made.success() && read(&dir).is_empty());
        keep(&dir, std::iter::once(("5-6-cc.mycroft", &[7][..]))).expect("in its place");
        assert_eq!(read(&dir).len(), 1);
    }
}
