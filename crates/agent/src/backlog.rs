//! Records that wait on disk while the server is away, and whose they are: what the spool drops is known per source,
//! so that a `Gap` can say it (invariant 4).
use mycroft_record::{Batch, Source};
use mycroft_wire::spool::{Spool, SpoolError};
use mycroft_wire::{Spooled, codec};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// What the spool adds to a frame, at most.
const ENTRY_BYTES_MAX: u64 = 64;
/// Frames turned round at most when older ones must go before them: 1024 x 16 KiB = 16 MiB read and written once.
const TURN_FRAMES_MAX: usize = 1024;

/// Records of one frame: 32 Ki x at most 300 raw bytes = 9.4 MiB of the codec's 16 MiB.
const FRAME_RECORDS_MAX: usize = 32 << 10;

/// Lost records of each source that nobody has been told of yet.
pub(crate) type Lost = BTreeMap<Source, u64>;

/// The spool with a note of the sources of each frame.
pub(crate) struct Backlog {
    spool: Spool,
    /// One entry per frame in the spool, oldest first.
    frames: VecDeque<FrameNote>,
    /// Sources that `FrameNote` numbers; emptied with the spool.
    sources: Vec<Waiting>,
    numbers: BTreeMap<Source, u32>,
    max_bytes: u64,
    dropped_seen: u64,
    /// All that was dropped, as of the last call of `take_dropped`.
    dropped_all: u64,
    /// Dropped without coming to the spool, since the last call of `take_dropped`.
    dropped_unspooled: u64,
}

/// What is in a frame: 8 bytes a source, so 160 k frames (256 MiB at rest) of 8 sources need 14 MiB.
enum FrameNote {
    /// Left by an earlier run: not known.
    Unknown,
    /// Source number and records.
    Known(Vec<(u32, u32)>),
}

/// A source with frames in the spool.
struct Waiting {
    source: Source,
    frames: u32,
}

impl Backlog {
    pub(crate) fn open(dir: &Path, max_bytes: u64) -> Result<Backlog, SpoolError> {
        let spool = Spool::open(dir, max_bytes)?;
        let frames = std::iter::repeat_with(|| FrameNote::Unknown).take(spool.len()).collect();
        // What damage has cost an earlier run is told by this one.
        let dropped_seen = 0;
        Ok(Backlog {
            spool,
            frames,
            sources: Vec::new(),
            numbers: BTreeMap::new(),
            max_bytes,
            dropped_seen,
            dropped_all: 0,
            dropped_unspooled: 0,
        })
    }

    /// Frames waiting.
    pub(crate) fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether records of this source wait, so that newer ones must wait behind them. What an earlier run left may be
    /// anybody's.
    pub(crate) fn holds(&self, source: &Source) -> bool {
        matches!(self.frames.front(), Some(FrameNote::Unknown))
            || self.numbers.get(source).is_some_and(|&n| self.sources[n as usize].frames > 0)
    }

    /// Adds batches behind all others, as one frame. What does not fit any more, oldest first, is added to `lost`; all
    /// of these when the spool fails or is smaller than they are.
    pub(crate) fn push(&mut self, batches: &[Batch], lost: &mut Lost) -> Result<(), String> {
        let records = record_count(batches);
        let pushed = codec::encode(batches).map_err(|e| e.to_string()).and_then(|frame| {
            if frame.len() as u64 + ENTRY_BYTES_MAX > self.max_bytes {
                return Err(format!("a frame of {} bytes does not fit its {} bytes", frame.len(), self.max_bytes));
            }
            let note = self.note(batches);
            self.push_encoded(&frame, records, note, lost)
        });
        if pushed.is_err() {
            self.dropped_unspooled += records;
            for batch in batches {
                count_lost(lost, &batch.source, batch.records.len() as u64);
            }
        }
        pushed
    }

    /// Adds encoded frames before all others (what the server never acknowledged is older). The spool only grows behind,
    /// so it is turned round once, unless it is so large that this would take long; then they go behind.
    pub(crate) fn push_before(&mut self, frames: &[Vec<u8>], lost: &mut Lost) -> Result<(), String> {
        let turn = self.len() <= TURN_FRAMES_MAX;
        for frame in frames {
            let records = codec::header(frame).map_or(0, |header| u64::from(header.records));
            self.push_encoded(frame, records, FrameNote::Unknown, lost)?;
        }
        let behind = if turn { self.len().saturating_sub(frames.len()) } else { 0 };
        for _ in 0..behind {
            let Some(frame) = self.peek(lost).map_err(|e| e.to_string())? else { break };
            let records = codec::header(&frame).map_or(0, |header| u64::from(header.records));
            let note = match self.frames.front_mut() {
                Some(note) => std::mem::replace(note, FrameNote::Unknown),
                None => break,
            };
            self.pop(None).map_err(|e| e.to_string())?;
            self.push_encoded(&frame, records, note, lost)?;
        }
        Ok(())
    }

