//! Tasks: what a rank that waits at the gate is asked to do, one at a time (FALCON 4.3, validation). The requester writes a
//! number last; a thread of the rank that waits takes it, does it, and writes how it ended.
use super::words::{GATE_WORDS, TASK_VALUES, gate, task};
use super::{Gate, meeting};
use crate::narrow::low;
use crate::raw::{halves, high};
use crate::sync::{Ordering, Word};
use std::net::Ipv6Addr;

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Products of matrices on the device: three values, one for each size.
    Device,
    /// Copies from the device to the host: one value.
    Copy,
    /// Products of matrices on the processor: three values.
    Processor,
    /// Two values: copies in the host's memory, and how late a thread wakes up.
    Host,
    /// Messages over a way between two ranks: large and small ones received, then large and small ones sent.
    Pair(Way),
}

/// The way between two ranks, and where they meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Way {
    /// The communicator's number.
    pub comm: u64,
    /// The other's rank in it.
    pub peer: u32,
    /// Where they meet.
    pub place: Place,
    /// Bytes of a large message.
    pub bytes: u64,
    /// How long one waits for the other, nanoseconds.
    pub patience_ns: u64,
}

/// Where a pair meets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// In this rank's own segment.
    Own,
    /// In the other's segment: the requester's process, and its descriptor of it.
    Other(u32, u32),
    /// In the other's segment, which lies in the same directory as this rank's: the process in its name, and the lower half of its
    /// inode number. For a requester of another user, whose descriptors a rank may not open.
    Beside(u32, u32),
    /// Over a connection that this rank accepts.
    Accept(Remote),
    /// Over one that it opens, to this port.
    Connect(Remote, u16),
}

/// A connection between two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Where it is accepted; of IPv4 as IPv6 has it.
    pub address: Ipv6Addr,
    /// What whoever connects says first.
    pub nonce: u64,
}

impl Place {
    fn code(self) -> u32 {
        match self {
            Place::Own => 0,
            Place::Other(..) => 1,
            Place::Accept(_) => 2,
            Place::Connect(..) => 3,
            Place::Beside(..) => 4,
        }
    }

    fn remote(self) -> Option<Remote> {
        match self {
            Place::Own | Place::Other(..) | Place::Beside(..) => None,
            Place::Accept(remote) | Place::Connect(remote, _) => Some(remote),
        }
    }

    /// The word [`task::PLACE`].
    fn word(self) -> u64 {
        match self {
            Place::Own | Place::Accept(_) => 0,
            Place::Other(process, descriptor) => halves(process, descriptor),
            Place::Beside(process, inode) => halves(process, inode),
            Place::Connect(_, port) => u64::from(port),
        }
    }

    /// From the words: what there is in addition to the code and the place.
    fn of(code: u32, place: u64, [upper, lower, nonce]: [u64; 3]) -> Option<Place> {
        let address = Ipv6Addr::from_bits(u128::from(upper) << 64 | u128::from(lower));
        let remote = Remote { address, nonce };
        match code {
            0 => Some(Place::Own),
            1 => Some(Place::Other(low(place), high(place))),
            2 => Some(Place::Accept(remote)),
            3 => Some(Place::Connect(remote, u16::try_from(place).ok()?)),
            4 => Some(Place::Beside(low(place), high(place))),
            _ => None,
        }
    }
}

/// Bytes of a large message at most: what a rank keeps room for.
pub const MESSAGE_BYTES_MAX: u64 = 4 << 20;
/// Longest wait for the other: a tenth of the time that ranks are held at most.
pub const PATIENCE_NS_MAX: u64 = super::HELD_NS_MAX / 10;

/// A task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Task {
    /// Its number; grows from one to the next in every segment.
    pub number: u32,
    /// What to do.
    pub kind: Kind,
}

/// How a task ended; the number is in the segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Ending {
    /// Done: the values say how long it took.
    Done = 1,
    /// This process has nothing to do it with: no device that the library knows, or memory of a kind it cannot get.
    Unable = 2,
    /// The communicator is not there.
    Unknown = 3,
    /// The two did not meet.
    Apart = 4,
    /// A call of the collective library failed.
    Failed = 5,
    /// It took too long. No thread of this process does a task any more.
    Endless = 6,
}

impl Ending {
    /// The ending with this number; one this version does not know is a failure.
    pub fn from_code(code: u32) -> Ending {
        match code {
            1 => Ending::Done,
            2 => Ending::Unable,
            3 => Ending::Unknown,
            4 => Ending::Apart,
            6 => Ending::Endless,
            _ => Ending::Failed,
        }
    }
}

/// Shortest and middle time of something that was done several times, nanoseconds; 0 where nothing was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// The shortest.
    pub fastest_ns: u32,
    /// The one in the middle.
    pub median_ns: u32,
}

/// What a rank answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// How it ended.
    pub ending: Ending,
    /// What it measured, in the order that [`Kind`] says.
    pub values: [Times; TASK_VALUES],
}

