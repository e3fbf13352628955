//! Ranks of a job as agents see them: each writes a segment of its host, as the tracer does, in a thread of this process and by the clock.
#![allow(dead_code, reason = "each program uses some of it")]
use mycroft_record::{Algorithm, CommId, CommRank, Datatype, OpClass, OpId, OpKind, OpSeq, Protocol};
use mycroft_ring::writer::RingWriter;
use mycroft_ring::{
    CommBegin, CommSlot, OpBegin, OpEnd, OpSlot, RawCommEnd, RawOpDone, RawOpMeta, RawRecord, RawStepMark,
    SegmentConfig, SegmentWriter, now_ticks,
};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

const COMM: CommId = CommId(0xfeed);
/// Time of one iteration, milliseconds: one AllReduce, which takes so long of it.
const ITERATION_MS: u64 = 200;
const REDUCE_MS: u64 = 20;
/// What has happened is written so often.
const WRITTEN_EVERY: Duration = Duration::from_millis(20);
/// Room for minutes of one rank.
const SEGMENT_BYTES: u64 = 1 << 20;
/// NCCL 2.28.3 with version 6 of the profiler's interface.
const PROFILER: (u32, u32) = (6, 22_803);

struct Rank {
    number: u32,
    writer: SegmentWriter,
    ring: RingWriter,
    comm: CommSlot,
    /// The operation that it is in, where somebody has not come.
    waits: Option<OpSlot>,
}

/// A job, one rank a host, which goes on by itself until this is dropped.
pub(crate) struct Traced {
    name: String,
    ranks: Arc<Mutex<Ranks>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Ranks {
    ranks: Vec<Rank>,
    ticks_per_ms: u64,
    /// Iteration n, from 0, ends n + 1 iterations after this.
    origin: u64,
    /// So many iterations have ended.
    ended: u64,
    /// The rank that does not enter the next operation.
    absent: Option<usize>,
}

impl Traced {
    /// Begins one, whose rank n has its segment in the n-th folder, on host n.
    pub(crate) fn start(name: &str, segments: &[&Path]) -> Traced {
        let count = segments.len() as u32;
        let rank = |(number, dir): (u32, &&Path)| {
            let config = SegmentConfig {
                dir,
                size_bytes: SEGMENT_BYTES,
                job: name,
                host: &format!("host{number}"),
                rank: number,
                world_size: count,
                local_rank: 0,
                gpu: 0,
            };
            let writer = SegmentWriter::create(&config).expect("a segment");
            writer.set_profiler(PROFILER.0, PROFILER.1, true);
            let (at_ticks, ring) = (now_ticks(), writer.claim_ring().expect("a ring"));
            let begin =
                CommBegin { at_ticks, comm: COMM.0, n_ranks: count, n_nodes: count, comm_rank: number, name: "DP_0" };
            let comm = writer.comm_begin(&begin).expect("a cell");
            Rank { number, writer, ring, comm, waits: None }
        };
        let ranks: Vec<Rank> = (0..).zip(segments).map(rank).collect();
        let ticks_per_ms = ranks[0].writer.calibration().ticks_per_sec / 1000;
        let ranks = Ranks { ranks, ticks_per_ms, origin: now_ticks(), ended: 0, absent: None };
        let (ranks, is_over) = (Arc::new(Mutex::new(ranks)), Arc::new(AtomicBool::new(false)));
        let (written, ends) = (Arc::clone(&ranks), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                written.lock().expect("no holder panics").write();
                std::thread::sleep(WRITTEN_EVERY);
            }
        });
        Traced { name: name.to_owned(), ranks, is_over, thread: Some(thread) }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Step marks that each rank has written: 1 to these.
    pub(crate) fn marks(&self) -> u64 {
        self.ranks().ended
    }

    /// A rank does not enter the next operation.
    pub(crate) fn stall(&self, absent: usize) {
        self.ranks().absent = Some(absent);
    }

    /// It does, and all goes on.
    pub(crate) fn go_on(&self) {
        self.ranks().go_on();
    }

