//! Packets, from wherever they come, into curves.
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curves, Link, MirrorMeter, Packet, Skipped};
use mycroft_formats::{CaptureFault, CapturedPacket};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};

/// Why a packet is in no curve.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Left {
    /// Its headers say so.
    Skipped(Skipped),
    /// The capture has frames of a kind that is not read.
    Link,
    /// As many flows as there may be.
    Flows,
    /// It has no time.
    Untimed,
    /// Whoever captured lost it.
    Dropped,
}

impl Left {
    /// The reason in a word, for programs.
    pub(super) fn word(self) -> &'static str {
        match self {
            Left::Skipped(Skipped::Truncated) => "truncated",
            Left::Skipped(Skipped::NotIp) => "not-ip",
            Left::Skipped(Skipped::Fragment) => "fragment",
            Left::Skipped(Skipped::OtherTraffic) => "other-traffic",
            Left::Skipped(Skipped::Malformed) => "malformed",
            Left::Link => "link",
            Left::Flows => "too-many-flows",
            Left::Untimed => "untimed",
            Left::Dropped => "dropped-by-capture",
        }
    }
}

/// What a capture holds.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) curves: Curves,
    /// Packets in the capture.
    pub(super) packets: u64,
    /// Time of the earliest and the latest packet, nanoseconds since 1970.
    pub(super) span_ns: Option<(u64, u64)>,
    /// Packets that are in no curve.
    pub(super) left: BTreeMap<Left, u64>,
    /// Where and why reading ended early.
    pub(super) fault: Option<CaptureFault>,
}

/// The meter, and what it gave so far.
pub(super) struct Intake {
    meter: MirrorMeter,
    pub(super) seen: Seen,
}

impl Intake {
    pub(super) fn new(grain: Grain, curves: Curves) -> Intake {
        let meter = MirrorMeter::new(grain, 0, RandomState::new().hash_one(0));
        Intake { meter, seen: Seen { curves, ..Seen::default() } }
    }

    /// Counts a packet.
    pub(super) fn take(&mut self, captured: &CapturedPacket<'_>) {
        let Intake { meter, seen } = self;
        seen.packets += 1;
        let time = captured.time_ns;
        let (from, to) = seen.span_ns.unwrap_or((time, time));
        seen.span_ns = Some((from.min(time), to.max(time)));
        let packet = match Link::from_number(captured.link) {
            None => Err(Left::Link),
            Some(link) => Packet::parse(link, captured.bytes, captured.wire_bytes).map_err(Left::Skipped),
        };
        match packet {
            Ok(packet) => {
                if let Some(until) = meter.due(time) {
                    meter.poll(until, |key, exchange, report| seen.curves.take(key, exchange, report));
                }
                meter.packet(time, captured.wire_bytes, &packet);
            }
            Err(left) => self.leave(left, 1),
        }
    }

    /// Counts packets that are in no curve.
    pub(super) fn leave(&mut self, left: Left, packets: u64) {
        if packets > 0 {
            *self.seen.left.entry(left).or_default() += packets;
        }
    }

    /// Puts what lies before a time into the curves, in whole chunks of epochs.
    pub(super) fn poll(&mut self, until_ns: u64) {
        let Intake { meter, seen } = self;
        meter.poll(until_ns, |key, exchange, report| seen.curves.take(key, exchange, report));
    }

    /// Puts everything into the curves and ends all flows.
    pub(super) fn collect(&mut self) {
        let Intake { meter, seen } = self;
        meter.finish(|key, exchange, report| seen.curves.take(key, exchange, report));
    }

    /// Packets of flows beyond the most that are kept.
    pub(super) fn unplaced_packets(&self) -> u64 {
        self.meter.unplaced_packets() + self.seen.curves.unkept_packets()
    }

    /// What was seen, to its end.
    pub(super) fn finish(mut self) -> Seen {
        self.collect();
        self.leave(Left::Flows, self.unplaced_packets());
        self.seen
    }
}
