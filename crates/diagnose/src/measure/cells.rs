//! What a rank took in a row: components, and from which of its iterations.
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
    /// Copies into and out of the transport's slots.
    Copy,
    /// Copies from the rank by which a ring comes into a host to the one by which it goes out, which its flows do not show:
    /// they wait at both ends.
    Through,
    /// The proxy thread passed on late what was delivered.
    Proxy,
    /// Data lay ready on links from the rank, and was awaited, without being handed over: a proxy thread that is late.
    Handover,
    /// Data was on its way between hosts.
    Wire,
    /// Threads of a host that could run waited for a processor.
    Waiting,
    /// The iteration itself.
    Iteration,
}

/// Those that are a rank's, in the order of its cells.
pub(crate) const CELLS: [Component; 7] = [
    Component::Computation,
    Component::Rest,
    Component::Issue,
    Component::Copy,
    Component::Proxy,
    Component::Handover,
    Component::Through,
];

/// Of these what iterations of a rank tell.
const OF_ITERATIONS: usize = 5;

impl Component {
    /// What an iteration of a rank took of it, microseconds; 0 of what iterations do not tell.
    pub(crate) fn us(self, it: &Iteration) -> f64 {
        match self {
            Component::Computation => it.compute_us,
            Component::Rest => it.compute_us - f64::from(it.compute_max_us),
            Component::Issue => it.host_us,
            Component::Copy => it.copy_us + f64::from(it.out.us.min(it.out.first_us)),
            Component::Proxy => it.proxy_us,
            Component::Through | Component::Handover | Component::Wire | Component::Waiting | Component::Iteration => {
                0.0
            }
        }
    }

    /// Whether more of it for all is so many times as long, and not so much longer.
    pub(crate) fn is_work(self) -> bool {
        matches!(self, Component::Computation | Component::Rest)
    }
}

/// What a rank took in a row, milliseconds per iteration of the reference, in the order of [`CELLS`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Cells([f32; CELLS.len()]);

impl Cells {
    /// A rank that takes so many milliseconds for each component.
    #[cfg(test)]
    pub(crate) fn of(ms: impl Fn(Component) -> f64) -> Cells {
        Cells(CELLS.map(|component| ms(component) as f32))
    }

    /// Takes in what ways through its host cost more.
    pub(super) fn add_through(&mut self, ms: f64) {
        self.0[CELLS.len() - 1] += ms as f32;
    }

    /// Milliseconds of a component of a rank; 0 of others.
    pub(crate) fn ms(&self, component: Component) -> f64 {
        CELLS.iter().position(|cell| *cell == component).map_or(0.0, |at| f64::from(self.0[at]))
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

/// A rank's iterations that ended in a row, or soon after: ranks end one together within a quarter of it, and those that do not are
/// measured up to their own end. Of one that lost records those that are whole.
pub(super) fn inside(
    state: &RankState,
    (start, end): (HostTime, HostTime),
    iteration_ms: f64,
) -> impl Iterator<Item = &Iteration> {
    let list = state.iterations.list();
    let whole = if state.lost > 0 { whole(list.iter().map(|it| it.ops).collect()) } else { 0 };
    let is_alike =
        move |it: &Iteration| (1.0 / ALIKE..=ALIKE).contains(&(it.ns() as f64 / 1e6 / iteration_ms.max(1e-3)));
    let ended_inside = list.iter().rev().skip_while(move |it| ended(it) > end).take_while(move |it| ended(it) > start);
    ended_inside.filter(move |it| it.ops >= whole && is_alike(it))
}

/// What a rank took in a row.
pub(super) fn cells(
    state: &RankState,
    (start, end): (HostTime, HostTime),
    iteration_ms: f64,
    held_ms: f64,
) -> Option<Cells> {
    if state.dead_since.is_some() {
        return None;
    }
    let (mut ns, mut us) = (0, [0.0; OF_ITERATIONS]);
    for it in inside(state, (start, end), iteration_ms) {
        ns += it.ns();
        us.iter_mut().zip(CELLS).for_each(|(sum, cell)| *sum += cell.us(it));
    }
    if ns == 0 {
        return None;
    }
    let [computation, rest, issue, copy, proxy] = us.map(|us| (us * 1e3 / ns as f64 * iteration_ms) as f32);
    Some(Cells([computation, rest, issue, copy, proxy, held_ms as f32, 0.0]))
}
