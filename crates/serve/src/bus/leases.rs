//! Which partitions a server takes: free ones up to its share, by leases in the database that all servers of a bus use; all of them
//! where its cases are in a file, which no other server uses.
use super::held::Held;
use super::numbers::FOR_GOOD;
use mycroft_bus::Moment;
use mycroft_store::meta::{Lease, Leased};
use mycroft_store::{Store, StoreError};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a lease is. A server that dies is missed within it; one whose database does not answer for so long stops judging.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// So much earlier it is over for its holder: what two clocks part by in the time of a lease, and what is under way.
const MARGIN: Duration = Duration::from_millis(500);

/// What there is to lease.
pub(super) struct Leases<'s> {
    pub(super) store: &'s Store,
    pub(super) bus: String,
    /// This server: the name of its store, which one process uses.
    pub(super) server: String,
    pub(super) held: &'s Held,
    pub(super) partitions: u32,
    pub(super) gap: Gap,
}

/// What a server had before it could not ask the database for longer than a lease.
#[derive(Debug, Default)]
pub(super) struct Gap {
    /// When a round last went well, and what was held after it.
    answered: Option<(Moment, BTreeSet<u32>)>,
    /// What was held before the gap, and until when nothing else is taken.
    before: Option<(BTreeSet<u32>, Moment)>,
}

impl Gap {
    /// The database answers at `now`. What may be taken; `None`: everything. Where the database was away all leases are over, and each
    /// server first gets back what it had: it told cases of these jobs that the database does not have yet.
    fn over(&mut self, now: Moment) -> Option<&BTreeSet<u32>> {
        if let Some((_, held)) = self.answered.take_if(|(at, _)| at.after(LEASE - MARGIN) <= now) {
            self.before = Some((held, now.after(LEASE)));
        }
        self.before.take_if(|(_, until)| *until <= now);
        self.before.as_ref().map(|(held, _)| held)
    }

    /// A round that began at `now` went well.
    fn answered(&mut self, now: Moment, held: BTreeSet<u32>) {
        self.answered = Some((now, held));
    }
}

/// What a round brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Round {
    /// Partitions taken, with the numbers of their holdings.
    pub(super) taken: Vec<(u32, u64)>,
    /// More than the share: one to be given up.
    pub(super) surplus: Option<u32>,
}

