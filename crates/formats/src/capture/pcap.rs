//! The older format: a header, then packets.
use super::field::Order;
use super::told::{CaptureProblem, CapturedPacket, Step, length};

/// Bytes of the file's header.
pub(super) const HEADER_BYTES: usize = 24;
/// Bytes before each packet.
const RECORD_BYTES: usize = 16;
const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const NANOS_PER_SEC: u64 = 1_000_000_000;

/// What the header said.
pub(super) struct Classic {
    order: Order,
    nanos_per_tick: u64,
    link: u32,
}

/// Byte order and nanoseconds per tick, by the first four bytes.
fn magic(bytes: &[u8]) -> Option<(Order, u64)> {
    [Order::Little, Order::Big].into_iter().find_map(|order| match order.u32(bytes, 0) {
        MICROSECONDS => Some((order, 1000)),
        NANOSECONDS => Some((order, 1)),
        _ => None,
    })
}

/// Whether a file begins so.
pub(super) fn is_header(bytes: &[u8]) -> bool {
    magic(bytes).is_some()
}

impl Classic {
    /// Reads the header.
    pub(super) fn new(header: &[u8]) -> Result<Classic, CaptureProblem> {
        let (order, nanos_per_tick) = magic(header).ok_or(CaptureProblem::NotACapture)?;
        let (major, minor) = (order.u16(header, 4), order.u16(header, 6));
        if major != 2 {
            return Err(CaptureProblem::Version(major, minor));
        }
        // The upper bits tell how long a checksum at the end of each frame is.
        Ok(Classic { order, nanos_per_tick, link: order.u32(header, 20) & 0x0fff_ffff })
    }

    /// Reads the packet at the beginning of `bytes`.
    pub(super) fn record<'a>(&self, bytes: &'a [u8]) -> Result<Step<'a>, CaptureProblem> {
        let Some(header) = bytes.get(..RECORD_BYTES) else { return Ok(Step::More) };
        let field = |at| self.order.u32(header, at);
        let end = RECORD_BYTES + length(field(8))?;
        let Some(kept) = bytes.get(RECORD_BYTES..end) else { return Ok(Step::More) };
        let time_ns = u64::from(field(0)) * NANOS_PER_SEC + u64::from(field(4)) * self.nanos_per_tick;
        let wire_bytes = field(12).max(field(8));
        Ok(Step::Took(end, Some(CapturedPacket { time_ns, link: self.link, wire_bytes, bytes: kept })))
    }
}
