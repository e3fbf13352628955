//! What each host has said of itself: its clock, its traced processes, what was lost there, and when it and its agent were last
//! heard. For `GET /api/v1/fleet`, of which `mycroft doctor --server` is made; the brain has its own.
use crate::api::{HostClockJson, HostJson, LastAgentJson, LostJson, RanksOfJobJson, SpoolJson, TimeJson, TracedJson};
use mycroft_record::{
    Batch, ClockOffset, GapCause, HostName, HostTime, JobName, NANOS_PER_SEC, NcclVersion, ProcessInfo, ProcessKey,
    Rank, Record, Source,
};
use mycroft_wire::Peer;
use mycroft_wire::sync::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Hosts remembered: four times the agents that are taken at once; with eight processes each 20 MiB.
const HOSTS_MAX: usize = 4 * 4096;
/// Processes remembered of a host: what an agent watches at once (256), four times over.
const PROCESSES_MAX: usize = 1024;
/// A host that is silent for so long, and its agent, too, is forgotten: a night, and the morning on which somebody looks.
const FORGOTTEN_NS: u64 = 24 * 3600 * NANOS_PER_SEC;
/// Where there is no room for more hosts: those that are silent for so long.
const CROWDED_NS: u64 = 60 * NANOS_PER_SEC;
/// A process of which a host that is heard says nothing for so long is gone: a host that was started anew tells no end of it.
const PROCESS_SILENT_NS: u64 = 600 * NANOS_PER_SEC;
/// Ranges of missing ranks that are told of a job.
const RANGES_MAX: usize = 64;

/// All hosts.
#[derive(Debug, Default)]
pub(crate) struct Fleet(Mutex<Hosts>);

/// Each is copied where it changes while somebody reads it: the brain does not wait for readers.
type Hosts = BTreeMap<HostName, Arc<Seen>>;

/// What one host has said.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// When its first and its newest batch arrived; `NONE`: nothing came yet.
    first_at: HostTime,
    last_at: HostTime,
    /// The agent that said hello or ended last.
    agent: Option<Said>,
    /// Age of its newest batch when that arrived.
    behind_ns: u64,
    clock: Option<ClockOffset>,
    agent_dropped: u64,
    lost: Lost,
    processes: BTreeMap<(JobName, ProcessKey), Traced>,
}

/// An agent, and when it was last heard.
#[derive(Clone, Debug)]
struct Said {
    at: HostTime,
    peer: Peer,
}

/// A traced process.
#[derive(Clone, Debug)]
struct Traced {
    /// What it is; `None`: that was told before the server's memory begins.
    info: Option<ProcessInfo>,
    first_at: HostTime,
    last_at: HostTime,
}

/// Records that are known to be lost, by place.
#[derive(Clone, Debug, Default)]
struct Lost {
    ring: u64,
    probe: u64,
    spool: u64,
    damaged: u64,
    server: u64,
    last_at: HostTime,
}

impl Lost {
    fn add(&mut self, cause: GapCause, records: u64, at: HostTime) {
        let place = match cause {
            GapCause::RingLapped => &mut self.ring,
            GapCause::ProbeDropped => &mut self.probe,
            GapCause::SpoolDropped => &mut self.spool,
            GapCause::Damaged => &mut self.damaged,
            GapCause::ServerDropped => &mut self.server,
        };
        *place = place.saturating_add(records);
        self.last_at = at;
    }
}

