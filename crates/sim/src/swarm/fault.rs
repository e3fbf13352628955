//! The faults of a drawn scenario: kind, place, severity and profile over time. A severity is drawn so that the fault shows:
//! an iteration takes half as long again at least, by the load's arithmetic.
use super::chance::{between, coin, pick};
use super::family::Family;
use super::load::{self, Load};
use crate::cluster::Fabric;
use crate::fault::{Fault, FaultKind, FaultLevel, Nature};
use crate::inject::{PCIE_BYTES_PER_SEC, contention, pcie_bytes_per_sec, proxy_ns};
use crate::layout::GroupKind;
use crate::random::Random;
use crate::scenario::{Algo, DpMode, Scenario};

/// What an iteration grows by, as a share of it, at least and at most.
const GROWTH: (f64, f64) = (0.7, 1.3);
/// Seconds that a fault is there before a run ends, and iterations as they are with it.
const SHOWN_S: f64 = 12.0;
/// See [`SHOWN_S`].
const SHOWN_ITERATIONS: f64 = 8.0;
/// Shortest run, seconds.
const DURATION_S_MIN: f64 = 25.0;
/// Iterations before the first fault: what the diagnosis learns from.
const BASELINE: f64 = 14.0;
/// Tries for a place that fits before another kind is drawn, and for kinds.
const TRIES: u32 = 40;

const MYCROFT: &[FaultKind] = &FaultKind::TESTBED;
const PULSE: &[FaultKind] = &[
    FaultKind::NicDown,
    FaultKind::GpuThrottling,
    FaultKind::CpuThrottling,
    FaultKind::CpuContention,
    FaultKind::PcieDowngrade,
    FaultKind::PcieContention,
    FaultKind::NetworkCongestion,
    FaultKind::CrossNuma,
    FaultKind::MemoryAlignment,
    FaultKind::GpuExecutionError,
    FaultKind::CudaExecutionError,
];
const FALCON: &[FaultKind] = &[FaultKind::CpuContention, FaultKind::GpuThrottling, FaultKind::NetworkCongestion];
const FLIGHT_RECORDER: &[FaultKind] = &[
    FaultKind::RankStuck,
    FaultKind::DataWait,
    FaultKind::RankFrozen,
    FaultKind::RankCrash,
    FaultKind::WrongCollective,
    FaultKind::WrongSize,
    FaultKind::SkippedCollective,
    FaultKind::CollectiveOrder,
    FaultKind::GpuHang,
];
const INFRASTRUCTURE: &[FaultKind] = &[
    FaultKind::LinkFlap,
    FaultKind::SwitchReboot,
    FaultKind::HostCrash,
    FaultKind::HostLost,
    FaultKind::AgentOutage,
    FaultKind::StoreOutage,
    FaultKind::RecordLoss,
];
const ENDINGS: &[FaultKind] =
    &[FaultKind::JobEnded, FaultKind::JobEnded, FaultKind::JobEnded, FaultKind::RankCrash, FaultKind::HostCrash];
const VIEW: &[FaultKind] = &[FaultKind::AgentOutage, FaultKind::StoreOutage, FaultKind::RecordLoss];
const COMPOUND: &[FaultKind] = &[
    FaultKind::CpuContention,
    FaultKind::GpuThrottling,
    FaultKind::NetworkCongestion,
    FaultKind::GpuPower,
    FaultKind::NicBandwidth,
    FaultKind::DataWait,
];

/// Draws a family's faults into the scenario, and how long it runs.
pub(super) fn draw(scenario: &mut Scenario, chance: &mut Random, family: Family, load: &Load, iteration_s: f64) {
    let begin = baseline_s(scenario, iteration_s) + between(chance, 0.5, 3.0);
    // As many iterations as a case needs, each as slow as the fault makes it.
    let shown_s = SHOWN_S.max(SHOWN_ITERATIONS * iteration_s * (1.0 + GROWTH.1));
    scenario.duration_s = (begin + shown_s).max(DURATION_S_MIN);
    let mut drawer = Drawer { scenario, chance, load, iteration_s };
    match family {
        Family::Slow | Family::Steady => {}
        Family::Healthy => {
            if coin(drawer.chance) {
                let fault = drawer.fault(VIEW, begin, &[]);
                drawer.scenario.fault = fault;
            }
        }
        Family::Mycroft => drawer.only(MYCROFT, begin),
        Family::Pulse => drawer.only(PULSE, begin),
        Family::FlightRecorder => drawer.only(FLIGHT_RECORDER, begin),
        Family::Infrastructure => drawer.only(INFRASTRUCTURE, begin),
        Family::Endings => drawer.only(ENDINGS, begin),
        Family::Falcon => {
            drawer.only(FALCON, begin);
            drawer.passing();
        }
        Family::Compound => drawer.several(begin, shown_s),
    }
}

