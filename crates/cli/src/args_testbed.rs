//! Command line of the testbed: every flag and its help.
use clap::{Subcommand, ValueEnum, value_parser};
use mycroft_sim::{Algo, Scenario, Transport};
use std::path::PathBuf;

#[derive(Subcommand, Debug)]
pub(crate) enum TestbedCommand {
    /// Runs one scenario and scores the verdict against the truth (exit 0 exactly when correct).
    Run(RunArgs),
    /// Runs a PyTorch program instead of the testbed's own job; the rest is as in `run`. `cargo xtask torch` installs torch.
    Torch(TorchArgs),
    /// Runs many scenarios with several seeds and writes a table of results.
    Table(TableArgs),
    /// Measures iteration time traced against untraced in turning rounds, and the trace volume.
    Overhead(OverheadArgs),
    /// Measures what plans win back: micro-batches divided for a slow replica among 2, 4 and 8, and places for slow paths.
    Mitigate(RegainArgs),
    /// Removes what a killed run may have left: namespaces, links, segments, processes.
    Clean,
    /// One rank of a testbed job (started by the launcher).
    #[command(hide = true)]
    Rank(RankArgs),
}

/// What joins the hosts of a testbed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransportArg {
    /// Network namespaces joined by a bridge (needs root or CAP_NET_ADMIN).
    Netns,
    /// Addresses 127.0.0.x, faults applied inside the transport.
    Loopback,
    /// Namespaces where permitted, else loopback.
    Auto,
}

impl From<TransportArg> for Transport {
    fn from(arg: TransportArg) -> Transport {
        match arg {
            TransportArg::Netns => Transport::Netns,
            TransportArg::Loopback => Transport::Loopback,
            TransportArg::Auto => Transport::Auto,
        }
    }
}

/// Collective algorithm.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AlgoArg {
    /// Ring.
    Ring,
    /// Tree.
    Tree,
}

impl From<AlgoArg> for mycroft_sim::Algo {
    fn from(arg: AlgoArg) -> mycroft_sim::Algo {
        match arg {
            AlgoArg::Ring => mycroft_sim::Algo::Ring,
            AlgoArg::Tree => mycroft_sim::Algo::Tree,
        }
    }
}

/// The shape of a job, on real processes and simulated.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct ShapeArgs {
    /// Hosts.
    #[arg(long)]
    pub(crate) hosts: Option<u32>,
    /// Ranks on each host.
    #[arg(long)]
    pub(crate) ranks_per_host: Option<u32>,
    /// Tensor parallel size.
    #[arg(long)]
    pub(crate) tp: Option<u32>,
    /// Pipeline parallel size.
    #[arg(long)]
    pub(crate) pp: Option<u32>,
    /// Data parallel size.
    #[arg(long)]
    pub(crate) dp: Option<u32>,
    /// Collective algorithm.
    #[arg(long, value_enum)]
    pub(crate) algo: Option<AlgoArg>,
    /// Mixture of experts: all-to-all in every layer.
    #[arg(long)]
    pub(crate) moe: bool,
}

