//! Point-to-point transfers: messages cut into slots, in order, on one connection. Elements are bytes here.

use super::Prim;

/// A piece of a message that travels on one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Address of the first byte.
    pub addr: usize,
    /// Bytes; an empty message still takes one step, so that both ends meet.
    pub bytes: usize,
    /// Bytes of a full step.
    pub chunk: usize,
}

/// All transfers of one direction on one connection in one kernel.
#[derive(Debug, Clone)]
pub struct P2p {
    /// Whether this rank sends.
    pub is_send: bool,
    /// In the order of the calls.
    pub pieces: Vec<Piece>,
}

/// Steps that `bytes` take in chunks of `chunk`.
pub fn steps(bytes: usize, chunk: usize) -> usize {
    bytes.div_ceil(chunk).max(1)
}

/// The part of a message of `bytes` that channel slot `index` of `parts` carries: offset and length.
pub fn part(bytes: usize, parts: usize, index: usize) -> (usize, usize) {
    let each = bytes.div_ceil(parts).next_multiple_of(16);
    let from = (each * index).min(bytes);
    (from, each.min(bytes - from))
}

impl P2p {
    /// Primitive `index`, or `None` past the end. Offsets are absolute addresses: the operands' buffers are 0.
    pub fn prim(&self, index: usize) -> Option<Prim> {
        let mut left = index;
        for piece in &self.pieces {
            let n = steps(piece.bytes, piece.chunk);
            if left >= n {
                left -= n;
                continue;
            }
            let at = left * piece.chunk;
            let count = (piece.bytes - at).min(piece.chunk);
            let addr = piece.addr + at;
            return Some(Prim {
                src: self.is_send.then_some(addr),
                dst: (!self.is_send).then_some(addr),
                recv: !self.is_send,
                send: self.is_send,
                post: false,
                count,
            });
        }
        None
    }
}
