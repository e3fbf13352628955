//! Events of a NIC: flows are its queue pairs, found by their 24-bit numbers (Pulse, section 4.2).
use crate::direct::Direct;
use crate::limits::{Grain, QUEUE_PAIRS};
use crate::meter::{FlowReport, Meter};
use alloc::vec::Vec;

/// A meter of the queue pairs of one NIC.
pub struct NicMeter {
    table: Direct,
    /// Queue pair of each flow.
    queue_pairs: Vec<u32>,
    meter: Meter,
    unplaced_bytes: u64,
}

impl NicMeter {
    /// A meter to which the NIC tells an event for each amount that it sent.
    #[must_use]
    pub fn new(grain: Grain) -> NicMeter {
        NicMeter { table: Direct::new(), queue_pairs: Vec::new(), meter: Meter::new(grain), unplaced_bytes: 0 }
    }

    /// A queue pair sent so many bytes until a time in nanoseconds.
    pub fn event(&mut self, queue_pair: u32, time_ns: u64, bytes: u32) {
        let flow = match self.table.get(queue_pair) {
            Some(number) => Some(crate::FlowId(number)),
            None => self.open(queue_pair),
        };
        match flow {
            Some(flow) => self.meter.record(flow, time_ns, bytes),
            None => self.unplaced_bytes += u64::from(bytes),
        }
    }

    fn open(&mut self, queue_pair: u32) -> Option<crate::FlowId> {
        if queue_pair as usize >= QUEUE_PAIRS {
            return None;
        }
        let flow = self.meter.open()?;
        self.table.set(queue_pair, flow.0);
        let place = flow.0 as usize;
        if self.queue_pairs.len() <= place {
            self.queue_pairs.resize(place + 1, 0);
        }
        *self.queue_pairs.get_mut(place)? = queue_pair;
        Some(flow)
    }

    /// Collects what lies before a time, each flow with its queue pair; see [`Meter::poll`].
    pub fn poll(&mut self, until_ns: u64, mut each: impl FnMut(u32, &FlowReport<'_>)) {
        let NicMeter { table, queue_pairs, meter, .. } = self;
        meter.poll(until_ns, |report| told(table, queue_pairs, report, &mut each));
    }

    /// Collects everything and ends all flows.
    pub fn finish(&mut self, mut each: impl FnMut(u32, &FlowReport<'_>)) {
        let NicMeter { table, queue_pairs, meter, .. } = self;
        meter.finish(|report| told(table, queue_pairs, report, &mut each));
    }

    /// Bytes of events beyond the most flows, or of numbers beyond 24 bits.
    #[must_use]
    pub fn unplaced_bytes(&self) -> u64 {
        self.unplaced_bytes
    }

    /// Bytes that the measurement holds, table included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.table.memory_bytes() + self.queue_pairs.capacity() * size_of::<u32>() + self.meter.memory_bytes()
    }
}

/// Tells one flow, and forgets its queue pair where it ended.
fn told(table: &mut Direct, queue_pairs: &[u32], report: &FlowReport<'_>, each: &mut impl FnMut(u32, &FlowReport<'_>)) {
    let Some(&queue_pair) = queue_pairs.get(report.flow.0 as usize) else { return };
    each(queue_pair, report);
    if report.has_ended {
        table.remove(queue_pair);
    }
}
