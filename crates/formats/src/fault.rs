//! Why some bytes are of no use: where, and what was found there.

/// What was wrong and at which byte.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("byte {at}: {what}")]
pub(crate) struct Fault {
    /// Offset from the start of the file.
    pub(crate) at: usize,
    /// What was found there, and what was expected.
    pub(crate) what: String,
}

impl Fault {
    /// A fault at `at`.
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Fault {
        Fault { at, what: what.into() }
    }
}
