//! The in-job runtime that both probe libraries share (Mycroft section 4.2).
//!
//! It attaches at the first communicator (never at load time), keeps operations and flows in flight in the shared
//! segment, pushes completions into the calling thread's ring, and hands out handles that survive misuse. After a
//! thread's first event nothing here allocates, locks or makes a system call, and nothing here can end the job: what does
//! not fit is dropped and counted, a panic switches tracing off, a forked child stays silent.
//!
//! **Nothing here uses the heap, at any time.** Rust's collections end the process where the heap is exhausted, and so do
//! the C library's thread-local storage and its registration of thread-exit functions; so a job near its limits would die
//! of its tracer. All memory is mapped (`mycroft_ring::pages`), where a lack of it is an error that leaves the process, or
//! one communicator, untraced; texts have fixed room (`mycroft_ring::fixed`); threads are told apart by a pthread key. The
//! limits are looked at before anything is made (`mycroft_ring::limits`). `crates/probe/nccl/tests/cost.rs` counts the
//! allocations of every call, `init` included: none. `crates/probe/nccl/tests/scarce.rs` runs the tracer under every limit
//! and with every call to the system failing in turn.
mod calls;
mod comms;
pub mod config;
mod events;
mod flows;
pub mod guard;
pub mod handle;
mod kernels;
mod lanes;
mod ops;
mod pool;
mod runtime;
mod sight;
mod step;
mod threads;
mod told;

pub use events::{CallStart, CollStart, CommInfo, CommTag, P2pStart, ProxyOpStart, StateArg, state};
pub use guard::ffi_guard;
pub use mycroft_ring::pages;
pub use mycroft_ring::{FixedPath, FixedText};
pub use runtime::{Attach, AttachError, Runtime};
pub use step::mycroft_step;
