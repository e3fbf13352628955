//! What went between hosts.
//!
//! At most 16,384 paths of 12 B in 60 + 60 + 60 + 96 pieces, 54 MB; jobs whose hosts stand in rings have two to four a host.
use super::ladder::{Ladder, Open, Pieces, Span, Wide};
use mycroft_diagnose::Stretch;
use mycroft_record::{HostName, HostTime};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Paths of a job; of more, those that came later are left out and counted.
const PATHS_MAX: usize = 1 << 14;

/// From host, to host.
pub(super) type Ends = (HostName, HostName);

/// What a path carried in so many iterations, together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    pub(super) iterations: f32,
    pub(super) sent_ms: f32,
    pub(super) mb: f32,
}

/// What paths carried in a piece of time, by path: sums over its iterations.
#[derive(Clone, Debug, Default)]
struct Sums {
    span: Span,
    cells: BTreeMap<u32, Cell>,
}

impl Sums {
    fn push(&mut self, stretch: &Stretch, places: &[Option<u32>]) {
        self.span.push(stretch.start, stretch.end, &stretch.iterations);
        let count = stretch.iterations.len() as f32;
        for (way, place) in stretch.ways.iter().zip(places) {
            let Some(place) = place else { continue };
            let cell = self.cells.entry(*place).or_default();
            cell.iterations += count;
            cell.sent_ms += way.sent_ms * count;
            cell.mb += way.mb * count;
        }
    }
}

impl Open for Sums {
    type Over = BTreeMap<u32, Cell>;

    fn span(&self) -> Span {
        self.span
    }

    fn close(&self) -> BTreeMap<u32, Cell> {
        self.cells.clone()
    }

    fn absorb(&mut self, span: &Span, cells: &BTreeMap<u32, Cell>) {
        self.span.join(span);
        for (place, more) in cells {
            let cell = self.cells.entry(*place).or_default();
            cell.iterations += more.iterations;
            cell.sent_ms += more.sent_ms;
            cell.mb += more.mb;
        }
    }
}

/// What went between the hosts of one job.
#[derive(Debug, Default)]
pub(crate) struct PathSeries {
    index: BTreeMap<Ends, u32>,
    names: Arc<Vec<Ends>>,
    ladder: Ladder<Sums>,
    left_out: bool,
    /// There are more names than were written.
    is_changed: bool,
}

impl PathSeries {
    /// Takes in about a second.
    pub(crate) fn push(&mut self, stretch: &Stretch) {
        let places: Vec<Option<u32>> =
            stretch.ways.iter().map(|way| self.place((way.from.clone(), way.to.clone()))).collect();
        self.ladder.push(stretch.end, |open| open.push(stretch, &places));
    }

    fn place(&mut self, ends: Ends) -> Option<u32> {
        if let Some(place) = self.index.get(&ends) {
            return Some(*place);
        }
        if self.names.len() >= PATHS_MAX {
            self.left_out = true;
            return None;
        }
        self.is_changed = true;
        let next = self.names.len() as u32;
        Arc::make_mut(&mut self.names).push(ends.clone());
        self.index.insert(ends, next);
        Some(next)
    }

    /// Pieces that are over and were not asked for yet.
    pub(super) fn take_unsaved(&mut self) -> VecDeque<Wide<BTreeMap<u32, Cell>>> {
        self.ladder.take_unsaved()
    }

    /// The paths, where there are more since this was asked last.
    pub(super) fn take_changed(&mut self) -> Option<Arc<Vec<Ends>>> {
        std::mem::take(&mut self.is_changed).then(|| Arc::clone(&self.names))
    }

    /// Goes on with what was written.
    pub(super) fn go_on(
        names: Vec<Ends>,
        pieces: impl Iterator<Item = (u64, Span, Arc<BTreeMap<u32, Cell>>)>,
    ) -> PathSeries {
        let index = names.iter().enumerate().map(|(at, ends)| (ends.clone(), at as u32)).collect();
        let mut series = PathSeries { index, names: Arc::new(names), ..PathSeries::default() };
        series.ladder.go_on(pieces);
        series
    }

    /// What is known of a window.
    pub(crate) fn window(&self, from: HostTime, to: HostTime) -> PathWindow {
        let (names, pieces) = (Arc::clone(&self.names), self.ladder.window(from, to));
        PathWindow { names, pieces, left_out: self.left_out }
    }
}

/// Pieces of a window; what they say together is worked out by whoever asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathWindow {
    names: Arc<Vec<Ends>>,
    pub(crate) pieces: Pieces<BTreeMap<u32, Cell>>,
    /// The job has more paths than are kept.
    pub(crate) left_out: bool,
}

/// What one path carried in a window, per iteration.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PathMean {
    pub(crate) from: HostName,
    pub(crate) to: HostName,
    pub(crate) mb: f64,
    /// For how long data was on its way, milliseconds.
    pub(crate) sent_ms: f64,
    /// How much longer than on paths in the middle that carry about as much.
    pub(crate) excess_ms: f64,
}

