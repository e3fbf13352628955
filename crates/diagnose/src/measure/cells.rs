//! What a rank took in a row: components, and from which of its iterations.
use super::Sent;
use crate::timeline::{Iteration, RankState};
use mycroft_record::HostTime;

/// An iteration that is so many times as long as the reference's in the row, or as short, is no iteration: its end was lost, or
/// the rank's were cut elsewhere.
const ALIKE: f64 = 1.5;

/// Of the iterations of a rank that lost records one in so many is whole.
const WHOLE_OF: usize = 8;

/// What a rank does itself, and what else a row holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Component {
    /// The device is busy with something else than communication.
    Computation,
    /// Of computation, what its longest piece leaves: slower devices make it longer, more micro-batches do not.
    Rest,
    /// The device idles because the host issued late.
    Issue,
    /// Both: by so much an operation begins after the one before.
    Later,
    /// Copies into and out of the transport's slots.
    Copy,
    /// Copies from the rank by which a ring comes into a host to the one by which it goes out, which its flows do not show:
    /// they wait at both ends.
    Through,
    /// Collectives among ranks of its host, once all of them had begun: no flow shows what is copied.
    Local,
    /// What the rank sends to other hosts was longer on its way than as much of other ranks that goes the same way.
    Sending,
    /// The proxy thread passed on late what was delivered.
    Proxy,
    /// Data lay ready on links from the rank, and was awaited, without being handed over: a proxy thread that is late.
    Handover,
    /// A proxy thread slept, now and then.
    Pause,
    /// Data was on its way between hosts.
    Wire,
    /// Threads of a host that could run waited for a processor.
    Waiting,
    /// The iteration itself.
    Iteration,
}

/// Those that are a rank's, in the order of its cells.
pub(crate) const CELLS: [Component; 9] = [
    Component::Computation,
    Component::Rest,
    Component::Issue,
    Component::Copy,
    Component::Proxy,
    Component::Handover,
    Component::Sending,
    Component::Through,
    Component::Local,
];

/// Of these what iterations of a rank tell.
const OF_ITERATIONS: usize = 5;

impl Component {
    /// What an iteration of a rank took of it, microseconds; 0 of what iterations do not tell.
    pub(crate) fn us(self, it: &Iteration) -> f64 {
        match self {
            Component::Computation => it.compute_us,
            Component::Rest => it.compute_us - f64::from(it.compute_max_us),
            Component::Issue => f64::from(it.host_us),
            Component::Copy => f64::from(it.copy_us + it.out.us.min(it.out.first_us)),
            Component::Proxy => f64::from(it.proxy_us),
            Component::Later
            | Component::Local
            | Component::Through
            | Component::Sending
            | Component::Handover
            | Component::Pause
            | Component::Wire
            | Component::Waiting
            | Component::Iteration => 0.0,
        }
    }

    /// Whether more of it for all is so many times as long, and not so much longer.
    pub(crate) fn is_work(self) -> bool {
        matches!(self, Component::Computation | Component::Rest | Component::Later)
    }
}

/// What a rank took in a row, milliseconds per iteration of the reference, in the order of [`CELLS`]; NaN: not known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Cells {
    ms: [f32; CELLS.len()],
    /// In which share of the row's iterations: not in all of a rank that lost records, or of which some are no such iterations.
    measured: f32,
}

impl Cells {
    /// A rank that takes so many milliseconds for each component.
    #[cfg(test)]
    pub(crate) fn of(ms: impl Fn(Component) -> f64) -> Cells {
        Cells { ms: CELLS.map(|component| ms(component) as f32), measured: 1.0 }
    }

    /// Takes in what its links to other hosts took.
    pub(super) fn add_sent(&mut self, sent: &Sent) {
        self.ms[OF_ITERATIONS..OF_ITERATIONS + 2].copy_from_slice(&[sent.held_ms as f32, sent.slower_ms as f32]);
    }

    /// Takes in what ways through its host cost more.
    pub(super) fn add_through(&mut self, ms: f64) {
        self.ms[OF_ITERATIONS + 2] += ms as f32;
    }

    /// Takes in what collectives inside its host took.
    pub(super) fn add_local(&mut self, ms: f64) {
        self.ms[OF_ITERATIONS + 3] = ms as f32;
    }

