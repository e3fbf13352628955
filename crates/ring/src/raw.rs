//! Ring records: what fits the 15 payload words of a slot, in ticks and words.
use crate::layout::{PAYLOAD_WORDS, RECORD_NAME_BYTES, WORD_BYTES, op};
use crate::narrow::{low, low16};
use mycroft_record::{
    Algorithm, ChannelId, CommId, CommRank, Datatype, Direction, FlowCounters, FlowKey, OpClass, OpId, OpKind, OpSeq,
    Protocol,
};

/// The payload of one slot.
pub type Payload = [u64; PAYLOAD_WORDS];

/// Record tags, the lowest byte of the first payload word. 0 is no record.
pub mod tag {
    /// `RawOpDone`.
    pub const OP_DONE: u8 = 1;
    /// `RawFlowDone`.
    pub const FLOW_DONE: u8 = 2;
    /// `RawCommBegin`.
    pub const COMM_BEGIN: u8 = 3;
    /// `RawCommEnd`.
    pub const COMM_END: u8 = 4;
    /// `RawStepMark`.
    pub const STEP_MARK: u8 = 5;
}

/// One ring record. Times are ticks of the segment's clock, 0 means not yet or unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RawRecord {
    /// An operation completed.
    OpDone(RawOpDone),
    /// A flow completed.
    FlowDone(RawFlowDone),
    /// A communicator was made.
    CommBegin(RawCommBegin),
    /// A communicator was finalized.
    CommEnd(RawCommEnd),
    /// The training loop passed a mark.
    StepMark(RawStepMark),
}

/// What an operation is, in ticks (`record::OpMeta`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawOpMeta {
    /// Which operation.
    pub id: OpId,
    /// What it does.
    pub kind: OpKind,
    /// NCCL's own sequence number, 0 for point-to-point.
    pub nccl_seq: u64,
    /// This process's rank in the communicator.
    pub comm_rank: CommRank,
    /// Elements.
    pub count: u64,
    /// Element type.
    pub datatype: Datatype,
    /// Root of rooted collectives, `u32::MAX` otherwise.
    pub root: u32,
    /// Algorithm.
    pub algorithm: Algorithm,
    /// Protocol.
    pub protocol: Protocol,
    /// Channels, 0 if not told.
    pub n_channels: u8,
    /// When the host enqueued it.
    pub enqueued_ticks: u64,
    /// When the first kernel started.
    pub started_ticks: u64,
    /// When the latest kernel started.
    pub started_last_ticks: u64,
}

/// A completed operation (`record::OpDone`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawOpDone {
    /// The operation.
    pub op: RawOpMeta,
    /// When the first channel finished.
    pub ended_first_ticks: u64,
    /// When all of it had finished.
    pub ended_ticks: u64,
    /// Flows it had.
    pub flows: u16,
    /// False: completion could not be observed.
    pub observed: bool,
}

/// A completed flow (`record::FlowDone`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawFlowDone {
    /// Which flow.
    pub flow: FlowKey,
    /// Chunk counters at the end.
    pub counters: FlowCounters,
    /// Bytes moved.
    pub bytes: u64,
    /// Proxy operation appended.
    pub started_ticks: u64,
    /// First step became ready.
    pub first_ready_ticks: u64,
    /// Any counter last moved.
    pub last_progress_ticks: u64,
    /// When it ended.
    pub ended_ticks: u64,
    /// Microseconds spent in each stage, summed over steps, saturating at 71 minutes.
    pub stage_us: [u32; 3],
    /// Longest microseconds one step spent in each stage.
    pub stage_max_us: [u32; 3],
    /// Polls that found the peer without credit.
    pub peer_wait_polls: u32,
    /// Process served when not our own (PXN), else 0.
    pub proxied_for_pid: u32,
}

/// A communicator was made (`record::CommInit`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawCommBegin {
    /// When.
    pub at_ticks: u64,
    /// The communicator.
    pub comm: CommId,
    /// Ranks in it.
    pub n_ranks: u32,
    /// Hosts in it, 0 if not told.
    pub n_nodes: u32,
    /// This process's rank in it.
    pub comm_rank: CommRank,
    /// Name the framework gave, cut at `RECORD_NAME_BYTES`.
    pub name: Text<RECORD_NAME_BYTES>,
}

/// A communicator was finalized (`record::CommEnd`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawCommEnd {
    /// When.
    pub at_ticks: u64,
    /// The communicator.
    pub comm: CommId,
}

/// The training loop passed a mark (`record::StepMark`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RawStepMark {
    /// When.
    pub at_ticks: u64,
    /// Iteration number.
    pub step: u64,
}

/// Text of at most `N` bytes, kept in place; longer text is cut at a character.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize> {
    len: usize,
    bytes: [u8; N],
}