impl Fleet {
    /// Takes in what a batch that arrived at `at` says of its host.
    pub(crate) fn take(&self, at: HostTime, batch: &Batch) {
        let mut hosts = lock(&self.0);
        let Some(seen) = seen_of(&mut hosts, &batch.source.host) else { return };
        seen.first_at = seen.first_at.some().unwrap_or(at);
        seen.last_at = seen.last_at.max(at);
        let process = batch.source.process.map(|process| (batch.source.job.clone(), process));
        let mut is_gone = false;
        let mut info = None;
        for record in &batch.records {
            match record {
                Record::ClockOffset(offset) => seen.clock = Some(*offset),
                Record::Gap(gap) => seen.lost.add(gap.cause, gap.lost, at),
                Record::HostVitals(vitals) => seen.agent_dropped = vitals.agent_dropped,
                Record::Process(told) => info = Some(told.clone()),
                Record::ProcessExit(_) => is_gone = true,
                _ => {}
            }
        }
        let collected_at = seen.clock.map_or(batch.collected_at, |clock| clock.server_time(batch.collected_at));
        seen.behind_ns = at.since_ns(collected_at);
        let Some(key) = process else { return };
        if is_gone {
            seen.processes.remove(&key);
        } else if let Some(known) = seen.processes.get_mut(&key) {
            *known = Traced { info: info.or_else(|| known.info.take()), last_at: at, ..*known };
        } else if seen.processes.len() < PROCESSES_MAX {
            // A rank that was started again under the same number took the place of the one before.
            let (job, process) = &key;
            seen.processes.retain(|(of, old), _| of != job || old.rank != process.rank || old.rank == Rank::UNKNOWN);
            seen.processes.insert(key, Traced { info, first_at: at, last_at: at });
        }
    }

    /// An agent came or has ended, whether or not it has ever sent anything.
    pub(crate) fn said(&self, now: HostTime, peer: &Peer) {
        let mut hosts = lock(&self.0);
        let Some(seen) = seen_of(&mut hosts, &peer.host.as_str().into()) else { return };
        let silent_ns = u64::try_from(peer.silent.as_nanos()).unwrap_or(u64::MAX);
        seen.agent = Some(Said { at: HostTime(now.0.saturating_sub(silent_ns)), peer: peer.clone() });
    }

    /// The server dropped records of a source.
    pub(crate) fn lost(&self, at: HostTime, source: &Source, records: u64) {
        if let Some(seen) = lock(&self.0).get_mut(&source.host) {
            Arc::make_mut(seen).lost.add(GapCause::ServerDropped, records, at);
        }
    }

    /// Forgets hosts that are silent for a day, and processes that ended without a word.
    pub(crate) fn forget(&self, now: HostTime) {
        let mut hosts = lock(&self.0);
        let longest_ns = if hosts.len() < HOSTS_MAX { FORGOTTEN_NS } else { CROWDED_NS };
        hosts.retain(|_, seen| now.since_ns(seen.heard_at()) < longest_ns);
        for seen in hosts.values_mut() {
            let is_over = |one: &Traced| seen.last_at.since_ns(one.last_at) >= PROCESS_SILENT_NS;
            if seen.processes.values().any(is_over) {
                let last_at = seen.last_at;
                let seen = Arc::make_mut(seen);
                seen.processes.retain(|_, one| last_at.since_ns(one.last_at) < PROCESS_SILENT_NS);
            }
        }
    }

    /// Every host in name order, without what agents say when they connect; and of each job which ranks are known.
    /// `sees` says of which jobs may be told, `ended` which are over.
    pub(crate) fn json(
        &self,
        now: HostTime,
        sees: impl Fn(&str) -> bool,
        ended: &BTreeSet<String>,
    ) -> (BTreeMap<String, HostJson>, Vec<RanksOfJobJson>) {
        let hosts = lock(&self.0).clone();
        let mut of_jobs: BTreeMap<JobName, Known> = BTreeMap::new();
        let is_told = |job: &JobName| sees(job) && !ended.contains(&**job);
        let mut told = BTreeMap::new();
        for (host, seen) in &hosts {
            for ((job, process), one) in seen.processes.iter().filter(|((job, _), _)| is_told(job)) {
                let known = of_jobs.entry(job.clone()).or_insert_with(|| Known::since(one.first_at));
                known.first_at = known.first_at.min(one.first_at);
                known.world = known.world.max(one.info.as_ref().map_or(0, |info| info.world_size));
                known.hosts.insert(host.clone());
                if process.rank != Rank::UNKNOWN {
                    known.ranks.insert(process.rank.0);
                }
            }
            told.insert(host.to_string(), seen.json(host, now, &is_told));
        }
        (told, of_jobs.into_iter().map(|(job, known)| known.json(&job, now)).collect())
    }
}

