//! A requester: asks all ranks of a job on this host to wait, finds the operation before which all can, and lets them go.
//!
//! It works from outside through the segments' files. Whatever ends it, the ranks go on: [`Held`] releases when dropped, and
//! of one that was killed the signs of life stop (`gate`).
mod tasks;

pub use tasks::Order;

use super::ask::{Asker, GateFile, Until, asked_bytes, of_file};
use super::plan::{Lane, Plan, Refusal, View, latest, may_agree, plan};
use super::{HELD_NS_MAX, Left};
use crate::clock::monotonic_ns;
use crate::error::{OpenError, ReadError};
use crate::process::Liveness;
use crate::segment::{SegmentReader, list, owner_of};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

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

/// One rank of the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who {
    /// Its process.
    pub pid: u32,
    /// Its global rank, `u32::MAX` if not told.
    pub rank: u32,
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rank {
            u32::MAX => write!(f, "process {}", self.pid),
            rank => write!(f, "rank {rank} (process {})", self.pid),
        }
    }
}

/// Why ranks are not, or no longer, held. By then all have been let go.
#[derive(Debug, Error)]
pub enum HoldError {
    /// The directory of segments cannot be read.
    #[error("cannot list segments in {path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// No process of the job lives here.
    #[error("no process of job {job:?} has a segment in {path}; is MYCROFT_DIR the job's?")]
    Nobody {
        /// The job.
        job: String,
        /// The directory.
        path: PathBuf,
    },
    /// A segment cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A segment cannot be read or written.
    #[error("cannot reach the gate of {who}: {source}")]
    Reach {
        /// Whose.
        who: Who,
        /// The reason.
        source: ReadError,
    },
    /// Nobody counts the calls of a process.
    #[error("{0} has no gate: start the job with LD_PRELOAD=libmycroft_preload.so")]
    NoGate(Who),
    /// Another requester is at work.
    #[error("{0} is being held by another requester")]
    Busy(Who),
    /// The calls of a rank are not all counted.
    #[error("{0} makes calls that its gate does not count (a communicator of an unknown kind, or too many peers)")]
    Untracked(Who),
    /// A communicator has members on other hosts, or in processes without a gate.
    #[error("communicator {comm:016x} has {members} ranks, {here} of them in gates of this host")]
    Elsewhere {
        /// The communicator.
        comm: u64,
        /// Ranks in it.
        members: u32,
        /// Of them here.
        here: usize,
    },
    /// A rank did not come to the point in time.
    #[error("{0} did not come to where all can wait in time")]
    Missing(Who),
    /// A process ended.
    #[error("{0} ended")]
    Ended(Who),
    /// A process runs no tasks.
    #[error("{0} runs no tests: its libmycroft_preload.so is older, or a test there did not end")]
    Unable(Who),
    /// A rank went on by itself.
    #[error("{0} went on by itself: {1:?}")]
    Left(Who, Left),
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
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let asked_ns = monotonic_ns();
        let length_ns = ns(terms.agree_within).saturating_add(ns(terms.at_most)).min(HELD_NS_MAX);
        let until = Until { deadline_ns: asked_ns.saturating_add(length_ns), lease_ns: ns(LEASE) };
        for rank in &mut self.ranks {
            rank.asker.ask(until, monotonic_ns()).map_err(|source| HoldError::Reach { who: rank.who, source })?;
        }
        let mut pulsed_ns = asked_ns;
        loop {
            let now_ns = monotonic_ns();
            self.look_after(&mut pulsed_ns, now_ns)?;
            let views = self.views()?;
            self.still_here(&views)?;
            match plan(&views) {
                Plan::Agreed => return Ok((until, self.places(views))),
                Plan::GoOn(ranks) => {
                    for i in ranks {
                        let rank = &mut self.ranks[i];
                        rank.asker.grant().map_err(|source| HoldError::Reach { who: rank.who, source })?;
                    }
                }
                Plan::Wait => {}
            }
            if now_ns.saturating_sub(asked_ns) >= ns(terms.agree_within) {
                return Err(self.missing(&views));
            }
            std::thread::sleep(LOOK_EVERY);
        }
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
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let end_ns = monotonic_ns().saturating_add(ns).min(self.until.deadline_ns.saturating_sub(2 * PULSE_NS));
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
