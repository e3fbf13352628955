//! What a thread that waits at the gate does on order: one test at a time, each of bounded length, and back to waiting.
use crate::thread::{pause, this_thread};
use crate::{alone, pair, table};
use mycroft_ring::clock::monotonic_ns;
use mycroft_ring::gate::task::{Answer, Ending, Kind, Task};
use mycroft_ring::gate::{Gate, Look, Waiting};
use mycroft_ring::sync::AtomicU64;

/// Does the task that stands, if it is this thread's, else waits a moment.
pub(crate) fn work(gate: Gate<'static, AtomicU64>, waiting: Waiting) {
    match gate.task(waiting.ticket.epoch()).filter(is_for_this_thread) {
        Some(task) if gate.take(&task) => {
            let stands = || gate.look(waiting.ticket, monotonic_ns(), waiting.since_ns) == Look::Wait;
            let answer = run(gate, &task, &stands);
            if answer.ending == Ending::Endless {
                gate.set_able(false);
            }
            gate.end(&task, &answer);
        }
        _ => pause(),
    }
}

/// A communicator is for the thread that used it last: another may not have come back from its call yet, and the library
/// wants one thread at a time.
fn is_for_this_thread(task: &Task) -> bool {
    let Kind::Pair(way) = task.kind else { return true };
    table::of_id(way.comm).is_none_or(|(_, entry)| matches!(entry.user(), 0) || entry.user() == this_thread())
}

fn run(gate: Gate<'static, AtomicU64>, task: &Task, stands: &dyn Fn() -> bool) -> Answer {
    match task.kind {
        Kind::Device => alone::device(),
        Kind::Copy => alone::copy(),
        Kind::Processor => alone::processor(),
        Kind::Host => alone::host(),
        Kind::Pair(way) => pair::run(gate, task.number, &way, stands),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_ring::gate::task::Times;

    #[test]
    fn checks_of_the_host_measure_something() {
        for (answer, parts) in [(alone::processor(), 3), (alone::host(), 2)] {
            assert_eq!(answer.ending, Ending::Done);
            let is_measured = |times: &Times| times.fastest_ns > 0 && times.median_ns >= times.fastest_ns;
            assert!(answer.values[..parts].iter().all(is_measured), "{answer:?}");
        }
        // Neither a stand-in nor a GPU's driver is loaded here.
        assert_eq!(alone::device().ending, Ending::Unable);
        assert_eq!(alone::copy().ending, Ending::Unable);
    }
}