    /// Milliseconds of a component of a rank; `None`: not known.
    pub(crate) fn ms(&self, component: Component) -> Option<f64> {
        if component == Component::Later {
            return Some(self.ms(Component::Computation)? + self.ms(Component::Issue)?);
        }
        let at = CELLS.iter().position(|cell| *cell == component)?;
        Some(f64::from(self.ms[at])).filter(|ms| !ms.is_nan())
    }

    /// How many times as much they vary by chance as those of a rank that was measured in all iterations: the mean of fewer varies
    /// more.
    pub(crate) fn doubt(&self) -> f64 {
        f64::from(self.measured).recip().sqrt()
    }
}

/// Ranks end an iteration together within a quarter of it.
pub(super) fn ended(it: &Iteration) -> HostTime {
    it.end - it.ns() / 4
}

/// How many operations an iteration has of which no record was lost: what one in eight reaches. Few have more (evaluation).
fn whole(mut ops: Vec<u32>) -> u32 {
    ops.sort_unstable_by(|a, b| b.cmp(a));
    ops.get(ops.len() / WHOLE_OF).copied().unwrap_or(0)
}

/// A rank's iterations in a row. Of a rank that lost records those that are whole.
pub(super) fn inside<'a>(
    state: &'a RankState,
    row: (HostTime, HostTime),
    each: &'a [(HostTime, f64)],
) -> impl Iterator<Item = (usize, &'a Iteration)> {
    let list = state.iterations.list();
    let whole = if state.lost > 0 { whole(list.iter().map(|it| it.ops).collect()) } else { 0 };
    same(list.iter(), row, each).filter(move |(_, it)| it.ops >= whole)
}

/// Iterations that ended in a row, or soon after, each with the number of the reference's that it is: ranks end one together within a
/// quarter of it, and take about as long, however long others are.
fn same<'a>(
    list: impl DoubleEndedIterator<Item = &'a Iteration>,
    (start, end): (HostTime, HostTime),
    each: &'a [(HostTime, f64)],
) -> impl Iterator<Item = (usize, &'a Iteration)> {
    let nth = |it: &'a Iteration| (each.partition_point(|(end, _)| *end < ended(it)), it);
    let is_alike = |(nth, it): &(usize, &Iteration)| {
        let ms = each.get(*nth).map_or(0.0, |(_, ms)| *ms);
        (1.0 / ALIKE..=ALIKE).contains(&(it.ns() as f64 / 1e6 / ms.max(1e-3)))
    };
    let ended_inside = list.rev().skip_while(move |it| ended(it) > end).take_while(move |it| ended(it) > start);
    ended_inside.map(nth).filter(is_alike)
}

/// What iterations of a rank tell of a row.
pub(super) fn cells(state: &RankState, row: (HostTime, HostTime), each: &[(HostTime, f64)]) -> Option<Cells> {
    if state.dead_since.is_some() {
        return None;
    }
    let (count, ms) = mean(inside(state, row, each), each)?;
    let [computation, rest, issue, copy, proxy] = ms.map(|ms| ms as f32);
    let ms = [computation, rest, issue, copy, proxy, 0.0, 0.0, 0.0, f32::NAN];
    Some(Cells { ms, measured: (count as f32 / each.len().max(1) as f32).min(1.0) })
}

