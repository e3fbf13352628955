//! A communicator: who its ranks are, what they share, and how it begins and ends.

mod card;

use crate::abi::{Algo, Code, Fault, Func, Res};
use crate::bootstrap::{Bootstrap, RootAddr, start_root};
use crate::control::RankState;
use crate::device::{Event, lock};
use crate::env::Identity;
use crate::kernel::{DevState, Notify};
use crate::personality::Personality;
use crate::profiler::{CommFacts, Profiler};
use crate::proxy::{self, Msg};
use crate::schedule::Rounds;
use crate::transport::fifo::{Doorbell, Fifo};
use crate::transport::shm::{Mapping, Shape, create_segment, open_segment};
use crate::transport::{ConnKey, Dir, greet::Listener, waker::ProxyWaker};
use crate::tuner::Ground;
pub use card::Peer;
use card::{Card, host_order, peers_of};
use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// Work items whose times a channel remembers, as NCCL's profiler ring.
const CLOCK_SLOTS: usize = 64;
/// How often a wait for the end looks whether its peers still live.
const PEER_CHECK: Duration = Duration::from_millis(200);

/// Start and end of the works of one channel: the pinned arrays that a GPU would write.
#[derive(Debug)]
struct WorkClock {
    started: [(AtomicU64, AtomicU64); CLOCK_SLOTS],
    completed: [(AtomicU64, AtomicU64); CLOCK_SLOTS],
}

impl WorkClock {
    fn new() -> WorkClock {
        let ring = || std::array::from_fn(|_| (AtomicU64::new(0), AtomicU64::new(0)));
        WorkClock { started: ring(), completed: ring() }
    }
}

/// Which launch came last, so that kernels of one communicator never run side by side.
#[derive(Debug, Default)]
pub(crate) struct LaunchTail {
    pub(crate) last: Option<(usize, Arc<Event>)>,
    pub(crate) counters: Vec<u64>,
}

#[derive(Debug, Default)]
struct Outstanding {
    kernels: u64,
    proxy_ops: u64,
}

/// How a rank wants its communicator; from `ncclConfig_t`.
#[derive(Debug, Clone, Default)]
pub struct Wish {
    /// Least channels.
    pub channels_min: Option<usize>,
    /// Most channels.
    pub channels_max: Option<usize>,
    /// Name for the profiler.
    pub name: Option<CString>,
}

/// A communicator of this process.
#[derive(Debug)]
pub struct Comm {
    /// Who made it.
    pub identity: Identity,
    /// This rank.
    pub rank: usize,
    /// All ranks.
    pub ranks: usize,
    /// The same number at every rank of the communicator.
    pub hash: u64,
    /// Name from the configuration.
    pub name: Option<CString>,
    /// Everybody.
    pub peers: Vec<Peer>,
    /// Hosts.
    pub nodes: usize,
    /// Ranks in ring order: host by host.
    pub order: Arc<[usize]>,
    /// This rank's place in `order`.
    pub pos: usize,
    /// Channels.
    pub channels: usize,
    /// Bytes of a slot.
    pub slot_bytes: usize,
    /// Algorithm of AllReduce, Broadcast and Reduce where no NCCL version is imitated.
    pub algo: Algo,
    /// The NCCL version that is imitated.
    pub personality: Personality,
    /// What the choice of algorithm and protocol depends on.
    pub ground: Ground,
    /// The host of each rank.
    pub hosts: Vec<usize>,
    /// In which order this rank exchanges with the others.
    pub rounds: Rounds,
    /// Where this rank's device sleeps.
    pub bell: Doorbell,
    /// The device's connections; held by the running kernel.
    pub device: Mutex<DevState>,
    /// The plugin, when there is one.
    pub profiler: Option<Profiler>,
    /// Wakes the proxy thread.
    pub waker: Arc<ProxyWaker>,
    pub(crate) inbox: Mutex<Vec<Msg>>,
    pub(crate) listener: Option<Listener>,
    pub(crate) launch: Mutex<LaunchTail>,
    shape: Shape,
    locals: Vec<usize>,
    segments: HashMap<usize, Arc<Mapping>>,
    known: Mutex<HashMap<ConnKey, Fifo>>,
    clocks: Vec<WorkClock>,
    seq: [AtomicU64; 8],
    proxy: Mutex<Option<std::thread::JoinHandle<()>>>,
    bootstrap: Mutex<Option<Bootstrap>>,
    aborted: AtomicBool,
    async_error: AtomicI32,
    ended: AtomicBool,
    is_set_up: AtomicBool,
    outstanding: Mutex<Outstanding>,
    settled: Condvar,
}

