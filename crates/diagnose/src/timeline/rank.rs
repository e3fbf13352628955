//! One rank: what is in flight, how far each order counter has come, and when anything of it last moved.
use mycroft_record::nccl::{Effect, Library, Peculiarity, peculiarities};
use mycroft_record::{
    ChannelId, CommId, CommRank, Direction, ExitStatus, FlowCounters, FlowDone, FlowState, FlowTimes, Gap, HostName,
    HostTime, NANOS_PER_MS, NANOS_PER_SEC, NcclVersion, OpClass, OpDone, OpId, OpKind, OpMeta, OpState, ProcessExit,
    ProcessKey, ProxyHeld, Rank, Sampled,
};

use crate::clocks::UNKNOWN_NS;

use super::comms::{CommSlot, Sorted};
use super::iterations::{Iterations, Room};
use super::live::Live;
use super::past::{Issued, Known, Past};

/// Operations in flight kept per rank; the probe's live table is smaller.
const LIVE_MAX: u16 = 4096;
/// Flows kept per operation in flight: 32 channels x 2 directions x 8 peers.
pub(crate) const LIVE_FLOWS_MAX: usize = 512;
/// Agents repeat the state of an operation in flight once a second; one not repeated for longer has completed and its
/// completion record was lost.
const LIVE_REPEAT_NS: u64 = NANOS_PER_SEC + 800 * NANOS_PER_MS;

/// A flow's place inside an operation.
pub(crate) type FlowSlot = (ChannelId, CommRank, Direction);

/// A rank's part in a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joined {
    /// Where the communicator lies; `None` when the job has too many.
    pub at: Option<CommSlot>,
    pub me: CommRank,
    pub ended: bool,
}
/// The last known state of a flow of an operation in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveFlow {
    pub counters: FlowCounters,
    pub times: FlowTimes,
    pub seen_at: HostTime,
    pub done: bool,
}

/// An operation in flight.
#[derive(Clone, Debug)]
pub(crate) struct LiveOp {
    pub meta: OpMeta,
    pub seen_at: HostTime,
    pub kernels_started: u8,
    pub kernels_stopped: u8,
    pub flows: Sorted<FlowSlot, LiveFlow>,
}

impl LiveOp {
    /// At the first look at it. `flows` are empty, with the room of those of another.
    pub(super) fn new(state: &OpState, flows: Sorted<FlowSlot, LiveFlow>) -> LiveOp {
        LiveOp {
            meta: state.op,
            seen_at: state.sampled_at,
            kernels_started: state.kernels_started,
            kernels_stopped: state.kernels_stopped,
            flows,
        }
    }

    /// Takes in a look at it: whether its rank now stands elsewhere with regard to it, and whether its kernels have moved.
    fn take(&mut self, state: &OpState) -> (bool, bool) {
        if state.sampled_at < self.seen_at {
            return (false, false);
        }
        let before = standing(self);
        let newly = state.kernels_started > self.kernels_started || state.kernels_stopped > self.kernels_stopped;
        self.meta = state.op;
        self.seen_at = state.sampled_at;
        self.kernels_started = state.kernels_started;
        self.kernels_stopped = state.kernels_stopped;
        (before != standing(self), newly && (state.kernels_stopped > 0 || !state.op.started_at.is_some()))
    }
}

/// Where a rank stands with regard to one operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stand {
    /// Not issued by its host.
    NotIssued,
    /// Issued, kernel not started.
    Issued,
    /// In it.
    Entered,
    /// Through it.
    Left,
}

