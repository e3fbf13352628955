//! Tests of the whole server with a scripted brain in the engine's place: everything else is the real thing.
mod acts;
mod alerts;
mod collector;
#[cfg(feature = "kafka")]
mod distributed;
mod divisions;
mod dumps;
mod events;
mod example;
mod fleet;
mod heard;
mod hostile;
mod live_page;
mod live_views;
mod notes;
mod operations;
mod otlp;
mod prometheus;
#[cfg(feature = "clickhouse")]
mod records;
mod restarts;
mod resting;
mod routes;
mod running;
mod secure;
mod series;
mod tokens;

pub(crate) use example::{example_case, example_report};

use crate::config::ServeConfig;
use crate::job::Brain;
use crate::server::{Seams, ServerHandle, start};
use example::{example_measured, unsettled};
use mycroft_diagnose::operations::{Operations, Wanted};
use mycroft_diagnose::{Case, CaseEvent, CaseId, CaseState, Ending, How, Life, Measured, Report, Said};
use mycroft_record::{Batch, Category, Gap, HostTime, JobName, NANOS_PER_SEC, Rank, Record, Source, StepMark, What};
use operations::example_operations;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Nothing here takes longer unless it is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// 2025-01-01T00:00:00Z.
pub(crate) const NEW_YEAR: u64 = 1_735_689_600 * NANOS_PER_SEC;

/// Steps that tell the scripted brain what to do.
pub(crate) const OPEN: u64 = 1;
pub(crate) const SETTLE: u64 = 2;
pub(crate) const CLOSE: u64 = 3;
pub(crate) const WITHDRAW: u64 = 4;
pub(crate) const PANIC_IN_OBSERVE: u64 = 5;
pub(crate) const PANIC_IN_TICK: u64 = 6;
pub(crate) const PANIC_IN_REPORT: u64 = 7;
/// The brain stays in `observe` until the gate opens.
pub(crate) const BLOCK: u64 = 8;
/// From the next tick on something is due at once, until a case opens.
pub(crate) const DUE_NOW: u64 = 9;
/// As `SETTLE`, but no event tells it.
pub(crate) const SETTLE_QUIETLY: u64 = 10;
/// The last case says something else although it had settled.
pub(crate) const REVISE: u64 = 11;
/// The job is ended from outside.
pub(crate) const END_JOB: u64 = 12;
/// The job is started again.
pub(crate) const BEGIN_ANEW: u64 = 13;
/// Two minutes of iterations have been measured, in the last of which rank 1 was slow.
pub(crate) const MEASURE: u64 = 14;
/// The same of 10,240 ranks.
pub(crate) const MEASURE_MANY: u64 = 15;
/// Nothing but a record.
pub(crate) const NOTHING: u64 = 0;

/// What the brain met, told to the test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Met {
    Step(JobName, u64),
    Gap(JobName, u64),
}

/// A brain that does as the step marks say. It changes cases at ticks only, as the engine does.
struct Scripted {
    job: JobName,
    pending: Vec<u64>,
    cases: Vec<Case>,
    lives: Vec<Life>,
    measured: Measured,
    due: bool,
    fail_report: bool,
    met: Sender<Met>,
    gate: Arc<Mutex<()>>,
}

impl Brain for Scripted {
    fn observe(&mut self, batch: &Batch) {
        for record in &batch.records {
            let step = match record {
                Record::StepMark(StepMark { step, .. }) => *step,
                Record::Gap(Gap { lost, .. }) => {
                    let _ = self.met.send(Met::Gap(self.job.clone(), *lost));
                    continue;
                }
                _ => continue,
            };
            let _ = self.met.send(Met::Step(self.job.clone(), step));
            match step {
                PANIC_IN_OBSERVE => panic!("scripted defect in observe"),
                BLOCK => drop(mycroft_wire::sync::lock(&self.gate)),
                PANIC_IN_REPORT => self.fail_report = true,
                NOTHING => {}
                step => self.pending.push(step),
            }
        }
    }

    fn tick(&mut self, now: HostTime) -> Vec<CaseEvent> {
        let mut events = Vec::new();
        for step in std::mem::take(&mut self.pending) {
            let id = CaseId(self.cases.len() as u64);
            match step {
                DUE_NOW => self.due = true,
                OPEN => {
                    self.due = false;
                    let id = CaseId(id.0 + 1);
                    self.cases.push(Case { finding: unsettled(), ..example_case(id, now) });
                    events.push(CaseEvent::Opened(id));
                }
                SETTLE | SETTLE_QUIETLY => {
                    let case = self.cases.last_mut().expect("a case was opened");
                    case.finding = example_case(id, now).finding;
                    events.extend((step == SETTLE).then_some(CaseEvent::Strengthened(id)));
                }
                CLOSE => {
                    let case = self.cases.last_mut().expect("a case was opened");
                    (case.state, case.closed_at, case.closed_because) = (CaseState::Closed, now, "recovered".into());
                    events.push(CaseEvent::Closed(id));
                }
                REVISE => {
                    let case = self.cases.last_mut().expect("a case was opened");
                    case.revised_from(Said::of(&case.finding, now));
                    (case.finding.category, case.updated_at) = (Category::HostThread, now);
                    events.push(CaseEvent::Revised(id));
                }
                END_JOB => {
                    let because = "8 ranks of 2 hosts were gone within 12 ms".to_owned();
                    let ended = Some(Ending { at: now, how: How::Outside, because });
                    self.lives = vec![Life { number: 1, began: HostTime(NEW_YEAR), ended }];
                }
                BEGIN_ANEW => self.lives.push(Life { number: 2, began: now, ended: None }),
                MEASURE => self.measured = example_measured(begun(now), 4),
                MEASURE_MANY => self.measured = example_measured(begun(now), 10_240),
                WITHDRAW => {
                    self.cases.pop();
                    events.push(CaseEvent::Withdrawn(id));
                }
                PANIC_IN_TICK => panic!("scripted defect in tick"),
                other => unreachable!("no script for step {other}"),
            }
        }
        events
    }

