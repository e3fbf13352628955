//! Every kind of fault with what is known of it: where it comes from, who is the culprit, what its severity means, which
//! diagnosis is right and which would be tempting. `docs/formats/scenario.md` shows this table.
use mycroft_record::{Category, What};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Who the culprit of a fault is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultLevel {
    /// One rank (two for `collective-order`).
    Rank,
    /// One host.
    Host,
    /// Two hosts, or the path between them.
    HostPair,
    /// Several hosts that fail together.
    Hosts,
    /// The whole job: no rank and no host may be named before others.
    All,
    /// Nobody: what is seen of the job is disturbed, not the job. No case may be opened.
    Nobody,
}

/// How a fault goes on in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nature {
    /// There is more or less of it: it can come on slowly, end, and come back.
    Gradual,
    /// It is there or not; it can end and come back.
    Switch,
    /// It does not end: what is gone does not come back.
    Final,
}

/// What is known of a kind of fault.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Facts {
    /// The stable word.
    pub word: &'static str,
    /// Where it is described.
    pub source: &'static str,
    /// What breaks.
    pub breaks: &'static str,
    /// Who the culprit is.
    pub level: FaultLevel,
    /// How it goes on in time.
    pub nature: Nature,
    /// What `severity` means; empty: there is none.
    pub severity: &'static str,
    /// The severity when none is given.
    pub usual: f64,
    /// Least and greatest severity that make sense.
    pub range: (f64, f64),
    /// Right answers to "what is wrong", the best first.
    pub whats: &'static [What],
    /// Right kinds of fault, the best first; the others are accepted because nothing that can be seen tells them apart.
    pub categories: &'static [Category],
    /// The diagnosis that would be wrong but tempting.
    pub tempting: &'static str,
}

const SLOW: &[What] = &[What::Slowdown];
const HANG: &[What] = &[What::Hang];
const NETWORK: &[Category] = &[Category::NetworkSend, Category::NetworkReceive];
const UNUSED: (f64, f64) = (0.0, 1000.0);

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident, $word:literal, $source:literal, $level:ident, $nature:ident,
        severity: ($severity:literal, $usual:expr, $range:expr), right: $whats:expr, $categories:expr,
        tempting: $tempting:literal;)+) => {
        /// The kinds of fault: the testbed's ten first, then what only the simulator plays.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum FaultKind { $($(#[doc = $doc])+ $variant,)+ }

        impl FaultKind {
            /// Every kind, the testbed's first.
            pub const ALL: &'static [FaultKind] = &[$(FaultKind::$variant,)+];

            /// What is known of it.
            pub fn facts(self) -> &'static Facts {
                match self {
                    $(FaultKind::$variant => &const { Facts {
                        word: $word,
                        source: $source,
                        breaks: concat!($($doc,)+),
                        level: FaultLevel::$level,
                        nature: Nature::$nature,
                        severity: $severity,
                        usual: $usual,
                        range: $range,
                        whats: $whats,
                        categories: $categories,
                        tempting: $tempting,
                    } },)+
                }
            }
        }
    };
}

