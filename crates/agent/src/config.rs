//! What an agent is told, and every limit it keeps.
use mycroft_wire::{TlsClient, Way};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where Linux shows its network interfaces.
pub const NIC_ROOT_DEFAULT: &str = "/sys/class/net";
/// Disk space of the spool: at 8 ranks and about 16 KiB per second and host at rest, over four hours without a server;
/// at the 350 KB/s of a busy host about 12 minutes.
pub const SPOOL_MAX_BYTES_DEFAULT: u64 = 256 << 20;

/// For the last flush: an agent has ended three seconds after it was asked to, and collecting takes less than one.
pub const STOP_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// Segments watched at once. A host has 8 to 16 ranks per job; 256 is room for 16 jobs. Each costs one file descriptor
/// and about 30 us per sample: 256 x 30 us x 10 per second = 8 % of a core at most.
pub const SEGMENTS_MAX: usize = 256;
/// Entries of the segment directory looked at in one scan.
pub const DIR_ENTRIES_MAX: usize = 4096;
/// Bytes of all segments together that one round of samples reads: 64 MiB are about 20 ms of copying, a fifth of a core at
/// ten rounds a second. Each segment has an equal share; eight ranks at full speed use a quarter of theirs.
pub const ROUND_BYTES_MAX: u64 = 64 << 20;
/// Slots of rings looked at in one segment in one sample: 16384 x 10 per second = 164 k records per second and process, three
/// times the 50 k per second that a rank at full speed makes; more waits in its ring, or is overwritten and counted.
pub const DRAIN_RECORDS_MAX: usize = 16 << 10;
/// Records of one source that are shipped without waiting for `ship_every`: 4096 x about 200 bytes = 0.8 MiB.
pub const BATCH_RECORDS_MAX: usize = 4096;
/// Records that wait for the shipping thread: 256 Ki x about 200 bytes = 52 MiB; the oldest are dropped and counted.
pub const QUEUE_RECORDS_MAX: usize = 256 << 10;
/// Communicators of one process remembered, for telling them again: four times what the segment's table holds.
pub const COMMS_MAX: usize = 4096;
/// Notices kept for the one who asks.
pub const NOTICES_MAX: usize = 256;

/// Unchanged in-flight entries are told again this often, so that a late or restarted reader sees them.
pub const REPEAT_EVERY: Duration = Duration::from_secs(1);
/// `Sampled` comes at least this often.
pub const SAMPLED_EVERY: Duration = Duration::from_millis(500);
/// Network interfaces are read this often.
pub const NIC_EVERY: Duration = Duration::from_millis(500);
/// Host vitals are read this often.
pub const VITALS_EVERY: Duration = Duration::from_secs(1);
/// The clock mapping is measured this often: a counter rate wrong by 1 ppm drifts 30 us in the meantime.
pub const CALIBRATE_EVERY: Duration = Duration::from_secs(30);
/// The first measurement after the start comes sooner: the rate then is known from a long enough baseline.
pub const CALIBRATE_FIRST: Duration = Duration::from_millis(200);
/// Segments of processes that died unseen (other versions, half made) are removed this often.
pub const COLLECT_EVERY: Duration = Duration::from_secs(10);
/// A segment that cannot be opened is tried again this long before it is reported: its writer may be creating it.
pub const OPEN_GRACE: Duration = Duration::from_secs(2);

/// Program that reads the stacks of Python processes, run with the process ids behind `args`: it must do what
/// [`crate::spy`] does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpyProgram {
    /// The program.
    pub program: PathBuf,
    /// What goes before the process ids.
    pub args: Vec<OsString>,
}

/// Whether and how stacks and dumps are taken when the server asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureConfig {
    /// Do it at all.
    pub enabled: bool,
    /// Reads stacks; `None`: no stacks are taken.
    pub spy: Option<SpyProgram>,
}

