//! One fault of a scenario: what breaks, where, how badly and when.
mod facts;
mod kind;
mod text;

pub use kind::{Facts, FaultKind, FaultLevel, Nature};

use crate::cluster::Fabric;
use crate::layout::Coordinates;
use crate::profile::NEVER;
use crate::scenario::{DpMode, Scenario};
use serde::{Deserialize, Serialize};

/// One fault of a scenario. On the command line: `KIND@hostN[+hostM][:rankR][,severity=X]`, and `after`, `lasts`, `ramp`,
/// `every` in seconds like `severity`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What breaks.
    pub kind: FaultKind,
    /// Index of the host where it breaks.
    #[serde(default)]
    pub host: u32,
    /// Global rank, for faults of one rank; the first rank of the host when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The other host, for `background-traffic`; when absent the host half the cluster away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_host: Option<u32>,
    /// How bad; see [`FaultKind::severity_meaning`]. The kind's default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<f64>,
    /// Seconds between the job's first finished warm-up iteration and the fault (simulator: between the job's start and
    /// the fault).
    #[serde(default = "Fault::default_after_s")]
    pub after_s: f64,
    /// How long it lasts, seconds; for good when absent (simulator only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasts_s: Option<f64>,
    /// Over how many seconds it comes on, and goes away again where it ends; at once when absent (simulator only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ramp_s: Option<f64>,
    /// It comes back every so many seconds, each time for `lasts_s`; once when absent (simulator only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every_s: Option<f64>,
}

/// Steps in which a fault with `ramp_s` comes on.
pub const RAMP_STEPS: u32 = 8;
/// Longest time of a fault, seconds: a day, as the longest scenario.
const SECONDS_MAX: f64 = 86_400.0;

/// A stretch of time in which a fault acts with one strength.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stretch {
    /// From, nanoseconds of the simulation.
    pub from: u64,
    /// Until; [`NEVER`] for good.
    pub until: u64,
    /// Share of the full severity, above 0, at most 1.
    pub strength: f64,
}

impl Fault {
    /// A fault of `kind` on `host` with defaults for the rest.
    pub fn new(kind: FaultKind, host: u32) -> Fault {
        Fault {
            kind,
            host,
            rank: None,
            peer_host: None,
            severity: None,
            after_s: Fault::default_after_s(),
            lasts_s: None,
            ramp_s: None,
            every_s: None,
        }
    }

    /// How bad it is.
    pub fn severity(&self) -> f64 {
        self.severity.unwrap_or_else(|| self.kind.default_severity())
    }

    /// Default of `after_s`: a healthy baseline of about twenty iterations first.
    pub fn default_after_s() -> f64 {
        8.0
    }

    /// How long it lasts, seconds; `None`: for good.
    pub fn lasts_s(&self) -> Option<f64> {
        self.lasts_s.or_else(|| self.kind.usual_lasts_s())
    }

    /// The culprit ranks, for faults of a rank; else none.
    pub fn culprit_ranks(&self, scenario: &Scenario) -> Vec<u32> {
        if self.kind.level() != FaultLevel::Rank {
            return Vec::new();
        }
        let rank = self.rank.unwrap_or(self.host * scenario.ranks_per_host);
        if self.kind != FaultKind::CollectiveOrder {
            return vec![rank];
        }
        let layout = scenario.layout();
        let at = layout.coordinates(scenario.position_of(rank));
        // Its peer's peer: both call on the data-parallel group first, where the ranks between them call there last.
        let across = Coordinates { tp: (at.tp + 1) % layout.tp, dp: (at.dp + 1) % layout.dp, ..at };
        let mut both = vec![rank, scenario.rank_at(layout.rank(across))];
        both.sort_unstable();
        both.dedup();
        both
    }

