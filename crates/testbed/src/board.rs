//! The board: one mapped file on which ranks write how long each iteration took, and the launcher when to stop.
//!
//! It costs a rank one store per iteration, and two questions after its processor time, so that it does not disturb what is
//! measured.
//!
//! | offset | what |
//! |---|---|
//! | 0 | `stop_at`: iterations with this number and later are not begun; `u64::MAX` = go on |
//! | 8 | number of ranks |
//! | 16 | `switch_every`: length of a block of iterations with or without profiler events; 0 = always with |
//! | 24 | `change_at`: the last change of the job holds from this iteration on; `u64::MAX` = none is told |
//! | 32 | number of that change, from 1 |
//! | 40 | per rank: 8 bytes iterations finished, then [`KEPT`] iterations of 8 bytes: duration in microseconds (low half), processor time in nanoseconds |
use crate::error::TestbedError;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Iterations kept per rank: at four iterations a second the last 34 minutes.
pub const KEPT: usize = 8192;
const HEAD_BYTES: usize = 40;
const RANK_BYTES: usize = 8 + 8 * KEPT;
/// Greatest number of ranks a file may claim; the scenario's own limit is lower.
const RANKS_MAX: usize = 16_384;

/// What an iteration took.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Lap {
    /// From its begin to its end, milliseconds.
    pub ms: f64,
    /// Processor time of all threads of the rank meanwhile, microseconds.
    pub processor_us: f64,
}

/// A mapped board.
#[derive(Debug)]
pub struct Board {
    base: *mut u8,
    ranks: usize,
}

// SAFETY: the mapping is only reached through atomics and lives until drop.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    /// Makes the file.
    ///
    /// # Errors
    /// The file cannot be made or mapped.
    pub fn create(path: &Path, ranks: usize) -> Result<Board, TestbedError> {
        let error = |source| TestbedError::file("make the board", path, source);
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path).map_err(error)?;
        file.set_len(bytes_of(ranks) as u64).map_err(error)?;
        let board = Board::map(&file, ranks).map_err(error)?;
        board.word(0).store(u64::MAX, Ordering::Relaxed);
        board.word(24).store(u64::MAX, Ordering::Relaxed);
        board.word(8).store(ranks as u64, Ordering::Release);
        Ok(board)
    }

    /// Opens a file that [`Board::create`] made.
    ///
    /// # Errors
    /// The file cannot be opened or mapped, or has another size.
    pub fn open(path: &Path) -> Result<Board, TestbedError> {
        let error = |source| TestbedError::file("open the board", path, source);
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(error)?;
        let bytes = file.metadata().map_err(error)?.len() as usize;
        let ranks = bytes.saturating_sub(HEAD_BYTES) / RANK_BYTES;
        if ranks == 0 || ranks > RANKS_MAX || bytes != bytes_of(ranks) {
            return Err(error(std::io::Error::other(format!("{bytes} bytes are not a board"))));
        }
        Board::map(&file, ranks).map_err(error)
    }

    fn map(file: &std::fs::File, ranks: usize) -> std::io::Result<Board> {
        // SAFETY: a fresh shared mapping of an open file that is at least this long; the kernel chooses the address.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes_of(ranks),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Board { base: base.cast(), ranks })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset + 8 <= bytes_of(self.ranks));
        // SAFETY: callers pass offsets of 8-byte words inside the mapping, which is page aligned and lives with self.
        unsafe { &*self.base.add(offset).cast::<AtomicU64>() }
    }

    fn slot(&self, rank: usize, iteration: u64) -> &AtomicU64 {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        let slot = (iteration % KEPT as u64) as usize;
        self.word(HEAD_BYTES + rank * RANK_BYTES + 8 + 8 * slot)
    }

    fn finished(&self, rank: usize) -> &AtomicU64 {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        self.word(HEAD_BYTES + rank * RANK_BYTES)
    }

    /// Ranks on the board.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Iterations `rank` has finished.
    pub fn iterations(&self, rank: usize) -> u64 {
        self.finished(rank).load(Ordering::Acquire)
    }

    /// `rank` finished its next iteration, which took `micros`, and `processor_ns` of its threads' processor time.
    pub fn finish(&self, rank: usize, micros: u32, processor_ns: u32) {
        let done = self.finished(rank).load(Ordering::Relaxed);
        self.slot(rank, done).store(u64::from(processor_ns) << 32 | u64::from(micros), Ordering::Relaxed);
        self.finished(rank).store(done + 1, Ordering::Release);
    }

    /// The iterations from number `from` on, as far as they are kept.
    pub fn laps(&self, rank: usize, from: u64) -> Vec<Lap> {
        let done = self.iterations(rank);
        let from = from.max(done.saturating_sub(KEPT as u64));
        let lap = |iteration| {
            let word = self.slot(rank, iteration).load(Ordering::Relaxed);
            Lap { ms: f64::from(word as u32) / 1e3, processor_us: (word >> 32) as f64 / 1e3 }
        };
        (from..done).map(lap).collect()
    }

    /// Tells ranks not to begin iteration `iteration`, nor a later one.
    pub fn stop_at(&self, iteration: u64) {
        self.word(0).store(iteration, Ordering::Release);
    }

    /// From now on profiler events are given in blocks of `iterations` iterations only; 0: always.
    pub fn switch_every(&self, iterations: u64) {
        self.word(16).store(iterations, Ordering::Release);
    }

    /// Whether profiler events of an iteration are to be given, and how many iterations of its block came before it;
    /// `None` if they always are.
    ///
    /// Of four blocks the first and the last have them, so that of each pair of neighbours the order turns and a drift of
    /// the machine favours neither.
    pub fn switch(&self, iteration: u64) -> Option<(bool, u64)> {
        let every = self.word(16).load(Ordering::Acquire);
        (every > 0).then(|| (matches!(iteration / every % 4, 0 | 3), iteration % every))
    }

    /// Tells ranks that change `number` of the job holds from `iteration` on.
    pub fn change_at(&self, number: u64, iteration: u64) {
        self.word(24).store(u64::MAX, Ordering::SeqCst);
        self.word(32).store(number, Ordering::SeqCst);
        self.word(24).store(iteration, Ordering::SeqCst);
    }

    /// Number of the change that was told last; 0 where none was.
    pub fn last_change(&self) -> u64 {
        self.word(32).load(Ordering::SeqCst)
    }

    /// The change that an iteration begins with, if one was told for it or for an earlier one.
    pub fn change(&self, iteration: u64) -> Option<u64> {
        let is_due = || iteration >= self.word(24).load(Ordering::SeqCst);
        let number = is_due().then(|| self.word(32).load(Ordering::SeqCst));
        // Another change may have been told in between, for a later iteration.
        number.filter(|_| is_due())
    }

    /// Whether every rank has finished what it may begin, so that nobody needs its peers any more.
    pub fn all_stopped(&self) -> bool {
        (0..self.ranks).all(|rank| self.is_stopped(self.iterations(rank)))
    }

    /// Whether iteration `iteration` may not begin.
    pub fn is_stopped(&self, iteration: u64) -> bool {
        iteration >= self.word(0).load(Ordering::Acquire)
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: base is what mmap returned for this length; no reference outlives self.
        unsafe { libc::munmap(self.base.cast(), bytes_of(self.ranks)) };
    }
}