/// The words of a task as the requester writes them, without the number, and the epoch for which it stands.
pub(crate) fn written(kind: Kind, epoch: u32) -> [(usize, u64); 9] {
    let (code, way) = match kind {
        Kind::Device => (1, None),
        Kind::Copy => (2, None),
        Kind::Processor => (3, None),
        Kind::Host => (4, None),
        Kind::Pair(way) => (5, Some(way)),
    };
    let of = |value: fn(&Way) -> u64| way.as_ref().map_or(0, value);
    let remote = way.and_then(|way| way.place.remote());
    let address = remote.map_or([0; 16], |remote| remote.address.octets());
    let part = |i: usize| address.as_chunks().0.get(i).map_or(0, |part| u64::from_be_bytes(*part));
    [
        (task::WHAT, halves(code, epoch)),
        (task::COMM, of(|way| way.comm)),
        (task::PEER, of(|way| halves(way.peer, way.place.code()))),
        (task::PLACE, of(|way| way.place.word())),
        (task::ADDRESS, part(0)),
        (task::ADDRESS + 1, part(1)),
        (task::NONCE, remote.map_or(0, |remote| remote.nonce)),
        (task::BYTES, of(|way| way.bytes)),
        (task::PATIENCE, of(|way| way.patience_ns)),
    ]
}

fn kind_of(word: impl Fn(usize) -> u64) -> Option<Kind> {
    let peer = word(task::PEER);
    let remote = || [task::ADDRESS, task::ADDRESS + 1, task::NONCE].map(&word);
    let way = || {
        Some(Way {
            comm: word(task::COMM),
            peer: low(peer),
            place: Place::of(high(peer), word(task::PLACE), remote())?,
            bytes: word(task::BYTES).clamp(1, MESSAGE_BYTES_MAX),
            patience_ns: word(task::PATIENCE).min(PATIENCE_NS_MAX),
        })
    };
    match low(word(task::WHAT)) {
        1 => Some(Kind::Device),
        2 => Some(Kind::Copy),
        3 => Some(Kind::Processor),
        4 => Some(Kind::Host),
        5 => way().map(Kind::Pair),
        _ => None,
    }
}

/// What a requester reads of a segment's tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The library runs tasks.
    pub is_able: bool,
    /// The largest number of a task that anybody wrote here.
    pub newest: u32,
    /// Number of the task that ended last, and its answer.
    pub ended: (u32, Answer),
}

/// From the words of a task, [`task::NUMBER`] first.
pub(crate) fn progress_of(words: &[u64; GATE_WORDS - (task::NUMBER - gate::GRANT)]) -> Progress {
    let word = |at: usize| words[at - task::NUMBER];
    let ended = word(task::ENDED);
    let value = |i: usize| Times { fastest_ns: low(word(task::VALUES + i)), median_ns: high(word(task::VALUES + i)) };
    let answer = Answer { ending: Ending::from_code(low(ended)), values: std::array::from_fn(value) };
    let newest = low(word(task::NUMBER)).max(low(word(task::TAKEN))).max(high(ended)).max(high(word(task::MEETING)));
    Progress { is_able: word(task::ABLE) == 1, newest, ended: (high(ended), answer) }
}

impl<'a, W: Word> Gate<'a, W> {
    fn task_word(&self, at: usize) -> Option<&'a W> {
        self.words.get(at - gate::GRANT)
    }

    /// Says whether this process runs tasks.
    pub fn set_able(&self, is_able: bool) {
        if let Some(word) = self.task_word(task::ABLE) {
            word.store(u64::from(is_able), Ordering::Release);
        }
    }

    /// The task that stands for the request of this epoch, if no thread has taken it.
    pub fn task(&self, epoch: u32) -> Option<Task> {
        let load = |at: usize, order| self.task_word(at).map_or(0, |word| word.load(order));
        let number = low(load(task::NUMBER, Ordering::Acquire));
        if number <= low(load(task::TAKEN, Ordering::Acquire)) || load(task::ABLE, Ordering::Relaxed) != 1 {
            return None;
        }
        let kind = kind_of(|at| load(at, Ordering::Relaxed));
        let is_of = high(load(task::WHAT, Ordering::Relaxed)) == epoch;
        W::fence(Ordering::Acquire);
        let is_whole = low(load(task::NUMBER, Ordering::Relaxed)) == number;
        kind.filter(|_| is_of && is_whole).map(|kind| Task { number, kind })
    }

    /// Takes a task for the calling thread; whether no other had.
    pub fn take(&self, task: &Task) -> bool {
        let Some(word) = self.task_word(task::TAKEN) else { return false };
        let was = word.load(Ordering::Acquire);
        low(was) < task.number && word.swap_if(was, u64::from(task.number))
    }

    /// How a task ended.
    pub fn end(&self, task: &Task, answer: &Answer) {
        for (i, times) in answer.values.iter().enumerate() {
            if let Some(word) = self.task_word(task::VALUES + i) {
                word.store(halves(times.fastest_ns, times.median_ns), Ordering::Relaxed);
            }
        }
        if let Some(word) = self.task_word(task::ENDED) {
            word.store(halves(answer.ending as u32, task.number), Ordering::Release);
        }
    }

    /// Says at which port a task of this rank accepts a connection.
    pub fn set_port(&self, number: u32, port: u16) {
        if let Some(word) = self.task_word(task::PORT) {
            word.store(halves(u32::from(port), number), Ordering::Release);
        }
    }

    /// The meeting of a task at this gate, whose segment is the keeper's.
    pub fn meeting(&self, number: u32, side: meeting::Side) -> Option<meeting::Meeting<'a, W>> {
        self.task_word(task::MEETING).map(|word| meeting::Meeting::at(word, number, side))
    }
}