    /// The job ends as one that has done its work: its communicators first. Gives the step marks that each rank has written.
    pub(crate) fn end(mut self) -> u64 {
        self.stop();
        let mut ranks = self.ranks();
        ranks.go_on();
        let at_ticks = now_ticks();
        for rank in &mut ranks.ranks {
            rank.ring.push(&RawRecord::CommEnd(RawCommEnd { at_ticks, comm: COMM }));
            rank.writer.comm_end(rank.comm, at_ticks);
            rank.writer.mark_clean_exit();
        }
        ranks.ended
    }

    fn stop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Its panic was printed.
        drop(self.thread.take().map(JoinHandle::join));
    }

    fn ranks(&self) -> MutexGuard<'_, Ranks> {
        self.ranks.lock().expect("no holder panics")
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Ranks {
    /// Who was absent comes.
    fn go_on(&mut self) {
        self.write();
        let Some(absent) = self.absent.take() else { return };
        let (at, seq) = (now_ticks(), self.ended);
        let late = self.done(absent as u32, at - REDUCE_MS * self.ticks_per_ms, at);
        for rank in &mut self.ranks {
            let ended = OpEnd { ended_ticks: at, observed: true };
            // Nobody has come yet where the operation was not due before.
            let done = rank.waits.take().and_then(|slot| rank.writer.op_end(slot, ended)).unwrap_or(late);
            let op = RawOpMeta { comm_rank: CommRank(rank.number), ..done.op };
            rank.ring.push(&RawRecord::OpDone(RawOpDone { op, ..done }));
            rank.mark(at, seq + 1);
        }
        self.ended = seq + 1;
        self.origin = at - self.ended * self.iteration();
    }

    /// Writes what has happened by now.
    fn write(&mut self) {
        let now = now_ticks();
        let end = |job: &Ranks| job.origin + (job.ended + 1) * job.iteration();
        while self.absent.is_none() && end(self) <= now {
            let ended = end(self);
            let began = ended - REDUCE_MS * self.ticks_per_ms;
            for rank in 0..self.ranks.len() {
                let done = self.done(rank as u32, began, ended);
                self.ranks[rank].ring.push(&RawRecord::OpDone(done));
                self.ranks[rank].mark(ended, self.ended + 1);
            }
            self.ended += 1;
        }
        let Some(absent) = self.absent else { return };
        let began = end(self) - REDUCE_MS * self.ticks_per_ms;
        let (seq, is_due) = (self.ended, began <= now);
        let waiting = self.ranks.iter_mut().filter(|rank| rank.number as usize != absent && is_due);
        waiting.filter(|rank| rank.waits.is_none()).for_each(|rank| rank.enter(seq, began));
    }

    fn iteration(&self) -> u64 {
        ITERATION_MS * self.ticks_per_ms
    }

    /// The operation of the iteration that ends next.
    fn done(&self, rank: u32, began: u64, ended: u64) -> RawOpDone {
        let op = RawOpMeta {
            id: id(self.ended),
            kind: OpKind::AllReduce,
            nccl_seq: self.ended,
            comm_rank: CommRank(rank),
            count: 1 << 20,
            datatype: Datatype::Bfloat16,
            root: u32::MAX,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            n_channels: 1,
            enqueued_ticks: began,
            started_ticks: began,
            started_last_ticks: began,
        };
        RawOpDone { op, ended_first_ticks: ended, ended_ticks: ended, flows: 0, observed: true }
    }
}

impl Rank {
    fn mark(&mut self, at_ticks: u64, step: u64) {
        self.ring.push(&RawRecord::StepMark(RawStepMark { at_ticks, step }));
    }

    fn enter(&mut self, seq: u64, began: u64) {
        let begin = OpBegin {
            comm_slot: Some(self.comm),
            id: id(seq),
            kind: OpKind::AllReduce,
            nccl_seq: seq,
            comm_rank: CommRank(self.number),
            count: 1 << 20,
            datatype: Datatype::Bfloat16,
            root: u32::MAX,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            n_channels: 1,
            enqueued_ticks: began,
        };
        self.waits = self.writer.op_begin(&begin);
        let cell = self.waits.and_then(|slot| self.writer.op(slot)).expect("a cell");
        cell.kernel_started(began);
    }
}

fn id(seq: u64) -> OpId {
    OpId { comm: COMM, class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) }
}
