//! What does not change while a job runs: hosts, groups, wires, parts, clocks.
use crate::cluster::Fabric;
use crate::collective::{Parts, Wire, mix};
use crate::effects::{Effects, HostEffects};
use crate::layout::{Coordinates, GroupKind, Layout};
use crate::profile::Profile;
use crate::scenario::Scenario;
use mycroft_record::{CommId, HostName, HostTime, JobName};
use std::sync::Arc;

/// Simulated time 0 on every clock that is right: nanoseconds since 1970 (2025-06-15).
pub const EPOCH: u64 = 1_750_000_000 * mycroft_record::NANOS_PER_SEC;
/// Wire clocks tell whole microseconds, and so does everything that is stored.
const TICK_NS: u64 = 1_000;

/// A communicator.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: CommId,
    pub(crate) kind: GroupKind,
    pub(crate) name: Arc<str>,
    /// Global ranks in communicator order.
    pub(crate) members: Vec<u32>,
    /// Hosts that it spans.
    pub(crate) hosts: u32,
}

/// A host's clock against the true time.
#[derive(Clone, Copy, Debug, Default)]
struct HostClock {
    offset_ns: i64,
    /// Parts per billion.
    drift: i64,
}

/// The unchanging part of a simulation.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) layout: Layout,
    pub(crate) effects: Effects,
    pub(crate) groups: Vec<Group>,
    /// For each rank and kind of group (`kind_index`): group and position; `None` where it is alone.
    seats: Vec<[Option<(u32, u32)>; KINDS]>,
    /// By rank, where hosts have changed places: its position in the layout.
    positions: Vec<u32>,
    healthy: Parts,
    /// Parts of ranks that are not healthy throughout.
    parts: std::collections::BTreeMap<u32, Parts>,
    clocks: Vec<HostClock>,
    host_names: Vec<HostName>,
    pub(crate) job: JobName,
    /// How many flows of each kind share a NIC at a time.
    shares: [f64; KINDS],
}

/// Kinds of groups.
pub(crate) const KINDS: usize = 5;

/// Dense number of a kind.
pub(crate) fn kind_index(kind: GroupKind) -> usize {
    match kind {
        GroupKind::Tensor => 0,
        GroupKind::Pipeline => 1,
        GroupKind::Data => 2,
        GroupKind::Expert => 3,
        GroupKind::Context => 4,
    }
}

impl World {
    pub(crate) fn new(scenario: &Scenario) -> World {
        let layout = scenario.layout();
        let effects = Effects::of(scenario);
        let host_names: Vec<HostName> =
            (0..scenario.hosts).map(|host| HostName::from(scenario.host_name(host))).collect();
        let mut world = World {
            scenario: scenario.clone(),
            layout,
            groups: Vec::new(),
            seats: vec![[None; KINDS]; scenario.world() as usize],
            positions: positions(scenario),
            healthy: Parts::default(),
            parts: effects.ranks.iter().map(|(rank, effects)| (*rank, Parts::of(effects))).collect(),
            clocks: (0..scenario.hosts).map(|host| HostClock::of(scenario, host)).collect(),
            host_names,
            job: scenario.name.as_str().into(),
            shares: [1.0; KINDS],
            effects,
        };
        world.make_groups();
        world.share_nics();
        world
    }

    fn make_groups(&mut self) {
        for group in self.layout.groups() {
            let at = self.groups.len() as u32;
            let kind = kind_index(group.kind);
            let members: Vec<u32> = group.ranks.iter().map(|at| self.scenario.rank_at(*at)).collect();
            for (position, rank) in members.iter().enumerate() {
                self.seats[*rank as usize][kind] = Some((at, position as u32));
            }
            let mut hosts: Vec<u32> = members.iter().map(|rank| self.scenario.host_of(*rank)).collect();
            hosts.sort_unstable();
            hosts.dedup();
            let id = CommId(mix(mix(self.scenario.seed, kind as u64), u64::from(group.index)));
            let name = group.name().into();
            self.groups.push(Group { id, kind: group.kind, name, members, hosts: hosts.len() as u32 });
        }
    }

    /// Counts, for each kind of group, the connections that leave the busiest NIC at the same time.
    fn share_nics(&mut self) {
        let nics = self.scenario.cluster.nics_per_host.max(1) as usize;
        let mut out = vec![[0u32; KINDS]; self.scenario.hosts as usize * nics];
        for group in &self.groups {
            let n = group.members.len();
            for (m, rank) in group.members.iter().enumerate() {
                let peers: Vec<usize> = match group.kind {
                    GroupKind::Expert => (0..n).filter(|peer| *peer != m).collect(),
                    GroupKind::Pipeline => vec![if m + 1 < n { m + 1 } else { m - 1 }],
                    _ => vec![(m + 1) % n],
                };
                let far = peers.iter().filter(|peer| self.far(*rank, group.members[**peer])).count();
                out[self.nic(*rank)][kind_index(group.kind)] += far as u32;
            }
        }
        for kind in 0..KINDS {
            let most = out.iter().map(|nic| nic[kind]).max().unwrap_or(0).max(1);
            let channels = if kind == kind_index(GroupKind::Pipeline) || kind == kind_index(GroupKind::Expert) {
                1
            } else {
                self.scenario.channels
            };
            self.shares[kind] = f64::from(most * channels);
        }
    }

    /// Index of a rank's NIC among all.
    pub(crate) fn nic(&self, rank: u32) -> usize {
        let per_host = self.scenario.ranks_per_host.max(1);
        let nics = self.scenario.cluster.nics_per_host.max(1);
        let local = rank % per_host;
        (rank / per_host * nics + local * nics / per_host.max(nics)) as usize
    }