/// Everything known of one process.
#[derive(Debug)]
pub(crate) struct RankState {
    pub rank: Rank,
    pub host: HostName,
    pub process: ProcessKey,
    /// It was there before the job began anew.
    pub(super) carried: bool,
    /// How wrong its times may be.
    pub clock_error_ns: u64,
    pub world_size: u32,
    pub kernel_events: bool,
    /// The version of its NCCL; the default while not told.
    pub nccl_version: NcclVersion,
    /// An operation was seen of a kind that some versions do not show ([`RankState::hides`]).
    pub(super) has_shown_broadcast: bool,
    pub comms: Sorted<CommId, Joined>,
    pub live: Live,
    /// The newest collective that was issued and whose end cannot be seen.
    pub(super) unseen: Option<OpMeta>,
    /// When the newest operation was issued of which an end was seen.
    pub(super) ran: HostTime,
    /// What the last operations were, to compare what peers call operation n.
    pub past: Past,
    pub sampled_at: HostTime,
    pub ops_in_flight: u32,
    pub alive: bool,
    pub stopped: bool,
    pub stopped_since: HostTime,
    /// Its progress threads do not run although it has flows in flight.
    pub proxy_held: Option<ProxyHeld>,
    pub dead_since: HostTime,
    /// Gone, and no orderly end was reported although there was time to.
    pub dead_for_sure: bool,
    pub exit_clean: Option<bool>,
    pub status: ExitStatus,
    pub progress_at: HostTime,
    pub left_at: HostTime,
    pub lost: u64,
    pub lost_at: HostTime,
    pub iterations: Iterations,
    /// It is among the ranks that changed since the last look.
    pub(super) changed: bool,
    /// Operations were completed since its iterations were settled.
    pub(super) unsettled: bool,
}

impl RankState {
    pub(crate) fn new(rank: Rank, host: HostName, process: ProcessKey) -> RankState {
        RankState {
            rank,
            host,
            process,
            carried: false,
            clock_error_ns: 0,
            world_size: 0,
            kernel_events: true,
            nccl_version: NcclVersion::default(),
            has_shown_broadcast: false,
            comms: Sorted::default(),
            live: Live::default(),
            unseen: None,
            ran: HostTime::NONE,
            past: Past::default(),
            sampled_at: HostTime::NONE,
            ops_in_flight: 0,
            alive: true,
            stopped: false,
            stopped_since: HostTime::NONE,
            proxy_held: None,
            dead_since: HostTime::NONE,
            dead_for_sure: false,
            exit_clean: None,
            status: ExitStatus::Unknown,
            progress_at: HostTime::NONE,
            left_at: HostTime::NONE,
            lost: 0,
            lost_at: HostTime::NONE,
            iterations: Iterations::default(),
            changed: false,
            unsettled: false,
        }
    }

    /// Its times may be compared with those of other hosts.
    pub(crate) fn knows_clock(&self) -> bool {
        self.clock_error_ns < UNKNOWN_NS
    }

    /// Every communicator it joined was finalized, and it joined one.
    pub(crate) fn finalized(&self) -> bool {
        !self.comms.is_empty() && self.comms.values().all(|joined| joined.ended)
    }

    /// It ended as a program should, or is about to.
    pub(crate) fn ended_well(&self) -> bool {
        self.exit_clean == Some(true) || self.finalized()
    }

    /// Its process is gone although its communicators were in use.
    pub(crate) fn dead(&self) -> bool {
        let gone = self.exit_clean == Some(false) || self.dead_for_sure;
        gone && !self.ended_well() && !self.comms.is_empty()
    }

    fn moved(&mut self, at: HostTime) {
        self.progress_at = self.progress_at.max(at);
    }

    /// Takes in a look at an operation; whether the rank now stands elsewhere with regard to it.
    pub(super) fn on_op_state(&mut self, state: &OpState) -> bool {
        self.moved(state.op.enqueued_at.max(state.op.started_at).max(state.op.started_last_at));
        // Four of ten records are of an operation that is known to be in flight: nothing else is to be learned of it.
        if let Some(op) = self.live.get_mut(&state.op.id) {
            let (is_elsewhere, has_moved) = op.take(state);
            if has_moved {
                self.moved(state.sampled_at);
            }
            return is_elsewhere;
        }
        if self.past.has_done(&state.op.id) {
            return false; // a late sample of a completed operation
        }
        self.has_shown_broadcast |= state.op.kind == OpKind::Broadcast;
        let begun = self.past.begun();
        self.past.learn(&state.op.id);
        // A collective on a communicator that was silent so far says something of what makes an iteration.
        self.unsettled |= self.past.begun() > begun;
        self.live.begin(state, LIVE_MAX);
        true
    }

