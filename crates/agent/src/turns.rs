//! Which turns of the outbox are safe: with the server, which acknowledged them, or in the spool.
use std::collections::VecDeque;
use std::ops::Range;

/// Turns remembered until they are acknowledged: a minute of them, later ones wait for room.
const TURNS_MAX: usize = 600;

/// Turns that were taken from the outbox.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The one that was taken last.
    latest: u64,
    /// Those of which nothing is here any more, with the number of the frame behind their last.
    handed_over: VecDeque<(u64, u64)>,
}

impl Turns {
    /// All up to a turn were taken.
    pub(crate) fn taken(&mut self, turn: u64) {
        self.latest = turn;
    }

    /// The last turn that became safe, if any did: `none_here` says that all taken records were handed over, `waiting` which
    /// frames the server has not acknowledged (its end is the next frame's number).
    pub(crate) fn safe(&mut self, none_here: bool, waiting: &Range<u64>) -> Option<u64> {
        let is_new = self.handed_over.back().is_none_or(|(turn, _)| *turn < self.latest);
        if none_here && is_new && self.handed_over.len() < TURNS_MAX {
            self.handed_over.push_back((self.latest, waiting.end));
        }
        let safe = self.handed_over.iter().take_while(|(_, end)| *end <= waiting.start).count();
        self.handed_over.drain(..safe).next_back().map(|(turn, _)| turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_safe_when_all_its_frames_were_acknowledged() {
        let mut turns = Turns::default();
        turns.taken(1);
        assert_eq!(turns.safe(false, &(1..1)), None, "not handed over");
        assert_eq!(turns.safe(true, &(1..3)), None, "in frames 1 and 2");
        turns.taken(2);
        assert_eq!(turns.safe(true, &(2..4)), None, "frame 2 waits");
        assert_eq!(turns.safe(true, &(3..4)), Some(1));
        turns.taken(3);
        assert_eq!(turns.safe(true, &(4..4)), Some(3), "the third needed no frame: it is in the spool");
        assert_eq!(turns.safe(true, &(4..4)), Some(3), "and still is");
    }
}
