//! What curves are made of.

/// An epoch that is not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// Its number: times the epoch's length it is nanoseconds.
    pub epoch: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Of these, bytes that had been sent before.
    pub again_bytes: u64,
    /// After a silence, but for what had been sent before, the flow went on in the midst of a message: no operation begins so.
    pub resumes: bool,
}

impl Point {
    /// Bytes that had not been sent before.
    pub fn new_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.again_bytes)
    }
}

impl From<(u64, u64)> for Point {
    fn from((epoch, bytes): (u64, u64)) -> Point {
        Point { epoch, bytes, again_bytes: 0, resumes: false }
    }
}