impl Comm {
    /// Joins the communicator that `root` names. Blocks until every rank has come.
    ///
    /// # Errors
    /// A rank or the root cannot be reached, or resources ran out.
    pub fn join(root: RootAddr, rank: usize, ranks: usize, wish: &Wish) -> Res<Arc<Comm>> {
        let identity = Identity::current();
        if let Some(control) = &identity.control {
            control.rank().state.store(RankState::Initializing as u64, Ordering::Relaxed);
            control.rank().pid.store(u64::from(std::process::id()), Ordering::Relaxed);
        }
        let mut bootstrap = Bootstrap::join(root, rank, ranks)?;
        let listener = Listener::bind(identity.addr)
            .map_err(|e| Fault::system(&format!("listening on {} (MYCROFT_TESTBED_ADDR)", identity.addr), &e))?;
        let mut channels = identity.channels();
        channels = channels.min(wish.channels_max.unwrap_or(channels)).max(wish.channels_min.unwrap_or(1));
        let card = Card::of(&identity, listener.addr, channels);
        let cards: Option<Vec<Card>> = bootstrap.all_gather(&card.encode())?.iter().map(|b| Card::decode(b)).collect();
        let cards = cards.ok_or_else(|| Fault::new(Code::InternalError, "a peer's card cannot be read"))?;
        let comm = Self::assemble(identity, (rank, ranks), root.key, wish, &cards, listener, bootstrap)?;
        if comm.nodes > 1 {
            comm.ensure_proxy()?;
        }
        if let Some(control) = &comm.identity.control {
            control.rank().state.store(RankState::Running as u64, Ordering::Relaxed);
        }
        Ok(comm)
    }

    fn assemble(
        identity: Identity,
        (rank, ranks): (usize, usize),
        hash: u64,
        wish: &Wish,
        cards: &[Card],
        listener: Listener,
        mut bootstrap: Bootstrap,
    ) -> Res<Arc<Comm>> {
        let (peers, nodes) = peers_of(cards);
        let (channels, slot_bytes) = card::least(cards);
        let locals: Vec<usize> = (0..ranks).filter(|r| peers[*r].host == peers[rank].host).collect();
        let shape = Shape { locals: locals.len(), channels, slot_bytes };
        let segments = map_segments(&mut bootstrap, shape, &locals, &peers, rank)?;
        let (order, pos) = host_order(&peers, rank);
        let hosts: Vec<usize> = peers.iter().map(|p| p.host).collect();
        let (algo, proto) = (cards[0].algo, cards[0].proto);
        let profiler = attach(hash, wish, nodes, ranks, rank);
        let waker = Arc::new(ProxyWaker::new().map_err(|e| Fault::system("eventfd", &e))?);
        let comm = Arc::new(Comm {
            rank,
            ranks,
            hash,
            name: wish.name.clone(),
            nodes,
            order: order.into(),
            pos,
            channels,
            slot_bytes,
            algo: algo.unwrap_or(Algo::Ring),
            personality: card::agreed(cards)?,
            ground: Ground { ranks, nodes, channels, algo, proto },
            rounds: Rounds::new(&hosts, rank),
            hosts,
            bell: Doorbell::new(Arc::clone(&segments[&rank])),
            device: Mutex::default(),
            profiler,
            waker,
            inbox: Mutex::default(),
            listener: Some(listener),
            launch: Mutex::new(LaunchTail { last: None, counters: vec![0; channels] }),
            shape,
            locals,
            segments,
            known: Mutex::default(),
            clocks: (0..channels).map(|_| WorkClock::new()).collect(),
            seq: Default::default(),
            proxy: Mutex::new(None),
            bootstrap: Mutex::new(Some(bootstrap)),
            aborted: AtomicBool::new(false),
            async_error: AtomicI32::new(0),
            ended: AtomicBool::new(false),
            is_set_up: AtomicBool::new(false),
            outstanding: Mutex::default(),
            settled: Condvar::new(),
            identity,
            peers,
        });
        Ok(comm)
    }

