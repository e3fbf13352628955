//! What the scripted brain tells: a case, a report and measurements with every field filled.
use super::NEW_YEAR;
use mycroft_diagnose::{
    BlastEntry, Carried, Case, CaseId, CaseState, Caveat, Ending, Evidence, How, Life, Measured, Part, RankSummary,
    Reason, Report, Said, Seat, Spent, Stretch, Threshold,
};
use mycroft_record::{
    Category, ChannelId, CommId, CommRank, Direction, Finding, HostTime, JobName, NANOS_PER_SEC, OpClass, OpId, OpKind,
    OpSeq, Place, Rank, Suspect, What,
};
use std::sync::Arc;

/// Two minutes of iterations of so many ranks, two or eight a host, before `now`: a tenth of a second each, and in the last minute half as much more, of
/// which rank 1 computes.
pub(super) fn example_measured(now: HostTime, ranks: u32) -> Measured {
    let per_host = if ranks > 8 { 8 } else { 2 };
    let seat =
        |rank: u32| Seat { rank: Rank(rank), host: format!("host{}", rank / per_host).as_str().into(), peers: 0 };
    let stretch = |second: u64| {
        let start = now - (122 - second) * NANOS_PER_SEC;
        let ms = if second < 60 { 100.0 } else { 150.0 };
        let iterations = (1..=6).map(|nth| (start + nth * 150_000_000, ms)).collect();
        let spent = |rank: u32| {
            let computes = if rank == 1 { ms as f32 - 40.0 } else { 60.0 };
            let mut exposed_ms = [computes, 5.0, 4.0, 1.0, 10.0, 0.0];
            exposed_ms[Part::OWN] = ms as f32 - exposed_ms.iter().sum::<f32>();
            Some(Spent { took_ms: [computes, 5.0, 8.0, 1.0, 15.0], exposed_ms })
        };
        // A ring over the hosts, in both directions; the first path gets slow with the rank.
        let hosts = ranks / per_host;
        let host = |number: u32| format!("host{}", number % hosts).as_str().into();
        let way = |from: u32, to: u32| Carried {
            from: host(from),
            to: host(to),
            sent_ms: if (from, to) == (0, 1) && ms > 100.0 { 40.0 } else { 10.0 },
            mb: 8.0,
        };
        let ways = (0..if hosts > 2 { hosts } else { 1 }).flat_map(|at| [way(at, at + 1), way(at + 1, at)]).collect();
        let ranks = (0..ranks).map(spent).collect();
        Stretch { start, end: start + 900_000_000, iterations, ranks, ways }
    };
    Measured { ranks: (0..ranks).map(seat).collect(), stretches: (0..120).map(stretch).collect() }
}

pub(super) fn unsettled() -> Finding {
    let case = example_case(CaseId(0), HostTime(NEW_YEAR));
    Finding { category: Category::Unknown, suspects: Vec::new(), diagnosed_at: HostTime::NONE, ..case.finding }
}

/// A case with every field filled; the documentation shows it.
pub(crate) fn example_case(id: CaseId, now: HostTime) -> Case {
    let comm = CommId(0xfeed_0000_0000_0001);
    let op = OpId { comm, class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(17) };
    let host: Arc<str> = "host1".into();
    Case {
        id,
        state: CaseState::Open,
        finding: Finding {
            what: What::Hang,
            category: Category::NetworkSend,
            suspects: vec![
                Suspect { place: Place::Rank { rank: Rank(1), host: host.clone() }, confidence: 0.9 },
                Suspect { place: Place::Link { from: host.clone(), to: "host0".into() }, confidence: 0.25 },
            ],
            since: HostTime(now.0 - NANOS_PER_SEC),
            detected_at: now,
            diagnosed_at: HostTime(now.0 + NANOS_PER_SEC / 4),
        },
        group: Some(comm),
        op: Some(op),
        because: vec![Reason {
            rule: "flow.not-delivered".into(),
            text: "rank 1 sent 12 of 16 chunks to rank 0 on channel 0, 8 were delivered, nothing moved for 1000 ms"
                .into(),
            evidence: vec![Evidence {
                rank: Some(Rank(1)),
                op: Some(op),
                flow: Some((ChannelId(0), CommRank(0), Direction::Send)),
                at: HostTime(now.0 - NANOS_PER_SEC / 10),
            }],
        }],
        blast_radius: vec![BlastEntry {
            waiting: vec![Rank(0)],
            waits_for: vec![Rank(1)],
            op: Some(op),
            kind: Some(OpKind::AllReduce),
            text: "AllReduce DP_0 #17".into(),
        }],
        do_next: vec!["check the link of host1: ip -s link; ethtool -S".into()],
        opened_at: now,
        updated_at: HostTime(now.0 + NANOS_PER_SEC / 4),
        closed_at: HostTime::NONE,
        closed_because: String::new(),
        revisions: 1,
        said_before: vec![Said {
            until: HostTime(now.0 + NANOS_PER_SEC / 5),
            what: What::Hang,
            category: Category::NotStarted,
            suspects: vec![Suspect { place: Place::Host { host: "host2".into() }, confidence: 0.6 }],
        }],
    }
}

/// A job that was started again after a part of it had failed.
pub(crate) fn example_lives(now: HostTime) -> Vec<Life> {
    let (at, because) = (now - 90 * NANOS_PER_SEC, "rank 5 on host1 went first, the last 5.0 s after it".to_owned());
    let ended = Some(Ending { at, how: How::Failed, because });
    let before = Life { number: 1, began: now - 600 * NANOS_PER_SEC, ended };
    vec![before, Life { number: 2, began: now - 60 * NANOS_PER_SEC, ended: None }]
}

/// A report with every list filled.
pub(crate) fn example_report(job: JobName, now: HostTime) -> Report {
    Report {
        job,
        as_of: now,
        lives: example_lives(now),
        cases: Vec::new(),
        transients: Vec::new(),
        caveats: vec![Caveat::new("gap", "rank 3 lost 12 records").about(&[Rank(3)])],
        ranks: (0..4).map(|rank| example_rank(rank, now)).collect(),
        iteration_ms_median: Some(412.5),
        layout: Vec::new(),
        iteration_ms_spread: Some(2.5),
        iterations: 91,
        thresholds: vec![Threshold { name: "stall", value: 900.0, unit: "ms", why: "floor".into() }],
    }
}

fn example_rank(rank: u32, now: HostTime) -> RankSummary {
    RankSummary {
        rank: Rank(rank),
        host: format!("host{}", rank / 2).as_str().into(),
        pid: 4000 + rank,
        iterations: 91,
        iteration_ms: Some(411.0),
        computation_ms: Some(300.0),
        in_flight: 1,
        last_progress_at: HostTime(now.0 - NANOS_PER_SEC),
        last_seen_at: now,
        state: "waiting",
        doing: "AllReduce DP_0 #17".into(),
        lost: 0,
    }
}
