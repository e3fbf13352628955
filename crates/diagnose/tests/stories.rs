//! Stories with an end: figure 7 of the paper, a deadlock, lost records, orderly ends, launchers that kill the rest.
//! Golden reports lie in `tests/golden`; `MYCROFT_UPDATE_GOLDEN=1` rewrites them.
mod cluster;
mod hand;

use cluster::{Cluster, Fault, MS, Outcome, Plan, T0, drive, run};
use hand::{Hand, meta};
use mycroft_diagnose::render;
use mycroft_record::*;

fn golden(name: &str, text: &str) {
    let path = format!("{}/tests/golden/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("MYCROFT_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, want, "{path} differs; MYCROFT_UPDATE_GOLDEN=1 rewrites it");
}

/// Mycroft section 7.1, figure 7: TP inside a host, two hosts a pipeline stage, two replicas. What waits is not blamed.
#[test]
fn figure_7_blames_the_faulty_rank_and_not_the_groups_that_wait_for_it() {
    let figure = |fault| run(Plan::new(4, 8, 8, 2, 2).fault(fault));
    for (name, fault) in [
        ("figure7-nic-down", Fault::NicDown(0)),
        ("figure7-gpu-power", Fault::GpuPower(3)),
        ("figure7-gpu-hang", Fault::GpuHangInside(9)),
        ("figure7-rank-stuck", Fault::Stuck(5)),
    ] {
        let outcome = figure(fault);
        let case = outcome.case();
        assert_eq!(
            case.finding.suspects.iter().filter(|suspect| suspect.confidence > 0.4).count(),
            1,
            "{}",
            outcome.text()
        );
        golden(name, &outcome.text());
    }
}

fn closing(plan: &Plan, clean: bool, at: u64, spared: Option<u32>) -> Vec<Batch> {
    let mut batches = Cluster::new(plan.clone()).batches();
    let mut last: Vec<Batch> = Vec::new();
    for rank in 0..plan.world() {
        if spared == Some(rank) {
            continue;
        }
        let source =
            batches.iter().find(|b| b.source.process.is_some_and(|p| p.rank == Rank(rank))).unwrap().source.clone();
        let noticed_at = HostTime(T0 + at + u64::from(rank) * 3 * MS);
        let mut records = vec![Record::Sampled(Sampled {
            at: noticed_at,
            ops_in_flight: 0,
            flows_in_flight: 0,
            alive: false,
            stopped: false,
        })];
        records.push(Record::ProcessExit(ProcessExit::unread(noticed_at, clean)));
        last.push(Batch { source, collected_at: noticed_at, records });
    }
    batches.extend(last);
    mycroft_record::batch::sort_as_collected(&mut batches);
    batches
}

fn end(plan: &Plan, clean: bool, at: u64, spared: Option<u32>) -> Outcome {
    drive(&closing(plan, clean, at, spared), at + 4_000 * MS, |_| 0)
}

#[test]
fn an_orderly_end_is_no_crash() {
    let mut plan = Plan::new(4, 4, 4, 1, 4);
    plan.until = 9_000 * MS;
    let outcome = end(&plan, true, 9_100 * MS, None);
    assert!(outcome.engine.cases().is_empty(), "{}", outcome.text());
}

#[test]
fn an_orderly_end_closes_what_is_open() {
    let plan = Plan::new(4, 4, 4, 1, 4).fault(Fault::GpuPower(9));
    let outcome = end(&plan, true, 16_100 * MS, None);
    let case = outcome.case();
    assert_eq!(case.closed_because, "the job ended in good order", "{}", outcome.text());
    assert_eq!(case.finding.what, What::Slowdown);
}

#[test]
fn ranks_that_a_launcher_kills_after_a_crash_are_not_the_culprit() {
    let mut plan = Plan::new(4, 4, 4, 1, 4).fault(Fault::Crash(6));
    plan.until = 10_000 * MS;
    let outcome = end(&plan, false, 10_050 * MS, Some(6));
    let finding = &outcome.case().finding;
    assert_eq!((finding.what, finding.category), (What::Crash, Category::ProcessExit));
    assert!(matches!(&finding.suspects[0].place, Place::Rank { rank: Rank(6), .. }), "{}", outcome.text());
}