    /// Splits off the ranks that give the same `color`, ordered by `key` and then by rank. `None` color: take part in
    /// the agreement, get nothing.
    ///
    /// # Errors
    /// A rank is gone, or resources ran out.
    pub fn split(self: &Arc<Comm>, color: Option<u32>, key: i32, wish: &Wish) -> Res<Option<Arc<Comm>>> {
        let mut guard = lock(&self.bootstrap);
        let bootstrap =
            guard.as_mut().ok_or_else(|| Fault::new(Code::InvalidUsage, "split of a finished communicator"))?;
        let mut mine = [0u8; 12];
        mine[..8].copy_from_slice(&color.map_or(u64::MAX, u64::from).to_le_bytes());
        mine[8..].copy_from_slice(&key.to_le_bytes());
        let said = bootstrap.all_gather(&mine)?;
        let read = |blob: &[u8]| -> Option<(u64, i32)> {
            Some((
                u64::from_le_bytes(blob.get(..8)?.try_into().ok()?),
                i32::from_le_bytes(blob.get(8..12)?.try_into().ok()?),
            ))
        };
        let mut members: Vec<(i32, usize)> = Vec::new();
        for (rank, blob) in said.iter().enumerate() {
            match (read(blob), color) {
                (Some((c, k)), Some(own)) if c == u64::from(own) => members.push((k, rank)),
                (None, _) => {
                    return Err(Fault::new(Code::InternalError, format!("rank {rank}'s color cannot be read")));
                }
                _ => {}
            }
        }
        members.sort_unstable();
        let place = members.iter().position(|(_, r)| *r == self.rank);
        let root = match place {
            Some(0) => Some(start_root(self.identity.addr)?),
            _ => None,
        };
        let text = root.map(|r| format!("{} {}", r.key, r.addr)).unwrap_or_default();
        let roots = bootstrap.all_gather(text.as_bytes())?;
        drop(guard);
        let Some(place) = place else { return Ok(None) };
        let parse = || {
            let (key, addr) = std::str::from_utf8(&roots[members[0].1]).ok()?.split_once(' ')?;
            Some(RootAddr { addr: addr.parse().ok()?, key: key.parse().ok()? })
        };
        let root = parse().ok_or_else(|| Fault::new(Code::InternalError, "the split's root cannot be read"))?;
        let saved = Identity::current();
        crate::env::set_thread_identity(Some(self.identity.clone()));
        let child = Comm::join(root, place, members.len(), wish);
        crate::env::set_thread_identity(Some(saved));
        child.map(Some)
    }

    /// Whether `peer` shares memory with this rank.
    pub fn is_local(&self, peer: usize) -> bool {
        self.peers[peer].host == self.peers[self.rank].host
    }

    /// The rank's place on its host, which stands for the number of its device.
    pub fn device_index(&self) -> usize {
        self.local_index(self.rank)
    }

    fn local_index(&self, rank: usize) -> usize {
        self.locals.iter().position(|r| *r == rank).unwrap_or(0)
    }

    /// The FIFO of a connection, made at first use; `true` when the device does not know it yet.
    pub(crate) fn fifo(&self, key: ConnKey) -> Res<(Fifo, Notify, bool)> {
        let mut known = lock(&self.known);
        let local = self.is_local(key.peer);
        let notify = if local {
            Notify::Peer(Doorbell::new(Arc::clone(&self.segments[&key.peer])))
        } else {
            Notify::Proxy(Arc::clone(&self.waker))
        };
        if let Some(fifo) = known.get(&key) {
            return Ok((fifo.clone(), notify, false));
        }
        let fifo = if local {
            let (owner, sender) = match key.dir {
                Dir::Send => (key.peer, self.rank),
                Dir::Recv => (self.rank, key.peer),
            };
            let offset = self.shape.offset(self.local_index(sender), key.channel, key.lane);
            Fifo::new(Arc::clone(&self.segments[&owner]), offset, self.slot_bytes)
        } else {
            let fifo = Fifo::private(self.slot_bytes).map_err(|e| Fault::system("memory for a connection", &e))?;
            if key.dir == Dir::Send {
                fifo.set_head(-(crate::env::STEPS as i64));
            }
            fifo
        };
        known.insert(key, fifo.clone());
        Ok((fifo, notify, true))
    }

