//! A soak: a job of 64 ranks over many hours of its own time, as fast as this machine plays it, while its agents and its
//! server restart at random. Nothing that was acknowledged is lost, no healthy hour becomes a case, and memory is flat.
//!
//! In CI an hour and a half of the job; `cargo xtask bench soak` plays a day (`MYCROFT_SOAK_HOURS=24`) and writes docs/results/soak.md.
use mycroft_record::{Batch, HostName, HostTime, NANOS_PER_SEC, Source};
use mycroft_serve::TICK;
use mycroft_serve::replay::Player;
use mycroft_sim::{Delivery, Scenario, Simulation};
use mycroft_store::{Arrival, Store, StoreConfig};
use mycroft_wire::spool::Spool;
use mycroft_wire::{
    Client, ClientConfig, Endpoint, Kept, Listener, ListenerHandle, Receipt, Received, ServerConfig, Sink, codec,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Length of the job in CI, hours: its second quarter begins after the brain, the windows and the store have filled.
const HOURS: f64 = 1.5;
/// Longest that a frame may take from an agent into the log; a loaded machine needs a fraction of it.
const FLUSH: Duration = Duration::from_secs(60);
/// An agent's spool: an hour of a host, several times over.
const SPOOL_BYTES: u64 = 256 << 20;
/// How far back a server that starts reads its store, and the window that is compared with what was sent.
const WARM_NS: u64 = 600 * NANOS_PER_SEC;
/// A server lives between these, seconds of the job, and is away between those.
const SERVER_LIVES_S: (u64, u64) = (300, 2400);
const SERVER_AWAY_S: (u64, u64) = (1, 20);
/// An agent lives between these, seconds of the job.
const AGENT_LIVES_S: (u64, u64) = (600, 7200);
/// The store keeps the newest of what a day makes, so that retention has work.
const RETAIN_BYTES: u64 = 256 << 20;
/// Memory may grow by so much between the second quarter of the run and the last: the allocator's own noise.
const GROWTH_MAX: f64 = 1.10;

/// splitmix64: the same restarts on every machine.
struct Random(u64);

impl Random {
    fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        low + (z ^ (z >> 31)) % (high - low)
    }
}

fn scenario(hours: f64) -> Scenario {
    Scenario {
        name: "soak".to_owned(),
        hosts: 8,
        ranks_per_host: 8,
        tp: 8,
        pp: 1,
        dp: 8,
        micro_batches: 2,
        layers: 1,
        forward_ms: 300.0,
        backward_ms: 600.0,
        optimizer_ms: 20.0,
        duration_s: hours * 3600.0,
        ..Scenario::default()
    }
}

/// What the server's listener does with a frame: into the log at the job's time, then on its way to the brain.
struct Door {
    store: Arc<Store>,
    now: Arc<AtomicU64>,
    brain: Mutex<Sender<(HostTime, Vec<Batch>)>>,
}

impl Sink for Door {
    fn take(&self, received: Received) -> Receipt {
        let at = HostTime(self.now.load(Ordering::Relaxed));
        if received.keep {
            let records = received.batches.iter().map(|batch| batch.records.len()).sum();
            // What the wire tells of clocks is of this machine's time, not of the job's: it is left out.
            let frame = received.frame.as_deref().expect("agents tell nothing of clocks here");
            let arrival = Arrival { at, frame, records };
            if self.store.append_frames(&[arrival]).is_err() {
                return Receipt::of(Kept::No);
            }
        }
        if received.diagnose {
            let brain = self.brain.lock().expect("no holder panics");
            // Refused only when the server is being taken down.
            let _ = brain.send((at, received.batches));
        }
        Receipt::of(Kept::Yes)
    }
}

/// One life of the server.
struct Server {
    handle: ListenerHandle,
    store: Arc<Store>,
    frames: Receiver<(HostTime, Vec<Batch>)>,
    player: Player,
    ends_at: u64,
}

/// What one batch is known by.
type Key = (Source, HostTime, usize);

/// Everything that goes on.
struct Soak {
    root: PathBuf,
    now: Arc<AtomicU64>,
    random: Random,
    server: Option<Server>,
    back_at: u64,
    agents: BTreeMap<HostName, Agent>,
    /// What was acknowledged in the last ten minutes, oldest first.
    acknowledged: VecDeque<(u64, Key)>,
    told: Told,
}

/// What is said at the end.
#[derive(Default)]
struct Told {
    records: u64,
    server_restarts: u64,
    agent_restarts: u64,
    compared: u64,
    spooled: u64,
    memory: Vec<u64>,
}

/// One host's agent: a connection while the server is there, a spool while it is not.
struct Agent {
    spool: Option<Spool>,
    client: Option<Client>,
    dir: PathBuf,
    ends_at: u64,
}

