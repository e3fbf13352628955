//! RoCEv2 packets from the base transport header on: headers, padding, and the checksum at the end (InfiniBand Architecture
//! Specification, volume 1, chapter 9, and its annex A17).
use crate::psn;
use std::net::SocketAddrV4;

/// The UDP port of RoCEv2.
pub const PORT: u16 = 4791;
/// Bytes of the base transport header.
pub const BTH_BYTES: usize = 12;
/// Bytes of the checksum at the end.
pub const ICRC_BYTES: usize = 4;
/// The default partition, with full membership.
const PARTITION: u16 = 0xffff;

/// The role of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The whole message.
    Only,
}

impl Part {
    /// The part that packet `index` of `count` is.
    #[must_use]
    pub fn of(index: u32, count: u32) -> Part {
        match (index == 0, index + 1 == count) {
            (true, true) => Part::Only,
            (true, false) => Part::First,
            (false, false) => Part::Middle,
            (false, true) => Part::Last,
        }
    }

    /// The message begins here.
    #[must_use]
    pub fn begins(self) -> bool {
        matches!(self, Part::First | Part::Only)
    }

    /// The message ends here.
    #[must_use]
    pub fn ends(self) -> bool {
        matches!(self, Part::Last | Part::Only)
    }
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Fills a posted receive.
    Send,
    /// Writes into the receiver's memory.
    Write,
}

/// Where an RDMA write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reth {
    /// Address in the receiver's memory.
    pub address: u64,
    /// Key of that memory.
    pub key: u32,
    /// Bytes of the whole message.
    pub bytes: u32,
}

/// What an answer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// All up to this packet has arrived.
    Ack,
    /// No receive is posted: try again after the time of this code.
    NotReady(u8),
    /// Refused.
    Nak(Nak),
}

/// Why a packet was refused, with the code on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Nak {
    /// A packet before it is missing: send again from here.
    Sequence = 0,
    /// The request makes no sense.
    InvalidRequest = 1,
    /// The memory is not the sender's to write.
    Access = 2,
    /// The receiver failed.
    Operation = 3,
}

/// Credits of an acknowledgement that limits nothing.
const UNLIMITED: u8 = 0x1f;

impl Answer {
    fn syndrome(self) -> u8 {
        match self {
            Answer::Ack => UNLIMITED,
            Answer::NotReady(code) => 0x20 | code & 0x1f,
            Answer::Nak(nak) => 0x60 | nak as u8,
        }
    }

    fn parse(syndrome: u8) -> Option<Answer> {
        match (syndrome >> 5 & 0b11, syndrome & 0x1f) {
            (0b00, _) => Some(Answer::Ack),
            (0b01, code) => Some(Answer::NotReady(code)),
            (0b11, 0) => Some(Answer::Nak(Nak::Sequence)),
            (0b11, 1) => Some(Answer::Nak(Nak::InvalidRequest)),
            (0b11, 2) => Some(Answer::Nak(Nak::Access)),
            (0b11, 3) => Some(Answer::Nak(Nak::Operation)),
            _ => None,
        }
    }
}

/// What a packet of a reliable connection carries besides data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Part of a message.
    Request {
        /// What the message does.
        verb: Verb,
        /// Which part this is.
        part: Part,
        /// Of the first packet of a write.
        reth: Option<Reth>,
        /// Of the last packet, where the message has one: as the program gave it.
        immediate: Option<[u8; 4]>,
    },
    /// The answer to a request.
    Acknowledge {
        /// What it says.
        answer: Answer,
        /// Messages completed so far.
        messages: u32,
    },
}

/// A packet, without the checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The receiver's queue pair.
    pub queue_pair: u32,
    /// Its number.
    pub psn: u32,
    /// The sender asks for an acknowledgement.
    pub asks: bool,
    /// What it is.
    pub kind: Kind,
    /// Its data, without padding.
    pub payload: &'a [u8],
}

/// The operation code of acknowledgements.
const ACKNOWLEDGE: u8 = 17;

/// The operation code of a part of a message: `None` where there is no such packet.
fn opcode(verb: Verb, part: Part, has_immediate: bool) -> Option<u8> {
    let base = if verb == Verb::Send { 0 } else { 6 };
    match (part, has_immediate) {
        (Part::First, false) => Some(base),
        (Part::Middle, false) => Some(base + 1),
        (Part::Last, _) => Some(base + 2 + u8::from(has_immediate)),
        (Part::Only, _) => Some(base + 4 + u8::from(has_immediate)),
        (Part::First | Part::Middle, true) => None,
    }
}

