//! The requester of one host of several: does what the coordinator of all of them says, and lets its ranks go when that is
//! silent.
use super::{Gates, HoldError, Lane, Rank, View, monotonic_ns, ns};
use crate::gate::said::{Here, Request, Seen, Shown};
use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;

/// Silence of the coordinator after which ranks go on: an answer takes 20 ms, and any host may keep all waiting for a second and a half.
pub const SILENCE: Duration = Duration::from_secs(2);

/// Holds the ranks of one host on behalf of a coordinator.
pub struct Requester {
    gates: Gates,
    /// Of this host.
    address: Option<Ipv6Addr>,
    /// Ranks are asked to wait.
    holds: bool,
    pulsed_ns: u64,
    heard_ns: u64,
    /// What ranks elsewhere have issued.
    owed: BTreeMap<usize, Vec<Lane>>,
    /// Number of each rank's latest test.
    ordered: BTreeMap<usize, u32>,
    /// Why they are not held any more.
    ended: Option<String>,
}

impl Requester {
    /// Finds the living processes of a job, as [`Gates::open_all`]; `None` where there are none. At `address` ranks of other
    /// hosts reach this one.
    ///
    /// # Errors
    /// As [`Gates::open_all`], but for nobody.
    pub fn open(directories: &[PathBuf], job: &str, address: Option<Ipv6Addr>) -> Result<Option<Requester>, HoldError> {
        let gates = match Gates::open_all(directories, job) {
            Ok(gates) => gates,
            Err(HoldError::Nobody { .. }) => return Ok(None),
            Err(other) => return Err(other),
        };
        let (owed, ordered, heard_ns) = (BTreeMap::new(), BTreeMap::new(), monotonic_ns());
        let (holds, ended) = (false, None);
        Ok(Some(Requester { gates, address, holds, pulsed_ns: heard_ns, heard_ns, owed, ordered, ended }))
    }

    /// Whether ranks are held: [`Requester::turn`] is then due every millisecond.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Says for the ranks' sake that it lives, and lets those through that are behind.
    pub fn turn(&mut self) {
        if !self.holds {
            return;
        }
        if monotonic_ns().saturating_sub(self.heard_ns) > ns(SILENCE) {
            return self.end("the coordinator said nothing more".to_owned());
        }
        if let Err(error) = self.gates.step(&self.owed, &mut self.pulsed_ns) {
            self.end(error.to_string());
        }
    }

    /// Does what the coordinator says.
    ///
    /// # Errors
    /// Why nobody is held here any more.
    pub fn answer(&mut self, request: Request) -> Shown {
        self.heard_ns = monotonic_ns();
        if let Err(error) = self.act(request) {
            self.end(error.to_string());
        }
        self.turn();
        match &self.ended {
            Some(why) => Err(why.clone()),
            None => match self.seen() {
                Ok(ranks) => Ok(Here { address: self.address, ranks }),
                Err(error) => Err(error.to_string()),
            },
        }
    }

    fn act(&mut self, request: Request) -> Result<(), HoldError> {
        match request {
            Request::Show => {}
            Request::Hold { for_ns } => {
                (self.owed, self.ordered, self.ended) = (BTreeMap::new(), BTreeMap::new(), None);
                // Before the first rank is asked: an error lets those go that were.
                (self.holds, self.pulsed_ns) = (true, self.heard_ns);
                self.gates.ask(Duration::from_nanos(for_ns))?;
            }
            Request::RunTo(ranks) => {
                let place = |rank: u32| usize::try_from(rank).unwrap_or(usize::MAX);
                self.owed = ranks.into_iter().map(|(rank, owed)| (place(rank), owed)).collect();
            }
            Request::Test(orders) if self.holds => {
                let (number, ranks) = self.gates.order(&orders)?;
                self.ordered.extend(ranks.into_iter().map(|rank| (rank, number)));
            }
            // Whoever went on by itself is tested no more.
            Request::Test(_) => {}
            Request::Release | Request::End => {
                self.let_go();
                self.ended = None;
            }
        }
        Ok(())
    }

    fn seen(&self) -> Result<Vec<Seen>, HoldError> {
        let seen = |(place, (rank, view)): (usize, (&Rank, View))| {
            let ordered = self.ordered.get(&place).copied();
            let (number, answer) = rank.progress()?.ended;
            let port = ordered.map_or(Ok(None), |number| rank.port(number))?;
            Ok(Seen { who: rank.who, view, answer: (ordered == Some(number)).then_some(answer), port })
        };
        self.gates.ranks.iter().zip(self.gates.views()?).enumerate().map(seen).collect()
    }

    fn end(&mut self, why: String) {
        self.let_go();
        self.ended = Some(why);
    }

    fn let_go(&mut self) {
        if std::mem::take(&mut self.holds) {
            self.gates.release();
        }
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        self.let_go();
    }
}
