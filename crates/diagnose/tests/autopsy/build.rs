//! Bundles made by hand: a job in a few lines, for what no CPU run shows.
use mycroft_record::dump::{
    Bundle, Dump, DumpGroup, DumpVersion, Entry, EntryState, Frame, GroupStatus, OpName, ProcessStacks, Shape,
    StackFrame, ThreadStack,
};
use mycroft_record::{HostTime, NANOS_PER_MS, OpKind, Rank};
use std::sync::Arc;

/// A job under construction.
#[derive(Debug)]
pub(crate) struct Job {
    bundle: Bundle,
    clock_ms: u64,
    groups: Vec<(String, Vec<u32>)>,
}

/// One collective of one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) op: &'static str,
    pub(crate) inputs: i64,
    pub(crate) outputs: i64,
    pub(crate) dtype: &'static str,
    pub(crate) line: u32,
    pub(crate) state: EntryState,
}

/// `all_reduce` of 64 floats from one line, completed.
pub(crate) const REDUCE: Call =
    Call { op: "all_reduce", inputs: 64, outputs: 64, dtype: "Float", line: 10, state: EntryState::Completed };

fn kind(op: &str) -> OpKind {
    match op {
        "all_reduce" => OpKind::AllReduce,
        "all_gather" => OpKind::AllGather,
        "all_to_all" => OpKind::AllToAll,
        "broadcast" => OpKind::Broadcast,
        "scatter" => OpKind::Scatter,
        "send" => OpKind::Send,
        "recv" => OpKind::Recv,
        _ => OpKind::Unknown,
    }
}

impl Job {
    /// A job of `world` ranks with these groups; group 0 should be the world.
    pub(crate) fn new(world: u32, groups: &[(&str, &[u32])]) -> Job {
        let group = |(number, (desc, ranks)): (usize, &(&str, &[u32]))| DumpGroup {
            name: number.to_string().into(),
            desc: (*desc).into(),
            ranks: ranks.iter().map(|rank| Rank(*rank)).collect(),
            local_ranks: false,
        };
        let all: Vec<DumpGroup> = groups.iter().enumerate().map(group).collect();
        let dump = |rank| Dump {
            rank: Rank(rank),
            source: format!("trace_rank_{rank}").into(),
            version: DumpVersion { major: 2, minor: 10 },
            groups: all.clone(),
            ..Dump::default()
        };
        let bundle = Bundle { dumps: (0..world).map(dump).collect(), ..Bundle::default() };
        let groups = groups.iter().map(|(desc, ranks)| ((*desc).to_owned(), ranks.to_vec())).collect();
        Job { bundle, clock_ms: 1_000_000, groups }
    }

    /// Time passes.
    pub(crate) fn wait_ms(&mut self, ms: u64) {
        self.clock_ms += ms;
    }

    fn dump(&mut self, rank: u32) -> &mut Dump {
        self.bundle.dumps.iter_mut().find(|dump| dump.rank == Rank(rank)).expect("a rank of the job")
    }

    fn entry(&mut self, rank: u32, group: u32, call: Call, ends: Option<(u32, u32)>) {
        let now = HostTime(self.clock_ms * NANOS_PER_MS);
        let dump = self.dump(rank);
        let text: Arc<str> = match ends {
            Some((src, dst)) => format!("nccl:{} {src}->{dst}", call.op).into(),
            None => format!("nccl:{}", call.op).into(),
        };
        let name = OpName {
            text,
            lib: "nccl".into(),
            op: call.op.into(),
            kind: kind(call.op),
            src: ends.map(|ends| ends.0),
            dst: ends.map(|ends| ends.1),
        };
        let list = |n: i64| if n < 0 { Vec::new() } else { vec![vec![n].into_boxed_slice()] };
        let dtypes = |n: i64| if n < 0 { Vec::new() } else { vec![Arc::from(call.dtype)] };
        let shape = Shape {
            inputs: list(call.inputs),
            input_dtypes: dtypes(call.inputs),
            outputs: list(call.outputs),
            output_dtypes: dtypes(call.outputs),
        };
        let frame = Frame { name: "step".into(), file: "/home/me/train.py".into(), line: call.line };
        let mine = dump.entries.iter().filter(|entry| entry.group == group);
        let (seq, p2p) = mine.fold((0, 0), |(seq, p2p), entry| (entry.seq.max(seq), entry.p2p_seq.max(p2p)));
        let is_p2p = ends.is_some();
        let number = dump.entries.len() as u64;
        let (op, shape) = (add(&mut dump.ops, name), add(&mut dump.shapes, shape));
        let frame = add(&mut dump.frames, frame);
        let stack = add(&mut dump.stacks, vec![frame].into_boxed_slice());
        let done = call.state == EntryState::Completed;
        dump.entries.push(Entry {
            record_id: number,
            seq: if is_p2p { seq } else { seq + 1 },
            p2p_seq: if is_p2p { p2p + 1 } else { p2p },
            op_id: number,
            created_at: now,
            completed_at: if done { now } else { HostTime::NONE },
            started_at: if call.state == EntryState::Started { now } else { HostTime::NONE },
            duration_us: f32::NAN,
            timeout_ms: 600_000,
            pg_id: group,
            group,
            op,
            shape,
            stack,
            thread: Entry::NONE,
            state: call.state,
            retired: done,
            is_p2p,
        });
    }

