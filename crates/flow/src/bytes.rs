//! Bytes of a capture, read without a panic, and why a packet is not counted.

/// Why a packet is not counted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Skipped {
    /// The capture ends within the headers.
    Truncated,
    /// Neither IPv4 nor IPv6 (RoCE version 1 is among these).
    NotIp,
    /// A later piece of a packet: it has no ports.
    Fragment,
    /// Neither RoCEv2 nor TCP.
    OtherTraffic,
    /// Headers that contradict each other.
    Malformed,
}

/// Bytes of a capture, as long as it reaches.
pub(crate) fn bytes_at(bytes: &[u8], at: usize, count: usize) -> Result<&[u8], Skipped> {
    at.checked_add(count).and_then(|end| bytes.get(at..end)).ok_or(Skipped::Truncated)
}

/// One byte.
pub(crate) fn byte(bytes: &[u8], at: usize) -> Result<u8, Skipped> {
    bytes.get(at).copied().ok_or(Skipped::Truncated)
}

/// Two bytes, the higher first.
pub(crate) fn be16(bytes: &[u8], at: usize) -> Result<u16, Skipped> {
    let pair = bytes_at(bytes, at, 2)?.try_into().map_err(|_| Skipped::Truncated)?;
    Ok(u16::from_be_bytes(pair))
}

/// Four bytes, the highest first.
pub(crate) fn be32(bytes: &[u8], at: usize) -> Result<u32, Skipped> {
    let four = bytes_at(bytes, at, 4)?.try_into().map_err(|_| Skipped::Truncated)?;
    Ok(u32::from_be_bytes(four))
}
