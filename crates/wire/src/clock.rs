//! What a server knows of the clock of a peer, and when it tells it: the times that every frame and heartbeat carries
//! become `ClockOffset` records before the batches that they hold for.
use crate::offset::{Estimate, OffsetEstimator};
use mycroft_record::{Batch, ClockOffset, HostName, HostTime, JobName, NANOS_PER_MS, NANOS_PER_SEC, Record, Source};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The protocol version in which peers exchange times.
pub const VERSION_TIMES: u16 = 3;
/// Times of ours that a peer may still refer to: a peer answers to the newest it has read, of 64 frames on their way.
const SENT_KEPT: usize = 64;
/// The offset is told again after so long, so that whoever begins to read in the middle soon knows it: a server that warms
/// up reads ten minutes.
const TELL_EVERY_NS: u64 = 30 * NANOS_PER_SEC;
/// A bound that is no wider need not become narrower: nothing that is compared depends on a millisecond.
const BOUND_FINE_NS: u64 = NANOS_PER_MS;
/// Jobs and hosts of one peer that are told: a host runs some; whoever invents more is not told of.
const TOLD_MAX: usize = 64;
/// A peer that exchanges no times and says that it collected records so long before now was not yet is known to be ahead:
/// more than clocks that are kept by the network differ by.
const AHEAD_LEAST_NS: i64 = 100 * NANOS_PER_MS.cast_signed();

/// Reads a clock.
#[derive(Clone)]
pub struct WireClock(Arc<dyn Fn() -> HostTime + Send + Sync>);

impl WireClock {
    /// A clock that `read` reads.
    pub fn new(read: impl Fn() -> HostTime + Send + Sync + 'static) -> WireClock {
        WireClock(Arc::new(read))
    }

    /// Now; never the unknown time.
    pub fn now(&self) -> HostTime {
        (self.0)().max(HostTime(1))
    }
}

impl Default for WireClock {
    /// The system's wall clock.
    fn default() -> WireClock {
        WireClock::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            HostTime(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
        })
    }
}

impl fmt::Debug for WireClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WireClock")
    }
}

/// The times of one message, each by the clock of whoever sent it but `echo`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// When it was sent, by the sender's clock.
    pub sent: HostTime,
    /// `sent` of the newest times that the sender had of the receiver; `NONE`: none yet.
    pub echo: HostTime,
    /// When these came, by the sender's clock.
    pub received: HostTime,
}

impl Times {
    /// As they go over the wire.
    pub(crate) fn bytes(self) -> impl Iterator<Item = u8> {
        [self.sent, self.echo, self.received].into_iter().flat_map(|time| time.0.to_le_bytes())
    }

    /// Three numbers one after the other; `None` where they end too early.
    pub(crate) fn read(mut next: impl FnMut() -> Option<u64>) -> Option<Times> {
        let mut time = || next().map(HostTime);
        Some(Times { sent: time()?, echo: time()?, received: time()? })
    }
}

/// The end of an exchange that sends times with what it sends: what it last had of the other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamps {
    echo: HostTime,
    received: HostTime,
}

impl Stamps {
    /// Times of the other came at `at` of our clock.
    pub fn take(&mut self, times: Times, at: HostTime) {
        (self.echo, self.received) = (times.sent, at);
    }

    /// The times to send now.
    pub fn stamp(&self, now: HostTime) -> Times {
        Times { sent: now, echo: self.echo, received: self.received }
    }
}

/// The clock of a peer, as its server sees it.
#[derive(Debug, Default)]
pub struct PeerClock {
    stamps: Stamps,
    estimator: OffsetEstimator,
    /// The same from when batches were collected, for a peer that exchanges no times: one direction only.
    collected: OffsetEstimator,
    /// When times of ours were sent.
    sent: VecDeque<HostTime>,
    /// The peer's newest.
    last: Times,
    told: BTreeMap<(JobName, HostName), ClockOffset>,
}

impl PeerClock {
    /// Our times to send now.
    pub fn stamp(&mut self, now: HostTime) -> Times {
        self.sent.push_back(now);
        if self.sent.len() > SENT_KEPT {
            self.sent.pop_front();
        }
        self.stamps.stamp(now)
    }

    /// Times of the peer came at `at` of our clock.
    pub fn take(&mut self, times: Times, at: HostTime) {
        self.stamps.take(times, at);
        let Times { sent, echo, received } = times;
        // A clock that is behind where it was has been set back.
        if sent < self.last.sent || sent < received {
            self.estimator.step(at);
        } else if self.sent.contains(&echo) {
            self.estimator.went(echo, received);
        }
        self.estimator.came(sent, at);
        self.last = times;
    }

    /// What the peer sent at `sent` by its clock came at `at`, of a peer that is never answered.
    pub fn heard(&mut self, sent: HostTime, at: HostTime) {
        self.collected.came(sent, at);
    }

    /// Batches came at `at`: what is to be told of the peer's clock before them.
    pub fn tell(&mut self, batches: &[Batch], at: HostTime) -> Vec<Batch> {
        let estimate = self.estimator.estimate(at).or_else(|| self.ahead(batches, at));
        let Some(estimate) = estimate else { return Vec::new() };
        let mut out: Vec<Batch> = Vec::new();
        for batch in batches {
            let Source { job, host, .. } = &batch.source;
            if let Some(told) = out.iter_mut().find(|told| told.source.job == *job && told.source.host == *host) {
                told.collected_at = told.collected_at.min(batch.collected_at);
                continue;
            }
            let key = (job.clone(), host.clone());
            let last = self.told.get(&key);
            if !last.is_none_or(|last| is_due(last, &estimate, at)) || (last.is_none() && self.told.len() >= TOLD_MAX) {
                continue;
            }
            let record = record(&estimate, at);
            let source = Source { process: None, ..batch.source.clone() };
            let records = vec![Record::ClockOffset(record)];
            out.push(Batch { source, collected_at: batch.collected_at, records });
            self.told.insert(key, record);
        }
        out
    }

    /// What the batches of a peer that exchanges no times tell: it cannot have collected them later than now. How long they
    /// were on their way nobody knows, so one that seems to be behind may be slow only.
    fn ahead(&mut self, batches: &[Batch], at: HostTime) -> Option<Estimate> {
        self.collected.came(batches.iter().map(|batch| batch.collected_at).max()?, at);
        self.collected.estimate(at).filter(|estimate| estimate.offset_ns >= AHEAD_LEAST_NS)
    }
}

/// Whole microseconds, as everything at rest.
fn whole(time: HostTime) -> HostTime {
    HostTime(time.0 / 1000 * 1000)
}

fn record(estimate: &Estimate, at: HostTime) -> ClockOffset {
    ClockOffset {
        at: whole(at),
        offset_ns: estimate.offset_ns,
        drift_ppb: estimate.drift_ppb,
        bound_ns: estimate.bound_ns.unwrap_or(ClockOffset::UNKNOWN),
        since: whole(estimate.since),
    }
}

/// Whether what was told is not enough any more.
fn is_due(told: &ClockOffset, now: &Estimate, at: HostTime) -> bool {
    let bound_ns = now.bound_ns.unwrap_or(AHEAD_LEAST_NS as u64);
    let is_off = told.offset_at(at).abs_diff(now.offset_ns) > bound_ns.max(BOUND_FINE_NS);
    let is_finer = told.is_known() && told.bound_ns > BOUND_FINE_NS.max(2 * bound_ns.min(u64::MAX / 2));
    told.since != whole(now.since)
        || told.is_known() != now.bound_ns.is_some()
        || at.since_ns(told.at) >= TELL_EVERY_NS
        || is_off
        || is_finer
}
