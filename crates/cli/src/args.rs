//! Command line: every flag, its help and its environment variable in one place.
use crate::args_testbed::{TestbedCommand, TransportArg};
use crate::{
    api::ServerArgs,
    bus::BusArgs,
    config::args::{ConfigArgs, ConfigCommand},
    log::LogArgs,
    meta::MetaArgs,
    records::{RecordsArgs, RecordsInArgs},
    secure::AgentTlsArgs,
    token::{ActTokenArgs, TokenArgs},
};
use clap::{Parser, Subcommand, value_parser};
use mycroft_serve::WebhookFormat;
use std::{net::SocketAddr, path::PathBuf, time::Duration};

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
    Serve(Box<ServeArgs>),
    /// Takes stacks and Flight Recorder dumps of a running job, on all its hosts at once, and says what they show.
    Dump(crate::dump::DumpArgs),
    /// Holds a running job for a second, tests its devices, hosts and ways, and says who is slower than its peers.
    Validate(crate::validate::ValidateArgs),
    /// Holds a running job for a while, and lets it go on: what a pause does to it, without a test.
    Hold(crate::validate::HoldArgs),
    /// Gathers what tells why, before a restart destroys it: stacks, dumps, logs, the kernel's log, in one file.
    Collect(crate::collect::CollectArgs),
    /// Lists cases of a server, or shows one.
    Cases(CasesArgs),
    /// Plans what could be done about a slow job, and says what that would gain and cost.
    ///
    /// Nothing is done unless asked for: --write-plan and --write-exclusions write files that the Python package, or you, carry out;
    /// --apply lets the server write them and watch what comes of it; --auto lets it do so by itself.
    /// Exit code 1 when the plan would change something.
    #[command(after_help = "Example: mycroft mitigate --job train-7 --tensor 8 --pipeline 4 --micro-batches 256")]
    Mitigate(crate::mitigate::MitigateArgs),
    /// The audit log: what was done about slow jobs, who asked, why, and what came of it.
    Actions(crate::actions::ActionsArgs),
    /// Says who caused a hang, from the Flight Recorder dumps and stacks that a dead job left behind.
    Autopsy(crate::autopsy::AutopsyArgs),
    /// What packets show: bytes of each RoCEv2 queue pair and TCP connection, in epochs of microseconds.
    ///
    /// Reads pcap and pcapng, whole or while it is written, or measures an interface of this host. Bytes are payload. A
    /// capture that is damaged is shown up to there, and the exit code is 2.
    #[command(
        after_help = "Examples:\n  mycroft flow capture.pcap --svg rates.svg\n  mycroft flow --interface eth0 --seconds 10\n  tcpdump -i eth0 -s 128 -w - udp port 4791 | mycroft flow -"
    )]
    Flow(crate::flow::FlowArgs),
    /// Live view of a server in the terminal.
    Watch(WatchArgs),
    /// Runs what was recorded through the diagnosis again, at full speed, and prints the reports.
    ///
    /// The same records give the same report, byte for byte. Exit code 1 when a report has a case.
    #[command(after_help = "Example: mycroft replay /var/lib/mycroft --job train-7 --json")]
    Replay(ReplayArgs),
    /// Writes operations and flows of a recorded job for other tools: Perfetto, CSV, JSON.
    #[command(
        after_help = "Example: mycroft export /var/lib/mycroft --job train-7 --from -60 --format perfetto --out train.pftrace"
    )]
    Export(crate::export::ExportArgs),
    /// Copies the store of a server, which goes on meanwhile: records, cases, captures and tokens, as they were when it began.
    #[command(
        after_help = "Example: sudo -u mycroft mycroft backup --store /var/lib/mycroft/server/store /backup/mycroft-monday"
    )]
    Backup(crate::backup::BackupArgs),
    /// The configuration file: what is in force, and a file of all keys.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Checks that tracing can work here, or on every host that a server knows, and says what to fix.
    ///
    /// Exit code 1 when something must be mended, 2 when it could not be looked at.
    #[command(
        after_help = "Examples:\n  mycroft doctor                                     this host\n  mycroft doctor --server http://mycroft.example:7701 --token-file reader.token    every host, worst first\n  mycroft doctor --server mycroft.example:7700 --token-file /etc/mycroft/token     this host, and whether its agent is let in"
    )]
    Doctor(crate::reach::DoctorArgs),
    /// Tokens by name, for one agent, reader, operator or admin each; made on the machine of the server.
    #[command(
        after_help = "Examples:\n  sudo -u mycroft mycroft token add ada --role reader --jobs train-7 --store /var/lib/mycroft/server/store\n  mycroft token add h1 --role agent --host h1 --out h1.token"
    )]
    Token {
        #[command(subcommand)]
        command: crate::tokens::TokenCommand,
    },
    /// Prints completions for a shell: `mycroft completions bash > /etc/bash_completion.d/mycroft`.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes man pages, one a command, into a directory.
    Man {
        /// The directory, such as /usr/local/share/man/man1; made where it is not.
        dir: PathBuf,
    },
    /// Reads stacks of Python processes (started by the agent).
    #[command(hide = true)]
    Spy {
        /// Processes.
        pids: Vec<u32>,
    },
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
    /// After the verdict keep job and server until Ctrl-C, to be looked into in a browser and with `mycroft cases`, `watch`,
    /// `dump`.
    #[arg(long, visible_alias = "page")]
    pub(crate) keep: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct AgentArgs {
    /// Server to ship to: HOST:PORT or unix:/path.
    #[arg(long, env = "MYCROFT_SERVER", default_value = "127.0.0.1:7700")]
    pub(crate) server: String,
    #[command(flatten)]
    pub(crate) bus: BusArgs,
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
    #[command(flatten)]
    pub(crate) tls: AgentTlsArgs,
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
    /// Hold this host's ranks at their gates, and test them, when `mycroft hold` or `mycroft validate` asks with the token that acts.
    /// The ranks go on by themselves when this agent, the server or the command is gone.
    #[arg(long, env = "MYCROFT_MAY_HOLD")]
    pub(crate) may_hold: bool,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
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
    #[command(flatten)]
    pub(crate) bus: BusArgs,
    /// Directory of the store; without it records live in memory only.
    #[arg(long, env = "MYCROFT_STORE")]
    pub(crate) store: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) meta: MetaArgs,
    #[command(flatten)]
    pub(crate) records: RecordsArgs,
    /// Days that stored records are kept, by this server's clock.
    #[arg(long, default_value_t = 7, value_parser = value_parser!(u64).range(1..=36_500))]
    pub(crate) retain_days: u64,
    /// Most bytes of stored records; the oldest go first.
    #[arg(long, default_value_t = 64 << 30)]
    pub(crate) retain_bytes: u64,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// Certificate chain (PEM) for agents: switches TLS on, together with --tls-key. Read again when it has changed.
    #[arg(long, env = "MYCROFT_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the certificate.
    #[arg(long, env = "MYCROFT_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Certificate authority of agents (PEM): agents need a certificate that it has signed, and send records of the host that a
    /// subject alternative name of it says.
    #[arg(long, env = "MYCROFT_TLS_CLIENT_CA", value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_client_ca: Option<PathBuf>,
    /// Revocation lists (PEM, X509 CRL) of the authority of agents: agents whose certificate is on one are refused, and cut off where
    /// they are connected. Read again when it has changed.
    #[arg(long, env = "MYCROFT_TLS_CLIENT_CRL", value_name = "FILE", requires = "tls_client_ca")]
    pub(crate) tls_client_crl: Option<PathBuf>,
    /// Certificate chain (PEM) for readers: the HTTP address speaks HTTPS, together with --http-tls-key. Read again when it has changed.
    #[arg(long, env = "MYCROFT_HTTP_TLS_CERT", value_name = "FILE", requires = "http_tls_key")]
    pub(crate) http_tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the certificate for readers.
    #[arg(long, env = "MYCROFT_HTTP_TLS_KEY", value_name = "FILE", requires = "http_tls_cert")]
    pub(crate) http_tls_key: Option<PathBuf>,
    /// Milliseconds between two rounds of diagnosis.
    #[arg(long, default_value_t = 1000)]
    pub(crate) tick_ms: u64,
    /// POST each case that opens, settles or closes to this URL.
    #[arg(long)]
    pub(crate) webhook: Option<String>,
    /// What these POSTs look like: generic (our JSON), slack (one line), pagerduty (Events API v2), or alertmanager (/api/v2/alerts).
    #[arg(long, default_value = "generic", value_name = "FORMAT", requires = "webhook")]
    pub(crate) webhook_format: WebhookFormat,
    /// File with PagerDuty's routing key, or, for the other formats, with what POSTs are signed with: X-Mycroft-Signature is then
    /// sha256= and the HMAC-SHA-256 of the body.
    #[arg(long, value_name = "FILE", requires = "webhook")]
    pub(crate) webhook_key_file: Option<PathBuf>,
    /// Collector of OpenTelemetry, such as http://127.0.0.1:4318: cases go to it as log records and spans, iterations as metrics (OTLP
    /// over HTTP).
    #[arg(long, env = "MYCROFT_OTLP", value_name = "URL")]
    pub(crate) otlp: Option<String>,
    /// File with header lines for the collector, such as `Authorization: Bearer KEY`.
    #[arg(long, env = "MYCROFT_OTLP_HEADER_FILE", value_name = "FILE", requires = "otlp")]
    pub(crate) otlp_header_file: Option<PathBuf>,
    /// Do not take stacks and Flight Recorder dumps when a case opens (`mycroft dump` still does).
    #[arg(long, env = "MYCROFT_NO_DUMP_ON_CASE")]
    pub(crate) no_dump_on_case: bool,
    /// Let those who show the token of --act-token-file carry plans out: files for ranks and schedulers are written here, and the
    /// audit log into the store. Without it the server only plans.
    #[arg(long, env = "MYCROFT_ACT_DIR", value_name = "DIR", requires_all = ["store", "act_token_file"])]
    pub(crate) act_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) act_token: ActTokenArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
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
    /// Say that you look after case ID: alerts tell it, PagerDuty's incident is acknowledged.
    #[arg(long, requires = "id")]
    pub(crate) acknowledge: bool,
    /// Add a note to case ID.
    #[arg(long, value_name = "TEXT", requires = "id")]
    pub(crate) note: Option<String>,
    /// No alerts of case ID for so long (30m, 2h; at most 7d), but of its end; 0s: alerts again.
    #[arg(long, value_name = "TIME", value_parser = crate::times::silence, requires = "id")]
    pub(crate) silence: Option<Duration>,
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
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
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
    /// Print the series of each job instead of reports, as one JSON object: iterations, where the time of ranks went, and what went
    /// between hosts, `{"series": [...]}`, each as the server's API tells it.
    #[arg(long, conflicts_with_all = ["json", "records", "export"])]
    pub(crate) series: bool,
    /// Print every record, one a line, instead of diagnosing.
    #[arg(long)]
    pub(crate) records: bool,
    /// Write every record to this one file, to be kept or sent, instead of diagnosing.
    #[arg(long, value_name = "FILE", conflicts_with = "records")]
    pub(crate) export: Option<PathBuf>,
    /// Milliseconds of recorded time between two rounds of diagnosis.
    #[arg(long, default_value_t = 1000, value_parser = value_parser!(u64).range(10..=60_000))]
    pub(crate) tick_ms: u64,
    #[command(flatten)]
    pub(crate) records_in: RecordsInArgs,
}
