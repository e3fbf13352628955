//! Why connections end, and lines about agents that were refused: each of some minutes' first ones, and how many were not told.
use crate::proto::Refusal;
use mycroft_record::text::{printable, printable_within};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Receives one line for each thing that an operator should know. It must not block.
pub type Log = dyn Fn(&str) + Send + Sync;

/// Lines within [`WINDOW`]: an agent tries again every two seconds; a misconfigured fleet must not fill a disk.
const LINES_MAX: u32 = 10;
/// The time in which so many are told.
const WINDOW: Duration = Duration::from_secs(60);
/// Of a name or reason that a peer gave.
const SHOWN_CHARS: usize = 256;

/// Why a connection ends: silently, or with words.
pub(super) enum End {
    Silent,
    Refuse(Refusal, String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Silent
    }
}

pub(super) fn refuse<T>(code: Refusal, text: impl Into<String>) -> Result<T, End> {
    Err(End::Refuse(code, text.into()))
}

/// Tells a log, a limited number of lines a minute.
#[derive(Default)]
pub(super) struct Told {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    since: Option<Instant>,
    lines: u32,
    untold: u64,
}

impl Told {
    /// The line to tell now, with how many were left out before; `None`: there were enough.
    pub(super) fn line(&self, text: &str, now: Instant) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (state.since, state.lines) = (Some(now), 0);
        }
        if state.lines >= LINES_MAX {
            state.untold += 1;
            return None;
        }
        state.lines += 1;
        let text = printable(text);
        Some(match std::mem::take(&mut state.untold) {
            0 => text.into_owned(),
            untold => format!("{text} ({untold} lines like it were left out before)"),
        })
    }
}

/// A name or reason that a peer gave, for a line.
pub(super) fn shown(text: &str) -> String {
    printable_within(text, SHOWN_CHARS).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_a_few_lines_and_a_count() {
        let (told, begin) = (Told::default(), Instant::now());
        let lines: Vec<_> = (0..1000).filter_map(|_| told.line("no\x1b", begin)).collect();
        assert_eq!(lines, vec!["no\\u{1b}"; LINES_MAX as usize]);
        assert_eq!(
            told.line("no", begin + WINDOW).expect("a new minute"),
            "no (990 lines like it were left out before)"
        );
        assert_eq!(told.line("no", begin + WINDOW).expect("room"), "no");
    }
}
