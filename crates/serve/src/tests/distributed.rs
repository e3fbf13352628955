//! One recording, sent to a server by the wire and to another by a bus: both say the same, byte for byte.
//!
//! No wall clock is in it: agents, listener, brain and bus read one clock, which stands still until a frame has been weighed. A lease
//! alone is measured by the machine's own.
use super::*;
use crate::api::{CaseJson, ReportJson};
use crate::bus::source::BusSource;
use crate::core::Stopwatch;
use mycroft_bus::BusSecurity;
use mycroft_bus::kafka::mock::MockBrokers;
use mycroft_bus::kafka::{KafkaTopic, way};
use mycroft_diagnose::operations::{Operations, Wanted};
use mycroft_diagnose::{Config, Engine, render};
use mycroft_record::HostName;
use mycroft_sim::{Fault, FaultKind, Scenario, Simulation};
use mycroft_wire::{Carrier, ClientConfig, Endpoint, Way, WireClock, codec};
use std::collections::BTreeMap;

/// What a server gives to cases by its bus begins here.
const RANGE: u64 = 1_000_000;
/// From the start of servers to the first record: no look is due at the moment of a frame.
const BEFORE_NS: u64 = 333_333_000;
/// A job of one batch, which says that a server takes records in.
const PROBE: &str = "probe";

/// What one host sends at one time.
struct Frame {
    at: u64,
    host: HostName,
    batches: Vec<Batch>,
}

/// A rank of four hosts stops entering operations.
fn recording() -> Vec<Frame> {
    let fault = Fault { rank: Some(5), after_s: 4.0, ..Fault::new(FaultKind::RankStuck, 2) };
    let scenario = Scenario {
        name: "train".to_owned(),
        hosts: 4,
        ranks_per_host: 2,
        tp: 2,
        pp: 2,
        dp: 2,
        duration_s: 8.0,
        fault: Some(fault),
        ..Scenario::default()
    };
    scenario.check().expect("a scenario");
    let mut frames: BTreeMap<(u64, HostName), Vec<Batch>> = BTreeMap::new();
    let mut simulation = Simulation::new(&scenario);
    while let Some(stretch) = simulation.next_stretch() {
        for mut delivery in stretch {
            // As agents do.
            codec::round_to_micros(&mut delivery.batch);
            let key = (delivery.arrives_at / 1000 * 1000, delivery.batch.source.host.clone());
            frames.entry(key).or_default().push(delivery.batch);
        }
    }
    frames.into_iter().map(|((at, host), batches)| Frame { at, host, batches }).collect()
}

/// The engine, which tells of each batch that it has taken in.
struct Told {
    engine: Engine,
    job: JobName,
    batches: Sender<JobName>,
}

impl Brain for Told {
    fn observe(&mut self, batch: &Batch) {
        self.engine.observe(batch);
        // The server itself says what it knows of clocks.
        if !matches!(batch.records[..], [Record::ClockOffset(_)]) {
            let _ = self.batches.send(self.job.clone());
        }
    }
    fn tick(&mut self, now: HostTime) -> Vec<CaseEvent> {
        self.engine.tick(now)
    }
    fn next_check(&self, now: HostTime) -> Option<HostTime> {
        self.engine.next_check(now)
    }
    fn report(&self, now: HostTime) -> Report {
        self.engine.report(now)
    }
    fn cases(&self) -> &[Case] {
        self.engine.cases()
    }
    fn lives(&self) -> &[Life] {
        self.engine.lives()
    }
    fn take_measured(&mut self) -> Measured {
        self.engine.take_measured()
    }
    fn operations(&self, wanted: &Wanted) -> Operations {
        self.engine.operations(wanted)
    }
}

/// A server whose clock the test sets, and what its engines have taken in.
struct Placed {
    server: ServerHandle,
    clock: Arc<AtomicU64>,
    batches: Receiver<JobName>,
}

impl Placed {
    fn start(config: ServeConfig, at: u64) -> Placed {
        let (told, batches) = channel();
        let clock = Arc::new(AtomicU64::new(at));
        let read = Arc::clone(&clock);
        let seams = Seams {
            make: Arc::new(move |job| {
                let engine = Engine::new(job.clone(), Config::default());
                Box::new(Told { engine, job: job.clone(), batches: told.clone() })
            }),
            clock: Arc::new(move || HostTime(read.load(Ordering::SeqCst))),
            stopwatch: || -> Stopwatch { Box::new(|| Duration::ZERO) },
            ..Seams::default()
        };
        Placed { server: start(config, seams).expect("the server starts"), clock, batches }
    }