impl<'a> Packet<'a> {
    /// Appends the packet to `out`, padded to a multiple of four, without the checksum. `fill` appends the data, of
    /// `payload_bytes`; where it fails, `out` is as before and the answer is false.
    pub fn write_with(&self, payload_bytes: usize, out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>) -> bool) -> bool {
        let start = out.len();
        let padding = payload_bytes.wrapping_neg() & 0b11;
        let code = match self.kind {
            Kind::Request { verb, part, immediate, .. } => opcode(verb, part, immediate.is_some()),
            Kind::Acknowledge { .. } => Some(ACKNOWLEDGE),
        };
        let Some(code) = code else { return false };
        out.extend_from_slice(&[code, (padding as u8) << 4]);
        out.extend_from_slice(&PARTITION.to_be_bytes());
        out.extend_from_slice(&(self.queue_pair & psn::MASK).to_be_bytes());
        out.extend_from_slice(&(u32::from(self.asks) << 31 | self.psn & psn::MASK).to_be_bytes());
        match self.kind {
            Kind::Request { reth, immediate, .. } => {
                if let Some(reth) = reth {
                    out.extend_from_slice(&reth.address.to_be_bytes());
                    out.extend_from_slice(&reth.key.to_be_bytes());
                    out.extend_from_slice(&reth.bytes.to_be_bytes());
                }
                out.extend_from_slice(immediate.as_ref().map_or(&[], |bytes| &bytes[..]));
            }
            Kind::Acknowledge { answer, messages } => {
                let word = u32::from(answer.syndrome()) << 24 | messages & psn::MASK;
                out.extend_from_slice(&word.to_be_bytes());
            }
        }
        let data = out.len();
        if !fill(out) || out.len() != data + payload_bytes {
            out.truncate(start);
            return false;
        }
        out.resize(out.len() + padding, 0);
        true
    }

    /// Appends the packet with its own payload.
    pub fn write(&self, out: &mut Vec<u8>) -> bool {
        self.write_with(self.payload.len(), out, |out| {
            out.extend_from_slice(self.payload);
            true
        })
    }

    /// Reads a packet without its checksum; `None` where it is none of a reliable connection that is spoken here.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (code, flags) = (*bytes.first()?, *bytes.get(1)?);
        if flags & 0x0f != 0 {
            return None;
        }
        let (queue_pair, sequence) = (word(4)? & psn::MASK, word(8)?);
        let mut at = BTH_BYTES;
        let kind = if code == ACKNOWLEDGE {
            let aeth = word(at)?;
            at += 4;
            Kind::Acknowledge { answer: Answer::parse((aeth >> 24) as u8)?, messages: aeth & psn::MASK }
        } else {
            let (verb, offset) = if code < 6 { (Verb::Send, code) } else { (Verb::Write, code.checked_sub(6)?) };
            let (part, has_immediate) = match offset {
                0 => (Part::First, false),
                1 => (Part::Middle, false),
                2 | 3 => (Part::Last, offset == 3),
                4 | 5 => (Part::Only, offset == 5),
                _ => return None,
            };
            let mut reth = None;
            if verb == Verb::Write && part.begins() {
                let address = u64::from(word(at)?) << 32 | u64::from(word(at + 4)?);
                reth = Some(Reth { address, key: word(at + 8)?, bytes: word(at + 12)? });
                at += 16;
            }
            let mut immediate = None;
            if has_immediate {
                immediate = Some(word(at)?.to_be_bytes());
                at += 4;
            }
            Kind::Request { verb, part, reth, immediate }
        };
        let end = bytes.len().checked_sub(usize::from(flags >> 4 & 0b11))?;
        let asks = sequence >> 31 == 1;
        Some(Packet { queue_pair, psn: sequence & psn::MASK, asks, kind, payload: bytes.get(at..end)? })
    }
}

/// Bytes of IPv4 and UDP headers.
pub const NETWORK_BYTES: usize = 28;

/// The IPv4 and UDP headers that Linux puts before `bytes` of a socket that is not connected and does not fragment: no
/// options, identification 0, "do not fragment", `lifetime` hops. Both checksums are left 0.
#[must_use]
pub fn network_header(from: SocketAddrV4, to: SocketAddrV4, bytes: usize, lifetime: u8) -> [u8; NETWORK_BYTES] {
    let total = (NETWORK_BYTES + bytes) as u16;
    let mut header = [0u8; NETWORK_BYTES];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[6] = 0x40;
    header[8] = lifetime;
    header[9] = 17;
    header[12..16].copy_from_slice(&from.ip().octets());
    header[16..20].copy_from_slice(&to.ip().octets());
    header[20..22].copy_from_slice(&from.port().to_be_bytes());
    header[22..24].copy_from_slice(&to.port().to_be_bytes());
    header[24..26].copy_from_slice(&(total - 20).to_be_bytes());
    header
}

