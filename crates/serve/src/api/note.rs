//! What people say of a case.
use super::TimeJson;
use crate::case::Note;
use mycroft_record::HostTime;
use serde::{Deserialize, Serialize};

/// What somebody said of a case.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NoteJson {
    /// When, server clock.
    pub at: Option<TimeJson>,
    /// Who.
    pub who: String,
    /// What; may be empty.
    pub text: String,
    /// Somebody looks after it from here on.
    pub acknowledges: bool,
    /// No alerts of it until then, but of its end; null: nothing is said of that. The newest note that says so counts.
    pub silent_until: Option<TimeJson>,
}

/// The body of `POST /api/v1/cases/ID/notes`: at least one of text, acknowledge and silence.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoteRequest {
    /// Who says it, at most 200 characters.
    pub who: String,
    /// What, at most 2,000 characters.
    #[serde(default)]
    pub text: String,
    /// Whether somebody looks after it from now on.
    #[serde(default)]
    pub acknowledge: bool,
    /// No alerts for so many seconds from now on, at most a week; 0: alerts again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_s: Option<u64>,
}

impl NoteJson {
    /// The JSON form of a note.
    pub(crate) fn of(note: &Note) -> NoteJson {
        NoteJson {
            at: TimeJson::of(note.at),
            who: note.who.clone(),
            text: note.text.clone(),
            acknowledges: note.acknowledges,
            silent_until: note.silent_until.map(TimeJson::exact),
        }
    }

    /// As it was said.
    pub(crate) fn told(self) -> Note {
        Note {
            at: self.at.map_or(HostTime::NONE, |at| HostTime(at.ns)),
            who: self.who,
            text: self.text,
            acknowledges: self.acknowledges,
            silent_until: self.silent_until.map(|until| HostTime(until.ns)),
        }
    }
}
