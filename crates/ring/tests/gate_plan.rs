//! Random programs of collectives, pairs and groups, ranks that run at random paces and block inside operations as hosts do:
//! whenever they are asked, they come to one point of the program that divides no operation, and nobody goes further than
//! that demands.
use mycroft_ring::gate::plan::{Lane, Plan, View, latest, may_agree, owed, owes, plan};
use mycroft_ring::gate::{LaneKey, LaneKind};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What ranks do together. Every rank executes the steps that it is a member of, in order, again and again.
#[derive(Clone, Debug)]
enum Step {
    /// A collective of communicator 0 (all) or of a smaller one.
    Collective(usize),
    /// From one to another, outside groups.
    Transfer(usize, usize),
    /// Everybody sends to the rank so far on, and receives, in one group.
    Shift(usize),
}

#[derive(Clone, Debug)]
struct Program {
    ranks: usize,
    /// Members of each communicator.
    comms: Vec<Vec<usize>>,
    steps: Vec<Step>,
    /// Operations after which a host waits until all members have issued them.
    blocks: bool,
}

/// An entry: operations issued at once, each as lane and number of the step it belongs to.
type Entry = Vec<(LaneKey, usize)>;

impl Program {
    fn entry(&self, rank: usize, number: usize) -> Option<Entry> {
        let lane = |kind, other: usize| LaneKey { comm: 1, kind, own: rank as u32, other: other as u32 };
        let n = self.ranks;
        match &self.steps[number % self.steps.len()] {
            Step::Collective(comm) => {
                let members = &self.comms[*comm];
                let own = members.iter().position(|member| *member == rank)? as u32;
                let (comm, other) = (*comm as u64 + 1, members.len() as u32);
                Some(vec![(LaneKey { comm, kind: LaneKind::Collective, own, other }, number)])
            }
            Step::Transfer(from, to) if *from == rank => Some(vec![(lane(LaneKind::Send, *to), number)]),
            Step::Transfer(from, to) if *to == rank => Some(vec![(lane(LaneKind::Recv, *from), number)]),
            Step::Transfer(..) => None,
            Step::Shift(by) => Some(vec![
                (lane(LaneKind::Send, (rank + by) % n), number),
                (lane(LaneKind::Recv, (rank + n - by) % n), number),
            ]),
        }
    }

    /// Whom a rank waits for inside a step that it takes part in.
    fn peers(&self, rank: usize, number: usize) -> Vec<usize> {
        let n = self.ranks;
        match &self.steps[number % self.steps.len()] {
            Step::Collective(comm) => self.comms[*comm].clone(),
            Step::Transfer(from, to) => vec![*from, *to],
            Step::Shift(by) => vec![(rank + by) % n, (rank + n - by) % n],
        }
    }
}

/// A running job.
struct Run {
    program: Program,
    /// Steps that each rank has passed.
    at: Vec<usize>,
    counts: Vec<BTreeMap<(u64, LaneKind, u32), u64>>,
    asked: bool,
    granted: Vec<u32>,
    arrived: Vec<u32>,
    waiting: Vec<bool>,
}

impl Run {
    fn new(program: Program) -> Run {
        let n = program.ranks;
        let zero = || vec![0; n];
        let run = Run {
            at: vec![0; n],
            counts: vec![BTreeMap::new(); n],
            asked: false,
            granted: zero(),
            arrived: zero(),
            waiting: vec![false; n],
            program,
        };
        assert!(may_agree(&run.views()).is_ok());
        run
    }

    /// One rank goes on as far as it may: to its next entry, unless it is blocked in the latest or held at the gate.
    fn go(&mut self, rank: usize) {
        if self.waiting[rank] {
            if self.asked && self.arrived[rank] > self.granted[rank] {
                return;
            }
            self.waiting[rank] = false;
            return self.issue(rank);
        }
        if self.program.blocks && self.at[rank] > 0 {
            let latest = self.at[rank] - 1;
            let takes_part = self.program.entry(rank, latest).is_some();
            if takes_part && self.program.peers(rank, latest).iter().any(|peer| self.at[*peer] <= latest) {
                return;
            }
        }
        while self.program.entry(rank, self.at[rank]).is_none() {
            self.at[rank] += 1;
        }
        if self.asked {
            self.arrived[rank] += 1;
            self.waiting[rank] = true;
        } else {
            self.issue(rank);
        }
    }

