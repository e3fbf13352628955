//! Micro-batches for each replica (FALCON S2, 5.3, equation 1): the smallest possible time of the slowest replica.
//!
//! A replica takes `fill + m * each` nanoseconds for `m` micro-batches. Without a pipeline `fill` is 0. With stages under
//! 1F1B it is the sum of the stages without the slowest one: the pipeline fills and drains once, and then the slowest stage sets
//! the pace. For a deadline every replica has a largest number of micro-batches, and the smallest deadline at which those
//! numbers reach the batch is found by halving over whole nanoseconds: nothing is rounded.
//!
//! Of all splits with that time the one is taken in which no replica can be made faster without a slower one becoming
//! slower still. Cost: at most 61 passes over the replicas.

/// Most micro-batches of a global batch: 2^20, a hundred times what large jobs use.
pub const MICRO_BATCHES_MAX: u32 = 1 << 20;
/// Longest time of a micro-batch, or of filling a pipeline: 2^40 ns, 18 minutes. With it a sum stays below 2^61.
pub const TIME_NS_MAX: u64 = 1 << 40;

/// How long one replica takes, and how much of the batch it may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replica {
    /// Nanoseconds that it takes once per iteration, however many micro-batches it has.
    pub fill_ns: u64,
    /// Nanoseconds per micro-batch.
    pub each_ns: u64,
    /// Most micro-batches that fit its memory; `None`: any number.
    pub limit: Option<u32>,
}

impl Replica {
    /// A replica without stages, `each_ns` nanoseconds for every micro-batch.
    pub fn single(each_ns: u64) -> Replica {
        Replica { fill_ns: 0, each_ns, limit: None }
    }

    /// A pipeline under 1F1B of stages that take so many nanoseconds per micro-batch, forward and backward together.
    pub fn pipeline(stages_ns: &[u64]) -> Replica {
        let each_ns = stages_ns.iter().copied().max().unwrap_or(0);
        let sum = stages_ns.iter().copied().fold(0, u64::saturating_add);
        Replica { fill_ns: sum.saturating_sub(each_ns), each_ns, limit: None }
    }

    /// The same with a limit.
    #[must_use]
    pub fn at_most(self, limit: u32) -> Replica {
        Replica { limit: Some(limit), ..self }
    }

    /// Nanoseconds for `micro_batches`.
    pub fn time_ns(&self, micro_batches: u32) -> u64 {
        self.fill_ns.saturating_add(self.each_ns.saturating_mul(u64::from(micro_batches)))
    }

    /// Most micro-batches within `deadline_ns`, and one in any case.
    fn within(&self, deadline_ns: u64) -> u64 {
        let limit = u64::from(self.limit.unwrap_or(MICRO_BATCHES_MAX));
        (deadline_ns.saturating_sub(self.fill_ns) / self.each_ns).clamp(1, limit)
    }
}

/// The even division of so many micro-batches over so many replicas; the first ones have those that are left over.
pub fn evenly(micro_batches: u32, replicas: u32) -> Vec<u32> {
    let count = replicas.max(1);
    (0..count).map(|index| micro_batches / count + u32::from(index < micro_batches % count)).collect()
}

/// A division of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Split {
    /// Micro-batches of each replica, in the order given.
    pub micro_batches: Vec<u32>,
    /// Nanoseconds of the slowest replica.
    pub time_ns: u64,
}

impl Split {
    /// The weight of each replica's mean gradient, so that their sum is the mean over the whole batch, as with an even split:
    /// its share of the micro-batches.
    pub fn weights(&self) -> Vec<f64> {
        let total: u64 = self.micro_batches.iter().map(|&count| u64::from(count)).sum();
        self.micro_batches.iter().map(|&count| f64::from(count) / total as f64).collect()
    }
}

/// Why a batch cannot be divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitError {
    /// No replica was given.
    NoReplica,
    /// Fewer micro-batches than replicas: each needs one.
    TooFew,
    /// More micro-batches than [`MICRO_BATCHES_MAX`], or than all replicas may take.
    TooMany,
    /// A replica's time is zero, or longer than [`TIME_NS_MAX`].
    Time,
}