    fn next_check(&self, now: HostTime) -> Option<HostTime> {
        self.due.then_some(now + 1)
    }

    fn report(&self, now: HostTime) -> Report {
        assert!(!self.fail_report, "scripted defect in report");
        Report { cases: self.cases.clone(), ..example_report(self.job.clone(), now) }
    }

    fn cases(&self) -> &[Case] {
        &self.cases
    }

    fn lives(&self) -> &[Life] {
        &self.lives
    }

    fn take_measured(&mut self) -> Measured {
        std::mem::take(&mut self.measured)
    }

    fn operations(&self, wanted: &Wanted) -> Operations {
        example_operations(wanted)
    }
}

/// The ten seconds that have begun last: what was measured before then lies alike in pieces of time, whenever a test starts.
fn begun(now: HostTime) -> HostTime {
    HostTime(now.0 - now.0 % (10 * NANOS_PER_SEC))
}

/// A server with scripted brains and a clock that goes on by itself, and what the test holds of it.
pub(crate) struct World {
    pub(crate) server: ServerHandle,
    pub(crate) met: Receiver<Met>,
    pub(crate) gate: Arc<Mutex<()>>,
    clock: Arc<AtomicU64>,
    begun: Instant,
}

impl World {
    /// Starts with the given configuration; addresses that are not set are port 0.
    pub(crate) fn start(config: ServeConfig) -> World {
        World::with_queue(config, 1000)
    }

    pub(crate) fn with_queue(config: ServeConfig, queue_records: usize) -> World {
        World::begun(config, queue_records, NEW_YEAR)
    }
    /// The same with another time on the server's clock.
    pub(crate) fn begun(config: ServeConfig, queue_records: usize, now_ns: u64) -> World {
        let (met_to, met) = channel();
        let gate = Arc::new(Mutex::new(()));
        let clock = Arc::new(AtomicU64::new(now_ns));
        let (brain_gate, brain_clock, begun) = (Arc::clone(&gate), Arc::clone(&clock), Instant::now());
        let seams = Seams {
            make: Arc::new(move |job| {
                Box::new(Scripted {
                    job: job.clone(),
                    pending: Vec::new(),
                    lives: Vec::new(),
                    measured: Measured::default(),
                    cases: Vec::new(),
                    due: false,
                    fail_report: false,
                    met: met_to.clone(),
                    gate: Arc::clone(&brain_gate),
                })
            }),
            clock: Arc::new(move || HostTime(brain_clock.load(Ordering::SeqCst) + begun.elapsed().as_nanos() as u64)),
            queue_records,
            metrics_every: Duration::from_millis(50),
            ..Seams::default()
        };
        let server = start(config, seams).expect("the server starts");
        World { server, met, gate, clock, begun }
    }

    /// Lets server time pass.
    pub(crate) fn pass(&self, ns: u64) {
        self.clock.fetch_add(ns, Ordering::SeqCst);
    }

    /// Sends steps of a job, one batch each, from `host0`.
    pub(crate) fn send(&self, job: &str, steps: &[u64]) {
        for &step in steps {
            assert!(self.server.ingest(batch(job, &[step])), "there is room");
        }
    }

    /// Waits until the brain met this.
    pub(crate) fn meets(&self, wanted: &Met) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let met = self.met.recv_timeout(left).unwrap_or_else(|_| panic!("the brain never met {wanted:?}"));
            if met == *wanted {
                return;
            }
        }
    }

    /// GET, answered 200, as JSON.
    pub(crate) fn json(&self, path: &str) -> serde_json::Value {
        let answer = get(self.server.http_addr(), path, &[]);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).expect("an answer in JSON")
    }

    /// Asks for the path until the answer satisfies `wanted`.
    pub(crate) fn until(&self, path: &str, wanted: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let value = self.json(path);
            if wanted(&value) {
                return value;
            }
            assert!(Instant::now() < deadline, "{path} stayed {value}");
        }
    }
}

/// A server for quick tests: loopback, no wire, a tick of 10 ms.
pub(crate) fn quick() -> ServeConfig {
    ServeConfig {
        http: SocketAddr::from(([127, 0, 0, 1], 0)),
        tick: Duration::from_millis(10),
        ..ServeConfig::default()
    }
}

/// A batch of step marks.
pub(crate) fn batch(job: &str, steps: &[u64]) -> Batch {
    let mark = |&step| Record::StepMark(StepMark { at: HostTime(NEW_YEAR), step });
    Batch {
        source: Source { job: job.into(), host: "host0".into(), process: None },
        collected_at: HostTime(NEW_YEAR),
        records: steps.iter().map(mark).collect(),
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// GET with more header lines.
pub(crate) fn get(address: SocketAddr, path: &str, headers: &[&str]) -> Answer {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    raw(address, request.as_bytes()).unwrap_or_else(|| panic!("no answer to GET {path}"))
}

/// Sends bytes and reads to the end; `None`: closed without an answer.
pub(crate) fn raw(address: SocketAddr, request: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    // The server may have refused before it read all.
    let _ = stream.write_all(request);
    let mut bytes = Vec::new();
    if stream.read_to_end(&mut bytes).is_err() && bytes.is_empty() {
        return None;
    }
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head: head.to_owned(), body: body.to_owned() })
}