    /// Starts the proxy thread unless it runs.
    pub(crate) fn ensure_proxy(self: &Arc<Comm>) -> Res<()> {
        let mut proxy = lock(&self.proxy);
        if proxy.is_none() {
            let comm = Arc::clone(self);
            let spawned = std::thread::Builder::new().name("NCCL Progress".into()).spawn(move || proxy::run(&comm));
            *proxy = Some(spawned.map_err(|e| Fault::system("proxy thread", &e))?);
        }
        Ok(())
    }

    /// The first operation waits for its connections.
    pub(crate) fn set_up(&self) {
        if self.profiler.is_some() && self.ranks > 1 && !self.is_set_up.swap(true, Ordering::Relaxed) {
            std::thread::sleep(self.personality.setup());
        }
    }

    /// Hands work to the proxy thread.
    pub(crate) fn to_proxy(self: &Arc<Comm>, messages: Vec<Msg>) -> Res<()> {
        if messages.is_empty() {
            return Ok(());
        }
        self.ensure_proxy()?;
        lock(&self.outstanding).proxy_ops += messages.len() as u64;
        // A kernel to watch can wait until the thread looks by itself; data cannot.
        let urgent = messages.iter().any(|message| !matches!(message, Msg::Watch(_)));
        lock(&self.inbox).extend(messages);
        if urgent {
            self.waker.wake()
        } else {
            self.waker.nudge()
        }
        Ok(())
    }