impl Default for CaptureConfig {
    /// Dumps, and no stacks: only the caller knows a program that reads them.
    fn default() -> CaptureConfig {
        CaptureConfig { enabled: true, spy: None }
    }
}

/// What an agent is told.
#[derive(Clone)]
pub struct AgentConfig {
    /// Directory of the segments (`MYCROFT_DIR` of the job); made with mode 0700 if it does not exist.
    pub segment_dir: PathBuf,
    /// Name of this host; `None`: the name that each segment carries.
    pub host: Option<String>,
    /// The way of records to a server; by an [`Endpoint`](mycroft_wire::Endpoint), its wire.
    pub way: Way,
    /// Shared secret of the server.
    pub token: Option<String>,
    /// TLS to the server.
    pub tls: Option<TlsClient>,
    /// How often live tables are sampled and rings drained (100 ms, as Mycroft section 4.2 logs state).
    pub sample_every: Duration,
    /// How often batches are shipped.
    pub ship_every: Duration,
    /// Where records wait while the server is away. One agent per directory.
    pub spool_dir: PathBuf,
    /// Limit of the spool; the oldest records are dropped and counted.
    pub spool_max_bytes: u64,
    /// Directory of network interfaces, `/sys/class/net` if `None`; InfiniBand is looked for in `infiniband` beside it.
    pub nic_root: Option<PathBuf>,
    /// The only interfaces to report; empty: all but loopback.
    pub nics: Vec<String>,
    /// Longest that stopping may take for the last flush (100 ms more when it is shorter than that); what the server has
    /// not taken by then is in the spool.
    pub stop_timeout: Duration,
    /// Stacks and dumps on the server's order.
    pub capture: CaptureConfig,
    /// Hold ranks at their gates, and test them, when who may act asks the server to.
    pub may_hold: bool,
    /// How far ahead of the host's clock the agent's is, nanoseconds: 0, but in tests of hosts whose clock is off.
    pub clock_shift_ns: i64,
}

impl fmt::Debug for AgentConfig {
    /// All but the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentConfig")
            .field("segment_dir", &self.segment_dir)
            .field("host", &self.host)
            .field("way", &self.way)
            .field("token", &self.token.as_ref().map(|_| "(secret)"))
            .field("tls", &self.tls)
            .field("sample_every", &self.sample_every)
            .field("ship_every", &self.ship_every)
            .field("spool_dir", &self.spool_dir)
            .field("spool_max_bytes", &self.spool_max_bytes)
            .field("nic_root", &self.nic_root)
            .field("nics", &self.nics)
            .field("stop_timeout", &self.stop_timeout)
            .field("capture", &self.capture)
            .field("may_hold", &self.may_hold)
            .field("clock_shift_ns", &self.clock_shift_ns)
            .finish()
    }
}

impl AgentConfig {
    /// The defaults for a segment directory, a spool directory and a server.
    pub fn new(segment_dir: &Path, spool_dir: &Path, way: impl Into<Way>) -> AgentConfig {
        AgentConfig {
            segment_dir: segment_dir.to_path_buf(),
            host: None,
            way: way.into(),
            token: None,
            tls: None,
            sample_every: Duration::from_millis(100),
            ship_every: Duration::from_millis(100),
            spool_dir: spool_dir.to_path_buf(),
            spool_max_bytes: SPOOL_MAX_BYTES_DEFAULT,
            nic_root: None,
            nics: Vec::new(),
            stop_timeout: STOP_TIMEOUT_DEFAULT,
            capture: CaptureConfig::default(),
            may_hold: false,
            clock_shift_ns: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_not_printed() {
        let config = AgentConfig::new(Path::new("/a"), Path::new("/b"), mycroft_wire::Endpoint::Tcp("c:1".to_owned()));
        let config = AgentConfig { token: Some("hunter2".to_owned()), ..config };
        let printed = format!("{config:?}");
        assert!(printed.contains("(secret)") && !printed.contains("hunter2"), "{printed}");
    }
}
