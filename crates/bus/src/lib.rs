//! A bus between agents and servers: frames of the wire as records of a log that brokers keep, in partitions by job.
//!
//! ```text
//! agent -> Producer (a Carrier) -> partition of a topic -> Part (read by the server that holds its lease) -> intake
//! ```
//!
//! What a record holds, who reads which partition, and what is read again after a takeover: `docs/formats/bus.md`. Only `kafka`
//! speaks to brokers; the rest knows none.
#![forbid(unsafe_code)]

mod address;
mod entry;
#[cfg(feature = "kafka")]
pub mod kafka;
mod moment;
mod partition;
mod security;
mod seen;
mod topic;

pub use address::{BadAddress, BusAddress};
pub use entry::{BadEntry, Entry};
pub use moment::Moment;
pub use partition::partition_of;
pub use security::{BusSecurity, Sasl};
pub use seen::Seen;
pub use topic::{Begin, BusError, Fetched, Part, Topic};
