//! The bytes of the protocol: hello, answer and messages, as `docs/formats/wire.md` maps them.
use crate::bytes::Reader;
use crate::capture::{self, CaptureOrder, Captured};
use crate::clock::Times;
use crate::gate::{self, GateSaid};
use crate::narrow::{low_u16, low_u32};
use crate::refusal::Refusal;
use crate::spooled::Spooled;

/// First bytes of both directions.
pub(super) const MAGIC: [u8; 4] = *b"MYCW";
/// The oldest protocol version this program speaks.
pub const VERSION_LOWEST: u16 = 1;
/// The newest protocol version this program speaks.
pub const VERSION_HIGHEST: u16 = 4;
/// Magic 4, lowest 2, highest 2, body length 4; the same in every version.
pub(super) const HELLO_HEAD_BYTES: usize = 12;
/// Magic 4, version 2, body length 4; the same in every version.
pub(super) const ANSWER_HEAD_BYTES: usize = 10;
/// Three texts of at most 1 KiB and two numbers, with room for fields of newer versions.
pub(super) const MAX_HELLO_BODY_BYTES: usize = 8 * 1024;
/// Longest text in a hello; longer ones are cut by the sender.
pub(super) const MAX_HELLO_TEXT_BYTES: usize = 1024;
/// Control messages are a few numbers and one reason text.
pub(super) const MAX_CONTROL_BYTES: usize = 8 * 1024;
/// Type 1, body length 4, checksum 4.
pub(super) const MESSAGE_HEAD_BYTES: usize = 9;

/// What an agent says first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) lowest: u16,
    pub(super) highest: u16,
    pub(super) agent: u64,
    pub(super) token: String,
    pub(super) host: String,
    pub(super) software: String,
    /// Which machine it runs on; 0 if it does not say.
    pub(super) machine: u64,
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MAX_HELLO_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // At most 1024, so it fits 16 bits.
    out.extend_from_slice(&low_u16(end as u64).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..end]);
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = self.agent.to_le_bytes().to_vec();
        for text in [&self.token, &self.host, &self.software] {
            put_text(&mut body, text);
        }
        body.extend_from_slice(&self.machine.to_le_bytes());
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.lowest.to_le_bytes());
        out.extend_from_slice(&self.highest.to_le_bytes());
        out.extend_from_slice(&low_u32(body.len() as u64).to_le_bytes());
        out.append(&mut body);
        out
    }

    /// Versions and body length of a hello's head; the caller has checked the magic.
    pub(super) fn head(head: &[u8; HELLO_HEAD_BYTES]) -> (u16, u16, usize) {
        let [_, _, _, _, l0, l1, h0, h1, s0, s1, s2, s3] = *head;
        (u16::from_le_bytes([l0, l1]), u16::from_le_bytes([h0, h1]), u32::from_le_bytes([s0, s1, s2, s3]) as usize)
    }

    /// Bytes after the known fields are a newer version's.
    pub(super) fn body(lowest: u16, highest: u16, body: &[u8]) -> Option<Hello> {
        let mut r = Reader::new(body);
        Some(Hello {
            lowest,
            highest,
            agent: r.u64()?,
            token: r.text16()?.to_owned(),
            host: r.text16()?.to_owned(),
            software: r.text16()?.to_owned(),
            // Agents of before say nothing of it.
            machine: r.u64().unwrap_or(0),
        })
    }
}

/// What a server admits an agent with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Welcome {
    pub(super) credit_frames: u32,
    pub(super) credit_bytes: u64,
    pub(super) max_frame_bytes: u32,
    pub(super) heartbeat_ms: u32,
    /// Highest sequence the server has handled of this agent, 0 if none.
    pub(super) last_sequence: u64,
}

/// A server's first words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Answer {
    Welcome(Welcome),
    Refused { code: Refusal, text: String },
}