impl std::fmt::Display for SplitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SplitError::NoReplica => "there is no replica",
            SplitError::TooFew => "there are fewer micro-batches than replicas",
            SplitError::TooMany => "there are more micro-batches than the replicas may take",
            SplitError::Time => "a replica's time is zero or longer than 18 minutes",
        })
    }
}

impl std::error::Error for SplitError {}

/// Divides as evenly as whole numbers allow, the first replicas taking what is left over.
///
/// # Errors
/// See [`SplitError`].
pub fn even(replicas: &[Replica], micro_batches: u32) -> Result<Split, SplitError> {
    check(replicas, micro_batches)?;
    let count = u32::try_from(replicas.len()).map_err(|_| SplitError::TooFew)?;
    let (each, left) = (micro_batches / count, micro_batches % count);
    let share = |index: u32| each + u32::from(index < left);
    let micro_batches: Vec<u32> = (0..count).map(share).collect();
    let time_ns = slowest(replicas, &micro_batches);
    Ok(Split { micro_batches, time_ns })
}

/// Divides `micro_batches` so that the slowest replica takes as little time as is possible; each has one at least.
///
/// # Errors
/// See [`SplitError`].
pub fn split(replicas: &[Replica], micro_batches: u32) -> Result<Split, SplitError> {
    check(replicas, micro_batches)?;
    let wanted = u64::from(micro_batches);
    // One is everybody's, however late it ends; the deadline is for all others.
    let taken = |deadline: u64| replicas.iter().map(|replica| replica.within(deadline)).sum::<u64>();
    let mut low = 0;
    let mut high = replicas.iter().map(|replica| replica.time_ns(micro_batches)).max().unwrap_or(0);
    while low < high {
        let middle = low + (high - low) / 2;
        if taken(middle) >= wanted { high = middle } else { low = middle + 1 }
    }
    let mut counts: Vec<u64> = replicas.iter().map(|replica| replica.within(low)).collect();
    give_back(replicas, &mut counts, wanted, low);
    // Each is at most the batch, which is an u32.
    let counts: Vec<u32> = counts.into_iter().map(|count| u32::try_from(count).unwrap_or(u32::MAX)).collect();
    let time_ns = slowest(replicas, &counts);
    Ok(Split { micro_batches: counts, time_ns })
}

/// Takes off what is more than the batch. One nanosecond earlier it was not reached, so all of it is with replicas that end
/// exactly at the deadline: one from each, from those first whose time falls most.
fn give_back(replicas: &[Replica], counts: &mut [u64], wanted: u64, deadline: u64) {
    let surplus = counts.iter().sum::<u64>().saturating_sub(wanted);
    let ends_then = |index: &usize| {
        let replica = &replicas[*index];
        counts[*index] > 1 && replica.fill_ns + replica.each_ns * counts[*index] == deadline
    };
    let mut last: Vec<usize> = (0..replicas.len()).filter(ends_then).collect();
    last.sort_by_key(|&index| std::cmp::Reverse((replicas[index].each_ns, index)));
    for index in last.into_iter().take(usize::try_from(surplus).unwrap_or(usize::MAX)) {
        counts[index] -= 1;
    }
}

fn slowest(replicas: &[Replica], counts: &[u32]) -> u64 {
    replicas.iter().zip(counts).map(|(replica, &count)| replica.time_ns(count)).max().unwrap_or(0)
}

fn check(replicas: &[Replica], micro_batches: u32) -> Result<(), SplitError> {
    let room: u64 = replicas.iter().map(|replica| u64::from(replica.limit.unwrap_or(MICRO_BATCHES_MAX))).sum();
    let is_time = |replica: &Replica| {
        (1..=TIME_NS_MAX).contains(&replica.each_ns) && replica.fill_ns <= TIME_NS_MAX && replica.limit != Some(0)
    };
    if replicas.is_empty() {
        Err(SplitError::NoReplica)
    } else if replicas.len() as u64 > u64::from(micro_batches) {
        Err(SplitError::TooFew)
    } else if u64::from(micro_batches) > room || micro_batches > MICRO_BATCHES_MAX {
        Err(SplitError::TooMany)
    } else if replicas.iter().all(is_time) {
        Ok(())
    } else {
        Err(SplitError::Time)
    }
}
