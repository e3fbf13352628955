//! What each kind of fault does to the parts of a cluster. The testbed does the same with real processes
//! (`crates/testbed/src/fault`), so that one scenario file means one thing.
use crate::effects::Effects;
use crate::fault::{Fault, FaultKind, Stretch};
use crate::profile::{NEVER, Profile};
use crate::scenario::Scenario;

/// Copy speed that a severity of 1 stands for in `pcie-downgrade`, bytes per second: the testbed's.
const PCIE_BYTES_PER_SEC: f64 = 64_000_000.0;
/// How long the proxy sleeps in `proxy-delay`, nanoseconds (Mycroft section 7.1 #7).
const PROXY_SLEEP_NS: u64 = 1_000_000_000;

impl Effects {
    /// Everything that the scenario's faults do, by part and time; a fault's `after_s` counts from 0. The scenario must
    /// have passed [`Scenario::check`].
    pub fn of(scenario: &Scenario) -> Effects {
        let mut effects = Effects::default();
        for fault in scenario.all_faults() {
            Injection { scenario, fault, stretches: fault.stretches(scenario.duration_s) }.apply(&mut effects);
        }
        effects
    }
}

/// One fault on its way into the parts.
struct Injection<'a> {
    scenario: &'a Scenario,
    fault: &'a Fault,
    stretches: Vec<Stretch>,
}

impl Injection<'_> {
    fn apply(&self, effects: &mut Effects) {
        let severity = self.fault.severity();
        let rank = self.fault.culprit_rank(self.scenario.ranks_per_host);
        let rank = rank.unwrap_or(self.fault.host * self.scenario.ranks_per_host);
        let host = self.fault.host;
        match self.fault.kind {
            FaultKind::NicDown => self.link_down(effects, host),
            FaultKind::NicBandwidth => self.nic(effects, host, 1.0 / severity),
            FaultKind::PcieDowngrade => {
                let healthy = self.scenario.cluster.copy_bytes_per_sec as f64;
                self.scale(&mut effects.rank(rank).copy, (PCIE_BYTES_PER_SEC / severity / healthy).min(1.0));
            }
            FaultKind::GpuPower => self.scale(&mut effects.rank(rank).compute, 1.0 / severity),
            FaultKind::BackgroundCompute => {
                for rank in self.ranks_of(host) {
                    self.scale(&mut effects.rank(rank).compute, 1.0 / severity);
                }
            }
            FaultKind::BackgroundTraffic => self.background_traffic(effects, severity),
            FaultKind::ProxyDelay => {
                for stretch in &self.stretches {
                    let share = severity / 100.0 * stretch.strength;
                    effects.rank(rank).proxy_sleeps.push((stretch.from, stretch.until, share, PROXY_SLEEP_NS));
                }
            }
            FaultKind::GpuHang => earliest(&mut effects.rank(rank).hangs_at, self.begin()),
            FaultKind::RankCrash => earliest(&mut effects.rank(rank).killed_at, self.begin()),
            FaultKind::RankStuck => earliest(&mut effects.rank(rank).stuck_at, self.begin()),
        }
    }

    /// When it first acts.
    fn begin(&self) -> u64 {
        self.stretches.first().map_or(NEVER, |stretch| stretch.from)
    }

    fn ranks_of(&self, host: u32) -> std::ops::Range<u32> {
        let per_host = self.scenario.ranks_per_host;
        host * per_host..(host + 1) * per_host
    }

    /// Brings a part down to `rate` where the fault has its full strength, and part of the way where it has less.
    fn scale(&self, part: &mut Profile, rate: f64) {
        for stretch in &self.stretches {
            part.scale(stretch.from, stretch.until, (1.0 - stretch.strength) + stretch.strength * rate);
        }
    }

    /// Both directions of a host's NICs.
    fn nic(&self, effects: &mut Effects, host: u32, rate: f64) {
        self.scale(&mut effects.host(host).nic_tx, rate);
        self.scale(&mut effects.host(host).nic_rx, rate);
    }

    fn link_down(&self, effects: &mut Effects, host: u32) {
        self.nic(effects, host, 0.0);
        let down = self.stretches.iter().map(|stretch| (stretch.from, stretch.until));
        effects.host(host).link_down.extend(down);
    }

    /// Other traffic between two hosts fills their NICs, both ways, and the path between them.
    fn background_traffic(&self, effects: &mut Effects, share: f64) {
        let left = 1.0 - share;
        let hosts = self.fault.culprit_hosts(self.scenario.hosts);
        for &host in &hosts {
            self.nic(effects, host, left);
            self.count_traffic(effects, host, share);
        }
        if let [one, other] = hosts[..] {
            self.scale(effects.path(one, other), left);
            self.scale(effects.path(other, one), left);
        }
    }

    /// Other traffic at a host's interface, as a share of what its NICs can do.
    fn count_traffic(&self, effects: &mut Effects, host: u32, share: f64) {
        let all = self.scenario.nic_bytes_per_sec as f64 * share;
        for stretch in &self.stretches {
            let rate = (all * stretch.strength) as u64;
            effects.host(host).other_traffic.push((stretch.from, stretch.until, rate));
        }
    }
}

