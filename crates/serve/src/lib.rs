//! The always-on side: takes batches from agents, runs the diagnosis of every job, keeps cases, and answers readers.
//!
//! ```text
//! wire -> intake -> inbox -> brain (one thread: engine per job) -> book of cases -> HTTP, webhook, OTLP
//!            `-> keep_queue -> keeper (one thread: log)      upkeep <--'  (one thread: cases, segments)
//! ```
//!
//! `bus` brings records to the same intake from partitions that this server holds by leases.
//!
//! `act` writes files that carry plans out, where a person or a policy asked for it (HTTP, and a thread of its own).
//!
//! Notable events (a case opened, the disk failed) are told with `tracing`; all threads of a server tell the subscriber of
//! the thread that started it.
//!
//! The wall clock is read here and nowhere below (`clock`); JSON is made here and nowhere below (`api`).
#![forbid(unsafe_code)]

pub mod act;
mod alert;
pub mod api;
pub mod autopsy;
mod bind;
mod book;
mod brain;
mod bus;
mod case;
mod census;
mod clock;
mod clocks;
mod command;
mod config;
mod core;
mod dump;
mod error;
mod expiry;
mod feed;
mod fleet;
mod gates;
mod http;
mod inbox;
mod intake;
mod job;
mod keep_queue;
mod keeper;
mod keepers;
mod lately;
mod open;
mod otlp;
mod post;
mod refusals;
pub mod replay;
mod schedule;
mod series;
mod server;
mod stats;
mod stored;
#[cfg(test)]
mod tests;
mod thread;
pub mod tokens;
mod upkeep;
mod warm;

pub use alert::{AlertJson, WebhookFormat};
pub use bus::source::BusSource;
pub use case::{BookState, BookedCase, Capture, Validation};
pub use config::{ConfigError, HTTP_PORT, ServeConfig, TICK};
pub use error::ServeError;
pub use otlp::OtlpHeaders;
pub use server::{Server, ServerHandle};
