//! What is told of the ways between hosts, by rows made by hand: no simulator, no rank.
use super::*;
use crate::measure::{Cells, Role, Row, Way};
use mycroft_record::{HostName, HostTime, NANOS_PER_SEC};

mod beside;
mod job;
mod sending;

/// The evidence of a job on a ring of four hosts, a row a second.
#[derive(Default)]
struct Ring {
    evidence: Evidence,
    row: u64,
    roles: [Role; 16],
}

impl Ring {
    /// Seconds in which iterations take so long, and data is under way for so long from each host to the next, milliseconds.
    fn seconds(&mut self, count: u64, iteration_ms: f64, sent_ms: [f64; 4]) {
        let ways: Vec<_> = (0..4).map(|host| ((host, host + 1), sent_ms[host])).collect();
        self.of_ways(count, iteration_ms, &ways);
    }

    /// The same beside one way that carries a hundredth of what the others do.
    fn with_light(&mut self, count: u64, iteration_ms: f64, sent_ms: [f64; 4], (way, light_ms): ((usize, usize), f64)) {
        let heavy = (0..4).map(|host| ((host, host + 1), sent_ms[host], 100.0));
        self.of_loads(count, iteration_ms, &heavy.chain([(way, light_ms, 1.0)]).collect::<Vec<_>>());
    }

    /// The same with other ways.
    fn of_ways(&mut self, count: u64, iteration_ms: f64, ways: &[((usize, usize), f64)]) {
        let ways: Vec<_> = ways.iter().map(|(way, sent_ms)| (*way, *sent_ms, 100.0)).collect();
        self.of_loads(count, iteration_ms, &ways);
    }

    /// The same with ways of which each carries so many megabytes an iteration.
    fn of_loads(&mut self, count: u64, iteration_ms: f64, ways: &[((usize, usize), f64, f64)]) {
        for _ in 0..count {
            let start = at(self.row);
            let way = |((from, to), sent_ms, mb): &((usize, usize), f64, f64)| {
                ((name(*from), name(*to)), Way { sent_ms: *sent_ms, mb: *mb, ..Way::default() })
            };
            let ways = ways.iter().map(way).collect();
            let end = start + NANOS_PER_SEC;
            let row = Row { start, end, iterations: 3, iteration_ms, ways, ..Row::default() };
            self.evidence.take(&[], &[], &row);
            self.row += 1;
        }
    }

    /// Seconds in which threads of each host wait for a processor for so large a share of the time.
    fn waits(&mut self, count: u64, iteration_ms: f64, sent_ms: [f64; 4], waits: [f64; 4]) {
        for _ in 0..count {
            let start = at(self.row);
            let way = |host: usize| {
                ((name(host), name(host + 1)), Way { sent_ms: sent_ms[host], mb: 100.0, ..Way::default() })
            };
            let ways = (0..4).map(way).collect();
            let waits = (0..4).map(|host| (name(host), waits[host])).collect();
            let end = start + NANOS_PER_SEC;
            let row = Row { start, end, iterations: 3, iteration_ms, ways, waits, ..Row::default() };
            self.evidence.take(&[], &[], &row);
            self.row += 1;
        }
    }

    /// Seconds of 16 ranks, four on each host, that take so many milliseconds of each component; all else is as in `like`.
    fn of_ranks(&mut self, count: u64, like: &Row, ms: impl Fn(usize, Component) -> f64) {
        let hosts: Vec<HostName> = (0..16).map(|rank| name(rank / 4)).collect();
        for _ in 0..count {
            let start = at(self.row);
            let ranks = (0..16).map(|rank| Some(Cells::of(|component| ms(rank, component)))).collect();
            let row = Row { start, end: start + NANOS_PER_SEC, iterations: 3, ranks, ..like.clone() };
            self.evidence.take(&hosts, &self.roles, &row);
            self.row += 1;
        }
    }

    /// What the only cause is told with first.
    fn because(&self) -> String {
        let causes = causes(&Timeline::default(), &Config::default(), &self.evidence);
        let [cause] = &causes[..] else { panic!("{} causes", causes.len()) };
        cause.because[0].text.clone()
    }