impl<const N: usize> Text<N> {
    /// The first `N` bytes of `text`, less a character that would be cut in two.
    pub fn new(text: &str) -> Text<N> {
        let mut len = text.len().min(N);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        let mut bytes = [0; N];
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Text { len, bytes }
    }

    /// The text; bytes that are not UTF-8 (a hostile segment) end it.
    pub fn as_str(&self) -> &str {
        let bytes = &self.bytes[..self.len];
        match std::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or(""),
        }
    }

    /// Bytes of the text.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn word(&self, i: usize) -> u64 {
        let mut word = [0u8; WORD_BYTES];
        word.copy_from_slice(&self.bytes[i * WORD_BYTES..(i + 1) * WORD_BYTES]);
        u64::from_ne_bytes(word)
    }

    /// From a length (clamped) and the words that hold the bytes.
    pub(crate) fn from_words(len: u64, words: &[u64]) -> Text<N> {
        let mut bytes = [0u8; N];
        for (to, from) in bytes.chunks_exact_mut(WORD_BYTES).zip(words) {
            to.copy_from_slice(&from.to_ne_bytes());
        }
        Text { len: usize::try_from(len).map_or(N, |len| len.min(N)), bytes }
    }
}

impl<const N: usize> std::fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.as_str().fmt(f)
    }
}

/// Four bytes in the low half, from the low end, and a u32 in the high half.
#[inline]
pub(crate) fn pack(bytes: [u8; 4], high: u32) -> u64 {
    u64::from(u32::from_le_bytes(bytes)) | u64::from(high) << 32
}
#[inline]
pub(crate) fn halves(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}
#[inline]
pub(crate) fn high(word: u64) -> u32 {
    low(word >> 32)
}
#[inline]
pub(crate) fn byte(word: u64, i: usize) -> u8 {
    word.to_le_bytes()[i]
}

impl RawOpMeta {
    /// Into the first ten words of an operation cell or record.
    #[inline]
    pub(crate) fn encode(&self) -> [u64; op::ENDED_FIRST] {
        [
            pack([tag::OP_DONE, self.id.class.code(), self.kind.code(), self.datatype.code()], self.id.peer.0),
            self.id.comm.0,
            self.id.seq.0,
            self.nccl_seq,
            halves(self.comm_rank.0, self.root),
            self.count,
            pack([self.algorithm.code(), self.protocol.code(), self.n_channels, 0], 0),
            self.enqueued_ticks,
            self.started_ticks,
            self.started_last_ticks,
        ]
    }

    /// From the first ten words.
    pub(crate) fn decode(w: &[u64]) -> RawOpMeta {
        RawOpMeta {
            id: op_id(w),
            kind: OpKind::from_code(byte(w[op::TAG], 2)),
            nccl_seq: w[op::NCCL_SEQ],
            comm_rank: CommRank(low(w[op::RANK_ROOT])),
            count: w[op::COUNT],
            datatype: Datatype::from_code(byte(w[op::TAG], 3)),
            root: high(w[op::RANK_ROOT]),
            algorithm: Algorithm::from_code(byte(w[op::SHAPE], 0)),
            protocol: Protocol::from_code(byte(w[op::SHAPE], 1)),
            n_channels: byte(w[op::SHAPE], 2),
            enqueued_ticks: w[op::ENQUEUED],
            started_ticks: w[op::STARTED],
            started_last_ticks: w[op::STARTED_LAST],
        }
    }
}

/// The operation id in the first three words of an operation or flow cell or record.
pub(crate) fn op_id(w: &[u64]) -> OpId {
    OpId {
        comm: CommId(w[op::COMM]),
        class: OpClass::from_code(byte(w[op::TAG], 1)),
        peer: CommRank(high(w[op::TAG])),
        seq: OpSeq(w[op::SEQ]),
    }
}

/// The flow key in the first four words of a flow cell or record.
pub(crate) fn flow_key(w: &[u64]) -> FlowKey {
    FlowKey {
        op: op_id(w),
        channel: ChannelId(byte(w[0], 3)),
        peer: CommRank(low(w[3])),
        direction: Direction::from_code(byte(w[0], 2)),
    }
}

/// The first four words of a flow cell or record.
#[inline]
pub(crate) fn flow_words(flow: &FlowKey, total_chunks: u32) -> [u64; 4] {
    [
        pack([tag::FLOW_DONE, flow.op.class.code(), flow.direction.code(), flow.channel.0], flow.op.peer.0),
        flow.op.comm.0,
        flow.op.seq.0,
        halves(flow.peer.0, total_chunks),
    ]
}

