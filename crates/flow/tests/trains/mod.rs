//! Made-up trains of packets: a ring whose slices go out at the pace of its slowest way (Pulse, section 6.1).
use mycroft_flow::Meter;
use mycroft_flow::limits::Grain;

/// Bytes of a slice, and of its packets.
const SLICE_BYTES: u64 = 1_000_000;
const PACKET_BYTES: u64 = 4_000;
/// Nanoseconds of a slice on one of two channels of a port of 400 Gb/s.
pub(crate) const SLICE_NS: u64 = 40_000;
/// Slices of an operation: 200 MB on a channel.
const SLICES: u64 = 200;
/// The operation begins somewhere in an epoch.
const BEGIN_NS: u64 = 5_007_321;

/// Epochs with bytes, and stretches of empty ones between them, of a flow whose slices take `slice_ns` and begin every
/// `pace_ns`.
fn seen(grain: Grain, slice_ns: u64, pace_ns: u64) -> (u64, u64) {
    let mut meter = Meter::new(grain);
    let flow = meter.open().expect("room for one");
    let packets = SLICE_BYTES / PACKET_BYTES;
    let (mut active, mut gaps, mut last) = (0, 0, None);
    let mut count = |epoch: u64| {
        active += 1;
        gaps += u64::from(last.is_some_and(|last| epoch > last + 1));
        last = Some(epoch);
    };
    for slice in 0..SLICES {
        for number in 0..packets {
            // An event is when its bytes have gone.
            let time = BEGIN_NS + slice * pace_ns + (number + 1) * slice_ns / packets;
            if let Some(until) = meter.due(time) {
                meter.poll(until, |report| report.epochs().for_each(|(epoch, _)| count(epoch)));
            }
            meter.record(flow, time, PACKET_BYTES as u32);
        }
    }
    meter.finish(|report| report.epochs().for_each(|(epoch, _)| count(epoch)));
    (active, gaps)
}

/// What an epoch shows of a way with 1/p of the rate.
pub(crate) struct Shown {
    /// Actual communication time of the slow way over that of the others: 1 where nothing shows, at most p.
    pub(crate) ratio: f64,
    /// Gaps that the others show.
    pub(crate) gaps: u64,
}

/// A way that takes `p` times as long for each slice, and one that waits for it.
pub(crate) fn straggler(epoch_ns: u64, p: f64) -> Shown {
    let grain = Grain::new(epoch_ns).expect("a length within the limits");
    let slow_ns = (SLICE_NS as f64 * p) as u64;
    let (slow, _) = seen(grain, slow_ns, slow_ns);
    let (other, gaps) = seen(grain, SLICE_NS, slow_ns);
    Shown { ratio: slow as f64 / other as f64, gaps }
}