    /// The culprit hosts, in index order: those of the culprit ranks, for faults of a rank.
    pub fn culprit_hosts(&self, scenario: &Scenario) -> Vec<u32> {
        let hosts = scenario.hosts;
        let mut culprits = match self.kind.level() {
            FaultLevel::HostPair => {
                vec![self.host, self.peer_host.unwrap_or((self.host + (hosts / 2).max(1)) % hosts.max(1))]
            }
            FaultLevel::Hosts if self.kind == FaultKind::SwitchReboot => {
                let per_leaf = scenario.cluster.hosts_per_leaf.max(1);
                let first = self.host / per_leaf * per_leaf;
                (first..(first + per_leaf).min(hosts)).collect()
            }
            FaultLevel::Hosts => (self.host..self.host.saturating_add(self.severity() as u32).min(hosts)).collect(),
            FaultLevel::Rank => self.culprit_ranks(scenario).iter().map(|rank| scenario.host_of(*rank)).collect(),
            FaultLevel::Host => vec![self.host],
            FaultLevel::All => (0..hosts).collect(),
            FaultLevel::Nobody => Vec::new(),
        };
        culprits.sort_unstable();
        culprits.dedup();
        culprits
    }

    /// When it acts, in the first `duration_s` seconds: stretches in time order that do not overlap.
    pub fn stretches(&self, duration_s: f64) -> Vec<Stretch> {
        let mut stretches = Vec::new();
        let mut begin = self.after_s;
        loop {
            self.occurrence(begin, &mut stretches);
            match self.every_s {
                Some(every) if self.lasts_s().is_some() && begin + every < duration_s => begin += every,
                _ => return stretches,
            }
        }
    }

    /// One occurrence: comes on in steps, lasts, goes away in steps.
    fn occurrence(&self, begin: f64, stretches: &mut Vec<Stretch>) {
        let end = self.lasts_s().map_or(NEVER, |lasts| nanos(begin + lasts));
        let Some(ramp) = self.ramp_s else {
            stretches.push(Stretch { from: nanos(begin), until: end, strength: 1.0 });
            return;
        };
        let steps = f64::from(RAMP_STEPS);
        for step in 0..RAMP_STEPS {
            let (from, strength) = (begin + ramp * f64::from(step) / steps, f64::from(step + 1) / steps);
            let last = step + 1 == RAMP_STEPS;
            let until = if last { end } else { nanos(begin + ramp * f64::from(step + 1) / steps) };
            stretches.push(Stretch { from: nanos(from), until, strength });
        }
        let Some(lasts) = self.lasts_s() else { return };
        for step in 1..RAMP_STEPS {
            let at = |step: u32| nanos(begin + lasts + ramp * f64::from(step - 1) / steps);
            let strength = f64::from(RAMP_STEPS - step) / steps;
            stretches.push(Stretch { from: at(step), until: at(step + 1), strength });
        }
    }

    /// Checks the fault against a scenario; the error is one line that names the field.
    ///
    /// # Errors
    /// One line that names the field.
    pub fn check(&self, scenario: &Scenario) -> Result<(), String> {
        self.check_place(scenario)?;
        self.check_profile()
    }

    /// Whether the testbed can do it; it must have passed [`Fault::check`]. The error begins with the field.
    pub(crate) fn check_testbed(&self) -> Result<(), String> {
        if self.kind.only_simulated() {
            return Err(format!("kind = {}: only the simulator plays this", self.kind));
        }
        for (field, value) in [("lasts_s", self.lasts_s), ("ramp_s", self.ramp_s), ("every_s", self.every_s)] {
            if let Some(value) = value {
                return Err(format!("{field} = {value}: only the simulator plays this; leave it out"));
            }
        }
        Ok(())
    }

    /// Whether severity and times make sense; the error begins with the field.
    pub(crate) fn check_profile(&self) -> Result<(), String> {
        let kind = self.kind;
        let (least, greatest) = kind.severity_range();
        let severity = self.severity();
        if !(least..=greatest).contains(&severity) {
            return Err(format!(
                "severity = {severity}: expected {least} to {greatest} for {kind} ({})",
                kind.severity_meaning()
            ));
        }
        if !(0.0..=SECONDS_MAX).contains(&self.after_s) {
            return Err(format!("after_s = {}: expected seconds, 0 to {SECONDS_MAX}", self.after_s));
        }
        for (field, value) in [("lasts_s", self.lasts_s), ("ramp_s", self.ramp_s), ("every_s", self.every_s)] {
            if let Some(value) = value
                && !(value > 0.0 && value <= SECONDS_MAX)
            {
                return Err(format!("{field} = {value}: expected seconds, more than 0, at most {SECONDS_MAX}"));
            }
        }
        let lasts = self.lasts_s().unwrap_or(f64::INFINITY);
        let nature = kind.facts().nature;
        match (self.lasts_s(), self.ramp_s, self.every_s) {
            (Some(lasts), _, _) if nature == Nature::Final => Err(format!("lasts_s = {lasts}: {kind} is for good")),
            (_, Some(ramp), _) if nature != Nature::Gradual => Err(format!("ramp_s = {ramp}: {kind} is there or not")),
            (_, Some(ramp), _) if ramp > lasts => Err(format!("ramp_s = {ramp}: expected at most lasts_s = {lasts}")),
            (None, _, Some(every)) => Err(format!("every_s = {every}: only with lasts_s")),
            (_, ramp, Some(every)) if every <= lasts + ramp.unwrap_or(0.0) => {
                Err(format!("every_s = {every}: expected more than lasts_s + ramp_s"))
            }
            _ => Ok(()),
        }
    }

