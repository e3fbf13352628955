//! Jobs made by hand: what no run on processors shows, and what must not be mistaken for a fault.
use crate::build::{Call, Job, REDUCE};
use crate::golden::blamed;
use crate::print;
use mycroft_diagnose::stacks::{Autopsy, Question, Role, autopsy};
use mycroft_record::dump::EntryState::{Completed, Scheduled, Started};
use mycroft_record::{HostTime, Rank};

const WORLD: &[u32] = &[0, 1, 2, 3];

fn answer(job: Job) -> Autopsy {
    autopsy(&job.bundle(), &Question::default())
}

fn check(job: Job, what: &str, category: Option<&str>, culprits: &[u32], seq: Option<u64>) -> Autopsy {
    let answer = answer(job);
    let culprits: Vec<Rank> = culprits.iter().map(|rank| Rank(*rank)).collect();
    let text = print::text(&answer);
    assert_eq!(answer.outcome.as_str(), what, "{text}");
    assert_eq!(answer.category.map(|category| category.as_str()), category, "{text}");
    assert_eq!(blamed(&answer), culprits, "{text}");
    assert_eq!(answer.seq, seq, "{text}");
    answer
}

fn trained(groups: &[(&str, &[u32])]) -> Job {
    let mut job = Job::new(4, groups);
    job.train(6);
    job
}

fn world() -> Job {
    trained(&[("world", WORLD)])
}

fn open(call: Call) -> Call {
    Call { state: Scheduled, ..call }
}

#[test]
fn one_rank_with_another_size() {
    let mut job = world();
    job.all(&[0, 1, 3], 0, open(REDUCE));
    job.all(&[2], 0, open(Call { inputs: 48, outputs: 48, ..REDUCE }));
    check(job, "desync", Some("argument-mismatch"), &[2], Some(7));
}

#[test]
fn in_a_world_of_two_the_past_decides() {
    for odd in [0, 1] {
        let mut job = Job::new(2, &[("world", &[0, 1])]);
        job.train(6);
        job.all(&[1 - odd], 0, open(REDUCE));
        job.all(&[odd], 0, open(Call { inputs: 48, outputs: 48, ..REDUCE }));
        check(job, "desync", Some("argument-mismatch"), &[odd], Some(7));
    }
}

#[test]
fn two_against_two_is_decided_by_the_past() {
    let mut job = world();
    job.all(&[0, 3], 0, open(Call { dtype: "Double", ..REDUCE }));
    job.all(&[1, 2], 0, open(REDUCE));
    check(job, "desync", Some("argument-mismatch"), &[0, 3], Some(7));
}

#[test]
fn without_a_past_both_of_two_are_named_with_half_confidence() {
    let mut job = Job::new(2, &[("world", &[0, 1])]);
    job.all(&[0], 0, open(REDUCE));
    job.all(&[1], 0, open(Call { dtype: "Double", ..REDUCE }));
    let answer = check(job, "desync", Some("argument-mismatch"), &[0, 1], Some(1));
    assert!(answer.suspects.iter().all(|suspect| suspect.confidence == 0.5));
    assert!(answer.caveats.iter().any(|caveat| caveat.text.contains("nothing tells which of ranks 0,1")));
}

#[test]
fn four_that_disagree_two_by_two_without_a_past_are_not_named() {
    let mut job = Job::new(4, &[("world", WORLD)]);
    job.all(&[0, 1], 0, open(REDUCE));
    job.all(&[2, 3], 0, open(Call { dtype: "Double", ..REDUCE }));
    check(job, "desync", Some("argument-mismatch"), &[], Some(1));
}

#[test]
fn a_type_that_corrupts_silently_is_found() {
    let mut job = world();
    job.all(&[0, 1, 2], 0, REDUCE);
    job.all(&[3], 0, Call { dtype: "Int", ..REDUCE });
    job.train(3);
    check(job, "desync", Some("argument-mismatch"), &[3], Some(7));
}

#[test]
fn equal_elements_in_another_layout_are_equal() {
    let mut job = world();
    let mut bundle_job = Job::new(4, &[("world", WORLD)]);
    bundle_job.train(1);
    job.train(1);
    let mut bundle = job.bundle();
    // 64 elements as 8 x 8 on one rank.
    for shape in &mut bundle.dumps[2].shapes {
        shape.inputs = vec![vec![8, 8].into_boxed_slice()];
    }
    assert_eq!(autopsy(&bundle, &Question::default()).outcome.as_str(), "healthy");
}

