//! The coordinator of the requesters of several hosts: finds the operation before which all ranks of all hosts can wait, and
//! keeps them there. Nobody but it compares ranks of different hosts.
mod run;

use super::{HoldError, Place, Terms, Who, ns};
use crate::clock::monotonic_ns;
use crate::gate::plan::{Plan, Refusal, View, latest, may_agree, owed, plan};
use crate::gate::said::{Here, Request, Seen, Shown};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

/// Between two looks: an answer of another host takes longer.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Between two looks at ranks that only wait: several within [`super::SILENCE`], whatever one takes.
const KEEP_EVERY: Duration = Duration::from_millis(50);

/// How requesters are reached.
pub trait Exchange {
    /// Gives each requester its request, all at once, and gives what they answer, in the same order.
    ///
    /// # Errors
    /// Requesters cannot be reached, and why.
    fn exchange(&mut self, requests: Vec<(usize, Request)>) -> Result<Vec<Shown>, String>;
}

/// The gates of a job's processes on several hosts. Dropped, it lets all go on.
pub struct Hosts<E: Exchange> {
    line: E,
    /// Name of each requester's host.
    names: Vec<String>,
    /// Requesters that have ranks of the job, and what these show.
    seen: BTreeMap<usize, Vec<Seen>>,
    /// Where ranks of other hosts reach each.
    addresses: BTreeMap<usize, Ipv6Addr>,
    /// Each rank's host and place there, by rank.
    ranks: Vec<(usize, usize)>,
}

/// All ranks of all hosts wait. Ends when dropped.
pub struct HeldHosts<'a, E: Exchange> {
    hosts: &'a mut Hosts<E>,
    places: Vec<Place>,
    end_ns: u64,
}

impl<E: Exchange> Hosts<E> {
    /// Finds the ranks of the job on these hosts; those without any are left alone from then on.
    ///
    /// # Errors
    /// Nobody is there, a host refuses, or not all members of a communicator were found.
    pub fn open(line: E, names: Vec<String>, job: &str) -> Result<Hosts<E>, HoldError> {
        let seen = (0..names.len()).map(|host| (host, Vec::new())).collect();
        let mut hosts = Hosts { line, names, seen, addresses: BTreeMap::new(), ranks: Vec::new() };
        hosts.all(&Request::Show)?;
        hosts.seen.retain(|_, ranks| !ranks.is_empty());
        if hosts.seen.is_empty() {
            return Err(HoldError::Line(format!("no agent has a process of job {job:?}")));
        }
        let places = |(host, ranks): (&usize, &Vec<Seen>)| (0..ranks.len()).map(|at| (*host, at)).collect::<Vec<_>>();
        hosts.ranks = hosts.seen.iter().flat_map(places).collect();
        let key =
            |(host, at): &(usize, usize)| hosts.seen[host].get(*at).map(|seen| (seen.who.rank, *host, seen.who.pid));
        hosts.ranks.sort_by_key(key);
        may_agree(&hosts.shown()).map_err(|refusal| hosts.refused(refusal))?;
        Ok(hosts)
    }

    /// Who they are, by rank.
    pub fn ranks(&self) -> impl Iterator<Item = Who> {
        self.each().map(|seen| seen.who)
    }

