//! Where the time of iterations went, for whoever shows it: each iteration of a rank is divided into parts that together are
//! the iteration (FALCON 4.3 compares them; the division itself is ours).
//!
//! A rank computes and issues while it communicates not, and the rest of its iteration it is in an operation. There the
//! copies, the proxy threads and the wire work side by side, so that what each took (`took`) may be more than the iteration.
//! What of it lies in the iteration's length (`exposed`) is cut in this order, copy, proxy, wire, to what is left in
//! operations; what is left then is waiting for other ranks.
use crate::measure::{Cells, Component, Role, Row, Way};
use crate::timeline::{RankState, Timeline};
use mycroft_record::{HostName, HostTime, Rank};

/// Rows that wait to be taken, at most: a minute of them, 64 x (48 B x ranks + 72 B x ways), 31 MB and some
/// 8 MB for ways at 10,240 ranks on 1,280 hosts.
const UNTAKEN_MAX: usize = 64;

/// A part of an iteration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The device is busy with something else than communication.
    Computation,
    /// The device idles because the host issued late.
    Issue,
    /// Copies into and out of the transport's slots.
    Copy,
    /// The proxy thread passed on late what was delivered, or handed over late what was ready.
    Proxy,
    /// What the rank sends is on its way to other hosts, on the link where that is longest.
    Wire,
    /// In an operation, for none of the reasons above: for others.
    Waiting,
}

impl Part {
    /// All parts, in the order of [`Spent::exposed_ms`].
    pub const ALL: [Part; 6] = [Part::Computation, Part::Issue, Part::Copy, Part::Proxy, Part::Wire, Part::Waiting];
    /// Those that are a rank's own: all but waiting.
    pub const OWN: usize = 5;

    /// A word for it.
    pub fn word(self) -> &'static str {
        match self {
            Part::Computation => "computation",
            Part::Issue => "issue",
            Part::Copy => "copy",
            Part::Proxy => "proxy",
            Part::Wire => "wire",
            Part::Waiting => "waiting",
        }
    }
}

/// Where the time of one rank went, milliseconds per iteration, by [`Part::ALL`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spent {
    /// What each of its own parts took, also what other parts hid.
    pub took_ms: [f32; Part::OWN],
    /// What of it is in the length of the iteration; the six are the iteration.
    pub exposed_ms: [f32; Part::ALL.len()],
}

impl Spent {
    /// Divides an iteration, of which a rank's parts took so long. `awaited_ms`: what of the wire's time somebody waited for.
    fn of(iteration_ms: f64, took_ms: [f64; Part::OWN], awaited_ms: f64) -> Spent {
        let mut left = iteration_ms;
        let mut exposed_ms = [0.0; Part::ALL.len()];
        let mut wanted = took_ms;
        wanted[Part::OWN - 1] = awaited_ms;
        for (exposed, wanted) in exposed_ms.iter_mut().zip(wanted) {
            let part = wanted.clamp(0.0, left);
            left -= part;
            *exposed = part as f32;
        }
        exposed_ms[Part::OWN] = left as f32;
        Spent { took_ms: took_ms.map(|ms| ms.max(0.0) as f32), exposed_ms }
    }
}

/// About a second of a job.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stretch {
    /// When its first iteration began.
    pub start: HostTime,
    /// When its last one ended.
    pub end: HostTime,
    /// End and length, milliseconds, of each of its iterations, of the rank by which the job is measured.
    pub iterations: Vec<(HostTime, f64)>,
    /// By place in [`Measured::ranks`]; `None`: records are missing.
    pub ranks: Vec<Option<Spent>>,
    /// What went between hosts, by sender and receiver.
    pub ways: Vec<Carried>,
}

/// What went from one host to another.
#[derive(Clone, PartialEq, Debug)]
pub struct Carried {
    /// The sender.
    pub from: HostName,
    /// The receiver.
    pub to: HostName,
    /// For how long data was on its way, milliseconds per iteration: the mean of the links that carry most.
    pub sent_ms: f32,
    /// Megabytes per iteration.
    pub mb: f32,
}

/// A rank as it is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seat {
    /// The rank; may be [`Rank::UNKNOWN`].
    pub rank: Rank,
    /// Its host.
    pub host: HostName,
    /// Ranks with the same number do the same work by design.
    pub peers: u32,
}

/// What was measured of a job since the last time it was asked for.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Measured {
    /// Its ranks.
    pub ranks: Vec<Seat>,
    /// Oldest first. Nobody who takes them once a minute misses one.
    pub stretches: Vec<Stretch>,
}

impl Measured {
    /// Adds rows that are complete.
    pub(crate) fn add(&mut self, timeline: &Timeline, roles: &[Role], rows: &[Row]) {
        let seat = |(slot, state): (usize, &RankState)| {
            let peers = roles.get(slot).map_or(0, |role| role.as_number());
            Seat { rank: state.rank, host: state.host.clone(), peers }
        };
        self.ranks = timeline.ranks.by_slot().iter().enumerate().map(seat).collect();
        self.stretches.extend(rows.iter().map(stretch));
        let over = self.stretches.len().saturating_sub(UNTAKEN_MAX);
        self.stretches.drain(..over);
    }
}

fn stretch(row: &Row) -> Stretch {
    let of = |(slot, cells): (usize, &Option<Cells>)| {
        let ms = |component| cells.as_ref().map(|cells| cells.ms(component).unwrap_or(0.0));
        let sent = row.sent.get(slot).copied().unwrap_or_default();
        let proxy_ms = ms(Component::Proxy)? + ms(Component::Handover)?;
        let took_ms =
            [ms(Component::Computation)?, ms(Component::Issue)?, ms(Component::Copy)?, proxy_ms, sent.sent_ms];
        Some(Spent::of(row.iteration_ms, took_ms, sent.awaited_ms))
    };
    let ranks = row.ranks.iter().enumerate().map(of).collect();
    let carried = |((from, to), way): (&(HostName, HostName), &Way)| {
        let (from, to) = (from.clone(), to.clone());
        Carried { from, to, sent_ms: way.sent_ms as f32, mb: way.mb as f32 }
    };
    let ways = row.ways.iter().map(carried).collect();
    Stretch { start: row.start, end: row.end, iterations: row.each.clone(), ranks, ways }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        /// Whatever was measured, the parts are the iteration, and none is more than it took.
        #[test]
        fn the_parts_are_the_iteration(ms in 0.1f64..10_000.0, took in prop::array::uniform5(0.0f64..8_000.0), awaited in 0.0f64..1.0) {
            let spent = Spent::of(ms, took, took[4] * awaited);
            let sum: f64 = spent.exposed_ms.iter().map(|part| f64::from(*part)).sum();
            prop_assert!((sum - ms).abs() < 1e-4 * ms, "{sum} of {ms}");
            prop_assert!(spent.exposed_ms.iter().all(|part| *part >= 0.0), "{spent:?}");
            prop_assert!(spent.exposed_ms.iter().zip(spent.took_ms).all(|(exposed, took)| *exposed <= took), "{spent:?}");
        }
    }
}
