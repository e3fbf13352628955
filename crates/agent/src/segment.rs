//! One traced process: what the agent knows of its segment, and one sample of it.
use crate::capture::Watched;
use crate::clock::Clocks;
use crate::config::{BATCH_RECORDS_MAX, COMMS_MAX, DRAIN_RECORDS_MAX, REPEAT_EVERY, SAMPLED_EVERY};
use crate::convert::{Scale, source};
use crate::process::{Life, ProcessWatch, runs_as};
use crate::proxies::Proxies;
use crate::seen::{Seen, flow_fingerprint, op_fingerprint};
use crate::segment_dir::SegmentDir;
use crate::smallfile::SmallBuffer;
use crate::stats::{Shared, add};
use crate::waits::{Thread, WaitSampler};
use mycroft_record::{
    Batch, CommEnd, CommId, CommInit, ExitStatus, Gap, GapCause, HostName, HostTime, ProcessExit, Record, Sampled,
    Source,
};
use mycroft_ring::{
    ClockKind, CommSnapshot, FlowSnapshot, Liveness, OpSnapshot, OpenError, RawRecord, ReadError, SegmentReader,
    SegmentState, process,
};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::path::Path;

const PROC: &str = "/proc";

/// A traced process.
pub(crate) struct Segment {
    reader: SegmentReader,
    source: Source,
    /// `None`: the process lives in another pid namespace, and the lock on its file tells.
    watch: Option<ProcessWatch>,
    /// The host was booted since.
    other_boot: bool,
    clock_kind: ClockKind,
    told_state: Option<SegmentState>,
    told_dropped: u64,
    told_sampled: Option<Sampled>,
    proxies: Proxies,
    /// Communicators told and not ended.
    comms: BTreeMap<CommId, CommInit>,
    /// Generation told last of each cell of the communicator table.
    comm_cells: Vec<Option<u32>>,
    ops: Seen,
    flows: Seen,
    raw: Vec<RawRecord>,
    records: Vec<Record>,
    /// Bytes read beyond its share, which the shares of coming rounds pay off before it is looked at again.
    debt: u64,
}

/// Why a segment is not watched any more.
pub(crate) enum Over {
    /// Its process is gone, or has taken leave of it.
    Exited,
    /// It cannot be read any more.
    Unreadable(ReadError),
}

/// Why a segment cannot be watched.
pub(crate) struct Refused {
    /// What is wrong and what to do.
    pub(crate) reason: String,
    /// Trying again is no use.
    pub(crate) for_good: bool,
}

/// What a sample needs from outside.
pub(crate) struct Context<'a> {
    pub(crate) clocks: &'a mut Clocks,
    pub(crate) buffer: &'a mut SmallBuffer,
    pub(crate) shared: &'a Shared,
    /// The file is in the directory, as of this sample.
    pub(crate) file_there: bool,
    /// Bytes that each segment may cost in a round.
    pub(crate) share: u64,
}

/// The live tables at one moment.
struct Live {
    ops: Vec<OpSnapshot>,
    flows: Vec<FlowSnapshot>,
    comms: Vec<CommSnapshot>,
}

impl Segment {
    /// Opens a segment of the directory, whose process must run as the directory's owner.
    pub(crate) fn attach(
        dir: &SegmentDir,
        name: &OsStr,
        host: Option<&HostName>,
        buffer: &mut SmallBuffer,
    ) -> Result<Segment, Refused> {
        let owner_uid = dir.owner();
        let path = dir.path().join(name);
        let opened = dir.open_file(name).map_err(|source| OpenError::File { path: path.clone(), source });
        let reader = opened.and_then(|file| SegmentReader::over(file, &path, owner_uid)).map_err(|error| Refused {
            for_good: !matches!(error, OpenError::File { .. }),
            reason: error.to_string(),
        })?;
        let header = reader.header();
        let identity = &header.process;
        let other_boot = process::boot_id().is_ok_and(|boot_id| boot_id != identity.boot_id);
        let own_namespace = identity.pid_namespace == 0 || identity.pid_namespace == process::pid_namespace();
        let proc = Path::new(PROC);
        // A process that is gone by now has no owner any more; what it left is still worth reading.
        if own_namespace && !other_boot && matches!(runs_as(proc, identity.pid, owner_uid, buffer), Ok(false)) {
            let pid = identity.pid;
            let reason =
                format!("it claims process {pid}, which does not run as user {owner_uid} who owns the file; remove it");
            return Err(Refused { reason, for_good: true });
        }
        let watch = own_namespace.then(|| ProcessWatch::new(proc, identity.pid, identity.start_time));
        let source = source(header, host);
        let clock_kind = header.calibration.kind;
        Ok(Segment {
            source,
            watch,
            other_boot,
            clock_kind,
            told_state: None,
            told_dropped: 0,
            told_sampled: None,
            proxies: Proxies::default(),
            comms: BTreeMap::new(),
            comm_cells: Vec::new(),
            ops: Seen::default(),
            flows: Seen::default(),
            raw: Vec::new(),
            records: Vec::new(),
            debt: 0,
            reader,
        })
    }