#[test]
fn a_slowdown_that_ends_is_closed() {
    let mut plan = Plan::new(4, 4, 4, 1, 4).fault(Fault::GpuPower(9));
    plan.fault_ends = 13_000 * MS;
    plan.until = 22_000 * MS;
    let outcome = run(plan);
    let because = &outcome.case().closed_because;
    assert_eq!(because, "its suspect takes no longer than its peers do", "{}", outcome.text());
}

/// Mycroft section 8, case three (b).
#[test]
fn operations_issued_in_different_orders_are_a_deadlock() {
    let mut hand = Hand::new(2);
    for at in (1_100..13_000).step_by(100) {
        hand.look(0, at, &[meta(1, 0, 0, true), meta(2, 0, 0, false)], vec![]);
        hand.look(1, at, &[meta(2, 0, 1, true), meta(1, 0, 1, false)], vec![]);
        hand.engine.tick(HostTime(T0 + at * MS));
    }
    let text = render(&hand.engine.report(HostTime(T0 + 13_000 * MS)));
    let finding = &hand.engine.cases()[0].finding;
    assert_eq!((finding.what, finding.category), (What::Deadlock, Category::CodeDivergence), "{text}");
    assert!(
        text.contains("rank 0 waits in AllReduce A #0 for rank 1; rank 1 waits in AllReduce B #0 for rank 0"),
        "{text}"
    );
    golden("deadlock", &text);
}

#[test]
fn a_rank_whose_records_were_lost_is_unknown() {
    let mut hand = Hand::new(2);
    for at in (1_100..13_000).step_by(100) {
        hand.look(0, at, &[meta(1, 0, 0, true)], vec![]);
        let lost = Gap { noticed_at: HostTime(T0 + at * MS), lost: 9, cause: GapCause::RingLapped };
        hand.look(1, at, &[], vec![Record::Gap(lost)]);
        hand.engine.tick(HostTime(T0 + at * MS));
    }
    let text = render(&hand.engine.report(HostTime(T0 + 13_000 * MS)));
    assert_eq!(hand.engine.cases()[0].finding.category, Category::Unknown, "{text}");
    assert!(text.contains("whose records were lost lately"), "{text}");
    assert!(text.contains("caveat gap: rank 1"), "{text}");
}

/// A stall in one communicator that is caused in another: 0 and 1 wait in A for 2, which is in B with 3, which is idle.
#[test]
fn a_stall_is_followed_across_communicators() {
    let mut hand = Hand::new(4);
    for at in (1_100..13_000).step_by(100) {
        hand.look(0, at, &[meta(1, 0, 0, true)], vec![]);
        hand.look(1, at, &[meta(1, 0, 1, true)], vec![]);
        hand.look(2, at, &[meta(2, 0, 2, true), meta(1, 0, 2, false)], vec![]);
        hand.look(3, at, &[], vec![]);
        hand.engine.tick(HostTime(T0 + at * MS));
    }
    let text = render(&hand.engine.report(HostTime(T0 + 13_000 * MS)));
    let finding = &hand.engine.cases()[0].finding;
    assert_eq!(finding.category, Category::NotStarted, "{text}");
    assert!(matches!(&finding.suspects[0].place, Place::Rank { rank: Rank(3), .. }), "{text}");
}