impl Answer {
    /// `chosen` is the version that both speak.
    pub(super) fn encode(&self, chosen: u16) -> Vec<u8> {
        let mut body = Vec::new();
        let version = match self {
            Answer::Welcome(w) => {
                body.extend_from_slice(&w.credit_frames.to_le_bytes());
                body.extend_from_slice(&w.credit_bytes.to_le_bytes());
                body.extend_from_slice(&w.max_frame_bytes.to_le_bytes());
                body.extend_from_slice(&w.heartbeat_ms.to_le_bytes());
                body.extend_from_slice(&w.last_sequence.to_le_bytes());
                chosen
            }
            Answer::Refused { code, text } => {
                body.extend_from_slice(&code.code().to_le_bytes());
                put_text(&mut body, text);
                0
            }
        };
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&version.to_le_bytes());
        out.extend_from_slice(&low_u32(body.len() as u64).to_le_bytes());
        out.append(&mut body);
        out
    }

    pub(super) fn head(head: &[u8; ANSWER_HEAD_BYTES]) -> (u16, usize) {
        let [_, _, _, _, v0, v1, s0, s1, s2, s3] = *head;
        (u16::from_le_bytes([v0, v1]), u32::from_le_bytes([s0, s1, s2, s3]) as usize)
    }

    pub(super) fn body(version: u16, body: &[u8]) -> Option<Answer> {
        let mut r = Reader::new(body);
        if version == 0 {
            let code = Refusal::from_code(r.u16()?);
            return Some(Answer::Refused { code, text: r.text16()?.to_owned() });
        }
        Some(Answer::Welcome(Welcome {
            credit_frames: r.u32()?,
            credit_bytes: r.u64()?,
            max_frame_bytes: r.u32()?,
            heartbeat_ms: r.u32()?,
            last_sequence: r.u64()?,
        }))
    }
}

const BATCHES: u8 = 1;
const ACK: u8 = 2;
const REJECT: u8 = 3;
const HEARTBEAT: u8 = 4;
const HEARTBEAT_ACK: u8 = 5;
const GOODBYE: u8 = 6;
const ORDER: u8 = 7;
const CAPTURED: u8 = 8;
const TIMES: u8 = 9;
const GATE_REQUEST: u8 = 10;
const GATE_ANSWER: u8 = 11;

/// Everything after hello and answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// Agent: one codec frame.
    Batches { sequence: u64, frame: Vec<u8> },
    /// Server: everything up to `sequence` is handled; credit for one more frame of `bytes`.
    Ack { sequence: u64, bytes: u64 },
    /// Server: this frame will never be accepted; credit comes back all the same.
    Reject { sequence: u64, bytes: u64, text: String },
    /// Agent: are you there? And what it says of its spool, if it is not too old to.
    Heartbeat(u64, Option<Spooled>),
    /// Server: yes.
    HeartbeatAck(u64),
    /// Server: the connection ends, and why.
    Goodbye { code: Refusal, text: String },
    /// Server, from version 2: take stacks and dumps.
    Order(CaptureOrder),
    /// Agent, from version 2: what that brought.
    Captured(Captured),
    /// Both, from version 3, before each frame, heartbeat and answer: when it is sent, and when the other's came.
    Times(Times),
    /// Server, from version 4: what a coordinator of held ranks says.
    GateRequest(GateSaid),
    /// Agent, from version 4: the answer.
    GateAnswer(GateSaid),
    /// Of a type that only a newer peer knows.
    Unknown(u8),
}

/// The head of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct MessageHead {
    pub(super) kind: u8,
    pub(super) body_bytes: usize,
    checksum: u32,
}

impl MessageHead {
    pub(super) fn read(head: &[u8; MESSAGE_HEAD_BYTES]) -> MessageHead {
        let [kind, l0, l1, l2, l3, c0, c1, c2, c3] = *head;
        MessageHead {
            kind,
            body_bytes: u32::from_le_bytes([l0, l1, l2, l3]) as usize,
            checksum: u32::from_le_bytes([c0, c1, c2, c3]),
        }
    }

    /// Largest body that an agent may send of this type.
    pub(super) fn max_body_bytes(&self) -> usize {
        match self.kind {
            BATCHES => crate::codec::MAX_FRAME_BYTES + 8,
            CAPTURED => capture::MAX_CAPTURED_BYTES,
            GATE_ANSWER => gate::MAX_GATE_BYTES,
            _ => MAX_CONTROL_BYTES,
        }
    }

    /// Largest body that a server may send of this type.
    pub(super) fn max_bytes_of_server(&self) -> usize {
        if self.kind == GATE_REQUEST { gate::MAX_GATE_BYTES } else { MAX_CONTROL_BYTES }
    }
}

