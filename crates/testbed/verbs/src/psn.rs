//! Packet sequence numbers: 24 bits, with an order that goes round (InfiniBand Architecture Specification, volume 1, 9.7.1).

/// The bits of a number.
pub const MASK: u32 = 0xff_ffff;
/// Half of all numbers: what is further ahead counts as behind.
const HALF: u32 = 1 << 23;

/// The number `by` after `psn`.
#[must_use]
pub fn add(psn: u32, by: u32) -> u32 {
    psn.wrapping_add(by) & MASK
}

/// The number before `psn`.
#[must_use]
pub fn before(psn: u32) -> u32 {
    psn.wrapping_sub(1) & MASK
}

/// How far `to` is after `from`; negative where it is behind.
#[must_use]
pub fn distance(from: u32, to: u32) -> i32 {
    let ahead = to.wrapping_sub(from) & MASK;
    if ahead < HALF { ahead as i32 } else { ahead as i32 - (MASK as i32 + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round() {
        assert_eq!(add(MASK, 1), 0);
        assert_eq!(before(0), MASK);
        assert_eq!(distance(MASK, 2), 3);
        assert_eq!(distance(2, MASK), -3);
        assert_eq!(distance(5, 5), 0);
        assert_eq!(distance(0, HALF), -(HALF as i32));
    }
}
