//! The sampling thread: one closed set of events, one place that acts on each.
use crate::clock::{AgentClock, Clocks};
use crate::config::{
    AgentConfig, CALIBRATE_EVERY, CALIBRATE_FIRST, COLLECT_EVERY, NIC_EVERY, NIC_ROOT_DEFAULT, ROUND_BYTES_MAX,
    SEGMENTS_MAX, VITALS_EVERY,
};
use crate::discover::Directory;
use crate::error::Notice;
use crate::kept::Kept;
use crate::lock::DirLock;
use crate::nic::NicSampler;
use crate::outbox::Outbox;
use crate::process::thread_cpu;
use crate::segment::{Context, Over, Refused, Segment};
use crate::segment_dir::SegmentDir;
use crate::smallfile::SmallBuffer;
use crate::stats::{Shared, add};
use crate::vitals::VitalsSampler;
use crate::waits::WaitSampler;
use mycroft_record::{Batch, HostName, HostVitals, NicState, Record, Source};
use mycroft_ring::collect::collect_dead;
use mycroft_ring::{PAIRS_SUFFIX, SUFFIX};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Everything that can happen to the sampling thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// Look for segments, look at the live tables, drain the rings.
    Sample,
    /// Read the network interfaces.
    Nics,
    /// Read the host's load.
    Vitals,
    /// Remove segments that nobody else removes.
    Collect,
    /// Measure the clocks again.
    Calibrate,
    /// Hand what was collected to the shipping thread.
    Ship,
    /// The server was reached again, and may be a new one that knows nothing.
    ServerBack,
    /// Collect and ship once more, then end.
    Stop,
}

/// An event that comes again and again.
struct Timer {
    event: Event,
    due: Instant,
    every: Duration,
}

/// The thread's state.
pub(crate) struct Sampler {
    timers: Vec<Timer>,
    directory: Directory,
    kept: Kept,
    dir_unreadable: bool,
    too_many: bool,
    segments: BTreeMap<PathBuf, Segment>,
    /// Records about the host itself, for each job on it.
    host_records: BTreeMap<Source, Vec<Record>>,
    host: Option<HostName>,
    clock: AgentClock,
    clocks: Clocks,
    nics: NicSampler,
    nic_states: Vec<NicState>,
    vitals: VitalsSampler,
    waits: WaitSampler,
    buffer: SmallBuffer,
    outbox: Arc<Outbox>,
    shared: Arc<Shared>,
    stop_timeout: Duration,
    lock: DirLock,
}

impl Sampler {
    /// Watches a directory, which is locked.
    pub(crate) fn new(
        config: &AgentConfig,
        clock: AgentClock,
        (dir, lock): (SegmentDir, DirLock),
        outbox: Arc<Outbox>,
        shared: Arc<Shared>,
    ) -> Sampler {
        let now = Instant::now();
        // In the order of events that are due together: what is collected is shipped in the same turn.
        let timer = |event, due, every| Timer { event, due, every };
        let timers = vec![
            timer(Event::Sample, now, config.sample_every),
            timer(Event::Nics, now, NIC_EVERY),
            timer(Event::Vitals, now, VITALS_EVERY),
            timer(Event::Collect, now + COLLECT_EVERY, COLLECT_EVERY),
            timer(Event::Calibrate, now + CALIBRATE_FIRST, CALIBRATE_EVERY),
            timer(Event::Ship, now + config.ship_every, config.ship_every),
        ];
        let nic_root = config.nic_root.as_deref().unwrap_or(Path::new(NIC_ROOT_DEFAULT));
        Sampler {
            timers,
            kept: Kept::new(&dir),
            directory: Directory::new(dir),
            dir_unreadable: false,
            too_many: false,
            segments: BTreeMap::new(),
            host_records: BTreeMap::new(),
            host: config.host.as_deref().map(HostName::from),
            clock,
            clocks: Clocks::new(clock),
            nics: NicSampler::new(nic_root, &config.nics),
            nic_states: Vec::new(),
            vitals: VitalsSampler::new(Path::new("/proc")),
            waits: WaitSampler::new(Path::new("/proc")),
            buffer: SmallBuffer::new(),
            outbox,
            shared,
            stop_timeout: config.stop_timeout,
            lock,
        }
    }

