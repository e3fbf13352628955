//! The scenario: one training job on one cluster with at most one fault, as a TOML file says it.
use crate::cluster::Cluster;
use crate::fault::{Fault, FaultKind};
use crate::layout::Layout;
use crate::life::Life;
use serde::{Deserialize, Serialize};
use std::path::Path;
use thiserror::Error;

/// Most hosts a scenario may have: the control block's limit is 1024, a bridge's is 1024 ports.
pub const HOSTS_MAX: u32 = 64;
/// Most ranks: each is a process of a few threads; 256 of them are what two cores can start within a minute.
pub const RANKS_MAX: u32 = 256;
/// Greatest message, bytes: 64 MB, so that a few per rank fit any machine.
pub const MESSAGE_BYTES_MAX: u64 = 64 << 20;

/// How hosts are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Network namespaces where the user may make them, else loopback.
    #[default]
    Auto,
    /// Network namespaces joined by a bridge.
    Netns,
    /// Addresses 127.0.0.x, with faults applied inside the transport.
    Loopback,
}

/// Algorithm for AllReduce, as `NCCL_ALGO` selects it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Algo {
    /// Ring.
    #[default]
    Ring,
    /// Double binary tree.
    Tree,
}

/// How data-parallel ranks agree on gradients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DpMode {
    /// ReduceScatter of gradients, AllGather of parameters (distributed optimizer).
    #[default]
    ReduceScatter,
    /// AllReduce of gradients.
    AllReduce,
    /// Fully sharded: parameters are gathered for each layer, gradients scattered after each (simulator only).
    Fsdp,
}

/// In which order a pipeline stage works off its micro-batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// One forward, one backward.
    #[default]
    OneFOneB,
    /// The same over several chunks of layers per stage (simulator only).
    Interleaved,
}

macro_rules! text_enum {
    ($name:ident, $what:literal, $($text:literal => $variant:ident),+) => {
        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<$name, String> {
                match text {
                    $($text => Ok($name::$variant),)+
                    _ => Err(format!(concat!("unknown ", $what, " `{}`: expected one of ", $($text, " "),+), text)
                        .trim_end()
                        .to_owned()),
                }
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $($name::$variant => $text,)+ })
            }
        }
    };
}
text_enum!(Transport, "transport", "auto" => Auto, "netns" => Netns, "loopback" => Loopback);
text_enum!(Algo, "algorithm", "ring" => Ring, "tree" => Tree);
text_enum!(DpMode, "data-parallel mode", "reduce-scatter" => ReduceScatter, "all-reduce" => AllReduce, "fsdp" => Fsdp);
text_enum!(Schedule, "schedule", "one-f-one-b" => OneFOneB, "interleaved" => Interleaved);

