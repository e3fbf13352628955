//! What faults do to the parts of a cluster: rates over time, and the few things that are not rates. This is all that the
//! mechanics see of a fault; they know neither its name nor its truth.
use crate::profile::Profile;
use crate::random::Random;
use crate::scenario::Scenario;
use std::collections::BTreeMap;

/// The parts of one rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankEffects {
    /// Device: computation. A stopped device also fills and drains no slots.
    pub compute: Profile,
    /// Device: copies between its memory and the transport's slots.
    pub copy: Profile,
    /// What its sends to other hosts carry, on top of what its NIC can.
    pub send: Profile,
    /// The proxy thread: how fast it gets to what it has to do.
    pub proxy: Profile,
    /// The main thread: how fast it issues work.
    pub host: Profile,
    /// Sleeps of the proxy thread: (from, until, share of the sent steps that sleep, how long, nanoseconds).
    pub proxy_sleeps: Vec<(u64, u64, f64, u64)>,
    /// From this moment the main thread issues nothing more (it issues whole iterations ahead: the next call counts).
    pub stuck_at: Option<u64>,
    /// The device stops for good: inside the operation it is in, or before its next kernel.
    pub hangs_at: Option<u64>,
    /// The process is killed: all of its parts stop, and its agent notices.
    pub killed_at: Option<u64>,
    /// Every thread is stopped by a signal from .. until.
    pub frozen: Option<(u64, u64)>,
    /// What it issues instead of the next collective after this moment.
    pub wrong_call: Option<(u64, WrongCall)>,
    /// Extra input time of the main thread before each iteration: (from, until, nanoseconds).
    pub data_waits: Vec<(u64, u64, u64)>,
    /// Extra time of the main thread for each piece of work that it issues: (from, until, nanoseconds).
    pub issue_waits: Vec<(u64, u64, u64)>,
}

/// How a rank's call differs from its peers'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrongCall {
    /// Another kind of collective on the same communicator.
    OtherKind,
    /// Another number of elements.
    OtherCount,
    /// It leaves the call out and goes on with the next.
    Skipped,
    /// It calls on another communicator first (two ranks in opposite order: a deadlock).
    OtherOrder,
}

/// What other processes take of a host's processors for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuTaken {
    /// From, nanoseconds.
    pub from: u64,
    /// Until, nanoseconds.
    pub until: u64,
    /// How much they ask for, as a share of all cores; more than 1 is more than there is.
    pub asked: f64,
    /// How much of the time in which the job's threads are ready to run they wait for a core.
    pub waits: f64,
}

/// The parts of one host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostEffects {
    /// What its NICs can send.
    pub nic_tx: Profile,
    /// What its NICs can receive.
    pub nic_rx: Profile,
    /// The link as its interface counter shows it: down from .. until.
    pub link_down: Vec<(u64, u64)>,
    /// Bytes per second of other traffic that its interface counts while a fault lasts: (from, until, bytes/s).
    pub other_traffic: Vec<(u64, u64, u64)>,
    /// What other processes take of its processors.
    pub cpu_taken: Vec<CpuTaken>,
    /// How many times longer its processors take for the job's own work: (from, until, times).
    pub cpu_slower: Vec<(u64, u64, f64)>,
    /// The agent looks at nothing from .. until; completions that the rings do not hold that long are lost.
    pub agent_out: Vec<(u64, u64)>,
    /// Completion records lost from .. until, as a share: the ring was lapped.
    pub lost: Vec<(u64, u64, f64)>,
}

/// Everything that is not as it should be, per part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// By global rank; absent: healthy.
    pub ranks: BTreeMap<u32, RankEffects>,
    /// By host index; absent: healthy.
    pub hosts: BTreeMap<u32, HostEffects>,
    /// Paths between two hosts (from, to): what the fabric between them carries.
    pub paths: BTreeMap<(u32, u32), Profile>,
    /// What is sent to the server from .. until arrives when that is over.
    pub store_out: Vec<(u64, u64)>,
    /// One rank in each iteration, now this and now that, stands still: (from, until, nanoseconds on average).
    pub wandering: Vec<(u64, u64, u64)>,
}

impl Effects {
    /// The parts of a rank, made when first asked for.
    pub fn rank(&mut self, rank: u32) -> &mut RankEffects {
        self.ranks.entry(rank).or_default()
    }

    /// The parts of a host, made when first asked for.
    pub fn host(&mut self, host: u32) -> &mut HostEffects {
        self.hosts.entry(host).or_default()
    }

    /// The path between two hosts, made when first asked for.
    pub fn path(&mut self, from: u32, to: u32) -> &mut Profile {
        self.paths.entry((from, to)).or_default()
    }

    /// Ends the whole job: every process is killed within `within_ms` after `begin`, nanoseconds.
    pub(crate) fn end(&mut self, scenario: &Scenario, begin: u64, within_ms: f64) {
        let mut chance = Random::stream(scenario.seed, 0x0C07_0000);
        for rank in 0..scenario.world() {
            let later = (within_ms * 1e6 * chance.unit()) as u64;
            earliest(&mut self.rank(rank).killed_at, begin.saturating_add(later));
        }
    }
}

/// Notes a moment where none before it is known.
pub(crate) fn earliest(at: &mut Option<u64>, moment: u64) {
    *at = Some(at.map_or(moment, |before| before.min(moment)));
}
