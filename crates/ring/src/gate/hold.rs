//! A requester: asks all ranks of a job on this host to wait, finds the operation before which all can, and lets them go.
//!
//! It works from outside through the segments' files. Whatever ends it, the ranks go on: [`Held`] releases when dropped, and
//! of one that was killed the signs of life stop (`gate`). Of a job on several hosts each has a requester that does as a
//! coordinator says ([`Requester`], [`Hosts`]).
mod error;
mod hosts;
mod requester;
mod tasks;
mod who;

pub use error::HoldError;
pub use hosts::{Exchange, HeldHosts, Hosts};
pub use requester::{Requester, SILENCE};
pub use tasks::Order;
pub use who::Who;

use super::HELD_NS_MAX;
use super::ask::{Asker, GateFile, Until, asked_bytes, of_file};
use super::plan::{Lane, Plan, Refusal, View, latest, may_agree, owes, plan};
use crate::clock::monotonic_ns;
use crate::error::OpenError;
use crate::process::Liveness;
use crate::segment::{SegmentReader, list, owner_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Silence after which ranks go on: a requester says that it lives every 20 ms and may be kept from a busy processor for
/// 25 of these.
const LEASE: Duration = Duration::from_millis(500);
/// Between two looks while ranks come to their gates: about the time in which a rank that waits looks again.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// Between two signs of life.
const PULSE_NS: u64 = 20_000_000;

/// For how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Longest time in which all ranks come to one point; otherwise all go on.
    pub agree_within: Duration,
    /// Longest time that they then wait there.
    pub at_most: Duration,
}

struct Rank {
    who: Who,
    /// Number of its directory.
    directory: usize,
    reader: SegmentReader,
    asker: Asker<GateFile>,
    /// Holds the lock that keeps other requesters out; and is what `asker` has a copy of.
    file: File,
}

/// The gates of a job's processes on this host.
pub struct Gates {
    ranks: Vec<Rank>,
}

/// Where a rank waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Who.
    pub who: Who,
    /// Number of the next operation of each communicator and peer.
    pub next: Vec<Lane>,
}

/// All ranks wait. Ends when dropped.
pub struct Held<'a> {
    gates: &'a mut Gates,
    pulsed_ns: u64,
    until: Until,
    places: Vec<Place>,
}

impl Gates {
    /// Finds the living processes of `job` in a directory of segments and keeps other requesters out of their gates.
    ///
    /// # Errors
    /// Nobody is there, a process has no gate, or another requester is at work.
    pub fn open(directory: &Path, job: &str) -> Result<Gates, HoldError> {
        Gates::open_all(&[directory.to_owned()], job)
    }

