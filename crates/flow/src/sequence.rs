//! Order of packets by their sequence numbers, which wrap around.

/// How a packet stands to those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The first one, or the one that was expected.
    Next,
    /// So many numbers were passed over.
    Ahead(u32),
    /// Not ahead of what was seen, but passed over before: lost before it came here and sent again, or overtaken on its way. A
    /// mirror cannot tell these two apart.
    Filled,
    /// Seen before: sent again.
    Again,
}

/// Ranges of numbers that were passed over and are remembered, the latest. One is usual: who goes back to the first one that
/// was lost sends all others again as well.
const HOLES: usize = 8;

/// Who sends again goes back by what is on its way at most: a 256th of all numbers, 65,536 packets or 16 MiB of TCP. What is further behind is another
/// connection that has the same numbers of queue pairs or ports.
const BEHIND_BITS: u32 = 8;

/// The next number of one direction of a connection, of so many bits.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sequence {
    next: Option<u32>,
    /// First number and count of what was passed over and did not come.
    holes: [(u32, u32); HOLES],
}

impl Sequence {
    /// Takes a packet that uses `count` numbers from `first` on, of `bits` bits (24 or 32).
    pub(crate) fn see(&mut self, first: u32, count: u32, bits: u32) -> Order {
        let mask = u32::MAX >> (32 - bits.clamp(1, 32));
        let half = 1 << (bits.clamp(1, 32) - 1);
        let after = first.wrapping_add(count) & mask;
        let Some(next) = self.next else {
            self.next = Some(after);
            return Order::Next;
        };
        let ahead = first.wrapping_sub(next) & mask;
        let behind = next.wrapping_sub(first) & mask;
        if ahead >= half && behind > 1 << (bits.clamp(9, 32) - BEHIND_BITS) {
            *self = Sequence { next: Some(after), ..Sequence::default() };
            return Order::Next;
        }
        if ahead >= half {
            // Its beginning was seen. Its end may be new: TCP sends again in other pieces.
            if after.wrapping_sub(next) & mask < half {
                self.next = Some(after);
            }
            return if self.fill(first, count, mask) { Order::Filled } else { Order::Again };
        }
        self.next = Some(after);
        if ahead == 0 {
            return Order::Next;
        }
        self.pass_over((next, ahead));
        Order::Ahead(ahead)
    }

    /// Takes numbers out of what was passed over; false where they are not in it.
    fn fill(&mut self, first: u32, count: u32, mask: u32) -> bool {
        let is_in = |(begin, length): &&mut (u32, u32)| first.wrapping_sub(*begin) & mask < *length;
        let Some(hole) = self.holes.iter_mut().find(is_in) else { return false };
        let (begin, length) = *hole;
        let before = first.wrapping_sub(begin) & mask;
        let after = length - before.saturating_add(count).min(length);
        let rest = (begin.wrapping_add(length - after) & mask, after);
        if before == 0 {
            *hole = rest;
            return true;
        }
        *hole = (begin, before);
        if after > 0 {
            self.pass_over(rest);
        }
        true
    }

    fn pass_over(&mut self, hole: (u32, u32)) {
        // What was filled makes room, else what was passed over the longest ago.
        let place = self.holes.iter().position(|(_, length)| *length == 0).unwrap_or(HOLES - 1);
        self.holes[..=place].rotate_right(1);
        self.holes[0] = hole;
    }

    /// Forgets what comes next: a request was seen that takes an unknown count of numbers.
    pub(crate) fn forget(&mut self) {
        self.next = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_and_what_is_not_ahead_was_seen() {
        let mut psn = Sequence::default();
        assert_eq!(psn.see(0xff_fffe, 1, 24), Order::Next);
        assert_eq!(psn.see(0xff_ffff, 1, 24), Order::Next);
        assert_eq!(psn.see(0, 1, 24), Order::Next, "24 bits");
        assert_eq!(psn.see(4, 1, 24), Order::Ahead(3));
        assert_eq!(psn.see(0xff_ffff, 1, 24), Order::Again);
        assert_eq!(psn.see(1, 1, 24), Order::Filled, "it was passed over");
        assert_eq!(psn.see(1, 1, 24), Order::Again, "and is there now");
        assert_eq!(psn.see(2, 1, 24), Order::Filled);
        assert_eq!(psn.see(3, 1, 24), Order::Filled);
        assert_eq!(psn.see(4, 1, 24), Order::Again);
        assert_eq!(psn.see(5, 1, 24), Order::Next, "what was sent again moves nothing back");
        assert_eq!(psn.see(0x10_0000, 1, 24), Order::Ahead(0x0f_fffa));
        assert_eq!(psn.see(0x0f_0001, 1, 24), Order::Filled, "no further behind than what can be on its way");
        assert_eq!(psn.see(0, 1, 24), Order::Next, "another connection");
        assert_eq!(psn.see(1, 1, 24), Order::Next);
        let mut tcp = Sequence::default();
        assert_eq!(tcp.see(100, 50, 32), Order::Next);
        assert_eq!(tcp.see(120, 80, 32), Order::Again, "its beginning was seen");
        assert_eq!(tcp.see(200, 10, 32), Order::Next, "and its end moved on");
    }
}