    /// The kind of fault of each cause, and what it is about.
    fn causes(&self) -> Vec<(Category, Subject)> {
        let causes = causes(&Timeline::default(), &Config::default(), &self.evidence);
        causes.into_iter().map(|cause| (cause.category, cause.key.1)).collect()
    }

    /// The kind of fault of the only cause, whom it names, and since which second; `None`: there is none.
    fn told(&self) -> Option<(Category, Vec<Place>, u64)> {
        let causes = causes(&Timeline::default(), &Config::default(), &self.evidence);
        let [cause] = &causes[..] else { return None };
        let named = cause.suspects.iter().map(|suspect| suspect.place.clone()).collect();
        Some((cause.category, named, cause.since.0 / NANOS_PER_SEC - 1_000))
    }
}

fn at(second: u64) -> HostTime {
    HostTime((1_000 + second) * NANOS_PER_SEC)
}

fn name(host: usize) -> HostName {
    HostName::from(format!("host{}", host % 4).as_str())
}

/// Other traffic at the NICs of two neighbours is on three of the four ways: both are told, within seconds.
#[test]
fn two_slow_nics_are_told_within_seconds() {
    let mut ring = Ring::default();
    ring.seconds(20, 300.0, [20.0; 4]);
    assert_eq!(causes(&Timeline::default(), &Config::default(), &ring.evidence), []);
    ring.seconds(4, 600.0, [320.0, 320.0, 320.0, 20.0]);
    let told = causes(&Timeline::default(), &Config::default(), &ring.evidence);
    let [cause] = &told[..] else { panic!("{told:?}") };
    let named: Vec<&Place> = cause.suspects.iter().map(|suspect| &suspect.place).collect();
    let host = |host| Place::Host { host: name(host) };
    assert_eq!((cause.category, named), (Category::NetworkCongestion, vec![&host(1), &host(2)]));
    assert_eq!(cause.since, at(20));
}

/// Where a path is slow for sure, few iterations that are longer since then are enough.
#[test]
fn a_path_is_told_after_few_iterations() {
    let mut ring = Ring::default();
    let ways = |slow_ms: f64| {
        let both = (0..3).flat_map(|host| [(host, host + 1), (host + 1, host)]);
        both.map(|way| (way, if way == (1, 2) || way == (2, 1) { slow_ms } else { 20.0 })).collect::<Vec<_>>()
    };
    ring.of_ways(10, 300.0, &ways(20.0));
    ring.of_ways(3, 500.0, &ways(220.0));
    assert_eq!(ring.told(), Some((Category::NetworkCongestion, vec![host(1), host(2)], 10)));
}

/// The last host of a line has one neighbour: nothing tells its NIC from the path to it. Both are named, and it is surer than the
/// neighbour, which is an end of the path only.
#[test]
fn a_host_with_one_neighbour_is_named_before_it() {
    let mut line = Ring::default();
    let ways = |last_ms: f64| [((0, 1), 20.0), ((1, 0), 20.0), ((1, 2), last_ms), ((2, 1), last_ms)];
    line.of_ways(20, 300.0, &ways(20.0));
    line.of_ways(10, 600.0, &ways(320.0));
    let told = causes(&Timeline::default(), &Config::default(), &line.evidence);
    let [cause] = &told[..] else { panic!("{told:?}") };
    let named: Vec<(&Place, f64)> = cause.suspects.iter().map(|suspect| (&suspect.place, suspect.confidence)).collect();
    let host = |host| Place::Host { host: name(host) };
    assert_eq!(named, [(&host(2), 2.0 * SURE / 3.0), (&host(1), SURE / 3.0)]);
}

/// Of all of the network nobody is told before anybody had the time to stand out.
#[test]
fn all_of_the_network_is_told_when_nobody_stood_out() {
    let mut ring = Ring::default();
    ring.seconds(20, 300.0, [20.0; 4]);
    ring.seconds(4, 600.0, [320.0; 4]);
    assert_eq!(causes(&Timeline::default(), &Config::default(), &ring.evidence), []);
    ring.seconds(8, 600.0, [320.0; 4]);
    let told = causes(&Timeline::default(), &Config::default(), &ring.evidence);
    let [cause] = &told[..] else { panic!("{told:?}") };
    assert_eq!((cause.category, cause.suspects.len()), (Category::NetworkCongestion, 0));
}