    /// The host of each, in the same order: its name, and its number among those that were asked.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.ranks.iter().map(|(host, _)| (self.names[*host].as_str(), *host))
    }

    /// What each showed last, in the same order.
    pub fn shown(&self) -> Vec<View> {
        self.each().map(|seen| seen.view.clone()).collect()
    }

    /// Holds all of them.
    ///
    /// # Errors
    /// They did not come to one point in time, or a host or rank is gone: all are let go.
    pub fn hold(&mut self, terms: Terms) -> Result<HeldHosts<'_, E>, HoldError> {
        let agreed = self.agree(terms);
        if agreed.is_err() {
            self.release();
        }
        let end_ns = agreed?;
        let places = self.ranks().zip(self.shown()).map(|(who, view)| Place { who, next: view.lanes }).collect();
        Ok(HeldHosts { hosts: self, places, end_ns })
    }

    /// When ranks go on by themselves.
    fn agree(&mut self, terms: Terms) -> Result<u64, HoldError> {
        let agree_by_ns = monotonic_ns().saturating_add(ns(terms.agree_within));
        let end_ns = agree_by_ns.saturating_add(ns(terms.at_most));
        self.all(&Request::Hold { for_ns: end_ns.saturating_sub(monotonic_ns()) })?;
        loop {
            self.still_here()?;
            let views = self.shown();
            if plan(&views) == Plan::Agreed {
                return Ok(end_ns);
            }
            if monotonic_ns() >= agree_by_ns {
                let who = self.ranks().nth(latest(&views).unwrap_or(0));
                return Err(who.map_or_else(|| HoldError::Line("nobody is held".to_owned()), HoldError::Missing));
            }
            std::thread::sleep(LOOK_EVERY);
            self.run_to(&views)?;
        }
    }

    /// Tells each host what its ranks owe to those of others.
    fn run_to(&mut self, views: &[View]) -> Result<(), HoldError> {
        let mut requests: BTreeMap<usize, Vec<_>> = self.seen.keys().map(|host| (*host, Vec::new())).collect();
        for (rank, lanes) in owed(views) {
            let (host, at) = self.ranks[rank];
            requests.entry(host).or_default().push((u32::try_from(at).unwrap_or(u32::MAX), lanes));
        }
        self.exchange(requests.into_iter().map(|(host, ranks)| (host, Request::RunTo(ranks))).collect())
    }

    fn all(&mut self, request: &Request) -> Result<(), HoldError> {
        self.exchange(self.seen.keys().map(|host| (*host, request.clone())).collect())
    }

    /// Keeps what each host shows, which has to be of the same ranks as before.
    fn exchange(&mut self, requests: Vec<(usize, Request)>) -> Result<(), HoldError> {
        let asked: Vec<usize> = requests.iter().map(|(host, _)| *host).collect();
        let shown = self.line.exchange(requests).map_err(HoldError::Line)?;
        let mut failed = None;
        for (host, shown) in asked.into_iter().zip(shown) {
            let whose = |seen: &[Seen]| seen.iter().map(|seen| seen.who).collect::<Vec<_>>();
            let before = self.seen.get(&host).map(|seen| whose(seen)).unwrap_or_default();
            let shown = shown.and_then(|here| match before.is_empty() || before == whose(&here.ranks) {
                true => Ok(here),
                false => Err("has other processes of the job than before".to_owned()),
            });
            match shown {
                Ok(Here { address, ranks }) => {
                    self.seen.insert(host, ranks);
                    self.addresses.extend(address.map(|address| (host, address)));
                }
                Err(text) => failed = failed.or(Some(HoldError::Host { host: self.names[host].clone(), text })),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn each(&self) -> impl Iterator<Item = &Seen> {
        (0..self.ranks.len()).filter_map(|rank| self.shown_by(rank))
    }

    /// What one showed last.
    fn shown_by(&self, rank: usize) -> Option<&Seen> {
        let (host, at) = self.ranks.get(rank)?;
        self.seen.get(host)?.get(*at)
    }

    fn still_here(&self) -> Result<(), HoldError> {
        for seen in self.each() {
            if let Some(left) = seen.view.left {
                return Err(HoldError::Left(seen.who, left));
            }
            if seen.view.untracked > 0 {
                return Err(HoldError::Untracked(seen.who));
            }
        }
        Ok(())
    }

    fn refused(&self, refusal: Refusal) -> HoldError {
        match refusal {
            Refusal::Elsewhere { comm, members, here } => HoldError::Elsewhere { comm, members, here },
            Refusal::Untracked { view } => {
                self.ranks().nth(view).map_or_else(|| HoldError::Line(String::new()), HoldError::Untracked)
            }
        }
    }

    fn release(&mut self) {
        // Who does not hear of it goes on by itself.
        let _ = self.all(&Request::Release);
    }
}

impl<E: Exchange> Drop for Hosts<E> {
    fn drop(&mut self) {
        let _ = self.all(&Request::End);
    }
}

impl<E: Exchange> HeldHosts<'_, E> {
    /// Where each rank waits, by rank.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Keeps all where they are for so long, or to the end of the terms.
    ///
    /// # Errors
    /// A rank or a host is gone, or went on: all are let go.
    pub fn keep(&mut self, time: Duration) -> Result<(), HoldError> {
        let end_ns = monotonic_ns().saturating_add(ns(time)).min(self.end_ns.saturating_sub(2 * ns(KEEP_EVERY)));
        loop {
            self.look()?;
            let left_ns = end_ns.saturating_sub(monotonic_ns());
            if left_ns == 0 {
                return Ok(());
            }
            std::thread::sleep(KEEP_EVERY.min(Duration::from_nanos(left_ns)));
        }
    }

    /// Whether all still wait where they did; a sign of life to all hosts.
    fn look(&mut self) -> Result<(), HoldError> {
        self.hosts.all(&Request::Show)?;
        self.hosts.still_here()?;
        let moved = self.hosts.each().zip(&self.places).find(|(seen, place)| seen.view.lanes != place.next);
        moved.map_or(Ok(()), |(seen, _)| Err(HoldError::Missing(seen.who)))
    }
}

impl<E: Exchange> Drop for HeldHosts<'_, E> {
    fn drop(&mut self) {
        self.hosts.release();
    }
}
