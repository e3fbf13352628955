//! The server's end: admits agents, hands their batches over once, acknowledges, and is safe against slow or hostile
//! peers: every wait has an end, every size a limit.
mod counters;
mod orders;
mod standing;
mod told;

use crate::admission::{Door, Shown, begin_tls, read_hello};
use crate::agents::{Agents, Owner, Seen};
use crate::arrival::{ServerLimits, charge, read_body};
use crate::attendance::Attendance;
use crate::budget::{Budgets, Charge};
use crate::capture::Captured;
use crate::clock::{PeerClock, VERSION_TIMES, WireClock};
use crate::codec;
use crate::descriptors::{self, Shares};
use crate::gate::{GATE_LATENCY, GateHandler};
use crate::intake::{CREDIT_FRAMES, HANDLER_TRIES, Plain, Sink, Taken};
use crate::places::{Peer, Place, Places};
use crate::proto::{self, Answer, Hello, Message, MessageHead, Welcome};
use crate::refusal::Refusal;
use crate::refused::{End, LeftOut, Told, refuse, shown};
use crate::socket::{self, Socket};
use crate::strangers::Strangers;
use crate::stream::{Closer, Stream};
use crate::subscriber::with_callers_subscriber;
use crate::sync::lock;
use crate::tls::ServerTls;
use crate::{Endpoint, ServerConfig, WireError, io_error};
use counters::{Counters, count};
use mycroft_record::Batch;
use standing::Standing;
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{debug, error, warn};

/// Agents connected at once that show a token or certificate of one host: one for each user with jobs there.
const AGENTS_OF_HOST_MAX: usize = 64;
/// Their bytes: two of the largest frames.
const CREDIT_BYTES: u64 = 2 * codec::MAX_FRAME_BYTES as u64;
/// How often an idle agent says that it is there.
const HEARTBEAT_MS: u32 = 2000;
/// To write an acknowledgement.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// Room for the largest read buffer (64 KiB), the decoder and the server's handler.
const STACK_BYTES: usize = 1024 * 1024;

/// How soon an order reaches an agent that is silent: its connection's thread looks after its orders this often, which
/// for 4,096 idle agents are 20,000 short waits a second.
const ORDER_LATENCY: Duration = Duration::from_millis(200);

/// How often a connection whose frames are on their way to the disk looks whether more have come.
const RECEIPT_LOOK: Duration = Duration::from_millis(20);

pub use counters::ServerStats;

type Handler = dyn Fn(Vec<Batch>) + Send + Sync;
type CapturedHandler = dyn Fn(u64, Captured) + Send + Sync;

/// An agent's connection as the other threads see it.
struct Line {
    closer: Closer,
    peer: Peer,
    /// Which agent, by its own number.
    agent: u64,
    /// Whose that number is.
    owner: Owner,
    /// Which machine, by its own number; 0: it did not say.
    machine: u64,
    since: Instant,
    /// When its last message came.
    heard: Instant,
    /// Orders to write, encoded.
    orders: VecDeque<Vec<u8>>,
    /// Until when orders have to be on their way soon.
    quick_until: Option<Instant>,
    _place: Place,
}

impl Line {
    fn peer(&self) -> Peer {
        Peer { silent: self.heard.elapsed(), ..self.peer.clone() }
    }
}

struct Shared {
    token: Door,
    tls: Option<ServerTls>,
    limits: ServerLimits,
    sink: Arc<dyn Sink>,
    captured: Arc<CapturedHandler>,
    gates: OnceLock<Box<GateHandler>>,
    clock: WireClock,
    stopping: AtomicBool,
    places: Arc<Places>,
    budgets: Budgets,
    told: Told,
    strangers: Mutex<Strangers<Closer>>,
    connections: Mutex<BTreeMap<u64, Line>>,
    agents: Mutex<Agents>,
    counters: Counters,
}