impl Soak {
    fn new(root: &Path) -> Soak {
        Soak {
            root: root.to_owned(),
            now: Arc::new(AtomicU64::new(0)),
            random: Random(64),
            server: None,
            back_at: 0,
            agents: BTreeMap::new(),
            acknowledged: VecDeque::new(),
            told: Told::default(),
        }
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint::Unix(self.root.join("socket"))
    }

    /// A second of the job: what its agents collected, sent and stored; restarts that are due; the brain's look.
    fn second(&mut self, now: u64, stretch: Vec<Delivery>) {
        self.now.store(now, Ordering::Relaxed);
        if self.server.is_none() && now >= self.back_at {
            self.server_starts(now);
        }
        let mut by_host: BTreeMap<HostName, Vec<Batch>> = BTreeMap::new();
        for Delivery { mut batch, .. } in stretch {
            if !batch.records.is_empty() {
                codec::round_to_micros(&mut batch);
                by_host.entry(batch.source.host.clone()).or_default().push(batch);
            }
        }
        for (host, batches) in by_host {
            self.ship(now, &host, &batches);
        }
        self.acknowledge_all();
        if let Some(server) = &mut self.server {
            for (at, batches) in server.frames.try_iter() {
                batches.iter().for_each(|batch| server.player.deliver(at, batch));
            }
        }
        if self.server.as_ref().is_some_and(|server| now >= server.ends_at) {
            self.server_stops(now);
        }
    }

    fn ship(&mut self, now: u64, host: &HostName, batches: &[Batch]) {
        let records: usize = batches.iter().map(|batch| batch.records.len()).sum();
        let frame = codec::encode(batches).expect("within the format's limits");
        self.told.records += records as u64;
        let keys = batches.iter().map(|batch| (now, (batch.source.clone(), batch.collected_at, batch.records.len())));
        self.acknowledged.extend(keys);
        let (endpoint, lives) = (self.endpoint(), self.random.between(AGENT_LIVES_S));
        let (dir, is_there) = (self.root.join("spools").join(&**host), self.server.is_some());
        let agent = self.agents.entry(host.clone()).or_insert_with(|| Agent::start(dir, now, lives));
        if now >= agent.ends_at {
            *agent = agent.restarted(now, lives);
            self.told.agent_restarts += 1;
        }
        self.told.spooled += agent.ship(&endpoint, is_there, &frame, records as u64);
    }

    fn acknowledge_all(&mut self) {
        if self.server.is_some() {
            self.agents.values_mut().for_each(Agent::flush);
        }
        let oldest = self.now.load(Ordering::Relaxed).saturating_sub(WARM_NS);
        while self.acknowledged.front().is_some_and(|(at, _)| *at < oldest) {
            self.acknowledged.pop_front();
        }
    }

    fn server_starts(&mut self, now: u64) {
        let config = StoreConfig { retain_bytes: RETAIN_BYTES, ..StoreConfig::default() };
        let store = Arc::new(Store::open(&self.root.join("store"), config).expect("the store opens"));
        let mut player = Player::new(TICK);
        let from = HostTime(now.saturating_sub(WARM_NS));
        for delivery in store.deliveries_since(from).expect("the store can be read") {
            let delivery = delivery.expect("no piece of the store is damaged");
            if delivery.arrives_at >= from {
                player.deliver(delivery.arrives_at, &delivery.batch);
            }
        }
        let (brain, frames) = channel();
        let door = Door { store: Arc::clone(&store), now: Arc::clone(&self.now), brain: Mutex::new(brain) };
        let listener = Listener::bind(&self.endpoint(), ServerConfig::default()).expect("the socket can be made");
        let handle = listener.serve_sink(Arc::new(door), Arc::new(|_, _| {}));
        let ends_at = now + self.random.between(SERVER_LIVES_S) * NANOS_PER_SEC;
        self.server = Some(Server { handle, store, frames, player, ends_at });
    }

    /// Stops the server as it is, and compares what its store has with what its agents were told.
    fn server_stops(&mut self, now: u64) {
        let Some(server) = self.server.take() else { return };
        let Server { handle, store, player, .. } = server;
        drop(handle);
        for (job, played) in player.finish(Duration::ZERO) {
            let cases: Vec<_> = played.report.cases.iter().map(|case| &case.finding).collect();
            assert!(cases.is_empty(), "{job} is healthy, {} s into its life: {cases:?}", now / NANOS_PER_SEC);
        }
        store.maintain(HostTime(now)).expect("the disk has room");
        let from = HostTime(now.saturating_sub(WARM_NS));
        let stored = store.deliveries_since(from).expect("the store can be read");
        let stored: BTreeSet<Key> = stored
            .map(|delivery| delivery.expect("no piece of the store is damaged").batch)
            .map(|batch| (batch.source, batch.collected_at, batch.records.len()))
            .collect();
        for (_, key) in &self.acknowledged {
            assert!(stored.contains(key), "acknowledged and not stored: {key:?}");
        }
        self.told.compared += self.acknowledged.len() as u64;
        self.told.server_restarts += 1;
        self.back_at = now + self.random.between(SERVER_AWAY_S) * NANOS_PER_SEC;
        self.agents.values_mut().for_each(Agent::disconnected);
    }
}