#[test]
fn an_exchange_that_is_uneven_but_fits_is_legal() {
    let mut job = world();
    for step in 0..4 {
        for rank in WORLD {
            let skew = i64::from((rank + step) % 4);
            job.all(&[*rank], 0, Call { op: "all_to_all", inputs: 10 + skew, outputs: 13 - skew, ..REDUCE });
        }
    }
    check(job, "healthy", None, &[], None);
}

#[test]
fn an_exchange_whose_splits_do_not_add_up() {
    let exchange = Call { op: "all_to_all", inputs: 16, outputs: 16, line: 30, ..REDUCE };
    let mut job = world();
    job.all(WORLD, 0, exchange);
    job.all(&[0, 2, 3], 0, open(exchange));
    job.all(&[1], 0, open(Call { outputs: 20, ..exchange }));
    check(job, "desync", Some("argument-mismatch"), &[1], Some(8));
}

#[test]
fn roots_may_have_other_arguments() {
    let mut job = world();
    for _ in 0..3 {
        job.all(&[0], 0, Call { op: "scatter", inputs: 64, outputs: 16, line: 40, ..REDUCE });
        job.all(&[1, 2, 3], 0, Call { op: "scatter", inputs: -1, outputs: 16, line: 41, ..REDUCE });
    }
    job.all(&[0, 1, 2], 0, open(REDUCE));
    check(job, "hang", Some("not-started"), &[3], Some(10));
}

#[test]
fn stages_that_call_from_other_places_are_no_branch() {
    let mut job = Job::new(4, &[("world", WORLD)]);
    for _ in 0..6 {
        job.all(&[0, 1], 0, REDUCE);
        job.all(&[2, 3], 0, Call { line: 99, ..REDUCE });
    }
    job.all(&[0, 1], 0, open(REDUCE));
    job.all(&[3], 0, open(Call { line: 99, ..REDUCE }));
    check(job, "hang", Some("not-started"), &[2], Some(7));
}

#[test]
fn rank_0_may_log_from_a_place_of_its_own() {
    let mut job = world();
    for _ in 0..3 {
        job.all(&[0], 0, Call { line: 70, ..REDUCE });
        job.all(&[1, 2, 3], 0, Call { line: 71, ..REDUCE });
        job.all(WORLD, 0, REDUCE);
    }
    // Once more, and somebody else is stuck.
    job.all(&[0], 0, open(Call { line: 70, ..REDUCE }));
    job.all(&[1, 3], 0, open(Call { line: 71, ..REDUCE }));
    check(job, "hang", Some("not-started"), &[2], Some(13));
}

#[test]
fn a_skipped_operation_shifts_the_rest() {
    let buckets = [8, 16, 24, 32];
    let mut job = Job::new(4, &[("world", WORLD)]);
    for step in 0..5 {
        for (at, size) in buckets.iter().enumerate() {
            let call = Call { inputs: *size, outputs: *size, ..REDUCE };
            let call = if step == 4 { open(call) } else { call };
            job.all(&[0, 1, 3], 0, call);
            if !(step == 4 && at == 1) {
                job.all(&[2], 0, call);
            }
        }
    }
    check(job, "desync", Some("code-divergence"), &[2], Some(18));
}

#[test]
fn groups_in_another_order_are_a_deadlock() {
    let mut job = trained(&[("world", WORLD), ("tp", &[0, 1]), ("pp", &[0, 1])]);
    job.all(WORLD, 0, REDUCE);
    job.all(&[0], 1, open(REDUCE));
    job.all(&[1], 2, open(REDUCE));
    // Rank 1 was due in tp, as always.
    let answer = check(job, "deadlock", Some("code-divergence"), &[1], Some(7));
    assert!(answer.because.iter().any(|reason| reason.rule == "graph.cycle"));
    assert!(answer.because.iter().any(|reason| reason.rule == "history.break"));
}

#[test]
fn a_cycle_without_a_past_names_all_that_are_in_it() {
    let mut job = Job::new(4, &[("world", WORLD), ("a", &[0, 1]), ("b", &[1, 2]), ("c", &[2, 0]), ("d", &[2, 3])]);
    job.all(&[0], 1, open(REDUCE));
    job.all(&[1], 2, open(REDUCE));
    job.all(&[2], 3, open(REDUCE));
    job.all(&[3], 4, open(REDUCE));
    // Rank 3 waits for the cycle and is not in it.
    let answer = check(job, "deadlock", Some("code-divergence"), &[0, 1, 2], Some(1));
    assert!(answer.conduct.values().all(|conduct| conduct.role == Role::InCycle));
}

