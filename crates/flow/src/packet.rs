//! Headers of a frame, from the link to RoCEv2 or TCP, in borrowed bytes. Lengths come from the headers, so a capture that
//! keeps only the first bytes of each packet (`tcpdump -s 128`) counts as much as a whole one.
use crate::bytes::{Skipped, be16, be32, byte, bytes_at};
use crate::key::{Ports, WireFlow};
use crate::roce::{Roce, parse_udp};
use crate::sequence::Order;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most tags of a virtual LAN before the address header: two are in use (IEEE 802.1ad), more are a trick.
const TAGS_MAX: usize = 4;
/// Most extension headers of IPv6: RFC 8200 knows six, of which one may come twice.
const EXTENSIONS_MAX: usize = 8;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;

/// What a frame begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IPv4 or IPv6 header.
    Ip,
    /// What Linux writes for "any" interface, first version (16 bytes).
    Cooked,
    /// The same, second version (20 bytes).
    Cooked2,
}

impl Link {
    /// The link of a number in a capture file (`LINKTYPE_`, <https://www.tcpdump.org/linktypes.html>).
    #[must_use]
    pub fn from_number(number: u32) -> Option<Link> {
        match number {
            1 => Some(Link::Ethernet),
            101 | 228 | 229 => Some(Link::Ip),
            113 => Some(Link::Cooked),
            276 => Some(Link::Cooked2),
            _ => None,
        }
    }
}

/// What a TCP header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tcp {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// Number of the first byte.
    pub sequence: u32,
    /// The lowest eight flags, as in the header.
    pub flags: u8,
    /// Bytes of payload.
    pub payload_bytes: u32,
}

impl Tcp {
    /// Sequence numbers that the packet takes: its bytes, and one each for the beginning and the end of a connection.
    #[must_use]
    pub fn sequence_length(&self) -> u32 {
        self.payload_bytes + u32::from(self.flags & 1) + u32::from(self.flags >> 1 & 1)
    }
}

/// What follows the addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// RoCEv2.
    Roce(Roce),
    /// TCP.
    Tcp(Tcp),
}

/// The headers of a packet that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet {
    /// The sender.
    pub source: IpAddr,
    /// The receiver.
    pub destination: IpAddr,
    /// A switch marked congestion (both bits of ECN).
    pub is_marked: bool,
    /// What follows the addresses.
    pub transport: Transport,
}

impl Packet {
    /// Reads the headers of a frame: the captured bytes, and how many there were on the wire.
    ///
    /// # Errors
    /// The packet is of no kind that is counted, or cannot be read.
    pub fn parse(link: Link, bytes: &[u8], wire_bytes: u32) -> Result<Packet, Skipped> {
        let at = network(link, bytes)?;
        let address = bytes.get(at..).unwrap_or_default();
        let rest = wire_bytes.checked_sub(u32::try_from(at).unwrap_or(u32::MAX)).ok_or(Skipped::Malformed)?;
        match address.first().ok_or(Skipped::Truncated)? >> 4 {
            4 => ipv4(address, rest),
            6 => ipv6(address, rest),
            _ => Err(Skipped::NotIp),
        }
    }

    /// The flow that it belongs to.
    #[must_use]
    pub fn key(&self) -> WireFlow {
        let ports = match &self.transport {
            Transport::Roce(roce) => Ports::QueuePair(roce.queue_pair),
            Transport::Tcp(tcp) => Ports::Tcp { source: tcp.source_port, destination: tcp.destination_port },
        };
        WireFlow { source: self.source, destination: self.destination, ports }
    }

    /// Bytes of payload.
    #[must_use]
    pub fn payload_bytes(&self) -> u32 {
        match &self.transport {
            Transport::Roce(roce) => roce.payload_bytes,
            Transport::Tcp(tcp) => tcp.payload_bytes,
        }
    }

    /// Whether it goes on with a message whose last packet came before it; of TCP that does not show.
    pub(crate) fn goes_on(&self, order: Order) -> bool {
        matches!((&self.transport, order), (Transport::Roce(roce), Order::Next) if !roce.opcode.begins_message())
    }
}

