//! Every host that the server knows, as JSON.
use super::TimeJson;
use mycroft_wire::Spooled;
use serde::{Deserialize, Serialize};

/// `GET /api/v1/fleet`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FleetJson {
    /// The server's wall clock.
    pub now: TimeJson,
    /// Version of the server's program.
    pub version: String,
    /// The lowest and the highest version of the agents' protocol that the server speaks.
    pub wire_versions: [u16; 2],
    /// Seconds since the server started: counts begin then.
    pub uptime_s: f64,
    /// In name order: hosts with an agent that is connected, or that were heard within a day, were it by a hello alone.
    pub hosts: Vec<HostJson>,
    /// Hosts cut off by `limit`.
    pub more: u64,
    /// Jobs that are not over and have traced processes, in name order.
    pub jobs: Vec<RanksOfJobJson>,
    /// Connections of agents that were refused or ended for breaking the rules: token, certificate, version.
    pub refused: u64,
    /// Whose they were, as far as they came to say: of the last day, the newest first, 64 at most.
    #[serde(default)]
    pub refusals: Vec<RefusalJson>,
    /// Connections that were put out before they had shown who they are, because too many came.
    pub put_out: u64,
    /// Certificates that the server itself uses.
    #[serde(default)]
    pub certificates: Vec<CertificateJson>,
}

/// One host.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostJson {
    /// Its name, as its agent says.
    pub host: String,
    /// Agents that are connected under this name now.
    pub agents: Vec<AgentJson>,
    /// Where none is connected, the one that was heard last; null: one is, or none has said hello since the server started.
    #[serde(default)]
    pub last_agent: Option<LastAgentJson>,
    /// When its first batch arrived, server clock; null: none has.
    pub first_heard_at: Option<TimeJson>,
    /// When its newest batch arrived, server clock; null: none has.
    pub last_heard_at: Option<TimeJson>,
    /// Seconds since its newest batch; 0 where none has arrived.
    pub silent_s: f64,
    /// How old its newest batch was when it arrived, seconds: what waited in the agent's spool is old. The difference of the
    /// clocks is taken off where it is known.
    pub behind_s: f64,
    /// Its clock against the server's; null: nobody has told.
    pub clock: Option<HostClockJson>,
    /// Records that its agent has dropped since the agent started.
    pub agent_dropped: u64,
    /// Records that were lost, by place.
    pub lost: LostJson,
    /// Its traced processes that live, those alike together.
    pub traced: Vec<TracedJson>,
}

/// An agent that is connected.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AgentJson {
    /// Its program and version, as it says: `mycroft 0.9.0`.
    pub software: String,
    /// The version of the protocol that is spoken with it.
    pub wire_version: u16,
    /// Seconds since its last message, a sign of life each second included; null: the server does not tell.
    #[serde(default)]
    pub silent_s: Option<f64>,
    /// What it says of its spool; null: it does not.
    #[serde(default)]
    pub spool: Option<SpoolJson>,
}

/// An agent that is not connected any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LastAgentJson {
    /// When its last message came, server clock.
    pub heard_at: TimeJson,
    /// As in [`AgentJson`].
    pub software: String,
    /// As in [`AgentJson`].
    pub wire_version: u16,
    /// What it said of its spool then; null: nothing.
    pub spool: Option<SpoolJson>,
}

/// The spool of an agent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SpoolJson {
    /// Records that wait there for the server.
    pub records: u64,
    /// Bytes of their frames on its disk.
    pub bytes: u64,
    /// Records that the agent has dropped since it started.
    pub dropped: u64,
}

impl From<Spooled> for SpoolJson {
    fn from(Spooled { records, bytes, dropped }: Spooled) -> SpoolJson {
        SpoolJson { records, bytes, dropped }
    }
}

/// An agent that was refused. Nobody vouches for what it says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RefusalJson {
    /// The host that it says it is of, what does not print escaped, 256 characters at most; null: it did not come to say.
    pub host: Option<String>,
    /// The address that it came from; null: the unix socket.
    pub address: Option<String>,
    /// Why: `token`, `certificate`, `too-old`, `too-new`, `tls-required`, `no-tls`, `full`, `number-taken`, `malformed`,
    /// `other-protocol`.
    pub reason: String,
    /// The same for people, as in the server's log.
    pub text: String,
    /// How often, since it first was or was last let in.
    pub times: u64,
    /// When it first was, server clock.
    pub first_at: TimeJson,
    /// When it last was, server clock.
    pub last_at: TimeJson,
}

/// A host's clock against the server's.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostClockJson {
    /// Seconds that it is ahead now; negative: behind.
    pub offset_s: f64,
    /// The truth differs by at most so many seconds; null: nobody knows.
    pub bound_s: Option<f64>,
    /// How much more it is ahead after a second, millionths.
    pub drift_ppm: f64,
}

/// Records lost on the way from the job to the diagnosis since the server started, by place.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LostJson {
    /// The ring overwrote them before the agent read them.
    pub ring: u64,
    /// The probe had no free slot.
    pub probe: u64,
    /// The agent's spool was full.
    pub spool: u64,
    /// Torn or impossible slots.
    pub damaged: u64,
    /// The server could not keep up.
    pub server: u64,
    /// When the newest loss was told, server clock; null: none.
    pub last_at: Option<TimeJson>,
}

/// Traced processes of a host that are alike.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TracedJson {
    /// Their job.
    pub job: String,
    /// How many.
    pub processes: u64,
    /// Their NCCL, `2.28.9`; null: not told, as before the first communicator.
    pub nccl: Option<String>,
    /// The same as `ncclGetVersion` gives it; 0: not told.
    pub nccl_code: u32,
    /// The profiler's ABI that NCCL chose; 0: none, calls alone are recorded.
    pub profiler_abi: u32,
    /// Whether kernel events are traced; null: not told.
    pub kernel_events: Option<bool>,
}

/// The ranks of a job that agents have told of.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RanksOfJobJson {
    /// The job.
    pub job: String,
    /// Seconds since the first batch of a process of it that lives arrived.
    pub known_s: f64,
    /// How many ranks its launcher says it has; null: nobody said.
    pub world_size: Option<u32>,
    /// Hosts with its ranks.
    pub hosts: u64,
    /// Ranks that are traced.
    pub ranks: u64,
    /// Ranks of the world that nobody has told of.
    pub missing: u64,
    /// The same as ranges, first and last; the first 64.
    pub missing_ranks: Vec<[u32; 2]>,
}

/// A certificate that the server uses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CertificateJson {
    /// Of what: `wire`, `http`, `agents-authority`.
    pub of: String,
    /// When the first of its file ends; null: it cannot be read.
    pub ends_at: Option<TimeJson>,
}

impl HostJson {
    /// A host whose agent is connected and has sent nothing yet.
    pub(crate) fn unheard(host: String) -> HostJson {
        HostJson {
            host,
            agents: Vec::new(),
            last_agent: None,
            first_heard_at: None,
            last_heard_at: None,
            silent_s: 0.0,
            behind_s: 0.0,
            clock: None,
            agent_dropped: 0,
            lost: LostJson::default(),
            traced: Vec::new(),
        }
    }
}
