//! Why some bytes are of no use: where, and what was found there.
use std::fmt;

/// What was wrong and at which byte. A pointer wide, since every step of a reader may return one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fault(Box<Told>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Told {
    at: usize,
    what: String,
    cut_short: bool,
}

impl Fault {
    /// A fault at `at`, the offset from the start of the file: what was found there, and what was expected.
    #[cold]
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Fault {
        Fault(Box::new(Told { at, what: what.into(), cut_short: false }))
    }

    /// The file ends in the middle; what was read up to here is good.
    #[cold]
    pub(crate) fn cut_short(at: usize, what: impl Into<String>) -> Fault {
        Fault(Box::new(Told { at, what: what.into(), cut_short: true }))
    }

    /// Whether the file is good as far as it goes.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.0.cut_short
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.0.at, self.0.what)
    }
}

impl std::error::Error for Fault {}
