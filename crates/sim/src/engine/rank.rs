//! One rank while the job runs: where its stream is, and what it has issued.
use crate::collective::trace::FlowTrace;
use crate::profile::NEVER;
use crate::program::Item;
use mycroft_record::{Algorithm, OpClass, OpKind};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// An operation from its issue to its end.
#[derive(Debug)]
pub(crate) struct OpTrace {
    pub(crate) group: u32,
    /// Position of this rank in the group.
    pub(crate) position: u32,
    pub(crate) class: OpClass,
    /// Position of the other end; 0 for collectives.
    pub(crate) peer: u32,
    pub(crate) seq: u64,
    pub(crate) kind: OpKind,
    pub(crate) nccl_seq: u64,
    pub(crate) count: u64,
    pub(crate) algorithm: Algorithm,
    pub(crate) channels: u8,
    /// When the host issued it.
    pub(crate) issued: u64,
    /// When the kernel starts; [`NEVER`] while it has not.
    pub(crate) started: u64,
    /// When the first channel's kernel and when the last one's is done.
    pub(crate) left_first: u64,
    pub(crate) left: u64,
    /// When all of it is done, the wire included.
    pub(crate) ended: u64,
    /// What happens in it is known: `started` and later moments are final.
    pub(crate) resolved: bool,
    /// What connections it uses, also before anything is known of their flows.
    pub(crate) flows: Vec<OpFlow>,
    pub(crate) told: Told,
}

impl OpFlow {
    /// A flow of so many steps, `window` of which may be in flight.
    pub(crate) fn new(channel: u8, peer: u32, sends: bool, steps: u32, window: u32) -> OpFlow {
        let (conn, before, posted) = (0, 0, NEVER);
        OpFlow { channel, peer, sends, steps, window, conn, before, posted, trace: None, told: (0, 0) }
    }
}

impl OpFlow {
    /// When its flow ends, as far as is known.
    pub(crate) fn ended(&self) -> u64 {
        self.trace.as_ref().map_or(NEVER, |trace| trace.ended)
    }
}

impl OpTrace {
    /// When the proxy begins with a flow of it, as far as is known: when nothing before it holds the connection.
    pub(crate) fn posts_at(&self, conns: &[Conn], flow: &OpFlow) -> u64 {
        if flow.posted != NEVER {
            return flow.posted;
        }
        let conn = &conns[flow.conn as usize];
        if conn.done == flow.before && conn.free != NEVER { self.issued.max(conn.free) } else { NEVER }
    }

    /// Which of its flows this is.
    pub(crate) fn flow(&self, channel: u8, peer: u32, sends: bool) -> Option<usize> {
        self.flows.iter().position(|flow| flow.channel == channel && flow.peer == peer && flow.sends == sends)
    }
}

/// A connection that an operation uses, and the flow that it makes of it.
#[derive(Debug)]
pub(crate) struct OpFlow {
    pub(crate) channel: u8,
    pub(crate) peer: u32,
    pub(crate) sends: bool,
    pub(crate) steps: u32,
    pub(crate) window: u32,
    /// Number of the connection among the rank's.
    pub(crate) conn: u32,
    /// How many operations use the connection before this one.
    pub(crate) before: u64,
    /// When the proxy begins with it; [`NEVER`] while an earlier operation holds the connection.
    pub(crate) posted: u64,
    /// What happens on it, once the operation is worked out.
    pub(crate) trace: Option<FlowTrace>,
    /// What the agent told of it last and when, as of an operation.
    pub(crate) told: (u64, u64),
}

/// What the agent has told of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// State told last and when; time 0: nothing was told.
    pub(crate) op: (u64, u64),
    /// Its end was told.
    pub(crate) done: bool,
}

/// How long there is nothing new to tell, and what is in flight until then. The mechanics may know more after each
/// stretch that is told: it holds within one only.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Quiet {
    pub(crate) until: u64,
    pub(crate) ops: u32,
    pub(crate) flows: u32,
}

/// A direction of a connection: group, whether it carries messages or collectives, whether it sends, peer, channel.
pub(crate) type ConnKey = (u32, bool, bool, u32, u8);

/// A connection's operations: one after the other, each direction on its own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conn {
    /// Operations that were issued.
    pub(crate) issued: u64,
    /// Those of them that are worked out.
    pub(crate) done: u64,
    /// When the last of these has ended.
    pub(crate) free: u64,
}