/// A job, its cluster, its fault. Every field has a default; [`Scenario::check`] says whether they fit together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// Name, for reports and file names.
    pub name: String,
    /// Hosts in the cluster.
    pub hosts: u32,
    /// Ranks on each host.
    pub ranks_per_host: u32,
    /// Tensor-parallel size.
    pub tp: u32,
    /// Pipeline-parallel size.
    pub pp: u32,
    /// Data-parallel size.
    pub dp: u32,
    /// Context-parallel size (simulator only).
    pub cp: u32,
    /// Mixture of experts: tokens go to other ranks and back in each layer.
    pub moe: bool,
    /// Expert-parallel size; 0 = all data-parallel ranks when `moe`.
    pub ep: u32,
    /// Algorithm of AllReduce.
    pub algo: Algo,
    /// How gradients are combined.
    pub dp_mode: DpMode,
    /// Order of the micro-batches.
    pub schedule: Schedule,
    /// Chunks of layers per stage, for the interleaved schedule.
    pub virtual_stages: u32,
    /// Channels per communicator.
    pub channels: u32,
    /// Micro-batches per iteration.
    pub micro_batches: u32,
    /// Layers per pipeline stage.
    pub layers: u32,
    /// Forward compute of one layer and micro-batch, milliseconds.
    pub forward_ms: f64,
    /// Backward compute of one layer and micro-batch, milliseconds.
    pub backward_ms: f64,
    /// Optimizer step, milliseconds.
    pub optimizer_ms: f64,
    /// Bytes of one tensor-parallel AllReduce.
    pub tp_bytes: u64,
    /// Bytes of one activation between stages.
    pub pp_bytes: u64,
    /// Bytes of gradients per rank.
    pub dp_bytes: u64,
    /// Bytes of tokens a rank gives away in one expert exchange.
    pub ep_bytes: u64,
    /// Every how many iterations the loss is averaged over data-parallel ranks; 0 = never.
    pub loss_every: u32,
    /// First iterations that are slower (compilation, caches).
    pub warm_up_iterations: u32,
    /// How many times longer their compute takes.
    pub warm_up_factor: f64,
    /// Ranks start up to this many milliseconds apart.
    pub start_skew_ms: u64,
    /// Every how many iterations all ranks write a checkpoint; 0 = never.
    pub checkpoint_every: u32,
    /// How long a checkpoint takes, milliseconds.
    pub checkpoint_ms: u64,
    /// Compute times vary by this share, up and down.
    pub jitter: f64,
    /// Nominal speed of a host's NIC in each direction, bytes per second.
    pub nic_bytes_per_sec: u64,
    /// How long the job runs after its ranks are up, seconds; the fault's `after_s` is within it.
    pub duration_s: f64,
    /// How hosts are made.
    pub transport: Transport,
    /// Seed of every random choice.
    pub seed: u64,
    /// What breaks; absent in a healthy run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// What else breaks (simulator only).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// The machines (simulator only).
    pub cluster: Cluster,
    /// What a healthy job does besides training evenly (simulator only).
    pub life: Life,
}

impl Default for Scenario {
    /// The 16-rank job of the demo: 4 hosts x 4, TP 4, PP 2, DP 2, an iteration of about a quarter of a second.
    fn default() -> Scenario {
        Scenario {
            name: "default".to_owned(),
            hosts: 4,
            ranks_per_host: 4,
            tp: 4,
            pp: 2,
            dp: 2,
            cp: 1,
            moe: false,
            ep: 0,
            algo: Algo::Ring,
            dp_mode: DpMode::ReduceScatter,
            schedule: Schedule::OneFOneB,
            virtual_stages: 1,
            channels: 2,
            micro_batches: 4,
            layers: 2,
            forward_ms: 5.0,
            backward_ms: 10.0,
            optimizer_ms: 5.0,
            tp_bytes: 64 << 10,
            pp_bytes: 64 << 10,
            dp_bytes: 512 << 10,
            ep_bytes: 64 << 10,
            loss_every: 4,
            warm_up_iterations: 2,
            warm_up_factor: 2.0,
            start_skew_ms: 0,
            checkpoint_every: 0,
            checkpoint_ms: 3000,
            jitter: 0.02,
            nic_bytes_per_sec: 50_000_000,
            duration_s: 20.0,
            transport: Transport::Auto,
            seed: 1,
            fault: None,
            faults: Vec::new(),
            cluster: Cluster::default(),
            life: Life::default(),
        }
    }
}

/// A scenario that cannot be used. One line: the file, the line or field, what is wrong and what was expected.
#[derive(Debug, Error)]
pub enum ScenarioError {
    /// The file could not be read.
    #[error("{file}: cannot read the scenario: {source}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is not TOML of the right form.
    #[error("{file}:{line}: {message}")]
    Parse {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what was expected.
        message: String,
    },
    /// Its fields do not fit together.
    #[error("{file}: {message}")]
    Check {
        /// The file.
        file: String,
        /// The field, its value and what was expected.
        message: String,
    },
}

