//! What a synthetic cluster is told to do: its shape, its faults, when it ends.
use super::MS;
use mycroft_record::ExitStatus;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    None,
    NicDown(u32),
    NicBandwidth(u32),
    Pcie(u32),
    GpuPower(u32),
    BackgroundCompute(u32),
    BackgroundTraffic(u32, u32),
    ProxyDelay(u32),
    GpuHang(u32),
    /// The device stops inside the data-parallel operation with data before it.
    GpuHangInside(u32),
    Crash(u32),
    Stuck(u32),
    /// All ranks idle for 3 s between two iterations, every so many.
    Checkpoint(u64),
    /// Now and then another rank comes seconds late, at first by less than later: text is generated between trainings.
    Generation(u64),
    /// Two iterations of the start wait for more than a minute, and the sixtieth waits for a rank for half of that.
    LateOnce(u32),
    /// From the thirtieth iteration on every so many-th waits for a rank for six seconds, for another each time, or each second time
    /// where every iteration waits: garbage collection.
    LateInTurn(u64),
    /// The twentieth iteration waits for a rank for less than an iteration takes where all are five times as long.
    LateFor(u32),
    /// One pause of 1 s of everything that needs a rank.
    OnePause(u32),
    Frozen(u32),
    /// The host waits for its input for 1.1 s before each iteration.
    DataWait(u32),
    /// One rank issues another operation.
    Desync(u32),
    /// Like `Desync`, with another count.
    OtherCount(u32),
}

#[derive(Clone)]
pub struct Plan {
    pub hosts: u32,
    pub ranks_per_host: u32,
    pub tp: u32,
    pub pp: u32,
    pub dp: u32,
    pub seed: u64,
    pub fault: Fault,
    /// Nanoseconds after the start.
    pub fault_at: u64,
    pub until: u64,
    pub nic_states: bool,
    pub start_skew: u64,
    pub slow_first: u64,
    pub tree: bool,
    pub moe: bool,
    /// The agent of this host falls silent at `fault_at`.
    pub mute_host: Option<u32>,
    pub fault_ends: u64,
    /// Other slow devices and NICs, from .. until.
    pub more: Vec<(Fault, u64, u64)>,
    /// Jitter of each piece of computation, nanoseconds; one in a hundred takes ten times that.
    pub noise: u64,
    /// Who is gone when, nanoseconds after the start.
    pub kills: Vec<(u32, u64)>,
    /// Nobody issues anything after so many iterations.
    pub iterations: u64,
    /// What agents read of how processes ended.
    pub status: ExitStatus,
    /// The job is started for the so-many-th time: other processes, other communicators.
    pub life: u32,
    /// When it is started, nanoseconds after [`T0`].
    pub begins: u64,
}

impl Plan {
    /// For how long a rank idles before an iteration because that belongs to the job, milliseconds.
    pub fn pause_ms(&self, rank: u32, iteration: u64) -> Option<u64> {
        match self.fault {
            Fault::Checkpoint(every) if iteration > 0 && iteration.is_multiple_of(every) => Some(3_000),
            Fault::Generation(every) if iteration > 0 && iteration.is_multiple_of(every) => {
                let nth = iteration / every - 1;
                let is_late = u64::from(rank) == nth * 5 % u64::from(self.tp * self.pp * self.dp);
                is_late.then(|| [1_600, 1_700, 2_300, 2_400][nth.min(3) as usize])
            }
            Fault::LateInTurn(every) if iteration >= 30 && iteration.is_multiple_of(every) => (u64::from(rank)
                == iteration / every.max(2) * 3 % u64::from(self.tp * self.pp * self.dp))
            .then_some(6_000),
            Fault::LateFor(late) if iteration == 20 => (rank == late).then_some(2_200),
            Fault::LateOnce(_) if iteration < 2 => (rank == 0).then_some(70_000),
            Fault::LateOnce(late) if iteration == 60 => (rank == late).then_some(30_000),
            _ => None,
        }
    }

    pub fn new(hosts: u32, ranks_per_host: u32, tp: u32, pp: u32, dp: u32) -> Plan {
        assert_eq!(hosts * ranks_per_host, tp * pp * dp, "the shape fills the hosts");
        Plan {
            hosts,
            ranks_per_host,
            tp,
            pp,
            dp,
            seed: 1,
            fault: Fault::None,
            fault_at: 8_000 * MS,
            until: 16_000 * MS,
            nic_states: true,
            start_skew: 0,
            slow_first: 0,
            tree: false,
            moe: false,
            mute_host: None,
            fault_ends: u64::MAX,
            more: Vec::new(),
            noise: 4 * MS,
            kills: Vec::new(),
            iterations: u64::MAX,
            status: ExitStatus::Unknown,
            life: 0,
            begins: 0,
        }
    }

    /// Ranks that are gone at a moment, `apart` nanoseconds one after the other.
    pub fn killed(mut self, ranks: std::ops::Range<u32>, at: u64, apart: u64) -> Plan {
        self.kills.extend(ranks.enumerate().map(|(nth, rank)| (rank, at + nth as u64 * apart)));
        self
    }

    pub fn fault(mut self, fault: Fault) -> Plan {
        self.fault = fault;
        self
    }

    pub fn and(mut self, fault: Fault, from: u64, until: u64) -> Plan {
        self.more.push((fault, from, until));
        self
    }

    pub fn seed(mut self, seed: u64) -> Plan {
        self.seed = seed;
        self
    }

    pub fn world(&self) -> u32 {
        self.tp * self.pp * self.dp
    }

    pub fn host_of(&self, rank: u32) -> u32 {
        rank / self.ranks_per_host
    }
}