    fn issue(&mut self, rank: usize) {
        for (key, _) in self.program.entry(rank, self.at[rank]).expect("an entry") {
            *self.counts[rank].entry((key.comm, key.kind, key.other)).or_default() += 1;
        }
        self.at[rank] += 1;
    }

    fn views(&self) -> Vec<View> {
        let view = |rank: usize| {
            let mut lanes: Vec<Lane> = Vec::new();
            for (comm, members) in self.program.comms.iter().enumerate() {
                if let Some(own) = members.iter().position(|member| *member == rank) {
                    let (comm, other) = (comm as u64 + 1, members.len() as u32);
                    let key = LaneKey { comm, kind: LaneKind::Collective, own: own as u32, other };
                    let count = self.counts[rank].get(&(comm, LaneKind::Collective, other)).copied().unwrap_or(0);
                    lanes.push(Lane { key, count });
                }
            }
            let pairs = self.counts[rank].iter().filter(|((_, kind, _), _)| *kind != LaneKind::Collective);
            let own = rank as u32;
            lanes.extend(
                pairs.map(|(&(comm, kind, other), &count)| Lane { key: LaneKey { comm, kind, own, other }, count }),
            );
            let waiting = self.waiting[rank] && (!self.asked || self.arrived[rank] > self.granted[rank]);
            View { has_gate: true, waiting, lanes, ..View::default() }
        };
        (0..self.program.ranks).map(view).collect()
    }

    /// Asks, and plays until all agree.
    fn agree(&mut self, mut draw: impl FnMut(usize) -> usize) {
        self.asked = true;
        for _ in 0..20_000 {
            match plan(&self.views()) {
                Plan::Agreed => return,
                Plan::GoOn(ranks) => ranks.iter().for_each(|rank| self.granted[*rank] = self.arrived[*rank]),
                Plan::Wait => assert!(latest(&self.views()).is_some()),
            }
            self.go(draw(self.program.ranks));
        }
        panic!("they never agree: at {:?}", self.at);
    }

    /// As `agree`, with a requester for each host, which sees its ranks only, and a coordinator that hears of hosts one after
    /// another while ranks go on.
    fn agree_apart(&mut self, hosts: usize, mut draw: impl FnMut(usize) -> usize) {
        self.asked = true;
        let mut told: BTreeMap<usize, Vec<Lane>> = BTreeMap::new();
        let mut shown = vec![View::default(); self.program.ranks];
        for turn in 0..40_000 {
            let host = turn % hosts;
            let of_host: Vec<usize> = (0..self.program.ranks).filter(|rank| rank % hosts == host).collect();
            self.requester(&of_host, &told);
            let views = self.views();
            of_host.iter().for_each(|rank| shown[*rank] = views[*rank].clone());
            (0..turn % 5).for_each(|_| self.go(draw(self.program.ranks)));
            if host + 1 == hosts {
                if plan(&shown) == Plan::Agreed {
                    return;
                }
                told = owed(&shown);
            }
        }
        panic!("they never agree: at {:?}", self.at);
    }

    /// What a requester does between two words of the coordinator.
    fn requester(&mut self, of_host: &[usize], told: &BTreeMap<usize, Vec<Lane>>) {
        let all = self.views();
        let views: Vec<View> = of_host.iter().map(|rank| all[*rank].clone()).collect();
        let behind = match plan(&views) {
            Plan::GoOn(places) => places.into_iter().map(|place| of_host[place]).collect(),
            _ => Vec::new(),
        };
        let owing = |rank: &&usize| told.get(rank).is_some_and(|told| all[**rank].waiting && owes(&all[**rank], told));
        let owing = of_host.iter().filter(owing).copied();
        behind.into_iter().chain(owing).for_each(|rank| self.granted[rank] = self.arrived[rank]);
    }
}

