//! A pause that was seen.
use mycroft_record::HostTime;

/// A stall that resolved itself, or a single long iteration.
#[derive(Clone, Debug)]
pub(super) struct PauseSeen {
    pub(super) from: HostTime,
    pub(super) until: HostTime,
}
