//! The receiving half: packets in order become data and completions; what comes out of order is asked for again.
use super::types::{Completion, Config, Event, Memory, Piece, Receive, Status, Work, each_piece};
use crate::psn;
use crate::wire::{Answer, Kind, Nak, Packet, Part, Reth, Verb};
use std::collections::VecDeque;

/// A message of which more packets come.
#[derive(Debug)]
enum Message {
    Write { address: u64, key: u32, left: u32, bytes: u32 },
    Send { receive: Receive, at: u32 },
}

/// What a packet may use.
pub(super) struct Receiver<'a> {
    pub(super) config: &'a Config,
    pub(super) memory: &'a dyn Memory,
    pub(super) done: &'a mut VecDeque<Completion>,
}

/// Why a packet is not taken.
enum Refusal {
    NotReady,
    Invalid,
    Access,
    /// The receive cannot take it; its completion is written.
    Broken,
}

/// The receiving half of a connection.
#[derive(Debug, Default)]
pub(super) struct Responder {
    expected: u32,
    messages: u32,
    /// The sender knows from where to send again.
    refused: bool,
    message: Option<Message>,
    receives: VecDeque<Receive>,
    answer: Option<(u32, Answer)>,
}

impl Responder {
    pub(super) fn begin(&mut self, first: u32) {
        let receives = std::mem::take(&mut self.receives);
        *self = Responder { expected: first, receives, ..Responder::default() };
    }

    pub(super) fn post(&mut self, receive: Receive) {
        self.receives.push_back(receive);
    }

    pub(super) fn len(&self) -> usize {
        self.receives.len()
    }

    /// The answer that is due, once.
    pub(super) fn answer(&mut self) -> Option<(u32, Kind)> {
        let (psn, answer) = self.answer.take()?;
        Some((psn, Kind::Acknowledge { answer, messages: self.messages }))
    }

    /// Takes a packet. An event: the connection has failed.
    pub(super) fn take(&mut self, packet: &Packet<'_>, receiver: Receiver<'_>) -> Option<Event> {
        let ahead = psn::distance(self.expected, packet.psn);
        if ahead < 0 {
            // It was taken before: the answer got lost, or is late.
            if packet.asks && self.answer.is_none() {
                self.answer = Some((psn::before(self.expected), Answer::Ack));
            }
            return None;
        }
        if ahead > 0 {
            if !self.refused {
                self.refused = true;
                self.answer = Some((self.expected, Answer::Nak(Nak::Sequence)));
            }
            return None;
        }
        self.refused = false;
        let code = receiver.config.not_ready_code;
        match self.place(packet, receiver) {
            Ok(()) => {
                self.expected = psn::add(self.expected, 1);
                if packet.asks || matches!(self.answer, Some((_, Answer::Ack))) {
                    self.answer = Some((packet.psn, Answer::Ack));
                }
                None
            }
            Err(Refusal::NotReady) => {
                self.refused = true;
                self.answer = Some((self.expected, Answer::NotReady(code)));
                None
            }
            Err(Refusal::Invalid) => self.refuse(packet.psn),
            Err(Refusal::Access) => {
                self.answer = Some((packet.psn, Answer::Nak(Nak::Access)));
                Some(Event::Access)
            }
            Err(Refusal::Broken) => {
                self.answer = Some((packet.psn, Answer::Nak(Nak::InvalidRequest)));
                Some(Event::Fatal)
            }
        }
    }

    /// A packet that makes no sense.
    pub(super) fn refuse(&mut self, number: u32) -> Option<Event> {
        if number != self.expected {
            return None;
        }
        self.answer = Some((number, Answer::Nak(Nak::InvalidRequest)));
        Some(Event::InvalidRequest)
    }

