//! What a coordinator says to the agents whose ranks it holds at their gates, and what they answer. The wire carries it: whoever
//! speaks knows the bytes (`docs/formats/hold.md`).
use crate::bytes::Reader;
use std::time::Duration;

/// The protocol version from which an agent takes requests of a coordinator.
pub const VERSION_GATE: u16 = 4;
/// Bytes of one request or answer: 200 ranks of 80 lanes, 32 bytes each.
pub const GATE_BYTES_MAX: usize = 512 * 1024;
/// How soon an order reaches an agent while a coordinator holds its ranks: they stand still meanwhile.
pub(super) const GATE_LATENCY: Duration = Duration::from_millis(2);
/// With its numbers.
pub(super) const MAX_GATE_BYTES: usize = GATE_BYTES_MAX + 12;

/// Takes what agents answer, with the number of the connection.
pub(super) type GateHandler = dyn Fn(u64, GateSaid) + Send + Sync;

/// A request to one agent, or its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GateSaid {
    /// Number of the session, the coordinator's own.
    pub session: u64,
    /// Number of the exchange in it; an answer has that of its request.
    pub number: u32,
    /// At most [`GATE_BYTES_MAX`].
    pub bytes: Vec<u8>,
}

pub(super) fn put(out: &mut Vec<u8>, said: &GateSaid) {
    out.extend_from_slice(&said.session.to_le_bytes());
    out.extend_from_slice(&said.number.to_le_bytes());
    out.extend_from_slice(&said.bytes);
}

/// `None`: it ends too early.
pub(super) fn read(r: &mut Reader<'_>) -> Option<GateSaid> {
    Some(GateSaid { session: r.u64()?, number: r.u32()?, bytes: r.rest().to_vec() })
}
