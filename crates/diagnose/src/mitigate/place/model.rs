//! The model of a job: how long an iteration takes with its hosts in given places.
use crate::mitigate::split::{MICRO_BATCHES_MAX, Replica, TIME_NS_MAX};
use std::collections::BTreeSet;

/// Most hosts of a job: 2^16, half a million devices of eight a host.
pub const HOSTS_MAX: usize = 1 << 16;
/// As fast as usual, in thousandths.
pub const HEALTHY: u32 = 1000;
/// Slowest that is told apart: a thousand times.
pub const SLOWEST: u32 = 1000 * HEALTHY;

/// When hosts of one stage wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waits {
    /// Once per iteration, when gradients are summed: plain data parallelism.
    EachIteration,
    /// In every micro-batch: sharded parameters or experts over the row.
    EachMicroBatch,
}

/// How a host differs from a healthy one. Thousandths: 1500 takes half as long again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pace {
    /// Of its slowest device.
    pub compute: u32,
    /// Of its NICs, to every other host.
    pub network: u32,
}

impl Pace {
    /// A healthy host.
    pub const HEALTHY: Pace = Pace { compute: HEALTHY, network: HEALTHY };
}

/// A path between two hosts that is slower than others, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowPath {
    /// The hosts at its ends, as numbers of [`Job::hosts`].
    pub ends: (usize, usize),
    /// Thousandths of a healthy path's time.
    pub network: u32,
}

/// A job as its iteration time depends on places.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Nanoseconds of each pipeline stage per micro-batch on a healthy host, forward and backward.
    pub stages_ns: Vec<u64>,
    /// Nanoseconds for the exchange of each stage's gradients around its ring of healthy paths, as far as the iteration waits for it.
    pub gradients_ns: Vec<u64>,
    /// Nanoseconds for the activations of a micro-batch and their gradients from stage to stage on a healthy path.
    pub activations_ns: u64,
    /// Micro-batches of each replica.
    pub micro_batches: u32,
    /// When hosts of one stage wait for each other.
    pub waits: Waits,
    /// Every host; the number of hosts is the number of stages times the number of columns.
    pub hosts: Vec<Pace>,
    /// Paths that are slower than others.
    pub paths: Vec<SlowPath>,
}

/// Which host is at each position, row by row: the first stage's hosts, then the second's.
pub type Placement = Vec<usize>;

/// Why a job cannot be placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceError {
    /// No hosts, more than [`HOSTS_MAX`], or not a whole number for each stage.
    Shape,
    /// A time of zero where it must not be, or beyond the limits.
    Time,
    /// A pace below [`HEALTHY`] or above [`SLOWEST`], or a path from a host to itself or to none.
    Pace,
    /// The present placement does not have each host once.
    Placement,
}

impl std::fmt::Display for PlaceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PlaceError::Shape => "the hosts do not make a whole number of columns for the stages",
            PlaceError::Time => "a time or the number of micro-batches is zero or beyond the limits",
            PlaceError::Pace => "a pace is beyond the limits, or a path has not two hosts of the job",
            PlaceError::Placement => "the present placement does not have each host once",
        })
    }
}

impl std::error::Error for PlaceError {}

