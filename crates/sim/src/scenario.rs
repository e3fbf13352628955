//! The scenario: one training job on one cluster and its faults, as a TOML file says it. What fits together is in
//! `check`.
pub use crate::choice::{Algo, DpMode, Schedule, Transport};
use crate::cluster::Cluster;
use crate::fault::Fault;
use crate::layout::{GroupKind, Layout};
use crate::life::Life;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use thiserror::Error;

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
    #[error("{place}: {message}")]
    Check {
        /// The file, and the line where the field is written, if it is.
        place: String,
        /// The field, its value and what was expected.
        message: String,
    },
}

impl Scenario {
    /// Reads and checks a scenario file; a file without `name` is named after itself.
    ///
    /// # Errors
    /// The file cannot be read, is not a scenario, or breaks a rule.
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
    ///
    /// # Errors
    /// The text is not a scenario, or breaks a rule.
    pub fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
        let scenario: Scenario = toml::from_str(text).map_err(|error: toml::de::Error| ScenarioError::Parse {
            file: file.to_owned(),
            line: error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count()),
            message: error.message().lines().collect::<Vec<_>>().join(" "),
        })?;
        scenario.check().map_err(|message| ScenarioError::Check { place: place(file, text, &message), message })?;
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
        Layout { tp: self.tp, pp: self.pp, dp: self.dp, cp: self.cp, ep }
    }

    /// Host index of a rank.
    pub fn host_of(&self, rank: u32) -> u32 {
        rank / self.ranks_per_host.max(1)
    }

    /// The rank that does the work of a position in the layout: the rank of that number, unless hosts have changed places.
    pub fn rank_at(&self, position: u32) -> u32 {
        let ranks = self.ranks_per_host.max(1);
        let host = self.life.places.get((position / ranks) as usize).copied();
        host.map_or(position, |host| host * ranks + position % ranks)
    }

    /// The position in the layout of a rank, see [`Scenario::rank_at`].
    pub fn position_of(&self, rank: u32) -> u32 {
        let ranks = self.ranks_per_host.max(1);
        let place = self.life.places.iter().position(|host| *host == rank / ranks);
        place.map_or(rank, |place| place as u32 * ranks + rank % ranks)
    }

    /// Name of a host in records, cases and truth.
    pub fn host_name(&self, host: u32) -> String {
        format!("host{host}")
    }

    /// The hosts that exchange data with `host` in every iteration: next to each other in a ring, in a pipeline, or in an
    /// expert group. Trees join further pairs of the same groups.
    pub fn neighbours(&self, host: u32) -> BTreeSet<u32> {
        let layout = self.layout();
        let mut hosts = BTreeSet::new();
        for rank in host * self.ranks_per_host..(host + 1) * self.ranks_per_host {
            for kind in GroupKind::ALL {
                if layout.size(kind) < 2 {
                    continue;
                }
                let group = layout.group(kind, self.position_of(rank));
                let (size, at) = (group.ranks.len(), layout.place(kind, self.position_of(rank)).1 as usize);
                let peers: Vec<usize> = match kind {
                    GroupKind::Expert => (0..size).collect(),
                    GroupKind::Pipeline => (at.saturating_sub(1)..=(at + 1).min(size - 1)).collect(),
                    _ => vec![(at + 1) % size, (at + size - 1) % size],
                };
                hosts.extend(peers.into_iter().map(|peer| self.host_of(self.rank_at(group.ranks[peer]))));
            }
        }
        hosts.remove(&host);
        hosts
    }

    /// Ranks of other hosts that a rank sends to: next in its rings, neighbour stages, other experts. Trees are left out.
    pub fn sends_to(&self, rank: u32) -> BTreeSet<u32> {
        let layout = self.layout();
        let mut ranks = BTreeSet::new();
        for kind in GroupKind::ALL.into_iter().filter(|kind| layout.size(*kind) > 1) {
            let position = self.position_of(rank);
            let members: Vec<u32> = layout.group(kind, position).ranks.into_iter().map(|at| self.rank_at(at)).collect();
            let (size, at) = (members.len(), layout.place(kind, position).1 as usize);
            match kind {
                GroupKind::Expert => ranks.extend(members),
                GroupKind::Pipeline => ranks.extend(&members[at.saturating_sub(1)..=(at + 1).min(size - 1)]),
                _ => drop(ranks.insert(members[(at + 1) % size])),
            }
        }
        ranks.retain(|other| self.host_of(*other) != self.host_of(rank));
        ranks
    }

    /// Every fault, the first one first.
    pub fn all_faults(&self) -> impl Iterator<Item = &Fault> {
        self.fault.iter().chain(&self.faults)
    }
}

