//! Progress of long work on standard error: nothing for short work, one redrawn line in a terminal, lines elsewhere.
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Work shorter than this says nothing.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two lines in a terminal.
const REDRAW: Duration = Duration::from_millis(200);
/// Between two lines elsewhere, where each stays.
const REPEAT: Duration = Duration::from_secs(10);

/// What is going on. Dropping it clears its line.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: bool,
    due: Instant,
    shown: bool,
}

impl Progress {
    /// Work that begins now.
    pub(crate) fn start() -> Progress {
        Progress { terminal: std::io::stderr().is_terminal(), due: Instant::now() + PATIENCE, shown: false }
    }

    /// Says where the work is, when it is time to.
    pub(crate) fn say(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        self.due = now + if self.terminal { REDRAW } else { REPEAT };
        self.shown = true;
        let mut out = std::io::stderr().lock();
        // Progress is not worth an error.
        let _ = if self.terminal { write!(out, "\r\x1b[2K{}", text()) } else { writeln!(out, "{}", text()) };
    }

    /// Makes room for a line that stays.
    pub(crate) fn clear(&mut self) {
        if self.terminal && self.shown {
            self.shown = false;
            let _ = write!(std::io::stderr().lock(), "\r\x1b[2K");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
