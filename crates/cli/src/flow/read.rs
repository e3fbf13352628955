//! A capture from a file or pipe into curves.
use anyhow::{Context, Result};
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curves, Link, MirrorMeter, Packet, Skipped};
use mycroft_formats::{CaptureFault, CaptureReader, CapturedPacket};
use std::collections::BTreeMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Bytes asked of a file at a time.
const PIECE_BYTES: usize = 1 << 18;

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

/// Reads a capture to its end, or to where it is wrong.
pub(super) fn read(path: &Path, grain: Grain) -> Result<Seen> {
    let mut input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("{}: cannot be opened", path.display()))?)
    };
    let mut reader = CaptureReader::default();
    let mut intake =
        Intake { meter: MirrorMeter::new(grain, 0, RandomState::new().hash_one(0)), seen: Seen::default() };
    let mut piece = vec![0; PIECE_BYTES];
    let fault = loop {
        let count = match input.read(&mut piece) {
            Ok(0) => break reader.end().err(),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", path.display())),
        };
        if let Err(fault) = reader.read(&piece[..count], |packet| intake.take(packet)) {
            break Some(fault);
        }
    };
    let mut seen = intake.finish();
    seen.fault = fault;
    for (left, packets) in [(Left::Untimed, reader.untimed_packets()), (Left::Dropped, reader.dropped_packets())] {
        if packets > 0 {
            seen.left.insert(left, packets);
        }
    }
    seen.packets += reader.untimed_packets();
    Ok(seen)
}

struct Intake {
    meter: MirrorMeter,
    seen: Seen,
}

impl Intake {
    fn take(&mut self, captured: &CapturedPacket<'_>) {
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
            Err(left) => *seen.left.entry(left).or_default() += 1,
        }
    }

    fn finish(mut self) -> Seen {
        let Intake { meter, seen } = &mut self;
        meter.finish(|key, exchange, report| seen.curves.take(key, exchange, report));
        if meter.unplaced_packets() > 0 {
            seen.left.insert(Left::Flows, meter.unplaced_packets());
        }
        self.seen
    }
}
