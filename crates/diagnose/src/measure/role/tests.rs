//! Programs of ranks: who does the same as whom.
use super::*;
use mycroft_record::*;

const MS: u64 = NANOS_PER_MS;

/// A rank sends to each other member of a communicator and receives from it so often in each iteration.
fn exchange(rank: u32, members: &[u32], comm: u64, often: u64) -> Vec<Record> {
    let me = members.iter().position(|member| *member == rank).expect("a member") as u32;
    let (at, n_ranks) = (HostTime(1_000 * NANOS_PER_SEC), members.len() as u32);
    let join = CommInit { at, comm: CommId(comm), n_ranks, n_nodes: 0, comm_rank: CommRank(me), name: "".into() };
    let mut records = vec![Record::CommInit(join)];
    let peers = (0..n_ranks).filter(|peer| *peer != me);
    for (seq, peer) in peers.flat_map(|peer| (1..=often * 8).map(move |seq| (seq, peer))) {
        for (class, kind) in [(OpClass::Send, OpKind::Send), (OpClass::Recv, OpKind::Recv)] {
            let started_at = at + (seq * MS);
            let op = OpMeta {
                id: OpId { comm: CommId(comm), class, peer: CommRank(peer), seq: OpSeq(seq) },
                kind,
                nccl_seq: 0,
                comm_rank: CommRank(me),
                count: 1 << 20,
                datatype: Datatype::Float32,
                root: u32::MAX,
                algorithm: Algorithm::Ring,
                protocol: Protocol::Simple,
                n_channels: 1,
                enqueued_at: started_at,
                started_at,
                started_last_at: HostTime::NONE,
            };
            let ended_at = started_at + MS / 2;
            records.push(Record::OpDone(OpDone { op, ended_first_at: ended_at, ended_at, flows: 0, observed: true }));
        }
    }
    records
}

/// The roles of ranks that exchange messages in communicators, so often each.
fn roles(ranks: u32, comms: &[(&[u32], u64)]) -> Vec<Role> {
    let mut timeline = Timeline::default();
    for rank in 0..ranks {
        let of = comms.iter().zip(1..).filter(|((members, _), _)| members.contains(&rank));
        let records = of.flat_map(|((members, often), comm)| exchange(rank, members, comm, *often)).collect();
        let process = ProcessKey { rank: Rank(rank), pid: rank, nonce: 1 };
        let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
        let collected_at = HostTime(1_010 * NANOS_PER_SEC);
        timeline.observe(&Batch { source, collected_at, records }, 500_000);
    }
    timeline.settle();
    let of = of_all(&timeline);
    let slot = |rank| timeline.ranks.slots().find(|slot| timeline.ranks.at(*slot).rank == Rank(rank));
    (0..ranks).map(|rank| of[slot(rank).expect("it told something") as usize]).collect()
}

/// Two stages of two replicas, and experts on both replicas: the second rank of a stage has a message for one before it and one for one
/// after it, and so has the first of the next stage.
#[test]
fn a_stage_is_told_from_an_exchange_of_two_by_how_often_messages_come() {
    let of = roles(4, &[(&[0, 2], 2), (&[1, 3], 2), (&[0, 1], 8), (&[2, 3], 8)]);
    assert_ne!(of[1], of[2]);
}

/// Who does the same is in the same stage, wherever it is in the exchange.
#[test]
fn ranks_of_an_exchange_of_all_have_one_role() {
    let of =
        roles(8, &[(&[0, 1, 2, 3], 8), (&[4, 5, 6, 7], 8), (&[0, 4], 2), (&[1, 5], 2), (&[2, 6], 2), (&[3, 7], 2)]);
    assert!(of[..4].iter().all(|role| *role == of[0]) && of[4..].iter().all(|role| *role == of[4]), "{of:?}");
    assert_ne!(of[0], of[4]);
}

/// Weights that are sent now and then make the messages of a pipeline frequent, and no exchange of them.
#[test]
fn stages_stay_apart_beside_messages_that_come_more_seldom() {
    let of = roles(3, &[(&[0, 1], 8), (&[0, 2], 1), (&[1, 2], 1)]);
    assert_ne!(of[0], of[1]);
}