    /// Acts on events until `Stop`, which also is the end of the channel.
    pub(crate) fn run(mut self, events: &Receiver<Event>) {
        loop {
            let event = self.next_event(events);
            match event {
                Event::Sample => self.sample(),
                Event::Nics => self.sample_nics(),
                Event::Vitals => self.sample_vitals(),
                Event::Collect => self.collect(),
                Event::Calibrate => self.clocks.refresh(),
                Event::Ship => self.ship(),
                Event::ServerBack => self.segments.values_mut().for_each(Segment::tell_all_again),
                Event::Stop => self.stop(),
            }
            self.shared.sampler_cpu_ns.store(thread_cpu().as_nanos() as u64, Ordering::Relaxed);
            if event == Event::Stop {
                return;
            }
        }
    }

    /// Collects once more, hands over, and leaves the next agent where to go on.
    fn stop(&mut self) {
        self.sample();
        self.ship();
        // The shipping thread hands over or spools all of it before it ends.
        let kept = self.kept.all(self.directory.dir());
        self.tell_if_failed(kept);
        self.outbox.stop(Instant::now() + self.stop_timeout);
    }

    /// The next event that was sent or is due. A timer that fell behind skips what it missed.
    fn next_event(&mut self, events: &Receiver<Event>) -> Event {
        // The first of those due earliest: there always are timers.
        let next =
            (1..self.timers.len()).fold(0, |best, i| if self.timers[i].due < self.timers[best].due { i } else { best });
        let timer = &mut self.timers[next];
        match events.recv_timeout(timer.due.saturating_duration_since(Instant::now())) {
            Ok(event) => event,
            Err(RecvTimeoutError::Disconnected) => Event::Stop,
            Err(RecvTimeoutError::Timeout) => {
                timer.due = (timer.due + timer.every).max(Instant::now());
                timer.event
            }
        }
    }

    fn sample(&mut self) {
        let mut changed = self.find_segments();
        let mut over = Vec::new();
        let share = ROUND_BYTES_MAX / self.segments.len().max(1) as u64;
        add(&self.shared.rounds, 1);
        for (path, segment) in &mut self.segments {
            let context = Context {
                clocks: &mut self.clocks,
                buffer: &mut self.buffer,
                shared: &self.shared,
                file_there: self.directory.has(path),
                share,
            };
            if let ControlFlow::Break(why) = segment.sample(context) {
                over.push((path.clone(), why));
            }
        }
        let ship = !over.is_empty() || self.segments.values().any(Segment::is_full);
        if ship {
            self.ship();
        }
        changed |= !over.is_empty();
        for (path, why) in over {
            self.segments.remove(&path);
            match why {
                Over::Exited => self.kept.remove(&path),
                Over::Unreadable(error) => {
                    self.directory.refused(&path);
                    self.shared.notice(Notice::BadSegment { path, reason: format!("{error}; its process goes on") });
                }
            }
        }
        if changed {
            self.shared.publish_watched(self.segments.values().filter_map(Segment::watched).collect());
        }
        self.shared.segments.store(self.segments.len() as u64, Ordering::Relaxed);
    }

    /// Opens what is new; whether there was something.
    fn find_segments(&mut self) -> bool {
        let now = Instant::now();
        if let Err(error) = self.follow_path() {
            self.tell_unreadable(&error);
            return false;
        }
        let waiting = match self.directory.scan(now, |name| name.ends_with(SUFFIX)) {
            Ok(waiting) => waiting,
            Err(error) => {
                self.tell_unreadable(&error);
                return false;
            }
        };
        self.dir_unreadable = false;
        let room = SEGMENTS_MAX - self.segments.len().min(SEGMENTS_MAX);
        let too_many = waiting.len() > room;
        if too_many && !self.too_many {
            self.shared.notice(Notice::TooManySegments { limit: SEGMENTS_MAX });
        }
        self.too_many = too_many;
        let before = self.segments.len();
        for path in waiting.into_iter().take(room) {
            let name = path.file_name().unwrap_or_default();
            match Segment::attach(self.directory.dir(), name, self.host.as_ref(), &mut self.buffer) {
                Ok(mut segment) => {
                    if let Some(positions) = self.kept.of(name) {
                        segment.go_on_from(positions);
                    }
                    self.directory.attached(&path);
                    self.segments.insert(path, segment);
                }
                Err(Refused { reason, for_good }) => {
                    if for_good || self.directory.had_its_time(&path, now) {
                        self.directory.refused(&path);
                        self.shared.notice(Notice::BadSegment { path, reason });
                    }
                }
            }
        }
        self.segments.len() > before
    }

