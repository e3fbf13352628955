//! What profiler events cost, told within one job: blocks of iterations with them beside blocks without.
//!
//! Both halves of a pair lie a second apart in the same processes, so that neither the machine's mood nor the layout of
//! a process's memory, which differ from run to run by more than a tracer costs, come between them.

use mycroft_testbed::Lap;

/// Fewer pairs than this have no interval.
pub(crate) const PAIRS_MIN: usize = 20;
/// Of a normal distribution, two-sided 95 %.
const Z_95: f64 = 1.96;

/// Consecutive iterations that all had profiler events, or that all had none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Block {
    pub(crate) events: bool,
    /// Median iteration, the first left out: what the block before had issued ends in it. Milliseconds.
    pub(crate) ms: f64,
    /// Median processor time of a rank in an iteration, microseconds.
    pub(crate) processor_us: f64,
}

/// Cuts iterations (with their numbers) into whole blocks. `switch` says whether an iteration has events and how many
/// of its block came before it.
pub(crate) fn blocks(
    laps: impl Iterator<Item = (u64, Lap)>,
    switch: impl Fn(u64) -> Option<(bool, u64)>,
) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<(bool, Vec<Lap>)> = None;
    for (iteration, lap) in laps {
        let Some((events, before)) = switch(iteration) else { return Vec::new() };
        if before == 0 {
            blocks.extend(open.take().and_then(close));
            open = Some((events, Vec::new()));
        } else if let Some((_, inside)) = &mut open {
            inside.push(lap);
        }
    }
    blocks // the last may not be whole
}

fn close((events, inside): (bool, Vec<Lap>)) -> Option<Block> {
    let ms = median(inside.iter().map(|lap| lap.ms))?;
    let processor_us = median(inside.iter().map(|lap| lap.processor_us))?;
    Some(Block { events, ms, processor_us })
}

/// The upper of the two in the middle; `None` of nothing.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// What `compare` (with events, without) makes of each block with events and its neighbour without: first and second,
/// third and fourth, and so on.
pub(crate) fn changes(blocks: &[Block], compare: impl Fn(&Block, &Block) -> f64) -> Vec<f64> {
    let of = |pair: &[Block]| match pair {
        [on, off] if on.events && !off.events => Some(compare(on, off)),
        [off, on] if on.events && !off.events => Some(compare(on, off)),
        _ => None,
    };
    // A pair of one kind lies across the turn of the order: the pairs begin one block later.
    let skip = usize::from(matches!(blocks, [a, b, ..] if a.events == b.events));
    blocks[skip.min(blocks.len())..].chunks_exact(2).filter_map(of).collect()
}

/// The middle of all averages of two changes (Hodges and Lehmann) with the bounds of its 95 % confidence interval, those
/// that Wilcoxon's signed-rank test does not refuse: whatever the distribution, a disturbed pair counts little, and no
/// more pairs are needed than for a mean. `None` with too few.
pub(crate) fn interval(changes: &[f64]) -> Option<[f64; 3]> {
    if changes.len() < PAIRS_MIN {
        return None;
    }
    let averages =
        changes.iter().enumerate().flat_map(|(at, a)| changes[at..].iter().map(move |b| f64::midpoint(*a, *b)));
    let mut averages: Vec<f64> = averages.collect();
    averages.sort_unstable_by(f64::total_cmp);
    let n = changes.len() as f64;
    let spread = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
    let outside = (averages.len() as f64 / 2.0 - Z_95 * spread).max(0.0) as usize;
    let last = averages.len() - 1;
    Some([f64::midpoint(averages[last / 2], averages[last.div_ceil(2)]), averages[outside], averages[last - outside]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(iteration: u64) -> Option<(bool, u64)> {
        Some((matches!(iteration / 3 % 4, 0 | 3), iteration % 3))
    }

    fn lap(ms: f64) -> Lap {
        Lap { ms, processor_us: 2.0 * ms }
    }

    fn block((events, ms): (bool, f64)) -> Block {
        Block { events, ms, processor_us: 2.0 * ms }
    }

    fn longer(on: &Block, off: &Block) -> f64 {
        on.ms / off.ms - 1.0
    }

    #[test]
    fn blocks_are_whole_and_leave_their_first_iteration_out() {
        // The blocks begin at 3, 6, 9 and 12; that of iteration 2 and that of 12 are not whole.
        let laps = (2..14).map(|i| (i, lap(if i % 3 == 0 { 99.0 } else { i as f64 })));
        let blocks = blocks(laps, switch);
        let expected = [(false, 5.0), (false, 8.0), (true, 11.0)].map(block).to_vec();
        assert_eq!(blocks, expected);
    }

    #[test]
    fn neighbours_are_compared_whichever_comes_first() {
        let blocks: Vec<Block> =
            [(true, 11.0), (false, 10.0), (false, 20.0), (true, 21.0), (true, 1.0)].map(block).to_vec();
        let about = |found: Vec<f64>| found.iter().map(|c| (c * 100.0).round()).collect::<Vec<_>>();
        assert_eq!(about(changes(&blocks, longer)), [10.0, 5.0]);
        let later = [(false, 1.0), (false, 10.0), (true, 12.0), (true, 11.0), (false, 10.0)].map(block);
        assert_eq!(about(changes(&later, longer)), [20.0, 10.0]);
    }

    #[test]
    fn an_interval_holds_the_median_nineteen_times_in_twenty() {
        assert_eq!(interval(&[0.0; PAIRS_MIN - 1]), None);
        let mut state = 7u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let mut held = 0;
        for _ in 0..1000 {
            let changes: Vec<f64> = (0..50).map(|_| random()).collect();
            let [middle, low, high] = interval(&changes).unwrap();
            assert!(low < middle && middle < high);
            held += usize::from(low <= 0.5 && 0.5 <= high);
        }
        assert!((930..=970).contains(&held), "{held} of 1000");
    }

    #[test]
    fn a_disturbed_pair_counts_little() {
        let mut changes: Vec<f64> = (0..40).map(|at| f64::from(at % 5)).collect();
        assert_eq!(interval(&changes).unwrap()[0], 2.0);
        changes[0] = 1e6;
        let [middle, low, high] = interval(&changes).unwrap();
        assert!((2.0..2.2).contains(&middle) && (1.0..2.0).contains(&low) && (2.0..3.0).contains(&high));
    }
}
