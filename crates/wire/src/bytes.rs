//! Little-endian numbers, varints and a bounded reader over bytes that nobody vouches for.
use crate::narrow::low_u8;

/// Appends an LEB128 varint: seven bits a byte, low first, the high bit says that more follow.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_u8(value) | 0x80);
        value >>= 7;
    }
    out.push(low_u8(value));
}

/// Small magnitudes of both signs to small numbers.
pub(crate) fn zigzag(difference: u64) -> u64 {
    let signed = difference.cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

/// The inverse of `zigzag`.
pub(crate) fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ (code & 1).wrapping_neg()
}

/// Reads from the front of bytes; every method gives `None` when they do not suffice.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(front)
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*front)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        // Most are short.
        if let Some((&byte, rest)) = self.bytes.split_first()
            && byte < 0x80
        {
            self.bytes = rest;
            return Some(u64::from(byte));
        }
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return None;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(crate) fn varint_u32(&mut self) -> Option<u32> {
        self.varint()?.try_into().ok()
    }

    pub(crate) fn varint_usize(&mut self) -> Option<usize> {
        self.varint()?.try_into().ok()
    }

    /// Bytes after their varint length.
    pub(crate) fn sized_bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.varint_usize()?;
        self.bytes(length)
    }

    /// Text after its 16-bit length.
    pub(crate) fn text16(&mut self) -> Option<&'a str> {
        let length = self.u16()?;
        std::str::from_utf8(self.bytes(usize::from(length))?).ok()
    }
}

/// Values of one block share a width: 32 of them fill whole bytes at any width.
const BLOCK: usize = 32;
/// A block whose values take eight bytes each.
const BLOCK_BYTES_MAX: usize = BLOCK * 8;
/// A value is read from up to nine bytes, of which the last eight may lie behind its block.
const BEHIND: usize = 8;

/// Appends values as blocks: one byte of width, then the values' bits, low first.
pub(crate) fn put_bits(out: &mut Vec<u8>, values: &[u64]) {
    for block in values.chunks(BLOCK) {
        let width = block.iter().map(|v| 64 - v.leading_zeros()).max().unwrap_or(0);
        out.push(low_u8(u64::from(width)));
        let mut bits = 0u128;
        let mut held = 0u32;
        for value in block {
            bits |= u128::from(*value) << held;
            held += width;
            while held >= 8 {
                out.push(bits.to_le_bytes()[0]);
                bits >>= 8;
                held -= 8;
            }
        }
        if held > 0 {
            out.push(bits.to_le_bytes()[0]);
        }
    }
}

impl Reader<'_> {
    /// `count` values that `put_bits` wrote; the caller has checked that `count` is sane.
    pub(crate) fn bits(&mut self, count: usize, values: &mut Vec<u64>) -> Option<()> {
        let end = values.len().checked_add(count)?;
        while values.len() < end {
            let block = (end - values.len()).min(BLOCK);
            let width = usize::from(self.u8()?);
            if width > 64 {
                return None;
            }
            let front = self.bytes;
            let bytes = self.bytes((block * width).div_ceil(8))?;
            if front.len() >= bytes.len() + BEHIND {
                unpack_bits(front, width, block, values);
            } else {
                // Zeros behind the last value of all, so that nine bytes can be read for each.
                let mut padded = [0; BLOCK_BYTES_MAX + BEHIND];
                padded[..bytes.len()].copy_from_slice(bytes);
                unpack_bits(&padded, width, block, values);
            }
        }
        Some(())
    }
}

/// The values of a block, behind which there are `BEHIND` bytes more.
fn unpack_bits(bytes: &[u8], width: usize, block: usize, values: &mut Vec<u64>) {
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    let word = |bit: usize| {
        let word = bytes.get(bit / 8..).and_then(|bytes| bytes.first_chunk::<8>());
        word.map_or(0, |word| u64::from_le_bytes(*word)) >> (bit % 8)
    };
    let bits = (0..block).map(|index| index * width);
    if width <= 57 {
        values.extend(bits.map(|bit| word(bit) & mask));
    } else {
        // Up to seven bits of the value may lie in a ninth byte.
        let high = |bit: usize| (u64::from(bytes[bit / 8 + 8]) << 1) << (63 - bit % 8);
        values.extend(bits.map(|bit| (word(bit) | high(bit)) & mask));
    }
}