#[test]
fn a_rank_without_a_dump_is_the_lead() {
    let mut job = world();
    job.all(&[0, 1, 3], 0, open(REDUCE));
    job.lose(2);
    let answer = check(job, "crash", Some("process-exit"), &[2], Some(7));
    assert_eq!(answer.conduct[&Rank(2)].role, Role::Gone);
    assert_eq!(answer.missing_dumps.len(), 1);
}

#[test]
fn a_rank_without_a_dump_that_lives_is_not_gone() {
    let mut job = world();
    job.all(&[0, 1, 3], 0, open(REDUCE));
    job.lose(2);
    job.stack(2, &[("hash_everything", "/home/me/native.py", 5)]);
    check(job, "hang", Some("not-started"), &[2], Some(7));
}

#[test]
fn a_worker_of_a_rank_is_told_from_the_rank_although_both_have_a_parent() {
    for worker_first in [true, false] {
        let mut job = world();
        job.all(&[0, 1, 3], 0, open(REDUCE));
        // The worker's number is the smaller one in one of the two: neither order nor name tells the rank's process.
        let (rank, worker) = if worker_first { (20, 10) } else { (10, 20) };
        job.process(2, (worker, rank), &[("read_shard", "/home/me/data.py", 7)]);
        job.process(2, (rank, 1), &[("shuffle_everything", "/home/me/train.py", 5)]);
        let answer = check(job, "hang", Some("not-started"), &[2], Some(7));
        let doing = &answer.conduct[&Rank(2)].doing;
        assert!(doing.contains("shuffle_everything"), "{doing}");
    }
}

#[test]
fn where_half_a_group_is_absent_only_stacks_name_a_rank() {
    let mut job = world();
    job.all(&[0, 1], 0, open(REDUCE));
    check(job, "hang", Some("unknown"), &[], Some(7));
    let mut job = world();
    job.all(&[0, 1], 0, open(REDUCE));
    job.stack(2, &[("shuffle_everything", "/home/me/train.py", 5)]);
    check(job, "hang", Some("not-started"), &[2], Some(7));
}

#[test]
fn a_job_that_lost_several_dumps_is_not_called_healthy() {
    let mut job = world();
    job.lose(1);
    check(job, "healthy", None, &[], None);
    let mut job = world();
    job.lose(1);
    job.lose(2);
    check(job, "unknown", None, &[], None);
}

#[test]
fn of_two_ranks_without_a_dump_none_is_named() {
    let mut job = world();
    job.all(&[0, 1, 3], 0, open(REDUCE));
    job.lose(2);
    job.lose(1);
    let answer = check(job, "hang", Some("unknown"), &[], Some(7));
    assert!(answer.because.iter().filter(|reason| reason.rule == "dump.missing").count() == 2);
}

#[test]
fn a_rank_that_is_known_to_be_absent_beats_one_without_a_dump() {
    let mut job = world();
    job.all(&[0, 1], 0, open(REDUCE));
    job.lose(3);
    check(job, "hang", Some("not-started"), &[2], Some(7));
}

#[test]
fn what_the_ring_forgot_the_status_knows() {
    // Rank 1 works on in its own pair until its ring holds nothing of the world, then rank 0 waits there for rank 2.
    let mut job = trained(&[("world", WORLD), ("pair", &[1, 3])]);
    job.all(&[0, 1, 3], 0, open(REDUCE));
    for _ in 0..20 {
        job.all(&[1, 3], 1, REDUCE);
    }
    job.overwrite(1, 8);
    job.overwrite(3, 8);
    let answer = check(job, "hang", Some("not-started"), &[2], Some(7));
    assert!(answer.caveats.iter().any(|caveat| caveat.switch.contains("TORCH_FR_BUFFER_SIZE")), "{:?}", answer.caveats);
}

#[test]
fn an_absent_rank_whose_ring_forgot_the_group_is_found_by_its_status() {
    let mut job = trained(&[("world", WORLD), ("pair", &[2, 3])]);
    for _ in 0..20 {
        job.all(&[2, 3], 1, REDUCE);
    }
    job.all(&[0, 1, 3], 0, open(REDUCE));
    job.overwrite(2, 8);
    check(job, "hang", Some("not-started"), &[2], Some(7));
}