fn programs() -> impl Strategy<Value = Program> {
    (2usize..6).prop_flat_map(|ranks| {
        let smaller = proptest::sample::subsequence((0..ranks).collect::<Vec<_>>(), 2..=ranks);
        let comms = proptest::collection::vec(smaller, 1..4);
        let step = (0usize..4, 0..ranks, 1..ranks).prop_map(move |(kind, a, by)| match kind {
            0 | 1 => Step::Collective(a),
            2 => Step::Transfer(a, (a + by) % ranks),
            _ => Step::Shift(by),
        });
        (comms, proptest::collection::vec(step, 1..12), any::<bool>()).prop_map(
            move |(mut comms, mut steps, blocks)| {
                comms.insert(0, (0..ranks).collect());
                for step in &mut steps {
                    if let Step::Collective(comm) = step {
                        *comm %= comms.len();
                    }
                }
                // Everybody takes part in something, or it would never come.
                steps.push(Step::Collective(0));
                Program { ranks, comms, steps, blocks }
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]
    #[test]
    fn ranks_agree_on_a_point_that_divides_no_operation(
        program in programs(),
        paces in proptest::collection::vec(any::<u16>(), 1..200),
        before in 0usize..200,
        hosts in 1usize..4,
    ) {
        let mut run = Run::new(program);
        let mut state = 0usize;
        let mut draw = |n: usize| {
            state += 1;
            // Wanders on when the drawn paces are used up.
            (usize::from(paces[state % paces.len()]) + state / paces.len()) % n
        };
        for _ in 0..before {
            run.go(draw(run.program.ranks));
        }
        let issued_most = run.at.iter().copied().max().unwrap_or(0);
        if hosts == 1 {
            run.agree(&mut draw);
        } else {
            run.agree_apart(hosts.min(run.program.ranks), &mut draw);
        }
        // Who is past a step has no peer in it who is not.
        for (rank, at) in run.at.iter().enumerate() {
            for number in (0..*at).filter(|number| run.program.entry(rank, *number).is_some()) {
                let peers = run.program.peers(rank, number);
                prop_assert!(peers.iter().all(|peer| run.at[*peer] > number), "step {number}: at {:?}", run.at);
            }
        }
        // Nobody went further than the one that was furthest when they were asked, and what it obliged others to.
        let furthest = run.at.iter().copied().max().unwrap_or(0);
        prop_assert!(furthest <= issued_most + 2 * run.program.steps.len(), "{furthest} after {issued_most}");
        // And they go on afterwards.
        run.asked = false;
        let at: Vec<usize> = run.at.clone();
        for _ in 0..20_000 {
            run.go(draw(run.program.ranks));
        }
        prop_assert!(run.at.iter().zip(&at).all(|(now, before)| now > before), "{:?}", run.at);
    }
}

#[test]
fn who_is_behind_is_named_and_what_cannot_be_agreed_on_is_refused() {
    let key = |comm, own| LaneKey { comm, kind: LaneKind::Collective, own, other: 2 };
    let view = |waiting, lanes| View { has_gate: true, waiting, lanes, ..View::default() };
    let ahead = view(false, vec![Lane { key: key(1, 0), count: 8 }]);
    let behind = view(false, vec![Lane { key: key(1, 1), count: 7 }]);
    assert_eq!(latest(&[ahead.clone(), behind.clone()]), Some(1), "the other may be inside what it has not issued");
    assert_eq!(plan(&[ahead.clone(), behind]), Plan::Wait);
    assert!(may_agree(std::slice::from_ref(&ahead)).is_err(), "its peer is elsewhere");
    let untracked = View { untracked: 1, ..ahead.clone() };
    assert!(may_agree(&[ahead, untracked]).is_err());
}
