//! Numbers of cases of servers on a bus: each has a range of its own, for ever, so that a case keeps its number when another server
//! goes on with it.
use mycroft_store::meta::{Leased, SHARED_FROM};
use mycroft_store::{Store, StoreError};
use std::time::Duration;

/// Numbers of a range: a thousand a day for three years.
const RANGE: u64 = SHARED_FROM;
/// Ranges that there may be: more servers than ever share a database.
const RANGES_MAX: u64 = 4096;
/// A range is a server's for good: a century.
const FOR_GOOD: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The number that the next case of this server gets.
///
/// # Errors
/// The database does not answer, or no range is left.
pub(crate) fn next_number(store: &Store, server: &str) -> Result<u64, StoreError> {
    for range in 1..RANGES_MAX {
        // The first that is its own, or nobody's: whoever took one keeps it, so its own comes before what is free.
        let leased = store.take_lease(&format!("bus numbers {range}"), server, FOR_GOOD)?;
        if let Leased::Ours(_) = leased {
            let from = range * RANGE;
            return Ok(store.highest_case(from, from + RANGE)?.max(from) + 1);
        }
    }
    let why = format!(
        "all {RANGES_MAX} ranges of numbers are taken; delete those of servers that are gone from mycroft_leases"
    );
    Err(StoreError::NotKept { why })
}
