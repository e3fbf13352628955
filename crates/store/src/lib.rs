//! The store: how batches are kept and found again.
//!
//! [`Store`] keeps them: a write-ahead log and Parquet segments on disk, cases in SQLite or PostgreSQL. [`read_only`] reads what a
//! store holds and writes nothing. [`back_up`] copies one that is in use. [`recording`] keeps a finished run in a folder of its own. Formats:
//! `docs/formats/store.md`, `docs/formats/record.md`.
#![forbid(unsafe_code)]

mod backup;
pub mod delivery;
mod disk;
mod error;
pub mod facade;
mod footer;
pub mod meta;
mod names;
pub mod recording;
pub mod remote;
pub mod runs;
pub mod segment;
pub mod series;
mod source;

pub use backup::{BackedUp, back_up};
pub use delivery::{Deliveries, Delivery};
pub use disk::Arrival;
pub use error::StoreError;
pub use facade::{Maintained, Store, StoreConfig, is_store, read_only};
pub use source::{Replay, StoreAt};