impl Shared {
    /// Tells the operator, unless enough was told lately.
    fn tell(&self, say: impl FnOnce(LeftOut)) {
        if let Some(left_out) = self.told.admit(Instant::now()) {
            say(left_out);
        }
    }
}

/// A bound server socket.
pub struct Listener {
    endpoint: Endpoint,
    address: Option<SocketAddr>,
    socket: Socket,
    own_socket: Option<socket::Made>,
    token: Door,
    tls: Option<ServerTls>,
    limits: ServerLimits,
    places: Arc<Places>,
    budgets: Budgets,
    clock: WireClock,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Listener {
    /// Binds. Port 0 picks a free port. A unix socket gets mode 0600; one of this user's that nobody listens on is
    /// replaced, and nothing else is.
    ///
    /// # Errors
    /// `Io` when the address is taken or forbidden, `TlsFile` when certificates cannot be used.
    pub fn bind(endpoint: &Endpoint, config: ServerConfig) -> Result<Listener, WireError> {
        let failed = |e| io_error("listening on", endpoint)(e);
        let tls = config.tls.as_ref().map(|files| ServerTls::open(files, &[])).transpose()?;
        let mut own_socket = None;
        let (socket, address, endpoint) = match endpoint {
            Endpoint::Tcp(text) => {
                let socket = TcpListener::bind(text.as_str()).map_err(failed)?;
                let address = socket.local_addr().map_err(failed)?;
                (Socket::Tcp(socket), Some(address), Endpoint::Tcp(address.to_string()))
            }
            Endpoint::Unix(_) if tls.is_some() => {
                let reason = "TLS is for TCP endpoints; a unix socket never leaves the host".to_owned();
                return Err(WireError::Tls { endpoint: endpoint.to_string(), reason });
            }
            Endpoint::Unix(path) => {
                let (socket, place) = socket::bind_unix(path).map_err(failed)?;
                own_socket = Some(place);
                (Socket::Unix(socket), None, endpoint.clone())
            }
        };
        Ok(Listener {
            endpoint,
            address,
            socket,
            own_socket,
            token: config.token,
            tls,
            limits: ServerLimits::default(),
            places: Arc::new(Places::new(Shares::of(descriptors::current()))),
            budgets: Budgets::default(),
            clock: WireClock::default(),
        })
    }

    /// Other limits than the default ones.
    pub fn with_limits(self, limits: ServerLimits) -> Listener {
        Listener { limits, ..self }
    }

    /// Another clock than the system's to compare those of agents with.
    pub fn with_clock(self, clock: WireClock) -> Listener {
        Listener { clock, ..self }
    }

    /// Places for agents that this listener shares with others.
    pub fn with_places(self, places: &Arc<Places>) -> Listener {
        Listener { places: Arc::clone(places), ..self }
    }

    /// Other memory for frames than what all listeners of the process share.
    pub fn with_budgets(self, budgets: Budgets) -> Listener {
        Listener { budgets, ..self }
    }

    /// The endpoint with the real port.
    pub fn local_endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Serves in threads of its own, which tell the caller's `tracing` subscriber of agents that are refused and of hosts
    /// with one name, ten lines a minute. The handler is given the batches of a frame together, before them what is known of
    /// the agent's clock where that is news (`ClockOffset`), and the frame counts as kept when it returns; while it
    /// takes its time, the agent runs out of credit and waits. A handler that panics is given the same frame again, whole.
    pub fn serve(self, handler: Arc<Handler>) -> ListenerHandle {
        self.serve_with(handler, Arc::new(|_, _| {}))
    }

    /// As `serve`; `captured` is given what agents answer to orders, with the number of the connection, by that
    /// connection's thread: while it takes its time, that one agent waits.
    pub fn serve_with(self, handler: Arc<Handler>, captured: Arc<CapturedHandler>) -> ListenerHandle {
        self.serve_sink(Arc::new(Plain(handler)), captured)
    }

    /// As `serve_with`, for a sink that says later of each frame whether it is kept; it is acknowledged then.
    pub fn serve_sink(self, sink: Arc<dyn Sink>, captured: Arc<CapturedHandler>) -> ListenerHandle {
        let shared = Arc::new(Shared {
            token: self.token,
            tls: self.tls,
            limits: self.limits,
            sink,
            captured,
            gates: OnceLock::new(),
            clock: self.clock,
            stopping: AtomicBool::new(false),
            places: self.places,
            budgets: self.budgets,
            told: Told::default(),
            strangers: Mutex::default(),
            connections: Mutex::default(),
            agents: Mutex::default(),
            counters: Counters::default(),
        });
        let for_thread = Arc::clone(&shared);
        let socket = Arc::new(self.socket);
        let accepted_on = Arc::clone(&socket);
        let accepting = thread::spawn(with_callers_subscriber(move || accept_loop(&accepted_on, &for_thread)));
        let (endpoint, address, own_socket) = (self.endpoint, self.address, self.own_socket);
        ListenerHandle { endpoint, address, socket, own_socket, shared, accepting: Some(accepting) }
    }
}

/// A running server; stops when dropped.
pub struct ListenerHandle {
    endpoint: Endpoint,
    address: Option<SocketAddr>,
    socket: Arc<Socket>,
    own_socket: Option<socket::Made>,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for ListenerHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenerHandle").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl ListenerHandle {
    /// The TCP address, `None` for a unix socket.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The endpoint with the real port.
    pub fn local_endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Ends all connections and waits for the accepting thread.
    pub fn stop(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the accepting thread: on a listening socket, Linux lets `accept` fail from then on.
        let woken = rustix::net::shutdown(self.socket.fd(), rustix::net::Shutdown::Both).is_ok();
        lock(&self.shared.strangers).closers().for_each(Closer::close);
        lock(&self.shared.connections).values().for_each(|line| line.closer.close());
        if woken {
            // A panic there would be a fault of ours that has ended the thread, which is what we want here.
            let _ = accepting.join();
            // Those that it let in meanwhile.
            lock(&self.shared.strangers).closers().for_each(Closer::close);
        }
        if let Some(place) = self.own_socket.take() {
            place.remove();
        }
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        self.shut();
    }
}

fn accept_loop(socket: &Socket, shared: &Arc<Shared>) {
    let mut number = 0u64;
    while !shared.stopping.load(Ordering::SeqCst) {
        let Ok((stream, from)) = socket.accept() else {
            if !shared.stopping.load(Ordering::SeqCst) {
                // Out of file descriptors, most likely: wait for connections to end.
                thread::sleep(Duration::from_millis(50));
            }
            continue;
        };
        number += 1;
        let out = lock(&shared.strangers).enter(number, from, stream.closer(), shared.places.shares.strangers);
        if let Some(out) = out {
            out.close();
            count(&shared.counters.put_out, 1);
        }
        let for_thread = Arc::clone(shared);
        let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(with_callers_subscriber(move || {
            let _guard = Registered { shared: Arc::clone(&for_thread), number };
            run_connection(stream, &for_thread, number, from);
        }));
        if let Err(error) = started {
            lock(&shared.strangers).leave(number);
            let why = "no thread for a connection; raise the limit of processes (ulimit -u)";
            shared.tell(|more| error!(%error, "{why}: {error}{more}"));
        }
    }
}

/// Takes a connection out of the register however its thread ends.
struct Registered {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Registered {
    fn drop(&mut self) {
        lock(&self.shared.strangers).leave(self.number);
        let gone = lock(&self.shared.connections).remove(&self.number);
        gone.iter().for_each(|line| self.shared.sink.attends(Attendance::Gone(&line.peer())));
    }
}

fn run_connection(stream: Stream, shared: &Shared, number: u64, from: Option<IpAddr>) {
    let deadline = Instant::now() + shared.limits.handshake;
    let mut stream = match begin_tls(stream, shared.tls.as_ref().map(ServerTls::config), deadline) {
        Ok(stream) => stream,
        Err((mut stream, end)) => return say_no(&mut stream, shared, (from, None), end),
    };
    let mut named = None;
    let (seen, token) = match handshake(&mut stream, shared, deadline, number, &mut named) {
        Ok(welcome) => welcome,
        Err(end) => return say_no(&mut stream, shared, (from, named), end),
    };
    if let Err(End::Refuse(code, text)) = messages(&mut stream, shared, number, &seen, token) {
        count(&shared.counters.refused, 1);
        let host = named.as_deref().map(shown).unwrap_or_default();
        let say = |more| warn!(host, %code, error = text, "agent of host {host} cut off ({code}): {text}{more}");
        shared.tell(say);
        shared.sink.attends(Attendance::Refused { host: named.as_deref(), from, code, text: &text });
        // The peer may be gone already.
        let _ = stream.write_all_by(&Message::Goodbye { code, text }.encode(), Instant::now() + WRITE_LIMIT);
    }
}

fn say_no(stream: &mut Stream, shared: &Shared, (from, named): (Option<IpAddr>, Option<String>), end: End) {
    count(&shared.counters.refused, 1);
    if let End::Refuse(code, text) = end {
        shared.sink.attends(Attendance::Refused { host: named.as_deref(), from, code, text: &text });
        let from = from.map_or_else(|| "the unix socket".to_owned(), |ip| ip.to_string());
        let say = |more| warn!(peer = from, %code, error = text, "agent at {from} refused ({code}): {text}{more}");
        shared.tell(say);
        let answer = Answer::Refused { code, text }.encode(0);
        stream.write_last_words(&answer, Instant::now() + WRITE_LIMIT);
    }
}

fn handshake(
    stream: &mut Stream,
    shared: &Shared,
    deadline: Instant,
    number: u64,
    named: &mut Option<String>,
) -> Result<(Seen, Option<Shown>), End> {
    let (hello, owner) = read_hello(stream, &shared.token, deadline, named)?;
    let token = Shown::of(&hello, &owner);
    let version = hello.highest.min(proto::VERSION_HIGHEST);
    // Before anything is done to whoever has that number.
    let seen = lock(&shared.agents).get(hello.agent, &owner)?;
    let only = owner.only();
    let peer = admit(shared, number, version, hello, owner)?;
    shared.sink.attends(Attendance::Came(&peer));
    // Waits for frames that the agent's previous connection has handed over.
    let last_sequence = lock(&seen).take_over(number, only);
    let welcome = Welcome {
        credit_frames: CREDIT_FRAMES,
        credit_bytes: CREDIT_BYTES,
        max_frame_bytes: u32::try_from(codec::MAX_FRAME_BYTES).unwrap_or(u32::MAX),
        heartbeat_ms: HEARTBEAT_MS,
        last_sequence,
    };
    stream.write_all_by(&Answer::Welcome(welcome).encode(version), Instant::now() + WRITE_LIMIT)?;
    Ok((seen, token))
}

/// A stranger that has shown the token becomes an agent, as which it is told. Its earlier connection ends, if it has one.
fn admit(shared: &Shared, number: u64, version: u16, hello: Hello, owner: Owner) -> Result<Peer, End> {
    let mut connections = lock(&shared.connections);
    connections.retain(|_, line| {
        let is_another = line.agent != hello.agent;
        if !is_another {
            line.closer.close();
        }
        is_another
    });
    if owner.is_bound && connections.values().filter(|line| line.owner == owner).count() >= AGENTS_OF_HOST_MAX {
        let text = format!("{AGENTS_OF_HOST_MAX} agents {owner} are connected; stop those that are too many");
        return refuse(Refusal::Full, text);
    }
    let Some(place) = shared.places.take() else {
        let shares = shared.places.shares;
        let remedy = if shares.is_tight { "raise its limit of open files (ulimit -n) or add" } else { "add" };
        return refuse(Refusal::Full, format!("{} agents are connected; {remedy} a server", shares.agents));
    };
    // Put out a moment ago: the socket is closed already.
    let closer = lock(&shared.strangers).leave(number).ok_or(End::Silent)?;
    let named_so = |line: &Line| line.peer.host == hello.host && line.machine != 0 && line.machine != hello.machine;
    let is_second = hello.machine != 0 && connections.values().any(named_so);
    let (silent, spooled) = (Duration::ZERO, None);
    let peer = Peer { connection: number, host: hello.host, software: hello.software, version, silent, spooled };
    let (host, now, told) = (shown(&peer.host), Instant::now(), peer.clone());
    let (agent, machine, orders) = (hello.agent, hello.machine, VecDeque::new());
    let line =
        Line { closer, peer, agent, owner, machine, since: now, heard: now, orders, quick_until: None, _place: place };
    connections.insert(number, line);
    drop(connections);
    debug!(host, connection = number, "agent of host {host} connected");
    if is_second {
        shared.tell(|left_out| {
            let what = "an agent of a second machine has connected under this name";
            warn!(host, "host {host}: {what}; if both stay, give one of them another name with --host{left_out}");
        });
    }
    Ok(told)
}

/// A connection whose handshake is done.
struct Talk<'a> {
    stream: &'a mut Stream,
    shared: &'a Shared,
    number: u64,
    seen: &'a Seen,
    version: u16,
    clock: PeerClock,
    standing: Standing,
}

impl Talk<'_> {
    /// Writes answers, and our times before them.
    fn write(&mut self, answers: &[u8]) -> Result<(), End> {
        let mut out = Vec::new();
        if self.version >= VERSION_TIMES {
            out = Message::Times(self.clock.stamp(self.shared.clock.now())).encode();
        }
        out.extend_from_slice(answers);
        Ok(self.stream.write_all_by(&out, Instant::now() + WRITE_LIMIT)?)
    }

