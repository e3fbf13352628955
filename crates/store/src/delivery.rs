//! Deliveries: what is kept, in the order in which it reaches the brain again, with few files in memory.
//!
//! Recordings and stores say when each batch arrived and hold them in that order. Stores of version 1 do not: there a
//! batch arrives when it was collected, and files are merged by that time. Only files that overlap are held.
use crate::error::StoreError;
use crate::footer;
use crate::names::SegmentFile;
use crate::segment::Arrived;
use crate::source::{Arrivals, Replay, Source as From};
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
pub struct Deliveries {
    /// Files that do not say when batches arrived: they are older than all others.
    collected: Merge,
    /// Files that hold deliveries in their order.
    arrived: Arrivals,
}

impl Deliveries {
    /// The files of a recording, in their order.
    pub(crate) fn recorded(files: Vec<SegmentFile>) -> Deliveries {
        let sources = files.into_iter().map(From::Segment).collect();
        Deliveries { collected: Merge::new(Vec::new()), arrived: Arrivals::new(sources) }
    }

    /// The files of a store, by their number.
    pub(crate) fn stored(sources: Vec<From>) -> Deliveries {
        let (arrived, collected) = sources.into_iter().partition(says_arrival);
        Deliveries { collected: Merge::new(collected), arrived: Arrivals::new(arrived) }
    }
}

/// Whether a file says when its batches arrived. One that cannot be read is told where it is read.
fn says_arrival(source: &From) -> bool {
    match source {
        From::Segment(file) => footer::says_arrival(&file.path),
        #[cfg(feature = "clickhouse")]
        From::Rows(..) => true,
        From::Log { path, .. } => again(path).is_some_and(|mut log| log.any(|arrived| arrived.at.some().is_some())),
    }
}

/// The batches of a log once more; there are few, and each is bounded.
fn again(path: &std::path::Path) -> Option<impl Iterator<Item = Arrived> + use<>> {
    let path = path.to_owned();
    let pieces = mycroft_wire::log::Pieces::of_file(&path, crate::source::MARKS).ok()?;
    Some(Arrivals::new(vec![From::Log { number: 0, path, pieces }]).flatten())
}

impl Deliveries {
    /// The next delivery, and the number of its file; 0 of what does not say when it arrived, which is older than all.
    pub(crate) fn next_numbered(&mut self) -> Option<(u64, Result<Delivery, StoreError>)> {
        if let Some(delivery) = self.collected.next() {
            return Some((0, delivery));
        }
        let arrived = self.arrived.next()?;
        let delivery = |Arrived { at, batch }: Arrived| {
            let arrives_at = at.some().unwrap_or(batch.collected_at);
            Delivery { arrives_at, batch }
        };
        Some((self.arrived.number(), arrived.map(delivery)))
    }
}

impl Iterator for Deliveries {
    type Item = Result<Delivery, StoreError>;

    fn next(&mut self) -> Option<Result<Delivery, StoreError>> {
        self.next_numbered().map(|(_, delivery)| delivery)
    }
}

/// A file that is not read yet.
#[derive(Debug)]
struct Part {
    /// No batch of it was collected before.
    earliest: HostTime,
    /// Which of the files: the older first.
    number: usize,
    source: From,
}

/// When the first batch of a file was collected.
fn earliest(source: &From) -> HostTime {
    match source {
        From::Segment(file) => footer::earliest(&file.path).unwrap_or_default(),
        // These say when they arrived, and are not merged.
        #[cfg(feature = "clickhouse")]
        From::Rows(..) => HostTime::NONE,
        From::Log { path, .. } => {
            let collected = again(path).and_then(|log| log.map(|arrived| arrived.batch.collected_at).min());
            collected.unwrap_or_default()
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
    fn new(sources: Vec<From>) -> Merge {
        let part = |(number, source)| Part { earliest: earliest(&source), number, source };
        let mut parts: Vec<Part> = sources.into_iter().enumerate().map(part).collect();
        parts.sort_by_key(|part| (part.earliest, part.number));
        Merge { parts: parts.into_iter().peekable(), heads: BinaryHeap::new(), failed: VecDeque::new() }
    }

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
        mycroft_record::batch::sort_as_collected(&mut batches);
        self.heads.extend(Head::of(part.number, batches.into_iter()).map(Reverse));
    }
}
