//! What files in a directory of segments are called.
use crate::fixed::FixedText;

/// End of a segment's file name; what stands before is PID-STARTTIME-NONCE.
pub const SUFFIX: &str = ".mycroft";
/// End of the name while a segment is being made.
pub const TEMPORARY_SUFFIX: &str = ".mycroft-new";
/// File that an agent locks in a directory of segments for as long as it runs (with an open file description lock, which
/// can be asked for without being taken).
pub const AGENT_LOCK: &str = "agent.lock";

/// Bytes of a file name: numbers of 10, 20 and 8 digits, two dashes, a suffix of 12 and the end are 53.
const NAME_BYTES: usize = 64;

/// The name of a file here.
pub(crate) type FileName = FixedText<NAME_BYTES>;

/// What the name of a segment's file says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    /// It was never published.
    pub(crate) unfinished: bool,
}

impl Named {
    /// `None` for names of other files.
    pub(crate) fn of(name: &[u8]) -> Option<Named> {
        let name = std::str::from_utf8(name).ok()?;
        let (stem, unfinished) = match name.strip_suffix(SUFFIX) {
            Some(stem) => (stem, false),
            None => (name.strip_suffix(TEMPORARY_SUFFIX)?, true),
        };
        let mut parts = stem.split('-');
        Some(Named { pid: parts.next()?.parse().ok()?, start_time: parts.next()?.parse().ok()?, unfinished })
    }
}
