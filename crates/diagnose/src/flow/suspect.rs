//! What is said of a sender, and what all signs have in common.

/// Rounds that are looked at: the last ten of a kind (Pulse, section 6.2: k = 10).
pub(super) const ROUNDS: usize = 10;
/// Fewest senders of a round: of two, the usual one is not known.
pub(super) const SENDERS_MIN: usize = 3;
/// Epochs with bytes that a rate is taken of: the first and the last are filled in part, and others shall be full.
pub(super) const EPOCHS_MIN: u64 = 16;
/// Whose rate is less than its peers' by this share: half of the smallest that Pulse tests (table 4, a path at 80 %).
pub(super) const SLOWER: f64 = 0.1;
/// Standard deviations of its peers that a sender differs by: 1 in 30,000 by chance, were they normal.
pub(super) const DEVIATIONS: f64 = 4.0;
/// An operation of which no more than this share is missing is whole.
pub(super) const SAME: f64 = 0.01;

/// What a sender does that its peers do not.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sign {
    /// While it sends, its rate is lower (fail-slow of communication). Bytes per second and flow.
    Slow {
        /// Its own rate.
        rate: f64,
        /// The middle one of all of the same rounds.
        usual: f64,
    },
    /// Its operations are interrupted again and again, and each time it is the first that goes on, as fast as before: its host is
    /// busy otherwise (fail-slow of computation in the midst of communication). Nanoseconds of an operation.
    Held {
        /// Nanoseconds, on average.
        by_ns: u64,
    },
    /// It begins later than the others of its ring (fail-slow of computation), by so many nanoseconds each time.
    Late {
        /// Nanoseconds, the middle one of its rounds.
        by_ns: u64,
    },
    /// An operation ended for nobody, and it has sent least of it (fail-stop); 0: it did not begin.
    Stopped {
        /// Bytes that it sent.
        sent: u64,
        /// Bytes of a whole one.
        whole: u64,
        /// When its last byte went, nanoseconds; when the operation began, where it sent none.
        since_ns: u64,
    },
}

/// A sender that differs from its peers.
#[derive(Clone, PartialEq, Debug)]
pub struct Suspect {
    /// Its number.
    pub from: u32,
    /// Whom it sent to in the operations that show it, ascending.
    pub to: Vec<u32>,
    /// What it does.
    pub sign: Sign,
    /// Operations that were looked at.
    pub rounds: u32,
    /// Senders it was compared with.
    pub peers: u32,
}
