//! What ranks have done lately, from hand-made records.
mod cluster;
mod hand;

use cluster::{MS, T0};
use hand::{Hand, meta};
use mycroft_diagnose::operations::{Operations, Stage, Wanted};
use mycroft_record::*;

const ALL: Wanted = Wanted { group: None, groups: 8, ranks: 8, first: None, columns: 4, in_flight: 8 };

/// Four ranks in A, the first two in B. All have done operations 0 to 9 of A; rank 3 alone is not in number 10. Of B nothing is behind.
fn job() -> Hand {
    let mut hand = Hand::of(2, &[(1, "A", &[0, 1, 2, 3]), (2, "B", &[0, 1])]);
    for rank in 0..4 {
        let done = |comm: u64, seq: u64| {
            let at = HostTime(T0 + (100 + 10 * seq) * MS);
            let op = meta(comm, seq, rank, true);
            Record::OpDone(OpDone { op, ended_at: at, ended_first_at: at, flows: 0, observed: true })
        };
        let mut over: Vec<Record> = (0..10).map(|seq| done(1, seq)).collect();
        over.extend((0..6).filter(|_| rank < 2).map(|seq| done(2, seq)));
        let issued =
            OpMeta { enqueued_at: HostTime(T0 + (990 - u64::from(rank)) * MS), ..meta(1, 10, rank, rank == 0) };
        let ops = if rank < 3 { vec![issued] } else { vec![] };
        hand.look(rank, 1_100, &ops, over);
    }
    hand.tick(1_200);
    hand
}

fn told(wanted: Wanted) -> Operations {
    job().engine.operations(&wanted)
}

#[test]
fn the_group_in_which_somebody_is_behind_comes_first() {
    let told = told(ALL);
    let heads: Vec<(&str, u64, u64, u64)> =
        told.groups.iter().map(|one| (&*one.name, one.ranks, one.next, one.behind)).collect();
    assert_eq!(heads, [("A", 4, 11, 1), ("B", 2, 6, 0)]);
    let rows = &told.groups[0].rows;
    let stages = |at: usize| rows[at].ops.iter().map(|op| (op.seq, op.stage)).collect::<Vec<_>>();
    assert_eq!(stages(0), [(7, Stage::Over), (8, Stage::Over), (9, Stage::Over), (10, Stage::Running)]);
    assert_eq!(stages(1)[3], (10, Stage::Issued));
    assert_eq!((stages(3).last(), rows[3].next, &*rows[3].host), (Some(&(9, Stage::Over)), 10, "host1"));
    assert!(rows.iter().flat_map(|row| &row.ops).all(|op| op.kind == OpKind::AllReduce));
    // Longest first: rank 2 issued it before rank 1; rank 0's device began later.
    let flying: Vec<(Rank, Stage)> = told.in_flight.iter().map(|op| (op.rank, op.stage)).collect();
    assert_eq!(flying, [(Rank(2), Stage::Issued), (Rank(1), Stage::Issued), (Rank(0), Stage::Running)]);
    assert_eq!(told.in_flight[0].what, "AllReduce A #10");
}

#[test]
fn what_is_wanted_bounds_what_is_told() {
    let few = told(Wanted { groups: 1, ranks: 1, columns: 1, in_flight: 1, ..ALL });
    assert_eq!((few.groups.len(), few.more_groups, few.in_flight.len(), few.more_in_flight), (1, 1, 1, 2));
    // Of the ranks the one that is behind, of operations the newest.
    let row = &few.groups[0].rows[0];
    assert_eq!((few.groups[0].rows.len(), row.rank, row.ops.len()), (1, Rank(3), 0), "it has not issued number 10");
    let page = told(Wanted { first: Some(Rank(1)), ranks: 2, group: Some(CommId(2)), ..ALL });
    let ranks: Vec<Rank> = page.groups[0].rows.iter().map(|row| row.rank).collect();
    assert_eq!((page.groups.len(), &*ranks, page.in_flight.len()), (1, &[Rank(1)][..], 0));
    assert_eq!(told(Wanted { group: Some(CommId(9)), ..ALL }).groups, []);
}
