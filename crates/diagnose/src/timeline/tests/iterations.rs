//! What iterations of a rank are cut at, and what is measured of them.
use super::*;
use crate::timeline::iterations::Iterations;

/// A rank that completes operations of one communicator, one after the other.
struct Program {
    timeline: Timeline,
    now: u64,
    seq: u64,
}

impl Program {
    fn new() -> Program {
        Program { timeline: Timeline::default(), now: T0, seq: 0 }
    }

    /// Completes one of a size (see [`complete`]), so long after the one before.
    fn end(&mut self, size: u32, gap_ms: u64) -> HostTime {
        (self.now, self.seq) = (self.now + gap_ms * MS, self.seq + 1);
        complete(&mut self.timeline, size, self.seq, self.now);
        self.timeline.settle();
        HostTime(self.now)
    }

    fn iterations(&self) -> &Iterations {
        &self.timeline.ranks.get(&Rank(0)).unwrap().iterations
    }
}

/// A loss or an evaluation every twentieth iteration marks nothing: iterations are known by their even rhythm, also while a
/// fault makes it uneven, and where the first ones were.
#[test]
fn what_comes_now_and_then_is_no_iteration() {
    for (warm_up, well_until) in [(0, 60), (2, 30)] {
        let mut timeline = Timeline::default();
        let (mut now, mut seq) = (T0, 0);
        for lap in 0..90u64 {
            let late_ms = if lap > well_until { 700 * (lap % 3) } else { 600 * u64::saturating_sub(warm_up, lap) };
            now += (500 + late_ms) * MS;
            let loss = lap % 20 == 19;
            for size in [4, 0].into_iter().take(1 + usize::from(loss)) {
                seq += 1;
                now += MS;
                complete(&mut timeline, size, seq, now);
            }
            timeline.settle();
        }
        let iterations = &timeline.ranks.get(&Rank(0)).unwrap().iterations;
        assert_eq!((iterations.generation(), iterations.total()), (1, 88), "{warm_up}");
    }
}

/// An evaluation has several collectives of a size of its own: what has marked iterations goes on to do so.
#[test]
fn what_comes_often_in_one_iteration_marks_none() {
    let mut program = Program::new();
    for lap in 0..60 {
        (0..if lap == 30 { 5 } else { 0 }).for_each(|_| {
            program.end(3, 500);
        });
        program.end(4, 500);
    }
    assert_eq!((program.iterations().generation(), program.iterations().total()), (1, 58));
}

/// The last iteration of a rank of which no kernel event was seen: each has one operation of a ring, issued 10 ms after the one before
/// ended. Of its flow in one direction, how long it was in each stage and how long before the end its first slot was filled.
fn without_kernels(direction: Direction, stage_us: [u32; 3], ready_ms: u64) -> Iteration {
    unseen((Algorithm::Ring, 1), &[(direction, stage_us, ready_ms)])
}

/// The same of operations of an algorithm, in so many channels, with several flows.
fn unseen((algorithm, channels): (Algorithm, u8), flows: &[(Direction, [u32; 3], u64)]) -> Iteration {
    let mut timeline = Timeline::default();
    for seq in 1..20u64 {
        let now = T0 + seq * 500 * MS;
        let step = Step { rank: 0, comm: 0, back: 0, told: Told::Left, look: false };
        let mut op = Teller { now, ..Teller::new() }.meta(&step, true);
        (op.id.seq, op.started_at, op.enqueued_at) = (OpSeq(seq), HostTime::NONE, HostTime(now - 490 * MS));
        (op.algorithm, op.n_channels) = (algorithm, channels);
        let at = HostTime(now);
        let of = |(nth, (direction, stage_us, ready_ms)): (usize, &(Direction, [u32; 3], u64))| FlowDone {
            flow: FlowKey { op: op.id, channel: ChannelId(nth as u8), peer: CommRank(1), direction: *direction },
            counters: FlowCounters { total_chunks: 8, posted: 8, ready: 8, transmitted: 8, done: 8 },
            bytes: 1 << 20,
            times: FlowTimes {
                stage_us: *stage_us,
                stage_max_us: stage_us.map(|us| us / 9 * 2),
                first_ready_at: HostTime(now - ready_ms * MS),
                ..FlowTimes::default()
            },
            ended_at: at,
            peer_wait_polls: 0,
            proxied_for_pid: 0,
        };
        let ended = flows.iter().enumerate().map(of).map(Record::FlowDone);
        let done = OpDone { op, ended_first_at: at, ended_at: at, flows: flows.len() as u16, observed: true };
        let process = ProcessKey { rank: Rank(0), pid: 1, nonce: 1 };
        let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
        let records = ended.chain([Record::OpDone(done)]).collect();
        timeline.observe(&Batch { source, collected_at: at, records }, 500_000);
        timeline.settle();
    }
    *timeline.ranks.get(&Rank(0)).unwrap().iterations.list().back().unwrap()
}

