//! The test of the way between two ranks (FALCON 4.3, communication validation): messages there and back over the job's own
//! communicator, by NCCL's own functions. The counts of the gate do not see them: both ranks issue the same, or neither.
//!
//! Before each round the two meet (`mycroft_ring::gate::meeting`, on different hosts `mycroft_ring::gate::talk`), which is also
//! where both clocks start; so a requester or a peer that is gone costs the round that is under way and nothing else.
use crate::answer::{REPETITIONS, Repeated, done, ended};
use crate::device::{Device, Memory};
use crate::link::Link;
use crate::meet::{Meet, Waits};
use crate::real::{Comm, Stream, real};
use crate::table;
use crate::thread::pause;
use crate::waited::waited_ns;
use mycroft_probe_core::config::Config;
use mycroft_ring::clock::monotonic_ns;
use mycroft_ring::gate::Gate;
use mycroft_ring::gate::meeting::{Met, Side};
use mycroft_ring::gate::page::Visit;
use mycroft_ring::gate::task::{Answer, Ending, PATIENCE_NS_MAX, Place, Way};
use mycroft_ring::sync::AtomicU64;
use std::ffi::{c_int, c_void};

/// Bytes of a small message.
const SMALL_BYTES: usize = 8;
/// Longest time of one round: a way that moves 400 KB/s. The peer took part in it, so it will end; who waits longer goes on
/// with the job, whose next operations come after this one.
const ROUND_NS_MAX: u64 = 10_000_000_000;
/// Time in which one looks for the other all the time, since the round begins when it sees it.
const BUSY_NS: u64 = 2_000_000;
/// `ncclInt8`.
const INT8: c_int = 0;
/// `ncclInProgress`.
const IN_PROGRESS: c_int = 7;

/// Longest wait for the other where it has to decide about the round: for as long as it may wait itself, and as a round may take.
const DECIDED_NS_MAX: u64 = PATIENCE_NS_MAX + ROUND_NS_MAX;

/// One end of the way.
struct End<'a> {
    comm: Comm,
    peer: c_int,
    side: Side,
    device: &'a Device,
    memory: Memory<'a>,
}

/// Runs the rounds of this rank while the request stands.
pub(crate) fn run(gate: Gate<'static, AtomicU64>, number: u32, way: &Way, stands: &dyn Fn() -> bool) -> Answer {
    let Some((handle, _)) = table::of_id(way.comm) else { return ended(Ending::Unknown) };
    let Ok(peer) = c_int::try_from(way.peer) else { return ended(Ending::Unknown) };
    let bytes = usize::try_from(way.bytes).unwrap_or(usize::MAX);
    let comm: Comm = std::ptr::with_exposed_provenance_mut(handle);
    let Some(device) = Device::open(Some(comm)) else { return ended(Ending::Unable) };
    let Some(memory) = device.memory(bytes) else { return ended(Ending::Unable) };
    let side = match way.place {
        Place::Own | Place::Accept(_) => Side::Keeper,
        Place::Other(..) | Place::Beside(..) | Place::Connect(..) => Side::Guest,
    };
    let end = End { comm, peer, side, device: &device, memory };
    let mut all = [[0; REPETITIONS]; 4];
    let waits = patient(way.patience_ns, stands);
    let sizes = [bytes, SMALL_BYTES.min(bytes)];
    let result =
        at_place(gate, number, way.place, side, &waits, |meeting| rounds(&end, meeting, sizes, &waits, &mut all));
    match result {
        Ok(()) => done(&all),
        Err(ending) => {
            // NCCL may still use it.
            if ending != Ending::Apart {
                end.memory.leave();
            }
            ended(ending)
        }
    }
}

/// Does something at the place of a meeting, if it is there.
fn at_place(
    gate: Gate<'static, AtomicU64>,
    number: u32,
    place: Place,
    side: Side,
    waits: Waits<'_>,
    then: impl FnOnce(&mut dyn Meet) -> Result<(), Ending>,
) -> Result<(), Ending> {
    match place {
        Place::Own => then(&mut gate.meeting(number, side).ok_or(Ending::Apart)?),
        Place::Other(process, descriptor) => visit(Visit::open(process, descriptor), number, side, then),
        Place::Beside(process, inode) => {
            visit(Visit::beside(&Config::from_env().dir, process, inode), number, side, then)
        }
        Place::Accept(remote) => {
            let tell = |port| gate.set_port(number, port);
            then(&mut Link::accept(remote, tell, waits).ok_or(Ending::Apart)?)
        }
        Place::Connect(remote, port) => then(&mut Link::connect(remote, port, waits).ok_or(Ending::Apart)?),
    }
}