/// When the job has shown a baseline, seconds: warm-up, pauses and [`BASELINE`] healthy iterations.
fn baseline_s(scenario: &Scenario, iteration_s: f64) -> f64 {
    let warm_up = f64::from(scenario.warm_up_iterations) * scenario.warm_up_factor * iteration_s;
    let start = (scenario.life.first_connect_ms + scenario.start_skew_ms as f64) / 1e3;
    let checkpoints = if scenario.checkpoint_every > 0 { 2.0 * scenario.checkpoint_ms as f64 / 1e3 } else { 0.0 };
    start + warm_up + checkpoints + BASELINE * iteration_s
}

struct Drawer<'a> {
    scenario: &'a mut Scenario,
    chance: &'a mut Random,
    load: &'a Load,
    iteration_s: f64,
}

impl Drawer<'_> {
    fn only(&mut self, kinds: &[FaultKind], begin: f64) {
        self.scenario.fault = self.fault(kinds, begin, &[]);
        self.scenario.duration_s += self.scenario.fault.as_ref().and_then(|fault| fault.ramp_s).unwrap_or(0.0);
    }

    /// FALCON: what comes slowly and goes again.
    fn passing(&mut self) {
        let (slowly, ends) = (coin(self.chance), coin(self.chance));
        let end = self.scenario.duration_s;
        let Some(fault) = &mut self.scenario.fault else { return };
        let ramp = between(self.chance, 2.0, 5.0);
        if slowly && fault.ramp_s.is_none() {
            fault.ramp_s = Some(to_millis(ramp));
            self.scenario.duration_s += ramp;
        }
        if ends {
            let ramp = fault.ramp_s.unwrap_or(0.0);
            fault.lasts_s = Some(to_millis(end - fault.after_s + ramp));
            // Some iterations for the job to recover in.
            self.scenario.duration_s += ramp + 6.0 * self.iteration_s;
        }
    }

    /// Two or three faults at different places: one after the other, or the second while the first lasts.
    fn several(&mut self, begin: f64, shown_s: f64) {
        let count = if self.chance.below(4) == 0 { 3 } else { 2 };
        let mut at = begin;
        let mut taken: Vec<u32> = Vec::new();
        for index in 0..count {
            let Some(mut fault) = self.fault(COMPOUND, at, &taken) else { continue };
            taken.extend(fault.culprit_hosts(self.scenario));
            let overlaps = coin(self.chance);
            let last = index + 1 == count;
            if !last {
                fault.lasts_s = Some(to_millis(if overlaps { 2.0 * shown_s } else { shown_s }));
            }
            let recovers = 8.0 * self.iteration_s;
            at += if overlaps { shown_s } else { shown_s + recovers };
            self.scenario.faults.push(fault);
        }
        self.scenario.duration_s = at;
    }

    /// A fault of one of the kinds that fits the job, away from the hosts that others have.
    fn fault(&mut self, kinds: &[FaultKind], begin: f64, taken: &[u32]) -> Option<Fault> {
        for _ in 0..TRIES {
            let kind = *pick(self.chance, kinds);
            self.make_room(kind);
            for _ in 0..TRIES {
                let Some(mut fault) = self.place(kind) else { continue };
                fault.after_s = begin;
                if fault.culprit_hosts(self.scenario).iter().any(|host| taken.contains(host)) {
                    continue;
                }
                if self.profile(&mut fault).is_none() {
                    continue;
                }
                for time in [&mut fault.lasts_s, &mut fault.ramp_s, &mut fault.every_s].into_iter().flatten() {
                    *time = to_millis(*time);
                }
                if fault.check(self.scenario).is_ok() {
                    return Some(fault);
                }
            }
        }
        None
    }

    /// Kinds that need something of the job get it.
    fn make_room(&mut self, kind: FaultKind) {
        let scenario = &mut *self.scenario;
        match kind {
            FaultKind::SwitchReboot => {
                scenario.cluster.fabric = Fabric::SpineLeaf;
                scenario.cluster.hosts_per_leaf = (scenario.hosts / 4).clamp(2, 8);
            }
            FaultKind::SkippedCollective if scenario.dp_mode == DpMode::AllReduce => {
                scenario.dp_mode = DpMode::ReduceScatter;
            }
            // Trees join other pairs of hosts than rings.
            FaultKind::NetworkCongestion => scenario.algo = Algo::Ring,
            _ => {}
        }
    }

    /// Somewhere the kind can break something that the job uses.
    fn place(&mut self, kind: FaultKind) -> Option<Fault> {
        let host = self.chance.below(u64::from(self.scenario.hosts)) as u32;
        let mut fault = Fault::new(kind, host);
        match kind.level() {
            FaultLevel::Rank => {
                let per_host = self.scenario.ranks_per_host;
                let rank = host * per_host + self.chance.below(u64::from(per_host)) as u32;
                fault.rank = Some(rank);
                if kind.needs_network() || kind == FaultKind::PcieDowngrade {
                    // What goes from stage to stage alone may be late without anybody waiting.
                    self.far_kinds(rank).find(|kind| *kind != GroupKind::Pipeline)?;
                }
            }
            FaultLevel::HostPair if kind == FaultKind::BackgroundTraffic => {
                let others = u64::from(self.scenario.hosts - 1);
                fault.peer_host = Some((host + 1 + self.chance.below(others) as u32) % self.scenario.hosts);
            }
            // The next in a ring of gradients, or the next stage.
            FaultLevel::HostPair => {
                let (_, peer) = self.busiest_peer(host)?;
                fault.peer_host = Some(peer);
            }
            _ => {}
        }
        Some(fault)
    }

    /// The busiest kind of traffic from a host to one other, and that other.
    fn busiest_peer(&self, host: u32) -> Option<(GroupKind, u32)> {
        let scenario = &self.scenario;
        let mut best: Option<(f64, GroupKind, u32)> = None;
        for kind in [GroupKind::Data, GroupKind::Context, GroupKind::Pipeline] {
            let bytes = self.load.network_bytes_of(kind);
            for rank in host * scenario.ranks_per_host..(host + 1) * scenario.ranks_per_host {
                for peer in load::peers(scenario, kind, rank) {
                    let there = scenario.host_of(peer);
                    if there != host && best.is_none_or(|(most, _, _)| bytes > most) {
                        best = Some((bytes, kind, there));
                    }
                }
            }
        }
        best.map(|(_, kind, there)| (kind, there))
    }

    /// The kinds of groups in which a rank sends to another host.
    fn far_kinds(&self, rank: u32) -> impl Iterator<Item = GroupKind> {
        let scenario = &*self.scenario;
        GroupKind::ALL.into_iter().filter(move |kind| {
            let peers = load::peers(scenario, *kind, rank);
            peers.iter().any(|peer| scenario.host_of(*peer) != scenario.host_of(rank))
        })
    }

    /// The speed at which one channel's copies of what a rank sends to other hosts take so long; `None`: it sends nothing.
    fn slow_copy(&self, rank: u32, seconds: f64) -> Option<f64> {
        let bytes: f64 = self.far_kinds(rank).map(|kind| load::bytes_of_rank(self.scenario, kind)).sum();
        (bytes > 0.0).then(|| bytes / f64::from(self.scenario.channels) / seconds)
    }

    /// Severity, and how it goes on. `None`: this job would not show the fault.
    fn profile(&mut self, fault: &mut Fault) -> Option<()> {
        let grows = between(self.chance, GROWTH.0, GROWTH.1);
        fault.severity = self.severity(fault, grows)?;
        match fault.kind {
            FaultKind::LinkFlap => {
                fault.lasts_s = Some(between(self.chance, 3.0, 5.0));
                fault.every_s = Some(between(self.chance, 9.0, 12.0));
            }
            // How much hand-overs hide behind each other cannot be told beforehand: an iteration may get much longer.
            FaultKind::CpuThrottling => self.scenario.duration_s += SHOWN_ITERATIONS * self.iteration_s,
            FaultKind::SwitchReboot => fault.lasts_s = Some(between(self.chance, 10.0, 18.0)),
            FaultKind::AgentOutage | FaultKind::StoreOutage => fault.lasts_s = Some(between(self.chance, 1.0, 6.0)),
            kind if kind.facts().nature == Nature::Gradual && self.chance.below(4) == 0 => {
                fault.ramp_s = Some(between(self.chance, 0.5, 3.0));
            }
            _ => {}
        }
        Some(())
    }

    /// The severity with which an iteration takes `1 + grows` times as long; `Some(None)`: the kind has none.
    #[allow(clippy::option_option)]
    fn severity(&mut self, fault: &Fault, grows: f64) -> Option<Option<f64>> {
        let scenario = &*self.scenario;
        let (least, greatest) = fault.kind.severity_range();
        let compute_s =
            f64::from(scenario.micro_batches * scenario.layers) * (scenario.forward_ms + scenario.backward_ms) / 1e3;
        let extra_s = grows * self.iteration_s;
        let nic_s = self.load.network_bytes() / scenario.nic_bytes_per_sec as f64;
        let slower_nic = 1.0 + extra_s / nic_s;
        let severity = match fault.kind {
            FaultKind::GpuPower | FaultKind::BackgroundCompute => 1.0 + extra_s / compute_s,
            FaultKind::GpuThrottling => {
                let most = 700.0 / 1.3 / (1.0 + GROWTH.0 * self.iteration_s / compute_s);
                let fits: Vec<f64> = [350.0, 300.0, 250.0, 200.0].into_iter().filter(|watts| *watts <= most).collect();
                if fits.is_empty() { most } else { *pick(self.chance, &fits) }
            }
            FaultKind::NicBandwidth | FaultKind::CrossNuma => slower_nic,
            FaultKind::BackgroundTraffic => 1.0 - 1.0 / slower_nic,
            FaultKind::NetworkCongestion => {
                let (kind, _) = self.busiest_peer(fault.host)?;
                let path_s = self.load.network_bytes_of(kind) / scenario.nic_bytes_per_sec as f64;
                (1.0 - 1.0 / (1.0 + extra_s / path_s)).max(0.5)
            }
            // Copies go on beside the wire: only what they take longer than it shows.
            FaultKind::PcieDowngrade => PCIE_BYTES_PER_SEC / self.slow_copy(fault.rank?, extra_s + nic_s)?,
            FaultKind::PcieContention => {
                (1.0 - self.slow_copy(fault.rank?, extra_s + nic_s)? / pcie_bytes_per_sec(scenario)).max(0.5)
            }
            FaultKind::MemoryAlignment => {
                let waited_for = self.far_kinds(fault.rank?).filter(|kind| *kind != GroupKind::Pipeline);
                let far: f64 = waited_for.map(|kind| self.load.network_bytes_of(kind)).sum();
                1.0 + 1.5 * extra_s * scenario.nic_bytes_per_sec as f64 / far
            }
            FaultKind::ProxyDelay => 100.0 * extra_s.max(0.5) / load::steps(scenario),
            FaultKind::CpuThrottling => {
                let look_s = proxy_ns(scenario, 1.0) / 1e9;
                // A long ring waits for every slice once a proxy takes longer for one than the wire does.
                let one_by_one = (extra_s + nic_s) / (load::SLICES_OF_STEP * load::steps(scenario));
                let late_s = (extra_s / load::hand_overs(scenario)).min(one_by_one);
                (late_s / look_s).max(FaultKind::CpuThrottling.default_severity())
            }
            FaultKind::CpuContention => busy_percent(extra_s / load::steps(scenario)),
            FaultKind::DataWait => extra_s * 1e3,
            FaultKind::GpuExecutionError | FaultKind::CudaExecutionError => between(self.chance, 0.5, 4.0),
            FaultKind::HostCrash | FaultKind::HostLost => 1.0 + self.chance.below(3) as f64,
            FaultKind::RecordLoss => between(self.chance, 1.0, 20.0),
            FaultKind::JobEnded => between(self.chance, 0.0, 100.0),
            _ => return Some(None),
        };
        // Four digits are enough and read better.
        let severity = (severity * 1e4).round() / 1e4;
        (severity <= greatest).then_some(Some(severity.max(least)))
    }
}

/// Whole milliseconds: they are enough and read better.
fn to_millis(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// The percentage of busy processors at which a hand-over is late by so much on average.
fn busy_percent(late_s: f64) -> f64 {
    let late = |percent: f64| {
        let (waits, ns) = contention(percent);
        waits * ns as f64 / 1e9
    };
    let mut percent = 90.0;
    while late(percent) < late_s && percent < 1e4 {
        percent += 10.0;
    }
    percent
}
