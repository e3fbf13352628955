//! The lives of a job: from its start to its end, and again when it is started once more under the same name.
use mycroft_record::HostTime;

/// Lives kept, the newest: a job that is started again every ten minutes for a day has 144.
pub(crate) const LIVES_KEPT: usize = 144;

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum How {
    /// By itself, as it should.
    Finished,
    /// Somebody or something outside the job ended all of it at once: a user, a scheduler.
    Outside,
    /// A part of it was gone before the rest: there is a case about it.
    Failed,
}

impl How {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            How::Finished => "finished",
            How::Outside => "ended-from-outside",
            How::Failed => "failed",
        }
    }
}

/// The end of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    /// When the last of it was seen to be gone (clock of its host).
    pub at: HostTime,
    /// How.
    pub how: How,
    /// One sentence with the numbers.
    pub because: String,
}

/// One life of a job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Life {
    /// 1 for the first that is known of.
    pub number: u32,
    /// When its first records were collected (clock of their host).
    pub began: HostTime,
    /// How it ended; `None` while it goes on.
    pub ended: Option<Ending>,
}
