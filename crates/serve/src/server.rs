//! Starting and stopping: binds everything, starts the threads, and takes them down in the order of the line.
use crate::act::{Acts, run};
use crate::alert::Alerts;
use crate::api::{ActionsJson, AutoRequest, PolicyJson};
use crate::bind::{BoundHttp, bind_http, bind_wire};
use crate::book::CaseBook;
use crate::brain::{Beginning, Loop, Surroundings};
use crate::bus::held::Held;
use crate::bus::{self, Bus};
use crate::case::BookedCase;
use crate::clock::{Clock, elapsed, wall_now};
use crate::command::Command;
use crate::config::ServeConfig;
use crate::core::Stopwatch;
use crate::dump::Dumps;
use crate::error::ServeError;
use crate::expiry::watched;
use crate::gates::Gates;
use crate::http::answers::Answers;
use crate::http::{self, Shared};
use crate::inbox::{Inbox, PUSH_WAIT, QUEUE_RECORDS};
use crate::intake::Intake;
use crate::job::BrainMaker;
use crate::keep_queue::Storage;
use crate::keepers::Keepers;
use crate::open::{Listeners, Threaded, begin_run, open_dumps, open_store, start_alerts};
use crate::otlp::{METRICS_EVERY, Otlp};
use crate::stats::Stats;
use crate::stored::{SeriesMaker, Stored};
use crate::thread::spawn;
use crate::warm::recent;
use mycroft_diagnose::{Config, Engine, Report};
use mycroft_record::{Batch, HostTime};
use mycroft_store::Deliveries;
use mycroft_wire::descriptors::Shares;
use mycroft_wire::sync::lock;
use mycroft_wire::{Endpoint, Listener, ListenerHandle, Sink};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tracing::info;

/// Parts of a server that tests replace.
pub(crate) struct Seams {
    pub(crate) make: BrainMaker,
    pub(crate) clock: Clock,
    /// Times looks at jobs: what is spent on them is left for records, too.
    pub(crate) stopwatch: fn() -> Stopwatch,
    pub(crate) queue_records: usize,
    pub(crate) metrics_every: Duration,
}

impl Default for Seams {
    fn default() -> Seams {
        Seams {
            make: Arc::new(|job| Box::new(Engine::new(job.clone(), Config::default()))),
            clock: Arc::new(wall_now),
            stopwatch: elapsed,
            queue_records: QUEUE_RECORDS,
            metrics_every: METRICS_EVERY,
        }
    }
}

/// The always-on server.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Checks the configuration, binds every address, and starts. Returns when connections are accepted.
    ///
    /// # Errors
    /// What is wrong with the configuration, an address or the store; nothing keeps running then.
    pub fn start(config: ServeConfig) -> Result<ServerHandle, ServeError> {
        start(config, Seams::default())
    }
}

/// A running server. Stops when dropped.
pub struct ServerHandle {
    http: SocketAddr,
    endpoints: Vec<Endpoint>,
    inbox: Arc<Inbox>,
    intake: Arc<Intake>,
    book: Arc<CaseBook>,
    acts: Arc<Acts>,
    running: Option<Running>,
}

impl std::fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerHandle").field("http", &self.http).field("wire", &self.endpoints).finish_non_exhaustive()
    }
}

/// What must be taken down.
struct Running {
    listeners: Listeners,
    dumps: Arc<Dumps>,
    stop_http: watch::Sender<bool>,
    http: Option<(Runtime, tokio::task::JoinHandle<()>)>,
    brain: JoinHandle<()>,
    keepers: Option<Keepers>,
    alerts: Option<(Arc<Alerts>, JoinHandle<()>)>,
    otlp: Option<Otlp>,
    acts: Threaded<Acts>,
    bus: Option<Bus>,
}

impl ServerHandle {
    /// Where the HTTP API listens, with the real port.
    pub fn http_addr(&self) -> SocketAddr {
        self.http
    }

    /// Where agents connect, with real ports, in the order of the configuration.
    pub fn wire_endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// Bytes that agents sent over the wire so far, compressed, all listeners together.
    pub fn wire_bytes(&self) -> u64 {
        let Some(running) = &self.running else { return 0 };
        lock(&running.listeners).iter().map(|listener| listener.stats().bytes).sum()
    }

    /// What is known of a job now; `None` for a job that is not being diagnosed. Waits for the brain: not for use in
    /// an async context.
    pub fn report(&self, job: &str) -> Option<Arc<Report>> {
        let (reply, answer) = oneshot::channel();
        if !self.inbox.ask(Command::Report { job: job.into(), reply }) {
            return None;
        }
        answer.blocking_recv().ok().flatten()
    }