/// Four ranks that issued A, B and C in turn for six iterations and then these lines; each is in its first and no further.
/// `grid`: A of ranks that lie side by side, B of those one below the other; else all of everybody.
fn after_six_iterations(grid: bool, then: [&[u64]; 4]) -> Hand {
    let all: &[u32] = &[0, 1, 2, 3];
    let mut hand = match grid {
        true => Hand::of(
            2,
            &[(10, "A_0", &[0, 1]), (11, "A_1", &[2, 3]), (20, "B_0", &[0, 2]), (21, "B_1", &[1, 3]), (30, "C", all)],
        ),
        false => Hand::of(2, &[(10, "A", all), (20, "B", all), (30, "C", all)]),
    };
    let op = |rank: u32, line: u64, seq: u64, at_ms: u64, started: bool| {
        let (group, me) = match line {
            1 if grid => (rank / 2, rank % 2),
            2 if grid => (rank % 2, rank / 2),
            _ => (0, rank),
        };
        let at = HostTime(T0 + at_ms * MS);
        let started_at = if started { at } else { HostTime::NONE };
        OpMeta { enqueued_at: at, started_at, ..meta(10 * line + u64::from(group), seq, me, started) }
    };
    for (iteration, at) in (1_000u64..).step_by(600).enumerate().take(6) {
        for (rank, line) in (0..4).flat_map(|rank| [1, 2, 3].map(|line| (rank, line))) {
            let op = op(rank, line, iteration as u64, at + 200 * line, true);
            let ended_at = op.started_at + 50 * MS;
            let done = OpDone { op, ended_first_at: ended_at, ended_at, flows: 0, observed: true };
            hand.tell(rank, ended_at, vec![Record::OpDone(done)]);
        }
    }
    for at in (5_000..17_000).step_by(100) {
        for rank in 0..4 {
            let lines = then[rank as usize];
            let seq = |n: usize| 6 + lines[..n].iter().filter(|line| **line == lines[n]).count() as u64;
            let issued = (0..lines.len()).map(|n| op(rank, lines[n], seq(n), 4_800 + n as u64, n == 0));
            hand.look(rank, at, &issued.collect::<Vec<_>>(), vec![]);
        }
        hand.tick(at);
    }
    hand
}

/// Its peers keep to the order and wait: they are not as likely as the one that left it.
#[test]
fn of_a_cycle_those_that_left_their_order_are_named() {
    let due: &[u64] = &[1, 2, 3];
    for (grid, then, suspects, what) in [
        (false, [&[2, 1, 3], due, due, due], vec!["rank 0"], What::Deadlock),
        (false, [due, due, &[2, 1, 3], due], vec!["rank 2"], What::Deadlock),
        (true, [&[2, 1, 3], due, due, &[2, 1, 3]], vec!["rank 0", "rank 3"], What::Deadlock),
        // It goes on with the next iteration, in which it is one behind.
        (false, [&[2, 3, 1, 2, 3], due, due, due], vec!["rank 0"], What::Desync),
        (false, [due, due, due, &[2, 3, 1, 2, 3]], vec!["rank 3"], What::Desync),
    ] {
        let hand = after_six_iterations(grid, then);
        let (text, finding) = (hand.text(17_000), &hand.engine.cases()[0].finding);
        assert_eq!((finding.what, finding.category), (what, Category::CodeDivergence), "{then:?}\n{text}");
        assert_eq!(hand.suspects(), suspects, "{then:?}\n{text}");
        assert!(text.contains("where it always issued AllReduce A"), "{text}");
    }
}

/// Hosts 1 and 2 vanish with their agents. The last that was heard of them is that rank 2 had left what rank 0 still is in,
/// alone.
#[test]
fn hosts_that_vanish_are_named_and_not_who_waits_for_them() {
    let named = |a: &[u32], host2_last_heard: u64| {
        let mut hand = Hand::of(2, &[(1, "A", a), (2, "B", &[0, 2]), (3, "C", &[4, 5])]);
        for rank in 2..4 {
            hand.look(rank, 1_100, &[], vec![]);
        }
        let left = meta(2, 0, 1, true);
        let ended = HostTime(T0 + 1_050 * MS);
        let done = OpDone { op: left, ended_first_at: ended, ended_at: ended, flows: 0, observed: true };
        hand.look(2, 1_100, &[], vec![Record::OpDone(done)]);
        for at in (1_100..13_000).step_by(100) {
            hand.look(0, at, &[meta(2, 0, 0, true)], vec![]);
            hand.look(1, at, &[meta(1, 0, 1, true)], vec![]);
            if at <= host2_last_heard {
                hand.look(4, at, &[], vec![]);
                hand.look(5, at, &[], vec![]);
            }
            hand.tick(at);
        }
        let text = hand.text(13_000);
        assert_eq!(hand.engine.cases()[0].finding.category, Category::Unknown, "{text}");
        hand.suspects()
    };
    assert_eq!(named(&[0, 1, 2, 3, 4, 5], 1_100), ["host1", "host2"]);
    let not_awaited = [0, 1, 2, 3];
    assert_eq!(named(&not_awaited, 1_100), ["host1", "host2"]);
    assert_eq!(
        named(&not_awaited, 1_900),
        ["host1", "host2"],
        "each agent has sent what it saw up to its own last turn"
    );
    assert_eq!(named(&not_awaited, 4_000), ["host1"], "seconds later is another story");
}