    /// The directory may have been removed and made anew by a job; what else its path may lead to is not looked at.
    fn follow_path(&mut self) -> std::io::Result<()> {
        if self.directory.dir().is_in_place()? {
            return Ok(());
        }
        let dir = SegmentDir::open(self.directory.dir().path()).map_err(std::io::Error::other)?;
        self.lock = DirLock::take(&dir).map_err(std::io::Error::other)?;
        self.directory = Directory::new(dir);
        Ok(())
    }

    fn tell_if_failed(&mut self, outcome: std::io::Result<()>) {
        if let Err(error) = outcome {
            self.tell_unreadable(&error);
        }
    }

    fn tell_unreadable(&mut self, error: &std::io::Error) {
        if !std::mem::replace(&mut self.dir_unreadable, true) {
            let path = self.directory.dir().path().to_path_buf();
            self.shared.notice(Notice::DirUnreadable { path, reason: error.to_string() });
        }
    }

    /// Removes what no sample removes: segments refused, half made ones, and lists of queue pairs, whose process is gone.
    fn collect(&mut self) {
        let (directory, segments) = (&self.directory, &self.segments);
        let removed = collect_dead(directory.dir().handle(), |name| {
            if name.as_encoded_bytes().ends_with(PAIRS_SUFFIX.as_bytes()) {
                return true;
            }
            let path = directory.dir().path().join(name);
            !segments.contains_key(&path) && directory.is_refused(&path)
        });
        self.tell_if_failed(removed.map(drop));
    }

    /// Network records go to every job on this host, since each has its own diagnosis.
    fn sample_nics(&mut self) {
        if self.segments.is_empty() {
            return;
        }
        self.nic_states.clear();
        self.nics.sample(self.clock.now(), &mut self.nic_states);
        let records: Vec<Record> = self.nic_states.iter().cloned().map(Record::NicState).collect();
        for host in self.hosts() {
            self.host_records.entry(host).or_default().extend_from_slice(&records);
        }
    }

    fn sample_vitals(&mut self) {
        let vitals = self.vitals.sample(self.clock.now(), self.shared.dropped.load(Ordering::Relaxed));
        for host in self.hosts() {
            let of_job = self.segments.values().filter(|segment| is_about(&host, segment)).flat_map(Segment::threads);
            let cpu_wait_milli = self.waits.milli(of_job, &mut self.buffer);
            let record = Record::HostVitals(HostVitals { cpu_wait_milli, ..vitals });
            self.host_records.entry(host).or_default().push(record);
        }
        let now = self.clock.now();
        for segment in self.segments.values_mut() {
            segment.look_at_proxies(&self.waits, now, &mut self.buffer);
        }
        self.waits.next_round();
    }

    /// Each job on this host, as a source of records about the host.
    fn hosts(&self) -> BTreeSet<Source> {
        self.segments.values().map(|s| Source { process: None, ..s.source().clone() }).collect()
    }

    fn ship(&mut self) {
        let now = self.clock.now();
        let hosts = std::mem::take(&mut self.host_records);
        let hosts = hosts.into_iter().map(|(source, records)| Batch { source, collected_at: now, records });
        let processes = self.segments.values_mut().filter_map(|segment| segment.take_batch(now));
        let (turn, dropped) = self.outbox.push(hosts.chain(processes));
        add(&self.shared.dropped, dropped);
        let segments = self.segments.iter().map(|(path, segment)| (path.as_path(), segment.positions()));
        self.kept.queued(turn, segments);
        let kept = self.kept.safe(self.directory.dir(), self.shared.safe_turn.load(Ordering::Acquire));
        self.tell_if_failed(kept);
    }
}

/// Whether the records of a segment's process are of the job that these records about the host are for.
fn is_about(host: &Source, segment: &Segment) -> bool {
    let source = segment.source();
    (&source.job, &source.host) == (&host.job, &host.host)
}
