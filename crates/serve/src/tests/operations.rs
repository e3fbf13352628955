//! Operations of a job over HTTP.
use super::*;
use mycroft_diagnose::operations::{GroupOperations, InFlight, OperationSeen, RankOperations, Stage};
use mycroft_record::{CommId, OpKind};
use serde_json::json;

/// Four ranks of which rank 1 has not issued the newest collective.
pub(super) fn example_operations(wanted: &Wanted) -> Operations {
    let next = 90;
    let row = |rank: u32| {
        let own = if rank == 1 { next - 1 } else { next };
        let kind = |seq: u64| if seq.is_multiple_of(3) { OpKind::AllReduce } else { OpKind::AllGather };
        let stage = |seq: u64| if seq + 1 == next { Stage::Running } else { Stage::Over };
        let ops =
            (next - wanted.columns..own).map(|seq| OperationSeen { seq, kind: kind(seq), stage: stage(seq) }).collect();
        RankOperations { rank: Rank(rank), host: format!("host{}", rank / 2).as_str().into(), next: own, ops }
    };
    let flight = |rank: u32| InFlight {
        rank: Rank(rank),
        host: format!("host{}", rank / 2).as_str().into(),
        what: "AllGather TP_0 #89".into(),
        since: HostTime(NEW_YEAR),
        stage: Stage::Running,
        more: 0,
    };
    let group = GroupOperations {
        comm: CommId(0xfeed_0000_0000_0001),
        name: "TP_0".into(),
        ranks: 4,
        next,
        behind: 1,
        rows: (0..4).filter(|rank| wanted.first.is_none_or(|first| *rank >= first.0)).map(row).collect(),
    };
    Operations {
        groups: vec![group],
        more_groups: 2,
        in_flight: vec![flight(0), flight(2), flight(3)],
        more_in_flight: 0,
    }
}

#[test]
fn operations_are_told_by_communicator_and_rank() {
    let world = World::start(quick());
    world.send("train", &[NOTHING]);
    world.until("/api/v1/jobs", |told| told["jobs"][0]["name"] == "train");
    let told = world.json("/api/v1/jobs/train/operations?columns=8");
    let group = &told["groups"][0];
    assert_eq!(
        (&group["communicator"], &group["behind"], &told["more_groups"]),
        (&json!("feed000000000001"), &json!(1), &json!(2))
    );
    assert_eq!((&group["rows"][1]["rank"], &group["rows"][1]["next"]), (&json!(1), &json!(89)));
    let last = group["rows"][0]["ops"].as_array().expect("operations").last().expect("one");
    let kind = &told["kinds"][last[1].as_u64().expect("a place") as usize];
    assert_eq!((last, kind), (&json!([89, 0, 1]), &json!("AllGather")));
    assert_eq!(told["in_flight"][1]["what"], "AllGather TP_0 #89");
    let paged = world.json("/api/v1/jobs/train/operations?first=2");
    assert_eq!(paged["groups"][0]["rows"][0]["rank"], 2);
    for (path, status) in [
        ("train/operations?columns=65", 400),
        ("train/operations?ranks=0", 400),
        ("train/operations?group=xyz", 400),
        ("train/operations?row=1", 400),
        ("other/operations", 404),
    ] {
        let answer = get(world.server.http_addr(), &format!("/api/v1/jobs/{path}"), &[]);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
}

/// Of many ranks those are shown first that a case suspects, then those whose state is rare.
#[test]
fn ranks_come_with_trouble_first() {
    let world = World::start(quick());
    world.send("train", &[OPEN, SETTLE]);
    world.until("/api/v1/cases", |told| told["cases"][0]["settled"] == true);
    let told = world.json("/api/v1/ranks?job=train&order=trouble&limit=2");
    let shown: Vec<&serde_json::Value> =
        told["ranks"].as_array().expect("ranks").iter().map(|rank| &rank["rank"]).collect();
    // Rank 1 is the suspect, rank 0 on its host.
    assert_eq!((shown, &told["more"], &told["hosts"]), (vec![&json!(0), &json!(1)], &json!(2), &json!(2)));
    assert_eq!(told["states"].as_object().expect("states").values().filter_map(|n| n.as_u64()).sum::<u64>(), 4);
    assert_eq!(get(world.server.http_addr(), "/api/v1/ranks?job=train&order=size", &[]).status, 400);
}