    /// Whether the cluster has the fault's place, and the job something there that can break; the error begins with the
    /// field.
    fn check_place(&self, scenario: &Scenario) -> Result<(), String> {
        let (kind, hosts, per_host) = (self.kind, scenario.hosts, scenario.ranks_per_host);
        if self.host >= hosts {
            return Err(format!("host = {}: expected 0 to {} ({hosts} hosts)", self.host, hosts - 1));
        }
        let (first, last) = (self.host * per_host, (self.host + 1) * per_host - 1);
        match self.rank {
            Some(rank) if kind.level() != FaultLevel::Rank => {
                return Err(format!("rank = {rank}: {kind} is a fault of a host; leave the rank out"));
            }
            Some(rank) if !(first..=last).contains(&rank) => {
                return Err(format!("rank = {rank}: host {} has the global ranks {first} to {last}", self.host));
            }
            _ => {}
        }
        match self.peer_host {
            Some(peer) if kind.level() != FaultLevel::HostPair => {
                return Err(format!("peer_host = {peer}: {kind} has no second host"));
            }
            Some(peer) if peer >= hosts || peer == self.host => {
                return Err(format!("peer_host = {peer}: expected another host, 0 to {}", hosts - 1));
            }
            None if kind.level() == FaultLevel::HostPair && hosts < 2 => {
                return Err(format!("kind = {kind}: needs two hosts"));
            }
            _ => {}
        }
        if kind.needs_network() && hosts < 2 {
            return Err(format!("kind = {kind}: needs at least 2 hosts, nothing crosses the network"));
        }
        self.check_needs(scenario)
    }

    /// What single kinds need of the job.
    fn check_needs(&self, scenario: &Scenario) -> Result<(), String> {
        let kind = self.kind;
        let layout = scenario.layout();
        match kind {
            FaultKind::NetworkCongestion => match self.culprit_hosts(scenario)[..] {
                [one, other] if scenario.life.places.is_empty() && !scenario.neighbours(one).contains(&other) => {
                    let field = self.peer_host.map_or("peer_host".to_owned(), |peer| format!("peer_host = {peer}"));
                    Err(format!("{field}: the job sends nothing between hosts {one} and {other}"))
                }
                _ => Ok(()),
            },
            FaultKind::SwitchReboot if scenario.cluster.fabric != Fabric::SpineLeaf => {
                Err(format!("kind = {kind}: needs cluster.fabric = \"spine-leaf\""))
            }
            FaultKind::HostCrash | FaultKind::HostLost if self.host + self.severity() as u32 > scenario.hosts => {
                Err(format!("severity = {}: expected hosts up to {}", self.severity(), scenario.hosts - self.host))
            }
            FaultKind::CollectiveOrder
                if layout.tp < 2
                    || layout.dp < 2
                    || scenario.dp_mode == DpMode::Fsdp
                    || self
                        .culprit_ranks(scenario)
                        .iter()
                        .any(|rank| layout.coordinates(scenario.position_of(*rank)).pp > 0) =>
            {
                Err(format!("kind = {kind}: needs tp and dp of at least 2, no fsdp, and a rank of the first stage"))
            }
            FaultKind::SkippedCollective if layout.dp < 2 || scenario.dp_mode == DpMode::AllReduce => {
                Err(format!("kind = {kind}: needs dp of at least 2 and another dp_mode than all-reduce"))
            }
            FaultKind::WrongCollective | FaultKind::WrongSize if layout.dp < 2 => {
                Err(format!("kind = {kind}: needs dp of at least 2"))
            }
            _ => Ok(()),
        }
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        Scenario { ranks_per_host: 4, hosts: 4, ..Scenario::default() }
    }

