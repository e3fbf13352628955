//! Starting and stopping: checks first, then two threads, then a handle.
use crate::backlog::Backlog;
use crate::capture::Capturer;
use crate::clock::AgentClock;
use crate::config::AgentConfig;
use crate::error::{AgentError, Notice};
use crate::hold::Holder;
use crate::lock::DirLock;
use crate::outbox::Outbox;
use crate::sampler::{Event, Sampler};
use crate::segment_dir::SegmentDir;
use crate::ship::{Shipper, WIRE_TIMEOUT};
use crate::stats::{AgentStats, Shared};
use mycroft_wire::{ClientConfig, WRITE_TIMEOUT_DEFAULT};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Shortest period of samples and shipments: below, the agent would cost more than it may.
const PERIOD_MIN: Duration = Duration::from_millis(1);

/// Shortest limit of one call of the wire, however short `stop_timeout` is: below, a healthy server would be missed.
const WIRE_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// The host daemon.
#[derive(Debug)]
pub struct Agent;

impl Agent {
    /// Starts an agent in threads of its own. It needs no job and no server: both may come later, and go.
    ///
    /// # Errors
    /// The segment or spool directory cannot be used or is in use by another agent; a setting cannot work.
    pub fn start(config: AgentConfig) -> Result<AgentHandle, AgentError> {
        check(&config)?;
        // Each segment takes one, and a host may have hundreds.
        mycroft_wire::descriptors::raise();
        let dir = SegmentDir::open(&config.segment_dir)?;
        let lock = DirLock::take(&dir)?;
        let backlog = Backlog::open(&config.spool_dir, config.spool_max_bytes)?;
        let (shared, outbox) = (Arc::new(Shared::default()), Arc::new(Outbox::default()));
        let (events, inbox) = channel();
        // What the shipping thread is in the middle of when the agent stops ends before the stop's own time does.
        let within = |limit: Duration| limit.min(config.stop_timeout).max(WIRE_TIMEOUT_MIN);
        let clock = AgentClock::start(config.clock_shift_ns);
        let client_config = ClientConfig {
            clock: clock.for_wire(),
            host: config.host.clone().unwrap_or_else(host_name),
            machine: None,
            token: config.token.clone(),
            tls: config.tls.clone(),
            connect_timeout: within(WIRE_TIMEOUT),
            send_timeout: within(WIRE_TIMEOUT),
            write_timeout: within(WRITE_TIMEOUT_DEFAULT),
        };
        let way = config.way.clone();
        let capturer = Capturer::new(config.capture.clone(), shared.clone());
        let mut shipper = Shipper::new(way, client_config, backlog, outbox.clone(), shared.clone(), events.clone());
        shipper.capturer = Some(capturer);
        shipper.holder = Some(Holder::new(config.may_hold, config.segment_dir.clone(), shared.clone()));
        let shipping = spawn("mycroft-ship", move || shipper.run())?;
        let sampler = Sampler::new(&config, clock, (dir, lock), outbox.clone(), shared.clone());
        let sampling = spawn("mycroft-agent", move || sampler.run(&inbox)).inspect_err(|_| {
            // The sampler that would have said so does not exist.
            outbox.stop(Instant::now());
        })?;
        Ok(AgentHandle { shared, events, outbox, sampling: Some(sampling), shipping: Some(shipping) })
    }
}

/// A running agent; stops when dropped.
#[derive(Debug)]
pub struct AgentHandle {
    shared: Arc<Shared>,
    events: Sender<Event>,
    outbox: Arc<Outbox>,
    sampling: Option<JoinHandle<()>>,
    shipping: Option<JoinHandle<()>>,
}

impl AgentHandle {
    /// What it counted so far.
    pub fn stats(&self) -> AgentStats {
        self.shared.stats()
    }

    /// What a person should know, each once: those since the last call, of too many the latest.
    pub fn take_notices(&self) -> Vec<Notice> {
        self.shared.take_notices()
    }

    /// Collects and ships once more, spools what the server does not take within `stop_timeout`, and ends all threads.
    /// Gives the final counts.
    pub fn stop(mut self) -> AgentStats {
        self.end();
        self.shared.stats()
    }

    fn end(&mut self) {
        // Fails only when the thread has ended already.
        let _ = self.events.send(Event::Stop);
        self.join(|handle| handle.sampling.take());
        // Said by the sampling thread, unless that panicked.
        self.outbox.stop(Instant::now());
        self.join(|handle| handle.shipping.take());
    }

    fn join(&mut self, thread: impl FnOnce(&mut AgentHandle) -> Option<JoinHandle<()>>) {
        if thread(self).is_some_and(|thread| thread.join().is_err()) {
            self.shared.notice(Notice::Defect);
        }
    }
}

impl Drop for AgentHandle {
    fn drop(&mut self) {
        self.end();
    }
}

fn check(config: &AgentConfig) -> Result<(), AgentError> {
    for (name, period) in [("sample_every", config.sample_every), ("ship_every", config.ship_every)] {
        if period < PERIOD_MIN {
            return Err(AgentError::Setting { name, value: format!("{period:?}"), expected: "1 ms or more" });
        }
    }
    Ok(())
}

fn spawn(name: &'static str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, AgentError> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(body).map_err(|source| AgentError::Thread { name, source })
}

/// This host's name as the kernel has it.
pub fn host_name() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    crate::convert::sane_text(text.trim())
}
