//! The in-job runtime that both probe libraries share (Mycroft section 4.2).
//!
//! It attaches at the first communicator (never at load time), keeps operations and flows in flight in the shared
//! segment, pushes completions into the calling thread's ring, and hands out handles that survive misuse. After a
//! thread's first event nothing here allocates, locks or makes a system call, and nothing here can end the job: what does
//! not fit is dropped and counted, a panic switches tracing off, a forked child stays silent.
mod comms;
pub mod config;
mod events;
mod flows;
pub mod guard;
pub mod handle;
mod kernels;
mod ops;
mod pool;
mod runtime;
mod step;
mod threads;

pub use events::{CollStart, CommInfo, CommTag, P2pStart, ProxyOpStart, StateArg, state};
pub use guard::ffi_guard;
pub use runtime::{Attach, AttachError, Runtime};
pub use step::mycroft_step;
