//! What a launch is told.
use crate::hosts::Host;
use mycroft_sim::Scenario;
use std::ffi::OsString;
use std::path::PathBuf;

/// Segment of one rank in a testbed: 8 MB, so that 32 ranks take a quarter of a gigabyte.
const SEGMENT_BYTES: u64 = 8 << 20;

/// Name of the file in the run directory that tells the ranks of a fault they make themselves.
pub const FAULT_FILE: &str = "program-fault";

/// Gives the command line of one host's agent.
pub type AgentCommand = Box<dyn Fn(&Host) -> Vec<OsString> + Send>;

/// Which profiler plugin ranks load.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Tracer {
    /// `libmycroft_nccl.so`, found beside the executable.
    #[default]
    Found,
    /// This file.
    At(PathBuf),
    /// None: an untraced job.
    Off,
}

/// What to launch.
pub struct LaunchConfig {
    /// The job, the cluster and the fault.
    pub scenario: Scenario,
    /// Directory for the run; logs in it outlive the run. `None`: a temporary one that does not.
    pub run_dir: Option<PathBuf>,
    /// Program and first arguments of a rank; `--run-dir DIR --rank N` is appended.
    pub rank_command: Vec<OsString>,
    /// Command line of each host's agent, run inside the host's namespace; `None` for no agents.
    pub agent_command: Option<AgentCommand>,
    /// Profiler plugin.
    pub tracer: Tracer,
    /// Collective library; `None`: the one beside the executable.
    pub library: Option<PathBuf>,
    /// Job name; the scenario's when empty.
    pub job: String,
    /// Bytes of each rank's segment.
    pub segment_bytes: u64,
    /// Length in iterations of blocks with and without profiler events ([`Board::switch`]); 0: always with.
    pub switch_every: u64,
    /// A fault that the ranks' own program makes: when the scenario's fault is due this text is laid into the run
    /// directory as [`FAULT_FILE`], and the testbed breaks nothing itself.
    pub told_fault: Option<String>,
    /// More environment for ranks.
    pub rank_env: Vec<(OsString, OsString)>,
}

impl LaunchConfig {
    /// A launch of `scenario` with defaults: traced, no agents, temporary directory.
    pub fn new(scenario: Scenario, rank_command: Vec<OsString>) -> LaunchConfig {
        LaunchConfig {
            scenario,
            run_dir: None,
            rank_command,
            agent_command: None,
            tracer: Tracer::Found,
            library: None,
            job: String::new(),
            segment_bytes: SEGMENT_BYTES,
            switch_every: 0,
            told_fault: None,
            rank_env: Vec::new(),
        }
    }
}
