//! How the two ranks of a pair agree on each round, whether they share a word or a connection.
use mycroft_ring::gate::meeting::{Meeting, Met};
use mycroft_ring::sync::AtomicU64;

/// Whether one that waits since then goes on waiting.
pub(crate) type Waits<'a> = &'a dyn Fn(u64) -> bool;

/// Where the two agree on each round; as [`Meeting`] and [`mycroft_ring::gate::talk::Talk`] say.
pub(crate) trait Meet {
    /// Comes for a round, whose message this side receives or sends.
    fn come(&mut self, round: u32, receives: bool) -> Met;
    /// Whether the other has come by now.
    fn look(&mut self, round: u32) -> Met;
    /// Goes away, unless it is too late for that.
    fn leave(&mut self, round: u32) -> Met;
}

impl Meet for Meeting<'_, AtomicU64> {
    fn come(&mut self, round: u32, _: bool) -> Met {
        Meeting::come(self, round)
    }

    fn look(&mut self, round: u32) -> Met {
        Meeting::look(self, round)
    }

    fn leave(&mut self, round: u32) -> Met {
        Meeting::leave(self, round)
    }
}
