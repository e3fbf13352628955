//! The store: how batches are kept and found again.
//!
//! [`Store`] keeps them: a write-ahead log and Parquet segments on disk, cases in SQLite. [`read_only`] reads what a
//! store holds and writes nothing. [`recording`] keeps a finished run in a folder of its own. Formats:
//! `docs/formats/store.md`, `docs/formats/record.md`.
#![forbid(unsafe_code)]

pub mod delivery;
mod disk;
pub mod facade;
pub mod meta;
mod names;
pub mod recording;
pub mod segment;
mod source;

pub use delivery::{Deliveries, Delivery};
pub use facade::{Arrival, Maintained, Store, StoreConfig, StoreError, is_store, read_only};
pub use source::Replay;