/// A group of two gathers and scatters by turns. One leaves a scatter out: what it does now it has done often, but not then.
#[test]
fn of_two_that_disagree_the_one_out_of_turn_is_named() {
    let mut hand = Hand::of(2, &[(1, "A", &[0, 2])]);
    let turn = |seq: u64| if seq.is_multiple_of(2) { OpKind::ReduceScatter } else { OpKind::AllGather };
    let op = |seq: u64, rank: u32, kind: OpKind| {
        let enqueued_at = HostTime(T0 + seq * 10 * MS);
        OpMeta { kind, enqueued_at, started_at: enqueued_at, ..meta(1, seq, rank / 2, true) }
    };
    for (seq, rank) in (0..20).flat_map(|seq| [(seq, 0), (seq, 2)]) {
        let op = op(seq, rank, turn(seq));
        let ended = op.started_at + MS;
        let done = OpDone { op, ended_first_at: ended, ended_at: ended, flows: 0, observed: true };
        hand.tell(rank, ended, vec![Record::OpDone(done)]);
    }
    for at in (300..13_000).step_by(100) {
        hand.look(0, at, &[op(20, 0, turn(20))], vec![]);
        hand.look(2, at, &[op(20, 2, turn(21))], vec![]);
        hand.tick(at);
    }
    let (text, finding) = (hand.text(13_000), &hand.engine.cases()[0].finding);
    assert_eq!((finding.what, finding.category), (What::Desync, Category::CodeDivergence), "{text}");
    assert_eq!(hand.suspects(), ["rank 2"], "{text}");
    assert!(text.contains("never before at this point on rank 2"), "{text}");
}

/// Host 1 and, as no operation shows, host 2 lose all processes at once; rank 0 waits, and rank 1 waits for it later.
#[test]
fn hosts_whose_processes_die_at_once_are_named_with_all_who_wait() {
    let mut hand = Hand::of(2, &[(1, "A", &[0, 2, 3]), (2, "B", &[0, 1]), (3, "C", &[4, 5])]);
    let a = |me: u32, started: bool| meta(1, 0, me, started);
    for at in (1_100..5_000).step_by(100) {
        hand.look(0, at, &[a(0, true), meta(2, 0, 0, false)], vec![]);
        let late = [meta(2, 0, 1, true)];
        hand.look(1, at, if at < 3_500 { &[] } else { &late }, vec![]);
        if at < 2_000 {
            hand.look(2, at, &[a(1, true)], vec![]);
            hand.look(3, at, &[a(2, false)], vec![]);
            hand.look(4, at, &[], vec![]);
            hand.look(5, at, &[], vec![]);
        } else {
            (2..6).for_each(|rank| hand.gone(rank, 2_000 + u64::from(rank)));
        }
        hand.tick(at);
        if at == 3_000 {
            assert_eq!(hand.engine.cases()[0].blast_radius.len(), 1, "{}", hand.text(at));
        }
    }
    let (text, case) = (hand.text(5_000), &hand.engine.cases()[0]);
    assert_eq!(case.finding.what, What::Crash, "{text}");
    assert_eq!(hand.suspects(), ["host1", "host2"], "{text}");
    let waits: Vec<&str> = case.blast_radius.iter().map(|entry| entry.text.as_str()).collect();
    let expected = ["rank 0 waits in AllReduce A #0 for rank 3", "rank 1 waits in AllReduce B #0 for rank 0"];
    assert_eq!(waits, expected, "{text}");
}