/// A rank.
#[derive(Debug)]
pub(crate) struct RankRun {
    pub(crate) rank: u32,
    pub(crate) host: u32,
    pub(crate) stage: u32,
    /// The stream of the current iteration, and when the host issued each item; [`NEVER`]: it does not.
    pub(crate) items: Arc<[Item]>,
    pub(crate) issued: Vec<u64>,
    /// Number of the first operation of each item, counted from the rank's first.
    pub(crate) op_of: Vec<u64>,
    /// Next item.
    pub(crate) at: usize,
    pub(crate) iteration: u64,
    pub(crate) began: u64,
    /// When the device is free, as far as is known.
    pub(crate) device: u64,
    /// The same of the main thread.
    pub(crate) host_clock: u64,
    /// It will not do anything more.
    pub(crate) blocked: bool,
    /// Operations of the current kernel that are not resolved.
    pub(crate) waiting: u32,
    /// The current kernel is busy until then at least.
    pub(crate) kernel: u64,
    pub(crate) asleep: (u64, u64),
    /// Order number of the next operation of each counter.
    pub(crate) seqs: BTreeMap<(u32, OpClass, u32), u64>,
    /// Number of each connection.
    conn_numbers: BTreeMap<ConnKey, u32>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) calls: BTreeMap<(u32, OpKind), u64>,
    pub(crate) ops: VecDeque<OpTrace>,
    /// Of each of these: before when there is nothing new to tell of it.
    pub(crate) quiet: VecDeque<Quiet>,
    /// The same of all together.
    pub(crate) all_quiet: Quiet,
    /// Number of `ops[0]`.
    pub(crate) first_op: u64,
    /// The wrong call was made.
    pub(crate) strayed: bool,
}

impl RankRun {
    pub(crate) fn new(rank: u32, host: u32, stage: u32, start: u64) -> RankRun {
        RankRun {
            rank,
            host,
            stage,
            items: Arc::from([]),
            issued: Vec::new(),
            op_of: Vec::new(),
            at: 0,
            iteration: 0,
            began: start,
            device: start,
            host_clock: start,
            blocked: false,
            waiting: 0,
            kernel: 0,
            asleep: (0, 0),
            seqs: BTreeMap::new(),
            conn_numbers: BTreeMap::new(),
            conns: Vec::new(),
            calls: BTreeMap::new(),
            ops: VecDeque::new(),
            quiet: VecDeque::new(),
            all_quiet: Quiet::default(),
            first_op: 0,
            strayed: false,
        }
    }

    pub(crate) fn op(&mut self, number: u64) -> &mut OpTrace {
        &mut self.ops[(number - self.first_op) as usize]
    }

    /// The number the next issued operation gets.
    pub(crate) fn next_op(&self) -> u64 {
        self.first_op + self.ops.len() as u64
    }

    /// An issued operation that this rank has not entered, by what it is.
    pub(crate) fn find(&self, group: u32, class: OpClass, peer: u32, seq: u64) -> Option<u64> {
        let same = |op: &OpTrace| op.group == group && op.class == class && op.peer == peer && op.seq == seq;
        self.ops.iter().position(same).map(|at| self.first_op + at as u64)
    }

    /// The proxy begins with those connections of operation `number` that earlier operations have left.
    pub(crate) fn post(&mut self, number: u64) {
        let op = &mut self.ops[(number - self.first_op) as usize];
        for at in 0..op.flows.len() {
            op.flows[at].posted = op.posts_at(&self.conns, &op.flows[at]);
        }
    }

    /// Puts an operation in the stream: its flows are the last on their connections.
    pub(crate) fn push(&mut self, mut op: OpTrace) {
        let messages = op.class != OpClass::Collective;
        for flow in &mut op.flows {
            let next = self.conns.len() as u32;
            let key = (op.group, messages, flow.sends, flow.peer, flow.channel);
            flow.conn = *self.conn_numbers.entry(key).or_insert(next);
            if flow.conn == next {
                self.conns.push(Conn::default());
            }
            let conn = &mut self.conns[flow.conn as usize];
            flow.before = conn.issued;
            conn.issued += 1;
        }
        self.ops.push_back(op);
        self.quiet.push_back(Quiet::default());
    }

    /// Operation `number` is worked out: its connections are the next one's.
    pub(crate) fn free(&mut self, number: u64) {
        let op = &self.ops[(number - self.first_op) as usize];
        for flow in &op.flows {
            let Some(trace) = &flow.trace else { continue };
            let conn = &mut self.conns[flow.conn as usize];
            conn.done += 1;
            conn.free = conn.free.max(trace.ended);
        }
    }

    /// More is known than when it was told of last.
    pub(crate) fn learn(&mut self) {
        self.all_quiet = Quiet::default();
        self.quiet.iter_mut().for_each(|quiet| *quiet = Quiet::default());
    }

    /// Forgets operations at the front that were over at `at`, whether they were told or not.
    pub(crate) fn forget_before(&mut self, at: u64) {
        while self.ops.front().is_some_and(|op| op.resolved && op.ended < at) {
            self.ops.pop_front();
            self.quiet.pop_front();
            self.first_op += 1;
        }
    }

    /// Forgets operations at the front that are over and told.
    pub(crate) fn forget_told(&mut self) {
        while self.ops.front().is_some_and(|op| op.told.done) {
            self.ops.pop_front();
            self.quiet.pop_front();
            self.first_op += 1;
        }
    }
}
