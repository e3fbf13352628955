//! What a job may name, with small limits.
use super::*;
use mycroft_record::{CommInit, HostTime, NicState, ProcessExit, Source, StepMark};

const LIMITS: Limits = Limits {
    ranks_of_host: 4,
    comms_of_rank: 3,
    nics_of_host: 2,
    ranks: 10,
    hosts: 5,
    memberships: 12,
    name_bytes: 1000,
};

fn batch(host: &str, process: Option<(u32, u32)>, records: Vec<Record>) -> Batch {
    let process = process.map(|(rank, nonce)| ProcessKey { rank: Rank(rank), pid: 1, nonce });
    Batch { source: Source { job: "job".into(), host: host.into(), process }, collected_at: HostTime(1), records }
}

fn mark() -> Record {
    Record::StepMark(StepMark { at: HostTime(1), step: 1 })
}

fn joined(comm: u64, me: u32, n_ranks: u32, name: &str) -> Record {
    let (at, comm, comm_rank) = (HostTime(1), CommId(comm), CommRank(me));
    Record::CommInit(CommInit { at, comm, n_ranks, n_nodes: 1, comm_rank, name: name.into() })
}

fn nic(name: &str) -> Record {
    let at = HostTime(1);
    let numbers = (0, 0, 0, 0, 0);
    Record::NicState(NicState {
        at,
        nic: name.into(),
        up: true,
        link_changes: numbers.0,
        speed_bytes_per_sec: numbers.1,
        tx_bytes: numbers.2,
        rx_bytes: numbers.3,
        errors: numbers.4,
    })
}

struct World {
    totals: Arc<Totals>,
}

impl World {
    fn new() -> World {
        World { totals: Arc::new(Totals::new(LIMITS)) }
    }

    fn census(&self) -> Census {
        Census::new(Arc::clone(&self.totals))
    }

    fn kept(&self, census: &mut Census, batch: &Batch) -> usize {
        census.admit(batch).map_or(0, |kept| kept.records.len())
    }
}

#[test]
fn invented_ranks_and_hosts_end_at_the_limits_and_known_ones_go_on() {
    let world = World::new();
    let mut census = world.census();
    let known = batch("host0", Some((0, 1)), vec![mark()]);
    assert_eq!(world.kept(&mut census, &known), 1);
    for rank in 0..1000 {
        world.kept(&mut census, &batch("host0", Some((rank, 1)), vec![mark()]));
    }
    assert_eq!(census.ranks.len(), 4, "of one host");
    for n in 0..1000 {
        world.kept(&mut census, &batch(&format!("host{n}"), Some((100 + n, 1)), vec![mark()]));
    }
    assert_eq!((census.ranks.len(), census.hosts()), (8, 5), "four more hosts and their ranks");
    assert_eq!(world.kept(&mut census, &known), 1, "who is known goes on");
    let mut other = world.census();
    for rank in 0..10 {
        world.kept(&mut other, &batch("host0", Some((rank, 1)), vec![mark()]));
    }
    assert!(other.ranks.is_empty(), "no host is left for another job");
    assert_eq!((census.not_kept(), other.not_kept()), (996 + 1 + 995, 10), "what is left out is counted");
    drop(census);
    assert_eq!(world.kept(&mut other, &known), 1, "a retired job makes room");
}

#[test]
fn invented_communicators_names_and_interfaces_end_at_the_limits() {
    let world = World::new();
    let mut census = world.census();
    let many: Vec<Record> = (0..100).map(|comm| joined(comm, 0, 8, "DP")).chain([mark()]).collect();
    assert_eq!(world.kept(&mut census, &batch("host0", Some((0, 1)), many.clone())), 4, "three and the mark");
    assert_eq!(world.kept(&mut census, &batch("host0", Some((0, 1)), many)), 4, "told again they are known");
    let members: Vec<Record> = (0..100).map(|me| joined(7, me, 100, "")).collect();
    assert_eq!(world.kept(&mut census, &batch("host0", Some((1, 1)), members)), 0, "a size that nobody believes");
    let members: Vec<Record> = (0..8).map(|me| joined(7, me, 8, "")).collect();
    assert_eq!(world.kept(&mut census, &batch("host0", Some((1, 1)), members)), 3, "one process is not eight members");
    assert_eq!(world.kept(&mut census, &batch("host0", Some((2, 1)), vec![joined(1, 9, 8, "")])), 0, "not a member");
    let long = "x".repeat(600);
    let long = vec![joined(1, 0, 8, &long), joined(2, 0, 8, &long)];
    assert_eq!(world.kept(&mut census, &batch("host0", Some((2, 1)), long)), 1, "names have bytes");
    let nics: Vec<Record> = (0..50).map(|n| nic(&format!("eth{n}"))).collect();
    assert_eq!(world.kept(&mut census, &batch("host0", None, nics)), 2);
}

#[test]
fn a_communicator_whose_size_is_not_told_is_known() {
    let world = World::new();
    let mut census = world.census();
    let untold = |me: u32| batch("host0", Some((me, 1)), vec![joined(7, me, 0, "DP")]);
    assert_eq!([0, 1].map(|me| world.kept(&mut census, &untold(me))), [1, 1]);
    assert_eq!(world.kept(&mut census, &batch("host0", Some((2, 1)), vec![joined(7, 10, 0, "DP")])), 0, "beyond all");
}

#[test]
fn a_rank_that_comes_back_has_its_communicators_anew() {
    let world = World::new();
    let mut census = world.census();
    for life in 0..50u32 {
        let mut records: Vec<Record> = (0..3).map(|n| joined(u64::from(life) * 3 + n, 0, 8, "")).collect();
        records.push(Record::ProcessExit(ProcessExit::unread(HostTime(1), true)));
        assert_eq!(world.kept(&mut census, &batch("host0", Some((0, life)), records)), 4, "life {life}");
    }
    // Another process under its rank while it lives brings nothing anew: the engine keeps what it has.
    let extra = |nonce| batch("host0", Some((0, nonce)), vec![joined(999, 0, 8, "")]);
    assert_eq!(world.kept(&mut census, &extra(50)), 1, "the last one ended");
    let more: Vec<Record> = (0..9).map(|n| joined(n, 0, 8, "")).collect();
    assert_eq!(world.kept(&mut census, &batch("host0", Some((0, 51)), more)), 2, "two of three are left");
}