    pub(super) fn on_gap(&mut self, gap: &Gap) {
        self.lost += gap.lost;
        self.lost_at = self.lost_at.max(gap.noticed_at);
    }

    pub(super) fn on_exit(&mut self, exit: &ProcessExit) {
        self.alive = false;
        self.exit_clean = Some(exit.clean);
        self.status = exit.status;
        if !self.dead_since.is_some() {
            self.dead_since = exit.noticed_at;
        }
    }

    /// What its NCCL shows no events of, unless the job was started so that it does and one was seen.
    pub(crate) fn hides(&self) -> impl Iterator<Item = (OpKind, &'static Peculiarity)> {
        let shown = self.has_shown_broadcast;
        peculiarities(Library::Nccl, self.nccl_version).filter_map(move |known| match known.effect {
            Effect::NotVisible(OpKind::Broadcast) if shown => None,
            Effect::NotVisible(kind) => Some((kind, known)),
            _ => None,
        })
    }

    pub(super) fn on_op_done(&mut self, done: &OpDone, room: Room) {
        self.moved(done.ended_at);
        self.left_at = self.left_at.max(done.ended_at);
        self.live.end(&done.op.id);
        self.note_unseen(done);
        let counter = self.past.finish(&done.op);
        self.iterations.on_op(counter, done, room);
        self.unsettled = true;
    }

    /// Takes in a look at a flow; whether it shows that the rank has entered its operation.
    pub(super) fn on_flow_state(&mut self, state: &FlowState) -> bool {
        self.moved(state.times.last_progress_at.max(state.times.started_at));
        let Some(op) = self.live.get_mut(&state.flow.op) else { return false };
        let slot = (state.flow.channel, state.flow.peer, state.flow.direction);
        if op.flows.len() >= LIVE_FLOWS_MAX && !op.flows.contains_key(&slot) {
            return false;
        }
        let before = standing(op);
        op.seen_at = op.seen_at.max(state.sampled_at);
        let flow = LiveFlow { counters: state.counters, times: state.times, seen_at: state.sampled_at, done: false };
        let known = op.flows.entry_or_insert_with(slot, || flow);
        if !known.done && state.sampled_at >= known.seen_at {
            *known = flow;
        }
        before != standing(op)
    }

    /// Takes in the end of a flow; whether it shows that the rank has entered its operation.
    pub(super) fn on_flow_done(&mut self, done: &FlowDone, room: Room) -> bool {
        self.moved(done.ended_at);
        let counter = self.past.counter_of(&done.flow.op);
        self.iterations.on_flow(counter, done, room);
        let Some(op) = self.live.get_mut(&done.flow.op) else { return false };
        let before = standing(op);
        let slot = (done.flow.channel, done.flow.peer, done.flow.direction);
        let flow = LiveFlow { counters: done.counters, times: done.times, seen_at: done.ended_at, done: true };
        if op.flows.len() < LIVE_FLOWS_MAX || op.flows.contains_key(&slot) {
            op.flows.insert(slot, flow);
        }
        before != standing(op)
    }

