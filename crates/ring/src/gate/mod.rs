//! The gate: where a rank's host threads wait, on request, before their next call to the collective library (FALCON 4.3).
//!
//! A requester on the same host (`hold`) writes an epoch and how many *entries* it lets through; an entry is a call outside
//! any group, or the start of an outermost group. Each entry takes a ticket and waits while its ticket is not below that
//! number. So the first entry of every rank waits at once; a rank that has issued less than its peers is let through
//! entry by entry until no member of any communicator has issued an operation that another has not (`plan`): that is the
//! agreed operation, and from then on nothing moves until the release.
//!
//! Whatever becomes of the requester, a rank goes on by itself: at the deadline, when the requester gave no sign of life
//! for a lease, and after [`HELD_NS_MAX`] whatever the words say. Where nobody asks, a call loads one word.
//!
//! Each word has one writer: `docs/formats/ring.md`.
pub mod ask;
pub mod hold;
pub mod meeting;
pub mod page;
pub mod plan;
pub mod said;
pub mod talk;
pub mod task;
pub mod words;

use crate::narrow::low;
use crate::raw::{halves, high};
use crate::sync::{Ordering, Word};
use words::{GATE_WORDS, LANE_COUNT, LANE_WORDS, gate, gate_lane};

/// Longest time that a rank waits at the gate whatever a request says: half of NCCL's and torch's shortest usual timeout
/// of a collective (two minutes and more).
pub const HELD_NS_MAX: u64 = 60_000_000_000;
/// How often one entry begins to wait: a requester that begins again and again may not keep it.
const EPOCHS_MAX: u32 = 64;

/// Why a process left the gate by itself; the number is in the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Left {
    /// The deadline passed.
    Deadline = 1,
    /// The requester gave no sign of life.
    Silence = 2,
    /// The longest time that a rank may be held.
    Limit = 3,
    /// A number this version does not know.
    Unknown = 0,
}

impl Left {
    /// The reason with this number.
    pub fn from_code(code: u32) -> Left {
        match code {
            1 => Left::Deadline,
            2 => Left::Silence,
            3 => Left::Limit,
            _ => Left::Unknown,
        }
    }
}

/// What a lane counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LaneKind {
    /// Collectives of a communicator.
    Collective,
    /// Sends to one peer.
    Send,
    /// Receives from one peer.
    Recv,
}

impl LaneKind {
    /// The kind with this number.
    pub fn from_code(code: u64) -> Option<LaneKind> {
        match code {
            1 => Some(LaneKind::Collective),
            2 => Some(LaneKind::Send),
            3 => Some(LaneKind::Recv),
            _ => None,
        }
    }

    /// Its number in the segment.
    pub fn code(self) -> u64 {
        match self {
            LaneKind::Collective => 1,
            LaneKind::Send => 2,
            LaneKind::Recv => 3,
        }
    }
}

/// What a lane is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneKey {
    /// The communicator; not 0.
    pub comm: u64,
    /// What it counts.
    pub kind: LaneKind,
    /// This process's rank in the communicator.
    pub own: u32,
    /// Ranks in the communicator (collectives), or the other rank.
    pub other: u32,
}

/// An entry that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    epoch: u32,
    number: u32,
}

impl Ticket {
    /// The request that it waits for.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// An entry that waits, and since when (CLOCK_MONOTONIC nanoseconds).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// Its ticket.
    pub ticket: Ticket,
    /// When it came.
    pub since_ns: u64,
}

/// What an entry that waits finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Nothing new.
    Wait,
    /// It goes on.
    Go,
    /// Another request took the place of this one.
    Again,
}

/// The rank's side of the gate.
#[derive(Debug)]
pub struct Gate<'a, W> {
    /// From [`gate::GRANT`] on.
    words: &'a [W],
}

impl<W> Clone for Gate<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Gate<'_, W> {}

impl<'a, W: Word> Gate<'a, W> {
    /// Over words of which the first is [`gate::GRANT`]; `None` where there are not enough for one lane.
    pub fn over(words: &'a [W]) -> Option<Gate<'a, W>> {
        (words.len() >= gate::LANES + LANE_WORDS - gate::GRANT).then_some(Gate { words })
    }

    #[inline]
    fn word(&self, at: usize) -> &'a W {
        &self.words[at - gate::GRANT]
    }

