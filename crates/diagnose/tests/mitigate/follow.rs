//! One plan after the other, from what is measured of a job that is as slow as its devices, its division and its ways make it.
use mycroft_diagnose::mitigate::follow::{Follower, Terms};
use mycroft_diagnose::mitigate::place::Waits;
use mycroft_diagnose::mitigate::plan::{Assignment, Costs, Plan};
use mycroft_diagnose::mitigate::rent::Strategy;
use mycroft_diagnose::mitigate::seen::Shape;
use mycroft_diagnose::{Carried, Measured, Seat, Spent, Stretch};
use mycroft_record::{HostName, HostTime, NANOS_PER_SEC, Rank};

const HOSTS: usize = 4;
/// Milliseconds of a micro-batch, and of the exchange.
const EACH_MS: f64 = 20.0;
const RING_MS: f64 = 40.0;

/// A job of one stage and four replicas, a host each: what is wrong with it, and how it is arranged.
struct World {
    slower: [f64; HOSTS],
    /// How many times longer the path between hosts 1 and 2 takes, and what iterations notice of it.
    path: f64,
    felt: f64,
    arranged: Assignment,
    at: HostTime,
}

fn name(host: usize) -> HostName {
    format!("host{host}").as_str().into()
}

impl World {
    fn new() -> World {
        let arranged =
            Assignment { hosts: (0..HOSTS).map(name).collect(), micro_batches: vec![8; HOSTS], left_out: Vec::new() };
        World { slower: [1.0; HOSTS], path: 1.0, felt: 1.0, arranged, at: HostTime(NANOS_PER_SEC) }
    }

    fn host(&self, place: usize) -> usize {
        (0..HOSTS).find(|host| name(*host) == self.arranged.hosts[place]).unwrap()
    }

    /// One row of five iterations.
    fn row(&mut self) -> Measured {
        let ranks = (0..HOSTS).map(|host| Seat { rank: Rank(host as u32), host: name(host), peers: 0 }).collect();
        let spent = |host: usize| {
            let place = (0..HOSTS).find(|place| self.host(*place) == host).unwrap();
            let ms = f64::from(self.arranged.micro_batches[place]) * EACH_MS * self.slower[host];
            (ms, Spent { took_ms: [ms as f32, 0.0, 0.0, 0.0, 0.0], ..Spent::default() })
        };
        let is_slow =
            |from: usize, to: usize| [self.host(from), self.host(to)].iter().all(|host| [1, 2].contains(host));
        let ways: Vec<(Carried, bool)> = (0..HOSTS)
            .map(|from| {
                let to = (from + 1) % HOSTS;
                let times = if is_slow(from, to) { self.path } else { 1.0 };
                let (of, at) = (self.arranged.hosts[from].clone(), self.arranged.hosts[to].clone());
                (Carried { from: of, to: at, sent_ms: (10.0 * times) as f32, mb: 1.0 }, is_slow(from, to))
            })
            .collect();
        let ring_ms = RING_MS * if ways.iter().any(|(_, is_slow)| *is_slow) { self.felt } else { 1.0 };
        let iteration_ms = (0..HOSTS).map(|host| spent(host).0).fold(0.0, f64::max) + ring_ms;
        let (start, end) = (self.at, self.at + (5.0 * iteration_ms * 1e6) as u64);
        let stretch = Stretch {
            start,
            end,
            iterations: vec![(end, iteration_ms); 5],
            ranks: (0..HOSTS).map(|host| Some(spent(host).1)).collect(),
            ways: ways.into_iter().map(|(way, _)| way).collect(),
        };
        self.at = end;
        Measured { ranks, stretches: vec![stretch] }
    }

    /// Plays so many rows and carries out what is due: when, in rows, and what.
    fn play(&mut self, follower: &mut Follower, rows: usize) -> Vec<(usize, Plan)> {
        let mut plans = Vec::new();
        for row in 0..rows {
            let measured = self.row();
            if let Some(plan) = follower.look(&measured, self.at).unwrap() {
                self.arranged = plan.apply(&self.arranged).unwrap();
                follower.carried_out(&plan);
                plans.push((row, plan));
            }
        }
        plans
    }
}

fn follower(world: &World) -> Follower {
    let costs = Costs { split_ns: NANOS_PER_SEC / 5, move_ns: 2 * NANOS_PER_SEC, restart_ns: 1000 * NANOS_PER_SEC };
    let shape = Shape { tensor: 1, stages: 1 };
    let terms = Terms { job: "job".into(), shape, waits: Waits::EachIteration, activations_ms: 0.0, costs };
    Follower::new(terms, world.arranged.clone())
}

#[test]
fn a_slow_device_is_given_less_and_then_as_much_as_before() {
    let mut world = World::new();
    let mut follower = follower(&world);
    assert!(world.play(&mut follower, 10).is_empty(), "the job is healthy");
    assert!((follower.usual_ms().unwrap() - 8.0 * EACH_MS - RING_MS).abs() < 1e-6);
    world.slower[2] = 2.0;
    let plans = world.play(&mut follower, 10);
    let [(row, plan)] = &plans[..] else { panic!("{plans:?}") };
    assert_eq!((*row, plan.strategy), (1, Strategy::Split), "the first row may be of before and after");
    assert_eq!(plan.to.micro_batches.iter().sum::<u32>(), 32);
    assert!(plan.to.micro_batches[2] <= 5, "{:?}", plan.to.micro_batches);
    world.slower[2] = 1.0;
    let plans = world.play(&mut follower, 10);
    let [(_, plan)] = &plans[..] else { panic!("{plans:?}") };
    assert_eq!(plan.to.micro_batches, [8; HOSTS]);
}

#[test]
fn a_slow_path_is_left_once_it_has_cost_as_much_as_moving() {
    let mut world = World::new();
    let mut follower = follower(&world);
    world.play(&mut follower, 6);
    (world.path, world.felt) = (9.0, 4.0);
    let plans = world.play(&mut follower, 20);
    let [(row, plan)] = &plans[..] else { panic!("{plans:?}") };
    // Three rings more in each of five iterations: 0.6 s a row, and moving costs 2 s.
    assert_eq!((*row, plan.strategy), (3, Strategy::Move));
    let place = |host: usize| plan.to.hosts.iter().position(|at| *at == name(host)).unwrap();
    assert_eq!(place(1).abs_diff(place(2)), 2, "they are no neighbours any more: {:?}", plan.to.hosts);
    assert!(follower.slow()[0].starts_with("host1-host2 4.0"), "as slow as iterations show: {:?}", follower.slow());
}

#[test]
fn a_way_that_costs_iterations_nothing_is_no_slow_path() {
    let mut world = World::new();
    let mut follower = follower(&world);
    world.play(&mut follower, 6);
    world.path = 9.0;
    assert!(world.play(&mut follower, 20).is_empty());
    assert!(follower.slow().is_empty());
}

#[test]
fn a_second_fault_has_a_plan_of_its_own() {
    let mut world = World::new();
    let mut follower = follower(&world);
    world.play(&mut follower, 6);
    (world.path, world.felt) = (9.0, 4.0);
    world.play(&mut follower, 10);
    world.slower[0] = 3.0;
    let plans = world.play(&mut follower, 10);
    assert_eq!(plans.iter().map(|(_, plan)| plan.strategy).collect::<Vec<_>>(), [Strategy::Split]);
}
