//! The period of a program: after how many of its operations it does the same again.
use super::raw::{NO_MARK, Raw, SMALL, STARTED};
use crate::timeline::past::{Counter, Past};
use mycroft_record::{NANOS_PER_MS, OpClass};
use std::collections::{BTreeMap, VecDeque};

/// Operations in which a period is looked for: at least three periods of up to 200 operations.
pub(super) const SEQUENCE_KEPT: usize = 600;
/// .. of so many operations, of which the most common ones are left out.
const LATELY: usize = 10 * SEQUENCE_KEPT;
/// Pairs of operations that must be comparable, and how many in a hundred must be the same.
const PAIRS_MIN: usize = 4;
const SAME_PERCENT: usize = 85;
/// Of periods whose likeness differs by no more than this, the shortest is the period.
const AS_GOOD: usize = 1;

/// A line of the program.
type Symbol = (Counter, u16);

/// How often the signature with a number comes in one period of the program: of all its operations, or of its collectives, since
/// messages between stages come in any order, without those that are most common, since they are layers.
pub(super) fn of(raw: &VecDeque<Raw>, past: &Past, number: u16) -> Option<u64> {
    times(&latest(raw, past), number).or_else(|| times(&rare_collectives(raw, past, number), number))
}

/// The shortest period after which a sequence repeats itself has a signature so often. Runs of the most common operation say
/// nothing, so only the others are compared.
fn times(symbols: &[Symbol], number: u16) -> Option<u64> {
    let counts = counts(symbols);
    let (common, _) = counts.iter().max_by_key(|(symbol, count)| (**count, **symbol))?;
    let same_percent = |period: usize| -> usize {
        let pairs = symbols.iter().zip(&symbols[period..]).filter(|(a, b)| *a != common || *b != common);
        let (mut same, mut all) = (0, 0);
        for (a, b) in pairs {
            all += 1;
            same += usize::from(a == b);
        }
        if all >= PAIRS_MIN { 100 * same / all } else { 0 }
    };
    let likeness: Vec<(usize, usize)> = (2..=symbols.len() / 3).map(|period| (period, same_percent(period))).collect();
    // Micro-batches are alike as well, but iterations are more so.
    let most = likeness.iter().map(|(_, percent)| *percent).max().filter(|most| *most >= SAME_PERCENT)?;
    let times = |least: usize| -> Option<u64> {
        let (period, _) = likeness.iter().find(|(_, percent)| *percent >= least)?;
        let times = symbols[symbols.len() - period..].iter().filter(|symbol| symbol.1 == number).count();
        Some(times.max(1) as u64)
    };
    // What comes once in whatever repeats itself needs no better period.
    times(SAME_PERCENT).filter(|times| *times == 1).or_else(|| times(most - AS_GOOD))
}

/// The last operations that the device is known to have begun; without kernel events all, as they ended.
fn latest(raw: &VecDeque<Raw>, past: &Past) -> Vec<Symbol> {
    let knows_starts = raw.iter().rev().take(SEQUENCE_KEPT).any(|op| op.is(STARTED));
    let counts = |op: &&Raw| !op.is(SMALL) && (op.is(STARTED) || !knows_starts);
    in_order(raw.iter().rev().filter(counts).take(SEQUENCE_KEPT).collect(), past)
}

/// The last collectives, without the most common ones where there are too many; none where the signature is of messages.
fn rare_collectives(raw: &VecDeque<Raw>, past: &Past, number: u16) -> Vec<Symbol> {
    let is_collective = |op: &&Raw| past.counter(op.counter).1 == OpClass::Collective && !op.is(SMALL);
    let mut ops: Vec<&Raw> = raw.iter().skip(raw.len().saturating_sub(LATELY)).filter(is_collective).collect();
    if !ops.iter().any(|op| op.mark & NO_MARK == number) {
        return Vec::new();
    }
    while ops.len() > SEQUENCE_KEPT {
        let symbols: Vec<Symbol> = ops.iter().map(|op| symbol(op, past)).collect();
        let counts = counts(&symbols);
        let others = counts.iter().filter(|((_, of), _)| *of != number);
        // Of two kinds one is left, and that says nothing.
        let Some((common, _)) = others.max_by_key(|(symbol, count)| (**count, **symbol)).filter(|_| counts.len() > 2)
        else {
            ops.drain(..ops.len() - SEQUENCE_KEPT);
            break;
        };
        ops.retain(|op| symbol(op, past) != *common);
    }
    in_order(ops, past)
}

/// In the order in which the device began them. Sends and receives of one group start together, in either order.
fn in_order(mut ops: Vec<&Raw>, past: &Past) -> Vec<Symbol> {
    let began = |op: &Raw| if op.is(STARTED) { op.started_at() } else { op.ended_at() };
    ops.sort_by_key(|op| (began(op).0 / NANOS_PER_MS, *past.counter(op.counter), op.seq));
    ops.into_iter().map(|op| symbol(op, past)).collect()
}

fn symbol(op: &Raw, past: &Past) -> Symbol {
    (*past.counter(op.counter), op.mark & NO_MARK)
}

fn counts(symbols: &[Symbol]) -> BTreeMap<Symbol, usize> {
    let mut counts = BTreeMap::new();
    symbols.iter().for_each(|symbol| *counts.entry(*symbol).or_default() += 1);
    counts
}
