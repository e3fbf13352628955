//! Where the two ranks of a pair agree on each round of their test: both take part in it, or neither does.
//!
//! One that sends what its peer never receives would shift every later transfer between them by one, so it is not enough
//! that both were told to: whoever told them may have been killed in between. They meet at one word, in the segment of the
//! one that keeps it. Who comes first may go away again as long as the other is not there, by closing the meeting; once both
//! are there, both know.
use crate::narrow::low;
use crate::raw::{halves, high};
use crate::sync::{Ordering, Word};

/// Bits of both sides.
const BOTH: u32 = 3;
/// Bit of a meeting that is over: the round in the word and all later ones do not take place.
const CLOSED: u32 = 4;
/// Most rounds of a meeting.
pub const ROUNDS_MAX: u32 = 1 << 16;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one in whose segment they meet.
    Keeper = 1,
    /// The other.
    Guest = 2,
}

/// What one finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Met {
    /// Both are there: this round takes place.
    Both,
    /// The other is not there yet.
    Alone,
    /// It does not take place, nor does any later one.
    Closed,
    /// Nobody can tell here whether it takes place at the other (`talk`); no later one does.
    Lost,
}

/// A meeting, as one side has it.
#[derive(Debug)]
pub struct Meeting<'a, W> {
    word: &'a W,
    number: u32,
    side: Side,
}

impl<'a, W: Word> Meeting<'a, W> {
    /// The meeting of this number, which grows from one to the next, at this word.
    pub fn at(word: &'a W, number: u32, side: Side) -> Meeting<'a, W> {
        Meeting { word, number, side }
    }

    /// What a word says of this meeting; `None` where another one has begun.
    fn state(&self, word: u64) -> Option<State> {
        let of = low(word);
        match high(word).cmp(&self.number) {
            std::cmp::Ordering::Less => Some(State { round: 0, there: 0, is_closed: false }),
            std::cmp::Ordering::Equal => Some(State { round: of >> 3, there: of & BOTH, is_closed: of & CLOSED != 0 }),
            std::cmp::Ordering::Greater => None,
        }
    }

    fn found(state: Option<State>, round: u32) -> Met {
        match state {
            // The one that went on, or went away, in a later round had met for this one.
            Some(state) if state.round > round || state.round == round && state.there == BOTH => Met::Both,
            Some(state) if !state.is_closed => Met::Alone,
            _ => Met::Closed,
        }
    }

    /// Comes for a round; rounds are counted from 0, and each comes after the one before was met for.
    pub fn come(&self, round: u32) -> Met {
        if round >= ROUNDS_MAX {
            return Met::Closed;
        }
        loop {
            let word = self.word.load(Ordering::Acquire);
            let state = self.state(word);
            let there = match state {
                Some(state) if Self::found(Some(state), round) == Met::Alone => {
                    if state.round == round {
                        state.there
                    } else {
                        0
                    }
                }
                _ => return Self::found(state, round),
            };
            let there = there | self.side as u32;
            if self.word.swap_if(word, halves(round << 3 | there, self.number)) {
                return if there == BOTH { Met::Both } else { Met::Alone };
            }
        }
    }

    /// Whether the other has come by now.
    pub fn look(&self, round: u32) -> Met {
        Self::found(self.state(self.word.load(Ordering::Acquire)), round)
    }

    /// Goes away: nobody meets here any more, unless the other came first.
    pub fn leave(&self, round: u32) -> Met {
        loop {
            let word = self.word.load(Ordering::Acquire);
            match Self::found(self.state(word), round) {
                // The round stays in the word: the other may not have seen yet that the one before was met for.
                Met::Alone if self.word.swap_if(word, halves(round << 3 | CLOSED, self.number)) => return Met::Closed,
                Met::Alone => {}
                met => return met,
            }
        }
    }
}

/// A word of a meeting.
#[derive(Clone, Copy)]
struct State {
    round: u32,
    there: u32,
    is_closed: bool,
}
