//! One host of a simulated job, as its requester shows it to the coordinator: a state machine without sockets and clocks.
use crate::job::{Job, RANKS_PER_HOST, drawn};
use mycroft_ring::gate::hold::{Order, SILENCE, Who};
use mycroft_ring::gate::plan::{Lane, View, owed, owes};
use mycroft_ring::gate::said::{Here, Request, Seen, Shown};
use mycroft_ring::gate::task::{Answer, Ending, Kind, Place, Way};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

/// A rank comes to its gate within so long, nanoseconds, and to the next entry after so long.
const COMES_WITHIN_NS: u64 = 20_000_000;
const ENTRY_NS: u64 = 1_000_000;

/// When the two ends of each way between hosts met, by the number that whoever connects says.
pub(crate) type Meetings = Arc<Mutex<BTreeMap<u64, u64>>>;

struct Task {
    kind: Kind,
    ordered_ns: u64,
    /// `None`: it waits for the other.
    begun_ns: Option<u64>,
}

struct Rank {
    number: u32,
    /// Entries so far.
    entries: u64,
    /// Entries since it was asked to wait.
    asked: u32,
    /// From then on it waits, while it is held.
    waits_from_ns: u64,
    /// How long each of its tests takes, in the order in which they were ordered.
    tests_ns: Vec<u64>,
    task: Option<Task>,
}

/// The requester and the ranks of one host.
pub(crate) struct Host {
    job: Job,
    number: u32,
    ranks: Vec<Rank>,
    meetings: Meetings,
    holds: bool,
    heard_ns: u64,
    /// What ranks owe to those of other hosts.
    owed: BTreeMap<usize, Vec<Lane>>,
    ended: Option<String>,
    /// How many holds are over.
    pub(crate) holds_count: u32,
}

impl Host {
    pub(crate) fn new(job: Job, number: u32, meetings: Meetings) -> Host {
        let rank = |place: u32| {
            let rank = number * RANKS_PER_HOST + place;
            let entries = job.entries_at_first(rank);
            Rank { number: rank, entries, asked: 0, waits_from_ns: 0, tests_ns: Vec::new(), task: None }
        };
        let (ranks, owed, ended) = ((0..RANKS_PER_HOST).map(rank).collect(), BTreeMap::new(), None);
        let (holds, heard_ns, holds_count) = (false, 0, 0);
        Host { job, number, ranks, meetings, holds, heard_ns, owed, ended, holds_count }
    }

    pub(crate) fn holds(&self) -> bool {
        self.holds
    }

    /// Why its ranks went on without being told, if they did.
    pub(crate) fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// How long the tests of each rank took, in the order in which they were ordered.
    pub(crate) fn tests_ns(&self) -> impl Iterator<Item = &[u64]> {
        self.ranks.iter().map(|rank| &rank.tests_ns[..])
    }

    /// Lets those through that are behind, and all where the coordinator is silent.
    pub(crate) fn turn(&mut self, now_ns: u64) {
        if self.holds && u128::from(now_ns.saturating_sub(self.heard_ns)) > SILENCE.as_nanos() {
            self.let_go();
            self.ended = Some("the coordinator said nothing more".to_owned());
        }
        if !self.holds {
            return;
        }
        let views: Vec<View> = self.ranks.iter().map(|rank| self.view(rank, now_ns)).collect();
        let own = owed(&views);
        for (place, (rank, view)) in self.ranks.iter_mut().zip(&views).enumerate() {
            let others = self.owed.get(&place).is_some_and(|lanes| owes(view, lanes));
            if view.waiting && (others || own.contains_key(&place)) {
                rank.entries += 1;
                rank.asked += 1;
                rank.waits_from_ns = now_ns + ENTRY_NS;
            }
        }
    }