    /// Writes the answers to frames of which it is known what became of them.
    fn answer(&mut self) -> Result<(), End> {
        let mut answers = Vec::new();
        lock(self.seen).settle(&mut answers);
        if answers.is_empty() { Ok(()) } else { self.write(&answers) }
    }

    /// Waits for the first byte of a message; writes the orders and the answers that come up meanwhile.
    fn first_byte(&mut self, first: &mut [u8]) -> Result<(), End> {
        let shared = self.shared;
        let idle = Instant::now() + shared.limits.idle;
        loop {
            if shared.stopping.load(Ordering::Relaxed) {
                return Err(End::Silent);
            }
            self.standing.look(&shared.token, shared.tls.as_ref())?;
            let given = lock(&shared.connections).get_mut(&self.number).map(|line| {
                (std::mem::take(&mut line.orders), line.quick_until.is_some_and(|until| Instant::now() < until))
            });
            let (orders, is_quick) = given.unwrap_or_default();
            for order in orders {
                self.stream.write_all_by(&order, Instant::now() + WRITE_LIMIT)?;
            }
            self.answer()?;
            let (waits_for, is_full, is_unkept) = {
                let progress = lock(self.seen);
                (progress.waits_for(), progress.is_full(), progress.is_unkept())
            };
            if is_unkept && waits_for.is_none() && shared.sink.keeps() {
                return refuse(Refusal::Failed, "earlier frames could not be kept; they can be now, send them again");
            }
            let soon = |usual: Duration| if is_quick { GATE_LATENCY } else { usual };
            match waits_for {
                // What has come already is read before a disk is waited for.
                Some(_) if !is_full && self.stream.read_now(first)? => return Ok(()),
                Some(receipt) => {
                    receipt.wait(soon(RECEIPT_LOOK));
                }
                // One byte is read whole or not at all, so a wait that ends early loses nothing.
                None => match self.stream.read_exact_by(first, idle.min(Instant::now() + soon(ORDER_LATENCY))) {
                    Err(e) if e.kind() == ErrorKind::TimedOut && Instant::now() < idle => {}
                    other => return Ok(other?),
                },
            }
        }
    }
}

