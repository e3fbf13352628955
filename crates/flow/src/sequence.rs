//! Order of packets by their sequence numbers, which wrap around.

/// How a packet stands to those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// The first one, or the one that was expected.
    Next,
    /// So many numbers were passed over.
    Ahead(u32),
    /// Not ahead of what was seen: sent again, or overtaken on its way. A mirror cannot tell these two apart.
    Again,
}

/// The next number of one direction of a connection, of so many bits.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sequence {
    next: Option<u32>,
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
        if ahead >= half {
            // Its beginning was seen. Its end may be new: TCP sends again in other pieces.
            if after.wrapping_sub(next) & mask < half {
                self.next = Some(after);
            }
            return Order::Again;
        }
        self.next = Some(after);
        if ahead == 0 { Order::Next } else { Order::Ahead(ahead) }
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
        assert_eq!(psn.see(4, 1, 24), Order::Again);
        assert_eq!(psn.see(5, 1, 24), Order::Next, "what was sent again moves nothing back");
        let mut tcp = Sequence::default();
        assert_eq!(tcp.see(100, 50, 32), Order::Next);
        assert_eq!(tcp.see(120, 80, 32), Order::Again, "its beginning was seen");
        assert_eq!(tcp.see(200, 10, 32), Order::Next, "and its end moved on");
    }
}
