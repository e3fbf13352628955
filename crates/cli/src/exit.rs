//! What the process says to its shell.

/// Exit code: done, and nothing is wrong.
pub(crate) const EXIT_OK: u8 = 0;
/// Exit code: done, and something was found (an open case, a wrong verdict, a failed check).
pub(crate) const EXIT_FOUND: u8 = 1;
/// Exit code: it could not be done; one line on standard error says what and where.
pub(crate) const EXIT_ERROR: u8 = 2;
/// Exit code after Ctrl-C, as shells expect (128 + SIGINT).
pub(crate) const EXIT_INTERRUPTED: u8 = 130;
