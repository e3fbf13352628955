//! What outlives this agent if it is killed: how far the rings were read, and the segments of processes that ended. Both
//! change only when the records that were read are with the server or in the spool.
use crate::positions::{self, Positions};
use crate::segment_dir::SegmentDir;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

/// Positions, and what waits until they may be kept.
#[derive(Debug)]
pub(crate) struct Kept {
    /// As in the file.
    positions: Positions,
    /// As of the turn of the outbox that is waited for.
    waiting: Option<(u64, Positions)>,
    /// As of the latest turn.
    latest: Positions,
    /// Segments of processes that ended, with the turn in which their last records were queued.
    ended: BTreeMap<OsString, u64>,
    /// The same of segments whose records are not queued yet.
    ending: Vec<OsString>,
}

impl Kept {
    /// Goes on from what the last agent kept.
    pub(crate) fn new(dir: &SegmentDir) -> Kept {
        let positions = positions::read(dir);
        let latest = Positions::new();
        Kept { positions, waiting: None, latest, ended: BTreeMap::new(), ending: Vec::new() }
    }

    /// How far the rings of a segment were read, so that nothing before it need be read again.
    pub(crate) fn of(&self, name: &OsStr) -> Option<&[u64]> {
        self.positions.get(name.to_str()?).map(Vec::as_slice)
    }

    /// A process ended, and all of its segment was read: the file goes when that is safe.
    pub(crate) fn remove(&mut self, path: &Path) {
        self.ending.extend(path.file_name().map(OsStr::to_owned));
    }

    /// In this turn all records were queued that were read before these positions.
    pub(crate) fn queued<'a>(&mut self, turn: u64, segments: impl Iterator<Item = (&'a Path, &'a [u64])>) {
        self.ended.extend(self.ending.drain(..).map(|name| (name, turn)));
        let name = |path: &Path| Some(path.file_name()?.to_str()?.to_owned());
        self.latest = segments.filter_map(|(path, positions)| Some((name(path)?, positions.to_vec()))).collect();
        self.waiting.get_or_insert_with(|| (turn, self.latest.clone()));
    }

    /// Everything up to a turn is with the server or in the spool.
    pub(crate) fn safe(&mut self, dir: &SegmentDir, turn: u64) -> io::Result<()> {
        self.remove_ended(dir, turn);
        match self.waiting.take_if(|(waiting, _)| *waiting <= turn) {
            Some((_, positions)) => self.keep(dir, positions),
            None => Ok(()),
        }
    }

    /// Everything that was queued will be safe before this process ends.
    pub(crate) fn all(&mut self, dir: &SegmentDir) -> io::Result<()> {
        self.remove_ended(dir, u64::MAX);
        let latest = std::mem::take(&mut self.latest);
        self.keep(dir, latest)
    }

    fn remove_ended(&mut self, dir: &SegmentDir, turn: u64) {
        self.ended.retain(|name, queued| {
            let safe = *queued <= turn;
            if safe {
                // It may be gone already, removed by its process.
                let _ = dir.remove(name);
            }
            !safe
        });
    }

    fn keep(&mut self, dir: &SegmentDir, positions: Positions) -> io::Result<()> {
        if positions == self.positions {
            return Ok(());
        }
        self.positions = positions;
        let lines = self.positions.iter().map(|(name, positions)| (name.as_str(), positions.as_slice()));
        positions::keep(dir, lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_and_files_wait_until_their_records_are_safe() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let dir = SegmentDir::open(&temp.path().join("segments")).expect("made");
        let (running, ended) = (Path::new("/x/1-2-aa.mycroft"), Path::new("/x/3-4-bb.mycroft"));
        let ended_file = dir.path().join("3-4-bb.mycroft");
        std::fs::write(&ended_file, "").expect("written");
        let on_disk = || positions::read(&dir).get("1-2-aa.mycroft").cloned();
        let mut kept = Kept::new(&dir);
        kept.queued(1, [(running, &[10][..]), (ended, &[7])].into_iter());
        kept.remove(ended);
        kept.safe(&dir, 0).expect("nothing to do");
        assert_eq!(on_disk(), None);
        kept.queued(2, std::iter::once((running, &[20][..])));
        kept.safe(&dir, 1).expect("written");
        assert_eq!((on_disk(), ended_file.exists()), (Some(vec![10]), true), "its end was queued in turn 2");
        kept.queued(3, std::iter::once((running, &[30][..])));
        kept.safe(&dir, 2).expect("nothing to write");
        assert_eq!((on_disk(), ended_file.exists()), (Some(vec![10]), false));
        kept.safe(&dir, 3).expect("written");
        assert_eq!(on_disk(), Some(vec![30]));
        kept.queued(4, std::iter::once((running, &[40][..])));
        kept.all(&dir).expect("written");
        assert_eq!(Kept::new(&dir).of(OsStr::new("1-2-aa.mycroft")), Some(&[40][..]), "for the next agent");
    }
}
