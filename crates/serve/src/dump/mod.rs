//! Live captures (Flight Recorder paper, "How to leverage FR dumps"): all agents of a job take stacks and dumps at one
//! agreed time, the server gathers the files, runs the autopsy over them and adds what it says to the job's open case.
//!
//! `round` is one capture from order to verdict, `gather` takes in what agents send, `keep` is the directory;
//! `diagnose::Gain` is what a case gains. A capture runs in a thread of its own; the brain and the wire never wait for it.
mod gather;
mod keep;
mod round;

use crate::api::{DumpJson, DumpsJson, TimeJson};
use crate::book::{CaseBook, Filter};
use crate::case::{BookState, BookedCase};
use crate::clock::Clock;
use crate::inbox::Inbox;
use crate::keep_queue::Storage;
use gather::Gathering;
use keep::Keep;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_wire::sync::lock;
use mycroft_wire::{Captured, ListenerHandle};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use tracing::dispatcher::{Dispatch, with_default};
use tracing::warn;

/// Captures at once, of different jobs: each may hold 1,024 dumps of 0.5 MB in memory while they are looked at.
const RUNNING_MAX: usize = 2;
/// Captures that cases of one job may cause within an hour. A capture does not pause the job; more than one in ten
/// minutes would tell little that the last one did not.
const AUTOMATIC_PER_HOUR: usize = 6;
/// The hour of that.
const HOUR_NS: u64 = 3600 * NANOS_PER_SEC;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wish {
    pub(crate) stacks: bool,
    pub(crate) flight_recorder: bool,
    /// Because this case opened.
    pub(crate) case: Option<u64>,
}

/// Why a capture is not begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotBegun {
    /// One of this job is running.
    #[error("a capture of this job is running: wait for it, GET /api/v1/jobs/JOB/dumps lists it")]
    Running,
    /// Too many are.
    #[error("{RUNNING_MAX} captures of other jobs are running: try again in some seconds")]
    Busy,
    /// Nothing was asked for.
    #[error("neither stacks nor Flight Recorder dumps were asked for: leave at least one on")]
    Nothing,
    /// Its files would have no place.
    #[error("no directory for its files can be made: {0}; start the server with a store, or see to its TMPDIR")]
    NoPlace(io::ErrorKind),
    /// The server is stopping, or has no thread left.
    #[error("the server is stopping or out of threads")]
    Stopping,
}

/// What the captures touch outside themselves.
pub(crate) struct Around {
    pub(crate) listeners: Arc<Mutex<Vec<ListenerHandle>>>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) storage: Option<Storage>,
    pub(crate) book: Arc<CaseBook>,
    pub(crate) clock: Clock,
    /// Whom the threads of captures tell, whoever starts them.
    pub(crate) subscriber: Dispatch,
    /// Take one when a case opens.
    pub(crate) on_case: bool,
}

/// All captures of this server.
pub(crate) struct Dumps {
    around: Around,
    keep: Keep,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Newest last; what is on disk.
    known: BTreeMap<u64, DumpJson>,
    /// Those that take in what agents send.
    running: BTreeMap<u64, (String, Arc<Gathering>)>,
    threads: Vec<JoinHandle<()>>,
    /// When cases of a job caused captures, within the hour.
    automatic: BTreeMap<String, VecDeque<HostTime>>,
    next: u64,
    closed: bool,
}

impl Dumps {
    /// Opens the directory; without one (no store) files live in a temporary directory as long as the server.
    pub(crate) fn open(dir: Option<PathBuf>, around: Around) -> io::Result<Dumps> {
        let keep = Keep::open(dir)?;
        let known = keep.load();
        let next = known.keys().next_back().map_or(1, |id| id + 1);
        let dumps = Dumps { keep, state: Mutex::new(State { known, next, ..State::default() }), around };
        dumps.tidy();
        Ok(dumps)
    }

    /// Begins a capture; its number.
    pub(crate) fn begin(self: &Arc<Dumps>, job: &str, wish: Wish) -> Result<u64, NotBegun> {
        if !wish.stacks && !wish.flight_recorder {
            return Err(NotBegun::Nothing);
        }
        let mut state = lock(&self.state);
        if state.closed {
            return Err(NotBegun::Stopping);
        }
        if state.running.values().any(|(running, _)| running == job) {
            return Err(NotBegun::Running);
        }
        if state.running.len() >= RUNNING_MAX {
            return Err(NotBegun::Busy);
        }
        self.keep.prepare().map_err(|error| NotBegun::NoPlace(error.kind()))?;
        let id = state.next;
        state.next += 1;
        let gathering = Arc::new(Gathering::new(id, self.keep.files_of(id)));
        state.known.insert(id, self.fresh(id, job, wish));
        state.running.insert(id, (job.to_owned(), Arc::clone(&gathering)));
        let dumps = Arc::clone(self);
        let subscriber = self.around.subscriber.clone();
        let run = move || with_default(&subscriber, || dumps.run(id, &gathering));
        let thread = Builder::new().name("mycroft-dump".to_owned()).spawn(run);
        match thread {
            Ok(thread) => {
                state.threads.retain(|thread| !thread.is_finished());
                state.threads.push(thread);
                Ok(id)
            }
            Err(_) => {
                state.running.remove(&id);
                state.known.remove(&id);
                Err(NotBegun::Stopping)
            }
        }
    }

