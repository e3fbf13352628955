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
    /// For how long a megabyte of the fastest message was on its way before its past was known, milliseconds; 0: not known.
    fastest_ms: f64,
    /// How many times as long as that of ways that carry the same it was, where it was slow in each row until then; else 0.
    at_first: f64,
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
        self.lately.push_back(way.ms_per_mb() / self.expected_ms());
        if self.lately.len() > LATELY {
            self.lately.pop_front();
        }
    }

    /// The fastest message so far, `row` with it: milliseconds for a megabyte.
    pub(super) fn fastest_with(&self, row: &Way) -> f64 {
        if self.fastest_ms > 0.0 { self.fastest_ms.min(row.fastest_ms) } else { row.fastest_ms }
    }

    /// Notes how many times as long its fastest message takes as that of `usual` ways does, where it is slow, until its past is known.
    pub(super) fn compare(&mut self, row: &Way, usual: Option<f64>) {
        if self.is_known() {
            return;
        }
        let was_slow = self.fastest_ms == 0.0 || self.was_slow_at_first();
        self.fastest_ms = self.fastest_with(row);
        self.at_first = usual.filter(|_| was_slow).map_or(0.0, |usual| self.fastest_ms / usual);
    }

    /// Whether it was slow when its past became known, beside ways that carry the same.
    pub(super) fn was_slow_at_first(&self) -> bool {
        self.at_first > 0.0
    }

    /// What a megabyte should take, milliseconds: as long as before, or as those took that carry the same.
    pub(super) fn expected_ms(&self) -> f64 {
        self.past.level / if self.was_slow_at_first() { self.at_first } else { 1.0 }
    }

    /// Whether its past is known.
    pub(super) fn is_known(&self) -> bool {
        self.past.n >= FEW_MIN
    }

    /// Whether it says how fast it is, and not only whether it is slower than before.
    pub(super) fn tells_fast(&self) -> bool {
        self.carries && (!self.is_odd || self.was_slow_at_first())
    }

    /// Nothing went this way in a row.
    pub(super) fn miss(&mut self) {
        self.lately.clear();
    }

    /// How many times as long as it should take the same bytes are under way now.
    pub(super) fn times(&self) -> Option<f64> {
        median(self.lately.iter().copied().collect())
    }
}
