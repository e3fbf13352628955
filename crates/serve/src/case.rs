//! A case as the server keeps it: what an engine says of it, under the server's own number, and what the server knows
//! besides. JSON is made of it at the edge only (`api`).
use mycroft_diagnose::validate::Outcome;
use mycroft_diagnose::{Case, CaseState, Gain, Reason};
use mycroft_record::{Category, HostTime, JobName, Suspect};

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

/// The rule of a reason that a test gave.
const VALIDATION: &str = "validation";

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

/// What a test of the suspects in the held job said (`mycroft validate --case --tell`).
#[derive(Clone, PartialEq, Debug)]
pub struct Validation {
    /// When it was told, server clock.
    pub at: HostTime,
    /// What became of the first suspect.
    pub outcome: Outcome,
    /// What kind of fault it is since.
    pub category: Category,
    /// Whom the case names since, most likely first.
    pub suspects: Vec<Suspect>,
    /// What was measured, one sentence.
    pub text: String,
    /// Who tested.
    pub who: String,
    /// The case's revisions when it was tested: what its engine says after another one counts more.
    pub revisions: u32,
}

/// What somebody said of a case (`POST /api/v1/cases/ID/notes`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// When, server clock.
    pub at: HostTime,
    /// Who.
    pub who: String,
    /// What; may be empty.
    pub text: String,
    /// Somebody looks after it from here on.
    pub acknowledges: bool,
    /// No alerts of it until then, but of its end; the newest note that says so counts.
    pub silent_until: Option<HostTime>,
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
    /// The last test of its suspects; `case` says what it says while the engine has not changed its mind since.
    pub validation: Option<Validation>,
    /// What people said of it, oldest first.
    pub notes: Vec<Note>,
}

impl BookedCase {
    /// A case of `job` as its engine tells it.
    pub fn of(number: u64, job: &JobName, case: &Case) -> BookedCase {
        let (job, case) = (JobName::clone(job), case.clone());
        BookedCase {
            number,
            job,
            state: case.state.into(),
            case,
            captures: Vec::new(),
            validation: None,
            notes: Vec::new(),
        }
    }

    /// Whether it holds.
    pub fn is_open(&self) -> bool {
        self.state == BookState::Open
    }

    /// Whether its suspect and category are settled.
    pub fn is_settled(&self) -> bool {
        self.case.finding.diagnosed_at.is_some()
    }

    /// Whether alerts of it are withheld.
    pub fn is_silent(&self, now: HostTime) -> bool {
        let said = self.notes.iter().rev().find_map(|note| note.silent_until);
        self.is_open() && said.is_some_and(|until| until > now)
    }

    /// Takes over what an engine knows nothing of, as the server had it: captures, a test of the suspects, what people said.
    pub(crate) fn take_over(&mut self, known: &BookedCase) {
        if self.captures.is_empty() {
            known.captures.iter().for_each(|capture| self.gain(capture.clone()));
        }
        if let (None, Some(validation)) = (&self.validation, &known.validation) {
            self.take_validation(validation.clone());
        }
        if self.notes.is_empty() {
            self.notes.clone_from(&known.notes);
        }
    }

    /// Adds a capture and what it brought.
    pub(crate) fn gain(&mut self, capture: Capture) {
        self.case.gain(&capture.gain);
        self.captures.push(capture);
    }

    /// Takes what a test said for a fact: whom the case names, how sure, and why. Once the engine has revised the case, only that it
    /// was tested is kept.
    pub(crate) fn take_validation(&mut self, validation: Validation) {
        if validation.revisions == self.case.revisions {
            self.case.finding.category = validation.category;
            self.case.finding.suspects.clone_from(&validation.suspects);
            self.case.because.retain(|reason| reason.rule != VALIDATION);
            let text = format!("tested in the held job: {}: {}", validation.outcome.as_str(), validation.text);
            self.case.because.push(Reason { rule: VALIDATION.into(), text, evidence: Vec::new() });
        }
        self.validation = Some(validation);
    }

    /// Ends it without its engine.
    pub(crate) fn end(&mut self, state: BookState, why: &str, now: HostTime) {
        self.state = state;
        self.case.state = CaseState::Closed;
        why.clone_into(&mut self.case.closed_because);
        (self.case.updated_at, self.case.closed_at) = (now, now);
    }
}
