//! Messages on their way into memory: each takes it from a budget before it takes it.
use crate::budget::{Budget, Charge, SMALL_BYTES, decoded_bytes, overclaims};
use crate::codec;
use crate::refusal::Refusal;
use crate::refused::{End, refuse};
use crate::stream::Stream;
use std::time::{Duration, Instant};

/// How long a peer may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerLimits {
    /// For TLS and hello together.
    pub handshake: Duration,
    /// From the first byte of a message to its last.
    pub message: Duration,
    /// Between messages.
    pub idle: Duration,
}

impl Default for ServerLimits {
    /// 5 s; 10 s, which is 17 MB at 2 MB/s; 10 s, which is five heartbeats.
    fn default() -> ServerLimits {
        let seconds = Duration::from_secs;
        ServerLimits { handshake: seconds(5), message: seconds(10), idle: seconds(10) }
    }
}

/// Longest that a frame waits for memory to be received or decoded in; then it is sent again. An agent waits for an
/// answer as long as three heartbeats.
const MEMORY_PATIENCE: Duration = Duration::from_secs(5);

/// Reads the body of a message. A large one takes memory for what has arrived, not for what was announced.
pub(super) fn read_body<'a>(
    stream: &mut Stream,
    memory: &'a Budget,
    length: usize,
    deadline: Instant,
) -> Result<(Vec<u8>, Option<Charge<'a>>), End> {
    let mut body = vec![0u8; length.min(SMALL_BYTES)];
    stream.read_exact_by(&mut body, deadline)?;
    let mut charged: Option<Charge<'_>> = None;
    while body.len() < length {
        let arrived = body.len();
        let more = arrived.min(length - arrived);
        let by = deadline.min(Instant::now() + MEMORY_PATIENCE);
        let Some(charge) = memory.take(more as u64, by) else {
            return refuse(Refusal::Busy, "too many large frames arrive at once; it is sent again");
        };
        match &mut charged {
            Some(charged) => charged.join(charge),
            none => *none = Some(charge),
        }
        body.reserve_exact(more);
        body.resize(arrived + more, 0);
        stream.read_exact_by(&mut body[arrived..], deadline)?;
    }
    Ok((body, charged))
}

/// Takes memory for what a frame opens to, before it is opened. One that claims more than a peer's share is malformed.
pub(super) fn charge<'a>(memory: &'a Budget, frame: &[u8]) -> Result<Option<Charge<'a>>, End> {
    // What has no sound head is not opened, and rejected where that is told.
    let Ok(head) = codec::header(frame) else { return Ok(None) };
    if let Some(text) = overclaims(&head) {
        return refuse(Refusal::Malformed, text);
    }
    match memory.take(decoded_bytes(&head), Instant::now() + MEMORY_PATIENCE) {
        Some(charge) => Ok(Some(charge)),
        None => refuse(Refusal::Busy, "too many frames are opened at once; it is sent again"),
    }
}