fn bytes_of(ranks: usize) -> usize {
    HEAD_BYTES + ranks * RANK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_of_pytorch_programs_knows_the_layout() {
        let runner = include_str!("../../../testbed/torch/run.py");
        assert!(runner.contains(&format!("BOARD_HEAD, BOARD_KEPT = {HEAD_BYTES}, {KEPT}\n")));
    }

    #[test]
    fn two_mappings_share_it_and_old_durations_fall_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("board");
        let launcher = Board::create(&path, 3).unwrap();
        let rank = Board::open(&path).unwrap();
        assert_eq!(rank.ranks(), 3);
        for i in 0..KEPT as u32 + 5 {
            rank.finish(2, i * 1000, 7000);
        }
        assert_eq!(launcher.iterations(2), KEPT as u64 + 5);
        assert_eq!(launcher.laps(2, 0).len(), KEPT);
        let last = Lap { ms: KEPT as f64 + 4.0, processor_us: 7.0 };
        assert_eq!(launcher.laps(2, KEPT as u64 + 4), vec![last]);
        assert_eq!(launcher.iterations(1), 0);
        assert!(!rank.is_stopped(1_000_000));
        launcher.stop_at(7);
        assert!(rank.is_stopped(7) && !rank.is_stopped(6));
        assert!(!rank.all_stopped());
        for _ in 0..7 {
            rank.finish(0, 1, 1);
            rank.finish(1, 1, 1);
        }
        assert!(rank.all_stopped());
        assert_eq!(rank.switch(5), None);
        launcher.switch_every(3);
        let with: Vec<bool> = (0..15).map(|i| rank.switch(i).unwrap().0).collect();
        let blocks = [true, false, false, true, true].map(|on| [on; 3]).concat();
        assert_eq!((with, rank.switch(7)), (blocks, Some((false, 1))));
        assert_eq!(rank.change(u64::MAX - 1), None);
        launcher.change_at(1, 9);
        assert_eq!((rank.change(8), rank.change(9)), (None, Some(1)));
        std::fs::write(&path, [0u8; 40]).unwrap();
        assert!(Board::open(&path).is_err());
    }
}
