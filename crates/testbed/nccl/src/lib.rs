//! A CPU stand-in for `libnccl.so.2`: NCCL's C ABI, real processes, real data, NCCL's profiler plugin interface.
//!
//! It exists so that everything the tracer and the diagnosis claim about collective communication can be tried on any
//! machine. Inside it works as NCCL does: a communicator has channels; a channel runs a ring or a tree; a connection
//! is a FIFO of eight slots with credits; a device thread per stream fills and drains slots; a proxy thread per
//! communicator moves slots between hosts over TCP or RDMA; ranks of one host share memory. Faults come from a
//! [`control::ControlFile`].
//!
//! | file | question it answers |
//! |---|---|
//! | `api`, `events`, `ffi` | what C callers see |
//! | `launch` | how calls become kernels and proxy operations |
//! | `personality` | what differs between NCCL versions; `MYCROFT_TESTBED_NCCL` |
//! | `tuner`, `schedule` | algorithm, protocol and channels by size; channels and order of transfers |
//! | `kernel` | what the device does with slots (ring, tree, point to point) |
//! | `device`, `clock` | how streams execute in order, and by which clocks |
//! | `proxy` | how slots cross the network, and when the plugin hears of it |
//! | `transport` | what a FIFO, a segment and a connection are |
//! | `profiler` | how a plugin is loaded and called, one file per interface version |
//! | `comm`, `bootstrap` | how ranks find each other, begin and end |
//! | `control` | how faults are injected |
//! | `env` | what the environment says |
//!
//! What it is not: fast, or a network library. It models no NVLink, NVLS, CollNet, graphs or PXN; of LL and LL128 it has
//! the choice by size and the sizes of steps, not the flags in the data.

#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
pub mod api;
pub mod bootstrap;
mod clock;
pub mod comm;
pub mod control;
pub mod device;
pub mod dtype;
pub mod env;
pub mod events;
mod ffi;
pub mod kernel;
mod launch;
mod log;
pub mod personality;
pub mod profiler;
mod proxy;
pub mod schedule;
pub mod transport;
pub mod tuner;
