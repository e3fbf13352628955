//! The bounded queue of frames on their way to the disk. Nobody waits at it: what finds no room is refused, and its
//! agent sends it again.
use mycroft_record::{Batch, HostTime};
use mycroft_store::Arrival;
use mycroft_store::series::SeriesRows;
use mycroft_wire::Promise;
use mycroft_wire::codec;
use mycroft_wire::sync::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes that may wait. 10,000 GPUs send some 4 MB/s of frames: fifteen seconds of a disk that does nothing.
const QUEUE_BYTES: usize = 64 << 20;
/// A frame's share besides its bytes, so that small ones are not free.
const ENTRY_BYTES: usize = 128;
/// Series that wait to be written: two minutes of all jobs that a server diagnoses.
const SERIES_MAX: usize = 512;
/// A write that takes longer than this shows a disk that hangs.
const WRITE_PATIENCE: Duration = Duration::from_secs(1);

/// A frame on its way to the disk.
#[derive(Debug)]
pub(crate) struct Entry {
    /// When it arrived.
    pub(crate) at: HostTime,
    /// Its bytes.
    pub(crate) frame: Vec<u8>,
    /// Records in it.
    pub(crate) records: usize,
    /// Who waits to hear that it is kept; nobody of what the server says itself.
    pub(crate) promise: Option<Promise>,
}

impl Entry {
    /// As the store takes it.
    pub(crate) fn arrival(&self) -> Arrival<'_> {
        Arrival { at: self.at, frame: &self.frame, records: self.records }
    }

    fn weight(&self) -> usize {
        self.frame.len() + ENTRY_BYTES
    }
}

/// The queue. Many producers, one consumer.
#[derive(Debug)]
pub(crate) struct KeepQueue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Debug)]
struct State {
    entries: VecDeque<Entry>,
    bytes: usize,
    is_open: bool,
    /// The consumer sleeps; waking it costs a system call.
    is_idle: bool,
    /// The last write failed, and nothing has shown yet that the next will not.
    is_failing: bool,
    /// When the write that is going on began.
    writing_since: Option<Instant>,
}

impl KeepQueue {
    /// An empty queue.
    pub(crate) fn new() -> KeepQueue {
        let state = State {
            entries: VecDeque::new(),
            bytes: 0,
            is_open: true,
            is_idle: false,
            is_failing: false,
            writing_since: None,
        };
        KeepQueue { state: Mutex::new(state), filled: Condvar::new() }
    }

    /// Queues a frame; gives it back when there is no room, or the queue is closed.
    pub(crate) fn push(&self, entry: Entry) -> Result<(), Entry> {
        let mut state = lock(&self.state);
        if !state.is_open || state.bytes > 0 && state.bytes + entry.weight() > QUEUE_BYTES {
            return Err(entry);
        }
        state.bytes += entry.weight();
        state.entries.push_back(entry);
        if std::mem::take(&mut state.is_idle) {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits for frames and takes them: at most so many, and no more than so many records after the first. None: the
    /// queue is closed and drained.
    pub(crate) fn take(&self, mut count: usize, mut records: usize) -> Option<Vec<Entry>> {
        let mut state = lock(&self.state);
        state.writing_since = None;
        while state.entries.is_empty() {
            if !state.is_open {
                return None;
            }
            state.is_idle = true;
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.is_idle = false;
        }
        let mut taken: Vec<Entry> = Vec::new();
        while let Some(next) = state.entries.front()
            && count > 0
            && (taken.is_empty() || next.records <= records)
            && let Some(entry) = state.entries.pop_front()
        {
            count -= 1;
            records = records.saturating_sub(entry.records);
            state.bytes -= entry.weight();
            taken.push(entry);
        }
        state.writing_since = Some(Instant::now());
        Some(taken)
    }

    /// Notes what became of a write, or of a try.
    pub(crate) fn note(&self, is_failing: bool) {
        lock(&self.state).is_failing = is_failing;
    }

    /// Whether the last write failed, and nothing has shown yet that the next will not.
    pub(crate) fn is_failing(&self) -> bool {
        lock(&self.state).is_failing
    }

    /// Whether the disk hangs: a write has been going on for long.
    pub(crate) fn hangs(&self) -> bool {
        lock(&self.state).writing_since.is_some_and(|since| since.elapsed() > WRITE_PATIENCE)
    }

    /// Whether frames that were refused may come again.
    pub(crate) fn keeps(&self) -> bool {
        let hangs = self.hangs();
        let state = lock(&self.state);
        !hangs && !state.is_failing && state.bytes <= QUEUE_BYTES / 2
    }

    /// Takes no more; what waits is still handed out.
    pub(crate) fn close(&self) {
        lock(&self.state).is_open = false;
        self.filled.notify_all();
    }
}

/// Wakes the thread that looks after the store.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: Mutex<Rung>,
    rings: Condvar,
}

#[derive(Debug, Default)]
struct Rung {
    cases_changed: bool,
    is_closed: bool,
    /// Series that are to be written.
    series: Vec<SeriesRows>,
}

impl Bell {
    /// Cases changed.
    pub(crate) fn ring(&self) {
        lock(&self.state).cases_changed = true;
        self.rings.notify_one();
    }