/// The way from host3 to host0 is slow: either NIC, or what is between them. What little host2 sends to host0 tells.
#[test]
fn what_carries_little_tells_the_ends_of_a_slow_way_apart() {
    let told = |light_ms| {
        let mut ring = Ring::default();
        ring.with_light(20, 300.0, [20.0; 4], ((2, 0), 0.5));
        ring.with_light(12, 600.0, [20.0, 20.0, 20.0, 320.0], ((2, 0), light_ms));
        let causes = causes(&Timeline::default(), &Config::default(), &ring.evidence);
        let [cause] = &causes[..] else { panic!("{causes:?}") };
        let sure: Vec<f64> = cause.suspects.iter().map(|suspect| suspect.confidence).collect();
        let named: Vec<Place> = cause.suspects.iter().map(|suspect| suspect.place.clone()).collect();
        (cause.category, named, sure[0] > sure[1])
    };
    assert_eq!(told(0.5), (Category::NetworkSend, vec![host(0), host(3)], false), "latencies tell nothing");
    assert_eq!(told(2.0), (Category::NetworkReceive, vec![host(0), host(3)], true));
}

/// A pipeline sends between two hosts a hundredth of what the sums of gradients take on other ways: it is 80 times as slow, and that
/// is what iterations grew.
#[test]
fn a_way_that_carries_little_and_costs_much_is_told() {
    let mut line = Ring::default();
    let pairs = |light_ms: f64| {
        let heavy = [(0, 1), (1, 0), (2, 3), (3, 2)].map(|way| (way, 20.0, 100.0));
        let light = [(0, 2), (2, 0)].map(|way| (way, 1.0, 1.0));
        let slow = [(1, 3), (3, 1)].map(|way| (way, light_ms, 1.0));
        [heavy.as_slice(), &light, &slow].concat()
    };
    line.of_loads(20, 300.0, &pairs(1.0));
    line.of_loads(10, 450.0, &pairs(80.0));
    let (category, named, since) = line.told().expect("it costs half of an iteration");
    assert_eq!((category, named, since), (Category::NetworkCongestion, vec![host(1), host(3)], 20));
    let mut cheap = Ring::default();
    cheap.of_loads(20, 300.0, &pairs(0.01));
    cheap.of_loads(10, 301.0, &pairs(0.8));
    assert_eq!(cheap.told(), None, "as slow, and nobody waits for it");
}

fn host(host: usize) -> Place {
    Place::Host { host: name(host) }
}

/// One NIC is on two ways, a path or one direction of either NIC on one, and all of the network on all. Of two ways apart either end
/// of each may be slow.
#[test]
fn what_accounts_for_slow_ways_is_told_by_those_that_are_fast() {
    for (slow, told) in [
        ([1, 0, 0, 1], Some((Category::NetworkSend, vec![host(0)], 20))),
        ([0, 0, 1, 0], Some((Category::NetworkSend, vec![host(2), host(3)], 20))),
        ([1, 1, 1, 1], Some((Category::NetworkCongestion, vec![], 20))),
        ([1, 0, 1, 0], Some((Category::Unknown, vec![], 20))),
        ([0, 0, 0, 0], Some((Category::Unknown, vec![], 20))),
    ] {
        let mut ring = Ring::default();
        ring.seconds(20, 300.0, [20.0; 4]);
        ring.seconds(10, 600.0, slow.map(|slow| 20.0 + 300.0 * f64::from(slow)));
        assert_eq!(ring.told(), told, "{slow:?}");
    }
}

/// Ways that are slow account for iterations that grew by as much, and for none that grew by far more.
#[test]
fn ways_that_hardly_anybody_waits_for_are_no_cause() {
    let mut ring = Ring::default();
    ring.seconds(20, 300.0, [20.0; 4]);
    ring.seconds(5, 600.0, [60.0, 20.0, 20.0, 60.0]);
    assert_eq!(ring.told(), None);
}

