//! Who is in the job, and in which of its communicators, by what their segments show.
use super::gates::Job;
use anyhow::{Result, bail};
use mycroft_diagnose::validate::{Group, Shape};
use mycroft_record::Rank;
use mycroft_ring::gate::LaneKind;
use std::collections::{BTreeMap, BTreeSet};

/// Ranks of the job, in the order of its gates.
pub(super) struct Members {
    ranks: Vec<Rank>,
    /// Where each is in that order.
    places: BTreeMap<Rank, usize>,
    hosts: Vec<String>,
    /// Members by their rank in each communicator, with how many it has.
    comms: BTreeMap<u64, (u32, BTreeMap<u32, Rank>)>,
}

impl Members {
    /// Reads them.
    pub(super) fn of(job: &Job) -> Result<Members> {
        let ranks: Vec<Rank> = job.ranks().into_iter().map(Rank).collect();
        let places: BTreeMap<Rank, usize> = ranks.iter().copied().zip(0..).collect();
        if places.len() != ranks.len() || places.contains_key(&Rank(u32::MAX)) {
            bail!("the processes of the job did not tell their ranks, each its own: set RANK in their environment");
        }
        let hosts = job.hosts();
        let mut comms: BTreeMap<u64, (u32, BTreeMap<u32, Rank>)> = BTreeMap::new();
        for (view, rank) in job.shown()?.iter().zip(&ranks) {
            for lane in view.lanes.iter().filter(|lane| lane.key.kind == LaneKind::Collective) {
                let (_, members) = comms.entry(lane.key.comm).or_insert((lane.key.other, BTreeMap::new()));
                members.insert(lane.key.own, *rank);
            }
        }
        comms.retain(|_, (count, members)| members.len() == *count as usize && *count > 1);
        Ok(Members { ranks, places, hosts, comms })
    }

    /// The communicators that were named.
    pub(super) fn groups(&self, named: &[String], shape: Shape) -> Result<Vec<Group>> {
        let widest = self.comms.values().map(|(count, _)| *count).max().unwrap_or(0);
        let mut chosen = BTreeSet::new();
        for name in named {
            let is_it = |comm: u64, count: u32| match name.as_str() {
                "all" => true,
                "widest" => count == widest,
                number => u64::from_str_radix(number, 16) == Ok(comm),
            };
            let of: Vec<u64> = self
                .comms
                .iter()
                .map(|(comm, of)| (*comm, of.0))
                .filter(|of| is_it(of.0, of.1))
                .map(|of| of.0)
                .collect();
            if of.is_empty() {
                bail!(
                    "no communicator {name:?} with all its members here; there are {}",
                    self.comms
                        .iter()
                        .map(|(comm, of)| format!("{comm:016x} ({} ranks)", of.0))
                        .collect::<Vec<_>>()
                        .join(", ")
                );
            }
            chosen.extend(of);
        }
        let group = |comm: &u64| {
            let (_, members) = self.comms.get(comm)?;
            Some(Group { comm: *comm, members: members.values().copied().collect(), shape })
        };
        Ok(chosen.iter().filter_map(group).collect())
    }

    /// Everybody.
    pub(super) fn known(&self) -> BTreeSet<Rank> {
        self.ranks.iter().copied().collect()
    }

    /// How many.
    pub(super) fn count(&self) -> usize {
        self.ranks.len()
    }

    /// How many hosts.
    pub(super) fn host_count(&self) -> usize {
        self.hosts.iter().collect::<BTreeSet<_>>().len()
    }

    /// The place of a rank among the gates.
    pub(super) fn place(&self, rank: Rank) -> Option<usize> {
        self.places.get(&rank).copied()
    }

    /// The host of a rank.
    pub(super) fn host(&self, rank: Rank) -> &str {
        self.place(rank).and_then(|place| self.hosts.get(place)).map_or("?", String::as_str)
    }
}
