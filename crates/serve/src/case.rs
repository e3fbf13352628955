//! A case as the server keeps it: what an engine says of it, under the server's own number, and what the server knows
//! besides. JSON is made of it at the edge only (`api`).
use mycroft_diagnose::{Case, CaseState, Gain};
use mycroft_record::{HostTime, JobName};

/// Whether a case still holds, and who says so.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BookState {
    /// It holds.
    Open,
    /// Its engine ended it: the job recovered, or ended.
    Closed,
    /// Its engine took it back: one pause that went away by itself.
    Withdrawn,
    /// The server ended it because nobody watches it any more: the server restarted, the engine failed, or the job
    /// fell silent.
    Stale,
}

impl BookState {
    /// Every state.
    pub const ALL: [BookState; 4] = [BookState::Open, BookState::Closed, BookState::Stale, BookState::Withdrawn];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            BookState::Open => "open",
            BookState::Closed => "closed",
            BookState::Withdrawn => "withdrawn",
            BookState::Stale => "stale",
        }
    }

    /// The state of a word.
    pub fn from_text(text: &str) -> Option<BookState> {
        BookState::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

impl From<CaseState> for BookState {
    fn from(state: CaseState) -> BookState {
        match state {
            CaseState::Open => BookState::Open,
            CaseState::Closed => BookState::Closed,
        }
    }
}

/// A capture (stacks, Flight Recorder dumps) that was taken for a case.
#[derive(Clone, PartialEq, Debug)]
pub struct Capture {
    /// Number of the capture, unique within a server for ever.
    pub number: u64,
    /// When it was taken, server clock.
    pub taken_at: HostTime,
    /// What the case gained from it.
    pub gain: Gain,
}

/// A case under the server's own number.
#[derive(Clone, PartialEq, Debug)]
pub struct BookedCase {
    /// Number of the case, unique within a server for ever. `case.id` is the engine's own.
    pub number: u64,
    /// The job.
    pub job: JobName,
    /// Whether it holds, and who says so. `case.state` is the engine's last word.
    pub state: BookState,
    /// What is known, with what captures brought.
    pub case: Case,
    /// The captures, oldest first.
    pub captures: Vec<Capture>,
}

impl BookedCase {
    /// A case of `job` as its engine tells it.
    pub fn of(number: u64, job: &JobName, case: &Case) -> BookedCase {
        let (job, case) = (JobName::clone(job), case.clone());
        BookedCase { number, job, state: case.state.into(), case, captures: Vec::new() }
    }

    /// Whether it holds.
    pub fn is_open(&self) -> bool {
        self.state == BookState::Open
    }

    /// Whether its suspect and category are settled.
    pub fn is_settled(&self) -> bool {
        self.case.finding.diagnosed_at.is_some()
    }

    /// Adds a capture and what it brought.
    pub(crate) fn gain(&mut self, capture: Capture) {
        self.case.gain(&capture.gain);
        self.captures.push(capture);
    }

    /// Ends it without its engine.
    pub(crate) fn end(&mut self, state: BookState, why: &str, now: HostTime) {
        self.state = state;
        self.case.state = CaseState::Closed;
        why.clone_into(&mut self.case.closed_because);
        (self.case.updated_at, self.case.closed_at) = (now, now);
    }
}
