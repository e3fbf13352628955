//! The middle of all values but a few, for each few of them: the values are sorted once, and those that do not count are skipped.
//! The same numbers as [`crate::median::median`] gives of a list without them.

/// Values in order.
pub(super) struct Sorted {
    values: Vec<f64>,
    /// Where each is in that order, by its place in what was given.
    rows: Vec<usize>,
}

/// What is left without some of them.
pub(super) struct Others<'a> {
    values: &'a [f64],
    /// Those that do not count, in order.
    without: Vec<usize>,
}

impl Sorted {
    /// Sorts them.
    pub(super) fn of(given: impl Iterator<Item = f64>) -> Sorted {
        let mut order: Vec<(usize, f64)> = given.enumerate().collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut rows = vec![0; order.len()];
        for (row, (place, _)) in order.iter().enumerate() {
            rows[*place] = row;
        }
        Sorted { values: order.into_iter().map(|of| of.1).collect(), rows }
    }

    /// All but these, by their places in what was given, each once.
    pub(super) fn without(&self, places: &[usize]) -> Others<'_> {
        let mut without: Vec<usize> = places.iter().map(|place| self.rows[*place]).collect();
        without.sort_unstable();
        Others { values: &self.values, without }
    }

    /// How many are this long or longer.
    pub(super) fn count_from(&self, least: f64) -> usize {
        self.values.len() - self.values.partition_point(|value| *value < least)
    }
}

impl Others<'_> {
    /// How many.
    pub(super) fn count(&self) -> usize {
        self.values.len() - self.without.len()
    }

    /// The one with this number, from 0, of those that count.
    fn at(&self, number: usize) -> f64 {
        let row = self.without.iter().fold(number, |row, skipped| if *skipped <= row { row + 1 } else { row });
        self.values[row]
    }

    /// The median; `None` of nothing.
    pub(super) fn middle(&self) -> Option<f64> {
        middle_of(self.count(), |number| self.at(number))
    }

    /// The median of their distances from `middle`; `None` of nothing.
    pub(super) fn distance(&self, middle: f64) -> Option<f64> {
        middle_of(self.count(), |number| self.nearest(middle, number))
    }

    /// The distance with this number, from 0, of the distances from `middle` in order: the largest in the narrowest row of
    /// neighbours around it that are one more than that.
    fn nearest(&self, middle: f64, number: usize) -> f64 {
        let (below, above) = (|first: usize| middle - self.at(first), |first: usize| self.at(first + number) - middle);
        // The first row that reaches as far above as below, or the last one there is.
        let (mut low, mut high) = (0, self.count() - 1 - number);
        while low < high {
            let first = low.midpoint(high);
            if below(first) <= above(first) {
                high = first;
            } else {
                low = first + 1;
            }
        }
        let widest = |first: usize| below(first).max(above(first));
        low.checked_sub(1).map_or(widest(low), |before| widest(low).min(widest(before)))
    }
}

/// The one in the middle of `count` in order; between the two in the middle where their number is even.
fn middle_of(count: usize, at: impl Fn(usize) -> f64) -> Option<f64> {
    let middle = count / 2;
    match count {
        0 => None,
        _ if count % 2 == 1 => Some(at(middle)),
        _ => Some((at(middle - 1) + at(middle)) / 2.0),
    }
}
