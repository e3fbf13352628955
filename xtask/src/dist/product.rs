//! What is handed out, by name.

/// The version of everything here.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The machine that it is built for, as Rust and Linux call it.
pub(super) const ARCH: &str = std::env::consts::ARCH;
/// The program.
pub(super) const PROGRAM: &str = "mycroft";
/// What the job loads, and the CPU library of `mycroft demo`.
pub(super) const LIBRARIES: &[&str] = &["libmycroft_nccl.so", "libmycroft_preload.so", "libmycroft_testbed_nccl.so"];