    /// These ranks issue a collective of a group.
    pub(crate) fn all(&mut self, ranks: &[u32], group: u32, call: Call) {
        for rank in ranks {
            self.entry(*rank, group, call, None);
        }
        self.clock_ms += 1;
    }

    /// One side of a transfer between two members of the world.
    pub(crate) fn half(&mut self, rank: u32, op: &'static str, ends: (u32, u32), n: i64, state: EntryState) {
        let (inputs, outputs) = if op == "send" { (n, -1) } else { (-1, n) };
        self.entry(rank, 0, Call { op, inputs, outputs, state, ..REDUCE }, Some(ends));
        self.clock_ms += 1;
    }

    /// `steps` good iterations: one `all_reduce` in every group, in order.
    pub(crate) fn train(&mut self, steps: u32) {
        for _ in 0..steps {
            for group in 0..self.groups.len() {
                let members = self.groups[group].1.clone();
                self.all(&members, group as u32, Call { line: 10 + group as u32, ..REDUCE });
            }
        }
    }

    /// The rank's main thread, innermost frame first: function, file, line.
    pub(crate) fn stack(&mut self, rank: u32, frames: &[(&str, &str, u32)]) {
        let frame = |(name, file, line): &(&str, &str, u32)| StackFrame {
            frame: Frame { name: (*name).into(), file: (*file).into(), line: *line },
            ..StackFrame::default()
        };
        let thread = ThreadStack {
            name: "MainThread".into(),
            frames: frames.iter().map(frame).collect(),
            ..ThreadStack::default()
        };
        self.bundle.stacks.push(ProcessStacks {
            rank: Some(Rank(rank)),
            source: format!("rank_{rank}.json").into(),
            threads: vec![thread],
            ..ProcessStacks::default()
        });
        self.bundle.stacks.sort_by_key(|stacks| stacks.rank);
    }

    /// As `stack`, of a process of the rank that is known by its number and its parent's.
    pub(crate) fn process(&mut self, rank: u32, (pid, parent): (u64, u64), frames: &[(&str, &str, u32)]) {
        let known = self.bundle.stacks.len();
        self.stack(rank, frames);
        let new = self.bundle.stacks.iter_mut().rfind(|stacks| stacks.rank == Some(Rank(rank)));
        if let Some(new) = new.filter(|new| new.pid.is_none()) {
            (new.pid, new.parent_pid, new.source) = (Some(pid), Some(parent), format!("{pid}_rank_{rank}").into());
        }
        assert_eq!(self.bundle.stacks.len(), known + 1);
    }

    /// The rank waits in a collective.
    pub(crate) fn waits(&mut self, rank: u32, function: &str) {
        let torch = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py";
        self.stack(rank, &[(function, torch, 1), ("step", "/home/me/train.py", 10)]);
    }

    /// No dump of this rank.
    pub(crate) fn lose(&mut self, rank: u32) {
        self.bundle.dumps.retain(|dump| dump.rank != Rank(rank));
    }

    /// Only the newest `keep` entries are left in the rank's ring; `pg_status` survives.
    pub(crate) fn overwrite(&mut self, rank: u32, keep: usize) {
        let groups = self.groups.len() as u32;
        let dump = self.dump(rank);
        for group in 0..groups {
            let mine = || dump.entries.iter().filter(|entry| entry.group == group && !entry.is_p2p);
            let status = GroupStatus {
                pg_id: u64::from(group),
                group: Some(group),
                last_enqueued: mine().map(|entry| entry.seq).max(),
                last_started: None,
                last_completed: mine().filter(|entry| entry.is_done()).map(|entry| entry.seq).max(),
            };
            dump.statuses.push(status);
        }
        let drop = dump.entries.len().saturating_sub(keep);
        dump.entries.drain(..drop);
    }

    pub(crate) fn bundle(self) -> Bundle {
        self.bundle
    }
}

fn add<T: PartialEq>(table: &mut Vec<T>, item: T) -> u32 {
    let at = table.iter().position(|known| *known == item).unwrap_or_else(|| {
        table.push(item);
        table.len() - 1
    });
    at as u32
}
