//! The sending half: requests become packets, answers become completions, and what is lost is sent again from there
//! (go-back-N).
use super::types::{Completion, Config, Event, Memory, Request, Retry, Send, Status, WINDOW_PACKETS, Work, rnr_ns};
use crate::psn;
use crate::wire::{Answer, Kind, Nak, Packet, Part, Reth, Verb};
use std::collections::VecDeque;

/// An answer is asked for every so many packets, besides those at the end of a message: a quarter of the window, so that the
/// sender does not stand still while an answer is on its way.
const ASK_EVERY: u32 = WINDOW_PACKETS / 4;
/// "Come back always", of tries to reach a receiver that is not ready.
const ALWAYS: u8 = 7;

/// A request in the queue.
#[derive(Debug)]
struct Pending {
    send: Send,
    first: u32,
    packets: u32,
    bytes: u32,
}

impl Pending {
    fn work(&self) -> Work {
        match self.send.request {
            Request::Send => Work::Send,
            Request::Write { .. } => Work::Write,
        }
    }

    fn ended(&self, status: Status) -> Completion {
        Completion { id: self.send.id, work: self.work(), status, bytes: 0, immediate: None }
    }
}

/// The sending half of a connection.
#[derive(Debug, Default)]
pub(super) struct Requester {
    queue: VecDeque<Pending>,
    /// Which of the queue the next packet belongs to.
    at: usize,
    /// The oldest packet without an answer.
    unanswered: u32,
    /// The next packet to go.
    next: u32,
    /// The one after the last that ever went.
    sent: u32,
    /// The one after the last that is posted.
    end: u32,
    deadline_ns: Option<u64>,
    hold_until_ns: Option<u64>,
    retries_left: u8,
    not_ready_left: u8,
}