impl PathWindow {
    /// The paths, those whose data was on its way longest beside others first.
    pub(crate) fn means(&self) -> Vec<PathMean> {
        let mut sums: BTreeMap<u32, (f64, f64, f64)> = BTreeMap::new();
        for (place, cell) in self.pieces.0.iter().flat_map(|(_, cells)| &**cells) {
            let sum = sums.entry(*place).or_default();
            sum.0 += f64::from(cell.iterations);
            sum.1 += f64::from(cell.sent_ms);
            sum.2 += f64::from(cell.mb);
        }
        let mean = |(place, (count, sent_ms, mb)): (u32, (f64, f64, f64))| {
            let (from, to) = self.names[place as usize].clone();
            PathMean { from, to, mb: mb / count, sent_ms: sent_ms / count, excess_ms: 0.0 }
        };
        let is_known = |(place, sum): &(u32, (f64, f64, f64))| sum.0 > 0.0 && (*place as usize) < self.names.len();
        let mut means: Vec<PathMean> = sums.into_iter().filter(is_known).map(mean).collect();
        compare(&mut means);
        means.sort_by(|a, b| b.excess_ms.total_cmp(&a.excess_ms).then_with(|| (&a.from, &a.to).cmp(&(&b.from, &b.to))));
        means
    }
}

/// Compares each path with those that carry from half to twice as much.
fn compare(means: &mut [PathMean]) {
    let mut carry: Vec<(f64, f64)> = means.iter().map(|mean| (mean.mb, mean.sent_ms)).collect();
    carry.sort_by(|a, b| a.0.total_cmp(&b.0));
    for mean in means {
        let first = carry.partition_point(|(mb, _)| *mb < mean.mb / 2.0);
        let last = carry.partition_point(|(mb, _)| *mb <= mean.mb * 2.0);
        let mut alike: Vec<f64> = carry[first..last].iter().map(|(_, ms)| *ms).collect();
        let middle = alike.len().saturating_sub(1) / 2;
        alike.select_nth_unstable_by(middle, f64::total_cmp);
        mean.excess_ms = mean.sent_ms - alike[middle];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_diagnose::Carried;
    use mycroft_record::NANOS_PER_SEC;

    fn stretch(second: u64, paths: &[(&str, &str, f32, f32)]) -> Stretch {
        let at = |second: u64| HostTime(second * NANOS_PER_SEC);
        let way = |(from, to, sent_ms, mb): &(&str, &str, f32, f32)| Carried {
            from: (*from).into(),
            to: (*to).into(),
            sent_ms: *sent_ms,
            mb: *mb,
        };
        Stretch {
            start: at(second),
            end: at(second + 1),
            iterations: vec![(at(second + 1), 500.0); 2],
            ways: paths.iter().map(way).collect(),
            ..Stretch::default()
        }
    }

    #[test]
    fn a_path_is_compared_with_those_that_carry_as_much_and_a_window_has_only_its_own() {
        let mut series = PathSeries::default();
        let usual = [("a", "b", 10.0, 8.0), ("b", "c", 10.0, 8.0), ("c", "a", 10.0, 8.0), ("a", "c", 1.0, 0.1)];
        let mut slow = usual;
        slow[1].2 = 40.0;
        (0..60).for_each(|second| series.push(&stretch(second, &usual)));
        (60..120).for_each(|second| series.push(&stretch(second, &slow)));
        let window = |from: u64, to: u64| series.window(HostTime(from * NANOS_PER_SEC), HostTime(to * NANOS_PER_SEC));
        let now = window(60, 120).means();
        assert_eq!((now.len(), &*now[0].from, &*now[0].to), (4, "b", "c"));
        // A piece holds a second of what was before.
        assert!((now[0].excess_ms - 30.0).abs() < 1.0 && (now[0].mb - 8.0).abs() < 1e-3, "{now:?}");
        assert!(
            now[1..].iter().all(|mean| mean.excess_ms.abs() < 1e-3),
            "one that carries little has no peers: {now:?}"
        );
        assert!(window(0, 50).means().iter().all(|mean| mean.excess_ms.abs() < 1e-3));
        assert_eq!(window(0, 120).pieces.iterations(), (240, 500.0));
        assert!((window(0, 120).means()[0].excess_ms - 15.0).abs() < 0.1, "half of the time");
        assert_eq!(window(500, 600).pieces.span(), None);
    }

    #[test]
    fn what_a_job_may_name_has_a_limit_and_is_said() {
        let mut series = PathSeries::default();
        let names: Vec<String> = (0..=PATHS_MAX).map(|host| host.to_string()).collect();
        let paths: Vec<(&str, &str, f32, f32)> = names.iter().map(|host| (host.as_str(), "x", 1.0, 1.0)).collect();
        series.push(&stretch(1, &paths));
        let window = series.window(HostTime(0), HostTime(u64::MAX));
        assert_eq!((window.means().len(), window.left_out), (PATHS_MAX, true));
    }
}