/// Does something at the meeting in another process's segment, if that was found.
fn visit(
    visit: Option<Visit>,
    number: u32,
    side: Side,
    then: impl FnOnce(&mut dyn Meet) -> Result<(), Ending>,
) -> Result<(), Ending> {
    let visit = visit.ok_or(Ending::Apart)?;
    let there = Gate::over(visit.words()).ok_or(Ending::Apart)?;
    then(&mut there.meeting(number, side).ok_or(Ending::Apart)?)
}

/// Whether one that waits since then goes on waiting.
fn patient<'a>(patience_ns: u64, stands: &'a dyn Fn() -> bool) -> impl Fn(u64) -> bool + 'a {
    move |since_ns| monotonic_ns().saturating_sub(since_ns) < patience_ns && stands()
}

/// Large messages first, then small ones; what is received is measured first, in `all`, then what is sent.
fn rounds(
    end: &End<'_>,
    meeting: &mut dyn Meet,
    sizes: [usize; 2],
    waits: Waits<'_>,
    all: &mut [Repeated; 4],
) -> Result<(), Ending> {
    let mut round = 0;
    for (size, bytes) in sizes.into_iter().enumerate() {
        for sender in [Side::Keeper, Side::Guest] {
            let sends = sender == end.side;
            let mut times = [0; REPETITIONS + 1];
            let waited_before_ns = waited_ns();
            for time in &mut times {
                meet(meeting, round, !sends, waits)?;
                round += 1;
                let begun_ns = monotonic_ns();
                if let Err(ending) = transfer(end, sends, bytes) {
                    meeting.leave(round);
                    return Err(ending);
                }
                *time = monotonic_ns().saturating_sub(begun_ns);
            }
            let is_the_way = size == 0 || is_the_way(waited_ns().saturating_sub(waited_before_ns), &times);
            if is_the_way {
                all[2 * usize::from(sends) + size].copy_from_slice(&times[1..]);
            }
        }
    }
    Ok(())
}

/// Whether small messages took as long as they did for another reason than that threads of this process waited for a processor:
/// that they did not for half of the time. What is not of the way stays 0.
fn is_the_way(waited_ns: u64, times: &[u64]) -> bool {
    2 * waited_ns < times.iter().sum()
}

/// Waits for the other, for as long as `waits` says, and longer where the other came at the last moment or decides.
fn meet(meeting: &mut dyn Meet, round: u32, receives: bool, waits: Waits<'_>) -> Result<(), Ending> {
    let since_ns = monotonic_ns();
    let mut met = meeting.come(round, receives);
    while met == Met::Alone {
        met = if waits(since_ns) { meeting.look(round) } else { meeting.leave(round) };
        let waited_ns = monotonic_ns().saturating_sub(since_ns);
        if waited_ns < BUSY_NS {
            std::thread::yield_now();
        } else if met == Met::Alone {
            pause();
        }
        if met == Met::Alone && waited_ns > DECIDED_NS_MAX {
            met = Met::Lost;
        }
    }
    match met {
        Met::Both => Ok(()),
        // Whether the other is in this round is not known: no later test of these two can be trusted.
        Met::Lost => Err(Ending::Endless),
        Met::Alone | Met::Closed => Err(Ending::Apart),
    }
}

/// One message, until it has left or arrived. What NCCL asks of arguments holds: a communicator that is there and that no other
/// thread uses, a stream that is never destroyed, and memory that stays until the stream has done with it.
fn transfer(end: &End<'_>, sends: bool, bytes: usize) -> Result<(), Ending> {
    let (buffer, stream) = (end.memory.start(), end.device.stream());
    let begun = real!("ncclGroupStart"()());
    let called = if sends {
        real!("ncclSend" (*const c_void, usize, c_int, c_int, Comm, Stream)
            (buffer.cast_const(), bytes, INT8, end.peer, end.comm, stream))
    } else {
        real!("ncclRecv" (*mut c_void, usize, c_int, c_int, Comm, Stream)
            (buffer, bytes, INT8, end.peer, end.comm, stream))
    };
    let issued = real!("ncclGroupEnd"()());
    let is_ok = |code: c_int| code == 0 || code == IN_PROGRESS;
    if ![begun, called, issued].into_iter().all(is_ok) {
        return Err(Ending::Failed);
    }
    let begun_ns = monotonic_ns();
    while !end.device.is_idle().ok_or(Ending::Endless)? {
        let mut error: c_int = 0;
        let asked = real!("ncclCommGetAsyncError" (Comm, *mut c_int) (end.comm, &raw mut error));
        // The peer is gone, or the message never comes: the buffer may still be in use.
        if !is_ok(asked) || !is_ok(error) || monotonic_ns().saturating_sub(begun_ns) > ROUND_NS_MAX {
            return Err(Ending::Endless);
        }
        std::thread::yield_now();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_waited_for_a_processor_says_nothing_of_the_way() {
        let times = [500_000, 300_000, 200_000];
        assert!(is_the_way(499_999, &times));
        assert!(!is_the_way(500_000, &times));
        assert!(!is_the_way(9_000_000, &times), "several threads at once");
    }
}
