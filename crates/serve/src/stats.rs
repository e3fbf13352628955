//! The server's own counters: plain atomics, read by `/metrics` and `/api/v1/health` without touching the brain.
use crate::api::{DiskJson, JobJson};
use crate::census::Totals;
use crate::clocks::ClockBoard;
use crate::fleet::Fleet;
use crate::refusals::Refusals;
use crate::series::Sums;
use mycroft_record::{Category, Finding, JobName, What};
use mycroft_wire::sync::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Counts since the start, unless a name says otherwise.
#[derive(Debug)]
pub(crate) struct Stats {
    /// When the server started.
    pub(crate) started: Instant,
    /// Batches received.
    pub(crate) batches: AtomicU64,
    /// Records received.
    pub(crate) records: AtomicU64,
    /// Records not diagnosed because there are too many jobs.
    pub(crate) dropped_jobs: AtomicU64,
    /// Records not diagnosed because they name more ranks, hosts, communicators or interfaces than are believed.
    pub(crate) dropped_limits: AtomicU64,
    /// What all jobs have named together.
    pub(crate) named: Arc<Totals>,
    /// Records not stored: queue full or disk failed.
    pub(crate) dropped_store: AtomicU64,
    /// Ticks of engines, and their time.
    pub(crate) ticks: AtomicU64,
    /// Nanoseconds spent in ticks.
    pub(crate) tick_ns: AtomicU64,
    /// Engine failures.
    pub(crate) engine_panics: AtomicU64,
    /// Largest age of a batch in the last tick, milliseconds.
    pub(crate) lag_ms: AtomicU64,
    /// Hosts heard lately.
    pub(crate) hosts_heard: AtomicU64,
    /// HTTP answers by hundred: 2xx, 3xx, 4xx, 5xx.
    pub(crate) http: [AtomicU64; 4],
    /// HTTP connections refused because too many were open.
    pub(crate) http_refused: AtomicU64,
    /// Alerts delivered, given up, and dropped for want of room.
    pub(crate) alerts_sent: AtomicU64,
    /// Alerts given up after every try.
    pub(crate) alerts_failed: AtomicU64,
    /// Alerts dropped because too many waited.
    pub(crate) alerts_dropped: AtomicU64,
    /// Log records, spans and points of metrics for a collector: sent, given up, dropped because too many waited, rejected by it.
    pub(crate) otlp: [[AtomicU64; 4]; 3],
    /// Cases opened, by (job, what, category).
    opened: Mutex<BTreeMap<Kind, u64>>,
    /// The clocks of hosts.
    pub(crate) clocks: ClockBoard,
    /// What each host has said of itself.
    pub(crate) fleet: Fleet,
    /// Agents that were refused.
    pub(crate) refusals: Refusals,
    /// The disk of the store, as of the last second.
    pub(crate) disk: Mutex<Option<DiskJson>>,
    /// Jobs as of the last tick.
    board: Mutex<Vec<JobJson>>,
    /// Sums of their series, in the same order.
    sums: Mutex<Vec<Sums>>,
    /// What is wrong with the server, by place.
    problems: Mutex<BTreeMap<&'static str, String>>,
}

/// Job, what and category of a case when it opened.
type Kind = (JobName, What, Category);

/// Kinds of opened cases kept apart: jobs (256) x what (5) x category (13) could be 16,640; jobs come and go.
const OPENED_KINDS: usize = 1 << 12;

impl Stats {
    /// All zero.
    pub(crate) fn new() -> Stats {
        Stats {
            started: Instant::now(),
            batches: AtomicU64::new(0),
            records: AtomicU64::new(0),
            dropped_jobs: AtomicU64::new(0),
            dropped_limits: AtomicU64::new(0),
            named: Arc::default(),
            dropped_store: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
            tick_ns: AtomicU64::new(0),
            engine_panics: AtomicU64::new(0),
            lag_ms: AtomicU64::new(0),
            hosts_heard: AtomicU64::new(0),
            http: Default::default(),
            http_refused: AtomicU64::new(0),
            alerts_sent: AtomicU64::new(0),
            alerts_failed: AtomicU64::new(0),
            alerts_dropped: AtomicU64::new(0),
            otlp: Default::default(),
            opened: Mutex::default(),
            clocks: ClockBoard::default(),
            fleet: Fleet::default(),
            refusals: Refusals::default(),
            disk: Mutex::default(),
            board: Mutex::default(),
            sums: Mutex::default(),
            problems: Mutex::default(),
        }
    }

    /// Counts one tick.
    pub(crate) fn ticked(&self, spent: Duration) {
        add(&self.ticks, 1);
        add(&self.tick_ns, u64::try_from(spent.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts one HTTP answer.
    pub(crate) fn answered(&self, status: u16) {
        let class = usize::from(status / 100).clamp(2, 5) - 2;
        add(&self.http[class], 1);
    }

    /// Counts an opened case.
    pub(crate) fn case_opened(&self, job: &JobName, finding: &Finding) {
        let mut opened = lock(&self.opened);
        let key = (JobName::clone(job), finding.what, finding.category);
        if opened.len() < OPENED_KINDS || opened.contains_key(&key) {
            *opened.entry(key).or_insert(0) += 1;
        }
    }

    /// Cases opened by (job, what, category).
    pub(crate) fn opened(&self) -> BTreeMap<Kind, u64> {
        lock(&self.opened).clone()
    }

    /// Publishes the jobs, and the sums of their series.
    pub(crate) fn publish(&self, jobs: Vec<JobJson>, sums: Vec<Sums>) {
        *lock(&self.board) = jobs;
        *lock(&self.sums) = sums;
    }

    /// The jobs as last published, with the sums of their series.
    pub(crate) fn measured(&self) -> Vec<(JobJson, Sums)> {
        let board = lock(&self.board);
        board.iter().cloned().zip(lock(&self.sums).iter().cloned()).collect()
    }

    /// The jobs as last published.
    pub(crate) fn jobs(&self) -> Vec<JobJson> {
        lock(&self.board).clone()
    }

    /// Notes or clears what is wrong at a place. True: it is news.
    pub(crate) fn problem(&self, place: &'static str, text: Option<String>) -> bool {
        let mut problems = lock(&self.problems);
        match text {
            Some(text) => problems.insert(place, text.clone()) != Some(text),
            None => problems.remove(place).is_some(),
        }
    }

    /// What is wrong now.
    pub(crate) fn problems(&self) -> Vec<String> {
        lock(&self.problems).values().cloned().collect()
    }
}

/// Adds to a counter; counters of this struct order nothing else.
pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Reads a counter.
pub(crate) fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
