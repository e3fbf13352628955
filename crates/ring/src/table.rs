//! The table protocol: cells claimed, filled, published, counted in, and taken out, each told apart by a generation.
//!
//! A cell's directory word holds its generation and state. Claiming swaps FREE (or ENDED) of generation g to BUSY of
//! g + 1, then a release fence, then the identity words are stored (relaxed), then ACTIVE is stored (release). A reader
//! loads the directory word (acquire), copies the cell if ACTIVE, then an acquire fence, then loads the directory word
//! again: equal means that the identity is whole, by the same fence-fence argument as in `lane`. Counters move while the
//! cell is ACTIVE and are each a single word: they are atomic, but not a snapshot of one instant.
use crate::error::ReadError;
use crate::layout::dir;
use crate::narrow::{at, low, low16};
use crate::source::Source;
use crate::sync::{Ordering, Word};

/// Cells looked at before giving up: bounds the time of a claim. At 90 % load all of 64 random cells are taken with
/// probability 0.9^64 = 0.1 %; eight directory words share a cache line, so it is 8 to 9 lines.
pub const PROBE_LIMIT: u64 = 64;

/// Claims a cell, looking from `hint` on: its index and new generation, or `None` after `PROBE_LIMIT` cells. The cell is
/// the caller's alone until `publish`.
#[inline]
pub fn claim<W: Word>(directory: &[W], hint: u64) -> Option<(u64, u64)> {
    let n = directory.len() as u64;
    for probe in 0..PROBE_LIMIT.min(n) {
        let index = (hint.wrapping_add(probe)) & (n - 1);
        let word = &directory[at(index)];
        let seen = word.load(Ordering::Relaxed);
        if matches!(dir::state(seen), dir::FREE | dir::ENDED) {
            // Generation 0 is skipped so that the bits of a reference are never 0.
            let generation = ((dir::generation(seen) + 1) & dir::GENERATION_MASK).max(1);
            if word.swap_if(seen, dir::word(generation, dir::BUSY)) {
                W::fence(Ordering::Release);
                return Some((index, generation));
            }
        }
    }
    None
}

/// Makes a claimed and filled cell valid.
#[inline]
pub fn publish<W: Word>(directory: &[W], index: u64, generation: u64) {
    directory[at(index)].store(dir::word(generation, dir::ACTIVE), Ordering::Release);
}

/// Whether a reference is current.
#[inline]
pub fn is_active<W: Word>(directory: &[W], index: u64, generation: u64) -> bool {
    directory.get(at(index)).is_some_and(|word| word.load(Ordering::Acquire) == dir::word(generation, dir::ACTIVE))
}

/// Takes a valid cell out of the table; exactly one of several callers gets it. The cell is the caller's alone until
/// `retire`.
#[inline]
pub fn take<W: Word>(directory: &[W], index: u64, generation: u64) -> bool {
    let Some(word) = directory.get(at(index)) else { return false };
    word.swap_if(dir::word(generation, dir::ACTIVE), dir::word(generation, dir::BUSY))
}

/// Ends a taken cell: `dir::FREE`, or `dir::ENDED` to keep it readable.
#[inline]
pub fn retire<W: Word>(directory: &[W], index: u64, generation: u64, state: u64) {
    directory[at(index)].store(dir::word(generation, state), Ordering::Release);
}

/// Where a table lies in a source of words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableAt {
    /// Word offset of the directory.
    pub directory: u64,
    /// Word offset of the first cell.
    pub cells: u64,
    /// Cells.
    pub count: usize,
    /// Words of a cell.
    pub cell_words: usize,
}

/// What a look at a table found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot<T> {
    /// The valid cells, in table order.
    pub items: Vec<T>,
    /// Cells that changed owner at each of the tries; a busy writer may cause some, they are no loss of completions.
    pub torn: u32,
}

/// Tries to read a cell whose owner changes meanwhile.
const SNAPSHOT_ROUNDS: u32 = 3;
/// Cells between two wanted ones that are copied along rather than skipped by another system call.
const RUN_GAP: usize = 8;

/// Reads the cells in a wanted state, each with an identity of one moment: `make` gets index, generation and words.
///
/// # Errors
/// The segment can no longer be read.
pub fn snapshot<S: Source, T>(
    source: &S,
    at: &TableAt,
    wanted: impl Fn(u64) -> bool,
    make: impl Fn(u16, u32, &[u64]) -> T,
) -> Result<Snapshot<T>, ReadError> {
    let mut before = vec![0; at.count];
    source.read(at.directory, &mut before)?;
    let mut pending: Vec<usize> = (0..at.count).filter(|&i| wanted(dir::state(before[i]))).collect();
    let mut found: Vec<(usize, T)> = Vec::with_capacity(pending.len());
    let mut after = vec![0; at.count];
    for _ in 0..SNAPSHOT_ROUNDS {
        if pending.is_empty() {
            break;
        }
        source.acquire_fence();
        let cells = copy_cells(source, at, &pending)?;
        source.acquire_fence();
        source.read(at.directory, &mut after)?;
        let mut again = Vec::new();
        for (&index, cell) in pending.iter().zip(cells.chunks_exact(at.cell_words)) {
            if before[index] == after[index] {
                found.push((index, make(low16(index as u64), low(dir::generation(after[index])), cell)));
            } else if wanted(dir::state(after[index])) {
                again.push(index);
            }
        }
        pending = again;
        std::mem::swap(&mut before, &mut after);
    }
    found.sort_by_key(|(index, _)| *index);
    let items = found.into_iter().map(|(_, item)| item).collect();
    Ok(Snapshot { items, torn: low(pending.len() as u64) })
}

/// Copies the wanted cells, neighbours with one read.
fn copy_cells<S: Source>(source: &S, at: &TableAt, wanted: &[usize]) -> Result<Vec<u64>, ReadError> {
    let mut cells = Vec::with_capacity(wanted.len() * at.cell_words);
    let mut run = Vec::new();
    let mut rest = wanted;
    while let Some(&first) = rest.first() {
        let n = 1 + rest.windows(2).take_while(|pair| pair[1] - pair[0] <= RUN_GAP).count();
        let last = rest[n - 1];
        run.resize((last - first + 1) * at.cell_words, 0);
        source.read(at.cells + (first * at.cell_words) as u64, &mut run)?;
        for &index in &rest[..n] {
            cells.extend_from_slice(&run[(index - first) * at.cell_words..][..at.cell_words]);
        }
        rest = &rest[n..];
    }
    Ok(cells)
}
