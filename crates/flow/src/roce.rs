//! RoCEv2: the headers of InfiniBand's transport that follow a UDP header of port 4791 (InfiniBand Architecture
//! Specification, volume 1, chapter 9, and its annex A17).
use crate::bytes::{Skipped, be16, be32, byte};

/// Bytes of the base transport header.
const BTH_BYTES: usize = 12;
/// Bytes of the checksum at the end of a packet.
const ICRC_BYTES: u32 = 4;

/// The eight bits that say what a packet is: three of transport service, five of operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Opcode(
    /// As in the packet.
    pub u8,
);

impl Opcode {
    /// Congestion notification packet.
    pub const CONGESTION: Opcode = Opcode(0x81);
    /// Reliable connection, acknowledgement.
    pub const ACKNOWLEDGE: Opcode = Opcode(0x11);
    /// Reliable connection, RDMA write in one packet.
    pub const WRITE_ONLY: Opcode = Opcode(0x0a);

    /// The operation, without the transport service.
    fn operation(self) -> u8 {
        self.0 & 0x1f
    }

    /// The transport service: 0 reliable connection, 1 unreliable connection, 3 unreliable datagram, 5 extended.
    fn service(self) -> u8 {
        self.0 >> 5
    }

    /// A packet of an answer to an RDMA read.
    #[must_use]
    pub fn is_read_response(self) -> bool {
        self.has_connection() && matches!(self.operation(), 13..=16)
    }

    /// A request of an RDMA read.
    #[must_use]
    pub fn is_read_request(self) -> bool {
        self.has_connection() && self.operation() == 12
    }

    /// The first packet of a message, or its only one.
    #[must_use]
    pub fn begins_message(self) -> bool {
        !matches!(self.operation(), 1..=3 | 7..=9 | 14 | 15 | 22)
    }

    /// A request whose packet sequence number follows that of the request before it: of a connection, no answer, no datagram.
    #[must_use]
    pub fn is_ordered_request(self) -> bool {
        self.has_connection() && !matches!(self.operation(), 13..=18)
    }

    fn has_connection(self) -> bool {
        matches!(self.service(), 0 | 1 | 5)
    }

    /// Bytes of the headers after the base transport header; none where the opcode is not known.
    fn extension_bytes(self) -> Option<usize> {
        let of_operation = match self.operation() {
            0..=2 | 4 | 7 | 8 | 14 => 0,
            3 | 5 | 9 | 13 | 15 | 16 | 17 | 22 | 23 => 4,
            6 | 10 | 12 => 16,
            11 => 20,
            18 => 12,
            19 | 20 => 28,
            _ => return None,
        };
        match self.service() {
            0 => Some(of_operation),
            1 if matches!(self.operation(), 0..=11) => Some(of_operation),
            // Datagrams carry the sender's queue pair and a key.
            3 if matches!(self.operation(), 4 | 5) => Some(of_operation + 8),
            // The extended service names the receiver's shared queue in requests.
            5 => Some(of_operation + if self.is_ordered_request() { 4 } else { 0 }),
            4 if self == Opcode::CONGESTION => Some(16),
            _ => None,
        }
    }
}

/// Where an RDMA write goes, or what a read asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// Address in the receiver's memory.
    pub address: u64,
    /// Key of that memory.
    pub key: u32,
    /// Bytes of the whole message.
    pub length_bytes: u32,
}

/// What an acknowledgement says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Aeth {
    /// All is well.
    Ack,
    /// The receiver has no buffer: try again later.
    NotReady,
    /// Refused, with the code: 0 a sequence number was passed over, 1 invalid request, 2 no access, 3 operation failed.
    Nak(u8),
}

/// The headers of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roce {
    /// What it is.
    pub opcode: Opcode,
    /// The receiver's queue pair, 24 bits.
    pub queue_pair: u32,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// The sender asks for an acknowledgement.
    pub asks_for_ack: bool,
    /// Bytes that fill the payload up to four.
    pub padding_bytes: u32,
    /// Bytes of payload, without padding, checksum and headers.
    pub payload_bytes: u32,
    /// Of the first packet of an RDMA write, and of an RDMA read's request.
    pub reth: Option<Reth>,
    /// Of acknowledgements and answers.
    pub aeth: Option<Aeth>,
}

impl Roce {
    /// Reads what follows the UDP header: the captured bytes, and how many there were on the wire.
    ///
    /// # Errors
    /// The capture ends within the headers, or they contradict each other.
    pub(crate) fn parse(bytes: &[u8], wire_bytes: u32) -> Result<Roce, Skipped> {
        let opcode = Opcode(byte(bytes, 0)?);
        let flags = byte(bytes, 1)?;
        let (queue_pair, sequence) = (be32(bytes, 4)?, be32(bytes, 8)?);
        let extension = opcode.extension_bytes().filter(|_| flags & 0x0f == 0).ok_or(Skipped::Malformed)?;
        let padding_bytes = u32::from(flags >> 4 & 0b11);
        let headers = u32::try_from(BTH_BYTES + extension).map_err(|_| Skipped::Malformed)?;
        let others = headers + padding_bytes + ICRC_BYTES;
        let payload_bytes = wire_bytes.checked_sub(others).ok_or(Skipped::Malformed)?;
        let extended = BTH_BYTES + if opcode.service() == 5 && opcode.is_ordered_request() { 4 } else { 0 };
        Ok(Roce {
            opcode,
            queue_pair: queue_pair & 0xff_ffff,
            psn: sequence & 0xff_ffff,
            asks_for_ack: sequence >> 31 == 1,
            padding_bytes,
            payload_bytes,
            reth: Roce::reth(opcode, bytes, extended)?,
            aeth: Roce::aeth(opcode, bytes)?,
        })
    }

    fn reth(opcode: Opcode, bytes: &[u8], at: usize) -> Result<Option<Reth>, Skipped> {
        if !opcode.has_connection() || !matches!(opcode.operation(), 6 | 10 | 11 | 12) {
            return Ok(None);
        }
        let address = u64::from(be32(bytes, at)?) << 32 | u64::from(be32(bytes, at + 4)?);
        Ok(Some(Reth { address, key: be32(bytes, at + 8)?, length_bytes: be32(bytes, at + 12)? }))
    }

    fn aeth(opcode: Opcode, bytes: &[u8]) -> Result<Option<Aeth>, Skipped> {
        if !opcode.has_connection() || !matches!(opcode.operation(), 13 | 15..=18) {
            return Ok(None);
        }
        let syndrome = byte(bytes, BTH_BYTES)?;
        Ok(Some(match syndrome >> 5 & 0b11 {
            0b00 => Aeth::Ack,
            0b01 => Aeth::NotReady,
            0b11 => Aeth::Nak(syndrome & 0x1f),
            _ => return Err(Skipped::Malformed),
        }))
    }
}

/// The UDP port of RoCEv2.
pub(crate) const ROCE_PORT: u16 = 4791;

/// Reads a UDP header and what follows it: captured bytes, and how many of the address's payload there were on the wire.
///
/// # Errors
/// It is not RoCEv2, or cannot be read.
pub(crate) fn parse_udp(bytes: &[u8], wire_bytes: u32) -> Result<Roce, Skipped> {
    let port = be16(bytes, 2)?;
    let length = u32::from(be16(bytes, 4)?);
    if port != ROCE_PORT {
        return Err(Skipped::OtherTraffic);
    }
    if length < 8 || length > wire_bytes {
        return Err(Skipped::Malformed);
    }
    Roce::parse(bytes.get(8..).unwrap_or_default(), length - 8)
}
