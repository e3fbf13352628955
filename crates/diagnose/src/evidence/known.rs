//! What is known of a way between two hosts: its past, and how much longer the same bytes took in the last rows.
use super::past::{FEW_MIN, LATELY, Past};
use crate::measure::Way;
use crate::median::median;
use std::collections::VecDeque;

/// What is known of a way.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Milliseconds for a megabyte.
    pub(super) past: Past,
    /// It carries enough to say how fast it is, and not only whether it is slower than before.
    carries: bool,
    /// When its past became known it took longer than its peers: it may have been slow before anybody looked.
    is_odd: bool,
    /// Of the last rows: how many times as long as before the same bytes were under way.
    lately: VecDeque<f64>,
}

impl Known {
    /// Takes in what it took in a row, whether peers took as long, where they say it, and the past with that row in it.
    pub(super) fn take(&mut self, way: &Way, past: Past, carries: bool, is_beyond_peers: bool) {
        if !self.is_known() {
            self.is_odd = is_beyond_peers;
        }
        (self.past, self.carries) = (past, carries);
        if !self.is_known() {
            return;
        }
        self.lately.push_back(way.ms_per_mb() / past.level);
        if self.lately.len() > LATELY {
            self.lately.pop_front();
        }
    }

    /// Whether its past is known.
    pub(super) fn is_known(&self) -> bool {
        self.past.n >= FEW_MIN
    }

    /// Whether it says how fast it is, and not only whether it is slower than before.
    pub(super) fn tells_fast(&self) -> bool {
        self.carries && !self.is_odd
    }

    /// Nothing went this way in a row.
    pub(super) fn miss(&mut self) {
        self.lately.clear();
    }

    /// How many times as long as before the same bytes are under way now.
    pub(super) fn times(&self) -> Option<f64> {
        median(self.lately.iter().copied().collect())
    }
}