impl Scenario {
    /// Reads and checks a scenario file; a file without `name` is named after itself.
    pub fn load(path: &Path) -> Result<Scenario, ScenarioError> {
        let file = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|source| ScenarioError::Read { file: file.clone(), source })?;
        let mut scenario = Scenario::parse(&file, &text)?;
        if scenario.name == Scenario::default().name
            && let Some(stem) = path.file_stem()
        {
            scenario.name = stem.to_string_lossy().into_owned();
        }
        Ok(scenario)
    }

    /// Parses and checks the text of a scenario; `file` is for messages.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
        let scenario: Scenario = toml::from_str(text).map_err(|error: toml::de::Error| ScenarioError::Parse {
            file: file.to_owned(),
            line: error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count()),
            message: error.message().lines().collect::<Vec<_>>().join(" "),
        })?;
        scenario.check().map_err(|message| ScenarioError::Check { file: file.to_owned(), message })?;
        Ok(scenario)
    }

    /// Ranks in the job.
    pub fn world(&self) -> u32 {
        self.hosts.saturating_mul(self.ranks_per_host)
    }

    /// The job's parallel layout.
    pub fn layout(&self) -> Layout {
        let ep = match (self.moe, self.ep) {
            (false, _) => 1,
            (true, 0) => self.dp,
            (true, ep) => ep,
        };
        Layout { tp: self.tp, pp: self.pp, dp: self.dp, ep }
    }

    /// Host index of a rank.
    pub fn host_of(&self, rank: u32) -> u32 {
        rank / self.ranks_per_host.max(1)
    }

    /// Name of a host in records, cases and truth.
    pub fn host_name(&self, host: u32) -> String {
        format!("host{host}")
    }

    /// Whether the fields fit together; the error names the field and what was expected, in one line.
    pub fn check(&self) -> Result<(), String> {
        self.check_shape()?;
        self.check_numbers()?;
        match &self.fault {
            Some(fault) => {
                fault.check(self.hosts, self.ranks_per_host)?;
                self.check_network_fault(fault)
            }
            None => Ok(()),
        }
    }

    fn check_shape(&self) -> Result<(), String> {
        let name_ok = self.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if self.name.is_empty() || self.name.len() > 64 || !name_ok {
            return Err(format!("name = {:?}: expected 1 to 64 letters, digits, `-`, `_` or `.`", self.name));
        }
        for (field, value, most) in [
            ("hosts", self.hosts, HOSTS_MAX),
            ("ranks_per_host", self.ranks_per_host, RANKS_MAX),
            ("tp", self.tp, RANKS_MAX),
            ("pp", self.pp, RANKS_MAX),
            ("dp", self.dp, RANKS_MAX),
            ("channels", self.channels, 32),
            ("micro_batches", self.micro_batches, 256),
            ("layers", self.layers, 64),
        ] {
            if value == 0 || value > most {
                return Err(format!("{field} = {value}: expected 1 to {most}"));
            }
        }
        let (world, product) = (self.world(), u64::from(self.tp) * u64::from(self.pp) * u64::from(self.dp));
        if world > RANKS_MAX {
            return Err(format!("hosts x ranks_per_host = {world}: expected at most {RANKS_MAX} ranks"));
        }
        if u64::from(world) != product {
            return Err(format!(
                "tp x pp x dp = {} x {} x {} = {product}: expected hosts x ranks_per_host = {world}",
                self.tp, self.pp, self.dp
            ));
        }
        if self.ep != 0 && !self.moe {
            return Err(format!("ep = {}: only with moe = true", self.ep));
        }
        if self.moe && (self.dp < 2 || !self.dp.is_multiple_of(self.layout().ep.max(1))) {
            return Err(format!("ep = {}: expected a divisor of dp = {}, which is at least 2", self.ep, self.dp));
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<(), String> {
        for (field, value, most) in [
            ("forward_ms", self.forward_ms, 10_000.0),
            ("backward_ms", self.backward_ms, 10_000.0),
            ("optimizer_ms", self.optimizer_ms, 10_000.0),
            ("warm_up_factor", self.warm_up_factor, 100.0),
            ("jitter", self.jitter, 0.5),
            ("duration_s", self.duration_s, 86_400.0),
        ] {
            if !(0.0..=most).contains(&value) {
                return Err(format!("{field} = {value}: expected 0 to {most}"));
            }
        }
        for (field, value) in [
            ("tp_bytes", self.tp_bytes),
            ("pp_bytes", self.pp_bytes),
            ("dp_bytes", self.dp_bytes),
            ("ep_bytes", self.ep_bytes),
        ] {
            if !(4..=MESSAGE_BYTES_MAX).contains(&value) {
                return Err(format!("{field} = {value}: expected 4 to {MESSAGE_BYTES_MAX} bytes"));
            }
        }
        if self.nic_bytes_per_sec < 100_000 {
            return Err(format!("nic_bytes_per_sec = {}: expected at least 100000", self.nic_bytes_per_sec));
        }
        for (field, value) in [("start_skew_ms", self.start_skew_ms), ("checkpoint_ms", self.checkpoint_ms)] {
            if value > 60_000 {
                return Err(format!("{field} = {value}: expected at most 60000 milliseconds"));
            }
        }
        Ok(())
    }

    /// A fault of the network shows only where something crosses it.
    fn check_network_fault(&self, fault: &Fault) -> Result<(), String> {
        let of_network =
            matches!(fault.kind, FaultKind::NicDown | FaultKind::NicBandwidth | FaultKind::BackgroundTraffic);
        if (of_network || fault.kind == FaultKind::ProxyDelay) && self.hosts < 2 {
            return Err(format!("fault.kind = {}: needs at least 2 hosts, nothing crosses the network", fault.kind));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_default_and_text_round_trips() {
        assert_eq!(Scenario::parse("x", "").unwrap(), Scenario::default());
        let mut scenario = Scenario { fault: Some("gpu-power@host1:rank5".parse().unwrap()), ..Scenario::default() };
        scenario.name = "a-1".to_owned();
        let text = toml::to_string(&scenario).unwrap();
        assert_eq!(Scenario::parse("x", &text).unwrap(), scenario);
    }

    #[test]
    fn wrong_files_are_refused_in_one_line() {
        for (text, wanted) in [
            ("hots = 3", "s.toml:1: unknown field `hots`, expected one of"),
            ("hosts = 2\ntp = \"x\"", "s.toml:2: invalid type: string \"x\", expected u32"),
            ("hosts = ", "s.toml:1:"),
            ("\n[fault]\nkind = \"nic-up\"", "s.toml:3: unknown variant `nic-up`, expected one of"),
            ("hosts = 3", "tp x pp x dp = 4 x 2 x 2 = 16: expected hosts x ranks_per_host = 12"),
            ("hosts = 0", "hosts = 0: expected 1 to 64"),
            ("hosts = 65", "hosts = 65: expected 1 to 64"),
            ("ep = 2", "ep = 2: only with moe = true"),
            ("moe = true\nep = 3", "ep = 3: expected a divisor of dp = 2"),
            ("tp_bytes = 1", "tp_bytes = 1: expected 4 to"),
            ("jitter = -1.0", "jitter = -1: expected 0 to 0.5"),
            ("forward_ms = nan", "forward_ms = NaN: expected 0 to"),
            ("name = \"../x\"", "name = \"../x\": expected"),
            ("[fault]\nkind = \"gpu-hang\"\nhost = 9", "fault.host = 9: expected 0 to 3"),
            ("hosts = 1\ntp=2\npp=1\n[fault]\nkind = \"nic-down\"", "needs at least 2 hosts"),
        ] {
            let error = Scenario::parse("s.toml", text).unwrap_err().to_string();
            assert!(error.contains(wanted), "{text}: {error}");
            assert!(error.starts_with("s.toml:") && !error.contains('\n'), "{error}");
        }
        let error = Scenario::load(Path::new("no/such.toml")).unwrap_err().to_string();
        assert!(error.starts_with("no/such.toml: cannot read the scenario"), "{error}");
    }

    #[test]
    fn words_round_trip() {
        for transport in [Transport::Auto, Transport::Netns, Transport::Loopback] {
            assert_eq!(transport.to_string().parse::<Transport>().unwrap(), transport);
        }
        assert_eq!("tree".parse::<Algo>().unwrap(), Algo::Tree);
        assert!("x".parse::<DpMode>().unwrap_err().contains("reduce-scatter all-reduce"));
    }
}