    fn far(&self, a: u32, b: u32) -> bool {
        self.scenario.host_of(a) != self.scenario.host_of(b)
    }

    /// Which part of the model a rank has.
    pub(crate) fn coordinates(&self, rank: u32) -> Coordinates {
        self.layout.coordinates(self.positions.get(rank as usize).copied().unwrap_or(rank))
    }

    /// The rank's group of a kind and its position in it.
    pub(crate) fn seat(&self, rank: u32, kind: GroupKind) -> Option<(u32, u32)> {
        self.seats[rank as usize][kind_index(kind)]
    }

    /// All groups of a rank with its position.
    pub(crate) fn seats(&self, rank: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.seats[rank as usize].iter().flatten().copied()
    }

    pub(crate) fn parts(&self, rank: u32) -> &Parts {
        self.parts.get(&rank).unwrap_or(&self.healthy)
    }

    /// Nothing is ever wrong with any part of a rank.
    pub(crate) fn is_healthy(&self, rank: u32) -> bool {
        !self.parts.contains_key(&rank)
    }

    pub(crate) fn host_effects(&self, host: u32) -> Option<&HostEffects> {
        self.effects.hosts.get(&host)
    }

    /// What lies between two ranks of a group of this kind.
    pub(crate) fn wire(&self, from: u32, to: u32, kind: GroupKind) -> Wire {
        let cluster = &self.scenario.cluster;
        let (here, there) = (self.scenario.host_of(from), self.scenario.host_of(to));
        if here == there {
            let ns_per_byte = 1e9 / cluster.nvlink_bytes_per_sec as f64;
            return Wire { network: false, ns_per_byte, latency_ns: 0, profile: None };
        }
        let own = self.shares[kind_index(kind)] * 1e9 / self.scenario.nic_bytes_per_sec as f64;
        let crosses = match cluster.fabric {
            Fabric::Single => false,
            Fabric::Rail => {
                self.nic(from) % cluster.nics_per_host as usize != self.nic(to) % cluster.nics_per_host as usize
            }
            Fabric::SpineLeaf => here / cluster.hosts_per_leaf.max(1) != there / cluster.hosts_per_leaf.max(1),
        };
        let ns_per_byte = if crosses { own * cluster.oversubscription } else { own };
        let hops = if crosses { 3.0 } else { 1.0 };
        let latency_ns = (cluster.latency_us * 1e3 * hops) as u64;
        Wire { network: true, ns_per_byte, latency_ns, profile: self.wire_profile(from, to) }
    }

    /// What is wrong with the sender, its NIC, the path and the receiver's NIC together: the slowest of them decides.
    fn wire_profile(&self, from: u32, to: u32) -> Option<Profile> {
        let effects = &self.effects;
        if effects.hosts.is_empty() && effects.paths.is_empty() && effects.ranks.is_empty() {
            return None;
        }
        let (here, there) = (self.scenario.host_of(from), self.scenario.host_of(to));
        let [sender, out] = self.sending(from);
        let into = effects.hosts.get(&there).map(|host| &host.nic_rx);
        let path = effects.paths.get(&(here, there));
        let profile = [sender, out, into, path]
            .into_iter()
            .flatten()
            .filter(|profile| !profile.is_healthy())
            .fold(Profile::HEALTHY, |all, one| all.slower(one));
        (!profile.is_healthy()).then_some(profile)
    }

    /// What is wrong with a rank's sends on the rank's side: its own, and those of its NIC.
    fn sending(&self, from: u32) -> [Option<&Profile>; 2] {
        let sender = self.effects.ranks.get(&from).map(|rank| &rank.send);
        [sender, self.effects.hosts.get(&self.scenario.host_of(from)).map(|host| &host.nic_tx)]
    }

    /// The same as one rate.
    pub(crate) fn sending_profile(&self, from: u32) -> Profile {
        self.sending(from).into_iter().flatten().fold(Profile::HEALTHY, |all, one| all.slower(one))
    }

    pub(crate) fn host_name(&self, host: u32) -> &HostName {
        &self.host_names[host as usize]
    }

    /// What the clock of a host says at a simulated moment, in whole microseconds.
    pub(crate) fn host_time(&self, host: u32, at: u64) -> HostTime {
        let clock = self.clocks[host as usize];
        // Parts per billion of whole microseconds: 10^12 us of eleven days times 10^6 stay under 2^63.
        let drifted = (at / TICK_NS) as i64 * clock.drift / 1_000_000;
        let time = (EPOCH + at) as i64 + clock.offset_ns + drifted;
        HostTime(time as u64 / TICK_NS * TICK_NS)
    }
}

/// By rank: its position in the layout; none where each host is at its own place.
fn positions(scenario: &Scenario) -> Vec<u32> {
    let mut positions = vec![0; if scenario.life.places.is_empty() { 0 } else { scenario.world() as usize }];
    for position in 0..positions.len() as u32 {
        positions[scenario.rank_at(position) as usize] = position;
    }
    positions
}

impl HostClock {
    fn of(scenario: &Scenario, host: u32) -> HostClock {
        let signed = |purpose: u64, most: f64| {
            let bits = mix(mix(scenario.seed, 0xC10C + purpose), u64::from(host));
            ((2.0 * crate::collective::unit(bits) - 1.0) * most) as i64
        };
        HostClock {
            offset_ns: signed(0, scenario.cluster.clock_offset_us * 1e3),
            drift: signed(1, scenario.cluster.clock_drift_ppm * 1e3),
        }
    }
}
