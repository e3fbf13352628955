//! The shipping thread: batches to the server, or to the spool while it is away, in order for each source.
mod gaps;
mod orders;
mod stop;

use crate::backlog::{Backlog, Lost, count_lost, frames, record_count};
use crate::capture::Capturer;
use crate::error::Notice;
use crate::hold::Holder;
use crate::outbox::Outbox;
use crate::process::thread_cpu;
use crate::stats::{Shared, add};
use crate::turns::Turns;
use gaps::gap_batches;
use mycroft_record::{Batch, GapCause, Record};
use mycroft_wire::codec;
use mycroft_wire::{Carrier, ClientConfig, Way, WireError};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// First wait before connecting again; doubles up to `BACKOFF_MAX`.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
/// Longest wait before connecting again.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// A server that gave no credit is left alone for so long.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
/// Limit of one attempt to connect, and of waiting for credit: what blocks the thread, and so what the queue must hold.
pub(crate) const WIRE_TIMEOUT: Duration = Duration::from_secs(1);
/// The client's acknowledgements and heartbeats are looked after this often.
const POLL_EVERY: Duration = Duration::from_millis(250);
/// As often while a capture is running, so that what it found leaves soon.
const CAPTURE_POLL: Duration = Duration::from_millis(10);
/// While the server is away records are held this long and spooled together: fewer and better compressed frames.
const HOLD: Duration = Duration::from_secs(1);
/// Records held before they are spooled at once.
const HOLD_RECORDS_MAX: usize = 16 << 10;
/// Spooled frames sent before new records get their turn.
const REPLAY_FRAMES: usize = 16;

/// The thread's state.
pub(crate) struct Shipper {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) shared: Arc<Shared>,
    /// Told at each connection after the first, and where the way asks for it in between: the server may be a new one that knows no
    /// process yet.
    pub(crate) server_back: Sender<crate::sampler::Event>,
    /// Does what the server orders.
    pub(crate) capturer: Option<Capturer>,
    /// Holds ranks where a coordinator says so.
    pub(crate) holder: Option<Holder>,
    way: Way,
    client_config: ClientConfig,
    link: Link,
    backlog: Backlog,
    fresh: Vec<Batch>,
    fresh_since: Option<Instant>,
    turns: Turns,
    /// Records that the agent dropped and that nobody has been told of yet.
    lost: Lost,
    /// The same of records that the server refused for good.
    refused: Lost,
    connections: u64,
    up_since: Instant,
    /// Wait after a connection that ended; longer after each that ended soon.
    flapping: Duration,
    told_away: Option<String>,
    told_spool: bool,
    polled_at: Instant,
    told_anew_at: Instant,
    /// Not before: the spool could not be read.
    replay_at: Instant,
    /// Not before: the server gave no credit.
    send_at: Instant,
}

/// The way to the server.
enum Link {
    Up(Box<dyn Carrier>),
    Down {
        /// The broken connection, which still holds what the server has not acknowledged.
        client: Option<Box<dyn Carrier>>,
        retry_at: Instant,
        backoff: Duration,
    },
}

impl Shipper {
    pub(crate) fn new(
        way: Way,
        client_config: ClientConfig,
        backlog: Backlog,
        outbox: Arc<Outbox>,
        shared: Arc<Shared>,
        server_back: Sender<crate::sampler::Event>,
    ) -> Shipper {
        let now = Instant::now();
        Shipper {
            outbox,
            shared,
            server_back,
            capturer: None,
            holder: None,
            way,
            client_config,
            link: Link::Down { client: None, retry_at: now, backoff: BACKOFF_MIN },
            backlog,
            fresh: Vec::new(),
            fresh_since: None,
            turns: Turns::default(),
            lost: Lost::new(),
            refused: Lost::new(),
            connections: 0,
            up_since: now,
            flapping: BACKOFF_MIN / 2,
            told_away: None,
            told_spool: false,
            polled_at: now,
            told_anew_at: now,
            replay_at: now,
            send_at: now,
        }
    }

