//! A traced process: this test binary again, told by its standard input what to do.
use super::wait_for;
use mycroft_record::{
    Algorithm, ChannelId, CommId, CommRank, Datatype, Direction, OpClass, OpId, OpKind, OpSeq, Protocol,
};
use mycroft_ring::writer::{DropKind, RingWriter};
use mycroft_ring::{
    CommBegin, CommSlot, FlowBegin, FlowOwner, FlowSlot, OpBegin, OpEnd, OpSlot, RawRecord, RawStepMark, SegmentConfig,
    SegmentWriter, now_ticks,
};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Set in the child: the segment directory.
const DIR_VARIABLE: &str = "MYCROFT_AGENT_TEST_DIR";
const JOB_VARIABLE: &str = "MYCROFT_AGENT_TEST_JOB";
const RANK_VARIABLE: &str = "MYCROFT_AGENT_TEST_RANK";
const OK: &str = "ok";
/// The communicator of all operations of a child.
pub const COMM: CommId = CommId(0xabc);

/// The parent's end. The child is killed when dropped.
pub struct Traced {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Traced {
    /// Starts a traced process and waits until its segment is published.
    pub fn start(dir: &Path, job: &str, rank: u32) -> Traced {
        let mut child = Command::new(std::env::current_exe().expect("this test binary"))
            .args(["--exact", "traced_process", "--nocapture"])
            .env(DIR_VARIABLE, dir)
            .env(JOB_VARIABLE, job)
            .env(RANK_VARIABLE, rank.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let commands = child.stdin.take().expect("piped");
        let answers = BufReader::new(child.stdout.take().expect("piped"));
        let mut traced = Traced { child, commands, answers };
        traced.wait_ok();
        traced
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives a command and waits until it is done. See `act`.
    pub fn tell(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("the child listens");
        self.wait_ok();
    }

    fn wait_ok(&mut self) {
        let mut line = String::new();
        // The test harness of the child says things of its own.
        while line.trim() != OK {
            line.clear();
            let n = self.answers.read_line(&mut line).expect("the child answers");
            assert!(n > 0, "the child ended");
        }
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(name).arg(self.pid().to_string()).status().expect("kill runs");
        assert!(status.success());
    }

    /// Leaves in order and waits for the end.
    pub fn leave(mut self) {
        writeln!(self.commands, "leave").expect("the child listens");
        let child = &mut self.child;
        wait_for("the child ends", || child.try_wait().expect("our child"));
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the child's test does: nothing unless this process is a child.
pub fn main() {
    let Ok(dir) = std::env::var(DIR_VARIABLE) else { return };
    let rank = std::env::var(RANK_VARIABLE).expect("set by the parent").parse().expect("a number");
    let job = std::env::var(JOB_VARIABLE).expect("set by the parent");
    let mut job = Job::start(Path::new(&dir), &job, rank);
    answer();
    for line in std::io::stdin().lines() {
        let line = line.expect("the parent's words");
        if line == "leave" {
            job.writer.mark_clean_exit();
            return;
        }
        job.act(&line);
        answer();
    }
    // The parent is gone: nobody cleans up behind a killed one but the parent's temporary directory.
    std::process::exit(1);
}

fn answer() {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{OK}").expect("the parent listens");
    out.flush().expect("the parent listens");
}

/// A writer of a segment, also of use inside a test.
pub struct Job {
    pub writer: SegmentWriter,
    pub ring: RingWriter,
    comm: CommSlot,
    rank: u32,
    in_flight: BTreeMap<u64, (OpSlot, FlowSlot)>,
    step: u64,
}

impl Job {
    pub fn start(dir: &Path, job: &str, rank: u32) -> Job {
        let writer = SegmentWriter::create(&SegmentConfig {
            dir,
            size_bytes: 1 << 20,
            job,
            host: "host0",
            rank,
            world_size: 8,
            local_rank: rank,
            gpu: -1,
        })
        .expect("a segment");
        let ring = writer.claim_ring().expect("a ring");
        let begin =
            CommBegin { at_ticks: now_ticks(), comm: COMM.0, n_ranks: 8, n_nodes: 1, comm_rank: rank, name: "DP_0" };
        let comm = writer.comm_begin(&begin).expect("a cell");
        Job { writer, ring, comm, rank, in_flight: BTreeMap::new(), step: 0 }
    }

    /// `begin N`: operation N with one flow of 8 chunks; `move N`: one chunk; `end N`; `steps N`: N more step marks;
    /// `noise N`: N more whose numbers are `noise` of theirs; `profiler`; `drop N`: N events dropped; `close`: the communicator ends.
    pub fn act(&mut self, command: &str) {
        let (word, number) = command.split_once(' ').unwrap_or((command, "0"));
        let number: u64 = number.parse().expect("a number");
        match word {
            "begin" => self.begin(number),
            "move" => self.advance(number),
            "end" => self.end(number),
            "steps" => self.steps(number),
            "noise" => self.marks(number, noise),
            "profiler" => self.writer.set_profiler(6, 22900, true),
            "drop" => (0..number).for_each(|_| self.writer.count_drop(DropKind::Op)),
            "close" => assert!(self.writer.comm_end(self.comm, now_ticks()), "the communicator ends once"),
            other => panic!("unknown command {other:?}"),
        }
    }

    pub fn begin(&mut self, seq: u64) {
        let op = OpBegin {
            comm_slot: Some(self.comm),
            id: OpId { comm: COMM, class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) },
            kind: OpKind::AllReduce,
            nccl_seq: seq,
            comm_rank: CommRank(self.rank),
            count: 1 << 20,
            datatype: Datatype::Float32,
            root: u32::MAX,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            n_channels: 1,
            enqueued_ticks: now_ticks(),
        };
        let op = self.writer.op_begin(&op).expect("a cell");
        let flow = FlowBegin {
            op: FlowOwner::Op(op),
            channel: ChannelId(0),
            peer: CommRank(1),
            direction: Direction::Send,
            total_chunks: 8,
            at_ticks: now_ticks(),
            proxied_for_pid: 0,
        };
        let flow = self.writer.flow_begin(&flow).expect("a cell");
        self.in_flight.insert(seq, (op, flow));
    }

    pub fn advance(&mut self, seq: u64) {
        let flow = self.writer.flow(self.in_flight[&seq].1).expect("in flight");
        flow.posted(now_ticks());
        flow.ready(now_ticks());
        flow.transmitted(now_ticks());
        flow.done(now_ticks());
        flow.add_bytes(1 << 19);
    }

    pub fn end(&mut self, seq: u64) {
        let (op, flow) = self.in_flight.remove(&seq).expect("in flight");
        let flow = self.writer.flow_end(flow, now_ticks()).expect("in flight");
        self.ring.push(&RawRecord::FlowDone(flow));
        let end = OpEnd { ended_ticks: now_ticks(), observed: true };
        let op = self.writer.op_end(op, end).expect("in flight");
        self.ring.push(&RawRecord::OpDone(op));
    }

    pub fn steps(&mut self, n: u64) {
        self.marks(n, |step| step);
    }

    /// The number of the latest step mark.
    pub fn last_step(&self) -> u64 {
        self.step
    }

    fn marks(&mut self, n: u64, number: impl Fn(u64) -> u64) {
        for _ in 0..n {
            self.step += 1;
            let mark = RawStepMark { at_ticks: now_ticks(), step: number(self.step) };
            self.ring.push(&RawRecord::StepMark(mark));
        }
    }
}

/// A number that does not compress, one for each `step` (SplitMix64).
pub fn noise(step: u64) -> u64 {
    let mut z = step.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