/// The volume of one exchange as time.
///
/// A ring of `members` sends `2 (n - 1) / n` times the bytes of the gradients over each of its paths (FALCON 9.2).
pub fn ring_ns(bytes: u64, members: usize, bytes_per_sec: u64) -> u64 {
    let members = members.max(1) as u128;
    let ns = u128::from(bytes) * 2 * (members - 1) * 1_000_000_000 / (members * u128::from(bytes_per_sec.max(1)));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

impl Job {
    /// Hosts of each stage.
    pub fn columns(&self) -> usize {
        self.hosts.len() / self.stages_ns.len().max(1)
    }

    /// Iteration time of a placement in nanoseconds. Looks at every host.
    ///
    /// # Errors
    /// See [`PlaceError`].
    pub fn iteration_ns(&self, placement: &[usize]) -> Result<u64, PlaceError> {
        self.check(placement)?;
        let columns = (0..self.columns()).map(|column| self.replica(placement, column).time_ns(self.micro_batches));
        let pipelines = match self.waits {
            Waits::EachIteration => columns.max().unwrap_or(0),
            Waits::EachMicroBatch => Replica::pipeline(&self.rows_ns(placement)).time_ns(self.micro_batches),
        };
        let rings = (0..self.stages_ns.len()).map(|stage| self.ring(placement, stage));
        Ok(pipelines + rings.max().unwrap_or(0))
    }

    /// What the micro-batches of a column take, for [`crate::mitigate::split::split`].
    pub fn replica(&self, placement: &[usize], column: usize) -> Replica {
        let rows = self.stages_ns.len();
        let stage = |stage: usize| self.at(placement, stage, column);
        let computing = (0..rows).map(|row| scaled(self.stages_ns[row], self.hosts[stage(row)].compute));
        let links = (1..rows).map(|row| scaled(self.activations_ns, self.between(stage(row - 1), stage(row))));
        Replica::pipeline(&computing.chain(links).collect::<Vec<u64>>())
    }

    /// Nanoseconds of stages and of links between them, each as slow as its slowest column.
    fn rows_ns(&self, placement: &[usize]) -> Vec<u64> {
        let rows = self.stages_ns.len();
        let slowest = |row: usize| {
            let paces = (0..self.columns()).map(|column| self.hosts[self.at(placement, row, column)].compute);
            scaled(self.stages_ns[row], paces.max().unwrap_or(HEALTHY))
        };
        let link = |row: usize| {
            let ends = |column: usize| (self.at(placement, row - 1, column), self.at(placement, row, column));
            let paces = (0..self.columns()).map(|column| self.between(ends(column).0, ends(column).1));
            scaled(self.activations_ns, paces.max().unwrap_or(HEALTHY))
        };
        (0..rows).map(slowest).chain((1..rows).map(link)).collect()
    }

    /// Nanoseconds of a stage's exchange: its slowest path. One host has nobody to exchange with.
    fn ring(&self, placement: &[usize], stage: usize) -> u64 {
        let columns = self.columns();
        if columns < 2 {
            return 0;
        }
        let path = |column: usize| {
            let (from, to) = (self.at(placement, stage, column), self.at(placement, stage, (column + 1) % columns));
            self.between(from, to)
        };
        scaled(self.gradients_ns[stage], (0..columns).map(path).max().unwrap_or(HEALTHY))
    }

    fn at(&self, placement: &[usize], stage: usize, column: usize) -> usize {
        placement[stage * self.columns() + column]
    }

    /// Thousandths of the way between two hosts: the slowest of both NICs and the path.
    fn between(&self, one: usize, other: usize) -> u32 {
        let path = self.paths.iter().filter(|path| path.ends == (one, other) || path.ends == (other, one));
        let path = path.map(|path| path.network).max().unwrap_or(HEALTHY);
        path.max(self.hosts[one].network).max(self.hosts[other].network)
    }

    /// Whether the job and a placement of it are within the limits.
    ///
    /// # Errors
    /// See [`PlaceError`].
    pub fn check(&self, placement: &[usize]) -> Result<(), PlaceError> {
        let (rows, hosts) = (self.stages_ns.len(), self.hosts.len());
        let is_pace = |pace: u32| (HEALTHY..=SLOWEST).contains(&pace);
        let is_path = |path: &SlowPath| {
            let (one, other) = path.ends;
            one != other && one < hosts && other < hosts && is_pace(path.network)
        };
        let is_time = |ns: &u64| *ns <= TIME_NS_MAX;
        let in_order: BTreeSet<usize> = placement.iter().copied().collect();
        if rows == 0 || hosts == 0 || hosts > HOSTS_MAX || hosts % rows != 0 || self.gradients_ns.len() != rows {
            Err(PlaceError::Shape)
        } else if !(self.stages_ns.iter().all(|ns| *ns > 0 && is_time(ns))
            && self.gradients_ns.iter().all(is_time)
            && is_time(&self.activations_ns)
            && (1..=MICRO_BATCHES_MAX).contains(&self.micro_batches))
        {
            Err(PlaceError::Time)
        } else if !(self.hosts.iter().all(|host| is_pace(host.compute) && is_pace(host.network))
            && self.paths.iter().all(is_path))
        {
            Err(PlaceError::Pace)
        } else if placement.len() != hosts || !in_order.iter().copied().eq(0..hosts) {
            Err(PlaceError::Placement)
        } else {
            Ok(())
        }
    }
}

/// A healthy time at a pace; at most [`TIME_NS_MAX`], so that no sum overflows.
pub(super) fn scaled(ns: u64, pace: u32) -> u64 {
    (ns.saturating_mul(u64::from(pace)) / u64::from(HEALTHY)).min(TIME_NS_MAX)
}