    /// Ships until the outbox says stop, then flushes until the deadline; what the server has not taken is spooled.
    pub(crate) fn run(mut self) {
        loop {
            let taken = self.outbox.take(self.wait());
            self.take_fresh(taken.batches, taken.lost);
            self.turns.taken(taken.turn);
            self.connect_if_due();
            self.tell_anew();
            self.work();
            self.tell_safe();
            self.publish();
            if let Some(by) = taken.stop_at {
                self.finish(by);
                return;
            }
        }
    }

    /// How long nothing needs doing.
    fn wait(&self) -> Duration {
        let now = Instant::now();
        match &self.link {
            Link::Up(_) if self.holds() => self.poll_every(),
            Link::Up(_) if self.capturer.as_ref().is_some_and(Capturer::is_active) => CAPTURE_POLL,
            Link::Up(_) if self.backlog.len() > 0 => {
                self.replay_at.max(self.send_at).min(self.polled_at + POLL_EVERY).saturating_duration_since(now)
            }
            Link::Up(_) => (self.polled_at + POLL_EVERY).saturating_duration_since(now),
            Link::Down { retry_at, .. } => {
                let spool_at = self.fresh_since.map(|since| since + HOLD);
                spool_at.map_or(*retry_at, |at| at.min(*retry_at)).saturating_duration_since(now)
            }
        }
    }

    /// The one door of new records, and so the place where times become whole microseconds: the calibration of host
    /// clocks is no better, and it saves about a third of the volume.
    fn take_fresh(&mut self, mut batches: Vec<Batch>, lost: Lost) {
        for (source, records) in lost {
            count_lost(&mut self.lost, &source, records);
        }
        batches.iter_mut().for_each(codec::round_to_micros);
        if !batches.is_empty() {
            self.fresh_since.get_or_insert_with(Instant::now);
            self.fresh.extend(batches);
        }
    }

    /// Tells the sampling thread what need not be read again if this process is killed now.
    fn tell_safe(&mut self) {
        let waiting = match &self.link {
            Link::Up(client) | Link::Down { client: Some(client), .. } => client.unacknowledged(),
            Link::Down { client: None, .. } => 0..0,
        };
        if let Some(turn) = self.turns.safe(self.fresh.is_empty(), &waiting) {
            self.shared.safe_turn.store(turn, Ordering::Release);
        }
    }

    fn connect_if_due(&mut self) {
        let Link::Down { client, retry_at, backoff } = &mut self.link else { return };
        if Instant::now() < *retry_at {
            return;
        }
        let connected = match client.take() {
            Some(mut old) => match old.reconnect() {
                Ok(()) => Ok(old),
                Err(e) => {
                    *client = Some(old);
                    Err(e)
                }
            },
            None => self.way.connect(&self.client_config),
        };
        match connected {
            Ok(client) => self.came_up(client),
            Err(e) => {
                *retry_at = Instant::now() + *backoff;
                *backoff = (*backoff * 2).min(BACKOFF_MAX);
                self.tell_away(&e);
            }
        }
    }

    fn came_up(&mut self, client: Box<dyn Carrier>) {
        self.link = Link::Up(client);
        self.polled_at = Instant::now();
        self.up_since = self.polled_at;
        self.connections += 1;
        if self.told_away.take().is_some() || self.connections > 1 {
            self.shared.notice(Notice::ServerBack { endpoint: self.way.to_string() });
        }
        if self.connections > 1 {
            // Nobody listens any more while the agent stops; then nothing needs telling either.
            let _ = self.server_back.send(crate::sampler::Event::ServerBack);
        }
    }

    /// Nobody says when another server takes over.
    fn tell_anew(&mut self) {
        let is_due = self.way.anew_every().is_some_and(|every| self.told_anew_at.elapsed() >= every);
        if is_due && matches!(self.link, Link::Up(_)) {
            self.told_anew_at = Instant::now();
            // As at a new connection.
            let _ = self.server_back.send(crate::sampler::Event::ServerBack);
        }
    }

