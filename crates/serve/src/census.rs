//! What agents may make this server know: ranks, hosts, communicators and interfaces, of a host, of a rank and in all.
//!
//! Engines keep something for each of them for as long as the job lives, and nobody vouches for what agents name. What is
//! beyond a limit is not given to an engine; it is counted and told. Records that name nothing new always pass.
use mycroft_record::{Batch, CommId, CommRank, HostName, ProcessKey, Rank, Record};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Limits of what is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    /// Ranks of one job on one host: four times what an agent watches at once (256).
    pub(crate) ranks_of_host: usize,
    /// Communicators of one rank: as many as an agent tells of one process.
    pub(crate) comms_of_rank: usize,
    /// Network interfaces of one host: eight times those of the largest node known.
    pub(crate) nics_of_host: usize,
    /// Ranks of all jobs: 100,000 and some that come back under other names.
    pub(crate) ranks: u64,
    /// Hosts of all jobs: one for each eight ranks.
    pub(crate) hosts: u64,
    /// Communicators of all ranks together: 32 of each rank, 24 bytes here and some hundred in an engine.
    pub(crate) memberships: u64,
    /// Bytes of all names of communicators and interfaces: 64 of each communicator of a rank of ten.
    pub(crate) name_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        let ranks = 1 << 17;
        Limits {
            ranks_of_host: 1024,
            comms_of_rank: 4096,
            nics_of_host: 128,
            ranks,
            hosts: ranks / 8,
            memberships: 32 * ranks,
            name_bytes: 64 << 20,
        }
    }
}

/// What all jobs of a server have together.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    limits: Limits,
    ranks: AtomicU64,
    hosts: AtomicU64,
    memberships: AtomicU64,
    name_bytes: AtomicU64,
}

impl Totals {
    /// Other limits than the default ones.
    #[cfg(test)]
    pub(crate) fn new(limits: Limits) -> Totals {
        Totals { limits, ..Totals::default() }
    }
}

/// Only the loop's thread adds, so that looking and adding need not be one step.
fn fits(total: &AtomicU64, more: u64, limit: u64) -> bool {
    total.load(Ordering::Relaxed).saturating_add(more) <= limit
}

/// What one job has named.
pub(crate) struct Census {
    totals: Arc<Totals>,
    hosts: BTreeMap<HostName, Host>,
    ranks: BTreeMap<Key, Member>,
    own: Own,
    /// Records that were not given to the engine.
    not_kept: u64,
}

/// What a job has of the totals.
#[derive(Default)]
struct Own {
    memberships: u64,
    name_bytes: u64,
}

#[derive(Default)]
struct Host {
    ranks: usize,
    nics: BTreeSet<Arc<str>>,
}

/// A rank, or a process of which nobody knows the rank.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Known(Rank),
    Unknown(HostName, ProcessKey),
}

#[derive(Default)]
struct Member {
    nonce: u32,
    /// Its process ended: the next one under its rank begins anew.
    is_gone: bool,
    /// Ascending. With the member that it said it is.
    comms: Vec<(CommId, Option<CommRank>)>,
}

impl Census {
    /// Of a job that has named nothing yet.
    pub(crate) fn new(totals: Arc<Totals>) -> Census {
        Census { totals, hosts: BTreeMap::new(), ranks: BTreeMap::new(), own: Own::default(), not_kept: 0 }
    }

    /// Hosts that the job has.
    pub(crate) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Records that were not given to the engine.
    pub(crate) fn not_kept(&self) -> u64 {
        self.not_kept
    }

    /// The batch without what is beyond the limits; `None`: nothing of it is left. What is left out is counted.
    pub(crate) fn admit<'a>(&mut self, batch: &'a Batch) -> Option<Cow<'a, Batch>> {
        let admitted = self.admit_source(batch);
        let mut left_out = 0;
        let kept = if admitted { self.admit_records(batch, &mut left_out) } else { None };
        if !admitted {
            left_out = batch.records.len() as u64;
        }
        self.not_kept += left_out;
        kept
    }

    /// Whether the host and the rank are known or may become so.
    fn admit_source(&mut self, batch: &Batch) -> bool {
        let (limits, host) = (self.totals.limits, &batch.source.host);
        if !self.hosts.contains_key(host) {
            if !fits(&self.totals.hosts, 1, limits.hosts) {
                return false;
            }
            self.totals.hosts.fetch_add(1, Ordering::Relaxed);
            self.hosts.insert(host.clone(), Host::default());
        }
        let Some(process) = batch.source.process else { return true };
        let key = key(host, process);
        if let Some(member) = self.ranks.get_mut(&key) {
            if member.nonce != process.nonce && member.is_gone {
                // The engine forgets what its predecessor had, too.
                let left = member.comms.len() as u64;
                self.own.memberships -= left;
                self.totals.memberships.fetch_sub(left, Ordering::Relaxed);
                *member = Member { nonce: process.nonce, ..Member::default() };
            }
            return true;
        }
        let Some(of) = self.hosts.get_mut(host) else { return false };
        if of.ranks >= limits.ranks_of_host || !fits(&self.totals.ranks, 1, limits.ranks) {
            return false;
        }
        of.ranks += 1;
        self.totals.ranks.fetch_add(1, Ordering::Relaxed);
        self.ranks.insert(key, Member { nonce: process.nonce, ..Member::default() });
        true
    }

    fn admit_records<'a>(&mut self, batch: &'a Batch, left_out: &mut u64) -> Option<Cow<'a, Batch>> {
        let (limits, totals) = (self.totals.limits, Arc::clone(&self.totals));
        let mut book = Book { limits, totals: &totals, own: &mut self.own };
        let host = &batch.source.host;
        let mut passes: Box<dyn FnMut(&Record) -> bool + '_> = match batch.source.process {
            None => {
                let nics = &mut self.hosts.get_mut(host)?.nics;
                Box::new(move |record| book.host_record(nics, record))
            }
            Some(process) => {
                let member = self.ranks.get_mut(&key(host, process))?;
                Box::new(move |record| book.member_record(member, record))
            }
        };
        // Almost always all pass, and nothing is copied.
        let Some(first) = batch.records.iter().position(|record| !passes(record)) else {
            return Some(Cow::Borrowed(batch));
        };
        let mut records = batch.records[..first].to_vec();
        records.extend(batch.records[first + 1..].iter().filter(|record| passes(record)).cloned());
        *left_out = (batch.records.len() - records.len()) as u64;
        if records.is_empty() {
            return None;
        }
        Some(Cow::Owned(Batch { source: batch.source.clone(), collected_at: batch.collected_at, records }))
    }
}

