//! The measurement layer (Pulse, section 4.2): bytes of a flow into epochs, collected at each poll, flows that end aged out.
use crate::limits::{CHUNK_EPOCHS, FLOWS_MAX, Grain};
use crate::pool::Pool;
use crate::window::Window;
use alloc::vec::Vec;

/// A flow of one meter, until a report says that it ended; the number is used again later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowId(pub(crate) u32);

/// What was put into a flow since the last poll. What is not in the curve is told by its reason:
/// `bytes` plus what was carried before = bytes of the epochs + `late_bytes` + `beyond_bytes` + `overflow_bytes` +
/// `refused_bytes` + what is carried now. (Of epochs that a poll leaves for the next one, the next report tells.)
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Events.
    pub events: u64,
    /// Bytes of these events.
    pub bytes: u64,
    /// Events that were older than the newest before them, by an epoch or more.
    pub reordered_events: u64,
    /// Bytes of epochs that had been collected when they came.
    pub late_bytes: u64,
    /// Bytes of epochs after the window's end: a poll was due and did not come.
    pub beyond_bytes: u64,
    /// Bytes of epochs that held 65,535 units already.
    pub overflow_bytes: u64,
    /// Bytes for whose epochs the pool had no memory left.
    pub refused_bytes: u64,
}

impl Counters {
    /// Bytes that are in no epoch.
    #[must_use]
    pub fn outside_bytes(&self) -> u64 {
        self.late_bytes + self.beyond_bytes + self.overflow_bytes + self.refused_bytes
    }

    /// Adds what another poll told.
    pub fn add(&mut self, more: &Counters) {
        self.events += more.events;
        self.bytes += more.bytes;
        self.reordered_events += more.reordered_events;
        self.late_bytes += more.late_bytes;
        self.beyond_bytes += more.beyond_bytes;
        self.overflow_bytes += more.overflow_bytes;
        self.refused_bytes += more.refused_bytes;
    }
}

/// Bytes of an epoch that had been sent before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resent {
    /// Number of the epoch.
    pub epoch: u64,
    /// Bytes; also in the epoch.
    pub bytes: u32,
    /// For an epoch or longer nothing was sent but what had been sent before, and here the flow went on in the midst of a message.
    pub resumes: bool,
}

/// State of a flow between polls.
struct Flow {
    /// Bytes that do not make an event's amount yet.
    carried_bytes: u64,
    newest_epoch: u64,
    window: Window,
    counters: Counters,
}

/// What a poll tells of one flow.
pub struct FlowReport<'a> {
    /// The flow.
    pub flow: FlowId,
    /// What was put in since the last poll.
    pub counters: Counters,
    /// Bytes that wait for more of them, less than an event's amount.
    pub carried_bytes: u64,
    /// The flow sent nothing since the last poll (or the measurement ends): it is forgotten, and its memory given back.
    pub has_ended: bool,
    /// Of its epochs, bytes that had been sent before, oldest first; only where packets are seen ([`MirrorMeter`](crate::MirrorMeter)), as far
    /// as there was room for it.
    pub resent: &'a [Resent],
    state: &'a Flow,
    pool: &'a Pool,
    chunks: (u64, u64),
    unit_bytes: u64,
}

impl<'a> FlowReport<'a> {
    /// The same with what had been sent before.
    pub(crate) fn with_resent(&self, resent: &'a [Resent]) -> FlowReport<'a> {
        FlowReport { resent, ..*self }
    }
}

impl FlowReport<'_> {
    /// Epochs with bytes, oldest first: number of the epoch (times the epoch's length it is nanoseconds), bytes. No epoch is
    /// told twice.
    pub fn epochs(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let (from, to) = self.chunks;
        let units = self.state.window.epochs(from, to, self.pool);
        units.map(|(epoch, units)| (epoch, u64::from(units) * self.unit_bytes))
    }
}

/// Bytes per flow and epoch. Time comes with the events; nothing here looks at a clock.
pub struct Meter {
    grain: Grain,
    /// Bytes after which a flow's bytes become an event (Pulse, section 4.2, aggregation layer).
    amount_bytes: u64,
    flows: Vec<Option<Flow>>,
    vacant: Vec<u32>,
    pool: Pool,
    /// Number of the first chunk that was not collected; none before the first event.
    base: Option<u64>,
}

impl Meter {
    /// A meter to which each packet is an event: bytes are carried only until they fill a unit.
    #[must_use]
    pub fn new(grain: Grain) -> Meter {
        Meter::with_amount(grain, 0)
    }

    /// A meter that takes an event each time a flow has sent so many bytes, rounded up to a power of two and at least a unit:
    /// 4,096 as on a NIC (Pulse, section 4.3). What is less is carried.
    #[must_use]
    pub fn with_amount(grain: Grain, amount_bytes: u32) -> Meter {
        Meter {
            grain,
            amount_bytes: u64::from(amount_bytes).next_power_of_two().max(grain.unit_bytes()),
            flows: Vec::new(),
            vacant: Vec::new(),
            pool: Pool::new(grain.chunks_max()),
            base: None,
        }
    }

    /// How time and volume are cut.
    #[must_use]
    pub fn grain(&self) -> Grain {
        self.grain
    }