impl ShapeArgs {
    /// Lays the flags that were given over a scenario.
    pub(crate) fn lay_over(&self, scenario: &mut Scenario) {
        for (flag, field) in [
            (self.hosts, &mut scenario.hosts),
            (self.ranks_per_host, &mut scenario.ranks_per_host),
            (self.tp, &mut scenario.tp),
            (self.pp, &mut scenario.pp),
            (self.dp, &mut scenario.dp),
        ] {
            *field = flag.unwrap_or(*field);
        }
        if let Some(algo) = self.algo {
            scenario.algo = Algo::from(algo);
        }
        scenario.moe |= self.moe;
    }
}

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct RunArgs {
    /// Scenario file; flags override its fields.
    pub(crate) scenario: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Fault: KIND@hostN[:rankR][,severity=X], or `none`.
    #[arg(long)]
    pub(crate) fault: Option<String>,
    /// Seconds of healthy training before the fault.
    #[arg(long)]
    pub(crate) after: Option<f64>,
    /// Seconds of training in all (without a fault) or longest wait for the diagnosis after the fault.
    #[arg(long)]
    pub(crate) duration: Option<f64>,
    /// Seed of jitter and data.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// What joins the hosts.
    #[arg(long, value_enum)]
    pub(crate) transport: Option<TransportArg>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep every batch of records in this directory, new or empty (a store that can be replayed).
    #[arg(long)]
    pub(crate) record: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct TableArgs {
    /// Scenario files or directories of them.
    #[arg(default_value = "scenarios")]
    pub(crate) scenarios: Vec<PathBuf>,
    /// Seeds of each scenario.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(1..=1_000_000))]
    pub(crate) seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 1, value_parser = value_parser!(u64).range(..1 << 53))]
    pub(crate) first_seed: u64,
    /// Transports to run each scenario in.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "loopback,netns")]
    pub(crate) transport: Vec<TransportArg>,
    /// Write the table here too (Markdown).
    #[arg(long)]
    pub(crate) write: Option<PathBuf>,
    /// Note each run in this file (a line of JSON each) and make only the runs that it does not hold yet: a long table
    /// may be interrupted and go on.
    #[arg(long)]
    pub(crate) runs: Option<PathBuf>,
    /// Keep the records of runs that were not correct under this directory.
    #[arg(long)]
    pub(crate) keep_failures: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct OverheadArgs {
    /// Rounds of runs: untraced, traced, and with an empty plugin where one is given; in turning order.
    #[arg(long, default_value_t = 6)]
    pub(crate) rounds: u32,
    /// Seconds of training in each run.
    #[arg(long, default_value_t = 20.0)]
    pub(crate) seconds: f64,
    /// Ranks on each of the 4 hosts, which is also the tensor-parallel size. 8 fill the cores of a small machine, so that
    /// agents and server take time from the job; with 1 or 2 cores stay free, as a training host's do.
    #[arg(long, default_value_t = 8)]
    pub(crate) ranks_per_host: u32,
    /// A profiler plugin that asks for the same events and does nothing: tells the collective library's own cost of
    /// having a plugin from the tracer's (`cargo build -p mycroft-testbed-nccl --example empty`).
    #[arg(long)]
    pub(crate) empty_plugin: Option<PathBuf>,
    /// Compare within a job instead: so many iterations with profiler events, so many without, and so on, in one run a
    /// round. Tells differences that are much smaller than those between two runs of the same job.
    #[arg(long, value_name = "ITERATIONS")]
    pub(crate) switch_every: Option<u64>,
    /// With --switch-every: start no agents, so that only what the tracer costs inside the job is compared. Agents and
    /// server, which on this machine share the job's cores, have others in production.
    #[arg(long, requires = "switch_every")]
    pub(crate) no_agents: bool,
    /// A PyTorch program (see `testbed torch`) instead of the testbed's own job: --ranks-per-host ranks on each of 2 hosts.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) torch: Option<String>,
    /// Keep this machine's cores from sleeping, with a loop at idle priority on each: as on a training host, where NCCL's
    /// proxy threads spin. Iterations vary less, so that fewer are needed.
    #[arg(long)]
    pub(crate) keep_awake: bool,
    /// Write the result here too (Markdown).
    #[arg(long)]
    pub(crate) write: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RegainArgs {
    /// Iterations of which the median counts, in each state of a job.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u64).range(3..=1000))]
    pub(crate) iterations: u64,
    /// Write the result here too (Markdown).
    #[arg(long)]
    pub(crate) write: Option<PathBuf>,
    /// Play only the job whose server acts by itself.
    #[arg(long, conflicts_with = "write")]
    pub(crate) by_itself: bool,
}

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct TorchArgs {
    /// A program: ddp, fsdp2, tp, pp, moe, or a Python file with a function `make(job)`.
    pub(crate) program: String,
    /// Ranks, spread evenly over the hosts.
    #[arg(long, default_value_t = 4)]
    pub(crate) ranks: u32,
    /// Hosts.
    #[arg(long, default_value_t = 2)]
    pub(crate) hosts: u32,
    /// Fault: KIND@hostN[:rankR][,severity=X], or `none`. KIND is one of the testbed's, or rank-frozen, data-wait,
    /// skipped-collective, wrong-collective, wrong-size, cuda-execution-error, uneven-micro-batches, gc-pauses.
    #[arg(long, default_value = "none")]
    pub(crate) fault: String,
    /// Seconds of healthy training before the fault.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) after: f64,
    /// Seconds of training in all (without a fault) or longest wait for the diagnosis after the fault.
    #[arg(long, default_value_t = 30.0)]
    pub(crate) duration: f64,
    /// What joins the hosts.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) transport: TransportArg,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep every batch of records in this directory, new or empty (a store that can be replayed).
    #[arg(long)]
    pub(crate) record: Option<PathBuf>,
    /// Keep the run's directory, with what ranks and agents wrote, here.
    #[arg(long)]
    pub(crate) logs: Option<PathBuf>,
    /// Python with torch; default: the one that `cargo xtask torch` made beside this executable, else `python3`.
    #[arg(long, env = "MYCROFT_TORCH_PYTHON")]
    pub(crate) python: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct RankArgs {
    /// Directory that the launcher made.
    #[arg(long)]
    pub(crate) run_dir: PathBuf,
    /// Global rank.
    #[arg(long)]
    pub(crate) rank: u32,
}