    /// The job and host.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The process, for those who look at it in other ways.
    pub(crate) fn watched(&self) -> Option<Watched> {
        let process = self.source.process?;
        Some(Watched {
            job: self.source.job.clone(),
            rank: process.rank,
            pid: process.pid,
            start_ticks: self.reader.header().process.start_time,
            reachable: self.watch.is_some() && !self.other_boot,
        })
    }

    /// Its process and those of its threads that write the rings, main and proxies, where they can be looked at.
    pub(crate) fn threads(&self) -> impl Iterator<Item = (u32, u32)> {
        let pid = self.source.process.filter(|_| self.watch.is_some() && !self.other_boot).map(|process| process.pid);
        pid.into_iter().flat_map(|pid| self.reader.writers().map(move |tid| (pid, tid)))
    }

    /// Looks whether its progress threads turn, once a second; `waits` has looked at its threads just now.
    pub(crate) fn look_at_proxies(&mut self, waits: &WaitSampler, now: HostTime, buffer: &mut SmallBuffer) {
        let has_flows = self.told_sampled.is_some_and(|told| told.flows_in_flight > 0 && !told.stopped);
        let threads: Vec<Thread> = self.threads().collect();
        let told = self.proxies.look(Path::new(PROC), &threads, waits, has_flows, now, buffer);
        self.records.extend(told.map(Record::ProxyHeld));
    }

    /// Position in each ring: everything before was read.
    pub(crate) fn positions(&self) -> &[u64] {
        self.reader.positions()
    }

    /// Goes on where an earlier agent left off.
    pub(crate) fn go_on_from(&mut self, positions: &[u64]) {
        self.reader.set_positions(positions);
    }

    /// Whether enough records wait to ship them at once.
    pub(crate) fn is_full(&self) -> bool {
        self.records.len() >= BATCH_RECORDS_MAX
    }

    /// What was collected since the last time, if anything.
    pub(crate) fn take_batch(&mut self, collected_at: HostTime) -> Option<Batch> {
        if self.records.is_empty() {
            return None;
        }
        // The next batch is most often as large as this one.
        let next = Vec::with_capacity(self.records.len());
        let records = std::mem::replace(&mut self.records, next);
        Some(Batch { source: self.source.clone(), collected_at, records })
    }

    /// Tells everything anew with the next sample: somebody new listens.
    pub(crate) fn tell_all_again(&mut self) {
        self.told_state = None;
        self.told_sampled = None;
        self.ops.forget();
        self.flows.forget();
    }

    /// One sample: live tables, then completions, so that what is in a table and what is completed cannot both be missed.
    ///
    /// A segment that costs more than its share of a round, whatever its bytes say, is looked at less often instead of
    /// taking the time of others.
    pub(crate) fn sample(&mut self, context: Context<'_>) -> ControlFlow<Over> {
        self.debt = self.debt.saturating_sub(context.share);
        if self.debt > 0 {
            return ControlFlow::Continue(());
        }
        let (before, shared) = (self.reader.bytes_read(), context.shared);
        let outcome = self.sample_now(context);
        self.debt = self.reader.bytes_read() - before;
        add(&shared.bytes_read, self.debt);
        outcome
    }

    fn sample_now(&mut self, context: Context<'_>) -> ControlFlow<Over> {
        let life = self.life(context.buffer);
        let clock = context.clocks.of(self.clock_kind);
        let scale = Scale { clock, now: clock.now() };
        let result = match life {
            Life::Gone => self.finish(&scale, context.shared),
            Life::Running | Life::Stopped => self.look(&scale, life, context.shared, context.file_there),
        };
        result.unwrap_or_else(|error| ControlFlow::Break(Over::Unreadable(error)))
    }

