//! Command line: every flag, its help and its environment variable in one place.
use crate::{api::ServerArgs, log::LogArgs, token::TokenArgs};
use clap::{Parser, Subcommand, ValueEnum, value_parser};
use mycroft_sim::{Algo, Scenario};
use std::{net::SocketAddr, path::PathBuf};

/// Watches training jobs from inside their collectives and names who stalls or slows them.
///
/// Exit codes: 0 nothing wrong, 1 something was found, 2 could not be done, 130 interrupted.
#[derive(Parser, Debug)]
#[command(name = "mycroft", version, max_term_width = 110)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// One terminal: a 16-rank job, a fault of your choice, and the diagnosis.
    Demo(DemoArgs),
    /// Real collective jobs on this machine, with real faults and the truth beside them.
    Testbed {
        #[command(subcommand)]
        command: TestbedCommand,
    },
    /// Simulated jobs of any size, with the truth beside the diagnosis.
    Sim {
        #[command(subcommand)]
        command: crate::sim::args::SimCommand,
    },
    /// Host daemon: reads what the tracer writes and ships it to a server.
    Agent(AgentArgs),
    /// Always-on side: stores, diagnoses, keeps cases, answers over HTTP.
    Serve(ServeArgs),
    /// Takes stacks and Flight Recorder dumps of a running job, on all its hosts at once, and says what they show.
    Dump(crate::dump::DumpArgs),
    /// Lists cases of a server, or shows one.
    Cases(CasesArgs),
    /// Says who caused a hang, from the Flight Recorder dumps and stacks that a dead job left behind.
    Autopsy(crate::autopsy::AutopsyArgs),
    /// Live view of a server in the terminal.
    Watch(WatchArgs),
    /// Runs what was recorded through the diagnosis again, at full speed, and prints the reports.
    ///
    /// The same records give the same report, byte for byte. Exit code 1 when a report has a case.
    #[command(after_help = "Example: mycroft replay /var/lib/mycroft --job train-7 --json")]
    Replay(ReplayArgs),
    /// Checks that tracing can work here, and says what to fix.
    Doctor(crate::reach::DoctorArgs),
    /// Reads stacks of Python processes (started by the agent).
    #[command(hide = true)]
    Spy {
        /// Processes.
        pids: Vec<u32>,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum TestbedCommand {
    /// Runs one scenario and scores the verdict against the truth (exit 0 exactly when correct).
    Run(RunArgs),
    /// Runs many scenarios with several seeds and writes a table of results.
    Table(TableArgs),
    /// Measures iteration time traced against untraced in turning rounds, and the trace volume.
    Overhead(OverheadArgs),
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

#[derive(clap::Args, Debug)]
pub(crate) struct DemoArgs {
    /// Fault to inject: KIND@hostN[:rankR][,severity=X]; `none` for a healthy job. Kinds: nic-down nic-bandwidth
    /// pcie-downgrade gpu-power background-compute background-traffic proxy-delay gpu-hang rank-crash rank-stuck.
    #[arg(long, default_value = "gpu-hang@host1:rank6")]
    pub(crate) fault: String,
    /// Seconds of healthy training before the fault.
    #[arg(long, default_value_t = 6.0)]
    pub(crate) after: f64,
    /// Longest time to wait for the diagnosis, in seconds after the fault.
    #[arg(long, default_value_t = 30.0)]
    pub(crate) wait: f64,
    /// What joins the hosts.
    #[arg(long, value_enum, default_value_t = TransportArg::Auto)]
    pub(crate) transport: TransportArg,
    /// Seed of jitter and data.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// After the verdict keep job and server until Ctrl-C, to be looked into with `mycroft cases`, `watch`, `dump`.
    #[arg(long)]
    pub(crate) keep: bool,
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
    /// Keep this machine's cores from sleeping, with a loop at idle priority on each: as on a training host, where NCCL's
    /// proxy threads spin. Iterations vary less, so that fewer are needed.
    #[arg(long)]
    pub(crate) keep_awake: bool,
    /// Write the result here too (Markdown).
    #[arg(long)]
    pub(crate) write: Option<PathBuf>,
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

#[derive(clap::Args, Debug)]
pub(crate) struct AgentArgs {
    /// Server to ship to: HOST:PORT or unix:/path.
    #[arg(long, env = "MYCROFT_SERVER", default_value = "127.0.0.1:7700")]
    pub(crate) server: String,
    /// Directory of trace segments; default /dev/shm/mycroft-UID.
    #[arg(long, env = "MYCROFT_DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Name of this host; default the host name.
    #[arg(long, env = "MYCROFT_HOST")]
    pub(crate) host: Option<String>,
    /// By how much the agent gives way to the job on a busy host: its niceness, 0 to 19.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(i32).range(0..=19))]
    pub(crate) nice: i32,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// Certificate authority of the server (PEM): switches TLS on.
    #[arg(long, env = "MYCROFT_TLS_CA")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Name in the server's certificate.
    #[arg(long, default_value = "localhost")]
    pub(crate) tls_name: String,
    /// Milliseconds between two looks at the live tables.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u64).range(10..=10_000))]
    pub(crate) sample_ms: u64,
    /// Directory for records that wait for a lost server; default in /var/lib/mycroft/spool or ~/.local/state/mycroft.
    #[arg(long, env = "MYCROFT_SPOOL")]
    pub(crate) spool: Option<PathBuf>,
    /// Most bytes the spool may hold.
    #[arg(long, default_value_t = 256 << 20)]
    pub(crate) spool_bytes: u64,
    /// Where network interfaces are read; default /sys/class/net.
    #[arg(long)]
    pub(crate) nic_root: Option<PathBuf>,
    /// Only these interfaces (repeatable).
    #[arg(long)]
    pub(crate) nic: Vec<String>,
    /// Never take stacks or Flight Recorder dumps on this host, whatever the server asks.
    #[arg(long, env = "MYCROFT_NO_DUMP")]
    pub(crate) no_dump: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ServeArgs {
    /// HTTP address. Anything but loopback needs a token.
    #[arg(long, env = "MYCROFT_HTTP", default_value = "127.0.0.1:7701")]
    pub(crate) http: SocketAddr,
    /// Where agents connect: HOST:PORT or unix:/path (repeatable). Default: with a token 0.0.0.0:7700, every address of
    /// this machine; without one 127.0.0.1:7700, this machine only.
    #[arg(long, env = "MYCROFT_WIRE", value_delimiter = ',')]
    pub(crate) wire: Vec<String>,
    /// Directory of the store; without it records live in memory only.
    #[arg(long, env = "MYCROFT_STORE")]
    pub(crate) store: Option<PathBuf>,
    /// Days that stored records are kept, by this server's clock.
    #[arg(long, default_value_t = 7, value_parser = value_parser!(u64).range(1..=36_500))]
    pub(crate) retain_days: u64,
    /// Most bytes of stored records; the oldest go first.
    #[arg(long, default_value_t = 64 << 30)]
    pub(crate) retain_bytes: u64,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// Certificate chain (PEM) for agents: switches TLS on, together with --tls-key.
    #[arg(long, requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the certificate.
    #[arg(long, requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Milliseconds between two rounds of diagnosis.
    #[arg(long, default_value_t = 1000)]
    pub(crate) tick_ms: u64,
    /// POST each case that opens, settles or closes to this URL.
    #[arg(long)]
    pub(crate) webhook: Option<String>,
    /// Do not take stacks and Flight Recorder dumps when a case opens (`mycroft dump` still does).
    #[arg(long, env = "MYCROFT_NO_DUMP_ON_CASE")]
    pub(crate) no_dump_on_case: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(clap::Args, Debug)]
pub(crate) struct CasesArgs {
    /// Show this case whole.
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Only cases of this job.
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// Closed cases too.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print the server's JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// Job to show first.
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// Print one frame as text and exit.
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ReplayArgs {
    /// Directory of the store, as `mycroft serve --store` or `mycroft testbed run --record` wrote it, a recording of
    /// `mycroft sim run --out` or `mycroft sim corpus`, or a file that --export wrote.
    pub(crate) store: PathBuf,
    /// Only this job.
    #[arg(long)]
    pub(crate) job: Option<String>,
    /// Print one JSON object instead of text: `{"reports": [...]}`, each as the server's API tells it.
    #[arg(long, conflicts_with_all = ["records", "export"])]
    pub(crate) json: bool,
    /// Print every record, one a line, instead of diagnosing.
    #[arg(long)]
    pub(crate) records: bool,
    /// Write every record to this one file, to be kept or sent, instead of diagnosing.
    #[arg(long, value_name = "FILE", conflicts_with = "records")]
    pub(crate) export: Option<PathBuf>,
    /// Milliseconds of recorded time between two rounds of diagnosis.
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u64).range(10..=60_000))]
    pub(crate) tick_ms: u64,
}
