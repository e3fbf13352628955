//! The newer format: sections of blocks, of which those that describe interfaces and those that hold packets are read.
use super::field::Order;
use super::told::{CaptureProblem, CapturedPacket, INTERFACES_MAX, Step, length};

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Bytes of a block's type and two lengths.
const FRAME_BYTES: usize = 12;
/// Options of an interface: unit of its times, seconds to add.
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
/// Options of statistics: packets lost by the interface, by the system.
const ISB_IFDROP: u16 = 5;
const ISB_OSDROP: u16 = 7;
/// The unit of times where an interface tells none: 10^-6 s.
const MICROSECONDS: u8 = 6;
/// Finest units whose ticks per second fit 128 bits: 10^-38 s, 2^-96 s.
const DECIMAL_MAX: u8 = 38;
const BINARY_MAX: u8 = 96;
const NANOS_PER_SEC: u128 = 1_000_000_000;

/// An interface of the section.
struct Interface {
    link: u32,
    ticks_per_sec: u128,
    offset_s: i64,
    dropped: u64,
}

/// What was said so far.
#[derive(Default)]
pub(super) struct Blocks {
    order: Order,
    interfaces: Vec<Interface>,
    untimed: u64,
    /// Of sections that ended.
    dropped_before: u64,
}

/// Whether a file begins so.
pub(super) fn is_section(bytes: &[u8]) -> bool {
    Order::Little.u32(bytes, 0) == SECTION && section_order(bytes).is_some()
}

fn section_order(bytes: &[u8]) -> Option<Order> {
    [Order::Little, Order::Big].into_iter().find(|order| order.u32(bytes, 8) == BYTE_ORDER)
}

impl Blocks {
    pub(super) fn untimed_packets(&self) -> u64 {
        self.untimed
    }

    pub(super) fn dropped_packets(&self) -> u64 {
        self.interfaces.iter().fold(self.dropped_before, |sum, interface| sum.saturating_add(interface.dropped))
    }

    /// Reads the block at the beginning of `bytes`.
    pub(super) fn block<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, CaptureProblem> {
        if bytes.len() < FRAME_BYTES {
            return Ok(Step::More);
        }
        // A section's first number reads the same in both orders, and says the order of all others.
        let is_section = self.order.u32(bytes, 0) == SECTION;
        if is_section {
            self.order = section_order(bytes).ok_or(CaptureProblem::NotACapture)?;
        }
        let declared = self.order.u32(bytes, 4);
        let end = length(declared)?;
        if end < FRAME_BYTES || !end.is_multiple_of(4) {
            return Err(CaptureProblem::Lengths);
        }
        let Some(block) = bytes.get(..end) else { return Ok(Step::More) };
        if self.order.u32(block, end - 4) != declared {
            return Err(CaptureProblem::Lengths);
        }
        let body = block.get(8..end - 4).unwrap_or_default();
        if is_section {
            self.section(body)?;
            return Ok(Step::Took(end, None));
        }
        let packet = match self.order.u32(bytes, 0) {
            INTERFACE => self.interface(body).map(|()| None)?,
            ENHANCED_PACKET => Some(self.packet(body, self.order.u32(body, 0))?),
            PACKET => Some(self.packet(body, u32::from(self.order.u16(body, 0)))?),
            SIMPLE_PACKET => {
                self.untimed += 1;
                None
            }
            STATISTICS => {
                self.statistics(body);
                None
            }
            _ => None,
        };
        Ok(Step::Took(end, packet))
    }

    fn section(&mut self, body: &[u8]) -> Result<(), CaptureProblem> {
        if body.len() < 16 {
            return Err(CaptureProblem::Lengths);
        }
        let (major, minor) = (self.order.u16(body, 4), self.order.u16(body, 6));
        if major != 1 {
            return Err(CaptureProblem::Version(major, minor));
        }
        self.dropped_before = self.dropped_packets();
        self.interfaces.clear();
        Ok(())
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), CaptureProblem> {
        if body.len() < 8 {
            return Err(CaptureProblem::Lengths);
        }
        if self.interfaces.len() >= INTERFACES_MAX {
            return Err(CaptureProblem::Interfaces);
        }
        let (mut resolution, mut offset_s) = (MICROSECONDS, 0);
        for (code, value) in options(self.order, body.get(8..).unwrap_or_default()) {
            match (code, value) {
                (IF_TSRESOL, [unit, ..]) => resolution = *unit,
                (IF_TSOFFSET, value) if value.len() >= 8 => offset_s = self.order.u64(value, 0).cast_signed(),
                _ => {}
            }
        }
        let exponent = resolution & 0x7f;
        let ticks_per_sec = match resolution & 0x80 {
            0 if exponent <= DECIMAL_MAX => 10u128.pow(u32::from(exponent)),
            0x80 if exponent <= BINARY_MAX => 1 << exponent,
            _ => return Err(CaptureProblem::Resolution(resolution)),
        };
        let link = u32::from(self.order.u16(body, 0));
        self.interfaces.push(Interface { link, ticks_per_sec, offset_s, dropped: 0 });
        Ok(())
    }

    /// Both kinds of packets with a time have the same fields after the interface's number.
    fn packet<'a>(&self, body: &'a [u8], interface: u32) -> Result<CapturedPacket<'a>, CaptureProblem> {
        if body.len() < 20 {
            return Err(CaptureProblem::Lengths);
        }
        let field = |at| self.order.u32(body, at);
        let known = usize::try_from(interface).ok().and_then(|number| self.interfaces.get(number));
        let of = known.ok_or(CaptureProblem::Interface(interface))?;
        let bytes = body.get(20..20 + length(field(12))?).ok_or(CaptureProblem::Lengths)?;
        let ticks = u128::from(field(4)) << 32 | u128::from(field(8));
        let since = i128::try_from(ticks * NANOS_PER_SEC / of.ticks_per_sec).unwrap_or(i128::MAX);
        let time = since.saturating_add(i128::from(of.offset_s) * 1_000_000_000);
        let time_ns = u64::try_from(time.max(0)).unwrap_or(u64::MAX);
        Ok(CapturedPacket { time_ns, link: of.link, wire_bytes: field(16).max(field(12)), bytes })
    }

    /// Statistics count from the beginning: the last of each interface holds.
    fn statistics(&mut self, body: &[u8]) {
        let order = self.order;
        let interface = usize::try_from(order.u32(body, 0)).ok().and_then(|number| self.interfaces.get_mut(number));
        if let Some(interface) = interface {
            let lost = options(order, body.get(12..).unwrap_or_default())
                .filter(|(code, value)| matches!(*code, ISB_IFDROP | ISB_OSDROP) && value.len() >= 8);
            interface.dropped = lost.fold(0, |sum: u64, (_, value)| sum.saturating_add(order.u64(value, 0)));
        }
    }
}

/// Options of a block: code and value, until the end or until one does not fit.
fn options(order: Order, mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (code, length) = (order.u16(rest, 0), usize::from(order.u16(rest, 2)));
        let value = rest.get(4..4 + length)?;
        rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        (code != 0).then_some((code, value))
    })
}