    /// One case by the server's number.
    pub fn case(&self, number: u64) -> Option<BookedCase> {
        self.book.get(number)
    }

    /// Waits until some case satisfies `wanted`, which is asked at every change of a case; `None` after `timeout` or
    /// when the server stops.
    pub fn wait_for_case(&self, timeout: Duration, wanted: impl Fn(&BookedCase) -> bool) -> Option<BookedCase> {
        self.book.wait_for(timeout, &wanted)
    }

    /// What was done to a job, or to all, newest first, and what may be done without asking.
    pub fn actions(&self, job: Option<&str>) -> ActionsJson {
        self.acts.list(job, usize::MAX)
    }

    /// Says what may be done to a job without asking.
    ///
    /// # Errors
    /// One sentence that says why it may not.
    pub fn allow(&self, job: &str, request: AutoRequest) -> Result<PolicyJson, String> {
        self.acts.allow(job, request).map_err(|(_, text)| text)
    }

    /// Takes a batch as if an agent had sent it; false when the queue is full or the server stops. For programs that
    /// hold the records already (replay).
    pub fn ingest(&self, batch: Batch) -> bool {
        self.intake.ingest(vec![batch], PUSH_WAIT) == 0
    }

    /// Stops: no new connections, what was received is still diagnosed and stored, threads are joined, sockets removed.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        if let Some(running) = self.running.take() {
            running.shut_down(&self.inbox, &self.book);
        }
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        self.shut_down();
    }
}

impl Running {
    /// In the order of the line: nothing comes in, what is in goes through, then the ends.
    fn shut_down(self, inbox: &Inbox, book: &CaseBook) {
        self.dumps.close();
        std::mem::take(&mut *lock(&self.listeners)).into_iter().for_each(drop);
        let bus = self.bus.map(Bus::stop);
        // Both fail only when the other side is gone already, which is what is wanted.
        let _ = self.stop_http.send(true);
        if let Some((runtime, task)) = self.http {
            let _ = runtime.block_on(task);
            runtime.shutdown_timeout(Duration::from_millis(300));
        }
        self.acts.0.close();
        join(self.acts.1);
        inbox.close();
        join(self.brain);
        if let Some(keepers) = self.keepers {
            keepers.stop();
        }
        if let Some(bus) = bus {
            bus.release();
        }
        // Both are told before one is waited for: what they talk to may be away.
        self.otlp.iter().for_each(Otlp::close);
        if let Some((alerts, thread)) = self.alerts {
            alerts.close();
            join(thread);
        }
        self.otlp.into_iter().for_each(Otlp::join);
        book.close();
    }
}

/// Waits for a thread. Its panic was printed by the panic hook and concerns nobody who is stopping.
fn join(thread: JoinHandle<()>) {
    let _ = thread.join();
}

/// `Server::start` with its parts.
pub(crate) fn start(config: ServeConfig, seams: Seams) -> Result<ServerHandle, ServeError> {
    config.check()?;
    let (stats, (store, book)) = (Arc::new(Stats::new()), open_store(&config)?);
    let now = HostTime((seams.clock)().0 / 1000 * 1000);
    let past = store.as_ref().map(|store| begin_run(store, now, book.next_number())).transpose()?;
    // Jobs of a bus are read again from there.
    let past = past.filter(|_| config.bus.is_none());
    let (store, book) = (store.map(Arc::new), Arc::new(book));
    let acts = Arc::new(Acts::open(config.act_dir.clone(), store.clone(), &book, &seams.clock)?);
    let inbox = Arc::new(Inbox::new(seams.queue_records));
    // Everything that can be refused is bound before the first thread starts.
    let (shares, mut bound, tokens) = bind_wire(&config, &seams.clock)?;
    let BoundHttp { runtime, listener, http, http_tls } = bind_http(&config)?;
    let alerts = start_alerts(&config, &stats)?;
    let (stored, listeners) = (Stored(store.clone()), Arc::default());
    let keepers = store.map(|store| Keepers::start(store, &book, &stats, &seams.clock)).transpose()?;
    let storage = keepers.as_ref().map(|keepers| keepers.storage.clone());
    let dumps = open_dumps(&config, (&listeners, &inbox, storage.as_ref()), (&book, &seams.clock))?;
    let gates = Arc::new(Gates::new(&listeners));
    let shared = Arc::new(Shared {
        inbox: Arc::clone(&inbox),
        book: Arc::clone(&book),
        stats: Arc::clone(&stats),
        clock: Arc::clone(&seams.clock),
        listeners: Arc::clone(&listeners),
        dumps: Arc::clone(&dumps),
        gates: Arc::clone(&gates),
        token: config.token.clone(),
        tokens,
        alerts: alerts.as_ref().map(|(alerts, _)| Arc::clone(alerts)),
        acts: Arc::clone(&acts),
        run: now.0,
        stored: stored.clone(),
        answers: Answers::default(),
        act_token: config.act_token.clone(),
        http_tls,
        certificates: watched(&config),
    });
    let otlp = Otlp::start(&config, &shared, seams.metrics_every)?;
    let intake = Arc::new(Intake::new(&inbox, storage.as_ref(), &stats, &seams.clock));
    let held = Arc::default();
    let around = surroundings(&shared, storage, (&held, seams.stopwatch));
    let makers = (seams.make, stored.clone().maker());
    let bus = bus::around(&config, (&intake, &inbox, &book, &stats), (held, &stored, &seams.clock), makers.clone());
    let (brain, is_warm) = start_brain(around, makers, config.tick, (now, past))?;
    let (stop_http, task) = serve_http(&runtime, listener, (shared, shares));
    let endpoints: Vec<Endpoint> = bound.0.iter().map(Listener::local_endpoint).collect();
    // Agents that knock meanwhile keep their records: better in their spools than dropped from a full inbox. The other
    // end is dropped without a word only when the thread ended.
    let _ = is_warm.recv();
    lock(&listeners).extend(serve_agents(std::mem::take(&mut bound.0), &intake, (&dumps, &gates)));
    info!(%http, "listening: http {http}, agents {}", shown(&endpoints));
    let bus = bus.map(Bus::start).transpose()?;
    let actor = run::start(Arc::clone(&acts), Arc::clone(&inbox))?;
    let (http_task, actor) = (Some((runtime, task)), (Arc::clone(&acts), actor));
    let running =
        Running { listeners, dumps, stop_http, http: http_task, brain, keepers, alerts, otlp, acts: actor, bus };
    Ok(ServerHandle { http, endpoints, inbox, intake, book, acts, running: Some(running) })
}