    #[test]
    fn places_are_checked_against_the_cluster() {
        let check = |text: &str| text.parse::<Fault>().unwrap().check(&scenario());
        assert!(check("gpu-power@host2:rank9").is_ok());
        for (text, wanted) in [
            ("gpu-power@host2:rank3", "rank = 3: host 2 has the global ranks 8 to 11"),
            ("nic-down@host4", "host = 4: expected 0 to 3"),
            ("nic-down@host1:rank4", "rank = 4: nic-down is a fault of a host; leave the rank out"),
            ("background-traffic@host1+host1", "peer_host = 1: expected another host, 0 to 3"),
            ("nic-down@host1+host2", "peer_host = 2: nic-down has no second host"),
            ("gpu-power@host1,severity=0.5", "severity = 0.5: expected 1.01 to 100 for gpu-power"),
            ("gpu-power,lasts=0", "lasts_s = 0: expected seconds"),
            ("gpu-hang,lasts=5", "lasts_s = 5: gpu-hang is for good"),
            ("nic-down,ramp=5", "ramp_s = 5: nic-down is there or not"),
            ("gpu-power,lasts=5,ramp=6", "ramp_s = 6: expected at most lasts_s = 5"),
            ("gpu-power,every=5", "every_s = 5: only with lasts_s"),
            ("gpu-power,lasts=5,ramp=2,every=7", "every_s = 7: expected more than"),
            ("gpu-power,after=-1", "after_s = -1: expected seconds"),
            // TP 4 inside a host, DP between hosts 0 and 1, 2 and 3, PP between 0 and 2, 1 and 3.
            ("network-congestion@host0+host3", "peer_host = 3: the job sends nothing between hosts 0 and 3"),
            ("switch-reboot@host0", "kind = switch-reboot: needs cluster.fabric"),
            ("host-lost@host2,severity=3", "severity = 3: expected hosts up to 2"),
            ("collective-order@host2", "kind = collective-order: needs tp and dp"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.starts_with(wanted), "{text}: {error}");
        }
        assert!(check("network-congestion@host0+host1").is_ok());
        let alone = Scenario { hosts: 1, tp: 2, pp: 1, ..scenario() };
        let error = Fault::new(FaultKind::NicDown, 0).check(&alone).unwrap_err();
        assert!(error.contains("needs at least 2 hosts"), "{error}");
    }

    #[test]
    fn culprits_have_defaults() {
        let culprits = |kind, host| Fault::new(kind, host).culprit_hosts(&scenario());
        assert_eq!(Fault::new(FaultKind::GpuPower, 2).culprit_ranks(&scenario()), vec![8]);
        assert_eq!(Fault::new(FaultKind::NicDown, 2).culprit_ranks(&scenario()), Vec::<u32>::new());
        assert_eq!(culprits(FaultKind::GpuPower, 2), vec![2]);
        assert_eq!(culprits(FaultKind::BackgroundTraffic, 3), vec![1, 3]);
        assert_eq!(culprits(FaultKind::AgentOutage, 3), Vec::<u32>::new());
        let two = Scenario { hosts: 2, ..scenario() };
        assert_eq!(Fault::new(FaultKind::BackgroundTraffic, 0).culprit_hosts(&two), vec![0, 1]);
    }

    #[test]
    fn some_faults_have_several_culprits() {
        let fault: Fault = "host-lost@host1,severity=2".parse().unwrap();
        assert_eq!(fault.culprit_hosts(&scenario()), vec![1, 2]);
        let mut leaves = scenario();
        leaves.cluster.hosts_per_leaf = 3;
        assert_eq!(Fault::new(FaultKind::SwitchReboot, 2).culprit_hosts(&leaves), vec![0, 1, 2]);
        assert_eq!(Fault::new(FaultKind::SwitchReboot, 3).culprit_hosts(&leaves), vec![3]);
        // Rank 1 and, one further in both directions, rank 6.
        let order: Fault = "collective-order@host0:rank1".parse().unwrap();
        assert_eq!(order.culprit_ranks(&scenario()), vec![1, 6]);
        assert_eq!(order.culprit_hosts(&scenario()), vec![0, 1]);
    }
}