/// Where the address header begins.
fn network(link: Link, bytes: &[u8]) -> Result<usize, Skipped> {
    let (mut at, first_type) = match link {
        Link::Ip => return Ok(0),
        Link::Ethernet => (14, 12),
        Link::Cooked => (16, 14),
        Link::Cooked2 => (20, 0),
    };
    let mut kind = be16(bytes, first_type)?;
    for _ in 0..TAGS_MAX {
        if !matches!(kind, 0x8100 | 0x88a8 | 0x9100) {
            break;
        }
        kind = be16(bytes, at + 2)?;
        at += 4;
    }
    if matches!(kind, ETHERTYPE_IPV4 | ETHERTYPE_IPV6) { Ok(at) } else { Err(Skipped::NotIp) }
}

fn ipv4(bytes: &[u8], rest: u32) -> Result<Packet, Skipped> {
    let header = usize::from(byte(bytes, 0)? & 0x0f) * 4;
    let total = u32::from(be16(bytes, 2)?);
    // A sender that lets its NIC cut writes no length where a packet is longer than 16 bits.
    let total = if total == 0 { rest } else { total };
    let header_bytes = u32::try_from(header).map_err(|_| Skipped::Malformed)?;
    if header < 20 || total > rest || total < header_bytes {
        return Err(Skipped::Malformed);
    }
    if be16(bytes, 6)? & 0x1fff != 0 {
        return Err(Skipped::Fragment);
    }
    let (source, destination) = (be32(bytes, 12)?, be32(bytes, 16)?);
    let transport = transport(byte(bytes, 9)?, bytes.get(header..).unwrap_or_default(), total - header_bytes)?;
    Ok(Packet {
        source: IpAddr::V4(Ipv4Addr::from_bits(source)),
        destination: IpAddr::V4(Ipv4Addr::from_bits(destination)),
        is_marked: byte(bytes, 1)? & 0b11 == 0b11,
        transport,
    })
}

fn ipv6(bytes: &[u8], rest: u32) -> Result<Packet, Skipped> {
    let after = rest.checked_sub(40).ok_or(Skipped::Malformed)?;
    let declared = u32::from(be16(bytes, 4)?);
    let mut length = if declared == 0 { after } else { declared };
    if length > after {
        return Err(Skipped::Malformed);
    }
    let (mut next, mut at) = (byte(bytes, 6)?, 40);
    for _ in 0..EXTENSIONS_MAX {
        let size = match next {
            // Hop by hop, routing, options for the destination.
            0 | 43 | 60 => (usize::from(byte(bytes, at + 1)?) + 1) * 8,
            44 if be16(bytes, at + 2)? & 0xfff8 == 0 => 8,
            44 => return Err(Skipped::Fragment),
            _ => break,
        };
        length = length.checked_sub(u32::try_from(size).unwrap_or(u32::MAX)).ok_or(Skipped::Malformed)?;
        next = byte(bytes, at)?;
        at += size;
    }
    let address = |from: usize| -> Result<IpAddr, Skipped> {
        let octets: [u8; 16] = bytes_at(bytes, from, 16)?.try_into().map_err(|_| Skipped::Truncated)?;
        Ok(IpAddr::V6(Ipv6Addr::from(octets)))
    };
    Ok(Packet {
        source: address(8)?,
        destination: address(24)?,
        is_marked: byte(bytes, 1)? >> 4 & 0b11 == 0b11,
        transport: transport(next, bytes.get(at..).unwrap_or_default(), length)?,
    })
}

fn transport(protocol: u8, bytes: &[u8], wire_bytes: u32) -> Result<Transport, Skipped> {
    match protocol {
        PROTOCOL_UDP => Ok(Transport::Roce(parse_udp(bytes, wire_bytes)?)),
        PROTOCOL_TCP => {
            let header = u32::from(byte(bytes, 12)? >> 4) * 4;
            let payload_bytes = wire_bytes.checked_sub(header).filter(|_| header >= 20).ok_or(Skipped::Malformed)?;
            Ok(Transport::Tcp(Tcp {
                source_port: be16(bytes, 0)?,
                destination_port: be16(bytes, 2)?,
                sequence: be32(bytes, 4)?,
                flags: byte(bytes, 13)?,
                payload_bytes,
            }))
        }
        _ => Err(Skipped::OtherTraffic),
    }
}