/// What the brain's loop touches, of what readers touch, and the disk.
fn surroundings(
    shared: &Shared,
    storage: Option<Storage>,
    (held, stopwatch): (&Arc<Held>, fn() -> Stopwatch),
) -> Surroundings {
    Surroundings {
        inbox: Arc::clone(&shared.inbox),
        storage,
        book: Arc::clone(&shared.book),
        stats: Arc::clone(&shared.stats),
        alerts: shared.alerts.clone(),
        dumps: Arc::clone(&shared.dumps),
        clock: Arc::clone(&shared.clock),
        held: Arc::clone(held),
        stopwatch,
    }
}

/// Starts the brain's thread; the other end hears of it when what is stored has been lived through.
fn start_brain(
    around: Surroundings,
    makers: (BrainMaker, SeriesMaker),
    tick: Duration,
    (at, past): (HostTime, Option<Deliveries>),
) -> Result<(JoinHandle<()>, Receiver<()>), ServeError> {
    let (is_done, is_warm) = std::sync::mpsc::channel();
    let brain = spawn("mycroft-brain", move || {
        let (past, unreadable) = past.map(|past| recent(past, at)).unwrap_or_default();
        let warm = Loop::warmed(around, makers, tick, &Beginning { at, past, unreadable });
        // Refused only when the start failed meanwhile; then the inbox is closed, too.
        let _ = is_done.send(());
        warm.run();
    })?;
    Ok((brain, is_warm))
}

/// Answers readers until the other end of what it gives says so.
fn serve_http(
    runtime: &Runtime,
    listener: TcpListener,
    (shared, shares): (Arc<Shared>, Shares),
) -> (watch::Sender<bool>, tokio::task::JoinHandle<()>) {
    let (stop_http, stop) = watch::channel(false);
    let task = runtime.spawn(http::serve(listener, shared, shares, stop));
    (stop_http, task)
}

/// Takes in batches, captures and answers of gates on every listener.
fn serve_agents(
    bound: Vec<Listener>,
    intake: &Arc<Intake>,
    (dumps, gates): (&Arc<Dumps>, &Arc<Gates>),
) -> Vec<ListenerHandle> {
    let serve = |(index, listener): (usize, Listener)| {
        let (dumps, gates) = (Arc::clone(dumps), Arc::clone(gates));
        let captured = move |connection, captured| dumps.captured(index, connection, captured);
        let handle = listener.serve_sink(Arc::clone(intake) as Arc<dyn Sink>, Arc::new(captured));
        handle.hear_gates(move |connection, said| gates.heard(index, connection, said));
        handle
    };
    bound.into_iter().enumerate().map(serve).collect()
}

fn shown(endpoints: &[Endpoint]) -> String {
    if endpoints.is_empty() {
        return "nowhere".to_owned();
    }
    endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(", ")
}
