//! What a record of a capture can be: a packet, a part of one, or wrong.

/// Longest record or block: libpcap keeps at most 256 KiB of a packet; names, secrets and logs in other blocks may be longer.
const BLOCK_BYTES_MAX: usize = 16 << 20;
/// Most interfaces of a section: more than any host has.
pub(super) const INTERFACES_MAX: usize = 4096;

/// A packet of a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapturedPacket<'a> {
    /// Nanoseconds since 1970, as the capture says.
    pub time_ns: u64,
    /// What its first header is, by the numbers of <https://www.tcpdump.org/linktypes.html>.
    pub link: u32,
    /// Bytes that it had on the wire.
    pub wire_bytes: u32,
    /// What was kept of it.
    pub bytes: &'a [u8],
}

/// What is wrong with a record or block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureProblem {
    /// It does not begin as one of the two formats.
    #[error("neither pcap nor pcapng")]
    NotACapture,
    /// A version or variant that is not read.
    #[error("a version that is not read: {0}.{1}")]
    Version(u16, u16),
    /// Longer than any record is.
    #[error("a length of {0} bytes, which no record has")]
    TooLong(u32),
    /// Shorter than its own fields, or not what it says at its end.
    #[error("lengths that contradict each other")]
    Lengths,
    /// A packet of an interface that was not described.
    #[error("interface {0}, which is not described before")]
    Interface(u32),
    /// More interfaces than are read.
    #[error("more than {INTERFACES_MAX} interfaces")]
    Interfaces,
    /// A resolution of times that no clock has.
    #[error("times in a unit that is not read: {0:#04x}")]
    Resolution(u8),
    /// It ends within a record.
    #[error("the file ends within a record")]
    CutShort,
}

/// What reading one record or block did.
pub(super) enum Step<'a> {
    /// It is not all there.
    More,
    /// So many bytes were one, and held this.
    Took(usize, Option<CapturedPacket<'a>>),
}

/// The length of a record, if one may be so long.
pub(super) fn length(bytes: u32) -> Result<usize, CaptureProblem> {
    let length = usize::try_from(bytes).ok().filter(|length| *length <= BLOCK_BYTES_MAX);
    length.ok_or(CaptureProblem::TooLong(bytes))
}