#[test]
fn a_chain_of_waiting_ends_at_its_sink() {
    let mut job = trained(&[("world", WORLD), ("a", &[0, 1]), ("b", &[1, 2]), ("c", &[2, 3])]);
    job.all(&[0], 1, open(REDUCE));
    job.all(&[1], 2, open(REDUCE));
    job.all(&[2], 3, open(REDUCE));
    let answer = check(job, "hang", Some("not-started"), &[3], Some(7));
    assert_eq!(answer.group, "c");
}

#[test]
fn peers_are_through_what_one_rank_is_still_in() {
    let mut job = trained(&[("world", WORLD), ("tp", WORLD)]);
    job.all(&[0, 1, 3], 0, REDUCE);
    job.all(&[2], 0, open(REDUCE));
    job.all(WORLD, 1, open(Call { line: 11, ..REDUCE }));
    check(job, "hang", Some("gpu"), &[2], Some(7));
}

#[test]
fn a_device_that_never_started_what_its_peers_are_in() {
    let mut job = Job::new(4, &[("world", WORLD)]);
    for _ in 0..4 {
        job.all(WORLD, 0, Call { state: Started, ..REDUCE });
    }
    let mut bundle = {
        job.all(&[0, 1, 3], 0, Call { state: Started, ..REDUCE });
        job.all(&[2], 0, open(REDUCE));
        job.bundle()
    };
    for entry in bundle.dumps.iter_mut().flat_map(|dump| dump.entries.iter_mut().take(4)) {
        (entry.state, entry.retired) = (Completed, true);
    }
    let answer = autopsy(&bundle, &Question::default());
    assert_eq!(blamed(&answer), [Rank(2)], "{}", print::text(&answer));
    assert_eq!(answer.category.map(|category| category.as_str()), Some("gpu"));
}

#[test]
fn all_started_and_none_completed_is_network_or_hardware() {
    let mut job = world();
    job.all(WORLD, 0, Call { state: Started, ..REDUCE });
    let answer = check(job, "hang", Some("network-send"), &[], Some(7));
    assert_eq!(answer.cause.map(|cause| cause.family().as_str()), Some("network-or-hardware"));
}

#[test]
fn without_timing_the_recorder_cannot_tell_started_from_issued() {
    let mut job = world();
    job.all(WORLD, 0, open(REDUCE));
    let answer = check(job, "hang", Some("unknown"), &[], Some(7));
    assert!(answer.caveats.iter().any(|caveat| caveat.switch == "TORCH_NCCL_ENABLE_TIMING=1"));
}

#[test]
fn a_transfer_of_another_size() {
    let mut job = world();
    for _ in 0..3 {
        job.half(0, "send", (0, 1), 5, Completed);
        job.half(1, "recv", (0, 1), 5, Completed);
    }
    job.half(0, "send", (0, 1), 5, Scheduled);
    job.half(1, "recv", (0, 1), 7, Scheduled);
    let answer = check(job, "desync", Some("argument-mismatch"), &[1], Some(4));
    assert_eq!(answer.collective, "recv");
}

#[test]
fn a_transfer_that_one_side_never_issued() {
    let mut job = world();
    job.half(0, "send", (0, 1), 5, Completed);
    job.half(1, "recv", (0, 1), 5, Completed);
    job.half(1, "recv", (0, 1), 5, Scheduled);
    check(job, "hang", Some("not-started"), &[0], Some(2));
}

/// Steps in which `late` comes 300 ms after its peers to the first of two operations.
fn late_steps(world: &[u32], late: u32) -> Job {
    let mut job = Job::new(world.len() as u32, &[("world", world)]);
    let others: Vec<u32> = world.iter().copied().filter(|rank| *rank != late).collect();
    for _ in 0..8 {
        job.all(&others, 0, REDUCE);
        job.wait_ms(300);
        job.all(&[late], 0, REDUCE);
        job.all(world, 0, Call { line: 11, ..REDUCE });
    }
    job
}

#[test]
fn a_rank_that_is_late_every_step_is_slow_and_not_a_suspect() {
    let done = answer(late_steps(WORLD, 2));
    assert_eq!((done.outcome.as_str(), blamed(&done)), ("slow", vec![]), "{}", print::text(&done));
    assert!(done.because[0].text.contains("rank 2 came late"), "{}", print::text(&done));
    let mut job = late_steps(WORLD, 2);
    job.all(&[0, 1, 3], 0, open(REDUCE));
    check(job, "slow", None, &[], Some(17));
    // Another rank than the one that is always late is missing.
    let mut job = late_steps(WORLD, 2);
    job.all(&[0, 2, 3], 0, open(REDUCE));
    check(job, "hang", Some("not-started"), &[1], Some(17));
}

