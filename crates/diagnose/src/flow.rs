//! Operations in the rate curve of a flow (Pulse, section 5.2, Algorithm 1): what lies between two gaps of a millisecond or
//! more, if as much went over the wire as an operation sends. Time and bytes come as arguments; whose flow it is, and which
//! operation of NCCL, is not known here.
mod exchanges;
mod expected;
mod gaps;
mod held;
mod lateness;
mod members;
mod point;
mod recur;
mod round;
mod rounds;
mod stopped;
mod suspect;
mod suspects;
mod table;
mod uses;
mod volume;
mod ways;

pub use gaps::{GAP_BOUNDS_NS, Gaps};
pub use point::Point;
pub use recur::{Kind, kinds, rejoin};
pub use round::Sent;
pub use suspect::{Sign, Suspect};
pub use suspects::suspects;
pub use uses::{Basis, Members, Use, Used, uses};
pub use volume::{Asked, Shape};

/// Shortest silence between two operations, unless another is asked for: gaps inside of one are microseconds, but for late
/// receivers, which the volume tells (Pulse, section 5.2: "O(ms)").
pub const GAP_NS_DEFAULT: u64 = 1_000_000;

/// What ends an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// A silence of so many nanoseconds, and
    pub gap_ns: u64,
    /// at least so many bytes since its beginning: those of the first operation, of the second, and so on, then from the first again. Of
    /// silences behind that, up to a tenth more, it is the one behind what operations of that volume have sent most often. Without any,
    /// each such silence ends one.
    pub volumes: Vec<u64>,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { gap_ns: GAP_NS_DEFAULT, volumes: Vec::new() }
    }
}

/// One operation of one flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Beginning of its first epoch, nanoseconds.
    pub start_ns: u64,
    /// End of its last epoch.
    pub end_ns: u64,
    /// Bytes of its epochs that were sent for the first time.
    pub bytes: u64,
    /// Bytes that were sent again.
    pub again_bytes: u64,
    /// Actual communication time: its epochs that are not empty (Pulse, section 6.2).
    pub actual_ns: u64,
    /// Its silences.
    pub gaps: Gaps,
    /// Stretches between silences as long as those that end an operation: more than one where the volume, or what recurs,
    /// says that it went on.
    pub pieces: u32,
    /// It sent what it was to send. Only the last one of a curve may not have.
    pub is_complete: bool,
}

impl Operation {
    fn begin(start_ns: u64) -> Operation {
        let gaps = Gaps::default();
        Operation {
            start_ns,
            end_ns: start_ns,
            bytes: 0,
            again_bytes: 0,
            actual_ns: 0,
            gaps,
            pieces: 1,
            is_complete: true,
        }
    }

    /// Goes on with what came after a silence.
    fn join(&mut self, piece: &Operation) {
        self.gaps.add(piece.start_ns - self.end_ns);
        self.gaps.join(&piece.gaps);
        self.end_ns = piece.end_ns;
        self.bytes += piece.bytes;
        self.again_bytes += piece.again_bytes;
        self.actual_ns += piece.actual_ns;
        self.pieces += piece.pieces;
        self.is_complete = piece.is_complete;
    }

    /// Nanoseconds from its beginning to its end.
    pub fn duration_ns(&self) -> u64 {
        self.end_ns - self.start_ns
    }
}

/// Cuts a curve into operations: epochs that are not empty, in order of time; times are numbers times `epoch_ns`.
///
/// Where operations follow each other within `gap_ns` they are one here, as in the paper. What is sent again after a silence belongs to
/// the operation before: a queue pair whose last packet was lost is silent until its timeout.
pub fn segment(curve: impl IntoIterator<Item: Into<Point>>, epoch_ns: u64, rule: &Rule) -> Vec<Operation> {
    let mut pieces: Vec<Vec<Point>> = Vec::new();
    let mut new_until = 0;
    for point in curve {
        let point: Point = point.into();
        let is_new = point.bytes > point.again_bytes;
        let is_long = is_new && point.epoch.saturating_sub(new_until).saturating_mul(epoch_ns) >= rule.gap_ns;
        match pieces.last_mut() {
            Some(before) if !is_long || point.resumes => before.push(point),
            _ => pieces.push(vec![point]),
        }
        new_until = if is_new { point.epoch + 1 } else { new_until };
    }
    let whole = |points: &Vec<Point>| operation(points, epoch_ns, rule.gap_ns);
    if rule.volumes.is_empty() {
        return pieces.iter().map(whole).collect();
    }
    let joined = expected::join(&pieces, &rule.volumes, epoch_ns);
    joined.into_iter().map(|(points, is_complete)| Operation { is_complete, ..whole(&points) }).collect()
}

/// What its epochs say of an operation; there is one at least.
fn operation(points: &[Point], epoch_ns: u64, gap_ns: u64) -> Operation {
    let mut operation = Operation::begin(points.first().map_or(0, |first| first.epoch) * epoch_ns);
    for point in points {
        let time_ns = point.epoch * epoch_ns;
        let silence_ns = time_ns.saturating_sub(operation.end_ns);
        operation.gaps.add(silence_ns);
        operation.pieces += u32::from(silence_ns >= gap_ns);
        operation.end_ns = time_ns + epoch_ns;
        operation.actual_ns += epoch_ns;
        operation.bytes += point.new_bytes();
        operation.again_bytes += point.again_bytes.min(point.bytes);
    }
    operation
}
