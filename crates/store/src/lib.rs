//! The store: how batches are kept and found again.
//!
//! [`Store`] keeps them: a hot window in memory, a write-ahead log and Parquet segments on disk, cases in SQLite.
//! [`recording`] keeps a finished run in a folder of its own. Formats: `docs/formats/store.md`,
//! `docs/formats/record.md`.
#![forbid(unsafe_code)]

pub mod delivery;
mod disk;
pub mod facade;
pub mod hot;
pub mod meta;
pub mod recording;
pub mod segment;

pub use delivery::{Deliveries, Delivery};
pub use disk::Replay;
pub use facade::{Maintained, Store, StoreConfig, StoreError, StoreStats};
pub use hot::{Cursor, Hit, HotLimits, LastState, Query, Tail};