impl RawRecord {
    /// Into payload words.
    #[inline]
    pub fn encode(&self) -> Payload {
        let mut w = [0; PAYLOAD_WORDS];
        match self {
            RawRecord::OpDone(r) => {
                w[..op::ENDED_FIRST].copy_from_slice(&r.op.encode());
                w[op::SHAPE] |= u64::from(r.observed) << 24 | u64::from(r.flows) << 32;
                w[op::ENDED_FIRST] = r.ended_first_ticks;
                w[op::ENDED_LAST] = r.ended_ticks;
            }
            RawRecord::FlowDone(r) => r.encode(&mut w),
            RawRecord::CommBegin(r) => {
                w[0] = pack([tag::COMM_BEGIN, byte(r.name.len() as u64, 0), 0, 0], r.comm_rank.0);
                w[1] = r.comm.0;
                w[2] = r.at_ticks;
                w[3] = halves(r.n_ranks, r.n_nodes);
                for (i, word) in w[4..].iter_mut().enumerate() {
                    *word = r.name.word(i);
                }
            }
            RawRecord::CommEnd(r) => {
                w[0] = u64::from(tag::COMM_END);
                w[1] = r.comm.0;
                w[2] = r.at_ticks;
            }
            RawRecord::StepMark(r) => {
                w[0] = u64::from(tag::STEP_MARK);
                w[1] = r.step;
                w[2] = r.at_ticks;
            }
        }
        w
    }

    /// From payload words; `None` for a tag this version does not know (a damaged slot). Never fails otherwise: every
    /// bit pattern of the fields is some value.
    pub fn decode(w: &Payload) -> Option<RawRecord> {
        Some(match byte(w[0], 0) {
            tag::OP_DONE => RawRecord::OpDone(RawOpDone {
                op: RawOpMeta::decode(w),
                ended_first_ticks: w[op::ENDED_FIRST],
                ended_ticks: w[op::ENDED_LAST],
                flows: low16(w[op::SHAPE] >> 32),
                observed: byte(w[op::SHAPE], 3) != 0,
            }),
            tag::FLOW_DONE => RawRecord::FlowDone(RawFlowDone::decode(w)),
            tag::COMM_BEGIN => RawRecord::CommBegin(RawCommBegin {
                at_ticks: w[2],
                comm: CommId(w[1]),
                n_ranks: low(w[3]),
                n_nodes: high(w[3]),
                comm_rank: CommRank(high(w[0])),
                name: Text::from_words(u64::from(byte(w[0], 1)), &w[4..]),
            }),
            tag::COMM_END => RawRecord::CommEnd(RawCommEnd { at_ticks: w[2], comm: CommId(w[1]) }),
            tag::STEP_MARK => RawRecord::StepMark(RawStepMark { at_ticks: w[2], step: w[1] }),
            _ => return None,
        })
    }
}

impl RawFlowDone {
    #[inline]
    fn encode(&self, w: &mut Payload) {
        w[..4].copy_from_slice(&flow_words(&self.flow, self.counters.total_chunks));
        w[4] = halves(self.counters.posted, self.counters.ready);
        w[5] = halves(self.counters.transmitted, self.counters.done);
        w[6] = self.bytes;
        w[7] = self.started_ticks;
        w[8] = self.first_ready_ticks;
        w[9] = self.last_progress_ticks;
        w[10] = self.ended_ticks;
        w[11] = halves(self.stage_us[0], self.stage_us[1]);
        w[12] = halves(self.stage_us[2], self.stage_max_us[0]);
        w[13] = halves(self.stage_max_us[1], self.stage_max_us[2]);
        w[14] = halves(self.peer_wait_polls, self.proxied_for_pid);
    }

    fn decode(w: &Payload) -> RawFlowDone {
        RawFlowDone {
            flow: flow_key(w),
            counters: FlowCounters {
                total_chunks: high(w[3]),
                posted: low(w[4]),
                ready: high(w[4]),
                transmitted: low(w[5]),
                done: high(w[5]),
            },
            bytes: w[6],
            started_ticks: w[7],
            first_ready_ticks: w[8],
            last_progress_ticks: w[9],
            ended_ticks: w[10],
            stage_us: [low(w[11]), high(w[11]), low(w[12])],
            stage_max_us: [high(w[12]), low(w[13]), high(w[13])],
            peer_wait_polls: low(w[14]),
            proxied_for_pid: high(w[14]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_at_a_character_and_hostile_bytes_end_it() {
        assert_eq!(Text::<8>::new("TP_0").as_str(), "TP_0");
        assert_eq!(Text::<8>::new("abcdefg\u{e9}").as_str(), "abcdefg", "two bytes do not fit in one");
        let words = [u64::from_ne_bytes(*b"ab\xffdefgh")];
        assert_eq!(Text::<8>::from_words(8, &words).as_str(), "ab");
        assert_eq!(Text::<8>::from_words(u64::MAX, &words).len(), 8);
        assert_eq!(Text::<8>::from_words(8, &[]).as_str(), "\0\0\0\0\0\0\0\0");
    }
}
