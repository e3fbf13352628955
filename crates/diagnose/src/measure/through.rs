//! What a ring's way through a host costs: from the rank that receives from another host over those that hand on inside the
//! host, unseen, to the rank that sends to the next one. A copy in between is slow when both ends wait for it: data lies
//! before the entry, and slots at the exit stay empty. Upstream of it slots are full, downstream no data comes. Whether the
//! exit itself is slow its own data tells, which waits for nobody: that is a copy of its own (`Component::us`).
use super::cells::{Cells, inside};
use crate::timeline::{RankState, Timeline};
use mycroft_record::{CommId, HostName, HostTime};
use std::collections::BTreeMap;

/// Both ends of a communicator's ways through a host: slots, and for how long the end waited, milliseconds per iteration.
#[derive(Default)]
struct Ends {
    entries: Vec<(usize, f64)>,
    /// .. less what it waited for data of its own.
    exits: Vec<f64>,
}

impl Ends {
    /// The entry of the way that costs most, and what it costs.
    fn worst(&self) -> Option<(usize, f64)> {
        let pairs = self.entries.iter().flat_map(|(slot, into)| self.exits.iter().map(|out| (*slot, into.min(*out))));
        pairs.filter(|(_, ms)| *ms > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
    }
}

/// What ways through hosts cost, milliseconds per iteration. Of two members on a host the entry is slow, to whose cells it is added; of
/// more any of them but the exit may be: then it is the host's, the most of one communicator, by host whose ranks are measured.
pub(super) fn add(
    timeline: &Timeline,
    row: (HostTime, HostTime),
    each: &[(HostTime, f64)],
    cells: &mut [Option<Cells>],
) -> BTreeMap<HostName, f64> {
    let measured = timeline.ranks.by_slot().iter().zip(cells.iter()).filter(|(_, cells)| cells.is_some());
    let mut of_host: BTreeMap<HostName, f64> = measured.map(|(state, _)| (state.host.clone(), 0.0)).collect();
    let mut all: BTreeMap<(&HostName, CommId), Ends> = BTreeMap::new();
    for (slot, state) in timeline.ranks.by_slot().iter().enumerate() {
        let Some(of) = Waited::of(state, row, each) else { continue };
        if let Some((comm, ms)) = of.into {
            all.entry((&state.host, comm)).or_default().entries.push((slot, ms));
        }
        if let Some((comm, ms)) = of.out {
            all.entry((&state.host, comm)).or_default().exits.push(ms);
        }
    }
    for ((host, comm), ends) in &all {
        let Some((entry, ms)) = ends.worst() else { continue };
        match (&mut cells[entry], of_host.get_mut(*host)) {
            (Some(cells), _) if members(timeline, host, *comm) <= 2 => cells.add_through(ms),
            (_, Some(most_ms)) => *most_ms = ms.max(*most_ms),
            _ => {}
        }
    }
    of_host
}

/// How many members a communicator has on a host.
fn members(timeline: &Timeline, host: &HostName, comm: CommId) -> usize {
    let Some(comm) = timeline.comms.get(&comm) else { return 0 };
    let slots = comm.members.values().filter_map(|rank| timeline.ranks.slot(*rank));
    slots.filter(|slot| timeline.ranks.at(*slot).host == *host).count()
}

/// For how long a rank's ends of ways waited in a row, milliseconds per iteration, and of which communicator they are.
#[derive(Default)]
struct Waited {
    into: Option<(CommId, f64)>,
    out: Option<(CommId, f64)>,
}

impl Waited {
    fn of(state: &RankState, row: (HostTime, HostTime), each: &[(HostTime, f64)]) -> Option<Waited> {
        let (mut count, mut into_ms, mut out_ms) = (0, 0.0, 0.0);
        let (mut entry, mut exit) = (None, None);
        for (nth, it) in inside(state, row, each) {
            count += 1;
            let ms = |us: f32| f64::from(us) * 1e3 / it.ns() as f64 * each[nth].1;
            let comm = |counter: u16| state.past.counter(counter).0;
            if it.into.us > 0.0 {
                into_ms += ms(it.into.us);
                entry.get_or_insert(comm(it.into.counter));
            }
            if it.out.us > 0.0 {
                out_ms += ms((it.out.us - it.out.first_us).max(0.0));
                exit.get_or_insert(comm(it.out.counter));
            }
        }
        let mean = |ms: f64| ms / f64::from(count);
        let (into, out) = (entry.map(|comm| (comm, mean(into_ms))), exit.map(|comm| (comm, mean(out_ms))));
        (count > 0).then_some(Waited { into, out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upstream of a slow part slots are full, downstream of it no data comes: only a way whose two ends wait is slow itself.
    #[test]
    fn a_way_costs_what_both_its_ends_wait() {
        let worst =
            |entries: &[(usize, f64)], exits: &[f64]| Ends { entries: entries.to_vec(), exits: exits.to_vec() }.worst();
        assert_eq!(worst(&[(2, 90.0)], &[70.0]), Some((2, 70.0)));
        assert_eq!(worst(&[(2, 90.0)], &[0.0]), None, "what comes in waits for what does not go out");
        assert_eq!(worst(&[(2, 90.0)], &[]), None);
        assert_eq!(
            worst(&[(2, 10.0), (3, 40.0)], &[30.0, 5.0]),
            Some((3, 30.0)),
            "of two ways the one that costs more"
        );
    }
}
