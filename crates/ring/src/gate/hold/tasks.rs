//! Tasks of ranks that are held: ordered together, and waited for together.
use super::{Gates, Held, HoldError, LOOK_EVERY, Rank, ns};
use crate::clock::monotonic_ns;
use crate::gate::task::{Answer, Kind, Place, Progress, Way};
use crate::narrow::low;
use crate::process::effective_user;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// What is ordered; ranks are their places among those that are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// A task of one rank; of a way between hosts each of its ranks has one.
    Alone {
        /// Who.
        rank: usize,
        /// What.
        kind: Kind,
    },
    /// The way between two ranks that have one requester.
    Pair {
        /// The one in whose segment they meet, and its rank in the communicator.
        keeper: (usize, u32),
        /// The other.
        guest: (usize, u32),
        /// The communicator.
        comm: u64,
        /// Bytes of a large message.
        bytes: u64,
        /// How long one waits for the other.
        patience: Duration,
    },
}

impl Held<'_> {
    /// Orders these tasks at once, at most one of a rank, and gives the answers by rank when all have answered or the time is
    /// over: who is not among them did not.
    ///
    /// # Errors
    /// A rank ended, went on, or runs no tasks: all are let go.
    pub fn run(&mut self, orders: &[Order], within: Duration) -> Result<BTreeMap<usize, Answer>, HoldError> {
        let (number, ordered) = self.gates.order(orders)?;
        let mut answers = BTreeMap::new();
        let end_ns = monotonic_ns().saturating_add(ns(within));
        while answers.len() < ordered.len() && monotonic_ns() < end_ns {
            self.gates.look_after(&mut self.pulsed_ns, monotonic_ns())?;
            self.gates.still_here(&self.gates.views()?)?;
            for rank in ordered.iter().filter(|rank| !answers.contains_key(*rank)).copied().collect::<Vec<_>>() {
                let Some(of) = self.gates.ranks.get(rank) else { continue };
                let (ended, answer) = of.progress()?.ended;
                if ended == number {
                    answers.insert(rank, answer);
                }
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(answers)
    }
}

impl Gates {
    /// Orders these tasks: their number, and whose they are.
    pub(super) fn order(&self, orders: &[Order]) -> Result<(u32, BTreeSet<usize>), HoldError> {
        let progress = self.ranks.iter().map(Rank::progress).collect::<Result<Vec<Progress>, HoldError>>()?;
        let newest = progress.iter().map(|progress| progress.newest).max().unwrap_or(0);
        // Whoever wrote the largest number there is keeps tasks from this job, and nothing else.
        let number = newest.saturating_add(1);
        let kinds: BTreeMap<usize, Kind> = orders.iter().flat_map(|order| self.kinds(order)).collect();
        for (&rank, &kind) in &kinds {
            let Some(of) = self.ranks.get(rank) else { continue };
            if !progress.get(rank).is_some_and(|progress| progress.is_able) || number == newest {
                return Err(HoldError::Unable(of.who));
            }
            of.asker.order(number, kind).map_err(|source| HoldError::Reach { who: of.who, source })?;
        }
        Ok((number, kinds.into_keys().collect()))
    }

    /// What an order says to each of its ranks.
    fn kinds(&self, order: &Order) -> Vec<(usize, Kind)> {
        match *order {
            Order::Alone { rank, kind } => vec![(rank, kind)],
            Order::Pair { keeper, guest, comm, bytes, patience } => {
                let way = |peer: u32, place| Kind::Pair(Way { comm, peer, place, bytes, patience_ns: ns(patience) });
                let place = self.ranks.get(keeper.0).map(Rank::place_for_guests);
                let place = place.unwrap_or(Place::Other(std::process::id(), u32::MAX));
                vec![(keeper.0, way(guest.1, Place::Own)), (guest.0, way(keeper.1, place))]
            }
        }
    }
}

impl Rank {
    /// Where others find its segment: by this process's descriptor, or, where they are another user's processes and may not open that,
    /// beside their own.
    fn place_for_guests(&self) -> Place {
        match self.file.metadata() {
            Ok(metadata) if metadata.uid() != effective_user() => Place::Beside(self.who.pid, low(metadata.ino())),
            _ => Place::Other(std::process::id(), u32::try_from(self.file.as_raw_fd()).unwrap_or(u32::MAX)),
        }
    }

    /// Port at which the task of this number accepts a connection.
    pub(super) fn port(&self, number: u32) -> Result<Option<u16>, HoldError> {
        let (of, port) = self.asker.port().map_err(|source| HoldError::Reach { who: self.who, source })?;
        Ok((of == number && port != 0).then_some(port))
    }

    pub(super) fn progress(&self) -> Result<Progress, HoldError> {
        self.asker.progress().map_err(|source| HoldError::Reach { who: self.who, source })
    }
}