    /// Waits until so many batches of a job have been weighed.
    fn takes(&self, job: &str, mut batches: usize) {
        while batches > 0 {
            let taken = self.batches.recv_timeout(PATIENCE).expect("it is taken in");
            batches -= usize::from(&*taken == job);
        }
    }

    /// Sends a recording host by host, each by an agent of its own, and gives all that the server says of it.
    fn play(self, way: &Way, frames: &[Frame]) -> (String, String) {
        let config = |host: &str| {
            let read = Arc::clone(&self.clock);
            let clock = WireClock::new(move || HostTime(read.load(Ordering::SeqCst)));
            ClientConfig { host: host.to_owned(), clock, ..ClientConfig::default() }
        };
        let mut agents: BTreeMap<HostName, Box<dyn Carrier>> = BTreeMap::new();
        let mut probe = way.connect(&config(PROBE)).expect("somebody is there");
        send(&mut *probe, &[batch(PROBE, &[NOTHING])]);
        self.takes(PROBE, 1);
        for frame in frames {
            self.clock.store(frame.at, Ordering::SeqCst);
            let agent = agents.entry(frame.host.clone()).or_insert_with(|| {
                let mut agent = way.connect(&config(&frame.host)).expect("somebody is there");
                // When it has been answered, times have been exchanged: an agent waits 20 ms for that, and no longer.
                send(&mut *agent, &[]);
                agent
            });
            send(&mut **agent, &frame.batches);
            self.takes("train", frame.batches.len());
        }
        let mut report = (*self.server.report("train").expect("a job")).clone();
        report.cases.iter_mut().for_each(|case| case.id.0 %= RANGE);
        let cases = report.cases.iter().map(|case| {
            let number = [case.id.0, RANGE + case.id.0].into_iter().find_map(|number| self.server.case(number));
            let told = CaseJson::of(&number.expect("it is in the book"));
            CaseJson { id: told.id % RANGE, ..told }
        });
        let cases = serde_json::to_string_pretty(&cases.collect::<Vec<_>>()).expect("JSON");
        let json = serde_json::to_string_pretty(&ReportJson::of(&report, usize::MAX)).expect("JSON");
        self.server.stop();
        (render(&report), json + "\n" + &cases)
    }
}

fn send(agent: &mut dyn Carrier, batches: &[Batch]) {
    agent.send_frame(&codec::encode(batches).expect("it fits")).expect("it is taken");
    agent.flush(PATIENCE).expect("it is acknowledged");
}

/// A clock that is known by the wire is not known by a bus; where all show the same time, that makes no difference to a word.
#[test]
fn a_recording_gives_the_same_report_by_the_wire_and_by_a_bus() {
    let (frames, dir) = (recording(), tempfile::tempdir().expect("a folder"));
    let begin = frames.first().expect("records").at - BEFORE_NS;
    let config = |name: &str| ServeConfig {
        http: SocketAddr::from(([127, 0, 0, 1], 0)),
        store_dir: Some(dir.path().join(name)),
        dump_on_case: false,
        ..ServeConfig::default()
    };
    let socket = Endpoint::Unix(dir.path().join("agents.sock"));
    let embedded = Placed::start(ServeConfig { wire: vec![socket.clone()], ..config("embedded") }, begin);
    let (said, json) = embedded.play(&Way::from(socket), &frames);
    let brokers = MockBrokers::start("mycroft", 1);
    let topic = KafkaTopic::new(brokers.address(), &BusSecurity::default()).expect("a topic");
    let bus = Some(BusSource(Arc::new(topic)));
    let distributed = Placed::start(ServeConfig { bus, ..config("distributed") }, begin);
    let (by_bus, by_bus_json) = distributed.play(&way(brokers.address(), &BusSecurity::default()), &frames);
    assert!(said.contains("rank 5"), "{said}");
    assert_eq!(by_bus, said);
    assert_eq!(by_bus_json, json);
}
