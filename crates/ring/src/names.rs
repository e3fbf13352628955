//! What files in a directory of segments are called.
use crate::fixed::FixedText;

/// End of a segment's file name; what stands before is PID-STARTTIME-NONCE.
pub const SUFFIX: &str = ".mycroft";
/// End of the name while a segment is being made.
pub const TEMPORARY_SUFFIX: &str = ".mycroft-new";
/// End of the name of the list of a process's queue pairs ([`crate::pairs`]).
pub const PAIRS_SUFFIX: &str = ".mycroft-pairs";
/// File that an agent locks in a directory of segments for as long as it runs (with an open file description lock, which
/// can be asked for without being taken).
pub const AGENT_LOCK: &str = "agent.lock";

/// Bytes of a file name: numbers of 10, 20 and 8 digits, two dashes, a suffix of 14 and the end are 55.
const NAME_BYTES: usize = 64;

/// The name of a file here.
pub(crate) type FileName = FixedText<NAME_BYTES>;

/// What a file of a process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Segment,
    /// A segment that was never published.
    Unfinished,
    Pairs,
}

/// What the name of a process's file says about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    pub(crate) kind: Kind,
}

impl Named {
    /// `None` for names of other files.
    pub(crate) fn of(name: &[u8]) -> Option<Named> {
        let name = std::str::from_utf8(name).ok()?;
        let kinds = [(SUFFIX, Kind::Segment), (TEMPORARY_SUFFIX, Kind::Unfinished), (PAIRS_SUFFIX, Kind::Pairs)];
        let (stem, kind) = kinds.into_iter().find_map(|(suffix, kind)| Some((name.strip_suffix(suffix)?, kind)))?;
        let mut parts = stem.split('-');
        Some(Named { pid: parts.next()?.parse().ok()?, start_time: parts.next()?.parse().ok()?, kind })
    }
}
