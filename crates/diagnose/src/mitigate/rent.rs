//! When to do what (FALCON 5.2, Algorithm 1): as whoever rents skis until the rents have cost as much as a pair.
//!
//! The strategies that help against a fault are rungs, each with what it costs once: to do it and, at the end, to take it
//! back. What the fault has cost so far is added up. When that reaches the cost of the next rung, the next rung is taken: until then
//! waiting may have been right, from then on nobody who knew how long the fault lasts would have waited longer.
//!
//! **Bound.** Let the rungs cost `c_1 < c_2 < ...`, and let each leave less of the loss than the one before. Whoever knows the end
//! in advance takes the best rung at once, or none. If that is one that was taken here, its price is at least the loss until it was
//! taken here, and the loss afterwards is no larger here; if it is one that was not, its price alone is more than all of the loss
//! here. So the loss is at most the optimum, and so is the cost of the last rung taken. Together: `1 + max_k (c_1 + ... +
//! c_k) / c_k` times the optimum ([`Ladder::bound`]): 2 with one rung, less than 3 where each costs twice the one before.
//! To that comes what one iteration costs, at each rung, as nobody can act within one.
//!
//! **Where it differs from the paper.** Algorithm 1 goes one rung further with each look once the loss is large, however well the
//! last one worked. Here what was lost beyond the cost of a rung when it is taken is spent and decides nothing any more.

/// What can be done against a slow job, in the order of FALCON's Table 3.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Strategy {
    /// S1: nothing.
    Ignore,
    /// S2: other numbers of micro-batches.
    Split,
    /// S3: hosts change places.
    Move,
    /// S4: checkpoint, and restart without the hosts that are slow.
    Restart,
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 4] = [Strategy::Ignore, Strategy::Split, Strategy::Move, Strategy::Restart];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Strategy::Ignore => "ignore",
            Strategy::Split => "split",
            Strategy::Move => "move",
            Strategy::Restart => "restart",
        }
    }

    /// The paper's number, e.g. `S2`.
    pub fn number(self) -> &'static str {
        match self {
            Strategy::Ignore => "S1",
            Strategy::Split => "S2",
            Strategy::Move => "S3",
            Strategy::Restart => "S4",
        }
    }

    /// Whether it is undone when the fault is over: an uneven split is slower on a healthy job. Healthy hosts are as good in
    /// one place as in another, and a host that was left out stays out until its end date.
    pub fn is_taken_back(self) -> bool {
        self == Strategy::Split
    }
}

/// One strategy that would help, and its price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rung {
    /// What is done.
    pub strategy: Strategy,
    /// Nanoseconds of the job that it costs once, taking back included: measured when it was done before, or given.
    pub cost_ns: u64,
}

/// The strategies that would help, cheapest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ladder {
    rungs: Vec<Rung>,
}

impl Ladder {
    /// A ladder of these rungs. One that is more drastic than another and costs no more replaces it; doing nothing is no
    /// rung.
    pub fn new(rungs: &[Rung]) -> Ladder {
        let mut sorted: Vec<Rung> = rungs.iter().copied().filter(|rung| rung.strategy != Strategy::Ignore).collect();
        sorted.sort_by_key(|rung| (rung.cost_ns, rung.strategy));
        let mut kept: Vec<Rung> = Vec::new();
        for rung in sorted {
            if kept.last().is_none_or(|last| last.strategy < rung.strategy) {
                if kept.last().is_some_and(|last| last.cost_ns == rung.cost_ns) {
                    kept.pop();
                }
                kept.push(rung);
            }
        }
        Ladder { rungs: kept }
    }

    /// The rungs, cheapest first.
    pub fn rungs(&self) -> &[Rung] {
        &self.rungs
    }

    /// How many times the optimum this ladder may cost, whatever the fault does. See the head of this file.
    pub fn bound(&self) -> f64 {
        let mut sum = 0.0;
        let ratio = self.rungs.iter().map(|rung| {
            sum += rung.cost_ns as f64;
            if rung.cost_ns == 0 { 0.0 } else { sum / rung.cost_ns as f64 }
        });
        1.0 + ratio.fold(0.0, f64::max)
    }
}

/// What is to be done now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Take this strategy.
    Apply(Strategy),
    /// The fault is over: undo this strategy.
    TakeBack(Strategy),
}

/// Where one fault stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Renting {
    ladder: Ladder,
    /// Rungs taken.
    taken: usize,
    /// What decides about the next rung.
    lost_ns: u64,
}

impl Renting {
    /// A fault that has just begun.
    pub fn new(ladder: Ladder) -> Renting {
        Renting { ladder, taken: 0, lost_ns: 0 }
    }

    /// What has been lost that counts for the next rung, in nanoseconds.
    pub fn lost_ns(&self) -> u64 {
        self.lost_ns
    }

    /// What is in force.
    pub fn strategy(&self) -> Strategy {
        self.taken.checked_sub(1).map_or(Strategy::Ignore, |last| self.ladder.rungs[last].strategy)
    }

    /// The next rung, and what must still be lost before it is taken, in nanoseconds.
    pub fn next(&self) -> Option<(Rung, u64)> {
        let rung = self.ladder.rungs.get(self.taken)?;
        Some((*rung, rung.cost_ns.saturating_sub(self.lost_ns)))
    }

    /// The fault has cost `more_ns` more: one slow iteration, or all of them until the first look.
    pub fn lose(&mut self, more_ns: u64) -> Option<Step> {
        self.lost_ns = self.lost_ns.saturating_add(more_ns);
        let rung = *self.ladder.rungs.get(self.taken)?;
        if self.lost_ns < rung.cost_ns {
            return None;
        }
        self.lost_ns = rung.cost_ns;
        self.taken += 1;
        Some(Step::Apply(rung.strategy))
    }

    /// The fault is over. The next one begins with nothing lost.
    pub fn relief(&mut self) -> Option<Step> {
        let taken = &self.ladder.rungs[..self.taken];
        let undone = taken.iter().map(|rung| rung.strategy).rfind(|strategy| strategy.is_taken_back());
        (self.taken, self.lost_ns) = (0, 0);
        undone.map(Step::TakeBack)
    }
}
