//! OpenTelemetry out: OTLP over HTTP. Changes of cases are log records, a case that is over is a span, and every 15 s there are metrics.
//!
//! One thread reads the feed of changes, which keeps the newest 500 for all readers, and the published sums: nobody waits for it. A
//! collector that is away costs nothing but old log records and spans; cases are always in the API.
mod collector;
mod headers;
mod logs;
mod metrics;
mod spans;
mod values;

pub use headers::OtlpHeaders;

use crate::alert::AlertJson;
use crate::api::CaseJson;
use crate::book::Change;
use crate::config::ServeConfig;
use crate::error::ServeError;
use crate::http::Shared;
use crate::stats::add;
use crate::thread::spawn;
use collector::{Collector, Rejected, Signal};
use metrics::{MeasuredJob, Measurement, points};
use mycroft_record::HostTime;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

/// How often metrics are sent.
pub(crate) const METRICS_EVERY: Duration = Duration::from_secs(15);
/// Changes in one POST: 100 at 5 KB are 0.5 MB.
const TOGETHER_MAX: usize = 100;

/// The thread, as who stops it sees it.
pub(crate) struct Otlp {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Otlp {
    /// Starts the thread, where a collector is named.
    pub(crate) fn start(
        config: &ServeConfig,
        shared: &Arc<Shared>,
        every: Duration,
    ) -> Result<Option<Otlp>, ServeError> {
        let Some(endpoint) = &config.otlp else { return Ok(None) };
        let runtime = Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|source| ServeError::Thread { what: "mycroft-otlp", source })?;
        let (stop, stopped) = watch::channel(false);
        let exporter = Exporter {
            collector: Collector::new(endpoint, &config.otlp_headers, shared.run),
            changed: shared.book.feed().listen(),
            shared: Arc::clone(shared),
            every,
            stopped,
            runtime,
            last: 0,
            has_noted: [false; 3],
            is_away: false,
        };
        let thread = spawn("mycroft-otlp", move || exporter.run())?;
        Ok(Some(Otlp { stop, thread }))
    }

    /// Ends the thread: what waits gets one more try while the collector answers.
    pub(crate) fn close(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for its end.
    pub(crate) fn join(self) {
        // Its panic was printed by the panic hook and concerns nobody who is stopping.
        let _ = self.thread.join();
    }
}

/// Why the thread goes on.
#[derive(PartialEq, Eq)]
enum Woken {
    Stop,
    MetricsDue,
    Changed,
}

/// The thread's state.
struct Exporter {
    collector: Collector,
    shared: Arc<Shared>,
    /// Between two metrics.
    every: Duration,
    changed: watch::Receiver<u64>,
    stopped: watch::Receiver<bool>,
    runtime: Runtime,
    /// The last change that was sent, or given up.
    last: u64,
    /// Signals of which the log says that the collector rejects some.
    has_noted: [bool; 3],
    /// The last metrics were not delivered, and the log says so.
    is_away: bool,
}

impl Exporter {
    fn run(mut self) {
        let mut due = Instant::now() + self.every;
        loop {
            let woken = self.wait(due);
            self.tell_cases();
            match woken {
                Woken::Stop => return,
                Woken::MetricsDue => {
                    self.tell_metrics();
                    due = Instant::now() + self.every;
                }
                Woken::Changed => {}
            }
        }
    }

    fn wait(&mut self, due: Instant) -> Woken {
        let Exporter { runtime, stopped, changed, .. } = self;
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => Woken::Stop,
                () = sleep_until(due) => Woken::MetricsDue,
                // An error: there is no book any more.
                changed = changed.changed() => if changed.is_ok() { Woken::Changed } else { Woken::Stop },
            }
        })
    }

    /// Tells all changes that were not told.
    fn tell_cases(&mut self) {
        loop {
            let (lost, told) = self.shared.book.feed().kept_after(self.last, TOGETHER_MAX);
            self.count(Signal::Logs, DROPPED, lost);
            let Some(newest) = told.last() else { return };
            self.last = newest.number;
            let now = (self.shared.clock)();
            let (mut records, mut spans) = (Vec::new(), Vec::new());
            for one in &told {
                let told = AlertJson { event: one.change.word().to_owned(), case: CaseJson::of(&one.case) };
                records.push(logs::record(&told, now));
                if one.change == Change::Closed {
                    spans.push(spans::span(&told.case));
                }
            }
            let (count, ended) = (records.len() as u64, spans.len() as u64);
            let outcome = self.collector.logs(records, |pause| self.pause(pause));
            let mut is_there = self.delivered(Signal::Logs, count, outcome);
            if ended > 0 && (is_there || !self.stops()) {
                let outcome = self.collector.spans(spans, |pause| self.pause(pause));
                is_there = self.delivered(Signal::Spans, ended, outcome);
            }
            if !is_there && self.stops() {
                // The server stops and the collector is away.
                let (lost, rest) = self.shared.book.feed().kept_after(self.last, usize::MAX);
                return self.count(Signal::Logs, FAILED, lost + rest.len() as u64);
            }
        }
    }

    fn stops(&self) -> bool {
        *self.stopped.borrow()
    }

    fn tell_metrics(&mut self) {
        let shared = &self.shared;
        let open_cases = |job: &str| shared.book.open_count(Some(job));
        let jobs = shared.stats.measured().into_iter();
        let jobs = jobs.map(|(job, sums)| MeasuredJob { open_cases: open_cases(&job.name), job, sums }).collect();
        let (started, now, agents) = (HostTime(shared.run), (shared.clock)(), shared.wire().connections as u64);
        let metrics = Measurement { started, now, agents, jobs }.metrics();
        let count = metrics.iter().map(points).sum::<usize>() as u64;
        let outcome = self.collector.metrics(metrics);
        self.delivered(Signal::Metrics, count, outcome);
    }

    /// Waits between two tries; false: the server stops.
    fn pause(&self, pause: Duration) -> bool {
        let mut stopped = self.stopped.clone();
        let waited = async { timeout(pause, stopped.wait_for(|stopped| *stopped)).await.is_err() };
        self.runtime.block_on(waited)
    }

    /// Counts what became of a POST, and says what is worth it. False: it was not delivered.
    fn delivered(&mut self, signal: Signal, count: u64, outcome: Result<Rejected, String>) -> bool {
        let word = signal.word();
        let is_there = outcome.is_ok();
        match outcome {
            Ok(rejected) => {
                let less = rejected.count.min(count);
                self.count(signal, SENT, count - less);
                self.count(signal, REJECTED, less);
                if rejected.says_something() && !std::mem::replace(&mut self.has_noted[signal as usize], true) {
                    let (number, why) = (rejected.count, rejected.why);
                    warn!(
                        rejected = number,
                        error = why,
                        "the collector did not take {number} {word}: {why}; told once"
                    );
                }
                if signal == Signal::Metrics && std::mem::take(&mut self.is_away) {
                    info!("the collector takes metrics again");
                }
            }
            Err(why) => {
                self.count(signal, FAILED, count);
                // Metrics come again and again, and say it once.
                if signal != Signal::Metrics || !std::mem::replace(&mut self.is_away, true) {
                    warn!(error = why, "{count} {word} were not delivered: {why}");
                }
            }
        }
        is_there
    }

    fn count(&self, signal: Signal, outcome: usize, by: u64) {
        add(&self.shared.stats.otlp[signal as usize][outcome], by);
    }
}

/// Places of `Stats::otlp`.
const SENT: usize = 0;
const FAILED: usize = 1;
const DROPPED: usize = 2;
const REJECTED: usize = 3;
