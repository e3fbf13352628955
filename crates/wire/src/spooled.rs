//! What an agent says of its spool.
use crate::bytes::Reader;

/// What an agent says of its spool. In a heartbeat behind the eight bytes of every version.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spooled {
    /// Records that wait there for the server.
    pub records: u64,
    /// Bytes of their frames on disk.
    pub bytes: u64,
    /// Records that the agent has dropped since it started.
    pub dropped: u64,
}

impl Spooled {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        [self.records, self.bytes, self.dropped].iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }

    /// `None`: the agent is older and does not say.
    pub(super) fn read(r: &mut Reader<'_>) -> Option<Spooled> {
        Some(Spooled { records: r.u64()?, bytes: r.u64()?, dropped: r.u64()? })
    }
}
