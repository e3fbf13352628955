//! Captures made byte by byte, in all variants that are read.

/// A packet to be written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// Which of the interfaces.
    pub interface: u32,
    /// What was kept of it.
    pub bytes: Vec<u8>,
    /// What it had on the wire.
    pub wire_bytes: u32,
}

/// Numbers in one order of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The highest byte first.
    pub is_big: bool,
}

impl Order {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.is_big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    /// A file of the older format; times are cut to microseconds unless `is_nano`.
    pub fn pcap(self, is_nano: bool, packets: &[Written]) -> Vec<u8> {
        let mut file = self.u32(if is_nano { 0xa1b2_3c4d } else { 0xa1b2_c3d4 }).to_vec();
        file.extend(self.u16(2));
        file.extend(self.u16(4));
        file.extend([0; 8]);
        file.extend(self.u32(262_144));
        file.extend(self.u32(1));
        for packet in packets {
            let fraction = packet.time_ns % 1_000_000_000 / if is_nano { 1 } else { 1000 };
            file.extend(self.u32((packet.time_ns / 1_000_000_000) as u32));
            file.extend(self.u32(fraction as u32));
            file.extend(self.u32(packet.bytes.len() as u32));
            file.extend(self.u32(packet.wire_bytes));
            file.extend(&packet.bytes);
        }
        file
    }

    /// A block of the newer format; the body is filled up to four bytes.
    pub fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let length = self.u32(12 + body.len().next_multiple_of(4) as u32);
        let mut block = self.u32(kind).to_vec();
        block.extend(length);
        block.extend(body);
        block.resize(block.len().next_multiple_of(4), 0);
        block.extend(length);
        block
    }

    /// The block that begins a section.
    pub fn section(self) -> Vec<u8> {
        let mut body = self.u32(0x1a2b_3c4d).to_vec();
        body.extend(self.u16(1));
        body.extend([0; 10]);
        self.block(0x0a0d_0d0a, &body)
    }

    /// An interface of Ethernet with times in a unit (`if_tsresol`) or, without one, in microseconds.
    pub fn interface(self, unit: Option<u8>, offset_s: i64) -> Vec<u8> {
        let mut body = [&self.u16(1)[..], &[0, 0], &self.u32(0)].concat();
        body.extend([&self.u16(2)[..], &self.u16(3), b"en0\0"].concat());
        if let Some(unit) = unit {
            body.extend([&self.u16(9)[..], &self.u16(1), &[unit, 0, 0, 0]].concat());
        }
        if offset_s != 0 {
            let value = if self.is_big { offset_s.to_be_bytes() } else { offset_s.to_le_bytes() };
            body.extend([&self.u16(14)[..], &self.u16(8), &value, &[0; 4]].concat());
        }
        self.block(1, &body)
    }

    /// A packet, with its time in ticks of its interface.
    pub fn packet(self, packet: &Written, ticks: u64) -> Vec<u8> {
        let mut body = self.u32(packet.interface).to_vec();
        body.extend(self.u32((ticks >> 32) as u32));
        body.extend(self.u32(ticks as u32));
        body.extend(self.u32(packet.bytes.len() as u32));
        body.extend(self.u32(packet.wire_bytes));
        body.extend(&packet.bytes);
        self.block(6, &body)
    }

    /// What an interface lost.
    pub fn statistics(self, interface: u32, dropped: u64) -> Vec<u8> {
        let dropped = if self.is_big { dropped.to_be_bytes() } else { dropped.to_le_bytes() };
        let body = [&self.u32(interface)[..], &[0; 8], &self.u16(5), &self.u16(8), &dropped].concat();
        self.block(5, &body)
    }
}