/// What the proxy thread passed on late is known of an operation whose kernel nobody saw.
#[test]
fn a_proxy_is_measured_without_kernel_events() {
    let last = without_kernels(Direction::Recv, [100, 7_000, 100], 100);
    assert_eq!((last.proxy_us, last.compute_us, last.ops), (7_000.0, 0.0, 1));
}

/// Without kernel events a ring's operation begins when the device has data of its own ready to send, and one of which a rank only receives
/// at a time that nobody knows: what lies between is computation.
#[test]
fn computation_is_measured_without_kernel_events() {
    let last = |direction, ready_ms| {
        let last = without_kernels(direction, [100; 3], ready_ms);
        ((last.compute_us / 1e3).round(), (last.host_us / 1e3).round())
    };
    assert_eq!(last(Direction::Send, 100), (390.0, 10.0));
    assert_eq!(last(Direction::Send, 40), (450.0, 10.0));
    assert_eq!(last(Direction::Recv, 100), (0.0, 0.0), "it may have begun at any time");
    let knows = |direction| without_kernels(direction, [100; 3], 100).knows_work;
    assert!(knows(Direction::Send) && !knows(Direction::Recv), "none of it is known, which is not that there is none");
}

/// Of two trees a rank is a leaf of one: there it sends what is its own first. Of one tree it may wait for those below it.
#[test]
fn a_leaf_of_one_of_two_trees_shows_when_its_device_began() {
    let sends = |ready_ms: u64| (Direction::Send, [100; 3], ready_ms);
    for flows in [[sends(40), sends(100)], [sends(100), sends(40)]] {
        let of = |channels: u8| unseen((Algorithm::Tree, channels), &flows);
        assert_eq!((of(2).knows_work, (of(2).compute_us / 1e3).round()), (true, 390.0));
        assert!(!of(1).knows_work);
    }
}

/// The device's part in what waits at both of its ends does not need to know when it began.
#[test]
fn copies_in_a_tree_are_measured_without_kernel_events() {
    // Of eight slices served in 25 ms each one waits longer than the next.
    let copies = |each_us: u32| {
        let waited_us = 36 * each_us;
        let both = [(Direction::Send, [waited_us, 0, 0], 400), (Direction::Recv, [0, 0, waited_us], 400)];
        unseen((Algorithm::Tree, 1), &both).copy_us
    };
    assert!((180_000.0..220_000.0).contains(&copies(25_000)), "{}", copies(25_000));
    assert_eq!(copies(0), 0.0);
}

/// Data waits at the entry of a way through the host, whenever the rank there began.
#[test]
fn the_entry_of_a_way_through_a_host_is_measured_without_kernel_events() {
    let into = |waits_us: u32| without_kernels(Direction::Recv, [0, 0, waits_us], 400).into.us;
    assert!(into(800_000) > 50_000.0, "{}", into(800_000));
    assert_eq!(into(0), 0.0);
}

/// Rank 0 is in a ring's operation: of its slices its device has served so many, in so long each, in both directions.
fn in_flight(timeline: &mut Timeline, at: HostTime, (steps, each_ms): (u32, u32), ways: &[Direction]) {
    let step = Step { rank: 0, comm: 0, back: 0, told: Told::Entered, look: false };
    let mut op = Teller { now: at.0, ..Teller::new() }.meta(&step, true);
    (op.id.seq, op.algorithm) = (OpSeq(1 << 20), Algorithm::Ring);
    let slots = 4;
    let waited_us = 1_000 * each_ms * (slots * steps - slots * (slots - 1) / 2);
    let flow = |direction: Direction| {
        let sends = direction == Direction::Send;
        let done =
            FlowCounters { total_chunks: 1_000, posted: steps + slots, ready: steps, transmitted: steps, done: steps };
        let stage_us = if sends { [waited_us, 0, 0] } else { [0, 0, waited_us] };
        Record::FlowState(FlowState {
            sampled_at: at,
            flow: FlowKey { op: op.id, channel: ChannelId(0), peer: CommRank(1 + u32::from(sends)), direction },
            counters: done,
            bytes: 0,
            times: FlowTimes {
                started_at: at,
                last_progress_at: at,
                first_ready_at: HostTime(at.0 + u64::from(each_ms) * MS),
                stage_us,
                ..FlowTimes::default()
            },
            peer_wait_polls: 0,
            proxied_for_pid: 0,
        })
    };
    let (kernels_started, kernels_stopped, flows_started, flows_done) = (1, 0, ways.len() as u16, 0);
    let state = OpState { sampled_at: at, op, kernels_started, kernels_stopped, flows_started, flows_done };
    let records = [Record::OpState(state)].into_iter().chain(ways.iter().copied().map(flow)).collect();
    let process = ProcessKey { rank: Rank(0), pid: 1, nonce: 1 };
    let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
    timeline.observe(&Batch { source, collected_at: at, records }, 500_000);
}

