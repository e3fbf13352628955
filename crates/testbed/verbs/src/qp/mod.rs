//! A reliable connection (InfiniBand Architecture Specification, volume 1, 9.7): what it sends, and what it makes of what
//! comes. Time is an argument, memory is a trait, packets are bytes: nothing here reads a clock or does IO.

mod requester;
mod responder;
#[cfg(test)]
mod tests;
mod types;

use crate::wire::{Kind, Packet, Part};
use requester::Requester;
use responder::Responder;
use std::collections::VecDeque;
pub use types::{
    Completion, Config, Data, Event, Memory, Piece, Receive, Request, Retry, Send, State, Status, WINDOW_PACKETS, Work,
    rnr_ns,
};

/// A queue pair of a reliable connection.
#[derive(Debug)]
pub struct Connection {
    state: State,
    config: Config,
    requester: Requester,
    responder: Responder,
    done: VecDeque<Completion>,
    events: VecDeque<Event>,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            state: State::Reset,
            config: Config::default(),
            requester: Requester::default(),
            responder: Responder::default(),
            done: VecDeque::new(),
            events: VecDeque::new(),
        }
    }
}

impl Connection {
    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// What it was told.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Becomes `state` with `config`. The caller checks that the step is allowed.
    pub fn become_state(&mut self, state: State, config: Config) {
        if state == State::ReadyToReceive && self.state != state {
            self.responder.begin(config.receive_psn);
        }
        if state == State::ReadyToSend && self.state != state {
            self.requester.begin(config.send_psn, &config.retry);
        }
        self.config = config;
        match state {
            State::Reset => *self = Connection::default(),
            State::Error => self.fail(None),
            _ => self.state = state,
        }
    }

    /// Queues a receive.
    pub fn post_receive(&mut self, receive: Receive) {
        self.responder.post(receive);
        if self.state == State::Error {
            self.flush();
        }
    }

    /// Queues a request.
    pub fn post_send(&mut self, send: Send) {
        self.requester.post(send, self.config.mtu_bytes);
        if self.state == State::Error {
            self.flush();
        }
    }

    /// Requests that are posted and not done.
    #[must_use]
    pub fn sends(&self) -> usize {
        self.requester.len()
    }

    /// Receives that are posted and not done.
    #[must_use]
    pub fn receives(&self) -> usize {
        self.responder.len()
    }

    /// Appends the answer that is due, if one is.
    pub fn answer(&mut self, out: &mut Vec<u8>) -> bool {
        let Some((psn, kind)) = self.responder.answer() else { return false };
        Packet { queue_pair: self.config.peer, psn, asks: false, kind, payload: &[] }.write(out)
    }

    /// Appends the next packet of a request, without its checksum; false where none is to go now.
    pub fn transmit(&mut self, now_ns: u64, memory: &dyn Memory, out: &mut Vec<u8>) -> bool {
        if self.state != State::ReadyToSend {
            return false;
        }
        match self.requester.transmit(now_ns, &self.config, memory, out) {
            Ok(sent) => sent,
            Err(index) => {
                // What is before it was sent and nobody will wait for the answers.
                self.requester.fail_at(index, Status::LocalProtection, &mut self.done);
                self.fail(Some(Event::Fatal));
                false
            }
        }
    }

    /// Whether a packet of a request would go now.
    #[must_use]
    pub fn wants_to_send(&self, now_ns: u64) -> bool {
        self.state == State::ReadyToSend && self.requester.wants(now_ns)
    }

    /// Takes a packet that was sent to this queue pair, its checksum already checked.
    pub fn receive(&mut self, now_ns: u64, packet: &Packet<'_>, memory: &dyn Memory) {
        if !matches!(self.state, State::ReadyToReceive | State::ReadyToSend) {
            return;
        }
        let failed = match packet.kind {
            Kind::Acknowledge { answer, .. } => {
                self.requester.answered(now_ns, packet.psn, answer, &self.config, &mut self.done)
            }
            Kind::Request { .. } => {
                let mtu = self.config.mtu_bytes;
                let receiver = responder::Receiver { config: &self.config, memory, done: &mut self.done };
                if fits(packet, mtu) {
                    self.responder.take(packet, receiver)
                } else {
                    self.responder.refuse(packet.psn)
                }
            }
        };
        if let Some(event) = failed {
            self.fail(Some(event));
        }
    }

    /// When [`Connection::elapse`] has something to do.
    #[must_use]
    pub fn deadline_ns(&self) -> Option<u64> {
        self.requester.deadline_ns().filter(|_| self.state == State::ReadyToSend)
    }

    /// It is `now_ns`: what waited too long is sent again, or given up.
    pub fn elapse(&mut self, now_ns: u64) {
        if self.state == State::ReadyToSend && !self.requester.elapse(now_ns, &self.config, &mut self.done) {
            self.fail(Some(Event::Fatal));
        }
    }

    /// Into the error state, as a fault: all that is posted ends unsuccessfully.
    pub fn fail(&mut self, event: Option<Event>) {
        if self.state != State::Error {
            self.events.extend(event);
        }
        self.state = State::Error;
        self.flush();
    }

    fn flush(&mut self) {
        self.requester.flush(&mut self.done);
        self.responder.flush(&mut self.done);
    }

    /// The next work that is done, in order.
    pub fn next_completion(&mut self) -> Option<Completion> {
        self.done.pop_front()
    }

    /// The next thing that the program is told without asking.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

/// Whether a packet of a message has as many bytes as its part demands.
fn fits(packet: &Packet<'_>, mtu_bytes: u32) -> bool {
    let bytes = packet.payload.len();
    match packet.kind {
        Kind::Request { part: Part::First | Part::Middle, .. } => bytes == mtu_bytes as usize,
        Kind::Request { part: Part::Last, .. } => bytes >= 1 && bytes <= mtu_bytes as usize,
        _ => bytes <= mtu_bytes as usize,
    }
}