    /// Takes in a look at the process; gives the communicators of operations that it shows to be over.
    pub(super) fn on_sampled(&mut self, sampled: &Sampled) -> Vec<CommId> {
        if sampled.at < self.sampled_at {
            return Vec::new();
        }
        self.sampled_at = sampled.at;
        self.ops_in_flight = sampled.ops_in_flight;
        self.alive = sampled.alive;
        if sampled.stopped && !self.stopped {
            self.stopped_since = sampled.at;
        }
        self.stopped = sampled.stopped;
        if !sampled.alive && !self.dead_since.is_some() {
            self.dead_since = sampled.at;
        }
        let oldest = sampled.at - LIVE_REPEAT_NS;
        let none = sampled.ops_in_flight == 0 && sampled.alive;
        let mut gone = Vec::new();
        self.live.retain(|id, op| {
            let is_over = if none { op.seen_at < sampled.at } else { op.seen_at < oldest };
            if is_over {
                gone.push(id.comm);
            }
            !is_over
        });
        if !gone.is_empty() {
            self.moved(sampled.at); // they ended at an unknown time: not a stall
        }
        gone
    }

    /// What an operation with this id is or was, as far as it is remembered.
    pub(crate) fn known(&self, id: &OpId) -> Option<Known> {
        match self.live.get(id) {
            Some(op) => {
                Some(Known { shape: (op.meta.kind, op.meta.count, op.meta.datatype), enqueued_at: op.meta.enqueued_at })
            }
            None => self.past.known(id),
        }
    }

    /// What its host issued, as far as it is remembered, in that order; what was issued in one group in the order of its
    /// counters.
    pub(crate) fn issued(&self) -> Vec<Issued> {
        let live = self.live.values().map(|op| Issued {
            id: op.meta.id,
            kind: op.meta.kind,
            enqueued_at: op.meta.enqueued_at,
        });
        let mut out: Vec<Issued> = self.past.done().chain(live).collect();
        out.sort_by_key(|op| (op.enqueued_at, op.id));
        out
    }

    /// Operations its device is in (kernel started and not stopped), oldest first. Without kernel events: the oldest
    /// issued one.
    pub(crate) fn current(&self) -> Vec<&LiveOp> {
        let mut ops: Vec<&LiveOp> = self.live.values().filter(|op| is_entered(op) && !device_has_left(op)).collect();
        ops.sort_by_key(|op| (op.meta.started_at, op.meta.enqueued_at, op.meta.id));
        if ops.is_empty() && !self.kernel_events {
            ops.extend(self.next_issued());
        }
        ops
    }

    /// The oldest operation that is issued and not started.
    pub(crate) fn next_issued(&self) -> Option<&LiveOp> {
        self.live.values().filter(|op| !is_entered(op)).min_by_key(|op| (op.meta.enqueued_at, op.meta.id))
    }

    /// Where it stands with regard to `id`.
    pub(crate) fn stand(&self, id: &OpId) -> Stand {
        if let Some(op) = self.live.get(id) {
            // Sends and receives of a group share a kernel; which were grouped is not told.
            let is_it = || self.current().iter().any(|current| current.meta.id == *id);
            let assumed = !self.kernel_events && (id.class != OpClass::Collective || is_it());
            return if is_entered(op) || assumed { Stand::Entered } else { Stand::Issued };
        }
        if self.past.reached(id) { Stand::Left } else { Stand::NotIssued }
    }
}

/// The device has begun with it, or its data has moved.
pub(super) fn is_entered(op: &LiveOp) -> bool {
    op.meta.started_at.is_some()
        || op.kernels_started > 0
        || op.flows.iter().any(|((_, _, direction), flow)| {
            // What is ready to be sent the device has handed over.
            let handed_over = *direction == Direction::Send && flow.counters.ready > 0;
            flow.counters.done > 0 || flow.done || handed_over
        })
}

/// What of an operation decides where its rank stands, and which of several it is in first.
fn standing(op: &LiveOp) -> (bool, bool, HostTime, HostTime) {
    (is_entered(op), device_has_left(op), op.meta.started_at, op.meta.enqueued_at)
}

/// The kernel is over on all channels; what remains is on the wire (a send whose data the device has handed over).
pub(crate) fn device_has_left(op: &LiveOp) -> bool {
    op.kernels_stopped > 0 && op.kernels_stopped >= op.kernels_started.max(op.meta.n_channels)
}