/// The invariant checksum of `packet` (from the base transport header on, with padding, without the checksum): CRC-32 over
/// what no switch changes, with ones in place of what may change (annex A17.3.3).
#[must_use]
pub fn icrc(from: SocketAddrV4, to: SocketAddrV4, packet: &[u8]) -> [u8; ICRC_BYTES] {
    let mut header = network_header(from, to, packet.len() + ICRC_BYTES, 0xff);
    header[1] = 0xff;
    header[10..12].fill(0xff);
    header[26..28].fill(0xff);
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[0xff; 8]);
    crc.update(&header);
    if let Some((bth, rest)) = packet.split_at_checked(5) {
        crc.update(&bth[..4]);
        crc.update(&[0xff]);
        crc.update(rest);
    }
    crc.finalize().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE: Packet<'static> = Packet {
        queue_pair: 0x12_3456,
        psn: 0xff_fffe,
        asks: true,
        kind: Kind::Request {
            verb: Verb::Write,
            part: Part::Only,
            reth: Some(Reth { address: 0x1122_3344_5566_7788, key: 0x99aa_bbcc, bytes: 5 }),
            immediate: Some([1, 2, 3, 4]),
        },
        payload: b"hello",
    };

    #[test]
    fn packets_come_back_as_written() {
        let request = |verb, part, reth, immediate| Kind::Request { verb, part, reth, immediate };
        let reth = Some(Reth { address: 1, key: 2, bytes: 3 });
        let kinds = [
            request(Verb::Send, Part::First, None, None),
            request(Verb::Send, Part::Last, None, Some([9; 4])),
            request(Verb::Write, Part::First, reth, None),
            request(Verb::Write, Part::Middle, None, None),
            request(Verb::Write, Part::Last, None, None),
            request(Verb::Write, Part::Last, None, Some([0; 4])),
            request(Verb::Write, Part::Only, reth, None),
            Kind::Acknowledge { answer: Answer::Ack, messages: 7 },
            Kind::Acknowledge { answer: Answer::NotReady(12), messages: 0 },
            Kind::Acknowledge { answer: Answer::Nak(Nak::Access), messages: 1 },
        ];
        for kind in kinds {
            for payload in [&b""[..], b"1", b"12", b"123", b"1234"] {
                let packet = Packet { kind, payload, ..WRITE };
                let mut bytes = Vec::new();
                assert!(packet.write(&mut bytes));
                assert_eq!(bytes.len() % 4, 0);
                assert_eq!(Packet::parse(&bytes), Some(packet));
            }
        }
        for cut in 0..BTH_BYTES + 20 {
            let mut bytes = Vec::new();
            assert!(WRITE.write(&mut bytes));
            assert_eq!(Packet::parse(&bytes[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn no_immediate_before_the_end() {
        let kind = Kind::Request { verb: Verb::Send, part: Part::First, reth: None, immediate: Some([0; 4]) };
        let mut out = vec![1];
        assert!(!Packet { kind, ..WRITE }.write(&mut out));
        assert_eq!(out, [1]);
    }

    #[test]
    fn the_checksum_is_the_one_of_the_definition() {
        let (from, to) = ("10.0.0.1:4791".parse().unwrap(), "10.0.0.2:4791".parse().unwrap());
        let mut packet = Vec::new();
        assert!(WRITE.write(&mut packet));
        let mut covered = vec![0xff; 8];
        let mut header = network_header(from, to, packet.len() + 4, 64);
        for masked in [1, 8, 10, 11, 26, 27] {
            header[masked] = 0xff;
        }
        covered.extend_from_slice(&header);
        covered.extend_from_slice(&packet);
        covered[8 + NETWORK_BYTES + 4] = 0xff;
        let mut crc = u32::MAX;
        for byte in covered {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            }
        }
        assert_eq!(icrc(from, to, &packet), (!crc).to_le_bytes());
        packet[4] = 0x55;
        assert_eq!(icrc(from, to, &packet), (!crc).to_le_bytes(), "switches may mark congestion");
    }
}