impl Leases<'_> {
    fn prefix(&self) -> String {
        format!("bus {} ", self.bus)
    }

    fn of_server(&self) -> String {
        format!("{}server {}", self.prefix(), self.server)
    }

    fn of_part(&self, part: u32) -> String {
        format!("{}partition {part}", self.prefix())
    }

    /// Says that this server is there, lengthens its leases, and takes what is free, up to its share.
    ///
    /// # Errors
    /// The database does not answer: what is held is so until its time is over.
    pub(super) fn round(&mut self) -> Result<Round, StoreError> {
        if !self.store.is_meta_shared() {
            return Ok(self.alone());
        }
        let begun = Moment::now();
        self.store.take_lease(&self.of_server(), &self.server, LEASE)?;
        for part in self.held.parts() {
            let asked_at = Moment::now();
            match self.store.renew_lease(&self.of_part(part), &self.server, LEASE)? {
                Leased::Ours(_) => self.held.extend(part, asked_at.after(LEASE - MARGIN)),
                Leased::Held(_) | Leased::Over => self.held.lose(part),
            }
        }
        let (ours, found) = (self.held.parts(), self.store.leases(&self.prefix())?);
        let plan = plan((&self.prefix(), &self.server), &found, &ours, self.gap.over(begun), self.partitions);
        let mut taken = Vec::new();
        for part in plan.wanted {
            let asked_at = Moment::now();
            if let Leased::Ours(_) = self.store.take_lease(&self.of_part(part), &self.server, LEASE)? {
                taken.push((part, self.held.take(part, asked_at.after(LEASE - MARGIN))));
            }
        }
        self.gap.answered(begun, self.held.parts());
        Ok(Round { taken, surplus: plan.surplus })
    }

    /// Takes everything for good: there is nobody to share with, and a disk that takes no row must not end a lease.
    fn alone(&self) -> Round {
        let ours = self.held.parts();
        let free = (0..self.partitions).filter(|part| !ours.contains(part));
        let until = Moment::now().after(FOR_GOOD);
        Round { taken: free.map(|part| (part, self.held.take(part, until))).collect(), surplus: None }
    }

    /// Gives a partition up, that nobody here judges any more.
    pub(super) fn release(&self, part: u32) -> Result<bool, StoreError> {
        if !self.store.is_meta_shared() {
            return Ok(true);
        }
        self.store.release_lease(&self.of_part(part), &self.server)
    }

    /// This server goes.
    pub(super) fn leave(&self) -> Result<bool, StoreError> {
        if !self.store.is_meta_shared() {
            return Ok(true);
        }
        self.store.release_lease(&self.of_server(), &self.server)
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Plan {
    wanted: Vec<u32>,
    surplus: Option<u32>,
}

/// What a server takes, of what it may, and gives up, by the leases that there are. Each has its share, the partitions over the servers,
/// rounded up.
fn plan(
    (prefix, server): (&str, &str),
    found: &[Lease],
    ours: &BTreeSet<u32>,
    may: Option<&BTreeSet<u32>>,
    partitions: u32,
) -> Plan {
    let kind = |kind: &str| {
        let prefix = format!("{prefix}{kind} ");
        found.iter().filter_map(move |lease| Some((lease.job.strip_prefix(&prefix)?.to_owned(), lease)))
    };
    let servers: BTreeSet<String> =
        kind("server").map(|(name, _)| name).chain(std::iter::once(server.to_owned())).collect();
    let taken: BTreeMap<u32, &str> =
        kind("partition").filter_map(|(part, lease)| Some((part.parse().ok()?, &*lease.holder))).collect();
    let share = (partitions as usize).div_ceil(servers.len());
    // One's own that is in the database and not here is of an earlier run of this server.
    let is_free = |part: &u32| !ours.contains(part) && taken.get(part).is_none_or(|holder| *holder == server);
    let is_allowed = |part: &u32| may.is_none_or(|may| may.contains(part));
    let wanted = (0..partitions).filter(is_free).filter(is_allowed).take(share.saturating_sub(ours.len())).collect();
    Plan { wanted, surplus: ours.last().copied().filter(|_| ours.len() > share) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::HostTime;

    fn lease(job: &str, holder: &str) -> Lease {
        Lease { job: job.to_owned(), holder: holder.to_owned(), until: HostTime(1) }
    }

    #[test]
    fn a_server_takes_its_share_of_what_is_free() {
        let plan = |found: &[Lease], ours: &[u32]| {
            let plan = plan(("bus t ", "a"), found, &ours.iter().copied().collect(), None, 4);
            (plan.wanted, plan.surplus)
        };
        assert_eq!(plan(&[], &[]), (vec![0, 1, 2, 3], None), "alone");
        let two = [lease("bus t server a", "a"), lease("bus t server b", "b")];
        assert_eq!(plan(&two, &[]), (vec![0, 1], None));
        assert_eq!(plan(&two, &[0, 1, 2, 3]), (vec![], Some(3)), "another came");
        let b = lease("bus t partition 0", "b");
        assert_eq!(plan(&[&two[..], std::slice::from_ref(&b)].concat(), &[]), (vec![1, 2], None), "it is taken");
        assert_eq!(plan(&[two[0].clone(), b], &[1, 2, 3]), (vec![], None), "its holder is gone, its lease is not");
        let earlier = lease("bus t partition 2", "a");
        assert_eq!(plan(&[two[0].clone(), earlier], &[0, 1, 3]), (vec![2], None), "of an earlier run");
    }

    /// Two servers whose database was away, of which either may be first to notice that it is back.
    #[test]
    fn after_a_gap_a_server_takes_what_it_had_and_only_then_what_another_had() {
        let (mut gap, begun) = (Gap::default(), Moment::now());
        let at = |ms| begun.after(Duration::from_millis(ms));
        assert_eq!(gap.over(at(0)), None, "it has just started");
        gap.answered(at(0), BTreeSet::from([2, 3]));
        assert_eq!(gap.over(at(3_000)), None, "shorter than a lease");
        gap.answered(at(3_000), BTreeSet::from([2, 3]));
        let ours = BTreeSet::from([2, 3]);
        assert_eq!(gap.over(at(9_000)), Some(&ours), "longer than a lease");
        let wanted = plan(("bus t ", "a"), &[], &BTreeSet::new(), Some(&ours), 4).wanted;
        assert_eq!(wanted, [2, 3], "nobody has anything, and what another had is left to it");
        gap.answered(at(9_000), ours.clone());
        assert_eq!(gap.over(at(12_000)), Some(&ours), "it has not come yet");
        gap.answered(at(12_000), ours);
        assert_eq!(gap.over(at(13_000)), None, "whoever had the others is gone");
    }
}
