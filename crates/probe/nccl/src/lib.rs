//! `libmycroft_nccl.so`: the tracer as a NCCL profiler plugin: stock NCCL loads it, nothing is patched (Mycroft section 4.2).
//!
//! Exports `ncclProfiler_v1` to `ncclProfiler_v7`; NCCL takes the highest it knows. One file per version holds its
//! layouts and turns its descriptors into the newest vocabulary; everything else is `mycroft_probe_core`.
pub mod abi;
pub mod adapter;
pub mod chain;
mod log;
pub mod mask;
mod pairs;
pub mod v1;
pub mod v2;
pub mod v3;
pub mod v4;
pub mod v5;
pub mod v6;
pub mod v7;
