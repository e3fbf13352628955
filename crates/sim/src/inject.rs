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
            FaultLevel::All => self.apply_to_all(effects),
            _ => {
                for host in self.fault.culprit_hosts(self.scenario) {
                    self.apply_to_host(effects, host);
                }
            }
        }
    }

    fn apply_to_all(&self, effects: &mut Effects) {
        let waits = |ms: f64| {
            let of = move |stretch: &Stretch| (stretch.from, stretch.until, (ms * 1e6 * stretch.strength) as u64);
            self.stretches.iter().map(of).collect::<Vec<_>>()
        };
        let severity = self.fault.severity();
        if self.fault.kind == FaultKind::WanderingPauses {
            effects.wandering.extend(waits(severity));
        }
        for host in 0..self.scenario.hosts {
            match self.fault.kind {
                FaultKind::AllDevices => {
                    self.each_rank(effects, host, |parts| self.scale(&mut parts.compute, 1.0 / severity));
                }
                FaultKind::AllNics => self.nic(effects, host, 1.0 / severity),
                FaultKind::SlowStorage => {
                    self.each_rank(effects, host, |parts| parts.data_waits.extend(waits(severity)));
                }
                _ => {}
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
            FaultKind::HostIssue => {
                let of = |stretch: &Stretch| (stretch.from, stretch.until, (severity * 1e6 * stretch.strength) as u64);
                parts.issue_waits.extend(self.stretches.iter().map(of));
            }
            FaultKind::ProxySlow => self.scale(&mut parts.proxy, 1.0 / severity),
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
            FaultKind::NicBandwidth | FaultKind::NicSend | FaultKind::NicReceive => self.slow_nic(effects, host),
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

    /// A NIC that is slow in one direction or both.
    fn slow_nic(&self, effects: &mut Effects, host: u32) {
        let rate = 1.0 / self.fault.severity();
        match self.fault.kind {
            FaultKind::NicSend => self.scale(&mut effects.host(host).nic_tx, rate),
            FaultKind::NicReceive => self.scale(&mut effects.host(host).nic_rx, rate),
            _ => self.nic(effects, host, rate),
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

#[cfg(test)]
mod tests;
