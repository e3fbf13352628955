//! Validation of suspects in a job that is held (FALCON 4.3): who is tested how and with whom, and what the results say.
//!
//! A [`Plan`] is data: passes that run one after the other, in each of which no rank does two things. Whoever runs it has no
//! choices left; [`lint`] says before that what is wrong with it. [`judge`] compares what was measured between peers, and
//! [`weigh`] says what that does to a finding. Nothing here runs a test: `mycroft validate` does, at the gate.
mod judge;
mod lint;
mod middle;
mod passes;
mod tree;
mod weigh;

pub use judge::{
    CheckResult, CheckRow, Judgement, LATENCY_RATIO, LinkMeasure, LinkResult, LinkRow, PROCESSOR_RATIO, SLOW_RATIO,
    Slow, SlowPlace, Times, again, judge,
};
pub use lint::{Problem, lint};
pub use passes::plan;
pub use weigh::{Outcome, Weighed, weigh};

use mycroft_record::Rank;

/// What one rank is asked to do by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Check {
    /// Matrix products on the device, three sizes.
    Device,
    /// Copies from the device to the host.
    Copy,
    /// Matrix products on the processor, three sizes.
    Processor,
    /// Bandwidth of the host's memory, and how late its threads wake up.
    Host,
}

impl Check {
    /// All of them, in the order in which they are run.
    pub const ALL: [Check; 4] = [Check::Device, Check::Copy, Check::Processor, Check::Host];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Check::Device => "device",
            Check::Copy => "copy",
            Check::Processor => "processor",
            Check::Host => "host",
        }
    }
}

/// Which pairs of a communicator talk to each other in its collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Each with the next, the last with the first.
    Ring,
    /// Parents and children of NCCL's first tree.
    Tree,
    /// Parents and children of both of NCCL's trees.
    DoubleTree,
}

/// A communicator whose members are suspected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Its number, the same at all members.
    pub comm: u64,
    /// Members by their rank in it.
    pub members: Vec<Rank>,
    /// Who talks to whom in it.
    pub shape: Shape,
}

/// A member of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct End {
    /// Rank in the job.
    pub rank: Rank,
    /// Rank in the communicator.
    pub place: u32,
}

/// Two members that test the way between them, in both directions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pair {
    /// The communicator over which they do.
    pub comm: u64,
    /// One.
    pub one: End,
    /// The other.
    pub other: End,
}

impl Pair {
    /// Both ranks, the lower first.
    pub fn ranks(&self) -> (Rank, Rank) {
        (self.one.rank.min(self.other.rank), self.one.rank.max(self.other.rank))
    }
}

/// What happens at one time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Each of these ranks does this by itself.
    Alone {
        /// What.
        check: Check,
        /// Who.
        ranks: Vec<Rank>,
    },
    /// Each of these pairs tests its way.
    Pairs(Vec<Pair>),
}

/// A step of a plan; the next begins when all of this one have answered, or its time is over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass {
    /// Who does what.
    pub work: Work,
    /// How long it usually takes, nanoseconds.
    pub usual_ns: u64,
    /// After how long nobody waits for its results, nanoseconds.
    pub at_most_ns: u64,
}

/// What is to be tested, complete: whoever runs it decides nothing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// In this order.
    pub passes: Vec<Pass>,
}

impl Plan {
    /// How long it usually takes, nanoseconds: what is told before a job is held.
    pub fn usual_ns(&self) -> u64 {
        self.passes.iter().fold(0, |sum, pass| sum.saturating_add(pass.usual_ns))
    }

    /// How long it takes at most, nanoseconds.
    pub fn at_most_ns(&self) -> u64 {
        self.passes.iter().fold(0, |sum, pass| sum.saturating_add(pass.at_most_ns))
    }
}

/// How long tests usually take, which whoever runs them knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// One check of a rank, nanoseconds.
    pub check_ns: u64,
    /// One way, both directions, nanoseconds.
    pub pair_ns: u64,
}

/// A pass is given up after so many times its usual duration: a device or link at a tenth of its speed still answers.
pub const PATIENCE: u64 = 10;