fn messages(stream: &mut Stream, shared: &Shared, number: u64, seen: &Seen, token: Option<Shown>) -> Result<(), End> {
    let version = lock(&shared.connections).get(&number).map_or(0, |line| line.peer.version);
    let standing = Standing::of(token, stream);
    let mut talk = Talk { stream, shared, number, seen, version, clock: PeerClock::default(), standing };
    loop {
        let mut head = [0u8; proto::MESSAGE_HEAD_BYTES];
        let (first, rest) = head.split_at_mut(1);
        talk.first_byte(first)?;
        let came_at = shared.clock.now();
        let deadline = Instant::now() + shared.limits.message;
        talk.stream.read_exact_by(rest, deadline)?;
        let head = MessageHead::read(&head);
        let max = head.max_body_bytes();
        if head.body_bytes > max {
            return refuse(Refusal::Malformed, format!("a message of {} bytes, at most {max}", head.body_bytes));
        }
        if let Some(line) = lock(&shared.connections).get_mut(&number) {
            line.heard = Instant::now();
        }
        let (body, _arrived) = read_body(talk.stream, &shared.budgets.receiving, head.body_bytes, deadline)?;
        match Message::decode(head, body) {
            Ok(Message::Batches { sequence, frame }) => {
                let _opened = open(talk.stream, shared, sequence, &frame)?;
                handle(shared, number, seen, sequence, frame, &mut talk.clock)?;
            }
            Ok(Message::Heartbeat(nonce, spooled)) => {
                lock(&shared.connections).get_mut(&number).into_iter().for_each(|line| line.peer.spooled = spooled);
                talk.write(&Message::HeartbeatAck(nonce).encode())?;
            }
            Ok(Message::Captured(captured)) => (shared.captured)(number, captured),
            Ok(Message::GateAnswer(said)) => {
                if let Some(hear) = shared.gates.get() {
                    hear(number, said);
                }
            }
            Ok(Message::Times(times)) => talk.clock.take(times, came_at),
            // A newer agent's message that this version need not understand.
            Ok(_) => {}
            Err(why) => return refuse(Refusal::Malformed, why),
        }
    }
}