/// Of a job whose iterations take half a second one takes twenty so far: it is the same program still. An evaluation, which
/// does more than an iteration, is none.
#[test]
fn an_iteration_that_crawls_is_seen_before_it_ends() {
    let mut program = Program::new();
    let mut end = HostTime::NONE;
    for _ in 0..30 {
        (0..4).for_each(|_| {
            program.end(2, 100);
        });
        end = program.end(4, 100);
    }
    let iterations = |program: &Program| {
        let iterations = program.iterations();
        (iterations.generation(), iterations.list().back().unwrap().end, iterations.running_since())
    };
    let generation = iterations(&program).0;
    program.end(2, 10_000);
    let until = program.end(2, 10_000);
    assert_eq!(iterations(&program), (generation, end, Some(end)));
    let show = |timeline: &mut Timeline| {
        timeline.with_running(until, u64::MAX, |timeline| {
            *timeline.ranks.get(&Rank(0)).unwrap().iterations.list().back().unwrap()
        })
    };
    let shown = show(&mut program.timeline);
    assert_eq!((shown.start, shown.end, shown.compute_us, shown.host_us, shown.copy_us), (end, until, 0.0, 0.0, 0.0));
    assert_eq!(iterations(&program).1, end, "and it is as it was");
    in_flight(&mut program.timeline, until, (20, 400), &[Direction::Send]);
    let first_us = show(&mut program.timeline).out.first_us;
    assert_eq!(first_us, 8e6, "its first slice counts once the slots hold nothing of the one before");
    in_flight(&mut program.timeline, until, (20, 400), &[Direction::Send, Direction::Recv]);
    assert_eq!(show(&mut program.timeline).copy_us, 8e6, "what the device has done of an operation in flight");
    assert_eq!(iterations(&program).1, end);
    (0..4).for_each(|_| {
        program.end(2, 100);
    });
    assert_eq!(iterations(&program).2, None, "more than an iteration does");
}

/// A loss in every fourth iteration has not come for less than its own rhythm, while an iteration crawls: it ends none.
#[test]
fn what_comes_seldom_is_no_iteration_while_one_crawls() {
    let mut program = Program::new();
    for lap in 0..40 {
        [50, 150, 50, 150, 50, 150].into_iter().for_each(|gap_ms| {
            program.end(2, gap_ms);
        });
        program.end(4, 200);
        if lap % 4 == 3 {
            program.end(0, 1);
        }
    }
    let before = program.iterations().generation();
    program.end(2, 9_000);
    assert_eq!(program.iterations().generation(), before);
}

/// A device computes twice as long from the middle of an iteration on that is long for another reason: it is known when what it
/// computed was more than before.
#[test]
fn when_more_was_computed_than_in_the_iteration_before_is_known() {
    let mut timeline = Timeline::default();
    let (mut now, mut seq) = (T0, 0);
    let mut op = |timeline: &mut Timeline, size: usize, compute_ms: u64, lasts_ms: u64| {
        let issued_at = HostTime(now);
        (now, seq) = (now + (compute_ms + lasts_ms) * MS, seq + 1);
        let step = Step { rank: 0, comm: 0, back: 0, told: Told::Left, look: false };
        let mut op = Teller { now, ..Teller::new() }.meta(&step, true);
        (op.id.seq, op.count) = (OpSeq(seq), [1 << 12, 1 << 20][size]);
        (op.enqueued_at, op.started_at) = (issued_at, issued_at + compute_ms * MS);
        let at = HostTime(now);
        let record = Record::OpDone(OpDone { op, ended_first_at: at, ended_at: at, flows: 0, observed: true });
        let process = ProcessKey { rank: Rank(0), pid: 1, nonce: 1 };
        let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
        timeline.observe(&Batch { source, collected_at: at, records: vec![record] }, 500_000);
        timeline.settle();
        (issued_at, at)
    };
    let last = |timeline: &Timeline| *timeline.ranks.get(&Rank(0)).unwrap().iterations.list().back().unwrap();
    for _ in 0..30 {
        (0..4).for_each(|_| {
            op(&mut timeline, 0, 100, 1);
        });
        op(&mut timeline, 1, 100, 1);
    }
    op(&mut timeline, 0, 100, 3_000);
    op(&mut timeline, 0, 100, 3_000);
    op(&mut timeline, 0, 200, 3_000);
    let (more_at, _) = op(&mut timeline, 0, 200, 3_000);
    let (_, end) = op(&mut timeline, 1, 200, 1);
    assert_eq!(last(&timeline).computes_more_at, HostTime::NONE, "as much as before");
    // Records may come out of order: an iteration is measured a while after its end.
    op(&mut timeline, 0, 100, 200);
    op(&mut timeline, 0, 100, 200);
    let long = last(&timeline);
    assert_eq!((long.end, long.compute_us.round()), (end, 800_001.0), "to a microsecond");
    assert_eq!(long.computes_more_at.0 / MS, more_at.0 / MS);
}
