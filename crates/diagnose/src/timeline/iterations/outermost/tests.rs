//! Programs of one rank, each operation as it ends: how many iterations are found, and how long they are.
use super::Iterations;
use crate::timeline::Timeline;
use mycroft_record::*;

const MS: u64 = NANOS_PER_MS;
const LAPS: u64 = 120;

/// A rank, and what it has done.
struct Job {
    timeline: Timeline,
    now: u64,
    seqs: [u64; 4],
    knows_starts: bool,
}

impl Job {
    fn new() -> Job {
        Job { timeline: Timeline::default(), now: 1_000 * NANOS_PER_SEC, seqs: [0; 4], knows_starts: true }
    }

    /// A collective of so many elements ends after so long; 4 B each.
    fn collective(&mut self, kind: OpKind, count: u64, after_ns: u64) {
        self.done(OpClass::Collective, kind, CommRank(0), count, after_ns, 0);
    }

    /// A message of any size to the peer, or from it.
    fn message(&mut self, kind: OpKind, after_ns: u64) {
        let (class, of) = if kind == OpKind::Send { (OpClass::Send, 1) } else { (OpClass::Recv, 2) };
        self.done(class, kind, CommRank(1), 1 << 20, after_ns, of);
    }

    fn done(&mut self, class: OpClass, kind: OpKind, peer: CommRank, count: u64, after_ns: u64, of: usize) {
        self.now += after_ns;
        self.seqs[of] += 1;
        let at = HostTime(self.now);
        let started_at = if self.knows_starts { HostTime(self.now - after_ns / 2) } else { HostTime::NONE };
        let op = OpMeta {
            id: OpId { comm: CommId(7), class, peer, seq: OpSeq(self.seqs[of]) },
            kind,
            nccl_seq: 0,
            comm_rank: CommRank(0),
            count,
            datatype: Datatype::Float32,
            root: u32::MAX,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            n_channels: 1,
            enqueued_at: HostTime(self.now - after_ns),
            started_at,
            started_last_at: HostTime::NONE,
        };
        let done = OpDone { op, ended_first_at: at, ended_at: at, flows: 0, observed: true };
        let process = ProcessKey { rank: Rank(0), pid: 1, nonce: 1 };
        let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
        let batch = Batch { source, collected_at: at, records: vec![Record::OpDone(done)] };
        self.timeline.observe(&batch, 500_000);
        self.timeline.settle();
    }

    fn iterations(&self) -> &Iterations {
        &self.timeline.ranks.get(&Rank(0)).expect("it ended operations").iterations
    }

    /// Iterations that were found, and how long the last were, milliseconds.
    fn found(&self) -> (u64, f64) {
        let iterations = self.iterations();
        (iterations.total(), iterations.recent_ms().unwrap_or(0.0))
    }

    /// All but the first laps are found, and as long as they were.
    fn assert_found(&self, lap_ms: f64) {
        let (count, ms) = self.found();
        assert!((LAPS - 12..=LAPS).contains(&count), "{count} of {LAPS}, {ms} ms");
        assert!((ms / lap_ms - 1.0).abs() < 0.05, "{ms} ms for {lap_ms}");
    }
}

/// Which of `of` sizes an iteration has: as good as by chance.
fn size_of(lap: u64, of: u64) -> u64 {
    (lap.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33) % of
}

/// Sequences of other lengths in each iteration: every size of a layer is rarer than the gradients, and marks nothing.
#[test]
fn sizes_that_vary_hide_no_iterations() {
    for (sizes, layers) in [(2, 4), (4, 4), (8, 4), (2, 2), (4, 2)] {
        let mut job = Job::new();
        for lap in 0..LAPS {
            for _ in 0..layers {
                job.collective(OpKind::AllReduce, 10_000 + 500 * size_of(lap, sizes), 12 * MS / layers);
            }
            job.collective(OpKind::AllReduce, 1 << 22, 4 * MS);
        }
        job.assert_found(16.0);
    }
}

/// One gradient bucket and a loss: an iteration is short and has no layers.
#[test]
fn short_iterations_of_one_bucket_are_found() {
    let mut job = Job::new();
    for _ in 0..LAPS {
        job.collective(OpKind::AllReduce, 1 << 22, 16 * MS);
        job.collective(OpKind::AllReduce, 1, 2 * MS);
    }
    job.assert_found(18.0);
}