impl Agent {
    fn start(dir: PathBuf, now: u64, lives_s: u64) -> Agent {
        let spool = Spool::open(&dir, SPOOL_BYTES).expect("the spool opens");
        Agent { spool: Some(spool), client: None, dir, ends_at: now + lives_s * NANOS_PER_SEC }
    }

    /// Ends as an agent does on a signal (what is not acknowledged goes to the spool), and starts again.
    fn restarted(&mut self, now: u64, lives_s: u64) -> Agent {
        self.disconnected();
        self.spool = None;
        Agent::start(self.dir.clone(), now, lives_s)
    }

    /// Sends a frame, after what the spool holds; gives the frames that went into the spool.
    fn ship(&mut self, endpoint: &Endpoint, is_there: bool, frame: &[u8], records: u64) -> u64 {
        let spool = self.spool.as_mut().expect("a running agent has one");
        if is_there && self.client.is_none() {
            let config = ClientConfig { send_timeout: FLUSH, ..ClientConfig::default() };
            self.client = Client::connect(endpoint, &config).ok();
        }
        let Some(client) = &mut self.client else {
            spool.push(frame, records).expect("the disk has room");
            return 1;
        };
        while let Some(held) = spool.peek().expect("the spool can be read") {
            client.send_frame(&held).expect("the server takes it");
            client.flush(FLUSH).expect("the server acknowledges");
            spool.pop().expect("the spool can be written");
        }
        client.send_frame(frame).expect("the server takes it");
        0
    }

    fn flush(&mut self) {
        if let Some(client) = &mut self.client {
            client.flush(FLUSH).expect("the server acknowledges");
        }
    }

    /// The connection is gone: what was not acknowledged goes to the spool.
    fn disconnected(&mut self) {
        let (Some(client), Some(spool)) = (self.client.take(), self.spool.as_mut()) else { return };
        for frame in client.into_unacked() {
            spool.push(&frame, 0).expect("the disk has room");
        }
    }
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}

#[test]
fn a_long_job_with_restarts_of_everything_loses_nothing_and_is_healthy() {
    let hours: f64 = std::env::var("MYCROFT_SOAK_HOURS").ok().and_then(|hours| hours.parse().ok()).unwrap_or(HOURS);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut soak = Soak::new(folder.path());
    let begun = Instant::now();
    let scenario = scenario(hours);
    let mut simulation = Simulation::new(&scenario);
    let (mut first, mut next_look) = (None, 0);
    let every = ((hours * 3600.0 / 40.0) as u64).max(1) * NANOS_PER_SEC;
    while let Some(stretch) = simulation.next_stretch() {
        let Some(now) = stretch.iter().map(|delivery| delivery.arrives_at).max() else { continue };
        let now = now / 1000 * 1000;
        let began = *first.get_or_insert(now);
        soak.second(now, stretch);
        if now - began >= next_look {
            soak.told.memory.push(resident());
            next_look += every;
        }
    }
    let now = soak.now.load(Ordering::Relaxed);
    soak.server_stops(now);
    say(hours, begun.elapsed(), &soak.told);
    // A restart reads the store back, and the allocator keeps some of what that took for a while: most looks of a quarter count.
    let quarter = |n: usize| {
        let mut looks = soak.told.memory[soak.told.memory.len() * n / 4..soak.told.memory.len() * (n + 1) / 4].to_vec();
        looks.sort_unstable();
        looks.get(looks.len() / 2).copied().unwrap_or(0) as f64
    };
    assert!(quarter(3) <= quarter(1) * GROWTH_MAX, "memory grows: {:?}", soak.told.memory);
}

fn say(hours: f64, took: Duration, told: &Told) {
    let mib = |bytes: &u64| bytes >> 20;
    println!("hours {hours}");
    println!("took_s {:.0}", took.as_secs_f64());
    println!("records {}", told.records);
    println!("server_restarts {}", told.server_restarts);
    println!("agent_restarts {}", told.agent_restarts);
    println!("frames_spooled {}", told.spooled);
    println!("batches_compared {}", told.compared);
    println!("memory_mib {}", told.memory.iter().map(|bytes| mib(bytes).to_string()).collect::<Vec<_>>().join(" "));
}
