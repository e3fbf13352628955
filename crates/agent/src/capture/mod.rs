//! Taking stacks and Flight Recorder dumps of a job's ranks when the server says so (Flight Recorder paper, "How to
//! leverage FR dumps").
//!
//! A thread per rank tries, one coordinating thread gathers, and the shipping thread sends. The job is never paused:
//! stacks are read from outside without stopping anything. Whatever one process does (hang, vanish, lie) concerns its
//! own rank only; after the order's time the coordinator reports what it has and leaves the rest behind.
mod access;
pub(crate) mod here;
mod rank;
mod recorder;
pub(crate) mod spy;

use crate::clock::wall_now;
use crate::config::CaptureConfig;
use crate::stats::Shared;
use access::Target;
use mycroft_record::{HostTime, JobName, Rank};
use mycroft_wire::{CaptureKind, CaptureOrder, Captured, PIECE_BYTES_MAX};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, TrySendError, channel, sync_channel};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// Longest an order may make us take, from its agreed time: it promises a person an answer in 10 s.
const LIMIT_MAX: Duration = Duration::from_secs(30);
/// An agreed time further from what the order's lead says is a clock that is off; then the lead counts.
const CLOCK_OFF_MAX: Duration = Duration::from_secs(2);
/// Longest wait for an agreed time.
const LEAD_MAX: Duration = Duration::from_secs(5);
/// Pieces that wait for the shipping thread: 8 x 256 KiB = 2 MiB.
const PIECES_QUEUED: usize = 8;
/// Pieces sent in one turn of the shipping thread: 1 MiB, after which batches get their turn.
const PIECES_A_TURN: usize = 4;
/// How often a coordinator that cannot hand over looks again.
const HAND_OVER_POLL: Duration = Duration::from_millis(5);
/// How much longer than the order's limit what was found may wait for the shipping thread.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(10);
/// Threads that never came back from an unreadable process: after so many, no more are sent.
const STUCK_MAX: usize = 64;

/// A traced process, as the sampling thread publishes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Watched {
    pub(crate) job: JobName,
    pub(crate) rank: Rank,
    pub(crate) pid: u32,
    /// Field 22 of its `stat`: tells it from a later process of that number.
    pub(crate) start_ticks: u64,
    /// It lives in this agent's process namespace (and boot), so its number means something here.
    pub(crate) reachable: bool,
}

/// What a rank's thread found.
enum Found {
    File {
        kind: CaptureKind,
        rank: Rank,
        pid: u32,
        name: String,
        bytes: Vec<u8>,
        text: String,
    },
    Nothing {
        kind: CaptureKind,
        rank: Rank,
        pid: u32,
        text: String,
    },
    /// The thread is through with this kind.
    Done {
        kind: CaptureKind,
        rank: Rank,
        pid: u32,
    },
}

/// The captures of an agent: one at a time.
pub(crate) struct Capturer {
    config: CaptureConfig,
    shared: Arc<Shared>,
    running: Option<Receiver<Captured>>,
    stuck: Arc<AtomicUsize>,
    /// Answers to orders that were not begun.
    refused: Vec<Captured>,
}

impl Capturer {
    pub(crate) fn new(config: CaptureConfig, shared: Arc<Shared>) -> Capturer {
        Capturer { config, shared, running: None, stuck: Arc::default(), refused: Vec::new() }
    }

    /// Begins what was ordered, or says why not.
    pub(crate) fn begin(&mut self, order: CaptureOrder) {
        let id = order.id;
        if let Err(text) = self.try_begin(order) {
            self.refused.push(Captured::End { capture: id, ranks: 0, text });
        }
    }

    fn try_begin(&mut self, order: CaptureOrder) -> Result<(), String> {
        if !self.config.enabled {
            return Err("captures are switched off on this host (agent option --no-dump)".to_owned());
        }
        if self.running.is_some() {
            return Err("another capture is still running on this host; try again in some seconds".to_owned());
        }
        if self.stuck.load(Ordering::Relaxed) >= STUCK_MAX {
            return Err(format!(
                "{STUCK_MAX} earlier readers never came back from processes in uninterruptible sleep: the host has a \
                 dead file system or device; restart the agent to try again"
            ));
        }
        let ranks: Vec<Watched> =
            self.shared.watched().into_iter().filter(|w| w.job.as_ref() == order.job.as_str()).collect();
        let (out, pieces) = sync_channel(PIECES_QUEUED);
        let round = Round { order, ranks, config: self.config.clone(), stuck: Arc::clone(&self.stuck), out };
        Builder::new()
            .name("mycroft-capture".to_owned())
            .spawn(move || round.run())
            .map_err(|e| format!("starting a thread: {e}; raise the limit of processes (ulimit -u)"))?;
        self.running = Some(pieces);
        Ok(())
    }