    fn place(&mut self, packet: &Packet<'_>, receiver: Receiver<'_>) -> Result<(), Refusal> {
        let Kind::Request { verb, part, reth, immediate } = packet.kind else { return Err(Refusal::Invalid) };
        let continues = match &self.message {
            None => None,
            Some(Message::Write { .. }) => Some(Verb::Write),
            Some(Message::Send { .. }) => Some(Verb::Send),
        };
        if continues != (!part.begins()).then_some(verb) {
            return Err(Refusal::Invalid);
        }
        match verb {
            Verb::Write => self.place_write(packet.payload, (part, reth, immediate), receiver),
            Verb::Send => self.place_send(packet.payload, part, immediate, receiver),
        }
    }

    fn place_write(
        &mut self,
        payload: &[u8],
        head: (Part, Option<Reth>, Option<[u8; 4]>),
        receiver: Receiver<'_>,
    ) -> Result<(), Refusal> {
        let (part, reth, immediate) = head;
        if immediate.is_some() && self.receives.is_empty() {
            return Err(Refusal::NotReady);
        }
        let (address, key, left, bytes) = match (reth, &self.message) {
            (Some(reth), _) => {
                let whole = Piece { address: reth.address, bytes: reth.bytes, key: reth.key };
                if reth.bytes > 0 && !(receiver.config.may_write && receiver.memory.may_write(whole)) {
                    return Err(Refusal::Access);
                }
                (reth.address, reth.key, reth.bytes, reth.bytes)
            }
            (None, Some(Message::Write { address, key, left, bytes })) => (*address, *key, *left, *bytes),
            _ => return Err(Refusal::Invalid),
        };
        let here = payload.len() as u32;
        if here > left || (part.ends() && here != left) {
            return Err(Refusal::Invalid);
        }
        if here > 0 && !receiver.memory.write(Piece { address, bytes: here, key }, payload) {
            return Err(Refusal::Access);
        }
        if !part.ends() {
            let (address, left) = (address + u64::from(here), left - here);
            self.message = Some(Message::Write { address, key, left, bytes });
            return Ok(());
        }
        self.message = None;
        self.messages = psn::add(self.messages, 1);
        if immediate.is_some()
            && let Some(receive) = self.receives.pop_front()
        {
            let (work, status) = (Work::ReceiveWrite, Status::Success);
            receiver.done.push_back(Completion { id: receive.id, work, status, bytes, immediate });
        }
        Ok(())
    }

    fn place_send(
        &mut self,
        payload: &[u8],
        part: Part,
        immediate: Option<[u8; 4]>,
        receiver: Receiver<'_>,
    ) -> Result<(), Refusal> {
        let (receive, at) = match self.message.take() {
            Some(Message::Send { receive, at }) => (receive, at),
            _ => (self.receives.pop_front().ok_or(Refusal::NotReady)?, 0),
        };
        let here = payload.len() as u32;
        let mut status = Status::Success;
        let room: u64 = receive.pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        if room < u64::from(at) + u64::from(here) {
            status = Status::LocalLength;
        } else {
            let fill = |piece: Piece, from: usize| {
                payload.get(from..from + piece.bytes as usize).is_some_and(|part| receiver.memory.fill(piece, part))
            };
            if !each_piece(&receive.pieces, at, here, fill) {
                status = Status::LocalProtection;
            }
        }
        let bytes = at + here;
        if status == Status::Success && !part.ends() {
            self.message = Some(Message::Send { receive, at: bytes });
            return Ok(());
        }
        let completion = Completion { id: receive.id, work: Work::Receive, status, bytes, immediate };
        receiver.done.push_back(completion);
        if status != Status::Success {
            return Err(Refusal::Broken);
        }
        self.messages = psn::add(self.messages, 1);
        Ok(())
    }

    pub(super) fn flush(&mut self, done: &mut VecDeque<Completion>) {
        let begun = match self.message.take() {
            Some(Message::Send { receive, .. }) => Some(receive),
            _ => None,
        };
        done.extend(begun.into_iter().chain(self.receives.drain(..)).map(|receive| Completion {
            id: receive.id,
            work: Work::Receive,
            status: Status::Flushed,
            bytes: 0,
            immediate: None,
        }));
    }
}