    /// Does what the coordinator says.
    pub(crate) fn answer(&mut self, request: Request, now_ns: u64) -> Shown {
        self.heard_ns = now_ns;
        match request {
            Request::Show => {}
            Request::Hold { .. } => {
                (self.holds, self.ended) = (true, None);
                self.owed.clear();
                for rank in &mut self.ranks {
                    rank.asked = 1;
                    rank.waits_from_ns = now_ns + drawn([2, rank.number.into(), 0, 0]) % COMES_WITHIN_NS;
                }
            }
            Request::RunTo(ranks) => {
                self.owed = ranks.into_iter().map(|(place, lanes)| (place as usize, lanes)).collect();
            }
            Request::Test(orders) if self.holds => orders.iter().for_each(|order| self.order(order, now_ns)),
            Request::Test(_) => {}
            Request::Release | Request::End => self.let_go(),
        }
        self.turn(now_ns);
        if let Some(why) = &self.ended {
            return Err(why.clone());
        }
        let address = Ipv4Addr::from(0x0a00_0001 + self.number).to_ipv6_mapped();
        let ranks = self.ranks.iter().map(|rank| self.seen(rank, now_ns)).collect();
        Ok(Here { address: Some(address), ranks })
    }

    fn let_go(&mut self) {
        self.holds_count += u32::from(std::mem::take(&mut self.holds));
    }

    fn order(&mut self, order: &Order, now_ns: u64) {
        match *order {
            Order::Alone { rank, kind } => {
                let begun_ns = match kind {
                    Kind::Pair(Way { place: Place::Accept(_), .. }) => None,
                    Kind::Pair(Way { place: Place::Connect(remote, port), .. }) => {
                        assert_eq!(port, port_of(remote.address));
                        self.meetings.lock().unwrap().insert(remote.nonce, now_ns);
                        Some(now_ns)
                    }
                    _ => Some(now_ns),
                };
                self.begin(rank, kind, begun_ns, now_ns);
            }
            Order::Pair { keeper, guest, comm, bytes, patience } => {
                let patience_ns = patience.as_nanos() as u64;
                for (rank, peer) in [(keeper.0, guest.1), (guest.0, keeper.1)] {
                    let way = Way { comm, peer, place: Place::Own, bytes, patience_ns };
                    self.begin(rank, Kind::Pair(way), Some(now_ns), now_ns);
                }
            }
        }
    }

    fn begin(&mut self, place: usize, kind: Kind, begun_ns: Option<u64>, ordered_ns: u64) {
        let (job, rank) = (self.job, &mut self.ranks[place]);
        let busy = rank.task.as_ref().is_some_and(|task| {
            task.begun_ns.is_some_and(|begun_ns| ordered_ns < begun_ns + job.test_ns(rank.number, &task.kind))
        });
        assert!(!busy, "rank {} is asked for two tests at once", rank.number);
        rank.tests_ns.push(job.test_ns(rank.number, &kind));
        rank.task = Some(Task { kind, ordered_ns, begun_ns });
    }

    fn view(&self, rank: &Rank, now_ns: u64) -> View {
        View {
            has_gate: true,
            waiting: self.holds && now_ns >= rank.waits_from_ns,
            entries: rank.asked,
            left: None,
            untracked: 0,
            lanes: self.job.lanes(rank.number, rank.entries),
        }
    }

    fn seen(&self, rank: &Rank, now_ns: u64) -> Seen {
        let who = Who { pid: 1_000 + rank.number, rank: rank.number };
        let answer = rank.task.as_ref().and_then(|task| self.answer_of(rank, task, now_ns));
        let port = rank.task.as_ref().and_then(|task| match task.kind {
            Kind::Pair(Way { place: Place::Accept(remote), .. }) => Some(port_of(remote.address)),
            _ => None,
        });
        Seen { who, view: self.view(rank, now_ns), answer, port }
    }

    /// What its test gave, when it is over.
    fn answer_of(&self, rank: &Rank, task: &Task, now_ns: u64) -> Option<Answer> {
        let met = |nonce: u64| self.meetings.lock().unwrap().get(&nonce).copied();
        let (begun_ns, patience_ns) = match task.kind {
            Kind::Pair(Way { place: Place::Accept(remote), patience_ns, .. }) => (met(remote.nonce), patience_ns),
            _ => (task.begun_ns, 0),
        };
        let answer = self.job.answer(rank.number, &task.kind, rank.tests_ns.len() as u64);
        let Some(begun_ns) = begun_ns else {
            let apart = Answer { ending: Ending::Apart, ..answer };
            return (now_ns > task.ordered_ns + patience_ns).then_some(apart);
        };
        (now_ns >= begun_ns + self.job.test_ns(rank.number, &task.kind)).then_some(answer)
    }
}

/// At which a host's ranks accept connections.
fn port_of(address: Ipv6Addr) -> u16 {
    40_000 + address.segments()[7] % 1_000
}