    fn went_down(&mut self, error: &WireError) {
        self.abandon_orders();
        // A server that takes the agent in and throws it out at once is not asked twenty times a second.
        let lived = self.up_since.elapsed() >= BACKOFF_MAX;
        self.flapping = if lived { BACKOFF_MIN } else { (self.flapping * 2).min(BACKOFF_MAX) };
        let (retry_at, backoff) = (Instant::now() + self.flapping, self.flapping);
        let down = Link::Down { client: None, retry_at, backoff };
        if let Link::Up(client) = std::mem::replace(&mut self.link, down)
            && let Link::Down { client: kept, .. } = &mut self.link
        {
            *kept = Some(client);
        }
        self.tell_away(error);
    }

    fn tell_away(&mut self, error: &WireError) {
        let whole = error.to_string();
        if self.told_away.as_ref() != Some(&whole) {
            let endpoint = self.way.to_string();
            self.shared.notice(match error {
                WireError::Refused { code, text, .. } => {
                    Notice::ServerRefused { endpoint, reason: format!("{code}: {text}") }
                }
                _ => Notice::ServerAway { endpoint, reason: whole.clone() },
            });
            self.told_away = Some(whole);
        }
    }

    /// One turn: with a server, losses first, then new records of sources with nothing older waiting, then some of what
    /// waits; without, new records to the spool when they are many or old enough.
    fn work(&mut self) {
        if matches!(self.link, Link::Up(_)) && Instant::now() >= self.send_at {
            let sent = self.send_gaps().and_then(|()| self.send_fresh()).and_then(|()| self.replay());
            match sent {
                Ok(()) => {}
                Err(WireError::NoCredit { .. }) => self.send_at = Instant::now() + BUSY_PAUSE,
                Err(error) => self.went_down(&error),
            }
        }
        if let Err(error) = self.poll().and_then(|()| self.do_orders()) {
            self.went_down(&error);
        }
        let held: usize = self.fresh.iter().map(|b| b.records.len()).sum();
        let old = self.fresh_since.is_some_and(|since| since.elapsed() >= HOLD);
        if held > HOLD_RECORDS_MAX || old {
            self.spool_fresh();
        }
    }

    /// Tells each source that lost records of its loss. The lost ones were its oldest, so this goes before the rest.
    fn send_gaps(&mut self) -> Result<(), WireError> {
        if self.lost.is_empty() && self.refused.is_empty() {
            return Ok(());
        }
        let gaps = self.gap_batches();
        self.send(&gaps)?;
        self.lost.clear();
        self.refused.clear();
        Ok(())
    }

    /// One batch per source and place that lost records, saying how many.
    fn gap_batches(&self) -> Vec<Batch> {
        let now = self.client_config.clock.now();
        let mut gaps = gap_batches(&self.lost, GapCause::SpoolDropped, now);
        gaps.extend(gap_batches(&self.refused, GapCause::ServerDropped, now));
        gaps
    }

    /// Counts what was in frames that the server rejected for good. A frame that tells nothing but losses is not told as
    /// a loss again, or a server that rejects everything would be sent one for ever.
    fn count_rejected(&mut self) {
        let Link::Up(client) = &mut self.link else { return };
        let frames = client.take_rejected();
        let Some(why) = client.last_reject().filter(|_| !frames.is_empty()) else { return };
        self.shared.notice(Notice::Rejected { endpoint: self.way.to_string(), reason: why.to_owned() });
        for frame in frames {
            add(&self.shared.dropped, codec::header(&frame).map_or(0, |header| u64::from(header.records)));
            // What we encoded can be read; what an older agent left in the spool, most often.
            for batch in codec::decode(&frame).map(|decoded| decoded.batches).unwrap_or_default() {
                let records = batch.records.iter().filter(|record| !matches!(record, Record::Gap(_))).count();
                count_lost(&mut self.refused, &batch.source, records as u64);
            }
        }
    }