/// How many iterations of a rank are known, and what it took in each of the row, milliseconds: those that are missing took the same share of
/// their time, and may be longer than others. NaN: of no iteration.
fn mean<'a>(
    known: impl Iterator<Item = (usize, &'a Iteration)>,
    each: &[(HostTime, f64)],
) -> Option<(usize, [f64; OF_ITERATIONS])> {
    let (mut count, mut known_ms, mut ms) = (0, [0.0; OF_ITERATIONS], [0.0; OF_ITERATIONS]);
    for (nth, it) in known {
        count += 1;
        let told = |cell: &Component| it.knows_work || !(cell.is_work() || *cell == Component::Issue);
        for (at, cell) in CELLS[..OF_ITERATIONS].iter().enumerate().filter(|(_, cell)| told(cell)) {
            known_ms[at] += each[nth].1;
            ms[at] += cell.us(it) * 1e3 / it.ns() as f64 * each[nth].1;
        }
    }
    let mean_ms = each.iter().map(|(_, ms)| ms).sum::<f64>() / each.len().max(1) as f64;
    (count > 0).then(|| (count, std::array::from_fn(|at| ms[at] / known_ms[at] * mean_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::NANOS_PER_MS;

    /// Iterations that follow each other and end at these milliseconds.
    fn ending(at_ms: &[u64]) -> Vec<Iteration> {
        let at = |ms: u64| HostTime((10_000 + ms) * NANOS_PER_MS);
        let begins = std::iter::once(0).chain(at_ms.iter().copied());
        begins
            .zip(at_ms)
            .map(|(from, to)| Iteration { start: at(from), end: at(*to), ..Iteration::default() })
            .collect()
    }

    #[test]
    fn a_mean_of_a_quarter_of_the_iterations_varies_twice_as_much() {
        let cells = Cells { measured: 0.25, ..Cells::of(|_| 7.0) };
        assert_eq!((cells.doubt(), Cells::of(|_| 7.0).doubt()), (2.0, 1.0));
    }

    /// Of a rank the short iterations of a row are not known, and it computes for half of the long one: so it does of all.
    #[test]
    fn what_is_known_of_long_iterations_alone_is_no_more_computation() {
        let mut reference = ending(&[100, 200, 300, 1_100]);
        for it in &mut reference {
            (it.compute_us, it.knows_work) = (it.ns() as f64 / 2e3, true);
        }
        let each: Vec<(HostTime, f64)> = reference.iter().map(|it| (it.end, it.ns() as f64 / 1e6)).collect();
        let computed = |from: usize| mean(reference.iter().enumerate().skip(from), &each).map(|(n, ms)| (n, ms[0]));
        assert_eq!((computed(0), computed(3), computed(4)), (Some((4, 137.5)), Some((1, 137.5)), None));
    }

    /// What is not known is not nothing: of iterations without a known beginning the proxy is told, and no computation.
    #[test]
    fn what_no_iteration_tells_is_missing() {
        let mut list = ending(&[100, 200, 300]);
        list.iter_mut().for_each(|it| it.proxy_us = 5_000.0);
        (list[1].compute_us, list[1].knows_work) = (40_000.0, true);
        let each: Vec<(HostTime, f64)> = list.iter().map(|it| (it.end, it.ns() as f64 / 1e6)).collect();
        let told = |list: &[Iteration]| {
            let (_, ms) = mean(list.iter().enumerate(), &each).expect("there are some");
            let mut ms = ms.iter().map(|ms| *ms as f32).chain([0.0; 3]);
            let cells = Cells { ms: std::array::from_fn(|_| ms.next().unwrap_or(0.0)), measured: 1.0 };
            (cells.ms(Component::Computation), cells.ms(Component::Proxy))
        };
        assert_eq!(told(&list), (Some(40.0), Some(5.0)));
        list[1].knows_work = false;
        assert_eq!(told(&list), (None, Some(5.0)));
    }

    /// In one of five iterations somebody pauses for a second: all take as long. One that lost an end seems to take two for one.
    #[test]
    fn an_iteration_is_compared_with_the_same_of_the_reference() {
        let reference = ending(&[200, 400, 1_600, 1_800, 2_000]);
        let each: Vec<(HostTime, f64)> = reference.iter().map(|it| (it.end, it.ns() as f64 / 1e6)).collect();
        let row = (reference[0].start, reference[4].end);
        let numbers = |list: &[Iteration]| {
            let mut numbers: Vec<usize> = same(list.iter(), row, &each).map(|(nth, _)| nth).collect();
            numbers.reverse();
            numbers
        };
        assert_eq!(numbers(&reference), [0, 1, 2, 3, 4]);
        assert_eq!(numbers(&ending(&[190, 405, 1_590, 1_820, 2_010])), [0, 1, 2, 3, 4], "ranks end it a little apart");
        assert_eq!(numbers(&ending(&[200, 400, 1_600, 2_000])), [0, 1, 2], "the last is two");
        assert_eq!(numbers(&ending(&[400, 1_600, 1_800, 2_000])), [2, 3, 4], "the first is two");
    }
}
