//! What the wire shows: bytes per flow and epoch of microseconds, and the packets they are counted from.
//!
//! The measurement of Pulse (section 4) without its NIC: events become epochs in [`Meter`], found by queue pair number
//! ([`NicMeter`]) or by addresses ([`MirrorMeter`]), and [`packet`] reads the headers of a frame. No IO, no clock, no
//! dependencies, no `std`: the core is meant to run where there is little of anything. `docs/formats/flow.md` says what is
//! counted, in which units, and how it lies in memory.
#![no_std]
#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used)]
#![deny(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

extern crate alloc;

mod bytes;
mod curves;
mod direct;
mod key;
mod keyed;
pub mod limits;
mod meter;
mod mirror;
mod nic;
pub mod packet;
mod pool;
mod roce;
mod sequence;
mod window;

pub use bytes::Skipped;
pub use curves::{CURVES_MAX, Curve, CurveEpoch, Curves, POINTS_MAX};
pub use key::{Ports, WireFlow};
pub use meter::{Counters, FlowId, FlowReport, Meter, Resent};
pub use mirror::{Exchange, MirrorMeter};
pub use nic::NicMeter;
pub use packet::{Link, Packet, Tcp, Transport};
pub use roce::{Aeth, Opcode, Reth, Roce};
pub use sequence::Order;