    fn send_fresh(&mut self) -> Result<(), WireError> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let (behind, direct): (Vec<Batch>, Vec<Batch>) =
            std::mem::take(&mut self.fresh).into_iter().partition(|batch| self.backlog.holds(&batch.source));
        self.fresh_since = None;
        self.spool(&behind);
        let mut sent = 0;
        for frame in frames(&direct) {
            if let Err(error) = self.send(frame) {
                self.fresh = direct[sent..].to_vec();
                self.fresh_since = Some(Instant::now());
                return Err(error);
            }
            sent += frame.len();
        }
        Ok(())
    }

    /// Hands batches to the client. What the server can never take is dropped and counted, not tried for ever.
    fn send(&mut self, batches: &[Batch]) -> Result<(), WireError> {
        let Link::Up(client) = &mut self.link else { return Ok(()) };
        let sent = codec::encode(batches).map_err(WireError::from).and_then(|frame| {
            client.send_frame(&frame)?;
            Ok(frame.len() as u64)
        });
        match sent {
            Ok(bytes) => {
                add(&self.shared.batches_shipped, batches.len() as u64);
                add(&self.shared.bytes_shipped, bytes);
                Ok(())
            }
            Err(error) if is_hopeless(&error) => {
                add(&self.shared.dropped, record_count(batches));
                for batch in batches {
                    count_lost(&mut self.lost, &batch.source, batch.records.len() as u64);
                }
                self.tell_away(&error);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn replay(&mut self) -> Result<(), WireError> {
        if Instant::now() < self.replay_at {
            return Ok(());
        }
        for _ in 0..REPLAY_FRAMES {
            let Link::Up(client) = &mut self.link else { break };
            let frame = match self.backlog.peek(&mut self.lost) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    self.spool_broke(error.to_string());
                    break;
                }
            };
            let sent = client.send_frame(&frame);
            let popped = match &sent {
                Ok(()) => self.backlog.pop(None),
                Err(error) if is_hopeless(error) => {
                    let records = codec::header(&frame).map_or(0, |header| u64::from(header.records));
                    add(&self.shared.dropped, records);
                    self.backlog.pop(Some(&mut self.lost))
                }
                Err(_) => Ok(0),
            };
            if let Err(error) = popped {
                self.spool_broke(error.to_string());
                break;
            }
            match sent {
                Ok(()) => {
                    add(&self.shared.batches_shipped, popped.unwrap_or(0));
                    add(&self.shared.bytes_shipped, frame.len() as u64);
                }
                Err(error) if is_hopeless(&error) => self.tell_away(&error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn spool_broke(&mut self, reason: String) {
        self.replay_at = Instant::now() + BACKOFF_MAX;
        self.tell_spool(reason);
    }

    fn poll(&mut self) -> Result<(), WireError> {
        let every = self.poll_every();
        let Link::Up(client) = &mut self.link else { return Ok(()) };
        if self.polled_at.elapsed() >= every {
            self.polled_at = Instant::now();
            client.say_spooled(self.backlog.spooled());
            client.poll()?;
        }
        self.count_rejected();
        Ok(())
    }

    fn spool_fresh(&mut self) {
        let batches = std::mem::take(&mut self.fresh);
        self.fresh_since = None;
        self.spool(&batches);
    }

    fn spool(&mut self, batches: &[Batch]) {
        for frame in frames(batches) {
            match self.backlog.push(frame, &mut self.lost) {
                Ok(()) => self.told_spool = false,
                Err(reason) => self.tell_spool(reason),
            }
        }
    }

    fn tell_spool(&mut self, reason: String) {
        if !std::mem::replace(&mut self.told_spool, true) {
            self.shared.notice(Notice::SpoolFailed { reason });
        }
    }

    fn publish(&mut self) {
        add(&self.shared.dropped, self.backlog.take_dropped());
        self.shared.spooled.store(self.backlog.len() as u64, Ordering::Relaxed);
        self.shared.connected.store(matches!(self.link, Link::Up(_)), Ordering::Relaxed);
        self.shared.shipper_cpu_ns.store(thread_cpu().as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Whether sending the same again can never work.
fn is_hopeless(error: &WireError) -> bool {
    matches!(error, WireError::TooLarge { .. } | WireError::Encode(_))
}
