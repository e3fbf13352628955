//! The agent's end: keeps what was not acknowledged, resends it after a reconnect, respects the server's credit.
mod answers;
mod kept;

use crate::capture::CaptureOrder;
use crate::clock::{Stamps, VERSION_TIMES};
use crate::codec;
use crate::dial::{Tls, dial, handshake_error, random_id, this_machine};
use crate::gate::GateSaid;
use crate::proto::{self, Answer, Hello, Message, MessageHead};
use crate::refusal::Refusal;
use crate::spooled::Spooled;
use crate::stream::Stream;
use crate::{ClientConfig, Endpoint, WireError};
use mycroft_record::text::printable;
use mycroft_record::{Batch, HostTime};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Rejected frames kept for the one who asks: as many as a server gives credit for at once.
const REJECTED_KEPT: usize = 64;
/// Orders kept for the one who asks; a server sends one at a time.
const ORDERS_KEPT: usize = 16;
/// Reads of 64 KiB that one call makes at most: a server answers 64 frames with 64 messages of 25 bytes.
const READS_MAX: usize = 16;
/// Messages that a server may send unasked on a connection: orders, each a few an hour, and what newer versions say.
const UNASKED_MAX: u64 = 4096;
/// Messages of a server that each of ours allows: its answer, and what newer versions say besides.
const ANSWERS_MAX: u64 = 4;
/// Bytes that are held without an acknowledgement, for a server that gives credit all the same because its disk is full:
/// an hour of a host of 8 ranks (15 KB/s), and more than the credit for two of the largest frames. Then the server counts
/// as busy.
const HELD_BYTES_MAX: u64 = 64 << 20;
/// Heartbeats that may stay without any answer.
const SILENT_HEARTBEATS: u32 = 3;
/// Times are exchanged by a heartbeat that is waited for at least so often: in the meantime two clocks part by a millisecond
/// at most. Answers to frames are read when the next is sent, which is too late to tell when they came.
const EXCHANGE_EVERY: Duration = Duration::from_secs(1);
/// Longest wait for the answer: ten times what a network inside a building takes.
const EXCHANGE_WAIT: Duration = Duration::from_millis(20);

/// What a client has done so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientStats {
    /// Frames taken by `send` and its kin.
    pub taken: u64,
    /// Frames the server has acknowledged.
    pub acknowledged: u64,
    /// Frames the server will never accept, dropped.
    pub rejected: u64,
    /// Frames sent again after a reconnect.
    pub resent: u64,
    /// Frames waiting for their acknowledgement.
    pub unacknowledged: usize,
    /// Their bytes.
    pub unacknowledged_bytes: u64,
}

struct Pending {
    sequence: u64,
    frame: Vec<u8>,
    /// Written on the present connection.
    written: bool,
}

struct Connection {
    stream: Stream,
    received: Vec<u8>,
    credit_frames: u64,
    credit_bytes: u64,
    max_frame_bytes: usize,
    heartbeat: Duration,
    last_written: Instant,
    last_heard: Instant,
    /// Messages that the server may still send.
    allowed: u64,
    /// The times to send, where the server exchanges them.
    stamps: Option<Stamps>,
    exchanged_at: Instant,
    /// What the server was told of the spool on this connection, and when.
    told_spooled: Option<Spooled>,
    told_at: Instant,
}

impl Connection {
    /// Notes that a message of ours goes out.
    fn writes(&mut self, now: Instant) {
        self.last_written = now;
        self.allowed = self.allowed.saturating_add(ANSWERS_MAX);
    }

    /// What goes before a frame or heartbeat, where the server exchanges times.
    fn times(&self, now: HostTime) -> Vec<u8> {
        self.stamps.map_or_else(Vec::new, |stamps| Message::Times(stamps.stamp(now)).encode())
    }
}