/// Ways of which the first rows were fast seem to be somewhat slow ever since: they do not hide the one that is ten times as slow.
#[test]
fn what_is_nearer_to_as_before_than_to_the_slowest_way_has_another_cause() {
    let mut ring = Ring::default();
    ring.seconds(20, 300.0, [20.0; 4]);
    ring.seconds(6, 600.0, [40.0, 220.0, 20.0, 40.0]);
    assert_eq!(ring.told().map(|told| told.1), Some(vec![host(1), host(2)]));
}

/// Iterations grow on and on, and a way is longer by as much as it was when they began to.
#[test]
fn a_way_that_accounts_for_the_beginning_of_a_ramp_does_not_for_its_end() {
    let mut ring = Ring::default();
    ring.seconds(20, 300.0, [20.0; 4]);
    for second in 1..=16 {
        ring.seconds(1, 300.0 + 20.0 * f64::from(second), [120.0, 20.0, 20.0, 20.0]);
    }
    assert_eq!(ring.told(), None);
}

/// Threads that wait for a processor are late with what goes over the host's ways: the host is named, and not its NIC.
#[test]
fn a_host_whose_threads_wait_is_named_where_something_of_it_is_late() {
    let mut ring = Ring::default();
    ring.waits(20, 300.0, [20.0; 4], [0.02; 4]);
    ring.waits(4, 600.0, [320.0, 20.0, 20.0, 320.0], [0.3, 0.02, 0.02, 0.02]);
    assert_eq!(ring.told(), Some((Category::HostThread, vec![host(0)], 20)));
    let mut elsewhere = Ring::default();
    elsewhere.waits(20, 300.0, [20.0; 4], [0.02; 4]);
    elsewhere.waits(4, 600.0, [20.0, 320.0, 320.0, 20.0], [0.3, 0.02, 0.02, 0.02]);
    assert_ne!(elsewhere.told().map(|told| told.0), Some(Category::HostThread), "nothing of host0 is late");
    let mut alone = Ring::default();
    alone.waits(20, 300.0, [20.0; 4], [0.02; 4]);
    alone.waits(4, 600.0, [20.0; 4], [0.3, 0.02, 0.02, 0.02]);
    assert_eq!(alone.told().map(|told| told.1), Some(vec![host(0)]), "nothing else began when iterations got longer");
    let mut before = Ring::default();
    before.waits(20, 300.0, [20.0; 4], [0.02; 4]);
    before.waits(20, 300.0, [20.0; 4], [0.3, 0.02, 0.02, 0.02]);
    before.waits(8, 600.0, [20.0; 4], [0.3, 0.02, 0.02, 0.02]);
    assert_ne!(before.told().map(|told| told.0), Some(Category::HostThread), "it cost nothing for long");
    let mut calm = Ring::default();
    calm.waits(20, 300.0, [20.0; 4], [0.02; 4]);
    calm.waits(20, 300.0, [20.0; 4], [0.6, 0.02, 0.02, 0.02]);
    assert_eq!(calm.told(), None, "it costs nothing");
}

/// What all ranks of a host copy longer at once waits for their NIC, unless it accounts for what iterations grew.
#[test]
fn copies_of_a_whole_host_must_account_for_what_iterations_grew() {
    let told = |grew_ms: f64| {
        let mut ring = Ring::default();
        let takes = |copy_ms: f64| {
            move |rank: usize, component| match component {
                Component::Computation => 200.0,
                Component::Copy => {
                    if rank < 4 {
                        copy_ms
                    } else {
                        10.0
                    }
                }
                _ => 0.0,
            }
        };
        ring.of_ranks(20, &Row { iteration_ms: 300.0, ..Row::default() }, takes(10.0));
        ring.of_ranks(10, &Row { iteration_ms: 300.0 + grew_ms, ..Row::default() }, takes(60.0));
        ring.causes()
    };
    assert_eq!(told(60.0), [(Category::GpuCopy, Subject::Host(name(0)))]);
    assert_eq!(told(250.0), []);
}

