//! Deliveries: what is kept, in the order in which it reaches the brain again, with few files in memory.
//!
//! A recording says when each batch arrived and holds them in that order. A server's store does not: there a batch
//! arrives when it was collected, and files are merged by that time. Only files that overlap are held.
use crate::disk::{Replay, ReplaySource, SegmentFile, read_segment};
use crate::facade::StoreError;
use crate::segment::{self, Arrived};
use mycroft_record::{Batch, HostTime, Source};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::iter::Peekable;
use std::vec::IntoIter;

/// A batch and when it reaches the brain.
#[derive(Clone, PartialEq, Debug)]
pub struct Delivery {
    /// When it arrives: as recorded, else when it was collected.
    pub arrives_at: HostTime,
    /// What arrives.
    pub batch: Batch,
}

/// Every delivery of a store or a recording, in order; a file that cannot be read comes as an error that names it, and
/// reading goes on behind it.
#[derive(Debug)]
pub struct Deliveries(Order);

#[derive(Debug)]
enum Order {
    /// Files that hold deliveries in their order.
    Recorded { files: IntoIter<SegmentFile>, ready: IntoIter<Arrived> },
    /// Files that are merged by the time of collection.
    Collected(Merge),
}

impl Deliveries {
    /// The files of a recording, in their order.
    pub(crate) fn recorded(files: Vec<SegmentFile>) -> Deliveries {
        Deliveries(Order::Recorded { files: files.into_iter(), ready: Vec::new().into_iter() })
    }

    /// The files of a store, oldest first.
    pub(crate) fn collected(sources: Vec<ReplaySource>) -> Deliveries {
        let part = |(number, source)| Part { earliest: earliest(&source), number, source };
        let mut parts: Vec<Part> = sources.into_iter().enumerate().map(part).collect();
        parts.sort_by_key(|part| (part.earliest, part.number));
        let parts = parts.into_iter().peekable();
        Deliveries(Order::Collected(Merge { parts, heads: BinaryHeap::new(), failed: VecDeque::new() }))
    }
}

impl Iterator for Deliveries {
    type Item = Result<Delivery, StoreError>;

    fn next(&mut self) -> Option<Result<Delivery, StoreError>> {
        match &mut self.0 {
            Order::Collected(merge) => merge.next(),
            Order::Recorded { files, ready } => loop {
                if let Some(Arrived { at, batch }) = ready.next() {
                    return Some(Ok(Delivery { arrives_at: at.some().unwrap_or(batch.collected_at), batch }));
                }
                match read_segment(files.next()?) {
                    Ok(arrived) => *ready = arrived.into_iter(),
                    Err(error) => return Some(Err(error)),
                }
            },
        }
    }
}

/// A file that is not read yet.
#[derive(Debug)]
struct Part {
    /// No batch of it was collected before.
    earliest: HostTime,
    /// Which of the files: the older first.
    number: usize,
    source: ReplaySource,
}

/// When the first batch of a file was collected. A log must be read for it; there are few, and each is bounded.
fn earliest(source: &ReplaySource) -> HostTime {
    match source {
        ReplaySource::Segment(file) => segment::earliest(&file.path).unwrap_or_default(),
        ReplaySource::Log { path, file, offset, end } => {
            let Ok(file) = file.try_clone() else { return HostTime::NONE };
            let log = ReplaySource::Log { path: path.clone(), file, offset: *offset, end: *end };
            Replay::new(vec![log]).flatten().map(|batch| batch.collected_at).min().unwrap_or_default()
        }
    }
}

/// The next batch of a file that was read.
#[derive(Debug)]
struct Head {
    key: (HostTime, Source, usize),
    batch: Batch,
    rest: IntoIter<Batch>,
}

impl Head {
    fn of(number: usize, mut rest: IntoIter<Batch>) -> Option<Head> {
        let batch = rest.next()?;
        Some(Head { key: (batch.collected_at, batch.source.clone(), number), batch, rest })
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.key == other.key
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Head) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// Batches of several files by (time of collection, source).
#[derive(Debug)]
struct Merge {
    parts: Peekable<IntoIter<Part>>,
    heads: BinaryHeap<Reverse<Head>>,
    failed: VecDeque<StoreError>,
}

impl Merge {
    fn next(&mut self) -> Option<Result<Delivery, StoreError>> {
        loop {
            if let Some(error) = self.failed.pop_front() {
                return Some(Err(error));
            }
            let head_at = self.heads.peek().map(|Reverse(head)| head.key.0);
            let due = |part: &Part| head_at.is_none_or(|at| part.earliest <= at);
            match self.parts.next_if(due) {
                Some(part) => self.load(part),
                None => break,
            }
        }
        let Reverse(Head { key, batch, rest }) = self.heads.pop()?;
        self.heads.extend(Head::of(key.2, rest).map(Reverse));
        Some(Ok(Delivery { arrives_at: key.0, batch }))
    }

    fn load(&mut self, part: Part) {
        let mut batches = Vec::new();
        for batch in Replay::new(vec![part.source]) {
            match batch {
                Ok(batch) => batches.push(batch),
                Err(error) => self.failed.push_back(error),
            }
        }
        batches.sort_by(|a, b| (a.collected_at, &a.source).cmp(&(b.collected_at, &b.source)));
        self.heads.extend(Head::of(part.number, batches.into_iter()).map(Reverse));
    }
}
