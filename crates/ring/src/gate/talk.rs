//! The meeting of two ranks that share no memory, over a connection: what is said, and what each side may do when. No socket
//! is in here: whoever has one carries the bytes.
//!
//! The one that receives a round's message decides on it, so that both directions of a way are measured alike. It says `here`
//! when it is there. The other says `come`, and from then on does what the first decides: `go`, or `closed`. Until a side has
//! said `go` or `come` it may go away at any time, with `closed` or with the end of the connection. An end that comes in order
//! comes after everything that was said before it, so it is a decision like `closed`. Only a side that has said `come` and loses
//! the connection in another way cannot know whether the other began: [`Met::Lost`].
use super::meeting::{Met, ROUNDS_MAX};

/// Bytes of one thing that is said: a kind, a mark, and the round.
const SAID_BYTES: usize = 8;
/// Between kind and round: what is not of this protocol has other bytes there.
const MARK: [u8; 3] = *b"mgt";

/// What is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Say {
    /// The one that decides is there.
    Here = 1,
    /// The other is there, and does as the first decides.
    Come = 2,
    /// The round takes place.
    Go = 3,
    /// Neither this round nor a later one does.
    Closed = 4,
}

impl Say {
    fn from_code(code: u8) -> Option<Say> {
        [Say::Here, Say::Come, Say::Go, Say::Closed].into_iter().find(|say| *say as u8 == code)
    }
}

/// How far one side is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Between rounds.
    Between,
    /// Decides, and waits for the other.
    Offers,
    /// Is saying `go`.
    Goes,
    /// Waits for the one that decides.
    Waits,
    /// Is saying `come`.
    Comes,
    /// Has said `come`: the other decides.
    Bound,
    /// The round takes place.
    Meets,
    /// Over, in this way.
    Over(Met),
}

/// One side of a meeting.
#[derive(Debug)]
pub struct Talk {
    stage: Stage,
    round: u32,
    /// The round for which the other said that it is there.
    invited: Option<u32>,
    /// After the round that takes place nothing more is heard.
    is_last: bool,
    saying: [u8; SAID_BYTES],
    /// How much of `saying` is said.
    said: usize,
    hearing: [u8; SAID_BYTES],
    /// How much of `hearing` is heard.
    heard: usize,
}

impl Default for Talk {
    fn default() -> Self {
        Talk::new()
    }
}

impl Talk {
    /// A meeting that nobody has come to yet.
    pub fn new() -> Talk {
        let (saying, hearing) = ([0; SAID_BYTES], [0; SAID_BYTES]);
        let (stage, round, invited, is_last) = (Stage::Between, 0, None, false);
        Talk { stage, round, invited, is_last, saying, said: SAID_BYTES, hearing, heard: 0 }
    }

    /// Comes for a round; rounds are counted from 0, and each comes after the one before was met for. `receives`: this side
    /// gets the round's message, the other sends it.
    pub fn come(&mut self, round: u32, receives: bool) -> Met {
        if self.stage == Stage::Between {
            self.round = round;
            if self.is_last || round >= ROUNDS_MAX {
                self.stage = Stage::Over(Met::Closed);
            } else if receives {
                self.say(Say::Here, Stage::Offers);
            } else if self.invited == Some(round) {
                self.say(Say::Come, Stage::Comes);
            } else {
                self.stage = Stage::Waits;
            }
        }
        self.look()
    }

    /// What there is by now: [`Met::Both`] once for each round.
    pub fn look(&mut self) -> Met {
        match self.stage {
            Stage::Over(met) => met,
            Stage::Meets => {
                self.stage = Stage::Between;
                Met::Both
            }
            _ => Met::Alone,
        }
    }

    /// Goes away, unless the round takes place: [`Met::Both`], or the other decides about it: [`Met::Alone`].
    pub fn leave(&mut self) -> Met {
        match self.stage {
            Stage::Over(_) | Stage::Bound | Stage::Meets => self.look(),
            // What was said in part is never said to its end: the end of the connection says the same as `closed`.
            _ if 0 < self.said && self.said < SAID_BYTES => {
                self.close();
                Met::Closed
            }
            _ => {
                self.say(Say::Closed, Stage::Over(Met::Closed));
                Met::Closed
            }
        }
    }

    /// What is to be said to the other now.
    pub fn to_say(&self) -> &[u8] {
        &self.saying[self.said..]
    }

    /// So many bytes of it are said: they are on their way whatever becomes of this side.
    pub fn said(&mut self, bytes: usize) {
        self.said = (self.said + bytes).min(SAID_BYTES);
        if self.said == SAID_BYTES {
            self.stage = match self.stage {
                Stage::Goes => Stage::Meets,
                Stage::Comes => Stage::Bound,
                stage => stage,
            };
        }
    }

    /// The other said these bytes.
    pub fn hear(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hearing[self.heard] = *byte;
            self.heard += 1;
            if self.heard == SAID_BYTES {
                self.heard = 0;
                self.take();
            }
        }
    }

    /// Nothing more is heard: in order, after all that the other said, or because the connection is lost.
    pub fn ended(&mut self, in_order: bool) {
        if in_order { self.close() } else { self.lose() }
    }

    fn say(&mut self, say: Say, stage: Stage) {
        let [a, b, c] = MARK;
        let [d, e, f, g] = self.round.to_le_bytes();
        (self.saying, self.said, self.stage) = ([say as u8, a, b, c, d, e, f, g], 0, stage);
    }

    fn close(&mut self) {
        match self.stage {
            Stage::Over(_) => {}
            Stage::Meets => self.is_last = true,
            _ => (self.said, self.stage) = (SAID_BYTES, Stage::Over(Met::Closed)),
        }
    }

    /// As [`Talk::close`], but that the other may have decided without this side hearing of it.
    fn lose(&mut self) {
        if self.stage == Stage::Bound {
            self.stage = Stage::Over(Met::Lost);
        } else {
            self.close();
        }
    }

    fn take(&mut self) {
        let [code, a, b, c, d, e, f, g] = self.hearing;
        let round = u32::from_le_bytes([d, e, f, g]);
        let is_now = round == self.round;
        match (Say::from_code(code).filter(|_| [a, b, c] == MARK), self.stage) {
            (Some(Say::Closed), _) => self.close(),
            (Some(Say::Here), Stage::Waits) if is_now => self.say(Say::Come, Stage::Comes),
            // It is a round ahead of this side.
            (Some(Say::Here), Stage::Between | Stage::Meets) => self.invited = Some(round),
            (Some(Say::Come), Stage::Offers) if is_now => self.say(Say::Go, Stage::Goes),
            (Some(Say::Go), Stage::Bound) if is_now => self.stage = Stage::Meets,
            // Nobody who keeps to this says that.
            _ => self.lose(),
        }
    }
}