#[test]
fn a_late_rank_that_never_came_again_is_stuck() {
    let mut job = late_steps(WORLD, 2);
    job.all(&[0, 1, 3], 0, open(REDUCE));
    job.wait_ms(5_000);
    // Something else that rank 0 did shows how long it has waited.
    job.half(0, "send", (0, 1), 5, Completed);
    job.half(1, "recv", (0, 1), 5, Completed);
    check(job, "hang", Some("not-started"), &[2], Some(17));
}

#[test]
fn lateness_does_not_hang_on_clocks() {
    let mut job = world();
    job.all(&[0, 1, 3], 0, open(REDUCE));
    let mut bundle = job.bundle();
    // The clock of rank 2 is an hour off.
    for entry in &mut bundle.dumps[2].entries {
        entry.created_at = entry.created_at + 3_600_000_000_000;
    }
    let answer = autopsy(&bundle, &Question::default());
    assert_eq!((answer.outcome.as_str(), blamed(&answer)), ("hang", vec![Rank(2)]), "{}", print::text(&answer));
}

#[test]
fn a_late_peer_in_a_world_of_two_is_told_from_the_one_that_waits() {
    for late in [0, 1] {
        let answer = answer(late_steps(&[0, 1], late));
        let expected = format!("rank {late} came late");
        assert!(answer.because.iter().any(|reason| reason.text.starts_with(&expected)), "{}", print::text(&answer));
    }
}

#[test]
fn several_recorders_of_a_rank_count_for_themselves() {
    let mut job = world();
    job.all(&[0, 1, 3], 0, open(REDUCE));
    let mut bundle = job.bundle();
    let mut others = Vec::new();
    for dump in &bundle.dumps {
        // The same group on the other backend, which has done two operations.
        let mut other = dump.clone();
        other.entries.truncate(2);
        for op in &mut other.ops {
            op.lib = "gloo".into();
        }
        others.push(other);
    }
    bundle.dumps.extend(others);
    bundle.dumps.sort_by_key(|dump| dump.rank);
    let answer = autopsy(&bundle, &Question::default());
    assert_eq!((blamed(&answer), answer.seq), (vec![Rank(2)], Some(7)), "{}", print::text(&answer));
}

#[test]
fn stacks_that_show_a_later_moment_mean_that_the_job_went_on() {
    let went_on = |known: bool| {
        let mut job = world();
        let op = if known { "all_gather" } else { "all_reduce" };
        job.all(WORLD, 0, Call { op, outputs: if known { 256 } else { 64 }, ..REDUCE });
        job.all(&[0, 1, 3], 0, open(REDUCE));
        for rank in WORLD {
            job.waits(*rank, "all_gather");
        }
        answer(job)
    };
    let running = went_on(true);
    assert_eq!((running.outcome.as_str(), blamed(&running)), ("healthy", vec![]), "{}", print::text(&running));
    assert!(running.caveats.iter().any(|caveat| caveat.text.contains("went on")));
    // A call that was never made before may block before it is recorded, while its group is set up: no sign of life.
    assert_ne!(went_on(false).outcome.as_str(), "healthy");
}

#[test]
fn dumps_written_one_after_another_show_a_running_job() {
    let mut job = world();
    job.all(&[0, 1, 3], 0, open(REDUCE));
    let mut bundle = job.bundle();
    // Rank 2 was dumped first: its peers have completed two more, which needs rank 2.
    bundle.dumps[2].entries.truncate(4);
    let answer = autopsy(&bundle, &Question::default());
    assert_eq!((answer.outcome.as_str(), blamed(&answer)), ("healthy", vec![]), "{}", print::text(&answer));
    // A dump of another occasion proves nothing, and neither does it accuse.
    for entry in &mut bundle.dumps[2].entries {
        (entry.created_at, entry.completed_at) = (HostTime(1), HostTime(1));
    }
    let answer = autopsy(&bundle, &Question::default());
    assert_eq!((answer.outcome.as_str(), blamed(&answer)), ("unknown", vec![]), "{}", print::text(&answer));
}