    fn lane(&self, lane: usize) -> Option<&'a [W]> {
        self.words.get(gate::LANES - gate::GRANT + lane * LANE_WORDS..)?.get(..LANE_WORDS)
    }

    /// Says that this process has a gate.
    pub fn open(&self) {
        self.word(gate::READY).store(1, Ordering::Release);
    }

    /// Begins to count a lane, from 0.
    pub fn lane_open(&self, lane: usize, key: &LaneKey) {
        let Some(words) = self.lane(lane) else { return };
        words[gate_lane::WHO].store(halves(key.own, key.other), Ordering::Relaxed);
        words[gate_lane::KIND].store(key.kind.code(), Ordering::Relaxed);
        words[gate_lane::COUNT].store(0, Ordering::Relaxed);
        words[gate_lane::COMM].store(key.comm, Ordering::Release);
    }

    /// The lane is nobody's any more.
    pub fn lane_close(&self, lane: usize) {
        if let Some(words) = self.lane(lane) {
            words[gate_lane::COMM].store(0, Ordering::Release);
        }
    }

    /// One more operation of a lane; before it is issued. The library demands of its callers that no two threads use a
    /// communicator at once, so a plain load and store do.
    #[inline]
    pub fn count(&self, lane: usize) {
        if let Some(words) = self.lane(lane) {
            let count = &words[gate_lane::COUNT];
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// One more operation that no lane counts.
    #[inline]
    pub fn untracked(&self) {
        let count = self.word(gate::UNTRACKED);
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Whether anybody asks. All that an idle call looks at.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.word(gate::GRANT).load(Ordering::Relaxed) != 0
    }

    /// Takes the next ticket of the request that stands; `None` where nobody asks, or this process left it.
    pub fn arrive(&self) -> Option<Ticket> {
        for _ in 0..EPOCHS_MAX {
            let epoch = high(self.word(gate::GRANT).load(Ordering::Acquire));
            if epoch == 0 || high(self.word(gate::LEFT).load(Ordering::Acquire)) == epoch {
                return None;
            }
            let arrived = self.word(gate::ARRIVED).load(Ordering::Acquire);
            let number = if high(arrived) == epoch { low(arrived) } else { 0 };
            // A ticket of an older request never takes the place of a newer one: who registered that had seen it asked.
            let stands = high(self.word(gate::GRANT).load(Ordering::Acquire)) == epoch;
            let next = number.checked_add(1)?;
            if stands && self.word(gate::ARRIVED).swap_if(arrived, halves(next, epoch)) {
                return Some(Ticket { epoch, number });
            }
        }
        None
    }

    /// Whether an entry that has waited since `since_ns` still has to at `now_ns` (CLOCK_MONOTONIC).
    pub fn look(&self, ticket: Ticket, now_ns: u64, since_ns: u64) -> Look {
        let grant = self.word(gate::GRANT).load(Ordering::Acquire);
        if high(grant) != ticket.epoch {
            return if grant == 0 { Look::Go } else { Look::Again };
        }
        if ticket.number < low(grant) || high(self.word(gate::LEFT).load(Ordering::Acquire)) == ticket.epoch {
            return Look::Go;
        }
        let word = |at| self.word(at).load(Ordering::Relaxed);
        let left = if now_ns >= word(gate::DEADLINE) {
            Left::Deadline
        } else if now_ns.saturating_sub(word(gate::PULSE)) > word(gate::LEASE) {
            Left::Silence
        } else if now_ns.saturating_sub(since_ns) >= HELD_NS_MAX {
            Left::Limit
        } else {
            return Look::Wait;
        };
        self.word(gate::LEFT).store(halves(left as u32, ticket.epoch), Ordering::Release);
        Look::Go
    }

    /// Waits as long as the request that stands demands: `now_ns` is CLOCK_MONOTONIC, `pause` waits a moment.
    #[cold]
    pub fn pass(&self, now_ns: impl FnMut() -> u64, mut pause: impl FnMut()) {
        self.pass_working(now_ns, |_| pause());
    }

    /// As [`Gate::pass`], with something to do meanwhile: `work` gets what it needs to see whether the wait goes on, and does
    /// its work or waits a moment.
    #[cold]
    pub fn pass_working(&self, mut now_ns: impl FnMut() -> u64, mut work: impl FnMut(Waiting)) {
        let since_ns = now_ns();
        for _ in 0..EPOCHS_MAX {
            let Some(ticket) = self.arrive() else { return };
            loop {
                match self.look(ticket, now_ns(), since_ns) {
                    Look::Wait => work(Waiting { ticket, since_ns }),
                    Look::Go => return,
                    Look::Again => break,
                }
            }
        }
    }
}

/// Lanes that so many words hold.
pub(crate) fn lanes_in(words: usize) -> usize {
    (words.min(GATE_WORDS).saturating_sub(gate::LANES - gate::GRANT) / LANE_WORDS).min(LANE_COUNT)
}