    fn fresh(&self, id: u64, job: &str, wish: Wish) -> DumpJson {
        let case = wish.case.or_else(|| {
            let open = Filter { job: Some(job.into()), state: Some(BookState::Open) };
            self.around.book.list(&open, 1).0.first().map(|case| case.number)
        });
        DumpJson {
            id,
            job: job.to_owned(),
            case,
            automatic: wish.case.is_some(),
            state: "running".to_owned(),
            progress: "ordering".to_owned(),
            error: String::new(),
            taken_at: TimeJson::exact((self.around.clock)()),
            ended_at: None,
            stacks: wish.stacks,
            flight_recorder: wish.flight_recorder,
            hosts: Vec::new(),
            tried: Vec::new(),
            files: Vec::new(),
            autopsy: None,
        }
    }

    /// A case opened: takes stacks and dumps of its job, unless that happened too often lately.
    pub(crate) fn case_opened(self: &Arc<Dumps>, case: &BookedCase) {
        let nobody = lock(&self.around.listeners).iter().all(|listener| listener.peers().is_empty());
        if !self.around.on_case || nobody {
            return;
        }
        let now = (self.around.clock)();
        let room = {
            let mut state = lock(&self.state);
            // Jobs come and go.
            state.automatic.retain(|_, times| times.back().is_some_and(|at| now.since_ns(*at) < HOUR_NS));
            let times = state.automatic.entry(case.job.to_string()).or_default();
            while times.front().is_some_and(|at| now.since_ns(*at) >= HOUR_NS) {
                times.pop_front();
            }
            let room = times.len() < AUTOMATIC_PER_HOUR;
            if room {
                times.push_back(now);
            }
            room
        };
        let wish = Wish { stacks: true, flight_recorder: true, case: Some(case.number) };
        let why = match room {
            false => format!("{AUTOMATIC_PER_HOUR} captures of the job within an hour are enough"),
            true => match self.begin(&case.job, wish) {
                Ok(_) => return,
                Err(why) => why.to_string(),
            },
        };
        let (number, job) = (case.number, &case.job);
        warn!(case = number, %job, error = why, "no stacks are taken for case {number}: {why}");
    }

    /// What an agent sent, on the connection of that listener.
    pub(crate) fn captured(&self, listener: usize, connection: u64, captured: Captured) {
        let gathering = lock(&self.state).running.get(&captured.capture()).map(|(_, gathering)| Arc::clone(gathering));
        if let Some(gathering) = gathering {
            gathering.take((listener, connection), captured);
        }
    }

    /// The captures of a job, newest first.
    pub(crate) fn list(&self, job: &str, limit: usize) -> DumpsJson {
        let state = lock(&self.state);
        let mut found = state.known.values().rev().filter(|dump| dump.job == job);
        let dumps = found.by_ref().take(limit).map(DumpJson::short).collect();
        DumpsJson { dumps, more: found.count() as u64 }
    }

    /// One capture of a job, as far as it is.
    pub(crate) fn get(&self, job: &str, id: u64) -> Option<DumpJson> {
        let (dump, gathering) = {
            let state = lock(&self.state);
            let dump = state.known.get(&id).filter(|dump| dump.job == job)?.clone();
            (dump, state.running.get(&id).map(|(_, gathering)| Arc::clone(gathering)))
        };
        Some(match gathering {
            Some(gathering) => gathering.joined(dump),
            None => dump,
        })
    }

    /// Where a file of a capture lies, if it is one.
    pub(crate) fn file(&self, job: &str, id: u64, path: &str) -> Option<PathBuf> {
        let state = lock(&self.state);
        let dump = state.known.get(&id).filter(|dump| dump.job == job)?;
        // Only what the register names: no path of a client is ever joined.
        let file = dump.files.iter().find(|file| file.path == path)?;
        Some(self.keep.files_of(id).join(&file.path))
    }

    fn change(&self, id: u64, act: impl FnOnce(&mut DumpJson)) {
        if let Some(dump) = lock(&self.state).known.get_mut(&id) {
            act(dump);
        }
    }

    /// Deletes what is too old or too much.
    fn tidy(&self) {
        let mut state = lock(&self.state);
        let now = (self.around.clock)();
        let running: Vec<u64> = state.running.keys().copied().collect();
        for id in self.keep.surplus(&state.known, &running, now) {
            state.known.remove(&id);
            if let Err(error) = self.keep.remove(id) {
                warn!(capture = id, %error, "removing the files of capture {id}: {error}");
            }
        }
    }

    /// Wakes whoever writes cases.
    fn wake_keeper(&self) {
        if let Some(storage) = &self.around.storage {
            storage.bell.ring();
        }
    }

    /// Ends what runs and waits for it.
    pub(crate) fn close(&self) {
        let threads = {
            let mut state = lock(&self.state);
            state.closed = true;
            state.running.values().for_each(|(_, gathering)| gathering.stop());
            std::mem::take(&mut state.threads)
        };
        for thread in threads {
            // Its panic was printed by the panic hook and concerns nobody who is stopping.
            let _ = thread.join();
        }
        // Not left to the last owner: a connection's thread may outlive the server by a moment.
        self.keep.end();
    }
}
