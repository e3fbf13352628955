//! What polls told, kept: the curve of each flow, and what it says as a whole. A flow that was silent, ended and came again is
//! one curve.
use crate::key::WireFlow;
use crate::limits::Grain;
use crate::meter::{Counters, FlowReport, Resent};
use crate::mirror::Exchange;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Most epochs whose bytes are kept, of all flows together: 16 bytes each, 256 MiB, or half a second of 1,000 flows that never
/// pause. Sums are exact beyond it.
pub const POINTS_MAX: usize = 1 << 24;
/// Most flows whose curves are kept: 262,144 x about 0.5 KiB of sums = 128 MiB. A capture of days may have more connections of TCP.
pub const CURVES_MAX: usize = 1 << 18;

/// An epoch of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CurveEpoch {
    /// Its number; times its length it is nanoseconds.
    pub number: u64,
    /// Bytes of payload on the wire.
    pub bytes: u64,
    /// Of these, bytes that had been sent before. (What fills no unit goes to the next epoch, so that they may be a few more than `bytes`.)
    pub again_bytes: u64,
    /// After a silence, but for what had been sent before, the flow went on here in the midst of a message.
    pub resumes: bool,
}

/// One flow.
#[derive(Clone, Default, Debug)]
pub struct Curve {
    /// What its packets said.
    pub exchange: Exchange,
    /// What was put into its epochs, and what was not.
    pub counters: Counters,
    /// Bytes that fill no unit or amount.
    pub carried_bytes: u64,
    /// Bytes of all epochs.
    pub epoch_bytes: u64,
    /// Epochs with bytes.
    pub active_epochs: u64,
    /// Stretches of empty epochs between two with bytes.
    pub gaps: u64,
    /// Epochs of the longest such stretch.
    pub longest_gap_epochs: u64,
    /// Bytes of the fullest epoch.
    pub peak_bytes: u64,
    /// Epochs whose bytes were not kept.
    pub unkept_epochs: u64,
    /// Epochs and their bytes, in order of time.
    pub points: Vec<(u64, u32)>,
    /// Of these, what had been sent before, and where the flow went on in the midst of a message; in order of time.
    pub resent: Vec<Resent>,
    last_epoch: Option<u64>,
    /// What the packets said since the flow came again.
    since: Exchange,
}

impl Curve {
    /// Bytes per second while there were any: those of all epochs over the time of epochs that are not empty (Pulse, section
    /// 6.2, "actual communication time"); none where no epoch has bytes.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
    pub fn actual_rate(&self, grain: Grain) -> Option<f64> {
        let actual_ns = self.active_epochs.checked_mul(grain.epoch_ns())?;
        (actual_ns > 0).then(|| self.epoch_bytes as f64 * 1e9 / actual_ns as f64)
    }

    /// The epochs that were kept, in order of time, with what was sent again.
    pub fn epochs(&self) -> impl Iterator<Item = CurveEpoch> + '_ {
        let mut resent = self.resent.iter().peekable();
        self.points.iter().map(move |(number, bytes)| {
            while resent.next_if(|again| again.epoch < *number).is_some() {}
            let again = resent.next_if(|again| again.epoch == *number);
            let (again_bytes, resumes) = again.map_or((0, false), |again| (u64::from(again.bytes), again.resumes));
            CurveEpoch { number: *number, bytes: u64::from(*bytes), again_bytes, resumes }
        })
    }

    fn epoch(&mut self, epoch: u64, bytes: u64, keep: bool) {
        if let Some(empty) = self.last_epoch.and_then(|last| (epoch - last).checked_sub(1)).filter(|empty| *empty > 0) {
            self.gaps += 1;
            self.longest_gap_epochs = self.longest_gap_epochs.max(empty);
        }
        self.last_epoch = Some(epoch);
        self.active_epochs += 1;
        self.epoch_bytes += bytes;
        self.peak_bytes = self.peak_bytes.max(bytes);
        match u32::try_from(bytes) {
            Ok(bytes) if keep => self.points.push((epoch, bytes)),
            _ => self.unkept_epochs += 1,
        }
    }
}

/// The curves of all flows.
pub struct Curves {
    flows: BTreeMap<WireFlow, Curve>,
    points_left: usize,
    unkept_packets: u64,
}

impl Default for Curves {
    fn default() -> Curves {
        Curves::with_points(POINTS_MAX)
    }
}

impl Curves {
    /// No flows yet, and at most so many epochs kept.
    #[must_use]
    pub fn with_points(points_max: usize) -> Curves {
        Curves { flows: BTreeMap::new(), points_left: points_max, unkept_packets: 0 }
    }

    /// Takes what a poll told of a flow.
    pub fn take(&mut self, key: &WireFlow, exchange: &Exchange, report: &FlowReport<'_>) {
        if self.flows.len() >= CURVES_MAX && !self.flows.contains_key(key) {
            self.unkept_packets += report.counters.events;
            return;
        }
        let curve = self.flows.entry(*key).or_default();
        curve.counters.add(&report.counters);
        for (epoch, bytes) in report.epochs() {
            curve.epoch(epoch, bytes, self.points_left > 0);
            self.points_left = self.points_left.saturating_sub(1);
        }
        for resent in report.resent {
            match curve.resent.last_mut().filter(|last| last.epoch == resent.epoch) {
                Some(last) => {
                    last.bytes = last.bytes.saturating_add(resent.bytes);
                    last.resumes |= resent.resumes;
                }
                None if self.points_left > 0 => {
                    self.points_left -= 1;
                    curve.resent.push(*resent);
                }
                None => {}
            }
        }
        // What its packets said counts since it began: only what is new is added.
        curve.exchange.add(exchange, &curve.since);
        curve.since = if report.has_ended { Exchange::default() } else { *exchange };
        if report.has_ended {
            curve.carried_bytes += report.carried_bytes;
        }
    }

    /// Forgets flows whose last packet was before a time in nanoseconds. One that sent nothing between the last two polls comes again as
    /// a new one.
    pub fn forget(&mut self, before_ns: u64) {
        self.flows.retain(|_, curve| curve.exchange.last_ns >= before_ns);
    }

    /// Packets of flows beyond [`CURVES_MAX`].
    #[must_use]
    pub fn unkept_packets(&self) -> u64 {
        self.unkept_packets
    }

    /// The flows, in the order of their keys.
    #[must_use]
    pub fn flows(&self) -> &BTreeMap<WireFlow, Curve> {
        &self.flows
    }
}
