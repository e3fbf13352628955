//! Stories with an end: figure 7 of the paper, a deadlock, lost records, orderly ends, launchers that kill the rest.
//! Golden reports lie in `tests/golden`; `MYCROFT_UPDATE_GOLDEN=1` rewrites them.
mod cluster;

use cluster::{Cluster, Fault, MS, Outcome, Plan, T0, drive, run};
use mycroft_diagnose::{Config, Engine, render};
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
        records.push(Record::ProcessExit(ProcessExit { noticed_at, clean }));
        last.push(Batch { source, collected_at: noticed_at, records });
    }
    batches.extend(last);
    batches.sort_by(|a, b| (a.collected_at, &a.source).cmp(&(b.collected_at, &b.source)));
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
    assert_eq!(outcome.case().closed_because, "iterations are as fast as before", "{}", outcome.text());
}

struct Hand {
    engine: Engine,
}

fn process(rank: u32) -> Source {
    Source {
        job: "hand".into(),
        host: "host0".into(),
        process: Some(ProcessKey { rank: Rank(rank), pid: rank + 1, nonce: 1 }),
    }
}

fn meta(comm: u64, seq: u64, me: u32, started: bool) -> OpMeta {
    OpMeta {
        id: OpId { comm: CommId(comm), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) },
        kind: OpKind::AllReduce,
        nccl_seq: seq,
        comm_rank: CommRank(me),
        count: 64,
        datatype: Datatype::Float32,
        root: u32::MAX,
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        n_channels: 1,
        enqueued_at: HostTime(T0 + 900 * MS),
        started_at: if started { HostTime(T0 + 1_000 * MS) } else { HostTime::NONE },
        started_last_at: HostTime::NONE,
    }
}

impl Hand {
    /// Ranks 0..n, all in communicators A (1) and B (2).
    fn new(n: u32) -> Hand {
        let mut engine = Engine::new("hand".into(), Config::default());
        for rank in 0..n {
            let init = |comm: u64, name: &str| {
                Record::CommInit(CommInit {
                    at: HostTime(T0),
                    comm: CommId(comm),
                    n_ranks: n,
                    n_nodes: 1,
                    comm_rank: CommRank(rank),
                    name: name.into(),
                })
            };
            let records = vec![init(1, "A"), init(2, "B")];
            engine.observe(&Batch { source: process(rank), collected_at: HostTime(T0), records });
        }
        Hand { engine }
    }

    fn look(&mut self, rank: u32, at_ms: u64, ops: &[OpMeta], extra: Vec<Record>) {
        let at = HostTime(T0 + at_ms * MS);
        let mut records: Vec<Record> = ops
            .iter()
            .map(|op| {
                Record::OpState(OpState {
                    sampled_at: at,
                    op: *op,
                    kernels_started: u8::from(op.started_at.is_some()),
                    kernels_stopped: 0,
                    flows_started: 0,
                    flows_done: 0,
                })
            })
            .collect();
        let ops_in_flight = ops.len() as u32;
        records.push(Record::Sampled(Sampled { at, ops_in_flight, flows_in_flight: 0, alive: true, stopped: false }));
        records.extend(extra);
        self.engine.observe(&Batch { source: process(rank), collected_at: at, records });
    }
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