    /// The spool may drop its oldest frames whether or not it takes this one.
    fn push_encoded(&mut self, frame: &[u8], records: u64, note: FrameNote, lost: &mut Lost) -> Result<(), String> {
        let pushed = self.spool.push(frame, records).map_err(|e| e.to_string());
        self.frames.push_back(note);
        if pushed.is_err()
            && let Some(FrameNote::Known(sources)) = self.frames.pop_back()
        {
            self.forget(&sources);
        }
        self.reconcile(lost);
        pushed
    }

    fn forget(&mut self, sources: &[(u32, u32)]) {
        for &(number, _) in sources {
            self.sources[number as usize].frames -= 1;
        }
    }

    /// The oldest frame, which stays until `pop`; damaged ones before it are dropped and added to `lost`.
    pub(crate) fn peek(&mut self, lost: &mut Lost) -> Result<Option<Vec<u8>>, SpoolError> {
        let frame = self.spool.peek();
        self.reconcile(lost);
        frame
    }

    /// Removes the frame that `peek` showed, as sent or (with `lost`) as lost; its number of batches, 0 if not known.
    pub(crate) fn pop(&mut self, lost: Option<&mut Lost>) -> Result<u64, SpoolError> {
        self.spool.pop()?;
        let batches = match self.forget_oldest(lost) {
            Some(FrameNote::Known(sources)) => sources.len() as u64,
            _ => 0,
        };
        Ok(batches)
    }

    /// Records dropped since the last call, also of unknown sources.
    pub(crate) fn take_dropped(&mut self) -> u64 {
        let dropped = self.spool.dropped_records();
        let new = dropped.saturating_sub(self.dropped_seen);
        self.dropped_seen = dropped;
        let new = new + std::mem::take(&mut self.dropped_unspooled);
        self.dropped_all += new;
        new
    }

    /// What the server is to know of the spool.
    pub(crate) fn spooled(&self) -> Spooled {
        let (records, bytes) = self.spool.waiting();
        Spooled { records, bytes, dropped: self.dropped_all }
    }

    fn note(&mut self, batches: &[Batch]) -> FrameNote {
        let mut known = Vec::with_capacity(batches.len());
        for batch in batches {
            let number = match self.numbers.get(&batch.source) {
                Some(&number) => number,
                None => {
                    let number = self.sources.len() as u32;
                    self.sources.push(Waiting { source: batch.source.clone(), frames: 0 });
                    self.numbers.insert(batch.source.clone(), number);
                    number
                }
            };
            self.sources[number as usize].frames += 1;
            known.push((number, u32::try_from(batch.records.len()).unwrap_or(u32::MAX)));
        }
        FrameNote::Known(known)
    }

    /// Follows what the spool dropped by itself, which is always its oldest.
    fn reconcile(&mut self, lost: &mut Lost) {
        while self.frames.len() > self.spool.len() {
            self.forget_oldest(Some(lost));
        }
    }

    fn forget_oldest(&mut self, mut lost: Option<&mut Lost>) -> Option<FrameNote> {
        let note = self.frames.pop_front()?;
        if let FrameNote::Known(sources) = &note {
            self.forget(sources);
            if let Some(lost) = &mut lost {
                for &(number, records) in sources {
                    count_lost(lost, &self.sources[number as usize].source, u64::from(records));
                }
            }
        }
        if self.frames.is_empty() {
            self.sources.clear();
            self.numbers.clear();
        }
        Some(note)
    }
}

/// Adds to the records lost of a source.
pub(crate) fn count_lost(lost: &mut Lost, source: &Source, records: u64) {
    if records > 0 {
        *lost.entry(source.clone()).or_default() += records;
    }
}

/// Records in all batches.
pub(crate) fn record_count(batches: &[Batch]) -> u64 {
    batches.iter().map(|b| b.records.len() as u64).sum()
}

/// Batches cut into frames that the codec takes.
pub(crate) fn frames(batches: &[Batch]) -> impl Iterator<Item = &[Batch]> {
    let mut rest = batches;
    std::iter::from_fn(move || {
        let mut records = 0;
        let fitting = rest
            .iter()
            .take(codec::MAX_BATCHES)
            .take_while(|batch| {
                records += batch.records.len();
                records <= FRAME_RECORDS_MAX
            })
            .count();
        if rest.is_empty() {
            return None;
        }
        let (frame, left) = rest.split_at(fitting.max(1));
        rest = left;
        Some(frame)
    })
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
