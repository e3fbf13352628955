//! Where the gate's words are: the end of a segment's header page, which was zero before there was a gate. So layout
//! version 1 holds: an older reader does not look there, and a segment of an older writer says that it has no gate.

/// Words of the gate, as word offsets in the segment.
pub mod gate {
    /// Epoch (high half) and entries let through in it (low half); 0 while nobody asks.
    pub const GRANT: usize = 160;
    /// CLOCK_MONOTONIC nanoseconds at which every rank goes on by itself.
    pub const DEADLINE: usize = 161;
    /// CLOCK_MONOTONIC nanoseconds of the requester's latest sign of life.
    pub const PULSE: usize = 162;
    /// Nanoseconds after the latest sign of life at which every rank goes on by itself.
    pub const LEASE: usize = 163;
    /// The latest epoch ever asked for; never taken back, so that no two requests have the same.
    pub const EPOCH: usize = 164;
    // 165 and 166 are a task's, as is 172.
    /// 1 where a library with a gate counts this process's calls.
    pub const READY: usize = 168;
    /// Epoch (high half) and entries that came to the gate in it (low half).
    pub const ARRIVED: usize = 169;
    /// Epoch (high half) that this process left by itself, and why (low half).
    pub const LEFT: usize = 170;
    /// Calls that no lane counts: a communicator that was not seen to be made, or all lanes in use.
    pub const UNTRACKED: usize = 171;
    /// First of `LANE_COUNT` lanes.
    pub const LANES: usize = 176;
}

/// Words of a lane: operations of one communicator that all its members issue in one order, or one way of one pair.
pub mod gate_lane {
    /// The communicator, 0 while the lane is free; written last.
    pub const COMM: usize = 0;
    /// Low half: this process's rank in it; high half: ranks in it (collectives) or the other rank.
    pub const WHO: usize = 1;
    /// 1 collectives, 2 sends to the other rank, 3 receives from it.
    pub const KIND: usize = 2;
    /// Operations issued so far: the number of the next one.
    pub const COUNT: usize = 3;
}

/// Words of a task: what a rank that waits at the gate is asked to do.
pub mod task {
    /// Number of the task that stands, 0 for none; written last.
    pub const NUMBER: usize = 496;
    /// Low half: what to do; high half: the epoch for which it stands.
    pub const WHAT: usize = 497;
    /// Communicator of a pair.
    pub const COMM: usize = 498;
    /// Low half: rank of the other in it; high half: 0 where the pair meets in this segment, 1 where in the other's, 2 over a
    /// connection that this rank accepts, 3 over one that it opens.
    pub const PEER: usize = 499;
    /// Where the pair meets, for the one that does not keep the place: requester's process (low half) and its descriptor of
    /// the keeper's segment (high half), or the port to connect to.
    pub const PLACE: usize = 500;
    /// First of two words of the address at which a connection is accepted: IPv6, the first eight bytes in the first one.
    pub const ADDRESS: usize = 165;
    /// Number that whoever connects says first.
    pub const NONCE: usize = 503;
    /// Number of the task that accepts a connection (high half), and at which port (low half); the rank's.
    pub const PORT: usize = 172;
    /// Bytes of a pair's large message.
    pub const BYTES: usize = 501;
    /// Nanoseconds that one waits for the other at the meeting place.
    pub const PATIENCE: usize = 502;
    /// Number of the latest task that ended (high half), and how (low half); written after the values.
    pub const ENDED: usize = 504;
    /// First of four values: shortest (low half) and middle time (high half), nanoseconds.
    pub const VALUES: usize = 505;
    /// Number of the task that a thread of the rank took.
    pub const TAKEN: usize = 509;
    /// Number of the pair's task (high half), and which round it met for and who is there (low half).
    pub const MEETING: usize = 510;
    /// 1 where the library runs tasks.
    pub const ABLE: usize = 511;
}

/// Values of a task.
pub const TASK_VALUES: usize = 4;
/// Words of one lane.
pub const LANE_WORDS: usize = 4;
/// Lanes of a process: with 16 communicators, 32 peers in both directions. 80 x 4 words end where the task begins.
pub const LANE_COUNT: usize = 80;
/// Words from the first of the gate to the end of its lanes, and of the task behind them.
pub const GATE_WORDS: usize = task::ABLE + 1 - gate::GRANT;

const _: () = {
    use crate::layout::{DROP_KINDS, HEADER_WORDS, header};
    assert!(header::DROPPED + DROP_KINDS <= gate::GRANT && gate::GRANT + GATE_WORDS <= HEADER_WORDS);
    // What the requester writes and what the rank writes lie in different cache lines.
    assert!(gate::GRANT.is_multiple_of(8) && gate::READY.is_multiple_of(8) && gate::EPOCH < gate::READY);
    assert!(task::NUMBER.is_multiple_of(8) && task::ENDED.is_multiple_of(8) && task::PATIENCE < task::ENDED);
    assert!(gate::EPOCH < task::ADDRESS && task::ADDRESS + 1 < gate::READY && task::NONCE < task::ENDED);
    assert!(gate::UNTRACKED < task::PORT && task::PORT < gate::LANES);
    assert!(gate::LANES + LANE_COUNT * LANE_WORDS <= task::NUMBER && task::VALUES + TASK_VALUES <= task::TAKEN);
};