/// Iterations grew by 100 ms. What ranks of a host compute 40 ms longer is not why, where a way is slower by as much as they
/// grew; what they compute 80 ms longer is.
#[test]
fn who_accounts_for_little_is_not_told_beside_a_way_that_accounts_for_all() {
    let told = |more_ms: f64| {
        let mut ring = Ring::default();
        let row = |iteration_ms: f64, sent_ms: f64| {
            let way = |host: usize| {
                let sent_ms = if host == 0 { sent_ms } else { 20.0 };
                ((name(host), name(host + 1)), Way { sent_ms, mb: 100.0, ..Way::default() })
            };
            Row { iteration_ms, ways: (0..4).map(way).collect(), ..Row::default() }
        };
        let takes = |more_ms: f64| {
            move |rank: usize, component| match component {
                Component::Computation => {
                    if rank / 4 == 2 {
                        200.0 + more_ms
                    } else {
                        200.0
                    }
                }
                _ => 0.0,
            }
        };
        ring.of_ranks(20, &row(300.0, 20.0), takes(0.0));
        ring.of_ranks(20, &row(400.0, 120.0), takes(more_ms));
        ring.causes()
    };
    assert_eq!(told(40.0), [(Category::NetworkSend, Subject::Way(name(0), name(1)))]);
    assert_eq!(told(80.0), [(Category::Gpu, Subject::Host(name(2)))]);
}

/// From the first second on nothing says how long iterations were before: threads that wait for a processor cost what the ranks of
/// their host hand over late.
#[test]
fn who_waits_for_a_processor_from_the_first_second_on_is_told() {
    let told = |held_ms: f64| {
        let mut ring = Ring::default();
        let waits = (0..4).map(|host| (name(host), if host == 1 { 0.5 } else { 0.01 })).collect();
        ring.of_ranks(20, &Row { iteration_ms: 300.0, waits, ..Row::default() }, |rank, component| match component {
            Component::Handover if rank / 4 == 1 => held_ms,
            _ => 0.0,
        });
        ring.causes()
    };
    assert_eq!(told(60.0), [(Category::HostThread, Subject::Host(name(1)))]);
    assert_eq!(told(3.0), [], "a hundredth of an iteration is no cost");
}

/// A way is slower for sure, but iterations take as long now and then as they did.
#[test]
fn a_slow_way_is_no_cause_where_iterations_were_as_long_before() {
    let restless = |nth: u64| [300.0, 360.0, 310.0, 355.0, 305.0][nth as usize % 5];
    let mut ring = Ring::default();
    (0..30).for_each(|nth| ring.seconds(1, restless(nth), [200.0; 4]));
    (0..6).for_each(|_| ring.seconds(1, 355.0, [320.0, 200.0, 200.0, 200.0]));
    assert_eq!(ring.causes(), []);
    (0..20).for_each(|_| ring.seconds(1, 420.0, [320.0, 200.0, 200.0, 200.0]));
    assert_eq!(ring.causes().len(), 1);
}

/// What waits on ways through a host is inside it only where its ways to others are known, and fast: behind slow ones it waits too.
#[test]
fn copies_through_a_host_are_told_where_its_ways_are_fast() {
    let told = |sent_ms: Option<[f64; 2]>| {
        let mut ring = Ring::default();
        let row = |iteration_ms: f64, sent_ms: Option<f64>, through_ms: f64| {
            let way = |host: usize| {
                ((name(host), name(host + 1)), Way { sent_ms: sent_ms.unwrap_or(0.0), mb: 100.0, ..Way::default() })
            };
            let ways = (0..4).filter(|_| sent_ms.is_some()).map(way).collect();
            let through = (0..4).map(|host| (name(host), if host == 2 { through_ms } else { 0.5 })).collect();
            Row { iteration_ms, ways, through, ..Row::default() }
        };
        let takes = |_, component| if component == Component::Computation { 200.0 } else { 0.0 };
        ring.of_ranks(20, &row(300.0, sent_ms.map(|[before, _]| before), 0.5), takes);
        ring.of_ranks(12, &row(360.0, sent_ms.map(|[_, after]| after), 60.0), takes);
        ring.causes()
    };
    assert_eq!(told(Some([20.0, 20.0])), [(Category::GpuCopy, Subject::Host(name(2)))]);
    assert_eq!(told(None), [], "nothing is known of its ways");
    let slow = told(Some([20.0, 60.0]));
    assert!(!slow.contains(&(Category::GpuCopy, Subject::Host(name(2)))), "{slow:?}");
}