/// Takes memory for what a frame opens to. One that claims too much is rejected before its peer is cut off.
fn open<'a>(stream: &mut Stream, shared: &'a Shared, sequence: u64, frame: &[u8]) -> Result<Option<Charge<'a>>, End> {
    match charge(&shared.budgets.decoding, frame) {
        Err(End::Refuse(Refusal::Malformed, text)) => {
            count(&shared.counters.rejected, 1);
            let reject = Message::Reject { sequence, bytes: frame.len() as u64, text: text.clone() };
            stream.write_all_by(&reject.encode(), Instant::now() + WRITE_LIMIT)?;
            refuse(Refusal::Malformed, text)
        }
        other => other,
    }
}

/// Hands a frame over; its answer comes when it is kept.
fn handle(
    shared: &Shared,
    number: u64,
    seen: &Seen,
    sequence: u64,
    frame: Vec<u8>,
    clock: &mut PeerClock,
) -> Result<(), End> {
    let counters = &shared.counters;
    let bytes = frame.len() as u64;
    let taken = lock(seen)
        .hand_over(number, sequence, frame, &*shared.sink, &mut |batches| clock.tell(batches, shared.clock.now()));
    match taken {
        Taken::OnItsWay { skipped_records } => {
            count(&counters.frames, 1);
            count(&counters.bytes, bytes);
            count(&counters.skipped_records, skipped_records);
        }
        Taken::Duplicate => count(&counters.duplicates, 1),
        Taken::Rejected => count(&counters.rejected, 1),
        Taken::Panicked { tries } => {
            count(&counters.handler_panics, 1);
            if tries < HANDLER_TRIES {
                return refuse(Refusal::Failed, format!("try {tries} of {HANDLER_TRIES}; see the server's log"));
            }
            count(&counters.rejected, 1);
        }
        Taken::Superseded => return Err(End::Silent),
    }
    Ok(())
}
