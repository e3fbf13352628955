//! The store: how batches are serialized, shipped, kept and found again.
//!
//! `codec` turns batches into bytes, `wire` carries them from agents to a server, `spool` holds them while the server
//! is away, and [`Store`] keeps them: a hot window in memory, a write-ahead log and Parquet segments on disk, cases in
//! SQLite. [`recording`] keeps a finished run in a folder of its own. Formats: `docs/formats/wire.md`,
//! `docs/formats/store.md`, `docs/formats/record.md`.
#![forbid(unsafe_code)]

mod bytes;
pub mod cells;
pub mod codec;
pub mod delivery;
mod disk;
pub mod facade;
pub mod hot;
mod log;
pub mod meta;
pub mod recording;
pub mod segment;
pub mod spool;
pub mod wire;

pub use delivery::{Deliveries, Delivery};
pub use disk::Replay;
pub use facade::{Maintained, Store, StoreConfig, StoreError, StoreStats};
pub use hot::{Cursor, Hit, HotLimits, LastState, Query, Tail};