/// The job is retired.
impl Drop for Census {
    fn drop(&mut self) {
        let totals = &self.totals;
        totals.ranks.fetch_sub(self.ranks.len() as u64, Ordering::Relaxed);
        totals.hosts.fetch_sub(self.hosts.len() as u64, Ordering::Relaxed);
        totals.memberships.fetch_sub(self.own.memberships, Ordering::Relaxed);
        totals.name_bytes.fetch_sub(self.own.name_bytes, Ordering::Relaxed);
    }
}

fn key(host: &HostName, process: ProcessKey) -> Key {
    match process.rank {
        Rank::UNKNOWN => Key::Unknown(host.clone(), process),
        rank => Key::Known(rank),
    }
}

/// What is charged for names.
struct Book<'a> {
    limits: Limits,
    totals: &'a Totals,
    own: &'a mut Own,
}

impl Book<'_> {
    fn host_record(&mut self, nics: &mut BTreeSet<Arc<str>>, record: &Record) -> bool {
        let Record::NicState(nic) = record else { return true };
        if nics.contains(&nic.nic) {
            return true;
        }
        if nics.len() >= self.limits.nics_of_host || !self.name(&nic.nic) {
            return false;
        }
        nics.insert(nic.nic.clone());
        true
    }

    fn member_record(&mut self, member: &mut Member, record: &Record) -> bool {
        match record {
            Record::CommInit(init) => {
                // No communicator has a member beyond its size, or more members than there may be ranks. NCCL up to 2.26
                // does not tell the size: 0.
                let told = u64::from(init.n_ranks);
                let size = if told == 0 { self.limits.ranks } else { told };
                let is_sane = u64::from(init.comm_rank.0) < size && size <= self.limits.ranks;
                is_sane && self.join(member, init.comm, Some(init.comm_rank), &init.name)
            }
            Record::CommEnd(end) => self.join(member, end.comm, None, ""),
            Record::OpState(op) => self.join(member, op.op.id.comm, None, ""),
            Record::OpDone(done) => self.join(member, done.op.id.comm, None, ""),
            Record::FlowState(flow) => self.join(member, flow.flow.op.comm, None, ""),
            Record::FlowDone(done) => self.join(member, done.flow.op.comm, None, ""),
            Record::ProcessExit(_) => {
                member.is_gone = true;
                true
            }
            Record::Sampled(sampled) => {
                member.is_gone |= !sampled.alive;
                true
            }
            _ => true,
        }
    }

    /// Whether the rank is in the communicator, or may be. To be another member of it than before counts as being in
    /// another one.
    fn join(&mut self, member: &mut Member, comm: CommId, me: Option<CommRank>, name: &str) -> bool {
        let at = match member.comms.binary_search_by_key(&comm, |(comm, _)| *comm) {
            Ok(at) if me.is_none() || member.comms[at].1 == me => return true,
            Ok(at) if member.comms[at].1.is_none() => {
                let named = self.name(name);
                if named {
                    member.comms[at].1 = me;
                }
                return named;
            }
            Ok(at) | Err(at) => at,
        };
        let room = member.comms.len() < self.limits.comms_of_rank
            && fits(&self.totals.memberships, 1, self.limits.memberships)
            && self.name(name);
        if room {
            member.comms.insert(at, (comm, me));
            self.own.memberships += 1;
            self.totals.memberships.fetch_add(1, Ordering::Relaxed);
        }
        room
    }

    fn name(&mut self, name: &str) -> bool {
        let bytes = name.len() as u64;
        let room = fits(&self.totals.name_bytes, bytes, self.limits.name_bytes);
        if room {
            self.own.name_bytes += bytes;
            self.totals.name_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        room
    }
}

#[cfg(test)]
#[path = "census_tests.rs"]
mod tests;