/// Keeps the earlier moment.
fn earliest(at: &mut Option<u64>, moment: u64) {
    *at = Some(at.map_or(moment, |before| before.min(moment)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn effects(text: &str) -> Effects {
        let fault = Fault { after_s: 10.0, ..text.parse().unwrap() };
        let scenario = Scenario { fault: Some(fault), duration_s: 100.0, ..Scenario::default() };
        scenario.check().unwrap();
        Effects::of(&scenario)
    }

    #[test]
    fn a_link_that_is_down_carries_nothing_either_way() {
        let effects = effects("nic-down@host2");
        let host = &effects.hosts[&2];
        assert_eq!((host.nic_tx.rate_at(9 * S), host.nic_tx.rate_at(10 * S)), (1.0, 0.0));
        assert_eq!(host.nic_rx.rate_at(90 * S), 0.0);
        assert_eq!(host.link_down, vec![(10 * S, NEVER)]);
        assert!(effects.ranks.is_empty() && effects.paths.is_empty());
    }

    #[test]
    fn rates_are_what_the_testbed_makes_them() {
        assert_eq!(effects("nic-bandwidth@host1,severity=10").hosts[&1].nic_tx.rate_at(NEVER - 1), 0.1);
        // 64 MB/s / 16 of a healthy 2 GB/s.
        assert_eq!(effects("pcie-downgrade@host1:rank6").ranks[&6].copy.rate_at(50 * S), 0.002);
        assert_eq!(effects("gpu-power@host1:rank6,severity=2").ranks[&6].compute.rate_at(50 * S), 0.5);
        let host = effects("background-compute@host3,severity=4");
        assert_eq!(host.ranks.keys().copied().collect::<Vec<u32>>(), vec![12, 13, 14, 15]);
        let sleepy = effects("proxy-delay@host0:rank1,severity=5");
        assert_eq!(sleepy.ranks[&1].proxy_sleeps, vec![(10 * S, NEVER, 0.05, S)]);
    }

    #[test]
    fn other_traffic_leaves_a_share_at_both_ends_and_between_them() {
        let effects = effects("background-traffic@host0+host2,severity=0.75");
        for host in [0, 2] {
            assert_eq!(effects.hosts[&host].nic_rx.rate_at(20 * S), 0.25);
            assert_eq!(effects.hosts[&host].other_traffic, vec![(10 * S, NEVER, 37_500_000)]);
        }
        assert_eq!(effects.paths[&(2, 0)].rate_at(20 * S), 0.25);
        assert_eq!(effects.hosts.len(), 2);
    }

    #[test]
    fn faults_that_end_a_rank_have_a_moment() {
        assert_eq!(effects("gpu-hang@host0").ranks[&0].hangs_at, Some(10 * S));
        assert_eq!(effects("rank-crash@host1").ranks[&4].killed_at, Some(10 * S));
        assert_eq!(effects("rank-stuck@host1:rank7").ranks[&7].stuck_at, Some(10 * S));
    }

    #[test]
    fn several_faults_act_together() {
        let fault = |text: &str, after_s: f64| Fault { after_s, ..text.parse().unwrap() };
        let scenario = Scenario {
            fault: Some(fault("gpu-power@host0,severity=2", 10.0)),
            faults: vec![fault("background-compute@host0,severity=4", 20.0), fault("gpu-hang@host0", 40.0)],
            ..Scenario::default()
        };
        let effects = Effects::of(&scenario);
        assert_eq!(effects.ranks[&0].compute.rate_at(15 * S), 0.5);
        assert_eq!(effects.ranks[&0].compute.rate_at(25 * S), 0.125);
        assert_eq!(effects.ranks[&1].compute.rate_at(25 * S), 0.25);
        assert_eq!(effects.ranks[&0].hangs_at, Some(40 * S));
    }

    #[test]
    fn a_fault_can_come_on_slowly_and_go_and_come_back() {
        let mut fault: Fault = "gpu-power@host0,severity=2,lasts=20,ramp=8,every=60".parse().unwrap();
        fault.after_s = 10.0;
        let scenario = Scenario { fault: Some(fault), duration_s: 100.0, ..Scenario::default() };
        scenario.check().unwrap();
        let compute = &Effects::of(&scenario).ranks[&0].compute;
        let rates: Vec<f64> = (9..20).map(|second| compute.rate_at(second * S)).collect();
        assert_eq!(rates, [1.0, 0.9375, 0.875, 0.8125, 0.75, 0.6875, 0.625, 0.5625, 0.5, 0.5, 0.5]);
        let rates: Vec<f64> = (29..39).map(|second| compute.rate_at(second * S)).collect();
        assert_eq!(rates, [0.5, 0.5625, 0.625, 0.6875, 0.75, 0.8125, 0.875, 0.9375, 1.0, 1.0]);
        assert_eq!(compute.rate_at(69 * S), 1.0);
        assert_eq!(compute.rate_at(80 * S), 0.5);
        assert_eq!(compute.rate_at(99 * S), 1.0);
    }
}