/// One of a host's two processes is gone: that is no host.
#[test]
fn a_host_is_not_named_for_a_part_of_it() {
    let mut hand = Hand::of(2, &[(1, "A", &[0, 1, 2, 3, 4, 5])]);
    for at in (1_100..5_000).step_by(100) {
        for rank in (0..6).filter(|rank| at < 2_000 || ![2, 4].contains(rank)) {
            hand.look(rank, at, &[meta(1, 0, rank, true)], vec![]);
        }
        if at >= 2_000 {
            [2, 4].iter().for_each(|rank| hand.gone(*rank, at + u64::from(*rank)));
        }
        hand.tick(at);
    }
    assert_eq!(hand.suspects(), ["rank 2"], "{}", hand.text(5_000));
}

/// Four ranks, two a host, that add up what they have every fifth of a second; now and then, once in so many iterations, one
/// of them issues it more than a second after the others.
fn late_now_and_then(late: &[u32], every: usize) -> Hand {
    let mut hand = Hand::of(2, &[(1, "A", &[0, 1, 2, 3])]);
    let mut at = 1_000;
    for iteration in 0..late.len() * every + 30 {
        let late = late.get(iteration / every).copied().filter(|_| iteration % every == every - 1);
        let end = at + if late.is_some() { 1_500 } else { 200 };
        let op = |rank: u32, from: u64| {
            let started_at = HostTime(T0 + from * MS);
            OpMeta { count: 65_536, enqueued_at: started_at, started_at, ..meta(1, iteration as u64, rank, true) }
        };
        let begun = |rank: u32| if late == Some(rank) { vec![] } else { vec![op(rank, at)] };
        for now in (at..end).step_by(100) {
            (0..4).for_each(|rank| hand.look(rank, now + 50, &begun(rank), vec![]));
            hand.tick(now + 50);
        }
        for rank in 0..4 {
            let op = begun(rank).pop().unwrap_or_else(|| op(rank, end - 10));
            let ended_at = HostTime(T0 + end * MS);
            let done = OpDone { op, ended_first_at: ended_at, ended_at, flows: 0, observed: true };
            hand.tell(rank, ended_at, vec![Record::OpDone(done)]);
        }
        at = end;
    }
    hand
}

/// What is told of a rank that is late again and again is told once, however often it comes.
#[test]
fn a_rank_that_is_late_for_long_has_one_case() {
    let hand = late_now_and_then(&[2; 12], 10);
    assert_eq!(hand.engine.cases().len(), 1, "{}", hand.text(60_000));
    assert_eq!(hand.suspects(), ["rank 2"]);
}

/// Once is a moment; three times within a minute on one host of several is a reason to look there.
#[test]
fn a_rank_that_is_late_again_and_again_is_named() {
    let hand = late_now_and_then(&[2, 2, 2], 10);
    let (text, case) = (hand.text(17_000), &hand.engine.cases()[0]);
    assert_eq!((case.finding.what, case.finding.category), (What::Slowdown, Category::NotStarted), "{text}");
    assert_eq!(hand.suspects(), ["rank 2"], "{text}");
    assert_eq!(case.because[0].rule, "watch.late-again", "{text}");
    for in_turn in [[0, 2, 1], [2, 3, 2]] {
        let hand = late_now_and_then(&in_turn, 10);
        assert!(hand.engine.cases().is_empty(), "ranks that pause in turn collect garbage: {}", hand.text(17_000));
    }
    let hand = late_now_and_then(&[2, 2, 2], 200);
    assert!(hand.engine.cases().is_empty(), "in more than a minute: {}", hand.text(250_000));
}