/// A loss of an evaluation now and then is no end of iterations where gradients are.
#[test]
fn an_evaluation_is_no_iteration() {
    let mut job = Job::new();
    for lap in 0..LAPS {
        for _ in 0..4 {
            job.collective(OpKind::AllReduce, 10_000 + 500 * size_of(lap, 4), 20 * MS);
        }
        job.collective(OpKind::AllReduce, 1 << 22, 40 * MS);
        if lap % 34 == 33 {
            (0..4).for_each(|_| job.collective(OpKind::AllReduce, 10_000, 20 * MS));
            job.collective(OpKind::AllReduce, 1, 2 * MS);
        }
    }
    job.assert_found(120.0);
}

/// Sharded parameters: the layers of a backward pass are even, but the forward passes of all of them lie between two.
#[test]
fn layers_of_sharded_parameters_are_no_iterations() {
    let mut job = Job::new();
    for _ in 0..LAPS {
        (0..8).for_each(|_| job.collective(OpKind::AllGather, 1 << 20, MS));
        for _ in 0..8 {
            job.collective(OpKind::AllGather, 1 << 20, MS);
            job.collective(OpKind::ReduceScatter, 1 << 20, MS);
            assert!(!job.iterations().is_once(1), "after {} operations", job.seqs[0]);
        }
    }
}

/// An inner stage of a pipeline sends and receives only, and nobody says when its device began: two micro-batches, then a pause.
#[test]
fn messages_alone_show_iterations_without_kernel_events() {
    let mut job = Job { knows_starts: false, ..Job::new() };
    for _ in 0..LAPS {
        for kind in [OpKind::Recv, OpKind::Recv, OpKind::Send, OpKind::Recv, OpKind::Send, OpKind::Send] {
            job.message(kind, 20 * MS);
        }
    }
    job.assert_found(120.0);
}

/// A fault delays the line that ends iterations in every second of them, and another line keeps its rhythm: what was steady stays,
/// and what was learned with it.
#[test]
fn what_was_steady_is_kept_through_a_fault() {
    let mut job = Job::new();
    for lap in 0..50 {
        let (start, late_ms) = (job.now, if lap >= 20 { 12 * (lap % 2) } else { 0 });
        job.collective(OpKind::AllReduce, 1 << 22, 15 * MS);
        job.collective(OpKind::AllReduce, 1 << 20, (2 + late_ms) * MS);
        job.now = start + 20 * MS;
    }
    assert_eq!(job.iterations().generation(), 1);
}

/// Iterations of very different lengths end irregularly, and their layers follow each other evenly: layers they are all the same.
#[test]
fn regular_layers_do_not_replace_what_ends_irregular_iterations() {
    let mut job = Job::new();
    for lap in 0..LAPS {
        (0..16).for_each(|_| job.collective(OpKind::AllReduce, 1 << 18, 10 * MS));
        job.collective(OpKind::AllReduce, 1 << 22, if lap % 2 == 0 { 5 * MS } else { 600 * MS });
    }
    let (count, _) = job.found();
    assert!((LAPS - 12..=LAPS).contains(&count), "{count} of {LAPS}");
}

/// Of a rank that does one thing only nothing tells whether it is an iteration or a layer of one.
#[test]
fn what_comes_often_and_alone_is_no_iteration() {
    let mut job = Job::new();
    for _ in 0..LAPS {
        (0..8).for_each(|_| job.collective(OpKind::AllReduce, 1 << 20, MS));
        job.now += 12 * MS;
    }
    assert_eq!(job.found().0, 0);
}

/// Iterations of minutes, the first of them twice as long: their layers are no iterations, once what ends one came three times.
#[test]
fn layers_of_iterations_that_take_minutes_are_no_iterations() {
    for scale in [1, 5] {
        let mut job = Job::new();
        for lap in 0..LAPS / 2 {
            let pace = if lap < 4 { 2 * scale } else { scale };
            for layer in 0..8 {
                job.collective(OpKind::AllReduce, 1 << 20, if layer < 4 { 4_000 } else { 8_000 } * pace * MS);
                assert!(lap < 3 || job.found().0 <= lap, "{} in {lap}", job.found().0);
            }
            job.collective(OpKind::AllReduce, 1 << 22, 4_000 * pace * MS);
        }
        let (count, ms) = job.found();
        assert!(
            (LAPS / 2 - 12..=LAPS / 2).contains(&count) && (ms - 52_000.0 * scale as f64).abs() < 1.0,
            "{count}, {ms} ms"
        );
    }
}
