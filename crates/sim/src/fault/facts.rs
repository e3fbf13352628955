//! What follows from the facts of a kind of fault.
use super::kind::{FaultKind, FaultLevel};
use mycroft_record::What;

impl FaultKind {
    /// The kinds that the testbed plays, Mycroft's seven first.
    pub const TESTBED: [FaultKind; 10] = [
        FaultKind::NicDown,
        FaultKind::NicBandwidth,
        FaultKind::PcieDowngrade,
        FaultKind::GpuPower,
        FaultKind::BackgroundCompute,
        FaultKind::BackgroundTraffic,
        FaultKind::ProxyDelay,
        FaultKind::GpuHang,
        FaultKind::RankCrash,
        FaultKind::RankStuck,
    ];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        self.facts().word
    }

    /// Who the culprit is.
    pub fn level(self) -> FaultLevel {
        self.facts().level
    }

    /// Whether only the simulator plays it.
    pub fn only_simulated(self) -> bool {
        !FaultKind::TESTBED.contains(&self) && self != FaultKind::JobEnded
    }

    /// Whether the job is at fault at all. If not, what is seen of it is disturbed, and no case may be opened.
    pub fn is_of_job(self) -> bool {
        self.level() != FaultLevel::Nobody
    }

    /// Whether the job stops altogether, at least for as long as it lasts (else it goes on, slower or as before).
    pub fn stops_job(self) -> bool {
        self.facts().whats.first().is_some_and(|what| *what != What::Slowdown)
    }

    /// Whether it shows only where something crosses the network.
    pub fn needs_network(self) -> bool {
        use FaultKind::{
            AllNics, BackgroundTraffic, CpuContention, CpuThrottling, CrossNuma, LinkFlap, MemoryAlignment,
            NetworkCongestion, NicBandwidth, NicDown, NicReceive, NicSend, PcieContention, ProxyDelay, ProxySlow,
            SwitchReboot,
        };
        matches!(
            self,
            AllNics
                | BackgroundTraffic
                | CpuContention
                | CpuThrottling
                | CrossNuma
                | LinkFlap
                | MemoryAlignment
                | NetworkCongestion
                | NicBandwidth
                | NicDown
                | NicReceive
                | NicSend
                | PcieContention
                | ProxyDelay
                | ProxySlow
                | SwitchReboot
        )
    }

    /// How long it lasts when the scenario does not say, seconds; `None`: for good.
    pub fn usual_lasts_s(self) -> Option<f64> {
        match self {
            // Long enough that a case must be opened, short enough that no connection gives up.
            FaultKind::LinkFlap => Some(4.0),
            FaultKind::SwitchReboot => Some(15.0),
            FaultKind::AgentOutage | FaultKind::StoreOutage => Some(5.0),
            _ => None,
        }
    }

    /// What `severity` means for this kind, for help texts and error messages.
    pub fn severity_meaning(self) -> &'static str {
        match self.facts().severity {
            "" => "not used: the fault is there or not",
            meaning => meaning,
        }
    }

    /// Severity used when none is given: for the testbed's kinds large enough that an iteration takes at least 1.5 times
    /// as long on the shapes in `scenarios/`.
    pub fn default_severity(self) -> f64 {
        self.facts().usual
    }

    /// The severities that make sense, least and greatest.
    pub fn severity_range(self) -> (f64, f64) {
        self.facts().range
    }
}