    /// Whether something waits or may come soon.
    pub(crate) fn is_active(&self) -> bool {
        self.running.is_some() || !self.refused.is_empty()
    }

    /// Gives what is ready to `send`, some of it a turn. What fails to be sent is over: the server has lost this agent.
    pub(crate) fn hand_over<E>(&mut self, mut send: impl FnMut(Captured) -> Result<(), E>) -> Result<(), E> {
        for answer in std::mem::take(&mut self.refused) {
            send(answer)?;
        }
        for _ in 0..PIECES_A_TURN {
            let Some(pieces) = &self.running else { return Ok(()) };
            match pieces.try_recv() {
                Ok(captured) => send(captured)?,
                Err(TryRecvError::Empty) => return Ok(()),
                Err(TryRecvError::Disconnected) => self.running = None,
            }
        }
        Ok(())
    }

    /// The server is gone: nobody waits for the answer.
    pub(crate) fn abandon(&mut self) {
        self.running = None;
        self.refused.clear();
    }
}

/// One capture on this host.
struct Round {
    order: CaptureOrder,
    ranks: Vec<Watched>,
    config: CaptureConfig,
    stuck: Arc<AtomicUsize>,
    out: SyncSender<Captured>,
}

/// A rank's thread that is out, however it ends.
struct Out(Arc<AtomicUsize>);

impl Out {
    fn begin(count: &Arc<AtomicUsize>) -> Out {
        count.fetch_add(1, Ordering::Relaxed);
        Out(Arc::clone(count))
    }
}

impl Drop for Out {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Nobody takes what was found any more.
struct Abandoned;

impl Round {
    fn run(self) {
        let begin = begin_at(&self.order, wall_now(), Instant::now());
        let until = begin + Duration::from_millis(u64::from(self.order.limit_ms)).min(LIMIT_MAX);
        let (found, inbox) = channel();
        let mut open = BTreeSet::new();
        // Ranks of one job on this host share a few readers: each costs a core for about 60 ms.
        let gate = Arc::new(rank::Gate::new(std::thread::available_parallelism().map_or(2, usize::from).min(8)));
        let traced: BTreeSet<u32> = self.ranks.iter().map(|w| w.pid).collect();
        for watched in &self.ranks {
            let kinds =
                [(self.order.stacks, CaptureKind::Stacks), (self.order.flight_recorder, CaptureKind::FlightRecorder)];
            let kinds: Vec<CaptureKind> = kinds.into_iter().filter(|(on, _)| *on).map(|(_, kind)| kind).collect();
            open.extend(kinds.iter().map(|kind| (watched.rank, watched.pid, *kind)));
            let task = rank::Task {
                target: Target::new(watched.pid, watched.start_ticks, watched.reachable),
                rank: watched.rank,
                kinds,
                begin,
                until,
                spy: self.config.spy.clone(),
                gate: Arc::clone(&gate),
                traced: traced.clone(),
            };
            self.start(task, &found);
        }
        drop(found);
        // Nobody listens any more when the server is gone; then there is nothing left to do.
        let _ = self.gather(&inbox, &mut open, until);
    }

    fn start(&self, task: rank::Task, found: &Sender<Found>) {
        let (rank, pid, kinds) = (task.rank, task.target.pid(), task.kinds.clone());
        let (tell, out) = (found.clone(), Out::begin(&self.stuck));
        let started = Builder::new().name("mycroft-capture-rank".to_owned()).spawn(move || {
            let _out = out;
            task.run(&tell);
        });
        if let Err(error) = started {
            for kind in kinds {
                let text = format!("starting a thread: {error}; raise the limit of processes (ulimit -u)");
                // Our own end is open.
                let _ = found.send(Found::Nothing { kind, rank, pid, text });
                let _ = found.send(Found::Done { kind, rank, pid });
            }
        }
    }

