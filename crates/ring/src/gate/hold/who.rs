//! How ranks are called.

/// One rank of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    /// Its process.
    pub pid: u32,
    /// Its global rank, `u32::MAX` if not told.
    pub rank: u32,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rank {
            u32::MAX => write!(f, "process {}", self.pid),
            rank => write!(f, "rank {rank} (process {})", self.pid),
        }
    }
}