impl Requester {
    pub(super) fn begin(&mut self, first: u32, retry: &Retry) {
        let queue = std::mem::take(&mut self.queue);
        *self = Requester { queue, unanswered: first, next: first, sent: first, end: first, ..Requester::default() };
        (self.retries_left, self.not_ready_left) = (retry.count, retry.not_ready);
        for pending in &mut self.queue {
            pending.first = self.end;
            self.end = psn::add(self.end, pending.packets);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn post(&mut self, send: Send, mtu_bytes: u32) {
        let bytes = send.data.bytes();
        let packets = bytes.div_ceil(mtu_bytes.max(1)).max(1);
        self.queue.push_back(Pending { send, first: self.end, packets, bytes });
        self.end = psn::add(self.end, packets);
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.hold_until_ns.or(self.deadline_ns)
    }

    pub(super) fn wants(&self, now_ns: u64) -> bool {
        self.next != self.end
            && self.hold_until_ns.is_none_or(|until| until <= now_ns)
            && psn::distance(self.unanswered, self.next) < WINDOW_PACKETS as i32
    }

    /// Appends the next packet; the error is the place in the queue of a request whose data may not be read.
    pub(super) fn transmit(
        &mut self,
        now_ns: u64,
        config: &Config,
        memory: &dyn Memory,
        out: &mut Vec<u8>,
    ) -> Result<bool, usize> {
        if !self.wants(now_ns) {
            return Ok(false);
        }
        self.hold_until_ns = None;
        while self.at < self.queue.len() && psn::distance(self.next, self.ends(self.at)) <= 0 {
            self.at += 1;
        }
        let Some(pending) = self.queue.get(self.at) else { return Ok(false) };
        let index = psn::distance(pending.first, self.next) as u32;
        let part = Part::of(index, pending.packets);
        let (verb, target) = match pending.send.request {
            Request::Send => (Verb::Send, None),
            Request::Write { address, key } => (Verb::Write, Some((address, key))),
        };
        let reth = target.filter(|_| part.begins()).map(|(address, key)| Reth { address, key, bytes: pending.bytes });
        let immediate = pending.send.immediate.filter(|_| part.ends());
        let offset = index * config.mtu_bytes;
        let bytes = (pending.bytes - offset).min(config.mtu_bytes);
        let full = psn::distance(self.unanswered, self.next) + 1 >= WINDOW_PACKETS as i32;
        let packet = Packet {
            queue_pair: config.peer,
            psn: self.next,
            asks: part.ends() || full || (self.next + 1).is_multiple_of(ASK_EVERY),
            kind: Kind::Request { verb, part, reth, immediate },
            payload: &[],
        };
        let fill = |out: &mut Vec<u8>| pending.send.data.append(offset, bytes, memory, out);
        if !packet.write_with(bytes as usize, out, fill) {
            return Err(self.at);
        }
        self.next = psn::add(self.next, 1);
        if psn::distance(self.sent, self.next) > 0 {
            self.sent = self.next;
        }
        if self.deadline_ns.is_none() {
            self.deadline_ns = config.retry.timeout_ns.map(|timeout| now_ns + timeout);
        }
        Ok(true)
    }

    fn ends(&self, index: usize) -> u32 {
        self.queue.get(index).map_or(self.end, |pending| psn::add(pending.first, pending.packets))
    }

    /// Takes an answer for packet `number`. An event: the connection has failed, and the request is in `done`.
    pub(super) fn answered(
        &mut self,
        now_ns: u64,
        number: u32,
        answer: Answer,
        config: &Config,
        done: &mut VecDeque<Completion>,
    ) -> Option<Event> {
        let is_known = psn::distance(self.unanswered, number) >= 0 && psn::distance(number, self.sent) > 0;
        let arrived = if answer == Answer::Ack { psn::add(number, 1) } else { number };
        if !is_known {
            return None;
        }
        let news = self.advance(now_ns, arrived, config, done);
        match answer {
            Answer::Ack => None,
            Answer::NotReady(code) => {
                if self.not_ready_left == 0 {
                    return self.fail_first(Status::NotReadyExceeded, done);
                }
                if self.not_ready_left != ALWAYS {
                    self.not_ready_left -= 1;
                }
                self.go_back();
                self.hold_until_ns = Some(now_ns + rnr_ns(code));
                self.deadline_ns = None;
                None
            }
            Answer::Nak(Nak::Sequence) => {
                if !news && self.retries_left == 0 {
                    return self.fail_first(Status::RetryExceeded, done);
                }
                self.retries_left -= u8::from(!news);
                self.go_back();
                self.deadline_ns = config.retry.timeout_ns.map(|timeout| now_ns + timeout);
                None
            }
            Answer::Nak(Nak::InvalidRequest) => self.fail_first(Status::RemoteInvalid, done),
            Answer::Nak(Nak::Access) => self.fail_first(Status::RemoteAccess, done),
            Answer::Nak(Nak::Operation) => self.fail_first(Status::RemoteOperation, done),
        }
    }

    /// Everything before `arrived` is with the other end; true where that is news.
    fn advance(&mut self, now_ns: u64, arrived: u32, config: &Config, done: &mut VecDeque<Completion>) -> bool {
        if psn::distance(self.unanswered, arrived) <= 0 {
            return false;
        }
        self.unanswered = arrived;
        while self.queue.front().is_some() && psn::distance(self.ends(0), arrived) >= 0 {
            if let Some(pending) = self.queue.pop_front()
                && pending.send.signaled
            {
                done.push_back(pending.ended(Status::Success));
            }
            self.at = self.at.saturating_sub(1);
        }
        if psn::distance(self.next, arrived) > 0 {
            (self.next, self.at) = (arrived, 0);
        }
        (self.retries_left, self.not_ready_left) = (config.retry.count, config.retry.not_ready);
        let waits = self.unanswered != self.next;
        self.deadline_ns = config.retry.timeout_ns.filter(|_| waits).map(|timeout| now_ns + timeout);
        true
    }

    fn go_back(&mut self) {
        (self.next, self.at) = (self.unanswered, 0);
    }

    /// False: the connection has failed, and the request is in `done`.
    pub(super) fn elapse(&mut self, now_ns: u64, config: &Config, done: &mut VecDeque<Completion>) -> bool {
        if self.hold_until_ns.is_some_and(|until| until <= now_ns) {
            self.hold_until_ns = None;
        }
        if self.hold_until_ns.is_some() || self.deadline_ns.is_none_or(|deadline| deadline > now_ns) {
            return true;
        }
        if self.retries_left == 0 {
            self.fail_first(Status::RetryExceeded, done);
            return false;
        }
        self.retries_left -= 1;
        self.go_back();
        self.deadline_ns = config.retry.timeout_ns.map(|timeout| now_ns + timeout);
        true
    }

    fn fail_first(&mut self, status: Status, done: &mut VecDeque<Completion>) -> Option<Event> {
        self.fail_at(0, status, done);
        Some(Event::Fatal)
    }

    /// Ends the request at `index` with `status`, and those before it as flushed.
    pub(super) fn fail_at(&mut self, index: usize, status: Status, done: &mut VecDeque<Completion>) {
        let failed = self.queue.drain(..(index + 1).min(self.queue.len())).enumerate();
        done.extend(failed.map(|(at, pending)| pending.ended(if at == index { status } else { Status::Flushed })));
        self.at = 0;
    }

    pub(super) fn flush(&mut self, done: &mut VecDeque<Completion>) {
        done.extend(self.queue.drain(..).map(|pending| pending.ended(Status::Flushed)));
        (self.at, self.next, self.unanswered) = (0, self.end, self.end);
        (self.deadline_ns, self.hold_until_ns) = (None, None);
    }
}
