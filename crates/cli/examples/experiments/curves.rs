//! What goes over the wires of a simulated job as curves, and what operations there are in them.
use mycroft_diagnose::flow::{Operation, Rule, Sent, rejoin, segment};
use mycroft_sim::{Scenario, Simulation, Slice};
use std::collections::BTreeMap;

/// The paper's epoch, nanoseconds.
pub(crate) const EPOCH_NS: u64 = 32_000;

/// One queue pair: sender, receiver, epochs and their bytes.
pub(crate) struct Flow {
    from: u32,
    to: u32,
    epochs: Vec<(u64, u32)>,
    operations: Vec<Operation>,
}

/// Plays a job and gives what its NICs sent, and until when one looked, nanoseconds.
pub(crate) fn captured(scenario: &Scenario) -> (Vec<Flow>, u64) {
    let until_ns = (scenario.duration_s * 1e9) as u64;
    let mut simulation = Simulation::new(scenario);
    simulation.tap_wires();
    let mut curves: BTreeMap<(u32, u32, u32), BTreeMap<u64, f64>> = BTreeMap::new();
    while simulation.next_stretch().is_some() {
        for slice in simulation.take_slices().into_iter().filter(|slice| slice.end_ns <= until_ns) {
            let curve = curves.entry((slice.from_nic, slice.to_nic, slice.queue_pair)).or_default();
            put(curve, &slice);
        }
    }
    let flow = |((from, to, _), curve): ((u32, u32, u32), BTreeMap<u64, f64>)| {
        let epochs: Vec<(u64, u32)> = whole(curve);
        let found =
            segment(epochs.iter().map(|(epoch, bytes)| (*epoch, u64::from(*bytes))), EPOCH_NS, &Rule::default());
        Flow { from, to, epochs, operations: rejoin(found) }
    };
    (curves.into_iter().map(flow).collect(), until_ns)
}

/// A slice leaves at an even rate.
fn put(curve: &mut BTreeMap<u64, f64>, slice: &Slice) {
    spread(curve, slice.begin_ns, slice.end_ns.max(slice.begin_ns + 1), slice.bytes as f64);
}

fn spread(curve: &mut BTreeMap<u64, f64>, from_ns: u64, until_ns: u64, bytes: f64) {
    let mut at = from_ns;
    while at < until_ns {
        let next = ((at / EPOCH_NS + 1) * EPOCH_NS).min(until_ns);
        *curve.entry(at / EPOCH_NS).or_default() += bytes * (next - at) as f64 / (until_ns - from_ns) as f64;
        at = next;
    }
}

/// Whole bytes; what is less goes to the next epoch.
fn whole(curve: BTreeMap<u64, f64>) -> Vec<(u64, u32)> {
    let mut carried = 0.0;
    let bytes = curve.into_iter().map(|(epoch, bytes)| {
        let sum = bytes + carried;
        carried = sum - sum.floor();
        (epoch, sum as u32)
    });
    bytes.filter(|(_, bytes)| *bytes > 0).collect()
}

impl Flow {
    /// All that its epochs show.
    pub(crate) fn sent(&self) -> Sent<'_> {
        Sent { from: self.from, to: self.to, epochs: &self.epochs, operations: self.operations.clone() }
    }

    /// The same flow as one knows it who sees the beginning, the end and the bytes of each operation and nothing between.
    pub(crate) fn without_inside(&self) -> Flow {
        let mut curve = BTreeMap::new();
        for one in &self.operations {
            spread(&mut curve, one.start_ns, one.end_ns, one.bytes as f64);
        }
        Flow { epochs: whole(curve), operations: self.operations.clone(), ..*self }
    }
}
