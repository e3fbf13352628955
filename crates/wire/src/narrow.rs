//! Numbers made narrower, where what is cut off is nothing, or is said at the place.

/// The low 8 bits.
pub(crate) fn low_u8(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

/// The low 16 bits.
pub(crate) fn low_u16(value: u64) -> u16 {
    let [a, b, ..] = value.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// The low 32 bits.
pub(crate) fn low_u32(value: u64) -> u32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_low_bits_stay() {
        for value in [0, 0x7f, 0xff, 0x100, 0xfedc_ba98_7654_3210, u64::MAX] {
            assert_eq!(u64::from(low_u8(value)), value & 0xff);
            assert_eq!(u64::from(low_u16(value)), value & 0xffff);
            assert_eq!(u64::from(low_u32(value)), value & 0xffff_ffff);
        }
    }
}
