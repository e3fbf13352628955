//! Two ranks that meet over a connection: whatever is said in part, held up, cut or ended, and whenever one goes away, a round
//! takes place for both or for neither; but for one that has said `come` when the connection is cut, which knows that.
use mycroft_ring::gate::meeting::{Met, ROUNDS_MAX};
use mycroft_ring::gate::talk::Talk;
use proptest::prelude::*;
use std::collections::VecDeque;

/// What happens next; `usize` says to whom.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Comes for the next round, or looks.
    Look(usize),
    /// Waits no more.
    Leave(usize),
    /// So many bytes that it says are taken by the connection.
    Say(usize, usize),
    /// So many bytes arrive at it.
    Hear(usize, usize),
    /// Its process ends; what it had said arrives.
    Die(usize),
    /// The connection is cut: what is on its way is lost.
    Cut,
}

struct Side {
    talk: Talk,
    /// Rounds that took place for it.
    rounds: u32,
    is_waiting: bool,
    is_over: Option<Met>,
    is_dead: bool,
    /// What is on its way to the other.
    on_its_way: VecDeque<u8>,
    /// It says nothing more: an end in order, once the other has heard what is on its way.
    is_silent: bool,
    has_heard_end: bool,
}

impl Side {
    fn new() -> Side {
        Side {
            talk: Talk::new(),
            rounds: 0,
            is_waiting: false,
            is_over: None,
            is_dead: false,
            on_its_way: VecDeque::new(),
            is_silent: false,
            has_heard_end: false,
        }
    }

    fn found(&mut self, met: Met) {
        match met {
            Met::Both => (self.rounds, self.is_waiting) = (self.rounds + 1, false),
            Met::Alone => self.is_waiting = true,
            over => self.is_over = Some(over),
        }
    }

    /// The round's message goes from one to the other and back, in turn.
    fn receives(&self, side: usize) -> bool {
        (self.rounds as usize / 2) % 2 == side
    }
}

struct Pair {
    sides: [Side; 2],
    is_cut: bool,
}

impl Pair {
    fn act(&mut self, event: Event) {
        match event {
            Event::Look(side) | Event::Leave(side) => {
                let receives = self.sides[side].receives(side);
                let of = &mut self.sides[side];
                if of.is_dead || of.is_over.is_some() {
                    return;
                }
                let met = match event {
                    _ if !of.is_waiting => of.talk.come(of.rounds, receives),
                    Event::Leave(_) => of.talk.leave(),
                    _ => of.talk.look(),
                };
                of.found(met);
            }
            Event::Say(side, bytes) => {
                let of = &mut self.sides[side];
                let bytes = bytes.min(of.talk.to_say().len());
                if !of.is_dead && !of.is_silent && !self.is_cut {
                    of.on_its_way.extend(&of.talk.to_say()[..bytes]);
                    of.talk.said(bytes);
                }
                // It is over: the connection ends behind what was said.
                of.is_silent |= of.is_over.is_some() && of.talk.to_say().is_empty();
            }
            Event::Hear(side, bytes) => {
                let from = &mut self.sides[1 - side];
                let bytes = bytes.min(from.on_its_way.len());
                let heard: Vec<u8> = from.on_its_way.drain(..bytes).collect();
                let ends = from.on_its_way.is_empty() && (from.is_silent || from.is_dead);
                let of = &mut self.sides[side];
                if of.is_dead {
                    return;
                }
                of.talk.hear(&heard);
                if self.is_cut {
                    of.talk.ended(false);
                    of.has_heard_end = true;
                } else if ends {
                    of.talk.ended(true);
                    of.has_heard_end = true;
                }
            }
            Event::Die(side) => self.sides[side].is_dead = true,
            Event::Cut => {
                self.is_cut = true;
                self.sides.iter_mut().for_each(|side| side.on_its_way.clear());
            }
        }
    }

    /// Everything that is said arrives, and whoever still waits goes away.
    fn settle(&mut self) {
        for turn in 0..64 {
            for side in [0, 1] {
                self.act(Event::Say(side, 8));
                self.act(Event::Hear(side, 64));
                let is_open = self.sides[side].is_waiting || turn == 0;
                if is_open {
                    self.act(if turn < 8 { Event::Look(side) } else { Event::Leave(side) });
                }
            }
        }
    }

    fn check(&self) {
        let [one, other] = &self.sides;
        for of in &self.sides {
            assert!(of.is_dead || of.is_over.is_some() || !of.is_waiting, "nobody waits for ever");
            assert!(of.is_over != Some(Met::Lost) || self.is_cut, "what ends in order leaves no doubt");
        }
        if one.rounds == other.rounds {
            return;
        }
        let (ahead, behind) = if one.rounds > other.rounds { (one, other) } else { (other, one) };
        assert_eq!(ahead.rounds, behind.rounds + 1, "one round at most");
        assert!(
            behind.is_dead || behind.is_over == Some(Met::Lost),
            "it did not take part, and does not know: {behind:?}"
        );
    }
}

impl std::fmt::Debug for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rounds {}, {:?}, over {:?}", self.rounds, self.talk, self.is_over)
    }
}

fn event() -> impl Strategy<Value = Event> {
    let side = 0usize..2;
    prop_oneof![
        12 => side.clone().prop_map(Event::Look),
        1 => side.clone().prop_map(Event::Leave),
        12 => (side.clone(), 1usize..12).prop_map(|(side, bytes)| Event::Say(side, bytes)),
        12 => (side, 1usize..12).prop_map(|(side, bytes)| Event::Hear(side, bytes)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn a_round_takes_place_for_both_or_for_neither(
        events in proptest::collection::vec(event(), 0..120),
        last in prop_oneof![Just(None), Just(Some(Event::Cut)), (0usize..2).prop_map(|side| Some(Event::Die(side)))],
        at in 0usize..120,
    ) {
        let mut pair = Pair { sides: [Side::new(), Side::new()], is_cut: false };
        for (i, event) in events.into_iter().enumerate() {
            if i == at {
                last.into_iter().for_each(|last| pair.act(last));
            }
            pair.act(event);
        }
        pair.settle();
        pair.check();
    }

    /// Whatever a stranger says: nobody meets it in a round that it did not come for, and nothing panics.
    #[test]
    fn foreign_bytes_end_a_meeting(bytes in proptest::collection::vec(any::<u8>(), 8..64), receives: bool) {
        let mut talk = Talk::new();
        talk.come(0, receives);
        talk.said(8);
        talk.hear(&bytes);
        prop_assert_ne!(talk.look(), Met::Both);
    }
}

/// A byte at a time, and several rounds in both directions.
#[test]
fn rounds_of_two_that_stay_all_take_place() {
    let mut pair = Pair { sides: [Side::new(), Side::new()], is_cut: false };
    while pair.sides.iter().any(|side| side.rounds < 24) {
        for side in [0, 1] {
            if pair.sides[side].rounds < 24 {
                pair.act(Event::Look(side));
            }
            pair.act(Event::Say(side, 1));
            pair.act(Event::Hear(side, 1));
        }
    }
    assert!(pair.sides.iter().all(|side| side.is_over.is_none()));
    let mut talk = Talk::new();
    assert_eq!(talk.come(ROUNDS_MAX, true), Met::Closed);
}