    /// As [`Gates::open`], with the segments of several directories: those of emulated hosts on one machine.
    ///
    /// # Errors
    /// As [`Gates::open`].
    pub fn open_all(directories: &[PathBuf], job: &str) -> Result<Gates, HoldError> {
        let mut ranks: Vec<Rank> = Vec::new();
        let mut without = Vec::new();
        for (number, directory) in directories.iter().enumerate() {
            let failed = |source| HoldError::Directory { path: directory.to_owned(), source };
            for path in list(directory).map_err(failed)? {
                let rank = match open(&path, number) {
                    // It ended just now.
                    Err(OpenError::File { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => continue,
                    opened => opened?,
                };
                if rank.reader.header().job != job || rank.reader.liveness() != Liveness::Alive {
                    continue;
                }
                let view = rank.view()?;
                if view.has_gate { ranks.push(rank) } else { without.push(rank.who) }
            }
        }
        // A process may have a second segment of another library.
        let has_gate = |who: &Who| ranks.iter().any(|rank| rank.who.pid == who.pid);
        if let Some(who) = without.into_iter().find(|who| !has_gate(who)) {
            return Err(HoldError::NoGate(who));
        }
        if ranks.is_empty() {
            let path = directories.first().cloned().unwrap_or_default();
            return Err(HoldError::Nobody { job: job.to_owned(), path });
        }
        if let Some(rank) = ranks.iter().find(|rank| !lock(&rank.file)) {
            return Err(HoldError::Busy(rank.who));
        }
        ranks.sort_by_key(|rank| (rank.who.rank, rank.who.pid));
        Ok(Gates { ranks })
    }

    /// Who they are, by rank.
    pub fn ranks(&self) -> impl Iterator<Item = Who> {
        self.ranks.iter().map(|rank| rank.who)
    }

    /// Host name and number of the directory of each, in the same order.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.ranks.iter().map(|rank| (rank.reader.header().host.as_str(), rank.directory))
    }

    /// What each shows, in the same order: its communicators, and how far it is.
    ///
    /// # Errors
    /// A segment cannot be read.
    pub fn shown(&self) -> Result<Vec<View>, HoldError> {
        self.views()
    }

    /// Asks all to wait, and gives them back when they do; where not all come, all go on.
    ///
    /// # Errors
    /// Somebody cannot be held, ended, or did not come in time.
    pub fn hold(&mut self, terms: Terms) -> Result<Held<'_>, HoldError> {
        let views = self.views()?;
        may_agree(&views).map_err(|refusal| self.refused(refusal))?;
        let agreed = self.ask_and_agree(terms);
        if agreed.is_err() {
            self.release();
        }
        let (until, places) = agreed?;
        Ok(Held { gates: self, pulsed_ns: monotonic_ns(), until, places })
    }