/// An agent's connection.
pub struct Client {
    endpoint: Endpoint,
    config: ClientConfig,
    tls: Option<Tls>,
    agent: u64,
    next_sequence: u64,
    pending: VecDeque<Pending>,
    /// Bytes of their frames.
    pending_bytes: u64,
    connection: Option<Connection>,
    ended: String,
    last_reject: Option<String>,
    /// Rejected frames, oldest first.
    rejected: VecDeque<Vec<u8>>,
    /// Orders of the server, oldest first.
    orders: VecDeque<CaptureOrder>,
    /// What coordinators said, oldest first.
    gate_requests: VecDeque<GateSaid>,
    /// What is to be said of the spool.
    spooled: Option<Spooled>,
    /// No call waits beyond.
    until: Option<Instant>,
    stats: ClientStats,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl Client {
    /// Connects, says hello and waits for the server's welcome.
    ///
    /// # Errors
    /// `Io` when nobody answers, `Refused` with the server's reason, `NotMycroft` and `Tls` when something else does.
    pub fn connect(endpoint: &Endpoint, config: &ClientConfig) -> Result<Client, WireError> {
        let tls = config.tls.as_ref().map(|settings| Tls::of(endpoint, settings)).transpose()?;
        let mut client = Client {
            endpoint: endpoint.clone(),
            config: config.clone(),
            tls,
            agent: random_id(),
            next_sequence: 1,
            pending: VecDeque::new(),
            pending_bytes: 0,
            connection: None,
            ended: String::new(),
            last_reject: None,
            rejected: VecDeque::new(),
            orders: VecDeque::new(),
            gate_requests: VecDeque::new(),
            spooled: None,
            until: None,
            stats: ClientStats::default(),
        };
        client.reconnect()?;
        Ok(client)
    }

    /// Takes a batch: `Ok` means that the client owns it now and resends it after `reconnect` until the server has
    /// acknowledged it; `Err` means that nothing of it was sent and the caller still owns it.
    ///
    /// # Errors
    /// `NoCredit` when the server is busy, `Disconnected` when the connection has ended, `Encode` and `TooLarge` when
    /// the batch must be split.
    pub fn send(&mut self, batch: &Batch) -> Result<(), WireError> {
        self.send_all(std::slice::from_ref(batch))
    }

    /// As `send`, several batches in one frame (processes of one host compress better together).
    ///
    /// # Errors
    /// As `send`.
    pub fn send_all(&mut self, batches: &[Batch]) -> Result<(), WireError> {
        self.send_frame(&codec::encode(batches)?)
    }

    /// As `send`, for a frame that `codec::encode` made (from a spool).
    ///
    /// # Errors
    /// As `send`.
    pub fn send_frame(&mut self, frame: &[u8]) -> Result<(), WireError> {
        self.pump(Duration::ZERO)?;
        let max = self.live()?.max_frame_bytes;
        if frame.len() > max {
            return Err(WireError::TooLarge { endpoint: self.endpoint.to_string(), bytes: frame.len(), max });
        }
        self.wait_credit(frame.len())?;
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.stats.taken += 1;
        self.pending_bytes += frame.len() as u64;
        self.pending.push_back(Pending { sequence, frame: frame.to_vec(), written: false });
        // The frame is ours now: when writing fails it goes out after the next reconnect.
        let _ = self.write_pending();
        Ok(())
    }

    /// Reads acknowledgements and credits that are there, sends a heartbeat when due. Call at least once a second.
    ///
    /// # Errors
    /// `Disconnected` (or `Refused` with the server's last words) when the connection has ended.
    pub fn poll(&mut self) -> Result<(), WireError> {
        self.pump(Duration::ZERO)?;
        let is_idle = self.pending.is_empty();
        if is_idle && self.live()?.exchanged_at.elapsed() >= EXCHANGE_EVERY {
            self.exchange()?;
        }
        self.tell_spooled()?;
        self.heartbeat()
    }

    /// Exchanges times, if the server does: a heartbeat whose answer is waited for a moment.
    fn exchange(&mut self) -> Result<(), WireError> {
        let connection = self.live()?;
        connection.exchanged_at = Instant::now();
        if connection.stamps.is_none() {
            return Ok(());
        }
        self.write_heartbeat()?;
        self.pump(EXCHANGE_WAIT)
    }

    fn write_heartbeat(&mut self) -> Result<(), WireError> {
        let (deadline, now) = (self.end_of(self.config.write_timeout), self.config.clock.now());
        let heartbeat = Message::Heartbeat(0, self.spooled_now()).encode();
        let connection = self.live()?;
        let mut message = connection.times(now);
        message.extend_from_slice(&heartbeat);
        connection.writes(Instant::now());
        match connection.stream.write_all_by(&message, deadline) {
            Ok(()) => Ok(()),
            Err(e) => Err(self.end(e)),
        }
    }

    /// Waits until everything sent is acknowledged.
    ///
    /// # Errors
    /// `NotAcknowledged` after `timeout`; as `poll` when the connection ends.
    pub fn flush(&mut self, timeout: Duration) -> Result<(), WireError> {
        let deadline = Instant::now() + timeout;
        while !self.pending.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (endpoint, frames) = (self.endpoint.to_string(), self.pending.len());
                return Err(WireError::NotAcknowledged { endpoint, frames, waited: timeout });
            }
            self.pump(left.min(Duration::from_millis(100)))?;
            self.heartbeat()?;
        }
        Ok(())
    }

    /// From now on no call waits beyond `by`, whatever its own limit: for a last flush that must end in time.
    pub fn wait_until_at_most(&mut self, by: Instant) {
        self.until = Some(by);
    }

    /// The end of a wait that begins now.
    fn end_of(&self, limit: Duration) -> Instant {
        let end = Instant::now() + limit;
        self.until.map_or(end, |until| end.min(until))
    }

    /// Connects again and resends what was not acknowledged.
    ///
    /// # Errors
    /// As `connect`; what was not acknowledged stays with the client.
    pub fn reconnect(&mut self) -> Result<(), WireError> {
        self.connection = None;
        self.tls.iter_mut().for_each(Tls::read_again);
        let deadline = self.end_of(self.config.connect_timeout);
        let mut stream = dial(&self.endpoint, self.tls.as_ref(), deadline)?;
        let hello = Hello {
            lowest: proto::VERSION_LOWEST,
            highest: proto::VERSION_HIGHEST,
            agent: self.agent,
            token: self.config.token.clone().unwrap_or_default(),
            host: self.config.host.clone(),
            machine: self.config.machine.unwrap_or_else(this_machine),
            software: concat!("mycroft ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let sent = stream.write_all_by(&hello.encode(), deadline);
        let (version, welcome) = match (self.read_answer(&mut stream, deadline), sent) {
            // A server that refuses may close before it has read the hello; its reason matters more.
            (Ok((version, Answer::Welcome(welcome))), Ok(())) => (version, welcome),
            (Ok((_, Answer::Refused { code, text })), _) => {
                if code == Refusal::NumberTaken {
                    // The server knows nothing of ours under it, so nothing is lost with it.
                    self.agent = random_id();
                }
                return Err(self.refused(code, text));
            }
            (Err(e), _) => return Err(e),
            (_, Err(e)) => return Err(handshake_error(&self.endpoint, e)),
        };
        let now = Instant::now();
        self.connection = Some(Connection {
            stream,
            received: Vec::new(),
            credit_frames: u64::from(welcome.credit_frames),
            credit_bytes: welcome.credit_bytes,
            max_frame_bytes: welcome.max_frame_bytes as usize,
            heartbeat: Duration::from_millis(u64::from(welcome.heartbeat_ms.max(10))),
            last_written: now,
            last_heard: now,
            allowed: UNASKED_MAX,
            stamps: (version >= VERSION_TIMES).then(Stamps::default),
            exchanged_at: now,
            told_spooled: None,
            told_at: now,
        });
        self.acknowledge(welcome.last_sequence);
        for pending in &mut self.pending {
            pending.written = false;
        }
        self.stats.resent += self.pending.len() as u64;
        // Before the first frame, so that the server knows what its times are worth.
        self.exchange()?;
        self.write_pending()
    }

    fn read_answer(&self, stream: &mut Stream, deadline: Instant) -> Result<(u16, Answer), WireError> {
        let mut head = [0u8; proto::ANSWER_HEAD_BYTES];
        let (front, rest) = head.split_at_mut(4);
        stream.read_exact_by(front, deadline).map_err(|e| handshake_error(&self.endpoint, e))?;
        let found = [front[0], front[1], front[2], front[3]];
        if found != proto::MAGIC {
            let hint = match found {
                [0x15 | 0x16, 3, ..] => "the server speaks TLS, give this agent a CA certificate",
                [b'H', b'T', b'T', b'P'] => "that is a web server, use the port for agents",
                _ => "another program listens there",
            };
            return Err(WireError::NotMycroft { endpoint: self.endpoint.to_string(), found, hint });
        }
        stream.read_exact_by(rest, deadline).map_err(|e| handshake_error(&self.endpoint, e))?;
        let (version, length) = Answer::head(&head);
        let malformed = || {
            let source = std::io::Error::new(ErrorKind::InvalidData, "the server's answer is malformed");
            WireError::Io { operation: "connecting to", endpoint: self.endpoint.to_string(), source }
        };
        if length > proto::MAX_CONTROL_BYTES || version > proto::VERSION_HIGHEST {
            return Err(malformed());
        }
        let mut body = vec![0u8; length];
        stream.read_exact_by(&mut body, deadline).map_err(|e| handshake_error(&self.endpoint, e))?;
        Answer::body(version, &body).map(|answer| (version, answer)).ok_or_else(malformed)
    }

    fn refused(&self, code: Refusal, text: String) -> WireError {
        let text = printable(&text).into_owned();
        WireError::Refused { endpoint: self.endpoint.to_string(), code, text }
    }

    fn live(&mut self) -> Result<&mut Connection, WireError> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            None => Err(WireError::Disconnected { endpoint: self.endpoint.to_string(), why: self.ended.clone() }),
        }
    }

    fn end(&mut self, why: impl std::fmt::Display) -> WireError {
        self.connection = None;
        self.ended = why.to_string();
        WireError::Disconnected { endpoint: self.endpoint.to_string(), why: self.ended.clone() }
    }

    fn wait_credit(&mut self, bytes: usize) -> Result<(), WireError> {
        let waited = self.config.send_timeout;
        let deadline = self.end_of(waited);
        loop {
            let is_over = self.pending_bytes > HELD_BYTES_MAX;
            let connection = self.live()?;
            if !is_over && connection.credit_frames > 0 && connection.credit_bytes >= bytes as u64 {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(WireError::NoCredit { endpoint: self.endpoint.to_string(), waited });
            }
            self.pump(left.min(Duration::from_millis(100)))?;
            self.heartbeat()?;
        }
    }

    /// Writes what was not written on this connection, as far as the credit goes.
    fn write_pending(&mut self) -> Result<(), WireError> {
        let deadline = self.end_of(self.config.write_timeout);
        let Some(connection) = &mut self.connection else { return self.live().map(|_| ()) };
        let mut failure = None;
        for pending in self.pending.iter_mut().filter(|p| !p.written) {
            let bytes = pending.frame.len() as u64;
            if connection.credit_frames == 0 || connection.credit_bytes < bytes {
                break;
            }
            connection.credit_frames -= 1;
            connection.credit_bytes -= bytes;
            pending.written = true;
            let mut message = connection.times(self.config.clock.now());
            message.extend_from_slice(&proto::batches_message(pending.sequence, &pending.frame));
            connection.writes(Instant::now());
            if let Err(e) = connection.stream.write_all_by(&message, deadline) {
                failure = Some(e);
                break;
            }
        }
        match failure {
            Some(e) => Err(self.end(e)),
            None => Ok(()),
        }
    }

    fn heartbeat(&mut self) -> Result<(), WireError> {
        let now = Instant::now();
        let connection = self.live()?;
        let limit = connection.heartbeat * SILENT_HEARTBEATS;
        let unheard = now.duration_since(connection.last_heard);
        // Silence counts only while something of ours waits for an answer.
        if unheard > limit && connection.last_written > connection.last_heard {
            return Err(self.end(format!("the server has been silent for {} s", unheard.as_secs())));
        }
        if now.duration_since(connection.last_written).min(unheard) < connection.heartbeat {
            return Ok(());
        }
        self.write_heartbeat()
    }

    /// Reads what is there and acts on it. A server that sends without end holds it no longer than `READS_MAX` reads.
    fn pump(&mut self, wait: Duration) -> Result<(), WireError> {
        let mut wait = wait;
        for _ in 0..READS_MAX {
            let connection = self.live()?;
            match connection.stream.read_available(wait, &mut connection.received) {
                Ok(0) => break,
                Ok(_) => connection.last_heard = Instant::now(),
                Err(e) => {
                    // Last words may have come with the end.
                    self.messages()?;
                    return Err(self.end(e));
                }
            }
            self.messages()?;
            wait = Duration::ZERO;
        }
        self.write_pending()
    }

    /// Acts on every whole message that has arrived.
    fn messages(&mut self) -> Result<(), WireError> {
        let received = std::mem::take(&mut self.live()?.received);
        let mut rest = &received[..];
        while let Some((head, behind)) = rest.split_first_chunk::<{ proto::MESSAGE_HEAD_BYTES }>() {
            let head = MessageHead::read(head);
            if head.body_bytes > head.max_bytes_of_server() {
                return Err(self.end(format!("the server sent a message of {} bytes", head.body_bytes)));
            }
            let Some((body, next)) = behind.split_at_checked(head.body_bytes) else { break };
            rest = next;
            let connection = self.live()?;
            connection.allowed = connection.allowed.saturating_sub(1);
            if connection.allowed == 0 {
                return Err(self.end("the server sent thousands of messages that nothing had asked for"));
            }
            match Message::decode(head, body.to_vec()) {
                Ok(message) => self.act(message)?,
                Err(why) => return Err(self.end(format!("the server sent a bad message: {why}"))),
            }
        }
        let rest = rest.to_vec();
        self.live()?.received = rest;
        Ok(())
    }

    fn act(&mut self, message: Message) -> Result<(), WireError> {
        match message {
            Message::Ack { sequence, bytes } => {
                self.credit(bytes);
                self.acknowledge(sequence);
            }
            Message::Reject { sequence, bytes, text } => {
                self.credit(bytes);
                self.last_reject = Some(printable(&text).into_owned());
                if let Some(index) = self.pending.iter().position(|p| p.sequence == sequence)
                    && let Some(rejected) = self.pending.remove(index)
                {
                    self.pending_bytes -= rejected.frame.len() as u64;
                    self.stats.rejected += 1;
                    self.rejected.push_back(rejected.frame);
                    if self.rejected.len() > REJECTED_KEPT {
                        self.rejected.pop_front();
                    }
                }
            }
            Message::Goodbye { code, text } => {
                self.end(format!("{code}: {}", printable(&text)));
                return Err(self.refused(code, text));
            }
            Message::Order(order) => {
                self.orders.push_back(order);
                if self.orders.len() > ORDERS_KEPT {
                    self.orders.pop_front();
                }
            }
            Message::GateRequest(said) => {
                self.gate_requests.push_back(said);
                if self.gate_requests.len() > ORDERS_KEPT {
                    self.gate_requests.pop_front();
                }
            }
            Message::Times(times) => {
                let now = self.config.clock.now();
                if let Some(stamps) = self.connection.as_mut().and_then(|connection| connection.stamps.as_mut()) {
                    stamps.take(times, now);
                }
            }
            Message::HeartbeatAck(_)
            | Message::Heartbeat(..)
            | Message::Batches { .. }
            | Message::Captured(_)
            | Message::GateAnswer(_)
            | Message::Unknown(_) => {}
        }
        Ok(())
    }

    fn credit(&mut self, bytes: u64) {
        if let Some(connection) = &mut self.connection {
            connection.credit_frames = connection.credit_frames.saturating_add(1);
            connection.credit_bytes = connection.credit_bytes.saturating_add(bytes);
        }
    }

    fn acknowledge(&mut self, sequence: u64) {
        while let Some(first) = self.pending.pop_front_if(|p| p.sequence <= sequence) {
            self.pending_bytes -= first.frame.len() as u64;
            self.stats.acknowledged += 1;
        }
    }
}
