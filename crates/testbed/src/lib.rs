//! The testbed: a scenario played by real processes, on real hosts or what comes closest, with real faults.
//!
//! One launcher ([`Testbed::launch`]) makes the hosts (network namespaces joined by a bridge, or loopback addresses),
//! starts one process per rank and one agent per host, injects the fault, tells the truth about it, and leaves nothing
//! behind. The ranks ([`rank_main`]) run a Megatron-like job over whatever `libnccl.so.2` lies in the run's directory:
//! the CPU collective library of `crates/testbed/nccl`, which loads the tracer as NCCL would.

pub mod awake;
pub mod board;
pub mod config;
pub mod error;
pub mod fault;
pub mod hosts;
pub mod launcher;
pub mod leftovers;
pub mod library;
pub mod personality;
pub mod process;
pub mod workload;

pub use awake::Awake;
pub use board::Lap;
pub use config::{AgentCommand, FAULT_FILE, LaunchConfig, Tracer};
pub use error::TestbedError;
pub use hosts::Host;
pub use launcher::{Progress, RankExit, Running, Testbed};
pub use leftovers::{Collected, collect_leftovers};
pub use personality::nccl;
pub use workload::change::Change;
pub use workload::{RankArgs, rank_main};