    /// The next sequence number of `func`.
    pub(crate) fn next_seq(&self, func: Func) -> u64 {
        self.seq[func as usize].fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn kernel_launched(&self) {
        lock(&self.outstanding).kernels += 1;
    }

    /// One kernel less to wait for.
    pub fn kernel_finished(&self) {
        lock(&self.outstanding).kernels -= 1;
        self.settled.notify_all();
    }

    pub(crate) fn proxy_op_finished(&self) {
        lock(&self.outstanding).proxy_ops -= 1;
        self.settled.notify_all();
    }

    /// A device says that it begins work `counter` of `channel`.
    pub(crate) fn work_started(&self, channel: usize, counter: u64, at_ns: u64) {
        self.note(&self.clocks[channel].started, counter, at_ns);
    }

    /// A device says that it ended work `counter` of `channel`.
    pub(crate) fn work_completed(&self, channel: usize, counter: u64, at_ns: u64) {
        self.note(&self.clocks[channel].completed, counter, at_ns);
    }

    fn note(&self, ring: &[(AtomicU64, AtomicU64); CLOCK_SLOTS], counter: u64, at_ns: u64) {
        let slot = &ring[(counter % CLOCK_SLOTS as u64) as usize];
        if slot.0.load(Ordering::Relaxed) >= counter {
            return;
        }
        slot.1.store(at_ns, Ordering::Relaxed);
        slot.0.store(counter, Ordering::Release);
        // The clock says when, so the thread may read it later, but before the ring of clocks laps it.
        if counter.is_multiple_of(CLOCK_SLOTS as u64 / 2) { self.waker.wake() } else { self.waker.nudge() }
    }

    /// When work `counter` of `channel` began and ended, as far as it has.
    pub(crate) fn work_times(&self, channel: usize, counter: u64) -> (Option<u64>, Option<u64>) {
        let look = |ring: &[(AtomicU64, AtomicU64); CLOCK_SLOTS]| {
            let slot = &ring[(counter % CLOCK_SLOTS as u64) as usize];
            (slot.0.load(Ordering::Acquire) >= counter).then(|| slot.1.load(Ordering::Relaxed))
        };
        (look(&self.clocks[channel].started), look(&self.clocks[channel].completed))
    }

    /// Whether somebody gave up on this communicator.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// What `ncclCommGetAsyncError` answers.
    pub fn async_error(&self) -> i32 {
        self.async_error.load(Ordering::Acquire)
    }

    /// Records the first asynchronous error.
    pub(crate) fn set_async_error(&self, code: Code, why: &str) {
        let first = self.async_error.compare_exchange(0, code as i32, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if first {
            crate::log::warn(&format!("communicator {:016x} rank {}: {why}", self.hash, self.rank));
            self.settled.notify_all();
        }
    }

    /// Ends whatever runs, at once.
    pub fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        self.bell.ring();
        self.waker.wake();
        self.settled.notify_all();
    }

    /// Waits until everything launched is over. A dead peer or a broken connection turns it into an abort.
    pub fn settle(&self) {
        let mut left = lock(&self.outstanding);
        while (left.kernels > 0 || left.proxy_ops > 0) && !self.is_aborted() {
            // Without kernels nothing waits for shared memory: a peer that ended in order is no reason to stop the proxy.
            if self.async_error() != 0 || (left.kernels > 0 && self.has_dead_peer()) {
                drop(left);
                self.abort();
                return;
            }
            left = self.settled.wait_timeout(left, PEER_CHECK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn has_dead_peer(&self) -> bool {
        self.locals.iter().any(|r| !std::path::Path::new(&format!("/proc/{}", self.peers[*r].pid)).exists())
    }

    /// Ends the communicator: settle (unless aborted), stop the proxy, let the plugin go.
    pub fn end(&self) {
        if self.ended.swap(true, Ordering::AcqRel) {
            return;
        }
        self.settle();
        lock(&self.inbox).push(Msg::Stop);
        self.waker.wake();
        if let Some(proxy) = lock(&self.proxy).take() {
            let _ = proxy.join();
        }
        // A kernel that was aborted leaves within one slice; the plugin hears nothing from it.
        let left = lock(&self.outstanding);
        let limit = Duration::from_secs(2);
        drop(self.settled.wait_timeout_while(left, limit, |l| l.kernels > 0).unwrap_or_else(PoisonError::into_inner));
        if let Some(profiler) = &self.profiler {
            profiler.detach();
        }
        *lock(&self.bootstrap) = None;
    }
}

fn attach(hash: u64, wish: &Wish, nodes: usize, ranks: usize, rank: usize) -> Option<Profiler> {
    let (nodes, ranks, rank) = (nodes as i32, ranks as i32, rank as i32);
    Profiler::attach(&CommFacts { hash, name: wish.name.as_deref(), nodes, ranks, rank })
}

/// Makes this rank's segment and maps those of its neighbours on the host.
fn map_segments(
    bootstrap: &mut Bootstrap,
    shape: Shape,
    locals: &[usize],
    peers: &[Peer],
    rank: usize,
) -> Res<HashMap<usize, Arc<Mapping>>> {
    let file = create_segment(shape.bytes()).map_err(|e| Fault::system("shared memory segment", &e))?;
    let said = bootstrap.all_gather(&file.as_raw_fd().to_le_bytes())?;
    let mut segments = HashMap::new();
    for peer in locals {
        let fd = said[*peer].as_slice().try_into().map_or(-1, i32::from_le_bytes);
        let mapping = if *peer == rank {
            Mapping::shared(&file, shape.bytes())
        } else {
            open_segment(peers[*peer].pid, fd, shape.bytes())
        };
        let mapping = mapping.map_err(|e| Fault::system(&format!("mapping the segment of rank {peer}"), &e))?;
        segments.insert(*peer, Arc::new(mapping));
    }
    // Only when all have mapped it may the descriptor go.
    bootstrap.barrier()?;
    Ok(segments)
}

static COMMS: OnceLock<Mutex<HashMap<usize, Arc<Comm>>>> = OnceLock::new();

fn comms() -> &'static Mutex<HashMap<usize, Arc<Comm>>> {
    COMMS.get_or_init(Mutex::default)
}

/// Gives a communicator its handle.
pub(crate) fn register(comm: Arc<Comm>) -> usize {
    let handle = Arc::as_ptr(&comm) as usize;
    lock(comms()).insert(handle, comm);
    handle
}

/// The communicator of a handle; a handle that nobody gave out is an invalid argument.
pub(crate) fn lookup(handle: usize) -> Res<Arc<Comm>> {
    let found = lock(comms()).get(&handle).cloned();
    found.ok_or_else(|| Fault::new(Code::InvalidArgument, format!("{handle:#x} is not a communicator")))
}

/// Takes a handle back.
pub(crate) fn unregister(handle: usize) -> Res<Arc<Comm>> {
    let found = lock(comms()).remove(&handle);
    found.ok_or_else(|| Fault::new(Code::InvalidArgument, format!("{handle:#x} is not a communicator")))
}
