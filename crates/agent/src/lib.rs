//! The host daemon: it drains the rings of all traced processes of a host, samples their live tables, network
//! interfaces and load, and ships batches to a server; live state is sampled from outside, so the
//! job runs no thread of ours and a frozen process still shows its last state.
//!
//! Two threads. The sampling thread never waits for anything but time: it treats every segment as written by an
//! adversary, tells only what changed, and says what was lost. The shipping thread talks to the server, spools to disk
//! while there is none, and keeps the order of each source. When the server orders stacks and dumps, further threads
//! take them and end.
//!
//! ```no_run
//! use mycroft_agent::{Agent, AgentConfig};
//! use std::path::Path;
//! let endpoint: mycroft_agent::Endpoint = "127.0.0.1:7700".parse().expect("an endpoint");
//! let config = AgentConfig::new(Path::new("/dev/shm/mycroft-1000"), Path::new("/var/lib/mycroft/spool"), endpoint);
//! let agent = Agent::start(config).expect("an agent");
//! for notice in agent.take_notices() {
//!     println!("{notice}");
//! }
//! println!("{:?}", agent.stop());
//! ```

mod agent;
mod backlog;
mod capture;
mod clock;
pub mod config;
mod convert;
mod discover;
mod error;
mod hold;
mod kept;
mod lock;
pub mod nic;
mod outbox;
mod positions;
mod process;
mod proxies;
mod sampler;
mod seen;
mod segment;
mod segment_dir;
mod ship;
mod smallfile;
mod stats;
pub mod tap;
mod turns;
mod vitals;
mod waits;

pub use agent::{Agent, AgentHandle, host_name};
pub use capture::here::{LocalRank, Taken, local_ranks, take_here};
pub use capture::spy::main as spy;
pub use config::{AgentConfig, CaptureConfig, REPEAT_EVERY, SpyProgram};
pub use error::{AgentError, Notice};
pub use mycroft_wire::{Endpoint, TlsClient, Way};
pub use stats::AgentStats;