fn seen_of<'a>(hosts: &'a mut Hosts, host: &HostName) -> Option<&'a mut Seen> {
    if !hosts.contains_key(host) {
        if hosts.len() >= HOSTS_MAX {
            return None;
        }
        hosts.insert(host.clone(), Arc::default());
    }
    hosts.get_mut(host).map(Arc::make_mut)
}

impl Seen {
    /// When it or its agent was last heard.
    fn heard_at(&self) -> HostTime {
        self.agent.as_ref().map_or(self.last_at, |said| said.at.max(self.last_at))
    }

    fn json(&self, host: &HostName, now: HostTime, is_told: &impl Fn(&JobName) -> bool) -> HostJson {
        let mut traced: BTreeMap<(&JobName, u32, u32, Option<bool>), u64> = BTreeMap::new();
        for ((job, _), one) in self.processes.iter().filter(|((job, _), _)| is_told(job)) {
            let info = one.info.as_ref();
            let key = (
                job,
                info.map_or(0, |info| info.nccl_version),
                info.map_or(0, |info| info.profiler_abi),
                // Before its first communicator a process says nothing.
                info.filter(|info| info.nccl_version != 0).map(|info| info.kernel_events),
            );
            *traced.entry(key).or_default() += 1;
        }
        let lost = &self.lost;
        HostJson {
            host: host.to_string(),
            agents: Vec::new(),
            last_agent: self.agent.as_ref().map(Said::json),
            first_heard_at: TimeJson::of(self.first_at),
            last_heard_at: TimeJson::of(self.last_at),
            silent_s: self.last_at.some().map_or(0.0, |last_at| seconds(now.since_ns(last_at))),
            behind_s: seconds(self.behind_ns),
            clock: self.clock.map(|clock| HostClockJson {
                offset_s: clock.offset_at(now) as f64 / NANOS_PER_SEC as f64,
                bound_s: clock.is_known().then(|| seconds(clock.bound_ns)),
                drift_ppm: f64::from(clock.drift_ppb) / 1000.0,
            }),
            agent_dropped: self.agent_dropped,
            lost: LostJson {
                ring: lost.ring,
                probe: lost.probe,
                spool: lost.spool,
                damaged: lost.damaged,
                server: lost.server,
                last_at: TimeJson::of(lost.last_at),
            },
            traced: traced
                .into_iter()
                .map(|((job, nccl, profiler_abi, kernel_events), processes)| TracedJson {
                    job: job.to_string(),
                    processes,
                    nccl: (nccl != 0).then(|| NcclVersion(nccl).to_string()),
                    nccl_code: nccl,
                    profiler_abi,
                    kernel_events,
                })
                .collect(),
        }
    }
}

impl Said {
    fn json(&self) -> LastAgentJson {
        LastAgentJson {
            heard_at: TimeJson::exact(self.at),
            software: self.peer.software.clone(),
            wire_version: self.peer.version,
            spool: self.peer.spooled.map(SpoolJson::from),
        }
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / NANOS_PER_SEC as f64
}

/// The ranks of a job that agents have told of.
struct Known {
    first_at: HostTime,
    world: u32,
    ranks: BTreeSet<u32>,
    hosts: BTreeSet<HostName>,
}

impl Known {
    fn since(first_at: HostTime) -> Known {
        Known { first_at, world: 0, ranks: BTreeSet::new(), hosts: BTreeSet::new() }
    }

    fn json(&self, job: &JobName, now: HostTime) -> RanksOfJobJson {
        let mut ranges: Vec<[u32; 2]> = Vec::new();
        let mut missing = 0;
        let mut next = 0;
        // Gaps between ranks that are known, so that a world size that nobody vouches for costs nothing.
        for rank in self.ranks.iter().copied().filter(|rank| *rank < self.world).chain([self.world]) {
            if rank > next {
                missing += u64::from(rank - next);
                ranges.push([next, rank - 1]);
            }
            next = rank.saturating_add(1);
        }
        ranges.truncate(RANGES_MAX);
        RanksOfJobJson {
            job: job.to_string(),
            known_s: seconds(now.since_ns(self.first_at)),
            world_size: (self.world > 0).then_some(self.world),
            hosts: self.hosts.len() as u64,
            ranks: self.ranks.len() as u64,
            missing,
            missing_ranks: ranges,
        }
    }
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