    fn ask_and_agree(&mut self, terms: Terms) -> Result<(Until, Vec<Place>), HoldError> {
        let mut pulsed_ns = monotonic_ns();
        let agree_by_ns = pulsed_ns.saturating_add(ns(terms.agree_within));
        let until = self.ask(terms.agree_within.saturating_add(terms.at_most))?;
        loop {
            let views = self.step(&BTreeMap::new(), &mut pulsed_ns)?;
            if plan(&views) == Plan::Agreed {
                return Ok((until, self.places(views)));
            }
            if monotonic_ns() >= agree_by_ns {
                return Err(self.missing(&views));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// From now on every entry of each rank waits, for so long at most.
    fn ask(&mut self, length: Duration) -> Result<Until, HoldError> {
        let deadline_ns = monotonic_ns().saturating_add(ns(length).min(HELD_NS_MAX));
        let until = Until { deadline_ns, lease_ns: ns(LEASE) };
        for rank in &mut self.ranks {
            rank.asker.ask(until, monotonic_ns()).map_err(|source| HoldError::Reach { who: rank.who, source })?;
        }
        Ok(until)
    }

    /// One look: says that the requester lives, and lets those through by one entry that are behind each other, or behind what
    /// is `owed` to ranks elsewhere. What they showed before.
    fn step(&mut self, owed: &BTreeMap<usize, Vec<Lane>>, pulsed_ns: &mut u64) -> Result<Vec<View>, HoldError> {
        self.look_after(pulsed_ns, monotonic_ns())?;
        let views = self.views()?;
        self.still_here(&views)?;
        let mut go_on = match plan(&views) {
            Plan::GoOn(ranks) => ranks,
            Plan::Agreed | Plan::Wait => BTreeSet::new(),
        };
        let is_late = |(i, owed): (&usize, &Vec<Lane>)| {
            let view = views.get(*i).filter(|view| view.waiting && owes(view, owed));
            view.map(|_| *i)
        };
        go_on.extend(owed.iter().filter_map(is_late));
        for i in go_on {
            let rank = &mut self.ranks[i];
            rank.asker.grant().map_err(|source| HoldError::Reach { who: rank.who, source })?;
        }
        Ok(views)
    }

    /// Says that the requester lives, and looks whether the ranks do.
    fn look_after(&self, pulsed_ns: &mut u64, now_ns: u64) -> Result<(), HoldError> {
        if now_ns.saturating_sub(*pulsed_ns) < PULSE_NS {
            return Ok(());
        }
        *pulsed_ns = now_ns;
        for rank in &self.ranks {
            rank.asker.pulse(now_ns).map_err(|source| HoldError::Reach { who: rank.who, source })?;
            if !matches!(rank.reader.liveness(), Liveness::Alive | Liveness::Unknown) {
                return Err(HoldError::Ended(rank.who));
            }
        }
        Ok(())
    }

    fn still_here(&self, views: &[View]) -> Result<(), HoldError> {
        for (rank, view) in self.ranks.iter().zip(views) {
            if let Some(left) = view.left {
                return Err(HoldError::Left(rank.who, left));
            }
            if view.untracked > 0 {
                return Err(HoldError::Untracked(rank.who));
            }
        }
        Ok(())
    }

    fn views(&self) -> Result<Vec<View>, HoldError> {
        self.ranks.iter().map(Rank::view).collect()
    }

    fn places(&self, views: Vec<View>) -> Vec<Place> {
        self.ranks.iter().zip(views).map(|(rank, view)| Place { who: rank.who, next: view.lanes }).collect()
    }

    fn missing(&self, views: &[View]) -> HoldError {
        HoldError::Missing(self.ranks[latest(views).unwrap_or(0)].who)
    }

    fn refused(&self, refusal: Refusal) -> HoldError {
        match refusal {
            Refusal::Untracked { view } => HoldError::Untracked(self.ranks[view].who),
            Refusal::Elsewhere { comm, members, here } => HoldError::Elsewhere { comm, members, here },
        }
    }

    /// Everybody goes on; who cannot be reached does so at the end of the lease.
    fn release(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.asker.release();
        }
    }
}

impl Held<'_> {
    /// Where each rank waits, by rank.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Keeps all where they are for so long, or to the end of the terms.
    ///
    /// # Errors
    /// A rank ended or went on: all are let go.
    pub fn keep(&mut self, time: Duration) -> Result<(), HoldError> {
        let end_ns = monotonic_ns().saturating_add(ns(time)).min(self.until.deadline_ns.saturating_sub(2 * PULSE_NS));
        while monotonic_ns() < end_ns {
            self.gates.look_after(&mut self.pulsed_ns, monotonic_ns())?;
            let views = self.gates.views()?;
            self.gates.still_here(&views)?;
            let moved = views.iter().zip(&self.places).position(|(view, place)| view.lanes != place.next);
            if let Some(i) = moved {
                return Err(HoldError::Missing(self.gates.ranks[i].who));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.gates.release();
    }
}

impl Rank {
    fn view(&self) -> Result<View, HoldError> {
        self.asker.view().map_err(|source| HoldError::Reach { who: self.who, source })
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Opens a segment for asking: never through a link, never waiting for a pipe, checked as a reader's.
fn open(path: &Path, directory: usize) -> Result<Rank, OpenError> {
    let failed = |source| OpenError::File { path: path.to_owned(), source };
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).map_err(failed)?;
    let copy = || file.try_clone().map_err(failed);
    let reader = SegmentReader::over(copy()?, path, owner_of(path)?)?;
    let (process, rank) = (reader.header().process, reader.header().rank);
    Ok(Rank { who: Who { pid: process.pid, rank }, directory, asker: of_file(copy()?), reader, file })
}

/// Locks the words that a requester writes, for as long as the file is open; whether nobody else had.
fn lock(file: &File) -> bool {
    let (start, bytes) = asked_bytes();
    // SAFETY: an all-zero flock is valid: from the begin, of any length, of no process.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::c_short::try_from(libc::F_WRLCK).unwrap_or_default();
    (lock.l_start, lock.l_len) = (start, bytes);
    // SAFETY: a struct to read, and a descriptor that is open.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    rc == 0
}