    /// A new flow; none where [`FLOWS_MAX`] are there.
    pub fn open(&mut self) -> Option<FlowId> {
        let window = Window::new(self.grain.window_chunks());
        let flow = Some(Flow { carried_bytes: 0, newest_epoch: 0, window, counters: Counters::default() });
        if let Some(number) = self.vacant.pop() {
            *self.flows.get_mut(number as usize)? = flow;
            return Some(FlowId(number));
        }
        let number = u32::try_from(self.flows.len()).ok().filter(|_| self.flows.len() < FLOWS_MAX)?;
        self.flows.push(flow);
        Some(FlowId(number))
    }

    /// Adds bytes that a flow sent at a time in nanoseconds. A flow that has ended counts nothing.
    pub fn record(&mut self, flow: FlowId, time_ns: u64, bytes: u32) {
        let Some(Some(flow)) = self.flows.get_mut(flow.0 as usize) else { return };
        flow.counters.events += 1;
        flow.counters.bytes += u64::from(bytes);
        flow.carried_bytes += u64::from(bytes);
        let epoch = self.grain.epoch(time_ns);
        flow.counters.reordered_events += u64::from(epoch < flow.newest_epoch);
        flow.newest_epoch = flow.newest_epoch.max(epoch);
        if flow.carried_bytes < self.amount_bytes {
            return;
        }
        let amount = flow.carried_bytes & !(self.amount_bytes - 1);
        flow.carried_bytes -= amount;
        let chunk = epoch / CHUNK_EPOCHS as u64;
        // One chunk before the first event's: others may be a little older.
        let base = *self.base.get_or_insert(chunk.saturating_sub(1));
        if chunk < base {
            flow.counters.late_bytes += amount;
        } else if chunk - base >= self.grain.window_chunks() as u64 {
            flow.counters.beyond_bytes += amount;
        } else if let Some(id) = flow.window.chunk(chunk, &mut self.pool) {
            let place = usize::try_from(epoch % CHUNK_EPOCHS as u64).unwrap_or(0);
            if let Some(units) = self.pool.epochs_mut(id).get_mut(place) {
                let sum = u64::from(*units) + amount / self.grain.unit_bytes();
                *units = u16::try_from(sum).unwrap_or(u16::MAX);
                flow.counters.overflow_bytes += (sum - u64::from(*units)) * self.grain.unit_bytes();
            }
        } else {
            flow.counters.refused_bytes += amount;
        }
    }

    /// Where an event of this time would be beyond the window: the time until which to poll before it is recorded. An eighth
    /// of the window stays behind the event for others that come late.
    #[must_use]
    pub fn due(&self, time_ns: u64) -> Option<u64> {
        let window = self.grain.window_chunks() as u64;
        let chunk = self.grain.epoch(time_ns) / CHUNK_EPOCHS as u64;
        let is_due = chunk.checked_sub(self.base?)? >= window;
        is_due.then(|| (chunk - (window / 8).max(1)) * CHUNK_EPOCHS as u64 * self.grain.epoch_ns())
    }

    /// Collects what lies before a time in nanoseconds, rounded down to a chunk's beginning (16.4 ms at 32 us), so that no
    /// epoch is cut. Flows without an event since the last poll, and with nothing left, end.
    pub fn poll(&mut self, until_ns: u64, each: impl FnMut(&FlowReport<'_>)) {
        let until = self.grain.epoch(until_ns) / CHUNK_EPOCHS as u64;
        let Some(base) = self.base else { return self.collect((0, 0), false, each) };
        self.base = Some(base.max(until));
        self.collect((base, base.max(until)), false, each);
    }

    /// Collects everything, ends all flows and forgets the time.
    pub fn finish(&mut self, each: impl FnMut(&FlowReport<'_>)) {
        let base = self.base.take().unwrap_or(0);
        self.collect((base, base.saturating_add(self.grain.window_chunks() as u64)), true, each);
    }

    fn collect(&mut self, chunks: (u64, u64), is_last: bool, mut each: impl FnMut(&FlowReport<'_>)) {
        for (slot, number) in self.flows.iter_mut().zip(0u32..) {
            let Some(flow) = slot.as_mut() else { continue };
            let keeps = |flow: &Flow| {
                let mut kept = flow.window.epochs(chunks.1, u64::MAX, &self.pool);
                flow.counters.events > 0 || kept.next().is_some()
            };
            let has_ended = is_last || !keeps(flow);
            let report = FlowReport {
                flow: FlowId(number),
                counters: flow.counters,
                carried_bytes: flow.carried_bytes,
                has_ended,
                resent: &[],
                state: flow,
                pool: &self.pool,
                chunks,
                unit_bytes: self.grain.unit_bytes(),
            };
            each(&report);
            flow.window.clear(chunks.0, chunks.1, &mut self.pool);
            flow.counters = Counters::default();
            if has_ended {
                debug_assert!(flow.window.is_empty(), "an ended flow holds no chunk");
                *slot = None;
                self.vacant.push(number);
            }
        }
        self.pool.shrink();
    }

    /// Flows that have not ended.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flows.len() - self.vacant.len()
    }

    /// Bytes that the measurement holds.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let windows = self.flows() * self.grain.window_chunks() * size_of::<u32>();
        let states = self.flows.capacity() * size_of::<Option<Flow>>() + self.vacant.capacity() * size_of::<u32>();
        self.pool.memory_bytes() + windows + states
    }
}