/// `file:line` of the field that a message of [`Scenario::check`] begins with; only the file where the field has its
/// default or is written inline.
fn place(file: &str, text: &str, message: &str) -> String {
    let end = message.find(|c: char| !(c.is_ascii_alphanumeric() || "_.[]".contains(c))).unwrap_or(message.len());
    let (table, key) = message[..end].rsplit_once('.').unwrap_or(("", &message[..end]));
    let mut here = String::new();
    let mut fault_tables = 0;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("[[faults]]") {
            here = format!("faults[{fault_tables}]");
            fault_tables += 1;
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            here = name.trim().to_owned();
        } else if here == table && line.split('=').next().is_some_and(|name| name.trim() == key) {
            return format!("{file}:{}", index + 1);
        }
    }
    file.to_owned()
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
            ("seed = 3\n hosts = 0", "s.toml:2: hosts = 0: expected 1 to 16384"),
            ("hosts = 16385", "s.toml:1: hosts = 16385: expected 1 to 16384"),
            ("hosts = 16384\nranks_per_host = 16", "at most 131072 ranks"),
            ("cp = 2", "tp x cp x pp x dp = 4 x 2 x 2 x 2 = 32: expected hosts x ranks_per_host = 16"),
            ("virtual_stages = 2", "virtual_stages = 2: only with schedule = \"interleaved\""),
            ("schedule = \"interleaved\"", "virtual_stages = 1: expected at least 2"),
            (
                "schedule = \"interleaved\"\nvirtual_stages = 2\nmicro_batches = 3",
                "micro_batches = 3: expected a multiple of pp",
            ),
            ("schedule = \"interleaved\"\nvirtual_stages = 4", "virtual_stages = 4: expected a divisor of layers = 2"),
            ("[cluster]\nnics_per_host = 3", "s.toml:2: cluster.nics_per_host = 3: expected a divisor of"),
            ("[cluster]\nrdma_spread = 0.9", "s.toml:2: cluster.rdma_spread = 0.9: expected 0 to 0.5"),
            ("[cluster]\nrail = 3", "s.toml:2: unknown field `rail`"),
            ("[life]\nstraggle_share = 0.1", "life.straggle_factor = 0: expected 1 to 100"),
            ("[life]\neval_every = 3", "life.eval_micro_batches = 0: expected 1 to 256"),
            ("[life]\n\ngc_ms = -1.0", "s.toml:3: life.gc_ms = -1: expected 0 to 60000"),
            (
                "[[faults]]\nkind = \"gpu-power\"\n[[faults]]\nkind = \"gpu-power\"\nhost = 4",
                "s.toml:5: faults[1].host = 4",
            ),
            ("ep = 2", "ep = 2: only with moe = true"),
            ("moe = true\nep = 3", "ep = 3: expected a divisor of dp = 2"),
            ("tp_bytes = 1", "s.toml:1: tp_bytes = 1: expected 4 to 1073741824 bytes"),
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
    fn neighbours_are_who_data_goes_to() {
        // TP 4 inside a host; DP joins hosts 0 and 1, 2 and 3; PP joins 0 and 2, 1 and 3.
        let neighbours = |host| Scenario::default().neighbours(host).into_iter().collect::<Vec<u32>>();
        assert_eq!(neighbours(0), vec![1, 2]);
        assert_eq!(neighbours(3), vec![1, 2]);
        let ring = Scenario { hosts: 8, dp: 8, tp: 4, pp: 1, ..Scenario::default() };
        assert_eq!(ring.neighbours(0).into_iter().collect::<Vec<u32>>(), vec![1, 7]);
        let experts = Scenario { moe: true, ..ring };
        assert_eq!(experts.neighbours(0).len(), 7);
    }

    #[test]
    fn ranks_send_to_the_next_in_their_rings() {
        let sends_to = |scenario: &Scenario, rank| scenario.sends_to(rank).into_iter().collect::<Vec<u32>>();
        // TP 4 inside a host, two replicas in each of eight.
        let ring = Scenario { hosts: 8, ranks_per_host: 8, dp: 16, tp: 4, pp: 1, ..Scenario::default() };
        assert_eq!((sends_to(&ring, 3), sends_to(&ring, 7), sends_to(&ring, 61)), (vec![], vec![11], vec![1]));
        let stages = Scenario { dp: 8, pp: 2, ..ring.clone() };
        assert_eq!(sends_to(&stages, 7), vec![11, 39]);
        let experts = Scenario { moe: true, ep: 4, ..ring };
        assert_eq!(sends_to(&experts, 7), vec![11, 15]);
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