    fn life(&mut self, buffer: &mut SmallBuffer) -> Life {
        match &mut self.watch {
            _ if self.other_boot => Life::Gone,
            Some(watch) => watch.look(buffer),
            None => match self.reader.liveness() {
                Liveness::Dead | Liveness::Zombie => Life::Gone,
                Liveness::Alive | Liveness::Unknown => Life::Running,
            },
        }
    }

    fn look(
        &mut self,
        scale: &Scale<'_>,
        life: Life,
        shared: &Shared,
        file_there: bool,
    ) -> Result<ControlFlow<Over>, ReadError> {
        let state = self.reader.state()?;
        self.tell_process(scale, &state);
        let live = self.read_live()?;
        self.tell_comms(scale, &live.comms);
        self.tell_live(scale, &live, false);
        self.drain(scale, shared)?;
        self.tell_dropped(scale.now, &state, shared);
        self.tell_ended_comms(scale, &live.comms);
        self.tell_sampled(scale.now, &live, life);
        if state.clean_exit && !file_there && self.reader.is_removed() {
            // The probe took leave though its process lives on (the library was unloaded).
            self.records.push(Record::ProcessExit(ProcessExit::unread(scale.now, true)));
            return Ok(ControlFlow::Break(Over::Exited));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The process is gone: the rest of its completions, then what it was in the middle of, then its end. A ring that
    /// holds more than one sample may read is finished in the next.
    fn finish(&mut self, scale: &Scale<'_>, shared: &Shared) -> Result<ControlFlow<Over>, ReadError> {
        let state = self.reader.state()?;
        self.tell_process(scale, &state);
        let live = self.read_live()?;
        self.tell_comms(scale, &live.comms);
        if self.drain(scale, shared)? {
            return Ok(ControlFlow::Continue(()));
        }
        self.tell_live(scale, &live, true);
        self.tell_dropped(scale.now, &state, shared);
        self.tell_ended_comms(scale, &live.comms);
        self.tell_sampled(scale.now, &live, Life::Gone);
        let status = self.watch.as_ref().map_or(ExitStatus::Unknown, ProcessWatch::status);
        self.records
            .push(Record::ProcessExit(ProcessExit { status, ..ProcessExit::unread(scale.now, state.clean_exit) }));
        Ok(ControlFlow::Break(Over::Exited))
    }

    /// Operations before communicators: the communicator of every operation seen is then seen, too.
    fn read_live(&self) -> Result<Live, ReadError> {
        let ops = self.reader.ops()?.items;
        let flows = self.reader.flows()?.items;
        let comms = self.reader.comms()?.items;
        Ok(Live { ops, flows, comms })
    }

    fn tell_process(&mut self, scale: &Scale<'_>, state: &SegmentState) {
        let what = |s: &SegmentState| (s.profiler_abi, s.nccl_version, s.kernel_events);
        if self.told_state.as_ref().map(what) == Some(what(state)) {
            return;
        }
        let first = self.told_state.replace(*state).is_none();
        self.records.push(Record::Process(scale.process(self.reader.header(), state)));
        if first {
            self.records.extend(self.comms.values().cloned().map(Record::CommInit));
        }
    }

    fn tell_comms(&mut self, scale: &Scale<'_>, comms: &[CommSnapshot]) {
        for raw in comms {
            let cell = usize::from(raw.index);
            if cell >= self.comm_cells.len() {
                self.comm_cells.resize(cell + 1, None);
            }
            if self.comm_cells[cell].replace(raw.generation) != Some(raw.generation) {
                self.tell_comm(scale.comm_init(raw));
            }
        }
    }

    fn tell_comm(&mut self, comm: CommInit) {
        if self.comms.contains_key(&comm.comm) {
            return;
        }
        if self.comms.len() < COMMS_MAX {
            self.comms.insert(comm.comm, comm.clone());
        }
        self.records.push(Record::CommInit(comm));
    }

    /// After the completions, which belong before the end of their communicator.
    fn tell_ended_comms(&mut self, scale: &Scale<'_>, comms: &[CommSnapshot]) {
        for raw in comms.iter().filter(|raw| raw.end_ticks != 0) {
            if self.comms.remove(&raw.comm).is_some() {
                self.records.push(Record::CommEnd(CommEnd { at: scale.time(raw.end_ticks), comm: raw.comm }));
            }
        }
    }

    fn tell_live(&mut self, scale: &Scale<'_>, live: &Live, all: bool) {
        let repeat_ns = REPEAT_EVERY.as_nanos() as u64;
        for op in &live.ops {
            let print = op_fingerprint(op);
            if self.ops.is_news(op.index, op.generation, print, scale.now, repeat_ns) || all {
                self.records.push(Record::OpState(scale.op_state(op)));
            }
        }
        for flow in &live.flows {
            let print = flow_fingerprint(flow);
            if self.flows.is_news(flow.index, flow.generation, print, scale.now, repeat_ns) || all {
                self.records.push(Record::FlowState(scale.flow_state(flow)));
            }
        }
    }

    /// Reads completions; whether more are there.
    fn drain(&mut self, scale: &Scale<'_>, shared: &Shared) -> Result<bool, ReadError> {
        let mut raw = std::mem::take(&mut self.raw);
        let drained = self.reader.drain(DRAIN_RECORDS_MAX, &mut raw);
        for record in raw.drain(..) {
            match scale.record(&record) {
                Record::CommInit(comm) => self.tell_comm(comm),
                Record::CommEnd(end) => {
                    self.comms.remove(&end.comm);
                    self.records.push(Record::CommEnd(end));
                }
                other => self.records.push(other),
            }
        }
        self.raw = raw;
        let stats = drained?;
        add(&shared.records_read, stats.read);
        self.tell_gap(scale.now, stats.lost, GapCause::RingLapped, shared);
        self.tell_gap(scale.now, stats.damaged, GapCause::Damaged, shared);
        Ok(stats.more)
    }

    fn tell_dropped(&mut self, now: HostTime, state: &SegmentState, shared: &Shared) {
        let dropped = state.dropped_total();
        let new = dropped.saturating_sub(self.told_dropped);
        self.told_dropped = dropped;
        self.tell_gap(now, new, GapCause::ProbeDropped, shared);
    }

    fn tell_gap(&mut self, noticed_at: HostTime, lost: u64, cause: GapCause, shared: &Shared) {
        if lost > 0 {
            add(&shared.records_lost, lost);
            self.records.push(Record::Gap(Gap { noticed_at, lost, cause }));
        }
    }

    fn tell_sampled(&mut self, at: HostTime, live: &Live, life: Life) {
        let sampled = Sampled {
            at,
            ops_in_flight: live.ops.len() as u32,
            flows_in_flight: live.flows.len() as u32,
            alive: life != Life::Gone,
            stopped: life == Life::Stopped,
        };
        let due = |told: &Sampled| at.since_ns(told.at) >= SAMPLED_EVERY.as_nanos() as u64;
        if self.told_sampled.as_ref().is_none_or(|told| due(told) || is_turn(told, &sampled)) {
            self.told_sampled = Some(sampled);
            self.records.push(Record::Sampled(sampled));
        }
    }
}

/// Whether a look shows what the one told last does not let one expect: the process comes to life, to a halt or to its end, or
/// begins or ends to have anything in flight (docs/formats/record.md; `crates/serve/tests/recorded.rs` needs no more).
fn is_turn(told: &Sampled, now: &Sampled) -> bool {
    let what = |s: &Sampled| (s.alive, s.stopped, s.ops_in_flight == 0, s.flows_in_flight == 0);
    what(told) != what(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_told_at_once_when_it_turns() {
        let told = Sampled { at: HostTime(1), ops_in_flight: 3, flows_in_flight: 2, alive: true, stopped: false };
        let later = Sampled { at: HostTime(2), ..told };
        assert!(!is_turn(&told, &later));
        assert!(
            !is_turn(&told, &Sampled { ops_in_flight: 9, flows_in_flight: 1, ..later }),
            "more or less of the same"
        );
        assert!(is_turn(&told, &Sampled { ops_in_flight: 0, ..later }), "what was in flight is over");
        assert!(is_turn(&told, &Sampled { flows_in_flight: 0, ..later }));
        assert!(is_turn(&told, &Sampled { stopped: true, ..later }));
        assert!(is_turn(&told, &Sampled { alive: false, ..later }));
        assert!(is_turn(&Sampled { ops_in_flight: 0, ..told }, &later), "something is in flight again");
    }
}
