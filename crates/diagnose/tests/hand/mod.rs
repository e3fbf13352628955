//! A job told record by record, for what no plan of a cluster draws.
#![allow(dead_code, unreachable_pub)] // each test that includes it uses a part of it
use crate::cluster::{MS, T0};
use mycroft_diagnose::{Config, Engine, render};
use mycroft_record::*;

pub struct Hand {
    pub engine: Engine,
    pub ranks_per_host: u32,
}

pub fn meta(comm: u64, seq: u64, me: u32, started: bool) -> OpMeta {
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
    /// Ranks 0..n of one host, all in communicators A (1) and B (2).
    pub fn new(n: u32) -> Hand {
        let all: Vec<u32> = (0..n).collect();
        Hand::of(n, &[(1, "A", &all), (2, "B", &all)])
    }

    /// So many ranks a host, with these communicators.
    pub fn of(ranks_per_host: u32, comms: &[(u64, &str, &[u32])]) -> Hand {
        // None of these jobs is meant to have just started.
        let config = Config { stall_start_ns: 0, ..Config::default() };
        let mut hand = Hand { engine: Engine::new("hand".into(), config), ranks_per_host };
        for (comm, name, members) in comms {
            for (me, rank) in members.iter().enumerate() {
                let init = Record::CommInit(CommInit {
                    at: HostTime(T0),
                    comm: CommId(*comm),
                    n_ranks: members.len() as u32,
                    n_nodes: 1,
                    comm_rank: CommRank(me as u32),
                    name: (*name).into(),
                });
                hand.tell(*rank, HostTime(T0), vec![init]);
            }
        }
        hand
    }

    pub fn tell(&mut self, rank: u32, at: HostTime, records: Vec<Record>) {
        let source = Source {
            job: "hand".into(),
            host: format!("host{}", rank / self.ranks_per_host).into(),
            process: Some(ProcessKey { rank: Rank(rank), pid: rank + 1, nonce: 1 }),
        };
        self.engine.observe(&Batch { source, collected_at: at, records });
    }

    pub fn tick(&mut self, at_ms: u64) {
        self.engine.tick(HostTime(T0 + at_ms * MS));
    }

    pub fn text(&self, at_ms: u64) -> String {
        render(&self.engine.report(HostTime(T0 + at_ms * MS)))
    }

    /// The process is gone with what it had in flight.
    pub fn gone(&mut self, rank: u32, at_ms: u64) {
        let at = HostTime(T0 + at_ms * MS);
        let looked = Sampled { at, ops_in_flight: 0, flows_in_flight: 0, alive: false, stopped: false };
        self.tell(rank, at, vec![Record::Sampled(looked)]);
    }

    /// The most likely suspects, by name.
    pub fn suspects(&self) -> Vec<String> {
        let suspects = &self.engine.cases()[0].finding.suspects;
        let most = suspects.first().map_or(0.0, |suspect| suspect.confidence);
        let first = suspects.iter().filter(|suspect| suspect.confidence == most);
        let name = |place: &Place| match place {
            Place::Rank { rank, .. } => format!("rank {rank}"),
            Place::Host { host } => host.to_string(),
            Place::Link { .. } => String::new(),
        };
        first.map(|suspect| name(&suspect.place)).collect()
    }

    pub fn look(&mut self, rank: u32, at_ms: u64, ops: &[OpMeta], extra: Vec<Record>) {
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
        self.tell(rank, at, records);
    }
}