fn checksum(kind: u8, length: u32, parts: [&[u8]; 2]) -> u32 {
    let mut head = [kind, 0, 0, 0, 0];
    head[1..].copy_from_slice(&length.to_le_bytes());
    parts.into_iter().fold(crc32c::crc32c(&head), crc32c::crc32c_append)
}

fn frame_message(kind: u8, front: &[u8], rest: &[u8]) -> Vec<u8> {
    // Bodies are below MAX_FRAME_BYTES + 8, far below 2^32.
    let length = low_u32((front.len() + rest.len()) as u64);
    let mut out = Vec::with_capacity(MESSAGE_HEAD_BYTES + length as usize);
    out.push(kind);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&checksum(kind, length, [front, rest]).to_le_bytes());
    out.extend_from_slice(front);
    out.extend_from_slice(rest);
    out
}

/// A batches message around a borrowed frame.
pub(super) fn batches_message(sequence: u64, frame: &[u8]) -> Vec<u8> {
    frame_message(BATCHES, &sequence.to_le_bytes(), frame)
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kind = match self {
            Message::Batches { sequence, frame } => return batches_message(*sequence, frame),
            Message::Ack { sequence, bytes } => {
                body.extend_from_slice(&sequence.to_le_bytes());
                body.extend_from_slice(&bytes.to_le_bytes());
                ACK
            }
            Message::Reject { sequence, bytes, text } => {
                body.extend_from_slice(&sequence.to_le_bytes());
                body.extend_from_slice(&bytes.to_le_bytes());
                put_text(&mut body, text);
                REJECT
            }
            Message::Heartbeat(nonce, spooled) => {
                body.extend_from_slice(&nonce.to_le_bytes());
                spooled.iter().for_each(|spooled| spooled.put(&mut body));
                HEARTBEAT
            }
            Message::HeartbeatAck(nonce) => {
                body.extend_from_slice(&nonce.to_le_bytes());
                HEARTBEAT_ACK
            }
            Message::Goodbye { code, text } => {
                body.extend_from_slice(&code.code().to_le_bytes());
                put_text(&mut body, text);
                GOODBYE
            }
            Message::Order(order) => {
                capture::put_order(&mut body, order);
                ORDER
            }
            Message::Captured(captured) => {
                capture::put_captured(&mut body, captured);
                CAPTURED
            }
            Message::Times(times) => {
                body.extend(times.bytes());
                TIMES
            }
            Message::GateRequest(said) => {
                gate::put(&mut body, said);
                GATE_REQUEST
            }
            Message::GateAnswer(said) => {
                gate::put(&mut body, said);
                GATE_ANSWER
            }
            Message::Unknown(kind) => *kind,
        };
        frame_message(kind, &body, &[])
    }

    /// `Err` says what is wrong with the message.
    pub(super) fn decode(head: MessageHead, mut body: Vec<u8>) -> Result<Message, &'static str> {
        if checksum(head.kind, low_u32(head.body_bytes as u64), [&body, &[]]) != head.checksum {
            return Err("checksum does not fit");
        }
        if head.kind == BATCHES {
            let Some(sequence) = Reader::new(&body).u64() else { return Err("batches without a sequence") };
            body.drain(..8);
            return Ok(Message::Batches { sequence, frame: body });
        }
        Message::control(head.kind, &mut Reader::new(&body)).ok_or("message ends too early")
    }

    fn control(kind: u8, r: &mut Reader<'_>) -> Option<Message> {
        Some(match kind {
            ACK => Message::Ack { sequence: r.u64()?, bytes: r.u64()? },
            REJECT => Message::Reject { sequence: r.u64()?, bytes: r.u64()?, text: r.text16()?.to_owned() },
            HEARTBEAT => Message::Heartbeat(r.u64()?, Spooled::read(r)),
            HEARTBEAT_ACK => Message::HeartbeatAck(r.u64()?),
            GOODBYE => {
                let code = Refusal::from_code(r.u16()?);
                Message::Goodbye { code, text: r.text16()?.to_owned() }
            }
            TIMES => Message::Times(Times::read(|| r.u64())?),
            ORDER => Message::Order(capture::order(r)?),
            CAPTURED => capture::captured(r)?.map_or(Message::Unknown(kind), Message::Captured),
            GATE_REQUEST => Message::GateRequest(gate::read(r)?),
            GATE_ANSWER => Message::GateAnswer(gate::read(r)?),
            other => Message::Unknown(other),
        })
    }
}
