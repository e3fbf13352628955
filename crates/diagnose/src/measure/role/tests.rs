//! Programs of ranks: who does the same as whom.
use super::*;
use mycroft_record::*;

const MS: u64 = NANOS_PER_MS;

/// A rank sends to and receives from the other member of a pair so often in each iteration.
fn exchange(rank: u32, pair: &[u32; 2], comm: u64, often: u64) -> Vec<Record> {
    let me = pair.iter().position(|member| *member == rank).expect("a member") as u32;
    let at = HostTime(1_000 * NANOS_PER_SEC);
    let join = CommInit { at, comm: CommId(comm), n_ranks: 2, n_nodes: 0, comm_rank: CommRank(me), name: "".into() };
    let mut records = vec![Record::CommInit(join)];
    for seq in 1..=often * 8 {
        for (class, kind) in [(OpClass::Send, OpKind::Send), (OpClass::Recv, OpKind::Recv)] {
            let started_at = at + (seq * MS);
            let op = OpMeta {
                id: OpId { comm: CommId(comm), class, peer: CommRank(1 - me), seq: OpSeq(seq) },
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

/// Two stages of two replicas, and experts on both replicas: messages of one size, to peers before and after. Who does the same is
/// in the same stage, wherever it is in the exchange.
#[test]
fn a_stage_is_told_from_an_exchange_by_how_often_messages_come() {
    let pairs: [([u32; 2], u64); 4] = [([0, 2], 2), ([1, 3], 2), ([0, 1], 8), ([2, 3], 8)];
    let mut timeline = Timeline::default();
    for rank in 0..4 {
        let of = pairs.iter().zip(1..).filter(|((pair, _), _)| pair.contains(&rank));
        let records: Vec<Record> = of.flat_map(|((pair, often), comm)| exchange(rank, pair, comm, *often)).collect();
        let process = ProcessKey { rank: Rank(rank), pid: rank, nonce: 1 };
        let source = Source { job: "job".into(), host: "host".into(), process: Some(process) };
        let collected_at = HostTime(1_010 * NANOS_PER_SEC);
        timeline.observe(&Batch { source, collected_at, records }, 500_000);
    }
    timeline.settle();
    let roles = of_all(&timeline);
    let slot = |rank| timeline.ranks.slots().find(|slot| timeline.ranks.at(*slot).rank == Rank(rank)).unwrap();
    let role = |rank| roles[slot(rank) as usize];
    assert_eq!((role(0), role(2)), (role(1), role(3)));
    assert_ne!(role(0), role(2));
}
