//! The requester of one host of several: does what the coordinator of all of them says, and lets its ranks go when that is
//! silent.
use super::{Gates, HoldError, Lane, Rank, View, monotonic_ns, ns};
use crate::gate::said::{Request, Seen, Shown};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Silence of the coordinator after which ranks go on: an answer takes 20 ms, and any host may keep all waiting for a second and a half.
pub const SILENCE: Duration = Duration::from_secs(2);

/// Holds the ranks of one host on behalf of a coordinator.
pub struct Requester {
    gates: Gates,
    /// Ranks are asked to wait.
    holds: bool,
    pulsed_ns: u64,
    heard_ns: u64,
    /// What ranks elsewhere have issued.
    owed: BTreeMap<usize, Vec<Lane>>,
    /// Number of the latest tests.
    ordered: Option<u32>,
    /// Why they are not held any more.
    ended: Option<String>,
}

impl Requester {
    /// Finds the living processes of a job, as [`Gates::open_all`]; `None` where there are none.
    ///
    /// # Errors
    /// As [`Gates::open_all`], but for nobody.
    pub fn open(directories: &[PathBuf], job: &str) -> Result<Option<Requester>, HoldError> {
        let gates = match Gates::open_all(directories, job) {
            Ok(gates) => gates,
            Err(HoldError::Nobody { .. }) => return Ok(None),
            Err(other) => return Err(other),
        };
        let (owed, heard_ns) = (BTreeMap::new(), monotonic_ns());
        Ok(Some(Requester { gates, holds: false, pulsed_ns: heard_ns, heard_ns, owed, ordered: None, ended: None }))
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
            None => self.seen().map_err(|error| error.to_string()),
        }
    }

    fn act(&mut self, request: Request) -> Result<(), HoldError> {
        match request {
            Request::Show => {}
            Request::Hold { for_ns } => {
                (self.owed, self.ordered, self.ended) = (BTreeMap::new(), None, None);
                // Before the first rank is asked: an error lets those go that were.
                (self.holds, self.pulsed_ns) = (true, self.heard_ns);
                self.gates.ask(Duration::from_nanos(for_ns))?;
            }
            Request::RunTo(ranks) => {
                let place = |rank: u32| usize::try_from(rank).unwrap_or(usize::MAX);
                self.owed = ranks.into_iter().map(|(rank, owed)| (place(rank), owed)).collect();
            }
            Request::Test(orders) if self.holds => self.ordered = Some(self.gates.order(&orders)?.0),
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
        let seen = |(rank, view): (&Rank, View)| {
            let (number, answer) = rank.progress()?.ended;
            Ok(Seen { who: rank.who, view, answer: (self.ordered == Some(number)).then_some(answer) })
        };
        self.gates.ranks.iter().zip(self.gates.views()?).map(seen).collect()
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
