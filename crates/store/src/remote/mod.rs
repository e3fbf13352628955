//! Records in ClickHouse: segments of a store as rows of tables that several stores share (`docs/formats/store.md`,
//! "ClickHouse").
//!
//! Records go into the log first, as without it. A segment is sent in pieces, counted there, and entered into a table of
//! segments: rows count from then on, all of them at once. What is not entered stays a file.
mod address;
mod error;
#[cfg(feature = "clickhouse")]
mod http;
#[cfg(feature = "clickhouse")]
mod rows;
#[cfg(feature = "clickhouse")]
pub(crate) mod ship;
#[cfg(feature = "clickhouse")]
pub(crate) mod table;

pub use address::{ClickHouseAt, RecordsPlace};
pub use error::RecordsError;