    /// Series are to be written at the next round; of more than are kept the oldest are forgotten.
    pub(crate) fn save(&self, rows: Vec<SeriesRows>) {
        let series = &mut lock(&self.state).series;
        series.extend(rows);
        let over = series.len().saturating_sub(SERIES_MAX);
        series.drain(..over);
    }

    /// Series that were not written yet.
    pub(crate) fn take_series(&self) -> Vec<SeriesRows> {
        std::mem::take(&mut lock(&self.state).series)
    }

    /// No more will change.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.rings.notify_one();
    }

    /// Waits for a ring, at most until `deadline`; false: it was closed.
    pub(crate) fn wait(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let quiet = |rung: &mut Rung| !rung.cases_changed && !rung.is_closed;
        let waited = self.rings.wait_timeout_while(lock(&self.state), left, quiet);
        let mut rung = waited.unwrap_or_else(PoisonError::into_inner).0;
        rung.cases_changed = false;
        !rung.is_closed
    }
}

/// What the other threads know of the store.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) queue: Arc<KeepQueue>,
    pub(crate) bell: Arc<Bell>,
    /// When the brain was asked last with a change of a case for an answer, and when it stopped: ns, 0: never.
    told_at: Arc<AtomicU64>,
    stopped_at: Arc<AtomicU64>,
}

impl Storage {
    /// A store that nobody looks after yet.
    pub(crate) fn new() -> Storage {
        Storage {
            queue: Arc::new(KeepQueue::new()),
            bell: Arc::default(),
            told_at: Arc::default(),
            stopped_at: Arc::default(),
        }
    }

    /// Queues what the server itself says; false: there is no room.
    pub(crate) fn say(&self, at: HostTime, batch: &Batch) -> bool {
        let Some(frame) = encoded(std::slice::from_ref(batch)) else { return false };
        self.queue.push(Entry { at, frame, records: batch.records.len(), promise: None }).is_ok()
    }

    /// Cases changed when the brain was asked at `at`.
    pub(crate) fn cases_changed(&self, at: HostTime) {
        self.told_at.store(at.0, Ordering::SeqCst);
        self.bell.ring();
    }

    /// The brain was asked for the last time.
    pub(crate) fn stopped(&self, at: HostTime) {
        self.stopped_at.store(at.0, Ordering::SeqCst);
    }

    /// When a case changed last; `NONE`: never.
    pub(crate) fn told_at(&self) -> HostTime {
        HostTime(self.told_at.load(Ordering::SeqCst))
    }

    /// When the brain stopped; `NONE`: it did not.
    pub(crate) fn stopped_at(&self) -> HostTime {
        HostTime(self.stopped_at.load(Ordering::SeqCst))
    }
}

/// Batches that fit together into a frame, as an entry of the log; none where they do not.
pub(crate) fn encoded(batches: &[Batch]) -> Option<Vec<u8>> {
    if batches.iter().all(codec::is_round) {
        return codec::encode(batches).ok();
    }
    let mut batches = batches.to_vec();
    batches.iter_mut().for_each(codec::round_to_micros);
    codec::encode(&batches).ok()
}