kinds! {
    /// The host's link goes down and stays down.
    NicDown, "nic-down", "Mycroft 7.1 #1, Pulse Table 4", Host, Switch,
        severity: ("", 1.0, UNUSED), right: HANG, NETWORK,
        tempting: "the hosts that wait for it, which stop in the same instant";
    /// The host's NIC moves only a fraction of what it could.
    NicBandwidth, "nic-bandwidth", "Mycroft 7.1 #2", Host, Gradual,
        severity: ("how many times slower the NIC is", 10.0, (1.01, 1000.0)), right: SLOW, NETWORK,
        tempting: "all members of its data-parallel groups, whose operations last equally long";
    /// One rank copies slowly between device memory and the transport's slots.
    PcieDowngrade, "pcie-downgrade", "Mycroft 7.1 #3, Pulse Table 4", Rank, Gradual,
        severity: ("how many times slower the copy is than 64 MB/s", 16.0, (1.1, 1000.0)),
        right: SLOW, &[Category::GpuCopy],
        tempting: "the host's NIC: it sends less, because it is given less";
    /// One rank's device computes slower.
    GpuPower, "gpu-power", "Mycroft 7.1 #4", Rank, Gradual,
        severity: ("how many times longer compute takes", 4.0, (1.01, 100.0)), right: SLOW, &[Category::Gpu],
        tempting: "the next stage of its pipeline, whose sends come late as well (Pulse D.4 has to name both)";
    /// All ranks of a host compute slower.
    BackgroundCompute, "background-compute", "Mycroft 7.1 #5", Host, Gradual,
        severity: ("how many times longer compute takes", 4.0, (1.01, 100.0)), right: SLOW, &[Category::Gpu],
        tempting: "one of its ranks alone: the one that happens to finish last";
    /// Other traffic shares the NICs of two hosts.
    BackgroundTraffic, "background-traffic", "Mycroft 7.1 #6", HostPair, Gradual,
        severity: ("other traffic, in multiples of the NIC's capacity", 0.95, (0.01, 0.98)),
        right: SLOW, &[Category::NetworkCongestion],
        tempting: "one of the two NICs: each is slow towards everybody";
    /// One rank's proxy thread falls asleep for a second now and then.
    ProxyDelay, "proxy-delay", "Mycroft 7.1 #7", Rank, Gradual,
        severity: ("percent of the sent steps that sleep for a second", 10.0, (0.0001, 100.0)),
        right: SLOW, &[Category::HostThread],
        tempting: "the network: data that is ready is not sent";
    /// One rank's device stops for good.
    GpuHang, "gpu-hang", "Flight Recorder, category 2", Rank, Final,
        severity: ("", 1.0, UNUSED), right: HANG, &[Category::Gpu],
        tempting: "its peers, which are inside the operation that it never enters";
    /// One rank's process is killed.
    RankCrash, "rank-crash", "Flight Recorder, category 1", Rank, Final,
        severity: ("", 1.0, UNUSED), right: &[What::Crash], &[Category::ProcessExit],
        tempting: "a hang of whoever waits for it";
    /// One rank's main thread never issues its next collective.
    RankStuck, "rank-stuck", "Mycroft 8 case three, Flight Recorder, category 1", Rank, Final,
        severity: ("", 1.0, UNUSED), right: HANG, &[Category::NotStarted],
        tempting: "the GPU: its peers see no data from it either";

    /// One device has its power limited.
    GpuThrottling, "gpu-throttling", "Pulse Table 4 (350, 300, 250, 200 W of 700), FALCON Figure 3", Rank, Gradual,
        severity: ("power limit in watts, of 700", 300.0, (100.0, 535.0)), right: SLOW, &[Category::Gpu],
        tempting: "the next stage of its pipeline, or in a mixture of experts the rank that was given most tokens";
    /// The processors of a host run at their lowest frequency.
    CpuThrottling, "cpu-throttling", "Pulse Table 4 (powersave)", Host, Gradual,
        severity: ("how many times slower its threads are", 4.0, (1.01, 1000.0)),
        right: SLOW, &[Category::HostThread, Category::NotStarted],
        tempting: "the network: operations last longer although every wire is as fast as before (Pulse 7.2.2)";
    /// Other processes keep the processors of a host busy.
    CpuContention, "cpu-contention", "Pulse Table 4 (90, 100 %), FALCON Figure 2", Host, Gradual,
        severity: ("percent of its processors that others ask for", 100.0, (80.1, 10_000.0)),
        right: SLOW, &[Category::HostThread, Category::NotStarted],
        tempting: "the network, or the GPUs that idle meanwhile";
    /// Other transfers take a share of what one rank's PCIe link carries.
    PcieContention, "pcie-contention", "Pulse Table 4 (50, 60, 70, 80 %)", Rank, Gradual,
        severity: ("share of the link that others take", 0.8, (0.01, 0.99)), right: SLOW, &[Category::GpuCopy],
        tempting: "ranks of its exchange that idle between its messages and look slow (Pulse 7.2.5)";
    /// One path through the network is congested; it carries less, now more, now less.
    NetworkCongestion, "network-congestion", "Pulse Table 4 (50 to 80 %), FALCON Figures 4 to 6", HostPair, Gradual,
        severity: ("share of the path that others take", 0.8, (0.01, 0.99)),
        right: SLOW, &[Category::NetworkCongestion, Category::NetworkSend, Category::NetworkReceive],
        tempting: "one of the two NICs, although both are fast towards others";
    /// The NICs of a host are bound to the wrong NUMA node: slow and unsteady.
    CrossNuma, "cross-numa", "Pulse Table 4, D.2", Host, Gradual,
        severity: ("how many times slower its NICs are on average", 4.0, (1.01, 100.0)), right: SLOW, NETWORK,
        tempting: "nobody: the rate is now high, now low, and looks like weather";
    /// One rank's buffers are not aligned: its sends are slow.
    MemoryAlignment, "memory-alignment", "Pulse Table 3, D.7", Rank, Gradual,
        severity: ("how many times slower its sends are", 8.0, (1.01, 1000.0)),
        right: SLOW, &[Category::NetworkSend, Category::GpuCopy],
        tempting: "the host's NIC, although other ranks send through it as fast as before";
    /// One device fails (invalid address): its kernels end no more, and the process ends when it looks.
    GpuExecutionError, "gpu-execution-error", "Pulse Table 4, D.5", Rank, Final,
        severity: ("seconds until its process ends", 2.0, (0.0, 600.0)),
        right: &[What::Crash, What::Hang], &[Category::ProcessExit, Category::Gpu],
        tempting: "its neighbour in the pipeline, whose message is missed first (Pulse names both)";
    /// One rank runs out of device memory: it issues nothing more, and the process ends.
    CudaExecutionError, "cuda-execution-error", "Pulse Table 4, D.6", Rank, Final,
        severity: ("seconds until its process ends", 3.0, (0.0, 600.0)),
        right: &[What::Crash, What::Hang], &[Category::ProcessExit, Category::NotStarted],
        tempting: "the rank that raises the first timeout";

    /// One rank waits for its input before each iteration.
    DataWait, "data-wait", "Flight Recorder, category 1", Rank, Gradual,
        severity: ("milliseconds that it waits before each iteration", 500.0, (0.01, 600_000.0)),
        right: SLOW, &[Category::DataLoading, Category::NotStarted],
        tempting: "its GPU: everybody waits for what it computes";
    /// Every thread of one rank is stopped by a signal.
    RankFrozen, "rank-frozen", "Flight Recorder, category 1", Rank, Switch,
        severity: ("", 1.0, UNUSED), right: HANG, &[Category::HostThread, Category::NotStarted],
        tempting: "its NIC: nothing that is ready leaves it";
    /// One rank calls another collective than its peers.
    WrongCollective, "wrong-collective", "Flight Recorder, category 1 (divergence)", Rank, Final,
        severity: ("", 1.0, UNUSED), right: &[What::Desync], &[Category::CodeDivergence],
        tempting: "a hang of the peers, or the network: all are inside and nothing moves";
    /// One rank calls a collective with another number of elements.
    WrongSize, "wrong-size", "Flight Recorder, category 3", Rank, Final,
        severity: ("", 1.0, UNUSED), right: &[What::Desync], &[Category::ArgumentMismatch],
        tempting: "whoever still waits for data when the others are through";
    /// One rank leaves a collective out and goes on with the next.
    SkippedCollective, "skipped-collective", "Flight Recorder, case one", Rank, Final,
        severity: ("", 1.0, UNUSED), right: &[What::Desync, What::Deadlock, What::Hang],
        &[Category::CodeDivergence, Category::ArgumentMismatch, Category::NotStarted],
        tempting: "the peers, which are one operation behind";
    /// Two ranks call on two communicators in the opposite order.
    CollectiveOrder, "collective-order", "Flight Recorder, category 1 (reordering), Mycroft 8 case three", Rank, Final,
        severity: ("", 1.0, UNUSED), right: &[What::Deadlock], &[Category::CodeDivergence],
        tempting: "one rank that never came: each has come, elsewhere";

    /// The host's link goes down briefly, again and again.
    LinkFlap, "link-flap", "Flight Recorder, category 4", Host, Switch,
        severity: ("", 1.0, UNUSED), right: &[What::Hang, What::Slowdown], NETWORK,
        tempting: "a slow peer: when anybody looks the link is up";
    /// A leaf switch restarts: the hosts under it have no link and reach nobody for a while.
    SwitchReboot, "switch-reboot", "Pulse Table 2", Hosts, Switch,
        severity: ("", 1.0, UNUSED), right: &[What::Hang, What::Slowdown],
        &[Category::NetworkCongestion, Category::NetworkSend, Category::NetworkReceive],
        tempting: "the NIC of one of its hosts";
    /// All processes of one host, or of several in a row, are killed; the agents live.
    HostCrash, "host-crash", "Flight Recorder, category 4", Hosts, Final,
        severity: ("how many hosts, from `host` on", 1.0, (1.0, 64.0)), right: &[What::Crash], &[Category::ProcessExit],
        tempting: "the one rank that is seen to be gone first";
    /// One host, or several in a row, vanish with their agents.
    HostLost, "host-lost", "Flight Recorder, category 4", Hosts, Final,
        severity: ("how many hosts, from `host` on", 1.0, (1.0, 64.0)), right: &[What::Hang, What::Crash],
        &[Category::ProcessExit, Category::NetworkReceive, Category::NetworkSend, Category::Unknown],
        tempting: "its peers, the last of which anything is known";

    /// The agent of a host looks at nothing for a while; the job goes on.
    AgentOutage, "agent-outage", "own", Nobody, Switch,
        severity: ("", 1.0, UNUSED), right: &[], &[],
        tempting: "a hang of the host from which nothing is heard";
    /// The server takes no records for a while; the job goes on.
    StoreOutage, "store-outage", "own", Nobody, Switch,
        severity: ("", 1.0, UNUSED), right: &[], &[],
        tempting: "a hang of the whole job";
    /// Completion records of a host are lost; the job goes on.
    RecordLoss, "record-loss", "own", Nobody, Gradual,
        severity: ("percent of the completion records that are lost", 5.0, (0.1, 100.0)), right: &[], &[],
        tempting: "a stall: operations that are never seen to end";
    /// The whole job is ended by somebody outside it: all processes go at once.
    JobEnded, "job-ended", "own", Nobody, Final,
        severity: ("milliseconds within which its processes go", 20.0, (0.0, 100.0)), right: &[], &[],
        tempting: "a crash of the rank that is seen to be gone first";

    /// One rank's main thread takes longer for each piece of work that it issues.
    HostIssue, "host-issue", "FALCON 3.2, facts of host-bound jobs", Rank, Gradual,
        severity: ("milliseconds more for each kernel or call that it issues", 20.0, (0.001, 60_000.0)),
        right: SLOW, &[Category::HostThread, Category::NotStarted, Category::DataLoading],
        tempting: "its GPU: everybody waits for what it has not been given to compute";
    /// One rank's proxy thread is slow with every look and every hand-over.
    ProxySlow, "proxy-slow", "Mycroft 7.1 #7, milder", Rank, Gradual,
        severity: ("how many times slower its proxy thread is", 100.0, (1.01, 10_000_000.0)),
        right: SLOW, &[Category::HostThread],
        tempting: "the network: data that is ready is not sent";
    /// The host's NICs send only a fraction of what they could; they receive as before.
    NicSend, "nic-send", "Mycroft 7.1 #2, one direction", Host, Gradual,
        severity: ("how many times slower its NICs send", 4.0, (1.01, 1000.0)), right: SLOW, NETWORK,
        tempting: "whoever receives from it, whose operations last as long";
    /// The host's NICs receive only a fraction of what they could; they send as before.
    NicReceive, "nic-receive", "Mycroft 7.1 #2, one direction", Host, Gradual,
        severity: ("how many times slower its NICs receive", 4.0, (1.01, 1000.0)),
        right: SLOW, &[Category::NetworkReceive, Category::NetworkSend],
        tempting: "whoever sends to it, whose wire is as slow";
    /// All devices of the job compute slower: heat or power of a room, a library that was changed.
    AllDevices, "all-devices", "FALCON 3 (whole clusters), own", All, Gradual,
        severity: ("how many times longer compute takes", 1.5, (1.01, 100.0)), right: SLOW, &[Category::Gpu],
        tempting: "the rank that happens to be last";
    /// All NICs of the job move only a fraction of what they could.
    AllNics, "all-nics", "FALCON 3.3 (congested fabric), own", All, Gradual,
        severity: ("how many times slower the NICs are", 2.0, (1.01, 1000.0)),
        right: SLOW, &[Category::NetworkCongestion, Category::NetworkSend, Category::NetworkReceive],
        tempting: "the host whose operations are the longest";
    /// Storage or the input of all ranks is slow.
    SlowStorage, "slow-storage", "Flight Recorder, category 1, own", All, Gradual,
        severity: ("milliseconds that every rank waits before each iteration", 500.0, (0.01, 600_000.0)),
        right: SLOW, &[Category::DataLoading, Category::NotStarted],
        tempting: "nobody: all are late together, and nobody waits for anybody";
    /// In each iteration one rank's main thread stands still for a while, now of this rank and now of that one.
    WanderingPauses, "wandering-pauses", "garbage collection that is not planned, own", All, Gradual,
        severity: ("milliseconds of a pause, on average", 100.0, (0.01, 60_000.0)),
        right: SLOW, &[Category::HostThread, Category::NotStarted, Category::DataLoading, Category::Unknown],
        tempting: "the rank that happened to pause last";
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultKind, String> {
        FaultKind::ALL.iter().copied().find(|kind| kind.as_str() == text).ok_or_else(|| {
            let known: Vec<&str> = FaultKind::ALL.iter().map(|kind| kind.as_str()).collect();
            format!("unknown fault `{text}`: expected one of {}", known.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_everywhere() {
        for &kind in FaultKind::ALL {
            assert_eq!(kind.as_str().parse::<FaultKind>().unwrap(), kind);
            let file = format!("kind = \"{kind}\"");
            assert_eq!(toml::from_str::<crate::Fault>(&file).unwrap().kind, kind);
        }
        assert!("nic-up".parse::<FaultKind>().unwrap_err().contains("expected one of nic-down, "));
    }

    #[test]
    fn every_kind_has_an_answer_and_a_trap() {
        for &kind in FaultKind::ALL {
            let facts = kind.facts();
            assert!(!facts.tempting.is_empty() && !facts.source.is_empty(), "{kind}");
            assert_eq!(kind.is_of_job(), !facts.whats.is_empty() && !facts.categories.is_empty(), "{kind}");
            let (least, greatest) = facts.range;
            assert!((least..=greatest).contains(&facts.usual), "{kind}");
            assert_eq!(facts.severity.is_empty(), facts.range == UNUSED, "{kind}");
        }
    }
}
