//! What each kind of fault does to the parts of a cluster. The testbed does the same with real processes
//! (`crates/testbed/src/fault`), so that one scenario file means one thing.
use crate::effects::{CpuTaken, Effects, RankEffects, WrongCall, earliest};
use crate::fault::{Fault, FaultKind, FaultLevel, Stretch};
use crate::profile::{NEVER, Profile};
use crate::random::Random;
use crate::scenario::Scenario;

/// Copy speed that a severity of 1 stands for in `pcie-downgrade`, bytes per second: the testbed's.
pub(crate) const PCIE_BYTES_PER_SEC: f64 = 64_000_000.0;
/// What a healthy PCIe link carries, in multiples of what the NIC behind it does: 64 GB/s (gen5 x16) to 50 GB/s (400 Gb/s).
const PCIE_HEADROOM: f64 = 1.28;
/// How long the proxy sleeps in `proxy-delay`, nanoseconds (Mycroft section 7.1 #7).
const PROXY_SLEEP_NS: u64 = 1_000_000_000;
/// Time slice that a thread waits for another process to use up, nanoseconds (Linux: 3 to 4 ms when two compete).
const TIME_SLICE_NS: u64 = 4_000_000;
/// Power of a device without a limit, watts (Pulse 7.2.6).
const POWER_W: f64 = 700.0;
/// Rate of computation for a share of the power: from three quarters down it falls nearly as the power does.
const RATE_PER_POWER: f64 = 1.3;
/// Share of a slot's time on the wire that the proxy thread works on it: 3 us to 10.5 us (512 KiB at 400 Gb/s).
const PROXY_SHARE: f64 = 0.29;
/// Bytes of a slot, and what the proxy thread takes for one look at it when healthy: the engine's.
const SLOT_BYTES: f64 = 65_536.0;
/// See [`SLOT_BYTES`].
const PROXY_NS: f64 = 3_000.0;
/// What fluctuates holds for so long, nanoseconds: a few round trips of a congestion control that overshoots.
const GUST_NS: u64 = 250_000_000;
/// Most gusts of one stretch of a fault; longer stretches have longer gusts.
const GUSTS_MAX: u64 = 240;

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
        match self.fault.kind.level() {
            FaultLevel::Rank => {
                for rank in self.fault.culprit_ranks(self.scenario) {
                    self.apply_to_rank(effects.rank(rank));
                }
            }
            FaultLevel::Nobody if self.fault.kind == FaultKind::JobEnded => {
                effects.end(self.scenario, self.begin(), self.fault.severity());
            }
            FaultLevel::Nobody => self.disturb(effects),
            _ => {
                for host in self.fault.culprit_hosts(self.scenario) {
                    self.apply_to_host(effects, host);
                }
            }
        }
    }

    fn apply_to_rank(&self, parts: &mut RankEffects) {
        let (severity, begin) = (self.fault.severity(), self.begin());
        let later = begin.saturating_add((severity * 1e9) as u64);
        match self.fault.kind {
            FaultKind::PcieDowngrade => self.scale(&mut parts.copy, self.copy_rate(PCIE_BYTES_PER_SEC / severity)),
            FaultKind::PcieContention => self.scale(&mut parts.copy, self.copy_rate(self.pcie() * (1.0 - severity))),
            FaultKind::GpuPower => self.scale(&mut parts.compute, 1.0 / severity),
            FaultKind::GpuThrottling => {
                self.scale(&mut parts.compute, (RATE_PER_POWER * severity / POWER_W).min(1.0));
            }
            FaultKind::MemoryAlignment => self.scale(&mut parts.send, 1.0 / severity),
            FaultKind::ProxyDelay => self.sleeps(parts, severity / 100.0, PROXY_SLEEP_NS),
            FaultKind::DataWait => {
                for stretch in &self.stretches {
                    let wait = (severity * 1e6 * stretch.strength) as u64;
                    parts.data_waits.push((stretch.from, stretch.until, wait));
                }
            }
            FaultKind::RankFrozen => {
                let end = self.stretches.first().map_or(NEVER, |stretch| stretch.until);
                parts.frozen = Some((begin, end));
            }
            FaultKind::GpuHang => earliest(&mut parts.hangs_at, begin),
            FaultKind::RankCrash => earliest(&mut parts.killed_at, begin),
            FaultKind::RankStuck => earliest(&mut parts.stuck_at, begin),
            FaultKind::GpuExecutionError => {
                earliest(&mut parts.hangs_at, begin);
                earliest(&mut parts.killed_at, later);
            }
            FaultKind::CudaExecutionError => {
                earliest(&mut parts.stuck_at, begin);
                earliest(&mut parts.killed_at, later);
            }
            FaultKind::WrongCollective => parts.wrong_call = Some((begin, WrongCall::OtherKind)),
            FaultKind::WrongSize => parts.wrong_call = Some((begin, WrongCall::OtherCount)),
            FaultKind::SkippedCollective => parts.wrong_call = Some((begin, WrongCall::Skipped)),
            FaultKind::CollectiveOrder => parts.wrong_call = Some((begin, WrongCall::OtherOrder)),
            _ => {}
        }
    }

    fn apply_to_host(&self, effects: &mut Effects, host: u32) {
        let severity = self.fault.severity();
        match self.fault.kind {
            // A switch that restarts holds no link: the ports of its hosts lose their carrier like one whose cable is out.
            FaultKind::NicDown | FaultKind::LinkFlap | FaultKind::SwitchReboot => {
                self.nic(effects, host, 0.0);
                let down = self.stretches.iter().map(|stretch| (stretch.from, stretch.until));
                effects.host(host).link_down.extend(down);
            }
            FaultKind::NicBandwidth => self.nic(effects, host, 1.0 / severity),
            FaultKind::CrossNuma => {
                let mut chance = Random::stream(self.scenario.seed, 0x0C05_0000 + u64::from(host));
                self.gusts(&mut effects.host(host).nic_tx, 1.0 / severity, 0.6, &mut chance);
                self.gusts(&mut effects.host(host).nic_rx, 1.0 / severity, 0.6, &mut chance);
            }
            FaultKind::BackgroundTraffic => {
                self.nic(effects, host, 1.0 - severity);
                self.count_traffic(effects, host, severity);
            }
            FaultKind::NetworkCongestion => {
                for &other in self.fault.culprit_hosts(self.scenario).iter().filter(|other| **other != host) {
                    let mut chance = Random::stream(self.scenario.seed, 0x0C06_0000 + u64::from(host));
                    self.gusts(effects.path(host, other), 1.0 - severity, 0.3, &mut chance);
                }
            }
            FaultKind::BackgroundCompute => {
                self.each_rank(effects, host, |parts| self.scale(&mut parts.compute, 1.0 / severity));
            }
            FaultKind::CpuThrottling => {
                self.each_rank(effects, host, |parts| {
                    self.scale(&mut parts.host, 1.0 / severity);
                    self.scale(&mut parts.proxy, self.proxy_rate(severity));
                });
                let of = |stretch: &Stretch| (stretch.from, stretch.until, 1.0 + (severity - 1.0) * stretch.strength);
                effects.host(host).cpu_slower.extend(self.stretches.iter().map(of));
            }
            FaultKind::CpuContention => {
                let (waits, slice_ns) = contention(severity);
                self.each_rank(effects, host, |parts| {
                    self.scale(&mut parts.host, 1.0 - waits);
                    self.sleeps(parts, waits, slice_ns);
                });
                let of = |&Stretch { from, until, strength }: &Stretch| {
                    let (asked, waits) = (severity / 100.0 * strength, waits * strength);
                    CpuTaken { from, until, asked, waits }
                };
                effects.host(host).cpu_taken.extend(self.stretches.iter().map(of));
            }
            FaultKind::HostCrash => {
                self.each_rank(effects, host, |parts| earliest(&mut parts.killed_at, self.begin()));
            }
            FaultKind::HostLost => {
                self.each_rank(effects, host, |parts| earliest(&mut parts.killed_at, self.begin()));
                self.nic(effects, host, 0.0);
                effects.host(host).agent_out.push((self.begin(), NEVER));
            }
            _ => {}
        }
    }

    /// What is seen of the job is disturbed, not the job.
    fn disturb(&self, effects: &mut Effects) {
        for stretch in &self.stretches {
            let (from, until) = (stretch.from, stretch.until);
            match self.fault.kind {
                FaultKind::AgentOutage => effects.host(self.fault.host).agent_out.push((from, until)),
                FaultKind::StoreOutage => effects.store_out.push((from, until)),
                FaultKind::RecordLoss => {
                    let share = self.fault.severity() / 100.0 * stretch.strength;
                    effects.host(self.fault.host).lost.push((from, until, share));
                }
                _ => {}
            }
        }
    }

    /// When it first acts.
    fn begin(&self) -> u64 {
        self.stretches.first().map_or(NEVER, |stretch| stretch.from)
    }

    fn each_rank(&self, effects: &mut Effects, host: u32, apply: impl Fn(&mut RankEffects)) {
        let per_host = self.scenario.ranks_per_host;
        for rank in host * per_host..(host + 1) * per_host {
            apply(effects.rank(rank));
        }
    }

    fn sleeps(&self, parts: &mut RankEffects, share: f64, ns: u64) {
        let of = |stretch: &Stretch| (stretch.from, stretch.until, share * stretch.strength, ns);
        parts.proxy_sleeps.extend(self.stretches.iter().map(of));
    }

    /// A copy speed as a share of the healthy one.
    fn copy_rate(&self, bytes_per_sec: f64) -> f64 {
        (bytes_per_sec / self.scenario.cluster.copy_bytes_per_sec as f64).min(1.0)
    }

    /// What one channel of one rank gets from its PCIe link when all send, bytes per second.
    fn pcie(&self) -> f64 {
        pcie_bytes_per_sec(self.scenario)
    }

    /// Rate of a proxy thread on processors that are so many times slower.
    fn proxy_rate(&self, times: f64) -> f64 {
        (PROXY_NS / proxy_ns(self.scenario, times)).min(1.0 / times)
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

    /// Like [`Injection::scale`], but the rate is now higher, now lower by this share.
    fn gusts(&self, part: &mut Profile, rate: f64, share: f64, chance: &mut Random) {
        let end = (self.scenario.duration_s * 1e9) as u64;
        for stretch in &self.stretches {
            let until = stretch.until.min(end).max(stretch.from);
            let gust = GUST_NS.max((until - stretch.from) / GUSTS_MAX);
            let mut from = stretch.from;
            loop {
                let last = from + gust >= until;
                let to = if last { stretch.until } else { from + gust };
                let now = rate * chance.around_one(share);
                part.scale(from, to, (1.0 - stretch.strength) + stretch.strength * now);
                if last {
                    break;
                }
                from = to;
            }
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

/// What one channel of one rank gets from its PCIe link when all ranks send, bytes per second.
pub(crate) fn pcie_bytes_per_sec(scenario: &Scenario) -> f64 {
    let sharing = scenario.ranks_per_host * scenario.channels;
    PCIE_HEADROOM * scenario.nic_bytes_per_sec as f64 * f64::from(scenario.cluster.nics_per_host) / f64::from(sharing)
}

/// What one look of a proxy thread takes on processors that are so many times slower. The cluster's NICs are scaled down
/// and its proxies are not, so a healthy proxy's share of a slot's time is taken from a real host.
pub(crate) fn proxy_ns(scenario: &Scenario, times: f64) -> f64 {
    PROXY_SHARE * SLOT_BYTES * 1e9 / scenario.nic_bytes_per_sec as f64 * times
}

/// How often a thread finds its core taken, and for how long, where others ask for so many percent of the processors: at
/// 80 % there is still a free core for all, at 100 % each shares its core with one other, at 400 % with four.
pub(crate) fn contention(percent: f64) -> (f64, u64) {
    let others = percent / 100.0;
    let waits = if others > 1.0 { others / (1.0 + others) } else { ((percent - 80.0) / 40.0).clamp(0.0, 0.5) };
    (waits, (TIME_SLICE_NS as f64 * others.max(1.0)) as u64)
}

/// Keeps the earlier moment.
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
    fn a_link_that_is_down_carries_nothing_in_either_direction() {
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
    fn other_traffic_leaves_a_share_at_both_ends() {
        let effects = effects("background-traffic@host0+host2,severity=0.75");
        for host in [0, 2] {
            assert_eq!(effects.hosts[&host].nic_rx.rate_at(20 * S), 0.25);
            assert_eq!(effects.hosts[&host].other_traffic, vec![(10 * S, NEVER, 37_500_000)]);
        }
        assert!(effects.hosts.len() == 2 && effects.paths.is_empty());
    }

    #[test]
    fn congestion_is_of_one_path_and_comes_in_gusts() {
        let effects = effects("network-congestion@host0+host1,severity=0.8,lasts=20");
        let path = &effects.paths[&(1, 0)];
        let rates: Vec<f64> = (10..30).map(|second| path.rate_at(second * S)).collect();
        assert!(rates.iter().all(|rate| (0.14..=0.26).contains(rate)) && rates[0] != rates[1], "{rates:?}");
        assert_eq!((path.rate_at(9 * S), path.rate_at(30 * S)), (1.0, 1.0));
        assert!(effects.hosts.is_empty());
    }

    #[test]
    fn power_limits_and_slow_processors_become_rates() {
        assert_eq!(effects("gpu-throttling@host0,severity=350").ranks[&0].compute.rate_at(20 * S), 0.65);
        let throttled = effects("cpu-throttling@host1,severity=4");
        assert_eq!(throttled.ranks[&5].host.rate_at(20 * S), 0.25);
        // 64 KiB take 1.3 ms at 50 MB/s; the proxy needs 0.29 x 4 of that.
        let rate = throttled.ranks[&5].proxy.rate_at(20 * S);
        assert!((rate - 3_000.0 / (0.29 * 4.0 * 1_310_720.0)).abs() < 1e-9, "{rate}");
        let busy = effects("cpu-contention@host1,severity=90");
        assert_eq!(busy.ranks[&6].proxy_sleeps, vec![(10 * S, NEVER, 0.25, 4_000_000)]);
        // A fifth of the PCIe link of one of four ranks behind a NIC of 50 MB/s, for each of two channels.
        let contended = effects("pcie-contention@host1,severity=0.8").ranks[&4].copy.rate_at(20 * S);
        assert!((contended - 0.2 * 1.28 * 50e6 / 8.0 / 2e9).abs() < 1e-9, "{contended}");
    }

    #[test]
    fn what_is_not_of_the_job_touches_only_what_is_seen() {
        assert_eq!(effects("agent-outage@host1").hosts[&1].agent_out, vec![(10 * S, 15 * S)]);
        assert_eq!(effects("store-outage,lasts=7").store_out, vec![(10 * S, 17 * S)]);
        assert_eq!(effects("record-loss@host2,severity=5").hosts[&2].lost, vec![(10 * S, NEVER, 0.05)]);
    }

    #[test]
    fn every_kind_does_something() {
        for &kind in FaultKind::ALL {
            let mut scenario = Scenario { duration_s: 60.0, ..Scenario::default() };
            scenario.cluster.fabric = crate::Fabric::SpineLeaf;
            scenario.cluster.hosts_per_leaf = 2;
            let peer_host = (kind.level() == FaultLevel::HostPair).then_some(1);
            scenario.fault = Some(Fault { peer_host, ..Fault::new(kind, 0) });
            scenario.check().unwrap();
            assert_ne!(Effects::of(&scenario), Effects::default(), "{kind}");
        }
    }

    #[test]
    fn faults_that_end_a_rank_have_a_moment() {
        assert_eq!(effects("gpu-hang@host0").ranks[&0].hangs_at, Some(10 * S));
        assert_eq!(effects("rank-crash@host1").ranks[&4].killed_at, Some(10 * S));
        assert_eq!(effects("rank-stuck@host1:rank7").ranks[&7].stuck_at, Some(10 * S));
        let failed = &effects("gpu-execution-error@host1,severity=3").ranks[&4];
        assert_eq!((failed.hangs_at, failed.killed_at), (Some(10 * S), Some(13 * S)));
        let lost = effects("host-lost@host1,severity=2");
        assert!((4..12).all(|rank| lost.ranks[&rank].killed_at == Some(10 * S)));
        assert_eq!(lost.hosts[&2].agent_out, vec![(10 * S, NEVER)]);
        let order = effects("collective-order@host0");
        assert!([0, 5].iter().all(|rank| order.ranks[rank].wrong_call == Some((10 * S, WrongCall::OtherOrder))));
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
