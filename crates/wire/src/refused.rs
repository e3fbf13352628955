//! Why connections end, and lines about agents that were refused: each of some minutes' first ones, and how many were not told.
use crate::refusal::Refusal;
use crate::sync::lock;
use mycroft_record::text::printable_within;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fmt, io};

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

/// Lets a limited number of lines a minute through.
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
    /// Whether a line may be told now, and how many were left out before it; `None`: there were enough.
    pub(super) fn admit(&self, now: Instant) -> Option<LeftOut> {
        let mut state = lock(&self.state);
        if state.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (state.since, state.lines) = (Some(now), 0);
        }
        if state.lines >= LINES_MAX {
            state.untold += 1;
            return None;
        }
        state.lines += 1;
        Some(LeftOut(std::mem::take(&mut state.untold)))
    }
}

/// How many lines were not told before one that is; the end of that line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            untold => write!(f, " ({untold} lines like it were left out before)"),
        }
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
        let admitted: Vec<_> = (0..1000).filter_map(|_| told.admit(begin)).collect();
        assert_eq!(admitted, vec![LeftOut(0); LINES_MAX as usize]);
        let left_out = |now| told.admit(now).expect("room").to_string();
        assert_eq!(left_out(begin + WINDOW), " (990 lines like it were left out before)");
        assert_eq!(left_out(begin + WINDOW), "");
    }
}
