//! How long iterations take.

/// One iteration of rank 0, nanoseconds of the simulation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Iteration {
    /// When it began: the end of the one before.
    pub began: u64,
    /// When it ended.
    pub ended: u64,
}

impl Iteration {
    /// How long it took, nanoseconds.
    pub fn ns(&self) -> u64 {
        self.ended - self.began
    }
}