    /// Hands over what the ranks' threads find until they are through or the time is up.
    fn gather(
        &self,
        inbox: &Receiver<Found>,
        open: &mut BTreeSet<(Rank, u32, CaptureKind)>,
        until: Instant,
    ) -> Result<(), Abandoned> {
        let hand_over_by = until + HAND_OVER_LIMIT;
        while !open.is_empty() {
            // A little longer than the threads' own limits, so that their own words come first.
            let left = (until + Duration::from_millis(200)).saturating_duration_since(Instant::now());
            let Ok(found) = inbox.recv_timeout(left) else { break };
            match found {
                Found::File { kind, rank, pid, name, bytes, text } => {
                    self.file(&name, &bytes, hand_over_by)?;
                    self.tried(kind, rank, pid, name, text, hand_over_by)?;
                }
                Found::Nothing { kind, rank, pid, text } => {
                    self.tried(kind, rank, pid, String::new(), text, hand_over_by)?;
                }
                Found::Done { kind, rank, pid } => drop(open.remove(&(rank, pid, kind))),
            }
        }
        for (rank, pid, kind) in std::mem::take(open) {
            let text = format!(
                "no answer within {:.0} s: the process may be in uninterruptible sleep (state D; see /proc/{pid}/stack)",
                f64::from(self.order.limit_ms) / 1000.0
            );
            self.tried(kind, rank, pid, String::new(), text, hand_over_by)?;
        }
        let ranks = self.ranks.len() as u32;
        self.give(Captured::End { capture: self.order.id, ranks, text: String::new() }, hand_over_by)
    }

    fn file(&self, name: &str, bytes: &[u8], by: Instant) -> Result<(), Abandoned> {
        for (index, piece) in bytes.chunks(PIECE_BYTES_MAX).enumerate() {
            let offset = (index * PIECE_BYTES_MAX) as u64;
            let (file, bytes) = (name.to_owned(), piece.to_vec());
            self.give(Captured::Piece { capture: self.order.id, file, offset, bytes }, by)?;
        }
        Ok(())
    }

    fn tried(
        &self,
        kind: CaptureKind,
        rank: Rank,
        pid: u32,
        file: String,
        text: String,
        by: Instant,
    ) -> Result<(), Abandoned> {
        self.give(Captured::Tried { capture: self.order.id, kind, rank, pid, file, text }, by)
    }

    fn give(&self, captured: Captured, by: Instant) -> Result<(), Abandoned> {
        let mut captured = captured;
        loop {
            match self.out.try_send(captured) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Full(back)) if Instant::now() < by => captured = back,
                Err(_) => return Err(Abandoned),
            }
            sleep(HAND_OVER_POLL);
        }
    }
}

/// When to begin: at the agreed time by this host's clock, or, if that clock is off, after the order's lead.
fn begin_at(order: &CaptureOrder, wall: HostTime, now: Instant) -> Instant {
    let lead = Duration::from_millis(u64::from(order.in_ms)).min(LEAD_MAX);
    let ahead = Duration::from_nanos(order.at.since_ns(wall));
    let behind = Duration::from_nanos(wall.since_ns(order.at));
    // The order was on its way for a while, so what is left is at most the lead.
    let left = if order.at.0 >= wall.0 { ahead } else { Duration::ZERO };
    let off = if ahead > lead { ahead - lead } else { behind };
    if off > CLOCK_OFF_MAX { now + lead } else { now + left.min(LEAD_MAX) }
}

/// Waits until then.
fn wait_until(at: Instant) {
    sleep(at.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::NANOS_PER_MS;

    fn order(at: HostTime, in_ms: u32) -> CaptureOrder {
        CaptureOrder { id: 1, job: "j".into(), at, in_ms, limit_ms: 1000, stacks: true, flight_recorder: true }
    }

    #[test]
    fn agents_begin_at_the_agreed_time_unless_a_clock_is_off() {
        let wall = HostTime(1_000_000 * NANOS_PER_MS);
        let now = Instant::now();
        let begin = |at_ms: i64| {
            let at = HostTime(wall.0.saturating_add_signed(at_ms * NANOS_PER_MS as i64));
            begin_at(&order(at, 1000), wall, now).saturating_duration_since(now).as_millis()
        };
        assert_eq!(begin(900), 900, "the rest of the lead");
        assert_eq!(begin(2500), 2500, "a clock 1.5 s behind still agrees with the others of its kind");
        assert_eq!(begin(-500), 0, "late: at once");
        assert_eq!(begin(3_600_000), 1000, "an hour behind: the lead counts");
        assert_eq!(begin(-3_600_000), 1000, "an hour ahead: the lead counts");
    }
}
